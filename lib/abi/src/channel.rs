// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: how a thread in the real-time realm has its shadow thread make a system call in
//! Linux (cRTOS, VEE'20, section 4.2).
//!
//! One block of 2 MiB that both realms map. Each thread of a rich real-time process owns one
//! [`Slot`]; the two sides hand it to each other by its `state`. Words that the kernel writes and
//! words that Linux writes never share a cache line with each other, except in a slot, which has
//! one owner at a time.
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
//! The shadow can die in any state: Linux then sets [`SLOT_GONE`] in `notices` of the slot (not in
//! `state`) and touches nothing of the process any more: no mapping, no pin is left. When the
//! kernel has ended the thread it stores [`SLOT_FREE`]; that is the only way back to `FREE`. So the
//! kernel may write `state` at any time that it owns the slot or has seen `GONE`.
//!
//! Before that it sets [`SLOT_LEAVING`], when the shadow process has left its memory or its file.
//! Linux tells nobody of the end of the process until the threads of all its slots are
//! [`THREAD_EXITED`], for a tenth of a second at most: who waits for a process finds that it runs
//! no more.
//!
//! # Waking
//!
//! Kernel to Linux: store the slot's state (release), set its bit in [`Channel::requests`] (atomic
//! or), ring the doorbell on the CPU that `waits_on` names. Linux looks at all bits wherever it
//! rings. Linux to kernel: store the state (release) or `notices`, set the bit in
//! [`Channel::replies`] (atomic or), full barrier, and ring only where the caller may run: on
//! `slot.cpu` if `slot.rank > ranks[slot.cpu]`, else on the CPU of the lowest rank if that is not
//! above `slot.rank`. The kernel stores `ranks` (when one falls) or `slot.rank` (when it changes
//! during a request), full barrier, and looks at `replies` afterwards, so that no reply is lost
//! between. Notices always ring.
//!
//! # Faults
//!
//! When Linux touches an address of the process whose page it does not have, it is always on behalf
//! of a remote call: the shadow thread sleeps in the module's fault handler, and the thread in the
//! realm, which waits for its call, is handed the slot in state `FAULT` with `fault_address` and
//! `fault_flags`. It resolves the fault in its own context and at its own priority, and answers
//! with a page of the pool or an error.
//!
//! # Revocations
//!
//! When the kernel unmaps, replaces or write-protects a page that Linux was given in an answer, it
//! posts a [`Revocation`] before it lets any later request of the process out. Linux carries out
//! all posted revocations of a process before it hands a request to one of its shadow threads. It
//! marks a revocation done when the range is unmapped from the shadow and no page of it is pinned
//! in Linux any longer; only then may the kernel use these pages for something else. No doorbell is
//! needed for a revocation; the kernel rings when half of the table is posted.
//!
//! # Frames
//!
//! The two ends of the virtual Ethernet share an [`EthernetRing`] for each direction. A frame lies
//! in as many places as it needs, one behind the other; who sends leaves out those at the end of
//! the ring that are too few for it. It copies a frame to the place `written % ETHERNET_PLACES`,
//! stores `written` (release), full barrier, and rings if `wants_frames` is set. Who receives
//! copies it out, and stores `taken` (release). Before it waits it sets `wants_frames`, full
//! barrier, and looks at `written` again. Linux sets `wants_room` when the ring is full, full
//! barrier, and looks at `taken` again; the kernel rings when half of the ring is free. The kernel
//! looks for room itself.
//!
//! # Shared pages
//!
//! By [`OP_SHARE`] Linux puts pages of its own at places of the share window ([`crate::share`])
//! that the kernel names, and pins them. Where a file loses such a page, Linux sets the bit of the
//! place in `recalled` and asks the question `recall`; the page stays pinned. When the kernel has
//! given a place up to the hypervisor, it sets the bit in `given_up` and rings. Linux takes that
//! bit, has the hypervisor confirm it, clears the bit in `recalled`, and unpins the page.
//!
//! # Futexes
//!
//! Shadow threads wait and wake in Linux at words that both realms share. Where none could wake,
//! because the process was killed or too much is to be woken, the kernel counts `futex_looks` and
//! rings: Linux has everybody who waits at a shared futex look whether the word has changed.
//!
//! # Successors
//!
//! A local file that leaves the realm has a *successor* in Linux. By [`OP_KEEP_SUCCESSOR`] Linux
//! keeps that under a number that the kernel chooses, and by [`OP_TAKE_SUCCESSOR`] each process
//! that has the local file gets a descriptor of it. When nobody has the local file any more, the
//! kernel sets the bit of the number in `successors_dropped` and rings. Linux lets the file go and
//! clears the bit, after which the kernel may use the number again.

use core::mem::offset_of;

use crate::{MAX_CELL_CPUS, PAGE_SIZE, device::MAX_DEVICES, ring::RingHeader, share::PLACE_WORDS};

