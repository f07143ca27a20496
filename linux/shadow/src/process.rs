// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: how a shadow becomes one of the realm's, and forks.

use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::{
    PAGE_SIZE,
    channel::{SHADOW_END, SHADOW_START, USER_END, USER_START},
    ioctl::{IOC_REOPEN, IOC_SPAWN, Spawn},
};
use linux_raw_sys::{errno, general as linux};

use crate::{
    signals, startup,
    sys::{self, Errno},
    threads,
};

/// Who forked this process.
pub struct Parent {
    /// Slot of the thread.
    slot: u32,
    /// Descriptor of its device.
    device: i32,
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
) -> Result<u32, (&'static str, &'static str, Errno)> {
    let (parent, parent_file) = parent.map_or((0, 0), |parent| (parent.slot + 1, parent.device));
    let mut spawn = Spawn { process: 0, slot: 0, parent, parent_file, reserved: [0; 2] };
    // SAFETY: the device reads and writes a `Spawn`.
    unsafe { sys::ioctl(device, IOC_SPAWN, &raw mut spawn as u64) }
        .map_err(|error| ("the real-time realm takes no process", "see `crtos log`", error))?;
    let ranges = [(USER_START, SHADOW_START), (SHADOW_END, stack_end), (stack_end, USER_END)];
    for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
        // SAFETY: all that this program still uses lies in the shadow's range, which the ranges
        // leave out.
        unsafe { sys::map_device(device, spawn.process, start, end) }.map_err(|error| {
            ("the program's addresses cannot be mapped", "raise `ulimit -v`", error)
        })?;
    }
    Ok(spawn.slot)
}

/// Who returns from [`fork`].
pub enum Forked {
    /// The parent, once the child has its process in the realm: the child's pid, or an error.
    Parent(i64),
    /// The child, with a device and a process of its own, which it has to serve: the slot of its
    /// thread.
    Child(u32),
}

/// How far the child of a fork has come. It says so in memory that it shares with its parent: other
/// threads of the program may close any descriptor that both could have for that. Anything else is
/// the number of the error for which it gives up.
const UNDECIDED: u32 = 0;
const READY: u32 = u32::MAX;

/// Forks with these flags of clone(2) for the thread of `slot`; a descriptor goes to `pidfd`.
pub fn fork(slot: u32, flags: u64, pidfd: u64, startup: &startup::Block) -> Forked {
    if flags & u64::from(linux::CLONE_VM) != 0 {
        return Forked::Parent(threads::fork_sharing(slot, flags, pidfd, startup));
    }
    let shared = match sys::map_shared(PAGE_SIZE) {
        Ok(shared) => shared as u64,
        Err(Errno(error)) => return Forked::Parent(-i64::from(error)),
    };
    // SAFETY: fresh memory; each of the two uses it until it unmaps it.
    let progress = unsafe { &*(shared as *const AtomicU32) };
    // A signal between fork and the child's own device would be forwarded to the parent.
    let mask = signals::block(u64::MAX);
    // SAFETY: the child gets a copy of everything but the mapping of the device, which nothing here
    // uses.
    let child = unsafe { sys::raw(linux::__NR_clone, [flags, 0, pidfd, 0, 0, 0]) };
    if child == 0 {
        threads::forget_others();
        let entered = go_on(slot, startup.stack_end);
        let come = entered.as_ref().map_or_else(|&Errno(error)| error, |_| READY);
        progress.store(come, Ordering::Release);
        threads::futex(progress, linux::FUTEX_WAKE, 1);
        let Ok(slot) = entered else { sys::exit(126) };
        // SAFETY: this process has looked at it for the last time.
        unsafe { sys::unmap(shared, PAGE_SIZE) };
        signals::block(mask);
        return Forked::Child(slot);
    }
    signals::block(mask);
    let result = if child > 0 { wait_until_ready(child as u64, progress) } else { child };
    // SAFETY: this process has looked at it for the last time.
    unsafe { sys::unmap(shared, PAGE_SIZE) };
    Forked::Parent(result)
}

