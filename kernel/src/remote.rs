// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: how a thread has its shadow thread do something in Linux (cRTOS, VEE'20, section 4.2).
//!
//! The calling thread hands its slot to Linux and blocks. Linux's answers arrive as bits in the channel, which [`poll`] turns into wake-ups of
//! the slots' owners: from the doorbell interrupt if the caller outranks what runs, else at the next switch.
//! Faults that Linux takes on the program's memory are resolved by the waiting caller itself.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::channel::{SLOT_WORDS, SLOTS, THREAD_REMOTE, THREAD_RUNNING};
use crtos_channel::{Answer, Block, Drops, Line, Poll, Range, Request};
use spin::Once;

use crate::{
    arch,
    mm::{
        layout,
        space::{Access, FaultError, Revoke, Revoked},
    },
    spawn,
    sync::SpinLock,
    task::{self, Mutex, Thread},
    time::{self, Nanos},
};

/// The shadow of the calling thread is gone; the thread has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

static BLOCK: Once<Block> = Once::new();

/// The thread that owns each slot.
static OWNERS: [SpinLock<Option<Arc<Thread>>>; SLOTS] = [const { SpinLock::new(None) }; SLOTS];

/// Bit per slot without owner: Linux stored something there.
static OFFERED: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];

/// Pages in limbo.
static DROPS: Mutex<Drops<Revoked>> = Mutex::new(Drops::new());

/// Drops collected at a time under the lock; their pages are freed without it.
const BATCH: usize = 16;

/// The channel.
pub fn block() -> Option<Block> {
    BLOCK.get().copied()
}

/// Called once at boot in a kernel thread, interrupts on; starts what takes spawns and notices.
pub fn start() {
    let Some(base) = layout::channel() else { return };
    // SAFETY: the channel is mapped for as long as the cell lives, and this kernel reaches it through atomics alone.
    let block = unsafe { Block::new(base) };
    if let Err(error) = block.attach() {
        crate::error!("the channel cannot be used: {error:?}; are all parts of one version?");
        return;
    }
    BLOCK.call_once(|| block);
    spawn::start();
}

/// Called at each switch of threads after the rank of this CPU was stored in the channel and a full
/// fence. Interrupts off; bounded; may wake threads, must not sleep or allocate.
pub fn poll() {
    let Some(block) = BLOCK.get() else { return };
    block.take_replies(|slot| match &*OWNERS[slot].lock() {
        Some(owner) => {
            let notices = block.notices(slot);
            if notices.gone || notices.signal {
                owner.set_attention();
            }
            owner.wake();
        }
        None => {
            OFFERED[slot / 64].fetch_or(1 << (slot % 64), Ordering::Release);
            spawn::wake();
        }
    });
}

/// Called when the doorbell rang. Interrupts off; as [`poll`].
pub fn doorbell() {
    if let Some(block) = BLOCK.get() {
        block.count_doorbell_taken();
    }
    poll();
}

/// Rings Linux's doorbell.
pub fn ring(block: Block) {
    block.count_doorbell_sent();
    arch::ring_linux();
}

