// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor state of the hypervisor itself: descriptor tables, exceptions, control registers.
//!
//! Host code runs with interrupts off and the global interrupt flag clear, on a stack per CPU,
//! without thread-local state: what the handlers need to know they find by the stack. All CPUs
//! share the descriptor tables, which do not change after the launch.

use core::arch::{asm, global_asm, naked_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;

use crtos_partition::address::PhysAddr;
use crtos_registers::machine_check::Status;
use crtos_registers::{descriptor, exception as vector};
use x86_64::VirtAddr;
use x86_64::instructions::tables::{lgdt, lidt};
use x86_64::registers::control::{Cr0Flags, Cr2, Cr4, Cr4Flags};
use x86_64::registers::rflags::RFlags;
use x86_64::structures::DescriptorTablePointer;

use crate::apic;
use crate::local::{Local, STACK_SIZE};
use crate::processor::{self, has_xsave, machine_check};
use crate::report;

/// Selectors are those of Linux, so that its own table may take over at any instruction. The table
/// agrees with the segments that are loaded, lies in memory that is mapped writable, and its
/// descriptors are marked as accessed: an exit may read them again, and shuts the processor down if
/// that faults (APM vol. 2, 15.6).
const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;
static GDT: [u64; 4] = [0, 0, descriptor::KERNEL_CODE, descriptor::KERNEL_DATA];

#[repr(C, align(16))]
struct Idt(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: Written by `init` only, before any other CPU looks.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new([[0; 2]; 256]));

/// Bits of Linux's CR4 that the host keeps; beside them CR4.OSXSAVE, where there is XSAVE. No
/// global translations and no PCIDs are among them, so CR3 drops all that the host had (APM vol. 2,
/// 5.5.2 and 15.16.1).
const CR4_KEPT: Cr4Flags = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION
    .union(Cr4Flags::MACHINE_CHECK_EXCEPTION)
    .union(Cr4Flags::OSFXSR)
    .union(Cr4Flags::OSXMMEXCPT_ENABLE)
    .union(Cr4Flags::OSXSAVE);
const CR0_HOST: Cr0Flags = Cr0Flags::PROTECTED_MODE_ENABLE
    .union(Cr0Flags::MONITOR_COPROCESSOR)
    .union(Cr0Flags::EXTENSION_TYPE)
    .union(Cr0Flags::NUMERIC_ERROR)
    .union(Cr0Flags::WRITE_PROTECT)
    .union(Cr0Flags::PAGING);

/// Fills the descriptor tables.
///
/// # Safety
/// Called once, before any CPU has loaded them.
pub(crate) unsafe fn init() {
    // SAFETY: The only access, since no CPU has loaded the table yet.
    let idt = unsafe { &mut *IDT.0.get() };
    let stubs = stubs as *const () as u64;
    for (number, entry) in (0..=u8::MAX).zip(idt) {
        let handler = match number {
            vector::NMI => nmi as *const () as u64,
            vector::GENERAL_PROTECTION => general_protection as *const () as u64,
            _ => stubs + u64::from(number.min(vector::COUNT)) * 16,
        };
        *entry = descriptor::interrupt_gate(handler, CODE_SELECTOR);
    }
}

/// Takes this CPU over from the running system: page tables, control registers, descriptor tables.
///
/// # Safety
/// All interrupts are blocked, NMIs included; [`init`] has run; the code, the stack and the
/// caller's data are mapped in `page_table` as they are now.
pub(crate) unsafe fn take_over(page_table: PhysAddr) {
    let mut cr4 = Cr4::read() & CR4_KEPT;
    if has_xsave() {
        cr4.insert(Cr4Flags::OSXSAVE);
    }
    // SAFETY: What runs now is mapped in both page tables and uses neither interrupts nor segments
    // before they are loaded; the descriptor tables are statics of the image, which `init` has
    // filled.
    unsafe {
        asm!(
            "mov cr3, {cr3}",
            "mov cr4, {cr4}",
            "mov cr0, {cr0}",
            cr3 = in(reg) page_table.get(), cr4 = in(reg) cr4.bits(), cr0 = in(reg) CR0_HOST.bits(),
            options(nostack)
        );
        let table = |address: u64, size: usize| DescriptorTablePointer {
            limit: (size - 1) as u16,
            base: VirtAddr::new_truncate(address),
        };
        lgdt(&table(GDT.as_ptr() as u64, size_of_val(&GDT)));
        lidt(&table(IDT.0.get() as u64, size_of::<Idt>()));
        asm!(
            "mov ss, {data:x}",
            "mov ds, {data:x}",
            "mov es, {data:x}",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            data = in(reg) DATA_SELECTOR, code = in(reg) u64::from(CODE_SELECTOR),
            scratch = out(reg) _
        );
    }
}

/// An exception in the hypervisor is a bug of its own. `words` is what the processor pushed.
fn exception(vector: u8, words: &[u64; 3]) -> ! {
    let &[first, second, _] = words;
    let (error, rip) = vector::pushed(vector, &[first, second]);
    let cr2 = Cr2::read_raw();
    if vector == vector::MACHINE_CHECK {
        report_machine_check();
    }
    report::died(format_args!("exception {vector} error {error:#x} rip {rip:#x} cr2 {cr2:#x}"));
    processor::halt()
}

/// Reports what the banks of this CPU tell.
fn report_machine_check() {
    let global = machine_check::global_status();
    report::line(format_args!("hypervisor: machine check: global status {global:#x}"));
    for machine_check::Report { bank, status: Status(status), address } in machine_check::reports()
    {
        report::line(format_args!(
            "hypervisor: machine check: bank {bank} status {status:#x} address {address:#x}"
        ));
    }
}

/// The first vector of interrupts that the local APIC delivers (APM vol. 2, 16.6.1). Those before
/// it can come by a message of the kind ExtINT, or where an emulator is not strict.
const FIRST_INTERRUPT: u8 = 16;

unsafe extern "sysv64" {
    fn stubs();
}

/// #GP in host mode: expected where a register is read or written for a guest, a bug anywhere else.
#[unsafe(naked)]
extern "sysv64" fn general_protection() {
    naked_asm!(
        // Error code and RIP lie above what is pushed here.
        "push rax",
        "lea rax, [rip + rdmsr_may_fault]",
        "cmp rax, [rsp + 16]",
        "je 2f",
        "lea rax, [rip + wrmsr_may_fault]",
        "cmp rax, [rsp + 16]",
        "je 2f",
        "pop rax",
        "jmp stubs + 13 * 16",
        "2:",
        "lea rax, [rip + msr_faulted]",
        "mov [rsp + 16], rax",
        "pop rax",
        "add rsp, 8",
        "iretq",
    )
}

/// NMI in host mode: tells the CPU that there was one, and makes `wait_for_nmi` go on.
#[unsafe(naked)]
extern "sysv64" fn nmi() {
    naked_asm!(
        "push rax",
        "push rbx",
        "mov rax, rsp",
        "and rax, -{stack_size}",
        "mov byte ptr [rax + {seen}], 1",
        "lea rbx, [rip + wait_for_nmi_halt]",
        "cmp rbx, [rsp + 16]",
        "jne 2f",
        "inc qword ptr [rsp + 16]",
        "2:",
        "pop rbx",
        "pop rax",
        "iretq",
        stack_size = const STACK_SIZE,
        seen = const offset_of!(Local, nmi_seen),
    )
}

// Stubs of 16 bytes for each vector that an exception and an interrupt can have, and one for all
// vectors of interrupts alone.
global_asm!(
    ".balign 16",
    "stubs:",
    ".set vector, 0",
    ".rept {count}",
    ".balign 16",
    "push vector",
    "jmp {event}",
    ".set vector, vector + 1",
    ".endr",
    count = const vector::COUNT + 1,
    event = sym event,
);

/// On the stack: the vector, and what the processor pushed.
#[unsafe(naked)]
extern "sysv64" fn event() {
    naked_asm!(
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "mov rbx, rsp",
        "mov rdi, [rsp + 80]",
        "lea rsi, [rsp + 88]",
        "and rsp, -16",
        "cld",
        "call {end}",
        "mov rsp, rbx",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "add rsp, 8",
        "iretq",
        end = sym end_of_interrupt,
    )
}

/// Interrupt in host mode: left over from the last owner of the CPU; ended and forgotten. Anything
/// else is an exception. `words` is what the processor pushed.
extern "sysv64" fn end_of_interrupt(vector: u8, words: &[u64; 3]) {
    let in_service = || apic::get().in_service(vector);
    let is_interrupt = match vector {
        0..FIRST_INTERRUPT => interrupts_were_on(words),
        FIRST_INTERRUPT..vector::COUNT => in_service(),
        _ => true,
    };
    if !is_interrupt {
        exception(vector, words);
    }
    if in_service() {
        apic::get().end_of_interrupt();
    }
}

/// Tells whether `words`, without an error code, are of code that has interrupts on. No host code
/// has that raises an exception.
fn interrupts_were_on(&[_, selector, flags]: &[u64; 3]) -> bool {
    selector == u64::from(CODE_SELECTOR) && flags & RFlags::INTERRUPT_FLAG.bits() != 0
}
