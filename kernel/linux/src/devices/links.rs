// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/crtos-shm/NAME`: the links of which the realm is a peer, with the rules that Linux has for
//! its own programs (`linux/module/link.c`). One program has a link open at a time.

use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::link::{MAX_LINK_PEERS, MAX_LINKS};
use crtos_core::{devices::links::Link, mm::object::Object, task::WaitQueue};
use spin::Once;

use super::{Driver, Opened};
use crate::{
    abi::{Errno, SysResult},
    files::{Events, Memory, Watchers, character::Character, lock::Locks, wait},
};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, described: None, open };

/// Bytes of the count that programs read, and of the number of a peer that they write.
const WORD: u64 = 4;

/// The links, by number.
static PLACES: [Once<Place>; MAX_LINKS] = [const { Once::new() }; MAX_LINKS];

/// A link and who waits for its peers.
struct Place {
    link: Link,
    /// Rings of each peer that those who wait were woken for.
    noted: [AtomicU32; MAX_LINK_PEERS],
    readers: WaitQueue,
    watchers: Watchers,
    locks: Locks,
}

fn start() -> bool {
    for (number, place) in PLACES.iter().enumerate() {
        if let Some(link) = Link::find(number) {
            place.call_once(|| Place::new(link));
        }
    }
    places().next().is_some()
}

fn places() -> impl Iterator<Item = &'static Place> {
    PLACES.iter().filter_map(Once::get)
}

fn open(number: u64, _flags: u32) -> Option<Opened> {
    let place = places().find(|place| place.link.device() == number)?;
    Some(place.open().map(|opening| Box::new(opening) as Box<dyn Character>))
}

/// A doorbell has rung, for whatever; says whether that has woken somebody. Interrupts off; bounded
/// by the links and their peers.
pub fn doorbell() -> bool {
    // Each is looked at, whatever the others found.
    places().filter(|place| place.look()).count() > 0
}

impl Place {
    fn new(link: Link) -> Self {
        let noted = link.rings().map(AtomicU32::new);
        let (readers, watchers) = (WaitQueue::new(), Watchers::new());
        Self { link, noted, readers, watchers, locks: Locks::default() }
    }

    fn open(&'static self) -> Result<Opening, Errno> {
        let object = self.link.open().ok_or(Errno::EBUSY)??;
        let path = format!("/dev/crtos-shm/{}", self.link.name());
        // What was counted before is no news for this program.
        Ok(Opening { place: self, path, object, seen: self.link.rings().map(AtomicU32::new) })
    }

    /// Wakes who waits if a peer has rung since the last look.
    fn look(&self) -> bool {
        if !self.link.is_open() {
            return false;
        }
        let mut news = false;
        for (noted, count) in self.noted.iter().zip(self.link.rings()) {
            // Two CPUs at once wake once more than needed.
            if noted.load(Ordering::Relaxed) != count {
                noted.store(count, Ordering::Relaxed);
                news = true;
            }
        }
        if news {
            self.readers.wake_all();
            self.watchers.notify(Events::IN | Events::READ_NORMAL);
        }
        news
    }
}

/// The opening of a link, or what is left of it: the realm is a peer as long as the object is.
struct Opening {
    place: &'static Place,
    path: String,
    object: Arc<Object>,
    /// The rings of each peer that were read last.
    seen: [AtomicU32; MAX_LINK_PEERS],
}

impl Opening {
    /// The rings of all peers, if one has rung since the last read. Each is asked for itself: in a
    /// sum, one could hide the rings of another by taking back as many of its own.
    fn news(&self) -> Option<[u32; MAX_LINK_PEERS]> {
        let rings = self.place.link.rings();
        let is_new = |(seen, ring): (&AtomicU32, &u32)| seen.load(Ordering::Relaxed) != *ring;
        self.seen.iter().zip(&rings).any(is_new).then_some(rings)
    }
}

impl Character for Opening {
    fn path(&self) -> &str {
        &self.path
    }

    /// How often all peers have rung, modulo 2^32.
    fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() != WORD {
            return Err(Errno::EINVAL);
        }
        let rings = wait::take(&self.place.readers, nonblocking, || self.news())?;
        let sum = rings.iter().fold(0u32, |sum, &count| sum.wrapping_add(count));
        if (memory.write(&sum.to_le_bytes()) as u64) < WORD {
            return Err(Errno::EFAULT);
        }
        self.seen.iter().zip(rings).for_each(|(seen, ring)| seen.store(ring, Ordering::Relaxed));
        Ok(WORD)
    }

    /// Rings the peer whose number is written.
    fn write(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        if memory.left() != WORD {
            return Err(Errno::EINVAL);
        }
        let mut word = [0; WORD as usize];
        if (memory.read(&mut word) as u64) < WORD {
            return Err(Errno::EFAULT);
        }
        let (link, peer) = (&self.place.link, u32::from_le_bytes(word) as usize);
        if peer == link.own() || peer >= link.layout().peers() {
            return Err(Errno::EINVAL);
        }
        link.ring(peer);
        Ok(WORD)
    }

    /// As noop_llseek of Linux.
    fn seek(&self, _offset: u64, _whence: u32) -> SysResult {
        Ok(0)
    }

    fn link(&self) -> Option<(&Link, &Arc<Object>)> {
        Some((&self.place.link, &self.object))
    }

    fn ready(&self) -> Events {
        let mut events = Events::OUT | Events::WRITE_NORMAL;
        events.set(Events::IN | Events::READ_NORMAL, self.news().is_some());
        events
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.place.watchers)
    }

    fn locks(&self) -> &Locks {
        &self.place.locks
    }
}
