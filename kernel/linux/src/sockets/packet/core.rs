// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a frame reaches of a socket: what the socket is bound to, its filter, what waits.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::{
    arch::interrupts::window_in_timer, mm::pages::Pages, sync::SpinLock, task::WaitQueue,
    time::Nanos,
};
use crtos_nic::{
    filter::Frame,
    stamping::{self, Report},
};

use super::{ALL, address::LinkAddress, blocks::Blocks, kept::Kept, ring::Ring, wants::Wants};
use crate::{
    files::{Events, Watchers},
    sockets::{
        arrivals,
        common::Common,
        error_queue::Entry,
        net::interface::{HEADER, News, Reporter, Stamp},
    },
};

/// For whom a frame is (PACKET_*).
const HOST: u8 = 0;
const BROADCAST: u8 = 1;
const GROUP: u8 = 2;
const OTHER_HOST: u8 = 3;
const OUTGOING: u8 = 4;
/// Protocols of frames that tell none (ETH_P_802_3, ETH_P_802_2).
const NOVELL: u16 = 1;
const LOGICAL_LINK: u16 = 4;
/// The least number that is a protocol, not a length.
const LEAST_PROTOCOL: u16 = 0x600;

/// What is known of a frame that waits.
#[derive(Clone, Copy)]
pub struct Message {
    /// Where it came from.
    pub from: LinkAddress,
    /// When it came.
    pub stamp: Stamp,
    /// Bytes of the frame, from where the socket has it.
    pub whole: usize,
    /// As many of these as the filter wanted.
    pub length: usize,
    /// Bytes of its header that the socket has.
    pub header: usize,
    /// Frames that were lost before.
    pub lost: u32,
}

/// What a socket wants of a frame.
pub struct Wanted<'a> {
    /// Of the frame; as [`LinkAddress`] has them.
    protocol: u16,
    /// Bytes of the frame, from where the socket has it.
    whole: usize,
    /// What the socket gets of these.
    pub part: &'a [u8],
}

impl Wanted<'_> {
    /// What is known of the frame, which is that of `news`.
    #[inline(always)]
    pub fn message(&self, core: &Core, news: &News) -> Message {
        let Self { protocol, whole, .. } = *self;
        let station = news.frame.get(6..12).and_then(|from| from.first_chunk()).copied();
        let (interface, kind) = (news.index, kind_of(news));
        Message {
            from: LinkAddress { protocol, interface, kind, station },
            stamp: news.stamp,
            whole,
            length: self.part.len(),
            header: if core.is_cooked { 0 } else { HEADER },
            lost: core.lost.load(Ordering::Relaxed),
        }
    }
}

/// A ring of what is received.
pub enum Received {
    /// Places of one size.
    Frames(Ring),
    /// Blocks.
    Blocks(Blocks),
}

impl Received {
    /// Its memory.
    pub fn pages(&self) -> &Arc<Pages> {
        match self {
            Self::Frames(ring) => ring.pages(),
            Self::Blocks(blocks) => blocks.pages(),
        }
    }

    /// How often frames were lost because the program had all blocks, since that was asked.
    fn take_freezes(&mut self) -> u32 {
        match self {
            Self::Frames(_) => 0,
            Self::Blocks(blocks) => blocks.take_freezes(),
        }
    }
}

/// What became of a frame.
struct Put {
    /// It found room.
    is_kept: bool,
    /// The program may look.
    is_news: bool,
}

/// What frames reach.
pub struct Core {
    /// The number by which its frames are known.
    pub number: u64,
    /// Options that sockets of all families have.
    pub common: Common,
    /// It gets frames without their headers.
    pub is_cooked: bool,
    /// Which frames are for it.
    pub wants: Wants,
    pub kept: Kept,
    /// Where frames go instead, if there is one; and whether there is.
    ring: SpinLock<Option<Received>>,
    has_ring: AtomicBool,
    /// Which stamps it tells (PACKET_TIMESTAMP).
    pub ring_stamps: AtomicU32,
    /// Frames that it got, and those that found no room, since somebody asked.
    pub taken: AtomicU32,
    pub dropped: AtomicU32,
    /// All that found no room.
    pub lost: AtomicU32,
    /// Its interface is gone, which the next call tells.
    pub has_lost: AtomicBool,
    pub readers: WaitQueue,
    pub watchers: Watchers,
}

