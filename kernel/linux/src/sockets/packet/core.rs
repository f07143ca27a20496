// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a frame reaches of a socket: what the socket is bound to, its filter, what waits.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::{
    arch::interrupts::window_in_timer,
    mm::{heap, pages::Pages},
    sync::SpinLock,
    task::WaitQueue,
    time::Nanos,
};
use crtos_nic::{
    filter::{Frame, Program},
    inbox::Inbox,
    stamping::{self, Report},
};

use super::{ALL, address::LinkAddress, blocks::Blocks, ring::Ring};
use crate::{
    abi::Errno,
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
pub struct Wanted<'a, L> {
    /// Of the frame; as [`LinkAddress`] has them.
    protocol: u16,
    interface: u32,
    kind: u8,
    /// Bytes of the frame, from where the socket has it.
    whole: usize,
    /// What the socket gets of these.
    pub part: &'a [u8],
    /// What was seen while the socket was locked.
    pub seen: L,
}

impl<L> Wanted<'_, L> {
    /// What is known of the frame, which is that of `news`.
    #[inline(always)]
    pub fn message(&self, core: &Core, news: &News) -> Message {
        let Self { protocol, interface, kind, whole, .. } = *self;
        let station = news.frame.get(6..12).and_then(|from| from.first_chunk()).copied();
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

/// What decides which frames it gets.
#[derive(Clone)]
pub struct Wants {
    /// ETH_P_*; 0 for none.
    pub protocol: u16,
    pub filter: Option<Arc<Program>>,
    /// Not those that the realm sends.
    pub ignores_outgoing: bool,
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
    pub fn take_freezes(&mut self) -> u32 {
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
    /// The number of the interface that it is bound to; 0 for none. Changed under `wants`, and read
    /// without it by who looks which sockets a frame is for.
    pub interface: AtomicU32,
    pub wants: SpinLock<Wants>,
    pub inbox: SpinLock<Inbox<Message>>,
    /// Where frames go instead, if there is one.
    pub ring: SpinLock<Option<Received>>,
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

/// Room for so many bytes of messages.
pub fn inbox(bytes: u32) -> Result<Inbox<Message>, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Inbox::new(bytes as usize).ok_or(Errno::ENOMEM)
}

impl Reporter for Core {
    fn report(&self, report: &Report, frame: &[u8]) {
        self.common.errors.push(Entry::Sent(*report), frame);
        self.watchers.notify(Events::ERROR | Events::PRIORITY);
    }
}

impl Core {
    /// Whether it is bound to that interface.
    pub fn is_of(&self, index: u32) -> bool {
        self.interface.load(Ordering::Relaxed) == index
    }

    /// A frame is on the wire. Thread context.
    pub fn hear(&self, news: &News) {
        if let Some(wanted) = self.wanted(news, || ()) {
            self.keep(&wanted.message(self, news), wanted.part);
        }
    }

    /// What the socket wants of a frame on the wire, and what `look` says, with interrupts off,
    /// before a filter decides; `None` if it wants nothing. Thread context.
    #[inline(always)]
    pub fn wanted<'a, L>(
        &self,
        news: &News<'a>,
        look: impl FnOnce() -> L,
    ) -> Option<Wanted<'a, L>> {
        if news.origin == Some(self.number) || news.heard_by == Some(self.number) {
            return None;
        }
        let index = news.index;
        let (wants, seen) = {
            let wants = self.wants.lock();
            if wants.protocol == 0 || !self.is_of(index) {
                return None;
            }
            (wants.clone(), look())
        };
        let protocol = protocol_of(news.frame);
        let is_outgoing = news.origin.is_some();
        let is_meant = match wants.protocol {
            ALL => !(is_outgoing && wants.ignores_outgoing),
            wanted => wanted == protocol && !is_outgoing,
        };
        if !is_meant {
            return None;
        }
        let to = news.frame.first_chunk().copied().unwrap_or([0; 6]);
        let kind = match to {
            _ if is_outgoing => OUTGOING,
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => BROADCAST,
            [first, ..] if first & 1 != 0 => GROUP,
            _ if to == news.interface.hardware_address() => HOST,
            _ => OTHER_HOST,
        };
        let start = if self.is_cooked { HEADER } else { 0 };
        let whole = news.frame.len() - start;
        let length = match &wants.filter {
            None => whole,
            Some(filter) => {
                let bytes = news.frame;
                let frame =
                    Frame { bytes, start, header: HEADER, protocol, kind, interface: index };
                whole.min(filter.run(&frame) as usize)
            }
        };
        // The last use of a filter may be this one.
        drop(wants);
        if length == 0 {
            return None;
        }
        let part = &news.frame[start..start + length];
        Some(Wanted { protocol, interface: index, kind, whole, part, seen })
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
    /// is no ring. Interrupts off.
    #[inline(always)]
    pub fn is_next(&self) -> bool {
        !self.has_failed()
            && self.ring.lock_quietly().is_none()
            && self.inbox.lock_quietly().is_empty()
    }

    /// Whether who reads gets something at once: a frame, or an error.
    #[inline(always)]
    pub fn has_something(&self) -> bool {
        self.has_failed() || !self.inbox.lock().is_empty()
    }

    /// Whether an error waits to be told.
    #[inline(always)]
    fn has_failed(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed) || self.common.has_failed()
    }

    /// There is something to receive. Any context.
    fn tell(&self) {
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
                let is_kept = self.inbox.lock().push(*message, part);
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

    /// Whether a frame waits.
    pub fn has_some(&self) -> bool {
        match &*self.ring.lock() {
            Some(Received::Frames(ring)) => ring.has_filled(),
            Some(Received::Blocks(blocks)) => blocks.has_given(),
            None => !self.inbox.lock().is_empty(),
        }
    }

    /// An interface is gone. Thread context.
    pub fn lose(&self, index: u32) {
        {
            let _held = self.wants.lock();
            if !self.is_of(index) {
                return;
            }
            self.interface.store(0, Ordering::Relaxed);
        }
        self.has_lost.store(true, Ordering::Relaxed);
        self.readers.wake_all();
        self.watchers.notify(Events::IN | Events::READ_NORMAL | Events::ERROR);
    }
}
