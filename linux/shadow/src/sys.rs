// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls, without a C library.

use core::{
    arch::asm,
    ffi::CStr,
    mem::size_of,
    slice,
    sync::atomic::{AtomicI32, Ordering},
};

use crtos_abi::channel::{MIRRORS_END, MIRRORS_START, SHADOW_END, SHADOW_START};
use crtos_syscalls::structs::Stat;
use linux_raw_sys::{errno, general as linux};

/// The shadow's device, which the program must not reach.
pub static DEVICE: AtomicI32 = AtomicI32::new(-1);

/// The program's executable, which stands for `/proc/self/exe`.
pub static EXECUTABLE: AtomicI32 = AtomicI32::new(-1);

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
    // SAFETY: the instruction clobbers RCX and R11; the caller ensures that the
    // call does nothing to this program's memory that its code does not expect.
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
    // SAFETY: the caller ensures what `raw` asks for.
    let result = unsafe { raw(nr, args) };
    if (-4095..0).contains(&result) {
        Err(Errno(result.unsigned_abs() as u32))
    } else {
        Ok(result as u64)
    }
}

/// ioctl(2) on the device.
///
/// # Safety
/// `argument` is what `request` asks for: a number, or the address of a structure of that kind which
/// the device may read and write.
pub unsafe fn ioctl(fd: i32, request: u32, argument: u64) -> Result<u64, Errno> {
    // SAFETY: the device reads and writes the structure that the caller passes, and no other memory.
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
    // SAFETY: nothing in the range is used by this program, so its memory may change.
    unsafe {
        call(
            linux::__NR_mmap,
            [start, end - start, protection.into(), flags.into(), device as u64, offset],
        )
    }
}

/// Fresh memory at `address`, which is free.
pub fn map_memory(address: u64, length: u64) -> Result<*mut u8, Errno> {
    map(address, length, linux::MAP_PRIVATE | linux::MAP_FIXED_NOREPLACE)
}

/// Fresh memory wherever there is room: in the shadow's range, because all else is the program's.
pub fn map_anywhere(length: u64) -> Result<*mut u8, Errno> {
    map(0, length, linux::MAP_PRIVATE)
}

/// As [`map_anywhere`]; children that do not share all memory share this.
pub fn map_shared(length: u64) -> Result<*mut u8, Errno> {
    map(0, length, linux::MAP_SHARED)
}

/// Fresh memory: at `address`, if `flags` say so.
fn map(address: u64, length: u64, flags: u32) -> Result<*mut u8, Errno> {
    let protection = linux::PROT_READ | linux::PROT_WRITE;
    let flags = flags | linux::MAP_ANONYMOUS;
    // SAFETY: without MAP_FIXED no existing mapping changes.
    let mapped = unsafe {
        call(linux::__NR_mmap, [address, length, protection.into(), flags.into(), u64::MAX, 0])
    }?;
    Ok(mapped as *mut u8)
}

/// Soft and hard limit of a resource.
pub fn limits(resource: u32) -> [u64; 2] {
    let mut limits = [u64::MAX; 2];
    // SAFETY: Linux fills the two words of rlimit64.
    let _ = unsafe {
        call(linux::__NR_prlimit64, [0, resource.into(), 0, limits.as_mut_ptr() as u64, 0, 0])
    };
    limits
}