/// The protocol of a frame.
pub fn protocol_of(frame: &[u8]) -> u16 {
    match u16::from_be_bytes([frame[HEADER - 2], frame[HEADER - 1]]) {
        protocol @ LEAST_PROTOCOL.. => protocol,
        _ if frame.get(HEADER..HEADER + 2) == Some(&[0xff, 0xff]) => NOVELL,
        _ => LOGICAL_LINK,
    }
}

/// For whom the frame of `news` is.
#[inline(always)]
fn kind_of(news: &News) -> u8 {
    let to = news.frame.first_chunk().copied().unwrap_or([0; 6]);
    match to {
        _ if news.origin.is_some() => OUTGOING,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => BROADCAST,
        [first, ..] if first & 1 != 0 => GROUP,
        _ if to == news.own => HOST,
        _ => OTHER_HOST,
    }
}

impl Reporter for Core {
    fn report(&self, report: &Report, frame: &[u8]) {
        self.common.errors.push(Entry::Sent(*report), frame);
        self.watchers.notify(Events::ERROR | Events::PRIORITY);
    }
}

impl Core {
    /// One that hears nothing so far.
    pub fn new(number: u64, common: Common, is_cooked: bool, wants: Wants, kept: Kept) -> Self {
        Self {
            number,
            common,
            is_cooked,
            wants,
            kept,
            ring: SpinLock::new(None),
            has_ring: AtomicBool::new(false),
            ring_stamps: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            has_lost: AtomicBool::new(false),
            readers: WaitQueue::new(),
            watchers: Watchers::new(),
        }
    }

    /// Whether it is bound to that interface, or to all.
    #[inline(always)]
    pub fn is_of(&self, index: u32) -> bool {
        self.wants.now().is_of(index)
    }

    /// A frame is on the wire. Thread context.
    pub fn hear(&self, news: &News) {
        if let Some(wanted) = self.wanted(news) {
            self.keep(&wanted.message(self, news), wanted.part);
        }
    }

