// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of both kinds of sockets: of SOL_SOCKET those that this family alone has, and of IP.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::{general as linux, net};

use super::link;
use crate::{abi::Errno, files::socket::Foreign, remote, sockets::net::interface};

/// How an option is kept that only keeps a number.
struct Kept {
    level: u32,
    name: u32,
    most: u32,
    /// What it has been before anybody set it.
    preset: u32,
}

const fn kept(level: u32, name: u32, most: u32, preset: u32) -> Kept {
    Kept { level, name, most, preset }
}

const SOCKET: u32 = net::SOL_SOCKET;
const IP: u32 = net::SOL_IP;

/// All of these.
const ALL: [Kept; 17] = [
    kept(SOCKET, net::SO_REUSEPORT, 1, 0),
    kept(IP, net::IP_TOS, 255, 0),
    kept(IP, net::IP_TTL, 255, 64),
    kept(IP, net::IP_PKTINFO, 1, 0),
    kept(IP, net::IP_RECVTTL, 1, 0),
    kept(IP, net::IP_RECVTOS, 1, 0),
    kept(IP, net::IP_RECVERR, 1, 0),
    kept(IP, net::IP_RECVORIGDSTADDR, 1, 0),
    kept(IP, net::IP_MTU_DISCOVER, 5, 1),
    kept(IP, net::IP_MINTTL, 255, 0),
    // No packet has options that could be told.
    kept(IP, net::IP_RECVOPTS, 1, 0),
    kept(IP, net::IP_RETOPTS, 1, 0),
    // Addresses of nobody are Linux's, and a port that is bound is taken at once.
    kept(IP, net::IP_FREEBIND, 1, 0),
    kept(IP, net::IP_BIND_ADDRESS_NO_PORT, 1, 0),
    kept(IP, net::IP_MULTICAST_TTL, 255, 1),
    kept(IP, net::IP_MULTICAST_LOOP, 1, 1),
    kept(IP, net::IP_MULTICAST_ALL, 1, 1),
];

/// The options of a socket.
pub struct Options {
    values: [AtomicU32; ALL.len()],
    /// The number of the only interface that it has to do with; 0 for all.
    device: AtomicU32,
    /// The interface that packets for groups go to; 0 for the one that it is bound to.
    group_interface: AtomicU32,
}

fn place(level: u32, name: u32) -> Option<usize> {
    ALL.iter().position(|kept| (kept.level, kept.name) == (level, name))
}

fn word(value: &[u8], at: usize) -> Option<u32> {
    value.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn ip_address(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    value.get(at..)?.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes))
}

/// What a program gives as a number: four bytes, or one, or nothing for 0.
fn number(value: &[u8]) -> u32 {
    match value {
        [] => 0,
        &[a, b, c, d, ..] => u32::from_ne_bytes([a, b, c, d]),
        &[a, ..] => a.into(),
    }
}

/// A group and the interface on which a socket is to be in it (`struct ip_mreqn`).
pub fn membership(value: &[u8]) -> Result<(Ipv4Addr, u32), Errno> {
    let group = ip_address(value, 0).filter(|_| value.len() >= 8).ok_or(Errno::EINVAL)?;
    if !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    Ok((group, interface_in(value).ok_or(Errno::ENODEV)?))
}

