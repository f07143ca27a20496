// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sockets (packet(7)): frames of a network interface as they are.
//!
//! | module | concept |
//! |---|---|
//! | [`address`] | `struct sockaddr_ll` |
//! | [`member`] | sockets that hear what is on the wire |
//! | [`core`] | what a frame reaches of a socket |
//! | [`wants`] | which frames it wants |
//! | [`kept`] | frames that wait |
//! | [`options`] | options: memberships, filters, numbers |
//! | [`ring`] | rings in memory that programs map |
//! | [`blocks`] | rings of blocks, of version 3 |
//! | [`socket`] | a socket: bind, send, receive |
//!
//! A socket is the realm's from when it names an interface of the realm. One that names none, and
//! so hears all, stays Linux's.

mod address;
mod blocks;
mod core;
mod kept;
mod member;
mod options;
mod ring;
mod socket;
mod wants;

use alloc::boxed::Box;

use linux_raw_sys::net;

use crate::{
    abi::Errno,
    files::socket::{self as files, Address, Family, Foreign, Socket},
    sockets::net::{interface, requests},
};
use address::LinkAddress;
use socket::PacketSocket;

/// Options of packet sockets.
const SOL_PACKET: u32 = 263;
/// A protocol that stands for all.
const ALL: u16 = 3;

/// Packet sockets.
static FAMILY: Family = Family {
    number: net::AF_PACKET,
    is_local,
    is_wildcard: |_| false,
    is_local_by: |_, _, _| false,
    take,
    hearer: |_| None,
    ioctl: requests::asked,
};

/// There may be interfaces of the realm.
pub fn start() {
    files::add_family(&FAMILY);
    interface::set_taps(&member::Members);
}

/// Whether an address is that of an interface of the realm.
fn is_local(address: &Address) -> bool {
    let known = LinkAddress::parse(address).ok();
    known.is_some_and(|known| interface::by_index(known.interface).is_some())
}

/// Makes what takes the place of a socket of Linux's.
fn take(foreign: &Foreign) -> Result<Option<Box<dyn Socket>>, Errno> {
    match foreign.kind {
        net::SOCK_RAW | net::SOCK_DGRAM => Ok(Some(Box::new(PacketSocket::of(foreign)?))),
        // The kind of Linux 2.0.
        _ => Ok(None),
    }
}
