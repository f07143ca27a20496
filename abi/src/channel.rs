// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: how a thread in the real-time realm has its shadow thread make a system call in Linux
//! (cRTOS, VEE'20, section 4.2).
//!
//! One block of 2 MiB that both realms map. Each thread of a rich real-time process owns one [`Slot`]; the two sides
//! hand it to each other by its `state`. Words that the kernel writes and words that Linux writes
//! never share a cache line with each other, except in a slot, which has one owner at a time.
//!
//! # States of a slot
//!
//! | state | owner | next |
//! |---|---|---|
//! | [`SLOT_FREE`] | Linux | Linux: `SPAWN` (first thread of a process), `READY` (further threads) |
//! | [`SLOT_SPAWN`] | kernel | kernel: makes the process, then `REQUEST` or `EXIT` like a running thread |
//! | [`SLOT_READY`] | kernel | kernel: `REQUEST` |
//! | [`SLOT_REQUEST`] | Linux | Linux: `BUSY` when the shadow thread takes it |
//! | [`SLOT_BUSY`] | Linux | Linux: `REPLY`, or `FAULT` when the shadow touches a page that Linux does not have yet |
//! | [`SLOT_FAULT`] | kernel | kernel: `ANSWER` |
//! | [`SLOT_ANSWER`] | Linux | Linux: `BUSY` |
//! | [`SLOT_REPLY`] | kernel | kernel: `REQUEST` |
//!
//! The shadow can die in any state: Linux then sets [`SLOT_GONE`] in `notices` of the slot (not in `state`) and touches nothing of
//! the process any more: no mapping, no pin is left. When the kernel has ended the thread it stores [`SLOT_FREE`]; that is the only
//! way back to `FREE`. So the kernel may write `state` at any time that it owns the slot or has seen `GONE`.
//!
//! # Waking
//!
//! Kernel to Linux: store the slot's state (release), set its bit in [`Channel::requests`] (atomic or), ring the doorbell.
//! Linux to kernel: store the state (release) or `notices`, set the bit in [`Channel::replies`] (atomic or), full barrier, and ring only if
//! the caller outranks what its CPU runs: `slot.rank > rank || (rank == slot.rank && rank <= RANK_NORMAL)` with `rank = ranks[slot.cpu]`. The kernel
//! stores `ranks` (when it falls), full barrier, and looks at `replies` afterwards, so that no reply is lost between.
//! Notices always ring.
//!
//! # Faults
//!
//! When Linux touches an address of the process whose page it does not have, it is always on behalf of a remote call: the shadow
//! thread sleeps in the module's fault handler, and the thread in the realm, which waits for its call, is
//! handed the slot in state `FAULT` with `fault_address` and `fault_flags`. It resolves the fault in its own context and
//! at its own priority, and answers with a page of the pool or an error.
//!
//! # Drops
//!
//! When the kernel unmaps, replaces or write-protects a page that Linux was given in an answer, it posts a [`Drop`] before it lets
//! any later request of the process out. Linux carries out all posted drops of a process before it hands a request to one of its
//! shadow threads. It marks a drop done when the range is unmapped from the shadow and no page of it
//! is pinned in Linux any longer; only then may the kernel use these pages for something else.
//! No doorbell is needed for a drop; the kernel rings when half of the table is posted.

use crate::{MAX_CELL_CPUS, ring::RingHeader};

/// "CRTOSCH1", little endian.
pub const CHANNEL_MAGIC: u64 = 0x3148_4353_4f54_5243;

/// Slots of a channel; the most threads of a realm.
pub const SLOTS: usize = 1024;
/// 64-bit words of a bitmap of slots.
pub const SLOT_WORDS: usize = 16;
/// Entries of the table of drops.
pub const DROPS: usize = 1024;
/// 64-bit words of a bitmap of drops.
pub const DROP_WORDS: usize = 16;
/// Capacity of the kernel's log in bytes.
pub const KERNEL_LOG_SIZE: u32 = 0x4_0000;

