// SPDX-License-Identifier: MIT OR Apache-2.0
//! A list that grows without being copied: it consists of pieces, each twice as long as the one
//! before.
//!
//! The caller allocates each piece in advance, so that every step on the list itself takes constant
//! time and no memory.

use alloc::vec::Vec;

/// Entries of the first piece.
const FIRST: usize = 2;
/// The most pieces.
const PIECES: usize = 12;

/// The list.
pub struct Pieces<T> {
    pieces: [Vec<T>; PIECES],
    length: usize,
}

/// Room for more entries of a list.
pub struct Piece<T>(Vec<T>);

impl<T> Piece<T> {
    /// Allocates room for `entries` entries, which is what [`Pieces::wanted`] returned; `None`
    /// without memory.
    pub fn new(entries: usize) -> Option<Self> {
        let mut room = Vec::new();
        room.try_reserve_exact(entries).ok()?;
        Some(Self(room))
    }
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the piece of the entry with this index, and the index in that piece.
const fn place(index: usize) -> (usize, usize) {
    if index < FIRST {
        return (0, index);
    }
    let piece = (index / FIRST + 1).ilog2() as usize;
    (piece, index - (entries(piece) - FIRST))
}

/// Returns the number of entries of a piece. All pieces before it have [`FIRST`] entries less,
/// together.
const fn entries(piece: usize) -> usize {
    FIRST << piece
}

impl<T> Pieces<T> {
    /// The most entries.
    pub const MOST: usize = entries(PIECES) - FIRST;

    /// Makes an empty list.
    pub const fn new() -> Self {
        Self { pieces: [const { Vec::new() }; PIECES], length: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Says whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the entry with an index.
    pub fn get(&self, index: usize) -> Option<&T> {
        let (piece, at) = place(index);
        self.pieces.get(piece)?.get(at)
    }

    /// Returns the length of the piece that the next entry needs, if that piece is not there; 0 if
    /// the list is full.
    pub fn wanted(&self) -> Option<usize> {
        let (piece, _) = place(self.length);
        match self.pieces.get(piece) {
            None => Some(0),
            Some(room) => (room.capacity() == 0).then_some(entries(piece)),
        }
    }

    /// Adds the piece that is wanted; gives back any other one.
    pub fn add_room(&mut self, piece: Piece<T>) -> Option<Piece<T>> {
        let (next, _) = place(self.length);
        match self.pieces.get_mut(next) {
            Some(room) if room.capacity() == 0 && piece.0.capacity() >= entries(next) => {
                *room = piece.0;
                None
            }
            _ => Some(piece),
        }
    }

    /// Appends an entry; gives it back if there is no room.
    pub fn push(&mut self, entry: T) -> Result<(), T> {
        if self.wanted().is_some() {
            return Err(entry);
        }
        let (piece, _) = place(self.length);
        self.pieces[piece].push(entry);
        self.length += 1;
        Ok(())
    }

    /// Removes the last entry if it is meant.
    pub fn pop_if(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let (piece, _) = place(self.length.checked_sub(1)?);
        let entry = self.pieces[piece].pop_if(|entry| is_meant(entry))?;
        self.length -= 1;
        Some(entry)
    }

    /// Removes an entry; the last one takes its place.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        if index >= self.length {
            return None;
        }
        let (last, _) = place(self.length - 1);
        let moved = self.pieces[last].pop()?;
        self.length -= 1;
        if index == self.length {
            return Some(moved);
        }
        let (piece, at) = place(index);
        Some(core::mem::replace(&mut self.pieces[piece][at], moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(list: &mut Pieces<u32>, entry: u32) {
        if let Some(entries) = list.wanted() {
            assert_eq!(list.push(entry), Err(entry));
            assert!(list.add_room(Piece::new(entries).unwrap()).is_none());
        }
        assert!(list.add_room(Piece::new(2).unwrap()).is_some());
        assert_eq!(list.push(entry), Ok(()));
    }

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..Pieces::<u32>::MOST {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == entries(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(expected, (PIECES, 0));
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut list = Pieces::new();
        (0..Pieces::<u32>::MOST as u32).for_each(|entry| push(&mut list, entry));
        assert_eq!((list.len(), list.wanted()), (Pieces::<u32>::MOST, Some(0)));
        assert_eq!(list.push(1), Err(1));
        assert!(list.add_room(Piece::new(1 << 20).unwrap()).is_some());
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector(
            steps in proptest::collection::vec(
                proptest::option::weighted(0.6, any::<u32>()),
                0..400,
            ),
            at: usize,
        ) {
            let (mut list, mut model) = (Pieces::new(), Vec::new());
            for step in steps {
                match step {
                    Some(entry) => {
                        push(&mut list, entry);
                        model.push(entry);
                    }
                    None if model.is_empty() => prop_assert_eq!(list.swap_remove(0), None),
                    None => {
                        let index = at % model.len();
                        prop_assert_eq!(list.swap_remove(index), Some(model.swap_remove(index)));
                        prop_assert_eq!(list.pop_if(|_| false), None);
                        let is_meant = |entry: &u32| entry.is_multiple_of(2);
                        let popped = model.pop_if(|entry| is_meant(entry));
                        prop_assert_eq!(list.pop_if(is_meant), popped);
                    }
                }
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(
                    (0..model.len() + 3).map(|i| list.get(i)).collect::<Vec<_>>(),
                    (0..model.len() + 3).map(|i| model.get(i)).collect::<Vec<_>>()
                );
            }
        }
    }
}
