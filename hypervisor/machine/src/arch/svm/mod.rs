// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD's Secure Virtual Machine (AMD APM vol. 2, chapter 15), with nested paging.
//!
//! Interrupts are not intercepted: they reach the guest directly. NMIs are, because the hypervisor
//! calls its CPUs by them. INIT cannot be intercepted usefully; INIT and start-up IPIs are emulated
//! where the interrupt command is written.
//!
//! VMRUN and an exit exchange ES, CS, SS, DS, GDTR, IDTR, CR0, CR3, CR4, EFER, RFLAGS, RIP, RSP,
//! RAX, S_CET and SSP, and load or save CR2, DR6, DR7 and PAT of the guest alone (15.5.1 and 15.6),
//! and its SPEC_CTRL where it has one of its own (15.37.1). All else stays in the processor over an
//! exit, and the hypervisor uses none of it: the other general registers, which the run loop saves;
//! FS, GS, TR, LDTR and the registers of system calls (15.5.2); DR0 to DR3; the states of XSAVE
//! with XCR0 and XSS; TSC_AUX, DEBUGCTL, counters, sampling; TPR, which is the local APIC's
//! (15.21.2). When a CPU changes its owner, `load_hidden_state` and [`crate::park`] give these what
//! they have after a reset.
//!
//! A guest gets one NMI at a time: see `nmi`.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, CpuidResult};

use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::decode::{self, RAX, RCX, RDI, RDX, RSI, RSP, Registers, SegmentBases};
use crtos_partition::error::LaunchError;
use crtos_partition::nested::Npt;
use crtos_partition::nmi::Blocking;
use crtos_partition::requirements::{self, Leaf};
use crtos_partition::resets::Access;
use crtos_registers::msr::efer;
use crtos_registers::{cpuid, exception, msr, pat};
use x86_64::instructions::tables::{sgdt, sidt};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr2, Cr4Flags, EferFlags};
use x86_64::registers::rflags::{self, RFlags};

use super::{
    CellStart, Domain, Event, Exit, MsrOutcome, NmiOutcome, Paging, PortAccess, Resume, Runner,
    VirtualCpu,
};
use crate::frames::{Frames, Owned};
use crate::processor::{self, msr as common};
use nmi::BeforeStep;
use vmcb::{Segment, Vmcb};

mod nmi;
mod registers;
mod run;
mod vmcb;

const EFER_LME: u64 = EferFlags::LONG_MODE_ENABLE.bits();
const EFER_LMA: u64 = EferFlags::LONG_MODE_ACTIVE.bits();
const EFER_SVME: u64 = EferFlags::SECURE_VIRTUAL_MACHINE_ENABLE.bits();
/// What a cell starts with.
const EFER_CELL: u64 = EferFlags::SYSTEM_CALL_EXTENSIONS.bits()
    | EFER_LME
    | EFER_LMA
    | EferFlags::NO_EXECUTE_ENABLE.bits();

const CR0_PAGING: u64 = Cr0Flags::PAGING.bits();
const CR4_CET: u64 = Cr4Flags::CONTROL_FLOW_ENFORCEMENT.bits();
/// Bit 1 is always set.
const RFLAGS_RESET: u64 = 1 << 1;
const DR6_RESET: u64 = 0xffff_0ff0;
/// Bit 10 is always set.
const DR7_RESET: u64 = 1 << 10;

const ROOT_ASID: u32 = 1;

/// A page in which VMRUN saves the host's state (15.5.1 and 15.30.4). Nobody else touches it.
type HostSaveArea = [u8; 4096];

/// A virtual CPU: general registers beside the control block, which holds the rest.
#[repr(C)]
pub struct Vcpu {
    /// RAX and RSP are copies of those in the control block between an exit and the next entry.
    registers: Registers,
    /// The run loop finds the control block's physical address here.
    vmcb: Owned<Vmcb>,
    host_save_area: Owned<HostSaveArea>,
    next_rip_saved: bool,
    has_virtual_nmi: bool,
    has_guest_spec_ctrl: bool,
    blocking: Blocking,
    before_step: BeforeStep,
}

