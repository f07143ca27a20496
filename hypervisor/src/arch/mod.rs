// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a virtualization technology provides. The rest of the hypervisor knows only this.

use crtos_partition::decode::{Registers, SegmentBases};
use crtos_partition::nested::Format;

use crate::memory::Memory;

mod svm;

/// The technology that this image is built for.
pub type Vcpu = svm::Vcpu;
/// Its format of nested tables.
pub type NestedFormat = <Vcpu as VirtualCpu>::NestedFormat;

/// What a virtual CPU runs in: memory and permissions of its cell, by physical address.
#[derive(Clone, Copy)]
pub struct Domain {
    /// Top table of the nested tables.
    pub nested_top: u64,
    /// Bitmap of I/O ports.
    pub port_bitmap: u64,
    /// Bitmap of model-specific registers.
    pub msr_bitmap: u64,
    /// `None` for the root cell.
    pub cell: Option<usize>,
}

/// Where and with what the system that runs now goes on as a guest.
pub struct Resume {
    /// Instruction pointer.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// CR3 of that system.
    pub cr3: u64,
    /// CR4 of that system.
    pub cr4: u64,
}

/// How a CPU of a cell starts (see [`crtos_abi::boot`]).
pub struct CellStart {
    /// Instruction pointer.
    pub entry: u64,
    /// CR3.
    pub page_table: u64,
    /// RDI.
    pub argument: u64,
    /// RSI.
    pub index: u64,
}

/// Why a guest was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A non-maskable interrupt is pending.
    Nmi,
    /// RDMSR.
    MsrRead(u32),
    /// WRMSR.
    MsrWrite(u32, u64),
    /// VMMCALL or VMCALL.
    Hypercall,
    /// CPUID.
    Cpuid,
    /// Access to an I/O port.
    Port(u16),
    /// Access to memory that the nested tables do not allow.
    NestedFault {
        /// Guest-physical address.
        address: u64,
        /// It was a write.
        write: bool,
    },
    /// XSETBV.
    Xsetbv,
    /// INVD.
    Invd,
    /// An instruction of the technology itself, or MONITOR and the like.
    Hidden,
    /// #DB of a cell.
    Debug,
    /// #AC of a cell.
    AlignmentCheck,
    /// Triple fault.
    Shutdown,
    /// Anything else.
    Other,
}

/// What the hypervisor makes a guest see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Non-maskable interrupt.
    Nmi,
    /// #DB.
    Debug,
    /// #UD.
    InvalidOpcode,
    /// #GP(0).
    GeneralProtection,
    /// #AC(0).
    AlignmentCheck,
    /// #PF of privilege level 0 for a page that is not there.
    PageFault {
        /// Linear address.
        address: u64,
        /// The access was a write.
        write: bool,
    },
}

/// Control registers of a guest, for walking its page tables.
#[derive(Clone, Copy, Debug)]
pub struct Paging {
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// In 64-bit mode, with paging on.
    pub long: bool,
}

/// A guest's write to a register of the technology itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrOutcome {
    /// Done, or swallowed on purpose.
    Done,
    /// The guest gets #GP.
    Fault,
}

/// A virtual CPU, bound to one CPU of the machine.
pub trait VirtualCpu: Sized {
    /// Format of its nested tables.
    type NestedFormat: Format;
    /// Registers that trap in the root cell because of the technology: number and `MSR_READ | MSR_WRITE`.
    const ROOT_MSRS: &'static [(u32, u32)];

    /// Can this CPU do it, and is nobody else doing it? A launch error if not.
    fn check() -> Result<(), i64>;
    /// A virtual CPU.
    fn new(memory: &mut Memory) -> Option<Self>;
    /// Switches the technology on, on this CPU; [`Self::check`] was happy.
    fn enable(&mut self);
    /// Makes the system that runs on this CPU now the guest.
    fn capture(&mut self, domain: &Domain, resume: &Resume);
    /// Takes the CPU over, runs the guest and never returns; [`crate::exits::handle`] is called for each exit.
    ///
    /// # Safety
    /// `local` is the memory of this CPU; enabled and captured; interrupts are off.
    unsafe fn run(local: *mut crate::local::Local) -> !;
    /// Makes the guest the bare system again and goes on at the leave trampoline.
    ///
    /// # Safety
    /// Runs in host mode on the CPU of the guest; no NMI of the hypervisor's own is pending.
    unsafe fn leave(&mut self, host_cr3: u64, trampoline: u64) -> !;

    /// The guest becomes a CPU of the root cell that got a start-up IPI for `page`.
    fn start_up(&mut self, domain: &Domain, page: u8);
    /// The guest becomes a CPU of a cell.
    fn start_cell(&mut self, domain: &Domain, start: &CellStart);

    /// Why the guest was left. Called once after each exit; an event that the exit interrupted is delivered again at the
    /// next entry.
    fn exit(&mut self) -> Exit;
    /// Called before each entry.
    fn prepare_entry(&mut self);
    /// General registers of the guest.
    fn registers(&mut self) -> &mut Registers;
    /// Instruction pointer of the guest.
    fn rip(&self) -> u64;
    /// Goes on behind the instruction that was left at.
    fn skip(&mut self, length: u64);
    /// Goes on behind the instruction of the exit.
    fn skip_exit(&mut self, exit: Exit);
    /// Privilege level of the guest, 0 to 3.
    fn privilege(&self) -> u8;
    /// Does the guest take interrupts?
    fn interrupts_on(&self) -> bool;
    /// How the guest's page tables work.
    fn paging(&self) -> Paging;
    /// Bases of FS and GS.
    fn segment_bases(&self) -> SegmentBases;
    /// The processor's own exit code and first information word.
    fn exit_words(&self) -> (u64, u64);
    /// Is there room for an event at the next entry?
    fn can_inject(&self) -> bool;
    /// Delivers `event` at the next entry, in place of one that waits.
    fn inject(&mut self, event: Event);
    /// Forgets cached translations before the next entry.
    fn flush(&mut self);
    /// Writes a register of [`Self::ROOT_MSRS`], or EFER of a cell.
    fn write_msr(&mut self, msr: u32, value: u64) -> MsrOutcome;
    /// Value of a register of [`Self::ROOT_MSRS`], or EFER of a cell, as the guest shall see it.
    fn read_msr(&self, msr: u32) -> u64;
    /// Lets a pending NMI in (to the host's handler).
    fn nmi_window();
    /// Waits until an NMI came in.
    fn wait_for_nmi();
    /// Lets all pending interrupts in; the host's handler drops them.
    fn interrupt_window();
}
