// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of IPv6 at addresses of IPv4, which programs write `::ffff:192.0.2.1` (ipv6(7), RFC 4291
//! 2.5.5.2). There are no others here: one that names an address of IPv6 stays Linux's.

use alloc::{boxed::Box, vec::Vec};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use core::sync::atomic::{AtomicI32, Ordering};

use crtos_abi::UserAddr;
use linux_raw_sys::net;

use super::{address_of, link, socket_address, socket_at};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers,
        socket::{Address, Family, Foreign, MORE, More, Received, Reception, SendControl, Socket},
    },
};

/// Bytes of a `struct sockaddr_in6`, and the fewest that Linux takes: those without a scope.
const ADDRESS: usize = 28;
const LEAST: usize = 24;

/// Sockets of that family.
pub static FAMILY: Family = Family {
    number: net::AF_INET6,
    is_local: |address| v4(address).is_ok_and(|to| link::is_local(*to.ip())),
    is_wildcard: |address| v4(address).is_ok_and(|own| own.ip().is_unspecified()),
    is_local_by: |_, _, _| false,
    take,
    hearer: |_| None,
    ioctl: |_, _| None,
};

/// Makes what takes the place of a socket of Linux's that is in no use so far and may use IPv4.
fn take(foreign: &Foreign) -> Result<Option<Box<dyn Socket>>, Errno> {
    if foreign.number(net::SOL_IPV6, net::IPV6_V6ONLY)? != 0 {
        return Ok(None);
    }
    let is_bound = parse(&foreign.address(false)?).is_none_or(|(ip, _)| !ip.is_unspecified());
    if is_bound {
        return Ok(None);
    }
    let local = Ipv4Addr::UNSPECIFIED;
    let Some(socket) = socket_at(foreign, net::AF_INET6, local)? else { return Ok(None) };
    let takes_v4 = foreign.kind == net::SOCK_DGRAM;
    let mapped = Mapped { socket, takes_v4, values: Default::default() };
    for (kept, value) in KEPT.iter().zip(&mapped.values) {
        value.store(foreign.number(net::SOL_IPV6, kept.name)? as i32, Ordering::Relaxed);
    }
    Ok(Some(Box::new(mapped)))
}

/// An address of IPv6 and its port.
fn parse(address: &Address) -> Option<(Ipv6Addr, u16)> {
    let bytes = address.bytes().first_chunk::<LEAST>()?;
    let ip = bytes[8..].first_chunk::<16>()?;
    Some((Ipv6Addr::from(*ip), u16::from_be_bytes([bytes[2], bytes[3]])))
}

/// The address of IPv4 that a program means.
fn v4(address: &Address) -> Result<SocketAddrV4, Errno> {
    let (ip, port) = parse(address).ok_or(Errno::EINVAL)?;
    if address.family() != Some(net::AF_INET6) {
        return Err(Errno::EAFNOSUPPORT);
    }
    let ip = match ip.to_ipv4_mapped() {
        Some(ip) => ip,
        None if ip.is_unspecified() => Ipv4Addr::UNSPECIFIED,
        None => return Err(Errno::ENETUNREACH),
    };
    Ok(SocketAddrV4::new(ip, port))
}

