// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sockets of datagrams have in common: those of UDP, and those of raw packets. What comes
//! waits in an inbox; what is sent is a packet with the data of one call.

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
    packet::{self, ETHERNET, IP, Protocol, USUAL},
};
use crtos_nic::{
    filter::Frame,
    stamping::{OPT_CMSG, Report, Stamping},
};
use linux_raw_sys::{ioctl, net};

use super::{
    address_of,
    icmp::meaning,
    link::{self, Link},
    options::{self, Options},
    stack,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers, description,
        socket::{Foreign, More, Received, Reception, SendControl, Told},
    },
    memory::user,
    signal,
    sockets::{
        common::Common,
        error_queue::{Cause, Entry, Loss, Message, Taken},
        filter::{self, Filter},
        net::{
            buffer::with_buffer,
            interface::{Asked, Reporter, Stamp},
        },
        room,
    },
};

/// Most groups of a socket (net.ipv4.igmp_max_memberships).
const MOST_GROUPS: usize = 20;

/// What came, as a socket has it.
#[derive(Clone, Copy)]
pub struct Came<'a> {
    /// The header of a packet, which is whole.
    pub header: &'a [u8],
    /// What is behind it.
    pub payload: &'a [u8],
    /// Bytes, from the header on, that a filter does not see.
    pub hidden: usize,
    /// The same that the program does not get: as many, or more.
    pub skipped: usize,
}

impl<'a> Came<'a> {
    /// The same as a filter has it.
    fn frame(&self, about: &About) -> Frame<'a> {
        /// For whom it is (PACKET_*), and the protocol of IP (ETH_P_IP).
        const HOST: u8 = 0;
        const BROADCAST: u8 = 1;
        const GROUP: u8 = 2;
        const PROTOCOL: u16 = 0x0800;
        let is_own = || link::owner(about.destination).is_some();
        let kind = match about.destination {
            to if to.is_multicast() => GROUP,
            _ if is_own() => HOST,
            _ => BROADCAST,
        };
        Frame {
            bytes: self.header,
            more: self.payload,
            start: self.hidden,
            header: 0,
            protocol: PROTOCOL,
            kind,
            interface: about.interface,
        }
    }

    /// What the program gets of it, one behind the other, if a filter wants that many bytes of what
    /// it has seen. As under Linux, there are never fewer than are skipped.
    fn parts(&self, wanted: usize) -> [&'a [u8]; 2] {
        let (in_header, in_payload) = match self.skipped.checked_sub(self.header.len()) {
            None => (self.skipped, 0),
            Some(further) => (self.header.len(), further),
        };
        let [first, second] = [&self.header[in_header..], &self.payload[in_payload..]];
        let wanted = wanted.saturating_sub(self.skipped - self.hidden);
        let in_first = first.len().min(wanted);
        let in_second = second.len().min(wanted - in_first);
        [&first[..in_first], &second[..in_second]]
    }
}

/// What threads of drivers reach of a socket of datagrams.
pub struct Endpoint {
    /// Its inode number.
    pub number: u64,
    inbox: SpinLock<Inbox>,
    lost: AtomicU32,
    readers: WaitQueue,
    /// Who is told of changes.
    pub watchers: Watchers,
    /// Its options of SOL_SOCKET.
    pub common: Common,
    /// Its options of SOL_IP.
    pub options: Options,
    filter: Filter,
    groups: SpinLock<Vec<(Ipv4Addr, u32)>>,
    /// Nothing is received any more (shutdown).
    is_deaf: AtomicBool,
    /// Somebody looks at the first datagram, which then is not in the inbox (MSG_PEEK).
    is_looked_at: AtomicBool,
    /// Held while a datagram is copied to a program, so that they stay in order.
    reading: Mutex<()>,
}

impl Reporter for Endpoint {
    fn report(&self, report: &Report, frame: &[u8]) {
        self.common.errors.push(Entry::Sent(*report), frame);
        self.watchers.notify(Events::ERROR | Events::PRIORITY);
    }
}

/// An inbox for so many bytes, with places for what waits already.
fn inbox(bytes: u32, others: usize) -> Result<Inbox, Errno> {
    Inbox::for_others(bytes, others, heap::has_reserve).ok_or(Errno::ENOMEM)
}

