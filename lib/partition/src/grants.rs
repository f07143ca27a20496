// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell may access without an exit: ports and registers of its configuration, and those that
//! every cell has.

use core::ops::RangeInclusive;

use crtos_abi::cell::{MSR_READ, MSR_WRITE, PORT_EXCLUSIVE};
use crtos_registers::apic::{Register, command};
use crtos_registers::machine_check;
use crtos_registers::msr;

use crate::config::Config;
use crate::permissions;

/// Registers that every cell has: segment bases, system-call entry, PAT and TSC_AUX. All of them
/// are loaded anew or reset when the CPU gets another owner.
const CELL_MSRS: [u32; 12] = [
    msr::SYSENTER_CS,
    msr::SYSENTER_ESP,
    msr::SYSENTER_EIP,
    msr::PAT,
    msr::STAR,
    msr::LSTAR,
    msr::CSTAR,
    msr::SFMASK,
    msr::FS_BASE,
    msr::GS_BASE,
    msr::KERNEL_GS_BASE,
    msr::TSC_AUX,
];

/// Registers of x2APIC mode that cells may read, as ranges. Those of the xAPIC alone are not there.
const APIC_READABLE: [(Register, Register); 8] = [
    (Register::ID, Register::VERSION),
    (Register::TASK_PRIORITY, Register::TASK_PRIORITY),
    (Register::PROCESSOR_PRIORITY, Register::PROCESSOR_PRIORITY),
    (Register::LOGICAL_DESTINATION, Register::LOGICAL_DESTINATION),
    (Register::SPURIOUS, Register::ERROR_STATUS),
    (Register::COMMAND, Register::COMMAND),
    (Register::LVT_TIMER, Register::TIMER_CURRENT),
    (Register::TIMER_DIVIDE, Register::TIMER_DIVIDE),
];

/// Registers of x2APIC mode that cells may write without further ado, as ranges. Interrupt commands
/// and local vectors are filtered.
const APIC_WRITABLE: [(Register, Register); 7] = [
    (Register::TASK_PRIORITY, Register::TASK_PRIORITY),
    (Register::END_OF_INTERRUPT, Register::END_OF_INTERRUPT),
    (Register::SPURIOUS, Register::SPURIOUS),
    (Register::ERROR_STATUS, Register::ERROR_STATUS),
    (Register::TIMER_INITIAL, Register::TIMER_INITIAL),
    (Register::TIMER_DIVIDE, Register::TIMER_DIVIDE),
    (Register::SELF_IPI, Register::SELF_IPI),
];

fn listed(list: &[(Register, Register)], register: Register) -> bool {
    list.iter().any(|(first, last)| (*first..=*last).contains(&register))
}

/// Tells whether a cell may read this register of its local APIC.
pub fn apic_readable(register: Register) -> bool {
    listed(&APIC_READABLE, register)
}

/// Tells whether a cell may write this register of its local APIC as it likes.
pub fn apic_writable(register: Register) -> bool {
    listed(&APIC_WRITABLE, register)
}

/// Tells whether `register` is a local vector, and `value` one that a cell may have: delivered as a
/// vector or as an NMI. Other modes concern more than the cell: a system-management interrupt takes
/// all CPUs.
pub fn local_vector(register: Register, value: u32) -> bool {
    (Register::LVT_TIMER..=Register::LVT_ERROR).contains(&register)
        && matches!(value >> command::DELIVERY_SHIFT & 7, command::FIXED | command::NMI)
}

/// Fills the port bitmap of a cell.
pub fn fill_ports(bitmap: &mut [u8], config: &Config) {
    permissions::trap_all_ports(bitmap, true);
    for range in config.ports() {
        permissions::trap_ports(bitmap, range.first, range.last, false);
    }
}

/// What the machine has of which cells get a share.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Linux runs the local APICs in x2APIC mode.
    pub x2apic: bool,
    /// The timer can fire at a value of the time stamp counter.
    pub tsc_deadline: bool,
    /// Banks of machine checks, if there are any.
    pub banks: Option<Banks>,
    /// Speculation can be restricted.
    pub spec_ctrl: bool,
    /// Predictions can be forgotten.
    pub pred_cmd: bool,
}

