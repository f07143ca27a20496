// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's I/O APICs (Intel 82093AA, 3), which Linux drives: it reads their registers, and
//! its writes are carried out here, but for those to entries of cells' [lines](Line). There are two
//! words of memory for each, one that selects a register and one that is the register.

use crtos_abi::PAGE_SIZE;
use crtos_abi::device::MAX_LINES;
use crtos_abi::image::MAX_IO_APICS;
use crtos_iommu::Requester;
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::ids::{ApicId, CellId};
use crtos_partition::redirection::Redirection;

use crate::{direct_map, launch_info};

/// So many bytes have words; chips may repeat them throughout the page.
const SIZE: u64 = 0x100;
/// Offset of the word that selects a register.
const SELECT: u64 = 0;
/// Offset of the word that is the selected register.
const WINDOW: u64 = 0x10;
/// Offset of the word that ends interrupts of later chips (Intel I/O Controller Hub 9, 13.5.4).
const END: u64 = 0x40;
/// Register: the number of the last entry in bits 23..16.
const VERSION: u8 = 1;
/// First register of the entries, each of which has two, the lower half first.
const ENTRIES: u8 = 0x10;

/// Which pin of which one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// Index of the I/O APIC.
    pub io_apic: usize,
    /// Number of its entry.
    pub entry: u8,
}

/// An interrupt line of a cell. Its entry is the hypervisor's.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) cell: CellId,
    /// By which the cell knows it.
    pub(crate) number: u16,
    pub(crate) pin: Pin,
    /// Who sends its messages, if that is known.
    pub(crate) requester: Option<Requester>,
    /// What Linux had there, which it gets back, masked.
    pub(crate) linux: Redirection,
    /// The CPU that it interrupts, and the vector.
    pub(crate) target: Option<(ApicId, u8)>,
}

/// All of them.
pub struct IoApics {
    /// The register of each that Linux has selected.
    selected: [u8; MAX_IO_APICS],
    /// The lines of cells.
    pub(crate) lines: [Option<Line>; MAX_LINES],
}

impl IoApics {
    pub(crate) const fn new() -> Self {
        Self { selected: [0; MAX_IO_APICS], lines: [None; MAX_LINES] }
    }

    /// Tells whether a pin is a line of a cell.
    pub(crate) fn is_line(&self, pin: Pin) -> bool {
        self.lines.iter().flatten().any(|line| line.pin == pin)
    }

    /// The entry of a pin; `None` if there is no such pin.
    pub(crate) fn entry(&self, pin: Pin) -> Option<Redirection> {
        let (index, registers) = all().find(|(index, _)| *index == pin.io_apic)?;
        let entry = (pin.entry <= registers.last_entry()).then(|| registers.entry(pin.entry));
        registers.select(self.selected[index]);
        entry
    }

    /// Gives a pin an entry. It raises nothing in between, and is no level: then the I/O APIC does
    /// not wait for the end of one that it raised before.
    pub(crate) fn set(&self, pin: Pin, entry: Redirection) {
        let Some((index, registers)) = all().find(|(index, _)| *index == pin.io_apic) else {
            return;
        };
        let lower = lower_half(pin.entry);
        registers.write(lower, Redirection(0).masked().lower());
        registers.write(lower + 1, entry.upper());
        registers.write(lower, entry.lower());
        registers.select(self.selected[index]);
    }

    /// Carries out a write of Linux to the word at `address`, a place in one of them
    /// ([`is_one`]). Returns the entry that was to be, if `accept` refuses it: it raises nothing;
    /// or if it is that of a line of a cell: nothing happens.
    pub(crate) fn write(
        &mut self,
        address: GuestAddr,
        value: u32,
        accept: impl FnOnce(Redirection) -> bool,
    ) -> Option<Redirection> {
        let (index, registers) = find(address)?;
        match (address.offset_in(SIZE), self.selected[index]) {
            (SELECT, _) => {
                self.selected[index] = value as u8;
                registers.select(value as u8);
            }
            (WINDOW, selected @ ENTRIES..) => {
                let (number, upper) = ((selected - ENTRIES) / 2, selected & 1 != 0);
                let entry = registers.entry(number).with_half(upper, value);
                if self.is_line(Pin { io_apic: index, entry: number }) {
                    registers.select(selected);
                    return Some(entry);
                }
                let accepted = accept(entry);
                if !accepted {
                    registers.write(lower_half(number), entry.masked().lower());
                }
                if accepted || upper {
                    registers.write(selected, value);
                }
                registers.select(selected);
                return (!accepted).then_some(entry);
            }
            (WINDOW, selected) => registers.write(selected, value),
            (END, _) => registers.write_word(END, value),
            // There are no others.
            _ => (),
        }
        None
    }

    /// Has all entries of Linux that `accept` refuses raise nothing. Returns how many these were.
    pub(crate) fn mask(&mut self, accept: impl Fn(Redirection) -> bool) -> usize {
        let mut refused = 0;
        for (index, registers) in all() {
            for number in 0..=registers.last_entry() {
                let entry = registers.entry(number);
                if !self.is_line(Pin { io_apic: index, entry: number }) && !accept(entry) {
                    registers.write(lower_half(number), entry.masked().lower());
                    refused += 1;
                }
            }
            registers.select(self.selected[index]);
        }
        refused
    }
}

/// Tells whether `address` lies in the registers of one.
pub fn is_one(address: GuestAddr) -> bool {
    find(address).is_some()
}

fn find(address: GuestAddr) -> Option<(usize, Registers)> {
    let page = address.align_down(PAGE_SIZE).get();
    all().find(|(_, registers)| registers.0.get() == page)
}

fn all() -> impl Iterator<Item = (usize, Registers)> {
    launch_info::io_apics().map(|(index, page)| (index, Registers(page)))
}

/// The register with the lower half of an entry.
fn lower_half(number: u8) -> u8 {
    ENTRIES + 2 * number
}

/// The registers of the I/O APIC at this address.
struct Registers(PhysAddr);

impl Registers {
    /// Where the word at `offset`, one of the three, is.
    fn place(&self, offset: u64) -> *mut u32 {
        direct_map::pointer(self.0 + offset)
    }

    fn write_word(&self, offset: u64, value: u32) {
        // SAFETY: A page of an I/O APIC, which the direct map reaches and no Rust object lives in.
        // The words that are no entries interrupt nobody anew.
        unsafe { self.place(offset).write_volatile(value) }
    }

    fn select(&self, register: u8) {
        self.write_word(SELECT, register.into());
    }

    fn read(&self, register: u8) -> u32 {
        self.select(register);
        // SAFETY: As for writing; reading has no effect.
        unsafe { self.place(WINDOW).read_volatile() }
    }

    fn write(&self, register: u8, value: u32) {
        self.select(register);
        self.write_word(WINDOW, value);
    }

    fn last_entry(&self) -> u8 {
        // Registers have numbers of 8 bits.
        ((self.read(VERSION) >> 16) as u8).min((u8::MAX - ENTRIES) / 2)
    }

    fn entry(&self, number: u8) -> Redirection {
        let lower = lower_half(number);
        Redirection(0).with_half(false, self.read(lower)).with_half(true, self.read(lower + 1))
    }
}
