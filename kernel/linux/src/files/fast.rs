// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on files that finish at once, for the fast path of [`crate::syscall`]: nothing here
//! sleeps, allocates or takes more than some hundred instructions, and what does not finish has
//! changed nothing.

use crtos_abi::UserAddr;
use linux_raw_sys::general as linux;

use crtos_core::{hazard::FastCall, personality::FastResult};

use super::{Description, Object, device::Device};
use crate::process::UserThread;

/// read(fd, buffer, length). Interrupts off.
#[inline(always)]
pub fn read(
    user: &mut FastCall<'_, UserThread>,
    fd: u64,
    buffer: UserAddr,
    length: u64,
) -> FastResult {
    with(user, fd, move |file| match &file.object {
        _ if !file.reads => FastResult::FULL,
        Object::Device(device) => device.read_at_once(buffer, length),
        Object::Pipe(pipe) if pipe.is_empty() => FastResult::FULL,
        Object::Pipe(pipe) => pipe.read_at_once(buffer, length),
        Object::Event(event) => event.read_at_once(buffer, length),
        _ => FastResult::FULL,
    })
}

/// write(fd, buffer, length). Interrupts off.
#[inline(always)]
pub fn write(
    user: &mut FastCall<'_, UserThread>,
    fd: u64,
    buffer: UserAddr,
    length: u64,
) -> FastResult {
    with(user, fd, move |file| match &file.object {
        _ if !file.writes => FastResult::FULL,
        Object::Device(device) => device.write_at_once(buffer, length),
        Object::Pipe(_) if file.is_packets() => FastResult::FULL,
        Object::Pipe(pipe) => pipe.write_at_once(buffer, length),
        Object::Event(event) => event.write_at_once(buffer, length),
        _ => FastResult::FULL,
    })
}

/// open(path, flags) of a device. Interrupts off.
pub fn open(user: &UserThread, path: UserAddr, flags: u64) -> FastResult {
    let flags = flags as u32;
    let device = Device::named_at_once(path, flags);
    device.zip(user.process.files.get()).map_or(FastResult::FULL, |(device, files)| {
        files.open_at_once(device, flags | linux::O_LARGEFILE)
    })
}

/// close(fd) of a device. Interrupts off.
pub fn close(user: &mut FastCall<'_, UserThread>, fd: u64) -> FastResult {
    user.data().process.files.get().map_or(FastResult::FULL, |files| files.close_at_once(user, fd))
}

#[inline(always)]
fn with(
    user: &mut FastCall<'_, UserThread>,
    fd: u64,
    f: impl FnOnce(&Description) -> FastResult,
) -> FastResult {
    match user.data().process.files.get() {
        Some(files) => files.with(user, fd, FastResult::FULL, f),
        None => FastResult::FULL,
    }
}
