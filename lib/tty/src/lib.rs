// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serial lines, tested on the host: Linux's line discipline (`N_TTY`, termios(3)) and a 16550.
//!
//! | module | concept |
//! |---|---|
//! | [`termios`] | the settings of a terminal |
//! | [`speed`] | speeds, their codes and their divisors |
//! | [`input`] | what was received: bytes, or lines that can be edited |
//! | [`echo`] | what is sent back of that |
//! | [`output`] | what is to be sent, as OPOST changes it |
//! | [`uart`] | the registers of a 16550 |
//! | [`port`] | a serial line: all of these together, with flow control and counters |
//! | `model` | a 16550 that tests play, behind the feature of that name |
//!
//! What a received byte, or one to be sent, asks for takes constant time: the kernel does it with
//! interrupts off.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "model")]
extern crate std;

pub mod echo;
pub mod input;
#[cfg(feature = "model")]
pub mod model;
pub mod output;
pub mod port;
pub mod speed;
pub mod termios;
pub mod uart;

pub use port::{Port, Wake};
pub use termios::Termios;
pub use uart::{Ports, Uart};
