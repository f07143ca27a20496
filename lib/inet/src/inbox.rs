// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that wait to be received.
//!
//! A datagram lies in a chain of buffers, each of which is as long as what Linux counts for a short
//! datagram. So as many wait as under Linux, and whoever has taken one from here owns it: nothing
//! is copied while others have to wait.

use alloc::{boxed::Box, collections::VecDeque};
use core::net::Ipv4Addr;

/// Bytes that Linux counts for a short datagram.
pub const COST: u32 = 768;
/// Bytes of a datagram in a buffer.
const ROOM: usize = 696;

/// What is known of a datagram beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Who sent it.
    pub source: (Ipv4Addr, u16),
    /// The address to which it was sent.
    pub destination: Ipv4Addr,
    /// When it came, in nanoseconds: by the kernel, and by the clock of the card.
    pub stamp: u64,
    /// See [`stamp`](Self::stamp).
    pub hardware: Option<u64>,
    /// The number of the interface on which it came.
    pub interface: u32,
    /// How many routers it might still have passed.
    pub lifetime: u8,
    /// DSCP and ECN.
    pub service: u8,
    /// Datagrams that were lost before.
    pub lost: u32,
}

impl Default for About {
    fn default() -> Self {
        Self {
            source: (Ipv4Addr::UNSPECIFIED, 0),
            destination: Ipv4Addr::UNSPECIFIED,
            stamp: 0,
            hardware: None,
            interface: 0,
            lifetime: 0,
            service: 0,
            lost: 0,
        }
    }
}

/// A buffer, with those behind it.
pub struct Buffer {
    next: Option<Box<Buffer>>,
    about: About,
    /// Bytes of the whole datagram.
    length: usize,
    bytes: [u8; ROOM],
}

const _: () = assert!(size_of::<Buffer>() <= COST as usize);

impl Buffer {
    /// One that is followed by `next`.
    fn before(next: Option<Box<Self>>) -> Box<Self> {
        Box::new(Self { next, about: About::default(), length: 0, bytes: [0; ROOM] })
    }

    /// What is known of the datagram.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Bytes of the datagram.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Fills a chain that is long enough with these parts, one behind the other.
    pub fn fill(&mut self, about: About, parts: [&[u8]; 2]) {
        self.about = about;
        self.length = parts[0].len() + parts[1].len();
        let mut place = Some(self);
        let mut at = 0;
        for mut part in parts {
            while !part.is_empty() {
                let Some(buffer) = place.as_deref_mut() else { return };
                let count = part.len().min(ROOM - at);
                let (now, later) = part.split_at(count);
                buffer.bytes[at..at + count].copy_from_slice(now);
                (part, at) = (later, at + count);
                if at == ROOM {
                    (place, at) = (place.and_then(|buffer| buffer.next.as_deref_mut()), 0);
                }
            }
        }
    }

    /// The first bytes of the datagram, as many as there is room for, part by part; `take` says how
    /// many it took. Ends when it takes fewer. Returns how many were taken.
    pub fn read(&self, room: usize, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let (mut left, mut done) = (self.length.min(room), 0);
        let mut place = Some(self);
        while let Some(buffer) = place.filter(|_| left > 0) {
            let part = left.min(ROOM);
            let taken = take(&buffer.bytes[..part]).min(part);
            done += taken;
            left -= part;
            if taken < part {
                break;
            }
            place = buffer.next.as_deref();
        }
        done
    }
}

impl Drop for Buffer {
    // Not one within the other, however many they are.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut buffer) = next {
            next = buffer.next.take();
        }
    }
}

/// How many buffers a datagram takes.
fn buffers(length: usize) -> usize {
    length.div_ceil(ROOM).max(1)
}

/// The datagrams that wait, and buffers for more.
pub struct Inbox {
    queue: VecDeque<Box<Buffer>>,
    /// Buffers of those that wait, and how many may have one.
    waiting: usize,
    most: usize,
    free: Option<Box<Buffer>>,
    free_count: usize,
}

impl Inbox {
    /// How many buffers are allocated between two questions for memory.
    const PIECE: usize = 64;

