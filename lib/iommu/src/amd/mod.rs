// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD-Vi.
//!
//! | module | concept |
//! |---|---|
//! | [`registers`] | offsets and bits of registers |
//! | [`irte`] | entries of interrupt-remapping tables |
//! | [`device`] | which tables a device has |
//! | [`paging`] | entries of page tables |
//! | [`commands`] | entries of the command buffer |
//! | [`remapping`] | copies of interrupt-remapping tables |
//! | [`mod@unit`] | a unit that was taken over |

pub mod commands;
pub mod device;
pub mod irte;
pub mod paging;
pub mod registers;
pub mod remapping;
pub mod unit;
