// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a program: how a process gets from its shadow to its first instruction.
//!
//! 1. The shadow copies arguments and environment into the new address space (`OP_STARTUP`).
//! 2. The executable is read through the shadow into a window of the address space, and from there into the program's pages: so
//!    Linux is given the window alone, and no page of the program has to be taken back from it.
//! 3. The stack is built, and the thread enters user mode.

use alloc::vec::Vec;

use crtos_abi::{
    PAGE_SIZE,
    channel::{NO_EXECUTABLE, OP_SIGNAL_FORWARD, OP_STARTUP, Startup, USER_END},
};
use crtos_syscalls::exec::{Facts, HEADER_BYTES, Image, ImageError, Segment, build_stack};
use linux_raw_sys::general as linux;

use crate::{
    arch::{self, UserContext, fpu},
    fork::{self, AdoptError},
    mm::space::{AddressSpace, BadAddress, Kind, Map, MapError, Placement, Protection},
    process::{self, End, User},
    remote, signal,
    syscall::{self, Errno},
    task,
};

/// Why a program cannot be started.
#[derive(Debug)]
enum ExecError {
    /// The file is not one that can be executed.
    Image(ImageError),
    /// No room in the kernel's heap.
    Memory,
    /// No room in the address space.
    Map(MapError),
    /// No room in the pool.
    Pages,
    /// Linux refused.
    Linux(Errno),
    /// The start-up block contradicts itself.
    Startup,
    /// What the parent has cannot be copied.
    Fork(AdoptError),
    /// The shadow is gone.
    Gone,
}

impl ExecError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Image(error) => error.reason(),
            Self::Map(MapError::Exists | MapError::Denied | MapError::Invalid) => {
                "the addresses of the executable are not those of a program"
            }
            Self::Memory | Self::Pages | Self::Map(_) => {
                "not enough memory in the realm; start it with more (`crtos up --memory`)"
            }
            Self::Linux(Errno::EACCES) => "no permission to read the executable",
            Self::Linux(_) => "the executable cannot be read",
            Self::Startup => "shadow and kernel are of different versions",
            Self::Fork(AdoptError::NoParent) => "the parent of a forked process is gone",
            Self::Fork(AdoptError::Memory) => "not enough memory in the realm to fork",
            Self::Gone => "the shadow is gone",
        }
    }
}

impl From<MapError> for ExecError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl From<BadAddress> for ExecError {
    fn from(_: BadAddress) -> Self {
        Self::Pages
    }
}

impl From<remote::Gone> for ExecError {
    fn from(_: remote::Gone) -> Self {
        Self::Gone
    }
}

impl From<Errno> for ExecError {
    fn from(error: Errno) -> Self {
        Self::Linux(error)
    }
}

/// Body of the first thread of a process.
pub fn first_thread() {
    let loaded = {
        let current = task::current();
        let Some(user) = current.data.user() else { return };
        let loaded = load(user);
        process::note_if_gone();
        loaded
            .map_err(|error| match user.process.is_ending() {
                true => crate::debug!("pid {}: killed while it was loaded", user.process.pid),
                false => complain(user, &error),
            })
            .ok()
    };
    process::note_if_gone();
    process::end_if_due();
    if let Some((context, (fs, gs))) = loaded {
        arch::enter_user(&context, fs, gs);
    }
}

/// Says on the program's standard error why it cannot be started, and ends the process.
fn complain(user: &User, error: &ExecError) {
    crate::warn!("pid {}: {error:?}", user.process.pid);
    if let Ok(window) = Window::open(&user.process.space, PAGE_SIZE) {
        let mut length = 0;
        for part in ["crtos: ", error.reason(), "\n"] {
            let written = user.process.space.write(window.start + length, part.as_bytes());
            length += if written.is_ok() { part.len() as u64 } else { 0 };
        }
        let _ = syscall::linux(linux::__NR_write, &[2, window.start, length]);
    }
    user.process.end(End::Status(126));
}

/// A range of the address space that Linux reads files into.
struct Window<'a> {
    space: &'a AddressSpace,
    start: u64,
    length: u64,
}

impl<'a> Window<'a> {
    fn open(space: &'a AddressSpace, length: u64) -> Result<Self, MapError> {
        let protection = Protection::READ | Protection::WRITE;
        let placement = Placement::Anywhere { hint: 0 };
        let start = space.map(Map {
            placement,
            length,
            protection,
            kind: Kind::Anonymous,
            populate: false,
        })?;
        Ok(Self { space, start, length })
    }

