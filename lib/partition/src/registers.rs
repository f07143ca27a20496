// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model-specific registers of AMD's processors: which of them Linux may write, and what becomes of
//! each when a CPU changes its owner. What cells may access is in [`crate::grants`].
//!
//! Whatever is not named here keeps its value. Linux reads all registers as on the bare machine,
//! but for one: reading changes none, and what a cell left in one is gone when Linux reads it.
//! A write that would not change the register has no effect; one that would is refused, as the
//! processor refuses one to a register that it lacks. So Linux does not reach what all CPUs share
//! or what says where memory lies: the memory type ranges, TOP_MEM, the I/O ranges, SYSCFG, the
//! registers of system management, voltages, memory encryption. Nor does it move its time stamp
//! counter, by which the realm measures time when it gets the CPU.

use core::ops::RangeInclusive;

use crtos_abi::cell::{MSR_READ, MSR_WRITE};
use crtos_registers::apic::{Register, X2APIC_FIRST, X2APIC_LAST};
use crtos_registers::msr;

use crate::permissions;

/// What follows from a write of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The processor carries it out; nothing exits.
    Free,
    /// It changes the guest: it is part of its state that the processor loads at each entry.
    Guest,
    /// It is an interrupt command, to be filtered.
    Command,
    /// It may change these bits.
    Bits(u64),
    /// It has no effect where it would change these bits, and no others.
    Swallowed(u64),
}

/// What follows from a read of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The processor carries it out.
    Free,
    /// It reads as 0.
    Zero,
    /// It faults.
    Refused,
}

const fn one(number: u32) -> RangeInclusive<u32> {
    number..=number
}

/// The interrupt command register of x2APIC mode.
const COMMAND: u32 = Register::COMMAND.msr();

/// Registers that Linux may write, and how. No two rows name the same one.
const ROOT_WRITES: &[(RangeInclusive<u32>, Write)] = &[
    // Entries into Linux's kernel, segment bases, the number that RDTSCP returns: of this CPU
    // alone, and loaded anew for each owner.
    (msr::SYSENTER_CS..=msr::SYSENTER_EIP, Write::Free),
    (msr::STAR..=msr::SFMASK, Write::Free),
    (msr::FS_BASE..=msr::KERNEL_GS_BASE, Write::Free),
    (one(msr::TSC_AUX), Write::Free),
    // SVM stays on whatever Linux writes.
    (one(msr::EFER), Write::Guest),
    (one(msr::PAT), Write::Guest),
    // Its interrupt controller reaches other CPUs by commands only.
    (X2APIC_FIRST..=COMMAND - 1, Write::Free),
    (one(COMMAND), Write::Command),
    (COMMAND + 1..=X2APIC_LAST, Write::Free),
    (one(msr::TSC_DEADLINE), Write::Free),
    // Speculation and caches of this CPU; Linux writes them when it changes programs.
    (one(msr::SPEC_CTRL), Write::Free),
    (one(msr::PRED_CMD), Write::Free),
    (one(msr::FLUSH_CMD), Write::Free),
    (one(msr::VIRT_SPEC_CTRL), Write::Free),
    (one(msr::LS_CFG), Write::Bits(msr::LS_CFG_NO_BYPASS)),
    // States of XSAVE and control-flow enforcement of this CPU.
    (one(msr::XSS), Write::Free),
    (msr::XFD, Write::Free),
    (one(msr::U_CET), Write::Free),
    (one(msr::S_CET), Write::Free),
    (msr::SHADOW_STACKS, Write::Free),
    // Debugging, sampling and counting. What all CPUs share of it only counts.
    (one(msr::DEBUGCTL), Write::Free),
    (msr::BRANCH_RECORD_CONTROL, Write::Free),
    (msr::BRANCH_RECORDS, Write::Free),
    (msr::DEBUG_MASKS, Write::Free),
    (one(msr::DEBUG_MASK_0), Write::Free),
    (msr::COUNTERS, Write::Free),
    (msr::COUNTERS_GLOBAL, Write::Free),
    (msr::CORE_COUNTERS, Write::Free),
    (msr::SHARED_COUNTERS, Write::Free),
    (msr::MEMORY_COUNTERS, Write::Free),
    (msr::SAMPLING, Write::Free),
    (msr::MORE_SAMPLING, Write::Free),
    // Machine checks are Linux's to report, on its CPUs.
    (msr::MACHINE_CHECK_GLOBAL, Write::Free),
    (msr::MACHINE_CHECK_BANKS, Write::Free),
    (msr::EVENTS_AND_THRESHOLDS, Write::Free),
    (msr::MACHINE_CHECK, Write::Free),
    // Shares of caches and bandwidth: they cost time, as Linux's use of the caches does.
    (one(msr::L3_QOS_CFG), Write::Free),
    (one(msr::QM_EVTSEL), Write::Free),
    (one(msr::PQR_ASSOC), Write::Free),
    (msr::L3_MASKS, Write::Free),
    (msr::BANDWIDTH, Write::Free),
    (msr::SLOW_BANDWIDTH, Write::Free),
    (msr::BANDWIDTH_COUNTERS, Write::Free),
    // The speed of this CPU, among states that the firmware has defined.
    (one(msr::PSTATE_CONTROL), Write::Free),
    (one(msr::CPPC_ENABLE), Write::Free),
    (one(msr::CPPC_REQUEST), Write::Free),
    (msr::WORKLOAD_CLASSES, Write::Free),
    // Boost, a counter, and a bit that Linux sets while it writes thresholds of machine checks; the
    // others lock system management or change what instructions do.
    (
        one(msr::HWCR),
        Write::Bits(msr::HWCR_STATUS_WRITABLE | msr::HWCR_NO_BOOST | msr::HWCR_COUNTS_INSTRUCTIONS),
    ),
    // Set on each CPU that comes online, where it is not.
    (one(msr::NB_CFG), Write::Bits(msr::NB_CFG_EXTENDED_PORTS)),
    // Linux turns the memory type ranges off and on again on each CPU that comes online.
    (one(msr::MTRR_DEF_TYPE), Write::Swallowed(msr::MTRR_DEF_TYPE_BITS)),
    // Linux compares the version afterwards, and reports that there was no update.
    (one(msr::PATCH_LOADER), Write::Swallowed(!0)),
    // SVM is the hypervisor's. Linux writes these when it reboots, and must not be told off.
    (one(msr::VM_CR), Write::Swallowed(!0)),
    (one(msr::VM_HSAVE_PA), Write::Swallowed(!0)),
];

