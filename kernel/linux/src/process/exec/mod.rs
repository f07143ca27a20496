// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a program: how a process gets from its shadow to its first instruction.
//!
//! 1. The shadow copies arguments and environment into the new address space
//!    ([`Operation::Startup`]).
//! 2. The executable is mapped privately, and so is the interpreter (`ld.so`) that it names, if
//!    any. What is not kept of these files from earlier is read through the shadow into the bounce
//!    buffer of the address space ([`crate::memory::contents`]): so Linux is given that buffer
//!    alone, and no page of the program has to be taken back from it.
//! 3. The stack is built, and the thread enters user mode in the interpreter, or in the program if
//!    there is none.

mod image;
mod stack;
mod vdso;

use crtos_core::{
    arch::{UserContext, fpu},
    cpu_numbers::Numbering,
    mm::{
        heap,
        space::{AddressSpace, BadAddress, MapError},
    },
    task,
};

use crate::{
    abi::Errno,
    memory::Scratch,
    process::{
        self, End, ThreadExt as _, UserThread,
        ids::Id,
        limits,
        start::{self, Beginning, Birth},
    },
    remote, signal,
};

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crtos_abi::{PAGE_SIZE, UserAddr, channel::Startup};
use crtos_channel::Operation;
use crtos_syscalls::{
    choices::Choices,
    exec::{Facts, ImageError},
};
use linux_raw_sys::general as linux;

use self::stack::Stack;

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
    /// The interpreter is not there.
    Interpreter,
    /// Linux refused.
    Linux(Errno),
    /// The start-up block contradicts itself.
    Startup,
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
            Self::Interpreter => "the loader that the executable names cannot be opened",
            Self::Linux(Errno::EACCES) => "no permission to read the executable",
            Self::Linux(_) => "the executable cannot be read",
            Self::Startup => "shadow and kernel are of different versions",
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
        match error {
            Errno::ENOMEM => Self::Pages,
            error => Self::Linux(error),
        }
    }
}

/// Body of the first thread of a process.
pub fn first_thread() {
    let loaded = {
        let current = task::current();
        let Some(user) = current.user() else { return };
        let loaded = load(user);
        process::note_if_gone();
        // What one that was not loaded has not taken over.
        drop(process::execve::taken_over(user.process.ids()));
        loaded
            .map_err(|error| match user.process.is_ending() {
                true => {
                    crtos_core::debug!("pid {}: killed while it was loaded", user.process.outer_pid)
                }
                false => complain(user, &error),
            })
            .ok()
    };
    process::note_if_gone();
    process::end_if_due();
    if loaded.is_some() {
        start::enter();
    }
}

/// Says on the program's standard error why it cannot be started, and ends the process.
fn complain(user: &UserThread, error: &ExecError) {
    crtos_core::warn!("pid {}: {error:?}", user.process.outer_pid);
    if let Ok(scratch) = Scratch::open(&user.process.space, PAGE_SIZE) {
        let mut length = 0;
        for part in ["crtos: ", error.reason(), "\n"] {
            let written = user.process.space.write(scratch.start + length, part.as_bytes());
            length += if written.is_ok() { part.len() as u64 } else { 0 };
        }
        let _ = remote::linux(linux::__NR_write, &[2, scratch.start.get(), length]);
    }
    user.process.end(End::Status(126));
}

/// Most bytes of arguments and environment.
const MAX_STRINGS: u64 = 4 << 20;

