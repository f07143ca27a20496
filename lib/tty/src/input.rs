// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a terminal has received: bytes, or with ICANON lines that can be edited until they end.

use alloc::{boxed::Box, vec};

use bitflags::bitflags;
use linux_raw_sys::general as linux;

use crate::{
    echo::Echo,
    output::{Column, is_continuation, to_lower},
    termios::Termios,
};

/// Bytes that are kept at most.
pub const SIZE: u32 = 4096;
/// Characters that one VWERASE takes at most, and of how many VKILL shows that they go.
const MOST_ERASED: usize = 64;

/// In an entry beside its byte: a line ends with it.
const LAST: u16 = 1 << 8;
/// There as well: the end itself is not read (VEOF).
const UNREAD: u16 = 1 << 9;
/// There as well, from this bit on: where on the screen it is, as [`Place`] has that.
const PLACE_SHIFT: u32 = 10;

bitflags! {
    /// What a received byte asks for beside being kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Effect: u8 {
        /// Output goes on.
        const START = 1;
        /// Output stops.
        const STOP = 2;
        /// A character that raises a signal came. The line is no controlling terminal, so there is
        /// nobody to get it; but input and output are flushed, unless NOFLSH says otherwise.
        const SIGNAL = 4;
        /// There was no room for a byte.
        const LOST = 8;
    }
}

/// What was wrong with a byte on the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its parity, or its stop bit.
    Parity,
    /// It is not a byte but a break.
    Break,
}

/// Where on the screen a character of the line is: so many columns behind the last tab, modulo 8,
/// or behind the beginning of the line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Place {
    columns: u8,
    is_behind_tab: bool,
}

impl Place {
    const TAB: u8 = 8;

    fn of_entry(entry: u16) -> Self {
        let bits = (entry >> PLACE_SHIFT) as u8;
        Self { columns: bits % Self::TAB, is_behind_tab: bits & Self::TAB != 0 }
    }

    fn entry(self) -> u16 {
        let tab = if self.is_behind_tab { Self::TAB } else { 0 };
        u16::from(self.columns | tab) << PLACE_SHIFT
    }

    /// Returns how many columns a character takes that is there.
    fn width(self, termios: &Termios, column: &Column, byte: u8) -> u32 {
        let shows = termios.has_local(linux::ECHOCTL);
        match byte {
            b'\t' => {
                let line = if self.is_behind_tab { 0 } else { column.line };
                let tab = u32::from(Self::TAB);
                tab - line.wrapping_add(self.columns.into()) % tab
            }
            byte if byte.is_ascii_control() => 2 * u32::from(shows),
            byte => (!is_continuation(termios, byte)).into(),
        }
    }

    /// Returns where the next character is.
    fn behind(self, termios: &Termios, column: &Column, byte: u8) -> Self {
        match byte {
            b'\t' => Self { columns: 0, is_behind_tab: true },
            byte => {
                let width = self.width(termios, column, byte) as u8;
                Self { columns: (self.columns + width) % Self::TAB, ..self }
            }
        }
    }
}

/// Received bytes. Positions count all bytes ever, modulo 2^32.
pub struct Input {
    ring: Box<[u16]>,
    /// The next byte to read.
    tail: u32,
    /// Where the line begins that is being edited; what lies before can be read with ICANON.
    line: u32,
    /// The next byte to receive.
    head: u32,
    /// Marks of entries before this position count nothing.
    marks_from: u32,
    /// Ends before `line` that are not read.
    unread: u32,
    /// Columns that the echo of the line takes.
    columns: u32,
    /// Where its next character goes.
    place: Place,
    /// The next character is what it is (VLNEXT).
    is_literal: bool,
    /// Characters are being erased with ECHOPRT.
    is_erasing: bool,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            ring: vec![0; SIZE as usize].into_boxed_slice(),
            tail: 0,
            line: 0,
            head: 0,
            marks_from: 0,
            unread: 0,
            columns: 0,
            place: Place::default(),
            is_literal: false,
            is_erasing: false,
        }
    }
}

