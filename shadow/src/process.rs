// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: how a shadow becomes one of the realm's, forks, and executes another program.

use core::{mem::size_of, ptr, slice};

use crtos_abi::{
    channel::{RESULT_IN_LINUX, SHADOW_END, SHADOW_START, USER_END, USER_START},
    ioctl::{IOC_SPAWN, Spawn},
};
use crtos_syscalls::exec::{HEADER_BYTES, Image, MAX_INTERPRETER};
use linux_raw_sys::{errno, general as linux};

use crate::{
    serve, signals, startup,
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
/// # Safety
/// Everything that the caller still uses lies between SHADOW_START and SHADOW_END.
pub unsafe fn enter_realm(
    device: i32,
    parent: Option<Parent>,
) -> Result<u32, (&'static str, &'static str, Errno)> {
    let (parent, parent_file) = parent.map_or((0, 0), |parent| (parent.slot + 1, parent.device));
    let mut spawn = Spawn { process: 0, slot: 0, parent, parent_file, reserved: [0; 2] };
    sys::ioctl(device, IOC_SPAWN, &raw mut spawn as u64)
        .map_err(|error| ("the real-time realm takes no process", "see `crtos log`", error))?;
    for (start, end) in [(USER_START, SHADOW_START), (SHADOW_END, USER_END)] {
        // SAFETY: the caller's promise.
        unsafe { sys::map_device(device, spawn.process, start, end) }.map_err(|error| {
            ("the program's addresses cannot be mapped", "raise `ulimit -v`", error)
        })?;
    }
    Ok(spawn.slot)
}

/// Forks with these flags of clone(2) for the thread of `slot`; a descriptor goes to `pidfd`. Returns the child's pid, once the child has its
/// process in the realm.
pub fn fork(slot: u32, flags: u64, pidfd: u64, startup: &startup::Block) -> i64 {
    if flags & u64::from(linux::CLONE_VM) != 0 {
        return threads::fork_sharing(slot, flags, pidfd, startup);
    }
    let mut ends = [0_i32; 2];
    // SAFETY: Linux writes two descriptors.
    let piped = unsafe {
        sys::raw(linux::__NR_pipe2, [ends.as_mut_ptr() as u64, linux::O_CLOEXEC.into(), 0, 0, 0, 0])
    };
    if piped < 0 {
        return piped;
    }
    // A signal between fork and the child's own device would be forwarded to the parent.
    let mask = signals::block(u64::MAX);
    // SAFETY: the child gets a copy of everything but the mapping of the device, which nothing here uses.
    let child = unsafe { sys::raw(linux::__NR_clone, [flags, 0, pidfd, 0, 0, 0]) };
    if child == 0 {
        sys::close(ends[0]);
        threads::forget_others();
        go_on(slot, ends[1], mask, startup);
    }
    signals::block(mask);
    sys::close(ends[1]);
    let mut byte = 0_u8;
    let ready = child > 0 && sys::read(ends[0], slice::from_mut(&mut byte)) == 1;
    sys::close(ends[0]);
    if child > 0 && !ready {
        // SAFETY: waits for the child that has given up.
        unsafe { sys::raw(linux::__NR_wait4, [child as u64, 0, linux::__WALL.into(), 0, 0, 0]) };
        return -i64::from(errno::EAGAIN);
    }
    child
}

/// The child of a fork: takes a device and a process of its own, and serves it.
fn go_on(parent: u32, ready: i32, mask: u64, startup: &startup::Block) -> ! {
    let device = sys::device();
    let parent = Parent { slot: parent, device };
    let entered = reopen(device, linux::O_CLOEXEC).ok().and_then(|own| {
        // SAFETY: this program lies in its range, and the device of the parent is not mapped here.
        let slot = unsafe { enter_realm(own, Some(parent)) }.ok()?;
        sys::replace(own, device, linux::O_CLOEXEC).ok()?;
        Some(slot)
    });
    let Some(slot) = entered else { sys::exit(126) };
    let _ = sys::write(ready, &[1]);
    sys::close(ready);
    signals::block(mask);
    serve::serve(slot, startup)
}

/// Opens the device of descriptor `fd` once more.
fn reopen(fd: i32, flags: u32) -> Result<i32, Errno> {
    sys::open(link(fd).as_ptr() as u64, linux::O_RDWR | flags)
        .or_else(|_| sys::open(c"/dev/crtos".as_ptr() as u64, linux::O_RDWR | flags))
}

/// The name `/proc/self/fd/N`, with a zero.
fn link(fd: i32) -> [u8; 26] {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    // SAFETY: there are twelve bytes behind the prefix.
    unsafe { write_number(path[14..].as_mut_ptr(), fd as u32) };
    path
}

/// Whether the name at `path`, an address of the program, is `/proc/self/exe`.
pub fn is_self(path: u64) -> bool {
    const NAME: &[u8] = b"/proc/self/exe\0";
    let mut name = [0; NAME.len()];
    sys::copy_in(path, name.as_mut_ptr(), NAME.len()).is_ok() && name == NAME
}

/// Calls `f` with the address of a name that links to the program's executable.
pub fn with_executable(f: impl FnOnce(u64) -> i64) -> i64 {
    f(link(sys::executable()).as_ptr() as u64)
}

/// Most entries of the argument vector of an execve.
const VECTOR_ENTRIES: usize = 1 << 18;

/// Executes the program at `path`. Returns only a failure.
///
/// What the realm can load goes on there: this shadow executes itself with it. Everything else goes on in Linux, unless the realm wants to be asked
/// first (`ask`).
pub fn exec(path: u64, arguments: u64, environment: u64, mask: u64, ask: bool) -> i64 {
    let result = prepare(path, arguments).map(|vector| {
        if vector.is_none() && ask && may_execute(path) {
            return RESULT_IN_LINUX;
        }
        signals::block(mask);
        signals::inherit_interrupts(true);
        let program = [path, arguments, environment, 0, 0, 0];
        let itself = c"/proc/self/exe".as_ptr() as u64;
        let args =
            vector.as_ref().map_or(program, |vector| [itself, vector.start, environment, 0, 0, 0]);
        // SAFETY: on success nothing of this program is left; Linux checks the program's pointers.
        let result = unsafe { sys::raw(linux::__NR_execve, args) };
        if let Some(vector) = vector {
            sys::close(vector.device);
            sys::close(vector.executable);
        }
        signals::inherit_interrupts(false);
        signals::block(0);
        result
    });
    threads::give_scratch();
    result.unwrap_or_else(|Errno(error)| -i64::from(error))
}

/// The command line of the next shadow.
struct Vector {
    start: u64,
    device: i32,
    executable: i32,
}

/// Makes the command line of the next shadow, if the realm can load the program.
fn prepare(path: u64, arguments: u64) -> Result<Option<Vector>, Errno> {
    let Ok(mut executable) = sys::open(path, linux::O_RDONLY) else { return Ok(None) };
    if is_shadow(executable) {
        // /proc/self/exe is the shadow to Linux; the program means itself.
        executable =
            sys::replace(sys::copy(sys::executable())?, executable, 0).map(|()| executable)?;
    }
    if !may_execute(path) || !is_loadable(executable) {
        sys::close(executable);
        return Ok(None);
    }
    let built = reopen(sys::device(), 0).and_then(|device| {
        build(path, arguments, device, executable)
            .inspect_err(|_| sys::close(device))
            .map(|start| Vector { start, device, executable })
    });
    built.map(Some).inspect_err(|_| sys::close(executable))
}

/// Whether the realm can load a program, and the interpreter that it asks for.
fn is_loadable(fd: i32) -> bool {
    let Some(image) = headers(fd) else { return false };
    let Some(interpreter) = image.interpreter else { return true };
    let mut name = [0; MAX_INTERPRETER as usize];
    let name = &mut name[..interpreter.length as usize];
    if sys::pread(fd, name, interpreter.offset) != name.len() as i64 || name.last() != Some(&0) {
        return false;
    }
    let opened = sys::open(name.as_ptr() as u64, linux::O_RDONLY | linux::O_CLOEXEC);
    opened.is_ok_and(|fd| {
        let found = headers(fd);
        sys::close(fd);
        found.is_some()
    })
}

/// What the headers of an executable say.
fn headers(fd: i32) -> Option<Image> {
    let mut start = [0; HEADER_BYTES];
    let length = usize::try_from(sys::pread(fd, &mut start, 0)).ok()?;
    Image::parse(&start[..length]).ok()
}

/// Whether the file at `path` may be executed.
fn may_execute(path: u64) -> bool {
    let args = [AT_FDCWD, path, X_OK, linux::AT_EACCESS.into(), 0, 0];
    // SAFETY: checks a permission by the effective ids.
    unsafe { sys::raw(linux::__NR_faccessat2, args) == 0 }
}

/// Whether a descriptor is the executable of the shadow itself.
fn is_shadow(fd: i32) -> bool {
    sys::open(c"/proc/self/exe".as_ptr() as u64, linux::O_RDONLY).is_ok_and(|own| {
        let same = sys::identity(own) == sys::identity(fd);
        sys::close(own);
        same
    })
}

const AT_FDCWD: u64 = -100_i64 as u64;
const X_OK: u64 = 1;

/// Bytes of the two numbers on the command line.
const NUMBERS: usize = 32;

/// Builds `shadow DEVICE EXECUTABLE PATH ARGUMENTS…` with the program's own strings.
fn build(path: u64, arguments: u64, device: i32, executable: i32) -> Result<u64, Errno> {
    let base = threads::take_scratch(VECTOR_ENTRIES * 8)?;
    let numbers = [device, executable].map(|number| number as u32);
    let mut at = base;
    for number in numbers {
        // SAFETY: the two numbers take less than NUMBERS bytes at the start of the fresh memory.
        at = unsafe { write_number(at, number) };
    }
    let second = number_length(numbers[0]) + 1;
    let head = [c"shadow".as_ptr() as u64, base as u64, base as u64 + second as u64, path];
    let vector = base as u64 + NUMBERS as u64;
    let entries = VECTOR_ENTRIES - NUMBERS / 8;
    // SAFETY: the fresh memory has VECTOR_ENTRIES words, aligned to a page.
    let words = unsafe { slice::from_raw_parts_mut(vector as *mut u64, entries) };
    words[..head.len()].copy_from_slice(&head);
    let mut filled = head.len();
    while filled < entries {
        let word = &mut words[filled];
        if arguments != 0 {
            sys::copy_in(
                arguments + 8 * (filled - head.len()) as u64,
                ptr::from_mut(word).cast(),
                size_of::<u64>(),
            )?;
        }
        if *word == 0 {
            return Ok(vector);
        }
        filled += 1;
    }
    Err(Errno(errno::E2BIG))
}

fn number_length(mut number: u32) -> usize {
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
unsafe fn write_number(to: *mut u8, mut number: u32) -> *mut u8 {
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
