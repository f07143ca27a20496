// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a program.

/// General registers of a program while it is in the kernel, at the top of its kernel stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UserContext {
    /// Registers by their names.
    pub r15: u64,
    #[allow(missing_docs)]
    pub r14: u64,
    #[allow(missing_docs)]
    pub r13: u64,
    #[allow(missing_docs)]
    pub r12: u64,
    #[allow(missing_docs)]
    pub rbp: u64,
    #[allow(missing_docs)]
    pub rbx: u64,
    #[allow(missing_docs)]
    pub r11: u64,
    #[allow(missing_docs)]
    pub r10: u64,
    #[allow(missing_docs)]
    pub r9: u64,
    #[allow(missing_docs)]
    pub r8: u64,
    #[allow(missing_docs)]
    pub rax: u64,
    #[allow(missing_docs)]
    pub rcx: u64,
    #[allow(missing_docs)]
    pub rdx: u64,
    #[allow(missing_docs)]
    pub rsi: u64,
    #[allow(missing_docs)]
    pub rdi: u64,
    /// Number of the system call on entry by SYSCALL, else `u64::MAX` (Linux's `orig_rax`).
    pub orig_rax: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// Code segment; the kernel sets it.
    pub cs: u64,
    /// Flags; the kernel lets through only what a program may set.
    pub rflags: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Stack segment; the kernel sets it.
    pub ss: u64,
}

/// Leaves the kernel: the current thread goes on in user mode with `context`, FS base and GS base. Its kernel stack starts anew:
/// what the caller still owns is leaked, so drop it first. Goes through [`crate::process::return_to_user`] if attention is set.
pub fn enter_user(_context: &UserContext, _fs_base: u64, _gs_base: u64) -> ! {
    unimplemented!()
}
