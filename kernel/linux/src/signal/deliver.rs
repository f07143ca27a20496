// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to pending signals before a thread returns to its program, and to a system call
//! that they interrupted.

use crtos_abi::UserAddr;
use crtos_channel::{Operation, operation::Disposition};
use crtos_signal::{Action, Info, Set, frame::AltStack, group::DEFAULT};
use linux_raw_sys::general as linux;

use crtos_core::{arch::UserContext, task};

use super::{
    POOL, State, collect,
    frame::{self, Kept},
    wait,
};
use crate::{
    abi::Errno,
    process::{self, End, ThreadExt as _, UserThread},
    remote,
};

/// A synchronous fault of a program.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP; SIGKILL if there is no memory left to go on
    /// with.
    pub signal: u32,
    /// `si_code` as Linux gives it.
    pub code: i32,
    /// `si_addr`.
    pub address: UserAddr,
    /// Number of the exception (`trapno` in a signal frame).
    pub trap: u32,
    /// Error code of the exception (`err`).
    pub error: u64,
}

/// What is changed where the handler of a signal begins.
pub(super) struct Delivery {
    pub frame: Kept,
    /// Signals of the process that the thread blocks from now on.
    pub left: Set,
    /// There are more signals to deal with.
    pub more: bool,
}

/// Changes mask, stack and action as they are while the handler of `signal` runs.
#[inline(always)]
pub(super) fn enter(state: &mut State, index: usize, signal: u32, action: &Action) -> Delivery {
    if has(action, linux::SA_RESETHAND) {
        state.group.set_action(signal, Action { handler: DEFAULT, ..*action });
    }
    let mut frame = Kept::default();
    let mut mask = action.mask;
    if let Some(member) = state.group.member_mut(index) {
        let before = member.mask();
        mask |= before;
        frame = Kept { mask: member.own.saved.take().unwrap_or(before), stack: member.own.stack };
        if frame.stack.flags & frame::SS_AUTODISARM != 0 {
            member.own.stack = AltStack::default();
        }
    }
    if !has(action, linux::SA_NODEFER) {
        mask |= Set::of(signal);
    }
    let left = state.group.set_mask(index, mask);
    let more = !state.group.deliverable(index).is_empty();
    Delivery { frame, left, more }
}

/// Deals with pending signals before the thread returns to user mode, and with a call that was
/// interrupted.
pub fn deliver(context: &mut UserContext) {
    let current = task::current();
    let Some(user) = current.user() else { return };
    let index = user.signals.index();
    collect(user);
    let mut mask = None;
    loop {
        let mut state = user.process.signals.lock();
        let next = state.group.next(&mut POOL.lock(), index);
        let Some((taken, action)) = next else {
            // The mask that rt_sigsuspend(2) and its like have replaced comes back.
            mask = state.group.member_mut(index).and_then(|member| member.own.saved.take());
            break;
        };
        let signal = taken.info.signal();
        let delivery = action.is_handled().then(|| enter(&mut state, index, signal, &action));
        drop(state);
        let info = wait::complete(user, taken);
        let can_end = !info.is_optional() && !user.process.is_init();
        if action.ignores(signal) || !can_end && delivery.is_none() {
            continue;
        }
        let Some(delivery) = delivery else {
            if Set::STOPPING.contains(signal) {
                let _ = stop(user, signal);
                continue;
            }
            user.process.end(End::Signal(signal));
            return;
        };
        interrupted(context, has(&action, linux::SA_RESTART));
        let more = handle(user, context, &action, &delivery, &info, [0; 4]);
        if !more || user.process.is_ending() {
            break;
        }
    }
    if is_call(context) && Errno::restart(context.rax).is_some() {
        again(context);
    }
    if let Some(mask) = mask {
        let left = super::mask::set(user, mask);
        super::send::search(&user.process, left);
    }
}

/// Has Linux carry out the default action of a signal that stops. So the parent hears of that
/// signal, and a process group that nobody would have go on is not stopped.
fn stop(user: &UserThread, signal: u32) -> Result<(), Errno> {
    let process = &user.process;
    let _changing = process.changing_action.lock();
    let before = process.signals.lock().disposition(signal);
    let is_default = before == Disposition::Default;
    let tell = |disposition| {
        remote::request(Operation::SetDisposition { signal, disposition, flags: 0 }).map(drop)
    };
    if !is_default {
        tell(Disposition::Default)?;
    }
    let ids = [process.pid.get().into(), user.tid.get().into()];
    let _ = remote::linux(linux::__NR_tgkill, &[ids[0], ids[1], signal.into()]);
    if !is_default {
        tell(before)?;
    }
    Ok(())
}

