// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls into the hypervisor.

use core::arch::asm;

use crtos_abi::hypercall::{DOORBELL_ANYWHERE, HC_DOORBELL};

/// Makes call `number` with two arguments; returns its result.
pub fn call(number: u64, first: u64, second: u64) -> i64 {
    let result: i64;
    // SAFETY: The hypervisor changes no register but RAX, and no memory of the cell.
    unsafe {
        asm!(
            "vmmcall",
            inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            options(nostack)
        );
    }
    result
}

/// Rings Linux's doorbell; false if Linux does not listen.
pub fn ring_linux() -> bool {
    call(HC_DOORBELL, DOORBELL_ANYWHERE, 0) == 0
}
