// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of UDP.
//!
//! A thread that sends writes the frame itself, from the program's memory, and gives it to the
//! card. A datagram that comes goes into memory that the socket has had before, and wakes one
//! thread.

use alloc::{sync::Arc, vec::Vec};
use core::net::SocketAddrV4;

use crtos_abi::UserAddr;
use crtos_core::task::Mutex;
use crtos_inet::{
    inbox::About,
    packet::{IP, MOST_DATA, Protocol, UDP},
    ports::{Binding, Ports, Way},
};
use crtos_nic::stamping::Stamping;
use linux_raw_sys::net;

use super::{
    address_of,
    cork::{Cork, Course, MOST_SEGMENTS, Pending, SOL_UDP, UDP_CORK},
    destination,
    endpoint::{Came, Endpoint},
    link,
    options::Options,
    port, socket_address,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers,
        socket::{Address, Foreign, More, Received, Reception, SendControl, Socket},
    },
    sockets::error_queue::Message,
};

/// Most sockets of UDP that the realm has.
const MOST: usize = 256;
/// Most sockets that get what was sent to a group, or to all.
const MOST_RECEIVERS: usize = 64;

/// Who has which port.
static PORTS: Mutex<Ports<Handle>> = Mutex::new(Ports::new(MOST, false));

/// A socket in the table of ports.
#[derive(Clone)]
struct Handle(Arc<Endpoint>);

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a program has set.
struct State {
    binding: Binding,
    /// The address and the port to which the program has bound it, or 0.0.0.0 and 0.
    bound: SocketAddrV4,
    /// It is in the table of ports.
    has_port: bool,
    /// Nothing is sent any more (shutdown).
    is_mute: bool,
}

/// A socket of UDP.
pub struct Udp {
    end: Arc<Endpoint>,
    state: Mutex<State>,
    cork: Cork,
}

/// Brings a datagram, which is in a packet with that header, to those whose it is; says whether
/// there is anybody. Thread context.
pub fn deliver(
    way: &Way,
    about: About,
    (header, datagram): (&[u8], &[u8]),
    is_for_one: bool,
) -> bool {
    let (hidden, skipped) = (header.len(), header.len() + UDP);
    let came = &Came { header, payload: datagram, hidden, skipped };
    if is_for_one {
        let draw = u32::from(way.remote.port()) ^ u32::from(*way.remote.ip());
        let found = PORTS.lock().find(way, draw);
        if let Some(found) = &found {
            found.0.hear(about, came);
        }
        return found.is_some();
    }
    let group = *way.local.ip();
    // What is for a group or for all comes to those that are bound to it, or to no address.
    for at in 0..MOST_RECEIVERS {
        let Some(found) = PORTS.lock().nth(way, at) else { return at > 0 };
        if !group.is_multicast() || found.0.is_in(group, way.interface) {
            found.0.hear(about, came);
        }
    }
    true
}

/// A datagram did not arrive, of which that is the beginning: who has sent it is told, if it has
/// asked for that, or talks to one other alone. Thread context.
pub fn report(way: &Way, message: Message, datagram: &[u8]) {
    let Some(found) = PORTS.lock().find(way, 0) else { return };
    let is_connected = || PORTS.lock().has_connection(way.local, way.remote);
    let data = datagram.get(UDP..).unwrap_or_default();
    found.0.report(way.remote, message, data, is_connected);
}

/// What has to do with that interface alone is told that it is gone.
pub fn interface_is_gone(index: u32) {
    for at in 0..MOST {
        let Some(found) = PORTS.lock().nth_of_all(at) else { return };
        if found.0.options.device() == index {
            found.0.fail(Errno::ENETDOWN);
        }
    }
}

