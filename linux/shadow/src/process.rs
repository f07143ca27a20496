// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: how a shadow becomes one of the realm's, and forks.

use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::{
    UserAddr,
    channel::{SHADOW_END, SHADOW_START, USER_END, USER_START},
    ids::Pid,
    ioctl::Spawn,
};
use crtos_channel::Slot;
use linux_raw_sys::general as linux;

use crate::{
    device, own,
    program::Memory,
    signals, startup,
    sys::{
        self, Errno, file,
        futex::{self, Waiters},
        mapping::SharedWord,
        process::{exit, has_ended, wait_for},
    },
    threads,
};

/// Who forked this process.
pub struct Parent {
    /// Slot of the thread.
    slot: Slot,
    /// Descriptor of its device.
    device: i32,
}

/// Why the realm did not get a process.
pub struct Refusal {
    /// What failed.
    pub what: &'static str,
    /// What the user can do.
    pub remedy: &'static str,
    /// Why it failed.
    pub error: Errno,
}

/// Asks the realm for a process and maps its memory. Returns the slot of its thread.
///
/// One mapping ends where the first stack ends: glibc (`pthread_getattr_np`) finds that end in
/// `/proc/self/maps`.
///
/// # Safety
/// Everything that the caller still uses lies between SHADOW_START and SHADOW_END.
pub unsafe fn enter_realm(
    device: i32,
    stack_end: u64,
    parent: Option<Parent>,
) -> Result<Slot, Refusal> {
    let parent_file = parent.as_ref().map_or(0, |parent| parent.device);
    let parent = Slot::to_word(parent.map(|parent| parent.slot));
    let mut spawn = Spawn { process: 0, slot: 0, parent, parent_file, reserved: [0; 2] };
    let refused = |error| Refusal {
        what: "the real-time realm takes no process",
        remedy: "see `crtos log`",
        error,
    };
    device::spawn(device, &mut spawn).map_err(refused)?;
    let slot = Slot::new(spawn.slot as usize).ok_or(refused(Errno::EIO))?;
    let ranges = [(USER_START, SHADOW_START), (SHADOW_END, stack_end), (stack_end, USER_END)];
    for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
        // SAFETY: all that this program still uses lies in the shadow's range, which the ranges
        // leave out.
        unsafe { device::map(device, spawn.process, start, end) }.map_err(|error| Refusal {
            what: "the program's addresses cannot be mapped",
            remedy: "raise `ulimit -v`",
            error,
        })?;
    }
    Ok(slot)
}

/// What a child is to share with its parent, whose child it is, and where a descriptor goes: what
/// the realm asks clone(2) for.
pub struct Child {
    flags: u64,
    pidfd: u64,
}

impl Child {
    /// The flags that the realm leaves to Linux. None of them has Linux write anywhere but at
    /// `pidfd`, or changes FS.
    const FLAGS: u32 = linux::CSIGNAL
        | linux::CLONE_VM
        | linux::CLONE_VFORK
        | linux::CLONE_FS
        | linux::CLONE_FILES
        | linux::CLONE_SYSVSEM
        | linux::CLONE_IO
        | linux::CLONE_PARENT
        | linux::CLONE_PIDFD
        | linux::CLONE_NEWNS
        | linux::CLONE_NEWCGROUP
        | linux::CLONE_NEWUTS
        | linux::CLONE_NEWIPC
        | linux::CLONE_NEWUSER
        | linux::CLONE_NEWNET;

    /// Checks what the realm asks for: `flags` of clone(2) with the signal to the parent, and an
    /// address of the program for the descriptor of CLONE_PIDFD. EINVAL if other flags are set,
    /// EFAULT if the address is the shadow's own.
    pub fn new(flags: u64, pidfd: UserAddr) -> Result<Self, Errno> {
        if flags & !u64::from(Self::FLAGS) != 0 {
            return Err(Errno::EINVAL);
        }
        let pidfd = match flags & u64::from(linux::CLONE_PIDFD) {
            0 => 0,
            _ => pidfd.for_writing(size_of::<i32>() as u64)?,
        };
        Ok(Self { flags, pidfd })
    }

