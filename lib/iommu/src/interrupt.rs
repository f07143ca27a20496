// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts that devices ask for, and whom they may reach.
//!
//! A device interrupts by a store to 0xFEE0_0000 to 0xFEEF_FFFF. With remapping, the unit takes
//! vector, delivery mode and destination from an entry of a table. Both vendors' entries become an
//! [`Interrupt`] here, which is judged in one place.

use crtos_partition::icr::{Address, Command, Delivery, Format, Shorthand};
use crtos_partition::ids::ApicId;
use crtos_partition::message;

use crate::{bit, field};

/// What the hypervisor knows of the CPUs that Linux does not have.
pub trait Cpus {
    /// Those CPUs, as interrupts address them.
    fn foreign(&self) -> impl Iterator<Item = Address>;
    /// Tells whether the cell of such a CPU asked that Linux's devices interrupt it by `vector`.
    fn asked(&self, cpu: ApicId, vector: u8) -> bool;
}

/// An interrupt that an entry or a register describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Vector.
    pub vector: u8,
    /// Delivery mode.
    pub delivery: Delivery,
    /// Logical, not physical destination.
    pub logical: bool,
    /// Destination field.
    pub destination: u32,
    /// Its format.
    pub format: Format,
}

/// Why an entry of Linux is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The unit would take it for an error as well, or it means what no unit here offers.
    Malformed,
    /// It posts to memory instead of interrupting a CPU.
    Posted,
    /// Its delivery mode is neither fixed nor lowest priority.
    Delivery,
    /// It reaches this CPU, whose cell did not ask for it.
    Foreign(ApicId),
}

impl Interrupt {
    /// Refuses what Linux may not have a device do.
    pub fn check(&self, cpus: &impl Cpus) -> Result<(), Refused> {
        if !matches!(self.delivery, Delivery::Fixed | Delivery::LowestPriority) {
            return Err(Refused::Delivery);
        }
        let command = Command {
            vector: self.vector,
            delivery: self.delivery,
            logical: self.logical,
            assert: true,
            shorthand: Shorthand::None,
            destination: self.destination,
            format: self.format,
        };
        cpus.foreign()
            .find(|cpu| command.names(*cpu) && !cpus.asked(cpu.id, self.vector))
            .map_or(Ok(()), |cpu| Err(Refused::Foreign(cpu.id)))
    }

    /// The vector of a CPU of a cell. `x2apic` says that the CPUs are in x2APIC mode; otherwise
    /// their ids have 8 bits.
    pub fn of_cell(cpu: ApicId, vector: u8, x2apic: bool) -> Self {
        Self {
            vector,
            delivery: Delivery::Fixed,
            logical: false,
            destination: cpu.0,
            format: format(x2apic),
        }
    }

    /// From the registers by which a VT-d unit interrupts for events of its own, which are never
    /// remapped (VT-d 5.1.6): `data`, `address` and `upper` address. [`Refused::Malformed`] if it
    /// would be a store to memory.
    pub fn of_vtd_event(
        data: u32,
        address: u32,
        upper: u32,
        extended: bool,
    ) -> Result<Self, Refused> {
        let low = Self::of_message(address.into(), data)?;
        match (upper, extended) {
            (0, false) => Ok(low),
            (upper, true) if upper & 0xff == 0 => {
                Ok(Self { destination: upper | low.destination, format: Format::X2Apic, ..low })
            }
            _ => Err(Refused::Malformed),
        }
    }

    /// From one of the registers by which an AMD unit in x2APIC mode interrupts for events of its
    /// own (IOMMU 3.4, MMIO offsets 0x170, 0x178, 0x180).
    pub fn of_amd_event(register: u64) -> Self {
        Self {
            vector: field(register, 32, 8) as u8,
            delivery: if bit(register, 40) { Delivery::Other } else { Delivery::Fixed },
            logical: bit(register, 2),
            destination: (field(register, 8, 24) | field(register, 56, 8) << 24) as u32,
            format: Format::X2Apic,
        }
    }

    /// From the address and the data of a message that is not remapped (VT-d 5.1.2.1).
    /// [`Refused::Malformed`] if it is none, but a store to memory.
    pub fn of_message(address: u64, data: u32) -> Result<Self, Refused> {
        if !message::is_message(address) {
            return Err(Refused::Malformed);
        }
        Ok(Self {
            vector: data as u8,
            delivery: delivery(field(data.into(), 8, 3)),
            logical: bit(address, 2),
            destination: field(address, 12, 8) as u32,
            format: Format::XApic,
        })
    }
}

