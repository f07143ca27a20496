// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of one descriptor table that two kernels share.
//!
//! A number is free, *local* (its file lives in the real-time kernel) or *remote* (the shadow has
//! it in Linux). A new descriptor gets the lowest free number, whichever kernel makes it. The
//! real-time kernel knows both kinds and chooses the number itself. Linux knows only the shadow's
//! table. So before Linux chooses a number, the shadow's table is brought into *agreement*: a
//! placeholder lies at each local number, and none at a number that is no longer local. Until then
//! Linux is not told, so that opening and closing local files needs nothing of Linux.
//!
//! Numbers from [`NUMBERS`] on are always remote, and the table does not hold them.

/// Numbers that the table holds; local ones are below this.
pub const NUMBERS: u32 = 4096;
/// 64-bit words of a set of numbers.
pub const WORDS: usize = NUMBERS as usize / 64;

/// Words that one call of [`Numbers::forget_remote`] looks at.
const STEP: usize = 8;

type Set = [u64; WORDS];

const EMPTY: Set = [0; WORDS];

/// Returns the word and the bit of a number, if the table holds it.
fn place(number: u32) -> Option<(usize, u64)> {
    (number < NUMBERS).then(|| (number as usize / 64, 1 << (number % 64)))
}

/// What the shadow has to do so that its table agrees at 64 numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The numbers are `64 * word..64 * word + 64`.
    pub word: usize,
    /// Numbers (bit `n % 64`) that need a placeholder.
    pub place: u64,
    /// Numbers whose placeholder has to go.
    pub remove: u64,
}

/// The numbers of a process.
#[derive(Clone)]
pub struct Numbers {
    /// Numbers that are local or remote.
    used: Set,
    /// A bit for each word of `used` that has no free number.
    full: u64,
    local: Set,
    /// Numbers at which the shadow has a placeholder, or the Linux half of a local file.
    placed: Set,
    close_on_exec: Set,
    /// A bit for each word in which `local` and `placed` differ.
    differs: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}

impl Numbers {
    /// Makes a table in which no number is in use.
    pub const fn new() -> Self {
        Self { used: EMPTY, full: 0, local: EMPTY, placed: EMPTY, close_on_exec: EMPTY, differs: 0 }
    }

    /// Brings `full` and `differs` up to date for a word.
    fn update(&mut self, word: usize) {
        let set = |mask: &mut u64, on: bool| *mask = *mask & !(1 << word) | u64::from(on) << word;
        set(&mut self.full, self.used[word] == u64::MAX);
        set(&mut self.differs, self.local[word] != self.placed[word]);
    }

    /// Returns the lowest free number that is at least `from`. Constant time.
    pub fn lowest(&self, from: u32) -> Option<u32> {
        let (first, _) = place(from)?;
        let here = !self.used[first] & u64::MAX << (from % 64);
        if here != 0 {
            return Some(first as u32 * 64 + here.trailing_zeros());
        }
        let behind = !self.full & u64::MAX.checked_shl(first as u32 + 1).unwrap_or(0);
        let word = (behind != 0).then(|| behind.trailing_zeros() as usize)?;
        Some(word as u32 * 64 + (!self.used[word]).trailing_zeros())
    }

    /// Makes `number` local, whatever it was.
    pub fn set_local(&mut self, number: u32, close_on_exec: bool) {
        let Some((word, bit)) = place(number) else { return };
        self.used[word] |= bit;
        self.local[word] |= bit;
        self.set_close_on_exec(number, close_on_exec);
        self.update(word);
    }

    /// Makes `number` remote: Linux has put a file there, in place of a placeholder if there was
    /// one. `false` if the number is local: then both kernels chose it at the same time. It stays
    /// local, and the placeholder is gone.
    pub fn set_remote(&mut self, number: u32) -> bool {
        let Some((word, bit)) = place(number) else { return true };
        self.placed[word] &= !bit;
        let free = self.local[word] & bit == 0;
        if free {
            self.used[word] |= bit;
            self.close_on_exec[word] &= !bit;
        }
        self.update(word);
        free
    }

