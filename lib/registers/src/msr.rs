// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of model-specific registers (APM vol. 2, appendix A). Those of the local APIC are in
//! [`crate::apic`].

use core::ops::RangeInclusive;

/// The time stamp counter (APM vol. 2, 13.2.4).
pub const TSC: u32 = 0x10;
/// Base address and mode of the local APIC (APM vol. 2, 16.3.1). Bits: `x86_64`'s `ApicBaseFlags`.
pub const APIC_BASE: u32 = 0x1b;
/// Restrictions of speculation (APM vol. 2, 3.2.9).
pub const SPEC_CTRL: u32 = 0x48;
/// In [`SPEC_CTRL`]: indirect branches are restricted.
pub const SPEC_CTRL_IBRS: u64 = 1 << 0;
/// In [`SPEC_CTRL`]: the other CPU of the core predicts nothing for this one.
pub const SPEC_CTRL_STIBP: u64 = 1 << 1;
/// Command to forget predictions of indirect branches (APM vol. 2, 3.2.9).
pub const PRED_CMD: u32 = 0x49;
/// In [`PRED_CMD`]: forget them.
pub const PRED_CMD_IBPB: u64 = 1 << 0;
/// Command to empty the first-level data cache.
pub const FLUSH_CMD: u32 = 0x10b;
/// Code segment of SYSENTER.
pub const SYSENTER_CS: u32 = 0x174;
/// Stack pointer of SYSENTER.
pub const SYSENTER_ESP: u32 = 0x175;
/// Instruction pointer of SYSENTER.
pub const SYSENTER_EIP: u32 = 0x176;
/// Number of banks of machine checks, and what there is for all of them (APM vol. 2, 9.3.1).
pub const MACHINE_CHECK_CAPABILITIES: u32 = 0x179;
/// Status of machine checks as a whole (APM vol. 2, 9.3.1); see [`crate::machine_check`].
pub const MACHINE_CHECK_STATUS: u32 = 0x17a;
/// Status and control of machine checks as a whole (APM vol. 2, 9.3.1).
pub const MACHINE_CHECK_GLOBAL: RangeInclusive<u32> = 0x17a..=0x17b;
/// Components of XSAVE that fault when they are used first, and which did (APM vol. 2, 11.5.2).
pub const XFD: RangeInclusive<u32> = 0x1c4..=0x1c5;
/// Control of debugging: records of branches (APM vol. 2, 13.1.1.6).
pub const DEBUGCTL: u32 = 0x1d9;
/// Memory types of the page attribute table (APM vol. 2, 7.8); see [`crate::pat`].
pub const PAT: u32 = 0x277;
/// Default memory type, and whether the other memory type range registers are in use (APM vol. 2,
/// 7.7.2).
pub const MTRR_DEF_TYPE: u32 = 0x2ff;
/// In [`MTRR_DEF_TYPE`]: the type, and the two bits that put the registers in use.
pub const MTRR_DEF_TYPE_BITS: u64 = 0xcff;
/// Banks of machine checks, in their old place (APM vol. 2, 9.3.2).
pub const MACHINE_CHECK_BANKS: RangeInclusive<u32> = 0x400..=0x47f;
/// Control-flow enforcement of programs (APM vol. 2, 18.7).
pub const U_CET: u32 = 0x6a0;
/// Control-flow enforcement of the supervisor (APM vol. 2, 18.7).
pub const S_CET: u32 = 0x6a2;
/// Shadow stack pointers of the four privilege levels, and the table of those of interrupts (APM
/// vol. 2, 18.7).
pub const SHADOW_STACKS: RangeInclusive<u32> = 0x6a4..=0x6a8;
/// The time stamp counter at which the APIC's timer fires (SDM vol. 3, 11.5.4.1).
pub const TSC_DEADLINE: u32 = 0x6e0;
/// Whether cache masks hold for code and data apart (APM vol. 2, 19.4).
pub const L3_QOS_CFG: u32 = 0xc81;
/// The event of cache and bandwidth that is to be read (APM vol. 2, 19.3).
pub const QM_EVTSEL: u32 = 0xc8d;
/// The classes of service of what runs (APM vol. 2, 19.3 and 19.4).
pub const PQR_ASSOC: u32 = 0xc8f;
/// Cache masks of the classes of service (APM vol. 2, 19.4).
pub const L3_MASKS: RangeInclusive<u32> = 0xc90..=0xd0f;
/// Supervisor states of XSAVES (APM vol. 2, 11.5.2).
pub const XSS: u32 = 0xda0;
/// Extended features (APM vol. 2, 3.1.7). Bits: `x86_64`'s `EferFlags`, and [`efer`].
pub const EFER: u32 = 0xc000_0080;
/// In [`EFER`]: SVM is enabled.
pub const EFER_SVM: u64 = 1 << 12;
/// Selectors of SYSCALL and SYSRET (APM vol. 2, 6.1.1).
pub const STAR: u32 = 0xc000_0081;
/// Entry of SYSCALL in 64-bit mode.
pub const LSTAR: u32 = 0xc000_0082;
/// Entry of SYSCALL in compatibility mode.
pub const CSTAR: u32 = 0xc000_0083;
/// Flags that SYSCALL clears.
pub const SFMASK: u32 = 0xc000_0084;
/// Base of FS.
pub const FS_BASE: u32 = 0xc000_0100;
/// Base of GS.
pub const GS_BASE: u32 = 0xc000_0101;
/// Base that SWAPGS exchanges with that of GS.
pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
/// What RDTSCP returns in ECX.
pub const TSC_AUX: u32 = 0xc000_0103;
/// Speed of a guest's time stamp counter (APM vol. 2, 15.30.5).
pub const TSC_RATIO: u32 = 0xc000_0104;
/// [`TSC_RATIO`] for the speed of the processor's: 1 with 32 bits behind the point.
pub const TSC_RATIO_ONE: u64 = 1 << 32;
/// Which branches are recorded, and that they are (APM vol. 2, 13.1.1.9).
pub const BRANCH_RECORD_CONTROL: RangeInclusive<u32> = 0xc000_010e..=0xc000_010f;
/// Limits of bandwidth of the classes of service (APM vol. 2, 19.4).
pub const BANDWIDTH: RangeInclusive<u32> = 0xc000_0200..=0xc000_020f;
/// Limits of bandwidth to slow memory.
pub const SLOW_BANDWIDTH: RangeInclusive<u32> = 0xc000_0280..=0xc000_028f;
/// Status and control of all performance counters of a CPU (APM vol. 2, 13.2.3).
pub const COUNTERS_GLOBAL: RangeInclusive<u32> = 0xc000_0300..=0xc000_0303;
/// The one of [`COUNTERS_GLOBAL`] that lets them count.
pub const COUNTERS_CONTROL: u32 = 0xc000_0301;
/// Assignment of bandwidth counters (APM vol. 2, 19.3).
pub const BANDWIDTH_COUNTERS: RangeInclusive<u32> = 0xc000_03fd..=0xc000_03ff;
/// Events of bandwidth (APM vol. 2, 19.3), thresholds of machine checks and their interrupts
/// (APM vol. 2, 9.3.2 and 9.3.3).
pub const EVENTS_AND_THRESHOLDS: RangeInclusive<u32> = 0xc000_0400..=0xc000_0410;
/// Classification of what runs, for Linux's scheduler.
pub const WORKLOAD_CLASSES: RangeInclusive<u32> = 0xc000_0500..=0xc000_0502;
/// The scalable machine-check architecture (APM vol. 2, 9.3.2).
pub const MACHINE_CHECK: RangeInclusive<u32> = 0xc000_2000..=0xc000_2fff;
/// Performance counters: four selections of events, then four counts (APM vol. 2, 13.2.1).
pub const COUNTERS: RangeInclusive<u32> = 0xc001_0000..=0xc001_0007;
/// System configuration, among it memory encryption (APM vol. 2, 7.9 and 15.34).
pub const SYSCFG: u32 = 0xc001_0010;
/// In [`SYSCFG`]: memory is encrypted with one key, or with several, that an address names by bits
/// which are no part of it any more (APM vol. 2, 15.34 and 7.10).
pub const SYSCFG_ENCRYPTION: u64 = 1 << 23 | 1 << 26;
/// Configuration of the hardware (APM vol. 2, 3.2.10).
pub const HWCR: u32 = 0xc001_0015;
/// In [`HWCR`]: the status of machine checks may be written with what is not 0.
pub const HWCR_STATUS_WRITABLE: u64 = 1 << 18;
/// In [`HWCR`]: no boost.
pub const HWCR_NO_BOOST: u64 = 1 << 25;
/// In [`HWCR`]: retired instructions are counted.
pub const HWCR_COUNTS_INSTRUCTIONS: u64 = 1 << 30;
/// Configuration of the northbridge.
pub const NB_CFG: u32 = 0xc001_001f;
/// In [`NB_CFG`]: the ports of configuration space reach its extended part.
pub const NB_CFG_EXTENDED_PORTS: u64 = 1 << 46;
/// Where an update of the microcode lies; writing loads it.
pub const PATCH_LOADER: u32 = 0xc001_0020;
/// The state of performance that is asked for (APM vol. 2, 17.1).
pub const PSTATE_CONTROL: u32 = 0xc001_0062;
/// In [`PSTATE_CONTROL`]: the number of the state.
pub const PSTATE_CONTROL_STATE: u64 = 0b111;
/// Control of virtual machines (APM vol. 2, 15.30.1).
pub const VM_CR: u32 = 0xc001_0114;
/// In [`VM_CR`]: SVM cannot be enabled.
pub const VM_CR_SVM_DISABLED: u64 = 1 << 4;
/// Physical address at which VMRUN saves the host's state (APM vol. 2, 15.30.4).
pub const VM_HSAVE_PA: u32 = 0xc001_0117;
/// Key that unlocks [`VM_CR`] (APM vol. 2, 15.31).
pub const SVM_KEY: u32 = 0xc001_0118;