fn has(action: &Action, flag: u32) -> bool {
    action.flags & u64::from(flag) != 0
}

fn is_call(context: &UserContext) -> bool {
    context.orig_rax != u64::MAX
}

/// Makes the interrupted call again, or goes on with it.
fn again(context: &mut UserContext) {
    /// Bytes of the SYSCALL instruction.
    const LENGTH: u64 = 2;
    context.rax = match Errno::restart(context.rax) {
        Some(Errno::RESTART_BLOCK) => linux::__NR_restart_syscall.into(),
        _ => context.orig_rax,
    };
    context.rip -= LENGTH;
    context.orig_rax = u64::MAX;
}

/// Decides what becomes of an interrupted call when a handler runs.
fn interrupted(context: &mut UserContext, restart: bool) {
    if !is_call(context) {
        return;
    }
    match Errno::restart(context.rax) {
        Some(Errno::RESTART) if restart => again(context),
        Some(Errno::RESTART_ALWAYS) => again(context),
        Some(_) => context.rax = Errno::EINTR.value(),
        None => {}
    }
    context.orig_rax = u64::MAX;
}

/// Runs a handler: pushes its frame and changes the context. Without room for it the thread takes
/// SIGSEGV instead; if it is for that signal that there is none, the process ends. Says whether
/// there are more signals to deal with.
pub(super) fn handle(
    user: &UserThread,
    context: &mut UserContext,
    action: &Action,
    delivery: &Delivery,
    info: &Info,
    fault: [u64; 4],
) -> bool {
    if frame::push(context, action, &delivery.frame, info, fault).is_some() {
        super::send::search(&user.process, delivery.left);
        return delivery.more;
    }
    let signal = info.signal();
    crtos_core::info!("pid {}: no room for the frame of signal {signal}", user.process.outer_pid);
    if signal == linux::SIGSEGV {
        user.process.end(End::Signal(signal));
        return false;
    }
    leave(user, &delivery.frame);
    let none = UserAddr::NULL;
    let code = linux::SI_KERNEL as i32;
    force(user, context, Fault { signal: linux::SIGSEGV, code, address: none, trap: 0, error: 0 });
    true
}

/// Changes mask and stack back, because the handler does not run.
fn leave(user: &UserThread, before: &Kept) {
    let index = user.signals.index();
    let left = {
        let mut state = user.process.signals.lock();
        if let Some(member) = state.group.member_mut(index) {
            member.own.stack = before.stack;
        }
        // Nobody else has looked for what was blocked meanwhile.
        state.group.set_mask(index, before.mask)
    };
    super::send::search(&user.process, left);
}

/// Exception number of page faults.
const PAGE_FAULT: u32 = 14;

/// Called in the thread that faulted. Interrupts on, may sleep. When it returns, the context is
/// resumed.
pub fn fault(context: &mut UserContext, fault: Fault) {
    process::note_if_gone();
    let current = task::current();
    if let Some(user) = current.user() {
        force(user, context, fault);
    }
    process::end_if_due();
}

/// Has the calling thread take a signal that it cannot put off: it runs the handler, or its process
/// ends.
fn force(user: &UserThread, context: &mut UserContext, fault: Fault) {
    let Fault { signal, code, address, trap, error } = fault;
    let delivery = {
        let mut state = user.process.signals.lock();
        let action = state.group.action(signal);
        let index = user.signals.index();
        let blocked = state.group.member(index).is_none_or(|member| member.mask().contains(signal));
        (action.is_handled() && !blocked)
            .then(|| (action, enter(&mut state, index, signal, &action)))
    };
    if let Some((action, delivery)) = delivery {
        let info = Info::fault(signal, code, address);
        let cr2 = if trap == PAGE_FAULT { address.get() } else { 0 };
        let words = [error, trap.into(), delivery.frame.mask.0, cr2];
        handle(user, context, &action, &delivery, &info, words);
    } else {
        crtos_core::info!(
            "pid {}: signal {signal} at {:#x}, address {address:#x}, exception {trap} ({error:#x})",
            user.process.outer_pid,
            context.rip
        );
        user.process.end(End::Signal(signal));
    }
}