impl Vcpu {
    /// Empties the control block but for what every guest has. The first entry afterwards takes
    /// nothing from caches: neither fields of the control block ([`Self::prepare_entry`]) nor
    /// translations, which VMRUN does not flush by itself although it loads all of paging (15.16).
    fn reset(&mut self, domain: &Domain) {
        self.registers = [0; 16];
        self.vmcb.clear();
        self.blocking = Blocking::Open;
        let asids = __cpuid(cpuid::SVM).ebx.max(3);
        let vmcb = &mut *self.vmcb;
        vmcb.intercept_1 = vmcb::INTERCEPT_NMI
            | vmcb::INTERCEPT_INVD
            | vmcb::INTERCEPT_INVLPGA
            | vmcb::INTERCEPT_PORTS
            | vmcb::INTERCEPT_MSRS
            | vmcb::INTERCEPT_SHUTDOWN;
        vmcb.intercept_2 = vmcb::INTERCEPT_SVM;
        vmcb.asid = ROOT_ASID;
        if let Some(cell) = domain.cell {
            // The delivery of these two may raise them again, without end and deaf to interrupts
            // (AMD APM vol. 2, 15.12.2 and 15.12.18).
            vmcb.intercept_exceptions = vmcb::INTERCEPT_DEBUG | vmcb::INTERCEPT_ALIGNMENT_CHECK;
            vmcb.intercept_1 |= vmcb::INTERCEPT_CPUID;
            // Others would wait for caches that are written back.
            vmcb.intercept_2 |=
                vmcb::INTERCEPT_MONITOR | vmcb::INTERCEPT_XSETBV | vmcb::INTERCEPT_WBINVD;
            // One cell at a time has a CPU, and translations are flushed when it starts there, so
            // cells may share an identifier on processors that have few. The last one is the number
            // of identifiers less one, and 0 is the host's (15.5.1 and 15.16).
            vmcb.asid = ROOT_ASID + 1 + cell.get() as u32 % (asids - 2);
        }
        if self.has_virtual_nmi {
            vmcb.virtual_interrupt = vmcb::VIRTUAL_NMI_ENABLE;
        }
        vmcb.port_bitmap = domain.port_bitmap.get();
        vmcb.msr_bitmap = domain.msr_bitmap.get();
        vmcb.tlb_control = vmcb::TLB_FLUSH_ALL;
        vmcb.nested_control = vmcb::NESTED_PAGING;
        vmcb.nested_cr3 = domain.nested_top.get();
        vmcb.dr6 = DR6_RESET;
        vmcb.dr7 = DR7_RESET;
        vmcb.rflags = RFLAGS_RESET;
        vmcb.pat = pat::RESET;
        vmcb.efer = EFER_SVME;
    }

    /// Loads FS, GS, TR, LDTR and the registers of system calls from the control block (15.5.2),
    /// clears debug addresses. No breakpoint is on in host mode (15.6).
    ///
    /// # Safety
    /// In host mode with SVM on; nobody needs what was there before.
    unsafe fn load_hidden_state(&mut self) {
        // SAFETY: The host uses none of what is loaded, and the caller has no use for it either.
        unsafe {
            asm!("vmload rax", in("rax") self.vmcb.address().get(), options(nostack));
            asm!(
                "mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}",
                in(reg) 0u64, options(nostack)
            );
        }
    }

    /// Bytes of the instruction that `exit` belongs to, where the processor does not tell.
    fn length(exit: Exit) -> u64 {
        match exit {
            Exit::Hypercall | Exit::Xsetbv => 3,
            _ => 2,
        }
    }
}

