// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who an interrupt command reaches (AMD APM vol. 2, 16.5 and 16.11; Intel SDM vol. 3, 11.6 and
//! 11.12).
//!
//! The hypervisor never hands a guest's command to the interrupt controller. It works out which of
//! the guest's own CPUs are meant, and interrupts these one by one, by physical destination. A CPU
//! that is not among the sender's own cannot be the result of [`Command::expand`], whatever the
//! guest writes.

use crtos_registers::apic::{command, x2apic_logical};

use crate::cpuset::CpuSet;
use crate::ids::{ApicId, CpuIndex};

/// Delivery mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The vector, to all destinations.
    Fixed,
    /// The vector, to one of the destinations.
    LowestPriority,
    /// Non-maskable interrupt.
    Nmi,
    /// INIT.
    Init,
    /// Start-up at page `vector`.
    StartUp,
    /// The vector comes from an interrupt controller of old; of devices only.
    External,
    /// Anything that no guest has a use for: SMI, remote read, reserved.
    Other,
}

/// Destination shorthand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shorthand {
    /// The destination field counts.
    None,
    /// The sender.
    Own,
    /// All, with the sender.
    All,
    /// All but the sender.
    Others,
}

/// Format of a destination field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 32 bits; logical is cluster and mask.
    X2Apic,
    /// 8 bits; logical is flat or clustered by each CPU's registers.
    XApic,
}

/// How a CPU is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The id of its APIC.
    pub id: ApicId,
    /// xAPIC only: its logical id (bits 31..24 of the logical destination register).
    pub logical: u8,
    /// xAPIC only: its destination format register says cluster, not flat.
    pub clustered: bool,
}

/// An interrupt command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Vector, or page of a start-up.
    pub vector: u8,
    /// Delivery mode.
    pub delivery: Delivery,
    /// Logical, not physical destination.
    pub logical: bool,
    /// Level of INIT: asserted.
    pub assert: bool,
    /// Shorthand.
    pub shorthand: Shorthand,
    /// Destination field.
    pub destination: u32,
    /// Its format.
    pub format: Format,
}

/// The vector of a command of x2APIC mode and the APIC id of the only CPU that gets it, if the
/// command names one in the simplest way.
pub fn one_by_id(value: u64) -> Option<(u8, ApicId)> {
    /// The vector, and the level of INIT, which means nothing for others.
    const SIMPLE: u32 = command::VECTOR | command::ASSERT;
    let (low, id) = (value as u32, (value >> command::X2APIC_DESTINATION_SHIFT) as u32);
    (low & !SIMPLE == 0 && id != command::X2APIC_EVERYBODY).then_some((low as u8, ApicId(id)))
}

impl Command {
    /// From the 64-bit register of x2APIC mode.
    pub fn from_x2apic(value: u64) -> Self {
        Self::new(value as u32, (value >> command::X2APIC_DESTINATION_SHIFT) as u32, Format::X2Apic)
    }

    /// From the two registers of xAPIC mode.
    pub fn from_xapic(high: u32, low: u32) -> Self {
        Self::new(low, high >> command::XAPIC_DESTINATION_SHIFT, Format::XApic)
    }

    /// From what a device sends: the low bits, laid out as those of a command, and the 8 bits of
    /// the destination.
    pub fn of_device(low: u32, destination: u8, format: Format) -> Self {
        let destination = match (format, u32::from(destination)) {
            (Format::X2Apic, command::XAPIC_EVERYBODY) => command::X2APIC_EVERYBODY,
            (_, destination) => destination,
        };
        let mut sent = Self::new(low & command::OF_DEVICES, destination, format);
        if low >> command::DELIVERY_SHIFT & 7 == command::EXTERNAL {
            sent.delivery = Delivery::External;
        }
        sent
    }

