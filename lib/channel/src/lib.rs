// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: request slots, doorbells and revocations of pages between the realms.
//!
//! This is the real-time kernel's end of the protocol that [`crtos_abi::channel`] describes, free
//! of hardware. [`operation`] is the shadow's as well.
//!
//! | module | concept |
//! |---|---|
//! | [`channel`] | the channel, seen through atomics; attaching, bitmaps, notices, the kernel's own words |
//! | [`owned_slot`] | one thread's slot while the thread lives: request, fault, answer, reply |
//! | [`ethernet`] | the memory of the virtual Ethernet |
//! | [`heritage`] | what a thread inherits of its creator's shadow thread, as a number |
//! | [`last_words`] | the end of Linux's log, and of Linux |
//! | [`operation`] | what a request asks of the shadow |
//! | [`question`] | what Linux asks the kernel |
//! | [`places`] | pages of Linux that the realm shares |
//! | [`devices`] | PCI functions that the realm is to have |
//! | [`rank`] | which reply is worth an interrupt |
//! | [`successors`] | files that local ones have become |
//! | [`slot`] | the number of a slot, and its place in bitmaps |
//! | [`revocations`] | ranges that Linux has to let go, and the frames in limbo until it did |
//! | `backlog` | ranges that wait for a place in that table |
//!
//! The other end is Linux, which may be broken or hostile: every word that it can write is read
//! once, checked against what the kernel knows, and otherwise taken as nothing. No value of it can
//! make this crate panic, loop or hand out a frame early.
#![cfg_attr(not(test), no_std)]

#[cfg(feature = "backlog")]
extern crate alloc;

#[cfg(feature = "backlog")]
pub mod backlog;
pub mod channel;
pub mod devices;
pub mod ethernet;
pub mod heritage;
pub mod last_words;
pub mod operation;
pub mod owned_slot;
pub mod places;
pub mod question;
pub mod rank;
pub mod revocations;
pub mod slot;
pub mod successors;

#[cfg(feature = "backlog")]
pub use backlog::{Backlog, Join};
pub use channel::{AttachError, Channel, DoorbellCpu, Notices};
pub use devices::{Description, Had, Wanted, WantedLine};
pub use heritage::Heritage;
pub use operation::{Encoded, Operation};
pub use owned_slot::{Answer, OwnedSlot, Parent, Poll, Request, Start, Status};
pub use question::Question;
pub use revocations::{Range, Revocations};
pub use slot::Slot;
