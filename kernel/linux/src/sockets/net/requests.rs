// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls that ask for an interface of the realm, of whatever socket (netdevice(7)).

use alloc::sync::Arc;
use core::net::IpAddr;

use crtos_abi::UserAddr;
use crtos_core::task::Mutex;
use linux_raw_sys::{general as linux, ioctl, net};

use super::interface::{self, Interface, Reception};
use crate::{
    abi::{Errno, SysResult},
    files::socket,
    remote,
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
/// It receives everything (IFF_PROMISC), which alone can be changed here.
const EVERYTHING: u16 = 0x0100;
/// The flags that Linux has changed by programs: that, and those of being up, of addresses for
/// groups, and of what no interface here has.
const CHANGEABLE: u16 = 0x0001 | EVERYTHING | 0x0200 | 0x1000;
/// The kind of hardware (ARPHRD_ETHER).
pub const HARDWARE: u16 = 1;

/// Has a card stamp frames, or asks whether it does.
const SET_STAMPS: u32 = 0x89b0;
const GET_STAMPS: u32 = 0x89b1;

/// Whether an ioctl has to do with interfaces, stations or routes: from SIOCADDRT on, but for those
/// that each family has for itself (SIOCPROTOPRIVATE); and those of cards without a wire.
fn is_of_interfaces(request: u32) -> bool {
    matches!(request, 0x890b..=0x89df | 0x89f0..=0x89ff | 0x8b00..=0x8bff)
}

/// Whether an ioctl asks for an interface in a way that is answered here.
fn is_known(request: u32) -> bool {
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

/// The numbers of the interfaces that receive everything because a program has set their flags, 0
/// for none.
static OPEN: Mutex<[u32; interface::MOST]> = Mutex::new([0; interface::MOST]);

/// The flags of an interface. Thread context; may sleep.
pub fn flags(interface: &dyn Interface) -> u16 {
    let up = if interface.is_up() { UP } else { 0 };
    let open = if OPEN.lock().contains(&interface.index()) { EVERYTHING } else { 0 };
    up | ALWAYS | open | if interface.has_carrier() { RUNNING } else { 0 }
}

/// A program sets the flags of an interface: it receives everything from now on, or no more.
/// EOPNOTSUPP for another change. May sleep.
fn set_flags(interface: &dyn Interface, wanted: u16) -> SysResult {
    if !remote::is_capable(linux::CAP_NET_ADMIN)? {
        return Err(Errno::EPERM);
    }
    let changed = (flags(interface) ^ wanted) & CHANGEABLE;
    if changed & !EVERYTHING != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if changed == 0 {
        return Ok(0);
    }
    let mut all = OPEN.lock();
    if let Some(own) = all.iter_mut().find(|index| **index == interface.index()) {
        *own = 0;
        interface.refuse(Reception::All);
        return Ok(0);
    }
    // Those that are gone make place.
    let is_free = |index: &&mut u32| **index == 0 || interface::by_index(**index).is_none();
    let place = all.iter_mut().find(is_free).ok_or(Errno::ENOBUFS)?;
    interface.admit(Reception::All)?;
    *place = interface.index();
    Ok(0)
}

/// A `struct sockaddr_in`.
fn socket_address(address: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(net::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address);
    bytes
}

/// Has Linux answer an ioctl of a socket of the realm, by a socket of its own. Linux also lists the
/// interfaces (SIOCGIFCONF), the realm's among them. May sleep.
fn ask_linux(request: u32, argument: UserAddr) -> SysResult {
    let kind = net::SOCK_DGRAM | linux::O_CLOEXEC;
    let socket = remote::linux(linux::__NR_socket, &[net::AF_INET.into(), kind.into(), 0])?;
    let told = remote::linux(linux::__NR_ioctl, &[socket, request.into(), argument.get()]);
    let _ = remote::linux(linux::__NR_close, &[socket]);
    told
}

/// Answers an ioctl of a socket of the realm that has to do with interfaces, be they the realm's or
/// Linux's; `None` if it has not. May sleep.
pub fn told(request: u32, argument: UserAddr) -> Option<SysResult> {
    is_of_interfaces(request)
        .then(|| socket::answer(request, argument).unwrap_or_else(|| ask_linux(request, argument)))
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
    if request == ioctl::SIOCSIFFLAGS {
        return Some(set_flags(&*interface, ifreq.flags()));
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