/// "CRTOSCH1", little endian.
pub const CHANNEL_MAGIC: u64 = 0x3148_4353_4f54_5243;

/// Slots of a channel; the most threads of a realm.
pub const SLOTS: usize = 1024;
/// 64-bit words of a bitmap of slots.
pub const SLOT_WORDS: usize = 16;
/// The lowest bit of the number of a process in [`Slot::parent`].
pub const PARENT_PROCESS: u32 = 16;
/// [`Slot::doubts`]: the real user id is not all that tells what the process is permitted. Its
/// other user ids differ, or are [`IDS_FOREIGN`]; it is root without all capabilities, or another
/// user with some.
pub const IDS_UNCERTAIN: u32 = 1;
/// [`Slot::doubts`]: its ids are those of a user namespace. They mean nothing to others, and others
/// change them.
pub const IDS_FOREIGN: u32 = 2;
/// Entries of the table of revocations.
pub const REVOCATIONS: usize = 1024;
/// 64-bit words of a bitmap of revocations.
pub const REVOCATION_WORDS: usize = 16;
/// Most files that Linux keeps at a time as successors of local ones.
pub const SUCCESSORS: usize = 256;
/// 64-bit words of a bitmap of successors.
pub const SUCCESSOR_WORDS: usize = SUCCESSORS / 64;
/// Capacity of the kernel's log in bytes.
pub const KERNEL_LOG_SIZE: u32 = 0x4_0000;
/// Most bytes of Linux's last words.
pub const LAST_WORDS_SIZE: u32 = 0x2_0000;

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
/// In `notices`: `info` holds a signal.
pub const SLOT_SIGNAL: u32 = 2;
/// In `notices`: the shadow thread is stopped (SIGSTOP), and so is its thread until Linux clears
/// this.
pub const SLOT_STOPPED: u32 = 4;
/// In `notices`: the process ends in Linux, where nobody hears of that yet.
pub const SLOT_LEAVING: u32 = 8;

/// Rank of an idle CPU.
pub const RANK_IDLE: u32 = 0;
/// Rank of an ordinary thread (SCHED_OTHER); a thread with real-time priority `p` (1..=99) has rank
/// `p + 1`, one with SCHED_DEADLINE 101.
pub const RANK_NORMAL: u32 = 1;
/// Rank of a CPU that runs no threads: that there is not, or that has not begun.
pub const RANK_ABSENT: u32 = 0xffff_ffff;

