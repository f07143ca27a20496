// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy's place in the run loop: what it decides at each exit.

use crate::arch::{Exit, Runner, VirtualCpu};
use crate::local::{Local, STACK_TOP};
use crate::park;

/// What decides at each exit.
pub trait Policy {
    /// Handles an exit. Requests of other CPUs are served afterwards.
    fn handle(local: &mut Local, exit: Exit);
}

/// The memory of a CPU, run by a policy.
#[repr(transparent)]
pub(crate) struct Run<P> {
    local: Local,
    policy: core::marker::PhantomData<P>,
}

// SAFETY: The virtual CPU is the first field of `Local`, whose memory ends with its stack.
unsafe impl<P: Policy> Runner for Run<P> {
    const STACK_TOP: usize = STACK_TOP;

    unsafe extern "sysv64" fn prepare(this: *mut Self) {
        // SAFETY: The run loop hands over the memory of this CPU, to which nobody else refers.
        unsafe { (*this).local.vcpu().prepare_entry() }
    }

    unsafe extern "sysv64" fn exited(this: *mut Self) {
        // SAFETY: The run loop hands over the memory of this CPU, to which nobody else refers.
        let local = unsafe { &mut (*this).local };
        local.begin_time();
        let exit = local.vcpu().exit();
        P::handle(local, exit);
        park::serve(local);
        local.inject_nmi();
        local.vcpu().prepare_entry();
        local.end_time();
    }
}