/// The banks of machine checks.
#[derive(Clone, Copy, Debug)]
pub struct Banks {
    /// How many there are.
    pub count: u32,
    /// A bit for each that belongs to one CPU.
    pub own: u32,
}

impl Banks {
    /// Tells whether a register says what a bank is about, which every cell may read. Such reads
    /// always exit.
    pub fn is_identity(&self, register: u32) -> bool {
        (0..self.count).any(|bank| machine_check::identity(bank) == register)
    }
}

/// Lets a cell take the machine checks of its own CPUs: it sees what happened in their banks, and
/// clears that. Control of the banks, and all that several CPUs share, is Linux's.
fn fill_machine_checks(bitmap: &mut [u8], banks: Banks) {
    const BOTH: u32 = MSR_READ | MSR_WRITE;
    let mut grant = |register, access| permissions::trap_msr(bitmap, register, access, false);
    grant(msr::MACHINE_CHECK_CAPABILITIES, MSR_READ);
    // Without its bit of progress cleared, the next machine check ends the machine.
    grant(msr::MACHINE_CHECK_STATUS, BOTH);
    for bank in 0..banks.count.min(machine_check::MAX_BANKS) {
        if banks.own & 1 << bank != 0 {
            grant(machine_check::status(bank), BOTH);
            grant(machine_check::address(bank), MSR_READ);
        }
    }
}

/// Fills the MSR bitmap of a cell. Where Linux has no x2APIC the registers of x2APIC mode exit, to
/// be emulated.
pub fn fill_msrs(bitmap: &mut [u8], config: &Config, shares: Shares) {
    const BOTH: u32 = MSR_READ | MSR_WRITE;
    permissions::trap_all_msrs(bitmap, true);
    CELL_MSRS.iter().for_each(|msr| permissions::trap_msr(bitmap, *msr, BOTH, false));
    if shares.tsc_deadline {
        permissions::trap_msr(bitmap, msr::TSC_DEADLINE, BOTH, false);
    }
    // They concern this CPU, and are reset when it changes its owner.
    if shares.spec_ctrl {
        permissions::trap_msr(bitmap, msr::SPEC_CTRL, BOTH, false);
    }
    if shares.pred_cmd {
        permissions::trap_msr(bitmap, msr::PRED_CMD, MSR_WRITE, false);
    }
    if let Some(banks) = shares.banks {
        fill_machine_checks(bitmap, banks);
    }
    for range in config.msrs() {
        for msr in range.first..=range.last {
            permissions::trap_msr(bitmap, msr, range.flags, false);
        }
    }
    if shares.x2apic {
        for (list, access) in [(&APIC_READABLE[..], MSR_READ), (&APIC_WRITABLE, MSR_WRITE)] {
            for number in list.iter().flat_map(|(first, last)| first.number()..=last.number()) {
                let msr = Register::from_number(number).msr();
                permissions::trap_msr(bitmap, msr, access, false);
            }
        }
    }
}

/// Fills Linux's bitmap of ports. It has all but those that are `watched` as long as the hypervisor
/// runs. The ports that reset the machine are Linux's.
pub fn fill_root_ports(bitmap: &mut [u8], watched: impl Iterator<Item = RangeInclusive<u16>>) {
    permissions::trap_all_ports(bitmap, false);
    for range in watched {
        permissions::trap_ports(bitmap, *range.start(), *range.end(), true);
    }
}

/// Takes the ports that a cell has alone from the root cell, whose bitmap this is, or gives them
/// back.
pub fn set_root_ports(bitmap: &mut [u8], config: &Config, taken: bool) {
    for range in config.ports().iter().filter(|range| range.flags & PORT_EXCLUSIVE != 0) {
        permissions::trap_ports(bitmap, range.first, range.last, taken);
    }
}

