// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual machine control block (AMD APM vol. 2, appendix B).

use core::mem::offset_of;

use crate::direct_map::AnyBits;

/// A segment register.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Segment {
    pub selector: u16,
    /// Bits 47..40 and 55..52 of the descriptor.
    pub attributes: u16,
    pub limit: u32,
    pub base: u64,
}

impl Segment {
    pub const fn new(selector: u16, attributes: u16, limit: u32, base: u64) -> Self {
        Self { selector, attributes, limit, base }
    }
}

/// Control area and state save area.
#[repr(C)]
pub struct Vmcb {
    pub intercept_cr: u32,
    pub intercept_dr: u32,
    pub intercept_exceptions: u32,
    pub intercept_1: u32,
    pub intercept_2: u32,
    reserved_1: [u8; 0x40 - 0x14],
    pub port_bitmap: u64,
    pub msr_bitmap: u64,
    /// None (15.5.1).
    pub tsc_offset: u64,
    pub asid: u32,
    /// Beside the command, in the lowest byte, nothing: return predictors are of the least size
    /// (15.37.2).
    pub tlb_control: u32,
    /// Without masking of virtual interrupts (15.21.1): RFLAGS and TPR are those of the machine.
    pub virtual_interrupt: u64,
    pub interrupt_shadow: u64,
    pub exit_code: u64,
    pub exit_info_1: u64,
    pub exit_info_2: u64,
    pub exit_interrupt_info: u64,
    pub nested_control: u64,
    reserved_2: [u8; 0xa8 - 0x98],
    pub event_injection: u64,
    pub nested_cr3: u64,
    /// No virtualization of branch records, of VMLOAD and VMSAVE, of sampling and of counters
    /// (15.23, 15.33.1, 15.38, 15.39): the guest uses the processor's registers.
    pub lbr_control: u64,
    /// Fields that the processor may take from its cache: none, always (15.15.1).
    pub clean: u64,
    pub next_rip: u64,
    reserved_3: [u8; 0x400 - 0xd0],
    pub es: Segment,
    pub cs: Segment,
    pub ss: Segment,
    pub ds: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub gdtr: Segment,
    pub ldtr: Segment,
    pub idtr: Segment,
    pub tr: Segment,
    reserved_4: [u8; 0x4cb - 0x4a0],
    pub cpl: u8,
    reserved_5: [u8; 4],
    pub efer: u64,
    reserved_6: [u8; 0x548 - 0x4d8],
    pub cr4: u64,
    pub cr3: u64,
    pub cr0: u64,
    pub dr7: u64,
    pub dr6: u64,
    pub rflags: u64,
    pub rip: u64,
    reserved_7: [u8; 0x5d8 - 0x580],
    pub rsp: u64,
    pub s_cet: u64,
    pub ssp: u64,
    pub interrupt_ssp_table: u64,
    pub rax: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter: [u64; 3],
    pub cr2: u64,
    reserved_8: [u8; 0x668 - 0x648],
    pub pat: u64,
    reserved_9: [u8; 0x6e0 - 0x670],
    /// The guest's own, where the processor has one for the guest.
    pub spec_ctrl: u64,
    reserved_10: [u8; 0x1000 - 0x6e8],
}

// SAFETY: Plain integers without padding: the assertions below check the layout.
unsafe impl AnyBits for Vmcb {}

const _: () = {
    assert!(offset_of!(Vmcb, event_injection) == 0xa8);
    assert!(offset_of!(Vmcb, next_rip) == 0xc8);
    assert!(offset_of!(Vmcb, efer) == 0x4d0);
    assert!(offset_of!(Vmcb, rip) == 0x578);
    assert!(offset_of!(Vmcb, rax) == 0x5f8);
    assert!(offset_of!(Vmcb, cr2) == 0x640);
    assert!(offset_of!(Vmcb, pat) == 0x668);
    assert!(offset_of!(Vmcb, spec_ctrl) == 0x6e0);
    assert!(size_of::<Vmcb>() == 4096);
};

// Intercepts of the first word (offset 0xc).
pub const INTERCEPT_NMI: u32 = 1 << 1;
pub const INTERCEPT_CPUID: u32 = 1 << 18;
pub const INTERCEPT_IRET: u32 = 1 << 20;
pub const INTERCEPT_INVD: u32 = 1 << 22;
pub const INTERCEPT_INVLPGA: u32 = 1 << 26;
pub const INTERCEPT_PORTS: u32 = 1 << 27;
pub const INTERCEPT_MSRS: u32 = 1 << 28;
pub const INTERCEPT_SHUTDOWN: u32 = 1 << 31;

