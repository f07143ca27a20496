// SPDX-License-Identifier: MIT OR Apache-2.0
//! How Linux is told which UART a serial port has (TIOCGSERIAL, TIOCSSERIAL), behind safe
//! functions.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use nix::libc;

/// Bytes of a `struct serial_struct`.
const SIZE: usize = 72;
const TIOCGSERIAL: libc::Ioctl = 0x541e;
const TIOCSSERIAL: libc::Ioctl = 0x541f;

/// What Linux knows of the UART of a serial port (`struct serial_struct`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Settings([u8; SIZE]);

impl Settings {
    /// Returns the settings with these bytes, if they are as many as there have to be.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the same without a UART: Linux lets go of its ports and its interrupt.
    pub fn without_uart(&self) -> Self {
        let mut bytes = self.0;
        bytes[..4].fill(0);
        Self(bytes)
    }
}

/// An open serial port.
pub struct SerialPort(File);

impl SerialPort {
    /// Opens the serial port at `path`, without waiting for a carrier.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        File::options().read(true).write(true).custom_flags(flags).open(path).map(Self)
    }

    /// Returns its settings.
    pub fn settings(&self) -> io::Result<Settings> {
        let mut settings = Settings([0; SIZE]);
        // SAFETY: the call stores one structure of that size, and nothing more, there.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), TIOCGSERIAL, &raw mut settings) };
        nix::errno::Errno::result(result)?;
        Ok(settings)
    }

    /// Changes its settings. EBUSY if another one has it open.
    pub fn set(&self, settings: &Settings) -> io::Result<()> {
        // SAFETY: the call reads one structure of that size there.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), TIOCSSERIAL, &raw const *settings) };
        nix::errno::Errno::result(result)?;
        Ok(())
    }
}
