// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: how a thread has its shadow thread do something in Linux (cRTOS, VEE'20, section 4.2).
//!
//! The calling thread hands its slot to Linux and blocks. Linux's answers arrive as bits in the channel, which [`replies`] turns into wake-ups of
//! the slots' owners: from the doorbell interrupt if the caller outranks what runs, else at the next switch.
//! Faults that Linux takes on the program's memory are resolved by the waiting caller itself.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::channel::{
    OP_COPY, SLOT_WORDS, SLOTS, THREAD_REMOTE, THREAD_RUNNING, TRACE_DOORBELL, TRACE_REMOTE,
    TRACE_REMOTE_END,
};
use crtos_abi::hypercall::DOORBELL_ANYWHERE;
use crtos_channel::{Answer, Block, Drops, Line, Poll, Range, Request, Start};
use crtos_sched::Level;
use crtos_signal::Info;
use spin::Once;

use crate::{
    arch,
    mm::{
        layout,
        space::{Access, AddressSpace, FaultError, Revoke, Revoked},
    },
    process::User,
    replies,
    signal::{self, Sent},
    spawn,
    sync::SpinLock,
    task::{self, Mutex, Thread},
    threads,
    time::{self, Nanos},
    trace,
};

/// The shadow of the calling thread is gone; the thread has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

static BLOCK: Once<Block> = Once::new();

/// The thread that owns each slot.
static OWNERS: [SpinLock<Option<Arc<Thread>>>; SLOTS] = [const { SpinLock::new(None) }; SLOTS];

/// Bit per slot without owner: Linux stored something there.
static OFFERED: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];

/// Bit per slot: the kernel holds its line.
static HELD: SpinLock<[u64; SLOT_WORDS]> = SpinLock::new([0; SLOT_WORDS]);

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
    replies::start();
    task::following::start();
}

/// Takes what Linux stored for `slot`, if nobody did: wakes its owner. Any context, no lock held; takes a bounded number of steps. A signal,
/// the wake-up and what the signal leaves to do are sections of their own.
pub fn take(block: Block, slot: usize) {
    if !block.take_reply(slot) {
        return;
    }
    let mut sent = match &*OWNERS[slot].lock() {
        Some(owner) => {
            let notices = block.notices(slot);
            if notices.gone || notices.stopped {
                owner.set_attention();
            }
            if !notices.signal {
                return owner.wake();
            }
            take_signal(block, slot, owner)
        }
        None => {
            OFFERED[slot / 64].fetch_or(1 << (slot % 64), Ordering::Release);
            return spawn::wake();
        }
    };
    // The owner first, then who else the signal concerns.
    let mut is_awake = false;
    loop {
        if !arch::cpu::are_interrupts_on() {
            arch::percpu::breathe_if_long();
        }
        match &*OWNERS[slot].lock() {
            // It has let go of the slot meanwhile.
            None => return,
            Some(owner) if !is_awake => {
                owner.wake();
                is_awake = true;
            }
            Some(owner) => {
                let both = sent.as_mut().zip(owner.data.user());
                if !both.is_some_and(|(sent, user)| sent.step(&user.process)) {
                    return;
                }
            }
        }
    }
}

/// Takes over a signal that Linux delivered to the shadow thread of `slot`, which is `owner`'s. The slot is locked. The caller takes the steps
/// that are left.
fn take_signal(block: Block, slot: usize, owner: &Thread) -> Option<Sent> {
    let (info, user) = (block.take_signal(slot)?, owner.data.user()?);
    signal::forwarded(user, Info(info))
}

/// Takes over a signal that Linux delivered to the shadow thread of the calling thread of a program, `slot`'s. The caller takes the steps that are
/// left.
pub fn collect_signal(slot: usize) -> Option<Sent> {
    let block = block().filter(|block| block.notices(slot).signal)?;
    OWNERS[slot].lock().as_ref().and_then(|owner| take_signal(block, slot, owner))
}

/// Whether Linux has told of the end or of a signal of the shadow thread of `slot`.
#[inline]
pub fn has_notice(slot: usize) -> bool {
    block().is_some_and(|block| {
        let notices = block.notices(slot);
        notices.gone || notices.signal
    })
}

/// Whether the shadow thread of `slot` is stopped.
pub fn is_stopped(slot: usize) -> bool {
    block().is_some_and(|block| block.notices(slot).stopped)
}