/// `Slot::op`: what the kernel asks of the shadow. The crate `crtos-channel` describes each
/// operation, its arguments and its result (`Operation`). This one makes a system call.
pub const OP_SYSCALL: u32 = 0;
/// Copies the start-up block.
pub const OP_STARTUP: u32 = 1;
/// Ends the shadow process.
pub const OP_EXIT: u32 = 2;
/// Ends the shadow process by a signal, the first argument. The second is 1 if that is because the
/// realm has no memory left for the program, of which Linux's log tells then.
pub const OP_EXIT_SIGNAL: u32 = 3;
/// Makes further shadow threads.
pub const OP_THREAD: u32 = 4;
/// Ends the shadow thread.
pub const OP_THREAD_EXIT: u32 = 5;
/// Sets what the shadow does on a signal.
pub const OP_SIGNAL_ACTION: u32 = 6;
/// Forwards a set of signals.
pub const OP_SIGNAL_FORWARD: u32 = 7;
/// Tells the signals that are blocked.
pub const OP_SIGNALS_BLOCKED: u32 = 8;
/// Forks the shadow.
pub const OP_FORK: u32 = 9;
/// Executes a program.
pub const OP_EXEC: u32 = 10;
/// Tells the scheduling of a shadow thread.
pub const OP_SCHEDULING: u32 = 11;
/// Sets the scheduling of a shadow thread.
pub const OP_SET_SCHEDULING: u32 = 12;
/// Copies memory.
pub const OP_COPY: u32 = 13;
/// Tells the status of a descriptor. This one, [`OP_SCHEDULING`], [`OP_READ`], [`OP_KEEP`],
/// [`OP_LET_GO`], [`OP_IS_CAPABLE`], [`OP_SEGMENT`], [`OP_LIMITS`], [`OP_MEMORY_LIMITS`],
/// [`OP_REGISTERS`], [`OP_SHARE`], [`OP_FILE_NAME`], [`OP_MAY`], [`OP_SOCKET`], [`OP_LOCKED`],
/// [`OP_KEEP_SUCCESSOR`] and [`OP_TAKE_SUCCESSOR`] are carried out by the module: the shadow, over
/// which its owner has power, never sees them.
pub const OP_STATUS: u32 = 14;
/// Opens a file in which Linux tells of CPUs.
pub const OP_TOPOLOGY: u32 = 15;
/// Tells what holds for descriptors.
pub const OP_DESCRIPTOR_LIMITS: u32 = 16;
/// Tells which numbers of descriptors are in use.
pub const OP_DESCRIPTORS_IN_USE: u32 = 17;
/// Puts placeholders at numbers of descriptors.
pub const OP_PLACE_DESCRIPTORS: u32 = 18;
/// Opens a device.
pub const OP_OPEN_DEVICE: u32 = 19;
/// Tells the status of a device.
pub const OP_DEVICE_STATUS: u32 = 20;
/// Reads a file into pages of the pool.
pub const OP_READ: u32 = 21;
/// Keeps a file open for [`OP_READ`].
pub const OP_KEEP: u32 = 22;
/// Lets a file go that was kept.
pub const OP_LET_GO: u32 = 23;
/// Tells whether the shadow thread has a capability.
pub const OP_IS_CAPABLE: u32 = 24;
/// Tells which segment of System V shared memory is attached, and keeps it open for [`OP_READ`].
pub const OP_SEGMENT: u32 = 25;
/// Tells the limits of a process.
pub const OP_LIMITS: u32 = 26;
/// Says that the realm takes no new program, and ends the shadow process.
pub const OP_REFUSE: u32 = 27;
/// Tells which registers of a function of the realm a mapping of Linux's shows.
pub const OP_REGISTERS: u32 = 28;
/// Puts pages of a mirror at places of the share window.
pub const OP_SHARE: u32 = 29;
/// Makes a system call on the program's executable.
pub const OP_ASK_EXECUTABLE: u32 = 30;
/// Tells the limits of the caller's memory.
pub const OP_MEMORY_LIMITS: u32 = 31;
/// Tells what the file of a descriptor is called.
pub const OP_FILE_NAME: u32 = 32;
/// Tells whether the caller may do something to another thread.
pub const OP_MAY: u32 = 33;
/// What that is: change its scheduling and its CPUs.
pub const MAY_SCHEDULE: u64 = 0;
/// Change the limits of its process.
pub const MAY_LIMIT: u64 = 1;
/// Read and change the memory of its process.
pub const MAY_TRACE: u64 = 2;
/// Tells what kind of a socket a descriptor is.
pub const OP_SOCKET: u32 = 34;
/// Says how much memory is locked.
pub const OP_LOCKED: u32 = 35;
/// Keeps what a descriptor is of as the successor of a local file.
pub const OP_KEEP_SUCCESSOR: u32 = 36;
/// Makes a descriptor of a successor.
pub const OP_TAKE_SUCCESSOR: u32 = 37;
/// In the fourth argument of `OP_SHARE`, above the number of pages: the realm writes to them.
pub const SHARE_WRITE: u64 = 0x1_0000_0000;
/// There as well: pages that the file does not have yet are made, all and not the first alone.
pub const SHARE_ALL: u64 = 0x2_0000_0000;
/// Most pages of one `OP_SHARE`.
pub const MOST_SHARED_PAGES: u64 = 64;
/// The number of bytes begins at this bit of the first argument of `OP_READ`, behind what is read.
pub const READ_LENGTH_SHIFT: u32 = 47;
/// Most pages that one `OP_READ` fills.
pub const MOST_READ_PAGES: u64 = 16;
/// In the last word of the reply to `OP_STATUS` or `OP_SEGMENT`, whose low half is the mode: no
/// block of the file is in use.
pub const STATUS_EMPTY: u64 = 0x1_0000_0000;
/// There as well: `OP_READ` can read the file.
pub const STATUS_READABLE: u64 = 0x2_0000_0000;
/// There as well: its file system is not in the hands of a user.
pub const STATUS_TRUSTED: u64 = 0x4_0000_0000;
/// There as well: it is a character device, and its number (`st_rdev`) takes the place of the size.
pub const STATUS_DEVICE: u64 = 0x8_0000_0000;
/// There as well: what the file maps may be registers of a device, of which `OP_REGISTERS` tells.
pub const STATUS_REGISTERS: u64 = 0x10_0000_0000;
/// There as well: it shows I/O ports of a function of the realm, which takes the place of the size:
/// bus, device and function from bit [`STATUS_FUNCTION_SHIFT`] on, below that the base address
/// register, or [`STATUS_CONFIGURATION`].
pub const STATUS_PORTS: u64 = 0x20_0000_0000;
/// See [`STATUS_PORTS`]: it shows configuration space of a function whose pin interrupts the realm.
pub const STATUS_CONFIGURATION: u8 = 0xff;
/// There as well: Linux and the realm can share the pages of the file by `OP_SHARE`.
pub const STATUS_SHARABLE: u64 = 0x40_0000_0000;
/// See [`STATUS_PORTS`].
pub const STATUS_FUNCTION_SHIFT: u32 = 8;
/// Most threads that one `OP_THREAD` makes.
pub const MOST_NEW_THREADS: u64 = 16;
/// The signal that interrupts system calls in the shadow when the kernel asks for that; its
/// `si_code` is SI_KERNEL then.
pub const INTERRUPT_SIGNAL: u32 = 64;
/// Result of `OP_SYSCALL`: the call was not made, because a signal was forwarded first, or the
/// kernel interrupted it. Linux's ERESTARTSYS, which programs never see.
pub const RESULT_NOT_MADE: i64 = -512;
/// Result of `OP_EXEC`: the program would go on in Linux.
pub const RESULT_IN_LINUX: i64 = -513;

