// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a pipe as Linux keeps them: a ring of buffers of one page each. So all that a
//! program can see of a pipe (when it is full, what a write of PIPE_BUF bytes needs, packets,
//! F_SETPIPE_SZ) is as under Linux.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of a buffer of the ring.
pub const PAGE: usize = 4096;

/// Pages that an empty pipe keeps, so that short messages need no memory.
const SPARE: usize = 2;

type Page = Box<[u8]>;

/// A page with bytes to read.
struct Buffer {
    page: Page,
    /// The bytes are `start..end` of the page.
    start: usize,
    end: usize,
    /// A write in packet mode (O_DIRECT) made it: a read takes all of it, and no write appends to
    /// it.
    packet: bool,
}

/// The ring of buffers.
pub struct PipeRing {
    /// Its length is a power of two: `size`, or more after bytes were put back.
    buffers: Vec<Option<Buffer>>,
    /// Buffers that writes may use, a power of two.
    size: usize,
    /// Index of the first buffer in use.
    head: usize,
    /// Buffers in use.
    count: usize,
    /// Bytes in all buffers.
    bytes: usize,
    spare: [Option<Page>; SPARE],
}

/// There is no memory (ENOMEM).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

/// Allocates a page.
fn page() -> Result<Page, NoMemory> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE).map_err(|_| NoMemory)?;
    page.resize(PAGE, 0);
    Ok(page.into_boxed_slice())
}

impl PipeRing {
    /// Makes an empty ring of `size` buffers, a power of two. Allocates.
    pub fn new(size: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            buffers: free_buffers(size)?,
            size,
            head: 0,
            count: 0,
            bytes: 0,
            spare: [None, None],
        })
    }

    /// Returns the number of buffers that writes may use.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of buffers in use.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes to read (FIONREAD).
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Says whether no buffer is free.
    pub fn is_full(&self) -> bool {
        self.count >= self.size
    }

    /// Says whether a [`push`](Self::push) needs no memory.
    pub fn has_spare(&self) -> bool {
        self.spare.iter().any(Option::is_some)
    }

    /// Says whether a [`pop`](Self::pop) frees no memory.
    pub fn keeps_page(&self) -> bool {
        self.spare.iter().any(Option::is_none)
    }

    /// Returns the index of the buffer `offset` behind the first one.
    fn index(&self, offset: usize) -> usize {
        (self.head + offset) & (self.buffers.len() - 1)
    }

    /// Gives the ring another size, a power of two; `false` if its contents do not fit. Allocates.
    pub fn resize(&mut self, size: usize) -> Result<bool, NoMemory> {
        if size < self.count {
            return Ok(false);
        }
        self.rebuild(size)?;
        self.size = size;
        Ok(true)
    }

    /// Moves the contents to a new ring of `size` buffers.
    fn rebuild(&mut self, size: usize) -> Result<(), NoMemory> {
        let mut fresh = free_buffers(size)?;
        for (offset, to) in fresh.iter_mut().enumerate().take(self.count) {
            let index = self.index(offset);
            *to = self.buffers[index].take();
        }
        (self.buffers, self.head) = (fresh, 0);
        Ok(())
    }

    /// Puts `bytes` that were taken, at most a page, before all others, even if the ring is full.
    /// May allocate.
    pub fn put_back(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        let bytes = &bytes[..bytes.len().min(PAGE)];
        if bytes.is_empty() {
            return Ok(());
        }
        let mut page = match self.spare.iter_mut().find_map(Option::take) {
            Some(page) => page,
            None => page()?,
        };
        if self.count == self.buffers.len() {
            self.rebuild(2 * self.buffers.len())?;
        }
        page[..bytes.len()].copy_from_slice(bytes);
        self.head = self.index(self.buffers.len() - 1);
        self.buffers[self.head] = Some(Buffer { page, start: 0, end: bytes.len(), packet: false });
        self.count += 1;
        self.bytes += bytes.len();
        Ok(())
    }

    /// Calls `fill` with room for `length` bytes (less than a page) behind those of the last
    /// buffer. Returns how many there are more: none if `fill` says that it wrote fewer; `None` if
    /// there is no room, or the buffer is a packet.
    pub fn append(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let last = self.index(self.count.checked_sub(1)?);
        let buffer = self.buffers[last]
            .as_mut()
            .filter(|buffer| !buffer.packet && buffer.end + length <= PAGE)?;
        if fill(&mut buffer.page[buffer.end..buffer.end + length]) < length {
            return Some(0);
        }
        buffer.end += length;
        self.bytes += length;
        Some(length)
    }

    /// Calls `fill` with room for `length` bytes, at most a page, in a buffer of their own. A
    /// buffer is free. Returns how many there are more: none if `fill` says that it wrote fewer.
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
        if fill(&mut page[..length]) < length || self.is_full() {
            self.keep(page);
            return Ok(0);
        }
        let index = self.index(self.count);
        self.buffers[index] = Some(Buffer { page, start: 0, end: length, packet });
        self.count += 1;
        self.bytes += length;
        Ok(length)
    }

    /// Returns the bytes of the first buffer.
    pub fn first(&self) -> Option<&[u8]> {
        let buffer = self.buffers.get(self.head)?.as_ref()?;
        Some(&buffer.page[buffer.start..buffer.end])
    }

    /// Returns the bytes of each buffer, and whether it is a packet.
    pub fn contents(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let buffer = |offset| self.buffers[self.index(offset)].as_ref();
        (0..self.count)
            .filter_map(buffer)
            .map(|buffer| (&buffer.page[buffer.start..buffer.end], buffer.packet))
    }

    /// Nothing can be read from it or written to it any more. Returns what it was, for the caller
    /// to free.
    pub fn retire(&mut self) -> Self {
        let gone =
            Self { buffers: Vec::new(), size: 0, head: 0, count: 0, bytes: 0, spare: [None, None] };
        core::mem::replace(self, gone)
    }

    /// Calls `take` with at most `length` bytes of the first buffer. The bytes that it says it took
    /// are gone from the pipe; of a packet all are gone, even if only a part was asked for. Returns
    /// how many bytes were taken, and whether it was a packet; `None` if the pipe is empty.
    pub fn pop(
        &mut self,
        length: usize,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Option<(usize, bool)> {
        let buffer = self.buffers.get_mut(self.head)?.as_mut()?;
        let available = (buffer.end - buffer.start).min(length);
        let taken = take(&buffer.page[buffer.start..buffer.start + available]).min(available);
        let whole = buffer.packet && taken == available;
        let gone = if whole { buffer.end - buffer.start } else { taken };
        buffer.start += gone;
        self.bytes -= gone;
        let packet = buffer.packet;
        if buffer.start == buffer.end
            && let Some(buffer) = self.buffers[self.head].take()
        {
            self.head = self.index(1);
            self.count -= 1;
            self.keep(buffer.page);
        }
        Some((taken, packet))
    }

    /// Keeps a page as a spare, or frees it.
    fn keep(&mut self, page: Page) {
        if let Some(place) = self.spare.iter_mut().find(|place| place.is_none()) {
            *place = Some(page);
        }
    }
}

