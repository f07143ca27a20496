// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked copies of Linux's tables for interrupts, each of which several devices may have. Linux
//! tells of a change for one of these devices only.
//!
//! The copy for an I/O APIC that has lines of cells is another one, whose last entries are the
//! hypervisor's.

use crtos_abi::device::MAX_LINES;
use crtos_partition::address::PhysAddr;

use super::irte::{self, Form};
use crate::interrupt::{Cpus, Refused};
use crate::machine::Machine;
use crate::{bit, field, flag};

/// Bytes of the memory for copies. Who asks for an entry behind the end of a table finds another
/// one's, or zeros, though a unit refuses that.
pub const SIZE: u64 = RECORDS + UNITS * 16;
/// Memory is given in units of so many bytes.
const UNIT: u64 = 8192;
/// So many of them, with which the memory begins.
const UNITS: u64 = 240;
/// Bytes of the largest entry.
pub const LARGEST_ENTRY: u64 = 16;
/// Bytes of the largest table. So many zeros follow.
pub const LARGEST: u64 = LARGEST_ENTRY << super::device::MAX_INTERRUPT_ORDER;
/// A record of two words for each unit follows: it tells of the copy that begins there.
const RECORDS: u64 = UNITS * UNIT + LARGEST;
/// The order of the number of entries of a copy with lines: all that messages of ordinary delivery
/// modes can name.
pub const LINES_ORDER: u32 = 9;
/// The first entry for a line.
pub const FIRST_LINE: u64 = (1 << LINES_ORDER) - MAX_LINES as u64;
/// Words that are read of Linux's table at once.
const CHUNK: u64 = 64;
const PAGE: u64 = 4096;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    linux: PhysAddr,
    /// It has 2^`order` entries.
    order: u32,
    /// So many devices have it.
    references: u32,
    /// It has entries for lines of cells.
    lines: bool,
}

/// All copies for a unit.
#[derive(Debug)]
pub struct Copies {
    form: Form,
    /// Where the memory begins in that of the unit.
    start: u64,
    refused: u64,
}

impl Copies {
    /// None, of entries of this form. The memory is at `start` in that of the unit.
    pub fn new(form: Form, start: u64) -> Self {
        Self { form, start, refused: 0 }
    }

    /// How many entries of Linux were refused, each time that they were looked at.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The form of entries.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Refers to the copy of Linux's table at `linux` with 2^`order` entries, and returns where it
    /// lies in the memory of the unit; `None` if there is no memory. `cpus` are `None` if no entry
    /// may interrupt anybody. `lines` says that it is to have entries for lines of cells, which are
    /// not in use in a new one.
    pub fn acquire(
        &mut self,
        machine: &mut impl Machine,
        cpus: Option<&impl Cpus>,
        linux: PhysAddr,
        order: u32,
        lines: bool,
    ) -> Option<u64> {
        let wanted = Copied { linux, order, references: 1, lines };
        let (mut free, mut begin) = (None, 0);
        let mut index = 0;
        while index < UNITS {
            if let Some(copied) = self.record(machine, index) {
                if (Copied { references: 1, ..copied }) == wanted {
                    let references = copied.references + 1;
                    self.set_record(machine, index, Copied { references, ..copied });
                    return Some(self.place(index));
                }
                index += self.units(copied);
                begin = index;
            } else {
                index += 1;
                if index - begin == self.units(wanted) {
                    free = free.or(Some(begin));
                }
            }
        }
        self.set_record(machine, free?, wanted);
        self.fill(machine, cpus, free?, wanted);
        Some(self.place(free?))
    }

    /// Refers no more to the copy that lies there.
    pub fn release(&mut self, machine: &mut impl Machine, place: u64) {
        let index = self.index(place);
        let Some(copied) = self.record(machine, index) else { return };
        let references = copied.references - 1;
        self.set_record(machine, index, Copied { references, ..copied });
        if references == 0 {
            for offset in (0..self.units(copied) * UNIT).step_by(8) {
                machine.set_own_word(place + offset, 0);
            }
        }
    }

    /// Copies the entries for lines from one copy, if it has some, to another.
    pub fn copy_lines(&self, machine: &mut impl Machine, from: u64, to: u64) {
        let has_lines = self.record(machine, self.index(from)).is_some_and(|copied| copied.lines);
        let size = self.form.size();
        let entries = size * FIRST_LINE..size << LINES_ORDER;
        for offset in entries.step_by(8).filter(|_| has_lines && from != to) {
            let word = machine.own_word(from + offset);
            machine.set_own_word(to + offset, word);
        }
    }

