// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a virtualization technology provides. The rest of the hypervisor knows only this.

use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::decode::{RAX, RDX, Registers, SegmentBases};
use crtos_partition::error::LaunchError;
use crtos_partition::ids::CellId;
use crtos_partition::nested::Format;
use crtos_partition::resets::Access;

use crate::frames::Frames;

mod svm;

/// The technology that this image is built for.
pub type Vcpu = svm::Vcpu;
/// Its format of nested tables.
pub(crate) type NestedFormat = <Vcpu as VirtualCpu>::NestedFormat;

/// What a virtual CPU runs in: memory and permissions of its cell.
#[derive(Clone, Copy)]
pub struct Domain {
    /// Top table of the nested tables.
    pub(crate) nested_top: PhysAddr,
    /// Bitmap of I/O ports.
    pub(crate) port_bitmap: PhysAddr,
    /// Bitmap of model-specific registers.
    pub(crate) msr_bitmap: PhysAddr,
    /// `None` for the root cell.
    pub(crate) cell: Option<CellId>,
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

/// Where and with what the CPUs of a cell start.
#[derive(Clone, Copy)]
pub struct Start {
    /// Instruction pointer.
    pub entry: u64,
    /// Page tables.
    pub page_table: GuestAddr,
    /// What the cell is told.
    pub argument: u64,
}

/// How a CPU of a cell starts (see [`crtos_abi::boot`]).
pub struct CellStart {
    /// Instruction pointer, CR3, RDI.
    pub start: Start,
    /// RSI.
    pub index: u64,
}

/// Why a guest was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A non-maskable interrupt is pending.
    Nmi,
    /// The guest returns from an NMI, or has returned; another one may be given to it then.
    NmiReturn,
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
        /// What was touched.
        address: GuestAddr,
        /// It was a write.
        write: bool,
        /// The processor walked through the guest's page tables.
        walk: bool,
    },
    /// XSETBV.
    Xsetbv,
    /// INVD, or WBINVD of a cell.
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

/// What becomes of an NMI for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NmiOutcome {
    /// The guest gets it at the next entry, or as soon as it has returned from the last one.
    Given,
    /// The guest has not returned from the last one. It will be left when it does.
    Blocked,
    /// Another event has to be delivered first.
    Busy,
}

/// A guest's access to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAccess {
    /// What it is; of a string instruction, as if it was a read.
    pub access: Access,
    /// It is a string instruction.
    pub is_string: bool,
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

/// A guest's write to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrOutcome {
    /// Done, or swallowed on purpose.
    Done,
    /// The guest gets #GP.
    Fault,
}

/// What the run loop calls, around a virtual CPU.
///
/// # Safety
/// The virtual CPU lies at the start of the type, and a stack for the run loop ends `STACK_TOP`
/// bytes behind that start.
pub unsafe trait Runner {
    /// Distance of the end of the stack, a multiple of 16.
    const STACK_TOP: usize;

    /// Prepares the first entry to the guest.
    ///
    /// # Safety
    /// In host mode; `this` is valid, and nobody else refers to it during the call.
    unsafe extern "sysv64" fn prepare(this: *mut Self);

    /// Handles an exit, and prepares the next entry.
    ///
    /// # Safety
    /// In host mode; `this` is valid, and nobody else refers to it during the call.
    unsafe extern "sysv64" fn exited(this: *mut Self);
}

/// A virtual CPU, bound to one CPU of the machine. The functions that are safe change what its
/// guest sees, nothing else.
pub trait VirtualCpu: Sized {
    /// Format of its nested tables.
    type NestedFormat: Format;

