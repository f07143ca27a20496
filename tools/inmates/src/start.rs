// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first instructions of an inmate (see [`crtos_abi::boot`]): a stack for each CPU, its own
//! descriptor tables.

use core::arch::naked_asm;
use core::cell::UnsafeCell;

use crtos_abi::MAX_CELL_CPUS;
use crtos_abi::boot::BootInfo;

use crate::{apic, boot, exceptions, halt};

const STACK_SIZE: usize = 16384;

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[[u8; STACK_SIZE]; MAX_CELL_CPUS]>);

// SAFETY: Each CPU uses its own part, as stack.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_SIZE]; MAX_CELL_CPUS]));

unsafe extern "Rust" {
    safe fn inmate_main(cpu: usize);
}

/// Entry: RDI = boot information, RSI = index of the CPU.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "sysv64" fn start() {
    naked_asm!(
        "lea rax, [rsi + 1]",
        "imul rax, rax, {size}",
        "lea rsp, [rip + {stacks}]",
        "add rsp, rax",
        "xor ebp, ebp",
        "call {enter}",
        size = const STACK_SIZE,
        stacks = sym STACKS,
        enter = sym enter,
    )
}

extern "sysv64" fn enter(info: *const BootInfo, cpu: usize) -> ! {
    boot::set(info);
    exceptions::load();
    apic::enable();
    inmate_main(cpu);
    halt()
}