/// Registers that take these values when a CPU changes its owner: each that an owner may write and
/// that neither the control block nor the reset of the local APIC and of the states of XSAVE covers
/// (general, control and debug registers, EFER, PAT, entries and bases of segments, S_CET). None is
/// a place where Linux keeps something over that change; it writes what it needs when it starts a
/// CPU. Registers that several CPUs share are left alone. A register that the processor lacks is
/// passed over.
pub const RESETS: &[(RangeInclusive<u32>, u64)] = &[
    // Whoever takes a machine check while one is in progress shuts down: APM vol. 2, 9.3.1.
    (one(msr::MACHINE_CHECK_STATUS), 0),
    // Clocks: APM vol. 2, 15.30.5, 13.2.4; SDM vol. 3, 11.5.4.1.
    (one(msr::TSC_RATIO), msr::TSC_RATIO_ONE),
    (one(msr::TSC_AUX), 0),
    (one(msr::TSC_DEADLINE), 0),
    // Speculation: APM vol. 2, 3.2.9. Predictions that the last owner trained are forgotten.
    (one(msr::SPEC_CTRL), 0),
    (one(msr::VIRT_SPEC_CTRL), 0),
    (one(msr::PRED_CMD), msr::PRED_CMD_IBPB),
    // States of XSAVE and control-flow enforcement: APM vol. 2, 11.5.2 and 18.7.
    (msr::XFD, 0),
    (one(msr::U_CET), 0),
    (msr::SHADOW_STACKS, 0),
    // Records of branches: APM vol. 2, 13.1.1.6 and 13.1.1.9.
    (one(msr::DEBUGCTL), 0),
    (msr::BRANCH_RECORD_CONTROL, 0),
    (msr::BRANCH_RECORDS, 0),
    // Debug registers: APM vol. 2, 13.1.1.4.
    (msr::DEBUG_MASKS, 0),
    (one(msr::DEBUG_MASK_0), 0),
    // Performance counters: APM vol. 2, 13.2.1 and 13.2.3.
    (one(msr::COUNTERS_CONTROL), 0),
    (msr::COUNTERS, 0),
    (msr::CORE_COUNTERS, 0),
    // Sampling: APM vol. 2, 13.3.
    (msr::SAMPLING, 0),
    (msr::MORE_SAMPLING, 0),
    // Class of service: APM vol. 2, 19.3 and 19.4.
    (one(msr::PQR_ASSOC), 0),
];

