// SPDX-License-Identifier: MIT OR Apache-2.0
//! The housekeeper: a thread of ordinary priority that makes processes when Linux asks for them, and tidies up behind Linux.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use crtos_abi::channel::OP_EXIT;
use crtos_channel::{Block, Line, Request, Start};
use spin::Once;

use crate::{
    exec,
    mm::space::AddressSpace,
    process::{Process, ThreadData, User},
    remote::{self, Revoker},
    task::{self, Scheduling, Spawn, Thread},
    time::{self, Nanos},
};

static HOUSEKEEPER: Once<Arc<Thread>> = Once::new();

/// How often the housekeeper looks around while there are processes.
const PERIOD: Nanos = Nanos::from_millis(500);

/// Starts the housekeeper.
pub fn start() {
    let what = Spawn {
        name: "housekeeper",
        scheduling: Scheduling::ORDINARY,
        space: None,
        data: ThreadData::default(),
    };
    match task::spawn(what, keep_house) {
        Ok(thread) => {
            HOUSEKEEPER.call_once(|| thread);
        }
        Err(error) => {
            crate::error!("no thread for the housekeeper: {error:?}; processes cannot be made")
        }
    }
}

/// Has the housekeeper look at what Linux offered. Any context.
pub fn wake() {
    if let Some(thread) = HOUSEKEEPER.get() {
        thread.wake();
    }
}

fn keep_house() {
    let Some(block) = remote::block() else { return };
    // Slots of processes that could not be made, until their shadows are gone.
    let mut refused = Vec::new();
    loop {
        remote::take_offers(|slot| {
            if let Some((line, start)) = block.accept(slot)
                && let Err(line) = make(line, start)
            {
                refuse(block, line, &mut refused);
            }
        });
        refused.retain_mut(|line: &mut Option<Line>| {
            match line.take_if(|line| block.notices(line.slot()).gone) {
                Some(gone) => {
                    gone.free();
                    false
                }
                None => true,
            }
        });
        remote::collect();
        remote::owners(|thread| {
            if let Some(user) = thread.data.user() {
                user.publish(thread);
            }
        });
        let busy = remote::is_busy() || !refused.is_empty();
        task::block(busy.then(|| Nanos(time::now().0 + PERIOD.0)));
    }
}

/// Makes a process, or gives the slot back.
fn make(line: Line, start: Start) -> Result<(), Line> {
    if start == Start::Thread {
        return Err(line);
    }
    let (slot, number, pid) = (line.slot(), line.process(), line.pid());
    let Ok(space) = AddressSpace::new(Box::new(Revoker { process: number })) else {
        crate::warn!("no memory for a process (pid {pid})");
        return Err(line);
    };
    let process = Arc::new(Process::new(space.clone(), number, pid));
    let user = User::new(process, line);
    let what = Spawn {
        name: "program",
        scheduling: Scheduling::ORDINARY,
        space: Some(space),
        data: ThreadData::of(user),
    };
    match task::spawn(what, exec::first_thread) {
        Ok(thread) => {
            remote::set_owner(slot, thread);
            Ok(())
        }
        Err(error) => {
            crate::warn!("no thread for a process (pid {pid}): {error:?}");
            // The failed spawn has dropped the line; Linux still offers the slot.
            remote::block()
                .and_then(|block| block.accept(slot))
                .map_or(Ok(()), |(line, _)| Err(line))
        }
    }
}

/// Has the shadow of a process that cannot be made exit with 126.
fn refuse(block: Block, mut line: Line, refused: &mut Vec<Option<Line>>) {
    if refused.try_reserve(1).is_err() {
        return;
    }
    line.request(&Request { op: OP_EXIT, nr: 0, args: [126, 0, 0, 0, 0, 0], rank: 0, cpu: 0 });
    refused.push(Some(line));
    remote::ring(block);
}
