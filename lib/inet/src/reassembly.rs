// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that came in fragments.
//!
//! Each of a few places has the memory of the longest packet. A packet whose fragments overlap is
//! given up, as under Linux (RFC 5722): no sender makes such. A fragment all of which is there is
//! left: networks carry some twice. Where there is no place, the packet that waits longest is given
//! up.

use alloc::{boxed::Box, vec, vec::Vec};
use core::net::Ipv4Addr;

use crate::packet::{Packet, Protocol};

/// Most packets that wait for fragments.
pub const MOST: usize = 4;
/// Most bytes of a packet.
const LONGEST: usize = 65536;
/// Bytes of which fragments are made.
const UNIT: usize = 8;
/// How long a packet waits for its fragments: nanoseconds.
const PATIENCE: u64 = 30_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: Protocol,
    number: u16,
}

struct Place {
    key: Option<Key>,
    /// When its first fragment came.
    begun: u64,
    /// Bytes of the whole, once the last fragment has come.
    whole: Option<usize>,
    /// Units that are there.
    there: Box<[u64]>,
    /// How many they are.
    count: usize,
    bytes: Box<[u8]>,
}

/// The packets that wait for fragments.
pub struct Reassembly {
    places: Vec<Place>,
}

impl Default for Reassembly {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    fn new() -> Self {
        Self {
            key: None,
            begun: 0,
            whole: None,
            there: vec![0; LONGEST / UNIT / 64].into(),
            count: 0,
            bytes: vec![0; LONGEST].into(),
        }
    }

    fn begin(&mut self, key: Key, now: u64) {
        (self.key, self.begun, self.whole, self.count) = (Some(key), now, None, 0);
        self.there.fill(0);
    }

    /// Adds a fragment. `None` if it does not fit to the others.
    fn add(&mut self, packet: &Packet) -> Option<()> {
        let length = packet.payload.len();
        let end = packet.offset + length;
        // A packet has no more than 65,535 bytes with its header.
        if end > LONGEST - 1 - crate::packet::IP || length == 0 {
            return None;
        }
        if packet.has_more && !length.is_multiple_of(UNIT) {
            return None;
        }
        match self.whole {
            Some(whole) if end > whole || !packet.has_more && end != whole => return None,
            _ => {}
        }
        let units = packet.offset / UNIT..end.div_ceil(UNIT);
        let place = |unit: usize| (unit / 64, 1 << (unit % 64));
        let is_there = |unit: &usize| {
            let (word, bit) = place(*unit);
            self.there[word] & bit != 0
        };
        let known = units.clone().filter(is_there).count();
        if known > 0 {
            let is_old = known == units.len() && (packet.has_more || self.whole == Some(end));
            return is_old.then_some(());
        }
        for unit in units {
            let (word, bit) = place(unit);
            self.there[word] |= bit;
            self.count += 1;
        }
        if !packet.has_more {
            // Nothing that came lies behind the end.
            let last = end.div_ceil(UNIT);
            if self.highest() > last {
                return None;
            }
            self.whole = Some(end);
        }
        self.bytes[packet.offset..end].copy_from_slice(packet.payload);
        Some(())
    }

    /// One past the last unit that is there.
    fn highest(&self) -> usize {
        let last = self.there.iter().rposition(|&word| word != 0);
        last.map_or(0, |at| at * 64 + 64 - self.there[at].leading_zeros() as usize)
    }

    fn is_complete(&self) -> bool {
        self.whole.is_some_and(|whole| self.count == whole.div_ceil(UNIT))
    }
}

impl Reassembly {
    /// Nothing waits. Allocates all that it ever has: 260 KiB.
    pub fn new() -> Self {
        Self { places: (0..MOST).map(|_| Place::new()).collect() }
    }

