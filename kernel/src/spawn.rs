// SPDX-License-Identifier: MIT OR Apache-2.0
//! The housekeeper: a thread of ordinary priority that makes processes when Linux asks for them, has spare shadow threads made, and tidies up
//! behind Linux.

use alloc::{boxed::Box, sync::Arc, sync::Weak, vec::Vec};

use crtos_abi::channel::{OP_EXIT, OP_THREAD};
use crtos_channel::{Block, Line, Poll, Request, Start};
use spin::Once;

use crate::{
    exec, fork,
    mm::space::AddressSpace,
    process::{Process, User},
    remote::{self, Revoker},
    signal,
    task::{self, Mutex, Scheduling, Spawn, Thread},
    threads::{self, Birth},
    time::{self, Nanos},
};

static HOUSEKEEPER: Once<Arc<Thread>> = Once::new();

/// How often the housekeeper looks around while there are processes.
const PERIOD: Nanos = Nanos::from_millis(500);

/// Lines without a thread, until their shadow threads are gone.
static LEFT: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Processes that want spares.
static WANTING: Mutex<Vec<Weak<Process>>> = Mutex::new(Vec::new());

/// Starts the housekeeper.
pub fn start() {
    let what =
        Spawn { name: "housekeeper", scheduling: Scheduling::ORDINARY, ..Default::default() };
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

/// Takes the shadow thread that Linux offered in `slot` for `process`, if nobody did. Thread context; may sleep.
pub fn claim(slot: usize, process: &Process) -> Option<Line> {
    let (line, start) = remote::accept(slot)?;
    if start == Start::Thread && line.process() == process.number {
        return Some(line);
    }
    dispose([line]);
    None
}

/// Frees lines that have no thread as soon as their shadow threads are gone. Thread context; may sleep.
pub fn dispose(lines: impl IntoIterator<Item = Line>) {
    let Some(block) = remote::block() else { return };
    for line in lines {
        if block.notices(line.slot()).gone {
            remote::free(line);
        } else {
            let mut left = LEFT.lock();
            // There is no more than a slot's worth of memory in it, and the slot is lost without it.
            left.push(line);
        }
    }
}

/// Has the housekeeper make spares for `process`. Thread context; may sleep.
pub fn want_spares(process: &Arc<Process>) {
    WANTING.lock().push(Arc::downgrade(process));
    wake();
}

fn keep_house() {
    let Some(block) = remote::block() else { return };
    // Spares that make further ones.
    let mut makers = Vec::new();
    loop {
        remote::take_offers(|slot| match remote::accept(slot) {
            Some((line, Start::Process)) => make(block, line),
            Some((line, Start::Thread)) => match threads::find_process(line.pid()) {
                Some(process) if process.number == line.process() => {
                    threads::give_back(&process, line)
                }
                _ => dispose([line]),
            },
            None => signal_at_spare(block, slot),
        });
        replenish(block, &mut makers);
        free_left(block);
        remote::collect();
        remote::owners(|thread| {
            if let Some(user) = thread.data.user() {
                user.publish(thread);
            }
        });
        let busy = remote::is_busy() || !LEFT.lock().is_empty() || !makers.is_empty();
        task::block(busy.then(|| Nanos(time::now().0 + PERIOD.0)));
    }
}

fn free_left(block: Block) {
    let mut index = 0;
    loop {
        let line = {
            let mut left = LEFT.lock();
            match left.get(index) {
                None => break,
                Some(line) if block.notices(line.slot()).gone => left.swap_remove(index),
                Some(_) => {
                    index += 1;
                    continue;
                }
            }
        };
        remote::free(line);
    }
}

/// Has spares made where they are wanted, and takes back those that have made some.
fn replenish(block: Block, makers: &mut Vec<(Weak<Process>, Line)>) {
    let mut index = 0;
    while index < makers.len() {
        let (_, line) = &mut makers[index];
        match line.poll() {
            Poll::Waiting if !block.notices(line.slot()).gone => index += 1,
            // They touch no memory of the program.
            Poll::Fault { .. } => {
                line.answer(crtos_channel::Answer::Bad);
                remote::ring(block, line.slot());
            }
            Poll::Waiting | Poll::Reply(_) => {
                let (process, line) = makers.swap_remove(index);
                match process.upgrade() {
                    Some(process) => {
                        process.members.lock().making = false;
                        threads::give_back(&process, line);
                    }
                    None => dispose([line]),
                }
            }
        }
    }
    let wanting = core::mem::take(&mut *WANTING.lock());
    for process in wanting.iter().filter_map(Weak::upgrade) {
        let Some((mut line, count)) = threads::take_maker(&process) else { continue };
        let args = [count, 0, 0, 0, 0, 0];
        let (rank, cpu) = (task::current().rank(), task::current().cpu());
        line.request(&Request { op: OP_THREAD, nr: 0, args, rank, cpu });
        let slot = line.slot();
        makers.push((Arc::downgrade(&process), line));
        remote::ring(block, slot);
    }
}

/// A signal for a process may arrive at a shadow thread that has no thread yet.
fn signal_at_spare(block: Block, slot: usize) {
    if !block.notices(slot).signal {
        return;
    }
    let mut owner = None;
    threads::each_process(|process| {
        if process.members.lock().spares.iter().any(|line| line.slot() == slot) {
            owner = Some(process.clone());
        }
    });
    if let Some(process) = owner {
        signal::take_from(slot, &process);
    }
}

/// Makes a process, or has its shadow end.
fn make(block: Block, line: Line) {
    let (slot, number, pid) = (line.slot(), line.process(), line.pid());
    let fork = line.parent().and_then(fork::take);
    if line.parent().is_some() && fork.is_none() {
        crate::debug!("pid {pid}: its parent is gone");
        return refuse(block, line);
    }
    let shared = fork.as_ref().and_then(|fork| fork.shared_space(number));
    let space = match shared {
        Some(space) => Ok(space),
        None => AddressSpace::new(Box::new(Revoker { process: number })),
    };
    let line = match space {
        Ok(space) => {
            let user = User::new(Arc::new(Process::new(space, number, pid, line.uid())), &line);
            let mut body: fn() = exec::first_thread;
            if let Some(fork) = &fork {
                *user.birth.lock() = Birth::Fork(fork.clone());
                body = fork::child;
            }
            match threads::begin(user, line, Scheduling::ORDINARY, body) {
                Ok(()) => return,
                Err(line) => line,
            }
        }
        Err(_) => line,
    };
    crate::warn!("no memory for a process (pid {pid}, slot {slot})");
    fork.iter().for_each(|fork| fork.finish());
    refuse(block, line);
}

/// Has the shadow of a process that cannot be made exit with 126.
fn refuse(block: Block, mut line: Line) {
    line.request(&Request { op: OP_EXIT, nr: 0, args: [126, 0, 0, 0, 0, 0], rank: 0, cpu: 0 });
    let slot = line.slot();
    dispose([line]);
    remote::ring(block, slot);
}
