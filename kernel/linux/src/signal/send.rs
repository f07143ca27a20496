// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending signals.
//!
//! A signal for a process or thread of the realm is sent here, without Linux, if Linux would
//! certainly permit it: within one process, or between processes of one user that have not changed
//! their credentials. SIGKILL, SIGSTOP and SIGCONT go to the shadow by way of Linux, which carries
//! them out; so does everything for process groups and for processes of Linux.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crtos_abi::{
    UserAddr,
    ids::{Pid, Tid},
};
use crtos_signal::{
    Generated, Group, Info, Pool, Set, Target, Ticket,
    group::Search,
    info::{self, SI_KERNEL, SI_TKILL, SI_USER},
    pool::Full,
    set::{COUNT, SIGCONT, SIGKILL, SIGSTOP},
};
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::interrupts,
    task::{self, Thread},
};

use super::{Own, POOL, State, own, replenish};
use crate::{
    abi::{Args, Errno, SysResult},
    files::Events,
    memory::user,
    process::{End, Process, ThreadExt as _, UserThread, execve, threads},
    remote,
};

/// Sends `info` to a process: to any of its threads that does not block it. Thread context. Fails
/// if it is a real-time signal with a value and there is no room in the queue.
pub fn to_process(process: &Process, info: Info) -> Result<(), Full> {
    send(process, Target::Process, info, None)
}

/// Sends `info` to the thread of `user`; as [`to_process`].
pub fn to_thread(user: &UserThread, info: Info) -> Result<(), Full> {
    send(&user.process, target(user), info, None)
}

/// The thread of `user`.
fn target(user: &UserThread) -> Target {
    Target::Member(user.signals.index(), user.tid)
}

/// A signal that was made pending, and what is left to do.
pub struct Sent {
    signal: u32,
    left: Left,
}

enum Left {
    /// To find a thread that takes it.
    Search(Search),
    /// To tell who watches the signals of the process (signalfd).
    Tell,
    Nothing,
}

impl Sent {
    fn new(signal: u32, generated: Generated) -> Self {
        let left = match generated {
            Generated::Search(search) => Left::Search(search),
            Generated::Dropped => Left::Nothing,
            Generated::Pending | Generated::Wake(_) => Left::Tell,
        };
        Self { signal, left }
    }

    /// Whether it was not ignored.
    pub fn is_pending(&self) -> bool {
        !matches!(self.left, Left::Nothing)
    }

    /// The next step, which takes as long as what made the signal pending: in an interrupt it is to
    /// be a section of its own. Says whether there was one left. Any context.
    pub fn step(&mut self, process: &Process) -> bool {
        match self.left {
            Left::Search(search) => {
                self.left = match search_some(process, self.signal, Some(search)) {
                    Generated::Search(search) => Left::Search(search),
                    _ => Left::Tell,
                };
            }
            Left::Tell => {
                if let Some(watchers) = process.signal_watchers.get() {
                    watchers.notify(Events::IN);
                }
                self.left = Left::Nothing;
            }
            Left::Nothing => return false,
        }
        true
    }

    /// All steps that are left.
    pub fn finish(mut self, process: &Process) {
        while self.step(process) {}
    }

    /// All steps that are left, in a function of a timer.
    pub fn finish_in_timer(mut self, process: &Process) {
        while self.is_pending() {
            interrupts::window_in_timer();
            self.step(process);
        }
    }
}

/// Sends a ticket's signal to a process or a member of it, with a cookie for who takes it. Any
/// context. The caller takes the steps that are left, without a lock.
pub fn post(process: &Process, target: Target, ticket: &Ticket, info: Info, cookie: u64) -> Sent {
    let generated = {
        let mut state = process.signals.lock();
        let generated = {
            let mut pool = POOL.lock();
            discard_opposite(&mut state, &mut pool, target, info.signal());
            state.group.post(&mut pool, target, ticket, info, cookie)
        };
        if let Generated::Wake(index) = generated {
            state.wake(index, None);
        }
        generated
    };
    Sent::new(info.signal(), generated)
}

/// Sends `info`; `but` is the calling thread if it looks anyway. Thread context.
pub(super) fn send(
    process: &Process,
    target: Target,
    info: Info,
    but: Option<&Thread>,
) -> Result<(), Full> {
    let queued = queue(process, target, info, but).or_else(|Full| {
        replenish();
        queue(process, target, info, but)
    });
    let (sent, is_short) = queued?;
    sent.finish(process);
    if process.bequeaths.load(Ordering::SeqCst) {
        // Its last thread has gone since the caller found it.
        execve::hand_over_signals(process);
    }
    if is_short {
        replenish();
    }
    Ok(())
}

