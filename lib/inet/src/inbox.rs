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
    fn new() -> Box<Self> {
        Box::new(Self { next: None, about: About::default(), length: 0, bytes: [0; ROOM] })
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
    free: Option<Box<Buffer>>,
    free_count: usize,
}

impl Inbox {
    /// An inbox for so many bytes, as Linux counts them. Allocates all that it ever has. `None` if
    /// there is no memory.
    pub fn new(bytes: u32) -> Option<Self> {
        let count = bytes.div_ceil(COST).max(1) as usize;
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(count).ok()?;
        let mut inbox = Self { queue, free: None, free_count: 0 };
        for _ in 0..count {
            inbox.give_back(Buffer::new());
        }
        Some(inbox)
    }

    /// Takes a chain for a datagram of that length. `None` if there is no room. Bounded by the
    /// buffers of the longest datagram.
    pub fn take_room(&mut self, length: usize) -> Option<Box<Buffer>> {
        let count = buffers(length);
        if count > self.free_count {
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

    /// Adds a datagram to those that wait.
    pub fn put(&mut self, datagram: Box<Buffer>) {
        // There are never more chains than buffers.
        self.queue.push_back(datagram);
    }

    /// Takes the first datagram.
    pub fn pop(&mut self) -> Option<Box<Buffer>> {
        self.queue.pop_front()
    }

    /// Puts the first one back.
    pub fn put_first(&mut self, datagram: Box<Buffer>) {
        self.queue.push_front(datagram);
    }

    /// The first one.
    pub fn first(&self) -> Option<&Buffer> {
        self.queue.front().map(|first| &**first)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The buffers of a datagram are free again.
    pub fn give_back(&mut self, mut chain: Box<Buffer>) {
        loop {
            let next = chain.next.take();
            chain.next = self.free.take();
            self.free = Some(chain);
            self.free_count += 1;
            match next {
                Some(buffer) => chain = buffer,
                None => return,
            }
        }
    }

    /// Adds a datagram of another inbox. Returns buffers that take its place nowhere, to be
    /// dropped; or the datagram, if there is no room.
    pub fn adopt(&mut self, datagram: Box<Buffer>) -> Result<Box<Buffer>, Box<Buffer>> {
        match self.take_room(datagram.length) {
            Some(room) => {
                self.put(datagram);
                Ok(room)
            }
            None => Err(datagram),
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
        inbox.put(chain);
        true
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
        let mut inbox = Inbox::new(212_992).unwrap();
        let mut count = 0;
        while datagram(&mut inbox, b"x") {
            count += 1;
        }
        assert_eq!(count, 278);
        let mut inbox = Inbox::new(212_992).unwrap();
        assert!(datagram(&mut inbox, &vec![7; 65507]));
        assert_eq!(inbox.first().unwrap().length(), 65507);
    }

    proptest! {
        #[test]
        fn what_waits_comes_out_as_it_went_in(
            steps in prop::collection::vec((0u8..4, 0usize..3000, any::<u8>()), 0..200)
        ) {
            let mut inbox = Inbox::new(16 * COST).unwrap();
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
                            inbox.give_back(taken);
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
            let mut larger = Inbox::new(17 * COST).unwrap();
            while let Some(datagram) = inbox.pop() {
                prop_assert!(larger.adopt(datagram).is_ok());
            }
            while let Some(wanted) = model.pop_front() {
                prop_assert_eq!(bytes(&larger.pop().unwrap(), usize::MAX), wanted);
            }
        }
    }
}
