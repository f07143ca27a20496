// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network cards, tested on the host: what of a driver and of packet sockets needs no hardware.
//!
//! | module | concept |
//! |---|---|
//! | [`card`] | what a card is |
//! | [`kinds`] | the list of the kinds of cards |
//! | [`intel`] | cards of Intel's |
//! | [`virtio`] | network devices of virtio |
//! | [`ethernet`] | the virtual Ethernet to Linux |
//! | [`reception`] | which frames it receives |
//! | [`ring`] | frames in memory that a program maps |
//! | [`blocks`] | the same in blocks, where frames have any length |
//! | [`flow`] | a number by which frames are spread over workers |
//! | [`stamping`] | which time stamps a socket asks for, and is told |
//! | [`lead`] | who takes the next frame from a card |
//! | [`settings`] | what an interface was under Linux |
//! | [`inbox`] | frames that wait for a socket, in memory that is there before they come |
//! | [`filter`] | which of them a socket wants: classic BPF |
//!
//! Cards that tests play are behind the feature `model`.
//!
//! What a frame asks for takes a bounded number of steps and no memory.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "model")]
extern crate std;

pub mod blocks;
pub mod card;
pub mod ethernet;
pub mod filter;
pub mod flow;
pub mod inbox;
pub mod intel;
pub mod kinds;
pub mod lead;
pub mod reception;
pub mod ring;
pub mod settings;
pub mod stamping;
pub mod virtio;

/// The address of a station, or of a group of them.
pub type HardwareAddress = [u8; 6];