/// Sends `info` to a process from an interrupt, as [`post`]; `None` if it is of the kind that
/// fails, and there is no room.
pub fn from_interrupt(process: &Process, target: Target, info: Info) -> Option<Sent> {
    queue(process, target, info, None).ok().map(|(sent, _)| sent)
}

/// Whom signals go to that a program asks for once, and that are sent whenever something happens.
/// Dropped in thread context: it may be the last who knows the process.
pub struct Recipient {
    process: Arc<Process>,
    target: Target,
    /// The user of both the program that asked and the process, if that is certain: it hears
    /// nothing any more once it is not.
    uid: Option<u32>,
}

impl Recipient {
    /// The process `pid`, if it is in the realm and the caller may signal it. Thread context; may
    /// sleep.
    pub fn process(user: &UserThread, pid: Pid) -> Option<Self> {
        let (process, _) = process_of(user, pid.get().into())?;
        Some(Self { process, target: Target::Process, uid: user.process.certain_uid() })
    }

    /// The thread `tid`, likewise.
    pub fn thread(user: &UserThread, tid: Tid) -> Option<Self> {
        with_thread(user, None, tid, |to| Self {
            process: to.process.clone(),
            target: target(to),
            uid: user.process.certain_uid(),
        })
    }

    /// Whether both are certainly of one user.
    pub fn has_user_of(&self, other: &Self) -> bool {
        self.uid.is_some() && self.uid == other.uid
    }

    /// Sends `info`, as [`from_interrupt`]; of signals that Linux has to carry out, and to a
    /// process that has ended, nothing. Any context.
    pub fn send_from_interrupt(&self, info: Info) -> Option<Sent> {
        let is_another_user = self.uid.is_some() && self.uid != self.process.certain_uid();
        if !stays_here(info.signal()) || is_another_user || self.process.is_ending() {
            return None;
        }
        from_interrupt(&self.process, self.target, info)
    }

    /// The next step of what was sent; see [`Sent::step`].
    pub fn step(&self, sent: &mut Sent) {
        sent.step(&self.process);
    }
}

/// Makes `info` pending and wakes who takes it, if that is known at once. Any context. Says as well
/// whether the pool should grow.
fn queue(
    process: &Process,
    target: Target,
    info: Info,
    but: Option<&Thread>,
) -> Result<(Sent, bool), Full> {
    let (generated, is_short) = {
        let mut state = process.signals.lock();
        let (generated, is_short) = {
            let mut pool = POOL.lock();
            discard_opposite(&mut state, &mut pool, target, info.signal());
            (state.group.send(&mut pool, target, info)?, pool.is_short())
        };
        if let Generated::Wake(index) = generated {
            state.wake(index, but);
        }
        (generated, is_short)
    };
    Ok((Sent::new(info.signal(), generated), is_short))
}

/// An entry for the signals of a timer. Thread context; allocates.
pub fn reserve(process: &Process) -> Result<Ticket, Full> {
    replenish();
    let mut state = process.signals.lock();
    POOL.lock().reserve(&mut state.group.account)
}

/// Gives an entry back. A signal of it that is pending stays.
pub fn release(process: &Process, ticket: Ticket) {
    let mut state = process.signals.lock();
    POOL.lock().release(&mut state.group.account, ticket);
}

/// The thread `tid` of the process of `user` as a target.
pub fn member(user: &UserThread, tid: Tid) -> Option<Target> {
    with_thread(user, Some(user.process.pid), tid, target)
}

/// SIGCONT and the signals that stop make each other vanish, in the whole process: of its threads,
/// in the first 16, and in the one that the signal is sent to. At most a few are pending, of
/// standard signals.
#[inline]
fn discard_opposite(state: &mut State, pool: &mut Pool, target: Target, signal: u32) {
    const THREADS: usize = 16;
    let opposite = Group::<Own>::opposite(signal);
    if !opposite.is_empty() {
        while state.group.discard(pool, None, opposite) {}
        let target = match target {
            Target::Member(index, _) if index >= THREADS => Some(index),
            _ => None,
        };
        for index in (0..THREADS).chain(target) {
            while state.group.discard(pool, Some(index), opposite) {}
        }
    }
}

/// Goes on with the search for a thread by a bounded part of it, or begins one.
fn search_some(process: &Process, signal: u32, search: Option<Search>) -> Generated {
    let mut state = process.signals.lock();
    let search = search.unwrap_or_else(|| state.group.begin_search());
    let generated = state.group.search(signal, search);
    if let Generated::Wake(index) = generated {
        state.wake(index, None);
    }
    generated
}

