// SPDX-License-Identifier: MIT OR Apache-2.0
//! What local files are without the machine: which descriptor numbers are in use and by whom ([`Numbers`]), the
//! contents of a pipe ([`Slots`]), the expirations of a timer ([`Expirations`]), the
//! members of an epoll set ([`Interests`]), and a list that grows in constant time ([`Pieces`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod expirations;
pub mod interests;
mod numbers;
mod pieces;
mod slots;

pub use expirations::Expirations;
pub use interests::Interests;
pub use numbers::{Batch, NUMBERS, Numbers, WORDS};
pub use pieces::{Piece, Pieces};
pub use slots::{NoMemory, PAGE, Slots};