/// An address of IPv4, as programs have it here. No address is that of IPv6.
fn v6(address: &Address) -> Address {
    let Ok(from) = socket_address(address) else { return *address };
    let ip = match from.ip().is_unspecified() {
        true => Ipv6Addr::UNSPECIFIED,
        false => from.ip().to_ipv6_mapped(),
    };
    let mut bytes = [0; ADDRESS];
    bytes[..2].copy_from_slice(&(net::AF_INET6 as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    bytes[8..24].copy_from_slice(&ip.octets());
    Address::new(&bytes)
}

/// An option of IPv6 that Linux keeps, and that changes nothing of packets of IPv4.
struct Kept {
    name: u32,
    least: i32,
    most: i32,
    /// What -1 stands for.
    preset: i32,
}

const fn kept(name: u32, least: i32, most: i32, preset: i32) -> Kept {
    Kept { name, least, most, preset }
}

/// All of these.
const KEPT: [Kept; 6] = [
    kept(net::IPV6_UNICAST_HOPS, -1, 255, 64),
    kept(net::IPV6_MULTICAST_HOPS, -1, 255, 1),
    kept(net::IPV6_MULTICAST_LOOP, 0, 1, 1),
    kept(net::IPV6_TCLASS, -1, 255, 0),
    kept(net::IPV6_MTU_DISCOVER, 0, 5, 1),
    kept(net::IPV6_RECVERR, 0, 1, 1),
];

/// A socket of IPv4 that its program knows by addresses of IPv6.
struct Mapped {
    socket: Box<dyn Socket>,
    /// It also takes addresses of IPv4 as they are, as Linux's sockets of UDP do.
    takes_v4: bool,
    values: [AtomicI32; KEPT.len()],
}

impl Mapped {
    /// The address of IPv4 that the program means.
    fn inner(&self, address: &Address) -> Result<Address, Errno> {
        match address.family() {
            Some(net::AF_UNSPEC) => Ok(*address),
            Some(net::AF_INET) if self.takes_v4 => Ok(*address),
            _ => v4(address).map(address_of),
        }
    }

    fn place(name: u32) -> Result<usize, Errno> {
        KEPT.iter().position(|kept| kept.name == name).ok_or(Errno::ENOPROTOOPT)
    }
}

impl Socket for Mapped {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        self.socket.bind(&address_of(v4(address)?))
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        self.socket.connect(&self.inner(address)?)
    }

    fn connect_soon(&self, address: &Address) -> Result<(), Errno> {
        self.socket.connect_soon(&self.inner(address)?)
    }

    fn listen(&self, backlog: u32) -> Result<(), Errno> {
        self.socket.listen(backlog)
    }

    fn accept(&self, nonblocking: bool) -> Result<(Box<dyn Socket>, Address), Errno> {
        let (socket, from) = self.socket.accept(nonblocking)?;
        let values = self.values.each_ref().map(|value| value.load(Ordering::Relaxed).into());
        Ok((Box::new(Self { socket, takes_v4: self.takes_v4, values }), v6(&from)))
    }

    fn shutdown(&self, how: u32) -> Result<(), Errno> {
        self.socket.shutdown(how)
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        self.socket.name(of_peer).map(|name| v6(&name))
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult {
        // A socket of TCP does not look at these.
        if self.takes_v4 && control.has_ipv6 {
            return Err(Errno::EINVAL);
        }
        let to = match to {
            // Here no family stands for no address.
            Some(to) if self.takes_v4 && to.family() != Some(net::AF_UNSPEC) => {
                Some(self.inner(to)?)
            }
            _ => None,
        };
        self.socket.send(memory, to.as_ref(), nonblocking, control)
    }

    fn is_stream(&self) -> bool {
        self.socket.is_stream()
    }

    fn check_way(&self, flags: u32) -> Result<(), Errno> {
        self.socket.check_way(flags)
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        self.socket.check_urgent()
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        let mut received = self.socket.receive(memory, how)?;
        received.from = v6(&received.from);
        Ok(received)
    }

    fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        /// Bytes of a `struct sock_extended_err`, which an address follows.
        const ERROR: usize = 16;
        let mut received = self.socket.receive_report(memory)?;
        received.from = v6(&received.from);
        if let Some(more) = received.told.more {
            let (error, from) = more.bytes().split_at(ERROR.min(more.bytes().len()));
            let mut told = [0; MORE];
            told[..ERROR].copy_from_slice(error);
            // An empty one is no address, and stays so.
            if let Ok(from) = socket_address(&Address::new(from)) {
                told[ERROR..].copy_from_slice(v6(&address_of(from)).bytes());
            }
            received.told.more = Some(More::new(net::SOL_IPV6, net::IPV6_RECVERR, &told));
        }
        Ok(received)
    }

    fn filter(&self) -> Result<Vec<u8>, Errno> {
        self.socket.filter()
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        let value = match (level, name) {
            (net::SOL_IPV6, net::IPV6_V6ONLY) => 0,
            (net::SOL_IPV6, _) => self.values[Self::place(name)?].load(Ordering::Relaxed),
            _ => return self.socket.option(level, name),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        if level != net::SOL_IPV6 {
            return self.socket.set_option(level, name, value);
        }
        let value = i32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
        // It has an address.
        if name == net::IPV6_V6ONLY {
            return Err(Errno::EINVAL);
        }
        let at = Self::place(name)?;
        let kept = &KEPT[at];
        let value = if name == net::IPV6_RECVERR { (value != 0).into() } else { value };
        if !(kept.least..=kept.most).contains(&value) {
            return Err(Errno::EINVAL);
        }
        let value = if value == -1 { kept.preset } else { value };
        self.values[at].store(value, Ordering::Relaxed);
        Ok(())
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        self.socket.ioctl(request, argument)
    }

    fn interface(&self) -> Option<u32> {
        self.socket.interface()
    }

    fn ready(&self) -> Events {
        self.socket.ready()
    }

    fn watchers(&self) -> &Watchers {
        self.socket.watchers()
    }

    fn number(&self) -> u64 {
        self.socket.number()
    }
}
