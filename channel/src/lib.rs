// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: request slots, doorbells and page drops between the realms.
//!
//! This is the real-time kernel's end of the protocol that [`crtos_abi::channel`] describes, free of hardware:
//!
//! | module | concept |
//! |---|---|
//! | [`block`] | the shared block, seen through atomics; attaching, bitmaps, notices, the kernel's own words |
//! | [`line`](mod@line) | one thread's slot while the thread lives: request, fault, answer, reply |
//! | [`rank`] | which reply is worth an interrupt |
//! | [`drops`] | ranges that Linux has to let go, and the frames in limbo until it did |
//!
//! The other end is Linux, which may be broken or hostile: every word that it can write is read once, checked
//! against what the kernel knows, and otherwise taken as nothing. No value of it can make this crate panic,
//! loop or hand out a frame early.
#![cfg_attr(not(test), no_std)]

pub mod block;
pub mod drops;
pub mod line;
pub mod rank;

pub use block::{AttachError, Block, Notices};
pub use drops::{Drops, Range};
pub use line::{Answer, Line, Poll, Request, Start, Status};