/// Bits of EFER that this processor has, but for LMSLE. VMRUN fails with any other.
fn supported_efer() -> u64 {
    let features = __cpuid(cpuid::AMD_FEATURES);
    let extended = __cpuid(cpuid::AMD_EXTENDED).ebx;
    let more = if __cpuid(cpuid::EXTENDED).eax >= cpuid::AMD_EXTENDED_2 {
        __cpuid(cpuid::AMD_EXTENDED_2).eax
    } else {
        0
    };
    // Feature word, its bit, bit of EFER.
    let optional = [
        (features.edx, cpuid::EDX_NX, EferFlags::NO_EXECUTE_ENABLE.bits()),
        (features.edx, cpuid::EDX_FFXSR, EferFlags::FAST_FXSAVE_FXRSTOR.bits()),
        (features.ecx, cpuid::ECX_TCE, EferFlags::TRANSLATION_CACHE_EXTENSION.bits()),
        (extended, cpuid::EBX_MCOMMIT, efer::MCOMMIT),
        (extended, cpuid::EBX_INTERRUPTIBLE_WBINVD, efer::INTERRUPTIBLE_WBINVD),
        (more, cpuid::EAX_UPPER_ADDRESS_IGNORE, efer::UPPER_ADDRESS_IGNORE),
        (more, cpuid::EAX_AUTOMATIC_IBRS, efer::AUTOMATIC_IBRS),
    ];
    let always = EferFlags::SYSTEM_CALL_EXTENSIONS.bits() | EFER_LME | EFER_LMA | EFER_SVME;
    optional
        .into_iter()
        .filter(|(word, bit, _)| word & 1 << bit != 0)
        .fold(always, |efer, (.., bit)| efer | bit)
}

/// The segment that `selector` names in the descriptor table at `table`.
///
/// # Safety
/// The selector is loaded from this table.
unsafe fn segment(selector: u16, table: u64) -> Segment {
    if selector & !3 == 0 {
        return Segment::new(selector, 0, 0, 0);
    }
    // SAFETY: The processor has loaded the descriptor from there.
    let descriptor = unsafe { ((table + u64::from(selector & !7)) as *const u64).read_unaligned() };
    let limit = (descriptor & 0xffff | descriptor >> 32 & 0xf_0000) as u32;
    let pages = descriptor & 1 << 55 != 0;
    Segment {
        selector,
        attributes: (descriptor >> 40 & 0xff | descriptor >> 44 & 0xf00) as u16,
        limit: if pages { limit << 12 | 0xfff } else { limit },
        base: descriptor >> 16 & 0xff_ffff | descriptor >> 32 & 0xff00_0000,
    }
}

impl VirtualCpu for Vcpu {
    type NestedFormat = Npt;

    fn check() -> Result<(), LaunchError> {
        let leaf = |number| {
            let CpuidResult { eax, ecx, edx, .. } = __cpuid(number);
            Leaf { eax, ecx, edx }
        };
        // SAFETY: The processor has each register that is asked for, and reading has no effect.
        requirements::check(leaf, |register| unsafe { common::read(register) })
    }

    #[expect(private_interfaces, reason = "made at launch only")]
    fn new(frames: &mut Frames) -> Option<Self> {
        Some(Self {
            registers: [0; 16],
            vmcb: frames.take()?,
            host_save_area: frames.take()?,
            next_rip_saved: false,
            has_virtual_nmi: false,
            has_guest_spec_ctrl: false,
            blocking: Blocking::Open,
            before_step: BeforeStep::default(),
        })
    }

    unsafe fn enable(&mut self) {
        let features = __cpuid(cpuid::SVM).edx;
        self.next_rip_saved = features & 1 << cpuid::EDX_NEXT_RIP != 0;
        self.has_virtual_nmi = features & 1 << cpuid::EDX_VIRTUAL_NMI != 0;
        self.has_guest_spec_ctrl = features & 1 << cpuid::EDX_GUEST_SPEC_CTRL != 0;
        // SAFETY: `check` has found SVM, and firmware has not disabled it; the page is this CPU's
        // and stays.
        unsafe {
            common::set_efer(common::efer() | EFER_SVME);
            registers::set_host_save_area(self.host_save_area.address());
        }
        if features & 1 << cpuid::EDX_TSC_RATIO != 0 {
            // Whoever used SVM before may have left another one. It holds in guests only, so Linux
            // has not seen it.
            // SAFETY: The processor has the register, and the host's clock does not follow it.
            unsafe { common::write(msr::TSC_RATIO, msr::TSC_RATIO_ONE) };
        }
    }