    /// Makes `number` free.
    pub fn set_free(&mut self, number: u32) {
        let Some((word, bit)) = place(number) else { return };
        self.used[word] &= !bit;
        self.local[word] &= !bit;
        self.close_on_exec[word] &= !bit;
        self.update(word);
    }

    /// Frees the remote numbers of `first..=last`; placeholders there are gone. Looks at `STEP`
    /// words, and returns the number to go on at.
    pub fn forget_remote(&mut self, first: u32, last: u32) -> Option<u32> {
        let mut from = first;
        for _ in 0..STEP {
            let (word, _) = place(from).filter(|_| from <= last)?;
            let base = word as u32 * 64;
            let to = last.min(base + 63);
            let range = u64::MAX << (from - base) & u64::MAX >> (63 - (to - base));
            self.used[word] &= !range | self.local[word];
            self.placed[word] &= !range;
            self.update(word);
            from = base + 64;
        }
        Some(from)
    }

    /// Says whether `number` is local.
    pub fn is_local(&self, number: u32) -> bool {
        place(number).is_some_and(|(word, bit)| self.local[word] & bit != 0)
    }

    /// Says whether `number` is local or remote.
    pub fn is_used(&self, number: u32) -> bool {
        place(number).is_some_and(|(word, bit)| self.used[word] & bit != 0)
    }

    /// Says whether there is nothing at `number` but a placeholder that has to go. To the program
    /// the number is free, whatever Linux says.
    pub fn is_stale(&self, number: u32) -> bool {
        place(number).is_some_and(|(word, bit)| self.placed[word] & !self.used[word] & bit != 0)
    }

    /// Says whether the shadow has a placeholder (or the Linux half of a file) at `number`.
    pub fn is_placed(&self, number: u32) -> bool {
        place(number).is_some_and(|(word, bit)| self.placed[word] & bit != 0)
    }

    /// Notes whether the shadow has a placeholder (or the Linux half of a file) at `number`.
    pub fn set_placed(&mut self, number: u32, placed: bool) {
        let Some((word, bit)) = place(number) else { return };
        match placed {
            true => self.placed[word] |= bit,
            false => self.placed[word] &= !bit,
        }
        self.update(word);
    }

    /// Returns the flag FD_CLOEXEC of a local number.
    pub fn close_on_exec(&self, number: u32) -> bool {
        place(number).is_some_and(|(word, bit)| self.close_on_exec[word] & bit != 0)
    }

    /// Sets the flag FD_CLOEXEC of a local number.
    pub fn set_close_on_exec(&mut self, number: u32, on: bool) {
        let Some((word, bit)) = place(number) else { return };
        match on {
            true => self.close_on_exec[word] |= bit,
            false => self.close_on_exec[word] &= !bit,
        }
    }

    /// Returns the next step towards agreement; `None` if the tables agree. Constant time.
    pub fn disagreement(&self) -> Option<Batch> {
        let word = (self.differs != 0).then(|| self.differs.trailing_zeros() as usize)?;
        let (local, placed) = (self.local[word], self.placed[word]);
        Some(Batch { word, place: local & !placed, remove: placed & !local })
    }

    /// Notes that the shadow has carried out `batch`. It leaves files of Linux's own alone: where
    /// there is one, a missing placeholder counts as put, because Linux will not choose the number,
    /// and a placeholder that had to go is gone already.
    pub fn agreed(&mut self, batch: Batch) {
        let Batch { word, place, remove } = batch;
        self.placed[word] = (self.placed[word] | place) & !remove;
        self.update(word);
    }

    /// Notes that Linux has nothing at `number`, where a placeholder was expected.
    pub fn set_unplaced(&mut self, number: u32) {
        let Some((word, bit)) = place(number) else { return };
        self.placed[word] &= !bit;
        self.update(word);
    }

