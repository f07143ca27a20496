// SPDX-License-Identifier: MIT OR Apache-2.0
//! How threads and processes end, and what is due before a return to user mode.
//!
//! What ends a process is only noted ([`super::Process::end`]). Each of its threads goes in one
//! place, [`end_if_due`], called where a thread is about to leave the kernel and owns nothing on
//! its kernel stack. One of them has the shadow exit, and each stays until Linux has let go of its
//! shadow thread.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crtos_abi::channel::THREAD_EXITED;
use crtos_channel::Operation;
use crtos_core::{arch::UserContext, task};
use crtos_signal::set::SIGKILL;

use super::{End, ThreadExt as _, UserThread, execve, lapse, spares, threads};
use crate::{
    futex,
    memory::mappings,
    remote::{self, slots},
    signal, timers,
};

/// Called before every return to user mode while the thread's attention flag is set
/// (see [`crtos_core::task::Thread::set_attention`]). Interrupts on, may sleep.
#[inline(never)]
pub fn return_to_user(context: &mut UserContext) {
    task::current().clear_attention();
    note_if_gone();
    end_if_due();
    signal::tell_overrun();
    lapse::tell();
    timers::look();
    signal::deliver(context);
    end_if_due();
    stay_stopped();
}

/// While the shadow is stopped, so is the program.
fn stay_stopped() {
    let current = task::current();
    let Some(user) = current.user() else { return };
    while slots::is_stopped(user.slot) {
        // What comes meanwhile is dealt with afterwards.
        current.set_attention();
        note_if_gone();
        end_if_due();
        task::block(None);
    }
}

/// Looks whether the shadow of the calling thread is gone.
pub fn note_if_gone() {
    let current = task::current();
    let (Some(user), Some(channel)) = (current.user(), remote::channel()) else { return };
    let notices = channel.notices(user.slot);
    if user.process.is_without_shadow(notices) {
        user.process.note_gone(notices);
    }
}

/// Ends the calling thread if it or its process is to end. The caller owns nothing that would be
/// lost.
pub fn end_if_due() {
    let ending = task::current().user().is_some_and(UserThread::is_ending);
    if ending {
        finish();
        task::exit();
    }
}

/// Ends the calling thread, and its process if it is the last one: in Linux, then here. Waits until
/// Linux has let go of it.
fn finish() {
    let current = task::current();
    let Some(user) = current.user() else { return };
    if !user.process.is_ending() {
        stop_running(user);
    }
    leave_memory(user);
    if !user.process.is_ending() {
        note_end(user);
        stay_as_leader(user);
    }
    if user.process.is_ending() {
        // Before anybody can hear of the end in Linux.
        if Arc::strong_count(user.process.files()) == 1 {
            user.process.files().close_all();
        }
        end_shadow(user);
    } else {
        remote::request_end(Operation::ExitThread);
    }
    if user.process.is_ending() {
        user.process.timers.clear();
    }
    // What came before the end of the shadow thread, and no interrupt told of yet.
    signal::collect(user);
    signal::leave(user);
    task::set_space(None);
    let was_last = threads::remove(user);
    if was_last {
        user.process.herald.dismiss();
        execve::hand_over_signals(&user.process);
        execve::give_up(&user.process);
    } else {
        spares::tidy(&user.process);
    }
    slots::release(user.slot, &user.owned_slot);
}

/// Linux may tell of the end of `user`, the calling thread, from here on.
fn note_end(user: &UserThread) {
    user.state.store(THREAD_EXITED, Ordering::Relaxed);
    user.publish(&task::current());
}

/// What others wait for when a thread leaves the memory of its process: its robust and its PI
/// futexes, and what set_tid_address(2) names.
fn leave_memory(user: &UserThread) {
    futex::exit();
    let address = user.take_clear_child_tid();
    if !address.is_null() && user.process.space.write(address, &[0; 4]).is_ok() {
        futex::wake_shared(address, 1);
    }
    if matches!(*user.process.end.lock(), Some(End::Gone | End::Starved | End::Signal(SIGKILL))) {
        futex::hand_on(user);
    }
    futex::across::settle(user);
    futex::across::dismiss(user);
}

/// A thread that called exit(2) runs no more. The last one ends the process, with its own status.
/// Who sees in memory that a thread has left comes after it.
fn stop_running(user: &UserThread) {
    let process = &user.process;
    signal::retire(user);
    let last = {
        let mut members = process.members.lock();
        members.running -= 1;
        members.running == 0
    };
    if last {
        process.end(End::Status(user.status.load(Ordering::Relaxed)));
    }
}

/// The first thread of a process stays until the last one has left, and ends with it: signals for
/// the process arrive at its shadow thread.
fn stay_as_leader(user: &UserThread) {
    let process = &user.process;
    while user.is_leader() && !process.is_ending() {
        note_if_gone();
        signal::collect(user);
        task::block(None);
    }
}

/// Has the shadow end, if no other thread of the process did, and waits for the end of the calling
/// thread's part of it.
fn end_shadow(user: &UserThread) {
    let process = &user.process;
    let end = *process.end.lock();
    let first = !process.told.swap(true, Ordering::Relaxed);
    if first {
        let (used, time) = (process.used_with_children(), process.used().time);
        process.account().tell_parent(process.pid, used, time);
    }
    if first && matches!(end, Some(End::Status(_) | End::Signal(_) | End::Starved)) {
        mappings::write_back_all(&process.space);
    }
    if first && threads::has_memory_alone(process) {
        mappings::leave_files(&process.space);
    }
    note_end(user);
    match end {
        Some(End::Status(status)) if first => remote::request_end(Operation::Exit { status }),
        Some(End::Signal(signal)) if first => {
            remote::request_end(Operation::ExitBySignal { signal, is_starved: false })
        }
        Some(End::Starved) if first => {
            remote::request_end(Operation::ExitBySignal { signal: SIGKILL, is_starved: true });
        }
        _ => remote::wait_for_end(),
    }
}
