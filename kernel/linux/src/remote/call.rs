// SPDX-License-Identifier: MIT OR Apache-2.0
//! One remote call: a request in the caller's slot, faults on the way, and the reply.

use crtos_core::{mm::window, sync::SpinLock, task, trace};

use super::{
    channel, end, replies,
    revocation::{self, resolve},
    ring,
    slots::{OWNERS, set_owner},
};
use crate::{
    abi::Errno,
    memory::shared,
    process::{Process, ThreadExt as _, UserThread, lapse, spares},
};

use core::sync::atomic::{Ordering, fence};

use crtos_abi::{
    channel::{THREAD_REMOTE, THREAD_RUNNING, TRACE_REMOTE_END},
    ids::ProcessNumber,
};
use crtos_channel::{
    Answer, Channel, Encoded, Operation, OwnedSlot, Poll, Request, Slot,
    operation::{self, Room},
};

/// The result of what nobody carries out: Linux has ended, or the shadow has, which its program
/// outlives.
const OUT_OF_REACH: i64 = Errno::EIO.value() as i64;

/// The shadow of the calling thread is gone; the thread has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

impl From<Gone> for Errno {
    fn from(_: Gone) -> Self {
        Self::GONE
    }
}

/// Has the shadow of the calling thread carry out an operation and returns its result: -EIO if it
/// cannot be reached any more. Sleeps. Faults of Linux on the program's memory are served
/// meanwhile.
#[inline(always)]
pub fn request(operation: Operation<'_>) -> Result<i64, Gone> {
    let mut room = Room::default();
    let Encoded { op, nr, args } = operation.encode(&mut room);
    request_encoded(op, nr, args)
}

/// [`request`], for an operation that leaves words in its reply.
pub fn request_words(operation: Operation<'_>) -> Result<(i64, [u64; 6]), Gone> {
    let result = request(operation)?;
    let current = task::current();
    let user = current.user().ok_or(Gone)?;
    Ok((result, with_owned_slot(&user.owned_slot, |owned| owned.words())?))
}

/// [`request`], with the operation as it lies in a slot.
fn request_encoded(op: u32, nr: u32, args: &[u64; 6]) -> Result<i64, Gone> {
    let current = task::current();
    let user = current.user().ok_or(Gone)?;
    let channel = channel().ok_or(Gone)?;
    if user.process.is_out_of_reach() {
        return Ok(OUT_OF_REACH);
    }
    let notices = channel.notices(user.slot);
    if user.process.is_without_shadow(notices) {
        user.process.note_gone(notices);
        return Err(Gone);
    }
    if revocation::is_any_untold() && !revocation::catch_up(&user.process.space) {
        return Ok(Errno::ENOMEM.value() as i64);
    }
    // Pages that nobody uses any more; the call may need that nobody holds them.
    window::give_up();
    lapse::remote();
    trace::remote(op, nr);
    user.remote_calls.fetch_add(1, Ordering::Relaxed);
    user.state.store(THREAD_REMOTE, Ordering::Relaxed);
    with_owned_slot(&user.owned_slot, |owned| {
        hand_out(channel, owned, Encoded { op, nr, args });
    })?;
    user.publish(&current);
    let result =
        answered(channel, user.slot, &user.owned_slot, &user.process, operation::lends(op));
    // The call may have cut a file, or told of that.
    shared::recall(channel);
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    trace::event(TRACE_REMOTE_END, op.into(), result.map_or(0, |result| result as u64));
    result.or_else(|Gone| {
        user.process.note_gone(channel.notices(user.slot));
        if user.process.is_out_of_reach() { Ok(OUT_OF_REACH) } else { Err(Gone) }
    })
}

/// Hands Linux a request of the calling thread, by the slot of which it is told of each change of
/// its level.
fn hand_out(channel: Channel, owned: &mut OwnedSlot, operation: Encoded<'_>) {
    let current = task::current();
    let rank = current.rank();
    owned.request(&Request { operation, rank, cpu: current.cpu() });
    // A change since then that the request has overwritten. Pairs with the first fence of
    // `set_rank`, behind the change of the level: one of the two sees what the other stored.
    fence(Ordering::SeqCst);
    if current.rank() != rank {
        channel.set_rank(owned.slot(), current.rank());
    }
}

