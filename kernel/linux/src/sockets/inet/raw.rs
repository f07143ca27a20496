// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of raw packets (raw(7)), and those that ask other stations for an echo (icmp(7)): `ping`
//! uses one of both kinds.
//!
//! A raw socket hears a copy of each packet of its protocol that is for this station, with its
//! header, whatever else becomes of it. A socket of echoes hears the answers to its own requests.

use alloc::{sync::Arc, vec::Vec};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crtos_abi::UserAddr;
use crtos_core::{mm::heap, sync::SpinLock, task::Mutex};
use crtos_inet::{
    inbox::About,
    packet::{self, ECHO_REPLY, ETHERNET, IP, Protocol, Returned},
};
use crtos_nic::stamping::Stamping;
use linux_raw_sys::net;

use super::{
    ICMP, address_of, destination,
    endpoint::{Came, Endpoint},
    link::{self, Link},
    port, socket_address,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers,
        socket::{Address, Foreign, Received, Reception, SendControl, Socket},
    },
    sockets::{error_queue::Message, net::buffer::with_buffer},
};

/// Most of these sockets that the realm has.
const MOST: usize = 64;
/// Most bytes of a packet.
const MOST_BYTES: usize = 65535;

/// The level of options of raw sockets, and the types of messages of ICMP that one is not told of.
const SOL_RAW: u32 = 255;
const ICMP_FILTER: u32 = 1;

/// What a socket hears, and sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Packets of a protocol, with their header.
    Raw(u8),
    /// Echo requests, and the answers to those.
    Echo,
}

impl Kind {
    fn protocol(self) -> Protocol {
        match self {
            Self::Raw(number) => Protocol::of(number),
            Self::Echo => Protocol::Icmp,
        }
    }
}

/// With whom a socket has to do.
#[derive(Clone, Copy)]
struct Binding {
    /// Its address, or 0.0.0.0. The port is the protocol of a raw socket, and of one of echoes what
    /// its requests are known by.
    local: SocketAddrV4,
    /// The only one that it talks to.
    remote: Option<SocketAddrV4>,
    /// Nothing is sent any more (shutdown).
    is_mute: bool,
}

/// What threads of drivers reach of a socket.
struct Core {
    end: Arc<Endpoint>,
    kind: Kind,
    binding: SpinLock<Binding>,
    /// Bit per type of a message of ICMP: it is not told.
    filter: AtomicU32,
    /// Programs make the header themselves (IP_HDRINCL).
    has_header: AtomicBool,
}

/// A raw socket, or one of echoes.
pub struct Raw(Arc<Core>);

/// All of them.
static SOCKETS: Mutex<Vec<Arc<Core>>> = Mutex::new(Vec::new());
/// How many they are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any.
pub fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Calls `each` with every one.
fn each(mut each: impl FnMut(&Core)) {
    for at in 0..MOST {
        let Some(core) = SOCKETS.lock().get(at).cloned() else { return };
        each(&core);
    }
}

/// Brings a packet, whose header and contents these are, to those who hear such. Thread context.
pub fn deliver(protocol: Protocol, about: About, header: &[u8], payload: &[u8]) {
    each(|core| {
        if core.hears(protocol, &about, payload) {
            let skipped = if core.kind == Kind::Echo { header.len() } else { 0 };
            core.end.hear(about, &Came { header, payload, hidden: skipped, skipped });
        }
    });
}

/// A packet did not arrive: who has sent such is told. Thread context.
pub fn report(index: u32, message: Message, returned: &Returned) {
    if !is_any() {
        return;
    }
    each(|core| {
        let to = SocketAddrV4::new(returned.destination.0, 0);
        if core.has_sent(index, returned) {
            let is_connected = || core.binding.lock().remote.is_some();
            core.end.report(to, message, returned.payload, is_connected);
        }
    });
}

/// What has to do with that interface alone is told that it is gone.
pub fn interface_is_gone(index: u32) {
    each(|core| {
        if core.end.options.device() == index {
            core.end.fail(Errno::ENETDOWN);
        }
    });
}