/// Bits of an entry that is not in use which count with both vendors: faults are not reported.
const SILENT: u128 = 1 << 1;

/// The copy of the entry `raw` of Linux, and why it is a blocked one, if so. `decoded` is what the
/// entry asks for, with the entry that asks for just that; `None` if it is not in use.
pub(crate) fn copy(
    raw: u128,
    decoded: Result<Option<(Interrupt, u128)>, Refused>,
    cpus: &impl Cpus,
) -> (u128, Result<(), Refused>) {
    let blocked = raw & SILENT;
    let copied = decoded.and_then(|entry| match entry {
        Some((interrupt, copy)) => interrupt.check(cpus).map(|()| copy),
        None => Ok(blocked),
    });
    match copied {
        Ok(copy) => (copy, Ok(())),
        Err(refused) => (blocked, Err(refused)),
    }
}

/// The format of destinations in entries and registers.
pub(crate) const fn format(extended: bool) -> Format {
    if extended { Format::X2Apic } else { Format::XApic }
}

/// The delivery mode with this number (VT-d 9.9; AMD APM vol. 2, 16.5).
pub(crate) const fn delivery(number: u64) -> Delivery {
    match number {
        0 => Delivery::Fixed,
        1 => Delivery::LowestPriority,
        4 => Delivery::Nmi,
        5 => Delivery::Init,
        _ => Delivery::Other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// CPUs of cells by their ids, with the vectors that they asked for.
    #[derive(Clone, Debug)]
    pub struct Cells {
        pub cpus: BTreeMap<u32, Vec<u8>>,
        pub clustered: bool,
    }

    /// The logical id that a CPU has in xAPIC mode in these tests.
    fn logical(id: u32, clustered: bool) -> u8 {
        if clustered { ((id / 4 % 15) << 4 | 1 << (id % 4)) as u8 } else { 1 << (id % 8) }
    }

    impl Cpus for Cells {
        fn foreign(&self) -> impl Iterator<Item = Address> {
            self.cpus.keys().map(|id| Address {
                id: ApicId(*id),
                logical: logical(*id, self.clustered),
                clustered: self.clustered,
            })
        }

        fn asked(&self, cpu: ApicId, vector: u8) -> bool {
            self.cpus.get(&cpu.0).is_some_and(|vectors| vectors.contains(&vector))
        }
    }

    pub fn cells() -> impl Strategy<Value = Cells> {
        let vectors = prop::collection::vec(0x20u8..0x28, 0..4);
        (prop::collection::btree_map(0u32..64, vectors, 0..8), any::<bool>())
            .prop_map(|(cpus, clustered)| Cells { cpus, clustered })
    }

    /// Whether a CPU accepts an interrupt, as the manuals say it (SDM vol. 3, 11.6.2).
    fn accepts(interrupt: &Interrupt, id: u32, clustered: bool) -> bool {
        let destination = interrupt.destination;
        match (interrupt.format, interrupt.logical) {
            (Format::X2Apic, _) if destination == 0xffff_ffff => true,
            (Format::X2Apic, false) => destination == id,
            (Format::X2Apic, true) => {
                destination >> 16 == id >> 4 && destination & 1 << (id & 15) != 0
            }
            (Format::XApic, _) if destination == 0xff => true,
            (Format::XApic, false) => destination == id,
            (Format::XApic, true) if clustered => {
                let own = logical(id, true);
                destination as u8 >> 4 == own >> 4 && destination as u8 & own & 0xf != 0
            }
            (Format::XApic, true) => destination as u8 & logical(id, false) != 0,
        }
    }

    /// What has to hold of a verdict: it is the model's.
    pub fn agrees(interrupt: &Interrupt, cells: &Cells) -> Result<(), TestCaseError> {
        let ordinary = matches!(interrupt.delivery, Delivery::Fixed | Delivery::LowestPriority);
        let harmless = cells.cpus.iter().all(|(id, vectors)| {
            !accepts(interrupt, *id, cells.clustered) || vectors.contains(&interrupt.vector)
        });
        prop_assert_eq!(interrupt.check(cells).is_ok(), ordinary && harmless);
        Ok(())
    }

    fn interrupt() -> impl Strategy<Value = Interrupt> {
        let destination = prop_oneof![
            0u32..64,
            (0u32..4, any::<u16>()).prop_map(|(cluster, mask)| cluster << 16 | u32::from(mask)),
            Just(0xff),
            Just(u32::MAX),
            any::<u32>(),
        ];
        (0x20u8..0x30, 0u64..8, any::<bool>(), destination, any::<bool>()).prop_map(
            |(vector, number, logical, destination, extended)| Interrupt {
                vector,
                delivery: delivery(number),
                logical,
                destination: if extended { destination } else { destination & 0xff },
                format: format(extended),
            },
        )
    }

    proptest! {
        /// The property that the confinement of interrupts stands on.
        #[test]
        fn reaches_no_cpu_that_did_not_ask(interrupt in interrupt(), cells in cells()) {
            agrees(&interrupt, &cells)?;
        }

        #[test]
        fn events_of_units_are_judged_as_they_are_sent(
            data: u32,
            address: u32,
            upper in prop_oneof![Just(0u32), any::<u32>(), any::<u32>().prop_map(|x| x & !0xff)],
            register: u64,
            extended: bool,
            cells in cells(),
        ) {
            let message = message::WINDOW | address & 0xf_ffff;
            match Interrupt::of_vtd_event(data, message, upper, extended) {
                Ok(interrupt) => {
                    let high = if extended { upper } else { 0 };
                    prop_assert_eq!(interrupt.destination, high | message >> 12 & 0xff);
                    agrees(&interrupt, &cells)?;
                }
                Err(_) => prop_assert!(upper & 0xff != 0 || !extended && upper != 0),
            }
            if address >> 20 != 0xfee {
                let stored = Interrupt::of_vtd_event(data, address, upper, extended);
                prop_assert_eq!(stored, Err(Refused::Malformed));
            }
            let of_amd = Interrupt::of_amd_event(register);
            prop_assert_eq!(of_amd.destination >> 24, (register >> 56) as u32);
            agrees(&of_amd, &cells)?;
        }
    }

    #[test]
    fn fields_of_registers() {
        let message = |address, data| Interrupt::of_message(address, data);
        let interrupt = message(0xfee0_7004, 0x4141).expect("a message");
        assert_eq!((interrupt.vector, interrupt.destination), (0x41, 7));
        assert_eq!((interrupt.logical, interrupt.delivery), (true, Delivery::LowestPriority));
        let interrupt = message(0xfee0_7008, 0x441).expect("a message");
        assert_eq!((interrupt.logical, interrupt.delivery), (false, Delivery::Nmi));
        assert_eq!(message(0x1_fee0_7000, 0x41), Err(Refused::Malformed));
        let event = |upper, extended| Interrupt::of_vtd_event(0x41, 0xfee3_4000, upper, extended);
        let interrupt = event(0x1200_0000, true).expect("a message");
        assert_eq!((interrupt.destination, interrupt.format), (0x1200_0034, Format::X2Apic));
        assert_eq!(event(1, true), Err(Refused::Malformed));
        assert_eq!(event(0x100, false), Err(Refused::Malformed));
        let interrupt = event(0, false).expect("a message");
        assert_eq!((interrupt.destination, interrupt.format), (0x34, Format::XApic));
        let interrupt = Interrupt::of_amd_event(0x1200_0041_3456_7804);
        assert_eq!((interrupt.vector, interrupt.destination), (0x41, 0x1234_5678));
        assert_eq!((interrupt.logical, interrupt.delivery), (true, Delivery::Fixed));
        assert_eq!(Interrupt::of_amd_event(1 << 40).delivery, Delivery::Other);
    }

    #[test]
    fn a_cell_gets_what_it_asked_for() {
        let cells = Cells { cpus: [(3, vec![0x41])].into(), clustered: false };
        let to = |destination, vector| Interrupt {
            vector,
            delivery: Delivery::Fixed,
            logical: false,
            destination,
            format: Format::X2Apic,
        };
        assert_eq!(to(3, 0x41).check(&cells), Ok(()));
        assert_eq!(to(3, 0x42).check(&cells), Err(Refused::Foreign(ApicId(3))));
        assert_eq!(to(2, 0x42).check(&cells), Ok(()));
        assert_eq!(to(u32::MAX, 0x42).check(&cells), Err(Refused::Foreign(ApicId(3))));
        let other = Interrupt { delivery: Delivery::Nmi, ..to(2, 2) };
        assert_eq!(other.check(&cells), Err(Refused::Delivery));
    }
}
