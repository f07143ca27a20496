// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/crtos-shm/NAME`: the links of which the realm is a peer, with the rules that Linux has for
//! its own programs (`linux/module/link.c`). One program has a link open at a time.

use alloc::{boxed::Box, format, string::String, sync::Arc};

use crtos_abi::link::{MAX_LINK_PEERS, MAX_LINKS};
use crtos_core::{
    devices::links::{Link, Rings},
    mm::object::Object,
    task::WaitQueue,
};
use smallvec::SmallVec;
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

/// The links of the realm.
static PLACES: Once<Box<[Place]>> = Once::new();

/// A link and who waits for its peers.
struct Place {
    link: Link,
    /// Rings of each peer that those who wait were woken for.
    noted: Box<[Rings]>,
    readers: WaitQueue,
    watchers: Watchers,
    locks: Locks,
}

fn start() -> bool {
    let find = || (0..MAX_LINKS).filter_map(Link::find).map(Place::new).collect();
    !PLACES.call_once(find).is_empty()
}

fn places() -> &'static [Place] {
    PLACES.get().map_or(&[], |places| places)
}

fn open(number: u64, _flags: u32) -> Option<Opened> {
    let place = places().iter().find(|place| place.link.device() == number)?;
    Some(place.open().map(|opening| Box::new(opening) as Box<dyn Character>))
}

/// Wakes who waits for peers that have rung. Interrupts off; bounded by the links and their peers.
pub fn look() {
    places().iter().for_each(Place::look);
}

impl Place {
    fn new(link: Link) -> Self {
        let noted = link.rings();
        let (readers, watchers) = (WaitQueue::new(), Watchers::new());
        Self { link, noted, readers, watchers, locks: Locks::default() }
    }

    fn open(&'static self) -> Result<Opening, Errno> {
        let object = self.link.open().ok_or(Errno::EBUSY)??;
        let path = format!("/dev/crtos-shm/{}", self.link.name());
        // What was counted before is no news for this program.
        Ok(Opening { place: self, path, object, rings: self.link.rings() })
    }

    /// Wakes who waits if a peer has rung since the last look. Who is woken looks at all peers.
    /// What is new of a second one wakes once more than needed when somebody rings next.
    fn look(&self) {
        if self.link.is_open() && self.noted.iter().any(Rings::take_news) {
            self.readers.wake_all();
            self.watchers.notify(Events::IN | Events::READ_NORMAL);
        }
    }
}

/// The opening of a link, or what is left of it: the realm is a peer as long as the object is.
struct Opening {
    place: &'static Place,
    path: String,
    object: Arc<Object>,
    /// Those that were read last are seen.
    rings: Box<[Rings]>,
}

impl Opening {
    /// Whether a peer has rung since the last read.
    fn has_news(&self) -> bool {
        self.rings.iter().any(Rings::are_news)
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
        wait::take(&self.place.readers, nonblocking, || self.has_news().then_some(()))?;
        let counts: SmallVec<[_; MAX_LINK_PEERS]> = self.rings.iter().map(Rings::count).collect();
        let sum = counts.iter().fold(0u32, |sum, &count| sum.wrapping_add(count));
        if (memory.write(&sum.to_le_bytes()) as u64) < WORD {
            return Err(Errno::EFAULT);
        }
        self.rings.iter().zip(counts).for_each(|(rings, count)| rings.see(count));
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
        events.set(Events::IN | Events::READ_NORMAL, self.has_news());
        events
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.place.watchers)
    }

    fn locks(&self) -> &Locks {
        &self.place.locks
    }
}