/// Not in use.
pub const SLOT_FREE: u32 = 0;
/// Linux asks for a process whose first thread is this slot.
pub const SLOT_SPAWN: u32 = 1;
/// A further shadow thread waits for its first request.
pub const SLOT_READY: u32 = 2;
/// A request for Linux.
pub const SLOT_REQUEST: u32 = 3;
/// Linux works on it.
pub const SLOT_BUSY: u32 = 4;
/// Linux needs a page.
pub const SLOT_FAULT: u32 = 5;
/// The answer to a fault.
pub const SLOT_ANSWER: u32 = 6;
/// The result of a request.
pub const SLOT_REPLY: u32 = 7;

/// In `notices`: the shadow thread is gone.
pub const SLOT_GONE: u32 = 1;
/// In `notices`: `signals` holds something new.
pub const SLOT_SIGNAL: u32 = 2;

/// Rank of an idle CPU.
pub const RANK_IDLE: u32 = 0;
/// Rank of an ordinary thread (SCHED_OTHER); a thread with real-time priority `p` (1..=99) has rank `p + 1`.
pub const RANK_NORMAL: u32 = 1;

/// `Slot::op`: make system call `nr` with `args`.
pub const OP_SYSCALL: u32 = 0;
/// `Slot::op`: copy the start-up block (see [`Startup`]) to address `args[0]`, at most `args[1]` bytes. Result: its size.
pub const OP_STARTUP: u32 = 1;
/// `Slot::op`: end the shadow process with exit status `args[0]`. No reply; `GONE` follows.
pub const OP_EXIT: u32 = 2;
/// `Slot::op`: end the shadow process by signal `args[0]` with its default action. No reply; `GONE` follows.
pub const OP_EXIT_SIGNAL: u32 = 3;
/// `Slot::op`: make a further shadow thread. Result: its slot number; its tid is in that slot.
pub const OP_THREAD: u32 = 4;
/// `Slot::op`: end this shadow thread alone. No reply; `GONE` follows.
pub const OP_THREAD_EXIT: u32 = 5;
/// `Slot::op`: dispose of signal `args[0]`: `args[1]` = 0 default, 1 ignore, 2 forward to the realm, 3 no change; `args[2]` = flags of sigaction.
/// Result: what was before, by the same numbers.
pub const OP_SIGNAL_ACTION: u32 = 6;
/// `Slot::op`: forward each signal of the set `args[0]` (bit `n - 1`) whose disposition is the default, then block no signal in the
/// shadow. Result: the set that was blocked there. With `args[1]` = 1 it changes nothing.
pub const OP_SIGNAL_FORWARD: u32 = 7;
/// `Slot::op`: fork the shadow; `args[0]` = signal to the parent when the child ends. Result: the child's pid, once the child has asked for a
/// process of its own with a start-up block without executable.
pub const OP_FORK: u32 = 8;
/// `Slot::op`: execute path `args[0]` with arguments `args[1]` and environment `args[2]`, `args[3]` = blocked signals. A reply means failure; else `GONE` follows, and
/// a new process with the same pid if the realm can load the program, which goes on in Linux otherwise.
pub const OP_EXEC: u32 = 9;
/// Result of `OP_SYSCALL`: the call was not made, because a signal was forwarded first. Linux's ERESTARTSYS, which programs never see.
pub const RESULT_NOT_MADE: i64 = -512;

/// In `fault_flags`: the access is a write.
pub const FAULT_WRITE: u32 = 1;

/// In `answer`: low bits of a page's address in the cell: Linux may write to the page.
pub const ANSWER_WRITE: u64 = 1;
/// `answer` if there is nothing at the address or the access is not allowed: Linux raises the fault in the shadow's call (EFAULT).
pub const ANSWER_BAD: u64 = 0xffff_ffff_ffff_ffff;