    /// Makes all copies again of the table of Linux of which there is one there. Tells whether
    /// several devices have these.
    pub fn changed(
        &mut self,
        machine: &mut impl Machine,
        cpus: Option<&impl Cpus>,
        place: u64,
    ) -> bool {
        let Some(changed) = self.record(machine, self.index(place)) else { return false };
        let mut devices = 0;
        for index in 0..UNITS {
            let copied = self.record(machine, index).filter(|copied| copied.linux == changed.linux);
            if let Some(copied) = copied {
                self.fill(machine, cpus, index, copied);
                devices += copied.references;
            }
        }
        devices > 1
    }

    /// Makes all copies again.
    pub fn look_again(&mut self, machine: &mut impl Machine, cpus: Option<&impl Cpus>) {
        for index in 0..UNITS {
            if let Some(copied) = self.record(machine, index) {
                self.fill(machine, cpus, index, copied);
            }
        }
    }

    /// The copy whose memory begins at unit `index`, if there is one.
    fn record(&self, machine: &impl Machine, index: u64) -> Option<Copied> {
        let place = self.start + RECORDS + 16 * index;
        let word = machine.own_word(place + 8);
        let references = field(word, 0, 32) as u32;
        (references > 0).then(|| Copied {
            linux: PhysAddr::new(machine.own_word(place)),
            order: field(word, 32, 8) as u32,
            references,
            lines: bit(word, 40),
        })
    }

    fn set_record(&self, machine: &mut impl Machine, index: u64, copied: Copied) {
        let place = self.start + RECORDS + 16 * index;
        machine.set_own_word(place, copied.linux.get());
        let lines = flag(copied.lines, 40);
        let numbers = u64::from(copied.references) | u64::from(copied.order) << 32;
        machine.set_own_word(place + 8, numbers | lines);
    }

    fn place(&self, index: u64) -> u64 {
        self.start + index * UNIT
    }

    fn index(&self, place: u64) -> u64 {
        (place - self.start) / UNIT
    }

    fn units(&self, copied: Copied) -> u64 {
        let order = if copied.lines { LINES_ORDER } else { copied.order };
        (self.form.size() << order).div_ceil(UNIT)
    }

    /// Makes a copy of all entries, whose memory begins at unit `index`.
    fn fill(
        &mut self,
        machine: &mut impl Machine,
        cpus: Option<&impl Cpus>,
        index: u64,
        copied: Copied,
    ) {
        let most = if copied.lines { FIRST_LINE } else { u64::MAX };
        let size = self.form.size() * most.min(1 << copied.order);
        let mut words = [0; CHUNK as usize];
        let mut offset = 0;
        while offset < size {
            let address = copied.linux + offset;
            let to_page_end = PAGE - address.offset_in(PAGE);
            let bytes = (size - offset).min(8 * CHUNK).min(to_page_end);
            let words = &mut words[..(bytes / 8) as usize];
            if !machine.read_linux(address, words) {
                words.fill(0);
            }
            for (place, pair) in (self.place(index) + offset..).step_by(16).zip(words.chunks(2)) {
                self.put(machine, cpus, place, pair);
            }
            offset += bytes;
        }
    }

    /// Puts what lies in two words of Linux, or in one, into a copy. A unit may read it meanwhile.
    fn put(
        &mut self,
        machine: &mut impl Machine,
        cpus: Option<&impl Cpus>,
        place: u64,
        words: &[u64],
    ) {
        let (low, high) = (words[0], words.get(1).copied().unwrap_or(0));
        let pair = match self.form {
            Form::Long { .. } => {
                let entry = self.copy(u128::from(high) << 64 | u128::from(low), cpus);
                [entry as u64, (entry >> 64) as u64]
            }
            Form::Short => [low, high].map(|word| {
                let halves =
                    [word & 0xffff_ffff, word >> 32].map(|raw| self.copy(raw.into(), cpus));
                halves[0] as u64 | (halves[1] as u64) << 32
            }),
        };
        if words.len() == 1 {
            machine.set_own_word(place, pair[0]);
        } else if [machine.own_word(place), machine.own_word(place + 8)] != pair {
            machine.set_own_pair(place, pair);
        }
    }

    fn copy(&mut self, raw: u128, cpus: Option<&impl Cpus>) -> u128 {
        let (copy, verdict) = match cpus {
            Some(cpus) => irte::copy(raw, self.form, cpus),
            None => (0, if raw & 1 == 0 { Ok(()) } else { Err(Refused::Malformed) }),
        };
        self.refused += u64::from(verdict.is_err());
        copy
    }
}