    /// Checks that this CPU has the technology and that nobody else uses it.
    fn check() -> Result<(), LaunchError>;
    /// Makes a virtual CPU; `None` if memory does not suffice.
    #[expect(private_interfaces, reason = "made at launch only")]
    fn new(frames: &mut Frames) -> Option<Self>;
    /// Switches the technology on, on this CPU.
    ///
    /// # Safety
    /// [`Self::check`] has succeeded here, and this virtual CPU stays for as long as the technology
    /// is on.
    unsafe fn enable(&mut self);
    /// Makes the system that runs on this CPU now the guest.
    ///
    /// # Safety
    /// The technology is on; `domain` stays valid while the guest runs in it.
    unsafe fn capture(&mut self, domain: &Domain, resume: &Resume);
    /// Runs the guest and never returns.
    ///
    /// # Safety
    /// `this` is valid for ever, nobody else refers to it, and its virtual CPU is enabled and has a
    /// guest; all interrupts are blocked.
    unsafe fn run<R: Runner>(this: *mut R) -> !;
    /// Makes the guest the bare system again and goes on at the leave trampoline.
    ///
    /// # Safety
    /// Runs in host mode on the CPU of the guest; no NMI of the hypervisor's own is pending;
    /// `host_cr3` maps this code and the trampoline.
    unsafe fn leave(&mut self, host_cr3: PhysAddr, trampoline: u64) -> !;

    /// Makes the guest a CPU of the root cell that got a start-up IPI for `page`.
    ///
    /// # Safety
    /// In host mode on the CPU of the guest, whose old owner is gone; `domain` stays valid while
    /// the guest runs in it.
    unsafe fn start_up(&mut self, domain: &Domain, page: u8);
    /// Makes the guest a CPU of a cell.
    ///
    /// # Safety
    /// In host mode on the CPU of the guest, whose old owner is gone; `domain` stays valid while
    /// the guest runs in it.
    unsafe fn start_cell(&mut self, domain: &Domain, start: &CellStart);

    /// Tells why the guest was left. Called once after each exit; an event that the exit
    /// interrupted is delivered again at the next entry.
    fn exit(&mut self) -> Exit;
    /// Prepares the next entry.
    fn prepare_entry(&mut self);
    /// General registers of the guest.
    fn registers(&mut self) -> &mut Registers;
    /// Instruction pointer of the guest.
    fn rip(&self) -> u64;
    /// Changes the guest's status flags to these, [`crtos_partition::decode::flags`].
    fn set_status_flags(&mut self, flags: u64);
    /// Goes on behind the instruction that was left at.
    fn skip(&mut self, length: u64);
    /// The access to ports that the guest was left at.
    fn port_access(&self) -> PortAccess;
    /// Puts what was read from ports of the exit into EAX, as far as the access is wide.
    fn set_port_value(&mut self, value: u32);
    /// Goes on behind the instruction of the exit.
    fn skip_exit(&mut self, exit: Exit);
    /// Privilege level of the guest, 0 to 3.
    fn privilege(&self) -> u8;
    /// Tells whether the guest takes interrupts.
    fn interrupts_on(&self) -> bool;
    /// Tells how the guest's page tables work.
    fn paging(&self) -> Paging;
    /// Bases of FS and GS.
    fn segment_bases(&self) -> SegmentBases;
    /// The processor's own exit code and first information word.
    fn exit_words(&self) -> (u64, u64);
    /// Gives the guest an NMI, if it takes one now.
    fn inject_nmi(&mut self) -> NmiOutcome;
    /// Delivers `event` at the next entry, in place of one that waits.
    fn inject(&mut self, event: Event);
    /// Forgets cached translations before the next entry.
    fn flush(&mut self);
    /// Writes EFER or PAT of the guest.
    fn write_msr(&mut self, msr: u32, value: u64) -> MsrOutcome;
    /// EFER of the guest, as it shall see it.
    fn efer(&self) -> u64;

    /// Puts the result of a read of a register into EDX:EAX.
    fn set_msr_value(&mut self, value: u64) {
        let registers = self.registers();
        registers[RAX] = value & 0xffff_ffff;
        registers[RDX] = value >> 32;
    }

    /// Blocks all interrupts of this CPU, NMIs included, until a window lets them in or a guest
    /// runs.
    ///
    /// # Safety
    /// The technology is on, on this CPU.
    unsafe fn block_interrupts();
    /// Lets a pending NMI in, to the host's handler.
    ///
    /// # Safety
    /// In host mode, with the host's descriptor tables and stack.
    unsafe fn nmi_window();
    /// Waits until an NMI came in.
    ///
    /// # Safety
    /// In host mode, with the host's descriptor tables and stack.
    unsafe fn wait_for_nmi();
    /// Lets all pending interrupts in; the host's handlers drop them.
    ///
    /// # Safety
    /// In host mode, with the host's descriptor tables and stack.
    unsafe fn interrupt_window();
}
