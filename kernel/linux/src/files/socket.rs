// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that live here, and how one becomes so.
//!
//! socket(2) is Linux's: it says who may have a socket of a family, and the options that a program
//! sets are checked and kept there. The address decides whose the socket is: when a program names
//! one that is the realm's (bind, connect, sendto), the family makes a socket here, with the
//! options that Linux has of the other, and it takes the place of that ([`claim`]). Nothing of
//! Linux is on the way from then on. A socket that is bound to something of Linux's stays there.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::net::Ipv4Addr;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::{Operation, operation::SocketKind};
use crtos_core::{
    mm::{heap, object::Object as MemoryObject, space::AddressSpace},
    time::Nanos,
};
use crtos_files::NUMBERS;
use crtos_nic::{filter, stamping::Stamps};
use linux_raw_sys::{general as linux, net};
use spin::Once;

use super::{Description, Events, Files, Memory, Object, Watchers, table};
use crate::{
    abi::{Errno, SysResult, linux_result},
    memory::{Scratch, user},
    remote,
};

/// Bytes of the longest address that any family here has.
pub const MAX_ADDRESS: usize = 32;
/// Bytes of the longest value of an option.
pub const MAX_OPTION: usize = 4096;

/// Most bytes of what a family tells besides: a `struct sock_extended_err` with an address of IPv6.
pub const MORE: usize = 44;

/// The address of a socket, as programs have it.
#[derive(Clone, Copy, Default)]
pub struct Address {
    bytes: [u8; MAX_ADDRESS],
    length: usize,
}

impl Address {
    /// These bytes; what is too long is cut off.
    pub fn new(bytes: &[u8]) -> Self {
        let length = bytes.len().min(MAX_ADDRESS);
        let mut address = Self { length, ..Self::default() };
        address.bytes[..length].copy_from_slice(&bytes[..length]);
        address
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The family that it says it is of.
    pub fn family(&self) -> Option<u32> {
        let [low, high, ..] = *self.bytes() else { return None };
        Some(u16::from_ne_bytes([low, high]).into())
    }
}

/// How something is received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    /// It does not wait.
    pub nonblocking: bool,
    /// What is received stays (MSG_PEEK).
    pub peeks: bool,
    /// The length is that of all, however much room there is (MSG_TRUNC).
    pub tells_length: bool,
    /// It waits until all room is filled (MSG_WAITALL).
    pub waits_for_all: bool,
    /// Reports of what was sent are meant, not what came (MSG_ERRQUEUE).
    pub takes_reports: bool,
}

/// What was received, beside what went to memory.
#[derive(Clone, Copy, Default)]
pub struct Received {
    /// What the call returns.
    pub length: u64,
    /// Flags of the message (MSG_*).
    pub flags: u32,
    /// Where it came from.
    pub from: Address,
    /// What is told in control messages.
    pub told: Told,
}

/// What control messages tell of a message.
#[derive(Clone, Copy, Default)]
pub struct Told {
    /// When it came (CLOCK_REALTIME), if that was asked for: the numbers of options SO_TIMESTAMP
    /// and SO_TIMESTAMPNS say how.
    pub stamp: Option<(Nanos, u32)>,
    /// When it came or was sent by each clock, if that was asked for by the option SO_TIMESTAMPING
    /// with that number.
    pub stamps: Option<(Stamps, u32)>,
    /// How many were lost before (SO_RXQ_OVFL).
    pub lost: Option<u32>,
    /// The interface on which it came, the address of the realm that this is, and the one to which
    /// it was sent (IP_PKTINFO).
    pub packet: Option<(u32, Ipv4Addr, Ipv4Addr)>,
    /// How many routers it might still have passed (IP_RECVTTL).
    pub lifetime: Option<u8>,
    /// Its type of service (IP_RECVTOS).
    pub service: Option<u8>,
    /// What the family tells besides.
    pub more: Option<More>,
}