    /// Returns the flags.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Returns the address for the descriptor, 0 without CLONE_PIDFD.
    pub fn pidfd(&self) -> u64 {
        self.pidfd
    }

    /// Tells whether the child shares all memory with its parent.
    fn shares_memory(&self) -> bool {
        self.flags & u64::from(linux::CLONE_VM) != 0
    }
}

/// Who returns from [`fork`].
pub enum Forked {
    /// The parent, once the child has its process in the realm: the child's pid, or an error.
    Parent(Result<Pid, Errno>),
    /// The child, with a device and a process of its own, which it has to serve: the slot of its
    /// thread.
    Child(Slot),
}

/// How far the child of a fork has come. It says so in memory that it shares with its parent,
/// because other threads of the program may close any descriptor that both could use for that.
/// Anything else is the number of the error for which it gives up.
const UNDECIDED: u32 = 0;
const READY: u32 = u32::MAX;

/// Forks for the thread of `slot`.
pub fn fork(slot: Slot, child: &Child, startup: &'static startup::Block) -> Forked {
    if child.shares_memory() {
        return Forked::Parent(threads::fork_sharing(slot, child, startup));
    }
    let progress = match SharedWord::new() {
        Ok(word) => word,
        Err(error) => return Forked::Parent(Err(error)),
    };
    // A signal between fork and the child's own device would be forwarded to the parent.
    let mask = signals::block(u64::MAX);
    // SAFETY: the child gets a copy of everything but the mapping of the device, which nothing here
    // uses. Linux writes to the program's memory at most.
    let pid = unsafe { sys::call(linux::__NR_clone, [child.flags, 0, child.pidfd, 0, 0]) };
    if pid == Ok(0) {
        threads::forget_others();
        let entered = go_on(slot, startup.stack_end);
        let come = entered.as_ref().map_or_else(|error| error.number().into(), |_| READY);
        progress.store(come, Ordering::Release);
        futex::wake(&progress, Waiters::Processes);
        let Ok(slot) = entered else { exit(126) };
        drop(progress);
        signals::block(mask);
        return Forked::Child(slot);
    }
    signals::block(mask);
    let pid = pid.and_then(|pid| Pid::named(pid).ok_or(Errno::EIO));
    Forked::Parent(pid.and_then(|pid| wait_until_ready(pid, &progress)))
}

/// Waits until `child` has a process of its own, and returns its pid, or the error for which it
/// gave up; EAGAIN if it was killed before.
fn wait_until_ready(child: Pid, progress: &AtomicU32) -> Result<Pid, Errno> {
    let mut is_gone = false;
    let error = loop {
        match progress.load(Ordering::Acquire) {
            READY => return Ok(child),
            UNDECIDED if is_gone => break Errno::EAGAIN,
            UNDECIDED => {
                let waited = futex::wait(progress, UNDECIDED, Waiters::Processes);
                is_gone = waited == Err(Errno::ETIMEDOUT) && has_ended(child);
            }
            error => break Errno::from_number(error as u16),
        }
    };
    wait_for(child);
    Err(error)
}

/// In the child of a fork: takes a device and a process of its own. Returns the slot of its thread.
fn go_on(parent: Slot, stack_end: u64) -> Result<Slot, Errno> {
    let device = own::device();
    let parent = Parent { slot: parent, device };
    let new = device::reopen(device, linux::O_CLOEXEC)?;
    // SAFETY: this program lies in its range, and the device of the parent is not mapped here.
    let slot = unsafe { enter_realm(new, stack_end, Some(parent)) }.map_err(|_| Errno::EAGAIN)?;
    if file::put(new, device, linux::O_CLOEXEC).is_ok() {
        file::close(new);
    } else {
        // RLIMIT_NOFILE is lower than when the parent's was opened.
        file::close(device);
        own::set(own::move_away(new), own::executable());
    }
    Ok(slot)
}
