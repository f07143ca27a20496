// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of parts of a file (fcntl(2), "advisory record locking"): many may read a part, or one may
//! write it. What an owner locks anew takes the place of what it had there.

use alloc::vec::Vec;

/// The last byte of a part without end.
pub const END: u64 = i64::MAX as u64;

/// A part that somebody has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<O> {
    /// Who.
    pub owner: O,
    /// To write it.
    pub is_exclusive: bool,
    /// Its first byte.
    pub first: u64,
    /// Its last byte; [`END`] if it has none.
    pub last: u64,
}

/// Who waits for whom to unlock something, whatever the file, of those who would wait for ever if
/// they did so in a circle.
#[derive(Clone, Debug)]
pub struct Waits<O>(Vec<Wait<O>>);

/// Somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait<O> {
    /// Tells it from other waits: an owner may have several.
    pub id: usize,
    /// The file.
    pub file: usize,
    /// Who waits.
    pub owner: O,
    /// The owner of a record that is in the way.
    pub for_whom: O,
}

/// Why nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWait {
    /// It would be for ever.
    Deadlock,
    /// There is no memory.
    Full,
}

/// Most owners of a circle behind the one that is about to wait: beyond that Linux does not look.
const CIRCLE: usize = 11;

/// There are [`MOST`] records, or there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Most records of a file.
pub const MOST: usize = 256;

/// All that is locked of a file.
#[derive(Clone, Debug)]
pub struct Records<O> {
    held: Vec<Record<O>>,
}

impl<O> Default for Records<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O> Records<O> {
    /// Nothing.
    pub const fn new() -> Self {
        Self { held: Vec::new() }
    }
}

impl<O> Waits<O> {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
}

impl<O> Default for Waits<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Copy + PartialEq> Waits<O> {
    /// Somebody is about to wait, instead of what `wait.id` has waited for. May allocate.
    pub fn begin(&mut self, wait: Wait<O>) -> Result<(), NoWait> {
        self.end(wait.id);
        let mut next = wait.for_whom;
        for _ in 0..CIRCLE {
            let Some(found) = self.0.iter().find(|found| found.owner == next) else { break };
            next = found.for_whom;
            if next == wait.owner {
                return Err(NoWait::Deadlock);
            }
        }
        self.0.try_reserve(1).map_err(|_| NoWait::Full)?;
        self.0.push(wait);
        Ok(())
    }

    /// The wait of this number is over.
    pub fn end(&mut self, id: usize) {
        self.0.retain(|wait| wait.id != id);
    }

    /// The records of a file have changed: who waits there looks again.
    pub fn end_at(&mut self, file: usize) {
        self.0.retain(|wait| wait.file != file);
    }
}

impl<O: Copy + PartialEq> Records<O> {
    /// What keeps `wanted` from being locked: one of the records of others.
    pub fn conflict(&self, wanted: &Record<O>) -> Option<Record<O>> {
        let is_in_the_way = |held: &&Record<O>| {
            held.owner != wanted.owner
                && (held.is_exclusive || wanted.is_exclusive)
                && held.first <= wanted.last
                && wanted.first <= held.last
        };
        self.held.iter().find(is_in_the_way).copied()
    }

    /// Locks a part that nothing keeps from it. On failure nothing has changed.
    pub fn lock(&mut self, wanted: Record<O>) -> Result<(), Full> {
        self.make_room()?;
        // What it has beside that becomes one with it.
        let touches = |held: &Record<O>| {
            held.owner == wanted.owner
                && held.is_exclusive == wanted.is_exclusive
                && held.first <= wanted.last.saturating_add(1)
                && wanted.first <= held.last.saturating_add(1)
        };
        let (mut first, mut last) = (wanted.first, wanted.last);
        for held in self.held.iter().filter(|held| touches(held)) {
            (first, last) = (first.min(held.first), last.max(held.last));
        }
        self.cut(wanted.owner, first, last);
        self.held.push(Record { first, last, ..wanted });
        Ok(())
    }

    /// Unlocks what an owner has of a part; says whether it had something there. On failure nothing
    /// has changed.
    pub fn unlock(&mut self, owner: O, first: u64, last: u64) -> Result<bool, Full> {
        self.make_room()?;
        Ok(self.cut(owner, first, last))
    }

