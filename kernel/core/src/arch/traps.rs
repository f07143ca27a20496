// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions and interrupts: what each vector means.

use super::context::UserContext;
use super::entry::{self, STUB_SIZE};
use super::interrupts::InService;
use super::{apic, cpu, fpu, gdt, machine_check, paging, percpu, tlb, user_memory};
use crate::devices::{interrupts, pci};
use crate::mm::layout;
use crate::mm::space::{Access, FaultError};
use crate::task::{self, scheduler};
use crate::{personality, trace, warn};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_abi::channel::{KICK_VECTOR, TIMER_VECTOR, TRACE_FAULT_END};
use crtos_abi::link::LINK_VECTOR;
use x86_64::VirtAddr;
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

/// NMIs that arrived.
pub static NMIS: AtomicU64 = AtomicU64::new(0);

const DEBUG: u32 = 1;
const NMI: u32 = 2;
const BREAKPOINT: u32 = 3;
const OVERFLOW: u32 = 4;
const DOUBLE_FAULT: u32 = 8;
/// #GP.
pub(super) const GENERAL_PROTECTION: u32 = 13;
const PAGE_FAULT: u32 = 14;
const X87: u32 = 16;
/// #MC.
pub(super) const MACHINE_CHECK: u32 = 18;
const SIMD: u32 = 19;

#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written once at boot by the first CPU, before others run.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

/// A gate (APM vol. 2, 4.8.4) that turns interrupts off. `stack` is an index into the IST.
fn gate(handler: u64, stack: Option<u16>, from_user: bool) -> [u64; 2] {
    let stack = stack.map_or(0, |index| u64::from(index) + 1);
    let kind = if from_user { 0xee } else { 0x8e };
    let low = handler & 0xffff
        | u64::from(gdt::KERNEL_CODE) << 16
        | stack << 32
        | kind << 40
        | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// Fills the table of gates. Once, on the first CPU.
pub fn build() {
    // SAFETY: at boot, on one CPU, before the table is loaded.
    let table = unsafe { &mut *TABLE.0.get() };
    let stubs = entry::interrupt_stubs as *const () as u64;
    for (vector, entry) in table.iter_mut().enumerate() {
        let stub = stubs + vector as u64 * STUB_SIZE;
        *entry = match vector as u32 {
            DEBUG => gate(entry::debug_entry as *const () as u64, Some(gdt::IST_DEBUG), false),
            NMI => gate(entry::nmi_entry as *const () as u64, Some(gdt::IST_NMI), false),
            BREAKPOINT | OVERFLOW => gate(stub, None, true),
            DOUBLE_FAULT => gate(stub, Some(gdt::IST_DOUBLE_FAULT), false),
            MACHINE_CHECK => {
                let entry = entry::machine_check_entry as *const () as u64;
                gate(entry, Some(gdt::IST_MACHINE_CHECK), false)
            }
            _ => gate(stub, None, false),
        };
    }
}

/// Loads the table into this CPU.
pub fn load() {
    let base = VirtAddr::from_ptr(TABLE.0.get());
    let pointer = DescriptorTablePointer { limit: size_of::<Table>() as u16 - 1, base };
    // SAFETY: the table lives for ever and every gate leads to an entry of the kernel.
    unsafe { x86_64::instructions::tables::lidt(&pointer) }
}

/// An exception. Interrupts off before and after.
#[inline(never)]
pub fn exception(vector: u32, context: &mut UserContext) {
    let error = context.orig_rax;
    let address = Cr2::read_raw();
    if !context.is_user()
        && matches!(vector, GENERAL_PROTECTION | PAGE_FAULT)
        && let Some(failure) = user_memory::failure(context.rip)
    {
        (context.rip, context.rax) = (failure, 0);
        return;
    }
    if !context.is_user() || vector == DOUBLE_FAULT {
        in_kernel(vector, context, address);
    }
    let cause = match vector {
        MACHINE_CHECK => {
            let Some(broken) = machine_check::take() else { in_kernel(vector, context, address) };
            cpu::restore_interrupts(true);
            Some(give_up(&broken))
        }
        PAGE_FAULT => {
            cpu::restore_interrupts(true);
            trace::fault(context, address, error);
            personality::page_fault();
            let cause = page_fault(UserAddr::new(address), error);
            trace::event(TRACE_FAULT_END, address, 0);
            cause
        }
        GENERAL_PROTECTION => {
            cpu::restore_interrupts(true);
            // The hypervisor raises it where a device was, and then a page fault follows. Another
            // thread may have found that first.
            let current = task::current();
            let space = current.space().filter(|_| pci::any());
            let found = space.is_some_and(|space| space.withdraw_devices());
            let was_device = current.learns_of_losses() || found;
            (!was_device).then_some(Cause::Instruction)
        }
        _ => {
            let cause = match vector {
                X87 => Cause::Floating { exceptions: fpu::x87_exceptions() },
                SIMD => Cause::Floating { exceptions: fpu::simd_exceptions() },
                _ => Cause::Instruction,
            };
            cpu::restore_interrupts(true);
            Some(cause)
        }
    };
    context.orig_rax = u64::MAX;
    if let Some(cause) = cause {
        personality::exception(context, Exception { vector, error, cause });
    }
    cpu::disable_interrupts();
}

/// Tells of the first interrupt with this vector that nobody asked for: one line for each vector,
/// however many Linux has devices send.
#[cold]
fn report_stray(vector: u8) {
    static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    let bit = 1 << (vector % 64);
    if SEEN[usize::from(vector / 64)].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        warn!("interrupt {vector} that nobody asked for");
    }
}

