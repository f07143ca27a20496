// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of commands: what was asked, why it was refused, what to do about it.

use std::{fmt, io};

use crate::{code::Code, text::BAD};

/// Exit status of a command that was refused or failed.
pub const STATUS_FAILED: u8 = 1;
/// Exit status of a command that was not understood (given by the argument parser).
pub const STATUS_USAGE: u8 = 2;
/// Exit status of `crtos run` when it could not start the program for a reason of its own.
pub const STATUS_RUN_FAILED: u8 = 125;
/// Exit status of `crtos run` when the program was found but cannot be run.
pub const STATUS_NOT_RUNNABLE: u8 = 126;
/// Exit status of `crtos run` when the program was not found.
pub const STATUS_NOT_FOUND: u8 = 127;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub struct Failure {
    /// Under which name the documentation explains it.
    code: Code,
    /// What was asked, as the object of "cannot".
    asked: String,
    /// Why it was refused.
    reason: String,
    /// What the user can do, if that is more than the code's remedy.
    remedy: Option<String>,
    /// Exit status of the command.
    status: u8,
}

impl Failure {
    /// Makes a failure with exit status [`STATUS_FAILED`], and the remedy of its code.
    pub fn new(code: Code, asked: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self {
            code,
            asked: asked.into(),
            reason: reason.to_string(),
            remedy: None,
            status: STATUS_FAILED,
        }
    }

    /// Makes the failure of a call of Linux, with the remedy that its kind has.
    pub fn io(asked: impl Into<String>, error: &io::Error) -> Self {
        let (code, remedy) = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                (Code::FileMissing, "look whether the path is right")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (Code::FileDenied, "run it as root, or name a file that this user may use")
            }
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => {
                (Code::DiskFull, "free some space there, or name a file on another file system")
            }
            io::ErrorKind::OutOfMemory => (Code::OutOfMemory, "end programs that use much memory"),
            _ => (Code::System, "the end of `dmesg` may say why"),
        };
        Self::new(code, asked, plain(error)).remedy(remedy)
    }

    /// Sets another code.
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Returns under which name the documentation explains it.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Says what the user can do in this case.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the exit status.
    pub fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Returns why it was refused, and what the user can do.
    pub fn explained(self) -> (String, String) {
        let remedy = self.remedy.unwrap_or_else(|| self.code.remedy());
        (self.reason, remedy)
    }

    /// Returns what was asked and why it was refused, on one line.
    pub fn sentence(&self) -> String {
        format!("cannot {}: {}", self.asked, self.reason)
    }

    /// Tells it on standard error. Returns the exit status of the command.
    pub fn tell(&self) -> u8 {
        anstream::eprintln!("{BAD}crtos:{BAD:#} {self}");
        self.status
    }

    /// Returns the exit status of the command.
    pub fn exit_status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())?;
        write!(f, "\n  remedy: {}", self.remedy.clone().unwrap_or_else(|| self.code.remedy()))?;
        write!(f, "\n  more: crtos explain {}", self.code.name())
    }
}

/// Result of everything that can be refused.
pub type Result<T> = std::result::Result<T, Failure>;

/// Says what was asked when something underneath fails.
pub trait Asked<T> {
    /// Turns the error into a [`Failure`] of `asked`.
    fn asked(self, asked: impl Into<String>) -> Result<T>;
}

impl<T> Asked<T> for io::Result<T> {
    fn asked(self, asked: impl Into<String>) -> Result<T> {
        self.map_err(|error| Failure::io(asked, &error))
    }
}

/// Returns the error's words without "(os error N)".
pub fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_why_and_what_to_do() {
        let failure =
            Failure::new(Code::CpuAbsent, "take CPU 9", "no such CPU").remedy("choose among 1-3");
        assert_eq!(
            failure.to_string(),
            "cannot take CPU 9: no such CPU\n  remedy: choose among 1-3\n  more: crtos explain cpu-absent"
        );
        assert_eq!(failure.exit_status(), STATUS_FAILED);
    }

    #[test]
    fn errors_of_the_system_come_with_a_remedy_and_without_their_number() {
        let failed = |number: i32| {
            let error = io::Error::from_raw_os_error(number);
            Err::<(), _>(error).asked("open x").unwrap_err().to_string()
        };
        assert_eq!(
            failed(2),
            "cannot open x: No such file or directory\n  remedy: look whether the path is right\n  \
             more: crtos explain file-missing"
        );
        assert!(failed(28).ends_with("disk-full") && failed(30).ends_with("file-denied"));
        for number in 1..134 {
            let said = failed(number);
            assert!(said.contains("\n  remedy: ") && !said.contains("os error"), "{said}");
        }
    }
}
