// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN (Linux's SocketCAN, `Documentation/networking/can.rst`).
//!
//! | module | concept |
//! |---|---|
//! | [`interface`] | interfaces of the realm, which drivers have |
//! | [`member`] | sockets that are told of frames |
//! | [`inbox`] | messages that wait to be received |
//! | [`raw`] | CAN_RAW |
//! | [`broadcast`] | CAN_BCM |
//! | [`device`] | SO_BINDTODEVICE |
//! | [`budget`] | what all sockets may have together |
//!
//! A socket that is bound to all interfaces is one of the realm's interfaces, if it has any.

mod broadcast;
mod budget;
mod device;
mod inbox;
pub mod interface;
pub mod member;
mod raw;

use alloc::boxed::Box;

use linux_raw_sys::net;

use crate::{
    abi::Errno,
    files::socket::{Address, Family, Foreign, Socket},
};
use broadcast::Broadcast;
use raw::Raw;

/// Options of CAN_RAW.
const SOL_CAN_RAW: u32 = 101;
/// Options of CAN_BCM: there are none.
const SOL_CAN_BCM: u32 = 102;
/// Bytes of an address up to the number of the interface.
const LEAST_ADDRESS: usize = 8;
/// Bytes of a `struct sockaddr_can` that tells where a frame came from.
const ADDRESS: usize = 24;
/// Bytes that Linux counts for a frame that waits.
const COST: u32 = 768;

/// Sockets of CAN.
pub static FAMILY: Family = Family {
    number: net::AF_CAN,
    is_local,
    is_wildcard: |_| false,
    is_local_by: device::is_local_by,
    take,
    hearer: |_| None,
    ioctl: interface::asked,
};

/// Whether an address is that of an interface of the realm, or of all.
fn is_local(address: &Address) -> bool {
    match interface_of(address) {
        Ok(0) => !interface::is_empty(),
        Ok(index) => interface::by_index(index).is_some(),
        Err(_) => false,
    }
}

/// Makes what takes the place of a socket of Linux's.
fn take(foreign: &Foreign) -> Result<Option<Box<dyn Socket>>, Errno> {
    match foreign.kind {
        // There is one protocol of that kind. Linux tells no protocol of sockets of CAN.
        net::SOCK_RAW => Ok(Some(Box::new(Raw::of(foreign)?))),
        // Another kind has options of its own, which Linux tells.
        net::SOCK_DGRAM if is_broadcast(foreign) => Ok(Some(Box::new(Broadcast::of(foreign)?))),
        _ => Ok(None),
    }
}

/// Whether a socket of Linux's is one of CAN_BCM. Of all protocols with that kind of sockets, this
/// one has no options.
fn is_broadcast(foreign: &Foreign) -> bool {
    foreign.option(SOL_CAN_BCM, 1) == Err(Errno::EOPNOTSUPP)
}

/// The number of the interface in an address.
fn interface_of(address: &Address) -> Result<u32, Errno> {
    let bytes = address.bytes().first_chunk::<LEAST_ADDRESS>().ok_or(Errno::EINVAL)?;
    let [family, _, a, b] =
        [[bytes[0], bytes[1]], [bytes[2], bytes[3]], [bytes[4], bytes[5]], [bytes[6], bytes[7]]];
    if u32::from(u16::from_ne_bytes(family)) != net::AF_CAN {
        return Err(Errno::EINVAL);
    }
    Ok(u32::from_ne_bytes([a[0], a[1], b[0], b[1]]))
}

/// The address of an interface.
fn address_of(index: u32, length: usize) -> Address {
    let mut bytes = [0; ADDRESS];
    bytes[..2].copy_from_slice(&(net::AF_CAN as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    Address::new(&bytes[..length])
}
