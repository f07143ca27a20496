// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling policies and affinity of the threads of the realm; those of others are Linux's
//! business.
//!
//! A change of policy is asked of Linux, for the shadow thread: so Linux's rule decides
//! (CAP_SYS_NICE, RLIMIT_RTPRIO), and what the thread asks of Linux is served there with its own
//! priority. A thread of the superuser that raises itself does not wait for the answer, which is
//! certain; every other change is made when Linux has agreed. A reservation (SCHED_DEADLINE) is
//! kept here alone; the shadow of such a thread has the highest priority of SCHED_FIFO.

use crtos_abi::UserAddr;

use crtos_core::task::{self, MutexGuard, Policy, Scheduling, Thread};

use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    memory::user,
    process::{
        ThreadExt as _, UserThread, lapse,
        rights::{self, Deed},
        scheduling::{prepare, scheduling},
        spares, threads,
        user_limits::UserLimits,
    },
    remote,
    syscall::cpu_numbers::{self, MASK_BYTES},
};

use alloc::sync::Arc;
use core::ops::RangeInclusive;

use crtos_abi::ids::Tid;
use crtos_channel::{Operation, operation};
use crtos_sched::{Level, deadline::Reservation};
use crtos_syscalls::sched::{self as attributes, Attributes};
use linux_raw_sys::general as linux;

/// In policy numbers: children start with SCHED_OTHER.
const RESET_ON_FORK: u32 = linux::SCHED_RESET_ON_FORK;

/// The same as Linux's attributes.
fn attributes_of(scheduling: &Scheduling) -> Attributes {
    let flag = |on: bool, flag: u64| if on { flag } else { 0 };
    let reserves = scheduling.policy == Policy::Deadline;
    let Reservation { runtime, deadline, period } = scheduling.reservation;
    Attributes {
        policy: number(scheduling.policy),
        flags: flag(scheduling.reset_on_fork, attributes::RESET_ON_FORK)
            | flag(reserves && scheduling.reclaims, attributes::RECLAIM)
            | flag(reserves && scheduling.tells_overrun, attributes::DL_OVERRUN),
        nice: match scheduling.policy {
            Policy::Ordinary | Policy::Batch | Policy::Idle => scheduling.nice.into(),
            _ => 0,
        },
        priority: priority(scheduling),
        runtime: runtime.0,
        deadline: deadline.0,
        period: period.0,
    }
}

/// Linux's number of a policy.
fn number(policy: Policy) -> u32 {
    match policy {
        Policy::Ordinary => attributes::OTHER,
        Policy::Batch => attributes::BATCH,
        Policy::Idle => attributes::IDLE,
        Policy::Fifo => attributes::FIFO,
        Policy::RoundRobin => attributes::RR,
        Policy::Deadline => attributes::DEADLINE,
    }
}

/// POSIX priority, 0 for threads that have none.
fn priority(scheduling: &Scheduling) -> u32 {
    match scheduling.policy {
        Policy::Fifo | Policy::RoundRobin => scheduling.level.get(),
        _ => 0,
    }
}

/// Policy number with the flag of sched_getscheduler(2).
fn policy_word(scheduling: &Scheduling) -> u32 {
    number(scheduling.policy) | if scheduling.reset_on_fork { RESET_ON_FORK } else { 0 }
}

/// Whom a call is about.
struct Target {
    /// Its id.
    tid: Tid,
    /// It, if it lives in the realm.
    thread: Option<Arc<Thread>>,
}

/// The thread that `pid` names: 0 for the caller.
fn target(pid: u64) -> Result<Target, Errno> {
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let tid = Tid::named(pid).unwrap_or(user.tid);
    let thread =
        if tid == user.tid { Some(current.arc()) } else { threads::find(&user.process, tid) };
    if thread.as_ref().is_some_and(|thread| !is_own(thread)) {
        // Who is dead for Linux is so for programs, though it may not have left yet.
        remote::linux(linux::__NR_sched_getscheduler, &[tid.get().into()])?;
    }
    Ok(Target { tid, thread })
}

/// sched_yield().
pub fn sched_yield() -> SysResult {
    task::yield_now();
    Ok(0)
}

/// Keeps others of the calling thread's process from changing `thread`, if it belongs to that: of
/// two that change one thread, each would else find in Linux what the other has set. Another
/// process is not waited for, since it may be stopped while Linux works for it.
fn alone(thread: &Thread) -> Option<MutexGuard<'_, ()>> {
    let user = thread.user().filter(|_| is_own(thread))?;
    Some(user.rescheduling.lock())
}

