// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor state of the hypervisor itself: descriptor tables, exceptions, control registers.
//!
//! Host code runs with interrupts off and the global interrupt flag clear, on a stack per CPU, without thread-local
//! state: what the handlers need to know they find by the stack. All CPUs share the descriptor tables, which
//! do not change after the launch.

use core::arch::{asm, global_asm, naked_asm, x86_64::__cpuid, x86_64::_rdtsc};
use core::cell::UnsafeCell;
use core::mem::offset_of;

use x86_64::VirtAddr;
use x86_64::instructions::tables::{lgdt, lidt};
use x86_64::registers::control::{Cr2, Cr4};
use x86_64::registers::model_specific::Msr;
use x86_64::structures::DescriptorTablePointer;

use crate::local::{Local, STACK_SIZE};
use crate::report;

/// Selectors are those of Linux, so that its own table may take over at any instruction.
const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;
static GDT: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];

#[repr(C, align(16))]
struct Idt(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: Written by `init` only, before any other CPU looks.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new([[0; 2]; 256]));

// CR4 of the host: bits of Linux's that are kept. PAE, MCE, OSFXSR, OSXMMEXCPT, OSXSAVE.
const CR4_KEPT: u64 = 1 << 5 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 18;
const CR4_OSXSAVE: u64 = 1 << 18;
/// PE, MP, ET, NE, WP, PG.
const CR0_HOST: u64 = 0x8001_0033;

/// Reads a model-specific register that exists.
pub fn read_msr(msr: u32) -> u64 {
    // SAFETY: Reading the registers that the hypervisor names has no effect; one that does not exist ends in the handler
    // of exceptions.
    unsafe { Msr::new(msr).read() }
}

/// Writes a model-specific register.
pub fn write_msr(msr: u32, value: u64) {
    // SAFETY: The hypervisor owns the processor; callers write registers of the guest of this CPU or of its interrupt
    // controller, none of which changes what Rust relies on.
    unsafe { Msr::new(msr).write(value) }
}

unsafe extern "sysv64" {
    /// RDMSR into `value`; false if it faults.
    ///
    /// # Safety
    /// In host mode with the host's descriptor tables; reading the register has no effect on the hypervisor.
    fn rdmsr_or_fault(msr: u32, value: &mut u64) -> bool;
    /// WRMSR; false if it faults.
    ///
    /// # Safety
    /// As above, for writing.
    fn wrmsr_or_fault(msr: u32, value: u64) -> bool;
}

global_asm!(
    "rdmsr_or_fault:",
    "mov ecx, edi",
    "rdmsr_may_fault:",
    "rdmsr",
    "mov [rsi], eax",
    "mov [rsi + 4], edx",
    "mov eax, 1",
    "ret",
    "wrmsr_or_fault:",
    "mov ecx, edi",
    "mov eax, esi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "wrmsr_may_fault:",
    "wrmsr",
    "mov eax, 1",
    "ret",
    "msr_faulted:",
    "xor eax, eax",
    "ret",
);

/// Reads a register of the machine-check architecture for Linux; `None` if there is none of this number.
pub fn read_machine_check(msr: u32) -> Option<u64> {
    let mut value = 0;
    // SAFETY: Called between exits; the caller names a register that reports errors.
    unsafe { rdmsr_or_fault(msr, &mut value) }.then_some(value)
}

/// Writes one; false if there is none of this number, or if it does not take the value.
pub fn write_machine_check(msr: u32, value: u64) -> bool {
    // SAFETY: As above.
    unsafe { wrmsr_or_fault(msr, value) }
}

/// The time stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: Present on every processor that gets here.
    unsafe { _rdtsc() }
}