// Intercepts of the second word (offset 0x10).
/// VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT.
pub const INTERCEPT_SVM: u32 = 0x7f;
/// MONITOR, MWAIT, armed MWAIT.
pub const INTERCEPT_MONITOR: u32 = 1 << 10 | 1 << 11 | 1 << 12;
/// WBINVD and WBNOINVD.
pub const INTERCEPT_WBINVD: u32 = 1 << 9;
pub const INTERCEPT_XSETBV: u32 = 1 << 13;

// Intercepts of exceptions (offset 8).
pub const INTERCEPT_DEBUG: u32 = 1 << 1;
pub const INTERCEPT_ALIGNMENT_CHECK: u32 = 1 << 17;

// Exit codes (appendix C).
/// The first of the 32 exceptions.
pub const EXIT_EXCEPTION: u64 = 0x40;
pub const EXIT_DEBUG: u64 = 0x41;
pub const EXIT_ALIGNMENT_CHECK: u64 = 0x51;
pub const EXIT_NMI: u64 = 0x61;
pub const EXIT_CPUID: u64 = 0x72;
pub const EXIT_IRET: u64 = 0x74;
pub const EXIT_INVD: u64 = 0x76;
pub const EXIT_INVLPGA: u64 = 0x7a;
pub const EXIT_PORT: u64 = 0x7b;
pub const EXIT_MSR: u64 = 0x7c;
pub const EXIT_SHUTDOWN: u64 = 0x7f;
pub const EXIT_VMRUN: u64 = 0x80;
pub const EXIT_VMMCALL: u64 = 0x81;
pub const EXIT_SKINIT: u64 = 0x86;
pub const EXIT_WBINVD: u64 = 0x89;
pub const EXIT_MONITOR: u64 = 0x8a;
pub const EXIT_MWAIT_ARMED: u64 = 0x8c;
pub const EXIT_XSETBV: u64 = 0x8d;
pub const EXIT_NESTED_FAULT: u64 = 0x400;

/// In the virtual interrupt word: an NMI is pending.
pub const VIRTUAL_NMI: u64 = 1 << 11;
/// In the virtual interrupt word: the processor keeps NMIs back while the guest handles one.
pub const VIRTUAL_NMI_ENABLE: u64 = 1 << 26;
/// In the nested control word: nested paging is on.
pub const NESTED_PAGING: u64 = 1 << 0;
/// In the interrupt shadow word: interrupts are blocked for one instruction.
pub const INTERRUPT_SHADOW: u64 = 1 << 0;
/// In the first information word of [`EXIT_MSR`]: it is a write.
pub const MSR_IS_WRITE: u64 = 1 << 0;
/// In the first information word of [`EXIT_PORT`]: it is a read. The second one is the address of
/// the next instruction.
pub const PORT_IS_READ: u64 = 1 << 0;
/// In the first information word of [`EXIT_PORT`]: it is a string instruction.
pub const PORT_IS_STRING: u64 = 1 << 2;
/// In the first information word of [`EXIT_PORT`]: of one byte.
pub const PORT_BYTE: u64 = 1 << 4;
/// In the first information word of [`EXIT_PORT`]: of two bytes.
pub const PORT_WORD: u64 = 1 << 5;
/// In the first information word of [`EXIT_NESTED_FAULT`]: the processor walked through the
/// guest's page tables, each of which has to be writable (15.25.6).
pub const FAULT_IS_WALK: u64 = 1 << 33;
/// In the first information word of [`EXIT_NESTED_FAULT`]: it is a write.
pub const FAULT_IS_WRITE: u64 = 1 << 1;
/// In attributes of a code segment: 64-bit code.
pub const ATTRIBUTE_LONG: u16 = 1 << 9;

/// Flush all translations of all identifiers, the host's as well. Of the commands only this one is
/// there on every processor (APM vol. 2, 15.16.1, table 15-9).
pub const TLB_FLUSH_ALL: u32 = 1;

/// In EVENTINJ and EXITINTINFO: valid.
pub const EVENT_VALID: u64 = 1 << 31;
/// An error code follows in the upper half.
pub const EVENT_ERROR_CODE: u64 = 1 << 11;
/// Where the error code starts.
pub const EVENT_ERROR_SHIFT: u32 = 32;
/// In the error code of a page fault: the access was a write.
pub const EVENT_FAULT_IS_WRITE: u64 = 1 << 33;
/// External interrupt.
pub const EVENT_INTERRUPT: u64 = 0 << 8;
pub const EVENT_NMI: u64 = 2 << 8;
pub const EVENT_EXCEPTION: u64 = 3 << 8;
pub const EVENT_SOFTWARE: u64 = 4 << 8;
pub const EVENT_TYPE: u64 = 7 << 8;
