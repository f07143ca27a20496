// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in memory that programs map, whose frames have places of one size: frames that are
//! received go there instead of to the queue, and those that are to be sent are taken from there.

use alloc::sync::{Arc, Weak};

use crtos_core::{
    mm::{heap, object::Object, pages::Pages},
    time::Nanos,
};
use crtos_nic::{
    blocks::Extra,
    ring::{
        Front, Geometry, KERNEL, LOSING, Request, SEND_REQUEST, Told, USER, Version, WRONG_FORMAT,
    },
};

use super::core::Message;
use crate::{abi::Errno, memory::timespec::SECOND};

/// Bytes of a `struct tpacket_req`, and of a `struct tpacket_req3`.
const REQUEST: usize = 16;
const REQUEST_THIRD: usize = 28;

/// Where the number of blocks is in both.
pub const BLOCKS_AT: usize = 4;

/// A ring.
pub struct Ring {
    geometry: Geometry,
    pages: Arc<Pages>,
    /// The frame that is next.
    next: u32,
}

/// What a program that uses that version asks for: a ring, or none.
pub fn request(value: &[u8], version: Version) -> Result<Option<(Request, Extra)>, Errno> {
    let mut bytes = [0; REQUEST_THIRD];
    let length = match version {
        Version::First | Version::Second => REQUEST,
        Version::Third => REQUEST_THIRD,
    };
    bytes[..length].copy_from_slice(value.get(..length).ok_or(Errno::EINVAL)?);
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let request = Request {
        block_size: word(0),
        blocks: word(BLOCKS_AT),
        frame_size: word(8),
        frames: word(12),
    };
    let extra = Extra { timeout: word(16), private: word(20), features: word(24) };
    match request {
        Request { blocks: 0, frames: 0, .. } => Ok(None),
        Request { blocks: 0, .. } => Err(Errno::EINVAL),
        request => Ok(Some((request, extra))),
    }
}

/// Cleared memory of a ring. May sleep.
pub fn memory(bytes: u64) -> Result<Arc<Pages>, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Ok(Arc::new(Pages::zeroed(bytes).ok_or(Errno::ENOMEM)?))
}

/// Seconds and nanoseconds of a moment, as a ring tells it.
pub fn moment(stamp: Nanos) -> (u32, u32) {
    ((stamp.0 / SECOND) as u32, (stamp.0 % SECOND) as u32)
}

impl Ring {
    /// A ring of cleared memory. May sleep.
    pub fn new(request: Request, front: Front) -> Result<Self, Errno> {
        let geometry = Geometry::new(request, front).map_err(|_| Errno::EINVAL)?;
        Ok(Self { geometry, pages: memory(geometry.bytes())?, next: 0 })
    }

    /// Its memory.
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    fn word(&self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.pages.read(offset, &mut word);
        u32::from_ne_bytes(word)
    }

    /// Where the word of a frame is that says whose it is.
    fn status_of(&self, frame: u32) -> u64 {
        self.geometry.place(frame) + self.geometry.front().version().status_at()
    }

    fn set_status(&self, status: u32) {
        self.pages.write(self.status_of(self.next), &status.to_ne_bytes());
    }

    /// Puts a frame that came at `stamp` into the next place, with bits of its status; `false` if
    /// the program has that still. Bounded: a copy.
    pub fn fill(
        &mut self,
        message: &Message,
        frame: &[u8],
        (stamp, status): (Nanos, u32),
        were_lost: bool,
    ) -> bool {
        if self.word(self.status_of(self.next)) != KERNEL {
            return false;
        }
        let at = self.geometry.place(self.next);
        let front = self.geometry.front();
        let header = message.header as u32;
        let there = self.geometry.room(header, frame.len() as u32);
        let told = Told { length: message.whole as u32, there, stamp: moment(stamp) };
        let starts = front.starts(header);
        if there > 0 {
            self.pages.write(at + u64::from(starts.0), &frame[..there as usize]);
        }
        // But for the status, which is last: what is before it is there then.
        let length = front.version().description();
        let description = front.describe(starts, told);
        self.pages.write(at + 4, &description[4..length as usize]);
        self.pages.write(at + u64::from(length), &message.from.bytes());
        self.set_status(USER | status | if were_lost { LOSING } else { 0 });
        self.next = self.geometry.after(self.next);
        true
    }

    /// Whether a frame is there for the program: the one before the next place.
    pub fn has_filled(&self) -> bool {
        let before = self.next.checked_sub(1).unwrap_or(self.geometry.frames() - 1);
        self.word(self.status_of(before)) != KERNEL
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.geometry.frames()
    }

    /// Has `send` send the next frame of the program: its length, and what copies it. What comes of
    /// that; `None` if there is no further one. `skips` says that what cannot be sent is skipped.
    pub fn take(
        &mut self,
        skips: bool,
        send: impl FnOnce(usize, &mut dyn FnMut(&mut [u8])) -> Result<(), Errno>,
    ) -> Option<Result<usize, Errno>> {
        if self.word(self.status_of(self.next)) != SEND_REQUEST {
            return None;
        }
        let at = self.geometry.place(self.next);
        let version = self.geometry.front().version();
        // Read once: the program may change it.
        let length = self.word(at + version.length_at());
        let (start, most) = self.geometry.outgoing();
        let sent = if version == Version::Third && self.word(at) != 0 {
            // Places of other sizes are not there.
            Err(Errno::EINVAL)
        } else if length > most {
            Err(Errno::EMSGSIZE)
        } else {
            let mut copy = |to: &mut [u8]| self.pages.read(at + start, to);
            send(length as usize, &mut copy)
        };
        match sent {
            Ok(()) => self.set_status(KERNEL),
            Err(Errno::EINVAL | Errno::EMSGSIZE) if skips => self.set_status(KERNEL),
            Err(Errno::EINVAL | Errno::EMSGSIZE) => {
                self.set_status(WRONG_FORMAT);
                return Some(sent.map(|()| 0));
            }
            // It stays the next one.
            Err(error) => return Some(Err(error)),
        }
        self.next = self.geometry.after(self.next);
        Some(Ok(if sent.is_ok() { length as usize } else { 0 }))
    }
}

/// What programs map of a socket: the ring of what is received, and behind it that of what is to be
/// sent.
#[derive(Default)]
pub struct Mapped(Weak<Object>);

impl Mapped {
    /// Whether anybody has it mapped.
    pub fn is_mapped(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The memory of these rings, if it has `length` bytes. May sleep.
    pub fn map(&mut self, rings: &[Arc<Pages>], length: u64) -> Result<Arc<Object>, Errno> {
        let bytes: u64 = rings.iter().map(|pages| pages.bytes()).sum();
        if bytes == 0 || bytes != length {
            return Err(Errno::EINVAL);
        }
        if let Some(object) = self.0.upgrade() {
            return Ok(object);
        }
        let object = Pages::object(rings.iter().map(|pages| &**pages))?;
        self.0 = Arc::downgrade(&object);
        Ok(object)
    }
}