impl Core {
    /// Whether it has to do with that interface, an address here and one elsewhere.
    fn is_between(&self, index: u32, local: Ipv4Addr, remote: Ipv4Addr) -> bool {
        let Binding { local: own, remote: other, .. } = *self.binding.lock();
        let device = self.end.options.device();
        (device == 0 || device == index)
            && (own.ip().is_unspecified() || *own.ip() == local)
            && other.is_none_or(|other| *other.ip() == remote)
    }

    fn hears(&self, protocol: Protocol, about: &About, payload: &[u8]) -> bool {
        let to = about.destination;
        if self.kind.protocol() != protocol
            || !self.is_between(about.interface, to, about.source.0)
            || to.is_multicast() && !self.end.is_in(to, about.interface)
        {
            return false;
        }
        match self.kind {
            Kind::Raw(_) if protocol == Protocol::Icmp => {
                payload.first().is_none_or(|&kind| kind >= 32 || self.filter() >> kind & 1 == 0)
            }
            Kind::Raw(_) => true,
            Kind::Echo => {
                packet::icmp_type(payload) == Some(ECHO_REPLY) && self.is_its_echo(payload)
            }
        }
    }

    fn filter(&self) -> u32 {
        self.filter.load(Ordering::Relaxed)
    }

    /// Whether an echo request is one of this socket, or answers one.
    fn is_its_echo(&self, message: &[u8]) -> bool {
        packet::echo_ident(message) == Some(self.binding.lock().local.port())
    }

    /// Whether it may have sent a packet that did not arrive.
    fn has_sent(&self, index: u32, returned: &Returned) -> bool {
        self.kind.protocol() == returned.protocol
            && self.is_between(index, returned.source.0, returned.destination.0)
            && (self.kind != Kind::Echo || self.is_its_echo(returned.payload))
    }

    fn makes_header(&self) -> bool {
        self.has_header.load(Ordering::Relaxed)
    }
}

impl Raw {
    /// What takes the place of a socket of Linux's, of the kind that this is, with its own address
    /// there. `None` if there are none of that kind here.
    pub fn of(foreign: &Foreign, local: SocketAddrV4) -> Result<Option<Self>, Errno> {
        let kind = match (foreign.kind, u8::try_from(foreign.protocol)) {
            (net::SOCK_RAW, Ok(number)) => Kind::Raw(number),
            (net::SOCK_DGRAM, _) if foreign.protocol == ICMP => Kind::Echo,
            _ => return Ok(None),
        };
        let is_raw = kind != Kind::Echo;
        let has_header = is_raw && foreign.number(net::SOL_IP, net::IP_HDRINCL)? != 0;
        let filters = is_raw && foreign.protocol == ICMP;
        let filter = if filters { foreign.number(SOL_RAW, ICMP_FILTER)? } else { 0 };
        let core = Arc::new(Core {
            end: Arc::new(Endpoint::of(foreign, net::AF_INET)?),
            kind,
            binding: SpinLock::new(Binding { local, remote: None, is_mute: false }),
            filter: AtomicU32::new(filter),
            has_header: AtomicBool::new(has_header),
        });
        {
            let mut sockets = SOCKETS.lock();
            if sockets.len() >= MOST {
                return Err(Errno::ENOBUFS);
            }
            if !heap::makes_room(&mut sockets, 1) {
                return Err(Errno::ENOMEM);
            }
            sockets.push(core.clone());
            COUNT.store(sockets.len(), Ordering::Relaxed);
        }
        Ok(Some(Self(core)))
    }

    /// Has the requests of a socket of echoes be known by that number, or by any that is free if it
    /// is 0.
    fn take_ident(&self, wanted: u16) -> Result<(), Errno> {
        let own = &self.0;
        // Who else asks at the same time waits.
        let sockets = SOCKETS.lock();
        let has = |ident: u16| {
            let others = sockets.iter().filter(|core| !Arc::ptr_eq(core, own));
            let others = others.filter(|core| core.kind == Kind::Echo);
            others.filter(move |core| core.binding.lock().local.port() == ident)
        };
        let shares = |core: &Core| core.end.common.has(net::SO_REUSEADDR);
        let start = port::draw();
        let mut all = (0..=u16::MAX).map(|at| start.wrapping_add(at));
        let ident = match wanted {
            0 => all.find(|&ident| ident != 0 && has(ident).next().is_none()),
            ident => has(ident).all(|core| shares(core) && shares(own)).then_some(ident),
        };
        let ident = ident.ok_or(Errno::EADDRINUSE)?;
        own.binding.lock().local.set_port(ident);
        Ok(())
    }

