// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel's VT-d.
//!
//! | module | concept |
//! |---|---|
//! | [`registers`] | offsets and bits of registers |
//! | [`irte`] | entries of the interrupt-remapping table |
//! | [`context`] | which tables translate for a device |
//! | [`paging`] | entries of page tables |
//! | [`queue`] | descriptors of the invalidation queue |
//! | [`mod@unit`] | a unit that was taken over, driven for Linux |

pub mod context;
pub mod irte;
pub mod paging;
pub mod queue;
pub mod registers;
pub mod unit;
