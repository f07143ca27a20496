// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/port`: the I/O ports that root gave programs of the realm (`crtos up --port`, `crtos
//! device add`), and those of PCI functions that they drive, each a byte of the file (mem(4)).
//!
//! Linux opens the file, and so checks for CAP_SYS_RAWIO, before it becomes one of the realm. Other
//! ports fail with EPERM, as with ioperm(2): Linux may not touch a port that a cell has alone, and
//! one file cannot tell whose the others are. Without a port, the file stays Linux's.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use linux_raw_sys::general as linux;
use spin::Once;

use crtos_abi::device::MAX_DEVICES;
use crtos_channel::{Channel, Had, Wanted};
use crtos_core::{
    devices::{
        pci,
        ports::{self, ProgramPort},
    },
    sync::SpinLock,
    task::{Thread, may_use},
};

use super::{Driver, users};
use crate::{
    abi::{Errno, SysResult},
    files::{Memory, Object, character::Character, lock::Locks},
    process::threads,
    signal,
};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, described: None, open };

/// Linux's number of the file (`st_rdev`).
const NUMBER: u64 = 1 << 8 | 4;
/// How many ports there are.
const COUNT: u64 = 1 << 16;
/// Bytes that are moved before a signal is looked for. A port takes about a microsecond.
const STEP: usize = 16;

/// The locks of the file.
static LOCKS: Once<Locks> = Once::new();

fn start() -> bool {
    LOCKS.call_once(Locks::default);
    is_there()
}

fn is_there() -> bool {
    ports::usable().next().is_some()
}

fn open(number: u64, _flags: u32) -> Option<Result<Box<dyn Character>, Errno>> {
    let there = number == NUMBER && is_there();
    there.then(|| Ok(Box::new(Opening::default()) as Box<dyn Character>))
}

/// The ranges of ports that root gave while the realm ran, by Linux's places.
static RANGES: SpinLock<[Option<Wanted>; MAX_DEVICES]> = SpinLock::new([None; MAX_DEVICES]);

/// Sees to it that programs may use those ranges that Linux wants the realm to have, and no others,
/// and tells what came of it. A range goes when nobody may use a port of it, or has the file open.
/// By the thread alone that has functions come and go, behind [`super::uio::look`], which tells of
/// all places. May sleep.
pub fn look(channel: Channel) {
    for place in 0..MAX_DEVICES {
        let wanted = channel.wanted_device(place).filter(is_range);
        let had = RANGES.lock()[place];
        let (kept, users) = had.map_or((None, Vec::new()), |had| keep(had, wanted));
        let comes = || wanted.filter(|wanted| pci::open_platform_ports(wanted.function));
        let has = kept.or_else(comes);
        RANGES.lock()[place] = has;
        let Some(Wanted { function, .. }) = has else { continue };
        if had != has {
            super::found();
        }
        channel.tell_device(place, Some(Had { function, users: &users }));
    }
}

/// Whether it is a range of ports: no file of Linux's leads to it.
pub fn is_range(wanted: &Wanted) -> bool {
    wanted.number == 0 && wanted.group.is_none() && wanted.description.is_none()
}

/// What is left of a range that there was, and who uses it if Linux does not want it any more.
fn keep(had: Wanted, wanted: Option<Wanted>) -> (Option<Wanted>, Vec<u32>) {
    let is_lost = wanted.is_some_and(|wanted| wanted != had) || !pci::is_platform(had.function);
    if !is_lost && wanted.is_some() {
        return (Some(had), Vec::new());
    }
    let ranges: Vec<_> = ports::of(had.function).collect();
    let users = || if is_lost { Vec::new() } else { users(&ranges) };
    // Who uses them does not lose them while Linux asks.
    let known = users();
    if !known.is_empty() {
        return (Some(had), known);
    }
    // Nobody gets one any more; somebody may just have got one.
    ports::remove_function(had.function);
    let users = users();
    if users.is_empty() || !pci::open_platform_ports(had.function) {
        return (None, Vec::new());
    }
    (Some(had), users)
}

/// The process ids of those who may use a port of these ranges, or have the file open.
fn users(ranges: &[RangeInclusive<u16>]) -> Vec<u32> {
    let is_port = |file: &Object| match file {
        Object::Character(special) => special.status.device_of_file == NUMBER,
        _ => false,
    };
    let mut users = users::users(&[], is_port);
    threads::each_process(|process| {
        let all = process.members.lock().threads.clone();
        let may_use = |thread: &Arc<Thread>| ranges.iter().any(|one| may_use(thread, one));
        let pid = process.outer_pid.get();
        if all.iter().any(may_use) && !users.contains(&pid) {
            users.push(pid);
        }
    });
    users
}

/// An opening of the file.
#[derive(Default)]
struct Opening {
    position: AtomicU64,
}

impl Opening {
    /// Has `transfer` work at the file's own position, which moves on.
    fn here(&self, transfer: impl FnOnce(u64) -> SysResult) -> SysResult {
        let position = self.position.load(Ordering::Relaxed);
        if (position as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let count = transfer(position)?;
        self.position.store(position + count, Ordering::Relaxed);
        Ok(count)
    }
}

/// The port at a position.
fn port(position: u64) -> Option<ProgramPort> {
    ProgramPort::new(u16::try_from(position).ok()?)
}

/// Ends a transfer that has moved `done` bytes, and stands at `position`: at a port that programs
/// do not have, or behind all ports.
fn end(done: u64, position: u64) -> SysResult {
    if done > 0 || position >= COUNT { Ok(done) } else { Err(Errno::EPERM) }
}

impl Character for Opening {
    fn path(&self) -> &str {
        "/dev/port"
    }

    fn read(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.here(|position| self.read_at(memory, position))
    }

    fn write(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.here(|position| self.write_at(memory, position))
    }

    fn seek(&self, offset: u64, whence: u32) -> SysResult {
        /// `MAX_ERRNO`: what a call cannot return as a position.
        const ERRORS: u64 = 4095;
        let position = match whence {
            linux::SEEK_SET => offset,
            linux::SEEK_CUR => self.position.load(Ordering::Relaxed).wrapping_add(offset),
            _ => return Err(Errno::EINVAL),
        };
        if position >= ERRORS.wrapping_neg() {
            return Err(Errno::EOVERFLOW);
        }
        self.position.store(position, Ordering::Relaxed);
        Ok(position)
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn read_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        let mut done = 0;
        while memory.left() > 0 {
            let mut bytes = [0; STEP];
            let wanted = (memory.left() as usize).min(STEP);
            let mut count = 0;
            for (place, position) in bytes[..wanted].iter_mut().zip(position + done..) {
                let Some(byte) = port(position).and_then(|port| port.read()) else { break };
                *place = byte;
                count += 1;
            }
            if memory.write(&bytes[..count]) < count {
                return Err(Errno::EFAULT);
            }
            done += count as u64;
            if count < wanted {
                return end(done, position + done);
            }
            if signal::is_interrupted() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        let mut done = 0;
        while memory.left() > 0 {
            let Some(port) = port(position + done) else { return end(done, position + done) };
            let mut byte = [0];
            if memory.read(&mut byte) == 0 {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
            let Some(()) = port.write(byte[0]) else { return end(done, position + done) };
            done += 1;
            if done % STEP as u64 == 0 && signal::is_interrupted() {
                break;
            }
        }
        Ok(done)
    }

    fn locks(&self) -> &Locks {
        LOCKS.call_once(Locks::default)
    }
}
