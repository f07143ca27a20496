// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls about the stations of a network (arp(7)): a program says where an address is, or asks. A
//! server of DHCP says so of a station that has no address yet, and cannot be asked for it.

use alloc::sync::Arc;
use core::net::Ipv4Addr;

use crtos_abi::UserAddr;
use crtos_inet::{neighbors::Known, packet};
use linux_raw_sys::{general as linux, ioctl, net};

use super::link::{self, Link};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
    remote,
    sockets::net::{interface, requests::HARDWARE},
};

/// Flags (ATF_*): the station is known; it stays so; it is answered for; others that go with that.
const KNOWN: u32 = 0x02;
const FIXED: u32 = 0x04;
const ANSWERED_FOR: u32 = 0x08;
const MASKED: u32 = 0x20;
const NOT_ANSWERED_FOR: u32 = 0x40;

/// A `struct arpreq`.
struct Request {
    bytes: [u8; 68],
}

impl Request {
    /// Where its parts are: the address, the station with its kind of hardware, flags, and the name
    /// of the interface.
    const ADDRESS: usize = 0;
    const STATION: usize = 16;
    const FLAGS: usize = 32;
    const NAME: usize = 52;

    fn read(at: UserAddr) -> Result<Self, Errno> {
        let mut bytes = [0; 68];
        user::read(at, &mut bytes)?;
        Ok(Self { bytes })
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The address, if it is one of IPv4.
    fn address(&self) -> Option<Ipv4Addr> {
        let is_known = u32::from(self.half(Self::ADDRESS)) == net::AF_INET;
        let bytes = self.bytes[Self::ADDRESS + 4..].first_chunk::<4>();
        bytes.filter(|_| is_known).map(|bytes| Ipv4Addr::from(*bytes))
    }

    fn flags(&self) -> u32 {
        self.bytes[Self::FLAGS..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
    }

    fn station(&self) -> packet::Station {
        self.bytes[Self::STATION + 2..].first_chunk().copied().unwrap_or_default()
    }

    fn name(&self) -> &[u8] {
        let name = &self.bytes[Self::NAME..];
        &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]
    }

    /// The link that it names, or that its address has; `None` if it is none of the realm.
    fn link(&self) -> Option<Arc<Link>> {
        match self.name() {
            [] => self.address().and_then(|address| link::find(|link| link.has(address))),
            name => interface::by_name(name).and_then(|found| link::by_index(found.index())),
        }
    }

    /// Whether its station is one of Ethernet. Where an interface is named, the kind of hardware
    /// may be left out.
    fn is_of_ethernet(&self) -> bool {
        let kind = self.half(Self::STATION);
        kind == HARDWARE || kind == 0 && !self.name().is_empty()
    }

    /// Checks what Linux checks of all of them.
    fn check(&self) -> Result<(), Errno> {
        let flags = self.flags();
        if flags & ANSWERED_FOR == 0 && flags & (MASKED | NOT_ANSWERED_FOR) != 0 {
            return Err(Errno::EINVAL);
        }
        if !self.name().is_empty() && flags & KNOWN != 0 && !self.is_of_ethernet() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// The address of a station that is not this one, in the network of a link. EINVAL for others,
    /// and where this one is to answer for it.
    fn other(&self, link: &Link) -> Result<Ipv4Addr, Errno> {
        let address = self.address().ok_or(Errno::EINVAL)?;
        let is_other = link.has(address) && !link.is_own(address) && !link.is_broadcast(address);
        if is_other && self.flags() & ANSWERED_FOR == 0 { Ok(address) } else { Err(Errno::EINVAL) }
    }

    fn set(&self, link: &Arc<Link>) -> Result<(), Errno> {
        let address = self.other(link)?;
        if !self.is_of_ethernet() {
            return Err(Errno::EINVAL);
        }
        // Without a word about the station, it stays the one that is known.
        if self.flags() & (KNOWN | FIXED) == 0 {
            let known = link.known(address).and_then(|known| known.station);
            return known.map(drop).ok_or(Errno::EINVAL);
        }
        link.set_station(address, self.station(), self.flags() & FIXED != 0)
    }

    fn get(&mut self, link: &Link, at: UserAddr) -> Result<(), Errno> {
        // Linux wants an interface to be named here.
        if self.name().is_empty() {
            return Err(Errno::ENODEV);
        }
        let address = self.address().ok_or(Errno::EINVAL)?;
        let Known { station, is_fixed } = link.known(address).ok_or(Errno::ENXIO)?;
        let flags = match station {
            None => 0,
            Some(_) if is_fixed => KNOWN | FIXED,
            Some(_) => KNOWN,
        };
        self.bytes[Self::STATION..][..2].copy_from_slice(&HARDWARE.to_ne_bytes());
        self.bytes[Self::STATION + 2..][..6].copy_from_slice(&station.unwrap_or_default());
        self.bytes[Self::FLAGS..][..4].copy_from_slice(&flags.to_ne_bytes());
        user::write(at, &self.bytes)?;
        Ok(())
    }
}

/// Answers an ioctl about a station in a network of the realm; `None` if it is about something
/// else. May sleep.
pub fn asked(request: u32, at: UserAddr) -> Option<SysResult> {
    let changes = matches!(request, ioctl::SIOCSARP | ioctl::SIOCDARP);
    if !changes && request != ioctl::SIOCGARP {
        return None;
    }
    // What is no address, or no memory, Linux complains of.
    let mut asked = Request::read(at).ok().filter(|asked| asked.address().is_some())?;
    let link = asked.link()?;
    let mut answer = || {
        if changes && !remote::is_capable(linux::CAP_NET_ADMIN)? {
            return Err(Errno::EPERM);
        }
        asked.check()?;
        match request {
            ioctl::SIOCSARP => asked.set(&link),
            ioctl::SIOCGARP => asked.get(&link, at),
            _ => link.forget_station(asked.other(&link)?),
        }
    };
    Some(answer().map(|()| 0))
}
