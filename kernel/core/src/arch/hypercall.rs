// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls to the hypervisor (see `lib/abi/src/hypercall.rs`).

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use crtos_abi::hypercall::{
    HC_ADDRESS, HC_CELL_UNLOCK, HC_DOORBELL, HC_PUTC, HC_ROOT_STATE, ROOT_HALTED,
};
use crtos_channel::DoorbellCpu;
use spin::Once;

static INTEL: Once<bool> = Once::new();

/// Whether the CPU is Intel's, whose instruction is VMCALL; AMD's is VMMCALL.
fn is_intel() -> bool {
    *INTEL.call_once(|| __cpuid(0).ebx == u32::from_le_bytes(*b"Genu"))
}

fn call(number: u64, argument: u64) -> i64 {
    call_with(number, [argument, 0, 0, 0])
}

fn call_with(number: u64, [first, second, third, fourth]: [u64; 4]) -> i64 {
    let result: i64;
    // SAFETY: the kernel runs in a cell; the calls made here change nothing of its memory, but for
    // places of the share window that nobody uses. Those about devices reach functions that the
    // cell has, and none of the realm reaches memory.
    unsafe {
        if is_intel() {
            asm!("vmcall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
                in("rdx") third, in("r10") fourth, options(nostack));
        } else {
            asm!("vmmcall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
                in("rdx") third, in("r10") fourth, options(nostack));
        }
    }
    result
}

/// Makes a call about functions or lines of the cell, or its share window. Any context; causes one
/// VM exit.
pub(crate) fn call_device(number: u64, arguments: [u64; 4]) -> i64 {
    call_with(number, arguments)
}

/// Rings Linux's doorbell on its CPU `cpu` if it wants that. Any context; causes one VM exit.
pub fn ring_linux(cpu: DoorbellCpu) {
    call(HC_DOORBELL, cpu.to_word());
}

/// Agrees to the end of the cell: Linux may stop it, if it was locked. Any context.
pub fn agree_to_end() {
    // It is refused where the cell is not locked.
    call(HC_CELL_UNLOCK, 0);
}

/// Whether the hypervisor has halted Linux. Any context; causes one VM exit.
pub fn linux_is_halted() -> bool {
    call(HC_ROOT_STATE, 0) == ROOT_HALTED
}

/// Appends a byte to the hypervisor's log. Any context; causes one VM exit.
pub fn put_byte(byte: u8) {
    call(HC_PUTC, u64::from(byte));
}

/// Where the cell sees the byte at `address`, as the machine counts; `None` if it does not. Any
/// context; causes one VM exit.
pub fn own_address(address: u64) -> Option<u64> {
    u64::try_from(call(HC_ADDRESS, address)).ok()
}
