// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log: lines with a time, in a ring that survives its writers (see [`crtos_abi::ring`]).
//!
//! Several CPUs write. Each reserves its bytes by one addition, copies them, and waits for those
//! before it to finish: a few hundred nanoseconds at most, since a writer is never interrupted.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of a line.
pub const LINE_SIZE: usize = 200;

/// The memory of a ring that others can read.
pub trait RingMemory {
    /// Bytes of the ring, a power of two.
    fn capacity(&self) -> u64;
    /// Stores a byte at `offset`.
    fn store(&self, offset: u64, byte: u8);
    /// Stores the number of bytes ever written, after everything before.
    fn publish(&self, written: u64);
}

/// Position of the writers. They never read it from the ring, which others might change.
pub struct LogWriter {
    reserved: AtomicU64,
    written: AtomicU64,
}

impl LogWriter {
    /// An empty log.
    pub const fn new() -> Self {
        Self { reserved: AtomicU64::new(0), written: AtomicU64::new(0) }
    }

    /// Appends `bytes`.
    pub fn append(&self, ring: &impl RingMemory, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let start = self.reserved.fetch_add(length, Ordering::Relaxed);
        for (position, byte) in (start..).zip(bytes) {
            ring.store(position % ring.capacity(), *byte);
        }
        while self.written.load(Ordering::Acquire) != start {
            core::hint::spin_loop();
        }
        ring.publish(start + length);
        self.written.store(start + length, Ordering::Release);
    }
}

impl Default for LogWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// A line that is put together before it goes into the log; what exceeds [`LINE_SIZE`] is cut.
pub struct Line {
    bytes: [u8; LINE_SIZE],
    length: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self { bytes: [0; LINE_SIZE], length: 0 }
    }

    /// A line that starts with the time: `tsc` ticks at `tsc_khz` since the machine started.
    pub fn at(tsc: u64, tsc_khz: u32) -> Self {
        let mut line = Self::new();
        let khz = u64::from(tsc_khz.max(1));
        let (milliseconds, rest) = (tsc / khz, tsc % khz);
        let (seconds, micros) =
            (milliseconds / 1000, milliseconds % 1000 * 1000 + rest * 1000 / khz);
        let _ = write!(line, "[{seconds:5}.{micros:06}] ");
        line
    }

    /// Appends a byte; control characters become a space.
    pub fn push(&mut self, byte: u8) {
        // The last byte is kept for the newline.
        if self.length < LINE_SIZE - 1 {
            self.bytes[self.length] = if byte.is_ascii_control() { b' ' } else { byte };
            self.length += 1;
        }
    }

    /// Tells whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// What is in it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// What is in it, with a newline at the end.
    pub fn finish(&mut self) -> &[u8] {
        let end = self.length.min(LINE_SIZE - 1);
        self.bytes[end] = b'\n';
        &self.bytes[..=end]
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    struct Ring {
        bytes: Vec<AtomicU8>,
        written: AtomicU64,
    }

    impl Ring {
        fn new(capacity: usize) -> Self {
            let bytes = (0..capacity).map(|_| AtomicU8::new(0)).collect();
            Self { bytes, written: AtomicU64::new(0) }
        }

        /// The last bytes, in order.
        fn tail(&self) -> Vec<u8> {
            let written = self.written.load(Ordering::Acquire);
            let start = written.saturating_sub(self.capacity());
            (start..written)
                .map(|n| self.bytes[(n % self.capacity()) as usize].load(Ordering::Relaxed))
                .collect()
        }
    }

    impl RingMemory for Ring {
        fn capacity(&self) -> u64 {
            self.bytes.len() as u64
        }
        fn store(&self, offset: u64, byte: u8) {
            self.bytes[offset as usize].store(byte, Ordering::Relaxed);
        }
        fn publish(&self, written: u64) {
            self.written.store(written, Ordering::Release);
        }
    }

    #[test]
    fn a_line_has_its_time_and_one_newline() {
        let mut line = Line::at(3_000_250_000, 2_000_000);
        let _ = write!(line, "cpu3 demo: a\nb");
        assert_eq!(line.finish(), b"[    1.500125] cpu3 demo: a b\n");
        (0..500).for_each(|_| line.push(b'x'));
        assert_eq!(line.finish().len(), LINE_SIZE);
    }

    #[test]
    fn writers_on_several_cpus_do_not_tear_lines() {
        let (ring, writer) = (Ring::new(1 << 16), LogWriter::new());
        std::thread::scope(|scope| {
            for name in [b'a', b'b', b'c'] {
                let (ring, writer) = (&ring, &writer);
                scope.spawn(move || {
                    for length in 0..200 {
                        let mut line = vec![name; length % 50];
                        line.push(b'\n');
                        writer.append(ring, &line);
                    }
                });
            }
        });
        let text = ring.tail();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 600);
        assert!(
            text.split(|byte| *byte == b'\n').all(|line| line.windows(2).all(|w| w[0] == w[1]))
        );
    }

    #[test]
    fn old_bytes_give_way() {
        let (ring, writer) = (Ring::new(8), LogWriter::new());
        writer.append(&ring, b"0123456");
        writer.append(&ring, b"789");
        assert_eq!(ring.tail(), b"23456789");
        assert_eq!(ring.written.load(Ordering::Relaxed), 10);
    }
}