    fn new(low: u32, destination: u32, format: Format) -> Self {
        Self {
            vector: low as u8,
            delivery: match low >> command::DELIVERY_SHIFT & 7 {
                command::FIXED => Delivery::Fixed,
                command::LOWEST_PRIORITY => Delivery::LowestPriority,
                command::NMI => Delivery::Nmi,
                command::INIT => Delivery::Init,
                command::START_UP => Delivery::StartUp,
                _ => Delivery::Other,
            },
            logical: low & command::LOGICAL != 0,
            assert: low & command::ASSERT != 0,
            shorthand: match low >> command::SHORTHAND_SHIFT & 3 {
                command::SELF => Shorthand::Own,
                command::ALL => Shorthand::All,
                command::OTHERS => Shorthand::Others,
                _ => Shorthand::None,
            },
            destination,
            format,
        }
    }

    /// Tells whether it names everybody rather than somebody.
    pub fn is_broadcast(&self) -> bool {
        self.shorthand != Shorthand::None
            || match self.format {
                Format::X2Apic => self.destination == command::X2APIC_EVERYBODY,
                Format::XApic => self.destination == command::XAPIC_EVERYBODY,
            }
    }

    /// The CPUs in `among` that the command of CPU `sender` names. `address` tells how a CPU is
    /// addressed.
    pub fn expand(
        &self,
        sender: CpuIndex,
        among: &CpuSet,
        address: impl Fn(CpuIndex) -> Address,
    ) -> CpuSet {
        among.iter().filter(|cpu| self.reaches(sender, *cpu, &address)).collect()
    }

    /// Tells whether the command of CPU `sender` names `cpu`.
    pub fn reaches(
        &self,
        sender: CpuIndex,
        cpu: CpuIndex,
        address: impl Fn(CpuIndex) -> Address,
    ) -> bool {
        match self.shorthand {
            Shorthand::None => self.names(address(cpu)),
            Shorthand::Own => cpu == sender,
            Shorthand::All => true,
            Shorthand::Others => cpu != sender,
        }
    }