/// Searches threads for signals of the process that wait. Thread context.
pub(super) fn search(process: &Process, signals: Set) {
    for signal in signals.iter() {
        let mut rest = None;
        while let Generated::Search(search) = search_some(process, signal, rest) {
            rest = Some(search);
        }
    }
}

/// A signal that Linux delivered to the shadow thread of `user`. Any context. As [`post`].
///
/// It was sent to that thread if it says so, or if it looks as if the process had sent it to
/// itself: it does not, but what Linux raises during a system call (SIGPIPE) looks so. Otherwise it
/// was sent to the process.
pub fn forwarded(user: &UserThread, info: Info) -> Option<Sent> {
    user.disturbed.store(true, Ordering::Relaxed);
    let raised = info.code() == SI_USER && info.pid() == Some(user.process.pid);
    let target = match info.code() == SI_TKILL || raised {
        true => target(user),
        false => Target::Process,
    };
    let info = of_linux(&user.process, target, info)?;
    // If there is no room, Linux had more than this process is allowed here.
    queue(&user.process, target, info, None).ok().map(|(sent, _)| sent)
}

/// What `process` may hear of a signal of Linux: in a locked realm nothing that it has not agreed
/// to. Any context.
fn of_linux(process: &Process, target: Target, info: Info) -> Option<Info> {
    if remote::lock::is_locked() { optional(process, target, info) } else { Some(info) }
}

/// `info` as an optional signal, if `process` has agreed to it. Any context.
fn optional(process: &Process, target: Target, info: Info) -> Option<Info> {
    let state = process.signals.lock();
    state.group.has_agreed(target, info.signal()).then(|| info.into_optional())
}

/// Sends a signal that Linux delivered to a shadow thread of `process` without a thread. Thread
/// context.
pub(super) fn forwarded_to_process(process: &Process, info: Info) {
    if let Some(info) = of_linux(process, Target::Process, info) {
        // It is not of the kind that fails, or the sender has gone on long ago.
        let _ = to_process(process, info);
    }
}

/// Tells `process` that Linux has ended, if it has agreed to that. Thread context.
pub fn tell_end_of_linux(process: &Process) {
    let info = Info::new(linux::SIGPWR, SI_KERNEL);
    if let Some(info) = optional(process, Target::Process, info) {
        // It is not of the kind that fails.
        let _ = to_process(process, info);
    }
}

/// The sender's part of `siginfo`.
fn from_caller(user: &UserThread, signal: u32, code: i32) -> Info {
    Info::from_process(signal, code, user.process.pid, user.process.uid)
}

/// Whether the signal `signal` to a process of the realm concerns the realm alone.
fn stays_here(signal: u32) -> bool {
    signal <= COUNT && !matches!(signal, SIGKILL | SIGSTOP | SIGCONT)
}

/// Whether Linux would certainly permit `user` to send signals to `process`.
fn is_permitted(user: &UserThread, process: &Arc<Process>) -> bool {
    let same = |uid| process.certain_uid() == Some(uid);
    Arc::ptr_eq(&user.process, process) || user.process.certain_uid().is_some_and(same)
}

/// Sends to `process` or its member, unless `signal` is 0, which only asks.
fn deliver_to(process: &Process, target: Target, info: Info, current: &Thread) -> SysResult {
    if info.signal() != 0 {
        send(process, target, info, Some(current)).map_err(|Full| Errno::EAGAIN)?;
    }
    Ok(0)
}

/// kill(pid, signal).
pub fn kill(args: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let signal = args[1] as u32;
    // 0 and negative numbers name groups, which Linux knows.
    let process = process_of(user, args[0]);
    match process {
        Some((process, target)) if stays_here(signal) => {
            deliver_to(&process, target, from_caller(user, signal, SI_USER), &current)
        }
        // By way of Linux it would end the shadow alone, or nobody.
        Some((process, _)) if signal == SIGKILL && process.outlives_shadow() => {
            process.end(End::Signal(signal));
            Ok(0)
        }
        _ => remote::own_call(linux::__NR_kill, &args),
    }
}

/// The process that an argument names if it is in the realm and the caller may signal it, as a
/// target as well. As under Linux, the id of any of its threads names it.
fn process_of(user: &UserThread, id: u64) -> Option<(Arc<Process>, Target)> {
    if user.process.pid.is(id) {
        return Some((user.process.clone(), Target::Process));
    }
    match threads::find_process(&user.process, Pid::named(id)?) {
        Some(process) => is_permitted(user, &process).then_some((process, Target::Process)),
        None => with_thread(user, None, Tid::named(id)?, |to| {
            (to.process.clone(), Target::ProcessOf(to.signals.index(), to.tid))
        }),
    }
}

