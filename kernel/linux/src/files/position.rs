// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an opening of a file reads and writes next.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use crate::abi::{Errno, SysResult};

/// A position in bytes.
#[derive(Default)]
pub struct Position(AtomicU64);

impl Position {
    /// Has `transfer` work there, and moves on by what that has moved.
    pub fn here(&self, transfer: impl FnOnce(u64) -> SysResult) -> SysResult {
        let position = self.0.load(Ordering::Relaxed);
        let count = transfer(position)?;
        self.0.store(position + count, Ordering::Relaxed);
        Ok(count)
    }

    /// lseek(2) in a file of so many bytes.
    pub fn seek(
        &self,
        offset: u64,
        whence: u32,
        size: impl FnOnce() -> Result<u64, Errno>,
    ) -> SysResult {
        let position = match whence {
            linux::SEEK_SET => offset,
            linux::SEEK_CUR => self.0.load(Ordering::Relaxed).wrapping_add(offset),
            linux::SEEK_END => size()?.wrapping_add(offset),
            _ => return Err(Errno::EINVAL),
        };
        if position > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        self.0.store(position, Ordering::Relaxed);
        Ok(position)
    }
}