/// What is erased at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Erased {
    Character,
    Word,
    Line,
}

/// What a read has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Bytes.
    pub count: usize,
    /// A line ended.
    pub has_ended: bool,
}

fn is_canonical(termios: &Termios) -> bool {
    termios.has_local(linux::ICANON)
}

/// Whether a character that begins with a byte is one of a word for VWERASE: letters are those of
/// Latin-1, as under Linux, and so are the first bytes of letters of UTF-8.
fn is_of_word(byte: u8) -> bool {
    const TIMES: u8 = 0xd7;
    const DIVIDED: u8 = 0xf7;
    let is_latin = byte >= 0xc0 && byte != TIMES && byte != DIVIDED;
    byte.is_ascii_alphanumeric() || byte == b'_' || is_latin
}

/// Whether each byte is kept as it came, and nothing else follows from it.
fn is_raw(termios: &Termios) -> bool {
    const INPUT: u32 = linux::ISTRIP
        | linux::IUCLC
        | linux::IXON
        | linux::IGNCR
        | linux::ICRNL
        | linux::INLCR
        | linux::PARMRK;
    const LOCAL: u32 = linux::ICANON | linux::ISIG | linux::ECHO;
    termios.input & INPUT == 0 && termios.local & LOCAL == 0
}

impl Input {
    fn entry(&mut self, position: u32) -> &mut u16 {
        &mut self.ring[(position % SIZE) as usize]
    }

