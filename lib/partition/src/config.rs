// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's configuration, as the root cell asks for it and as it is once checked.

use core::ops::RangeInclusive;

use crtos_abi::cell::{
    CELL_NAME_LEN, CellConfig, MAX_MSR_RANGES, MAX_PORT_RANGES, MSR_READ, MSR_WRITE, MsrRange,
    PORT_EXCLUSIVE, PortRange, REGION_EXECUTE, REGION_PRIVATE, REGION_WRITE, Region,
};
use crtos_abi::share::{SHARE_WINDOW, SHARE_WINDOW_END};
use crtos_abi::{LARGE_PAGE_SIZE, MAX_CELL_CPUS, PAGE_SIZE};
use crtos_registers::{apic, msr};

use crate::address::{GuestAddr, PhysAddr};
use crate::cpuset::CpuSet;
use crate::error::Refusal;
use crate::ids::CpuIndex;
use crate::permissions::{msr_covered, ports_meet};
use crate::registers;

/// A configuration that contradicts neither itself nor the machine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Printable ASCII, zero padded.
    pub name: [u8; CELL_NAME_LEN],
    /// Vectors of the doorbell, 32..=255; the second one where it rings for a link.
    pub vectors: [u8; 2],
    cpus: [Option<CpuIndex>; MAX_CELL_CPUS],
    cpu_count: usize,
    ports: [PortRange; MAX_PORT_RANGES],
    port_count: usize,
    msrs: [MsrRange; MAX_MSR_RANGES],
    msr_count: usize,
}

impl Config {
    /// Checks `config`; `usable` says whether a cell may have a CPU.
    pub fn check(config: &CellConfig, usable: impl Fn(CpuIndex) -> bool) -> Result<Self, Refusal> {
        let count = |count: u32, most: usize| match count as usize {
            count if count <= most => Ok(count),
            _ => Err(Refusal::Invalid),
        };
        let vector = |vector: u32| u8::try_from(vector).ok().filter(|vector| *vector >= 32);
        let vectors = vector(config.doorbell_vector).zip(vector(config.link_vector));
        let checked = Self {
            name: config.name.map(|byte| match byte {
                0 | b' '..=b'~' => byte,
                _ => b'?',
            }),
            vectors: vectors.ok_or(Refusal::Invalid)?.into(),
            cpus: config.cpus.map(|cpu| CpuIndex::named(cpu.into())),
            cpu_count: count(config.cpu_count, MAX_CELL_CPUS)?,
            ports: config.ports,
            port_count: count(config.port_count, MAX_PORT_RANGES)?,
            msrs: config.msrs,
            msr_count: count(config.msr_count, MAX_MSR_RANGES)?,
        };
        // One that does not exist, or comes twice, is missing from the set.
        let distinct = checked.cpu_set().len() == checked.cpu_count;
        if checked.cpu_count == 0 || !distinct || !checked.cpus().all(usable) {
            return Err(Refusal::Invalid);
        }
        if checked
            .ports()
            .iter()
            .any(|range| range.first > range.last || range.flags & !PORT_EXCLUSIVE != 0)
        {
            return Err(Refusal::Invalid);
        }
        if !checked.msrs().iter().all(msr_range_is_grantable) {
            return Err(Refusal::Invalid);
        }
        Ok(checked)
    }

    /// Its CPUs in the cell's order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuIndex> + '_ {
        self.cpus[..self.cpu_count].iter().flatten().copied()
    }

    /// Its CPUs as a set.
    pub fn cpu_set(&self) -> CpuSet {
        self.cpus().collect()
    }

    /// Ports that the cell may use.
    pub fn ports(&self) -> &[PortRange] {
        &self.ports[..self.port_count]
    }

    /// Tells whether the cell may use one of these ports.
    pub fn has_port_of(&self, ports: &RangeInclusive<u16>) -> bool {
        self.ports().iter().any(|range| meets(range, ports))
    }

    /// Tells whether the cell has one of these ports alone.
    pub fn has_alone(&self, ports: &RangeInclusive<u16>) -> bool {
        let mut alone = self.ports().iter().filter(|range| range.flags & PORT_EXCLUSIVE != 0);
        alone.any(|range| meets(range, ports))
    }

    /// Registers that the cell may use beside those every cell has.
    pub fn msrs(&self) -> &[MsrRange] {
        &self.msrs[..self.msr_count]
    }

    /// Refuses with [`Refusal::Owned`] if this cell and `other` cannot exist together: a common
    /// CPU, or a common port that one of them has alone.
    pub fn check_against(&self, other: &Self) -> Result<(), Refusal> {
        let others = other.cpu_set();
        let common_cpu = self.cpus().any(|cpu| others.contains(cpu));
        let common_port = self.ports().iter().any(|own| {
            other.ports().iter().any(|other| {
                meets(own, &(other.first..=other.last))
                    && (own.flags | other.flags) & PORT_EXCLUSIVE != 0
            })
        });
        if common_cpu || common_port { Err(Refusal::Owned) } else { Ok(()) }
    }
}