/// In `fault_flags`: the access is a write.
pub const FAULT_WRITE: u32 = 1;

/// In `answer`: low bits of a page's address in the cell: Linux may write to the page.
pub const ANSWER_WRITE: u64 = 1;
/// `answer` if there is nothing at the address or the access is not allowed: Linux raises the fault
/// in the shadow's call (EFAULT).
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
    /// Rank of the caller; see [`RANK_NORMAL`]. The kernel may store another one at any time.
    pub rank: u32,
    /// The program's own arguments. In a reply of the module: what it tells.
    pub args: [u64; 6],
    // --- 64
    /// Result as a system call returns it (-errno on failure).
    pub result: i64,
    /// Page-aligned address that Linux needs.
    pub fault_address: u64,
    /// Page of the pool or place of the share window (address in the cell) and `ANSWER_WRITE`, or
    /// [`ANSWER_BAD`].
    pub answer: u64,
    /// `FAULT_*`.
    pub fault_flags: u32,
    /// Index of the caller's CPU in the cell.
    pub cpu: u32,
    /// Process number: names the process in revocations and in the module; unique among live
    /// processes.
    pub process: u32,
    /// Process id of the shadow in Linux's first pid namespace.
    pub pid: u32,
    /// Thread id of the shadow thread there.
    pub tid: u32,
    /// Real user id that owns the shadow.
    pub uid: u32,
    /// In state `SPAWN`: 1 + slot of the thread that forked this process, as the module has
    /// checked, or 0. With [`PARENT_PROCESS`] the number of that thread's process: when the kernel
    /// looks, the slot may be another one's.
    pub parent: u32,
    /// Stored by the kernel at any time: 1 asks Linux to interrupt the system call that the shadow
    /// thread makes or is about to make. Linux exchanges it with 0.
    pub interrupt: u32,
    /// In state `READY`: what the thread inherited, a number that the kernel gave whoever made it.
    /// In state `SPAWN`: who pays for the process, a user id in Linux's first user namespace.
    pub heritage_or_payer: u32,
    /// `IDS_*`.
    pub doubts: u32,
    // --- 128: written by Linux at any time
    /// A signal that arrived: the start of its `siginfo`. Linux stores the next one when the kernel
    /// has cleared `SLOT_SIGNAL`.
    pub info: [u64; 6],
    /// `SLOT_GONE`, `SLOT_SIGNAL`, `SLOT_STOPPED`, `SLOT_LEAVING`; set by atomic or. The kernel
    /// clears `SLOT_SIGNAL` alone, and all when it frees the slot.
    pub notices: u32,
    /// The CPU of Linux on which the shadow thread waits, or waited last: where the doorbell should
    /// ring. A hint: nothing depends on it.
    pub waits_on: u32,
    /// The pid namespace of the shadow, by its inode number; kept as the words of the owner above.
    pub pid_namespace: u32,
    /// Thread id of the shadow thread in that, which is the one that the program sees.
    pub own_tid: u32,
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
/// Ended, has left its memory, and waits for Linux to let go.
pub const THREAD_EXITED: u32 = 4;

/// A range of a process that Linux has to let go.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Revocation {
    /// [`REVOCATION_FREE`], [`REVOCATION_POSTED`], [`REVOCATION_DONE`]; hands the entry over.
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
pub const REVOCATION_FREE: u32 = 0;
/// To be carried out; owned by Linux.
pub const REVOCATION_POSTED: u32 = 1;
/// Carried out; owned by the kernel.
pub const REVOCATION_DONE: u32 = 2;

