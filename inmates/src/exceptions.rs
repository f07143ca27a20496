// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptor tables of an inmate. An exception is reported on the console and ends the CPU's work; an interrupt goes to the inmate.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use x86_64::VirtAddr;
use x86_64::instructions::tables::{lgdt, lidt};
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

use crate::{apic, halt, println};

const CODE_SELECTOR: u64 = 0x8;
/// The hypervisor starts a cell with flat segments by these selectors.
static GDT: [u64; 3] = [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];

#[repr(C, align(16))]
struct Idt(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: All CPUs write the same words.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new([[0; 2]; 256]));

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

/// Exceptions that push an error code.
const WITH_ERROR_CODE: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

/// `words` is what the processor pushed.
extern "sysv64" fn dispatch(vector: u8, words: &[u64; 2]) {
    if vector < 32 && vector != 2 {
        let (error, rip) = match WITH_ERROR_CODE & 1 << vector {
            0 => (0, words[0]),
            _ => (words[0], words[1]),
        };
        let address = Cr2::read_raw();
        println!("exception {vector} error {error:#x} rip {rip:#x} cr2 {address:#x}");
        halt()
    }
    if !apic::calibration_tick(vector) {
        inmate_interrupt(vector);
    }
    if vector >= 32 {
        apic::end_of_interrupt(vector);
    }
}

pub(crate) fn load() {
    let first = interrupt_stubs as *const () as u64;
    // SAFETY: See `Sync`; the tables live for ever.
    unsafe {
        let idt = IDT.0.get();
        for vector in 0..256 {
            let handler = first + vector as u64 * 8;
            let low = handler & 0xffff
                | CODE_SELECTOR << 16
                | 0x8e << 40
                | (handler >> 16 & 0xffff) << 48;
            (&raw mut (*idt)[vector]).write([low, handler >> 32]);
        }
        let table = |address: u64, size: usize| DescriptorTablePointer {
            limit: (size - 1) as u16,
            base: VirtAddr::new_truncate(address),
        };
        lgdt(&table(GDT.as_ptr() as u64, size_of_val(&GDT)));
        lidt(&table(idt as u64, size_of::<Idt>()));
    }
}