/// Tells whether the range has one of these ports.
fn meets(range: &PortRange, ports: &RangeInclusive<u16>) -> bool {
    ports_meet(&(range.first..=range.last), ports)
}

/// Registers that no cell may be granted, not even to read them, since the hypervisor's would show:
/// APIC base, x2APIC, EFER, SYSCFG, VM_CR, VM_HSAVE_PA and their neighbours. Of the others it may
/// be granted writes only to those that Linux may write: nobody gets by a cell what they cannot do
/// themselves.
const NEVER_GRANTED: [(u32, u32); 5] = [
    (msr::APIC_BASE, msr::APIC_BASE),
    (apic::X2APIC_FIRST, apic::X2APIC_LAST),
    (msr::EFER, msr::EFER),
    (msr::SYSCFG, msr::SYSCFG),
    (msr::VM_CR, msr::SVM_KEY),
];

fn msr_range_is_grantable(range: &MsrRange) -> bool {
    range.first <= range.last
        && range.flags & !(MSR_READ | MSR_WRITE) == 0
        && msr_covered(range.first)
        && msr_covered(range.last)
        && range.last - range.first < 0x2000
        && NEVER_GRANTED.iter().all(|(first, last)| range.last < *first || *last < range.first)
        && (range.flags & MSR_WRITE == 0 || registers::root_may_write(range.first..=range.last))
}

/// A region of memory whose numbers are in order. Whose the memory is, the nested tables say.
#[derive(Clone, Copy, Debug)]
pub struct CheckedRegion {
    /// Where the cell sees it.
    pub cell_address: GuestAddr,
    /// Where it lies in the machine.
    pub physical: PhysAddr,
    /// Bytes, at most 2 MiB.
    pub size: u64,
    /// The cell may write.
    pub write: bool,
    /// The cell may execute.
    pub execute: bool,
    /// The root cell loses the memory.
    pub private: bool,
    /// It is a page in the share window; shared memory, then.
    pub in_window: bool,
}

/// End of the addresses that a cell may use, 512 GiB.
pub const CELL_ADDRESS_END: u64 = 1 << 39;

