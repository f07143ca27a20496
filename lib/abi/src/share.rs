// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share window: addresses of a cell at which it sees pages of Linux that it shares.
//!
//! The window is empty at first. Linux gives a page by [`crate::hypercall::HC_CELL_MAP`], at a
//! *place* of the window: 4 KiB where nothing is. Only the cell takes it out again, by
//! [`crate::hypercall::HC_PLACES_LEAVE`]. The page stays Linux's memory all the while, and
//! functions of the cell do not reach it there.

/// Start of the window, which ends where registers of devices begin.
pub const SHARE_WINDOW: u64 = 0xd000_0000;
/// End of the window.
pub const SHARE_WINDOW_END: u64 = 0xe000_0000;
/// Places of the window.
pub const PLACES: usize = 65536;
/// Words of 64 bits that have a bit for each place.
pub const PLACE_WORDS: usize = 1024;
