// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of commands: what was asked, why it was refused, what to do about it.

use std::{fmt, io};

use crate::text::BAD;

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
    /// What was asked, as the object of "cannot".
    asked: String,
    /// Why it was refused.
    reason: String,
    /// What the user can do.
    remedy: Option<String>,
    /// Exit status of the command.
    status: u8,
}

impl Failure {
    /// Makes a failure with exit status [`STATUS_FAILED`] and no remedy yet.
    pub fn new(asked: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self {
            asked: asked.into(),
            reason: reason.to_string(),
            remedy: None,
            status: STATUS_FAILED,
        }
    }

    /// Adds what the user can do.
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
    pub fn explained(self) -> (String, Option<String>) {
        (self.reason, self.remedy)
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
        write!(f, "cannot {}: {}", self.asked, self.reason)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  remedy: {remedy}")?;
        }
        Ok(())
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
        self.map_err(|error| Failure::new(asked, plain(&error)))
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
        let failure = Failure::new("take CPU 9", "no such CPU").remedy("choose among 1-3");
        assert_eq!(
            failure.to_string(),
            "cannot take CPU 9: no such CPU\n  remedy: choose among 1-3"
        );
        assert_eq!(failure.exit_status(), STATUS_FAILED);
    }

    #[test]
    fn errors_of_the_system_come_without_their_number() {
        let failure = Err::<(), _>(io::Error::from_raw_os_error(2)).asked("open x").unwrap_err();
        assert_eq!(failure.to_string(), "cannot open x: No such file or directory");
    }
}
