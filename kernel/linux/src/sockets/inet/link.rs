// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an interface of the realm is to this family: addresses, neighbours, groups, and the way of
//! a packet out of it.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::{AtomicU16, Ordering};

use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::Mutex,
    time::{self, Nanos},
};
use crtos_inet::{
    answers::Answers,
    inbox::About,
    kept::{Kept, Room},
    neighbors::{Due, Known, Neighbors},
    packet::{self, ETHERNET, Header, IGMP, IP, LIFETIME, LONGEST, Protocol, Station, USUAL},
    reassembly::Reassembly,
};

use super::{clock, raw, stack};
use crate::{
    abi::Errno,
    sockets::{
        error_queue::Message,
        net::{
            buffer::with_buffer,
            interface::{self, Asked, Interface, Reception, Stamp},
        },
    },
};

/// An address of an interface.
#[derive(Clone, Copy)]
pub struct Own {
    /// The address.
    pub address: Ipv4Addr,
    mask: u32,
}

impl Own {
    fn has(&self, other: Ipv4Addr) -> bool {
        (u32::from(other) ^ u32::from(self.address)) & self.mask == 0
    }

    /// The address of all stations of its network. Networks of one or two stations have none.
    fn broadcast(&self) -> Option<Ipv4Addr> {
        let hosts = !self.mask;
        (hosts > 1).then(|| Ipv4Addr::from(u32::from(self.address) | hosts))
    }
}

/// Most groups that sockets of an interface are in.
const MOST_GROUPS: usize = 32;
/// Most frames that wait to come back to where they were sent.
const MOST_RETURNING: usize = 64;
/// Answers to packets that nobody wanted: so many at once, and one each millisecond.
const ANSWERS: (u64, u64) = (50, 1_000_000);
/// Answers to who asks for the groups here: those of all groups twice, and one in 10 ms.
const REPORTS: (u64, u64) = (2 * MOST_GROUPS as u64, 10_000_000);

/// Frames that come back.
struct Returns {
    waiting: VecDeque<Kept>,
    room: Room,
}

/// Whether there is memory to keep a frame.
fn may_keep(frame: &[u8]) -> bool {
    frame.len() <= USUAL || heap::has_reserve()
}

/// An interface.
pub struct Link {
    /// It.
    pub interface: Arc<dyn Interface>,
    /// Its addresses.
    pub own: Vec<Own>,
    /// With what is to be reported of frames that wait.
    neighbors: Mutex<Neighbors<Option<Asked>>>,
    pub(super) reassembly: Mutex<Reassembly>,
    /// Groups, and how many sockets are in each.
    groups: SpinLock<[(Ipv4Addr, u32); MOST_GROUPS]>,
    returns: SpinLock<Returns>,
    number: AtomicU16,
    answers: Answers,
    reports: Answers,
}

/// All of them.
static LINKS: SpinLock<[Option<Arc<Link>>; interface::MOST]> =
    SpinLock::new([const { None }; interface::MOST]);

/// The interface that `is_meant` says. Any context; bounded.
pub fn find(is_meant: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
    LINKS.lock().iter().flatten().find(|link| is_meant(link)).cloned()
}

/// All of them. Any context; bounded.
pub fn all() -> impl Iterator<Item = Arc<Link>> {
    (0..interface::MOST).filter_map(|place| LINKS.lock()[place].clone())
}

/// The interface with that number.
pub fn by_index(index: u32) -> Option<Arc<Link>> {
    find(|link| link.interface.index() == index)
}

/// A socket of datagrams is about to have that address: the interface whose it is gets ready to
/// receive. EADDRNOTAVAIL if it is no interface's; none at all and a group's are everybody's.
/// Thread context; sleeps.
pub fn attend_at(address: Ipv4Addr) -> Result<(), Errno> {
    if address.is_unspecified() || address.is_multicast() {
        return Ok(());
    }
    let link = find(|link| link.is_own(address) || link.is_broadcast(address));
    link.ok_or(Errno::EADDRNOTAVAIL)?.interface.attend();
    Ok(())
}