/// A control message of a family.
#[derive(Clone, Copy)]
pub struct More {
    /// Its level, and its kind.
    pub level: u32,
    /// See [`level`](Self::level).
    pub kind: u32,
    bytes: [u8; MORE],
    length: usize,
}

impl More {
    /// One of these bytes, [`MORE`] at most.
    pub fn new(level: u32, kind: u32, data: &[u8]) -> Self {
        let mut bytes = [0; MORE];
        bytes[..data.len()].copy_from_slice(data);
        Self { level, kind, bytes, length: data.len() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What control messages say of something that is to be sent, and flags of the call.
#[derive(Clone, Copy, Default)]
pub struct SendControl {
    /// Which reports it is to have, instead of those that the socket asks for (SO_TIMESTAMPING).
    pub reports: Option<u32>,
    /// The interface by which it is to go, or 0, and the address from which, or 0.0.0.0
    /// (IP_PKTINFO).
    pub packet: Option<(u32, Ipv4Addr)>,
    /// How many routers it may pass (IP_TTL).
    pub lifetime: Option<u8>,
    /// Its type of service (IP_TOS).
    pub service: Option<u8>,
    /// Bytes of each datagram that it becomes; 0 for one (UDP_SEGMENT).
    pub segment: Option<u16>,
    /// More of it follows by another call (MSG_MORE), as a flag of the call says.
    pub follows: bool,
    /// There are others of the levels SOL_IP or SOL_UDP, or some that say nothing sound.
    pub has_others: bool,
    /// There are some of the level SOL_IPV6.
    pub has_ipv6: bool,
}

/// A socket. Dropping it closes it.
pub trait Socket: Send + Sync {
    /// bind(2). May sleep.
    fn bind(&self, address: &Address) -> Result<(), Errno>;

    /// connect(2). May sleep.
    fn connect(&self, address: &Address) -> Result<(), Errno>;

    /// listen(2). May sleep.
    fn listen(&self, _backlog: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// accept(2): a connection that came, and the address of its other end. May sleep.
    fn accept(&self, _nonblocking: bool) -> Result<(Box<dyn Socket>, Address), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// shutdown(2). May sleep.
    fn shutdown(&self, _how: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// connect(2) of one whose file does not block. May sleep.
    fn connect_soon(&self, address: &Address) -> Result<(), Errno> {
        self.connect(address)
    }

    /// getsockname(2), or getpeername(2).
    fn name(&self, of_peer: bool) -> Result<Address, Errno>;

    /// send(2) and its relatives, with what control messages say. May sleep.
    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult;

    /// Whether SIGPIPE tells as well that nobody takes what is sent (EPIPE).
    fn is_stream(&self) -> bool {
        false
    }

    /// Fails if something cannot be sent with these flags of send(2).
    fn check_way(&self, _flags: u32) -> Result<(), Errno> {
        Ok(())
    }

    /// Fails if something cannot be received as urgent (MSG_OOB), which nothing here is.
    fn check_urgent(&self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// recv(2) and its relatives. May sleep.
    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno>;

    /// read(2): [`receive`](Self::receive) where nobody asks for more than the length. May sleep.
    fn read(&self, memory: &mut Memory, how: Reception) -> SysResult {
        self.receive(memory, how).map(|received| received.length)
    }

    /// recv(2) with MSG_ERRQUEUE: a report of what was sent. Does not wait.
    fn receive_report(&self, _memory: &mut Memory) -> Result<Received, Errno> {
        Err(Errno::EAGAIN)
    }

    /// getsockopt(2): the whole value, however much room a program has. May sleep.
    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno>;

    /// Whether the value of an option is told as a whole or not at all (ERANGE), and not cut off
    /// where there is less room.
    fn tells_whole(&self, _level: u32, _name: u32) -> bool {
        false
    }

    /// As [`option`](Self::option), where a program may ask by what is at `at`. May sleep.
    fn option_at(&self, level: u32, name: u32, _at: UserAddr) -> Result<Vec<u8>, Errno> {
        self.option(level, name)
    }

    /// The program of classic BPF that says what it gets, as it was given; empty if there is none.
    /// ENOPROTOOPT if the family knows no filters.
    fn filter(&self) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOPROTOOPT)
    }

    /// setsockopt(2). May sleep.
    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno>;

    /// ioctl(2), but for what all files offer. May sleep.
    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult;

    /// The memory that mmap(2) of `length` bytes at `offset` shows, all multiples of the page size.
    /// ENODEV if it has none.
    fn map(&self, _offset: u64, _length: u64) -> Result<Arc<MemoryObject>, Errno> {
        Err(Errno::ENODEV)
    }

    /// The number of the interface of the realm that it is bound to, which cannot be given back
    /// meanwhile.
    fn interface(&self) -> Option<u32> {
        None
    }

    /// What it is ready for.
    fn ready(&self) -> Events;

    /// Who is told of changes.
    fn watchers(&self) -> &Watchers;

    /// Its inode number.
    fn number(&self) -> u64;
}

/// Makes what takes the place of a socket of Linux's; `None` if there is no such kind here. May
/// sleep.
pub type Taker = fn(&Foreign) -> Result<Option<Box<dyn Socket>>, Errno>;

/// A family of sockets of which some are the realm's.
pub struct Family {
    /// AF_*.
    pub number: u32,
    /// Whether an address of that family is the realm's.
    pub is_local: fn(&Address) -> bool,
    /// Whether an address of that family is that of no interface in particular.
    pub is_wildcard: fn(&Address) -> bool,
    /// Whether setting that option has a socket of Linux's become the realm's.
    pub is_local_by: fn(u32, u32, &[u8]) -> bool,
    /// Makes what takes the place of a socket of Linux's.
    pub take: Taker,
    /// The kind and the protocol of sockets that hear what comes of what that one sends, if it
    /// hears nothing itself.
    pub hearer: fn(&Foreign) -> Option<(u32, u32)>,
    /// Answers an ioctl that asks for an interface of the realm; `None` if it asks for something
    /// else. May sleep.
    pub ioctl: fn(u32, UserAddr) -> Option<SysResult>,
}

/// The families that the realm has sockets of, each in the first free place.
static FAMILIES: [Once<&'static Family>; 5] = [const { Once::new() }; 5];

/// There are addresses of the realm in that family. In the first thread, or in one that is alone in
/// adding some.
pub fn add_family(family: &'static Family) {
    if families().any(|other| other.number == family.number) {
        return;
    }
    if let Some(free) = FAMILIES.iter().find(|place| !place.is_completed()) {
        free.call_once(|| family);
    }
}

fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().map_while(|place| place.get().copied())
}

/// A socket of Linux's.
pub struct Foreign<'a> {
    fd: u64,
    space: &'a AddressSpace,
    /// Memory of the program for values of options.
    scratch: Scratch<'a>,
    /// SOCK_*.
    pub kind: u32,
    /// The protocol of its family.
    pub protocol: u32,
    /// Of IPv4 and IPv6, the port to which it is bound, or 0.
    pub port: u16,
    /// It becomes the realm's because of an option, not of an address.
    pub is_by_option: bool,
}

/// What kind of a socket descriptor `fd` of Linux's is. Some kinds are not everybody's, so nobody
/// is asked but Linux's kernel, and it answers by no memory of the program. May sleep.
fn kind(fd: u64) -> Result<SocketKind, Errno> {
    let (result, words) = remote::request_words(Operation::Socket { fd: fd as i32 })?;
    linux_result(result).map(|_| SocketKind::from_words(words))
}

impl<'a> Foreign<'a> {
    /// The socket of descriptor `fd`, if it is one of that family.
    fn find(space: &'a AddressSpace, fd: u64, family: u32) -> Result<Option<Self>, Errno> {
        let Ok(SocketKind { domain, kind, protocol, port }) = kind(fd) else { return Ok(None) };
        if domain != family {
            return Ok(None);
        }
        let scratch = Scratch::open(space, 2 * PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
        Ok(Some(Self { fd, space, scratch, kind, protocol, port, is_by_option: false }))
    }

    /// The value of an option.
    pub fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        let (value, length) = (self.scratch.start, self.scratch.start + PAGE_SIZE);
        user::write_u32(length, MAX_OPTION as u32)?;
        let arguments = [self.fd, level.into(), name.into(), value.get(), length.get()];
        remote::linux(linux::__NR_getsockopt, &arguments)?;
        let count = (user::read_u32(length)? as usize).min(MAX_OPTION);
        if !heap::lends(count) {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = alloc::vec![0; count];
        user::read(value, &mut bytes)?;
        Ok(bytes)
    }

    /// Its own address, or that of the other end.
    pub fn address(&self, of_peer: bool) -> Result<Address, Errno> {
        let (address, length) = (self.scratch.start, self.scratch.start + PAGE_SIZE);
        user::write_u32(length, MAX_ADDRESS as u32)?;
        let call = if of_peer { linux::__NR_getpeername } else { linux::__NR_getsockname };
        remote::linux(call, &[self.fd, address.get(), length.get()])?;
        let mut bytes = [0; MAX_ADDRESS];
        let bytes = &mut bytes[..(user::read_u32(length)? as usize).min(MAX_ADDRESS)];
        user::read(address, bytes)?;
        Ok(Address::new(bytes))
    }

    /// The classic BPF program that is attached; nothing if there is none.
    pub fn filter(&self) -> Result<Vec<u8>, Errno> {
        const MOST: u64 = (filter::MOST * filter::SIZE) as u64;
        let scratch = Scratch::open(self.space, MOST + PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
        let (value, length) = (scratch.start, scratch.start + MOST);
        // Linux counts instructions here.
        user::write_u32(length, filter::MOST as u32)?;
        let (level, name) = (net::SOL_SOCKET.into(), net::SO_GET_FILTER.into());
        let arguments = [self.fd, level, name, value.get(), length.get()];
        remote::linux(linux::__NR_getsockopt, &arguments)?;
        let count = (user::read_u32(length)? as usize).min(filter::MOST);
        // Now, since it may have been long until Linux answered.
        if count > 0 && !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = alloc::vec![0; count * filter::SIZE];
        user::read(value, &mut bytes)?;
        Ok(bytes)
    }

    /// Its own address (getsockname), with zeros behind it.
    pub fn name(&self) -> Result<Address, Errno> {
        let (value, length) = (self.scratch.start, self.scratch.start + PAGE_SIZE);
        user::write_words(value, [0; MAX_ADDRESS / 8])?;
        user::write_u32(length, MAX_ADDRESS as u32)?;
        let arguments = [self.fd, value.get(), length.get()];
        remote::linux(linux::__NR_getsockname, &arguments)?;
        let mut bytes = [0; MAX_ADDRESS];
        user::read(value, &mut bytes)?;
        Ok(Address::new(&bytes))
    }

    /// The value of an option that is a number.
    pub fn number(&self, level: u32, name: u32) -> Result<u32, Errno> {
        let value = self.option(level, name)?;
        let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
        Ok(u32::from_ne_bytes(*bytes))
    }
}

/// If descriptor `fd`, which is not local, is a socket of Linux's, and `address` is the realm's,
/// makes it local. Says whether it is now. Asks Linux only if the address is the realm's. May
/// sleep.
pub fn claim(fd: u64, address: &Address) -> Result<bool, Errno> {
    claim_if(fd, address, |family| (family.is_local)(address))
}

/// The same because a program binds it to `address`, of which that of no interface in particular is
/// the realm's as well.
pub fn claim_wildcard(fd: u64, address: &Address) -> Result<bool, Errno> {
    claim_if(fd, address, |family| (family.is_local)(address) || (family.is_wildcard)(address))
}

fn claim_if(fd: u64, address: &Address, is_meant: impl Fn(&Family) -> bool) -> Result<bool, Errno> {
    let number = address.family();
    let family = families().find(|family| Some(family.number) == number);
    match family.filter(|family| is_meant(family)) {
        Some(family) => take(fd, family, false),
        None => Ok(false),
    }
}

/// The same because a program sets an option that names something of the realm.
pub fn claim_by_option(fd: u64, level: u32, name: u32, value: &[u8]) -> Result<bool, Errno> {
    for family in families().filter(|family| (family.is_local_by)(level, name, value)) {
        if take(fd, family, true)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn take(fd: u64, family: &Family, is_by_option: bool) -> Result<bool, Errno> {
    if fd >= NUMBERS.into() {
        return Ok(false);
    }
    let space = user::space()?;
    let Some(mut foreign) = Foreign::find(&space, fd, family.number)? else { return Ok(false) };
    foreign.is_by_option = is_by_option;
    if !take_it(fd, family, &foreign)? {
        return Ok(false);
    }
    if let Some(hearer) = (family.hearer)(&foreign) {
        take_near(fd, family, hearer)?;
    }
    Ok(true)
}

/// Takes those of the sockets of that kind and protocol whose numbers are near to `fd`: a program
/// opens together what belongs together.
fn take_near(fd: u64, family: &Family, hearer: (u32, u32)) -> Result<(), Errno> {
    /// How far away.
    const NEAR: u64 = 8;
    let (space, table) = (user::space()?, table()?);
    table.make_sure()?;
    for other in fd.saturating_sub(NEAR)..=(fd + NEAR).min(u64::from(NUMBERS) - 1) {
        if !table.is_remote(other as u32) {
            continue;
        }
        if let Some(foreign) = Foreign::find(&space, other, family.number)?
            && (foreign.kind, foreign.protocol) == hearer
        {
            take_it(other, family, &foreign)?;
        }
    }
    Ok(())
}

fn take_it(fd: u64, family: &Family, foreign: &Foreign) -> Result<bool, Errno> {
    let Some(socket) = (family.take)(foreign)? else { return Ok(false) };
    let flags = remote::linux(linux::__NR_fcntl, &[fd, linux::F_GETFL.into(), 0])? as u32;
    let file = Description::open(Object::Socket(socket), flags | linux::O_RDWR)?;
    file.owner.take_from_linux(fd)?;
    file.set_signalling(fd, flags & linux::FASYNC != 0)?;
    table()?.replace(fd, file)?;
    Ok(true)
}

/// Answers an ioctl of a socket of Linux's that asks for an interface of the realm, if it does. A
/// file that is no socket, or one of another network namespace, is left to Linux. May sleep.
pub fn ioctl(fd: u64, request: u32, argument: UserAddr) -> Option<SysResult> {
    /// The second byte of what asks for interfaces.
    const SOCKET: u32 = 0x89;
    if request >> 8 != SOCKET || families().next().is_none() {
        return None;
    }
    kind(fd).ok()?;
    answer(request, argument)
}

/// Answers an ioctl that asks for an interface of the realm; `None` if it asks for something else.
/// May sleep.
pub fn answer(request: u32, argument: UserAddr) -> Option<SysResult> {
    families().find_map(|family| (family.ioctl)(request, argument))
}

impl Files {
    /// Makes descriptor `fd`, which is Linux's, one of `file`, and closes Linux's. May sleep.
    pub fn replace(&self, fd: u64, file: Arc<Description>) -> Result<(), Errno> {
        let descriptor = remote::linux(linux::__NR_fcntl, &[fd, linux::F_GETFD.into(), 0]);
        let close_on_exec = descriptor? as u32 & linux::FD_CLOEXEC != 0;
        remote::linux(linux::__NR_close, &[fd])?;
        drop(self.insert_at(fd as u32, file, close_on_exec)?);
        Ok(())
    }
}