#[cfg(test)]
mod tests {
    use crtos_abi::MAX_CELL_CPUS;
    use crtos_abi::cell::{
        CELL_NAME_LEN, CellConfig, MAX_MSR_RANGES, MAX_PORT_RANGES, MsrRange, PortRange,
    };

    use super::*;
    use crate::permissions::{MSR_BITMAP_SIZE, PORT_BITMAP_SIZE, msr_trapped, port_trapped};
    use crate::registers::{self, Write};

    /// A cell without anything of its own.
    fn config() -> CellConfig {
        CellConfig {
            name: [0; CELL_NAME_LEN],
            doorbell_vector: 0x50,
            link_vector: 0x51,
            cpu_count: 1,
            cpus: [0; MAX_CELL_CPUS],
            port_count: 0,
            msr_count: 0,
            ports: [PortRange::default(); MAX_PORT_RANGES],
            msrs: [MsrRange::default(); MAX_MSR_RANGES],
        }
    }

    fn checked(config: &CellConfig) -> Config {
        Config::check(config, |_| true).expect("valid")
    }

    /// The registers that bitmaps cover and that a cell may access so.
    fn granted(config: &Config, shares: Shares, access: u32) -> Vec<u32> {
        let mut bitmap = vec![0; MSR_BITMAP_SIZE];
        fill_msrs(&mut bitmap, config, shares);
        let bases = [0, 0xc000_0000, 0xc001_0000];
        let numbers = bases.into_iter().flat_map(|base| base..base + 0x2000);
        numbers.filter(|number| !msr_trapped(&bitmap, *number, access)).collect()
    }

    #[test]
    fn a_cell_has_registers_that_the_processor_has() {
        let none = Shares {
            x2apic: false,
            tsc_deadline: false,
            banks: None,
            spec_ctrl: false,
            pred_cmd: false,
        };
        let config = checked(&config());
        let with = |extra: &[u32]| {
            let mut numbers = [&CELL_MSRS[..], extra].concat();
            numbers.sort_unstable();
            numbers
        };
        for access in [MSR_READ, MSR_WRITE] {
            assert_eq!(granted(&config, none, access), with(&[]));
            let shares = Shares { tsc_deadline: true, ..none };
            assert_eq!(granted(&config, shares, access), with(&[msr::TSC_DEADLINE]));
            let shares = Shares { spec_ctrl: true, ..none };
            assert_eq!(granted(&config, shares, access), with(&[msr::SPEC_CTRL]));
        }
        let shares = Shares { pred_cmd: true, ..none };
        assert_eq!(granted(&config, shares, MSR_READ), with(&[]));
        assert_eq!(granted(&config, shares, MSR_WRITE), with(&[msr::PRED_CMD]));
        let shares = Shares { x2apic: true, ..none };
        let apic = |lists: &[(Register, Register)]| {
            let ranges = lists.iter().map(|(first, last)| first.msr()..=last.msr());
            with(&ranges.flatten().collect::<Vec<_>>())
        };
        assert_eq!(granted(&config, shares, MSR_READ), apic(&APIC_READABLE));
        assert_eq!(granted(&config, shares, MSR_WRITE), apic(&APIC_WRITABLE));
        assert!(!apic_writable(Register::COMMAND));
        let all = Shares {
            x2apic: true,
            tsc_deadline: true,
            banks: Some(Banks { count: 32, own: !0 }),
            spec_ctrl: true,
            pred_cmd: true,
        };
        for number in granted(&config, all, MSR_WRITE) {
            let is_linuxs = registers::root_may_write(number..=number)
                || matches!(registers::root_write(number), Write::Guest);
            assert!(is_linuxs, "{number:#x}");
        }
    }

