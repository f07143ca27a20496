// SPDX-License-Identifier: MIT OR Apache-2.0
//! execve and execveat.
//!
//! They are left to Linux: the shadow executes itself anew with the program, so that descriptors,
//! signals and credentials change as Linux has it. This process ends, and another one with its pid
//! begins, which takes over what is the realm's own: the [`Legacy`].

use alloc::{format, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

use crtos_abi::{
    UserAddr,
    channel::RESULT_IN_LINUX,
    ids::{Pid, PidNamespace, ProcessNumber},
};
use crtos_channel::{Operation, Start};
use crtos_sched::CpuSet;
use crtos_signal::{Info, info::SI_TIMER};
use crtos_syscalls::structs::Stat;
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::{heap, space::AddressSpace},
    task::{self, Mutex, Policy, PortPermissions, Scheduling, Thread, WaitQueue},
};

use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    files::{self, Files, Watchers, names},
    memory::{Scratch, mappings, user},
    process::{
        Process, ThreadExt as _, UserThread,
        account::{Account, Usage},
        housekeeper, lapse,
        limits::Own,
        speculation::Speculation,
        threads,
    },
    remote::{self, slots},
    signal, timers,
};

/// What a process that executes a program leaves to the one that goes on under the same pid.
pub struct Legacy {
    /// Which process leaves it.
    process: ProcessNumber,
    /// Its pid namespace, and its id in that.
    ids: (PidNamespace, Pid),
    /// A process has come that goes on.
    is_claimed: bool,
    /// Its descriptors.
    pub files: Arc<Files>,
    /// The CPUs of the thread.
    pub affinity: CpuSet,
    /// The thread, if it has a reservation (SCHED_DEADLINE), and how it is scheduled.
    pub reservation: Option<(Arc<Thread>, Scheduling)>,
    /// What the thread has asked for of what the processor executes ahead.
    pub speculation: Speculation,
    /// The I/O ports that the thread may use.
    pub ports: PortPermissions,
    /// What it may map.
    pub limits: Own,
    /// Its interval timers.
    timers: timers::Kept,
    /// The signals that were pending, or came while the program was executed.
    pending: Vec<Pending>,
    /// What it used.
    pub used: Usage,
    /// Its account.
    pub account: Arc<Account>,
    /// Who is told of its signals.
    pub signal_watchers: Option<Arc<Watchers>>,
}

/// A signal that was pending.
struct Pending {
    info: Info,
    /// For the thread that executes the program, and not for its process.
    is_own: bool,
}

impl Legacy {
    /// Whether `process` leaves it. Those that share their memory have one number.
    fn is_of(&self, process: &Process) -> bool {
        self.process == process.number && self.ids == process.ids()
    }

    /// Has the timers go on, and the signals be pending, in the process that goes on. Thread
    /// context; may sleep.
    pub fn resume(self, process: &Arc<Process>) -> Result<(), Errno> {
        // The timers of timer_create(2) have ended, and with them their signals.
        for Pending { info, .. } in self.pending.iter().filter(|one| one.info.code() != SI_TIMER) {
            // It was within the limit before.
            let _ = signal::to_process(process, *info);
        }
        timers::resume(process, self.timers)
    }

    /// No program was executed: all is as it was for `user`, the calling thread. Thread context;
    /// may sleep.
    fn give_back(self, user: &UserThread) -> Result<(), Errno> {
        put_back(self.pending, user);
        timers::resume(&user.process, self.timers)
    }
}

/// What has not been taken over yet: of each process once.
static HANDED_OVER: Mutex<Vec<Legacy>> = Mutex::new(Vec::new());

/// Threads that wait until another one of their process has executed no program.
static NEXT: WaitQueue = WaitQueue::new();

/// Whether the process of these ids executes a program, and no other process has come yet that goes
/// on under them: from now on one has.
pub fn claim(ids: (PidNamespace, Pid)) -> bool {
    let mut handed_over = HANDED_OVER.lock();
    let legacy = handed_over.iter_mut().find(|legacy| legacy.ids == ids);
    legacy.is_some_and(|legacy| !core::mem::replace(&mut legacy.is_claimed, true))
}

/// What the process of these ids had before it executed its program.
pub fn taken_over(ids: (PidNamespace, Pid)) -> Option<Legacy> {
    take_legacy(|legacy| legacy.ids == ids)
}