impl Udp {
    /// What takes the place of a socket of Linux's of the family `domain`, which is bound to that
    /// address if its port is not 0.
    pub fn of(foreign: &Foreign, domain: u32, local: SocketAddrV4) -> Result<Self, Errno> {
        let end = Arc::new(Endpoint::of(foreign, domain)?);
        let state =
            State { binding: Binding::new(local), bound: local, has_port: false, is_mute: false };
        let own = Self { end, state: Mutex::new(state), cork: Cork::of(foreign)? };
        if local.port() != 0 {
            let mut state = own.state.lock();
            own.take_port(&mut state, local)?;
        }
        Ok(own)
    }

    fn options(&self) -> &Options {
        &self.end.options
    }

    fn handle(&self) -> Handle {
        Handle(self.end.clone())
    }

    /// Takes the port of an address, or any if that is 0.
    fn take_port(&self, state: &mut State, local: SocketAddrV4) -> Result<(), Errno> {
        let binding = port::take(&PORTS, local, &self.end.common, self.options(), self.handle())?;
        (state.binding, state.has_port) = (binding, true);
        Ok(())
    }

    /// Changes what it is bound to; its port stays.
    fn change(&self, state: &mut State, change: impl Fn(&mut Binding)) {
        change(&mut state.binding);
        PORTS.lock().change(state.binding.local.port(), &self.handle(), change);
    }

    /// Its port is shared, and has to do with an interface, as its options say now.
    fn renew_binding(&self) {
        let mut state = self.state.lock();
        self.change(&mut state, |binding| {
            binding.interface = self.options().device();
            port::let_share(binding, &self.end.common, self.options());
        });
    }

    /// It talks to nobody in particular any more. What the program has not bound it to itself, it
    /// leaves.
    fn disconnect(&self, state: &mut State) {
        let bound = state.bound;
        if bound.port() != 0 {
            return self.change(state, |binding| {
                (binding.local, binding.remote) = (bound, None);
            });
        }
        self.leave_port(state);
        (state.binding, state.has_port) = (Binding::new(bound), false);
    }

    fn leave_port(&self, state: &State) {
        if state.has_port {
            let taken = PORTS.lock().remove(state.binding.local.port(), &self.handle());
            drop(taken);
        }
    }

    /// How a datagram goes where it is to go.
    fn course(
        &self,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> Result<Course, Errno> {
        let mut state = self.state.lock();
        if state.is_mute {
            return Err(Errno::EPIPE);
        }
        let to = match to {
            Some(to) => {
                let to = destination(to)?;
                if to.port() == 0 {
                    return Err(Errno::EINVAL);
                }
                to
            }
            None => state.binding.remote.ok_or(Errno::EDESTADDRREQ)?,
        };
        if !state.has_port {
            let local = state.binding.local;
            self.take_port(&mut state, local)?;
        }
        let own = state.binding.local;
        drop(state);
        let (link, source, meant) = self.end.way(*to.ip(), *own.ip(), control)?;
        let (from, to) =
            (SocketAddrV4::new(source, own.port()), SocketAddrV4::new(meant, to.port()));
        let stamping = self.end.common.stamping_of(control)?;
        let header = self.end.header(&link, Protocol::Udp, (source, *to.ip()), control);
        let segment = control.segment.map_or_else(|| self.cork.segment(), u32::from) as usize;
        Ok(Course { link, from, to, header, nonblocking, stamping, segment })
    }

    /// Sends a datagram that fits into a frame, whose data `fill` writes.
    fn send_whole(
        &self,
        course: &Course,
        length: usize,
        asked: Stamping,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Course { link, header, nonblocking, .. } = course;
        self.end.send_whole(link, header, UDP + length, (*nonblocking, asked), |datagram| {
            fill(&mut datagram[UDP..])?;
            course.write_ends(datagram);
            Ok(())
        })
    }

    /// A datagram is longer than a packet to that station may be.
    fn refuse(&self, course: &Course) {
        let port = self.state.lock().binding.remote.map_or(0, |remote| remote.port());
        let to = SocketAddrV4::new(*course.to.ip(), port);
        self.end.refuse(to, course.link.longest() as u32);
    }

    /// Sends data as datagrams of so many bytes as were asked for (UDP_SEGMENT).
    fn send_segments(&self, course: &Course, data: &[u8]) -> Result<(), Errno> {
        if IP + UDP + data.len().min(course.segment) > course.link.longest() {
            return Err(Errno::EMSGSIZE);
        }
        if data.len() > course.segment * MOST_SEGMENTS || self.end.common.has(net::SO_NO_CHECK) {
            return Err(Errno::EINVAL);
        }
        let mut asked = course.stamping;
        for (at, part) in data.chunks(course.segment).enumerate() {
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(part);
                Ok(())
            };
            match self.send_whole(course, part.len(), asked, fill) {
                // Somebody has the others already: this one and what follows is lost.
                Err(Errno::EAGAIN) if at > 0 => break,
                result => result?,
            }
            // As under Linux, only the first one is reported.
            asked = Stamping::default();
        }
        Ok(())
    }

