// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are kept for a while, in memory that is there before, and in memory of their own if
//! they are longer than [usual](USUAL).

use alloc::{boxed::Box, vec, vec::Vec};

use crate::packet::USUAL;

/// Memory for a number of frames.
pub struct Room(Vec<Box<[u8]>>);

impl Room {
    /// For so many.
    pub fn new(frames: usize) -> Self {
        Self((0..frames).map(|_| vec![0; USUAL].into()).collect())
    }

    /// Takes room for a frame; `None` if too many are kept.
    pub fn take(&mut self) -> Option<Box<[u8]>> {
        self.0.pop()
    }

    /// How many more frames it takes.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Gives it back.
    pub fn give_back(&mut self, room: Box<[u8]>) {
        self.0.push(room);
    }
}

/// A frame that is kept.
pub struct Kept {
    room: Box<[u8]>,
    length: usize,
    /// All of a frame that the room is too short for; otherwise nothing.
    long: Vec<u8>,
}

impl Kept {
    /// Keeps a frame; gives the room back if there is no memory for a long one.
    pub fn new(mut room: Box<[u8]>, frame: &[u8]) -> Result<Self, Box<[u8]>> {
        let mut long = Vec::new();
        match room.get_mut(..frame.len()) {
            Some(room) => room.copy_from_slice(frame),
            None if long.try_reserve_exact(frame.len()).is_ok() => long.extend_from_slice(frame),
            None => return Err(room),
        }
        Ok(Self { room, length: frame.len(), long })
    }

    /// The frame.
    pub fn frame(&mut self) -> &mut [u8] {
        if self.long.is_empty() { &mut self.room[..self.length] } else { &mut self.long }
    }

    /// The room for another one.
    pub fn into_room(self) -> Box<[u8]> {
        self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_frame_is_kept_whatever_its_length(length in 0usize..3 * USUAL) {
            let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut all = Room::new(1);
            let room = all.take().unwrap();
            assert!(all.take().is_none());
            let mut kept = Kept::new(room, &frame).unwrap();
            assert_eq!(kept.frame(), &frame);
            let room = kept.into_room();
            assert_eq!(room.len(), USUAL);
            all.give_back(room);
            assert!(all.take().is_some());
        }
    }
}