/// Child `pid` of `parent`, whose account is `account`, was waited for: if it was about to execute
/// a program, nobody comes any more for what it has left. Thread context; may sleep.
pub fn forget(parent: &Process, account: &Account, pid: Pid) {
    let is_of_child = |legacy: &Legacy| {
        legacy.ids == (parent.namespace, pid) && account.is_parent_of(&legacy.account)
    };
    while let Some(legacy) = take_legacy(is_of_child) {
        drop(legacy);
    }
}

/// `process` has no thread any more: what it has left for the program that it was about to execute
/// goes, if nobody comes for that. By the time that Linux tells of the end of a shadow, another
/// process has asked to go on, or none will. Thread context; sleeps.
pub fn give_up(process: &Process) {
    let is_left = |legacy: &Legacy| legacy.is_of(process) && !legacy.is_claimed;
    if !HANDED_OVER.lock().iter().any(is_left) {
        return;
    }
    let comes = slots::is_offered(|owned, start| {
        start == Start::Process && (owned.namespace(), owned.own_tid().leads()) == process.ids()
    });
    if !comes {
        // It may be about to claim that.
        housekeeper::wait_for_round();
        drop(take_legacy(is_left));
    }
}

fn take_legacy(is_meant: impl Fn(&Legacy) -> bool) -> Option<Legacy> {
    let mut handed_over = HANDED_OVER.lock();
    let place = handed_over.iter().position(is_meant)?;
    Some(handed_over.remove(place))
}

/// `process` has no thread any more: if it has executed a program, its signals go to the process
/// that goes on under its pid. Who sends it one from now on calls this again. Thread context; may
/// sleep.
pub fn hand_over_signals(process: &Process) {
    // Who does not see this has made the signal pending before what follows.
    process.bequeaths.store(true, Ordering::SeqCst);
    signal::bequeath(process, |info| {
        let mut handed_over = HANDED_OVER.lock();
        let legacy = handed_over.iter_mut().find(|legacy| legacy.ids == process.ids());
        if let Some(legacy) = legacy {
            if has_room(&mut legacy.pending) {
                legacy.pending.push(Pending { info, is_own: false });
            }
            return;
        }
        drop(handed_over);
        if let Some(heir) = threads::find_process(process, process.pid) {
            // It has no room for more than it may have.
            let _ = signal::to_process(&heir, info);
        }
    });
}

/// Whether there is room for one more, or memory for it: a program can have many.
fn has_room(pending: &mut Vec<Pending>) -> bool {
    let more = pending.len() + 1;
    more <= pending.capacity()
        || heap::lends(2 * more * size_of::<Pending>()) && pending.try_reserve(1).is_ok()
}

/// Takes what is pending for `user`, the calling thread, and its process. `None` if there is no
/// memory for that: all is pending then as before.
fn take_pending(user: &UserThread) -> Option<Vec<Pending>> {
    let mut pending = Vec::new();
    while has_room(&mut pending) {
        let Some((info, is_own)) = signal::take_any() else { return Some(pending) };
        pending.push(Pending { info, is_own });
    }
    put_back(pending, user);
    None
}

/// Has signals be pending again for `user`, the calling thread, and its process.
fn put_back(pending: Vec<Pending>, user: &UserThread) {
    for Pending { info, is_own } in pending {
        // It was within the limit before.
        let _ = match is_own {
            true => signal::to_thread(user, info),
            false => signal::to_process(&user.process, info),
        };
    }
}

/// execve(path, arguments, environment).
pub fn execve([path, arguments, environment, ..]: Args) -> SysResult {
    lapse::refuse()?;
    execute(UserAddr::new(path), None, arguments, environment)
}

/// execveat(directory, path, arguments, environment, flags). As in Linux, a program that is found
/// by a descriptor has a name in `/dev/fd`.
pub fn execveat([directory, path, arguments, environment, flags, _]: Args) -> SysResult {
    const KNOWN: u32 = linux::AT_EMPTY_PATH | linux::AT_SYMLINK_NOFOLLOW;
    lapse::refuse()?;
    let (directory, path, flags) = (directory as i32, UserAddr::new(path), flags as u32);
    let name = names::read(path)?;
    if name.is_empty() && flags & linux::AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let here = directory == linux::AT_FDCWD;
    if here && name.is_empty() {
        // The working directory.
        return Err(Errno::EACCES);
    }
    let space = user::space()?;
    if flags & linux::AT_SYMLINK_NOFOLLOW != 0 {
        refuse_link(&space, [directory as u64, path.get(), flags.into()])?;
    }
    if here || name.first() == Some(&b'/') {
        return execute(path, None, arguments, environment);
    }
    check_descriptor(directory, &name)?;
    let mut link = format!("/dev/fd/{directory}").into_bytes();
    if !name.is_empty() {
        link.push(b'/');
        link.extend_from_slice(&name);
    }
    link.push(0);
    let scratch = Scratch::open(&space, link.len() as u64)?;
    space.write(scratch.start, &link)?;
    execute(scratch.start, Some(directory as u32), arguments, environment)
}