    /// Reads up to `length` bytes at `offset` of descriptor `fd` into the window; returns how many there were.
    fn fill(&self, fd: u64, offset: u64, length: u64) -> Result<u64, Errno> {
        let length = length.min(self.length);
        let mut done = 0;
        while done < length {
            let args = [fd, self.start + done, length - done, offset + done];
            match syscall::linux(linux::__NR_pread64, &args) {
                Ok(0) => break,
                Ok(count) => done += count.min(length - done),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.space.unmap(self.start, self.length);
    }
}

/// Bytes of the window through which files are read.
const WINDOW: u64 = 256 * 1024;

/// Most bytes of arguments and environment.
const MAX_STRINGS: u64 = 4 << 20;

/// Loads the program, or copies the parent of a forked process, and returns the registers and segment bases it starts with.
fn load(user: &User) -> Result<(UserContext, (u64, u64)), ExecError> {
    let space = &*user.process.space;
    let (startup, strings) = read_startup(space)?;
    let random =
        u64::from_le_bytes(startup.random[..8].try_into().map_err(|_| ExecError::Startup)?);
    let path_length = strings.iter().position(|&byte| byte == 0).ok_or(ExecError::Startup)? + 1;
    let (path, strings) = strings.split_at(path_length);
    name(user, path);
    if startup.executable == NO_EXECUTABLE {
        return fork::adopt(user).map_err(ExecError::Fork);
    }

    let image = load_image(space, startup.executable.into(), random)?;
    space.set_brk_start(image.end() + (random >> 28 & 0x1fff) * PAGE_SIZE);
    let facts = Facts {
        signal_stack: signal::frame_size(),
        hwcap: startup.hwcap,
        hwcap2: startup.hwcap2 & !HWCAP2_FSGSBASE,
        headers: image.headers,
        header_count: image.header_count,
        entry: image.entry,
        ids: [startup.uid, startup.euid, startup.gid, startup.egid],
        random: startup.random,
    };
    let stack = make_stack(space, &startup, image.executable_stack, path, strings, &facts)?;

    signal::inherit(user, remote::request(OP_SIGNAL_FORWARD, 0, [0, 1, 0, 0, 0, 0])? as u64)?;
    inherit_scheduling(space)?;
    fpu::reset();
    let context = UserContext {
        rip: image.entry,
        rsp: stack,
        rflags: 0x202,
        orig_rax: u64::MAX,
        ..UserContext::default()
    };
    Ok((context, (0, 0)))
}

/// Takes over a real-time policy that the shadow was started with (`chrt -f 50 crtos run …`).
fn inherit_scheduling(space: &AddressSpace) -> Result<(), ExecError> {
    let policy = syscall::linux(linux::__NR_sched_getscheduler, &[0])?;
    if policy == 0 {
        return Ok(());
    }
    let window = Window::open(space, PAGE_SIZE)?;
    syscall::linux(linux::__NR_sched_getparam, &[0, window.start])?;
    syscall::inherit_scheduling(policy as u32, space.load_u32(window.start)?);
    Ok(())
}

/// The program may use RDFSBASE and its relatives; the kernel does not switch on CR4.FSGSBASE.
const HWCAP2_FSGSBASE: u64 = 2;

/// The start-up block: its head, and its strings (path, arguments, environment).
fn read_startup(space: &AddressSpace) -> Result<(Startup, Vec<u8>), ExecError> {
    const HEAD: u64 = size_of::<Startup>() as u64;
    let size = remote::request(OP_STARTUP, 0, [0; 6])? as u64;
    if !(HEAD..=MAX_STRINGS).contains(&size) {
        return Err(ExecError::Startup);
    }
    let window = Window::open(space, size)?;
    if remote::request(OP_STARTUP, 0, [window.start, size, 0, 0, 0, 0])? as u64 != size {
        return Err(ExecError::Startup);
    }
    let mut head = [0; HEAD as usize];
    space.read(window.start, &mut head)?;
    let mut strings = Vec::new();
    strings.try_reserve_exact((size - HEAD) as usize).map_err(|_| ExecError::Memory)?;
    strings.resize((size - HEAD) as usize, 0);
    space.read(window.start + HEAD, &mut strings)?;

    let word = |index: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&head[index * 4..index * 4 + 4]);
        u32::from_le_bytes(bytes)
    };
    let long = |index: usize| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
    let mut random = [0; 16];
    random.copy_from_slice(&head[56..72]);
    let startup = Startup {
        size: word(0),
        argc: word(1),
        envc: word(2),
        executable: word(3),
        uid: word(4),
        euid: word(5),
        gid: word(6),
        egid: word(7),
        stack_limit: long(8),
        hwcap: long(10),
        hwcap2: long(12),
        random,
    };
    let count = strings.iter().filter(|&&byte| byte == 0).count() as u64;
    if u64::from(startup.size) != size
        || count != 1 + u64::from(startup.argc) + u64::from(startup.envc)
    {
        return Err(ExecError::Startup);
    }
    Ok((startup, strings))
}