/// One thread's place in the channel.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// `SLOT_*`; hands the slot over.
    pub state: u32,
    /// `OP_*`.
    pub op: u32,
    /// System call number.
    pub nr: u32,
    /// Rank of the caller; see [`RANK_NORMAL`].
    pub rank: u32,
    /// The program's own arguments.
    pub args: [u64; 6],
    // --- 64
    /// Result as a system call returns it (-errno on failure).
    pub result: i64,
    /// Page-aligned address that Linux needs.
    pub fault_address: u64,
    /// Page of the pool (address in the cell) and `ANSWER_WRITE`, or [`ANSWER_BAD`].
    pub answer: u64,
    /// `FAULT_*`.
    pub fault_flags: u32,
    /// Index of the caller's CPU in the cell.
    pub cpu: u32,
    /// Process number: names the process in drops and in the module; unique among live processes.
    pub process: u32,
    /// Process id of the shadow in Linux.
    pub pid: u32,
    /// Thread id of the shadow thread in Linux.
    pub tid: u32,
    /// Real user id that owns the shadow.
    pub uid: u32,
    /// Zero.
    pub reserved: [u64; 2],
    // --- 128: written by Linux at any time
    /// Signals (bit `n - 1`) that arrived for the process; the kernel takes them by exchange with 0.
    pub signals: u64,
    /// `SLOT_GONE`, `SLOT_SIGNAL`; set by atomic or. The kernel clears `SLOT_SIGNAL` alone, and all when it frees the slot.
    pub notices: u32,
    /// Zero.
    pub reserved2: u32,
    /// Zero.
    pub reserved3: [u64; 6],
    // --- 192: written by the kernel at any time, for `crtos ps`
    /// `THREAD_*` state.
    pub thread_state: u32,
    /// Real-time priority, 0 for ordinary.
    pub priority: u32,
    /// Processor time in nanoseconds, brought up to date at each switch.
    pub run_time: u64,
    /// Times that the thread was switched to.
    pub switches: u64,
    /// Local system calls.
    pub local_calls: u64,
    /// Remote system calls.
    pub remote_calls: u64,
    /// Command name, zero padded.
    pub command: [u8; 16],
    /// Pages of memory of the process.
    pub pages: u64,
}

/// `Slot::thread_state`: no thread.
pub const THREAD_NONE: u32 = 0;
/// Running or ready.
pub const THREAD_RUNNING: u32 = 1;
/// Sleeping.
pub const THREAD_SLEEPING: u32 = 2;
/// Waiting for Linux.
pub const THREAD_REMOTE: u32 = 3;
/// Ended, waits for Linux to let go.
pub const THREAD_EXITED: u32 = 4;

/// A range of a process that Linux has to let go.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Drop {
    /// [`DROP_FREE`], [`DROP_POSTED`], [`DROP_DONE`]; hands the entry over.
    pub state: u32,
    /// Process number.
    pub process: u32,
    /// Page-aligned start.
    pub start: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    /// Zero.
    pub reserved: u64,
}

/// Not in use; owned by the kernel.
pub const DROP_FREE: u32 = 0;
/// To be carried out; owned by Linux.
pub const DROP_POSTED: u32 = 1;
/// Carried out; owned by the kernel.
pub const DROP_DONE: u32 = 2;

/// Time as Linux sees it: `ns = base + ((tsc - tsc_base) * mult >> shift)`. Written by Linux under a sequence lock
/// (`sequence` odd while it changes).
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct TimePage {
    /// Sequence lock.
    pub sequence: u32,
    /// See above, 1..=32.
    pub shift: u32,
    /// See above.
    pub mult: u32,
    /// Seconds that International Atomic Time is ahead.
    pub tai_offset: u32,
    /// Time stamp counter at the base.
    pub tsc_base: u64,
    /// CLOCK_MONOTONIC at the base, nanoseconds.
    pub monotonic: u64,
    /// CLOCK_REALTIME at the base, nanoseconds since 1970.
    pub realtime: u64,
    /// CLOCK_BOOTTIME at the base, nanoseconds.
    pub boottime: u64,
}

