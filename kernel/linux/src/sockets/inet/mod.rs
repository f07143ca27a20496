// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP, TCP and raw packets over IPv4 (ip(7), udp(7), tcp(7), raw(7)).
//!
//! | module | concept |
//! |---|---|
//! | [`link`] | what an interface of the realm is to this family: addresses, neighbours, groups |
//! | [`stack`] | whose a packet is that came |
//! | [`options`] | options of both kinds of sockets |
//! | [`port`] | which port a socket has |
//! | [`endpoint`] | what sockets of datagrams have in common |
//! | [`udp`] | sockets of UDP |
//! | [`cork`] | datagrams that several calls make, and several that one makes |
//! | [`raw`] | sockets of raw packets, and of echoes |
//! | [`tcp`] | sockets of TCP: those that connect, and those that wait for connections |
//! | [`mapped`] | sockets of IPv6 at addresses of IPv4 |
//! | [`icmp`] | what ICMP says of a packet that did not arrive |
//! | [`arp`] | stations that programs name or ask for |
//! | [`clock`] | the thread that does what is due at a time |
//!
//! What is to be done with a packet is in [`crtos_inet`]. A thread of the interface's driver brings
//! packets to sockets; the programs' own threads send.
//!
//! A socket is the realm's from when it names an address in the network of an interface of the
//! realm, or the interface ([decision
//! 0041](../../../../../docs/decisions/0041-udp-and-tcp-by-sockets.md)).

mod arp;
mod clock;
mod cork;
mod endpoint;
mod icmp;
mod link;
mod mapped;
mod options;
mod port;
mod raw;
mod stack;
mod tcp;
mod udp;

use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};

use crtos_abi::UserAddr;
use linux_raw_sys::net;

use crate::{
    abi::{Errno, SysResult},
    files::socket::{self, Address, Family, Foreign, Socket},
    sockets::net::{interface, requests},
};

/// Bytes of a `struct sockaddr_in`.
const ADDRESS: usize = 16;

/// Sockets of that family.
static FAMILY: Family = Family {
    number: net::AF_INET,
    is_local: |address| socket_address(address).is_ok_and(|to| link::is_local(*to.ip())),
    is_wildcard: |address| socket_address(address).is_ok_and(|own| own.ip().is_unspecified()),
    is_local_by: options::is_local_by,
    take,
    hearer,
    ioctl: arp::asked,
};

/// Has interfaces of the realm be used by this family. Once, before there are interfaces.
pub fn start() {
    interface::set_stack(&stack::STACK, crtos_inet::packet::PROTOCOLS);
}

/// There is an interface: sockets can become the realm's.
fn begin() {
    socket::add_family(&FAMILY);
    socket::add_family(&mapped::FAMILY);
    clock::start();
}

/// Makes what takes the place of a socket of Linux's. One that Linux has bound to an address of its
/// own, or connected, stays there. The address of a group is nobody's own.
fn take(foreign: &Foreign) -> Result<Option<Box<dyn Socket>>, Errno> {
    let local = *socket_address(&foreign.address(false)?)?.ip();
    if !local.is_unspecified() && !local.is_multicast() {
        return Ok(None);
    }
    socket_at(foreign, net::AF_INET, local)
}

/// Who sends packets with headers of its own (IPPROTO_RAW) hears nothing: what comes of them, it
/// hears by a raw socket of ICMP, which names no address.
fn hearer(foreign: &Foreign) -> Option<(u32, u32)> {
    let sends_alone = (foreign.kind, foreign.protocol) == (net::SOCK_RAW, RAW);
    sends_alone.then_some((net::SOCK_RAW, ICMP))
}

/// Makes what takes the place of a socket of Linux's of the family `domain`, which has no address
/// or that of a group. `None` if it is connected there, listens or is bound to an interface, or if
/// it is of another kind.
fn socket_at(
    foreign: &Foreign,
    domain: u32,
    local: Ipv4Addr,
) -> Result<Option<Box<dyn Socket>>, Errno> {
    let is_connected = !matches!(foreign.address(true), Err(Errno::ENOTCONN));
    if is_connected || foreign.number(net::SOL_SOCKET, net::SO_BINDTOIFINDEX)? != 0 {
        return Ok(None);
    }
    let local = SocketAddrV4::new(local, foreign.port);
    match (foreign.kind, foreign.protocol) {
        (net::SOCK_DGRAM, UDP) => Ok(Some(Box::new(udp::Udp::of(foreign, domain, local)?))),
        (net::SOCK_STREAM, TCP) if foreign.number(net::SOL_SOCKET, net::SO_ACCEPTCONN)? == 0 => {
            Ok(Some(Box::new(tcp::Tcp::of(foreign, domain, local)?)))
        }
        _ if domain == net::AF_INET => {
            Ok(raw::Raw::of(foreign, local)?.map(|raw| Box::new(raw) as Box<dyn Socket>))
        }
        _ => Ok(None),
    }
}

/// Protocols (IPPROTO_*).
const UDP: u32 = 17;
const TCP: u32 = 6;
const ICMP: u32 = 1;
const RAW: u32 = 255;

/// What a program gives as an address.
fn socket_address(address: &Address) -> Result<SocketAddrV4, Errno> {
    let bytes: &[u8; ADDRESS] = address.bytes().first_chunk().ok_or(Errno::EINVAL)?;
    // Linux lets a program leave out the family where 0.0.0.0 is meant.
    if address.family() != Some(net::AF_INET) {
        return Err(Errno::EAFNOSUPPORT);
    }
    let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    Ok(SocketAddrV4::new(ip, u16::from_be_bytes([bytes[2], bytes[3]])))
}

/// Where a program sends something. As under Linux, it may leave out the family there.
fn destination(address: &Address) -> Result<SocketAddrV4, Errno> {
    let mut bytes: [u8; ADDRESS] = *address.bytes().first_chunk().ok_or(Errno::EINVAL)?;
    if address.family() == Some(net::AF_UNSPEC) {
        bytes[..2].copy_from_slice(&(net::AF_INET as u16).to_ne_bytes());
    }
    socket_address(&Address::new(&bytes))
}

/// An address, as programs have it.
fn address_of(address: SocketAddrV4) -> Address {
    let mut bytes = [0; ADDRESS];
    bytes[..2].copy_from_slice(&(net::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&address.ip().octets());
    Address::new(&bytes)
}

/// What both kinds of sockets answer to an ioctl.
fn ioctl(request: u32, argument: UserAddr) -> SysResult {
    requests::told(request, argument).unwrap_or(Err(Errno::ENOTTY))
}
