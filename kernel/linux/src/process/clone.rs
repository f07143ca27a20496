// SPDX-License-Identifier: MIT OR Apache-2.0
//! clone and clone3: what the flags ask for, and new threads. New processes are in
//! [`crate::process::fork`].

use crtos_abi::UserAddr;
use crtos_syscalls::structs::CloneArgs;
use zerocopy::IntoBytes;

use crtos_channel::OwnedSlot;
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::UserContext,
    task,
    time::{self, Nanos},
};

use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{
        ThreadExt as _, UserThread, fork, spares,
        start::{self, Beginning, Birth},
        threads,
    },
    signal,
};

/// What clone and clone3 ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// `CLONE_*`, without the signal.
    pub flags: u64,
    /// Signal to the parent at the end.
    pub signal: u32,
    /// Stack pointer of the child, or [`UserAddr::NULL`] for the parent's.
    pub stack: UserAddr,
    /// Where the parent gets the child's id (CLONE_PARENT_SETTID).
    pub parent_tid: UserAddr,
    /// Where the child gets its id (CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID).
    pub child_tid: UserAddr,
    /// FS base of the child (CLONE_SETTLS).
    pub tls: UserAddr,
    /// Where the parent gets a descriptor (CLONE_PIDFD).
    pub pidfd: UserAddr,
}

impl Wanted {
    /// Whether any of `flags` is set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags & u64::from(flags) != 0
    }
}

/// Flags that a thread has to have; less sharing between threads of one process is not there.
const OF_THREADS: u32 =
    linux::CLONE_VM | linux::CLONE_FS | linux::CLONE_FILES | linux::CLONE_SIGHAND;

/// clone(flags, stack, parent tid, child tid, tls).
pub fn clone(
    context: &mut UserContext,
    [flags, stack, parent_tid, child_tid, tls, _]: Args,
) -> SysResult {
    let signal = flags as u32 & linux::CSIGNAL;
    let flags = u64::from(flags as u32 & !linux::CSIGNAL);
    let [stack, parent_tid, child_tid, tls] =
        [stack, parent_tid, child_tid, tls].map(UserAddr::new);
    let wanted = Wanted { flags, signal, stack, parent_tid, child_tid, tls, pidfd: parent_tid };
    if wanted.has(linux::CLONE_PIDFD)
        && wanted.has(linux::CLONE_PARENT_SETTID | linux::CLONE_DETACHED)
    {
        return Err(Errno::EINVAL);
    }
    make(context, &wanted)
}

/// clone3(arguments, size).
pub fn clone3(context: &mut UserContext, [address, size, ..]: Args) -> SysResult {
    /// Bytes of the first version of the structure, and of the last.
    const FIRST: u64 = 64;
    const LAST: u64 = size_of::<CloneArgs>() as u64;
    if size > crtos_abi::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if size < FIRST {
        return Err(Errno::EINVAL);
    }
    let address = UserAddr::new(address);
    let known = size.min(LAST);
    // What an older program does not pass is zero.
    let mut arguments = CloneArgs::default();
    user::read(address, &mut arguments.as_mut_bytes()[..known as usize])?;
    for at in known..size {
        let mut byte = [0];
        user::read(address + at, &mut byte)?;
        if byte != [0] {
            return Err(Errno::E2BIG);
        }
    }
    let CloneArgs {
        flags,
        pidfd,
        child_tid,
        parent_tid,
        exit_signal: signal,
        stack,
        stack_size,
        tls,
        set_tid,
        set_tid_size,
        cgroup: _,
    } = arguments;
    /// Most ids that a process has, one for each of the nested namespaces.
    const MOST_TIDS: u64 = 32;
    const FLAGS: u64 = linux::CLONE_CLEAR_SIGHAND | linux::CLONE_INTO_CGROUP | 0xffff_ffff;
    const EXIT_FLAGS: u64 = linux::CLONE_THREAD as u64 | linux::CLONE_PARENT as u64;
    let not_new = u64::from(linux::CLONE_DETACHED | linux::CSIGNAL & !linux::CLONE_NEWTIME);
    let clears = u64::from(linux::CLONE_SIGHAND) | linux::CLONE_CLEAR_SIGHAND;
    let bad = set_tid_size > MOST_TIDS
        || (set_tid == 0) != (set_tid_size == 0)
        || signal & !u64::from(linux::CSIGNAL) != 0
        || signal > 64
        || flags & !FLAGS != 0
        || flags & not_new != 0
        || flags & clears == clears
        || flags & EXIT_FLAGS != 0 && signal != 0
        || (stack == 0) != (stack_size == 0)
        || UserAddr::new(stack).checked_add(stack_size).is_none_or(|end| end > UserAddr::END);
    if bad {
        return Err(Errno::EINVAL);
    }
    if set_tid_size != 0 || flags & linux::CLONE_INTO_CGROUP != 0 {
        return Err(Errno::EPERM);
    }
    let stack = UserAddr::new(stack) + stack_size;
    let [parent_tid, child_tid, tls, pidfd] =
        [parent_tid, child_tid, tls, pidfd].map(UserAddr::new);
    let signal = signal as u32;
    make(context, &Wanted { flags, signal, stack, parent_tid, child_tid, tls, pidfd })
}