/// Called when the doorbell rang, while this CPU runs something of `rank`. Interrupts off.
pub fn doorbell(rank: u32) {
    if let Some(block) = BLOCK.get() {
        block.count_doorbell_taken();
    }
    trace::follow();
    task::following::look();
    replies::poll(rank);
}

/// Rings Linux's doorbell for what was stored in `slot`, on the CPU on which its shadow thread waits.
pub fn ring(block: Block, slot: usize) {
    ring_at(block, block.waits_on(slot).into());
}

/// Rings Linux's doorbell for drops.
fn ring_for_drops(block: Block) {
    ring_at(block, DOORBELL_ANYWHERE);
}

fn ring_at(block: Block, cpu: u64) {
    trace::event(TRACE_DOORBELL, 0, 0);
    block.count_doorbell_sent();
    arch::ring_linux(cpu);
}

/// Takes over `slot` if Linux offers it and nobody has taken it.
pub fn accept(slot: usize) -> Option<(Line, Start)> {
    let mut held = HELD.lock();
    let bit = 1 << (slot % 64);
    let word = held.get_mut(slot / 64).filter(|word| **word & bit == 0)?;
    let accepted = block()?.accept(slot)?;
    *word |= bit;
    Some(accepted)
}

/// Gives a slot back whose shadow thread is gone.
pub fn free(line: Line) {
    let slot = line.slot();
    let mut held = HELD.lock();
    // Linux may offer it again as soon as it is free.
    line.free();
    held[slot / 64] &= !(1 << (slot % 64));
}

/// Has Linux interrupt the system call that the shadow thread of `user` makes, or is about to make: it ends with EINTR, or is not made. If
/// that call ends by itself before, the interruption may meet a later one. Any context.
pub fn interrupt(user: &User) {
    user.interrupted.store(true, Ordering::Relaxed);
    if let Some(block) = block() {
        block.interrupt(user.slot);
        ring(block, user.slot);
    }
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
    let sent = {
        let mut owner = OWNERS[slot].lock();
        *owner = Some(thread.clone());
        block().and_then(|block| take_signal(block, slot, &thread))
    };
    if let (Some(sent), Some(user)) = (sent, thread.data.user()) {
        sent.finish(&user.process);
    }
    replies::set_urgent(slot, thread.effective_level() > Level::ORDINARY);
    let block = block();
    if block.is_some_and(|block| block.notices(slot).gone) {
        thread.set_attention();
    }
    thread.wake();
}

/// Calls `each` with every owner of a slot, one at a time.
pub fn owners(mut each: impl FnMut(&Thread)) {
    for slot in held() {
        let thread = OWNERS[slot].lock().clone();
        if let Some(thread) = thread {
            each(&thread);
        }
    }
}

/// The slots whose lines the kernel holds: a slot with an owner is one of them.
fn held() -> impl Iterator<Item = usize> {
    let words = *HELD.lock();
    words.into_iter().enumerate().flat_map(|(index, word)| {
        let mut bits = word;
        core::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(index * 64 + bit)
        })
    })
}

/// Whether any thread owns a slot, or pages are in limbo.
pub fn is_busy() -> bool {
    held().any(|slot| OWNERS[slot].lock().is_some()) || DROPS.lock().out() > 0
}

/// Has the shadow of the calling thread carry out `op` and returns its result. Sleeps. Faults of Linux on
/// the program's memory are served meanwhile.
pub fn request(op: u32, nr: u32, args: [u64; 6]) -> Result<i64, Gone> {
    let current = task::current();
    let user = current.data.user().ok_or(Gone)?;
    let block = block().ok_or(Gone)?;
    trace::event(TRACE_REMOTE, op.into(), nr.into());
    user.remote_calls.fetch_add(1, Ordering::Relaxed);
    user.state.store(THREAD_REMOTE, Ordering::Relaxed);
    with_line(&user.line, |line| {
        line.request(&Request { op, nr, args, rank: current.rank(), cpu: current.cpu() });
    })?;
    user.publish(&current);
    let result = answered(block, user.slot, &user.line, &user.process.space);
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    trace::event(TRACE_REMOTE_END, op.into(), result.map_or(0, |result| result as u64));
    if result.is_err() {
        user.process.note_gone();
    }
    result
}