/// Clocks as lines: `ns = base + ((tsc - tsc_base) * mult >> shift)`, of the time stamp counter.
/// Under a sequence lock (`sequence` odd while it changes). A page of its own. There are two: Linux
/// writes that of the channel, by which the kernel leads its clocks. The kernel writes its own,
/// which programs can read.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
pub struct TimePage {
    /// Sequence lock.
    pub sequence: u32,
    /// `shift` of that formula, 1..=32.
    pub shift: u32,
    /// `mult` of that formula, for all clocks but CLOCK_MONOTONIC_RAW.
    pub mult: u32,
    /// The multiplier of CLOCK_MONOTONIC_RAW.
    pub raw_mult: u32,
    /// Time stamp counter at the base.
    pub tsc_base: u64,
    /// CLOCK_MONOTONIC at the base, nanoseconds.
    pub monotonic: u64,
    /// CLOCK_REALTIME at the base, nanoseconds since 1970.
    pub realtime: u64,
    /// CLOCK_BOOTTIME at the base, nanoseconds.
    pub boottime: u64,
    /// CLOCK_TAI at the base, nanoseconds since 1970.
    pub tai: u64,
    /// CLOCK_MONOTONIC_RAW at the base, nanoseconds.
    pub raw: u64,
    /// Nanoseconds of Linux's tick: the resolution of its coarse clocks.
    pub tick: u32,
    /// How often one of the clocks was set. Stored before the doorbell rings for it.
    pub steps: u32,
    /// How often CLOCK_REALTIME was.
    pub realtime_steps: u32,
    /// Zero.
    pub reserved: [u32; 1003],
}

/// `Channel::kernel_state`: not started.
pub const KERNEL_NONE: u32 = 0;
/// Ready for processes.
pub const KERNEL_READY: u32 = 1;
/// Stopped by a fault of its own; its log says which.
pub const KERNEL_DEAD: u32 = 2;
/// Runs, and takes no new program of Linux any more.
pub const KERNEL_SEALED: u32 = 3;

/// A question of Linux to the kernel; looked at when the doorbell rings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Number of the last question of Linux.
    pub asked: u32,
    /// Number of the last question that the kernel has answered.
    pub answered: u32,
}

/// Programs that [`HadDevice`] names at most.
pub const NAMED_USERS: usize = 14;

/// A PCI function or a platform device that the realm is to have, as Linux says. A hint: the
/// hypervisor tells which it has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WantedDevice {
    /// 1 + function (bus in bits 15..8, device in bits 7..3, function in bits 2..0), or number of
    /// the platform device; 0: none.
    pub function: u32,
    /// A number that no function had before, nor this one when the realm got it another time.
    pub serial: u32,
    /// The number (`st_rdev`) of the file that leads to it.
    pub number: u64,
    /// 1 + group of VFIO, if programs are to drive it by that; 0: by UIO.
    pub group: u32,
    /// 1 + the line by which a platform device interrupts, as Linux counts them, and
    /// [`WANTED_LEVEL`]; 0: it does not.
    pub line: u32,
    /// What a device is that a driver of the kernel's drives without a PCI function, zero padded:
    /// `DRIVER,NAME,FIRST-LAST,LINE,...`, such as `serial,ttyS1,2f8-2ff,3,115200`. The driver, the
    /// name by which programs know the device, its I/O ports (hexadecimal; `FIRST-LAST+FIRST-LAST`
    /// if it has a second range of them), the line on which it interrupts, and what the driver
    /// wants to know besides. To Linux's module it is a platform device, which has those ports.
    pub description: [u8; DESCRIPTION_LEN],
}

/// Bytes of [`WantedDevice::description`], with a zero.
pub const DESCRIPTION_LEN: usize = 128;

/// In [`WantedDevice::line`]: the line asks as long as the device does, by a level.
pub const WANTED_LEVEL: u32 = 0x8000_0000;

/// What the kernel has made of a [`WantedDevice`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HadDevice {
    /// As in `WantedDevice`: programs can open it, or have it open still.
    pub function: u32,
    /// How many programs have it open or mapped, if Linux does not want the realm to have it.
    pub user_count: u32,
    /// Their process ids in Linux, as many as there is room for.
    pub users: [u32; NAMED_USERS],
}

/// Places that one direction of the virtual Ethernet has for frames.
pub const ETHERNET_PLACES: usize = 64;
/// Bytes of such a place.
pub const ETHERNET_PLACE: usize = 2048;
/// Bytes of all places of one direction.
pub const ETHERNET_BYTES: usize = ETHERNET_PLACES * ETHERNET_PLACE;
/// Most bytes of a frame behind its header.
pub const ETHERNET_MOST_MTU: usize = 9000;
/// Bytes of the longest frame: a header, a tag of a VLAN, and what is behind them; no checksum.
pub const ETHERNET_LONGEST: usize = 14 + 4 + ETHERNET_MOST_MTU;

/// One direction of the virtual Ethernet.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct EthernetRing {
    /// Written by who sends: places that were used since the start.
    pub written: u64,
    /// Likewise: 1 if it is to be rung when half of the ring is free.
    pub wants_room: u64,
    /// Zero.
    pub reserved: [u64; 6],
    /// Written by who receives: places that were given back since the start.
    pub taken: u64,
    /// Likewise: 1 if it is to be rung for the next frame.
    pub wants_frames: u64,
    /// Likewise: where it is to be rung. The index of a CPU in the cell, or for Linux 1 + its
    /// number of a CPU, where 0 is none in particular.
    pub cpu: u64,
    /// Zero.
    pub reserved1: [u64; 5],
    /// Written by who sends, of the place in which a frame begins: its bytes. 0: the places from
    /// there to the last one have no frame.
    pub lengths: [u64; ETHERNET_PLACES],
    /// The places.
    pub bytes: [u8; ETHERNET_BYTES],
}

