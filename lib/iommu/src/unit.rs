// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unit that was taken over from a running Linux, of either vendor.

use crtos_abi::device::MAX_MESSAGES;
use crtos_partition::redirection::Redirection;

use crate::copies::{Copies, Function};
use crate::fault::Fault;
use crate::interrupt::{Cpus, Interrupt};
use crate::machine::{MAX_PIECES, Machine, Progress, Unfit};
use crate::{DomainId, Requester, amd, vtd};

/// Messages of a function of a cell.
pub(crate) const MESSAGES: u64 = MAX_MESSAGES as u64;

/// What kind a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// VT-d.
    Intel,
    /// AMD-Vi.
    Amd,
}

impl Vendor {
    /// Bytes of the pieces of memory that the hypervisor needs for a unit, 0 where it needs none.
    pub fn own_sizes(self) -> [u64; MAX_PIECES] {
        match self {
            Self::Intel => vtd::unit::OWN_SIZES,
            Self::Amd => amd::unit::OWN_SIZES,
        }
    }
}

/// A unit that was taken over.
#[derive(Debug)]
pub enum Unit {
    /// VT-d.
    Intel(vtd::unit::Unit),
    /// AMD-Vi.
    Amd(amd::unit::Unit),
}

impl Unit {
    /// Takes a unit over that Linux uses. No CPU of Linux runs meanwhile, and none goes on with
    /// cached translations. `x2apic` says that the CPUs are in x2APIC mode.
    pub fn take(
        vendor: Vendor,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        x2apic: bool,
    ) -> Result<Self, Unfit> {
        match vendor {
            Vendor::Intel => vtd::unit::Unit::take(machine, copies, cpus, x2apic).map(Self::Intel),
            Vendor::Amd => amd::unit::Unit::take(machine, copies, cpus, x2apic).map(Self::Amd),
        }
    }

    /// Gives the unit back as Linux believes it to be; false if it does not do what it is told. No
    /// CPU of Linux runs meanwhile.
    pub fn give_back(&mut self, machine: &mut impl Machine, copies: &mut Copies) -> bool {
        match self {
            Self::Intel(unit) => unit.give_back(machine, copies),
            Self::Amd(unit) => unit.give_back(machine, copies),
        }
    }

    /// Makes all copies of entries for interrupts again, since a CPU changed its owner; false if
    /// the unit does not do what it is told.
    pub fn owners_changed(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) -> bool {
        match self {
            Self::Intel(unit) => unit.owners_changed(machine, cpus),
            Self::Amd(unit) => unit.owners_changed(machine, cpus),
        }
    }

    /// Looks again at what Linux gave the unit, since memory changed its owner. What
    /// [`Copies::refer`] needs is needed here as well.
    pub fn memory_changed(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
    ) {
        match self {
            // All that it stores to memory of Linux is checked when it is stored.
            Self::Intel(_) => (),
            Self::Amd(unit) => unit.memory_changed(machine, copies, cpus),
        }
    }

    /// Looks at a function again that is a cell's, or was. [`Self::forget_translations`] has to
    /// follow.
    pub fn function_changed(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        function: Requester,
    ) {
        match self {
            // The copies have changed.
            Self::Intel(_) => (),
            Self::Amd(unit) => unit.function_changed(machine, copies, cpus, function),
        }
    }

    /// Has message `number` of a function of a cell, below [`MAX_MESSAGES`], interrupt as
    /// `interrupt` says, or not at all; false if the unit does not do what it is told.
    pub fn set_message(
        &mut self,
        machine: &mut impl Machine,
        requester: Requester,
        function: Function,
        number: u32,
        interrupt: Option<Interrupt>,
    ) -> bool {
        match self {
            Self::Intel(unit) => {
                unit.set_message(machine, requester, function.place, number, interrupt)
            }
            Self::Amd(unit) => unit.set_message(machine, function.place, number, interrupt),
        }
    }

    /// Has no message of the function of a cell at `place` interrupt anybody; false if the unit
    /// does not do what it is told.
    pub fn silence(&mut self, machine: &mut impl Machine, place: usize) -> bool {
        match self {
            Self::Intel(unit) => unit.silence(machine, place),
            Self::Amd(unit) => unit.silence(machine, place),
        }
    }

    /// Lets the line of a cell at `place` be one of the I/O APIC `requester`, silent. `linux` is an
    /// entry for its pin. False if the unit does not do what it is told, or cannot.
    pub fn add_line(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        requester: Requester,
        place: usize,
        linux: Redirection,
    ) -> bool {
        match self {
            Self::Intel(_) => true,
            // The end of one by a level names a vector, which the I/O APIC does not know then.
            Self::Amd(_) if linux.is_level() => false,
            Self::Amd(unit) => unit.add_line(machine, copies, cpus, requester, place),
        }
    }

