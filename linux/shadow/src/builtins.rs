// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that compiled code calls by name. Elsewhere the C library has them.

use core::arch::{asm, global_asm};

/// Copies `length` bytes from `from` to `to` in ascending order.
///
/// # Safety
/// Both ranges are valid; `to` does not lie inside the source behind `from`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: both ranges are valid, which the caller of this function ensures; the direction flag
    // is clear by the ABI.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// Fills `length` bytes at `to`.
///
/// # Safety
/// The range is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    // SAFETY: the range is valid, which the caller of this function ensures; the direction flag is
    // clear by the ABI.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            in("al") value as u8,
            options(nostack, preserves_flags),
        );
    }
    to
}

// In assembly, because a loop in Rust is compiled into a call of the function itself.
global_asm!(
    ".globl memmove",
    "memmove:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 1f",
    "rep movsb",
    "ret",
    "1:",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    ".globl memcmp",
    "memcmp:",
    ".globl bcmp",
    "bcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    "test rcx, rcx",
    "jz 2f",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "2:",
    "ret",
    ".globl strlen",
    "strlen:",
    "lea rax, [rdi - 1]",
    "3:",
    "inc rax",
    "cmp byte ptr [rax], 0",
    "jne 3b",
    "sub rax, rdi",
    "ret",
);

/// Referred to by tables of the precompiled core library; never called, because a panic aborts.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