/// ELOOP if a path, relative to a directory and with flags of fstatat(2), leads to a symbolic link.
fn refuse_link(space: &AddressSpace, [directory, path, flags]: [u64; 3]) -> Result<(), Errno> {
    let scratch = Scratch::open(space, size_of::<Stat>() as u64)?;
    let args = [directory, path, scratch.start.get(), flags];
    remote::linux(linux::__NR_newfstatat, &args)?;
    let found: Stat = user::read_struct(scratch.start)?;
    match found.mode & linux::S_IFMT {
        linux::S_IFLNK => Err(Errno::ELOOP),
        _ => Ok(()),
    }
}

/// Whether a program may be found by a descriptor, and `name` in it.
fn check_descriptor(fd: i32, name: &[u8]) -> Result<(), Errno> {
    let (files, number) = (files::table()?, fd as u64);
    if files.find(number).is_some() {
        return Err(if name.is_empty() { Errno::EACCES } else { Errno::ENOTDIR });
    }
    if fd < 0 || files.is_hidden(number) {
        return Err(Errno::EBADF);
    }
    remote::linux(linux::__NR_fcntl, &[number, linux::F_GETFD.into()]).map(drop)
}

/// Executes the program at `path`, which is that of a descriptor if there is one.
fn execute(path: UserAddr, descriptor: Option<u32>, arguments: u64, environment: u64) -> SysResult {
    let [arguments, environment] = [arguments, environment].map(UserAddr::new);
    let mask = signal::mask();
    mappings::write_back_all(&*user::space()?);
    let current = task::current();
    let scheduling = current.scheduling();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let (process, ids, files) = (user.process.number, user.process.ids(), user.process.files());
    // What another process with that id has left, and nobody came for.
    drop(take_legacy(|legacy| legacy.ids == ids && legacy.process != process));
    let hand_over = || {
        let mut handed_over = HANDED_OVER.lock();
        // If another thread has got to it, nobody comes any more for what this one leaves.
        super::note_if_gone();
        if user.process.is_ending() {
            return Some(Err(Errno::GONE));
        }
        if handed_over.iter().any(|legacy| legacy.is_of(&user.process)) {
            return None;
        }
        if handed_over.try_reserve(1).is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        let Some(pending) = take_pending(user) else { return Some(Err(Errno::ENOMEM)) };
        handed_over.push(Legacy {
            process,
            ids,
            is_claimed: false,
            files: files.clone(),
            affinity: current.affinity(),
            reservation: (scheduling.policy == Policy::Deadline)
                .then(|| (current.arc(), scheduling)),
            speculation: Speculation::of(&user.speculation),
            ports: task::port_permissions(),
            limits: *user.process.own_limits.lock(),
            timers: timers::take(&user.process),
            pending,
            used: user.process.used(),
            account: user.process.account().clone(),
            signal_watchers: user.process.signal_watchers.get().cloned(),
        });
        Some(Ok(()))
    };
    // As under Linux, one thread at a time.
    NEXT.wait_until(None, |_| signal::is_interrupted(), hand_over)
        .map_err(|_| Errno::RESTART_ALWAYS)??;
    // Linux tells of the end of the shadow when it goes on as another one.
    let _tie = user.process.tie();
    let exec = |in_realm_only| {
        let ignored = signal::leave_ignored(user)?;
        let refused = remote::request(Operation::Execute {
            path,
            arguments,
            environment,
            blocked: mask,
            in_realm_only,
            descriptor,
        })?;
        signal::forward_again(ignored)?;
        Ok::<_, remote::Gone>(refused)
    };
    let mut result = exec(true);
    if let Ok(refused) = result {
        if let Some(legacy) = take_legacy(|legacy| legacy.is_of(&user.process)) {
            NEXT.wake_all();
            legacy.give_back(user)?;
        }
        if refused == RESULT_IN_LINUX {
            files.leave_to_linux()?;
            let before = user.process.hand_over_limits()?;
            result = exec(false);
            before.map_or(Ok(()), Own::tell_linux)?;
        }
    }
    linux_result(result?)
}
