// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls that ask for an interface of the realm, of whatever socket (netdevice(7)).

use alloc::sync::Arc;
use core::net::IpAddr;

use crtos_abi::UserAddr;
use linux_raw_sys::{ioctl, net};

use super::interface::{self, Interface};
use crate::{
    abi::{Errno, SysResult},
    sockets::{
        ethtool::{self, ETHTOOL},
        ifreq::InterfaceRequest,
    },
};

/// Flags of an interface (IFF_*): it is up; its cable leads to somebody; it has an address for all;
/// it has those of groups.
const UP: u16 = 0x0001;
const RUNNING: u16 = 0x0040;
const ALWAYS: u16 = 0x0002 | 0x1000;
/// The kind of hardware (ARPHRD_ETHER).
pub const HARDWARE: u16 = 1;

/// Has a card stamp frames, or asks whether it does.
const SET_STAMPS: u32 = 0x89b0;
const GET_STAMPS: u32 = 0x89b1;
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
        return Some(ethtool::tell(UserAddr::new(ifreq.address()), || {
            Some(interface.has_carrier())
        }));
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