impl Endpoint {
    /// That of what takes the place of a socket of Linux's of the family `domain`.
    pub fn of(foreign: &Foreign, domain: u32) -> Result<Self, Errno> {
        let common = Common::of(foreign, domain)?;
        let mut groups = Vec::new();
        groups.try_reserve_exact(MOST_GROUPS).map_err(|_| Errno::ENOMEM)?;
        let own = Self {
            number: description::number(),
            inbox: SpinLock::new(inbox(common.receive_buffer(), 0)?),
            lost: AtomicU32::new(0),
            readers: WaitQueue::new(),
            watchers: Watchers::new(),
            options: Options::of(foreign)?,
            common,
            filter: Filter::new(filter::of(foreign)?),
            groups: SpinLock::new(groups),
            is_deaf: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
            reading: Mutex::new(()),
        };
        own.prepare_errors()?;
        Ok(own)
    }

    /// Takes what came, as far as its filter wants that. Thread context.
    pub fn hear(&self, about: About, came: &Came) {
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        let parts = match self.filter.run(|| came.frame(&about)) {
            0 => {
                // As under Linux, a datagram counts as lost.
                let is_counted = self.common.is_of_udp();
                self.lost.fetch_add(is_counted.into(), Ordering::Relaxed);
                return;
            }
            wanted => came.parts(wanted),
        };
        let length = parts[0].len() + parts[1].len();
        let room = self.inbox.lock().take_room(length);
        let Some(mut datagram) = room else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let lost = self.lost.load(Ordering::Relaxed);
        datagram.fill(About { lost, ..about }, parts);
        let refused = self.inbox.lock().put(datagram);
        drop(refused);
        self.readers.wake(1);
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    /// Whether a datagram waits.
    fn has_some(&self) -> bool {
        let inbox = self.inbox.lock();
        !inbox.is_empty() || self.is_looked_at.load(Ordering::Relaxed)
    }

    /// Whether the program wants to know what did not arrive.
    pub fn tells_errors(&self) -> bool {
        self.options.ip(net::IP_RECVERR) != 0
    }

    /// Sees to it that there is memory for all that is to be told. May sleep.
    fn prepare_errors(&self) -> Result<(), Errno> {
        match self.tells_errors() {
            true => self.common.errors.prepare(self.common.receive_buffer()),
            false => self.common.prepare_reports(),
        }
    }

    /// The next call fails with that error. Thread context.
    pub fn fail(&self, error: Errno) {
        self.common.fail(error);
        self.readers.wake_all();
        self.watchers.notify(Events::ERROR | Events::IN | Events::OUT);
    }

    /// What it has sent to `to` did not arrive, of whose data that is the beginning: it is told, if
    /// it has asked for that, or as `is_connected` says talks to that one alone. Thread context.
    pub fn report(
        &self,
        to: SocketAddrV4,
        message: Message,
        data: &[u8],
        is_connected: impl FnOnce() -> bool,
    ) {
        let (error, is_hard) = meaning(&message.why);
        let may_be_cut = self.options.ip(net::IP_MTU_DISCOVER) == net::IP_PMTUDISC_DONT;
        if error == Errno::EMSGSIZE && may_be_cut {
            return;
        }
        if self.tells_errors() {
            let loss = Loss { error, to, cause: Cause::Icmp(message) };
            self.common.errors.push(Entry::Lost(loss), data);
        } else if !is_hard || !is_connected() {
            return;
        }
        self.fail(error);
    }

    /// Something for `to` is longer than a packet may be: who asked is told how long that is.
    pub fn refuse(&self, to: SocketAddrV4, most: u32) {
        if self.tells_errors() {
            let loss = Loss { error: Errno::EMSGSIZE, to, cause: Cause::TooLong(most) };
            self.common.errors.push(Entry::Lost(loss), &[]);
            self.watchers.notify(Events::ERROR);
        }
    }

    /// Whether it is in a group; who has joined none gets what others of the realm have, as long as
    /// IP_MULTICAST_ALL says so.
    pub fn is_in(&self, group: Ipv4Addr, interface: u32) -> bool {
        let groups = self.groups.lock();
        groups.iter().any(|&(own, index)| own == group && index == interface)
            || self.options.ip(net::IP_MULTICAST_ALL) != 0
    }

    /// shutdown(2): perhaps nothing is received any more, and who waits looks again. `mute` notes
    /// whether nothing is sent any more, and tells whether the socket is connected: otherwise this
    /// fails.
    pub fn shut_down(&self, how: u32, mute: impl FnOnce(bool) -> bool) -> Result<(), Errno> {
        if how > net::SHUT_RDWR {
            return Err(Errno::EINVAL);
        }
        let is_connected = mute(how != net::SHUT_RD);
        if how != net::SHUT_WR {
            self.is_deaf.store(true, Ordering::Relaxed);
        }
        self.readers.wake_all();
        self.watchers.notify(Events::IN | Events::READ_HANG_UP | Events::HANG_UP);
        // As under Linux, who waits is woken nevertheless.
        if is_connected { Ok(()) } else { Err(Errno::ENOTCONN) }
    }

    /// Whether nothing is received any more.
    fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    fn wait<T>(
        &self,
        deadline: Option<Nanos>,
        take: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        let queue = &self.readers;
        queue.wait_until(deadline, |_| signal::is_interrupted(), take).map_err(
            |error| match error {
                WaitError::Timeout => Errno::EAGAIN,
                WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                WaitError::Interrupted => Errno::RESTART,
            },
        )
    }

    /// Whom the program means by an address; `own` is what the socket is bound to.
    pub fn meant(&self, to: Ipv4Addr, own: Ipv4Addr) -> Ipv4Addr {
        link::meant(to, own, self.options.device())
    }

    /// The interface by which a packet goes from an address to another one: that with the number
    /// `index` if that is not 0.
    pub fn link_to(&self, to: Ipv4Addr, own: Ipv4Addr, index: u32) -> Result<Arc<Link>, Errno> {
        let device = match self.options.device() {
            _ if index != 0 => index,
            0 if to.is_multicast() => self.options.group_interface(),
            device => device,
        };
        // Without further word, packets for groups go where the socket is bound.
        let link = link::route(to, device).or_else(|| {
            let is_free = device == 0 && (to.is_multicast() || to.is_broadcast());
            link::owner(own).filter(|_| is_free)
        });
        let link = link.ok_or(Errno::ENETUNREACH)?;
        if link.is_broadcast(to) && !self.common.has(net::SO_BROADCAST) {
            return Err(Errno::EACCES);
        }
        Ok(link)
    }

    /// The interface by which a packet goes to an address, the address from which, as control
    /// messages say, and the one that is meant; `own` is what the socket is bound to.
    pub fn way(
        &self,
        to: Ipv4Addr,
        own: Ipv4Addr,
        control: &SendControl,
    ) -> Result<(Arc<Link>, Ipv4Addr, Ipv4Addr), Errno> {
        let (index, own) = match control.packet {
            None => (0, own),
            Some((index, source)) => {
                if index != 0 && link::by_index(index).is_none() {
                    return Err(Errno::ENODEV);
                }
                if !source.is_unspecified() && link::owner(source).is_none() {
                    let is_sound = packet::is_unicast(source);
                    return Err(if is_sound { Errno::ENETUNREACH } else { Errno::EINVAL });
                }
                (index, source)
            }
        };
        let to = self.meant(to, own);
        let link = self.link_to(to, own, index)?;
        let source = match own.is_unspecified() || own.is_multicast() {
            true => link.source(to),
            false => own,
        };
        Ok((link, source, to))
    }

    /// The header of a packet of that protocol.
    pub fn header(
        &self,
        link: &Link,
        protocol: Protocol,
        (from, to): (Ipv4Addr, Ipv4Addr),
        control: &SendControl,
    ) -> packet::Header {
        let mut header = link.header(protocol, from, to);
        let lifetime = if to.is_multicast() { net::IP_MULTICAST_TTL } else { net::IP_TTL };
        let preset = |name| self.options.ip(name) as u8;
        header.lifetime = control.lifetime.unwrap_or_else(|| preset(lifetime));
        header.service = control.service.unwrap_or_else(|| preset(net::IP_TOS));
        header.is_whole = self.options.ip(net::IP_MTU_DISCOVER) != 0;
        header
    }

    /// Whether what it sends may not be cut (IP_PMTUDISC_DO and _PROBE).
    pub fn is_never_cut(&self) -> bool {
        matches!(self.options.ip(net::IP_MTU_DISCOVER), 2 | 3)
    }

    /// Sends the packet that lies in a frame; waits for room at the card if need be.
    pub fn transmit(
        self: &Arc<Self>,
        link: &Arc<Link>,
        frame: &mut [u8],
        nonblocking: bool,
        stamping: Stamping,
    ) -> Result<(), Errno> {
        let asked = self.common.stamping.begin(stamping, self);
        self.transmit_asked(link, frame, nonblocking, asked.as_ref())
    }

    fn transmit_asked(
        &self,
        link: &Arc<Link>,
        frame: &mut [u8],
        nonblocking: bool,
        asked: Option<&Asked>,
    ) -> Result<(), Errno> {
        self.return_to_group(link, frame);
        loop {
            match link.send_asked(frame, asked) {
                Err(Errno::ENOBUFS) if nonblocking => return Err(Errno::EAGAIN),
                Err(Errno::ENOBUFS) => link.wait_for_room(self.common.send_deadline())?,
                result => return result,
            }
        }
    }

    /// Members of a group, and those who hear what is for all, hear it here as well.
    fn return_to_group(&self, link: &Arc<Link>, frame: &[u8]) {
        let Some(to) = packet::destination(frame) else { return };
        let is_heard = match to.is_multicast() {
            true => link.is_in(to) && self.options.ip(net::IP_MULTICAST_LOOP) != 0,
            false => link.is_broadcast(to),
        };
        if is_heard && let Some(packet) = packet::parse_packet(&frame[ETHERNET..]) {
            stack::deliver(link, &packet, Stamp::of_arrival(None));
        }
    }

    /// Sends a packet that fits into a frame, whose `length` bytes behind the header `fill` writes.
    /// Nothing is allocated unless that is a jumbo frame.
    pub fn send_whole(
        self: &Arc<Self>,
        link: &Arc<Link>,
        header: &packet::Header,
        length: usize,
        (nonblocking, stamping): (bool, Stamping),
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        const BEGIN: usize = ETHERNET + IP;
        with_buffer(BEGIN + length, |frame| {
            fill(&mut frame[BEGIN..])?;
            packet::write_header(frame, header, length);
            self.transmit(link, frame, nonblocking, stamping)
        })
    }

    /// Sends what is in a packet in fragments. It lies in memory of the kernel.
    pub fn send_fragments(
        self: &Arc<Self>,
        link: &Arc<Link>,
        header: &packet::Header,
        payload: &[u8],
        (nonblocking, stamping): (bool, Stamping),
    ) -> Result<(), Errno> {
        // As under Linux, only the first fragment is reported.
        let mut asked = self.common.stamping.begin(stamping, self);
        link.send_parts(header, payload, |frame| {
            self.transmit_asked(link, frame, nonblocking, asked.take().as_ref())
        })
    }

    /// The first datagram, or an error that waits to be told.
    fn has_news(&self) -> Option<()> {
        (self.has_some() || self.is_deaf() || self.common.has_failed()).then_some(())
    }

    /// Hands a datagram to the program, or waits for one; `more` says what the socket tells besides
    /// of one.
    pub fn receive(
        &self,
        memory: &mut Memory,
        how: Reception,
        more: impl Fn(&About) -> Option<More>,
    ) -> Result<Received, Errno> {
        // Of all waits of this call, from the first one on.
        let mut deadline = None;
        loop {
            if self.has_news().is_none() {
                if how.nonblocking {
                    return Err(Errno::EAGAIN);
                }
                let until = *deadline.get_or_insert_with(|| self.common.receive_deadline());
                self.wait(until, || self.has_news())?;
            }
            self.common.check()?;
            let reading = self.reading.lock();
            let first = {
                let mut inbox = self.inbox.lock();
                let first = inbox.pop();
                self.is_looked_at.store(how.peeks && first.is_some(), Ordering::Relaxed);
                first
            };
            let Some(datagram) = first else {
                drop(reading);
                match self.is_deaf() {
                    true => return Ok(Received::default()),
                    false => continue,
                }
            };
            let result = self.copy(&datagram, memory, how, &more);
            let surplus = {
                let mut inbox = self.inbox.lock();
                self.is_looked_at.store(false, Ordering::Relaxed);
                match how.peeks {
                    true => {
                        inbox.put_first(datagram);
                        None
                    }
                    false => inbox.give_back(datagram),
                }
            };
            drop(surplus);
            drop(reading);
            if self.has_some() {
                self.readers.wake(1);
            }
            return result;
        }
    }

    /// Copies a datagram to the program.
    fn copy(
        &self,
        datagram: &Buffer,
        memory: &mut Memory,
        how: Reception,
        more: impl Fn(&About) -> Option<More>,
    ) -> Result<Received, Errno> {
        let length = datagram.length();
        let room = (memory.left() as usize).min(length);
        if datagram.read(room, |part| memory.write(part)) < room {
            return Err(Errno::EFAULT);
        }
        let about = datagram.about();
        let (source, port) = about.source;
        let stamp = Stamp { software: Nanos(about.stamp), hardware: about.hardware.map(Nanos) };
        let mut told = self.common.told(stamp, about.lost);
        let link = link::by_index(about.interface);
        let own = match &link {
            Some(link) if !link.is_own(about.destination) => link.source(source),
            _ => about.destination,
        };
        self.tell(&mut told, about, own);
        told.more = more(about);
        Ok(Received {
            length: if how.tells_length { length } else { room } as u64,
            flags: if room < length { net::MSG_TRUNC } else { 0 },
            from: address_of(SocketAddrV4::new(source, port)),
            told,
        })
    }

    /// Tells what the program wants to know of a packet, which has to do with the address `own` of
    /// the realm.
    fn tell(&self, told: &mut Told, about: &About, own: Ipv4Addr) {
        let options = &self.options;
        let packet = (about.interface, own, about.destination);
        told.packet = (options.ip(net::IP_PKTINFO) != 0).then_some(packet);
        told.lifetime = (options.ip(net::IP_RECVTTL) != 0).then_some(about.lifetime);
        told.service = (options.ip(net::IP_RECVTOS) != 0).then_some(about.service);
    }

    /// What control messages tell of a frame that was sent, if that was asked for, and from where.
    fn about_sent(&self, report: &Report, frame: &[u8]) -> Option<(About, Ipv4Addr)> {
        let is_told = self.common.stamping.asked().has(OPT_CMSG) && report.interface != 0;
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

    /// Hands what was told first to the program (MSG_ERRQUEUE).
    pub fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        let length = self.common.errors.next_length().max(USUAL);
        with_buffer(length, |buffer| {
            let Taken { mut received, entry, bytes, .. } =
                self.common.receive_report(memory, buffer)?;
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

    /// Changes the room for datagrams that wait. As under Linux, what waits stays. May sleep.
    fn resize(&self) -> Result<(), Errno> {
        let make = |others| inbox(self.common.receive_buffer(), others);
        room::change(&self.inbox, Inbox::len, make, Inbox::take_all)
    }

    fn join(&self, (group, index): (Ipv4Addr, u32)) -> Result<(), Errno> {
        let link = link::by_index(index).ok_or(Errno::ENODEV)?;
        {
            let mut groups = self.groups.lock();
            if groups.contains(&(group, index)) {
                return Err(Errno::EADDRINUSE);
            }
            if groups.len() >= MOST_GROUPS {
                return Err(Errno::ENOBUFS);
            }
            groups.push((group, index));
        }
        link.join(group).inspect_err(|_| {
            self.groups.lock().retain(|&own| own != (group, index));
        })
    }

    fn leave(&self, (group, index): (Ipv4Addr, u32)) -> Result<(), Errno> {
        let at = {
            let mut groups = self.groups.lock();
            let at = groups.iter().position(|&own| own == (group, index));
            at.map(|at| groups.swap_remove(at))
        };
        at.ok_or(Errno::EADDRNOTAVAIL)?;
        if let Some(link) = link::by_index(index) {
            link.leave(group);
        }
        Ok(())
    }

    /// The program has the socket no more: it leaves its groups. Thread context; may sleep.
    pub fn close(&self) {
        let groups = core::mem::take(&mut *self.groups.lock());
        for (group, index) in groups {
            if let Some(link) = link::by_index(index) {
                link.leave(group);
            }
        }
    }

    /// getsockopt(2) of SOL_SOCKET and SOL_IP, of one that talks to `remote`.
    pub fn option(
        &self,
        level: u32,
        name: u32,
        remote: Option<Ipv4Addr>,
    ) -> Result<Vec<u8>, Errno> {
        if let Some(value) = self.options.get(level, name) {
            return Ok(value);
        }
        match (level, name) {
            (net::SOL_IP, net::IP_MTU) => {
                let remote = remote.ok_or(Errno::ENOTCONN)?;
                let link = link::route(remote, self.options.device());
                let mtu = link.ok_or(Errno::ENOTCONN)?.interface.mtu() as u32;
                Ok(mtu.to_ne_bytes().to_vec())
            }
            (net::SOL_SOCKET, _) => self.common.get(name),
            (net::SOL_IP, _) => Err(Errno::ENOPROTOOPT),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// setsockopt(2) of SOL_SOCKET and SOL_IP. What the socket is bound to may follow the options:
    /// says whether it is to look.
    pub fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<bool, Errno> {
        if let Some(result) = self.options.set(level, name, value) {
            if (level, name) == (net::SOL_IP, net::IP_RECVERR) && !self.tells_errors() {
                self.common.errors.clear();
            }
            return result.and(self.prepare_errors()).map(|()| true);
        }
        match (level, name) {
            (net::SOL_IP, net::IP_ADD_MEMBERSHIP) => self.join(options::membership(value)?),
            (net::SOL_IP, net::IP_DROP_MEMBERSHIP) => self.leave(options::membership(value)?),
            (net::SOL_IP, net::MCAST_JOIN_GROUP) => self.join(options::group_request(value)?),
            (net::SOL_IP, net::MCAST_LEAVE_GROUP) => self.leave(options::group_request(value)?),
            (net::SOL_SOCKET, _) => {
                let set = |program| self.filter.set(program);
                if let Some(done) = filter::set_option(&self.common, name, value, set) {
                    return done.map(|()| false);
                }
                self.common.set(name, value)?;
                self.prepare_errors()?;
                match name {
                    net::SO_RCVBUF | net::SO_RCVBUFFORCE => self.resize(),
                    net::SO_REUSEADDR => return Ok(true),
                    _ => Ok(()),
                }
            }
            _ => Err(Errno::ENOPROTOOPT),
        }?;
        Ok(false)
    }

    /// Its filter, as it was given; empty if it has none.
    pub fn filter(&self) -> Vec<u8> {
        self.filter.get().map_or_else(Vec::new, |program| program.to_bytes())
    }

    /// ioctl(2).
    pub fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        match request {
            ioctl::FIONREAD => {
                let length = self.inbox.lock().first().map_or(0, Buffer::length);
                user::write_u32(argument, length as u32)?;
                Ok(0)
            }
            // Nothing waits here to be sent.
            ioctl::TIOCOUTQ => user::write_u32(argument, 0).map(|()| 0).map_err(Errno::from),
            _ => self.common.asked(request, argument).unwrap_or(Err(Errno::ENOTTY)),
        }
    }

    /// The number of the interface that one bound to that address has to do with.
    pub fn interface(&self, local: Ipv4Addr) -> Option<u32> {
        let own = link::owner(local).map(|link| link.interface.index());
        own.or(Some(self.options.device()).filter(|&index| index != 0))
    }

    /// What it is ready for; `is_mute`: nothing is sent any more.
    pub fn ready(&self, is_mute: impl FnOnce() -> bool) -> Events {
        let mut events = Events::OUT | Events::WRITE_NORMAL | Events::WRITE_BAND;
        let is_deaf = self.is_deaf();
        let readable = is_deaf || self.has_some();
        events.set(Events::IN | Events::READ_NORMAL, readable);
        events.set(Events::READ_HANG_UP, is_deaf);
        events |= self.common.failures();
        events.set(Events::HANG_UP, is_deaf && is_mute());
        events
    }
}
