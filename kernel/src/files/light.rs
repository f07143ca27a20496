// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on files that finish at once, for the light path of [`crate::syscall`]: nothing here sleeps, allocates or takes more
//! than some hundred instructions, and what does not finish has changed nothing.

use linux_raw_sys::general as linux;

use super::{Description, Object, device::Device};
use crate::{process::User, syscall::light::Light};

/// read(fd, buffer, length). Interrupts off.
#[inline(always)]
pub fn read(user: &User, fd: u64, buffer: u64, length: u64) -> Light {
    with(user, fd, move |file| match &file.object {
        _ if !file.reads => Light::FULL,
        Object::Device(device) => device.read_at_once(buffer, length),
        Object::Pipe(pipe) if pipe.is_empty() => Light::FULL,
        Object::Pipe(pipe) => pipe.read_at_once(buffer, length),
        Object::Event(event) => event.read_at_once(buffer, length),
        Object::Timer(_) | Object::Signals(_) => Light::FULL,
    })
}

/// write(fd, buffer, length). Interrupts off.
#[inline(always)]
pub fn write(user: &User, fd: u64, buffer: u64, length: u64) -> Light {
    with(user, fd, move |file| match &file.object {
        _ if !file.writes => Light::FULL,
        Object::Device(device) => device.write_at_once(buffer, length),
        Object::Pipe(_) if file.is_packets() => Light::FULL,
        Object::Pipe(pipe) => pipe.write_at_once(buffer, length),
        Object::Event(event) => event.write_at_once(buffer, length),
        Object::Timer(_) | Object::Signals(_) => Light::FULL,
    })
}

/// open(path, flags) of a device. Interrupts off.
pub fn open(user: &User, path: u64, flags: u64) -> Light {
    let flags = flags as u32;
    let device = Device::named_at_once(path, flags);
    device.zip(user.process.files.get()).map_or(Light::FULL, |(device, files)| {
        files.open_at_once(device, flags | linux::O_LARGEFILE)
    })
}

/// close(fd) of a device. Interrupts off.
pub fn close(user: &User, fd: u64) -> Light {
    user.process.files.get().map_or(Light::FULL, |files| files.close_at_once(fd))
}

#[inline(always)]
fn with(user: &User, fd: u64, f: impl FnOnce(&Description) -> Light) -> Light {
    match user.process.files.get() {
        Some(files) => files.with(fd, Light::FULL, f),
        None => Light::FULL,
    }
}