    /// A fragment came. Returns what is in the packet, once all of it is there.
    pub fn add(&mut self, packet: &Packet, now: u64) -> Option<&[u8]> {
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            number: packet.number,
        };
        for place in &mut self.places {
            if now.saturating_sub(place.begun) > PATIENCE {
                place.key = None;
            }
        }
        let known = self.places.iter().position(|place| place.key == Some(key));
        let at = match known {
            Some(at) => at,
            None => {
                let age = |&at: &usize| self.places[at].key.map(|_| self.places[at].begun);
                let at = (0..MOST).min_by_key(age)?;
                self.places[at].begin(key, now);
                at
            }
        };
        let place = &mut self.places[at];
        if place.add(packet).is_none() {
            place.key = None;
            return None;
        }
        if !place.is_complete() {
            return None;
        }
        place.key = None;
        place.bytes.get(..place.whole?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(number: u16, offset: usize, has_more: bool, payload: &[u8]) -> Packet<'_> {
        Packet {
            bytes: payload,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            protocol: Protocol::Udp,
            lifetime: 1,
            service: 0,
            number,
            offset,
            has_more,
            payload,
        }
    }

    #[test]
    fn overlaps_and_gaps() {
        let mut all = Reassembly::new();
        assert_eq!(all.add(&fragment(1, 0, true, &[1; 16]), 0), None);
        // It overlaps, so all of it is given up.
        assert_eq!(all.add(&fragment(1, 8, true, &[2; 16]), 0), None);
        assert_eq!(all.add(&fragment(1, 24, false, &[3; 3]), 0), None);
        // The last one twice, or one behind it.
        assert_eq!(all.add(&fragment(2, 24, false, &[3; 3]), 0), None);
        assert_eq!(all.add(&fragment(2, 32, true, &[3; 8]), 0), None);
        assert_eq!(all.add(&fragment(3, 65528, false, &[3; 8]), 0), None);
        // What came too long ago.
        assert_eq!(all.add(&fragment(4, 0, true, &[1; 8]), 0), None);
        assert_eq!(all.add(&fragment(4, 8, false, &[1; 8]), PATIENCE + 1), None);
    }

    #[test]
    fn what_came_already_is_left() {
        let data: std::vec::Vec<u8> = (0..40).collect();
        let part = |number, from: usize, to: usize| {
            fragment(number, from, to < data.len(), &data[from..to])
        };
        let mut all = Reassembly::new();
        for (number, ways) in [
            (1, [(0, 16), (0, 16), (16, 32), (32, 40)]),
            (2, [(0, 16), (32, 40), (32, 40), (16, 32)]),
            (3, [(0, 16), (16, 32), (8, 24), (32, 40)]),
        ] {
            let mut found = None;
            for (from, to) in ways {
                assert!(found.is_none());
                found = all.add(&part(number, from, to), 0).map(<[u8]>::to_vec);
            }
            assert_eq!(found.as_deref(), Some(&data[..]), "{ways:?}");
        }
        // The end is where it was.
        assert_eq!(all.add(&part(4, 32, 40), 0), None);
        assert_eq!(all.add(&fragment(4, 32, false, &[0; 4]), 0), None);
        assert_eq!(all.add(&part(4, 0, 32), 0), None);
    }

    proptest! {
        #[test]
        fn fragments_come_in_any_order(
            length in 1usize..9000,
            size in 1usize..200,
            seed in any::<u64>(),
        ) {
            let data: std::vec::Vec<u8> = (0..length).map(|at| (at * 7 + at / 256) as u8).collect();
            let mut parts: std::vec::Vec<_> = data.chunks(size * UNIT).enumerate().collect();
            let count = parts.len();
            let mut seed = seed;
            for at in (1..count).rev() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                parts.swap(at, (seed >> 33) as usize % (at + 1));
            }
            let mut all = Reassembly::new();
            for (at, (index, part)) in parts.iter().enumerate() {
                let packet = fragment(9, index * size * UNIT, index + 1 < count, part);
                let whole = all.add(&packet, 5);
                if at + 1 < count {
                    prop_assert!(whole.is_none());
                } else {
                    prop_assert_eq!(whole, Some(&data[..]));
                }
            }
        }

        #[test]
        fn hostile_fragments(
            steps in prop::collection::vec(
                (0u16..8, 0usize..8192, any::<bool>(), 0usize..1480), 0..300
            )
        ) {
            let bytes = [0; 1480];
            let mut all = Reassembly::new();
            for (at, (number, unit, has_more, length)) in steps.into_iter().enumerate() {
                all.add(&fragment(number, unit * UNIT, has_more, &bytes[..length]), at as u64);
            }
        }
    }
}