/// The virtual Ethernet between Linux and the realm.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Ethernet {
    /// Written by Linux: 1 while its end is up.
    pub linux_up: u64,
    /// Written by Linux: most bytes of a frame behind its header, of both ends.
    pub mtu: u64,
    /// Zero.
    pub reserved: [u64; 6],
    /// Written by the kernel: 1 while its end is up.
    pub realm_up: u64,
    /// Zero.
    pub reserved1: [u64; 7],
    /// Frames of Linux.
    pub to_realm: EthernetRing,
    /// Frames of the realm.
    pub to_linux: EthernetRing,
}

/// First of the vectors by which devices interrupt the realm.
pub const DEVICE_VECTOR: u8 = 0xd0;
/// How many such vectors there are.
pub const DEVICE_VECTORS: usize = 16;

/// What the kernel tells of a device that interrupts it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceInterrupts {
    /// Interrupts since the realm has it.
    pub count: u64,
    /// Its name, with zeros behind it; nothing but zeros if there is none.
    pub name: [u8; 24],
}

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
    /// Linux's clocks, written by Linux.
    pub time: TimePage,
    /// Bit per slot: Linux stored something for the kernel.
    pub replies: [u64; SLOT_WORDS],
    /// Bit per slot: the kernel stored something for Linux.
    pub requests: [u64; SLOT_WORDS],
    /// Bit per revocation: posted.
    pub posted: [u64; REVOCATION_WORDS],
    /// `KERNEL_*`, written by the kernel.
    pub kernel_state: u32,
    /// How many revocations were posted since the start, modulo 2^32. Each is counted before its
    /// bit is set, so when Linux has carried out as many, none waits.
    pub posted_count: u32,
    /// Doorbells that the kernel has rung since the start.
    pub doorbells_sent: u64,
    /// Doorbells, but for links, that each CPU of the realm has taken since the start.
    pub doorbells_taken: [u64; MAX_CELL_CPUS],
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
    /// Devices by their vectors, from [`DEVICE_VECTOR`] on.
    pub interrupts: [DeviceInterrupts; DEVICE_VECTORS],
    /// Table of revocations.
    pub revocations: [Revocation; REVOCATIONS],
    /// The threads.
    pub slots: [Slot; SLOTS],
    /// The kernel's log; its bytes follow.
    pub log: RingHeader,
    /// See `log`.
    pub log_bytes: [u8; KERNEL_LOG_SIZE as usize],
    /// The longest sections with interrupts off of each CPU of the realm, each begun at another
    /// place.
    pub sections: [[Section; SECTIONS]; MAX_CELL_CPUS],
    /// What Linux wants to be traced, `TRACE_WANT_*`; looked at when the doorbell rings.
    pub trace_on: u32,
    /// Events of the ring of each CPU, a power of 2, written by the kernel. CPU `i` has those from
    /// `i * trace_capacity`.
    pub trace_capacity: u32,
    /// Events that each CPU has written so far. Event `n` lies at `n % trace_capacity` of its ring;
    /// it is complete when it is counted.
    pub trace_written: [u64; MAX_CELL_CPUS],
    /// The rings of events.
    pub trace_events: [TraceEvent; TRACE_EVENTS],
    /// Whether the kernel agrees to its end. If it did, it has unlocked the cell before its answer.
    pub end: Question,
    /// Whether the kernel takes no new program from now on. If so, it is [`KERNEL_SEALED`] before
    /// its answer.
    pub seal: Question,
    /// `LINUX_*`, written by Linux.
    pub linux_state: u32,
    /// How often Linux has said its last words, modulo 2^32. It counts after the words and
    /// `linux_state` are there, and rings then.
    pub last_words_count: u32,
    /// Bytes of the last words.
    pub last_words_length: u32,
    /// Zero.
    pub reserved1: u32,
    /// The end of Linux's log, as it was when Linux last oopsed, panicked or shut down.
    pub last_words: [u8; LAST_WORDS_SIZE as usize],
    /// Whether the kernel has looked at `wanted_devices`, and has told in `had_devices` what came
    /// of it.
    pub devices: Question,
    /// The PCI functions that the realm is to have, written by Linux.
    pub wanted_devices: [WantedDevice; MAX_DEVICES],
    /// Those that programs can open, each at the place where Linux has wanted it.
    pub had_devices: [HadDevice; MAX_DEVICES],
    /// Frames between Linux and the realm.
    pub ethernet: Ethernet,
    /// Whether the kernel has looked at `recalled`.
    pub recall: Question,
    /// How often the kernel has set bits in `given_up`, written by the kernel after that.
    pub given_up_count: u64,
    /// Bit per place: its file has lost the page. Linux alone writes it.
    pub recalled: [u64; PLACE_WORDS],
    /// Bit per place: the kernel has given it up. The kernel sets it, Linux clears it.
    pub given_up: [u64; PLACE_WORDS],
    /// How often the kernel has wanted all that wait at futexes in Linux to look at their words.
    pub futex_looks: u64,
    /// How often the kernel has set bits in `successors_dropped`, written by the kernel after that.
    pub successor_drops: u64,
    /// Bit per successor: the kernel needs it no more. The kernel sets it, Linux clears it.
    pub successors_dropped: [u64; SUCCESSOR_WORDS],
}

