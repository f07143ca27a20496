// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of UDP.
//!
//! A thread that sends writes the frame itself, from the program's memory, and gives it to the
//! card. A datagram that comes goes into memory that the socket has had before, and wakes one
//! thread.

use alloc::{sync::Arc, vec::Vec};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::UserAddr;
use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::{Mutex, WaitError, WaitQueue},
    time::Nanos,
};
use crtos_inet::{
    inbox::{About, Buffer, Inbox},
    packet::{self, ETHERNET, IP, LONGEST, MOST_DATA, Protocol, UDP, USUAL},
    ports::{Binding, Ports, Way},
};
use crtos_nic::stamping::{OPT_CMSG, Report, Stamping};
use linux_raw_sys::{ioctl, net};

use super::{
    address_of,
    cork::{Cork, Course, MOST_SEGMENTS, Pending, SOL_UDP, UDP_CORK},
    icmp::meaning,
    link::{self, Link},
    options::{self, Options},
    port, socket_address, stack,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers, description,
        socket::{Address, Foreign, More, Received, Reception, SendControl, Socket, Told},
    },
    memory::user,
    signal,
    sockets::{
        common::Common,
        error_queue::{Cause, Entry, Loss, Message, Taken},
        net::{
            buffer::with_buffer,
            interface::{Asked, Reporter, Stamp},
        },
    },
};

/// Most sockets of UDP that the realm has.
const MOST: usize = 256;
/// Most groups of a socket (net.ipv4.igmp_max_memberships).
const MOST_GROUPS: usize = 20;
/// Most sockets that get what was sent to a group, or to all.
const MOST_RECEIVERS: usize = 64;

/// Who has which port.
static PORTS: Mutex<Ports<Handle>> = Mutex::new(Ports::new(MOST, false));

/// What threads of drivers reach of a socket.
pub(super) struct Core {
    number: u64,
    inbox: SpinLock<Inbox>,
    lost: AtomicU32,
    readers: WaitQueue,
    watchers: Watchers,
    common: Common,
    options: Options,
    groups: SpinLock<Vec<(Ipv4Addr, u32)>>,
    /// Nothing is received any more (shutdown).
    is_deaf: AtomicBool,
    /// Somebody looks at the first datagram, which then is not in the inbox (MSG_PEEK).
    is_looked_at: AtomicBool,
}

/// A socket in the table of ports.
#[derive(Clone)]
struct Handle(Arc<Core>);

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
    core: Arc<Core>,
    state: Mutex<State>,
    cork: Cork,
    /// Held while a datagram is copied to a program, so that they stay in order.
    reading: Mutex<()>,
}

/// Brings a datagram to those whose it is; says whether there is anybody. Thread context.
pub fn deliver(way: &Way, about: About, data: &[u8], is_for_one: bool) -> bool {
    if is_for_one {
        let draw = u32::from(way.remote.port()) ^ u32::from(*way.remote.ip());
        let found = PORTS.lock().find(way, draw);
        if let Some(found) = &found {
            found.0.hear(about, data);
        }
        return found.is_some();
    }
    let group = *way.local.ip();
    // What is for a group or for all comes to those that are bound to it, or to no address.
    for at in 0..MOST_RECEIVERS {
        let Some(found) = PORTS.lock().nth(way, at) else { return at > 0 };
        if !group.is_multicast() || found.0.is_in(group, way.interface) {
            found.0.hear(about, data);
        }
    }
    true
}

