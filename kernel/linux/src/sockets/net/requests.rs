// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls that ask for an interface of the realm, of whatever socket (netdevice(7)).

use alloc::sync::Arc;
use core::net::IpAddr;

use crtos_abi::UserAddr;
use linux_raw_sys::{ioctl, net};

use super::interface::{self, Interface};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
};

/// Bytes of the name of an interface, and of a `struct ifreq`.
const NAME: usize = 16;
const REQUEST: usize = 40;
/// Flags of an interface (IFF_*): it is up; its cable leads to somebody; it has an address for all;
/// it has those of groups.
const UP: u16 = 0x0001;
const RUNNING: u16 = 0x0040;
const ALWAYS: u16 = 0x0002 | 0x1000;
/// The kind of hardware (ARPHRD_ETHER).
pub const HARDWARE: u16 = 1;

/// Asks for, or changes, what a driver of Linux's offers (SIOCETHTOOL).
const ETHTOOL: u32 = 0x8946;

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
    let mut ifreq = [0; REQUEST];
    if user::read(argument, &mut ifreq).is_err() {
        return Some(Err(Errno::EFAULT));
    }
    let (name, value) = ifreq.split_at_mut(NAME);
    let interface: Arc<dyn Interface> = if request == ioctl::SIOCGIFNAME {
        interface::by_index(u32::from_ne_bytes(*value.first_chunk()?))?
    } else {
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        interface::by_name(&name[..end])?
    };
    if changes(request) {
        return Some(Err(Errno::EOPNOTSUPP));
    }
    let first = interface.addresses().iter().find_map(|own| match own.address {
        IpAddr::V4(address) => Some((u32::from(address), own.prefix)),
        IpAddr::V6(_) => None,
    });
    let mask = |prefix: u8| u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    let mut put = |bytes: &[u8]| value[..bytes.len()].copy_from_slice(bytes);
    match request {
        ioctl::SIOCGIFNAME => {
            let own = interface.name().as_bytes();
            name.fill(0);
            name[..own.len()].copy_from_slice(own);
        }
        ioctl::SIOCGIFINDEX => put(&interface.index().to_ne_bytes()),
        ioctl::SIOCGIFFLAGS => put(&flags(&*interface).to_ne_bytes()),
        ioctl::SIOCGIFMTU => put(&(interface.mtu() as u32).to_ne_bytes()),
        ioctl::SIOCGIFTXQLEN => put(&interface.queue_length().to_ne_bytes()),
        ioctl::SIOCGIFMETRIC => put(&[0; 4]),
        ioctl::SIOCGIFHWADDR => {
            let mut address = [0; 16];
            address[..2].copy_from_slice(&HARDWARE.to_ne_bytes());
            address[2..8].copy_from_slice(&interface.hardware_address());
            put(&address);
        }
        _ => {
            let Some((address, prefix)) = first else { return Some(Err(Errno::EADDRNOTAVAIL)) };
            let told = match request {
                ioctl::SIOCGIFADDR => address,
                ioctl::SIOCGIFNETMASK => mask(prefix),
                _ => address | !mask(prefix),
            };
            put(&socket_address(told.to_be_bytes()));
        }
    }
    Some(user::write(argument, &ifreq).map(|()| 0).map_err(Errno::from))
}