/// Whether an address is in the network of an interface of the realm.
pub fn is_local(address: Ipv4Addr) -> bool {
    find(|link| link.has(address)).is_some()
}

/// Whether an address is one of the realm's own.
pub fn is_of_realm(address: Ipv4Addr) -> bool {
    LINKS.lock().iter().flatten().any(|link| link.is_own(address))
}

/// The interface that has that address itself.
pub fn owner(address: Ipv4Addr) -> Option<Arc<Link>> {
    find(|link| link.is_own(address))
}

/// Whom a program means by an address: by 0.0.0.0 itself, as under Linux. `own` is the address that
/// its socket is bound to, and `index` the interface, or 0.
pub fn meant(to: Ipv4Addr, own: Ipv4Addr, index: u32) -> Ipv4Addr {
    if !to.is_unspecified() {
        return to;
    }
    if owner(own).is_some() {
        return own;
    }
    let first = by_index(index).and_then(|link| link.own.first().copied());
    first.map_or(to, |first| first.address)
}

/// The interface by which packets for an address go. `index`: the only one that may be taken, or 0.
pub fn route(to: Ipv4Addr, index: u32) -> Option<Arc<Link>> {
    match index {
        0 if to.is_multicast() || to.is_broadcast() => None,
        0 => find(|link| link.has(to)),
        index => {
            by_index(index).filter(|link| to.is_multicast() || to.is_broadcast() || link.has(to))
        }
    }
}

/// There is an interface. Thread context.
pub fn come(interface: &Arc<dyn Interface>) {
    let of_four = |address: &interface::NetAddress| match address.address {
        IpAddr::V4(own) if packet::is_unicast(own) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(address.prefix.min(32))).unwrap_or(0);
            Some(Own { address: own, mask })
        }
        _ => None,
    };
    let own: Vec<Own> = interface.addresses().iter().filter_map(of_four).collect();
    if own.is_empty() {
        return;
    }
    let returns = Returns {
        waiting: VecDeque::with_capacity(MOST_RETURNING),
        room: Room::new(MOST_RETURNING),
    };
    let link = Arc::new(Link {
        interface: interface.clone(),
        own,
        neighbors: Mutex::new(Neighbors::new()),
        reassembly: Mutex::new(Reassembly::new()),
        groups: SpinLock::new([(Ipv4Addr::UNSPECIFIED, 0); MOST_GROUPS]),
        returns: SpinLock::new(returns),
        number: AtomicU16::new(time::now().0 as u16),
        answers: Answers::new(ANSWERS.0, ANSWERS.1),
        reports: Answers::new(REPORTS.0, REPORTS.1),
    });
    let unused = {
        let mut links = LINKS.lock();
        match links.iter_mut().find(|place| place.is_none()) {
            Some(place) => place.replace(link),
            None => Some(link),
        }
    };
    drop(unused);
    super::begin();
}

/// An interface is gone. Thread context.
pub fn go(interface: &Arc<dyn Interface>) {
    let gone = {
        let mut links = LINKS.lock();
        let is_it = |place: &&mut Option<Arc<Link>>| {
            place.as_ref().is_some_and(|link| Arc::ptr_eq(&link.interface, interface))
        };
        links.iter_mut().find(is_it).and_then(Option::take)
    };
    drop(gone);
}

/// Does what is due because stations do not answer, and brings frames back that wait for it.
/// Returns when something is due next. Thread context; nothing is locked.
pub fn look() -> Option<u64> {
    let mut next: Option<u64> = None;
    for link in all() {
        link.bring_back();
        while let Some(due) = { link.neighbors.lock().look(time::now().0) } {
            match due {
                Due::Ask(address) => link.ask(address),
                Due::Gone(address) => link.give_up(address),
            }
        }
        let due = link.neighbors.lock().due();
        next = next.into_iter().chain(due).min();
    }
    next
}

