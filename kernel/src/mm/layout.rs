// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things lie.

use core::ptr::NonNull;
use crtos_abi::{boot::BootInfo, channel::Channel};

/// What the cell was told at its start (checked).
pub fn boot_info() -> &'static BootInfo {
    unimplemented!()
}

/// The channel, if the cell has one. Everything in it is an allegation; access by volatile or atomic operations only.
pub fn channel() -> Option<NonNull<Channel>> {
    unimplemented!()
}