    /// What the socket wants of a frame on the wire; `None` if it wants nothing. Thread context.
    #[inline(always)]
    pub fn wanted<'a>(&self, news: &News<'a>) -> Option<Wanted<'a>> {
        if news.origin == Some(self.number) || news.heard_by == Some(self.number) {
            return None;
        }
        let index = news.index;
        let wants = self.wants.now();
        if wants.protocol() == 0 || !wants.is_of(index) {
            return None;
        }
        let protocol = protocol_of(news.frame);
        let is_outgoing = news.origin.is_some();
        let is_meant = match wants.protocol() {
            ALL => !(is_outgoing && wants.ignores_outgoing()),
            wanted => wanted == protocol && !is_outgoing,
        };
        if !is_meant {
            return None;
        }
        let start = if self.is_cooked { HEADER } else { 0 };
        let whole = news.frame.len() - start;
        // The last use of a filter may be this one.
        let filter = if wants.filters() { self.wants.filter() } else { None };
        let length = filter.map_or(whole, |filter| {
            let (bytes, kind) = (news.frame, kind_of(news));
            let (more, header) = (&[][..], HEADER);
            let frame = Frame { bytes, more, start, header, protocol, kind, interface: index };
            whole.min(filter.run(&frame) as usize)
        });
        if length == 0 {
            return None;
        }
        let part = &news.frame[start..start + length];
        Some(Wanted { protocol, whole, part })
    }

    /// Keeps that part of a frame until somebody reads it. Thread context.
    pub fn keep(&self, message: &Message, part: &[u8]) {
        let Put { is_kept, is_news } = self.put(message, part);
        if is_kept {
            self.taken.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if is_news {
            self.tell();
        }
    }

    /// Whether who reads gets the next frame that comes: none waits, nor does an error, and there
    /// is no ring.
    #[inline(always)]
    pub fn is_next(&self) -> bool {
        !self.has_ring.load(Ordering::Acquire) && !self.has_something()
    }

    /// Whether who reads gets something at once: a frame, or an error.
    #[inline(always)]
    pub fn has_something(&self) -> bool {
        self.has_failed() || !self.kept.is_empty()
    }

    /// Whether an error waits to be told.
    #[inline(always)]
    fn has_failed(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed) || self.common.has_failed()
    }

    /// There is something to receive. Any context.
    pub fn tell(&self) {
        self.readers.wake(1);
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    /// When a frame came, as a ring tells it, and the bits of its status that say whose stamp that
    /// is.
    fn ring_stamp(&self, message: &Message) -> (Nanos, u32) {
        let Stamp { software, hardware } = message.stamp;
        let software = arrivals::told(software);
        let flags = self.ring_stamps.load(Ordering::Relaxed);
        let is_wanted = self.common.wants_stamps();
        let (stamp, status) =
            stamping::of_ring(flags, software.0, hardware.map(|at| at.0), is_wanted);
        (Nanos(stamp), status)
    }

    /// Puts a frame where the program finds it.
    fn put(&self, message: &Message, part: &[u8]) -> Put {
        let were_lost = self.dropped.load(Ordering::Relaxed) > 0;
        match &mut *self.ring.lock() {
            Some(Received::Frames(ring)) => {
                let is_kept = ring.fill(message, part, self.ring_stamp(message), were_lost);
                Put { is_kept, is_news: is_kept }
            }
            Some(Received::Blocks(blocks)) => {
                let filled = blocks.fill(message, part, self.ring_stamp(message), were_lost);
                Put { is_kept: filled.is_kept, is_news: filled.has_given }
            }
            None => {
                let is_kept = self.kept.lock().push(*message, part);
                Put { is_kept, is_news: is_kept }
            }
        }
    }

    /// The time of a block may be over. Interrupt context; bounded.
    pub fn expire(&self) {
        let were_lost = self.dropped.load(Ordering::Relaxed) > 0;
        let has_given = match &mut *self.ring.lock() {
            Some(Received::Blocks(blocks)) => blocks.expire(were_lost),
            _ => false,
        };
        if has_given {
            self.readers.wake(1);
            window_in_timer();
            self.watchers.notify(Events::IN | Events::READ_NORMAL);
        }
    }

    /// Frames go to a ring from now on, or to none. Thread context.
    pub fn set_ring(&self, ring: Option<Received>) {
        let old = {
            let mut place = self.ring.lock();
            self.has_ring.store(ring.is_some(), Ordering::Release);
            core::mem::replace(&mut *place, ring)
        };
        drop(old);
    }

    /// How often its ring has lost frames because the program had all blocks, since that was asked.
    pub fn take_freezes(&self) -> u32 {
        self.ring.lock().as_mut().map_or(0, Received::take_freezes)
    }

    /// Whether a frame waits.
    pub fn has_some(&self) -> bool {
        match &*self.ring.lock() {
            Some(Received::Frames(ring)) => ring.has_filled(),
            Some(Received::Blocks(blocks)) => blocks.has_given(),
            None => !self.kept.is_empty(),
        }
    }

    /// An interface is gone. Thread context.
    pub fn lose(&self, index: u32) {
        if !self.wants.part(index) {
            return;
        }
        self.has_lost.store(true, Ordering::Relaxed);
        self.readers.wake_all();
        self.watchers.notify(Events::IN | Events::READ_NORMAL | Events::ERROR);
    }
}
