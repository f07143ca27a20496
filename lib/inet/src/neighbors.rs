// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stations of the network, by their address, and frames that wait until one is known.
//!
//! An address that was known once is used on while it is asked for anew, so that no frame waits for
//! that. Who is not asked for gets no place by answers, and by questions only while there is one
//! that nobody has used for long. A station that is asked for takes the place of one that does not
//! answer, before that of one that is known: so who sends to many that are not there leaves others
//! the stations that they talk to.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::{
    kept::{Kept, Room},
    packet::{LONGEST, Station},
};

/// Most stations that are known.
const MOST: usize = 64;
/// Most stations that programs have named for good.
const MOST_FIXED: usize = 32;
/// Most frames that wait for stations, and most of them for one.
const MOST_FRAMES: usize = 32;
const MOST_FOR_ONE: usize = 8;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How long a station is believed to be where it was, if nothing is heard of it.
const CONFIRMED: u64 = 30 * SECOND;
/// How long a place that nobody used is kept for its station.
const UNUSED: u64 = 60 * SECOND;
/// How often a station is asked for until it is not there.
const TRIES: u8 = 3;
/// When a station was last heard of that a program has named for good.
const FIXED: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    address: Ipv4Addr,
    station: Option<Station>,
    /// When it was last heard of, and last used.
    heard: u64,
    used: u64,
    /// When it was last asked for, and how often without an answer.
    asked: u64,
    tries: u8,
}

impl Entry {
    fn is_fixed(&self) -> bool {
        self.heard == FIXED
    }
}

/// What is known of the station with an address that is asked for, or that a program has named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The station, if it has answered.
    pub station: Option<Station>,
    /// A program has named it for good.
    pub is_fixed: bool,
}

/// A frame that waits for the station with that address, with what is known of it.
struct Waiting<T> {
    to: Ipv4Addr,
    known: T,
    kept: Kept,
}

/// What is to be done with a frame for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The station, if it is known.
    pub station: Option<Station>,
    /// It is to be asked for.
    pub ask: bool,
}

/// What is to be done at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// A station is to be asked for again.
    Ask(Ipv4Addr),
    /// There is no station with that address.
    Gone(Ipv4Addr),
}

/// The stations. Of each frame that waits there is a `T`.
pub struct Neighbors<T> {
    entries: Vec<Entry>,
    waiting: Vec<Waiting<T>>,
    room: Room,
}

impl<T> Default for Neighbors<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Neighbors<T> {
    /// None are known. Allocates all that it ever has, but for frames that are longer than usual:
    /// 52 KiB.
    pub fn new() -> Self {
        Self {
            entries: Vec::with_capacity(MOST),
            waiting: Vec::with_capacity(MOST_FRAMES),
            room: Room::new(MOST_FRAMES),
        }
    }

