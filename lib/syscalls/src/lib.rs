// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of Linux system calls: local, remote, dual, unsupported.
//!
//! [`TABLE`] has one row for each number of the current Linux x86-64 table. The kernel's dispatcher
//! ([`lookup`] and a match on [`Class`]), the shadow's guard of its own descriptor
//! ([`Row::takes_fd`]), the page `docs/system-calls.md` and the tests come from it.
//!
//! Beside the table lie formats of Linux that calls need and that need no hardware: executables
//! ([`exec`]), scripts ([`script`]), `struct sched_attr` ([`sched`]), lists of CPUs ([`cpulist`]),
//! files about CPUs ([`topology`]), structures that programs pass ([`structs`]), and what
//! `crtos run` chooses for a program ([`choices`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod call;
pub mod choices;
pub mod cpulist;
mod docs;
pub mod exec;
pub mod sched;
pub mod script;
pub mod structs;
mod table;
pub mod topology;

pub use call::Call;
pub use docs::page;
pub use table::TABLE;

/// Who serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The real-time kernel alone; Linux is not asked.
    Local(Call),
    /// Linux, by the shadow, with the program's own arguments.
    Remote,
    /// The real-time kernel, which has the shadow do Linux's part.
    Dual(Call),
    /// Nobody: `ENOSYS`.
    Unsupported,
}

/// The call may wait without bound, in Linux or in the realm, and a signal ends the wait.
pub const WAITS: u16 = 1;
/// The call is made again after a handler with `SA_RESTART` interrupted it (signal(7)).
pub const RESTARTS: u16 = 2;
/// The first argument is a file descriptor.
pub const FD: u16 = 4;
/// Some argument points into the program's memory.
pub const POINTERS: u16 = 8;
/// The call may change the user ids by which Linux decides which processes the caller may signal.
pub const IDS: u16 = 16;

/// The result is a new file descriptor.
pub const NEW_FD: u16 = 32;
/// The first argument is the descriptor of a directory that a path is relative to.
pub const DIRECTORY: u16 = 64;

/// The call may change what Linux has new threads inherit of a thread: of the caller, or of one
/// that an argument names.
pub const HERITAGE: u16 = 128;
/// It opens the file of a path, or asks for it.
pub const ASKS: u16 = 256;

/// What the table says of one system call.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The number in RAX.
    pub number: u16,
    /// Linux's name.
    pub name: &'static str,
    /// Who serves it.
    pub class: Class,
    /// [`WAITS`], [`RESTARTS`], [`FD`], [`POINTERS`], [`IDS`], [`NEW_FD`], [`DIRECTORY`],
    /// [`HERITAGE`], [`ASKS`].
    pub flags: u16,
    /// The remark of the documentation page: what is supported, or why the call is not; may be
    /// empty.
    pub support: &'static str,
}

impl Row {
    /// Says whether the call is made again after a handler with `SA_RESTART`.
    pub fn restarts(&self) -> bool {
        self.flags & RESTARTS != 0
    }

    /// Says whether the call may wait without bound.
    pub fn waits(&self) -> bool {
        self.flags & WAITS != 0
    }

    /// Says whether the call may change user ids.
    pub fn changes_ids(&self) -> bool {
        self.flags & IDS != 0
    }

    /// Says whether the call may change what new threads inherit of a thread.
    #[inline]
    pub fn changes_heritage(&self) -> bool {
        self.flags & HERITAGE != 0
    }

    /// Returns the id of the thread of which new threads may inherit something else after a call
    /// with these arguments, 0 for the caller; `None` if there is no such thread.
    pub fn changes_heritage_of(&self, args: &[u64; 6]) -> Option<u64> {
        /// For setpriority(2) and for ioprio_set(2): the second argument names a thread. Others
        /// change all threads of a process alike.
        const PRIO_PROCESS: u32 = 0;
        const IOPRIO_WHO_PROCESS: u32 = 1;
        let of = |is_thread: bool| is_thread.then_some(args[1]);
        match self.name.as_bytes() {
            _ if !self.changes_heritage() => None,
            b"setpriority" => of(args[0] as u32 == PRIO_PROCESS),
            b"ioprio_set" => of(args[0] as u32 == IOPRIO_WHO_PROCESS),
            // It may only be asked for.
            b"personality" => (args[0] as u32 != u32::MAX).then_some(0),
            b"prctl" => INHERITED_OPTIONS.contains(&(args[0] as u32)).then_some(0),
            _ => Some(0),
        }
    }

    /// Says whether the first argument is a file descriptor.
    pub fn takes_fd(&self) -> bool {
        self.flags & FD != 0
    }

    /// Says whether the result is a new file descriptor.
    pub fn makes_fd(&self) -> bool {
        self.flags & NEW_FD != 0
    }

    /// Says whether the first argument is the descriptor of a directory that a path is relative to.
    pub fn takes_directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    /// Returns the position of the path, if the call opens what is there or asks for it: that may
    /// be the program's own executable, which Linux knows as the shadow's.
    #[inline]
    pub fn path_asked_for(&self) -> Option<usize> {
        (self.flags & ASKS != 0).then_some(self.takes_directory().into())
    }

    /// Returns the positions of further arguments that are file descriptors, without those of
    /// directories that paths are relative to.
    pub fn further_fds(&self) -> &'static [usize] {
        match self.name.as_bytes() {
            b"sendfile" | b"tee" => &[1],
            b"splice" | b"copy_file_range" | b"epoll_ctl" => &[2],
            _ => &[],
        }
    }
}

/// Options of prctl(2) that change what new threads inherit of the caller.
const INHERITED_OPTIONS: [u32; 7] = [
    8,  // PR_SET_KEEPCAPS
    15, // PR_SET_NAME
    24, // PR_CAPBSET_DROP
    28, // PR_SET_SECUREBITS
    29, // PR_SET_TIMERSLACK
    38, // PR_SET_NO_NEW_PRIVS
    47, // PR_CAP_AMBIENT
];

/// Finds the row of system call `number`; `None` for a number that Linux does not have either.
/// Constant time.
pub fn lookup(number: u64) -> Option<&'static Row> {
    let row = *INDEX.get(usize::try_from(number).ok()?)?;
    TABLE.get(usize::from(row))
}

/// One past the highest number of a system call.
pub const NUMBERS: usize = TABLE[TABLE.len() - 1].number as usize + 1;

/// The position in [`TABLE`] of each number; beyond its end for a number without a row.
static INDEX: [u16; NUMBERS] = {
    let mut index = [u16::MAX; NUMBERS];
    let mut position = 0;
    while position < TABLE.len() {
        index[TABLE[position].number as usize] = position as u16;
        position += 1;
    }
    index
};
