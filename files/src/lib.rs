// SPDX-License-Identifier: MIT OR Apache-2.0
//! What local files are without the machine: which descriptor numbers are in use and by whom ([`Numbers`]), the
//! contents of a pipe ([`Slots`]), the expirations of a timer ([`Expirations`]), the
//! members of an epoll set ([`Interests`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod expirations;
pub mod interests;
mod numbers;
mod slots;

pub use expirations::Expirations;
pub use interests::Interests;
pub use numbers::{Batch, NUMBERS, Numbers, WORDS};
pub use slots::{NoMemory, PAGE, Slots};
