// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure logic of descriptors and local files, tested on the host.
//!
//! | type | concept |
//! |---|---|
//! | [`Numbers`] | which descriptor numbers are in use, and by which kernel |
//! | [`PipeRing`] | the contents of a pipe |
//! | [`Expirations`] | the expirations of a timerfd |
//! | [`Interests`] | the members of an epoll set |
//! | [`Records`](records::Records) | locks of parts of a file |
//! | [`Pieces`] | a list that grows in constant time: the watchers of a file |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod expirations;
pub mod interests;
mod numbers;
mod pieces;
mod pipe_ring;
pub mod records;

pub use expirations::Expirations;
pub use interests::Interests;
pub use numbers::{Batch, NUMBERS, Numbers, WORDS};
pub use pieces::{Piece, Pieces};
pub use pipe_ring::{Claim, Loan, NoMemory, PAGE, PipeRing};
