// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that the real-time kernel serves itself.

/// A call with code of its own in the real-time kernel. The kernel's dispatcher matches on this
/// type without a wildcard, so a row without code does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `clone`
    Clone,
    /// `fork`
    Fork,
    /// `vfork`
    Vfork,
    /// `execve`
    Execve,
    /// `mmap`
    Mmap,
    /// `mprotect`
    Mprotect,
    /// `munmap`
    Munmap,
    /// `brk`
    Brk,
    /// `rt_sigaction`
    RtSigaction,
    /// `rt_sigprocmask`
    RtSigprocmask,
    /// `rt_sigreturn`
    RtSigreturn,
    /// `sched_yield`
    SchedYield,
    /// `mremap`
    Mremap,
    /// `msync`
    Msync,
    /// `mincore`
    Mincore,
    /// `madvise`
    Madvise,
    /// `pause`
    Pause,
    /// `nanosleep`
    Nanosleep,
    /// `getitimer`
    Getitimer,
    /// `setitimer`
    Setitimer,
    /// `getpid`
    Getpid,
    /// `exit`
    Exit,
    /// `gettimeofday`
    Gettimeofday,
    /// `getrusage`
    Getrusage,
    /// `times`
    Times,
    /// `rt_sigsuspend`
    RtSigsuspend,
    /// `sigaltstack`
    Sigaltstack,
    /// `sched_setparam`
    SchedSetparam,
    /// `sched_getparam`
    SchedGetparam,
    /// `sched_setscheduler`
    SchedSetscheduler,
    /// `sched_getscheduler`
    SchedGetscheduler,
    /// `sched_get_priority_max`
    SchedGetPriorityMax,
    /// `sched_get_priority_min`
    SchedGetPriorityMin,
    /// `sched_rr_get_interval`
    SchedRrGetInterval,
    /// `mlock`
    Mlock,
    /// `munlock`
    Munlock,
    /// `mlockall`
    Mlockall,
    /// `munlockall`
    Munlockall,
    /// `prctl`
    Prctl,
    /// `arch_prctl`
    ArchPrctl,
    /// `iopl`
    Iopl,
    /// `ioperm`
    Ioperm,
    /// `gettid`
    Gettid,
    /// `time`
    Time,
    /// `futex`
    Futex,
    /// `sched_setaffinity`
    SchedSetaffinity,
    /// `sched_getaffinity`
    SchedGetaffinity,
    /// `set_tid_address`
    SetTidAddress,
    /// `restart_syscall`
    RestartSyscall,
    /// `clock_gettime`
    ClockGettime,
    /// `clock_getres`
    ClockGetres,
    /// `clock_nanosleep`
    ClockNanosleep,
    /// `exit_group`
    ExitGroup,
    /// `set_robust_list`
    SetRobustList,
    /// `get_robust_list`
    GetRobustList,
    /// `getcpu`
    Getcpu,
    /// `sched_setattr`
    SchedSetattr,
    /// `mlock2`
    Mlock2,
    /// `pkey_mprotect`
    PkeyMprotect,
}