    /// Has a socket of echoes have a number.
    fn prepare(&self) -> Result<(), Errno> {
        let has_none = self.0.binding.lock().local.port() == 0;
        if self.0.kind == Kind::Echo && has_none { self.take_ident(0) } else { Ok(()) }
    }

    /// Sends what a program gives behind a header that is made here.
    fn send_payload(
        &self,
        link: &Arc<Link>,
        header: &packet::Header,
        memory: &mut Memory,
        how: (bool, Stamping),
    ) -> Result<(), Errno> {
        let length = memory.left() as usize;
        let ident = self.0.binding.lock().local.port();
        let mut fill = |to: &mut [u8]| {
            if memory.read(to) < to.len() {
                return Err(Errno::EFAULT);
            }
            let is_sound = self.0.kind != Kind::Echo || packet::write_echo_request(to, ident);
            if is_sound { Ok(()) } else { Err(Errno::EINVAL) }
        };
        let room = link.longest() - IP;
        if length <= room {
            return self.0.end.send_whole(link, header, length, how, fill);
        }
        if self.0.end.is_never_cut() {
            self.0.end.refuse(SocketAddrV4::new(header.destination, 0), link.longest() as u32);
            return Err(Errno::EMSGSIZE);
        }
        with_buffer(length, |payload| {
            fill(payload)?;
            self.0.end.send_fragments(link, header, payload, how)
        })
    }

    /// Sends a packet that a program gives with its header.
    fn send_packet(
        &self,
        link: &Arc<Link>,
        source: Ipv4Addr,
        memory: &mut Memory,
        (nonblocking, stamping): (bool, Stamping),
    ) -> Result<(), Errno> {
        let length = memory.left() as usize;
        if length > link.longest() {
            self.0.end.refuse(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), link.longest() as u32);
            return Err(Errno::EMSGSIZE);
        }
        if length < IP {
            return Err(Errno::EINVAL);
        }
        with_buffer(ETHERNET + length, |frame| {
            let packet = &mut frame[ETHERNET..];
            if memory.read(packet) < length {
                return Err(Errno::EFAULT);
            }
            packet::complete(packet, source, link.next_number()).ok_or(Errno::EINVAL)?;
            self.0.end.transmit(link, frame, nonblocking, stamping)
        })
    }
}