    /// An inbox for so many bytes, as Linux counts them. Allocates all that it ever has, as long as
    /// `may` says that there is memory; `None` if there is none.
    pub fn new(bytes: u32, may: impl Fn() -> bool) -> Option<Self> {
        Self::for_others(bytes, 0, may)
    }

    /// The same with places for so many datagrams that another one has, if these are more.
    pub fn for_others(bytes: u32, others: usize, may: impl Fn() -> bool) -> Option<Self> {
        let most = bytes.div_ceil(COST).max(1) as usize;
        let mut queue = VecDeque::new();
        // One place is for a datagram that somebody looks at.
        queue.try_reserve_exact(most.max(others) + 1).ok()?;
        let mut inbox = Self { queue, waiting: 0, most, free: None, free_count: 0 };
        for number in 0..most {
            if number % Self::PIECE == 0 && !may() {
                return None;
            }
            inbox.free = Some(Buffer::before(inbox.free.take()));
            inbox.free_count += 1;
        }
        Some(inbox)
    }

    /// Takes all that waits in another one, also if that is more than finds room here: then nothing
    /// further is taken before there is room. `false` if there are no places for all.
    pub fn take_all(&mut self, other: &mut Self) -> bool {
        if self.queue.len() + other.queue.len() >= self.queue.capacity() {
            return false;
        }
        self.queue.append(&mut other.queue);
        self.waiting += core::mem::take(&mut other.waiting);
        true
    }

    /// Takes a chain for a datagram of that length. `None` if there is no room. Bounded by the
    /// buffers of the longest datagram.
    pub fn take_room(&mut self, length: usize) -> Option<Box<Buffer>> {
        let count = buffers(length);
        if count > self.free_count || self.waiting + count > self.most {
            return None;
        }
        let mut chain: Option<Box<Buffer>> = None;
        for _ in 0..count {
            let mut buffer = self.free.take()?;
            self.free = buffer.next.take();
            self.free_count -= 1;
            buffer.next = chain;
            chain = Some(buffer);
        }
        chain
    }

    /// Adds a datagram to those that wait. Gives it back, to be dropped, if it has no place: that
    /// is so only if the room for it was another inbox's.
    pub fn put(&mut self, datagram: Box<Buffer>) -> Option<Box<Buffer>> {
        if self.queue.len() + 1 >= self.queue.capacity() {
            return Some(datagram);
        }
        self.waiting += buffers(datagram.length);
        self.queue.push_back(datagram);
        None
    }

    /// Takes the first datagram.
    pub fn pop(&mut self) -> Option<Box<Buffer>> {
        let first = self.queue.pop_front()?;
        self.waiting -= buffers(first.length);
        Some(first)
    }

