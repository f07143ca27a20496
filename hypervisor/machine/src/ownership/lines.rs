// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupt lines change their owner, and cells say whom they interrupt.

use crtos_iommu::Requester;
use crtos_iommu::interrupt::{Cpus, Interrupt};
use crtos_partition::address::GuestAddr;
use crtos_partition::error::Refusal;
use crtos_partition::ids::{ApicId, CellId};
use crtos_partition::redirection::Redirection;

use super::Ownership;
use crate::io_apic::{Line, Pin};
use crate::{apic, launch_info};

impl Ownership {
    /// Gives a pin to a cell as its line `number`, silent. `requester` is who sends its messages.
    /// No CPU of Linux runs meanwhile.
    pub fn add_line(
        &mut self,
        cell: CellId,
        number: u16,
        pin: Pin,
        requester: Option<Requester>,
        cpus: &impl Cpus,
    ) -> Result<(), Refusal> {
        let linux = self.io_apics.entry(pin).ok_or(Refusal::Invalid)?;
        let is_other = |line: &Line| line.pin != pin && (line.cell, line.number) != (cell, number);
        if !self.io_apics.lines.iter().flatten().all(is_other) {
            return Err(Refusal::Owned);
        }
        // An entry of Linux says what is on the way of its interrupts.
        let passes = self.iommus.any_taken() || linux.vtd_number().is_none();
        let is_known = requester.is_some() || launch_info::iommus().next().is_none();
        if !passes || !is_known {
            return Err(Refusal::Denied);
        }
        let place = self.io_apics.lines.iter().position(Option::is_none);
        let place = place.ok_or(Refusal::NoMemory)?;
        let line = Line { cell, number, pin, requester, linux, target: None };
        self.announce_line(place, line, cpus)?;
        self.io_apics.lines[place] = Some(line);
        self.program_line(place)
    }

    /// Tells the IOMMUs that are taken over of a line.
    fn announce_line(&mut self, place: usize, line: Line, cpus: &impl Cpus) -> Result<(), Refusal> {
        let Some((iommus, mut memory)) = self.iommus() else { return Err(Refusal::Invalid) };
        let requester = line.requester.unwrap_or(Requester(0));
        match iommus.add_line(&mut memory, cpus, requester, place, line.linux) {
            true => Ok(()),
            false => Err(Refusal::Denied),
        }
    }

    /// Has a line of a cell interrupt `target`, a CPU of that cell, by a vector, or nobody.
    pub fn set_line(
        &mut self,
        cell: CellId,
        number: u16,
        target: Option<(ApicId, u8)>,
    ) -> Result<(), Refusal> {
        let mut places = self.io_apics.lines.iter();
        let is_it = |line: &Line| (line.cell, line.number) == (cell, number);
        let place = places.position(|line| line.as_ref().is_some_and(is_it));
        self.aim_line(place.ok_or(Refusal::Invalid)?, target)
    }

    fn aim_line(&mut self, place: usize, target: Option<(ApicId, u8)>) -> Result<(), Refusal> {
        if let Some(line) = &mut self.io_apics.lines[place] {
            line.target = target;
        }
        self.program_line(place)
    }

    /// Gives the I/O APIC, and the IOMMUs that are taken over, the entry of a line.
    fn program_line(&mut self, place: usize) -> Result<(), Refusal> {
        let Some(line) = self.io_apics.lines[place] else { return Ok(()) };
        self.io_apics.set(line.pin, line.linux.of_same_pin());
        let interrupt =
            line.target.map(|(cpu, vector)| Interrupt::of_cell(cpu, vector, launch_info::x2apic()));
        let entry = match (line.requester, line.target) {
            (Some(requester), _) if self.iommus.any_taken() => {
                let (iommus, mut memory) = self.iommus().ok_or(Refusal::Invalid)?;
                let entry = iommus.set_line(&mut memory, requester, place, interrupt, line.linux);
                entry.ok_or(Refusal::Timeout)?
            }
            (_, Some((cpu, vector))) => line.linux.to_cpu(cpu, vector).ok_or(Refusal::Denied)?,
            (_, None) => return Ok(()),
        };
        self.io_apics.set(line.pin, entry);
        Ok(())
    }

    /// Gives all lines their entries again, since an IOMMU was taken over. What was lost meanwhile
    /// is made up by an interrupt. No CPU of Linux runs meanwhile.
    pub fn renew_lines(&mut self, cpus: &impl Cpus) {
        for place in 0..self.io_apics.lines.len() {
            let Some(line) = self.io_apics.lines[place] else { continue };
            let done = self.announce_line(place, line, cpus);
            if done.and_then(|()| self.program_line(place)).is_ok()
                && let Some((cpu, vector)) = line.target
            {
                apic::get().interrupt(cpu, vector);
            }
        }
    }

    /// Has no line of a cell interrupt anybody.
    pub fn silence_lines(&mut self, cell: CellId) {
        for place in self.lines_of(cell) {
            // The entry of the I/O APIC raises nothing, whatever a unit does.
            let _ = self.aim_line(place, None);
        }
    }

    /// Gives all lines of a cell back to Linux, masked.
    pub fn remove_lines(&mut self, cell: CellId) {
        self.lines_of(cell).for_each(|place| self.remove_at(place));
    }

    /// Gives one back.
    pub fn remove_line(&mut self, cell: CellId, number: u16) -> Result<(), Refusal> {
        let is_it =
            |place: &usize| self.io_apics.lines[*place].is_some_and(|line| line.number == number);
        let place = self.lines_of(cell).find(is_it);
        place.map(|place| self.remove_at(place)).ok_or(Refusal::Invalid)
    }

    fn remove_at(&mut self, place: usize) {
        // The entry of the I/O APIC raises nothing, whatever a unit does.
        let _ = self.aim_line(place, None);
        if let Some(line) = self.io_apics.lines[place].take() {
            self.io_apics.set(line.pin, line.linux.masked());
        }
    }

    fn lines_of(&self, cell: CellId) -> impl Iterator<Item = usize> + use<> {
        let lines = self.io_apics.lines;
        let is_its = move |place: &usize| lines[*place].is_some_and(|line| line.cell == cell);
        (0..lines.len()).filter(is_its)
    }

    /// Carries out a write of Linux to the registers of an I/O APIC. Returns the entry that was to
    /// be, if `accept` refuses it, or it is not Linux's, or names what an IOMMU has for a cell.
    pub fn write_io_apic(
        &mut self,
        address: GuestAddr,
        value: u32,
        accept: impl FnOnce(Redirection) -> bool,
    ) -> Option<Redirection> {
        let Self { io_apics, iommus, .. } = self;
        io_apics.write(address, value, |entry| !iommus.is_own_entry(entry) && accept(entry))
    }

    /// Has all entries of Linux raise nothing that would be refused. Returns how many these were.
    pub fn mask_io_apics(&mut self, accept: impl Fn(Redirection) -> bool) -> usize {
        let Self { io_apics, iommus, .. } = self;
        io_apics.mask(|entry| !iommus.is_own_entry(entry) && accept(entry))
    }
}
