// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a shadow asks of `/dev/crtos` ([`crtos_abi::ioctl`]).

use crtos_abi::ioctl::{
    CopyRange, IOC_COPY, IOC_REASON, IOC_REMOTE, IOC_REOPEN, IOC_SIGNAL, IOC_SPAWN, IOC_THREAD,
    Reason, Remote, Spawn,
};
use crtos_channel::{Heritage, Slot};
use linux_raw_sys::general as linux;

use crate::{
    own,
    sys::{self, Errno},
};

/// Makes an ioctl(2).
///
/// # Safety
/// `argument` is what `request` takes: a number, or the address of a structure of that kind, which
/// the device may read and write.
unsafe fn ioctl(fd: i32, request: u32, argument: u64) -> Result<u64, Errno> {
    // SAFETY: the device reads and writes the structure that the caller passes, and nothing else of
    // this program. A file that is no such device does not know the request.
    unsafe { sys::call(linux::__NR_ioctl, [fd as u64, request.into(), argument]) }
}

/// Asks the realm for a process, for the device of descriptor `fd`, and fills in its numbers.
pub fn spawn(fd: i32, spawn: &mut Spawn) -> Result<(), Errno> {
    // SAFETY: the argument of this request is a `Spawn`.
    unsafe { ioctl(fd, IOC_SPAWN, &raw mut *spawn as u64) }.map(drop)
}

/// Returns why the device of descriptor `fd` refused the last call, in the module's words.
pub fn reason(fd: i32) -> Reason {
    let mut reason = Reason { text: [0; 256] };
    // SAFETY: the argument of this request is a `Reason`, which the device fills in.
    let _ = unsafe { ioctl(fd, IOC_REASON, &raw mut reason as u64) };
    reason
}

/// Opens the device of descriptor `fd` once more; `flags` are 0 or O_CLOEXEC.
pub fn reopen(fd: i32, flags: u32) -> Result<i32, Errno> {
    // SAFETY: the argument of this request is a number.
    unsafe { ioctl(fd, IOC_REOPEN, flags.into()) }.map(|again| again as i32)
}

/// Makes the calling thread a further shadow thread. `parent` is the slot of the thread that made
/// it a process of its own, if it is one; `heritage` is what it inherited. Returns the slot.
pub fn join(parent: Option<Slot>, heritage: Heritage) -> Result<Slot, Errno> {
    let argument = u64::from(Slot::to_word(parent)) | u64::from(heritage.get()) << 32;
    // SAFETY: the argument of this request is a number.
    let slot = unsafe { ioctl(own::device(), IOC_THREAD, argument) }?;
    Slot::new(slot as usize).ok_or(Errno::EIO)
}

/// Hands in the result of the last request, if there is one, and waits for the next. EINTR if a
/// signal came first: then the result has been handed in.
pub fn exchange(remote: &mut Remote) -> Result<(), Errno> {
    // SAFETY: the argument of this request is a `Remote`, which has no addresses that the device
    // uses.
    unsafe { ioctl(own::device(), IOC_REMOTE, &raw mut *remote as u64) }.map(drop)
}

/// Forwards a signal to the realm. It may be called by a signal handler.
pub fn forward(info: &linux::siginfo) {
    // SAFETY: the argument of this request is the start of a `siginfo`, which the device reads.
    let _ = unsafe { ioctl(own::device(), IOC_SIGNAL, &raw const *info as u64) };
}

/// Copies memory of this process. EFAULT if not all of it is there.
///
/// # Safety
/// What is written is memory of the program, or memory that the caller holds exclusively.
pub unsafe fn copy(range: &CopyRange) -> Result<(), Errno> {
    // SAFETY: the argument of this request is a `CopyRange`; the caller ensures that what it names
    // may be written.
    unsafe { ioctl(own::device(), IOC_COPY, &raw const *range as u64) }.map(drop)
}

/// Maps the memory of `process` at addresses `start..end`, in place of whatever is there.
///
/// # Safety
/// This program uses nothing in the range.
pub unsafe fn map(fd: i32, process: u32, start: u64, end: u64) -> Result<(), Errno> {
    let protection = linux::PROT_READ | linux::PROT_WRITE;
    let flags = linux::MAP_SHARED | linux::MAP_FIXED | linux::MAP_NORESERVE;
    let offset = u64::from(process) << 47 | start;
    let args = [start, end - start, protection.into(), flags.into(), fd as u64, offset];
    // SAFETY: this program uses nothing in the range, so its memory may change.
    unsafe { sys::call(linux::__NR_mmap, args) }.map(drop)
}