/// Rings for the request in `owned`, that of `slot`, and waits for its reply. Sleeps. Faults of
/// Linux on the memory of `process` are served meanwhile. One that `lends` something
/// ([`operation::lends`]) is not given up while Linux may be within it.
#[inline(always)]
fn answered(
    channel: Channel,
    slot: Slot,
    owned: &SpinLock<Option<OwnedSlot>>,
    process: &Process,
    lends: bool,
) -> Result<i64, Gone> {
    ring(channel, slot);
    loop {
        let notices = channel.notices(slot);
        // A shadow that leaves may be within the call still.
        if notices.gone || !lends && process.is_without_shadow(notices) {
            return Err(Gone);
        }
        match with_owned_slot(owned, OwnedSlot::poll)? {
            Poll::Reply(result) => return Ok(result),
            Poll::Fault { address, write } => {
                let answer = resolve(&process.space, address, write);
                with_owned_slot(owned, |owned| owned.answer(answer))?;
                ring(channel, slot);
            }
            Poll::Waiting if end::has_ended() => return Ok(OUT_OF_REACH),
            Poll::Waiting => {
                task::block(None);
            }
        }
    }
}

/// As [`request`], by a spare shadow thread of process `number`: whatever the shadow thread of the
/// calling thread does just now. `None` if there is none.
pub(super) fn request_by_spare(number: ProcessNumber, operation: Operation<'_>) -> Option<i64> {
    let mut room = Room::default();
    let operation = operation.encode(&mut room);
    let op = operation.op;
    let channel = channel().filter(|_| !end::has_ended())?;
    let current = task::current();
    let (process, mut owned) = spares::borrow_spare(number)?;
    let slot = owned.slot();
    if process.is_without_shadow(channel.notices(slot)) {
        spares::give_back(&process, owned);
        return None;
    }
    trace::remote(op, 0);
    set_owner(slot, current.arc());
    if let Some(user) = current.user() {
        replies::wait_beside(channel, user, slot);
    }
    hand_out(channel, &mut owned, operation);
    let owned = SpinLock::new(Some(owned));
    let result = answered(channel, slot, &owned, &process, operation::lends(op)).ok();
    trace::event(TRACE_REMOTE_END, op.into(), result.unwrap_or_default() as u64);
    if let Some(user) = current.user() {
        user.beside.store(Slot::to_word(None), Ordering::Relaxed);
    }
    let owner = OWNERS[slot.get()].lock().take();
    drop(owner);
    let owned = owned.lock().take();
    if let Some(owned) = owned {
        spares::give_back(&process, owned);
    }
    result
}

/// Hands Linux a request that has no reply: the end of the thread or the process. Returns when the
/// shadow thread is gone, or cannot be reached.
pub fn request_end(operation: Operation<'_>) {
    let current = task::current();
    let (Some(user), Some(channel)) = (current.user(), channel()) else { return };
    if user.process.is_out_of_reach() {
        return;
    }
    let mut room = Room::default();
    let request = Request {
        operation: operation.encode(&mut room),
        rank: current.rank(),
        cpu: current.cpu(),
    };
    let _ = with_owned_slot(&user.owned_slot, |owned| owned.request(&request));
    ring(channel, user.slot);
    wait_for_end();
}

/// Waits until the shadow thread of the calling thread is gone, or cannot be reached.
pub fn wait_for_end() {
    let current = task::current();
    let (Some(user), Some(channel)) = (current.user(), channel()) else { return };
    while !channel.notices(user.slot).gone && !user.process.is_out_of_reach() {
        if let Ok(Poll::Fault { .. }) = with_owned_slot(&user.owned_slot, OwnedSlot::poll) {
            let _ = with_owned_slot(&user.owned_slot, |owned| owned.answer(Answer::Bad));
            ring(channel, user.slot);
        }
        task::block(None);
    }
}

fn with_owned_slot<R>(
    owned: &SpinLock<Option<OwnedSlot>>,
    f: impl FnOnce(&mut OwnedSlot) -> R,
) -> Result<R, Gone> {
    owned.lock().as_mut().map(f).ok_or(Gone)
}

/// Has Linux interrupt the system call that the shadow thread of `user` makes, or is about to make:
/// it ends with EINTR, or is not made. If that call ends by itself before, the interruption may
/// meet a later one. Any context.
pub fn interrupt(user: &UserThread) {
    user.interrupted.store(true, Ordering::Relaxed);
    if let Some(channel) = channel() {
        channel.interrupt(user.slot);
        ring(channel, user.slot);
    }
}
