// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls, without a C library.

use core::{
    arch::asm,
    sync::atomic::{AtomicI32, Ordering},
};

use linux_raw_sys::{errno, general as linux};

/// The shadow's device, which the program must not reach.
pub static DEVICE: AtomicI32 = AtomicI32::new(-1);

/// Why Linux refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    /// Words for it.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "no valid arguments",
            errno::EPERM | errno::EACCES => "no permission",
            errno::ENOMEM => "out of memory",
            errno::EBADF | errno::ENOTTY => "not the device of crtos",
            errno::ENODEV | errno::ESRCH | errno::ENXIO => "there is no real-time realm",
            errno::EAGAIN | errno::EBUSY | errno::ENOSPC => "no thread is free",
            errno::EINVAL => "invalid argument",
            errno::EEXIST => "already done",
            _ => "unexpected error",
        }
    }
}

/// Makes system call `nr` and returns RAX.
///
/// # Safety
/// The call must do nothing to the memory of this program that its own code does not expect.
pub unsafe fn raw(nr: u32, args: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the instruction clobbers RCX and R11; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") u64::from(nr) => result, in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// [`raw`], with the error apart.
///
/// # Safety
/// As [`raw`].
pub unsafe fn call(nr: u32, args: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { raw(nr, args) };
    if (-4095..0).contains(&result) {
        Err(Errno(result.unsigned_abs() as u32))
    } else {
        Ok(result as u64)
    }
}

/// ioctl(2) on the device.
pub fn ioctl(fd: i32, request: u32, argument: u64) -> Result<u64, Errno> {
    // SAFETY: the device writes to the structure at `argument` alone, which the callers pass as a raw pointer.
    unsafe { call(linux::__NR_ioctl, [fd as u64, request.into(), argument, 0, 0, 0]) }
}

/// Maps the memory of `process` at addresses `start..end`, in place of whatever is there.
///
/// # Safety
/// Nothing in the range is used by this program.
pub unsafe fn map_device(device: i32, process: u32, start: u64, end: u64) -> Result<u64, Errno> {
    let protection = linux::PROT_READ | linux::PROT_WRITE;
    let flags = linux::MAP_SHARED | linux::MAP_FIXED | linux::MAP_NORESERVE;
    let offset = u64::from(process) << 47 | start;
    // SAFETY: the caller's promise.
    unsafe {
        call(
            linux::__NR_mmap,
            [start, end - start, protection.into(), flags.into(), device as u64, offset],
        )
    }
}

/// Fresh memory at `address`, which is free.
pub fn map_memory(address: u64, length: u64) -> Result<*mut u8, Errno> {
    let protection = linux::PROT_READ | linux::PROT_WRITE;
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE changes no existing mapping.
    let mapped = unsafe {
        call(linux::__NR_mmap, [address, length, protection.into(), flags.into(), u64::MAX, 0])
    }?;
    Ok(mapped as *mut u8)
}

/// Soft limit of a resource.
pub fn limit(resource: u32) -> u64 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: Linux fills the two words of rlimit64.
    let _ = unsafe {
        call(linux::__NR_prlimit64, [0, resource.into(), 0, limits.as_mut_ptr() as u64, 0, 0])
    };
    limits[0]
}

/// Writes to standard error.
pub fn write_stderr(text: &str) {
    // SAFETY: Linux reads the text.
    let _ =
        unsafe { call(linux::__NR_write, [2, text.as_ptr() as u64, text.len() as u64, 0, 0, 0]) };
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(linux::__NR_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

/// The descriptor of the device.
pub fn device() -> i32 {
    DEVICE.load(Ordering::Relaxed)
}