/// `Channel::kernel_state`: not started.
pub const KERNEL_NONE: u32 = 0;
/// Ready for processes.
pub const KERNEL_READY: u32 = 1;
/// Stopped by a fault of its own; its log says which.
pub const KERNEL_DEAD: u32 = 2;

/// The block that both realms map.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// [`CHANNEL_MAGIC`], written by Linux before the start.
    pub magic: u64,
    /// [`crate::ABI_VERSION`], written by Linux.
    pub abi_version: u32,
    /// Zero.
    pub reserved: u32,
    /// Written by Linux.
    pub time: TimePage,
    /// Bit per slot: Linux stored something for the kernel.
    pub replies: [u64; SLOT_WORDS],
    /// Bit per slot: the kernel stored something for Linux.
    pub requests: [u64; SLOT_WORDS],
    /// Bit per drop: posted.
    pub posted: [u64; DROP_WORDS],
    /// `KERNEL_*`, written by the kernel.
    pub kernel_state: u32,
    /// Zero.
    pub reserved2: u32,
    /// Doorbells rung by the kernel, and taken by it.
    pub doorbells_sent: u64,
    /// See `doorbells_sent`.
    pub doorbells_taken: u64,
    /// Pages of the pool: all.
    pub pool_pages: u64,
    /// Pages of the pool: free.
    pub pool_free: u64,
    /// Bytes of the kernel's heap: all.
    pub heap_size: u64,
    /// Bytes of the kernel's heap: in use.
    pub heap_used: u64,
    /// Rank of what each CPU of the realm runs.
    pub ranks: [u32; MAX_CELL_CPUS],
    /// Time each CPU was idle, nanoseconds.
    pub idle_time: [u64; MAX_CELL_CPUS],
    /// Table of drops.
    pub drops: [Drop; DROPS],
    /// The threads.
    pub slots: [Slot; SLOTS],
    /// The kernel's log; its bytes follow.
    pub log: RingHeader,
    /// See `log`.
    pub log_bytes: [u8; KERNEL_LOG_SIZE as usize],
}

/// Head of the start-up block that a shadow copies on `OP_STARTUP`: after it come, each zero terminated, the path of the
/// program, the arguments, the environment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Startup {
    /// Bytes of the whole block.
    pub size: u32,
    /// Arguments.
    pub argc: u32,
    /// Environment strings.
    pub envc: u32,
    /// Descriptor of the opened executable in the shadow (close-on-exec), or [`NO_EXECUTABLE`].
    pub executable: u32,
    /// User and group ids: real, effective.
    pub uid: u32,
    /// See `uid`.
    pub euid: u32,
    /// See `uid`.
    pub gid: u32,
    /// See `uid`.
    pub egid: u32,
    /// Soft limit of the stack (RLIMIT_STACK).
    pub stack_limit: u64,
    /// AT_HWCAP as Linux gives it.
    pub hwcap: u64,
    /// AT_HWCAP2 as Linux gives it.
    pub hwcap2: u64,
    /// 16 random bytes from Linux for AT_RANDOM.
    pub random: [u8; 16],
}

/// `Startup::executable` of a forked process: it goes on where its parent called fork.
pub const NO_EXECUTABLE: u32 = 0xffff_ffff;

/// Addresses of the program that belong to the shadow itself and are never mapped in the realm: the shadow is linked at the start.
pub const SHADOW_START: u64 = 0x7e00_0000_0000;
/// End of the shadow's range.
pub const SHADOW_END: u64 = 0x7e01_0000_0000;
/// Lowest address of a program (vm.mmap_min_addr).
pub const USER_START: u64 = 0x1_0000;
/// One past the highest address of a program.
pub const USER_END: u64 = 0x7fff_ffff_f000;
