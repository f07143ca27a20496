// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a pipe as Linux keeps them: a ring of slots of one page each, so that everything that a program can see of it (when it
//! is full, what a write of PIPE_BUF bytes needs, packets, F_SETPIPE_SZ) is the same.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of a slot.
pub const PAGE: usize = 4096;

/// Pages that stay with an empty pipe, so that short messages need no memory.
const SPARE: usize = 2;

type Page = Box<[u8]>;

struct Slot {
    page: Page,
    start: usize,
    end: usize,
    /// Made by a write in packet mode (O_DIRECT): read whole, and nothing is appended.
    packet: bool,
}

/// A ring of slots.
pub struct Slots {
    /// A power of two: `size`, or more after something was put back.
    ring: Vec<Option<Slot>>,
    size: usize,
    head: usize,
    count: usize,
    bytes: usize,
    spare: [Option<Page>; SPARE],
}

/// There is no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

fn page() -> Result<Page, NoMemory> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE).map_err(|_| NoMemory)?;
    page.resize(PAGE, 0);
    Ok(page.into_boxed_slice())
}

impl Slots {
    /// An empty ring of `size` slots, a power of two.
    pub fn new(size: usize) -> Result<Self, NoMemory> {
        Ok(Self { ring: ring(size)?, size, head: 0, count: 0, bytes: 0, spare: [None, None] })
    }

    /// Slots.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Slots in use.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes to read (FIONREAD).
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no slot is free.
    pub fn is_full(&self) -> bool {
        self.count >= self.size
    }

    /// Whether a [`push`](Self::push) needs no memory.
    pub fn has_spare(&self) -> bool {
        self.spare.iter().any(Option::is_some)
    }

    /// Whether a [`pop`](Self::pop) frees no memory.
    pub fn keeps_page(&self) -> bool {
        self.spare.iter().any(Option::is_none)
    }

    fn index(&self, offset: usize) -> usize {
        (self.head + offset) & (self.ring.len() - 1)
    }

    /// Gives the ring another size; `false` if what is in it does not fit.
    pub fn resize(&mut self, size: usize) -> Result<bool, NoMemory> {
        if size < self.count {
            return Ok(false);
        }
        self.rebuild(size)?;
        self.size = size;
        Ok(true)
    }

    /// Makes the ring anew, for what is in it and more.
    fn rebuild(&mut self, size: usize) -> Result<(), NoMemory> {
        let mut fresh = ring(size)?;
        for (offset, to) in fresh.iter_mut().enumerate().take(self.count) {
            let index = self.index(offset);
            *to = self.ring[index].take();
        }
        (self.ring, self.head) = (fresh, 0);
        Ok(())
    }

    /// Puts `bytes` that were taken, at most a page, before all others, even if the ring is full.
    pub fn put_back(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        let bytes = &bytes[..bytes.len().min(PAGE)];
        if bytes.is_empty() {
            return Ok(());
        }
        let mut page = match self.spare.iter_mut().find_map(Option::take) {
            Some(page) => page,
            None => page()?,
        };
        if self.count == self.ring.len() {
            self.rebuild(2 * self.ring.len())?;
        }
        page[..bytes.len()].copy_from_slice(bytes);
        self.head = self.index(self.ring.len() - 1);
        self.ring[self.head] = Some(Slot { page, start: 0, end: bytes.len(), packet: false });
        self.count += 1;
        self.bytes += bytes.len();
        Ok(())
    }

    /// Has `fill` append to the last slot, if there is room for `length` bytes (less than a page) and packets allow it. `None` if not; else
    /// what `fill` said: how many bytes it wrote.
    pub fn append(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let last = self.index(self.count.checked_sub(1)?);
        let slot =
            self.ring[last].as_mut().filter(|slot| !slot.packet && slot.end + length <= PAGE)?;
        let filled = fill(&mut slot.page[slot.end..slot.end + length]).min(length);
        slot.end += filled;
        self.bytes += filled;
        Some(filled)
    }

