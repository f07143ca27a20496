// SPDX-License-Identifier: MIT OR Apache-2.0
//! The word of a futex. Under a spin lock it is reached through the program's own translations; a
//! page that is absent, or not writable, ends the section, and is made present afterwards.

use crtos_abi::UserAddr;

use crtos_core::{arch::user_memory, mm::space::Access};

use super::Stop;
use crate::{abi::Errno, memory::user};

/// The thread id of the owner.
pub const TID: u32 = linux_raw_sys::general::FUTEX_TID_MASK;
/// Somebody waits in the kernel.
pub const WAITERS: u32 = linux_raw_sys::general::FUTEX_WAITERS;
/// The owner ended without giving up the lock.
pub const OWNER_DIED: u32 = linux_raw_sys::general::FUTEX_OWNER_DIED;

/// Reads the word. Under a spin lock.
pub fn load(address: UserAddr) -> Result<u32, Stop> {
    user_memory::load_u32(address).ok_or(Stop::Absent(address, Access::Read))
}

/// Replaces the word by `new` if it is `expected`; else says what it is. Under a spin lock.
pub fn exchange(address: UserAddr, expected: u32, new: u32) -> Result<Result<(), u32>, Stop> {
    user_memory::compare_exchange_u32(address, expected, new)
        .ok_or(Stop::Absent(address, Access::Write))
}

/// Replaces the word by `new`; [`Stop::Changed`] if it is not `expected`. Under a spin lock.
pub fn replace(address: UserAddr, expected: u32, new: u32) -> Result<(), Stop> {
    exchange(address, expected, new)?.map_err(|_| Stop::Changed)
}

/// Makes the page of the word present for `access`. May sleep.
pub fn make_present(address: UserAddr, access: Access) -> Result<(), Errno> {
    user::space()?.resolve(address, access).map(|_| ()).map_err(|_| Errno::EFAULT)
}
