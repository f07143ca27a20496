// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling policies and affinity.
//!
//! A change of policy is asked of Linux first, for the shadow thread: so Linux's rule decides (CAP_SYS_NICE, RLIMIT_RTPRIO), and what
//! the thread asks of Linux is served there with its own priority.

use core::{ops::RangeInclusive, sync::atomic::Ordering};

use crtos_sched::Level;
use linux_raw_sys::general as linux;

use super::{Args, Errno, SysResult};
use crate::{
    mm::layout,
    task::{self, Policy, Scheduling},
    user,
};

const RESET_ON_FORK: u32 = linux::SCHED_RESET_ON_FORK;

/// What policy and priority of Linux mean here.
fn scheduling(policy: u32, priority: u32) -> Result<Scheduling, Errno> {
    let policy = match policy & !RESET_ON_FORK {
        linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE if priority == 0 => {
            return Ok(Scheduling::ORDINARY);
        }
        linux::SCHED_FIFO => Policy::Fifo,
        linux::SCHED_RR => Policy::RoundRobin,
        _ => return Err(Errno::EINVAL),
    };
    match Level::new(priority) {
        Some(level) if level != Level::ORDINARY => Ok(Scheduling { policy, level }),
        _ => Err(Errno::EINVAL),
    }
}

/// sched_yield().
pub fn sched_yield() -> SysResult {
    task::yield_now();
    Ok(0)
}

/// Whether `pid` is the calling thread. The others are Linux's business.
fn is_self(pid: u64) -> Result<bool, Errno> {
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(task::current().data.user().is_some_and(|user| user.is(pid)))
}

/// Policy number of the calling thread as it was set.
fn policy() -> u32 {
    task::current().data.user().map_or(0, |user| user.policy.load(Ordering::Relaxed))
}

/// Gives the calling thread the policy that its shadow has, if there is one like it here.
pub fn inherit(policy: u32, priority: u32) {
    let current = task::current();
    if let (Ok(scheduling), Some(user)) = (scheduling(policy, priority), current.data.user()) {
        user.policy.store(policy, Ordering::Relaxed);
        current.set_scheduling(scheduling);
    }
}

/// Has Linux permit call `nr`, then sets policy and priority of the calling thread.
fn set(nr: u32, args: &[u64], policy: u32, priority: u32) -> SysResult {
    let scheduling = scheduling(policy, priority)?;
    super::linux(nr, args)?;
    let current = task::current();
    if let Some(user) = current.data.user() {
        user.policy.store(policy, Ordering::Relaxed);
    }
    current.set_scheduling(scheduling);
    Ok(0)
}

/// sched_setscheduler(pid, policy, parameters).
pub fn setscheduler([pid, policy, parameters, ..]: Args) -> SysResult {
    let args = [pid, policy, parameters];
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_setscheduler, &args);
    }
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    set(linux::__NR_sched_setscheduler, &args, policy as u32, user::read_u32(parameters)?)
}

/// sched_getscheduler(pid).
pub fn getscheduler([pid, ..]: Args) -> SysResult {
    if is_self(pid)? {
        Ok(policy().into())
    } else {
        super::linux(linux::__NR_sched_getscheduler, &[pid])
    }
}

/// sched_setparam(pid, parameters).
pub fn setparam([pid, parameters, ..]: Args) -> SysResult {
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_setparam, &[pid, parameters]);
    }
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    set(linux::__NR_sched_setparam, &[pid, parameters], policy(), user::read_u32(parameters)?)
}

/// sched_getparam(pid, parameters).
pub fn getparam([pid, parameters, ..]: Args) -> SysResult {
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_getparam, &[pid, parameters]);
    }
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    user::write_u32(parameters, task::current().scheduling().level.get())?;
    Ok(0)
}

/// sched_setattr(pid, attributes, flags).
pub fn setattr([pid, attributes, flags, ..]: Args) -> SysResult {
    let args = [pid, attributes, flags];
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_setattr, &args);
    }
    /// In `sched_flags`: children start with SCHED_OTHER.
    const FLAG_RESET_ON_FORK: u64 = 1;
    if attributes == 0 {
        return Err(Errno::EINVAL);
    }
    // Size and policy, flags, nice value and priority.
    let [first, attribute_flags, last] = user::read_words(attributes)?;
    let reset = if attribute_flags & FLAG_RESET_ON_FORK != 0 { RESET_ON_FORK } else { 0 };
    set(linux::__NR_sched_setattr, &args, (first >> 32) as u32 | reset, (last >> 32) as u32)
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
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_rr_get_interval, &[pid, interval]);
    }
    let nanoseconds = match task::current().scheduling().policy {
        Policy::Fifo => 0,
        Policy::RoundRobin | Policy::Ordinary => task::SLICE.0,
    };
    user::write_words(interval, [0, nanoseconds])?;
    Ok(0)
}

/// The realm's CPUs by Linux's numbers, bit per CPU.
fn realm_cpus() -> [u8; MASK_BYTES] {
    let info = layout::boot_info();
    let mut mask = [0; MASK_BYTES];
    for &cpu in info.linux_cpus.iter().take(info.cpu_count as usize) {
        if let Some(byte) = mask.get_mut(cpu as usize / 8) {
            *byte |= 1 << (cpu % 8);
        }
    }
    mask
}

/// Bytes for the most CPUs of a machine.
const MASK_BYTES: usize = crtos_abi::MAX_CPUS / 8;

/// sched_setaffinity(pid, length, mask).
pub fn setaffinity([pid, length, address, ..]: Args) -> SysResult {
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_setaffinity, &[pid, length, address]);
    }
    let length = (length as usize).min(MASK_BYTES);
    let mut wanted = [0; MASK_BYTES];
    user::read(address, &mut wanted[..length])?;
    // One CPU of the realm is enough; the thread does not leave the realm.
    if wanted.iter().zip(realm_cpus()).any(|(wanted, cpus)| wanted & cpus != 0) {
        Ok(0)
    } else {
        Err(Errno::EINVAL)
    }
}

/// sched_getaffinity(pid, length, mask).
pub fn getaffinity([pid, length, address, ..]: Args) -> SysResult {
    if !is_self(pid)? {
        return super::linux(linux::__NR_sched_getaffinity, &[pid, length, address]);
    }
    let cpus = realm_cpus();
    let needed =
        cpus.iter().rposition(|&byte| byte != 0).map_or(8, |last| (last + 1).next_multiple_of(8));
    let length = length as u32 as usize;
    if length < needed || !length.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    user::write(address, &cpus[..needed])?;
    Ok(needed as u64)
}

/// getcpu(cpu, node).
pub fn getcpu([cpu, node, ..]: Args) -> SysResult {
    let index = task::current().cpu() as usize;
    if cpu != 0 {
        user::write_u32(cpu, layout::boot_info().linux_cpus.get(index).copied().unwrap_or(0))?;
    }
    if node != 0 {
        user::write_u32(node, 0)?;
    }
    Ok(0)
}
