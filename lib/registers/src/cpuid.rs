// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves of CPUID and their bits (APM vol. 3, appendix E; SDM vol. 2, CPUID). Bits are given by
//! their number.

/// Leaf: features. EAX is the processor's signature.
pub const FEATURES: u32 = 1;
/// [`FEATURES`], ECX: MONITOR and MWAIT.
pub const ECX_MONITOR: u32 = 3;
/// [`FEATURES`], ECX: VMX.
pub const ECX_VMX: u32 = 5;
/// [`FEATURES`], ECX: safer mode extensions.
pub const ECX_SMX: u32 = 6;
/// [`FEATURES`], ECX: x2APIC mode.
pub const ECX_X2APIC: u32 = 21;
/// [`FEATURES`], ECX: the local APIC's timer can fire at a value of the time stamp counter.
pub const ECX_TSC_DEADLINE: u32 = 24;
/// [`FEATURES`], ECX: XSAVE.
pub const ECX_XSAVE: u32 = 26;
/// [`FEATURES`], ECX: a copy of CR4.OSXSAVE.
pub const ECX_OSXSAVE: u32 = 27;
/// [`FEATURES`], ECX: a hypervisor runs underneath.
pub const ECX_HYPERVISOR: u32 = 31;

/// [`FEATURES`], EDX: machine checks raise exceptions.
pub const EDX_MACHINE_CHECK_EXCEPTION: u32 = 7;
/// [`FEATURES`], EDX: banks of machine checks.
pub const EDX_MACHINE_CHECK: u32 = 14;

/// Leaf: MONITOR and MWAIT.
pub const MONITOR: u32 = 5;

/// Leaf: structured extended features.
pub const EXTENDED_FEATURES: u32 = 7;
/// [`EXTENDED_FEATURES`], subleaf 0, ECX: a copy of CR4.PKE.
pub const ECX_OSPKE: u32 = 4;

/// Leaf: states of XSAVE. Subleaf 0, EDX:EAX: what XCR0 may hold.
pub const XSAVE: u32 = 0xd;
/// [`XSAVE`], subleaf 1, EAX: XSAVES and its supervisor states.
pub const EAX_XSAVES: u32 = 3;

/// First leaf of a hypervisor: EAX is its last, EBX, ECX and EDX are its signature.
pub const HYPERVISOR: u32 = 0x4000_0000;
/// Last leaf that may be a hypervisor's.
pub const HYPERVISOR_LAST: u32 = 0x4fff_ffff;

/// Leaf: EAX is the last extended leaf.
pub const EXTENDED: u32 = 0x8000_0000;

/// Leaf: AMD's features.
pub const AMD_FEATURES: u32 = 0x8000_0001;
/// [`AMD_FEATURES`], ECX: SVM.
pub const ECX_SVM: u32 = 2;
/// [`AMD_FEATURES`], ECX: SKINIT.
pub const ECX_SKINIT: u32 = 12;
/// [`AMD_FEATURES`], ECX: translation cache extension.
pub const ECX_TCE: u32 = 17;
/// [`AMD_FEATURES`], ECX: MONITORX and MWAITX.
pub const ECX_MONITORX: u32 = 29;
/// [`AMD_FEATURES`], EDX: no-execute.
pub const EDX_NX: u32 = 20;
/// [`AMD_FEATURES`], EDX: fast FXSAVE and FXRSTOR.
pub const EDX_FFXSR: u32 = 25;
/// [`AMD_FEATURES`], EDX: pages of 1 GiB.
pub const EDX_GIGABYTE_PAGES: u32 = 26;

/// Leaf: what is reliable.
pub const RELIABILITY: u32 = 0x8000_0007;
/// [`RELIABILITY`], EBX: an overflow of a bank of machine checks is not fatal.
pub const EBX_OVERFLOW_RECOVERABLE: u32 = 0;
/// [`RELIABILITY`], EBX: what is not corrected is marked, and software can recover from its use.
pub const EBX_SOFTWARE_RECOVERY: u32 = 1;
/// [`RELIABILITY`], EBX: the scalable machine-check architecture.
pub const EBX_SCALABLE_MACHINE_CHECK: u32 = 3;

/// Leaf: sizes of addresses and further features.
pub const AMD_EXTENDED: u32 = 0x8000_0008;
/// [`AMD_EXTENDED`], EBX: MCOMMIT.
pub const EBX_MCOMMIT: u32 = 8;
/// [`AMD_EXTENDED`], EBX: predictions of indirect branches can be forgotten.
pub const EBX_IBPB: u32 = 12;
/// [`AMD_EXTENDED`], EBX: WBINVD and WBNOINVD may be interrupted.
pub const EBX_INTERRUPTIBLE_WBINVD: u32 = 13;
/// [`AMD_EXTENDED`], EBX: indirect branches can be restricted.
pub const EBX_IBRS: u32 = 14;
/// [`AMD_EXTENDED`], EBX: CPUs of one core can be kept from predicting for each other.
pub const EBX_STIBP: u32 = 15;
/// [`AMD_EXTENDED`], EBX: the restriction of indirect branches may stay on.
pub const EBX_IBRS_ALWAYS_ON: u32 = 16;
/// [`AMD_EXTENDED`], EBX: the restriction holds whenever it was set, and whoever trained.
pub const EBX_IBRS_SAME_MODE: u32 = 19;
/// [`AMD_EXTENDED`], EBX: no load is executed before an earlier store to its address.
pub const EBX_NO_STORE_BYPASS: u32 = 26;
/// [`AMD_EXTENDED`], EBX: no branch is predicted as one of another type.
pub const EBX_BRANCH_TYPE_SAFE: u32 = 29;

/// Leaf: SVM. EBX is the number of address space identifiers.
pub const SVM: u32 = 0x8000_000a;
/// [`SVM`], EDX: nested paging.
pub const EDX_NESTED_PAGING: u32 = 0;
/// [`SVM`], EDX: the next instruction pointer is saved at an exit.
pub const EDX_NEXT_RIP: u32 = 3;
/// [`SVM`], EDX: the speed of a guest's time stamp counter can be set.
pub const EDX_TSC_RATIO: u32 = 4;
/// [`SVM`], EDX: guests have a SPEC_CTRL of their own.
pub const EDX_GUEST_SPEC_CTRL: u32 = 20;
/// [`SVM`], EDX: virtual NMIs.
pub const EDX_VIRTUAL_NMI: u32 = 25;

/// Leaf: memory encryption.
pub const MEMORY_ENCRYPTION: u32 = 0x8000_001f;

/// Leaf: AMD's extended features 2.
pub const AMD_EXTENDED_2: u32 = 0x8000_0021;
/// [`AMD_EXTENDED_2`], EAX: upper address ignore.
pub const EAX_UPPER_ADDRESS_IGNORE: u32 = 7;
/// [`AMD_EXTENDED_2`], EAX: automatic restriction of indirect branches.
pub const EAX_AUTOMATIC_IBRS: u32 = 8;
/// [`AMD_EXTENDED_2`], EAX: predictions of returns cannot be made to overflow.
pub const EAX_NO_RETURN_OVERFLOW: u32 = 29;
