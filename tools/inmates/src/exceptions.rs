// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptor tables of an inmate. An exception is reported on the console and ends the CPU's work;
//! an interrupt goes to the inmate.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_registers::{descriptor, exception};
use x86_64::VirtAddr;
use x86_64::instructions::tables::{lgdt, lidt};
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

use crate::{apic, halt, println};

const CODE_SELECTOR: u16 = 0x8;
/// The hypervisor starts a cell with flat segments by these selectors.
static GDT: [u64; 3] = [0, descriptor::KERNEL_CODE, descriptor::KERNEL_DATA];

/// Interrupt gates. Each CPU writes all of them, and all write the same.
#[repr(C, align(16))]
struct Idt([[AtomicU64; 2]; 256]);

static IDT: Idt = Idt([const { [const { AtomicU64::new(0) }; 2] }; 256]);

unsafe extern "sysv64" {
    fn interrupt_stubs();
}

// One stub of 8 bytes for each vector; which one it was, the return address tells.
global_asm!(
    ".balign 16",
    "interrupt_stubs:",
    ".rept 256",
    "call 2f",
    ".balign 8",
    ".endr",
    "2:",
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
    "lea rax, [rip + interrupt_stubs]",
    "sub rdi, rax",
    "shr rdi, 3",
    "lea rsi, [rsp + 88]",
    "and rsp, -16",
    "cld",
    "call {dispatch}",
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
    dispatch = sym dispatch,
);

unsafe extern "Rust" {
    safe fn inmate_interrupt(vector: u8);
}

/// `words` is what the processor pushed.
extern "sysv64" fn dispatch(vector: u8, words: &[u64; 2]) {
    if vector < exception::COUNT && vector != exception::NMI {
        let (error, rip) = exception::pushed(vector, words);
        let address = Cr2::read_raw();
        println!("exception {vector} error {error:#x} rip {rip:#x} cr2 {address:#x}");
        halt()
    }
    if !apic::calibration_tick(vector) {
        inmate_interrupt(vector);
    }
    if vector >= exception::COUNT {
        apic::end_of_interrupt(vector);
    }
}

/// Fills the descriptor tables, and loads them on this CPU.
pub(crate) fn load() {
    let first = interrupt_stubs as *const () as u64;
    for (vector, gate) in (0..).zip(&IDT.0) {
        let words = descriptor::interrupt_gate(first + vector * 8, CODE_SELECTOR);
        gate.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }
    let table = |address: u64, size: usize| DescriptorTablePointer {
        limit: (size - 1) as u16,
        base: VirtAddr::new_truncate(address),
    };
    // SAFETY: Both tables are statics of the image; every gate leads to a stub that takes its
    // interrupt.
    unsafe {
        lgdt(&table(GDT.as_ptr() as u64, size_of_val(&GDT)));
        lidt(&table(&raw const IDT as u64, size_of::<Idt>()));
    }
}
