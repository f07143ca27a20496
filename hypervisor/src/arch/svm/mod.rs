// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD's Secure Virtual Machine (AMD APM vol. 2, chapter 15), with nested paging.
//!
//! Interrupts are not intercepted: they reach the guest directly. NMIs are, because the hypervisor calls its
//! CPUs by them. INIT cannot be intercepted usefully; INIT and start-up IPIs are emulated where the
//! interrupt command is written. FS, GS, TR, LDTR and the registers of system calls stay in the processor over an exit.
//!
//! NMIs of a guest are injected without looking whether it handles one already; Linux tolerates nested NMIs.

use core::arch::{asm, x86_64::__cpuid};

use crtos_abi::cell::{MSR_READ, MSR_WRITE};
use crtos_abi::image::{
    LAUNCH_DISABLED_BY_FIRMWARE, LAUNCH_IN_USE, LAUNCH_NO_NESTED_PAGING, LAUNCH_NO_VIRTUALIZATION,
};
use crtos_partition::decode::{Registers, SegmentBases};
use crtos_partition::nested::Npt;
use x86_64::instructions::tables::{sgdt, sidt};
use x86_64::registers::control::{Cr0, Cr2};

use super::{CellStart, Domain, Event, Exit, MsrOutcome, Paging, Resume, VirtualCpu};
use crate::host::{self, read_msr, write_msr};
use crate::local::Local;
use crate::memory::{self, Memory};
use vmcb::{Segment, Vmcb};

mod run;
mod vmcb;

const MSR_PAT: u32 = 0x277;
const MSR_S_CET: u32 = 0x6a2;
const MSR_EFER: u32 = 0xc000_0080;
const MSR_FS_BASE: u32 = 0xc000_0100;
const MSR_GS_BASE: u32 = 0xc000_0101;
const MSR_SYSCFG: u32 = 0xc001_0010;
const MSR_VM_CR: u32 = 0xc001_0114;
const MSR_VM_HSAVE_PA: u32 = 0xc001_0117;

const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
const EFER_SVME: u64 = 1 << 12;
/// SCE, LME, LMA, NXE.
const EFER_CELL: u64 = 1 | EFER_LME | EFER_LMA | 1 << 11;
const VM_CR_SVM_DISABLED: u64 = 1 << 4;

const CR0_PG: u64 = 1 << 31;
const CR4_CET: u64 = 1 << 23;
const RFLAGS_IF: u64 = 1 << 9;
/// Bit 1 is always set.
const RFLAGS_RESET: u64 = 1 << 1;
const DR6_RESET: u64 = 0xffff_0ff0;
const DR7_RESET: u64 = 0x400;
const PAT_RESET: u64 = 0x0007_0406_0007_0406;

const ROOT_ASID: u32 = 1;

/// A virtual CPU: general registers beside the control block, which holds the rest.
#[repr(C)]
pub struct Vcpu {
    /// RAX and RSP are copies of those in the control block between an exit and the next entry.
    registers: Registers,
    /// Physical address of the control block, which is also its address here.
    vmcb: u64,
    host_save_area: u64,
    next_rip_saved: bool,
}

impl Vcpu {
    fn vmcb(&self) -> &Vmcb {
        // SAFETY: `new` took the page for this control block alone; the processor writes it only while the guest runs.
        unsafe { &*memory::pointer(self.vmcb) }
    }

    fn vmcb_mut(&mut self) -> &mut Vmcb {
        // SAFETY: As above; `&mut self` makes it the only reference.
        unsafe { &mut *memory::pointer(self.vmcb) }
    }