/// Loads the program and notes where it begins.
fn load(user: &UserThread) -> Result<(), ExecError> {
    let space = &*user.process.space;
    let (startup, strings) = read_startup(space)?;
    let random =
        u64::from_le_bytes(startup.placement[..8].try_into().map_err(|_| ExecError::Startup)?);
    let path_length = strings.iter().position(|&byte| byte == 0).ok_or(ExecError::Startup)? + 1;
    let (path, strings) = strings.split_at(path_length);
    name(user, path);
    user.process.files().begin()?;
    let before = process::execve::taken_over(user.process.ids());
    if let Some(before) = &before {
        let cpus = user.process.inherited_cpus(before.affinity);
        task::current().set_affinity(cpus);
        user.speculation.inherit(&before.speculation);
        task::set_port_permissions(before.ports.clone());
        user.process.files().inherit(&before.files)?;
        user.process.account.call_once(|| before.account.clone());
        if let Some(watchers) = &before.signal_watchers {
            user.process.signal_watchers.call_once(|| watchers.clone());
        }
        user.process.members.lock().ended.add(before.used);
    }
    user.process.files().adopt_all();
    let choices = Choices::from_word(startup.choices);
    if choices.renumbers {
        user.process.numbering.set(Numbering::Realm);
    }
    user.process.strict.store(choices.strict as u32, Ordering::Relaxed);
    user.process.wildcard.store(choices.wildcard, Ordering::Relaxed);
    if user.process.keeps_ids() {
        user.ids.note(Id::User, startup.uid);
        user.ids.note(Id::EffectiveUser, startup.euid);
        user.ids.note(Id::Group, startup.gid);
        user.ids.note(Id::EffectiveGroup, startup.egid);
    }
    let stack = Stack::new(&startup, strings.len() as u64)?;
    space.set_mmap_top(stack.mmap_top());
    let (image, interpreter) = image::load(space, startup.executable.into(), random)?;
    space.set_brk_start(image.end() + (random >> 28 & 0x1fff) * PAGE_SIZE);
    let facts = Facts {
        signal_stack: signal::frame_size(),
        hwcap: startup.hwcap,
        hwcap2: startup.hwcap2,
        headers: image.headers,
        header_count: image.header_count,
        vdso: vdso::map(space)?,
        base: interpreter.as_ref().map_or(UserAddr::NULL, |interpreter| interpreter.start()),
        entry: image.entry,
        ids: [startup.uid, startup.euid, startup.gid, startup.egid],
        random: startup.random,
    };
    let stack_pointer = stack.make(space, image.executable_stack, path, strings, &facts)?;

    let blocked = remote::request(Operation::BlockedSignals)? as u64;
    signal::inherit(user, blocked, startup.ignored)?;
    let own_limits = before.as_ref().map(|before| before.limits);
    let mut reservation = None;
    if let Some(mut before) = before {
        reservation = before.reservation.take();
        before.resume(&user.process).map_err(|_| ExecError::Memory)?;
    }
    limits::begin(&user.process, own_limits)?;
    super::scheduling::inherit(reservation)?;
    fpu::reset();
    let entry = interpreter.map_or(image.entry, |interpreter| interpreter.entry);
    let context = UserContext::of_start(entry, stack_pointer);
    let beginning = Beginning::of_child(&context).map_err(|_| ExecError::Memory)?;
    *user.birth.lock() =
        Birth::Thread(Beginning { bases: (UserAddr::NULL, UserAddr::NULL), ..beginning });
    Ok(())
}

/// Reads the start-up block: its head, and its strings (path, arguments, environment).
fn read_startup(space: &AddressSpace) -> Result<(Startup, Vec<u8>), ExecError> {
    const HEAD: u64 = size_of::<Startup>() as u64;
    let size = remote::request(Operation::Startup { to: UserAddr::NULL, room: 0 })? as u64;
    if !(HEAD..=MAX_STRINGS).contains(&size) {
        return Err(ExecError::Startup);
    }
    let scratch = Scratch::open(space, size)?;
    let copied = remote::request(Operation::Startup { to: scratch.start, room: size })?;
    if copied as u64 != size {
        return Err(ExecError::Startup);
    }
    let mut head = [0; size_of::<Startup>()];
    space.read(scratch.start, &mut head)?;
    let mut strings = Vec::new();
    if !heap::makes_room(&mut strings, (size - HEAD) as usize) {
        return Err(ExecError::Memory);
    }
    strings.resize((size - HEAD) as usize, 0);
    space.read(scratch.start + HEAD, &mut strings)?;

    let startup = Startup::from_bytes(&head);
    let count = strings.iter().filter(|&&byte| byte == 0).count() as u64;
    if u64::from(startup.size) != size
        || count != 1 + u64::from(startup.argc) + u64::from(startup.envc)
    {
        return Err(ExecError::Startup);
    }
    Ok((startup, strings))
}

/// Names the process after its program.
fn name(user: &UserThread, path: &[u8]) {
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    user.set_command(file);
}
