// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that the real-time kernel serves, alone or with Linux.

/// A call with code of its own in the real-time kernel. The kernel's dispatcher matches on this
/// type without a wildcard, so it does not compile when the code for a call is missing.
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
    /// `execveat`
    Execveat,
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
    /// `getrlimit`
    Getrlimit,
    /// `setrlimit`
    Setrlimit,
    /// `prlimit64`
    Prlimit64,
    /// `setitimer`
    Setitimer,
    /// `alarm`
    Alarm,
    /// `wait4`
    Wait4,
    /// `waitid`
    Waitid,
    /// `kill`
    Kill,
    /// `getpid`
    Getpid,
    /// `getuid`
    Getuid,
    /// `getgid`
    Getgid,
    /// `geteuid`
    Geteuid,
    /// `getegid`
    Getegid,
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
    /// `rt_sigpending`
    RtSigpending,
    /// `rt_sigtimedwait`
    RtSigtimedwait,
    /// `rt_sigqueueinfo`
    RtSigqueueinfo,
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
    /// `personality`
    Personality,
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
    /// `tkill`
    Tkill,
    /// `futex`
    Futex,
    /// `futex_waitv`
    FutexWaitv,
    /// `sched_setaffinity`
    SchedSetaffinity,
    /// `sched_getaffinity`
    SchedGetaffinity,
    /// `clone3`
    Clone3,
    /// `set_tid_address`
    SetTidAddress,
    /// `restart_syscall`
    RestartSyscall,
    /// `clock_gettime`
    ClockGettime,
    /// `timer_create`
    TimerCreate,
    /// `timer_settime`
    TimerSettime,
    /// `timer_gettime`
    TimerGettime,
    /// `timer_getoverrun`
    TimerGetoverrun,
    /// `timer_delete`
    TimerDelete,
    /// `tgkill`
    Tgkill,
    /// `rt_tgsigqueueinfo`
    RtTgsigqueueinfo,
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
    /// `sched_getattr`
    SchedGetattr,
    /// `setpriority`
    Setpriority,
    /// `mlock2`
    Mlock2,
    /// `membarrier`
    Membarrier,
    /// `pkey_mprotect`
    PkeyMprotect,
    /// `read`
    Read,
    /// `write`
    Write,
    /// `readv`
    Readv,
    /// `writev`
    Writev,
    /// `pread64`
    Pread,
    /// `pwrite64`
    Pwrite,
    /// `preadv`
    Preadv,
    /// `pwritev`
    Pwritev,
    /// `preadv2`
    Preadv2,
    /// `pwritev2`
    Pwritev2,
    /// `splice`
    Splice,
    /// `tee`
    Tee,
    /// `vmsplice`
    Vmsplice,
    /// `sendfile`
    Sendfile,
    /// `lseek`
    Lseek,
    /// `fcntl`
    Fcntl,
    /// `ioctl`
    Ioctl,
    /// `flock`
    Flock,
    /// `dup`
    Dup,
    /// `dup2`
    Dup2,
    /// `dup3`
    Dup3,
    /// `ftruncate`
    Ftruncate,
    /// `fallocate`
    Fallocate,
    /// `close`
    Close,
    /// `close_range`
    CloseRange,
    /// `open`
    Open,
    /// `openat`
    Openat,
    /// `creat`
    Creat,
    /// `fstat`
    Fstat,
    /// `fstatfs`
    Fstatfs,
    /// `readlink`
    Readlink,
    /// `readlinkat`
    Readlinkat,
    /// `newfstatat`
    Newfstatat,
    /// `statx`
    Statx,
    /// `pipe`
    Pipe,
    /// `pipe2`
    Pipe2,
    /// `eventfd`
    Eventfd,
    /// `eventfd2`
    Eventfd2,
    /// `signalfd`
    Signalfd,
    /// `signalfd4`
    Signalfd4,
    /// `timerfd_create`
    TimerfdCreate,
    /// `timerfd_settime`
    TimerfdSettime,
    /// `timerfd_gettime`
    TimerfdGettime,
    /// `socketpair`
    Socketpair,
    /// `recvmsg`, `recvmmsg`
    Receive,
    /// `chroot`, `pivot_root`, `mount`, `umount2`, `move_mount`
    Rearrange,
    /// `poll`
    Poll,
    /// `ppoll`
    Ppoll,
    /// `select`
    Select,
    /// `pselect6`
    Pselect6,
    /// `epoll_pwait`, `epoll_pwait2`
    EpollPwait,
    /// `bind`
    Bind,
    /// `listen`
    Listen,
    /// `accept`, `accept4`
    Accept,
    /// `connect`
    Connect,
    /// `sendto`
    Sendto,
    /// `recvfrom`
    Recvfrom,
    /// `shutdown`
    Shutdown,
    /// `getsockname`
    Getsockname,
    /// `getpeername`
    Getpeername,
    /// `setsockopt`
    Setsockopt,
    /// `getsockopt`
    Getsockopt,
    /// `sendmsg`
    Sendmsg,
    /// `sendmmsg`
    Sendmmsg,
    /// `shmat`
    Shmat,
    /// `shmdt`
    Shmdt,
    /// `mbind`
    Mbind,
    /// `get_mempolicy`
    GetMempolicy,
    /// `epoll_ctl`
    EpollCtl,
    /// `epoll_wait`
    EpollWait,
    /// `process_vm_readv`
    ProcessVmReadv,
    /// `process_vm_writev`
    ProcessVmWritev,
    /// `kcmp`
    Kcmp,
    /// `io_setup`
    IoSetup,
    /// `io_destroy`
    IoDestroy,
    /// `io_submit`
    IoSubmit,
    /// `io_cancel`
    IoCancel,
    /// `io_getevents`
    IoGetevents,
    /// `io_pgetevents`
    IoPgetevents,
    /// `epoll_create`, `epoll_create1`
    EpollCreate,
}