/// Calls `f` with thread `tid` of process `pid` (any process if that is `None`) if it is in the
/// realm and the caller may signal it.
fn with_thread<R>(
    user: &UserThread,
    pid: Option<Pid>,
    tid: Tid,
    f: impl FnOnce(&UserThread) -> R,
) -> Option<R> {
    let of_process = |user: &UserThread| pid.is_none_or(|pid| pid == user.process.pid);
    if tid == user.tid {
        return of_process(user).then(|| f(user));
    }
    let thread = threads::find(&user.process, tid)?;
    let to = thread.user().filter(|to| of_process(to))?;
    is_permitted(user, &to.process).then(|| f(to))
}

/// tkill(tid, signal).
pub fn tkill(args: Args) -> SysResult {
    let tid = Tid::named(args[0]).ok_or(Errno::EINVAL)?;
    send_to_thread(None, tid, args[1] as u32, linux::__NR_tkill, args)
}

/// tgkill(pid, tid, signal).
pub fn tgkill(args: Args) -> SysResult {
    let pid = Pid::named(args[0]).ok_or(Errno::EINVAL)?;
    let tid = Tid::named(args[1]).ok_or(Errno::EINVAL)?;
    send_to_thread(Some(pid), tid, args[2] as u32, linux::__NR_tgkill, args)
}

fn send_to_thread(pid: Option<Pid>, tid: Tid, signal: u32, nr: u32, args: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if stays_here(signal) {
        let info = from_caller(user, signal, SI_TKILL);
        let sent =
            with_thread(user, pid, tid, |to| deliver_to(&to.process, target(to), info, &current));
        if let Some(result) = sent {
            return result;
        }
    }
    remote::own_call(nr, &args)
}

/// kill, tkill and tgkill on the fast path: to the calling thread itself (or the process if `tid`
/// is `None`). Interrupts off.
pub fn kill_fast(
    user: &UserThread,
    pid: Option<u64>,
    tid: Option<u64>,
    signal: u64,
) -> Option<SysResult> {
    let signal = signal as u32;
    let is_own =
        pid.is_none_or(|pid| user.process.pid.is(pid)) && tid.is_none_or(|tid| user.tid.is(tid));
    if !is_own || signal == 0 || !stays_here(signal) {
        return None;
    }
    let (target, code) = match tid {
        Some(_) => (target(user), SI_TKILL),
        None => (Target::Process, SI_USER),
    };
    if own::note(user, target, signal) {
        return Some(Ok(0));
    }
    if POOL.lock().is_short() {
        return None;
    }
    let info = from_caller(user, signal, code);
    let (sent, _) = queue(&user.process, target, info, Some(&task::current())).ok()?;
    sent.finish(&user.process);
    Some(Ok(0))
}

/// rt_sigqueueinfo(pid, signal, info).
pub fn rt_sigqueueinfo(args: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let signal = args[1] as u32;
    let info = read_info(UserAddr::new(args[2]), signal)?;
    match process_of(user, args[0]).filter(|_| stays_here(signal)) {
        Some((process, target)) => {
            check_origin(user, args[0], &info)?;
            deliver_to(&process, target, info, &current)
        }
        None => remote::own_call(linux::__NR_rt_sigqueueinfo, &args),
    }
}

/// rt_tgsigqueueinfo(pid, tid, signal, info).
pub fn rt_tgsigqueueinfo(args: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let signal = args[2] as u32;
    let info = read_info(UserAddr::new(args[3]), signal)?;
    let pid = Pid::named(args[0]).ok_or(Errno::EINVAL)?;
    let tid = Tid::named(args[1]).ok_or(Errno::EINVAL)?;
    if stays_here(signal) {
        let sent = with_thread(user, Some(pid), tid, |to| {
            check_origin(user, args[1], &info)?;
            deliver_to(&to.process, target(to), info, &current)
        });
        if let Some(result) = sent {
            return result;
        }
    }
    remote::own_call(linux::__NR_rt_tgsigqueueinfo, &args)
}

/// Reads a `siginfo`, which is sent with `signal` as its number.
fn read_info(address: UserAddr, signal: u32) -> Result<Info, Errno> {
    let mut bytes = [0; info::SIZE];
    user::read(address, &mut bytes)?;
    let mut used = [0; info::USED];
    used.copy_from_slice(&bytes[..info::USED]);
    Ok(Info::from_bytes(&used).with_signal(signal))
}

/// Nobody but the caller itself may be sent what looks like it came from the kernel or from
/// kill(2); `id` is how the call names who gets it.
fn check_origin(user: &UserThread, id: u64, info: &Info) -> Result<(), Errno> {
    let pretends = info.code() >= SI_USER || info.code() == SI_TKILL;
    if pretends && !user.tid.is(id) { Err(Errno::EPERM) } else { Ok(()) }
}