    /// Has the line of a cell at `place`, of the I/O APIC `requester`, interrupt as `interrupt`
    /// says, or not at all. `linux` is an entry for its pin. Returns the entry that the I/O APIC is
    /// to have; `None` if the unit does not do what it is told, or cannot.
    pub fn set_line(
        &mut self,
        machine: &mut impl Machine,
        requester: Requester,
        place: usize,
        interrupt: Option<Interrupt>,
        linux: Redirection,
    ) -> Option<Redirection> {
        match self {
            Self::Intel(unit) => {
                let level = linux.is_level();
                let done = unit.set_line(machine, requester, place, interrupt, level);
                let entry = interrupt.map_or(linux.of_same_pin(), |interrupt| {
                    linux.by_vtd(vtd::unit::line_number(place), interrupt.vector)
                });
                done.then_some(entry)
            }
            Self::Amd(unit) => {
                let done = unit.set_line(machine, place, interrupt);
                let number = interrupt.map(|_| amd::unit::line_number(place));
                done.then_some(number.map_or(linux.of_same_pin(), |number| linux.by_amd(number)))
            }
        }
    }

    /// Tells whether an entry of an I/O APIC that Linux writes names one of the hypervisor's.
    pub fn is_own_entry(&self, entry: Redirection) -> bool {
        match self {
            Self::Intel(_) => entry.vtd_number().is_some_and(vtd::unit::is_own),
            Self::Amd(_) => amd::unit::is_own(entry.amd_number()),
        }
    }

    /// The address to which a function of a cell writes its messages; the data are their numbers.
    pub fn message_address(&self, function: Function) -> u32 {
        match self {
            Self::Intel(_) => vtd::unit::message_address(function.place),
            Self::Amd(_) => amd::unit::MESSAGE_ADDRESS,
        }
    }

    /// Has the unit forget what it cached of tables that translate addresses; false if it does not
    /// do what it is told.
    pub fn forget_translations(&mut self, machine: &mut impl Machine) -> bool {
        match self {
            Self::Intel(unit) => !unit.confines_addresses() || unit.forget_translations(machine),
            Self::Amd(unit) => unit.forget_translations(machine),
        }
    }

    /// Has the unit forget what it cached of the tables of one of the hypervisor's domains, which
    /// have changed, and end what devices do by them; false if it does not do what it is told.
    pub fn forget_domain(&mut self, machine: &mut impl Machine, domain: DomainId) -> bool {
        match self {
            Self::Intel(unit) => !unit.confines_addresses() || unit.forget_domain(machine, domain),
            Self::Amd(unit) => unit.forget_domain(machine, domain),
        }
    }

    /// Tells whether devices reach memory by copies of Linux's tables only.
    pub fn confines_addresses(&self) -> bool {
        match self {
            Self::Intel(unit) => unit.confines_addresses(),
            Self::Amd(_) => true,
        }
    }

    /// Tells whether messages of devices interrupt by copies of Linux's entries only.
    pub fn confines_interrupts(&self) -> bool {
        match self {
            Self::Intel(unit) => unit.confines_interrupts(),
            Self::Amd(unit) => unit.confines_interrupts(),
        }
    }

    /// How many entries of Linux were refused, each time that they were looked at.
    pub fn refused(&self) -> u64 {
        match self {
            Self::Intel(unit) => unit.refused(),
            Self::Amd(unit) => unit.refused(),
        }
    }

    /// Takes the fault of a device that Linux has taken note of since.
    pub fn take_fault(&mut self) -> Option<Fault> {
        match self {
            Self::Intel(unit) => unit.take_fault(),
            Self::Amd(unit) => unit.take_fault(),
        }
    }

    /// What Linux reads in the 32 bits at `offset`, a multiple of 4.
    pub fn read(&mut self, machine: &mut impl Machine, offset: u64) -> u32 {
        match self {
            Self::Intel(unit) => unit.read(machine, offset),
            Self::Amd(unit) => unit.read(machine, offset),
        }
    }

    /// Tells whether a write of `value` to the 32 bits at `offset` may change what copies are made
    /// of, so that no CPU of Linux may run meanwhile.
    pub fn changes_tables(&self, machine: &impl Machine, offset: u64, value: u32) -> bool {
        match self {
            Self::Intel(_) => vtd::unit::changes_tables(offset),
            Self::Amd(unit) => unit.changes_tables(machine, offset, value),
        }
    }

    /// Carries out a write of Linux to the 32 bits at `offset`, a multiple of 4. No CPU of Linux
    /// runs meanwhile if [`Self::changes_tables`] says so.
    pub fn write(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        offset: u64,
        value: u32,
    ) -> Progress {
        match self {
            Self::Intel(unit) => unit.write(machine, copies, cpus, offset, value),
            Self::Amd(unit) => unit.write(machine, copies, cpus, offset, value),
        }
    }
}
