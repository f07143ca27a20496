// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls that ask for an interface of the realm, of whatever socket (netdevice(7)).

use alloc::sync::Arc;
use core::net::IpAddr;

use crtos_abi::UserAddr;
use crtos_nic::stamping;
use linux_raw_sys::{ioctl, net};

use super::interface::{self, Interface};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
    sockets::ifreq::InterfaceRequest,
};

/// Flags of an interface (IFF_*): it is up; its cable leads to somebody; it has an address for all;
/// it has those of groups.
const UP: u16 = 0x0001;
const RUNNING: u16 = 0x0040;
const ALWAYS: u16 = 0x0002 | 0x1000;
/// The kind of hardware (ARPHRD_ETHER).
pub const HARDWARE: u16 = 1;

/// Asks for, or changes, what a driver of Linux's offers (SIOCETHTOOL).
const ETHTOOL: u32 = 0x8946;
/// Has a card stamp frames, or asks whether it does.
const SET_STAMPS: u32 = 0x89b0;
const GET_STAMPS: u32 = 0x89b1;
/// With [`ETHTOOL`]: who drives it (`struct ethtool_drvinfo`), its bytes, and its name's place.
const GET_DRIVER: u32 = 3;
const DRIVER: usize = 196;
const DRIVER_NAME: usize = 4;
/// With [`ETHTOOL`]: whether the cable leads to somebody (`struct ethtool_value`).
const GET_LINK: u32 = 0xa;
/// With [`ETHTOOL`]: which time stamps there are (`struct ethtool_ts_info`), and its bytes.
const GET_STAMP_KINDS: u32 = 0x41;
const STAMP_KINDS: usize = 44;

/// Whether an ioctl asks for an interface in a way that is answered here.
pub fn is_known(request: u32) -> bool {
    matches!(
        request,
        ioctl::SIOCGIFNAME
            | ioctl::SIOCGIFINDEX
            | ioctl::SIOCGIFFLAGS
            | ioctl::SIOCGIFMTU
            | ioctl::SIOCGIFHWADDR
            | ioctl::SIOCGIFTXQLEN
            | ioctl::SIOCGIFADDR
            | ioctl::SIOCGIFNETMASK
            | ioctl::SIOCGIFBRDADDR
            | ioctl::SIOCGIFMETRIC
    )
}

/// What an ioctl of that kind changes, which the realm does not.
fn changes(request: u32) -> bool {
    matches!(
        request,
        ioctl::SIOCSIFFLAGS
            | ioctl::SIOCSIFMTU
            | ioctl::SIOCSIFADDR
            | ioctl::SIOCSIFNETMASK
            | ioctl::SIOCSIFBRDADDR
            | ioctl::SIOCSIFTXQLEN
            | ioctl::SIOCSIFHWADDR
            | ioctl::SIOCSIFNAME
            | ETHTOOL
            | SET_STAMPS
            | GET_STAMPS
    )
}

/// Answers what a program asks of a driver by what is at an address: the link, the driver's name,
/// and the kinds of time stamps, which are those by the kernel. EOPNOTSUPP for anything else.
fn tell_of_driver(interface: &dyn Interface, at: UserAddr) -> SysResult {
    let asked = user::read_u32(at)?;
    match asked {
        GET_LINK => {
            user::write_u32(at.wrapping_add(4), interface.has_carrier().into())?;
        }
        GET_DRIVER => {
            // As Linux shows it.
            const NAME: &[u8] = b"crtos";
            let mut told = [0; DRIVER];
            told[..4].copy_from_slice(&asked.to_ne_bytes());
            told[DRIVER_NAME..][..NAME.len()].copy_from_slice(NAME);
            user::write(at, &told)?;
        }
        GET_STAMP_KINDS => {
            let kinds = stamping::TX_SOFTWARE | stamping::RX_SOFTWARE | stamping::SOFTWARE;
            /// No card's clock.
            const NO_CLOCK: u32 = u32::MAX;
            let mut told = [0; STAMP_KINDS];
            let words = [asked, kinds, NO_CLOCK].map(u32::to_ne_bytes);
            told[..12].copy_from_slice(words.as_flattened());
            user::write(at, &told)?;
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

/// The flags of an interface.
pub fn flags(interface: &dyn Interface) -> u16 {
    let up = if interface.is_up() { UP } else { 0 };
    up | ALWAYS | if interface.has_carrier() { RUNNING } else { 0 }
}

/// A `struct sockaddr_in`.
fn socket_address(address: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(net::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address);
    bytes
}

/// Answers an ioctl that asks for an interface of the realm; `None` if it asks for something else.
pub fn asked(request: u32, argument: UserAddr) -> Option<SysResult> {
    if !is_known(request) && !changes(request) {
        return None;
    }
    let mut ifreq = match InterfaceRequest::read(argument) {
        Ok(ifreq) => ifreq,
        Err(error) => return Some(Err(error)),
    };
    let interface: Arc<dyn Interface> = match request {
        ioctl::SIOCGIFNAME => interface::by_index(ifreq.index())?,
        _ => interface::by_name(ifreq.name())?,
    };
    if request == ETHTOOL {
        return Some(tell_of_driver(&*interface, UserAddr::new(ifreq.address())));
    }
    if changes(request) {
        return Some(Err(Errno::EOPNOTSUPP));
    }
    let first = interface.addresses().iter().find_map(|own| match own.address {
        IpAddr::V4(address) => Some((u32::from(address), own.prefix)),
        IpAddr::V6(_) => None,
    });
    let mask = |prefix: u8| u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    match request {
        ioctl::SIOCGIFNAME => ifreq.set_name(interface.name()),
        ioctl::SIOCGIFINDEX => ifreq.put(&interface.index().to_ne_bytes()),
        ioctl::SIOCGIFFLAGS => ifreq.put(&flags(&*interface).to_ne_bytes()),
        ioctl::SIOCGIFMTU => ifreq.put(&(interface.mtu() as u32).to_ne_bytes()),
        ioctl::SIOCGIFTXQLEN => ifreq.put(&interface.queue_length().to_ne_bytes()),
        ioctl::SIOCGIFMETRIC => ifreq.put(&[0; 4]),
        ioctl::SIOCGIFHWADDR => ifreq.put_hardware(HARDWARE, &interface.hardware_address()),
        _ => {
            let Some((address, prefix)) = first else { return Some(Err(Errno::EADDRNOTAVAIL)) };
            let told = match request {
                ioctl::SIOCGIFADDR => address,
                ioctl::SIOCGIFNETMASK => mask(prefix),
                _ => address | !mask(prefix),
            };
            ifreq.put(&socket_address(told.to_be_bytes()));
        }
    }
    Some(ifreq.write())
}