    /// Unlocks all that an owner has; says whether that is something.
    pub fn release(&mut self, owner: O) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.owner != owner);
        self.held.len() < before
    }

    /// Has `change` say whose each record is from now on.
    pub fn change_owners(&mut self, change: impl Fn(&mut O)) {
        self.held.iter_mut().for_each(|held| change(&mut held.owner));
    }

    /// Room for what a change may need more: a record that is cut in two, and a new one.
    fn make_room(&mut self) -> Result<(), Full> {
        if self.held.len() + 2 > MOST {
            return Err(Full);
        }
        self.held.try_reserve(2).map_err(|_| Full)
    }

    /// As [`unlock`](Self::unlock), where there is room.
    fn cut(&mut self, owner: O, first: u64, last: u64) -> bool {
        let mut had = false;
        let mut at = 0;
        while let Some(&held) = self.held.get(at) {
            if held.owner != owner || held.first > last || first > held.last {
                at += 1;
                continue;
            }
            had = true;
            self.held.swap_remove(at);
            // Neither of these is in the part, so that none is looked at in vain for ever.
            if held.first < first {
                self.held.push(Record { last: first - 1, ..held });
            }
            if held.last > last {
                self.held.push(Record { first: last + 1, ..held });
            }
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are looked at.
    const BYTES: usize = 24;

    fn record(owner: u8, is_exclusive: bool, first: u64, last: u64) -> Record<u8> {
        Record { owner, is_exclusive, first, last }
    }

    #[test]
    fn the_last_byte_has_no_neighbour() {
        let mut records = Records::new();
        records.lock(record(1, true, 5, END)).unwrap();
        records.lock(record(1, true, 0, 4)).unwrap();
        assert_eq!(records.held, [record(1, true, 0, END)]);
        assert_eq!(records.unlock(1, 10, END), Ok(true));
        assert_eq!(records.conflict(&record(2, false, 9, END)).unwrap().last, 9);
        assert_eq!(records.conflict(&record(2, true, 10, END)), None);
    }

    #[test]
    fn too_many_are_refused_and_change_nothing() {
        let mut records = Records::new();
        let done = (0..MOST as u64)
            .take_while(|&at| records.lock(record(1, true, 2 * at, 2 * at)).is_ok());
        let count = done.count();
        assert_eq!(records.held.len(), count);
        assert_eq!(records.lock(record(1, true, 9_999, 9_999)), Err(Full));
        assert!(records.release(1));
        assert!(records.held.is_empty());
    }

    fn wait(id: usize, file: usize, owner: u8, for_whom: u8) -> Wait<u8> {
        Wait { id, file, owner, for_whom }
    }

    #[test]
    fn who_would_close_a_circle_does_not_wait() {
        let mut waits = Waits::new();
        assert_eq!(waits.begin(wait(1, 1, 1, 2)), Ok(()));
        assert_eq!(waits.begin(wait(2, 2, 2, 1)), Err(NoWait::Deadlock));
        assert_eq!(waits.begin(wait(2, 2, 2, 3)), Ok(()));
        assert_eq!(waits.begin(wait(3, 1, 3, 1)), Err(NoWait::Deadlock));
        assert_eq!(waits.begin(wait(3, 1, 3, 4)), Ok(()));
        // Another thread of the same owner, which would close one as well.
        assert_eq!(waits.begin(wait(4, 1, 4, 1)), Err(NoWait::Deadlock));
        // Somebody who waits already may find another one in the way.
        assert_eq!(waits.begin(wait(1, 1, 1, 5)), Ok(()));
        assert_eq!(waits.begin(wait(4, 1, 4, 1)), Ok(()));
        waits.end(4);
        waits.end_at(2);
        assert_eq!(waits.0, [wait(3, 1, 3, 4), wait(1, 1, 1, 5)]);
    }

    #[test]
    fn no_circle_is_looked_for_beyond_what_linux_looks_at() {
        for length in 1..20 {
            let mut waits = Waits::new();
            for owner in 1..=length {
                assert_eq!(waits.begin(wait(owner.into(), 1, owner, owner + 1)), Ok(()));
            }
            let last = waits.begin(wait(0, 1, length + 1, 1));
            assert_eq!(last.is_err(), usize::from(length) <= CIRCLE, "{length}");
        }
    }

    proptest! {
        /// A lock for each byte and owner says the same.
        #[test]
        fn each_byte_is_locked_as_if_by_itself(
            steps in prop::collection::vec(
                (0u8..3, 0u8..4, 0..BYTES as u64, 0..BYTES as u64), 0..40)
        ) {
            let mut records = Records::new();
            let mut bytes = [[None::<bool>; BYTES]; 3];
            for (owner, what, one, two) in steps {
                let (first, last) = (one.min(two), one.max(two));
                let part = first as usize..=last as usize;
                if what == 3 {
                    records.unlock(owner, first, last).unwrap();
                    bytes[owner as usize][part].fill(None);
                    continue;
                }
                let exclusive = what == 1;
                let wanted = record(owner, exclusive, first, last);
                let others = (0..3).filter(|&other| other != owner as usize);
                let conflicts = others.flat_map(|other| &bytes[other][part.clone()])
                    .any(|held| held.is_some_and(|held| held || exclusive));
                prop_assert_eq!(records.conflict(&wanted).is_some(), conflicts);
                if !conflicts {
                    records.lock(wanted).unwrap();
                    bytes[owner as usize][part].fill(Some(exclusive));
                }
                for (owner, own) in bytes.iter().enumerate() {
                    for (at, held) in own.iter().enumerate() {
                        let here = records.held.iter().filter(|record| {
                            record.owner as usize == owner
                                && (record.first..=record.last).contains(&(at as u64))
                        });
                        let here: Vec<bool> = here.map(|record| record.is_exclusive).collect();
                        prop_assert_eq!(&here, &held.iter().copied().collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