    /// Sends what was pending.
    fn send_pending(&self, mut pending: Pending) -> Result<(), Errno> {
        let Pending { course, bytes } = &mut pending;
        if course.segment != 0 && bytes.len() > UDP {
            self.send_segments(course, &bytes[UDP..])?;
        } else if bytes.len() <= course.link.longest() - IP {
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(&bytes[UDP..]);
                Ok(())
            };
            self.send_whole(course, bytes.len() - UDP, course.stamping, fill)?;
        } else {
            let Course { link, header, nonblocking, stamping, .. } = &*course;
            course.write_ends(bytes);
            self.end.send_fragments(link, header, bytes, (*nonblocking, *stamping))?;
        }
        course.bring_back();
        Ok(())
    }

    /// Adds data to what is pending, which is sent then unless `waits` says that more follows. If
    /// that fails, nothing is pending any more.
    fn send_later(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
        waits: bool,
    ) -> Result<(), Errno> {
        let mut place = self.cork.pending.lock();
        let mut pending = match place.take() {
            Some(pending) => {
                self.cork.note(&place);
                if self.state.lock().is_mute {
                    return Err(Errno::EPIPE);
                }
                pending
            }
            None => Pending::new(self.course(to, nonblocking, control)?)?,
        };
        self.end.common.check()?;
        pending.course.nonblocking = nonblocking;
        self.check_length(&pending.course, pending.length() + memory.left() as usize)?;
        pending.add(memory)?;
        if waits {
            *place = Some(pending);
            self.cork.note(&place);
            return Ok(());
        }
        self.send_pending(pending)
    }

    /// Sends what is pending, if something is (UDP_CORK was set to 0).
    fn uncork(&self) {
        let mut place = self.cork.pending.lock();
        let pending = place.take();
        self.cork.note(&place);
        if let Some(pending) = pending {
            // As under Linux, nobody is told.
            let _ = self.send_pending(pending);
        }
    }

    /// Fails if so many bytes are too many for a datagram, or for several of one call.
    fn check_length(&self, course: &Course, length: usize) -> Result<(), Errno> {
        let is_one = self.end.is_never_cut() && course.segment == 0;
        let most = if is_one { course.link.longest() - IP - UDP } else { MOST_DATA };
        if length > most {
            self.refuse(course);
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }

    /// Where a datagram was sent to, if the program wants to know that.
    fn original(&self, about: &About) -> Option<More> {
        if self.options().ip(net::IP_RECVORIGDSTADDR) == 0 {
            return None;
        }
        let port = self.state.lock().binding.local.port();
        let to = address_of(SocketAddrV4::new(about.destination, port));
        Some(More::new(net::SOL_IP, net::IP_ORIGDSTADDR, to.bytes()))
    }
}

