// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread of a program begins.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use crtos_abi::UserAddr;
use crtos_channel::OwnedSlot;
use crtos_core::{
    arch::{self, UserContext, fpu},
    mm::heap,
    personality::Carried,
    task::{self, PortPermissions, Scheduling, Spawn},
};

use super::{Linux, ThreadExt as _, UserThread, clone::Wanted, end_if_due, fork::Fork, threads};
use crate::{abi::Errno, futex, remote::slots, signal};

use linux_raw_sys::general as linux;

/// Where a new thread of a program begins.
pub struct Beginning {
    /// Registers.
    pub context: UserContext,
    /// FS base and GS base.
    pub bases: (UserAddr, UserAddr),
    /// Extended state.
    pub state: Box<[u8]>,
    /// The I/O ports that it may use.
    pub ports: PortPermissions,
}

impl Beginning {
    /// Where the calling thread is, as its child sees it; `context` are its registers.
    pub fn of_child(context: &UserContext) -> Result<Self, Errno> {
        let mut state = Vec::new();
        if !heap::makes_room(&mut state, fpu::size()) {
            return Err(Errno::ENOMEM);
        }
        state.resize(fpu::size(), 0);
        fpu::save(&mut state);
        let context = UserContext { rax: 0, orig_rax: u64::MAX, ..*context };
        let ports = task::port_permissions();
        let state = state.into_boxed_slice();
        Ok(Self { context, bases: task::segment_bases(), state, ports })
    }

    /// Changes it as clone(2) was told to.
    pub fn apply(&mut self, wanted: &Wanted) -> Result<(), Errno> {
        if !wanted.stack.is_null() {
            self.context.rsp = wanted.stack.get();
        }
        if wanted.has(linux::CLONE_SETTLS) {
            if wanted.tls >= UserAddr::END {
                return Err(Errno::EPERM);
            }
            self.bases.0 = wanted.tls;
        }
        Ok(())
    }
}

/// How a thread of a program comes to be.
#[derive(Default)]
pub enum Birth {
    /// It loads a program, or has begun.
    #[default]
    Program,
    /// It begins where it was told to.
    Thread(Beginning),
    /// It takes over from its parent.
    Fork(Arc<Fork>),
}

/// Body of a thread that knows where to begin. The caller owns nothing that would be lost.
pub fn enter() {
    let current = task::current();
    let Some(user) = current.user() else { return };
    let birth = core::mem::take(&mut *user.birth.lock());
    let Birth::Thread(Beginning { context, bases: (fs, gs), state, ports }) = birth else { return };
    // What `fpu::save` has stored is valid.
    fpu::restore(&state);
    drop(state);
    task::set_port_permissions(ports);
    task::set_numbering(user.process.numbering.get());
    user.speculation.begin();
    end_if_due();
    arch::enter_user(&context, fs, gs);
}

/// Starts a thread of a program that runs `body` with slot `owned`. Gives the slot back if there is
/// no room. (`body` is a function: what it captured would be lost, because it ends in user mode.)
pub fn begin(
    user: UserThread,
    owned: OwnedSlot,
    scheduling: Scheduling,
    body: fn(),
) -> Result<(), OwnedSlot> {
    let process = user.process.clone();
    let (ids, slot) = ((process.namespace, user.tid), user.slot);
    let Ok(place) = signal::join(&user) else { return Err(owned) };
    if !heap::has_reserve() {
        signal::forget(&process, place);
        return Err(owned);
    }
    let what = Spawn {
        name: "program",
        trace_id: Some(owned.tid()),
        scheduling: process.inherited_scheduling(scheduling),
        space: Some(process.space.clone()),
        carried: Carried::new::<Linux>(user),
        affinity: process.inherited_cpus(task::current().affinity()),
    };
    let Ok(thread) = task::prepare(what, body) else {
        signal::forget(&process, place);
        return Err(owned);
    };
    signal::attach(&thread);
    if let Some(user) = thread.user() {
        owned.publish_command(&*user.command.lock());
        *user.owned_slot.lock() = Some(owned);
        // From here on Linux tells of no end of the process before the thread's.
        user.publish(&thread);
    }
    threads::add(&process, ids.1, &thread);
    futex::enter(&thread, ids);
    if process.is_ending() {
        // It may have been told to before the thread was there to hear of it.
        thread.set_attention();
    }
    slots::set_owner(slot, thread.clone());
    task::start(&thread);
    Ok(())
}