/// Fails if the thread belongs to another process of the realm, and the caller may not schedule it.
fn check_rights(target: &Target) -> Result<(), Errno> {
    let user = target.thread.as_deref().and_then(|thread| thread.user());
    user.map_or(Ok(()), |user| rights::check(user, Deed::Schedule))
}

/// Has Linux permit `wanted` for the shadow of `target`, then gives it to `target`.
fn set(target: &Target, wanted: Scheduling) -> SysResult {
    check_rights(target)?;
    let alone = target.thread.as_deref().and_then(alone);
    if wanted.policy == Policy::Deadline
        && let Some(thread) = &target.thread
        && !task::online().and(thread.affinity()).eq(&task::online())
    {
        return Err(Errno::EPERM);
    }
    let is_raise = target.thread.as_ref().is_some_and(|to| wanted.level > to.scheduling().level);
    if is_raise && of_caller().is_some_and(|limits| !limits.permits(wanted.level)) {
        return Err(Errno::EPERM);
    }
    let (policy, priority) = match wanted.policy {
        Policy::Deadline => (attributes::FIFO, Level::MAX.get()),
        policy => (number(policy), priority(&wanted)),
    };
    let scheduling = operation::Scheduling {
        policy: policy as u8,
        priority: priority as u8,
        nice: wanted.nice,
        reset_on_fork: wanted.reset_on_fork,
    };
    let tid = Some(target.tid);
    let ask = || {
        let set = Operation::SetScheduling { tid, scheduling };
        let result = linux_result(remote::request(set)?)?;
        if target.thread.is_none() {
            return Ok(result);
        }
        // The shadow says that Linux has agreed; Linux's kernel tells whether it has.
        let found = linux_result(remote::request(Operation::Scheduling { tid })?)?;
        let found = operation::Scheduling::from_word(found);
        let same = (found.policy, found.priority) == (scheduling.policy, scheduling.priority);
        // With other policies a thread keeps the nice value that it had.
        let has_nice = matches!(wanted.policy, Policy::Ordinary | Policy::Batch);
        let same_nice = !has_nice || found.nice == scheduling.nice;
        if same && same_nice { Ok(result) } else { Err(Errno::EPERM) }
    };
    let Some(thread) = &target.thread else { return ask().and(Ok(0)) };
    // Linux has threads inherit this of the shadow thread.
    let permitted = || match (thread.user(), task::current().user()) {
        (Some(user), Some(own)) if user.tid == own.tid => {
            let result = ask();
            spares::renew_own(own);
            result
        }
        (other, _) => spares::changing_other(other, ask),
    };
    let before = thread.scheduling();
    if is_own(thread) && wanted.level > before.level && wanted.level < Level::DEADLINE && is_root()
    {
        // Linux will agree. Who runs until it has, the thread outranks, and goes on when the answer
        // comes.
        thread.set_scheduling(wanted);
        permitted().inspect_err(|_| thread.set_scheduling(before))?;
    } else {
        permitted()?;
        thread.try_set_scheduling(wanted).map_err(|task::Overload| Errno::EBUSY)?;
    }
    drop(alone);
    prepare(thread);
    if before.level <= Level::ORDINARY && thread.id == task::current().id {
        lapse::forgive();
    }
    Ok(0)
}

/// What the programs of the user may have whose process calls.
fn of_caller() -> Option<&'static UserLimits> {
    task::current().user().and_then(|user| user.process.limits)
}

/// Whether the calling process is the superuser's, and always was.
fn is_root() -> bool {
    let current = task::current();
    current.user().and_then(|user| user.process.certain_uid()) == Some(0)
}

/// What `policy` and `parameters` of the old calls mean for a thread that has `now`.
fn old_attributes(policy: u32, priority: u32, now: &Scheduling) -> Attributes {
    let flags = if policy & RESET_ON_FORK != 0 { attributes::RESET_ON_FORK } else { 0 };
    let policy = policy & !RESET_ON_FORK;
    Attributes { policy, flags, nice: now.nice.into(), priority, ..Attributes::default() }
}