/// Calls `found` with each slot that Linux offered and nobody owned.
pub fn take_offers(mut found: impl FnMut(usize)) {
    for (index, word) in OFFERED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Acquire);
        while bits != 0 {
            found(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Makes `thread` the owner of `slot`. What arrived before is seen by the wake-up.
pub fn set_owner(slot: usize, thread: Arc<Thread>) {
    *OWNERS[slot].lock() = Some(thread.clone());
    let block = block();
    if block.is_some_and(|block| block.notices(slot).gone) {
        thread.set_attention();
    }
    thread.wake();
}

/// Calls `each` with every owner of a slot, one at a time.
pub fn owners(mut each: impl FnMut(&Thread)) {
    for owner in &OWNERS {
        let thread = owner.lock().clone();
        if let Some(thread) = thread {
            each(&thread);
        }
    }
}

/// Whether any thread owns a slot, or pages are in limbo.
pub fn is_busy() -> bool {
    OWNERS.iter().any(|owner| owner.lock().is_some()) || DROPS.lock().out() > 0
}

/// Has the shadow of the calling thread carry out `op` and returns its result. Sleeps. Faults of Linux on
/// the program's memory are served meanwhile.
pub fn request(op: u32, nr: u32, args: [u64; 6]) -> Result<i64, Gone> {
    let current = task::current();
    let user = current.data.user().ok_or(Gone)?;
    let block = block().ok_or(Gone)?;
    user.remote_calls.fetch_add(1, Ordering::Relaxed);
    user.state.store(THREAD_REMOTE, Ordering::Relaxed);
    with_line(&user.line, |line| {
        line.request(&Request { op, nr, args, rank: current.rank(), cpu: current.cpu() });
    })?;
    user.publish(&current);
    ring(block);
    let result = loop {
        if block.notices(user.slot).gone {
            break Err(Gone);
        }
        match with_line(&user.line, Line::poll)? {
            Poll::Reply(result) => break Ok(result),
            Poll::Fault { address, write } => {
                let answer = resolve(user, address, write);
                with_line(&user.line, |line| line.answer(answer))?;
                ring(block);
            }
            Poll::Waiting => {
                task::block(None);
            }
        }
    };
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    if result.is_err() {
        user.process.note_gone();
    }
    result
}

/// Hands Linux a request that has no reply: the end of the process. Returns when the shadow is gone.
pub fn request_end(op: u32, argument: u64) {
    let current = task::current();
    let (Some(user), Some(block)) = (current.data.user(), block()) else { return };
    let request = Request {
        op,
        nr: 0,
        args: [argument, 0, 0, 0, 0, 0],
        rank: current.rank(),
        cpu: current.cpu(),
    };
    let _ = with_line(&user.line, |line| line.request(&request));
    ring(block);
    while !block.notices(user.slot).gone {
        if let Ok(Poll::Fault { .. }) = with_line(&user.line, Line::poll) {
            let _ = with_line(&user.line, |line| line.answer(Answer::Bad));
            ring(block);
        }
        task::block(None);
    }
}

/// Lets go of `slot` of the calling thread, whose shadow is gone.
pub fn release(slot: usize, process: u32, line: &SpinLock<Option<Line>>) {
    let owner = OWNERS[slot].lock().take();
    let mut pages = [const { None }; BATCH];
    loop {
        let mut count = 0;
        DROPS.lock().release(process, BATCH, |revoked| {
            pages[count] = Some(revoked);
            count += 1;
        });
        pages.iter_mut().for_each(|entry| *entry = None);
        if count < BATCH {
            break;
        }
    }
    let line = line.lock().take();
    if let Some(line) = line {
        line.free();
    }
    drop(owner);
}

fn with_line<R>(line: &SpinLock<Option<Line>>, f: impl FnOnce(&mut Line) -> R) -> Result<R, Gone> {
    line.lock().as_mut().map(f).ok_or(Gone)
}

/// The page behind an address for Linux.
fn resolve(user: &crate::process::User, address: u64, write: bool) -> Answer {
    let access = if write { Access::Write } else { Access::Read };
    for _ in 0..LIMBO_TRIES {
        match user.process.space.expose(address, access) {
            Ok(page) => return Answer::Page { address: page.frame, write: page.writable },
            Err(FaultError::NoMemory) if DROPS.lock().out() > 0 => wait_for_drops(),
            Err(_) => break,
        }
    }
    Answer::Bad
}

/// How often memory in limbo is waited for, a millisecond each.
const LIMBO_TRIES: usize = 100;

/// Has Linux carry out drops, and frees what it has let go.
fn wait_for_drops() {
    if let Some(block) = block() {
        ring(block);
    }
    task::sleep_until(Nanos(time::now().0 + 1_000_000));
    collect();
}

/// Frees the pages that Linux has let go.
pub fn collect() {
    let Some(block) = block() else { return };
    let mut pages = [const { None }; BATCH];
    loop {
        let mut count = 0;
        DROPS.lock().collect(block, BATCH, |revoked| {
            pages[count] = Some(revoked);
            count += 1;
        });
        pages.iter_mut().for_each(|entry| *entry = None);
        if count < BATCH {
            return;
        }
    }
}

/// Posts drops for a process.
pub struct Revoker {
    /// Its number.
    pub process: u32,
}

impl Revoke for Revoker {
    fn revoke(&self, mut pages: Revoked) {
        let Some(block) = block() else { return };
        loop {
            let range = Range { process: self.process, start: pages.start, length: pages.length };
            let posted = DROPS.lock().post(block, range, pages);
            match posted {
                Ok(false) => return,
                Ok(true) => return ring(block),
                Err(back) => {
                    pages = back;
                    wait_for_drops();
                }
            }
        }
    }
}