/// Soft limit of a resource.
pub fn limit(resource: u32) -> u64 {
    limits(resource)[0]
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

/// The descriptor of the program's executable.
pub fn executable() -> i32 {
    EXECUTABLE.load(Ordering::Relaxed)
}

/// The descriptors of the shadow's own: that of the device and that of the executable.
pub fn own() -> [i32; 2] {
    [device(), executable()]
}

/// Closes a descriptor of the shadow's own.
pub fn close(fd: i32) {
    // SAFETY: touches no memory.
    let _ = unsafe { call(linux::__NR_close, [fd as u64, 0, 0, 0, 0, 0]) };
}

/// Opens the file whose name is at `path`, an address of the shadow or of the program.
pub fn open(path: u64, flags: u32) -> Result<i32, Errno> {
    const AT_FDCWD: u64 = -100_i64 as u64;
    // SAFETY: Linux reads the name, and checks the address.
    unsafe { call(linux::__NR_openat, [AT_FDCWD, path, flags.into(), 0, 0, 0]) }.map(|fd| fd as i32)
}

/// Whether the name at `path`, an address of the shadow or of the program, leads to its file
/// without a link of `/proc` such as `/proc/self/exe`.
pub fn is_path_of_file(path: u64) -> bool {
    const AT_FDCWD: u64 = -100_i64 as u64;
    let how = linux::open_how {
        flags: u64::from(linux::O_PATH | linux::O_CLOEXEC),
        mode: 0,
        resolve: linux::RESOLVE_NO_MAGICLINKS.into(),
    };
    let args = [AT_FDCWD, path, &raw const how as u64, size_of_val(&how) as u64, 0, 0];
    // SAFETY: Linux reads the name, whose address it checks, and the structure.
    unsafe { call(linux::__NR_openat2, args) }.map(|fd| close(fd as i32)).is_ok()
}

/// Has Linux close a descriptor when this process executes a program.
pub fn close_on_exec(fd: i32) {
    let args = [fd as u64, linux::F_SETFD.into(), linux::FD_CLOEXEC.into(), 0, 0, 0];
    // SAFETY: sets a flag of a descriptor.
    let _ = unsafe { call(linux::__NR_fcntl, args) };
}

/// Makes `new` the same file as `fd`, with `flags` (O_CLOEXEC), and closes `fd`.
pub fn replace(fd: i32, new: i32, flags: u32) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    let result = unsafe { call(linux::__NR_dup3, [fd as u64, new as u64, flags.into(), 0, 0, 0]) };
    close(fd);
    result.map(|_| ())
}

/// Reads; goes on after signals.
pub fn read(fd: i32, buffer: &mut [u8]) -> i64 {
    loop {
        // SAFETY: Linux writes to the buffer alone.
        let result = unsafe {
            raw(
                linux::__NR_read,
                [fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0],
            )
        };
        if result != -i64::from(errno::EINTR) {
            return result;
        }
    }
}

/// Reads at an offset of a file.
pub fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> i64 {
    // SAFETY: Linux writes to the buffer alone.
    unsafe {
        raw(
            linux::__NR_pread64,
            [fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64, offset, 0, 0],
        )
    }
}

/// A file in memory with this content, at its start.
pub fn memory_file(name: &CStr, close_on_exec: bool, content: &[u8]) -> Result<i32, Errno> {
    let flags = if close_on_exec { linux::MFD_CLOEXEC } else { 0 };
    // SAFETY: Linux reads the name.
    let fd = unsafe {
        call(linux::__NR_memfd_create, [name.as_ptr() as u64, flags.into(), 0, 0, 0, 0])
    }? as i32;
    // SAFETY: Linux reads the content.
    let written = unsafe {
        call(
            linux::__NR_pwrite64,
            [fd as u64, content.as_ptr() as u64, content.len() as u64, 0, 0, 0],
        )
    };
    match written {
        Ok(length) if length == content.len() as u64 => Ok(fd),
        other => {
            close(fd);
            Err(other.err().unwrap_or(Errno(errno::EIO)))
        }
    }
}

/// Unmaps memory that [`map_memory`] or its relatives mapped, if it is there.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn unmap(address: u64, length: u64) {
    // SAFETY: the caller says that nobody uses what is unmapped.
    let _ = unsafe { call(linux::__NR_munmap, [address, length, 0, 0, 0, 0]) };
}

/// Fills `to` from address `from` of the program, which may be a bad one (process_vm_readv(2) on this
/// process itself).
pub fn copy_in(from: u64, to: &mut [u8]) -> Result<(), Errno> {
    let (own, length) = (to.as_mut_ptr() as u64, to.len() as u64);
    // SAFETY: Linux writes to the slice alone.
    unsafe { copy_memory(linux::__NR_process_vm_readv, pid(), own, from, length) }
}

/// Copies `length` bytes from address `from` to address `to`, both of the program and perhaps bad ones.
/// EFAULT if `to` is the shadow's own memory.
pub fn copy_within(from: u64, to: u64, length: u64) -> Result<(), Errno> {
    check_programs(to, length)?;
    // SAFETY: what is written is no memory of this program's code.
    unsafe { copy_memory(linux::__NR_process_vm_readv, pid(), to, from, length) }
}