/// Checks what every version of the call checks, and makes a thread or a process.
fn make(context: &mut UserContext, wanted: &Wanted) -> SysResult {
    let both = |a: u32, b: u32| wanted.has(a) && wanted.has(b);
    let without = |a: u32, b: u32| wanted.has(a) && !wanted.has(b);
    if both(linux::CLONE_FS, linux::CLONE_NEWNS | linux::CLONE_NEWUSER)
        || without(linux::CLONE_THREAD, linux::CLONE_SIGHAND)
        || without(linux::CLONE_SIGHAND, linux::CLONE_VM)
        || both(linux::CLONE_THREAD, linux::CLONE_NEWUSER | linux::CLONE_NEWPID)
    {
        return Err(Errno::EINVAL);
    }
    if wanted.has(linux::CLONE_THREAD) {
        if wanted.flags & u64::from(OF_THREADS) != OF_THREADS.into()
            || wanted.has(linux::CLONE_PIDFD | NEW_NAMESPACES)
        {
            return Err(Errno::EINVAL);
        }
        thread(context, wanted)
    } else {
        fork::process(context, wanted)
    }
}

/// Everything that a thread shares with its process.
const NEW_NAMESPACES: u32 = linux::CLONE_NEWNS
    | linux::CLONE_NEWCGROUP
    | linux::CLONE_NEWUTS
    | linux::CLONE_NEWIPC
    | linux::CLONE_NEWUSER
    | linux::CLONE_NEWPID
    | linux::CLONE_NEWTIME
    | linux::CLONE_NEWNET;

/// Makes a thread of the calling process.
fn thread(context: &UserContext, wanted: &Wanted) -> SysResult {
    let current = task::current();
    let parent = current.user().ok_or(Errno::ESRCH)?;
    let mut beginning = Beginning::of_child(context)?;
    beginning.apply(wanted)?;
    let scheduling = current.scheduling().of_child().ok_or(Errno::EAGAIN)?;
    let owned = shadow_thread(parent)?;
    let user = UserThread::new(parent.process.clone(), &owned);
    let tid = user.tid;
    if let Err(error) = signal::copy_to_thread(&user, parent) {
        spares::give_back(&parent.process, owned);
        return Err(error);
    }
    *user.command.lock() = *parent.command.lock();
    user.ids.inherit(&parent.ids);
    user.speculation.inherit(&parent.speculation);
    if wanted.has(linux::CLONE_CHILD_CLEARTID) {
        user.set_clear_child_tid(wanted.child_tid);
    }
    let tids = [
        (linux::CLONE_PARENT_SETTID, wanted.parent_tid),
        (linux::CLONE_CHILD_SETTID, wanted.child_tid),
    ];
    for (flag, address) in tids {
        if wanted.has(flag) {
            // As Linux: an address that is none does not matter any more.
            let _ = user.process.space.write(address, &tid.get().to_le_bytes());
        }
    }
    *user.birth.lock() = Birth::Thread(beginning);
    start::begin(user, owned, scheduling, start::enter).map_err(|owned| {
        spares::give_back(&parent.process, owned);
        Errno::EAGAIN
    })?;
    Ok(tid.get().into())
}

/// How long a thread waits for slots that ending threads of its process are about to give back, and
/// how often it looks.
const PATIENCE: Nanos = Nanos::from_millis(200);
const PERIOD: Nanos = Nanos::from_millis(1);

/// A shadow thread for a new thread of `parent`, which is the calling one: a spare, or else a new
/// one.
fn shadow_thread(parent: &UserThread) -> Result<OwnedSlot, Errno> {
    let process = &parent.process;
    let deadline = time::now() + PATIENCE;
    loop {
        if let Some(owned) = spares::take_spare(parent) {
            return Ok(owned);
        }
        if process.is_ending() {
            return Err(Errno::EAGAIN);
        }
        // One for the new thread, and one that makes further spares.
        match spares::make(2, parent) {
            Ok(Some(owned)) => return Ok(owned),
            Ok(None) => {}
            Err(Errno::EAGAIN) if threads::has_ending(process) && time::now() < deadline => {
                task::sleep_until(time::now() + PERIOD);
            }
            Err(error) => return Err(error),
        }
    }
}