/// Rings for the request in `line`, that of `slot`, and waits for its reply. Sleeps. Faults of Linux on `space` are served meanwhile.
#[inline(always)]
fn answered(
    block: Block,
    slot: usize,
    line: &SpinLock<Option<Line>>,
    space: &AddressSpace,
) -> Result<i64, Gone> {
    ring(block, slot);
    loop {
        if block.notices(slot).gone {
            return Err(Gone);
        }
        match with_line(line, Line::poll)? {
            Poll::Reply(result) => return Ok(result),
            Poll::Fault { address, write } => {
                let answer = resolve(space, address, write);
                with_line(line, |line| line.answer(answer))?;
                ring(block, slot);
            }
            Poll::Waiting => {
                task::block(None);
            }
        }
    }
}

/// As [`request`], by a spare shadow thread of process `number`: whatever the shadow thread of the calling thread does just now. `None` if there
/// is none.
fn request_by_spare(number: u32, op: u32, args: [u64; 6]) -> Option<i64> {
    let block = block()?;
    let current = task::current();
    let (process, mut line) = threads::borrow_spare(number)?;
    let slot = line.slot();
    trace::event(TRACE_REMOTE, op.into(), 0);
    set_owner(slot, current.arc());
    line.request(&Request { op, nr: 0, args, rank: current.rank(), cpu: current.cpu() });
    let line = SpinLock::new(Some(line));
    let result = answered(block, slot, &line, &process.space).ok();
    trace::event(TRACE_REMOTE_END, op.into(), result.unwrap_or_default() as u64);
    let owner = OWNERS[slot].lock().take();
    drop(owner);
    let line = line.lock().take();
    if let Some(line) = line {
        threads::give_back(&process, line);
    }
    result
}

/// Hands Linux a request that has no reply: the end of the thread or the process. Returns when the shadow thread is gone.
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
    ring(block, user.slot);
    wait_for_end();
}

/// Waits until the shadow thread of the calling thread is gone.
pub fn wait_for_end() {
    let current = task::current();
    let (Some(user), Some(block)) = (current.data.user(), block()) else { return };
    while !block.notices(user.slot).gone {
        if let Ok(Poll::Fault { .. }) = with_line(&user.line, Line::poll) {
            let _ = with_line(&user.line, |line| line.answer(Answer::Bad));
            ring(block, user.slot);
        }
        task::block(None);
    }
}

/// Lets go of `slot` of the calling thread, whose shadow thread is gone.
pub fn release(slot: usize, line: &SpinLock<Option<Line>>) {
    let owner = OWNERS[slot].lock().take();
    let line = line.lock().take();
    if let Some(line) = line {
        free(line);
    }
    drop(owner);
}

fn with_line<R>(line: &SpinLock<Option<Line>>, f: impl FnOnce(&mut Line) -> R) -> Result<R, Gone> {
    line.lock().as_mut().map(f).ok_or(Gone)
}

/// The page behind an address for Linux.
fn resolve(space: &AddressSpace, address: u64, write: bool) -> Answer {
    let access = if write { Access::Write } else { Access::Read };
    for _ in 0..LIMBO_TRIES {
        match space.expose(address, access) {
            // Linux asks again before it writes to a page that nobody has written to yet.
            Ok(page) => {
                let write = page.writable && page.dirty;
                return Answer::Page { address: page.frame, write };
            }
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
        ring_for_drops(block);
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

/// Posts drops for a process, and has its shadow copy.
pub struct Revoker {
    /// Its number.
    pub process: u32,
}

impl Drop for Revoker {
    /// Nobody uses the memory any more, and Linux neither.
    fn drop(&mut self) {
        let mut pages = [const { None }; BATCH];
        loop {
            let mut count = 0;
            DROPS.lock().release(self.process, BATCH, |revoked| {
                pages[count] = Some(revoked);
                count += 1;
            });
            pages.iter_mut().for_each(|entry| *entry = None);
            if count < BATCH {
                break;
            }
        }
    }
}

impl Revoke for Revoker {
    fn copy(&self, to: u64, from: u64, length: u64) -> bool {
        request_by_spare(self.process, OP_COPY, [to, from, length, 0, 0, 0]) == Some(0)
    }

    fn revoke(&self, mut pages: Revoked) {
        let Some(block) = block() else { return };
        loop {
            let range = Range { process: self.process, start: pages.start, length: pages.length };
            let posted = DROPS.lock().post(block, range, pages);
            match posted {
                Ok(false) => return,
                Ok(true) => return ring_for_drops(block),
                Err(back) => {
                    pages = back;
                    wait_for_drops();
                }
            }
        }
    }
}