    unsafe fn capture(&mut self, domain: &Domain, resume: &Resume) {
        self.reset(domain);
        let (gdt, idt) = (sgdt(), sidt());
        let table = gdt.base.as_u64();
        // SAFETY: The selectors are loaded from the table that is loaded.
        let [cs, ss, ds, es] =
            processor::selectors().map(|selector| unsafe { segment(selector, table) });
        let (dr6, dr7): (u64, u64);
        // SAFETY: Reads registers only.
        unsafe {
            asm!("mov {}, dr6", "mov {}, dr7", out(reg) dr6, out(reg) dr7, options(nostack));
        }
        let s_cet = match resume.cr4 & CR4_CET {
            0 => 0,
            // SAFETY: Linux has control-flow enforcement on, so the processor has it.
            _ => unsafe { common::s_cet() },
        };
        let vmcb = &mut *self.vmcb;
        (vmcb.cs, vmcb.ss, vmcb.ds, vmcb.es) = (cs, ss, ds, es);
        vmcb.gdtr = Segment::new(0, 0, gdt.limit.into(), table);
        vmcb.idtr = Segment::new(0, 0, idt.limit.into(), idt.base.as_u64());
        vmcb.cr0 = Cr0::read_raw();
        vmcb.cr2 = Cr2::read_raw();
        vmcb.cr3 = resume.cr3;
        vmcb.cr4 = resume.cr4;
        vmcb.efer = common::efer();
        vmcb.pat = common::pat();
        vmcb.s_cet = s_cet;
        if self.has_guest_spec_ctrl {
            // What the host has as well holds in the guest whatever that writes (15.37.1), so it
            // becomes the guest's alone.
            // SAFETY: The processor has the register, and the hypervisor needs none of its bits.
            unsafe {
                vmcb.spec_ctrl = common::read(msr::SPEC_CTRL);
                common::write(msr::SPEC_CTRL, 0);
            }
        }
        (vmcb.dr6, vmcb.dr7) = (dr6, dr7);
        vmcb.rflags = rflags::read_raw() & !RFlags::INTERRUPT_FLAG.bits();
        (vmcb.rip, vmcb.rsp) = (resume.rip, resume.rsp);
        self.registers[RSP] = resume.rsp;
    }

    unsafe fn run<R: Runner>(this: *mut R) -> ! {
        // SAFETY: The caller's duty is the same: enabled means that SVM is on.
        unsafe { run::run(this) }
    }

    unsafe fn leave(&mut self, host_cr3: PhysAddr, trampoline: u64) -> ! {
        let vmcb = &*self.vmcb;
        let (pat, s_cet) = (vmcb.pat, vmcb.s_cet);
        // SAFETY: The values are those that the guest ran with, and the guest has CET if it has it
        // on, which the host has not; VMRUN is not executed any more on this CPU.
        unsafe {
            common::set_pat(pat);
            if vmcb.cr4 & CR4_CET != 0 {
                common::set_s_cet(s_cet);
            }
            if self.has_guest_spec_ctrl {
                common::write(msr::SPEC_CTRL, vmcb.spec_ctrl);
            }
            registers::set_host_save_area(PhysAddr::new(0));
        }
        let descriptor =
            |segment: &Segment| run::Descriptor { limit: segment.limit as u16, base: segment.base };
        let leave = run::Leave {
            gdt: descriptor(&vmcb.gdtr),
            idt: descriptor(&vmcb.idtr),
            host_cr3: host_cr3.get(),
            trampoline,
            cr0: vmcb.cr0,
            cr2: vmcb.cr2,
            dr6: vmcb.dr6,
            dr7: vmcb.dr7,
            efer: vmcb.efer & !EFER_SVME,
            cr3: vmcb.cr3,
            cr4: vmcb.cr4,
            rsp: vmcb.rsp,
            rip: vmcb.rip,
        };
        // SAFETY: This is the state of the guest that was left a moment ago on this CPU.
        unsafe { run::leave(&leave) }
    }