    /// Tells whether the destination field names a CPU with this address.
    pub fn names(&self, cpu: Address) -> bool {
        if self.is_broadcast() {
            return true;
        }
        match (self.format, self.logical) {
            (Format::X2Apic, false) => cpu.id.0 == self.destination,
            (Format::X2Apic, true) => {
                let logical = x2apic_logical(cpu.id.0);
                logical >> 16 == self.destination >> 16 && logical & self.destination & 0xffff != 0
            }
            (Format::XApic, false) => cpu.id.0 == self.destination,
            (Format::XApic, true) if cpu.clustered => {
                u32::from(cpu.logical >> 4) == self.destination >> 4
                    && u32::from(cpu.logical) & self.destination & 0xf != 0
            }
            (Format::XApic, true) => u32::from(cpu.logical) & self.destination != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command() -> impl Strategy<Value = Command> {
        prop_oneof![
            any::<u64>().prop_map(Command::from_x2apic),
            (0u64..0x10_0000, 0u64..64).prop_map(|(low, id)| Command::from_x2apic(id << 32 | low)),
            (0u64..0x10_0000, 0u64..4, 0u64..0x1_0000).prop_map(|(low, cluster, mask)| {
                Command::from_x2apic((cluster << 16 | mask) << 32 | low)
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(high, low)| Command::from_xapic(high, low)),
        ]
    }

    fn at(index: usize) -> CpuIndex {
        CpuIndex::new(index).expect("in range")
    }

    fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        cpus.into_iter().map(at).collect()
    }

    fn members(set: CpuSet) -> Vec<usize> {
        set.iter().map(CpuIndex::get).collect()
    }

    fn flat(cpu: CpuIndex) -> Address {
        Address {
            id: ApicId(cpu.get() as u32),
            logical: 1u8.checked_shl(cpu.get() as u32).unwrap_or(0),
            clustered: false,
        }
    }

    proptest! {
        /// The property that the partition stands on.
        #[test]
        fn never_yields_a_foreign_cpu(
            command in command(),
            own in prop::collection::vec(0usize..256, 0..32),
            sender in 0usize..256,
        ) {
            let own = set(own);
            let reached = command.expand(at(sender), &own, flat);
            prop_assert!(reached.is_subset(&own));
        }

        #[test]
        fn one_by_id_is_all_that_is_named(
            low in prop_oneof![
                any::<u32>(),
                0u32..0x10_0000,
                (0u32..4).prop_map(|bits| bits << 14 | 0x41),
            ],
            id in prop_oneof![0u32..256, Just(u32::MAX)],
            cpus in prop::collection::vec(0usize..256, 1..32),
        ) {
            let cpus = set(cpus);
            let value = u64::from(id) << 32 | u64::from(low);
            if let Some((vector, id)) = one_by_id(value) {
                let command = Command::from_x2apic(value);
                prop_assert_eq!((command.delivery, command.vector), (Delivery::Fixed, vector));
                let reached = members(command.expand(at(0), &cpus, flat));
                prop_assert_eq!(
                    reached,
                    members(cpus).into_iter().filter(|cpu| *cpu as u32 == id.0).collect::<Vec<_>>()
                );
            }
        }

        #[test]
        fn what_the_kernel_sends_is_simple(
            vector in any::<u8>(),
            id in 0u32..u32::MAX,
            assert in any::<bool>(),
        ) {
            let value = u64::from(id) << 32 | u64::from(assert) << 14 | u64::from(vector);
            prop_assert_eq!(one_by_id(value), Some((vector, ApicId(id))));
        }

        #[test]
        fn a_physical_destination_names_at_most_one(
            id in 0u64..255,
            cpus in prop::collection::vec(0usize..256, 1..32),
        ) {
            let cpus = set(cpus);
            for command in
                [Command::from_x2apic(id << 32), Command::from_xapic((id as u32) << 24, 0)]
            {
                let reached = members(command.expand(at(0), &cpus, flat));
                prop_assert_eq!(
                    reached,
                    members(cpus).into_iter().filter(|cpu| *cpu as u64 == id).collect::<Vec<_>>()
                );
            }
        }

        #[test]
        fn logical_x2apic_reaches_the_members_of_its_cluster(
            cluster in 0u32..16,
            mask in 0u32..0x1_0000,
        ) {
            let all = set(0..256);
            let command = Command::from_x2apic(u64::from(cluster << 16 | mask) << 32 | 1 << 11);
            let expected = set((0..16)
                .filter(|bit| mask & 1 << bit != 0)
                .map(|bit| (cluster * 16 + bit) as usize));
            prop_assert_eq!(command.expand(at(0), &all, flat), expected);
        }

        #[test]
        fn logical_flat_reaches_the_members_of_its_mask(mask in 1u32..255) {
            let all = set(0..8);
            let command = Command::from_xapic(mask << 24, 1 << 11);
            let expected = set((0..8).filter(|bit| mask & 1 << bit != 0));
            prop_assert_eq!(command.expand(at(0), &all, flat), expected);
        }
    }

    #[test]
    fn shorthands() {
        let own = set([1, 3, 5]);
        let reached = |low: u64| members(Command::from_x2apic(low).expand(at(3), &own, flat));
        assert_eq!(reached(1 << 18), [3]);
        assert_eq!(reached(2 << 18), [1, 3, 5]);
        assert_eq!(reached(3 << 18), [1, 5]);
    }

    #[test]
    fn clusters_of_an_xapic() {
        let all = set(0..8);
        let address = |cpu: CpuIndex| Address {
            id: ApicId(cpu.get() as u32),
            logical: ((cpu.get() / 4) << 4 | 1 << (cpu.get() % 4)) as u8,
            clustered: true,
        };
        let reached = Command::from_xapic(0x13 << 24, 1 << 11).expand(at(0), &all, address);
        assert_eq!(members(reached), [4, 5]);
    }
}