/// Waits until `child` has a process of its own, and returns its pid, or the error for which it
/// gave up; EAGAIN if it was killed before.
fn wait_until_ready(child: u64, progress: &AtomicU32) -> i64 {
    const TIMED_OUT: i64 = -(errno::ETIMEDOUT as i64);
    let mut has_ended = false;
    let error = loop {
        match progress.load(Ordering::Acquire) {
            READY => return child as i64,
            UNDECIDED if has_ended => break errno::EAGAIN,
            UNDECIDED => {
                let waited = threads::futex(progress, linux::FUTEX_WAIT, UNDECIDED);
                has_ended = waited == TIMED_OUT && sys::has_ended(child);
            }
            error => break error,
        }
    };
    sys::wait_for(child);
    -i64::from(error)
}

/// The child of a fork: takes a device and a process of its own. Returns the slot of its thread.
fn go_on(parent: u32, stack_end: u64) -> Result<u32, Errno> {
    let device = sys::device();
    let parent = Parent { slot: parent, device };
    let own = reopen(device, linux::O_CLOEXEC)?;
    // SAFETY: this program lies in its range, and the device of the parent is not mapped here.
    let slot =
        unsafe { enter_realm(own, stack_end, Some(parent)) }.map_err(|_| Errno(errno::EAGAIN))?;
    sys::replace(own, device, linux::O_CLOEXEC)?;
    Ok(slot)
}

/// Opens the device of descriptor `fd` once more; `flags` are 0 or O_CLOEXEC.
pub fn reopen(fd: i32, flags: u32) -> Result<i32, Errno> {
    // SAFETY: the argument is a number.
    unsafe { sys::ioctl(fd, IOC_REOPEN, flags.into()) }.map(|again| again as i32)
}

/// The name `/proc/self/fd/N`, with a zero.
fn link(fd: i32) -> [u8; 26] {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    // SAFETY: there are twelve bytes behind the prefix.
    unsafe { write_number(path[14..].as_mut_ptr(), fd as u32) };
    path
}

/// The path of the file of descriptor `fd`, as far as there is room.
pub fn path_of(fd: i32, room: &mut [u8]) -> &[u8] {
    let name = link(fd);
    let args = [name.as_ptr() as u64, room.as_mut_ptr() as u64, room.len() as u64, 0, 0, 0];
    // SAFETY: Linux writes to the room alone.
    let length = unsafe { sys::call(linux::__NR_readlink, args) }.unwrap_or(0);
    room.get(..length as usize).unwrap_or(&[])
}

/// A number in digits.
pub struct Number {
    text: [u8; 11],
    length: usize,
}

impl Number {
    /// Its digits.
    pub fn digits(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

/// The digits of a number.
pub fn number(number: u32) -> Number {
    let mut text = [0; 11];
    // SAFETY: there are eleven bytes.
    unsafe { write_number(text.as_mut_ptr(), number) };
    Number { text, length: number_length(number) }
}

/// Whether the name at `path`, an address of the program, is `/proc/self/exe`.
pub fn is_self(path: u64) -> bool {
    const NAME: &[u8] = b"/proc/self/exe\0";
    let mut name = [0; NAME.len()];
    sys::copy_in(path, &mut name).is_ok() && name == NAME
}

/// Calls `f` with the address of a name that links to the program's executable.
pub fn with_executable(f: impl FnOnce(u64) -> i64) -> i64 {
    f(link(sys::executable()).as_ptr() as u64)
}

/// Digits of a number.
pub fn number_length(mut number: u32) -> usize {
    let mut length = 1;
    while number >= 10 {
        number /= 10;
        length += 1;
    }
    length
}

/// Writes a number and a zero; returns what is behind.
///
/// # Safety
/// There is room for eleven bytes.
pub unsafe fn write_number(to: *mut u8, mut number: u32) -> *mut u8 {
    let length = number_length(number);
    // SAFETY: a number has at most ten digits.
    unsafe {
        for index in (0..length).rev() {
            to.add(index).write(b'0' + (number % 10) as u8);
            number /= 10;
        }
        to.add(length).write(0);
        to.add(length + 1)
    }
}
