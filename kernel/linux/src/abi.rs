// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a system call takes and gives: arguments, results, error numbers.

use crtos_core::{hazard::NoRoom, mm::space::BadAddress};

use linux_raw_sys::errno;

/// An error number of Linux, or one of the `RESTART_*` codes that never reach a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(u16);

/// What a system call returns.
pub type SysResult = Result<u64, Errno>;

macro_rules! errnos {
    ($($name:ident),*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: Self = Self(errno::$name as u16);
    )* };
}

impl Errno {
    errnos!(
        E2BIG,
        EACCES,
        EADDRINUSE,
        EADDRNOTAVAIL,
        EAFNOSUPPORT,
        EAGAIN,
        EALREADY,
        EBADF,
        EBUSY,
        ECANCELED,
        ECONNABORTED,
        ECONNREFUSED,
        ECONNRESET,
        EDEADLK,
        EDESTADDRREQ,
        EDOM,
        EEXIST,
        EFAULT,
        EFBIG,
        EHOSTDOWN,
        EHOSTUNREACH,
        EINPROGRESS,
        EINTR,
        EIO,
        EISDIR,
        EINVAL,
        EISCONN,
        ELOOP,
        EMFILE,
        EMSGSIZE,
        ENAMETOOLONG,
        ENETDOWN,
        ENETUNREACH,
        ENOBUFS,
        ENODEV,
        ENOLCK,
        ENOPROTOOPT,
        ENOTCONN,
        ENXIO,
        ENOENT,
        ENOMEM,
        ENONET,
        ENOSPC,
        ENOSYS,
        ENOTDIR,
        ENOTSOCK,
        ENOTTY,
        EOPNOTSUPP,
        EOVERFLOW,
        EPERM,
        EPIPE,
        EPROTO,
        ERANGE,
        EREMOTE,
        ESPIPE,
        ESRCH,
        ETIMEDOUT
    );
    /// Make the call again, unless a handler without `SA_RESTART` runs: then `EINTR`. Linux's
    /// ERESTARTSYS.
    pub const RESTART: Self = Self(512);
    /// Make the call again, unless a handler runs: then `EINTR`. Linux's ERESTARTNOHAND.
    pub const RESTART_NO_HANDLER: Self = Self(514);
    /// Go on with the call by restart_syscall(2), unless a handler runs: then `EINTR`. Linux's
    /// ERESTART_RESTARTBLOCK.
    pub const RESTART_BLOCK: Self = Self(516);
    /// Make the call again, whatever handler runs. Linux's ERESTARTNOINTR.
    pub const RESTART_ALWAYS: Self = Self(513);
    /// The shadow is gone: the process ends before the program could see this.
    pub const GONE: Self = Self(511);

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// As a system call returns it.
    pub const fn value(self) -> u64 {
        (-(self.0 as i64)) as u64
    }

    const RESTARTS: [Self; 4] =
        [Self::RESTART, Self::RESTART_NO_HANDLER, Self::RESTART_BLOCK, Self::RESTART_ALWAYS];

    /// The restart code in a result, if it is one.
    pub fn restart(result: u64) -> Option<Self> {
        Self::RESTARTS.into_iter().find(|code| code.value() == result)
    }

    /// Whether a signal has ended the call.
    pub fn is_interruption(self) -> bool {
        self == Self::EINTR || Self::RESTARTS.contains(&self)
    }
}

impl From<BadAddress> for Errno {
    fn from(_: BadAddress) -> Self {
        Self::EFAULT
    }
}

impl From<NoRoom> for Errno {
    fn from(error: NoRoom) -> Self {
        match error {
            NoRoom::Number => Self::EMFILE,
            NoRoom::Memory => Self::ENOMEM,
        }
    }
}

/// Splits a result of Linux.
pub fn linux_result(result: i64) -> SysResult {
    if (-4095..0).contains(&result) {
        Err(Errno(result.unsigned_abs() as u16))
    } else {
        Ok(result as u64)
    }
}

/// Arguments of a call.
pub type Args = [u64; 6];
