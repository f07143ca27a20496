// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of model-specific registers (APM vol. 2, appendix A). Those of the local APIC are in
//! [`crate::apic`].

use core::ops::RangeInclusive;

/// Base address and mode of the local APIC (APM vol. 2, 16.3.1). Bits: `x86_64`'s `ApicBaseFlags`.
pub const APIC_BASE: u32 = 0x1b;
/// Code segment of SYSENTER.
pub const SYSENTER_CS: u32 = 0x174;
/// Stack pointer of SYSENTER.
pub const SYSENTER_ESP: u32 = 0x175;
/// Instruction pointer of SYSENTER.
pub const SYSENTER_EIP: u32 = 0x176;
/// Memory types of the page attribute table (APM vol. 2, 7.8); see [`crate::pat`].
pub const PAT: u32 = 0x277;
/// Control-flow enforcement of the supervisor (APM vol. 2, 18.7).
pub const S_CET: u32 = 0x6a2;
/// The time stamp counter at which the APIC's timer fires (SDM vol. 3, 11.5.4.1).
pub const TSC_DEADLINE: u32 = 0x6e0;
/// Supervisor states of XSAVES (APM vol. 2, 11.5.2).
pub const XSS: u32 = 0xda0;
/// Extended features (APM vol. 2, 3.1.7). Bits: `x86_64`'s `EferFlags`, and [`efer`].
pub const EFER: u32 = 0xc000_0080;
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
/// The scalable machine-check architecture (APM vol. 2, 9.3.2).
pub const MACHINE_CHECK: RangeInclusive<u32> = 0xc000_2000..=0xc000_2fff;
/// System configuration, among it memory encryption (APM vol. 2, 7.9 and 15.34).
pub const SYSCFG: u32 = 0xc001_0010;
/// Control of virtual machines (APM vol. 2, 15.30.1).
pub const VM_CR: u32 = 0xc001_0114;
/// In [`VM_CR`]: SVM cannot be enabled.
pub const VM_CR_SVM_DISABLED: u64 = 1 << 4;
/// Physical address at which VMRUN saves the host's state (APM vol. 2, 15.30.4).
pub const VM_HSAVE_PA: u32 = 0xc001_0117;
/// Key that unlocks [`VM_CR`] (APM vol. 2, 15.31).
pub const SVM_KEY: u32 = 0xc001_0118;

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
