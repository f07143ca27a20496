// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be sent: OPOST and what follows it, and the bytes that wait.

use alloc::{boxed::Box, vec};

use linux_raw_sys::general as linux;

use crate::termios::Termios;

/// Bytes that wait at most.
pub const SIZE: usize = 4096;
/// A terminal can be written to, for poll(2) and for who waits, when fewer bytes wait.
pub const WAKE_BELOW: usize = 256;
/// Distance of tab stops.
const TAB: u32 = 8;

/// What becomes of one byte of output.
#[derive(Clone, Copy, Default, Debug)]
pub struct Posted {
    bytes: [u8; TAB as usize],
    length: usize,
}

impl Posted {
    fn of(bytes: &[u8]) -> Self {
        let mut posted = Self { length: bytes.len(), ..Self::default() };
        posted.bytes[..bytes.len()].copy_from_slice(bytes);
        posted
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Where characters go on the terminal, by columns from 0.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Column {
    /// Where the next one goes.
    pub next: u32,
    /// Where the echo of the line that is received begins.
    pub line: u32,
}

impl Column {
    /// Returns what becomes of `byte`, and moves the column.
    pub fn post(&mut self, termios: &Termios, byte: u8) -> Posted {
        if !termios.has_output(linux::OPOST) {
            return Posted::of(&[byte]);
        }
        match byte {
            b'\n' => {
                if termios.has_output(linux::ONLRET | linux::ONLCR) {
                    self.next = 0;
                }
                self.line = self.next;
                let with_return = termios.has_output(linux::ONLCR);
                Posted::of(if with_return { b"\r\n" } else { b"\n" })
            }
            b'\r' if termios.has_output(linux::ONOCR) && self.next == 0 => Posted::default(),
            b'\r' if termios.has_output(linux::OCRNL) => {
                if termios.has_output(linux::ONLRET) {
                    *self = Self::default();
                }
                Posted::of(b"\n")
            }
            b'\r' => {
                *self = Self::default();
                Posted::of(b"\r")
            }
            b'\t' => {
                let spaces = TAB - self.next % TAB;
                self.next = self.next.wrapping_add(spaces);
                match termios.output & linux::TABDLY == linux::TAB3 {
                    true => Posted::of(&[b' '; TAB as usize][..spaces as usize]),
                    false => Posted::of(b"\t"),
                }
            }
            8 => {
                self.back();
                Posted::of(&[byte])
            }
            byte if byte.is_ascii_control() => Posted::of(&[byte]),
            byte => {
                if !is_continuation(termios, byte) {
                    self.next = self.next.wrapping_add(1);
                }
                let upper = termios.has_output(linux::OLCUC);
                Posted::of(&[if upper { to_upper(byte) } else { byte }])
            }
        }
    }

    /// Moves one back.
    pub fn back(&mut self) {
        self.next = self.next.saturating_sub(1);
    }
}

/// How far small letters of ASCII and of Latin-1 are behind their capital ones.
const SMALL: u8 = b'a' - b'A';

/// Returns the capital letter, of Latin-1 as under Linux, where sharp s and y with diaeresis have
/// one as well.
pub fn to_upper(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' | 0xdf..=0xf6 | 0xf8.. => byte - SMALL,
        _ => byte,
    }
}

/// Returns the small letter, of Latin-1 as under Linux.
pub fn to_lower(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + SMALL,
        _ => byte,
    }
}

/// Says whether a byte continues a character of UTF-8, where the terminal has such.
pub fn is_continuation(termios: &Termios, byte: u8) -> bool {
    termios.has_input(linux::IUTF8) && byte & 0xc0 == 0x80
}

/// The bytes that wait to be sent.
pub struct Output {
    ring: Box<[u8]>,
    /// Where the next byte is taken from, and how many there are.
    first: usize,
    count: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { ring: vec![0; SIZE].into_boxed_slice(), first: 0, count: 0 }
    }
}

impl Output {
    /// Returns how many bytes wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Says whether none waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many more bytes have room.
    pub fn room(&self) -> usize {
        SIZE - self.count
    }

    /// Adds what a program writes as far as there is room. Returns how many of the program's bytes
    /// that are.
    pub fn write(&mut self, termios: &Termios, column: &mut Column, from: &[u8]) -> usize {
        for (done, &byte) in from.iter().enumerate() {
            let mut next = *column;
            let posted = next.post(termios, byte);
            if posted.length > self.room() || self.room() == 0 {
                return done;
            }
            *column = next;
            posted.bytes().iter().for_each(|&byte| self.push(byte));
        }
        from.len()
    }

    fn push(&mut self, byte: u8) {
        self.ring[(self.first + self.count) % SIZE] = byte;
        self.count += 1;
    }

    /// Takes the next byte.
    pub fn pop(&mut self) -> Option<u8> {
        self.count = self.count.checked_sub(1)?;
        let byte = self.ring[self.first];
        self.first = (self.first + 1) % SIZE;
        Some(byte)
    }

    /// Forgets all bytes.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(flags: u32, text: &[u8]) -> Vec<u8> {
        let termios = Termios { output: flags, ..Termios::default() };
        let (mut output, mut column) = (Output::default(), Column::default());
        assert_eq!(output.write(&termios, &mut column, text), text.len());
        std::iter::from_fn(|| output.pop()).collect()
    }

    #[test]
    fn opost_changes_what_termios_says() {
        use linux::{OCRNL, OLCUC, ONLCR, ONOCR, OPOST, TAB3};
        assert_eq!(written(ONLCR, b"a\nb"), b"a\nb");
        assert_eq!(written(OPOST | ONLCR, b"a\nb"), b"a\r\nb");
        assert_eq!(written(OPOST | OCRNL, b"a\rb"), b"a\nb");
        assert_eq!(written(OPOST | ONOCR, b"\ra\rb"), b"a\rb");
        assert_eq!(written(OPOST | OLCUC, b"aB1"), b"AB1");
        assert_eq!(written(OPOST | TAB3, b"abc\td\t"), b"abc     d       ");
        assert_eq!(written(OPOST, b"abc\td"), b"abc\td");
    }

    proptest! {
        #[test]
        fn a_byte_is_written_whole_or_not_at_all(
            text in proptest::collection::vec(proptest::sample::select(&b"a\n\t\r\x08"[..]), 3000..6000),
            flags in proptest::sample::select(&[0, linux::OPOST | linux::ONLCR | linux::TAB3][..]),
        ) {
            let termios = Termios { output: flags, ..Termios::default() };
            let (mut output, mut column) = (Output::default(), Column::default());
            let (mut done, mut sent) = (0, Vec::new());
            while done < text.len() {
                let taken = output.write(&termios, &mut column, &text[done..]);
                prop_assert!(output.len() <= SIZE);
                prop_assert!(taken > 0 || output.room() < 8);
                done += taken;
                for _ in 0..100 {
                    sent.extend(output.pop());
                }
            }
            sent.extend(std::iter::from_fn(|| output.pop()));
            let mut column = Column::default();
            let mut wanted = Vec::new();
            text.iter().for_each(|&byte| wanted.extend(column.post(&termios, byte).bytes()));
            prop_assert_eq!(sent, wanted);
        }
    }
}