/// Loads the segments of descriptor `fd`.
fn load_image(space: &AddressSpace, fd: u64, random: u64) -> Result<Image, ExecError> {
    let window = Window::open(space, WINDOW)?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(BUFFER).map_err(|_| ExecError::Memory)?;
    buffer.resize(BUFFER, 0);
    let length = window.fill(fd, 0, HEADER_BYTES as u64)? as usize;
    space.read(window.start, &mut buffer[..length])?;
    // The upper half of the word is for the base; the lower one is used for the stack.
    let image = Image::parse(&buffer[..length], random >> 32).map_err(ExecError::Image)?;
    for segment in &image.segments {
        load_segment(space, &window, fd, segment, &mut buffer)?;
    }
    Ok(image)
}

/// Bytes that are copied at a time.
const BUFFER: usize = 16 * 1024;

fn load_segment(
    space: &AddressSpace,
    window: &Window,
    fd: u64,
    segment: &Segment,
    buffer: &mut [u8],
) -> Result<(), ExecError> {
    space.map(Map {
        placement: Placement::NoReplace(segment.start()),
        length: segment.end() - segment.start(),
        protection: Protection::from_bits_truncate(segment.protection),
        kind: Kind::Anonymous,
        populate: false,
    })?;
    // What lies in the file before the segment on its first page is mapped as well, as on Linux.
    let before = segment.address - segment.start();
    let (mut offset, mut address) = (segment.offset - before, segment.start());
    let mut left = if segment.file_size > 0 { segment.file_size + before } else { 0 };
    while left > 0 {
        let count = window.fill(fd, offset, left)?;
        if count == 0 {
            return Err(ExecError::Image(ImageError::Invalid));
        }
        let mut copied = 0;
        while copied < count {
            let length = (count - copied).min(buffer.len() as u64) as usize;
            space.read(window.start + copied, &mut buffer[..length])?;
            space.write_forced(address + copied, &buffer[..length])?;
            copied += length as u64;
        }
        offset += count;
        address += count;
        left -= count;
    }
    Ok(())
}

/// Default and greatest size of the stack.
const STACK_SIZE: u64 = 8 << 20;
const MAX_STACK_SIZE: u64 = 64 << 20;

/// Makes the stack and returns the stack pointer.
fn make_stack(
    space: &AddressSpace,
    startup: &Startup,
    executable: bool,
    path: &[u8],
    strings: &[u8],
    facts: &Facts,
) -> Result<u64, ExecError> {
    let limit = if startup.stack_limit > MAX_STACK_SIZE { STACK_SIZE } else { startup.stack_limit };
    let needed = (strings.len() as u64 * 2).next_multiple_of(PAGE_SIZE) + 32 * PAGE_SIZE;
    let length = limit.next_multiple_of(PAGE_SIZE).max(needed);
    let shift = u64::from_le_bytes(facts.random[8..].try_into().map_err(|_| ExecError::Startup)?);
    // 22 bits of pages, as Linux; then a little within the page.
    let top = USER_END - (shift & 0x3f_ffff) * PAGE_SIZE;
    let mut protection = Protection::READ | Protection::WRITE;
    if executable {
        protection |= Protection::EXECUTE;
    }
    let placement = Placement::NoReplace(top - length);
    space.map(Map { placement, length, protection, kind: Kind::Stack, populate: false })?;
    let size =
        strings.len() + path.len() + (startup.argc as usize + startup.envc as usize) * 8 + 1024;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| ExecError::Memory)?;
    bytes.resize(size, 0);
    let top = top - (shift >> 22 & 0xff) * 16;
    let pointer = build_stack(&mut bytes, top, path, strings, startup.argc as usize, facts)
        .ok_or(ExecError::Startup)?;
    let used = (top - pointer) as usize;
    space.write(pointer, &bytes[size - used..])?;
    Ok(pointer)
}

/// Names the process after its program.
fn name(user: &User, path: &[u8]) {
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    if let Some(line) = &*user.line.lock() {
        line.publish_command(file);
    }
}