/// sched_setscheduler(pid, policy, parameters).
pub fn setscheduler([pid, policy, parameters, ..]: Args) -> SysResult {
    if (policy as i32) < 0 || parameters == 0 || (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = user::read_u32(UserAddr::new(parameters))?;
    let target = target(pid)?;
    let Some(thread) = &target.thread else {
        return remote::own_call(linux::__NR_sched_setscheduler, &[pid, policy, parameters]);
    };
    set(&target, scheduling(&old_attributes(policy as u32, priority, &thread.scheduling()))?)
}

/// sched_getscheduler(pid).
pub fn getscheduler([pid, ..]: Args) -> SysResult {
    match target(pid)?.thread {
        Some(thread) => Ok(policy_word(&thread.scheduling()).into()),
        None => remote::own_call(linux::__NR_sched_getscheduler, &[pid]),
    }
}

/// sched_setparam(pid, parameters).
pub fn setparam([pid, parameters, ..]: Args) -> SysResult {
    if parameters == 0 || (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = user::read_u32(UserAddr::new(parameters))?;
    let target = target(pid)?;
    let Some(thread) = &target.thread else {
        return remote::own_call(linux::__NR_sched_setparam, &[pid, parameters]);
    };
    let now = thread.scheduling();
    set(&target, scheduling(&old_attributes(policy_word(&now), priority, &now))?)
}

/// sched_getparam(pid, parameters).
pub fn getparam([pid, parameters, ..]: Args) -> SysResult {
    if parameters == 0 || (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    match target(pid)?.thread {
        Some(thread) => {
            user::write_u32(UserAddr::new(parameters), priority(&thread.scheduling()))?;
            Ok(0)
        }
        None => remote::own_call(linux::__NR_sched_getparam, &[pid, parameters]),
    }
}

/// Reads a `struct sched_attr`.
fn read_attributes(address: UserAddr) -> Result<Attributes, Errno> {
    let size = match user::read_u32(address)? as usize {
        0 => attributes::FIRST_SIZE,
        size => size,
    };
    let too_big = || {
        user::write_u32(address, attributes::SIZE as u32)?;
        Err(Errno::E2BIG)
    };
    if !(attributes::FIRST_SIZE..=crtos_abi::PAGE_SIZE as usize).contains(&size) {
        return too_big();
    }
    let mut bytes = [0; attributes::SIZE];
    let known = size.min(attributes::SIZE);
    // What this kernel does not know has to be zero.
    let mut at = known;
    while at < size {
        let mut more = [0; 64];
        let step = more.len().min(size - at);
        user::read(address + at as u64, &mut more[..step])?;
        if more.iter().any(|&byte| byte != 0) {
            return too_big();
        }
        at += step;
    }
    user::read(address, &mut bytes[..known])?;
    let found = Attributes::from_bytes(&bytes);
    if found.flags & attributes::UTIL_CLAMP != 0 && size < attributes::SIZE {
        return Err(Errno::EINVAL);
    }
    Ok(found)
}

/// sched_setattr(pid, attributes, flags).
pub fn setattr([pid, address, flags, ..]: Args) -> SysResult {
    if address == 0 || (pid as i32) < 0 || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let mut wanted = read_attributes(UserAddr::new(address))?;
    if (wanted.policy as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let target = target(pid)?;
    let Some(thread) = &target.thread else {
        return remote::own_call(linux::__NR_sched_setattr, &[pid, address, flags]);
    };
    let now = attributes_of(&thread.scheduling());
    if wanted.flags & attributes::KEEP_PARAMS != 0 {
        let Attributes { nice, priority, runtime, deadline, period, .. } = now;
        let kept = wanted.flags & !(attributes::RECLAIM | attributes::DL_OVERRUN);
        let flags = kept | now.flags & (attributes::RECLAIM | attributes::DL_OVERRUN);
        wanted = Attributes { flags, nice, priority, runtime, deadline, period, ..wanted };
    }
    if wanted.flags & attributes::KEEP_POLICY != 0 {
        wanted.policy = now.policy;
        if thread.scheduling().reset_on_fork {
            wanted.flags |= attributes::RESET_ON_FORK;
        }
    }
    let scheduling = scheduling(&wanted)?;
    if wanted.flags & attributes::UTIL_CLAMP != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    set(&target, scheduling)
}

/// sched_getattr(pid, attributes, size, flags).
pub fn getattr([pid, address, size, flags, ..]: Args) -> SysResult {
    let size = size as u32 as usize;
    let sizes = attributes::FIRST_SIZE..=crtos_abi::PAGE_SIZE as usize;
    if address == 0 || (pid as i32) < 0 || !sizes.contains(&size) || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(thread) = target(pid)?.thread else {
        return remote::own_call(linux::__NR_sched_getattr, &[pid, address, size as u64, flags]);
    };
    let size = size.min(attributes::SIZE);
    let bytes = attributes_of(&thread.scheduling()).to_bytes(size as u32);
    user::write(UserAddr::new(address), &bytes[..size])?;
    Ok(0)
}

/// setpriority(which, who, value): Linux decides; what it set of a thread of the realm is taken
/// over.
pub fn setpriority([which, who, value, ..]: Args) -> SysResult {
    let ask = || remote::own_call(linux::__NR_setpriority, &[which, who, value]);
    if which as u32 != linux::PRIO_PROCESS {
        return ask();
    }
    let Ok(Target { tid, thread: Some(thread) }) = target(who) else { return ask() };
    let _alone = alone(&thread);
    ask()?;
    // Linux's kernel tells the value, not the shadow.
    let found = linux_result(remote::request(Operation::Scheduling { tid: Some(tid) })?)?;
    let operation::Scheduling { nice, .. } = operation::Scheduling::from_word(found);
    let now = thread.scheduling();
    if now.policy != Policy::Deadline {
        thread.set_scheduling(Scheduling { nice, ..now });
    }
    Ok(0)
}

/// sched_get_priority_min(policy) and sched_get_priority_max(policy).
pub fn priority_range([policy, ..]: Args) -> Result<RangeInclusive<u64>, Errno> {
    match policy as u32 {
        linux::SCHED_FIFO | linux::SCHED_RR => Ok(1..=99),
        linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE | linux::SCHED_DEADLINE => {
            Ok(0..=0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// sched_rr_get_interval(pid, interval).
pub fn rr_get_interval([pid, interval, ..]: Args) -> SysResult {
    let Some(thread) = target(pid)?.thread else {
        return remote::own_call(linux::__NR_sched_rr_get_interval, &[pid, interval]);
    };
    user::write_words(UserAddr::new(interval), [0, thread.scheduling().slice().0])?;
    Ok(0)
}

/// Whether the calling thread and `thread` belong to one process.
fn is_own(thread: &Thread) -> bool {
    let process = |user: &UserThread| Arc::as_ptr(&user.process);
    task::current().user().map(process) == thread.user().map(process)
}

/// sched_setaffinity(pid, length, mask).
pub fn setaffinity([pid, length, address, ..]: Args) -> SysResult {
    let length = (length as u32 as usize).min(MASK_BYTES);
    let mut wanted = [0; MASK_BYTES];
    user::read(UserAddr::new(address), &mut wanted[..length])?;
    if (pid as i32) < 0 {
        return Err(Errno::ESRCH);
    }
    let target = target(pid)?;
    let linux_too =
        || remote::own_call(linux::__NR_sched_setaffinity, &[pid, length as u64, address]);
    let Some(thread) = &target.thread else { return linux_too() };
    check_rights(&target)?;
    // Linux tells who may; that it has none of these CPUs does not matter.
    if !is_own(thread)
        && let Err(error @ (Errno::EPERM | Errno::ESRCH | Errno::GONE)) = linux_too()
    {
        return Err(error);
    }
    // One CPU of the realm is enough; the thread does not leave the realm.
    let cpus = cpu_numbers::from_mask(cpu_numbers::of_caller(), &wanted);
    let cpus = of_caller().map_or(cpus, |limits| limits.cpus_of(cpus));
    if cpus.is_empty() {
        return Err(Errno::EINVAL);
    }
    if thread.scheduling().policy == Policy::Deadline && cpus != task::online() {
        return Err(Errno::EBUSY);
    }
    thread.set_affinity(cpus);
    Ok(0)
}

/// sched_getaffinity(pid, length, mask).
pub fn getaffinity([pid, length, address, ..]: Args) -> SysResult {
    let size = length as u32 as usize;
    let numbers = cpu_numbers::of_caller();
    // As many whole words as the machine's CPUs take.
    let all = cpu_numbers::to_mask(numbers, task::online());
    let needed =
        all.iter().rposition(|&byte| byte != 0).map_or(8, |last| (last + 1).next_multiple_of(8));
    if size < needed || !size.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    if (pid as i32) < 0 {
        return Err(Errno::ESRCH);
    }
    let Some(thread) = target(pid)?.thread else {
        return remote::own_call(linux::__NR_sched_getaffinity, &[pid, length, address]);
    };
    let cpus = cpu_numbers::to_mask(numbers, thread.affinity().and(task::online()));
    user::write(UserAddr::new(address), &cpus[..needed])?;
    Ok(needed as u64)
}

/// getcpu(cpu, node).
pub fn getcpu([cpu, node, ..]: Args) -> SysResult {
    let [cpu, node] = [cpu, node].map(UserAddr::new);
    if !cpu.is_null() {
        user::write_u32(cpu, cpu_numbers::of_caller().number(task::current().cpu()).0)?;
    }
    if !node.is_null() {
        user::write_u32(node, 0)?;
    }
    Ok(0)
}