    unsafe fn start_up(&mut self, domain: &Domain, page: u8) {
        self.reset(domain);
        let data = Segment::new(0, 0x93, 0xffff, 0);
        let vmcb = &mut *self.vmcb;
        vmcb.cs = Segment::new(u16::from(page) << 8, 0x9b, 0xffff, u64::from(page) << 12);
        (vmcb.ss, vmcb.ds, vmcb.es, vmcb.fs, vmcb.gs) = (data, data, data, data, data);
        vmcb.tr = Segment::new(0, 0x8b, 0xffff, 0);
        vmcb.ldtr = Segment::new(0, 0x82, 0xffff, 0);
        vmcb.gdtr.limit = 0xffff;
        vmcb.idtr.limit = 0xffff;
        // Caches as they are.
        vmcb.cr0 = Cr0Flags::EXTENSION_TYPE.bits();
        // RDX after a reset: the processor's signature.
        self.registers[RDX] = __cpuid(cpuid::FEATURES).eax.into();
        // SAFETY: The old owner of the CPU is gone.
        unsafe { self.load_hidden_state() };
    }

    unsafe fn start_cell(&mut self, domain: &Domain, start: &CellStart) {
        self.reset(domain);
        let data = Segment::new(0x10, 0xc93, 0xffff_ffff, 0);
        let vmcb = &mut *self.vmcb;
        vmcb.cs = Segment::new(0x8, 0xa9b, 0xffff_ffff, 0);
        (vmcb.ss, vmcb.ds, vmcb.es, vmcb.fs, vmcb.gs) = (data, data, data, data, data);
        vmcb.tr = Segment::new(0x18, 0x8b, 0xffff, 0);
        vmcb.ldtr = Segment::new(0, 0x82, 0xffff, 0);
        vmcb.cr0 = (Cr0Flags::PROTECTED_MODE_ENABLE
            | Cr0Flags::EXTENSION_TYPE
            | Cr0Flags::NUMERIC_ERROR
            | Cr0Flags::WRITE_PROTECT
            | Cr0Flags::PAGING)
            .bits();
        vmcb.cr4 = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION.bits();
        vmcb.cr3 = start.start.page_table.get();
        vmcb.efer = EFER_CELL | EFER_SVME;
        vmcb.rip = start.start.entry;
        self.registers[RDI] = start.start.argument;
        self.registers[RSI] = start.index;
        // SAFETY: The old owner of the CPU is gone.
        unsafe { self.load_hidden_state() };
    }

    fn exit(&mut self) -> Exit {
        let vmcb = &mut *self.vmcb;
        let (rax, rsp) = (vmcb.rax, vmcb.rsp);
        // VMRUN reads the command, and leaves it there (15.16.1).
        vmcb.tlb_control = 0;
        const BREAKPOINT: u64 = exception::BREAKPOINT as u64;
        const OVERFLOW: u64 = exception::OVERFLOW as u64;
        // Delivered again at the next entry, as 15.7.2 asks for. QEMU calls an external interrupt
        // an exception. Software interrupts happen again by themselves: RIP is that of the
        // instruction.
        let interrupted = vmcb.exit_interrupt_info;
        let vector = interrupted & 0xff;
        vmcb.event_injection = match interrupted & vmcb::EVENT_TYPE {
            _ if interrupted & vmcb::EVENT_VALID == 0 => 0,
            vmcb::EVENT_SOFTWARE => 0,
            vmcb::EVENT_EXCEPTION if vector == BREAKPOINT || vector == OVERFLOW => 0,
            vmcb::EVENT_EXCEPTION if vector >= u64::from(exception::COUNT) => {
                vector | vmcb::EVENT_INTERRUPT | vmcb::EVENT_VALID
            }
            _ => interrupted,
        };
        let (code, info_1, info_2) = (vmcb.exit_code, vmcb.exit_info_1, vmcb.exit_info_2);
        self.registers[RAX] = rax;
        self.registers[RSP] = rsp;
        if self.blocking != Blocking::Open && self.follow_nmi() {
            return Exit::NmiReturn;
        }
        let msr = self.registers[RCX] as u32;
        let value = rax & 0xffff_ffff | self.registers[RDX] << 32;
        match code {
            vmcb::EXIT_NMI => Exit::Nmi,
            vmcb::EXIT_DEBUG => Exit::Debug,
            vmcb::EXIT_ALIGNMENT_CHECK => Exit::AlignmentCheck,
            vmcb::EXIT_CPUID => Exit::Cpuid,
            vmcb::EXIT_INVD | vmcb::EXIT_WBINVD => Exit::Invd,
            vmcb::EXIT_PORT => Exit::Port((info_1 >> 16) as u16),
            vmcb::EXIT_MSR if info_1 & vmcb::MSR_IS_WRITE != 0 => Exit::MsrWrite(msr, value),
            vmcb::EXIT_MSR => Exit::MsrRead(msr),
            vmcb::EXIT_SHUTDOWN => Exit::Shutdown,
            vmcb::EXIT_VMMCALL => Exit::Hypercall,
            vmcb::EXIT_XSETBV => Exit::Xsetbv,
            vmcb::EXIT_NESTED_FAULT => Exit::NestedFault {
                address: GuestAddr::new(info_2),
                write: info_1 & vmcb::FAULT_IS_WRITE != 0,
                walk: info_1 & vmcb::FAULT_IS_WALK != 0,
            },
            vmcb::EXIT_INVLPGA
            | vmcb::EXIT_VMRUN..=vmcb::EXIT_SKINIT
            | vmcb::EXIT_MONITOR..=vmcb::EXIT_MWAIT_ARMED => Exit::Hidden,
            _ => Exit::Other,
        }
    }