    /// Returns how many bytes are kept, of the line that is being edited as well.
    pub fn kept(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Returns how many bytes wait for who reads, with the ends of lines.
    pub fn waiting(&self, termios: &Termios) -> u32 {
        match is_canonical(termios) {
            true => self.line.wrapping_sub(self.tail),
            false => self.kept(),
        }
    }

    /// Returns how many bytes can be read (FIONREAD).
    pub fn readable(&self, termios: &Termios) -> u32 {
        match is_canonical(termios) {
            true => self.waiting(termios) - self.unread,
            false => self.kept(),
        }
    }

    /// Says whether there is something to read: a line, which may be empty, or `least` bytes.
    pub fn is_ready(&self, termios: &Termios, least: u32) -> bool {
        match is_canonical(termios) {
            true => self.line != self.tail,
            false => self.kept() >= least,
        }
    }

    /// Says whether the line that is being edited may take all room, as nobody can read any: then
    /// it is no use to stop the sender.
    pub fn is_one_line(&self, termios: &Termios) -> bool {
        is_canonical(termios) && self.line == self.tail
    }

    /// Forgets all that was received.
    pub fn clear(&mut self) {
        (self.tail, self.line, self.marks_from) = (self.head, self.head, self.head);
        (self.unread, self.columns, self.place) = (0, 0, Place::default());
        (self.is_literal, self.is_erasing) = (false, false);
    }

    /// The settings change from `before` to `after`: what was received for reading in bytes is a
    /// line from now on, or the other way round.
    pub fn change(&mut self, before: &Termios, after: &Termios) {
        if is_canonical(before) == is_canonical(after) {
            return;
        }
        self.marks_from = self.head;
        (self.line, self.unread) = (self.tail, 0);
        (self.columns, self.place) = (0, Place::default());
        (self.is_literal, self.is_erasing) = (false, false);
        if is_canonical(after) && self.head != self.tail {
            let last = self.head.wrapping_sub(1);
            let byte = *self.entry(last) & 0xff;
            // As under Linux, a zero that ends a line is not read.
            self.unread = (byte == 0).into();
            *self.entry(last) = byte | LAST | if byte == 0 { UNREAD } else { 0 };
            (self.marks_from, self.line) = (last, self.head);
        }
    }

    /// Reads: bytes, or with ICANON up to the end of a line.
    pub fn take(&mut self, termios: &Termios, to: &mut [u8]) -> Taken {
        match is_canonical(termios) {
            true => self.take_line(to),
            false => Taken { count: self.take_bytes(to), has_ended: false },
        }
    }

    fn take_bytes(&mut self, to: &mut [u8]) -> usize {
        let count = self.kept().min(to.len() as u32) as usize;
        for byte in &mut to[..count] {
            *byte = *self.entry(self.tail) as u8;
            self.tail = self.tail.wrapping_add(1);
        }
        // Who waits for lines from now on finds none before this.
        if self.tail.wrapping_sub(self.line) as i32 > 0 {
            self.line = self.tail;
        }
        count
    }

    fn take_line(&mut self, to: &mut [u8]) -> Taken {
        let mut count = 0;
        while self.tail != self.line {
            let entry = *self.entry(self.tail);
            let is_marked = self.is_marked(self.tail);
            let (ends, is_read) = (is_marked && entry & LAST != 0, entry & UNREAD == 0);
            if count == to.len() && (!ends || is_read) {
                break;
            }
            self.tail = self.tail.wrapping_add(1);
            if !ends || is_read {
                to[count] = entry as u8;
                count += 1;
            }
            if ends {
                self.unread -= u32::from(!is_read);
                return Taken { count, has_ended: true };
            }
        }
        Taken { count, has_ended: false }
    }

    fn is_marked(&self, position: u32) -> bool {
        position.wrapping_sub(self.marks_from) as i32 >= 0
    }

    /// Has room for the next byte: the last character of a line that takes all room goes, as under
    /// Linux, since nobody can make room otherwise. There is no bell for that (IMAXBEL) there.
    fn make_room(&mut self, termios: &Termios) -> Effect {
        if self.kept() < SIZE || !self.is_one_line(termios) {
            return Effect::empty();
        }
        self.head = self.head.wrapping_sub(1);
        let head = self.head;
        self.place = Place::of_entry(*self.entry(head));
        Effect::LOST
    }

    /// Returns how many bytes there may be with one that ends no line.
    fn most(&self, termios: &Termios) -> u32 {
        if self.is_one_line(termios) { SIZE } else { SIZE - 1 }
    }

    /// Keeps a byte if there are fewer than `most`; otherwise it is lost.
    fn put(&mut self, entry: u16, most: u32) -> Effect {
        if self.kept() >= most {
            return Effect::LOST;
        }
        let head = self.head;
        *self.entry(head) = entry;
        self.head = head.wrapping_add(1);
        Effect::empty()
    }

    /// Keeps several, or none: who reads does not find a part of a mark.
    fn put_all(&mut self, entries: &[u16], most: u32) -> Effect {
        if self.kept() + entries.len() as u32 > most {
            return Effect::LOST;
        }
        entries.iter().fold(Effect::empty(), |effect, &entry| effect | self.put(entry, most))
    }

    /// Ends the line.
    fn end_line(&mut self, entry: u16) -> Effect {
        let effect = self.put(entry | LAST, SIZE);
        if effect.is_empty() {
            self.line = self.head;
            self.unread += u32::from(entry & UNREAD != 0);
            (self.columns, self.place) = (0, Place::default());
        }
        effect
    }

    /// Receives something that was wrong on the line, and that the settings do not ignore.
    pub fn receive_fault(&mut self, termios: &Termios, byte: u8, fault: Fault) -> Effect {
        self.keep_fault(termios, byte, fault) | self.make_room(termios)
    }

    fn keep_fault(&mut self, termios: &Termios, byte: u8, fault: Fault) -> Effect {
        match fault {
            Fault::Break if termios.has_input(linux::IGNBRK) => Effect::empty(),
            Fault::Break if termios.has_input(linux::BRKINT) => Effect::SIGNAL,
            Fault::Parity if termios.has_input(linux::IGNPAR) => Effect::empty(),
            _ if termios.has_input(linux::PARMRK) => {
                let byte = if fault == Fault::Break { 0 } else { byte };
                self.put_all(&[0xff, 0, byte.into()], self.most(termios))
            }
            _ => self.put(0, self.most(termios)),
        }
    }

    /// Receives a byte. `column` is where its echo goes; `is_stopped`: output is.
    #[inline(always)]
    pub fn receive(
        &mut self,
        termios: &Termios,
        byte: u8,
        is_stopped: bool,
        echo: &mut Echo,
        column: &mut Column,
    ) -> Effect {
        if is_raw(termios) {
            self.is_literal = false;
            return self.put(byte.into(), SIZE - 1);
        }
        self.interpret(termios, byte, is_stopped, echo, column) | self.make_room(termios)
    }

    /// Receives a byte, by all that the settings can ask for.
    #[inline(never)]
    fn interpret(
        &mut self,
        termios: &Termios,
        byte: u8,
        is_stopped: bool,
        echo: &mut Echo,
        column: &mut Column,
    ) -> Effect {
        let mut byte = byte;
        if termios.has_input(linux::ISTRIP) {
            byte &= 0x7f;
        }
        if termios.has_input(linux::IUCLC) && termios.has_local(linux::IEXTEN) {
            byte = to_lower(byte);
        }
        if core::mem::take(&mut self.is_literal) {
            return self.keep(termios, byte, false, echo, column);
        }
        if termios.has_input(linux::IXON) {
            if termios.is(linux::VSTART, byte) {
                return Effect::START;
            }
            if termios.is(linux::VSTOP, byte) {
                return Effect::STOP;
            }
        }
        let echoes = termios.has_local(linux::ECHO);
        if termios.has_local(linux::ISIG)
            && [linux::VINTR, linux::VQUIT, linux::VSUSP].iter().any(|&v| termios.is(v, byte))
        {
            if !termios.has_local(linux::NOFLSH) {
                echo.clear();
            }
            if echoes {
                echo.character(termios, column, byte);
            }
            let starts = termios.has_input(linux::IXON);
            return Effect::SIGNAL | if starts { Effect::START } else { Effect::empty() };
        }
        let goes_on =
            is_stopped && termios.has_input(linux::IXON) && termios.has_input(linux::IXANY);
        let started = if goes_on { Effect::START } else { Effect::empty() };
        let is_return = byte == b'\r';
        match byte {
            b'\r' if termios.has_input(linux::IGNCR) => return started,
            b'\r' if termios.has_input(linux::ICRNL) => byte = b'\n',
            b'\n' if termios.has_input(linux::INLCR) => byte = b'\r',
            _ => {}
        }
        let kept = match is_canonical(termios) {
            true => self.edit(termios, byte, echo, column),
            false => self.keep(termios, byte, is_return, echo, column),
        };
        started | kept
    }

    /// Receives a character of a line.
    fn edit(
        &mut self,
        termios: &Termios,
        byte: u8,
        echo: &mut Echo,
        column: &mut Column,
    ) -> Effect {
        let extended = termios.has_local(linux::IEXTEN);
        let echoes = termios.has_local(linux::ECHO);
        if termios.is(linux::VERASE, byte) {
            self.erase(termios, Erased::Character, |_| true, echo, column);
        } else if termios.is(linux::VKILL, byte) {
            self.kill(termios, byte, echo, column);
        } else if extended && termios.is(linux::VWERASE, byte) {
            // What is no part of a word, then the word.
            let mut seen = false;
            let goes = |byte: u8| {
                let is_word = is_of_word(byte);
                let goes = is_word || !seen;
                seen |= is_word;
                goes
            };
            self.erase(termios, Erased::Word, goes, echo, column);
        } else if extended && termios.is(linux::VLNEXT, byte) {
            self.is_literal = true;
            if echoes {
                self.finish_erasing(termios, echo, column);
                if termios.has_local(linux::ECHOCTL) {
                    echo.raw(termios, column, b'^');
                    echo.raw(termios, column, 8);
                }
            }
        } else if echoes && extended && termios.is(linux::VREPRINT, byte) {
            self.reprint(termios, byte, echo, column);
        } else if byte == b'\n' {
            if termios.has_local(linux::ECHO | linux::ECHONL) {
                echo.raw(termios, column, b'\n');
            }
            return self.end_line(byte.into());
        } else if termios.is(linux::VEOF, byte) {
            return self.end_line(UNREAD);
        } else if termios.is(linux::VEOL, byte) || extended && termios.is(linux::VEOL2, byte) {
            if echoes {
                self.begin_line(column);
                echo.character(termios, column, byte);
            }
            return self.end_line(byte.into());
        } else {
            return self.keep(termios, byte, false, echo, column);
        }
        Effect::empty()
    }

    /// Keeps a character and echoes it. `is_return`: it came as a return.
    fn keep(
        &mut self,
        termios: &Termios,
        byte: u8,
        is_return: bool,
        echo: &mut Echo,
        column: &mut Column,
    ) -> Effect {
        let is_line = is_canonical(termios);
        if self.kept() >= SIZE - 1 && !self.is_one_line(termios) {
            // It is not echoed.
            return Effect::LOST;
        }
        if termios.has_local(linux::ECHO) {
            self.finish_erasing(termios, echo, column);
            match byte {
                b'\n' if is_return => echo.raw(termios, column, byte),
                byte => {
                    self.begin_line(column);
                    echo.character(termios, column, byte);
                }
            }
        }
        let doubled = byte == 0xff && termios.has_input(linux::PARMRK);
        let mut entries = [0; 2];
        let entries = &mut entries[..1 + usize::from(doubled)];
        for entry in &mut *entries {
            *entry = u16::from(byte) | self.place.entry();
            if is_line {
                self.columns += self.place.width(termios, column, byte);
                self.place = self.place.behind(termios, column, byte);
            }
        }
        self.put_all(entries, self.most(termios))
    }

    /// If this is the first character of a line, its echo begins here.
    fn begin_line(&self, column: &mut Column) {
        if self.head == self.line {
            column.line = column.next;
        }
    }

    /// Returns where the last character of the line begins; `None` if there is none, but bytes that
    /// continue one.
    fn last_character(&mut self, termios: &Termios) -> Option<u32> {
        let mut at = self.head;
        while at != self.line {
            at = at.wrapping_sub(1);
            let byte = *self.entry(at) as u8;
            if !is_continuation(termios, byte) {
                return Some(at);
            }
        }
        None
    }

    /// Takes characters from the end of the line for as long as `goes`, but `most` at most.
    fn erase(
        &mut self,
        termios: &Termios,
        what: Erased,
        mut goes: impl FnMut(u8) -> bool,
        echo: &mut Echo,
        column: &mut Column,
    ) {
        if self.head == self.line {
            return;
        }
        let most = if what == Erased::Character { 1 } else { MOST_ERASED };
        for _ in 0..most {
            let Some(at) = self.last_character(termios) else { break };
            let entry = *self.entry(at);
            if !goes(entry as u8) {
                break;
            }
            self.place = Place::of_entry(entry);
            let width = self.place.width(termios, column, entry as u8);
            self.columns = self.columns.saturating_sub(width);
            if termios.has_local(linux::ECHO) {
                self.echo_erase(termios, at, what, echo, column);
            }
            self.head = at;
        }
        if self.head == self.line && termios.has_local(linux::ECHO) {
            self.finish_erasing(termios, echo, column);
        }
    }

    /// Shows that the character at `at`, the last one, goes.
    fn echo_erase(
        &mut self,
        termios: &Termios,
        at: u32,
        what: Erased,
        echo: &mut Echo,
        column: &mut Column,
    ) {
        let byte = *self.entry(at) as u8;
        if termios.has_local(linux::ECHOPRT) {
            if !core::mem::replace(&mut self.is_erasing, true) {
                echo.raw(termios, column, b'\\');
            }
            echo.character(termios, column, byte);
            for further in 1..self.head.wrapping_sub(at) {
                let byte = *self.entry(at.wrapping_add(further)) as u8;
                echo.raw(termios, column, byte);
                column.back();
            }
        } else if what == Erased::Character && !termios.has_local(linux::ECHOE) {
            let erase = termios.character(linux::VERASE).unwrap_or(0);
            echo.character(termios, column, erase);
        } else {
            let columns = self.place.width(termios, column, byte);
            match byte {
                b'\t' => echo.back(column, columns),
                _ => (0..columns).for_each(|_| echo.erase(termios, column)),
            }
        }
    }

    fn kill(&mut self, termios: &Termios, byte: u8, echo: &mut Echo, column: &mut Column) {
        const ERASES: u32 = linux::ECHOK | linux::ECHOKE | linux::ECHOE;
        if self.head == self.line {
            return;
        }
        let echoes = termios.has_local(linux::ECHO);
        let erases = termios.local & ERASES == ERASES;
        if echoes && erases {
            self.erase(termios, Erased::Line, |_| true, echo, column);
            match self.last_character(termios) {
                // Of what is left of a long line, its columns.
                Some(_) => echo.kill(column, self.columns),
                // As under Linux, what continues no character stays.
                None => return,
            }
        }
        self.head = self.line;
        (self.columns, self.place) = (0, Place::default());
        if !echoes {
            return;
        }
        self.finish_erasing(termios, echo, column);
        if !erases {
            echo.character(termios, column, byte);
            if termios.has_local(linux::ECHOK) {
                echo.raw(termios, column, b'\n');
            }
        }
    }

    /// Shows the line anew (VREPRINT), as much of it as there is room for.
    fn reprint(&mut self, termios: &Termios, byte: u8, echo: &mut Echo, column: &mut Column) {
        self.finish_erasing(termios, echo, column);
        echo.character(termios, column, byte);
        echo.raw(termios, column, b'\n');
        let length = self.head.wrapping_sub(self.line).min(crate::echo::SIZE as u32);
        for at in 0..length {
            let byte = *self.entry(self.line.wrapping_add(at)) as u8;
            echo.character(termios, column, byte);
        }
    }

    fn finish_erasing(&mut self, termios: &Termios, echo: &mut Echo, column: &mut Column) {
        if core::mem::take(&mut self.is_erasing) {
            echo.raw(termios, column, b'/');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// With the settings that need no look at a byte, that is what a look would come to.
        #[test]
        fn raw_bytes_need_no_look(
            (flags, local) in (any::<u32>(), any::<u32>()),
            characters in any::<[u8; crate::termios::CHARACTERS]>(),
            bytes in prop::collection::vec((any::<u8>(), any::<bool>()), 1..64),
            is_literal in any::<bool>(),
        ) {
            let input = flags & !(linux::ISTRIP | linux::IUCLC | linux::IXON | linux::IGNCR
                | linux::ICRNL | linux::INLCR | linux::PARMRK);
            let local = local & !(linux::ICANON | linux::ISIG | linux::ECHO);
            let termios = Termios { input, local, characters, ..Termios::default() };
            prop_assert!(is_raw(&termios));
            let (mut short, mut long) = (Input::default(), Input::default());
            (short.is_literal, long.is_literal) = (is_literal, is_literal);
            let (mut echo, mut column) = (Echo::default(), Column::default());
            for (byte, is_stopped) in bytes {
                let effect = short.receive(&termios, byte, is_stopped, &mut echo, &mut column);
                prop_assert!(echo.is_empty());
                let other = long.interpret(&termios, byte, is_stopped, &mut echo, &mut column);
                prop_assert_eq!(effect, other);
                prop_assert!(echo.is_empty());
                prop_assert_eq!(short.is_literal, long.is_literal);
            }
            prop_assert_eq!(&short.ring, &long.ring);
            prop_assert_eq!(short.kept(), long.kept());
        }
    }
}