/// The same by a `struct group_req`.
pub fn group_request(value: &[u8]) -> Result<(Ipv4Addr, u32), Errno> {
    /// Bytes of one.
    const WHOLE: usize = 136;
    /// Where its address of the group is.
    const GROUP: usize = 8;
    if value.len() < WHOLE {
        return Err(Errno::EINVAL);
    }
    let family = value[GROUP..].first_chunk().map(|family| u16::from_ne_bytes(*family));
    let group = ip_address(value, GROUP + 4).filter(|group| group.is_multicast());
    match group {
        Some(group) if family.map(u32::from) == Some(net::AF_INET) => {
            let link = word(value, 0).and_then(link::by_index).ok_or(Errno::ENODEV)?;
            Ok((group, link.interface.index()))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The interface of the realm that a `struct ip_mreqn` names, by its number or its address.
fn interface_in(value: &[u8]) -> Option<u32> {
    let named = word(value, 8).filter(|&index| index != 0);
    let found = match named {
        Some(index) => link::by_index(index),
        None => ip_address(value, 4).and_then(link::owner),
    };
    found.map(|link| link.interface.index())
}

/// The interface of the realm that a name or number is of.
fn device(name: u32, value: &[u8]) -> Option<u32> {
    let found = match name {
        net::SO_BINDTODEVICE => {
            let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
            interface::by_name(&value[..end])
        }
        _ => word(value, 0).and_then(interface::by_index),
    };
    found.map(|interface| interface.index())
}

/// Whether setting an option names an interface of the realm.
pub fn is_local_by(level: u32, name: u32, value: &[u8]) -> bool {
    match (level, name) {
        (SOCKET, net::SO_BINDTODEVICE | net::SO_BINDTOIFINDEX) => {
            device(name, value).and_then(link::by_index).is_some()
        }
        (IP, net::IP_ADD_MEMBERSHIP) => interface_in(value).is_some(),
        (IP, net::MCAST_JOIN_GROUP) => word(value, 0).and_then(link::by_index).is_some(),
        (IP, net::IP_MULTICAST_IF) => group_interface(value).is_some(),
        _ => false,
    }
}

/// The interface that IP_MULTICAST_IF names: by an address alone, or as a membership does.
fn group_interface(value: &[u8]) -> Option<u32> {
    match value.len() {
        4..8 => ip_address(value, 0).and_then(link::owner).map(|link| link.interface.index()),
        _ => interface_in(value),
    }
}

impl Options {
    /// What nobody has set otherwise.
    pub fn new() -> Self {
        Self {
            values: ALL.map(|kept| AtomicU32::new(kept.preset)),
            device: AtomicU32::new(0),
            group_interface: AtomicU32::new(0),
        }
    }

    /// The options of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let own = Self::new();
        for (kept, value) in ALL.iter().zip(&own.values) {
            let told = foreign.number(kept.level, kept.name)?;
            value.store(told.min(kept.most), Ordering::Relaxed);
        }
        Ok(own)
    }

    /// Those of a connection that came to this one.
    pub fn of_connection(&self) -> Self {
        let own = Self::new();
        for (to, from) in own.values.iter().zip(&self.values) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        own.device.store(self.device(), Ordering::Relaxed);
        own
    }

    fn value(&self, level: u32, name: u32) -> u32 {
        place(level, name).map_or(0, |at| self.values[at].load(Ordering::Relaxed))
    }

    /// Whether other sockets that say so, too, share what comes to its port.
    pub fn balances(&self) -> bool {
        self.value(SOCKET, net::SO_REUSEPORT) != 0
    }

    /// The value of one of IP that keeps a number.
    pub fn ip(&self, name: u32) -> u32 {
        self.value(IP, name)
    }

    /// The number of the only interface that it has to do with; 0 for all.
    pub fn device(&self) -> u32 {
        self.device.load(Ordering::Relaxed)
    }

    /// The interface that packets for groups go to; 0 if none was named.
    pub fn group_interface(&self) -> u32 {
        self.group_interface.load(Ordering::Relaxed)
    }

    /// getsockopt(2); `None` if it is none of these.
    pub fn get(&self, level: u32, name: u32) -> Option<Vec<u8>> {
        let value = match (level, name) {
            (SOCKET, net::SO_BINDTODEVICE) => {
                let interface = interface::by_index(self.device());
                let name = interface.iter().flat_map(|interface| interface.name().bytes());
                return Some(name.chain(interface.is_some().then_some(0)).collect());
            }
            (SOCKET, net::SO_BINDTOIFINDEX) => self.device(),
            (IP, net::IP_MULTICAST_IF) => {
                let link = link::by_index(self.group_interface());
                let address = link.and_then(|link| link.own.first().copied());
                let address = address.map_or(Ipv4Addr::UNSPECIFIED, |own| own.address);
                return Some(address.octets().to_vec());
            }
            // Nobody can set any.
            (IP, net::IP_OPTIONS) => return Some(Vec::new()),
            _ => self.values[place(level, name)?].load(Ordering::Relaxed),
        };
        Some(value.to_ne_bytes().to_vec())
    }

    /// setsockopt(2); `None` if it is none of these.
    pub fn set(&self, level: u32, name: u32, value: &[u8]) -> Option<Result<(), Errno>> {
        let result = match (level, name) {
            (SOCKET, net::SO_BINDTODEVICE | net::SO_BINDTOIFINDEX) => self.set_device(name, value),
            (IP, net::IP_MULTICAST_IF) => match group_interface(value) {
                _ if value.len() < 4 => Err(Errno::EINVAL),
                // None in particular.
                _ if value.iter().all(|&byte| byte == 0) => {
                    self.group_interface.store(0, Ordering::Relaxed);
                    Ok(())
                }
                Some(index) => {
                    self.group_interface.store(index, Ordering::Relaxed);
                    Ok(())
                }
                None => Err(Errno::EADDRNOTAVAIL),
            },
            _ => self.set_number(place(level, name)?, value),
        };
        Some(result)
    }

    fn set_number(&self, at: usize, value: &[u8]) -> Result<(), Errno> {
        let kept = &ALL[at];
        if kept.level == SOCKET && value.len() < 4 {
            return Err(Errno::EINVAL);
        }
        let mut number = number(value);
        match (kept.level, kept.name) {
            (_, net::IP_TTL | net::IP_MULTICAST_TTL) if kept.level == IP && number == u32::MAX => {
                number = kept.preset;
            }
            (IP, net::IP_TTL) if number == 0 => return Err(Errno::EINVAL),
            (IP, net::IP_TOS) => number &= 255,
            (IP, net::IP_MULTICAST_ALL) => {}
            _ if kept.most == 1 => number = u32::from(number != 0),
            _ => {}
        }
        if number > kept.most {
            return Err(Errno::EINVAL);
        }
        self.values[at].store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Has it have to do with one interface alone. Linux permits to take that back only to who may
    /// use raw sockets.
    fn set_device(&self, name: u32, value: &[u8]) -> Result<(), Errno> {
        let is_none = match name {
            net::SO_BINDTODEVICE => value.first().is_none_or(|&byte| byte == 0),
            _ => word(value, 0) == Some(0),
        };
        let index = match is_none {
            true => 0,
            false => device(name, value).ok_or(Errno::ENODEV)?,
        };
        let is_other = self.device() != 0 && self.device() != index;
        if is_other && !remote::is_capable(linux::CAP_NET_RAW)? {
            return Err(Errno::EPERM);
        }
        self.device.store(index, Ordering::Relaxed);
        Ok(())
    }
}