    fn prepare_entry(&mut self) {
        let (rax, rsp) = (self.registers[RAX], self.registers[RSP]);
        let vmcb = &mut *self.vmcb;
        (vmcb.rax, vmcb.rsp) = (rax, rsp);
        // Nothing of the control block may be cached from the last entry (15.15.1): so whatever is
        // changed in it, or in the bitmaps that it names, counts from this entry on.
        vmcb.clean = 0;
    }

    fn registers(&mut self) -> &mut Registers {
        &mut self.registers
    }

    fn rip(&self) -> u64 {
        self.vmcb.rip
    }

    fn set_status_flags(&mut self, flags: u64) {
        let status = decode::flags::STATUS;
        self.vmcb.rflags = self.vmcb.rflags & !status | flags & status;
    }

    fn skip(&mut self, length: u64) {
        let vmcb = &mut *self.vmcb;
        vmcb.rip = vmcb.rip.wrapping_add(length);
        // The shadow of the instruction before ends with this one (15.21.5).
        vmcb.interrupt_shadow &= !vmcb::INTERRUPT_SHADOW;
    }

    fn port_access(&self) -> PortAccess {
        let info = self.vmcb.exit_info_1;
        let width = match info {
            _ if info & vmcb::PORT_BYTE != 0 => 1,
            _ if info & vmcb::PORT_WORD != 0 => 2,
            _ => 4,
        };
        let is_string = info & vmcb::PORT_IS_STRING != 0;
        let writes = info & vmcb::PORT_IS_READ == 0 && !is_string;
        let written = writes.then(|| self.registers[RAX] as u32);
        PortAccess { access: Access { first: (info >> 16) as u16, width, written }, is_string }
    }

    fn set_port_value(&mut self, value: u32) {
        let width = self.port_access().access.width;
        let rax = &mut self.registers[RAX];
        *rax = match width {
            1 => *rax & !0xff | u64::from(value & 0xff),
            2 => *rax & !0xffff | u64::from(value & 0xffff),
            _ => value.into(),
        };
    }

    fn skip_exit(&mut self, exit: Exit) {
        let vmcb = &*self.vmcb;
        // It is 0 where the exit is not that of an instruction (15.7.1).
        match vmcb.next_rip {
            // The processor tells always.
            _ if matches!(exit, Exit::Port(_)) => {
                self.skip(vmcb.exit_info_2.wrapping_sub(vmcb.rip));
            }
            next if self.next_rip_saved && next != 0 => self.skip(next.wrapping_sub(vmcb.rip)),
            _ => self.skip(Self::length(exit)),
        }
    }

    fn privilege(&self) -> u8 {
        self.vmcb.cpl
    }

