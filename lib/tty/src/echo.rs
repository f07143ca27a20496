// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a terminal sends back of what it receives.

use linux_raw_sys::general as linux;

use crate::{output::Column, termios::Termios};

/// Bytes that wait at most; further ones are lost.
pub const SIZE: usize = 256;
/// What takes a character from the screen.
const ERASE: &[u8] = b"\x08 \x08";

/// Echoes that wait to be sent, ahead of what programs write.
pub struct Echo {
    ring: [u8; SIZE],
    first: usize,
    count: usize,
    /// A line that is taken from the screen: behind so many of the bytes, so many columns. That
    /// these are not in the ring makes it one step to kill a line.
    killed: Option<Killed>,
}

struct Killed {
    behind: usize,
    columns: u32,
    /// Bytes of [`ERASE`] that are sent of the present column.
    sent: usize,
}

impl Default for Echo {
    fn default() -> Self {
        Self { ring: [0; SIZE], first: 0, count: 0, killed: None }
    }
}

impl Echo {
    /// Says whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.killed.is_none()
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        (self.count, self.killed) = (0, None);
    }

    /// Echoes a byte as it is, but for what OPOST changes.
    pub fn raw(&mut self, termios: &Termios, column: &mut Column, byte: u8) {
        for &byte in column.post(termios, byte).bytes() {
            self.push(byte);
        }
    }

    /// Adds a byte to what waits.
    fn push(&mut self, byte: u8) {
        if self.count < SIZE {
            self.ring[(self.first + self.count) % SIZE] = byte;
            self.count += 1;
        }
    }

    /// Echoes a character: with ECHOCTL, one that does not print as `^X`.
    pub fn character(&mut self, termios: &Termios, column: &mut Column, byte: u8) {
        if termios.has_local(linux::ECHOCTL) && byte.is_ascii_control() && byte != b'\t' {
            // Both as they are, whatever OPOST says, as under Linux.
            self.push(b'^');
            self.push(byte ^ 0o100);
            column.next = column.next.wrapping_add(2);
        } else if byte == 0xff {
            self.push(byte);
            column.next = column.next.wrapping_add(1);
        } else {
            self.raw(termios, column, byte);
        }
    }

    /// Goes back over a tab that took so many columns. Those show nothing, so nothing is written
    /// over them.
    pub fn back(&mut self, column: &mut Column, columns: u32) {
        for _ in 0..columns {
            self.push(8);
            column.back();
        }
    }

    /// Takes the last character from the screen.
    pub fn erase(&mut self, termios: &Termios, column: &mut Column) {
        ERASE.iter().for_each(|&byte| self.raw(termios, column, byte));
    }

    /// Takes the last `columns` from the screen.
    pub fn kill(&mut self, column: &mut Column, columns: u32) {
        column.next = column.next.saturating_sub(columns);
        match &mut self.killed {
            _ if columns == 0 => {}
            Some(killed) => killed.columns += columns,
            None => self.killed = Some(Killed { behind: self.count, columns, sent: 0 }),
        }
    }

    /// Takes the next byte to send.
    pub fn pop(&mut self) -> Option<u8> {
        match &mut self.killed {
            Some(killed) if killed.behind == 0 => {
                let byte = ERASE[killed.sent];
                killed.sent += 1;
                if killed.sent == ERASE.len() {
                    killed.sent = 0;
                    killed.columns -= 1;
                }
                if killed.columns == 0 {
                    self.killed = None;
                }
                return Some(byte);
            }
            Some(killed) => killed.behind -= 1,
            None => {}
        }
        self.count = self.count.checked_sub(1)?;
        let byte = self.ring[self.first];
        self.first = (self.first + 1) % SIZE;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_line_goes_behind_what_was_echoed_before() {
        let (termios, mut column) = (Termios::default(), Column::default());
        let mut echo = Echo::default();
        for byte in *b"a\x01" {
            echo.character(&termios, &mut column, byte);
        }
        assert_eq!(column.next, 3);
        echo.kill(&mut column, 3);
        echo.raw(&termios, &mut column, b'b');
        let sent: Vec<u8> = std::iter::from_fn(|| echo.pop()).collect();
        assert_eq!(sent, b"a^A\x08 \x08\x08 \x08\x08 \x08b");
        assert!(echo.is_empty() && column.next == 1);
    }

    #[test]
    fn what_has_no_room_is_lost() {
        let (termios, mut column) = (Termios::default(), Column::default());
        let mut echo = Echo::default();
        for _ in 0..1000 {
            echo.raw(&termios, &mut column, b'x');
        }
        assert_eq!(std::iter::from_fn(|| echo.pop()).count(), SIZE);
    }
}