/// What follows from Linux's write to register `number`.
pub fn root_write(number: u32) -> Write {
    let row = ROOT_WRITES.iter().find(|(numbers, _)| numbers.contains(&number));
    row.map_or(Write::Bits(0), |(_, write)| *write)
}

/// What follows from Linux's read of register `number`.
pub fn root_read(number: u32) -> Read {
    match number {
        msr::VM_HSAVE_PA => Read::Zero,
        _ if permissions::msr_covered(number) || msr::MACHINE_CHECK.contains(&number) => Read::Free,
        _ => Read::Refused,
    }
}

/// Tells whether Linux may write each register of `numbers` as it likes. Who configures cells gives
/// them no more than that.
pub fn root_may_write(numbers: RangeInclusive<u32>) -> bool {
    let (mut next, last) = (*numbers.start(), *numbers.end());
    while next <= last {
        let row = ROOT_WRITES.iter().find(|(numbers, _)| numbers.contains(&next));
        let Some((row, Write::Free)) = row else { return false };
        next = row.end() + 1;
    }
    true
}

/// Fills Linux's bitmap of registers.
pub fn fill_root(bitmap: &mut [u8]) {
    permissions::trap_all_msr_writes(bitmap);
    for (numbers, _) in ROOT_WRITES.iter().filter(|(_, write)| *write == Write::Free) {
        for number in numbers.clone() {
            permissions::trap_msr(bitmap, number, MSR_WRITE, false);
        }
    }
    permissions::trap_msr(bitmap, msr::VM_HSAVE_PA, MSR_READ, true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::{MSR_BITMAP_SIZE, msr_trapped};

    #[test]
    fn the_bitmap_agrees_with_the_rows() {
        let mut bitmap = vec![0; MSR_BITMAP_SIZE];
        fill_root(&mut bitmap);
        for base in [0, 0xc000_0000, 0xc001_0000] {
            for number in base..base + 0x2000 {
                let free = root_write(number) == Write::Free;
                assert_eq!(msr_trapped(&bitmap, number, MSR_WRITE), !free, "{number:#x}");
                let free = root_read(number) == Read::Free;
                assert_eq!(msr_trapped(&bitmap, number, MSR_READ), !free, "{number:#x}");
            }
        }
    }

    #[test]
    fn no_two_rows_name_the_same_register() {
        for (index, (numbers, _)) in ROOT_WRITES.iter().enumerate() {
            for (others, _) in &ROOT_WRITES[index + 1..] {
                let apart = numbers.end() < others.start() || others.end() < numbers.start();
                assert!(apart, "{numbers:x?} {others:x?}");
            }
        }
    }

    #[test]
    fn what_all_cpus_share_or_what_moves_memory_keeps_its_value() {
        let shared = [
            // Time stamp counter and its offset and speed.
            msr::TSC..=msr::TSC,
            0x3b..=0x3b,
            0xc000_0104..=0xc000_0104,
            // The local APIC's base, memory type ranges.
            msr::APIC_BASE..=msr::APIC_BASE,
            0x200..=0x20f,
            0x250..=0x250,
            0x258..=0x259,
            0x268..=0x26f,
            // SYSCFG, I/O ranges, TOP_MEM, TOP_MEM2, base of configuration space.
            0xc001_0010..=0xc001_0010,
            0xc001_0016..=0xc001_0019,
            0xc001_001a..=0xc001_001a,
            0xc001_001d..=0xc001_001d,
            0xc001_0058..=0xc001_0058,
            // System management: traps, trigger, base, ranges. Voltages, states of sleep.
            0xc001_0050..=0xc001_0056,
            0xc001_0111..=0xc001_0113,
            0xc001_0064..=0xc001_006b,
            0xc001_0073..=0xc001_0073,
            // Doorbell of virtual interrupt controllers, tables of encrypted memory.
            0xc001_011b..=0xc001_011b,
            0xc001_0132..=0xc001_0133,
        ];
        for number in shared.into_iter().flatten() {
            assert_eq!(root_write(number), Write::Bits(0), "{number:#x}");
        }
        for number in [0x4000_0071, 0x4b56_4d00] {
            assert_eq!(root_write(number), Write::Bits(0));
            assert_eq!(root_read(number), Read::Refused);
        }
    }

    #[test]
    fn what_linux_changes_in_part() {
        let bits = |numbers: &[u32]| numbers.iter().fold(0, |bits, number| bits | 1 << number);
        // Bit 0 of HWCR locks system management; without bit 4 INVD drops what others cached.
        assert_eq!(root_write(msr::HWCR), Write::Bits(bits(&[18, 25, 30])));
        assert_eq!(root_write(msr::LS_CFG), Write::Bits(bits(&[10, 33, 54])));
        assert_eq!(root_write(msr::NB_CFG), Write::Bits(bits(&[46])));
        assert_eq!(root_write(msr::MTRR_DEF_TYPE), Write::Swallowed(0xcff));
        for number in [msr::PATCH_LOADER, msr::VM_CR, msr::VM_HSAVE_PA] {
            assert_eq!(root_write(number), Write::Swallowed(!0), "{number:#x}");
        }
        for number in [msr::EFER, msr::PAT] {
            assert_eq!(root_write(number), Write::Guest, "{number:#x}");
        }
        assert_eq!(root_write(COMMAND), Write::Command);
        assert_eq!(root_read(msr::VM_HSAVE_PA), Read::Zero);
    }

    #[test]
    fn a_range_is_free_if_each_register_is() {
        let ranges = [
            0x10..=0x10,
            0x174..=0x176,
            0x174..=0x177,
            0x800..=0x8ff,
            0xc000_0081..=0xc000_0084,
            0xc000_0080..=0xc000_0084,
            0xc000_0100..=0xc000_0104,
            0xc001_0000..=0xc001_0007,
            0xc001_0000..=0xc001_0010,
            0xc001_0200..=0xc001_025f,
        ];
        for range in ranges {
            let each = range.clone().all(|number| root_write(number) == Write::Free);
            assert_eq!(root_may_write(range.clone()), each, "{range:x?}");
        }
    }

    #[test]
    fn an_owner_leaves_nothing_that_it_could_write_of_its_own_cpu() {
        let kept = |number: u32| {
            let elsewhere = [
                // The control block and the instructions that load it.
                msr::SYSENTER_CS..=msr::SYSENTER_EIP,
                msr::STAR..=msr::SFMASK,
                msr::FS_BASE..=msr::KERNEL_GS_BASE,
                one(msr::S_CET),
                // The resets of the local APIC and of the states of XSAVE.
                X2APIC_FIRST..=X2APIC_LAST,
                one(msr::XSS),
                // Nothing is kept: a command, and what Linux clears when it starts a CPU.
                one(msr::FLUSH_CMD),
                msr::MACHINE_CHECK_GLOBAL,
                msr::MACHINE_CHECK_BANKS,
                msr::MACHINE_CHECK,
                msr::EVENTS_AND_THRESHOLDS,
                msr::COUNTERS_GLOBAL,
                // Several CPUs share them.
                msr::SHARED_COUNTERS,
                msr::MEMORY_COUNTERS,
                one(msr::L3_QOS_CFG),
                one(msr::QM_EVTSEL),
                msr::L3_MASKS,
                msr::BANDWIDTH,
                msr::SLOW_BANDWIDTH,
                msr::BANDWIDTH_COUNTERS,
                // Speed, as before.
                one(msr::PSTATE_CONTROL),
                one(msr::CPPC_ENABLE),
                one(msr::CPPC_REQUEST),
                msr::WORKLOAD_CLASSES,
            ];
            elsewhere.iter().any(|numbers| numbers.contains(&number))
        };
        let reset = |number: u32| RESETS.iter().any(|(numbers, _)| numbers.contains(&number));
        let to = |number: u32, value: u64| RESETS.contains(&(one(number), value));
        // What the last owner of a CPU had in progress, and which clock; what the next one would
        // be misled by.
        assert!(to(msr::MACHINE_CHECK_STATUS, 0), "a machine check in progress");
        assert!(to(msr::TSC_RATIO, msr::TSC_RATIO_ONE), "the clock of guests");
        assert!(to(msr::PRED_CMD, msr::PRED_CMD_IBPB), "predictions");
        assert!(to(msr::COUNTERS_CONTROL, 0), "counters that count");
        let free = ROOT_WRITES.iter().filter(|(_, write)| *write == Write::Free);
        for number in free.flat_map(|(numbers, _)| numbers.clone()) {
            assert!(kept(number) || reset(number), "{number:#x}");
        }
    }
}