/// `Channel::linux_state`: nothing is known of an end.
pub const LINUX_RUNS: u32 = 0;
/// Linux has ended: it panicked, or shuts down without taking the realm along.
pub const LINUX_ENDED: u32 = 1;

/// Events of all rings together.
pub const TRACE_EVENTS: usize = 32768;

/// Something that happened on a CPU of the realm.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent {
    /// Time stamp counter.
    pub time: u64,
    /// `TRACE_*`.
    pub kind: u32,
    /// The thread that ran: its id in Linux, or [`TRACE_KERNEL_THREAD`] and the number of a thread
    /// of the kernel.
    pub thread: u32,
    /// Depends on the kind.
    pub first: u64,
    /// Depends on the kind.
    pub second: u64,
}

/// In thread ids of a trace: a thread of the kernel.
pub const TRACE_KERNEL_THREAD: u32 = 0x8000_0000;

/// Another thread runs from now on: its id in the low half of `first`, its priority in the high
/// half; `second` is the beginning of its name, zero padded.
pub const TRACE_SWITCH: u32 = 1;
/// A thread was made ready: as [`TRACE_SWITCH`].
pub const TRACE_WAKE: u32 = 2;
/// Interrupt with vector `first`.
pub const TRACE_INTERRUPT: u32 = 3;
/// That vector: of the CPU's timer.
pub const TIMER_VECTOR: u8 = 0xec;
/// That vector: of another CPU of the realm, which wants this one to look for another thread or at
/// what it was asked.
pub const KICK_VECTOR: u8 = 0xed;
/// Its end.
pub const TRACE_INTERRUPT_END: u32 = 4;
/// System call number `first` with first argument `second`.
pub const TRACE_CALL: u32 = 5;
/// Its end, with result `second`.
pub const TRACE_CALL_END: u32 = 6;
/// Request to Linux: `OP_*` in `first`, system call number in `second`.
pub const TRACE_REMOTE: u32 = 7;
/// Its end, with result `second`.
pub const TRACE_REMOTE_END: u32 = 8;
/// Page fault of a program at address `first` with error code `second`.
pub const TRACE_FAULT: u32 = 9;
/// The doorbell of Linux was rung.
pub const TRACE_DOORBELL: u32 = 10;
/// The end of a page fault.
pub const TRACE_FAULT_END: u32 = 11;
/// A thread of a real-time priority is about to do something that has no worst case: what follows
/// is [`TRACE_REMOTE`] or [`TRACE_FAULT`], or it is within the [`TRACE_CALL`] before. `first` is
/// the program's instruction pointer, `second` has `LAPSE_*` in its low half, the priority in the
/// high half.
pub const TRACE_LAPSE: u32 = 12;
/// After [`TRACE_LAPSE`], if stacks are wanted: the program's stack pointer in `first`, RBP in
/// `second`.
pub const TRACE_REGISTERS: u32 = 13;
/// After [`TRACE_REGISTERS`]: the next two words of the program's stack, from its stack pointer up.
pub const TRACE_STACK: u32 = 14;
/// A program has mapped a file to execute it: address in `first`, offset in the file in `second`.
pub const TRACE_MAPPING: u32 = 15;
/// After [`TRACE_MAPPING`]: the next 16 bytes of the file's path, zero padded.
pub const TRACE_PATH: u32 = 16;
/// After [`TRACE_PATH`]: the end of the path; length of the mapping in `first`.
pub const TRACE_MAPPED: u32 = 17;

/// [`TRACE_LAPSE`]: Linux is asked for something.
pub const LAPSE_REMOTE: u32 = 1;
/// [`TRACE_LAPSE`]: a page is not there, or not to be written to.
pub const LAPSE_FAULT: u32 = 2;
/// [`TRACE_LAPSE`]: a system call changes the program's memory.
pub const LAPSE_MEMORY: u32 = 3;

