// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes that finish at once, for the light path of [`crate::syscall`]: nothing here sleeps, allocates or takes more
//! than some hundred instructions, and what does not finish has changed nothing.

use super::{Object, device::Device};
use crate::{
    arch::user_memory,
    syscall::{Errno, SysResult},
    task,
};

/// Most bytes of a light read.
const MOST: u64 = 256;

fn with_device(
    fd: u64,
    f: impl FnOnce(Device, bool, bool) -> Option<SysResult>,
) -> Option<SysResult> {
    let current = task::current();
    let user = current.data.user()?;
    let (device, reads, writes) = user.process.files().with(fd, |file| match file.object {
        Object::Device(device) => Some((device, file.reads, file.writes)),
        _ => None,
    })?;
    f(device, reads, writes)
}

/// read(fd, buffer, length). Interrupts off.
pub fn read(fd: u64, buffer: u64, length: u64) -> Option<SysResult> {
    with_device(fd, |device, reads, _| {
        if !reads || length > MOST {
            return None;
        }
        let length = if device == Device::Null { 0 } else { length as usize };
        (user_memory::clear(buffer, length) == length).then_some(Ok(length as u64))
    })
}

/// write(fd, buffer, length). Interrupts off.
pub fn write(fd: u64, buffer: u64, length: u64) -> Option<SysResult> {
    with_device(fd, |device, _, writes| {
        let end = buffer.checked_add(length)?;
        if !writes || length >> 30 != 0 || end > crtos_abi::channel::USER_END {
            return None;
        }
        Some(if device == Device::Full { Err(Errno::ENOSPC) } else { Ok(length) })
    })
}
