// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of a log ring (see [`crtos_abi::ring`]).
//!
//! The writer may run, may overtake the reader, and may have died in the middle of a line. Nobody
//! trusts it either: the reader uses the capacity that it knows, and not that of the header.

use std::mem::{offset_of, size_of};

use crtos_abi::ring::RingHeader;

use crate::{failure::Result, view::View};

/// Where a ring lies: something that copies from its header (offset 0) and the bytes behind it.
pub trait Source {
    /// Fills `buffer` from `offset`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

impl<F: Fn(u64, &mut [u8]) -> Result<()>> Source for F {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self(offset, buffer)
    }
}

/// A place in a ring, and the line that is not finished yet.
pub struct Reader<S> {
    source: S,
    capacity: u64,
    /// Number of the next byte to read.
    next: u64,
    /// Start of a line whose end is not written yet.
    partial: Vec<u8>,
    /// Bytes were lost, and the line that they ended in is not over yet.
    in_gap: bool,
}

impl<S: Source> Reader<S> {
    /// Makes a reader of all that is in a ring of `capacity` bytes.
    pub fn new(source: S, capacity: u32) -> Self {
        Self { source, capacity: capacity.into(), next: 0, partial: Vec::new(), in_gap: false }
    }

    /// Returns how many bytes were ever written.
    fn written(&self) -> Result<u64> {
        let mut header = [0; size_of::<RingHeader>()];
        self.source.read(0, &mut header)?;
        Ok(View(&header).u64(offset_of!(RingHeader, written)))
    }