/// An exception of a program that the kernel could not resolve.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Number of the exception (APM vol. 2, 8.2).
    pub vector: u32,
    /// Its error code, or 0.
    pub error: u64,
    /// What it is about.
    pub cause: Cause,
}

/// What an exception is about.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// An access to memory.
    Access {
        /// The address.
        address: UserAddr,
        /// Why it was not possible.
        why: FaultError,
    },
    /// An operation on floating-point numbers.
    Floating {
        /// The unmasked exceptions, in the order of both status registers: IE, DE, ZE, OE, UE, PE.
        exceptions: u32,
    },
    /// The memory at this address, which is broken.
    Broken {
        /// The address.
        address: UserAddr,
        /// The program cannot go on, not even in a handler.
        ends_program: bool,
    },
    /// The instruction itself.
    Instruction,
}

/// Gives memory of the current program up. If it is not the program's alone, the kernel stops.
/// Interrupts are on; may sleep.
fn give_up(broken: &machine_check::Broken) -> Cause {
    let frame = machine_check::frame_at(broken.address);
    let current = task::current();
    let space = current.space();
    let address = frame
        .zip(space)
        .and_then(|((frame, offset), space)| space.give_up(frame).map(|page| page + offset));
    match address {
        Some(address) => Cause::Broken { address, ends_program: broken.ends_program },
        None => {
            panic!("machine check: memory at {:#x} is not of one program alone", broken.address)
        }
    }
}

/// Resolves a page fault; what is left is for the personality. Interrupts are on; may sleep.
fn page_fault(address: UserAddr, error: u64) -> Option<Cause> {
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    let access = match error {
        e if e & FETCH != 0 => Access::Execute,
        e if e & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    let result = match task::current().space() {
        Some(space) => space.resolve(address, access).map(|_| ()),
        None => Err(FaultError::Unmapped),
    };
    result.err().map(|why| Cause::Access { address, why })
}

/// An exception in the kernel: a bug, which stops it.
fn in_kernel(vector: u32, context: &UserContext, address: u64) -> ! {
    if vector == MACHINE_CHECK {
        panic!("machine check: {}, rip {:016x}", machine_check::last_report(), context.rip);
    }
    let c = context;
    let where_ = if layout::is_stack_guard(address) { " (kernel stack overflow)" } else { "" };
    panic!(
        "exception {vector} error {:#x} address {address:#x}{where_}\n\
         rip {:016x} rsp {:016x} rflags {:x} cs {:x} cr3 {:x}\n\
         rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n\
         rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}\n\
         r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}\n\
         r13 {:016x} r14 {:016x} r15 {:016x}",
        c.orig_rax,
        c.rip,
        c.rsp,
        c.rflags,
        c.cs,
        paging::loaded_root().0,
        c.rax,
        c.rbx,
        c.rcx,
        c.rdx,
        c.rsi,
        c.rdi,
        c.rbp,
        c.r8,
        c.r9,
        c.r10,
        c.r11,
        c.r12,
        c.r13,
        c.r14,
        c.r15,
    );
}

/// An interrupt. Interrupts off before and after.
#[inline(always)]
pub fn interrupt(vector: u8) {
    percpu::in_interrupt(|| match interrupts::entry(vector) {
        Some(entry) => {
            count(&percpu::this().interrupts.devices);
            entry.handle(InService::new());
        }
        None => serve(vector),
    });
}

#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Serves an interrupt that is no device's.
#[inline(never)]
fn serve(vector: u8) {
    let counters = &percpu::this().interrupts;
    match vector {
        TIMER_VECTOR => {
            count(&counters.timer);
            apic::end_of_interrupt();
            if !apic::note_calibration() {
                scheduler::timer_interrupt();
            }
        }
        KICK_VECTOR => {
            count(&counters.kicks);
            apic::end_of_interrupt();
            // Another thread's turn and attention are looked at on the way back.
            tlb::serve_flush();
        }
        LINK_VECTOR => {
            count(&counters.doorbell);
            apic::end_of_interrupt();
            personality::link();
        }
        vector => {
            if u32::from(vector) == layout::boot_info().doorbell_vector {
                count(&counters.doorbell);
                apic::end_of_interrupt();
                let cpu = percpu::this();
                return personality::doorbell(cpu.index, cpu.rank());
            }
            count(&counters.spurious);
            // Spurious ones want no end, unless a device sent one with their vector.
            if apic::in_service(vector) {
                apic::end_of_interrupt();
                report_stray(vector);
            }
        }
    }
}
