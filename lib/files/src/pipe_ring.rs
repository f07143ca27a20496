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
    /// Their number is a power of two.
    buffers: Vec<Option<Buffer>>,
    /// Index of the first buffer in use.
    head: usize,
    /// Buffers in use.
    count: usize,
    /// Buffers that are lent, and places that are claimed: nothing else takes these.
    lent: usize,
    /// Bytes in the buffers in use.
    bytes: usize,
    spare: [Option<Page>; SPARE],
}

/// Most buffers of a [`Loan`]: those of a new pipe.
const LENT: usize = 16;

/// Buffers from the front of a ring, for somebody who moves their bytes elsewhere, and gives back
/// what has not gone ([`PipeRing::take_back`]).
#[derive(Default)]
pub struct Loan([Option<Buffer>; LENT]);

/// Pages for what somebody is about to bring, and places for them in a ring ([`PipeRing::claim`]).
#[derive(Default)]
pub struct Claim([Option<Page>; LENT]);

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
            head: 0,
            count: 0,
            lent: 0,
            bytes: 0,
            spare: [None, None],
        })
    }

    /// Returns the number of buffers.
    pub fn size(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the number of buffers in use.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of buffers that are lent, or for which there is a claim.
    pub fn lent(&self) -> usize {
        self.lent
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
        self.count + self.lent >= self.size()
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
        if size < self.count + self.lent {
            return Ok(false);
        }
        let mut fresh = free_buffers(size)?;
        for (offset, to) in fresh.iter_mut().enumerate().take(self.count) {
            let index = self.index(offset);
            *to = self.buffers[index].take();
        }
        (self.buffers, self.head) = (fresh, 0);
        Ok(true)
    }

    /// Takes the first buffer out of the ring.
    fn take_first(&mut self) -> Option<Buffer> {
        let buffer = self.buffers.get_mut(self.head)?.take()?;
        self.head = self.index(1);
        self.count -= 1;
        Some(buffer)
    }

    /// Calls `see` with at most `length` bytes of the first buffer, and adds that buffer to the
    /// loan. Returns how many bytes `see` says that it saw; `None` if the pipe is empty, or the
    /// loan has all buffers that it can have.
    pub fn lend(
        &mut self,
        loan: &mut Loan,
        length: usize,
        see: impl FnOnce(&[u8]) -> usize,
    ) -> Option<usize> {
        let place = loan.0.iter_mut().find(|place| place.is_none())?;
        let buffer = self.take_first()?;
        self.lent += 1;
        let bytes = buffer.end - buffer.start;
        self.bytes -= bytes;
        let seen = see(&buffer.page[buffer.start..buffer.start + bytes.min(length)]);
        *place = Some(buffer);
        Some(seen)
    }

    /// Takes a loan of this ring back, whose first `gone` bytes are somewhere else now. The others
    /// come before all that is in the pipe. Needs no memory.
    pub fn take_back(&mut self, loan: Loan, gone: usize) {
        let mut gone = gone;
        let buffers = loan.0.map(|buffer| {
            buffer.map(|mut buffer| {
                let here = gone.min(buffer.end - buffer.start);
                buffer.start += here;
                gone -= here;
                buffer
            })
        });
        for buffer in buffers.into_iter().rev().flatten() {
            self.lent -= 1;
            if buffer.start == buffer.end {
                self.keep(buffer.page);
                continue;
            }
            self.head = self.index(self.size() - 1);
            self.count += 1;
            self.bytes += buffer.end - buffer.start;
            self.buffers[self.head] = Some(buffer);
        }
    }

    /// Adds a page and a place to a claim; `false` if none is free, or the claim has as many as it
    /// can have. May allocate.
    pub fn claim(&mut self, claim: &mut Claim) -> Result<bool, NoMemory> {
        let place = claim.0.iter_mut().find(|place| place.is_none()).filter(|_| !self.is_full());
        let Some(place) = place else { return Ok(false) };
        *place = Some(self.page()?);
        self.lent += 1;
        Ok(true)
    }

    /// Calls `fill` with room for `length` bytes, at most a page, in a buffer of a claim, and has
    /// that buffer behind all others. Returns how many bytes there are more: none if `fill` says
    /// that it wrote fewer, or the claim has no buffer any more. Needs no memory.
    pub fn fill(
        &mut self,
        claim: &mut Claim,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        let Some(place) = claim.0.iter_mut().find(|place| place.is_some()) else { return 0 };
        let length = length.min(PAGE);
        if place.as_mut().is_none_or(|page| length == 0 || fill(&mut page[..length]) < length) {
            return 0;
        }
        if let Some(page) = place.take() {
            self.lent -= 1;
            self.add(Buffer { page, start: 0, end: length, packet: false });
        }
        length
    }

    /// Gives back what of a claim of this ring was not filled.
    pub fn give_up(&mut self, claim: Claim) {
        for page in claim.0.into_iter().flatten() {
            self.lent -= 1;
            self.keep(page);
        }
    }

    /// Returns a page, which is a spare one if there is one.
    fn page(&mut self) -> Result<Page, NoMemory> {
        match self.spare.iter_mut().find_map(Option::take) {
            Some(page) => Ok(page),
            None => page(),
        }
    }

    /// Adds a buffer behind all others. One is free.
    fn add(&mut self, buffer: Buffer) {
        let index = self.index(self.count);
        self.bytes += buffer.end - buffer.start;
        self.buffers[index] = Some(buffer);
        self.count += 1;
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
        let mut page = self.page()?;
        let length = length.min(PAGE);
        if fill(&mut page[..length]) < length || self.is_full() {
            self.keep(page);
            return Ok(0);
        }
        self.add(Buffer { page, start: 0, end: length, packet });
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
    /// to free. Nothing of it is lent.
    pub fn retire(&mut self) -> Self {
        let gone =
            Self { buffers: Vec::new(), head: 0, count: 0, lent: 0, bytes: 0, spare: [None, None] };
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
            && let Some(buffer) = self.take_first()
        {
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

    /// Lends buffers until `length` bytes were seen, and returns these.
    fn lend(ring: &mut PipeRing, loan: &mut Loan, length: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        while seen.len() < length {
            let rest = length - seen.len();
            let Some(_) = ring.lend(loan, rest, |from| {
                seen.extend_from_slice(from);
                from.len()
            }) else {
                break;
            };
        }
        seen
    }

    fn read_all(ring: &mut PipeRing) -> Vec<u8> {
        let mut read = Vec::new();
        while ring
            .pop(PAGE, |from| {
                read.extend_from_slice(from);
                from.len()
            })
            .is_some()
        {}
        read
    }

    #[test]
    fn what_is_lent_keeps_its_place_and_comes_first_again() {
        let mut ring = PipeRing::new(2).unwrap();
        let data: Vec<u8> = (0..2 * PAGE).map(|byte| (byte / 5) as u8).collect();
        assert_eq!(write(&mut ring, &data, false), 2 * PAGE);
        let mut loan = Loan::default();
        assert_eq!(lend(&mut ring, &mut loan, PAGE + 9), &data[..PAGE + 9]);
        assert_eq!((ring.count(), ring.lent(), ring.bytes()), (0, 2, 0));
        // Nobody gets its place meanwhile.
        assert!(ring.is_full() && ring.is_empty() && ring.first().is_none());
        assert_eq!(write(&mut ring, b"no room", false), 0);
        assert_eq!(ring.resize(1), Ok(false));
        assert_eq!(ring.resize(4), Ok(true));
        assert_eq!(write(&mut ring, b"behind", false), 6);
        ring.take_back(loan, 100);
        assert_eq!((ring.count(), ring.lent(), ring.bytes()), (3, 0, 2 * PAGE - 94));
        assert_eq!(read_all(&mut ring), [&data[100..], b"behind"].concat());
        assert!(ring.is_empty() && write(&mut ring, &data, false) == 2 * PAGE);
    }

    #[test]
    fn what_has_gone_makes_room() {
        let mut ring = PipeRing::new(2).unwrap();
        write(&mut ring, &[1; 2 * PAGE], false);
        let mut loan = Loan::default();
        assert_eq!(lend(&mut ring, &mut loan, 2 * PAGE).len(), 2 * PAGE);
        ring.take_back(loan, PAGE);
        assert_eq!((ring.count(), ring.bytes()), (1, PAGE));
        assert!(!ring.is_full() && ring.has_spare());
        let mut loan = Loan::default();
        assert_eq!(lend(&mut ring, &mut loan, 3).len(), 3);
        ring.take_back(loan, usize::MAX);
        assert!(ring.is_empty() && ring.lent() == 0 && ring.bytes() == 0);
    }

    #[test]
    fn a_part_of_a_packet_that_was_lent_is_one_still() {
        let mut ring = PipeRing::new(4).unwrap();
        write(&mut ring, b"packet", true);
        let mut loan = Loan::default();
        assert_eq!(lend(&mut ring, &mut loan, 3), b"pac");
        ring.take_back(loan, 3);
        write(&mut ring, b"next", false);
        assert_eq!(ring.contents().collect::<Vec<_>>(), [(&b"ket"[..], true), (b"next", false)]);
    }

    #[test]
    fn what_is_claimed_is_filled_without_memory() {
        let mut ring = PipeRing::new(4).unwrap();
        write(&mut ring, b"before", false);
        let mut claim = Claim::default();
        while ring.claim(&mut claim).unwrap() {}
        assert!(ring.is_full() && (ring.count(), ring.lent(), ring.bytes()) == (1, 3, 6));
        assert_eq!(write(&mut ring, &[1; PAGE], false), 0);
        assert_eq!((ring.resize(2), ring.resize(8)), (Ok(false), Ok(true)));
        let mut bring = |ring: &mut PipeRing, data: &[u8], done: usize| {
            ring.fill(&mut claim, data.len(), |to| {
                to[..done].copy_from_slice(&data[..done]);
                done
            })
        };
        assert_eq!(bring(&mut ring, b"behind", 6), 6);
        // What is not there, and nothing at all, takes no buffer.
        assert_eq!((bring(&mut ring, b"lost", 2), bring(&mut ring, b"", 0)), (0, 0));
        assert_eq!(bring(&mut ring, &[2; PAGE], PAGE), PAGE);
        assert_eq!((ring.count(), ring.lent()), (3, 1));
        ring.give_up(claim);
        assert_eq!((ring.lent(), ring.bytes()), (0, 12 + PAGE));
        assert_eq!(read_all(&mut ring), [b"beforebehind", &[2; PAGE][..]].concat());
    }

    #[test]
    fn a_claim_ends_where_it_can_have_no_more() {
        let mut ring = PipeRing::new(2 * LENT).unwrap();
        let mut claim = Claim::default();
        for _ in 0..LENT {
            assert_eq!(ring.claim(&mut claim), Ok(true));
        }
        assert_eq!(ring.claim(&mut claim), Ok(false));
        for _ in 0..LENT {
            assert_eq!(ring.fill(&mut claim, 1, |_| 1), 1);
        }
        assert_eq!(ring.fill(&mut claim, 1, |_| 1), 0);
        ring.give_up(claim);
        assert_eq!((ring.count(), ring.lent()), (LENT, 0));
    }

    #[test]
    fn a_loan_has_as_many_buffers_as_a_new_pipe() {
        let mut ring = PipeRing::new(2 * LENT).unwrap();
        for _ in 0..=LENT {
            write(&mut ring, b"x", true);
        }
        let mut loan = Loan::default();
        assert_eq!(lend(&mut ring, &mut loan, 100).len(), LENT);
        assert_eq!((ring.count(), ring.lent()), (1, LENT));
        ring.take_back(loan, 0);
        assert_eq!((ring.count(), ring.lent()), (LENT + 1, 0));
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
