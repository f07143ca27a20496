// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls into the hypervisor.

use core::arch::asm;

use crtos_abi::hypercall::{DOORBELL_ANYWHERE, HC_DOORBELL};

/// Makes call `number` with two arguments; returns its result.
pub fn call(number: u64, first: u64, second: u64) -> i64 {
    call_with(number, [first, second, 0, 0])
}

/// Makes call `number` with four arguments; returns its result.
pub fn call_with(number: u64, arguments: [u64; 4]) -> i64 {
    let [first, second, third, fourth] = arguments;
    let result: i64;
    // SAFETY: The hypervisor changes no register but RAX, and no memory of the cell.
    unsafe {
        asm!(
            "vmmcall",
            inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth,
            options(nostack)
        );
    }
    result
}

/// Rings Linux's doorbell; false if Linux does not listen.
pub fn ring_linux() -> bool {
    call(HC_DOORBELL, DOORBELL_ANYWHERE, 0) == 0
}