    /// Puts the first one back.
    pub fn put_first(&mut self, datagram: Box<Buffer>) {
        self.waiting += buffers(datagram.length);
        self.queue.push_front(datagram);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The first one.
    pub fn first(&self) -> Option<&Buffer> {
        self.queue.front().map(|first| &**first)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The buffers of a datagram are free again. Returns those that are too many, to be dropped.
    pub fn give_back(&mut self, mut chain: Box<Buffer>) -> Option<Box<Buffer>> {
        let mut surplus = None;
        loop {
            let next = chain.next.take();
            if self.waiting + self.free_count < self.most {
                chain.next = self.free.take();
                self.free = Some(chain);
                self.free_count += 1;
            } else {
                chain.next = surplus.take();
                surplus = Some(chain);
            }
            match next {
                Some(buffer) => chain = buffer,
                None => return surplus,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::VecDeque as Model, vec, vec::Vec};

    fn datagram(inbox: &mut Inbox, data: &[u8]) -> bool {
        let Some(mut chain) = inbox.take_room(data.len()) else { return false };
        // In two parts, as a packet and what is before it may be.
        let (first, second) = data.split_at(data.len() / 3);
        chain.fill(About::default(), [first, second]);
        inbox.put(chain).is_none()
    }

    fn bytes(datagram: &Buffer, room: usize) -> Vec<u8> {
        let mut all = vec![];
        datagram.read(room, |part| {
            all.extend_from_slice(part);
            part.len()
        });
        all
    }

    #[test]
    fn as_many_wait_as_under_linux() {
        let mut inbox = Inbox::new(212_992, || true).unwrap();
        let mut count = 0;
        while datagram(&mut inbox, b"x") {
            count += 1;
        }
        assert_eq!(count, 278);
        let mut inbox = Inbox::new(212_992, || true).unwrap();
        assert!(datagram(&mut inbox, &vec![7; 65507]));
        assert_eq!(inbox.first().unwrap().length(), 65507);
    }

    proptest! {
        #[test]
        fn what_waits_comes_out_as_it_went_in(
            steps in prop::collection::vec((0u8..4, 0usize..3000, any::<u8>()), 0..200)
        ) {
            let mut inbox = Inbox::new(16 * COST, || true).unwrap();
            let mut model: Model<Vec<u8>> = Model::new();
            for (what, length, byte) in steps {
                match what {
                    0 | 1 => {
                        let fresh = (0..length).map(|at| byte.wrapping_add(at as u8));
                        let data: Vec<u8> = fresh.collect();
                        let used: usize = model.iter().map(|data| buffers(data.len())).sum();
                        let fits = used + buffers(length) <= 16;
                        prop_assert_eq!(datagram(&mut inbox, &data), fits);
                        if fits {
                            model.push_back(data);
                        }
                    }
                    2 => {
                        let taken = inbox.pop();
                        let got = taken.as_ref().map(|taken| bytes(taken, usize::MAX));
                        prop_assert_eq!(got, model.pop_front());
                        if let Some(taken) = taken {
                            prop_assert!(inbox.give_back(taken).is_none());
                        }
                    }
                    _ => if let Some(first) = inbox.pop() {
                        let wanted = &model.front().unwrap()[..length.min(first.length())];
                        prop_assert_eq!(bytes(&first, length), wanted);
                        inbox.put_first(first);
                    },
                }
                prop_assert_eq!(inbox.is_empty(), model.is_empty());
            }
            // In a smaller one they wait as well, and it takes no more before there is room.
            let mut smaller = Inbox::for_others(4 * COST, inbox.len(), || true).unwrap();
            prop_assert!(smaller.take_all(&mut inbox) && inbox.is_empty());
            while let Some(wanted) = model.pop_front() {
                let used = buffers(wanted.len())
                    + model.iter().map(|data| buffers(data.len())).sum::<usize>();
                let fits = used < 4;
                prop_assert_eq!(datagram(&mut smaller, b"x"), fits);
                if fits {
                    model.push_back(b"x".to_vec());
                }
                let taken = smaller.pop().unwrap();
                prop_assert_eq!(bytes(&taken, usize::MAX), wanted);
                drop(smaller.give_back(taken));
                prop_assert!(smaller.free_count + smaller.waiting >= 4);
                if fits {
                    break;
                }
            }
            while let Some(taken) = smaller.pop() {
                drop(smaller.give_back(taken));
            }
            prop_assert_eq!((smaller.free_count, smaller.waiting), (4, 0));
        }
    }

    /// Whoever has taken a datagram of an inbox of before makes this one no larger.
    #[test]
    fn an_inbox_does_not_grow() {
        let mut inbox = Inbox::new(4 * COST, || true).unwrap();
        for _ in 0..10 {
            let taken = inbox.take_room(3 * ROOM).unwrap();
            let mut fresh = Inbox::for_others(4 * COST, inbox.len(), || true).unwrap();
            assert!(fresh.take_all(&mut inbox));
            inbox = fresh;
            assert!(inbox.give_back(taken).is_some());
            assert_eq!(inbox.free_count, 4);
        }
        // Nor do those that come before there was room.
        let late: Vec<_> =
            (0..3).map(|_| Inbox::new(COST, || true).unwrap().take_room(1)).collect();
        let mut inbox = Inbox::new(COST, || true).unwrap();
        let lost = late.into_iter().flatten().filter_map(|late| inbox.put(late));
        assert_eq!(lost.count(), 2);
        assert_eq!(inbox.queue.capacity(), 2);
    }

    #[test]
    fn memory_may_run_out() {
        let left = core::cell::Cell::new(2);
        let may = || left.replace(left.get() - 1) > 0;
        assert!(Inbox::new(1000 * COST, may).is_none());
        assert_eq!(left.get(), -1);
    }
}