impl Link {
    /// Its own station.
    pub fn station(&self) -> Station {
        self.interface.hardware_address()
    }

    /// Whether an address is in its network.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.own.iter().any(|own| own.has(address))
    }

    /// Whether an address is its own.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.own.iter().any(|own| own.address == address)
    }

    /// Whether an address is that of all stations.
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.own.iter().any(|own| own.broadcast() == Some(address))
    }

    /// Its address from which packets go to another one.
    pub fn source(&self, to: Ipv4Addr) -> Ipv4Addr {
        let near = self.own.iter().find(|own| own.has(to));
        near.or(self.own.first()).map_or(Ipv4Addr::UNSPECIFIED, |own| own.address)
    }

    /// Whether somebody here is in a group.
    pub fn is_in(&self, group: Ipv4Addr) -> bool {
        self.groups.lock().iter().any(|(other, count)| *other == group && *count > 0)
    }

    /// A fresh number of a packet.
    pub fn next_number(&self) -> u16 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// The header of a packet from here, with what nobody has set otherwise.
    pub fn header(&self, protocol: Protocol, source: Ipv4Addr, destination: Ipv4Addr) -> Header {
        Header {
            source,
            destination,
            protocol,
            lifetime: LIFETIME,
            service: 0,
            number: self.next_number(),
            offset: 0,
            has_more: false,
            is_whole: true,
        }
    }

    /// Sends the packet that lies in a frame behind room for its header. ENOBUFS if there is no
    /// room at the card, ENETUNREACH if its network is not this one. A packet for this station
    /// comes back later ([`bring_back`](Self::bring_back)). Thread context; locks may be held;
    /// bounded.
    pub fn send(&self, frame: &mut [u8]) -> Result<(), Errno> {
        self.send_asked(frame, None)
    }

    /// As [`send`](Self::send), and it is reported as is `asked`.
    pub fn send_asked(&self, frame: &mut [u8], asked: Option<&Asked>) -> Result<(), Errno> {
        let to = packet::destination(frame).ok_or(Errno::EINVAL)?;
        if self.is_own(to) {
            self.return_later(frame);
            if let Some(asked) = asked {
                asked.tell(Stamp::now(), self.interface.index(), frame);
            }
            return Ok(());
        }
        let station = if self.is_broadcast(to) {
            packet::ALL
        } else if to.is_multicast() {
            packet::station_of(to)
        } else if !self.has(to) {
            return Err(Errno::ENETUNREACH);
        } else {
            let way = {
                let mut neighbors = self.neighbors.lock();
                let way = neighbors.way(to, time::now().0);
                if way.station.is_none() && may_keep(frame) {
                    neighbors.wait(to, frame, asked.cloned());
                }
                way
            };
            if way.ask {
                self.ask(to);
                clock::wake_by(time::now().0 + 1_000_000_000);
            }
            match way.station {
                Some(station) => station,
                None => return Ok(()),
            }
        };
        packet::write_ip_frame(frame, self.station(), station);
        interface::send(&self.interface, frame, 0, asked)
    }

    /// Most bytes of a packet.
    pub fn longest(&self) -> usize {
        self.interface.mtu().min(LONGEST - ETHERNET)
    }

    /// Has `send` send what is in a packet with that header: as one, or in fragments if it is too
    /// long.
    pub fn send_parts(
        &self,
        header: &Header,
        payload: &[u8],
        mut send: impl FnMut(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        const BEGIN: usize = ETHERNET + IP;
        let room = self.longest() - IP;
        let is_one = payload.len() <= room;
        let step = if is_one { room } else { room & !7 };
        let mut header = Header { is_whole: header.is_whole && is_one, ..*header };
        with_buffer(BEGIN + step.min(payload.len()), |frame| {
            let mut parts = payload.chunks(step).peekable();
            while let Some(part) = parts.next() {
                header.has_more = parts.peek().is_some();
                let frame = &mut frame[..BEGIN + part.len()];
                frame[BEGIN..].copy_from_slice(part);
                packet::write_header(frame, &header, part.len());
                send(frame)?;
                header.offset += part.len();
            }
            Ok(())
        })
    }

    fn return_later(&self, frame: &[u8]) {
        if !may_keep(frame) {
            return;
        }
        let room = self.returns.lock().room.take();
        // One that finds no room is lost, as on a wire.
        match room.map(|room| Kept::new(room, frame)) {
            Some(Ok(kept)) => self.returns.lock().waiting.push_back(kept),
            Some(Err(room)) => self.returns.lock().room.give_back(room),
            None => {}
        }
    }

    /// Brings frames to their receivers here that were sent from here; the rest of many is left to
    /// the [`clock`]. Thread context; nothing is locked.
    pub fn bring_back(self: &Arc<Self>) {
        for _ in 0..MOST_RETURNING {
            let next = self.returns.lock().waiting.pop_front();
            let Some(mut kept) = next else { return };
            if let Some(packet) = packet::parse_packet(&kept.frame()[ETHERNET..]) {
                stack::deliver(self, &packet, Stamp::of_arrival(None));
            }
            let room = kept.into_room();
            self.returns.lock().room.give_back(room);
        }
        clock::wake_by(0);
    }

    /// Asks for the station with an address.
    fn ask(&self, address: Ipv4Addr) {
        let from = (self.source(address), self.station());
        let frame = packet::arp(true, from, (address, packet::ALL));
        let _ = interface::send(&self.interface, &frame, 0, None);
    }

    /// A station asks or answers. Thread context.
    pub fn hear(&self, arp: &packet::Arp) {
        let (address, station) = arp.sender;
        let is_for_here = self.is_own(arp.target);
        if packet::is_unicast(address) && self.has(address) && !self.is_own(address) {
            let mut neighbors = self.neighbors.lock();
            neighbors.hear(address, station, is_for_here, time::now().0);
            self.release(&mut neighbors, address, station);
        }
        if arp.asks && is_for_here {
            let frame = packet::arp(false, (arp.target, self.station()), arp.sender);
            let _ = interface::send(&self.interface, &frame, 0, None);
        }
    }

    /// Sends the frames that waited for a station.
    fn release(
        &self,
        neighbors: &mut Neighbors<Option<Asked>>,
        address: Ipv4Addr,
        station: Station,
    ) {
        neighbors.release(address, |frame, asked| {
            packet::write_ip_frame(frame, self.station(), station);
            let _ = interface::send(&self.interface, frame, 0, asked.as_ref());
        });
    }

    /// A program says where an address is: for good, or until it is heard of otherwise. ENOBUFS if
    /// there is no room. Thread context; may sleep.
    pub fn set_station(
        &self,
        address: Ipv4Addr,
        station: Station,
        is_fixed: bool,
    ) -> Result<(), Errno> {
        let mut neighbors = self.neighbors.lock();
        if !neighbors.set(address, station, is_fixed, time::now().0) {
            return Err(Errno::ENOBUFS);
        }
        self.release(&mut neighbors, address, station);
        Ok(())
    }

    /// What is known of the station with an address; `None` if nobody has asked. May sleep.
    pub fn known(&self, address: Ipv4Addr) -> Option<Known> {
        self.neighbors.lock().known(address)
    }

    /// Nothing is known of the station with an address from now on. ENXIO if nothing was. Thread
    /// context; may sleep.
    pub fn forget_station(&self, address: Ipv4Addr) -> Result<(), Errno> {
        self.neighbors.lock().known(address).ok_or(Errno::ENXIO)?;
        // What waits for it is lost, as where it does not answer.
        self.give_up(address);
        self.neighbors.lock().forget(address);
        Ok(())
    }

    /// There is no station with an address: who has sent to it is told, as by a message that Linux
    /// sends itself.
    fn give_up(&self, address: Ipv4Addr) {
        /// What it has of the packet.
        const MOST: usize = 548;
        /// The number of the interface by which Linux sends to itself, and the precedence of what
        /// it says about networks.
        const LOOPBACK: u32 = 1;
        const NETWORK_CONTROL: u8 = 0xc0;
        let mut lost = Vec::new();
        self.neighbors.lock().release(address, |frame, _| {
            let packet = &frame[ETHERNET..];
            lost.push(packet[..packet.len().min(MOST)].to_vec());
        });
        for packet in &lost {
            let Some(returned) = packet::returned(packet) else { continue };
            let (own, why) = (returned.source.0, packet::Unreachable::HOST);
            let about = About {
                source: (own, 0),
                destination: own,
                interface: LOOPBACK,
                lifetime: packet::LIFETIME,
                service: NETWORK_CONTROL,
                ..About::default()
            };
            if raw::is_any() {
                let message = packet::unreachable(&why, packet);
                let mut header = self.header(Protocol::Icmp, own, own);
                header.service = NETWORK_CONTROL;
                let mut bytes = [0; ETHERNET + IP];
                packet::write_header(&mut bytes, &header, message.len());
                raw::deliver(Protocol::Icmp, about, &bytes[ETHERNET..], &message);
            }
            stack::report(self, Message { why, about }, &returned);
        }
    }

    /// Whether a packet that nobody wanted may be answered: a flood is not.
    pub fn may_answer(&self) -> bool {
        self.answers.take(time::now().0)
    }

    /// A socket is in a group from now on. Thread context; may sleep.
    pub fn join(&self, group: Ipv4Addr) -> Result<(), Errno> {
        let is_first = {
            let mut groups = self.groups.lock();
            let known = groups.iter().position(|(other, count)| *other == group && *count > 0);
            let at = known.or_else(|| groups.iter().position(|(_, count)| *count == 0));
            let place = &mut groups[at.ok_or(Errno::ENOBUFS)?];
            *place = (group, place.1 + 1);
            place.1 == 1
        };
        if is_first {
            self.interface.admit(Reception::Address(packet::station_of(group))).inspect_err(
                |_| {
                    self.forget(group);
                },
            )?;
            self.tell_membership(group, false);
        }
        Ok(())
    }

    /// The opposite.
    pub fn leave(&self, group: Ipv4Addr) {
        if self.forget(group) {
            self.interface.refuse(Reception::Address(packet::station_of(group)));
            self.tell_membership(group, true);
        }
    }

    /// Says whether nobody is in it any more.
    fn forget(&self, group: Ipv4Addr) -> bool {
        let mut groups = self.groups.lock();
        let place = groups.iter_mut().find(|(other, count)| *other == group && *count > 0);
        let Some(place) = place else { return false };
        place.1 -= 1;
        place.1 == 0
    }

    /// Tells who asks in which groups this station is: that one, or all of them. A flood of
    /// questions is not answered.
    pub fn answer_query(&self, group: Ipv4Addr) {
        for place in 0..MOST_GROUPS {
            let (own, count) = self.groups.lock()[place];
            let is_meant = count > 0 && (group.is_unspecified() || group == own);
            if is_meant && self.reports.take(time::now().0) {
                self.tell_membership(own, false);
            }
        }
    }

    fn tell_membership(&self, group: Ipv4Addr, leaves: bool) {
        let mut frame = [0; ETHERNET + IP + IGMP];
        let to = if leaves { Ipv4Addr::new(224, 0, 0, 2) } else { group };
        packet::write_membership(&mut frame, group, leaves);
        let header = Header { lifetime: 1, ..self.header(Protocol::Igmp, self.source(to), to) };
        packet::write_header(&mut frame, &header, IGMP);
        let _ = self.send(&mut frame);
    }

    /// Waits until the card has room for frames.
    pub fn wait_for_room(&self, deadline: Option<Nanos>) -> Result<(), Errno> {
        self.interface.wait_for_room(deadline)
    }
}