/// Refuses addresses that are the shadow's own. Mirrors lie in the shadow's range, but hold files.
fn check_programs(address: u64, length: u64) -> Result<(), Errno> {
    let end = address.checked_add(length).ok_or(Errno(errno::EFAULT))?;
    let is_mirror = address >= MIRRORS_START && end <= MIRRORS_END;
    let is_programs = end <= SHADOW_START || address >= SHADOW_END || is_mirror;
    is_programs.then_some(()).ok_or(Errno(errno::EFAULT))
}

/// Copies the text at address `from` of the program, which may be a bad one, with the zero at its
/// end. E2BIG if there is no room for it.
pub fn copy_in_text(from: u64, room: &mut [u8]) -> Result<&CStr, Errno> {
    for (index, byte) in room.iter_mut().enumerate() {
        // One by one: the text may end where memory ends.
        copy_in(from.wrapping_add(index as u64), slice::from_mut(byte))?;
        if *byte == 0 {
            break;
        }
    }
    CStr::from_bytes_until_nul(room).map_err(|_| Errno(errno::E2BIG))
}

/// Waits for process `child`, which ends, if it is one of this process that nobody has waited for.
pub fn wait_for(child: u64) {
    let interrupted = -i64::from(errno::EINTR);
    // SAFETY: Linux writes nothing.
    while unsafe { raw(linux::__NR_wait4, [child, 0, linux::__WALL.into(), 0, 0, 0]) }
        == interrupted
    {}
}

/// Whether process `child`, a copy of this one, has no memory any more: it has ended, whoever hears
/// of that.
pub fn has_ended(child: u64) -> bool {
    let mut byte = 0_u8;
    let address = &raw mut byte as u64;
    // SAFETY: Linux writes to the byte.
    let read =
        unsafe { copy_memory(linux::__NR_process_vm_readv, child as u32, address, address, 1) };
    read == Err(Errno(errno::ESRCH))
}

/// Copies `bytes` to address `to` of the program, which may be a bad one (process_vm_writev(2) on
/// this process itself). EFAULT if `to` is the shadow's own memory.
pub fn copy_out(bytes: &[u8], to: u64) -> Result<(), Errno> {
    check_programs(to, bytes.len() as u64)?;
    // SAFETY: Linux reads the bytes; what is written is no memory of this program's code.
    unsafe {
        copy_memory(
            linux::__NR_process_vm_writev,
            pid(),
            bytes.as_ptr() as u64,
            to,
            bytes.len() as u64,
        )
    }
}

/// Copies between address `own` of the shadow and address `other` of `process`, as `nr` says.
///
/// # Safety
/// `length` bytes at `own` may be read, with process_vm_readv(2) written. With process_vm_writev(2)
/// the process expects `other` to be written.
unsafe fn copy_memory(
    nr: u32,
    process: u32,
    own: u64,
    other: u64,
    length: u64,
) -> Result<(), Errno> {
    let (local, remote) = ([own, length], [other, length]);
    // SAFETY: the caller ensures that the bytes at `own` may be read or written as `nr` does, and
    // that the process expects its bytes at `other` to be written.
    let copied = unsafe {
        call(nr, [process.into(), local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0])
    }?;
    if copied == length { Ok(()) } else { Err(Errno(errno::EFAULT)) }
}

/// The id of this process.
pub fn pid() -> u32 {
    // SAFETY: touches no memory.
    (unsafe { raw(linux::__NR_getpid, [0; 6]) }) as u32
}

/// The type of the file system that a descriptor's file belongs to; 0 if there is none.
pub fn file_system(fd: i32) -> i64 {
    // `struct statfs` starts with it.
    let mut status = [0_i64; size_of::<linux::statfs>() / 8];
    // SAFETY: Linux writes the structure.
    let _ =
        unsafe { call(linux::__NR_fstatfs, [fd as u64, status.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    status[0]
}

/// Another descriptor of the same file.
pub fn copy(fd: i32) -> Result<i32, Errno> {
    // SAFETY: touches no memory.
    unsafe { call(linux::__NR_dup, [fd as u64, 0, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// Device and number of a file; zeros if there is none.
pub fn identity(fd: i32) -> [u64; 2] {
    let mut status = Stat::default();
    // SAFETY: Linux writes the structure.
    let _ = unsafe { call(linux::__NR_fstat, [fd as u64, &raw mut status as u64, 0, 0, 0, 0]) };
    [status.device, status.inode]
}
