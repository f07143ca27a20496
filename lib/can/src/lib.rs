// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN, tested on the host: what of Linux's SocketCAN and of a controller needs no hardware.
//!
//! | module | concept |
//! |---|---|
//! | [`frame`] | a frame, as programs and the bus exchange it |
//! | [`filter`] | which frames a socket wants |
//! | [`settings`] | the bit rate and the mode of a controller |
//! | [`sja1000`] | the registers of an SJA1000, and what it does |
//! | [`intake`] | what a controller tells, while telling others takes long |
//! | [`broadcast`] | cyclic transmission, and reception of what changes (CAN_BCM) |
//! | [`queue`] | frames that wait, in memory that is there before they come |
//! | `model` | an SJA1000 that tests play, behind the feature of that name |
//!
//! What an interrupt or a timer asks for takes a bounded number of steps and no memory: the kernel
//! does it with interrupts off.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "model")]
extern crate std;

pub mod broadcast;
pub mod filter;
pub mod frame;
pub mod intake;
#[cfg(feature = "model")]
pub mod model;
pub mod queue;
pub mod settings;
pub mod sja1000;

pub use filter::{Filter, Filters, List};
pub use frame::Frame;
pub use intake::Intake;
pub use queue::Queue;
pub use settings::Settings;
pub use sja1000::{Controller, Ports};
