// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error numbers of Linux. Functions of the shadow return them apart from results; they become one
//! number where a reply is written.

use crtos_abi::channel::RESULT_IN_LINUX;
use linux_raw_sys::errno;

/// An error number of Linux, or one of the codes in a reply that programs never see
/// ([`RESULT_IN_LINUX`], [`crtos_abi::channel::RESULT_NOT_MADE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: Self = Self(errno::$name as u16);
    )* };
}

impl Errno {
    errnos!(
        E2BIG,
        EACCES,
        EAGAIN,
        EBADF,
        EBUSY,
        EEXIST,
        EFAULT,
        EINTR,
        EINVAL,
        EIO,
        ENAMETOOLONG,
        ENODEV,
        ENOENT,
        ENOMEM,
        ENOSPC,
        ENOSYS,
        ENOTTY,
        ENXIO,
        EPERM,
        ESRCH,
        ETIMEDOUT,
    );
    /// The program would go on in Linux ([`RESULT_IN_LINUX`]).
    pub const IN_LINUX: Self = Self(-RESULT_IN_LINUX as u16);

    /// Returns the error that [`Self::number`] stands for.
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number, which is positive.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns words for the reader of a message.
    pub fn words(self) -> &'static str {
        match self {
            Self::EPERM | Self::EACCES => "no permission",
            Self::ENOMEM => "out of memory",
            Self::EBADF | Self::ENOTTY => "not the device of crtos",
            Self::ENODEV | Self::ESRCH | Self::ENXIO => "there is no real-time realm",
            Self::EAGAIN | Self::EBUSY | Self::ENOSPC => "no thread is free",
            Self::EINVAL => "invalid argument",
            Self::EEXIST => "already done",
            _ => "unexpected error",
        }
    }
}

/// Splits what a system call left in RAX into its result and its error.
#[inline(always)]
pub fn split(result: i64) -> Result<u64, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno(result.unsigned_abs() as u16))
    } else {
        Ok(result as u64)
    }
}

/// Returns what a system call with this result leaves in RAX: the inverse of [`split`].
#[inline(always)]
pub fn to_number(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(error) => -i64::from(error.0),
    }
}
