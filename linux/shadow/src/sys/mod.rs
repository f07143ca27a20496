// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the shadow's own, without a C library.
//!
//! [`call`] makes any of them. The other modules make one each behind a safe function, or behind a
//! type that owns what the call is about.

mod errno;
pub mod file;
pub mod futex;
pub mod mapping;
pub mod process;

use core::arch::asm;

pub use errno::{Errno, split, to_number};

/// Makes system call `nr`; the arguments behind `args` are 0.
///
/// # Safety
/// The call must do to the shadow's own memory and threads only what the code of the shadow
/// expects. Whatever it does to the memory of the program is fine (see [`crate::program`]).
#[inline(always)]
pub unsafe fn call<const N: usize>(nr: u32, args: [u64; N]) -> Result<u64, Errno> {
    const { assert!(N <= 6) };
    let argument = |index: usize| args.get(index).copied().unwrap_or(0);
    let result;
    // SAFETY: the instruction changes RAX, RCX and R11. The caller ensures that the call does
    // nothing to this program that its code does not expect.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") u64::from(nr) => result,
            in("rdi") argument(0),
            in("rsi") argument(1),
            in("rdx") argument(2),
            in("r10") argument(3),
            in("r8") argument(4),
            in("r9") argument(5),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    split(result)
}