    #[test]
    fn a_cell_has_ports_and_registers_of_its_configuration_alone() {
        let mut config = config();
        config.port_count = 2;
        config.ports[0] = PortRange { first: 0x70, last: 0x71, flags: 0 };
        config.ports[1] = PortRange { first: 0x300, last: 0x30f, flags: PORT_EXCLUSIVE };
        config.msr_count = 1;
        config.msrs[0] = MsrRange { first: 0xc001_0200, last: 0xc001_0203, flags: MSR_READ };
        let config = checked(&config);
        let free = |bitmap: &[u8]| {
            (0..=u16::MAX).filter(|port| !permissions::port_trapped(bitmap, *port)).count()
        };
        let mut own = vec![0; PORT_BITMAP_SIZE];
        fill_ports(&mut own, &config);
        assert!((0x70..=0x71).chain(0x300..=0x30f).all(|port| !port_trapped(&own, port)));
        assert_eq!(free(&own), 18);

        let mut linuxs = vec![0; PORT_BITMAP_SIZE];
        fill_root_ports(&mut linuxs, [0xb2..=0xb2].into_iter());
        assert!(port_trapped(&linuxs, 0xb2));
        assert_eq!(free(&linuxs), 0xffff);
        set_root_ports(&mut linuxs, &config, true);
        assert!((0x300..=0x30f).all(|port| port_trapped(&linuxs, port)));
        assert_eq!(free(&linuxs), 0xffff - 16);
        set_root_ports(&mut linuxs, &config, false);
        assert_eq!(free(&linuxs), 0xffff);

        let shares = Shares {
            x2apic: false,
            tsc_deadline: false,
            banks: None,
            spec_ctrl: false,
            pred_cmd: false,
        };
        let counters = 0xc001_0200..=0xc001_0203;
        let reads = granted(&config, shares, MSR_READ);
        assert!(counters.clone().all(|number| reads.contains(&number)));
        assert_eq!(reads.len(), CELL_MSRS.len() + 4);
        assert_eq!(granted(&config, shares, MSR_WRITE).len(), CELL_MSRS.len());
    }

    #[test]
    fn identities_of_banks() {
        let banks = Banks { count: 3, own: 0b111 };
        let found: Vec<_> = (0xc000_2000..0xc000_2100).filter(|n| banks.is_identity(*n)).collect();
        assert_eq!(found, [0xc000_2005, 0xc000_2015, 0xc000_2025]);
    }

    #[test]
    fn machine_checks_of_the_own_cpu() {
        let mut bitmap = vec![0; MSR_BITMAP_SIZE];
        permissions::trap_all_msrs(&mut bitmap, true);
        fill_machine_checks(&mut bitmap, Banks { count: 6, own: 0b10_1011 });
        let mut writable = vec![msr::MACHINE_CHECK_STATUS];
        writable.extend([0, 1, 3, 5].map(machine_check::status));
        for number in (0..0x2000).chain(0xc000_0000..0xc000_2000) {
            let free = !msr_trapped(&bitmap, number, MSR_WRITE);
            assert_eq!(free, writable.contains(&number), "{number:#x}");
        }
        let reads = |register| !msr_trapped(&bitmap, register, MSR_READ);
        assert!(reads(machine_check::address(5)) && reads(msr::MACHINE_CHECK_CAPABILITIES));
        assert!(!reads(machine_check::status(2)) && !reads(machine_check::status(6)));
    }

    #[test]
    fn a_local_vector_concerns_the_own_cpu() {
        const SYSTEM_MANAGEMENT: u32 = 2;
        let delivered = |mode: u32| 0x50 | mode << command::DELIVERY_SHIFT | 1 << 16;
        for register in [Register::LVT_TIMER, Register::LVT_LINT0, Register::LVT_ERROR] {
            assert!(!apic_writable(register));
            for mode in [command::FIXED, command::NMI] {
                assert!(local_vector(register, delivered(mode)));
            }
            for mode in [SYSTEM_MANAGEMENT, command::INIT, command::START_UP, 7] {
                assert!(!local_vector(register, delivered(mode)));
            }
        }
        assert!(!local_vector(Register::TIMER_INITIAL, delivered(command::FIXED)));
        assert!(!local_vector(Register::COMMAND, delivered(command::FIXED)));
    }
}
