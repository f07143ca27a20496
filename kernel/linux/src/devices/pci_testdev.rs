// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's pci-testdev (1b36:0005): registers that count accesses. The smallest driver of a PCI
//! function; docs/drivers.md explains it step by step.
//!
//! The device has tests, which say where to write what, and count that. A read of its file makes
//! each of them, and tells in a line what was counted, and how long an access took. So `cat` shows
//! what registers of a device cost in the realm.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::fmt::Write as _;

use crtos_core::{
    devices::pci::Function,
    mm::heap,
    task::Mutex,
    time::{self, Nanos},
    warn,
};

use super::functions::{Driven, FunctionDriver};
use crate::{
    abi::{Errno, SysResult},
    files::{Memory, character::Character, lock::Locks},
};

/// What the kernel needs to know of this driver.
pub const DRIVER: FunctionDriver = FunctionDriver { ids: &[(0x1b36, 0x0005)], start };

/// The base address register of its memory.
const REGISTERS: u32 = 0;
/// Offsets of registers: which test it makes, where that wants an access, and what is written
/// there, how often that was counted, and the test's name, which a zero ends.
const TEST: u64 = 0;
const OFFSET: u64 = 4;
const DATA: u64 = 8;
const COUNT: u64 = 12;
const NAME: u64 = 16;
/// Tests of accesses to memory.
const TESTS: u8 = 3;
/// In [`TEST`]: none.
const NO_TEST: u8 = 0xff;
/// Accesses of each test. One takes some microseconds at most.
const ACCESSES: u32 = 1000;
/// Bytes of a name that are shown.
const LONGEST_NAME: u64 = 32;

fn start(function: Function) -> Option<Arc<dyn Driven>> {
    if function.memory_size(REGISTERS) < NAME + LONGEST_NAME {
        warn!("pci-testdev: it has no registers");
        return None;
    }
    Some(Arc::new(Device { function: Mutex::new(Some(function)), locks: Locks::default() }))
}

/// A device.
struct Device {
    /// `None` once it is gone. Who has the lock makes the tests, some milliseconds at most.
    function: Mutex<Option<Function>>,
    locks: Locks,
}

impl Driven for Device {
    fn open(self: Arc<Self>, path: String, _flags: u32) -> Result<Box<dyn Character>, Errno> {
        Ok(Box::new(Opening { device: self, path, report: Mutex::new(Report::default()) }))
    }

    fn leave(&self) {
        *self.function.lock() = None;
    }
}

impl Device {
    /// Makes all tests; `None` if the device is gone. Sleeps.
    fn make_tests(&self) -> Option<String> {
        let function = self.function.lock();
        let function = function.as_ref()?;
        let mut report = String::new();
        for test in 0..TESTS {
            report += &make_test(function, test)?;
        }
        function.write(REGISTERS, TEST, [NO_TEST])?;
        Some(report)
    }
}

/// Makes a test, and returns what came of it; `None` if a register is not there.
fn make_test(function: &Function, test: u8) -> Option<String> {
    function.write(REGISTERS, TEST, [test])?;
    let offset = u32::from_le_bytes(function.read(REGISTERS, OFFSET)?);
    let data: [u8; 1] = function.read(REGISTERS, DATA)?;
    let mut line = String::new();
    for place in NAME..NAME + LONGEST_NAME {
        let [byte] = function.read(REGISTERS, place)?;
        if !byte.is_ascii_graphic() {
            break;
        }
        line.push(byte.into());
    }
    let begin = time::now();
    for _ in 0..ACCESSES {
        function.write(REGISTERS, offset.into(), data)?;
    }
    let Nanos(each) = Nanos((time::now() - begin).0 / u64::from(ACCESSES));
    let count = u32::from_le_bytes(function.read(REGISTERS, COUNT)?);
    // It does not fail: a string grows.
    let _ = writeln!(line, ": {count} of {ACCESSES} accesses counted, {each} ns each");
    Some(line)
}

/// What an opening reads.
#[derive(Default)]
struct Report {
    /// `None` before the first read.
    text: Option<String>,
    /// Bytes that were read.
    done: usize,
}

/// An opening of a device.
struct Opening {
    device: Arc<Device>,
    path: String,
    report: Mutex<Report>,
}

impl Character for Opening {
    fn path(&self) -> &str {
        &self.path
    }

    fn read(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        let mut report = self.report.lock();
        if report.text.is_none() {
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            report.text = Some(self.device.make_tests().ok_or(Errno::EIO)?);
        }
        let text = report.text.as_deref().unwrap_or_default();
        let left = text.as_bytes().get(report.done..).unwrap_or_default();
        let wanted = left.len().min(memory.left() as usize);
        let count = memory.write(&left[..wanted]);
        if count == 0 && wanted > 0 {
            return Err(Errno::EFAULT);
        }
        report.done += count;
        Ok(count as u64)
    }

    fn locks(&self) -> &Locks {
        &self.device.locks
    }
}