impl Socket for Raw {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let local = socket_address(address)?;
        link::attend_at(*local.ip())?;
        let Binding { local: before, remote, .. } = *self.0.binding.lock();
        match self.0.kind {
            Kind::Raw(_) if remote.is_some() => return Err(Errno::EINVAL),
            Kind::Raw(_) => {}
            Kind::Echo if before.port() != 0 => return Err(Errno::EINVAL),
            Kind::Echo => self.take_ident(local.port())?,
        }
        self.0.binding.lock().local.set_ip(*local.ip());
        Ok(())
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        if address.family() == Some(net::AF_UNSPEC) {
            let mut binding = self.0.binding.lock();
            binding.remote = None;
            binding.local.set_ip(Ipv4Addr::UNSPECIFIED);
            return Ok(());
        }
        let mut to = socket_address(address)?;
        let local = *self.0.binding.lock().local.ip();
        to.set_ip(self.0.end.meant(*to.ip(), local));
        let link = self.0.end.link_to(*to.ip(), local, 0)?;
        self.prepare()?;
        {
            let mut binding = self.0.binding.lock();
            if binding.local.ip().is_unspecified() {
                binding.local.set_ip(link.source(*to.ip()));
            }
            binding.remote = Some(to);
        }
        link.interface.attend();
        Ok(())
    }

    fn shutdown(&self, how: u32) -> Result<(), Errno> {
        self.0.end.shut_down(how, |is_mute| {
            let mut binding = self.0.binding.lock();
            binding.is_mute |= is_mute;
            binding.remote.is_some()
        })
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        let Binding { local, remote, .. } = *self.0.binding.lock();
        match of_peer {
            // As under Linux, who talks to no port does not say to whom.
            true => {
                let remote = remote.filter(|remote| remote.port() != 0);
                remote.map(address_of).ok_or(Errno::ENOTCONN)
            }
            false => Ok(address_of(local)),
        }
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult {
        if control.has_others || control.segment.is_some() {
            return Err(Errno::EINVAL);
        }
        let length = memory.left();
        if length > MOST_BYTES as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let Binding { local, remote, is_mute } = *self.0.binding.lock();
        // As under Linux, raw sockets go on, but for packets with a header.
        if is_mute && (self.0.kind == Kind::Echo || self.0.makes_header()) {
            return Err(Errno::EPIPE);
        }
        let parse = if self.0.kind == Kind::Echo { socket_address } else { destination };
        let to = to.map(parse).transpose()?.or(remote).ok_or(Errno::EDESTADDRREQ)?;
        self.prepare()?;
        let end = &self.0.end;
        let (link, source, to) = end.way(*to.ip(), *local.ip(), control)?;
        let how = (nonblocking, end.common.stamping_of(control)?);
        end.common.check()?;
        if self.0.makes_header() {
            self.send_packet(&link, source, memory, how)?;
        } else {
            let header = end.header(&link, self.0.kind.protocol(), (source, to), control);
            self.send_payload(&link, &header, memory, how)?;
        }
        if link.is_own(to) {
            link.bring_back();
        }
        Ok(length)
    }

    fn check_way(&self, flags: u32) -> Result<(), Errno> {
        if flags & net::MSG_OOB == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        self.0.end.receive(memory, how, |_| None)
    }

    fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        self.0.end.receive_report(memory)
    }

    fn filter(&self) -> Result<Vec<u8>, Errno> {
        Ok(self.0.end.filter())
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        let remote = self.0.binding.lock().remote;
        let value = match (level, name, self.0.kind) {
            (net::SOL_IP, net::IP_HDRINCL, Kind::Raw(_)) => self.0.makes_header().into(),
            (SOL_RAW, ICMP_FILTER, Kind::Raw(number)) if u32::from(number) == ICMP => {
                self.0.filter()
            }
            (SOL_RAW, ICMP_FILTER, Kind::Raw(_)) => return Err(Errno::EOPNOTSUPP),
            (SOL_RAW, _, Kind::Raw(_)) => return Err(Errno::ENOPROTOOPT),
            _ => return self.0.end.option(level, name, remote.map(|remote| *remote.ip())),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        match (level, name, self.0.kind) {
            (net::SOL_IP, net::IP_HDRINCL, Kind::Raw(_)) => {
                let is_set = value.iter().take(4).any(|&byte| byte != 0);
                self.0.has_header.store(is_set, Ordering::Relaxed);
            }
            (SOL_RAW, ICMP_FILTER, Kind::Raw(number)) if u32::from(number) == ICMP => {
                let mut filter = self.0.filter().to_ne_bytes();
                for (to, from) in filter.iter_mut().zip(value) {
                    *to = *from;
                }
                self.0.filter.store(u32::from_ne_bytes(filter), Ordering::Relaxed);
            }
            (SOL_RAW, ICMP_FILTER, Kind::Raw(_)) => return Err(Errno::EOPNOTSUPP),
            _ => drop(self.0.end.set_option(level, name, value)?),
        }
        Ok(())
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        self.0.end.ioctl(request, argument)
    }

    fn interface(&self) -> Option<u32> {
        let local = *self.0.binding.lock().local.ip();
        self.0.end.interface(local)
    }

    fn ready(&self) -> Events {
        self.0.end.ready(|| self.0.binding.lock().is_mute)
    }

    fn watchers(&self) -> &Watchers {
        &self.0.end.watchers
    }

    fn number(&self) -> u64 {
        self.0.end.number
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        {
            let mut sockets = SOCKETS.lock();
            sockets.retain(|core| !Arc::ptr_eq(core, &self.0));
            COUNT.store(sockets.len(), Ordering::Relaxed);
        }
        self.0.end.close();
    }
}
