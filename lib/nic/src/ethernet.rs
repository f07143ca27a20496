// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual Ethernet to Linux: a card whose other end of the cable is Linux's interface.
//!
//! Its memory is [`Ethernet`], a part of the channel, and it has two registers: a bell, and whether
//! Linux's end is up. The rings are those that [`crtos_abi::channel`] describes. Linux may be
//! hostile: of a ring the other end's index and a length are read once. An index that is further
//! than the ring is long is nothing, nor is a frame that ends behind it or behind the last place:
//! the ring counts as empty from there. What is not for this station comes as well, and is left out
//! here, as a card does.

use alloc::sync::Arc;
use core::{
    mem::offset_of,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

use crtos_abi::channel::{
    ETHERNET_LONGEST, ETHERNET_MOST_MTU, ETHERNET_PLACE, ETHERNET_PLACES, Ethernet, EthernetRing,
};

use crate::{
    HardwareAddress,
    card::{About, Found, Frame, Kind, Memory, NoRoom, Place, Receive, Registers, Transmit},
    reception::{Filter, MOST, is_group},
};

/// A register: whatever is written there rings Linux.
pub const BELL: u32 = 0;
/// A register: 0 unless Linux's end is up.
pub const LINK: u32 = 4;

/// Where in the memory what is.
const LINUX_UP: u64 = offset_of!(Ethernet, linux_up) as u64;
const MTU: u64 = offset_of!(Ethernet, mtu) as u64;
const REALM_UP: u64 = offset_of!(Ethernet, realm_up) as u64;
const CPU: u64 = (offset_of!(Ethernet, to_realm) + offset_of!(EthernetRing, cpu)) as u64;

/// Where Linux says that its end is up. For who implements [`LINK`].
pub const LINUX_END: u64 = LINUX_UP;
/// Where Linux reads which CPU it is to ring.
pub const RUNG_CPU: u64 = CPU;
/// Where Linux says on which of its CPUs it is to be rung: 1 + its number, or 0.
pub const LINUX_CPU: u64 = (offset_of!(Ethernet, to_linux) + offset_of!(EthernetRing, cpu)) as u64;

/// Where a ring is.
#[derive(Clone, Copy, Debug)]
struct Ring(u64);

/// Frames of Linux.
const TO_REALM: Ring = Ring(offset_of!(Ethernet, to_realm) as u64);
/// Frames of the realm.
const TO_LINUX: Ring = Ring(offset_of!(Ethernet, to_linux) as u64);

const PLACES: u64 = ETHERNET_PLACES as u64;
/// Linux is rung when so much of its ring is free.
const ROOM: u64 = PLACES / 2;
/// Least that Linux lets an MTU of IP be.
const LEAST_MTU: usize = 68;

/// How many places a frame takes.
const fn places(length: usize) -> u64 {
    length.div_ceil(ETHERNET_PLACE) as u64
}

/// How many places there are from the one that is used next up to the end of the ring.
const fn before_end(used: u64) -> u64 {
    PLACES - used % PLACES
}

impl Ring {
    const fn written(self) -> u64 {
        self.0 + offset_of!(EthernetRing, written) as u64
    }

    const fn wants_room(self) -> u64 {
        self.0 + offset_of!(EthernetRing, wants_room) as u64
    }

    const fn taken(self) -> u64 {
        self.0 + offset_of!(EthernetRing, taken) as u64
    }

    const fn wants_frames(self) -> u64 {
        self.0 + offset_of!(EthernetRing, wants_frames) as u64
    }

    /// The length of the frame that begins in the place with that number.
    const fn length(self, number: u64) -> u64 {
        let lengths = self.0 + offset_of!(EthernetRing, lengths) as u64;
        lengths + number % PLACES * size_of::<u64>() as u64
    }

    /// That place.
    const fn bytes(self, number: u64) -> u64 {
        let bytes = self.0 + offset_of!(EthernetRing, bytes) as u64;
        bytes + number % PLACES * ETHERNET_PLACE as u64
    }
}

/// An address as a word.
fn word(address: &HardwareAddress) -> u64 {
    let [a, b, c, d, e, f] = *address;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Which frames are received, for a thread that does not wait for who changes that.
#[derive(Debug, Default)]
struct Wanted {
    all: AtomicBool,
    groups: AtomicBool,
    own: AtomicU64,
    /// Further addresses; 0: none.
    addresses: [AtomicU64; MOST],
}

impl Wanted {
    fn set(&self, filter: &Filter, own: HardwareAddress) {
        self.own.store(word(&own), Ordering::Relaxed);
        self.all.store(filter.wants_all(), Ordering::Relaxed);
        self.groups.store(filter.wants_groups(), Ordering::Relaxed);
        let mut wanted = filter.addresses();
        for place in &self.addresses {
            place.store(wanted.next().map_or(0, |address| word(&address)), Ordering::Relaxed);
        }
    }

    fn has(&self, frame: &[u8]) -> bool {
        let Some(to) = frame.first_chunk() else { return false };
        let is = |place: &AtomicU64| place.load(Ordering::Relaxed) == word(to);
        self.all.load(Ordering::Relaxed)
            || is(&self.own)
            || *to == [0xff; 6]
            || is_group(to) && self.groups.load(Ordering::Relaxed)
            || self.addresses.iter().any(is)
    }
}

/// In [`VirtualEthernet::armed`]: it does not interrupt.
const SILENT: u64 = u64::MAX;

/// The realm's end.
#[derive(Debug)]
pub struct VirtualEthernet {
    wanted: Arc<Wanted>,
    /// The number of the place for which it interrupts.
    armed: AtomicU64,
}

impl Kind for VirtualEthernet {
    const ABOUT: About = About { name: "virtual Ethernet", driver: "crtos", ids: &[] };
    const MEMORY: u64 = size_of::<Ethernet>() as u64;
    const LONGEST: usize = ETHERNET_LONGEST;
    type Receiver = Receiver;
    type Transmitter = Transmitter;

    fn find(_: impl Fn(u64) -> u32) -> Option<Self> {
        Some(Self { wanted: Arc::default(), armed: AtomicU64::new(SILENT) })
    }

    fn place(&self) -> Place {
        Place { base: 0, length: 0 }
    }

    fn reset(&self, _: &impl Registers) {
        // Its memory is as Linux has prepared it: all zero.
    }

    fn is_reset(&self, _: &impl Registers) -> bool {
        true
    }

    fn start(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        _: u64,
        own: HardwareAddress,
    ) -> Result<(Receiver, Transmitter), &'static str> {
        self.wanted.set(&Filter::default(), own);
        memory.store(REALM_UP, 1);
        registers.write(BELL, 0);
        let receiver = Receiver { taken: 0, untold: false, wanted: self.wanted.clone() };
        Ok((receiver, Transmitter { written: 0, wanted: 1 }))
    }

    fn let_interrupt(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        receiver: &Receiver,
    ) -> bool {
        self.armed.store(receiver.taken, Ordering::Release);
        memory.store(TO_REALM.wants_frames(), 1);
        // Pairs with Linux's, between its index and the look at that word.
        fence(Ordering::SeqCst);
        let has_more = receiver.has_more(memory);
        if has_more {
            self.mask(registers, memory);
        }
        has_more
    }

    fn has_interrupted(&self, memory: &impl Memory) -> bool {
        let armed = self.armed.load(Ordering::Acquire);
        armed != SILENT && memory.load(TO_REALM.written()) != armed
    }

    fn mask(&self, _: &impl Registers, memory: &impl Memory) {
        self.armed.store(SILENT, Ordering::Release);
        memory.store(TO_REALM.wants_frames(), 0);
    }

    fn take_causes(&self, _: &impl Registers) {
        // Frames are all that tells of one.
    }

    fn mtu(&self, memory: &impl Memory) -> Option<usize> {
        let told = usize::try_from(memory.load(MTU)).unwrap_or(usize::MAX);
        Some(told.clamp(LEAST_MTU, ETHERNET_MOST_MTU))
    }

    fn has_link(&self, registers: &impl Registers) -> bool {
        registers.read(LINK) != 0
    }

    fn set_filter(
        &self,
        _: &impl Registers,
        _: &impl Memory,
        filter: &Filter,
        own: HardwareAddress,
    ) {
        self.wanted.set(filter, own);
    }
}

/// Receives.
#[derive(Debug)]
pub struct Receiver {
    /// Places since the start.
    taken: u64,
    /// Some of these Linux was not told of.
    untold: bool,
    wanted: Arc<Wanted>,
}

impl Receiver {
    /// Places that wait, as Linux says; more than the ring is long if it lies.
    fn waiting(&self, memory: &impl Memory) -> u64 {
        memory.load(TO_REALM.written()).wrapping_sub(self.taken)
    }

    /// Where the next frame begins, of so many places that wait, and its length; `None` if that is
    /// none.
    fn next(&self, memory: &impl Memory, waiting: u64) -> Option<(u64, usize)> {
        if waiting > PLACES {
            return None;
        }
        let (mut at, mut left) = (self.taken, waiting);
        let mut length = memory.load(TO_REALM.length(at));
        let skipped = before_end(at);
        if length == 0 && skipped < left {
            (at, left) = (at.wrapping_add(skipped), left - skipped);
            length = memory.load(TO_REALM.length(at));
        }
        let length = usize::try_from(length).ok()?;
        let is_frame = (1..=ETHERNET_LONGEST).contains(&length)
            && places(length) <= left
            && places(length) <= before_end(at);
        is_frame.then_some((at, length))
    }
}

impl Receive for Receiver {
    fn receive(
        &mut self,
        _: &impl Registers,
        memory: &impl Memory,
        to: &mut [u8],
    ) -> Option<Found> {
        let waiting = self.waiting(memory);
        if waiting == 0 {
            return None;
        }
        let next = self.next(memory, waiting);
        self.taken = match next {
            Some((at, length)) => {
                memory.read(TO_REALM.bytes(at), &mut to[..length]);
                at.wrapping_add(places(length))
            }
            // Where the next one begins is not known.
            None => self.taken.wrapping_add(waiting),
        };
        memory.store(TO_REALM.taken(), self.taken);
        self.untold = true;
        let ours = next.filter(|&(_, length)| self.wanted.has(&to[..length]));
        Some(match ours {
            Some((_, length)) => Found::Frame(Frame { length, stamp: None }),
            None => Found::Bad,
        })
    }

    fn has_more(&self, memory: &impl Memory) -> bool {
        self.waiting(memory) != 0
    }

    fn tell(&mut self, registers: &impl Registers, memory: &impl Memory) {
        if !core::mem::take(&mut self.untold) {
            return;
        }
        // Pairs with Linux's, between that word and its look at what was taken.
        fence(Ordering::SeqCst);
        let has_room = self.waiting(memory) <= PLACES - ROOM;
        if has_room && memory.load(TO_REALM.wants_room()) != 0 {
            registers.write(BELL, 0);
        }
    }
}

/// Sends.
#[derive(Debug)]
pub struct Transmitter {
    /// Places since the start.
    written: u64,
    /// Places that the frame takes which found no room last.
    wanted: u64,
}

impl Transmitter {
    /// Places that are left out before a frame of so many.
    const fn skipped(&self, places: u64) -> u64 {
        let before_end = before_end(self.written);
        if places <= before_end { 0 } else { before_end }
    }

    /// Whether a frame of so many places finds room.
    fn has_room_for(&self, memory: &impl Memory, places: u64) -> bool {
        let used = self.written.wrapping_sub(memory.load(TO_LINUX.taken()));
        used <= PLACES && self.skipped(places) + places <= PLACES - used
    }
}

impl Transmit for Transmitter {
    fn has_room(&mut self, registers: &impl Registers, memory: &impl Memory) -> bool {
        // Where nobody is, every frame finds its end.
        registers.read(LINK) == 0 || self.has_room_for(memory, self.wanted)
    }

    fn transmit(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        frame: &[u8],
    ) -> Result<(), NoRoom> {
        if !(1..=ETHERNET_LONGEST).contains(&frame.len()) {
            return Err(NoRoom);
        }
        if registers.read(LINK) == 0 {
            return Ok(());
        }
        let places = places(frame.len());
        if !self.has_room_for(memory, places) {
            self.wanted = places;
            return Err(NoRoom);
        }
        let skipped = self.skipped(places);
        if skipped > 0 {
            memory.store(TO_LINUX.length(self.written), 0);
        }
        let at = self.written.wrapping_add(skipped);
        memory.write(TO_LINUX.bytes(at), frame);
        memory.store(TO_LINUX.length(at), frame.len() as u64);
        self.written = at.wrapping_add(places);
        memory.store(TO_LINUX.written(), self.written);
        // Pairs with Linux's, between that word and its look at what was written.
        fence(Ordering::SeqCst);
        if memory.load(TO_LINUX.wants_frames()) != 0 {
            registers.write(BELL, 0);
        }
        Ok(())
    }
}
