// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/null, /dev/zero and /dev/full.
//!
//! They have no state, so a descriptor of one can become a descriptor of Linux's device at any
//! time: that is what happens to it at a call that only Linux knows how to make
//! ([`super::Files::globalize`]).

use crtos_abi::UserAddr;
use crtos_channel::operation;
use linux_raw_sys::general as linux;

use crtos_core::{arch::user_memory, personality::FastResult};

use super::{Events, Memory};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
};

/// A device without state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// Takes everything and gives nothing.
    Null,
    /// Takes everything and gives zeros.
    Zero,
    /// Takes nothing and gives zeros.
    Full,
}

impl From<Device> for operation::Device {
    fn from(device: Device) -> Self {
        match device {
            Device::Null => Self::Null,
            Device::Zero => Self::Zero,
            Device::Full => Self::Full,
        }
    }
}

/// Flags of open(2) with which a device is opened here; with others Linux does it.
const PLAIN: u32 = linux::O_ACCMODE
    | linux::O_CLOEXEC
    | linux::O_NONBLOCK
    | linux::O_CREAT
    | linux::O_TRUNC
    | linux::O_APPEND
    | linux::O_NOCTTY
    | linux::O_LARGEFILE
    | linux::O_NOFOLLOW
    | linux::O_NOATIME
    | linux::O_SYNC;

impl Device {
    /// The device whose exact name is at `path`, an address of the program, if `flags` of open(2)
    /// ask for nothing special. May sleep.
    pub fn named(path: UserAddr, flags: u32) -> Option<Device> {
        let mut name = [0; 10];
        user::read(path, &mut name).ok()?;
        Self::of_name(&name, flags)
    }

    /// The name that leads to it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Null => "/dev/null",
            Self::Zero => "/dev/zero",
            Self::Full => "/dev/full",
        }
    }

    /// As [`Device::named`], on the fast path: if the name is present.
    pub fn named_at_once(path: UserAddr, flags: u32) -> Option<Device> {
        let mut name = [0; 10];
        user_memory::read_at_once(path, &mut name).then(|| Self::of_name(&name, flags))?
    }

    fn of_name(name: &[u8; 10], flags: u32) -> Option<Device> {
        let device = match name {
            b"/dev/null\0" => Device::Null,
            b"/dev/zero\0" => Device::Zero,
            b"/dev/full\0" => Device::Full,
            _ => return None,
        };
        Self::is_plain(flags).then_some(device)
    }

    /// Whether `flags` of open(2) ask for nothing special.
    pub fn is_plain(flags: u32) -> bool {
        flags & !PLAIN == 0 && flags & linux::O_ACCMODE != linux::O_ACCMODE
    }

    /// read(2).
    pub fn read(self, memory: &mut Memory) -> SysResult {
        if self == Device::Null {
            return Ok(0);
        }
        transfer(memory, Memory::clear)
    }

    /// write(2).
    pub fn write(self, memory: &Memory) -> SysResult {
        if self == Device::Full { Err(Errno::ENOSPC) } else { Ok(memory.left()) }
    }

    /// As [`Device::read`], on the fast path: at most a step.
    #[inline(always)]
    pub fn read_at_once(self, buffer: UserAddr, length: u64) -> FastResult {
        match self {
            _ if length > user_memory::STEP as u64 => FastResult::FULL,
            Device::Null => FastResult::done_if(user_memory::is_range(buffer, length), 0),
            _ => FastResult::done_if(user_memory::clear_at_once(buffer, length as usize), length),
        }
    }

    /// As [`Device::write`], on the fast path.
    #[inline(always)]
    pub fn write_at_once(self, buffer: UserAddr, length: u64) -> FastResult {
        match self {
            _ if length > Memory::MOST || !user_memory::is_range(buffer, length) => {
                FastResult::FULL
            }
            Device::Full => FastResult::done(Errno::ENOSPC.value()),
            _ => FastResult::done(length),
        }
    }

    /// What it is ready for: always everything.
    pub fn ready(self) -> Events {
        Events::IN | Events::OUT | Events::READ_NORMAL | Events::WRITE_NORMAL
    }
}

/// Bytes that are moved before a signal is looked for.
const STEP: usize = 64 << 10;

fn transfer(memory: &mut Memory, mut step: impl FnMut(&mut Memory, usize) -> usize) -> SysResult {
    let mut done = 0;
    while memory.left() > 0 {
        let wanted = memory.left().min(STEP as u64) as usize;
        let moved = step(memory, wanted);
        done += moved as u64;
        if moved < wanted {
            return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
        }
        if memory.left() > 0 && crate::signal::is_interrupted() {
            break;
        }
    }
    Ok(done)
}