    /// Reads the bytes number `from..to`, which are at most the capacity.
    fn copy(&self, from: u64, to: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (to - from) as usize];
        let start = from % self.capacity;
        let first = bytes.len().min((self.capacity - start) as usize);
        let header = size_of::<RingHeader>() as u64;
        let (head, tail) = bytes.split_at_mut(first);
        if !head.is_empty() {
            self.source.read(header + start, head)?;
        }
        if !tail.is_empty() {
            self.source.read(header, tail)?;
        }
        Ok(bytes)
    }

    /// Returns the lines that were finished since the last call, without their newlines. Lines that
    /// were overwritten before they could be read are left out, also their ends.
    pub fn lines(&mut self) -> Result<Vec<Vec<u8>>> {
        let written = self.written()?;
        if written < self.next {
            // A new writer began at the start.
            self.next = 0;
            self.partial.clear();
            self.in_gap = false;
        }
        let mut from = self.next.max(written.saturating_sub(self.capacity));
        let mut bytes = self.copy(from, written)?;
        let overwritten = self.written()?.saturating_sub(self.capacity);
        if overwritten > from {
            bytes.drain(..bytes.len().min((overwritten - from) as usize));
            from = overwritten;
        }
        if from > self.next {
            self.partial.clear();
            self.in_gap = true;
        }
        self.next = written.max(from);

        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = piece.strip_suffix(b"\n") else {
                self.partial.extend_from_slice(piece);
                break;
            };
            let mut line = std::mem::take(&mut self.partial);
            line.extend_from_slice(end);
            if !std::mem::take(&mut self.in_gap) {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    /// Returns the line that is not finished: what a writer that died left behind.
    pub fn unfinished(&self) -> Option<&[u8]> {
        (!self.partial.is_empty() && !self.in_gap).then_some(&self.partial[..])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// Makes a ring as a writer does.
    struct Ring {
        written: u64,
        bytes: Vec<u8>,
    }

    impl Ring {
        fn new(capacity: usize) -> RefCell<Self> {
            RefCell::new(Self { written: 0, bytes: vec![0; capacity] })
        }

        fn write(&mut self, text: &[u8]) {
            for byte in text {
                let at = self.written as usize % self.bytes.len();
                self.bytes[at] = *byte;
                self.written += 1;
            }
        }

        fn copy(&self, offset: u64, buffer: &mut [u8]) {
            let mut all = self.written.to_le_bytes().to_vec();
            all.extend((self.bytes.len() as u32).to_le_bytes());
            all.extend([0; 4]);
            all.extend(&self.bytes);
            buffer.copy_from_slice(&all[offset as usize..][..buffer.len()]);
        }
    }

    fn reader(ring: &RefCell<Ring>) -> Reader<impl Source + '_> {
        let capacity = ring.borrow().bytes.len() as u32;
        Reader::new(
            |offset: u64, buffer: &mut [u8]| {
                ring.borrow().copy(offset, buffer);
                Ok(())
            },
            capacity,
        )
    }

    #[test]
    fn lines_come_when_they_are_finished() {
        let ring = Ring::new(64);
        let mut reader = reader(&ring);
        ring.borrow_mut().write(b"one\ntw");
        assert_eq!(reader.lines().unwrap(), [b"one"]);
        assert_eq!(reader.unfinished(), Some(&b"tw"[..]));
        ring.borrow_mut().write(b"o\n");
        assert_eq!(reader.lines().unwrap(), [b"two"]);
        assert_eq!(reader.unfinished(), None);
    }

    #[test]
    fn an_overtaken_reader_goes_on_at_a_whole_line() {
        let ring = Ring::new(16);
        let mut reader = reader(&ring);
        ring.borrow_mut().write(b"aaaaaaaaaaaaaa\nbbbb\ncccccc\n");
        assert_eq!(reader.lines().unwrap(), [&b"bbbb"[..], b"cccccc"]);
    }

    #[test]
    fn a_new_writer_is_read_from_its_start() {
        let ring = Ring::new(64);
        let mut reader = reader(&ring);
        ring.borrow_mut().write(b"the first life\n");
        reader.lines().unwrap();
        ring.borrow_mut().written = 0;
        ring.borrow_mut().write(b"second\n");
        assert_eq!(reader.lines().unwrap(), [b"second"]);
    }

    #[test]
    fn what_is_overwritten_while_it_is_copied_is_dropped() {
        let ring = Ring::new(16);
        ring.borrow_mut().write(b"aaa\nbbb\nccc\nddd\n");
        let calls = RefCell::new(0);
        let mut reader = Reader::new(
            |offset: u64, buffer: &mut [u8]| {
                *calls.borrow_mut() += 1;
                if *calls.borrow() == 2 {
                    ring.borrow_mut().write(b"eee\nff");
                }
                ring.borrow().copy(offset, buffer);
                Ok(())
            },
            16,
        );
        // "bbb" lost its first letters; "ccc" and "ddd" are whole.
        assert_eq!(reader.lines().unwrap(), [b"ccc", b"ddd"]);
        ring.borrow_mut().write(b"\n");
        assert_eq!(reader.lines().unwrap(), [&b"eee"[..], b"ff"]);
    }

    proptest! {
        /// Whatever is written and read in whatever pieces: each line that is read was written, in
        /// order, and none is missing while the reader keeps up.
        #[test]
        fn reads_what_was_written(
            steps in proptest::collection::vec(
                (proptest::collection::vec(1usize..30, 0..6), any::<bool>()),
                1..60,
            )
        ) {
            let ring = Ring::new(128);
            let mut reader = reader(&ring);
            let (mut number, mut last, mut unread) = (0usize, None, 0);
            for (lengths, read) in steps {
                for length in lengths {
                    let line = format!("{number}:{}\n", "x".repeat(length));
                    ring.borrow_mut().write(line.as_bytes());
                    unread += line.len();
                    number += 1;
                }
                if !read {
                    continue;
                }
                for line in reader.lines().unwrap() {
                    let line = String::from_utf8(line).unwrap();
                    let (n, rest) = line.split_once(':').unwrap();
                    let n: usize = n.parse().unwrap();
                    prop_assert!(rest.bytes().all(|byte| byte == b'x'));
                    prop_assert!(last < Some(n));
                    if unread <= 128 {
                        prop_assert!(last.map_or(n == 0, |last| last + 1 == n));
                    }
                    last = Some(n);
                }
                prop_assert!(number == 0 || last == Some(number - 1));
                unread = 0;
            }
        }
    }
}
