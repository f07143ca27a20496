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
//! A socket is the realm's from when it names an interface of the realm, or has a ring, since no
//! program of the realm can map one of Linux's. One that names none before that, and so hears all,
//! stays Linux's.

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
    is_local_by,
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

/// Whether setting an option names an interface of the realm, or asks for a ring where there is
/// one.
fn is_local_by(level: u32, name: u32, value: &[u8]) -> bool {
    let word = |at: usize| value.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    match (level, name) {
        (SOL_PACKET, options::ADD_MEMBERSHIP) => word(0).and_then(interface::by_index).is_some(),
        (SOL_PACKET, options::RECEIVE_RING | options::TRANSMIT_RING) => {
            word(ring::BLOCKS_AT).is_some_and(|blocks| blocks > 0)
                && interface::find(|_| true).is_some()
        }
        _ => false,
    }
}

/// Makes what takes the place of a socket of Linux's.
fn take(foreign: &Foreign) -> Result<Option<Box<dyn Socket>>, Errno> {
    match foreign.kind {
        net::SOCK_RAW | net::SOCK_DGRAM => {}
        // The kind of Linux 2.0.
        _ => return Ok(None),
    }
    let bound = LinkAddress::parse(&foreign.name()?)?;
    if foreign.is_by_option && bound.interface != 0 {
        return Ok(None);
    }
    let socket = PacketSocket::of(foreign, bound)?;
    if foreign.is_by_option && bound.protocol != 0 {
        // It has heard all already.
        socket.listen_to(None, 0)?;
    }
    Ok(Some(Box::new(socket)))
}