impl CheckedRegion {
    /// Checks alignment, size and range; memory must end at or below `memory_end`.
    pub fn check(region: &Region, memory_end: PhysAddr) -> Result<Self, Refusal> {
        let private = region.flags & REGION_PRIVATE != 0;
        let alignment = if private { LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let aligned = (region.cell_address | region.physical | region.size) & (alignment - 1) == 0;
        let sized = region.size != 0 && region.size <= LARGE_PAGE_SIZE;
        let ends_at_most = |start: u64, end: u64| {
            start.checked_add(region.size).is_some_and(|region_end| region_end <= end)
        };
        let known = region.flags & !(REGION_WRITE | REGION_EXECUTE | REGION_PRIVATE) == 0;
        let window = SHARE_WINDOW..SHARE_WINDOW_END;
        let in_window = window.contains(&region.cell_address);
        if !(aligned
            && sized
            && known
            && !(in_window && (private || region.size != PAGE_SIZE))
            && ends_at_most(region.physical, memory_end.get())
            && ends_at_most(region.cell_address, CELL_ADDRESS_END))
        {
            return Err(Refusal::Invalid);
        }
        Ok(Self {
            cell_address: GuestAddr::new(region.cell_address),
            physical: PhysAddr::new(region.physical),
            size: region.size,
            write: region.flags & REGION_WRITE != 0,
            execute: region.flags & REGION_EXECUTE != 0,
            private,
            in_window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> CellConfig {
        CellConfig {
            name: [0; CELL_NAME_LEN],
            doorbell_vector: 0x50,
            link_vector: 0x51,
            cpu_count: 1,
            cpus: [3; MAX_CELL_CPUS],
            port_count: 0,
            msr_count: 0,
            ports: [PortRange::default(); MAX_PORT_RANGES],
            msrs: [MsrRange::default(); MAX_MSR_RANGES],
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |change: fn(&mut CellConfig)| {
            let mut config = config();
            change(&mut config);
            Config::check(&config, |cpu| cpu.get() == 3 || cpu.get() == 4).is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|config| config.cpu_count = 0));
        assert!(refused(|config| config.cpu_count = 2));
        assert!(refused(|config| config.cpu_count = 33));
        assert!(refused(|config| config.cpus[0] = 5));
        assert!(refused(|config| config.doorbell_vector = 31));
        assert!(refused(|config| config.doorbell_vector = 256));
        assert!(refused(|config| config.link_vector = 31));
        assert!(refused(|config| config.link_vector = 256));
        assert!(refused(|config| config.port_count = 17));
        assert!(refused(|config| config.msr_count = 17));
        assert!(refused(|config| {
            config.port_count = 1;
            config.ports[0] = PortRange { first: 2, last: 1, flags: 0 };
        }));
    }

    #[test]
    fn nobody_is_granted_a_write_that_linux_may_not_do() {
        let grantable =
            |first, last, flags| msr_range_is_grantable(&MsrRange { first, last, flags });
        // The counters of performance; memory type ranges, TOP_MEM, the ratio of the clock.
        assert!(grantable(0xc001_0200, 0xc001_020b, MSR_READ | MSR_WRITE));
        assert!(grantable(0x200, 0x20f, MSR_READ));
        assert!(!grantable(0x200, 0x20f, MSR_WRITE));
        assert!(!grantable(0xc001_001a, 0xc001_001a, MSR_READ | MSR_WRITE));
        assert!(!grantable(0xc000_0103, 0xc000_0104, MSR_WRITE));
        assert!(!grantable(0xc001_0015, 0xc001_0015, MSR_WRITE));
    }

    #[test]
    fn an_exclusive_port_is_in_one_cell_only() {
        let with_port = |cpu, first, last, flags| {
            let mut config = config();
            config.cpus[0] = cpu;
            config.port_count = 1;
            config.ports[0] = PortRange { first, last, flags };
            Config::check(&config, |_| true).expect("valid")
        };
        let owner = with_port(3, 0x60, 0x64, PORT_EXCLUSIVE);
        assert!(owner.has_port_of(&(0x60..=0x60)) && owner.has_port_of(&(0x64..=0x64)));
        assert!(!owner.has_port_of(&(0x5f..=0x5f)) && !owner.has_port_of(&(0x65..=0x65)));
        assert!(owner.check_against(&with_port(4, 0x64, 0x70, 0)).is_err());
        assert!(with_port(4, 0x64, 0x70, 0).check_against(&owner).is_err());
        assert!(owner.check_against(&with_port(4, 0x65, 0x70, 0)).is_ok());
        assert!(owner.check_against(&with_port(3, 0x65, 0x70, 0)).is_err());
    }

    proptest! {
        #[test]
        fn no_grant_reaches_a_register_of_the_partition(
            first in prop::sample::select(vec![
                0u32, 0x7f0, 0xc000_0000, 0xc000_007f, 0xc001_0000, 0xc001_0100,
            ]),
            length in 0u32..0x200,
            flags in 0u32..4,
        ) {
            let range = MsrRange { first, last: first + length, flags };
            if msr_range_is_grantable(&range) {
                for msr in [0x1b, 0x830, 0xc000_0080, 0xc001_0010, 0xc001_0114, 0xc001_0117] {
                    prop_assert!(!(range.first..=range.last).contains(&msr));
                }
            }
        }

        #[test]
        fn a_checked_region_lies_in_memory(
            cell_address: u64,
            physical: u64,
            size: u64,
            flags in 0u32..8,
        ) {
            let end = 1 << 32;
            for mask in [!0, !0xfff, !0x1f_ffff] {
                let region = Region {
                    cell_address: cell_address & mask,
                    physical: physical & mask & 0x1_ffff_ffff,
                    size: (size & mask) % (2 * LARGE_PAGE_SIZE),
                    flags,
                    reserved: 0,
                };
                if let Ok(region) = CheckedRegion::check(&region, PhysAddr::new(end)) {
                    prop_assert!(region.physical.get() + region.size <= end);
                    prop_assert!(region.cell_address.get() + region.size <= CELL_ADDRESS_END);
                    prop_assert!(!region.private || region.size == LARGE_PAGE_SIZE);
                    prop_assert!(!region.in_window || !region.private && region.size == PAGE_SIZE);
                }
            }
        }
    }
}
