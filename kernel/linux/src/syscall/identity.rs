// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids, the end of a process, thread pointers, prctl and I/O ports.

use alloc::sync::Arc;

use crtos_abi::{UserAddr, ids::Tid};
use crtos_syscalls::{Row, structs};
use linux_raw_sys::{general as linux, prctl};

use crtos_core::{devices::ports, task};

use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{End, ThreadExt as _, ids::Id, lapse, threads},
    remote,
    syscall::speculation,
};

/// getpid().
pub fn getpid() -> SysResult {
    task::current().user().map(|user| user.process.pid.get().into()).ok_or(Errno::ESRCH)
}

/// gettid().
pub fn gettid() -> SysResult {
    task::current().user().map(|user| user.tid.get().into()).ok_or(Errno::ESRCH)
}

/// getuid(), getgid(), geteuid() and getegid(): Linux is asked for what is not known.
pub fn own_id(row: &Row, which: Id) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if let Some(id) = user.ids.get(which) {
        return Ok(id.into());
    }
    let id = remote::pass(row, [0; 6])?;
    if user.process.keeps_ids() {
        user.ids.note(which, id as u32);
    }
    Ok(id)
}

/// set_tid_address(address).
pub fn set_tid_address([address, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    user.set_clear_child_tid(UserAddr::new(address));
    Ok(user.tid.get().into())
}

/// exit(status).
pub fn exit([status, ..]: Args) -> SysResult {
    let current = task::current();
    if let Some(user) = current.user() {
        user.exit(status as i32 & 0xff);
        current.set_attention();
    }
    Ok(0)
}

/// exit_group(status).
pub fn exit_group([status, ..]: Args) -> SysResult {
    if let Some(user) = task::current().user() {
        user.process.end(End::Status(status as i32 & 0xff));
    }
    Ok(0)
}

/// arch_prctl(code, address).
pub fn arch_prctl([code, address, ..]: Args) -> SysResult {
    const ARCH_SET_GS: u64 = 0x1001;
    const ARCH_SET_FS: u64 = 0x1002;
    const ARCH_GET_FS: u64 = 0x1003;
    const ARCH_GET_GS: u64 = 0x1004;
    const ARCH_GET_CPUID: u64 = 0x1011;
    const ARCH_SET_CPUID: u64 = 0x1012;
    let address = UserAddr::new(address);
    match code {
        ARCH_SET_FS | ARCH_SET_GS if address >= UserAddr::END => return Err(Errno::EPERM),
        ARCH_SET_FS => task::set_fs_base(address),
        ARCH_SET_GS => task::set_gs_base(address),
        ARCH_GET_FS => user::write_words(address, [task::segment_bases().0.get()])?,
        ARCH_GET_GS => user::write_words(address, [task::segment_bases().1.get()])?,
        // CPUID is there, and cannot be taken away: as on a processor that has no faults for it.
        ARCH_GET_CPUID => return Ok(1),
        ARCH_SET_CPUID => return Err(Errno::ENODEV),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// set_robust_list(head, length).
pub fn set_robust_list([head, length, ..]: Args) -> SysResult {
    const LENGTH: u64 = size_of::<linux::robust_list_head>() as u64;
    if length != LENGTH {
        return Err(Errno::EINVAL);
    }
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    *user.robust_list.lock() = (UserAddr::new(head), length);
    Ok(0)
}

/// get_robust_list(pid, head, length).
pub fn get_robust_list([pid, head, length, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let list = if user.is(pid) {
        *user.robust_list.lock()
    } else {
        let thread = Tid::named(pid)
            .and_then(|tid| threads::find(&user.process, tid))
            .ok_or(Errno::ESRCH)?;
        let other = thread.user().ok_or(Errno::ESRCH)?;
        if !Arc::ptr_eq(&other.process, &user.process) {
            return Err(Errno::EPERM);
        }
        *other.robust_list.lock()
    };
    let [head, length] = [head, length].map(UserAddr::new);
    user::write_words(length, [size_of::<linux::robust_list_head>() as u64])?;
    user::write_words(head, [list.0.get()])?;
    Ok(0)
}

/// prctl(option, …): what concerns the process in Linux is done there.
pub fn prctl(args: Args) -> SysResult {
    let option = args[0] as u32;
    match option {
        prctl::PR_SET_NAME => {
            let address = UserAddr::new(args[1]);
            let mut name = [0; 16];
            for (index, byte) in name.iter_mut().enumerate().take(15) {
                user::read(address.wrapping_add(index as u64), core::slice::from_mut(byte))?;
                if *byte == 0 {
                    break;
                }
            }
            let length = name.iter().position(|&byte| byte == 0).unwrap_or(15);
            if let Some(user) = task::current().user() {
                user.set_command(&name[..length]);
            }
        }
        prctl::PR_GET_NAME
        | prctl::PR_SET_PDEATHSIG
        | prctl::PR_GET_PDEATHSIG
        | prctl::PR_SET_DUMPABLE
        | prctl::PR_GET_DUMPABLE
        | prctl::PR_SET_KEEPCAPS
        | prctl::PR_GET_KEEPCAPS
        | prctl::PR_CAPBSET_READ
        | prctl::PR_CAPBSET_DROP
        | prctl::PR_SET_SECUREBITS
        | prctl::PR_GET_SECUREBITS
        | prctl::PR_SET_NO_NEW_PRIVS
        | prctl::PR_GET_NO_NEW_PRIVS
        | prctl::PR_CAP_AMBIENT
        | prctl::PR_SET_CHILD_SUBREAPER
        | prctl::PR_GET_CHILD_SUBREAPER
        | prctl::PR_SET_TIMERSLACK
        | prctl::PR_GET_TIMERSLACK
        | prctl::PR_GET_SECCOMP
        | prctl::PR_GET_TSC
        | prctl::PR_SET_THP_DISABLE
        | prctl::PR_GET_THP_DISABLE
        | prctl::PR_TASK_PERF_EVENTS_DISABLE
        | prctl::PR_TASK_PERF_EVENTS_ENABLE => {}
        // Every thread may read the counter, by which the clocks of the vDSO go.
        prctl::PR_SET_TSC if args[1] as u32 == prctl::PR_TSC_ENABLE => {}
        lapse::PR_GET_STRICT | lapse::PR_SET_STRICT => return lapse::control(option, args[1]),
        prctl::PR_GET_SPECULATION_CTRL => return speculation::get(args),
        prctl::PR_SET_SPECULATION_CTRL => return speculation::set(args),
        _ => return Err(Errno::EINVAL),
    }
    remote::own_call(linux::__NR_prctl, &args)
}

/// personality(wanted): Linux has it, and a program that is executed hears of it by its shadow.
pub fn personality(args: Args) -> SysResult {
    /// Only asks.
    const NONE: u32 = u32::MAX;
    const KNOWN: u32 = structs::ADDR_NO_RANDOMIZE | structs::UNAME26;
    let wanted = args[0] as u32;
    if wanted != NONE && wanted & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    remote::own_call(linux::__NR_personality, &args)
}

/// ioperm(first, count, allow): Linux decides by CAP_SYS_RAWIO; ports that the cell does not have
/// are refused, because touching them would stop it.
pub fn ioperm([first, count, allow, ..]: Args) -> SysResult {
    let end = first
        .checked_add(count)
        .filter(|&end| first < end && end <= 1 << 16)
        .ok_or(Errno::EINVAL)?;
    let allow = allow as u32 != 0;
    remote::linux(linux::__NR_ioperm, &[first, count, allow.into()])?;
    if allow {
        may_touch_ports()?;
    }
    let covered = |port: u64| ports::is_usable(port as u16);
    if allow && !(first..end).all(covered) {
        crtos_core::warn!(
            "ports {first:#x}..{end:#x} were asked for; the realm has only those of `crtos up --port` and of its PCI functions"
        );
        return Err(Errno::EPERM);
    }
    task::set_ports(first as u16..=(end - 1) as u16, allow).map_err(|_| Errno::ENOMEM)?;
    Ok(0)
}

/// iopl(level): level 3 opens all ports of the cell.
pub fn iopl([level, ..]: Args) -> SysResult {
    remote::linux(linux::__NR_iopl, &[level])?;
    if level as u32 == 3 {
        may_touch_ports()?;
    }
    task::set_all_ports(level as u32 == 3).map_err(|_| Errno::ENOMEM)?;
    Ok(0)
}

/// Whether Linux's kernel permits the calling thread to touch ports, whatever its shadow says.
fn may_touch_ports() -> Result<(), Errno> {
    match remote::is_capable(linux::CAP_SYS_RAWIO)? {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}
