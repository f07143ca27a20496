// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the threads of programs are scheduled: what Linux's attributes mean here, and what a program
//! inherits.

use alloc::sync::Arc;

use crtos_channel::{Operation, operation};
use crtos_core::{
    task::{self, Policy, Scheduling, Thread},
    time::Nanos,
};

use crate::{
    abi::{Errno, linux_result},
    process::ThreadExt as _,
    remote,
};

use crtos_sched::{Level, deadline::Reservation};
use crtos_syscalls::sched::{self as attributes, Attributes};

/// What Linux's attributes mean here (EINVAL if they mean nothing).
pub fn scheduling(wanted: &Attributes) -> Result<Scheduling, Errno> {
    wanted.check().map_err(|attributes::Invalid| Errno::EINVAL)?;
    let real_time = Level::new(wanted.priority).ok_or(Errno::EINVAL)?;
    let (policy, level) = match wanted.policy {
        attributes::OTHER => (Policy::Ordinary, Level::ORDINARY),
        attributes::BATCH => (Policy::Batch, Level::ORDINARY),
        attributes::IDLE => (Policy::Idle, Level::ORDINARY),
        attributes::FIFO => (Policy::Fifo, real_time),
        attributes::RR => (Policy::RoundRobin, real_time),
        _ => (Policy::Deadline, Level::DEADLINE),
    };
    let reservation = match policy {
        Policy::Deadline => {
            let [runtime, deadline, period] =
                [wanted.runtime, wanted.deadline, wanted.period].map(Nanos);
            Reservation::new(runtime, deadline, period).ok_or(Errno::EINVAL)?
        }
        _ => Reservation::default(),
    };
    Ok(Scheduling {
        policy,
        level,
        nice: wanted.nice as i8,
        reset_on_fork: wanted.flags & attributes::RESET_ON_FORK != 0,
        reservation,
        tells_overrun: wanted.flags & attributes::DL_OVERRUN != 0,
        reclaims: wanted.flags & attributes::RECLAIM != 0,
    })
}

/// Gives the calling thread, which begins with a program, the reservation of the thread that has
/// executed that. If there is none, the scheduling that its shadow was started with (`chrt -f 50
/// crtos run …`, or by the program before), if there is one like it here.
pub fn inherit(reservation: Option<(Arc<Thread>, Scheduling)>) -> Result<(), Errno> {
    let current = task::current();
    if let Some((from, what)) = reservation
        && current.take_over(&from, what).is_ok()
    {
        prepare(&current);
        return Ok(());
    }
    let word = linux_result(remote::request(Operation::Scheduling { tid: None })?)?;
    let found = operation::Scheduling::from_word(word);
    let found = Attributes {
        policy: found.policy.into(),
        priority: found.priority.into(),
        nice: found.nice.into(),
        flags: if found.reset_on_fork { attributes::RESET_ON_FORK } else { 0 },
        ..Attributes::default()
    };
    if found.policy != attributes::DEADLINE
        && let Ok(scheduling) = scheduling(&found)
    {
        let process = current.user().map(|user| &*user.process);
        let permitted = process.map_or(scheduling, |of| of.inherited_scheduling(scheduling));
        current.set_scheduling(permitted);
        prepare(&current);
    }
    Ok(())
}

/// Sees to it that the program of a real-time thread is present before the thread uses it.
pub fn prepare(thread: &Thread) {
    if thread.scheduling().level > Level::ORDINARY
        && let Some(space) = thread.space()
    {
        space.populate_files();
    }
}