    /// Notes which of the 64 numbers of a word the shadow has in use: those that were free become
    /// remote.
    pub fn learn(&mut self, word: usize, in_use: u64) {
        if word < WORDS {
            self.used[word] |= in_use & !self.placed[word];
            self.update(word);
        }
    }

    /// Iterates over the local numbers from `from` on, in ascending order.
    pub fn locals(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        let first = from as usize / 64;
        self.local.iter().enumerate().skip(first).flat_map(move |(word, &bits)| {
            let bits = if word == first { bits & u64::MAX << (from % 64) } else { bits };
            let next = |bits: &u64| Some(bits & (bits - 1)).filter(|&rest| rest != 0);
            core::iter::successors(Some(bits).filter(|&bits| bits != 0), next)
                .map(move |bits| word as u32 * 64 + bits.trailing_zeros())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Linux's table of the shadow: what lies at each number.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Shadow {
        Placeholder,
        File,
    }

    #[derive(Clone, Debug)]
    enum Step {
        OpenLocal,
        OpenLocalFrom(u32),
        OpenRemote,
        Close(u32),
        DupLocal(u32),
        DupRemote(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = prop_oneof![0..8_u32, 60..70_u32, 4090..NUMBERS];
        proptest::collection::vec(
            prop_oneof![
                Just(Step::OpenLocal),
                number.clone().prop_map(Step::OpenLocalFrom),
                Just(Step::OpenRemote),
                number.clone().prop_map(Step::Close),
                number.clone().prop_map(Step::DupLocal),
                number.prop_map(Step::DupRemote),
            ],
            1..200,
        )
    }

    fn agree(numbers: &mut Numbers, shadow: &mut BTreeMap<u32, Shadow>) {
        for _ in 0..=WORDS {
            let Some(batch) = numbers.disagreement() else { return };
            for bit in 0..64 {
                let number = batch.word as u32 * 64 + bit;
                if batch.remove >> bit & 1 == 1
                    && shadow.remove(&number) != Some(Shadow::Placeholder)
                {
                    panic!("a file was closed as a placeholder");
                }
                if batch.place >> bit & 1 == 1 {
                    shadow.entry(number).or_insert(Shadow::Placeholder);
                }
            }
            numbers.agreed(batch);
        }
        panic!("no agreement");
    }

    proptest! {
        /// Against one table with two kinds of files: each new descriptor gets the number that one
        /// kernel would give.
        #[test]
        fn two_kernels_choose_as_one(steps in steps()) {
            let mut numbers = Numbers::new();
            let mut shadow = BTreeMap::new();
            let mut model: BTreeMap<u32, bool> = BTreeMap::new();
            let lowest = |model: &BTreeMap<u32, bool>, from: u32| {
                (from..NUMBERS).find(|n| !model.contains_key(n))
            };
            for step in steps {
                match step {
                    Step::OpenLocal | Step::OpenLocalFrom(_) => {
                        let from = if let Step::OpenLocalFrom(from) = step { from } else { 0 };
                        let number = numbers.lowest(from);
                        prop_assert_eq!(number, lowest(&model, from));
                        if let Some(number) = number {
                            numbers.set_local(number, false);
                            model.insert(number, true);
                        }
                    }
                    Step::OpenRemote => {
                        agree(&mut numbers, &mut shadow);
                        let number = (0..).find(|n| !shadow.contains_key(n)).unwrap();
                        prop_assert_eq!(Some(number), lowest(&model, 0));
                        shadow.insert(number, Shadow::File);
                        prop_assert!(numbers.set_remote(number));
                        model.insert(number, false);
                    }
                    Step::Close(number) => {
                        let was = model.remove(&number);
                        prop_assert_eq!(numbers.is_local(number), was == Some(true));
                        prop_assert_eq!(numbers.is_used(number), was.is_some());
                        if was == Some(false) {
                            shadow.remove(&number);
                        }
                        numbers.set_free(number);
                    }
                    Step::DupLocal(number) => {
                        if model.insert(number, true) == Some(false) {
                            shadow.remove(&number);
                        }
                        numbers.set_local(number, true);
                        prop_assert!(numbers.close_on_exec(number));
                    }
                    Step::DupRemote(number) => {
                        numbers.set_free(number);
                        shadow.insert(number, Shadow::File);
                        numbers.set_remote(number);
                        model.insert(number, false);
                    }
                }
                let locals: BTreeSet<u32> = numbers.locals(0).collect();
                let expected: BTreeSet<u32> =
                    model.iter().filter(|(_, local)| **local).map(|(n, _)| *n).collect();
                prop_assert_eq!(locals, expected);
            }
        }
    }

    #[test]
    fn both_choose_the_same_number_at_once() {
        let mut numbers = Numbers::new();
        numbers.set_local(0, false);
        // Linux chose 0 before it heard of the local file.
        assert!(!numbers.set_remote(0));
        assert!(numbers.is_local(0));
        let batch = numbers.disagreement().unwrap();
        assert_eq!(batch, Batch { word: 0, place: 1, remove: 0 });
        numbers.agreed(batch);
        assert_eq!(numbers.disagreement(), None);
        // Linux's file has been moved away: the number needs a placeholder.
        numbers.set_unplaced(0);
        assert_eq!(numbers.disagreement(), Some(batch));
        numbers.agreed(batch);
        // The local file is closed before Linux's has been moved away: nothing is left to agree on.
        numbers.set_free(0);
        let batch = numbers.disagreement().unwrap();
        assert_eq!(batch, Batch { word: 0, place: 0, remove: 1 });
        numbers.agreed(batch);
        assert_eq!(numbers.disagreement(), None);
    }

    #[test]
    fn a_range_of_remote_numbers_is_forgotten() {
        let mut numbers = Numbers::new();
        (0..200).for_each(|number| assert!(numbers.set_remote(number)));
        numbers.set_local(66, false);
        assert_eq!(numbers.forget_remote(3, 130), None);
        let used: Vec<u32> = (0..200).filter(|&number| numbers.is_used(number)).collect();
        let expected: Vec<u32> = (0..3).chain([66]).chain(131..200).collect();
        assert_eq!(used, expected);
    }

    proptest! {
        #[test]
        fn a_long_range_is_forgotten_in_steps(
            remote in proptest::collection::btree_set(0..NUMBERS, 0..200),
            local in proptest::collection::btree_set(0..NUMBERS, 0..20),
            first in 0..NUMBERS + 10,
            length in prop_oneof![0..200_u32, 0..2 * NUMBERS, Just(u32::MAX - 2 * NUMBERS)],
        ) {
            let mut numbers = Numbers::new();
            remote.iter().for_each(|&number| assert!(numbers.set_remote(number)));
            local.iter().for_each(|&number| numbers.set_local(number, false));
            let last = first + length;
            let (mut from, mut steps) = (Some(first), 0);
            while let Some(start) = from {
                from = numbers.forget_remote(start, last);
                prop_assert!(from.is_none_or(|next| next > start));
                steps += 1;
            }
            prop_assert!(steps <= WORDS / STEP + 1);
            for number in 0..NUMBERS {
                let kept = remote.contains(&number) && !(first..=last).contains(&number);
                prop_assert_eq!(numbers.is_used(number), kept || local.contains(&number));
            }
        }
    }

    #[test]
    fn what_linux_has_is_not_chosen() {
        let mut numbers = Numbers::new();
        numbers.learn(0, 0b1011);
        assert_eq!(numbers.lowest(0), Some(2));
        numbers.set_local(2, false);
        assert_eq!(numbers.lowest(0), Some(4));
        numbers.agreed(numbers.disagreement().unwrap());
        numbers.set_free(2);
        assert!(numbers.is_stale(2));
        numbers.learn(0, 0b1111);
        assert!(!numbers.is_used(2));
    }
}