/// [`Channel::trace_on`]: events.
pub const TRACE_WANT_EVENTS: u32 = 1;
/// [`Channel::trace_on`]: [`TRACE_LAPSE`] and [`TRACE_MAPPING`] as well.
pub const TRACE_WANT_LAPSES: u32 = 2;
/// [`Channel::trace_on`]: with [`TRACE_STACK`].
pub const TRACE_WANT_STACKS: u32 = 4;
/// Most bytes of a program's stack that an event of [`TRACE_LAPSE`] is followed by.
pub const TRACE_STACK_BYTES: usize = 4096;

/// Sections that are kept for each CPU.
pub const SECTIONS: usize = 8;

/// A section of the kernel in which interrupts, and with them preemption, were off.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Ticks of the time stamp counter that the longest one took; 0: none.
    pub ticks: u64,
    /// Address in the kernel at which it began.
    pub begin: u64,
    /// Address at which that longest one ended.
    pub end: u64,
}

/// Head of the start-up block that a shadow copies on `OP_STARTUP`: after it come, each zero
/// terminated, the path of the program, the arguments, the environment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup {
    /// Bytes of the whole block.
    pub size: u32,
    /// Arguments.
    pub argc: u32,
    /// Environment strings.
    pub envc: u32,
    /// Descriptor of the opened executable in the shadow (close-on-exec).
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
    /// What decides where the program lies: random bytes, or zeros (ADDR_NO_RANDOMIZE).
    pub placement: [u8; 16],
    /// Signals that are ignored: bit `n - 1` for signal `n`.
    pub ignored: u64,
    /// What `crtos run` has chosen for the program (`Choices::to_word` of the crate
    /// `crtos-syscalls`).
    pub choices: u64,
}

impl Startup {
    /// Returns the head as it lies at the start of the block.
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        macro_rules! words {
            ($($field:ident),*) => {
                $(put(offset_of!(Self, $field), &self.$field.to_le_bytes());)*
            };
        }
        words!(size, argc, envc, executable, uid, euid, gid, egid, stack_limit, hwcap, hwcap2);
        words!(ignored, choices);
        put(offset_of!(Self, random), &self.random);
        put(offset_of!(Self, placement), &self.placement);
        bytes
    }

    /// Reads the head at the start of a block. Any bytes are a head, so its reader has to check
    /// what it says.
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        fn at<const N: usize>(bytes: &[u8; size_of::<Startup>()], offset: usize) -> [u8; N] {
            core::array::from_fn(|index| bytes[offset + index])
        }
        macro_rules! word {
            ($type:ty, $field:ident) => {
                <$type>::from_le_bytes(at(bytes, offset_of!(Self, $field)))
            };
        }
        Self {
            size: word!(u32, size),
            argc: word!(u32, argc),
            envc: word!(u32, envc),
            executable: word!(u32, executable),
            uid: word!(u32, uid),
            euid: word!(u32, euid),
            gid: word!(u32, gid),
            egid: word!(u32, egid),
            stack_limit: word!(u64, stack_limit),
            hwcap: word!(u64, hwcap),
            hwcap2: word!(u64, hwcap2),
            random: at(bytes, offset_of!(Self, random)),
            placement: at(bytes, offset_of!(Self, placement)),
            ignored: word!(u64, ignored),
            choices: word!(u64, choices),
        }
    }

    /// One past the highest address of the first stack: 22 random bits of pages below the end, as
    /// Linux.
    pub fn stack_end(&self) -> u64 {
        let [.., a, b, c, _, _, _, _, _] = self.placement;
        let pages = u64::from(u32::from_le_bytes([a, b, c, 0]) & 0x3f_ffff);
        USER_END - pages * PAGE_SIZE
    }
}

/// Addresses of the program that belong to the shadow itself and are never mapped in the realm: the
/// shadow is linked at the start.
pub const SHADOW_START: u64 = 0x7e00_0000_0000;
/// End of the shadow's range.
pub const SHADOW_END: u64 = 0x7f00_0000_0000;
/// Where the kernel has the shadow map the files that the program shares ("mirrors"), within the
/// shadow's range.
pub const MIRRORS_START: u64 = SHADOW_START + 0x1_0000_0000;
/// End of that range.
pub const MIRRORS_END: u64 = SHADOW_END;
/// Lowest address of a program (vm.mmap_min_addr).
pub const USER_START: u64 = 0x1_0000;
/// One past the highest address of a program.
pub const USER_END: u64 = 0x7fff_ffff_f000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_and_its_bytes_are_the_same() {
        let bytes = core::array::from_fn(|index| index as u8);
        let head = Startup::from_bytes(&bytes);
        assert_eq!(head.to_bytes(), bytes, "every byte belongs to a field");
        assert_eq!(Startup::from_bytes(&head.to_bytes()), head);
        assert_eq!(head.argc, u32::from_le_bytes([4, 5, 6, 7]));
        assert_eq!(head.random, core::array::from_fn(|index| 56 + index as u8));
    }
}