/// CS, SS, DS, ES as loaded.
pub fn selectors() -> [u16; 4] {
    let [cs, ss, ds, es]: [u16; 4];
    // SAFETY: Reads registers only.
    unsafe {
        asm!(
            "mov {0:x}, cs", "mov {1:x}, ss", "mov {2:x}, ds", "mov {3:x}, es",
            out(reg) cs, out(reg) ss, out(reg) ds, out(reg) es, options(nomem, nostack)
        );
    }
    [cs, ss, ds, es]
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        // SAFETY: Nothing wakes it but a machine check.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// Resets the machine as a triple fault would on a bare one.
pub fn reset_machine() -> ! {
    // SAFETY: Reset control register of the chipset, then the keyboard controller; nothing goes on after it.
    unsafe {
        x86_64::instructions::port::PortWriteOnly::<u8>::new(0xcf9).write(0x0e);
        x86_64::instructions::port::PortWriteOnly::<u8>::new(0x64).write(0xfe);
    }
    halt()
}

/// Is the feature of CPUID leaf 1, ECX there?
pub fn has_xsave() -> bool {
    __cpuid(1).ecx & 1 << 26 != 0
}

/// Fills the descriptor tables. Once, before [`take_over`] on any CPU.
pub fn init() {
    let gate = |handler: u64| {
        let low = handler & 0xffff
            | u64::from(CODE_SELECTOR) << 16
            | 0x8e << 40
            | (handler >> 16 & 0xffff) << 48;
        [low, handler >> 32]
    };
    // SAFETY: The only access, see `Sync`.
    let idt = unsafe { &mut *IDT.0.get() };
    let first = exception_stubs as *const () as u64;
    for (vector, entry) in idt.iter_mut().enumerate() {
        *entry = gate(match vector {
            2 => nmi as *const () as u64,
            13 => general_protection as *const () as u64,
            0..32 => first + vector as u64 * 16,
            _ => interrupt as *const () as u64,
        });
    }
}

/// Takes this CPU over from the running system: page tables, control registers, descriptor tables.
///
/// # Safety
/// SVM is on; interrupts are off; the code, the stack and the caller's data are mapped in `page_table` as they are now.
pub unsafe fn take_over(page_table: u64) {
    let cr4 = Cr4::read_raw() & CR4_KEPT | if has_xsave() { CR4_OSXSAVE } else { 0 };
    // SAFETY: As the caller says; the tables are statics of the image.
    unsafe {
        asm!(
            "clgi",
            "mov cr3, {cr3}",
            "mov cr4, {cr4}",
            "mov cr0, {cr0}",
            cr3 = in(reg) page_table, cr4 = in(reg) cr4, cr0 = in(reg) CR0_HOST,
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
            data = in(reg) DATA_SELECTOR, code = in(reg) u64::from(CODE_SELECTOR), scratch = out(reg) _
        );
    }
}

/// Exceptions that push an error code: #DF, #TS, #NP, #SS, #GP, #PF, #AC, #CP, #VC, #SX.
const WITH_ERROR_CODE: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

/// An exception in the hypervisor is a bug of its own. `words` is what the processor pushed.
extern "sysv64" fn exception(vector: u32, words: &[u64; 2]) -> ! {
    let (error, rip) = match WITH_ERROR_CODE & 1 << vector {
        0 => (0, words[0]),
        _ => (words[0], words[1]),
    };
    let cr2 = Cr2::read_raw();
    report::died(format_args!("exception {vector} error {error:#x} rip {rip:#x} cr2 {cr2:#x}"));
    halt()
}

unsafe extern "sysv64" {
    fn exception_stubs();
}

// One stub of 16 bytes for each exception; which one it was, the return address tells.
global_asm!(
    ".balign 16",
    "exception_stubs:",
    ".rept 32",
    "call 2f",
    ".balign 16",
    ".endr",
    "2:",
    "pop rdi",
    "lea rax, [rip + exception_stubs]",
    "sub rdi, rax",
    "shr rdi, 4",
    "mov rsi, rsp",
    "and rsp, -16",
    "cld",
    "call {exception}",
    exception = sym exception,
);

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
        "jmp exception_stubs + 13 * 16",
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

/// Interrupt in host mode: left over from the last owner of the CPU; ended and forgotten.
#[unsafe(naked)]
extern "sysv64" fn interrupt() {
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
        "mov rax, rsp",
        "push rbx",
        "mov rbx, rax",
        "and rsp, -16",
        "cld",
        "call {end}",
        "lea rsp, [rbx - 8]",
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
        "iretq",
        end = sym end_of_interrupt,
    )
}

extern "sysv64" fn end_of_interrupt() {
    crate::apic::get().end_of_interrupt();
}
