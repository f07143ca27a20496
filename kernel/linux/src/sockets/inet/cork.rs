// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that several calls make (UDP_CORK, MSG_MORE), several datagrams that one call makes
//! (UDP_SEGMENT), and the other options of SOL_UDP.

use alloc::{sync::Arc, vec::Vec};
use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::{mm::heap, task::Mutex};
use crtos_inet::packet::{self, UDP};
use crtos_nic::stamping::Stamping;

use super::link::Link;
use crate::{
    abi::Errno,
    files::{Memory, socket::Foreign},
};

/// The level of these options.
pub const SOL_UDP: u32 = 17;
/// What follows is added to one datagram, until this is off again.
pub const UDP_CORK: u32 = 1;
/// Checksums of datagrams by IPv6, which no socket here has.
const UDP_NO_CHECK6_TX: u32 = 101;
const UDP_NO_CHECK6_RX: u32 = 102;
/// What is sent becomes datagrams of so many bytes; also a control message.
pub const UDP_SEGMENT: u32 = 103;
/// Datagrams may come as one, which none here do.
const UDP_GRO: u32 = 104;

/// Most datagrams of one call (UDP_MAX_SEGMENTS).
pub const MOST_SEGMENTS: usize = 128;

/// All of these, with the most that each keeps.
const ALL: [(u32, u32); 5] = [
    (UDP_CORK, 1),
    (UDP_SEGMENT, u16::MAX as u32),
    (UDP_GRO, 1),
    (UDP_NO_CHECK6_TX, 1),
    (UDP_NO_CHECK6_RX, 1),
];

/// What goes to another one, and how.
#[derive(Clone)]
pub struct Course {
    pub link: Arc<Link>,
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub header: packet::Header,
    /// It does not wait for room at the card.
    pub nonblocking: bool,
    pub stamping: Stamping,
    /// Bytes of each datagram that it becomes; 0 for one.
    pub segment: usize,
}

impl Course {
    /// Writes the header of a datagram before its data.
    pub fn write_ends(&self, datagram: &mut [u8]) {
        let ends = [self.from, self.to].map(|end| (*end.ip(), end.port()));
        packet::write_datagram(datagram, ends[0], ends[1]);
    }

    /// Brings what was sent to this station back to its receivers here.
    pub fn bring_back(&self) {
        if self.link.is_own(*self.to.ip()) {
            self.link.bring_back();
        }
    }
}

/// Data that becomes a datagram, or several.
pub struct Pending {
    pub course: Course,
    /// The data, behind room for the header of a datagram.
    pub bytes: Vec<u8>,
}

/// The options of a socket, and what it has not sent yet.
pub struct Cork {
    values: [AtomicU32; ALL.len()],
    /// Held while a program's memory is read, and while what was pending is sent.
    pub pending: Mutex<Option<Pending>>,
    /// Something is pending. Changed while that is locked.
    has_pending: AtomicBool,
}

impl Pending {
    /// One without data.
    pub fn new(course: Course) -> Result<Self, Errno> {
        let mut own = Self { course, bytes: Vec::new() };
        own.make_room(UDP)?;
        own.bytes.resize(UDP, 0);
        Ok(own)
    }

    fn make_room(&mut self, count: usize) -> Result<(), Errno> {
        match heap::makes_room(&mut self.bytes, count) {
            true => Ok(()),
            false => Err(Errno::ENOBUFS),
        }
    }

    /// Bytes of its data.
    pub fn length(&self) -> usize {
        self.bytes.len() - UDP
    }

    /// Adds all that a program gives. May sleep.
    pub fn add(&mut self, memory: &mut Memory) -> Result<(), Errno> {
        let (begin, length) = (self.bytes.len(), memory.left() as usize);
        self.make_room(length)?;
        self.bytes.resize(begin + length, 0);
        if memory.read(&mut self.bytes[begin..]) < length { Err(Errno::EFAULT) } else { Ok(()) }
    }
}

fn place(name: u32) -> Option<usize> {
    ALL.iter().position(|(kept, _)| *kept == name)
}

impl Cork {
    /// That of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let own = Self {
            values: Default::default(),
            pending: Mutex::new(None),
            has_pending: AtomicBool::new(false),
        };
        for ((name, most), value) in ALL.iter().zip(&own.values) {
            // What Linux tells lies in memory of the program, which may change it.
            value.store(foreign.number(SOL_UDP, *name)?.min(*most), Ordering::Relaxed);
        }
        Ok(own)
    }

    fn value(&self, name: u32) -> u32 {
        place(name).map_or(0, |at| self.values[at].load(Ordering::Relaxed))
    }

    /// Whether what is sent waits for more (UDP_CORK).
    pub fn is_on(&self) -> bool {
        self.value(UDP_CORK) != 0
    }

    /// Bytes of each datagram that what is sent becomes (UDP_SEGMENT); 0 for one.
    pub fn segment(&self) -> u32 {
        self.value(UDP_SEGMENT)
    }

    /// Whether something was not sent yet.
    pub fn has_pending(&self) -> bool {
        self.has_pending.load(Ordering::Relaxed)
    }

    /// Notes whether something was not sent yet. `pending` is what is locked.
    pub fn note(&self, pending: &Option<Pending>) {
        self.has_pending.store(pending.is_some(), Ordering::Relaxed);
    }

    /// getsockopt(2) with SOL_UDP.
    pub fn get(&self, name: u32) -> Result<u32, Errno> {
        place(name).map(|_| self.value(name)).ok_or(Errno::ENOPROTOOPT)
    }

    /// setsockopt(2) with SOL_UDP.
    pub fn set(&self, name: u32, value: &[u8]) -> Result<(), Errno> {
        let number = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
        let at = place(name).ok_or(Errno::ENOPROTOOPT)?;
        let most = ALL[at].1;
        let number = if most == 1 { u32::from(number != 0) } else { number };
        if number > most {
            return Err(Errno::EINVAL);
        }
        self.values[at].store(number, Ordering::Relaxed);
        Ok(())
    }
}
