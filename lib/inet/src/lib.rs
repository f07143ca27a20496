// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP and TCP over IPv4 and Ethernet, without hardware, clocks and threads: what comes in is a
//! frame and a time, what goes out are frames.
//!
//! | module | concept |
//! |---|---|
//! | [`packet`] | frames and packets: taken apart, checked, and made |
//! | [`answers`] | how much is answered |
//! | [`neighbors`] | stations of the network, by their address (ARP), and frames that wait |
//! | [`kept`] | frames that are kept for a while |
//! | [`reassembly`] | packets that came in fragments |
//! | [`ports`] | who has which port, and who is meant by a packet |
//! | [`inbox`] | datagrams that wait to be received |
//! | [`connection`] | a connection of TCP, which is one of the crate `smoltcp` |
//!
//! Everything has its memory before frames come, and has a bound for it. What comes in is hostile:
//! nothing here panics on it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answers;
pub mod connection;
pub mod inbox;
pub mod kept;
pub mod neighbors;
pub mod packet;
pub mod ports;
pub mod reassembly;

pub use core::net::{Ipv4Addr, SocketAddrV4};