    /// Has `fill` write up to `length` bytes, at most a page, to a slot of its own; returns how many it wrote. There is a free slot.
    pub fn push(
        &mut self,
        length: usize,
        packet: bool,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, NoMemory> {
        let mut page = match self.spare.iter_mut().find_map(Option::take) {
            Some(page) => page,
            None => page()?,
        };
        let length = length.min(PAGE);
        let filled = fill(&mut page[..length]).min(length);
        if filled == 0 || self.is_full() {
            self.keep(page);
            return Ok(0);
        }
        let index = self.index(self.count);
        self.ring[index] = Some(Slot { page, start: 0, end: filled, packet });
        self.count += 1;
        self.bytes += filled;
        Ok(filled)
    }

    /// The bytes of the first slot.
    pub fn first(&self) -> Option<&[u8]> {
        let slot = self.ring.get(self.head)?.as_ref()?;
        Some(&slot.page[slot.start..slot.end])
    }

    /// Has `take` read from the first slot, at most `length` bytes; what it says it took is gone from the pipe, all of a packet even
    /// if only part was asked for. Returns how many bytes were taken, and whether that was a packet; `None` if the pipe is empty.
    pub fn pop(
        &mut self,
        length: usize,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Option<(usize, bool)> {
        let slot = self.ring.get_mut(self.head)?.as_mut()?;
        let available = (slot.end - slot.start).min(length);
        let taken = take(&slot.page[slot.start..slot.start + available]).min(available);
        let whole = slot.packet && taken == available;
        let gone = if whole { slot.end - slot.start } else { taken };
        slot.start += gone;
        self.bytes -= gone;
        let packet = slot.packet;
        if slot.start == slot.end
            && let Some(slot) = self.ring[self.head].take()
        {
            self.head = self.index(1);
            self.count -= 1;
            self.keep(slot.page);
        }
        Some((taken, packet))
    }

    fn keep(&mut self, page: Page) {
        if let Some(place) = self.spare.iter_mut().find(|place| place.is_none()) {
            *place = Some(page);
        }
    }
}

fn ring(size: usize) -> Result<Vec<Option<Slot>>, NoMemory> {
    let mut ring = Vec::new();
    ring.try_reserve_exact(size).map_err(|_| NoMemory)?;
    ring.resize_with(size, || None);
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn write(slots: &mut Slots, data: &[u8], packet: bool) -> usize {
        let odd = data.len() % PAGE;
        let mut done = 0;
        if odd != 0 && !packet {
            done = slots
                .append(odd, |to| {
                    to.copy_from_slice(&data[..odd]);
                    odd
                })
                .unwrap_or(0);
        }
        while done < data.len() && !slots.is_full() {
            let rest = &data[done..];
            done += slots
                .push(rest.len(), packet, |to| {
                    to.copy_from_slice(&rest[..to.len()]);
                    to.len()
                })
                .unwrap();
        }
        done
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(
            steps in proptest::collection::vec((any::<bool>(), 1..9000_usize), 1..100),
            size in 0..5_u32,
        ) {
            let mut slots = Slots::new(1 << size).unwrap();
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            for (writes, length) in steps {
                if writes {
                    let data: Vec<u8> = (0..length).map(|_| { next = next.wrapping_add(1); next }).collect();
                    let done = write(&mut slots, &data, false);
                    next = next.wrapping_sub((length - done) as u8);
                    model.extend(&data[..done]);
                } else {
                    let mut read = Vec::new();
                    while read.len() < length {
                        let rest = length - read.len();
                        let Some(_) = slots.pop(rest, |from| { read.extend_from_slice(from); from.len() }) else { break };
                    }
                    let expected: Vec<u8> = model.drain(..length.min(model.len())).collect();
                    prop_assert_eq!(read, expected);
                }
                prop_assert_eq!(slots.bytes(), model.len());
                prop_assert_eq!(slots.is_empty(), model.is_empty());
                prop_assert!(slots.count() <= slots.size());
            }
        }
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut slots = Slots::new(2).unwrap();
        let data: Vec<u8> = (0..2 * PAGE).map(|byte| (byte / 5) as u8).collect();
        assert_eq!(write(&mut slots, &data, false), 2 * PAGE);
        slots.pop(100, |from| from.len());
        assert!(slots.is_full() && slots.first() == Some(&data[100..PAGE]));
        // Beyond the size, twice.
        slots.put_back(&data[50..100]).unwrap();
        slots.put_back(&data[..50]).unwrap();
        slots.put_back(&[]).unwrap();
        assert_eq!((slots.count(), slots.size(), slots.bytes()), (4, 2, 2 * PAGE));
        assert_eq!(write(&mut slots, b"no room", false), 0);
        assert_eq!(slots.resize(2), Ok(false));
        let mut read = Vec::new();
        while slots
            .pop(PAGE, |from| {
                read.extend_from_slice(from);
                from.len()
            })
            .is_some()
        {}
        assert_eq!(read, data);
        assert!(slots.is_empty() && write(&mut slots, &data, false) == 2 * PAGE);
    }

    #[test]
    fn packets_are_read_whole() {
        let mut slots = Slots::new(4).unwrap();
        write(&mut slots, b"first", true);
        write(&mut slots, b"second", true);
        let mut read = Vec::new();
        assert_eq!(
            slots.pop(3, |from| {
                read.extend_from_slice(from);
                from.len()
            }),
            Some((3, true))
        );
        assert_eq!(
            slots.pop(100, |from| {
                read.extend_from_slice(from);
                from.len()
            }),
            Some((6, true))
        );
        assert_eq!(read, b"firsecond");
        assert_eq!(slots.bytes(), 0);
    }

    #[test]
    fn a_smaller_ring_takes_what_fits() {
        let mut slots = Slots::new(8).unwrap();
        write(&mut slots, &[1; 3 * PAGE], false);
        assert_eq!(slots.resize(2), Ok(false));
        assert_eq!(slots.resize(4), Ok(true));
        assert_eq!((slots.size(), slots.count(), slots.bytes()), (4, 3, 3 * PAGE));
    }

    #[test]
    fn an_empty_pipe_keeps_pages_for_short_messages() {
        let mut slots = Slots::new(4).unwrap();
        assert!(!slots.has_spare() && slots.keeps_page());
        write(&mut slots, &[1; 3 * PAGE], false);
        assert!(!slots.has_spare());
        for kept in 0..3 {
            assert_eq!(slots.keeps_page(), kept < SPARE);
            slots.pop(PAGE, <[u8]>::len);
            assert!(slots.has_spare());
        }
    }

    #[test]
    fn what_was_not_copied_stays() {
        let mut slots = Slots::new(2).unwrap();
        assert_eq!(slots.push(10, false, |_| 0), Ok(0));
        assert!(slots.is_empty());
        write(&mut slots, b"data", false);
        assert_eq!(slots.pop(4, |_| 0), Some((0, false)));
        assert_eq!(slots.bytes(), 4);
    }
}