/// A datagram did not arrive, of whose data that is the beginning: who has sent it is told, if it
/// has asked for that, or talks to one other alone. Thread context.
pub fn report(way: &Way, message: Message, data: &[u8]) {
    let (error, is_hard) = meaning(&message.why);
    let Some(found) = PORTS.lock().find(way, 0) else { return };
    let core = &found.0;
    let may_be_cut = core.options.ip(net::IP_MTU_DISCOVER) == net::IP_PMTUDISC_DONT;
    if error == Errno::EMSGSIZE && may_be_cut {
        return;
    }
    if core.tells_errors() {
        let loss = Loss { error, to: way.remote, cause: Cause::Icmp(message) };
        core.common.errors.push(Entry::Lost(loss), data);
    } else if !is_hard || !PORTS.lock().has_connection(way.local, way.remote) {
        return;
    }
    core.fail(error);
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

impl Reporter for Core {
    fn report(&self, report: &Report, frame: &[u8]) {
        self.common.errors.push(Entry::Sent(*report), frame);
        self.watchers.notify(Events::ERROR | Events::PRIORITY);
    }
}

impl Core {
    fn hear(&self, about: About, data: &[u8]) {
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        let room = self.inbox.lock().take_room(data.len());
        let Some(mut datagram) = room else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let lost = self.lost.load(Ordering::Relaxed);
        datagram.fill(About { lost, ..about }, data);
        self.inbox.lock().put(datagram);
        self.readers.wake(1);
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    /// Whether the program wants to know what did not arrive.
    fn tells_errors(&self) -> bool {
        self.options.ip(net::IP_RECVERR) != 0
    }

    /// Sees to it that there is memory for all that is to be told. May sleep.
    fn prepare_errors(&self) -> Result<(), Errno> {
        match self.tells_errors() {
            true => self.common.errors.prepare(self.common.receive_buffer()),
            false => self.common.prepare_reports(),
        }
    }

    /// Whether a datagram waits.
    fn has_some(&self) -> bool {
        let inbox = self.inbox.lock();
        !inbox.is_empty() || self.is_looked_at.load(Ordering::Relaxed)
    }

    fn fail(&self, error: Errno) {
        self.common.fail(error);
        self.readers.wake_all();
        self.watchers.notify(Events::ERROR | Events::IN | Events::OUT);
    }

    /// Whether it is in a group; who has joined none gets what others of the realm have, as long as
    /// IP_MULTICAST_ALL says so.
    fn is_in(&self, group: Ipv4Addr, interface: u32) -> bool {
        let groups = self.groups.lock();
        groups.iter().any(|&(own, index)| own == group && index == interface)
            || self.options.ip(net::IP_MULTICAST_ALL) != 0
    }
}

fn inbox(bytes: u32) -> Result<Inbox, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Inbox::new(bytes).ok_or(Errno::ENOMEM)
}

impl Udp {
    /// What takes the place of a socket of Linux's of the family `domain`, which is bound to that
    /// address if its port is not 0.
    pub fn of(foreign: &Foreign, domain: u32, local: SocketAddrV4) -> Result<Self, Errno> {
        let common = Common::of(foreign, domain)?;
        let mut groups = Vec::new();
        groups.try_reserve_exact(MOST_GROUPS).map_err(|_| Errno::ENOMEM)?;
        let core = Arc::new(Core {
            number: description::number(),
            inbox: SpinLock::new(inbox(common.receive_buffer())?),
            lost: AtomicU32::new(0),
            readers: WaitQueue::new(),
            watchers: Watchers::new(),
            options: Options::of(foreign)?,
            common,
            groups: SpinLock::new(groups),
            is_deaf: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
        });
        core.prepare_errors()?;
        let state =
            State { binding: Binding::new(local), bound: local, has_port: false, is_mute: false };
        let cork = Cork::of(foreign)?;
        let own = Self { core, state: Mutex::new(state), cork, reading: Mutex::new(()) };
        if local.port() != 0 {
            let mut state = own.state.lock();
            own.take_port(&mut state, local)?;
        }
        Ok(own)
    }

    fn options(&self) -> &Options {
        &self.core.options
    }

    fn handle(&self) -> Handle {
        Handle(self.core.clone())
    }

    /// Takes the port of an address, or any if that is 0.
    fn take_port(&self, state: &mut State, local: SocketAddrV4) -> Result<(), Errno> {
        let binding = port::take(&PORTS, local, &self.core.common, self.options(), self.handle())?;
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
            port::let_share(binding, &self.core.common, self.options());
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

    fn wait<T>(
        &self,
        deadline: Option<Nanos>,
        take: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        let queue = &self.core.readers;
        queue.wait_until(deadline, |_| signal::is_interrupted(), take).map_err(
            |error| match error {
                WaitError::Timeout => Errno::EAGAIN,
                WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                WaitError::Interrupted => Errno::RESTART,
            },
        )
    }

    /// Where a datagram goes, and from where, by which interface.
    fn way(
        &self,
        to: Option<&Address>,
        control: &SendControl,
    ) -> Result<(Arc<Link>, SocketAddrV4, SocketAddrV4), Errno> {
        let mut state = self.state.lock();
        if state.is_mute {
            return Err(Errno::EPIPE);
        }
        let to = match to {
            Some(to) => {
                let to = socket_address(to)?;
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
        let mut own = state.binding.local;
        drop(state);
        let (index, source) = control.packet.unwrap_or((0, *own.ip()));
        if control.packet.is_some() {
            if index != 0 && link::by_index(index).is_none() {
                return Err(Errno::ENODEV);
            }
            if !source.is_unspecified() && link::owner(source).is_none() {
                let is_sound = packet::is_unicast(source);
                return Err(if is_sound { Errno::ENETUNREACH } else { Errno::EINVAL });
            }
            own.set_ip(source);
        }
        let link = self.link_to(*to.ip(), *own.ip(), index)?;
        let broadcast = link.is_broadcast(*to.ip());
        if broadcast && !self.core.common.has(net::SO_BROADCAST) {
            return Err(Errno::EACCES);
        }
        let source = match own.ip().is_unspecified() || own.ip().is_multicast() {
            true => link.source(*to.ip()),
            false => *own.ip(),
        };
        Ok((link, SocketAddrV4::new(source, own.port()), to))
    }

    /// The interface by which a packet goes from an address to another one: that with the number
    /// `index` if that is not 0.
    fn link_to(&self, to: Ipv4Addr, own: Ipv4Addr, index: u32) -> Result<Arc<Link>, Errno> {
        let device = match self.options().device() {
            _ if index != 0 => index,
            0 if to.is_multicast() => self.options().group_interface(),
            device => device,
        };
        // Without further word, packets for groups go where the socket is bound.
        let link = link::route(to, device).or_else(|| {
            let is_free = device == 0 && (to.is_multicast() || to.is_broadcast());
            link::owner(own).filter(|_| is_free)
        });
        link.ok_or(Errno::ENETUNREACH)
    }

    /// Sends the packet that lies in a frame; waits for room at the card if need be.
    fn transmit(
        &self,
        link: &Link,
        frame: &mut [u8],
        nonblocking: bool,
        asked: Option<&Asked>,
    ) -> Result<(), Errno> {
        loop {
            match link.send_asked(frame, asked) {
                Err(Errno::ENOBUFS) if nonblocking => return Err(Errno::EAGAIN),
                Err(Errno::ENOBUFS) => link.wait_for_room(self.core.common.send_deadline())?,
                result => return result,
            }
        }
    }

    fn header(
        &self,
        link: &Link,
        (from, to): (Ipv4Addr, Ipv4Addr),
        control: &SendControl,
    ) -> packet::Header {
        let mut header = link.header(Protocol::Udp, from, to);
        let lifetime = if to.is_multicast() { net::IP_MULTICAST_TTL } else { net::IP_TTL };
        let preset = |name| self.options().ip(name) as u8;
        header.lifetime = control.lifetime.unwrap_or_else(|| preset(lifetime));
        header.service = control.service.unwrap_or_else(|| preset(net::IP_TOS));
        header.is_whole = self.options().ip(net::IP_MTU_DISCOVER) != 0;
        header
    }

    /// Sends a datagram that fits into a frame, whose data `fill` writes. Nothing is allocated
    /// unless that is a jumbo frame.
    fn send_whole(
        &self,
        course: &Course,
        length: usize,
        asked: Stamping,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        const BEGIN: usize = ETHERNET + IP;
        let Course { link, from, to, header, nonblocking, .. } = course;
        with_buffer(BEGIN + UDP + length, |frame| {
            fill(&mut frame[BEGIN + UDP..])?;
            let ends = ((*from.ip(), from.port()), (*to.ip(), to.port()));
            packet::write_datagram(&mut frame[BEGIN..], ends.0, ends.1);
            packet::write_header(frame, header, UDP + length);
            self.return_to_group(link, frame, *to.ip());
            let asked = self.core.common.stamping.begin(asked, &self.core);
            self.transmit(link, frame, *nonblocking, asked.as_ref())
        })
    }

    /// Members of a group, and those who hear what is for all, hear it here as well.
    fn return_to_group(&self, link: &Arc<Link>, frame: &[u8], to: Ipv4Addr) {
        let is_heard = match to.is_multicast() {
            true => link.is_in(to) && self.options().ip(net::IP_MULTICAST_LOOP) != 0,
            false => link.is_broadcast(to),
        };
        if let Some(packet) = packet::parse_packet(&frame[ETHERNET..]).filter(|_| is_heard) {
            stack::deliver(link, &packet, Stamp::of_arrival(None));
        }
    }

    /// A datagram for that station is longer than a packet may be: who asked is told how long that
    /// is.
    fn refuse(&self, to: Ipv4Addr, most: u32) {
        if self.core.tells_errors() {
            let port = self.state.lock().binding.remote.map_or(0, |remote| remote.port());
            let (to, cause) = (SocketAddrV4::new(to, port), Cause::TooLong(most));
            let loss = Loss { error: Errno::EMSGSIZE, to, cause };
            self.core.common.errors.push(Entry::Lost(loss), &[]);
            self.core.watchers.notify(Events::ERROR);
        }
    }

    /// Sends a datagram in fragments. It lies in memory of the kernel.
    fn send_fragments(&self, course: &Course, datagram: &mut [u8]) -> Result<(), Errno> {
        let Course { link, from, to, nonblocking, stamping, .. } = course;
        let ends = ((*from.ip(), from.port()), (*to.ip(), to.port()));
        packet::write_datagram(datagram, ends.0, ends.1);
        let mut header = packet::Header { is_whole: false, ..course.header };
        let step = (link.interface.mtu().min(LONGEST - ETHERNET) - IP) & !7;
        let count = datagram.len().div_ceil(step);
        // As under Linux, only the first fragment is reported.
        let mut asked = self.core.common.stamping.begin(*stamping, &self.core);
        with_buffer(ETHERNET + IP + step, |frame| {
            for (at, part) in datagram.chunks(step).enumerate() {
                header.offset = at * step;
                header.has_more = at + 1 < count;
                let frame = &mut frame[..ETHERNET + IP + part.len()];
                frame[ETHERNET + IP..].copy_from_slice(part);
                packet::write_header(frame, &header, part.len());
                self.return_to_group(link, frame, *to.ip());
                self.transmit(link, frame, *nonblocking, asked.take().as_ref())?;
            }
            Ok(())
        })
    }

    /// Sends data as datagrams of so many bytes as were asked for (UDP_SEGMENT).
    fn send_segments(&self, course: &Course, data: &[u8]) -> Result<(), Errno> {
        let mtu = course.link.interface.mtu().min(LONGEST - ETHERNET);
        if IP + UDP + data.len().min(course.segment) > mtu {
            return Err(Errno::EMSGSIZE);
        }
        if data.len() > course.segment * MOST_SEGMENTS || self.core.common.has(net::SO_NO_CHECK) {
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
        let mtu = course.link.interface.mtu().min(LONGEST - ETHERNET);
        if course.segment != 0 && bytes.len() > UDP {
            self.send_segments(course, &bytes[UDP..])?;
        } else if bytes.len() <= mtu - IP {
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(&bytes[UDP..]);
                Ok(())
            };
            self.send_whole(course, bytes.len() - UDP, course.stamping, fill)?;
        } else {
            self.send_fragments(course, bytes)?;
        }
        if course.link.is_own(*course.to.ip()) {
            course.link.bring_back();
        }
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
        self.core.common.check()?;
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

    /// How a datagram goes where it is to go.
    fn course(
        &self,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> Result<Course, Errno> {
        let (link, from, to) = self.way(to, control)?;
        let stamping = self.core.common.stamping_of(control)?;
        let header = self.header(&link, (*from.ip(), *to.ip()), control);
        let segment = control.segment.map_or_else(|| self.cork.segment(), u32::from) as usize;
        Ok(Course { link, from, to, header, nonblocking, stamping, segment })
    }

    /// Fails if so many bytes are too many for a datagram, or for several of one call.
    fn check_length(&self, course: &Course, length: usize) -> Result<(), Errno> {
        let mtu = course.link.interface.mtu().min(LONGEST - ETHERNET);
        // IP_PMTUDISC_DO and _PROBE.
        let is_never_cut = matches!(self.options().ip(net::IP_MTU_DISCOVER), 2 | 3);
        let is_one = is_never_cut && course.segment == 0;
        let most = if is_one { mtu - IP - UDP } else { MOST_DATA };
        if length > most {
            self.refuse(*course.to.ip(), mtu as u32);
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }

    /// The first datagram, or an error that waits to be told.
    fn has_news(&self) -> Option<()> {
        let is_over = self.core.is_deaf.load(Ordering::Relaxed);
        let is_there = self.core.has_some();
        (is_there || is_over || self.core.common.has_failed()).then_some(())
    }

    /// Tells what the program wants to know of a packet, which has to do with the address `own` of
    /// the realm.
    fn tell(&self, told: &mut Told, about: &About, own: Ipv4Addr) {
        let options = self.options();
        let packet = (about.interface, own, about.destination);
        told.packet = (options.ip(net::IP_PKTINFO) != 0).then_some(packet);
        told.lifetime = (options.ip(net::IP_RECVTTL) != 0).then_some(about.lifetime);
        told.service = (options.ip(net::IP_RECVTOS) != 0).then_some(about.service);
    }

    /// What control messages tell of a frame that was sent, if that was asked for, and from where.
    fn about_sent(&self, report: &Report, frame: &[u8]) -> Option<(About, Ipv4Addr)> {
        let is_told = self.core.common.stamping.asked().has(OPT_CMSG) && report.interface != 0;
        let packet = frame.get(ETHERNET..).filter(|_| is_told).and_then(packet::parse_packet)?;
        let about = About {
            source: (packet.source, 0),
            destination: packet.destination,
            interface: report.interface,
            lifetime: packet.lifetime,
            service: packet.service,
            ..About::default()
        };
        Some((about, packet.source))
    }

    /// Copies a datagram to the program.
    fn copy(
        &self,
        datagram: &Buffer,
        memory: &mut Memory,
        how: Reception,
    ) -> Result<Received, Errno> {
        let length = datagram.length();
        let room = (memory.left() as usize).min(length);
        if datagram.read(room, |part| memory.write(part)) < room {
            return Err(Errno::EFAULT);
        }
        let about = datagram.about();
        let (source, port) = about.source;
        let stamp = Stamp { software: Nanos(about.stamp), hardware: about.hardware.map(Nanos) };
        let mut told = self.core.common.told(stamp, about.lost);
        let link = link::by_index(about.interface);
        let own = match &link {
            Some(link) if !link.is_own(about.destination) => link.source(source),
            _ => about.destination,
        };
        self.tell(&mut told, about, own);
        if self.options().ip(net::IP_RECVORIGDSTADDR) != 0 {
            let port = self.state.lock().binding.local.port();
            let to = address_of(SocketAddrV4::new(about.destination, port));
            told.more = Some(More::new(net::SOL_IP, net::IP_ORIGDSTADDR, to.bytes()));
        }
        Ok(Received {
            length: if how.tells_length { length } else { room } as u64,
            flags: if room < length { net::MSG_TRUNC } else { 0 },
            from: address_of(SocketAddrV4::new(source, port)),
            told,
        })
    }

    /// Changes the room for datagrams that wait. May sleep.
    fn resize(&self) -> Result<(), Errno> {
        let mut old = inbox(self.core.common.receive_buffer())?;
        core::mem::swap(&mut *self.core.inbox.lock(), &mut old);
        while let Some(datagram) = old.pop() {
            // What finds no room is lost.
            let unused = self.core.inbox.lock().adopt(datagram);
            drop(unused);
        }
        // Who has looked meanwhile may have found nothing.
        if self.core.has_some() {
            self.core.readers.wake(1);
            self.core.watchers.notify(Events::IN | Events::READ_NORMAL);
        }
        Ok(())
    }

    fn join(&self, (group, index): (Ipv4Addr, u32)) -> Result<(), Errno> {
        let link = link::by_index(index).ok_or(Errno::ENODEV)?;
        {
            let mut groups = self.core.groups.lock();
            if groups.contains(&(group, index)) {
                return Err(Errno::EADDRINUSE);
            }
            if groups.len() >= MOST_GROUPS {
                return Err(Errno::ENOBUFS);
            }
            groups.push((group, index));
        }
        link.join(group).inspect_err(|_| {
            self.core.groups.lock().retain(|&own| own != (group, index));
        })
    }

    fn leave(&self, (group, index): (Ipv4Addr, u32)) -> Result<(), Errno> {
        let at = {
            let mut groups = self.core.groups.lock();
            let at = groups.iter().position(|&own| own == (group, index));
            at.map(|at| groups.swap_remove(at))
        };
        at.ok_or(Errno::EADDRNOTAVAIL)?;
        if let Some(link) = link::by_index(index) {
            link.leave(group);
        }
        Ok(())
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
        let ip = *local.ip();
        if !(ip.is_unspecified() || ip.is_multicast()) {
            let link = link::find(|link| link.is_own(ip) || link.is_broadcast(ip));
            let link = link.ok_or(Errno::EADDRNOTAVAIL)?;
            link.interface.attend();
        }
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
        let to = socket_address(address)?;
        let link = self.link_to(*to.ip(), *state.binding.local.ip(), 0)?;
        if link.is_broadcast(*to.ip()) && !self.core.common.has(net::SO_BROADCAST) {
            return Err(Errno::EACCES);
        }
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
        if how > net::SHUT_RDWR {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        let is_connected = state.binding.remote.is_some();
        state.is_mute |= how != net::SHUT_RD;
        if how != net::SHUT_WR {
            self.core.is_deaf.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.core.readers.wake_all();
        self.core.watchers.notify(Events::IN | Events::READ_HANG_UP | Events::HANG_UP);
        // As under Linux, those who wait hear of it all the same.
        if is_connected { Ok(()) } else { Err(Errno::ENOTCONN) }
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        let binding = self.state.lock().binding;
        match of_peer {
            true => binding.remote.map(address_of).ok_or(Errno::ENOTCONN),
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
        self.core.common.check()?;
        self.check_length(&course, length as usize)?;
        let mtu = course.link.interface.mtu().min(LONGEST - ETHERNET);
        if course.segment != 0 || length as usize > mtu - IP - UDP {
            let mut pending = Pending::new(course)?;
            pending.add(memory)?;
            self.send_pending(pending)?;
            return Ok(length);
        }
        self.send_whole(&course, length as usize, course.stamping, |to| {
            if memory.read(to) < to.len() { Err(Errno::EFAULT) } else { Ok(()) }
        })?;
        if course.link.is_own(*course.to.ip()) {
            course.link.bring_back();
        }
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
        // Of all waits of this call, from the first one on.
        let mut deadline = None;
        loop {
            if self.has_news().is_none() {
                if how.nonblocking {
                    return Err(Errno::EAGAIN);
                }
                let until = *deadline.get_or_insert_with(|| self.core.common.receive_deadline());
                self.wait(until, || self.has_news())?;
            }
            self.core.common.check()?;
            let reading = self.reading.lock();
            let first = {
                let mut inbox = self.core.inbox.lock();
                let first = inbox.pop();
                self.core.is_looked_at.store(how.peeks && first.is_some(), Ordering::Relaxed);
                first
            };
            let Some(datagram) = first else {
                drop(reading);
                match self.core.is_deaf.load(Ordering::Relaxed) {
                    true => return Ok(Received::default()),
                    false => continue,
                }
            };
            let result = self.copy(&datagram, memory, how);
            {
                let mut inbox = self.core.inbox.lock();
                self.core.is_looked_at.store(false, Ordering::Relaxed);
                match how.peeks {
                    true => inbox.put_first(datagram),
                    false => inbox.give_back(datagram),
                }
            }
            drop(reading);
            if self.core.has_some() {
                self.core.readers.wake(1);
            }
            return result;
        }
    }

    fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        let length = self.core.common.errors.next_length().max(USUAL);
        with_buffer(length, |buffer| {
            let Taken { mut received, entry, bytes, .. } =
                self.core.common.receive_report(memory, buffer)?;
            // What is known of the packet that came or was sent, and the address of the realm.
            let about = match &entry {
                Entry::Sent(report) => self.about_sent(report, bytes),
                Entry::Lost(Loss { to, cause, .. }) => {
                    received.from = address_of(*to);
                    match cause {
                        // Linux does not know there which address of its own that is about.
                        Cause::Icmp(message) => Some((message.about, Ipv4Addr::UNSPECIFIED)),
                        Cause::TooLong(_) => None,
                    }
                }
            };
            // The error, and the address of who has told it.
            let mut told = [0; 32];
            told[..16].copy_from_slice(&entry.extended());
            if let Some((about, own)) = about {
                let source = SocketAddrV4::new(about.source.0, 0);
                told[16..].copy_from_slice(address_of(source).bytes());
                self.tell(&mut received.told, &about, own);
            }
            received.told.more = Some(More::new(net::SOL_IP, net::IP_RECVERR, &told));
            Ok(received)
        })
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        if let Some(value) = self.options().get(level, name) {
            return Ok(value);
        }
        match (level, name) {
            (net::SOL_IP, net::IP_MTU) => {
                let remote = self.state.lock().binding.remote.ok_or(Errno::ENOTCONN)?;
                let link = link::route(*remote.ip(), self.options().device());
                let mtu = link.ok_or(Errno::ENOTCONN)?.interface.mtu() as u32;
                Ok(mtu.to_ne_bytes().to_vec())
            }
            (net::SOL_SOCKET, _) => self.core.common.get(name),
            (SOL_UDP, _) => Ok(self.cork.get(name)?.to_ne_bytes().to_vec()),
            (net::SOL_IP, _) => Err(Errno::ENOPROTOOPT),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        if let Some(result) = self.options().set(level, name, value) {
            self.renew_binding();
            if (level, name) == (net::SOL_IP, net::IP_RECVERR) && !self.core.tells_errors() {
                self.core.common.errors.clear();
            }
            return result.and(self.core.prepare_errors());
        }
        match (level, name) {
            (net::SOL_IP, net::IP_ADD_MEMBERSHIP) => self.join(options::membership(value)?),
            (net::SOL_IP, net::IP_DROP_MEMBERSHIP) => self.leave(options::membership(value)?),
            (net::SOL_IP, net::MCAST_JOIN_GROUP) => self.join(options::group_request(value)?),
            (net::SOL_IP, net::MCAST_LEAVE_GROUP) => self.leave(options::group_request(value)?),
            (net::SOL_SOCKET, _) => {
                self.core.common.set(name, value)?;
                self.core.prepare_errors()?;
                match name {
                    net::SO_RCVBUF | net::SO_RCVBUFFORCE => self.resize(),
                    net::SO_REUSEADDR => {
                        self.renew_binding();
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            (SOL_UDP, _) => {
                self.cork.set(name, value)?;
                if name == UDP_CORK && !self.cork.is_on() {
                    self.uncork();
                }
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        match request {
            ioctl::FIONREAD => {
                let length = self.core.inbox.lock().first().map_or(0, Buffer::length);
                user::write_u32(argument, length as u32)?;
                Ok(0)
            }
            // Nothing waits here to be sent.
            ioctl::TIOCOUTQ => user::write_u32(argument, 0).map(|()| 0).map_err(Errno::from),
            _ => self
                .core
                .common
                .asked(request, argument)
                .unwrap_or_else(|| super::ioctl(request, argument)),
        }
    }

    fn interface(&self) -> Option<u32> {
        let local = *self.state.lock().binding.local.ip();
        let own = link::owner(local).map(|link| link.interface.index());
        own.or(Some(self.options().device()).filter(|&index| index != 0))
    }

    fn ready(&self) -> Events {
        let mut events = Events::OUT | Events::WRITE_NORMAL | Events::WRITE_BAND;
        let is_deaf = self.core.is_deaf.load(Ordering::Relaxed);
        let readable = is_deaf || self.core.has_some();
        events.set(Events::IN | Events::READ_NORMAL, readable);
        events.set(Events::READ_HANG_UP, is_deaf);
        events |= self.core.common.failures();
        events.set(Events::HANG_UP, is_deaf && self.state.lock().is_mute);
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.core.watchers
    }

    fn number(&self) -> u64 {
        self.core.number
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.leave_port(&self.state.lock());
        let groups = core::mem::take(&mut *self.core.groups.lock());
        for (group, index) in groups {
            if let Some(link) = link::by_index(index) {
                link.leave(group);
            }
        }
    }
}
