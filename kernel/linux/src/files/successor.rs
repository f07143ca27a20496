// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux has in place of a local file that has left the realm ([`super::leaving`]): kept under
//! a number until no process of the realm has the local file any more.

use crtos_abi::channel::SUCCESSOR_WORDS;
use crtos_channel::{DoorbellCpu, Operation};

use crtos_core::{
    sync::SpinLock,
    task::{self, Mutex},
};

use super::Events;
use crate::{
    abi::{Errno, SysResult, linux_result},
    process::ThreadExt as _,
    remote::{self, end},
};

/// The numbers in use.
static IN_USE: SpinLock<[u64; SUCCESSOR_WORDS]> = SpinLock::new([0; SUCCESSOR_WORDS]);

/// A file of Linux that a local one, or an end of a pipe, has become. Linux lets it go when this is
/// dropped, which rings.
pub struct Successor {
    number: u32,
    /// It has the status flags of the local one. Who gives it those keeps this locked.
    has_status: Mutex<bool>,
}

impl Successor {
    /// Has Linux keep the file of descriptor `fd`; `None` if it keeps too many. Sleeps.
    pub fn keep(fd: u64) -> Option<Self> {
        let kept = Self { number: choose()?, has_status: Mutex::new(false) };
        let keep = Operation::KeepSuccessor { fd: fd as u32, number: kept.number };
        // What Linux does not have, it does not let go either.
        linux_result(remote::request(keep).ok()?).ok().map(|_| kept)
    }

    /// A descriptor of it in the caller's shadow. Sleeps.
    pub fn take(&self) -> SysResult {
        linux_result(remote::request(Operation::TakeSuccessor { number: self.number })?)
    }

    /// Has `give` give it the status flags of the local file, unless somebody has; waits for one
    /// who is about to. One that fails, because its process ends, leaves that to the next one.
    /// Sleeps.
    pub fn with_status<E>(&self, give: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut has_status = self.has_status.lock();
        if !*has_status {
            give()?;
            *has_status = true;
        }
        Ok(())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let Some(channel) = remote::channel() else { return };
        channel.drop_successor(self.number);
        remote::ring_at(channel, DoorbellCpu::ANY);
        // Last, so that who chooses the number sees that Linux has yet to let it go.
        let (word, bit) = place(self.number);
        IN_USE.lock()[word] &= !bit;
    }
}

/// What a call of the local file returns: it is made again, and follows.
pub fn made_again() -> Errno {
    if is_out_of_reach() { Errno::EIO } else { Errno::RESTART_ALWAYS }
}

/// What the local file is ready for.
pub fn events() -> Events {
    if is_out_of_reach() { Events::ERROR } else { Events::LEFT }
}

/// Whether the caller cannot follow any more: its shadow has gone, or Linux has ended.
fn is_out_of_reach() -> bool {
    let is_alone = || task::current().user().is_some_and(|user| user.process.is_out_of_reach());
    end::has_ended() || is_alone()
}

fn place(number: u32) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

/// A number that nobody uses, Linux neither.
fn choose() -> Option<u32> {
    let channel = remote::channel()?;
    let mut in_use = IN_USE.lock();
    in_use.iter_mut().enumerate().find_map(|(word, in_use)| {
        let taken = *in_use | channel.successors_dropped(word);
        let bit = taken.trailing_ones();
        *in_use |= 1_u64.checked_shl(bit)?;
        Some(word as u32 * 64 + bit)
    })
}