    fn interrupts_on(&self) -> bool {
        self.vmcb.rflags & RFlags::INTERRUPT_FLAG.bits() != 0
    }

    fn paging(&self) -> Paging {
        let vmcb = &*self.vmcb;
        let long = vmcb.cr0 & CR0_PAGING != 0
            && vmcb.efer & EFER_LMA != 0
            && vmcb.cs.attributes & vmcb::ATTRIBUTE_LONG != 0;
        Paging { cr3: vmcb.cr3, cr4: vmcb.cr4, long }
    }

    fn segment_bases(&self) -> SegmentBases {
        SegmentBases { fs: common::fs_base(), gs: common::gs_base() }
    }

    fn exit_words(&self) -> (u64, u64) {
        (self.vmcb.exit_code, self.vmcb.exit_info_1)
    }

    fn inject_nmi(&mut self) -> NmiOutcome {
        self.give_nmi()
    }

    fn inject(&mut self, event: Event) {
        self.end_step();
        let raise = |vector: u8| u64::from(vector) | vmcb::EVENT_EXCEPTION | vmcb::EVENT_VALID;
        let vmcb = &mut *self.vmcb;
        vmcb.event_injection = match event {
            Event::Debug => raise(exception::DEBUG),
            Event::InvalidOpcode => raise(exception::INVALID_OPCODE),
            Event::GeneralProtection => {
                raise(exception::GENERAL_PROTECTION) | vmcb::EVENT_ERROR_CODE
            }
            Event::AlignmentCheck => raise(exception::ALIGNMENT_CHECK) | vmcb::EVENT_ERROR_CODE,
            Event::PageFault { address, write } => {
                vmcb.cr2 = address;
                raise(exception::PAGE_FAULT)
                    | vmcb::EVENT_ERROR_CODE
                    | if write { vmcb::EVENT_FAULT_IS_WRITE } else { 0 }
            }
        };
    }

    fn flush(&mut self) {
        // Asked for whenever nested tables allow less than before (15.16.1).
        self.vmcb.tlb_control = vmcb::TLB_FLUSH_ALL;
    }

    fn write_msr(&mut self, number: u32, value: u64) -> MsrOutcome {
        let vmcb = &mut *self.vmcb;
        match number {
            msr::EFER => {
                let paging = vmcb.cr0 & CR0_PAGING != 0;
                if value & !supported_efer() != 0 || paging && (value ^ vmcb.efer) & EFER_LME != 0 {
                    return MsrOutcome::Fault;
                }
                // LMA is the processor's: it follows LME and paging.
                vmcb.efer = value & !EFER_LMA | vmcb.efer & EFER_LMA | EFER_SVME;
                // Translations depend on NXE, LME and LMA (15.16).
                vmcb.tlb_control = vmcb::TLB_FLUSH_ALL;
            }
            msr::PAT if !pat::is_valid(value) => return MsrOutcome::Fault,
            // Whoever changes it flushes translations by himself, as on a bare machine; what he
            // executes for that does not exit.
            msr::PAT => vmcb.pat = value,
            _ => return MsrOutcome::Fault,
        }
        MsrOutcome::Done
    }

    fn efer(&self) -> u64 {
        self.vmcb.efer & !EFER_SVME
    }

    unsafe fn block_interrupts() {
        // What comes is held back until a window or VMRUN sets the flag again (15.17).
        // SAFETY: SVM is on, so that the instruction exists.
        unsafe { asm!("clgi", options(nostack)) }
    }

    unsafe fn nmi_window() {
        // SAFETY: The host's own handler takes the NMI; interrupts stay off.
        unsafe { asm!("stgi", "nop", "clgi", options(nostack)) }
    }

    unsafe fn wait_for_nmi() {
        // SAFETY: The host's own handler takes the NMI, and skips the halt if it comes right
        // before.
        unsafe { run::wait_for_nmi() }
    }

    unsafe fn interrupt_window() {
        // SAFETY: The host's own handlers take what comes.
        unsafe { asm!("stgi", "sti", "nop", "nop", "cli", "clgi", options(nostack)) }
    }
}