/// Restriction of speculation, as a hypervisor underneath offers it.
pub const VIRT_SPEC_CTRL: u32 = 0xc001_011f;
/// Performance counters of a core, each a selection and a count (APM vol. 2, 13.2.1).
pub const CORE_COUNTERS: RangeInclusive<u32> = 0xc001_0200..=0xc001_021f;
/// Performance counters of the third-level cache and of the northbridge (APM vol. 2, 13.2.1).
pub const SHARED_COUNTERS: RangeInclusive<u32> = 0xc001_0230..=0xc001_025f;
/// Collaborative processor performance control: what the CPU can do (APM vol. 2, 17.6).
pub const CPPC_CAPABILITIES: u32 = 0xc001_02b0;
/// Collaborative processor performance control: that it is on (APM vol. 2, 17.6).
pub const CPPC_ENABLE: u32 = 0xc001_02b1;
/// Collaborative processor performance control: what is asked for.
pub const CPPC_REQUEST: u32 = 0xc001_02b3;
/// Recorded branches (APM vol. 2, 13.1.1.9).
pub const BRANCH_RECORDS: RangeInclusive<u32> = 0xc001_0300..=0xc001_031f;
/// Performance counters of the memory controllers.
pub const MEMORY_COUNTERS: RangeInclusive<u32> = 0xc001_0800..=0xc001_08ff;
/// Masks of the addresses in DR1 to DR3 (APM vol. 2, 13.1.1.4).
pub const DEBUG_MASKS: RangeInclusive<u32> = 0xc001_1019..=0xc001_101b;
/// Configuration of loads and stores.
pub const LS_CFG: u32 = 0xc001_1020;
/// In [`LS_CFG`]: loads do not bypass stores, by the processor's family: 17h, 16h, 15h.
pub const LS_CFG_NO_BYPASS: u64 = 1 << 10 | 1 << 33 | 1 << 54;
/// Mask of the address in DR0.
pub const DEBUG_MASK_0: u32 = 0xc001_1027;
/// Instruction-based sampling up to its control, which is the firmware's (APM vol. 2, 13.3).
pub const SAMPLING: RangeInclusive<u32> = 0xc001_1030..=0xc001_1039;
/// Instruction-based sampling behind its control.
pub const MORE_SAMPLING: RangeInclusive<u32> = 0xc001_103b..=0xc001_103d;

/// Bits of [`EFER`] that `x86_64`'s `EferFlags` lacks.
pub mod efer {
    /// MCOMMIT is enabled.
    pub const MCOMMIT: u64 = 1 << 17;
    /// WBINVD and WBNOINVD may be interrupted.
    pub const INTERRUPTIBLE_WBINVD: u64 = 1 << 18;
    /// Upper address ignore.
    pub const UPPER_ADDRESS_IGNORE: u64 = 1 << 20;
    /// Automatic restriction of indirect branches.
    pub const AUTOMATIC_IBRS: u64 = 1 << 21;
}