impl Socket for Udp {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let local = socket_address(address)?;
        port::check(local.port())?;
        let mut state = self.state.lock();
        if state.has_port {
            return Err(Errno::EINVAL);
        }
        link::attend_at(*local.ip())?;
        self.take_port(&mut state, local)?;
        state.bound = local;
        Ok(())
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if address.family() == Some(net::AF_UNSPEC) {
            self.disconnect(&mut state);
            return Ok(());
        }
        let mut to = socket_address(address)?;
        let own = *state.binding.local.ip();
        to.set_ip(self.end.meant(*to.ip(), own));
        let link = self.end.link_to(*to.ip(), own, 0)?;
        if !state.has_port {
            let local = state.binding.local;
            self.take_port(&mut state, local)?;
        }
        let source = link.source(*to.ip());
        self.change(&mut state, |binding| {
            if binding.local.ip().is_unspecified() {
                binding.local.set_ip(source);
            }
            binding.remote = Some(to);
        });
        link.interface.attend();
        Ok(())
    }

    fn shutdown(&self, how: u32) -> Result<(), Errno> {
        self.end.shut_down(how, |is_mute| {
            let mut state = self.state.lock();
            state.is_mute |= is_mute;
            state.binding.remote.is_some()
        })
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        let binding = self.state.lock().binding;
        match of_peer {
            // As under Linux, who talks to no port does not say to whom.
            true => {
                let remote = binding.remote.filter(|remote| remote.port() != 0);
                remote.map(address_of).ok_or(Errno::ENOTCONN)
            }
            false => Ok(address_of(binding.local)),
        }
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult {
        if control.has_others {
            return Err(Errno::EINVAL);
        }
        let length = memory.left();
        if length > u16::MAX.into() {
            return Err(Errno::EMSGSIZE);
        }
        let waits = control.follows || self.cork.is_on();
        if waits || self.cork.has_pending() {
            self.send_later(memory, to, nonblocking, control, waits)?;
            return Ok(length);
        }
        let course = self.course(to, nonblocking, control)?;
        self.end.common.check()?;
        self.check_length(&course, length as usize)?;
        if course.segment != 0 || length as usize > course.link.longest() - IP - UDP {
            let mut pending = Pending::new(course)?;
            pending.add(memory)?;
            self.send_pending(pending)?;
            return Ok(length);
        }
        self.send_whole(&course, length as usize, course.stamping, |to| {
            if memory.read(to) < to.len() { Err(Errno::EFAULT) } else { Ok(()) }
        })?;
        course.bring_back();
        Ok(length)
    }

    fn check_way(&self, flags: u32) -> Result<(), Errno> {
        if flags & net::MSG_OOB == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        // As under Linux, datagrams are received all the same.
        Ok(())
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        self.end.receive(memory, how, |about| self.original(about))
    }

    fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        self.end.receive_report(memory)
    }

    fn filter(&self) -> Result<Vec<u8>, Errno> {
        Ok(self.end.filter())
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        match level {
            SOL_UDP => Ok(self.cork.get(name)?.to_ne_bytes().to_vec()),
            _ => {
                let remote = self.state.lock().binding.remote;
                self.end.option(level, name, remote.map(|remote| *remote.ip()))
            }
        }
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        if level == SOL_UDP {
            self.cork.set(name, value)?;
            if name == UDP_CORK && !self.cork.is_on() {
                self.uncork();
            }
        } else if self.end.set_option(level, name, value)? {
            self.renew_binding();
        }
        Ok(())
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        self.end.ioctl(request, argument)
    }

    fn interface(&self) -> Option<u32> {
        let local = *self.state.lock().binding.local.ip();
        self.end.interface(local)
    }

    fn ready(&self) -> Events {
        self.end.ready(|| self.state.lock().is_mute)
    }

    fn watchers(&self) -> &Watchers {
        &self.end.watchers
    }

    fn number(&self) -> u64 {
        self.end.number
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.leave_port(&self.state.lock());
        self.end.close();
    }
}