/// Allocates free buffers.
fn free_buffers(size: usize) -> Result<Vec<Option<Buffer>>, NoMemory> {
    let mut buffers = Vec::new();
    buffers.try_reserve_exact(size).map_err(|_| NoMemory)?;
    buffers.resize_with(size, || None);
    Ok(buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn write(ring: &mut PipeRing, data: &[u8], packet: bool) -> usize {
        let odd = data.len() % PAGE;
        let mut done = 0;
        if odd != 0 && !packet {
            done = ring
                .append(odd, |to| {
                    to.copy_from_slice(&data[..odd]);
                    odd
                })
                .unwrap_or(0);
        }
        while done < data.len() && !ring.is_full() {
            let rest = &data[done..];
            done += ring
                .push(rest.len(), packet, |to| {
                    to.copy_from_slice(&rest[..to.len()]);
                    to.len()
                })
                .unwrap();
        }
        done
    }

    #[test]
    fn a_retired_ring_gives_and_takes_nothing() {
        let mut ring = PipeRing::new(2).unwrap();
        write(&mut ring, b"one", true);
        write(&mut ring, b"two", false);
        let seen: Vec<_> = ring.contents().collect();
        assert_eq!(seen, [(&b"one"[..], true), (&b"two"[..], false)]);
        let before = ring.retire();
        assert_eq!((before.count(), before.bytes()), (2, 6));
        assert!(ring.is_empty() && ring.is_full() && ring.contents().next().is_none());
        assert_eq!(ring.append(1, |_| 1), None);
        assert_eq!(ring.pop(1, |from| from.len()), None);
        assert_eq!(ring.push(1, false, |_| 1), Ok(0));
        assert!(ring.first().is_none());
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(
            steps in proptest::collection::vec((any::<bool>(), 1..9000_usize), 1..100),
            size in 0..5_u32,
        ) {
            let mut ring = PipeRing::new(1 << size).unwrap();
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            for (writes, length) in steps {
                if writes {
                    let data: Vec<u8> = (0..length)
                        .map(|_| {
                            next = next.wrapping_add(1);
                            next
                        })
                        .collect();
                    let done = write(&mut ring, &data, false);
                    next = next.wrapping_sub((length - done) as u8);
                    model.extend(&data[..done]);
                } else {
                    let mut read = Vec::new();
                    while read.len() < length {
                        let rest = length - read.len();
                        let Some(_) = ring.pop(rest, |from| {
                            read.extend_from_slice(from);
                            from.len()
                        }) else {
                            break;
                        };
                    }
                    let expected: Vec<u8> = model.drain(..length.min(model.len())).collect();
                    prop_assert_eq!(read, expected);
                }
                prop_assert_eq!(ring.bytes(), model.len());
                prop_assert_eq!(ring.is_empty(), model.is_empty());
                prop_assert!(ring.count() <= ring.size());
            }
        }
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut ring = PipeRing::new(2).unwrap();
        let data: Vec<u8> = (0..2 * PAGE).map(|byte| (byte / 5) as u8).collect();
        assert_eq!(write(&mut ring, &data, false), 2 * PAGE);
        ring.pop(100, |from| from.len());
        assert!(ring.is_full() && ring.first() == Some(&data[100..PAGE]));
        // Beyond the size, twice.
        ring.put_back(&data[50..100]).unwrap();
        ring.put_back(&data[..50]).unwrap();
        ring.put_back(&[]).unwrap();
        assert_eq!((ring.count(), ring.size(), ring.bytes()), (4, 2, 2 * PAGE));
        assert_eq!(write(&mut ring, b"no room", false), 0);
        assert_eq!(ring.resize(2), Ok(false));
        let mut read = Vec::new();
        while ring
            .pop(PAGE, |from| {
                read.extend_from_slice(from);
                from.len()
            })
            .is_some()
        {}
        assert_eq!(read, data);
        assert!(ring.is_empty() && write(&mut ring, &data, false) == 2 * PAGE);
    }

    #[test]
    fn packets_are_read_whole() {
        let mut ring = PipeRing::new(4).unwrap();
        write(&mut ring, b"first", true);
        write(&mut ring, b"second", true);
        let mut read = Vec::new();
        assert_eq!(
            ring.pop(3, |from| {
                read.extend_from_slice(from);
                from.len()
            }),
            Some((3, true))
        );
        assert_eq!(
            ring.pop(100, |from| {
                read.extend_from_slice(from);
                from.len()
            }),
            Some((6, true))
        );
        assert_eq!(read, b"firsecond");
        assert_eq!(ring.bytes(), 0);
    }

    #[test]
    fn a_smaller_ring_takes_what_fits() {
        let mut ring = PipeRing::new(8).unwrap();
        write(&mut ring, &[1; 3 * PAGE], false);
        assert_eq!(ring.resize(2), Ok(false));
        assert_eq!(ring.resize(4), Ok(true));
        assert_eq!((ring.size(), ring.count(), ring.bytes()), (4, 3, 3 * PAGE));
    }

    #[test]
    fn an_empty_pipe_keeps_pages_for_short_messages() {
        let mut ring = PipeRing::new(4).unwrap();
        assert!(!ring.has_spare() && ring.keeps_page());
        write(&mut ring, &[1; 3 * PAGE], false);
        assert!(!ring.has_spare());
        for kept in 0..3 {
            assert_eq!(ring.keeps_page(), kept < SPARE);
            ring.pop(PAGE, <[u8]>::len);
            assert!(ring.has_spare());
        }
    }

    #[test]
    fn what_was_not_copied_stays() {
        let mut ring = PipeRing::new(2).unwrap();
        assert_eq!(ring.push(10, false, |_| 0), Ok(0));
        assert!(ring.is_empty());
        write(&mut ring, b"data", false);
        assert_eq!(ring.pop(4, |_| 0), Some((0, false)));
        assert_eq!(ring.bytes(), 4);
    }
}
