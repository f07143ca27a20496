// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with a timeout that go on after a signal without handler.

use crtos_abi::UserAddr;

use crtos_core::time::{Deadline, Nanos};

use crate::futex::Address;

/// A call that was interrupted and can go on.
#[derive(Clone, Copy, Debug)]
pub enum Restart {
    /// nanosleep(2) and relative clock_nanosleep(2).
    Sleep {
        /// Kernel time.
        deadline: Nanos,
        /// Where the remaining time goes, or [`UserAddr::NULL`].
        remainder: UserAddr,
    },
    /// Relative clock_nanosleep(2) in processor time.
    ProcessorSleep {
        /// The clock's number.
        clock: u64,
        /// In its time.
        deadline: Nanos,
        /// As above.
        remainder: UserAddr,
    },
    /// poll(2) with a timeout.
    Poll {
        /// Where its set is.
        fds: UserAddr,
        /// How many members that has.
        count: u64,
        /// Kernel time.
        deadline: Nanos,
    },
    /// FUTEX_WAIT and FUTEX_WAIT_BITSET with a timeout.
    Futex {
        /// Where it waits.
        address: Address,
        /// What the word must be.
        value: u32,
        /// By which it is woken.
        bits: u32,
        /// Until when.
        deadline: Deadline,
    },
}