    fn find(&mut self, address: Ipv4Addr) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.address == address)
    }

    /// The way to an address. Bounded by the number of stations.
    pub fn way(&mut self, to: Ipv4Addr, now: u64) -> Way {
        if self.find(to).is_none() && !self.add(to, now, true) {
            return Way { station: None, ask: false };
        }
        let Some(entry) = self.find(to) else { return Way { station: None, ask: false } };
        entry.used = now;
        let is_fresh = entry.station.is_some() && now.saturating_sub(entry.heard) < CONFIRMED;
        let may_ask = entry.tries == 0 || now.saturating_sub(entry.asked) >= SECOND;
        let ask = !is_fresh && may_ask;
        if ask {
            entry.asked = now;
            entry.tries = entry.tries.saturating_add(1);
        }
        Way { station: entry.station, ask }
    }

    /// A place for an address; that of one which is not known or not used, if there is no other.
    fn add(&mut self, address: Ipv4Addr, now: u64, is_wanted: bool) -> bool {
        let entry = Entry { address, station: None, heard: 0, used: now, asked: 0, tries: 0 };
        if self.entries.len() < MOST {
            self.entries.push(entry);
            return true;
        }
        let waiting = &self.waiting;
        let is_wanted_now = |address| waiting.iter().any(|frame| frame.to == address);
        let oldest = self
            .entries
            .iter_mut()
            .filter(|entry| !is_wanted_now(entry.address) && !entry.is_fixed())
            .filter(|entry| is_wanted || now.saturating_sub(entry.used) > UNUSED)
            .min_by_key(|entry| (entry.station.is_some(), entry.used));
        match oldest {
            Some(oldest) => {
                *oldest = entry;
                true
            }
            None => false,
        }
    }

    /// A frame waits for the station with that address. `false` if it is lost, because too many
    /// wait.
    pub fn wait(&mut self, to: Ipv4Addr, frame: &[u8], known: T) -> bool {
        let for_it = self.waiting.iter().filter(|waiting| waiting.to == to).count();
        if for_it >= MOST_FOR_ONE || frame.len() > LONGEST || self.find(to).is_none() {
            return false;
        }
        let Some(room) = self.room.take() else { return false };
        match Kept::new(room, frame) {
            Ok(kept) => self.waiting.push(Waiting { to, known, kept }),
            Err(room) => {
                self.room.give_back(room);
                return false;
            }
        }
        true
    }

    /// A station is heard of. `is_meant`: it has asked for this one or answers it, so it gets a
    /// place.
    pub fn hear(&mut self, address: Ipv4Addr, station: Station, is_meant: bool, now: u64) {
        if self.find(address).is_none() && !(is_meant && self.add(address, now, false)) {
            return;
        }
        if let Some(entry) = self.find(address).filter(|entry| !entry.is_fixed()) {
            entry.station = Some(station);
            entry.heard = now;
            entry.tries = 0;
        }
    }

    /// A program says where an address is: for good, or until it is heard of otherwise. `false` if
    /// there is no place.
    pub fn set(&mut self, address: Ipv4Addr, station: Station, is_fixed: bool, now: u64) -> bool {
        let others = self.entries.iter().filter(|entry| entry.address != address);
        if is_fixed && others.filter(|entry| entry.is_fixed()).count() >= MOST_FIXED {
            return false;
        }
        if self.find(address).is_none() && !self.add(address, now, true) {
            return false;
        }
        if let Some(entry) = self.find(address) {
            entry.station = Some(station);
            entry.heard = if is_fixed { FIXED } else { now };
            entry.tries = 0;
        }
        true
    }

    /// What is known of the station with an address; `None` if nobody has asked for it.
    pub fn known(&self, address: Ipv4Addr) -> Option<Known> {
        let entry = self.entries.iter().find(|entry| entry.address == address)?;
        Some(Known { station: entry.station, is_fixed: entry.is_fixed() })
    }

    /// Nothing is known of the station with an address from now on, unless frames wait for it.
    pub fn forget(&mut self, address: Ipv4Addr) {
        if self.waiting.iter().all(|waiting| waiting.to != address) {
            self.entries.retain(|entry| entry.address != address);
        }
    }

    /// Gives the frames that waited for an address to `give`, in the order in which they came.
    pub fn release(&mut self, address: Ipv4Addr, mut give: impl FnMut(&mut [u8], T)) {
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.to == address) {
            let mut waiting = self.waiting.remove(at);
            give(waiting.kept.frame(), waiting.known);
            self.room.give_back(waiting.kept.into_room());
        }
    }

    /// What is to be done now because a station does not answer; one thing at a time.
    pub fn look(&mut self, now: u64) -> Option<Due> {
        let waiting = &self.waiting;
        let is_late = |entry: &&mut Entry| {
            entry.tries > 0
                && now.saturating_sub(entry.asked) >= SECOND
                && (entry.station.is_some()
                    || waiting.iter().any(|frame| frame.to == entry.address))
        };
        let entry = self.entries.iter_mut().find(is_late)?;
        if entry.tries < TRIES {
            entry.asked = now;
            entry.tries += 1;
            return Some(Due::Ask(entry.address));
        }
        // It is asked for again by the next frame.
        entry.station = None;
        entry.tries = 0;
        Some(Due::Gone(entry.address))
    }

    /// When [`look`](Self::look) finds something next.
    pub fn due(&self) -> Option<u64> {
        let matters = |entry: &&Entry| {
            entry.tries > 0
                && (entry.station.is_some()
                    || self.waiting.iter().any(|frame| frame.to == entry.address))
        };
        self.entries.iter().filter(matters).map(|entry| entry.asked + SECOND).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    const STATION: Station = [2, 0, 0, 0, 0, 9];

    #[test]
    fn a_frame_waits_for_its_station() {
        let mut all = Neighbors::new();
        assert_eq!(all.way(A, 5), Way { station: None, ask: true });
        assert!(all.wait(A, b"first", 1));
        assert_eq!(all.way(A, 6), Way { station: None, ask: false });
        assert!(all.wait(A, b"second", 2));
        all.hear(A, STATION, true, 7);
        let mut got = vec![];
        all.release(A, |frame, known| got.push((frame.to_vec(), known)));
        assert_eq!(got, [(b"first".to_vec(), 1), (b"second".to_vec(), 2)]);
        assert_eq!(all.way(A, 8), Way { station: Some(STATION), ask: false });
        assert_eq!(all.due(), None);
    }

    #[test]
    fn a_known_station_is_used_while_it_is_asked_for() {
        let mut all = Neighbors::<()>::new();
        all.way(A, 0);
        all.hear(A, STATION, true, 1);
        let later = 1 + CONFIRMED;
        assert_eq!(all.way(A, later), Way { station: Some(STATION), ask: true });
        assert_eq!(all.way(A, later + 1), Way { station: Some(STATION), ask: false });
        all.hear(A, STATION, true, later + 2);
        assert_eq!(all.due(), None);
    }

    #[test]
    fn who_does_not_answer_is_gone() {
        let mut all = Neighbors::new();
        all.way(A, 0);
        all.wait(A, b"frame", ());
        assert_eq!(all.look(1), None);
        assert_eq!(all.due(), Some(SECOND));
        assert_eq!(all.look(SECOND), Some(Due::Ask(A)));
        assert_eq!(all.look(SECOND), None);
        assert_eq!(all.look(2 * SECOND), Some(Due::Ask(A)));
        assert_eq!(all.look(3 * SECOND), Some(Due::Gone(A)));
        let mut lost = 0;
        all.release(A, |_, ()| lost += 1);
        assert_eq!(lost, 1);
        assert_eq!(all.due(), None);
        assert!(all.way(A, 3 * SECOND).ask);
    }

    #[test]
    fn strangers_get_no_place_of_others() {
        let mut all = Neighbors::<()>::new();
        all.way(A, SECOND);
        all.hear(A, STATION, true, SECOND);
        for number in 0..1000u32 {
            all.hear(Ipv4Addr::from(0x0b00_0000 + number), [4; 6], true, SECOND);
        }
        assert_eq!(all.way(A, SECOND).station, Some(STATION));
        // What nobody asked for and nobody is told of changes nothing.
        all.hear(Ipv4Addr::new(12, 0, 0, 1), [6; 6], false, SECOND);
        assert!(all.find(Ipv4Addr::new(12, 0, 0, 1)).is_none());
    }

    #[test]
    fn what_a_program_names_for_good_stays() {
        let mut all = Neighbors::<()>::new();
        assert_eq!(all.known(A), None);
        all.way(A, 0);
        assert_eq!(all.known(A), Some(Known { station: None, is_fixed: false }));
        assert!(all.set(A, STATION, true, SECOND));
        assert_eq!(all.known(A), Some(Known { station: Some(STATION), is_fixed: true }));
        all.hear(A, [7; 6], true, 2 * SECOND);
        for number in 0..1000u32 {
            all.way(Ipv4Addr::from(0x0b00_0000 + number), 3 * SECOND);
        }
        let later = 3 * SECOND + 2 * CONFIRMED;
        assert_eq!(all.way(A, later), Way { station: Some(STATION), ask: false });
        // One that is named for now is heard of otherwise, and asked for after a while.
        assert!(all.set(A, STATION, false, later));
        assert!(!all.way(A, later).ask && all.way(A, later + CONFIRMED).ask);
        all.hear(A, [7; 6], true, later);
        assert_eq!(all.way(A, later).station, Some([7; 6]));
        all.forget(A);
        assert_eq!(all.known(A), None);
    }

    #[test]
    fn programs_leave_places_to_others() {
        let mut all = Neighbors::<()>::new();
        let named = |number: u32| Ipv4Addr::from(0x0b00_0000 + number);
        let set = (0..1000).filter(|&number| all.set(named(number), STATION, true, 0)).count();
        assert_eq!(set, MOST_FIXED);
        assert!(all.set(named(0), [7; 6], true, 0));
        assert!(all.way(A, 0).ask);
    }

    #[test]
    fn who_is_not_there_takes_no_place_of_who_is() {
        let mut all = Neighbors::new();
        let known = |number| Ipv4Addr::new(10, 0, 2, number);
        for number in 0..8 {
            all.way(known(number), 0);
            all.hear(known(number), STATION, true, 1);
        }
        for number in 0..1000u32 {
            let address = Ipv4Addr::from(0x0a00_0300 + number);
            assert!(all.way(address, SECOND).station.is_none());
            all.wait(address, b"frame", ());
        }
        assert!((0..8).all(|number| all.way(known(number), SECOND).station == Some(STATION)));
        // Those that are known make way for others that are.
        for number in 0..1000u32 {
            let address = Ipv4Addr::from(0x0a01_0000 + number);
            all.way(address, 2 * SECOND);
            all.hear(address, STATION, true, 2 * SECOND);
            assert_eq!(all.way(address, 2 * SECOND).station, Some(STATION));
        }
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_comes_back(
            steps in prop::collection::vec((0u8..7, 0u8..100, 0u64..4), 0..300)
        ) {
            let mut all = Neighbors::new();
            let mut now = 0;
            for (what, number, time) in steps {
                now += time * SECOND / 2;
                let address = Ipv4Addr::new(10, 0, 1, number);
                match what {
                    0 => {
                        if all.way(address, now).station.is_none() {
                            all.wait(address, &[number], ());
                        }
                    }
                    1 => {
                        all.hear(address, [2; 6], true, now);
                        all.release(address, |_, ()| {});
                    }
                    2 => all.hear(address, [2; 6], false, now),
                    3 => _ = all.set(address, [3; 6], false, now),
                    4 => _ = all.set(address, [3; 6], true, now),
                    5 => all.forget(address),
                    _ => while let Some(due) = all.look(now) {
                        if let Due::Gone(address) = due {
                            all.release(address, |_, ()| {});
                        }
                    },
                }
                prop_assert!(all.entries.len() <= MOST);
                prop_assert_eq!(all.room.left() + all.waiting.len(), MOST_FRAMES);
                let has_place = |frame: &Waiting<()>| {
                    all.entries.iter().any(|entry| entry.address == frame.to)
                };
                prop_assert!(all.waiting.iter().all(has_place));
            }
        }
    }
}