    /// An empty control block with what every guest has.
    fn reset(&mut self, domain: &Domain) {
        self.registers = [0; 16];
        memory::clear(self.vmcb, size_of::<Vmcb>() as u64);
        let asids = __cpuid(0x8000_000a).ebx.max(3);
        let vmcb = self.vmcb_mut();
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
            vmcb.intercept_2 |= vmcb::INTERCEPT_MONITOR | vmcb::INTERCEPT_XSETBV;
            // One cell at a time has a CPU, and translations are flushed when it starts there, so
            // cells may share an identifier on processors that have few.
            vmcb.asid = ROOT_ASID + 1 + cell as u32 % (asids - 2);
        }
        vmcb.port_bitmap = domain.port_bitmap;
        vmcb.msr_bitmap = domain.msr_bitmap;
        vmcb.tlb_control = vmcb::TLB_FLUSH_ALL;
        vmcb.nested_control = 1;
        vmcb.nested_cr3 = domain.nested_top;
        vmcb.dr6 = DR6_RESET;
        vmcb.dr7 = DR7_RESET;
        vmcb.rflags = RFLAGS_RESET;
        vmcb.pat = PAT_RESET;
        vmcb.efer = EFER_SVME;
    }

    /// Loads FS, GS, TR, LDTR and the registers of system calls from the control block, clears debug addresses.
    fn load_hidden_state(&mut self) {
        // SAFETY: The host uses none of what is loaded; the old owner of the CPU is gone.
        unsafe {
            asm!("vmload rax", in("rax") self.vmcb, options(nostack));
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
    let features = __cpuid(0x8000_0001);
    let extended = __cpuid(0x8000_0008).ebx;
    let more = if __cpuid(0x8000_0000).eax >= 0x8000_0021 { __cpuid(0x8000_0021).eax } else { 0 };
    // NXE, FFXSR, TCE, MCOMMIT, INTWB, UAIE, AIBRSE: feature word, its bit, bit of EFER.
    let optional = [
        (features.edx, 20, 11),
        (features.edx, 25, 14),
        (features.ecx, 17, 15),
        (extended, 8, 17),
        (extended, 13, 18),
        (more, 7, 20),
        (more, 8, 21),
    ];
    optional
        .into_iter()
        .filter(|(word, bit, _)| word & 1 << bit != 0)
        .fold(1 | EFER_LME | EFER_LMA | EFER_SVME, |efer, (.., bit)| efer | 1 << bit)
}

/// Is each of the eight memory types one that exists? VMRUN fails with any other.
fn valid_pat(value: u64) -> bool {
    value.to_le_bytes().iter().all(|memory_type| matches!(memory_type, 0 | 1 | 4..=7))
}

/// The segment that `selector` names in the descriptor table at `table`.
fn segment(selector: u16, table: u64) -> Segment {
    if selector & !3 == 0 {
        return Segment::new(selector, 0, 0, 0);
    }
    // SAFETY: The selector is loaded, so its descriptor lies in the loaded table.
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

    const ROOT_MSRS: &'static [(u32, u32)] = &[
        (MSR_EFER, MSR_WRITE),
        (MSR_PAT, MSR_WRITE),
        (MSR_SYSCFG, MSR_WRITE),
        (MSR_VM_CR, MSR_WRITE),
        (MSR_VM_HSAVE_PA, MSR_READ | MSR_WRITE),
    ];

    fn check() -> Result<(), i64> {
        let extended = __cpuid(0x8000_0000).eax;
        if extended < 0x8000_000a || __cpuid(0x8000_0001).ecx & 1 << 2 == 0 {
            return Err(LAUNCH_NO_VIRTUALIZATION);
        }
        if read_msr(MSR_EFER) & EFER_SVME != 0 {
            return Err(LAUNCH_IN_USE);
        }
        if read_msr(MSR_VM_CR) & VM_CR_SVM_DISABLED != 0 {
            return Err(LAUNCH_DISABLED_BY_FIRMWARE);
        }
        let gigabyte_pages = __cpuid(0x8000_0001).edx & 1 << 26 != 0;
        if __cpuid(0x8000_000a).edx & 1 == 0 || !gigabyte_pages {
            return Err(LAUNCH_NO_NESTED_PAGING);
        }
        Ok(())
    }

    fn new(memory: &mut Memory) -> Option<Self> {
        Some(Self {
            registers: [0; 16],
            vmcb: memory.allocate(1, 1)?,
            host_save_area: memory.allocate(1, 1)?,
            next_rip_saved: false,
        })
    }

    fn enable(&mut self) {
        self.next_rip_saved = __cpuid(0x8000_000a).edx & 1 << 3 != 0;
        write_msr(MSR_EFER, read_msr(MSR_EFER) | EFER_SVME);
        write_msr(MSR_VM_HSAVE_PA, self.host_save_area);
    }

    fn capture(&mut self, domain: &Domain, resume: &Resume) {
        self.reset(domain);
        let (gdt, idt) = (sgdt(), sidt());
        let table = gdt.base.as_u64();
        let [cs, ss, ds, es] = host::selectors().map(|selector| segment(selector, table));
        let rflags: u64;
        let (dr6, dr7): (u64, u64);
        // SAFETY: Reads registers only.
        unsafe {
            asm!("pushfq", "pop {}", out(reg) rflags);
            asm!("mov {}, dr6", "mov {}, dr7", out(reg) dr6, out(reg) dr7, options(nostack));
        }
        let efer = read_msr(MSR_EFER);
        let pat = read_msr(MSR_PAT);
        let s_cet = if resume.cr4 & CR4_CET != 0 { read_msr(MSR_S_CET) } else { 0 };
        let vmcb = self.vmcb_mut();
        (vmcb.cs, vmcb.ss, vmcb.ds, vmcb.es) = (cs, ss, ds, es);
        vmcb.gdtr = Segment::new(0, 0, gdt.limit.into(), table);
        vmcb.idtr = Segment::new(0, 0, idt.limit.into(), idt.base.as_u64());
        vmcb.cr0 = Cr0::read_raw();
        vmcb.cr2 = Cr2::read_raw();
        vmcb.cr3 = resume.cr3;
        vmcb.cr4 = resume.cr4;
        vmcb.efer = efer;
        vmcb.pat = pat;
        vmcb.s_cet = s_cet;
        (vmcb.dr6, vmcb.dr7) = (dr6, dr7);
        vmcb.rflags = rflags & !RFLAGS_IF;
        (vmcb.rip, vmcb.rsp) = (resume.rip, resume.rsp);
        self.registers[RSP] = resume.rsp;
    }

    unsafe fn run(local: *mut Local) -> ! {
        // SAFETY: As the caller says.
        unsafe { run::run(local) }
    }

    unsafe fn leave(&mut self, host_cr3: u64, trampoline: u64) -> ! {
        let vmcb = self.vmcb();
        let (pat, s_cet) = (vmcb.pat, vmcb.s_cet);
        write_msr(MSR_PAT, pat);
        if vmcb.cr4 & CR4_CET != 0 {
            write_msr(MSR_S_CET, s_cet);
        }
        write_msr(MSR_VM_HSAVE_PA, 0);
        let descriptor =
            |segment: &Segment| run::Descriptor { limit: segment.limit as u16, base: segment.base };
        let leave = run::Leave {
            gdt: descriptor(&vmcb.gdtr),
            idt: descriptor(&vmcb.idtr),
            host_cr3,
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

    fn start_up(&mut self, domain: &Domain, page: u8) {
        self.reset(domain);
        let data = Segment::new(0, 0x93, 0xffff, 0);
        let vmcb = self.vmcb_mut();
        vmcb.cs = Segment::new(u16::from(page) << 8, 0x9b, 0xffff, u64::from(page) << 12);
        (vmcb.ss, vmcb.ds, vmcb.es, vmcb.fs, vmcb.gs) = (data, data, data, data, data);
        vmcb.tr = Segment::new(0, 0x8b, 0xffff, 0);
        vmcb.ldtr = Segment::new(0, 0x82, 0xffff, 0);
        vmcb.gdtr.limit = 0xffff;
        vmcb.idtr.limit = 0xffff;
        // CR0.ET; caches as they are.
        vmcb.cr0 = 1 << 4;
        // RDX after a reset: the processor's signature.
        self.registers[2] = __cpuid(1).eax.into();
        self.load_hidden_state();
    }

    fn start_cell(&mut self, domain: &Domain, start: &CellStart) {
        self.reset(domain);
        let data = Segment::new(0x10, 0xc93, 0xffff_ffff, 0);
        let vmcb = self.vmcb_mut();
        vmcb.cs = Segment::new(0x8, 0xa9b, 0xffff_ffff, 0);
        (vmcb.ss, vmcb.ds, vmcb.es, vmcb.fs, vmcb.gs) = (data, data, data, data, data);
        vmcb.tr = Segment::new(0x18, 0x8b, 0xffff, 0);
        vmcb.ldtr = Segment::new(0, 0x82, 0xffff, 0);
        // PE, ET, NE, WP, PG; PAE.
        vmcb.cr0 = 1 | 1 << 4 | 1 << 5 | 1 << 16 | CR0_PG;
        vmcb.cr4 = 1 << 5;
        vmcb.cr3 = start.page_table;
        vmcb.efer = EFER_CELL | EFER_SVME;
        vmcb.rip = start.entry;
        self.registers[7] = start.argument;
        self.registers[6] = start.index;
        self.load_hidden_state();
    }

    fn exit(&mut self) -> Exit {
        let vmcb = self.vmcb_mut();
        let (rax, rsp) = (vmcb.rax, vmcb.rsp);
        vmcb.tlb_control = 0;
        // QEMU calls an external interrupt an exception. Software interrupts happen again by themselves.
        let interrupted = vmcb.exit_interrupt_info;
        let vector = interrupted & 0xff;
        vmcb.event_injection = match interrupted & vmcb::EVENT_TYPE {
            _ if interrupted & vmcb::EVENT_VALID == 0 => 0,
            vmcb::EVENT_SOFTWARE => 0,
            vmcb::EVENT_EXCEPTION if vector == 3 || vector == 4 => 0,
            vmcb::EVENT_EXCEPTION if vector >= 32 => {
                vector | vmcb::EVENT_INTERRUPT | vmcb::EVENT_VALID
            }
            _ => interrupted,
        };
        let (code, info_1, info_2) = (vmcb.exit_code, vmcb.exit_info_1, vmcb.exit_info_2);
        self.registers[RAX] = rax;
        self.registers[RSP] = rsp;
        let msr = self.registers[1] as u32;
        let value = rax & 0xffff_ffff | self.registers[2] << 32;
        match code {
            vmcb::EXIT_NMI => Exit::Nmi,
            vmcb::EXIT_DEBUG => Exit::Debug,
            vmcb::EXIT_ALIGNMENT_CHECK => Exit::AlignmentCheck,
            vmcb::EXIT_CPUID => Exit::Cpuid,
            vmcb::EXIT_INVD => Exit::Invd,
            vmcb::EXIT_PORT => Exit::Port((info_1 >> 16) as u16),
            vmcb::EXIT_MSR if info_1 & 1 != 0 => Exit::MsrWrite(msr, value),
            vmcb::EXIT_MSR => Exit::MsrRead(msr),
            vmcb::EXIT_SHUTDOWN => Exit::Shutdown,
            vmcb::EXIT_VMMCALL => Exit::Hypercall,
            vmcb::EXIT_XSETBV => Exit::Xsetbv,
            vmcb::EXIT_NESTED_FAULT => {
                Exit::NestedFault { address: info_2, write: info_1 & 2 != 0 }
            }
            vmcb::EXIT_INVLPGA
            | vmcb::EXIT_VMRUN..=vmcb::EXIT_SKINIT
            | vmcb::EXIT_MONITOR..=vmcb::EXIT_MWAIT_ARMED => Exit::Hidden,
            _ => Exit::Other,
        }
    }

    fn prepare_entry(&mut self) {
        let (rax, rsp) = (self.registers[RAX], self.registers[RSP]);
        let vmcb = self.vmcb_mut();
        (vmcb.rax, vmcb.rsp) = (rax, rsp);
        // Nothing of the control block may be cached from the last entry.
        vmcb.clean = 0;
    }

    fn registers(&mut self) -> &mut Registers {
        &mut self.registers
    }

    fn rip(&self) -> u64 {
        self.vmcb().rip
    }

    fn skip(&mut self, length: u64) {
        let vmcb = self.vmcb_mut();
        vmcb.rip = vmcb.rip.wrapping_add(length);
        vmcb.interrupt_shadow &= !1;
    }

    fn skip_exit(&mut self, exit: Exit) {
        let vmcb = self.vmcb();
        match vmcb.next_rip {
            next if self.next_rip_saved && next != 0 => self.skip(next.wrapping_sub(vmcb.rip)),
            _ => self.skip(Self::length(exit)),
        }
    }

    fn privilege(&self) -> u8 {
        self.vmcb().cpl
    }

    fn interrupts_on(&self) -> bool {
        self.vmcb().rflags & RFLAGS_IF != 0
    }

    fn paging(&self) -> Paging {
        let vmcb = self.vmcb();
        // Bit 9 of the attributes: 64-bit code.
        let long =
            vmcb.cr0 & CR0_PG != 0 && vmcb.efer & EFER_LMA != 0 && vmcb.cs.attributes & 1 << 9 != 0;
        Paging { cr3: vmcb.cr3, cr4: vmcb.cr4, long }
    }

    fn segment_bases(&self) -> SegmentBases {
        SegmentBases { fs: read_msr(MSR_FS_BASE), gs: read_msr(MSR_GS_BASE) }
    }

    fn exit_words(&self) -> (u64, u64) {
        (self.vmcb().exit_code, self.vmcb().exit_info_1)
    }

    fn can_inject(&self) -> bool {
        self.vmcb().event_injection & vmcb::EVENT_VALID == 0
    }

    fn inject(&mut self, event: Event) {
        let exception = |vector: u64| vector | vmcb::EVENT_EXCEPTION | vmcb::EVENT_VALID;
        let vmcb = self.vmcb_mut();
        vmcb.event_injection = match event {
            Event::Nmi => 2 | vmcb::EVENT_NMI | vmcb::EVENT_VALID,
            Event::Debug => exception(1),
            Event::InvalidOpcode => exception(6),
            Event::GeneralProtection => exception(13) | vmcb::EVENT_ERROR_CODE,
            Event::AlignmentCheck => exception(17) | vmcb::EVENT_ERROR_CODE,
            Event::PageFault { address, write } => {
                vmcb.cr2 = address;
                exception(14) | vmcb::EVENT_ERROR_CODE | if write { 1 << 33 } else { 0 }
            }
        };
    }

    fn flush(&mut self) {
        self.vmcb_mut().tlb_control = vmcb::TLB_FLUSH_ALL;
    }

    fn write_msr(&mut self, msr: u32, value: u64) -> MsrOutcome {
        let vmcb = self.vmcb_mut();
        match msr {
            MSR_EFER => {
                let paging = vmcb.cr0 & CR0_PG != 0;
                if value & !supported_efer() != 0 || paging && (value ^ vmcb.efer) & EFER_LME != 0 {
                    return MsrOutcome::Fault;
                }
                // LMA is the processor's: it follows LME and paging.
                vmcb.efer = value & !EFER_LMA | vmcb.efer & EFER_LMA | EFER_SVME;
                // Translations depend on NXE.
                vmcb.tlb_control = vmcb::TLB_FLUSH_ALL;
            }
            MSR_PAT if !valid_pat(value) => return MsrOutcome::Fault,
            MSR_PAT => vmcb.pat = value,
            // To switch memory encryption on would give all memory a second address, whoever's it is.
            MSR_SYSCFG if value != read_msr(msr) => return MsrOutcome::Fault,
            // SVM is the hypervisor's. Linux writes these two when it reboots, and must not be told off.
            _ => (),
        }
        MsrOutcome::Done
    }

    fn read_msr(&self, msr: u32) -> u64 {
        match msr {
            MSR_EFER => self.vmcb().efer & !EFER_SVME,
            _ => 0,
        }
    }

    fn nmi_window() {
        // SAFETY: The host's own handler takes the NMI; interrupts stay off.
        unsafe { asm!("stgi", "nop", "clgi", options(nostack)) }
    }

    fn wait_for_nmi() {
        // SAFETY: As above. The handler skips the halt if the NMI comes right before it.
        unsafe { run::wait_for_nmi() }
    }

    fn interrupt_window() {
        // SAFETY: The host's own handlers take what comes.
        unsafe { asm!("stgi", "sti", "nop", "nop", "cli", "clgi", options(nostack)) }
    }
}

const RAX: usize = 0;
const RSP: usize = 4;
