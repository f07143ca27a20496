// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the shadow's descriptor numbers are kept in step with the process's one table.
//!
//! - A call that makes a descriptor in Linux is preceded by [`Files::agree`]: the shadow puts a
//!   placeholder at each local number and takes away those that are left of closed local files. If
//!   nothing local was opened or closed since the last time, that asks nothing of Linux. So Linux
//!   chooses the lowest number that is free in both tables.
//! - The number that it chose is noted by [`Files::settle`]. If another thread made a local
//!   descriptor of the same number meanwhile, Linux's is moved to the next free one.
//! - A call that may have made descriptors without saying which ([`Files::doubt`]: descriptors
//!   passed over a socket) has the next local one ask the shadow first.
//! - The shadow never puts a placeholder in place of a file, nor closes a file as a placeholder.
//! - A device without state becomes Linux's at a call that only Linux can make:
//!   [`Files::globalize`].
//!
//! A placeholder is a copy of the shadow's descriptor of the executable, close-on-exec: a relative
//! path at it fails with ENOTDIR, as at any local file.

use crtos_abi::UserAddr;
use crtos_channel::{
    Operation,
    operation::{DescriptorLimits, DescriptorsInUse},
};
use crtos_files::NUMBERS;
use linux_raw_sys::general as linux;

use crtos_core::task::MutexGuard;

use super::{Files, Object, device::Device};
use crate::{
    abi::{Errno, SysResult, linux_result},
    remote::{self, Gone},
};

impl Files {
    /// At the start of a program: learns which numbers the shadow has, its limit, and whether paths
    /// lead to the local devices.
    pub fn begin(&self) -> Result<(), Gone> {
        let limits = DescriptorLimits::from_word(remote::request(Operation::DescriptorLimits)?);
        let _agreement = self.agreement.lock();
        {
            let mut state = self.state.lock();
            state.limit = limits.most.into();
            state.devices = limits.devices;
        }
        let _ = self.places.make_room(0);
        self.learn()
    }

    /// Asks the shadow which numbers it has.
    fn learn(&self) -> Result<(), Gone> {
        self.state.lock().unsure = false;
        let mut from = 0;
        while from < NUMBERS {
            let found = remote::request(Operation::DescriptorsInUse { from })?;
            if found < 0 {
                // There is nobody who would have made any.
                break;
            }
            let found = DescriptorsInUse::from_word(found);
            let in_use = u64::from(found.near) << (from % 64);
            self.state.lock().numbers.learn(from as usize / 64, in_use);
            match found.next & !31 {
                next if next > from => from = next,
                _ => break,
            }
        }
        Ok(())
    }

    /// Linux may have made descriptors for the shadow without saying so.
    pub fn doubt(&self) {
        self.state.lock().unsure = true;
    }

    /// Before a local number is chosen, or one of Linux's is replaced.
    pub fn make_sure(&self) -> Result<(), Gone> {
        if !self.state.lock().unsure {
            return Ok(());
        }
        let _agreement = self.agreement.lock();
        self.learn()
    }

    /// Before Linux chooses a number, or is shown one that may be local.
    pub fn agree(&self) -> Result<(), Gone> {
        if self.state.lock().numbers.disagreement().is_none() {
            return Ok(());
        }
        let _agreement = self.agreement.lock();
        loop {
            let Some(batch) = self.state.lock().numbers.disagreement() else { return Ok(()) };
            remote::request(Operation::PlaceDescriptors {
                first: batch.word as u32 * 64,
                place: batch.place,
                remove: batch.remove,
            })?;
            self.state.lock().numbers.agreed(batch);
        }
    }

    /// While this is held, placeholders stay as they are: around a fork of the shadow.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.agreement.lock()
    }

    /// After Linux made descriptor `fd`: notes it. Returns the number it has in the end.
    pub fn settle(&self, fd: u64) -> SysResult {
        let mut fd = fd;
        loop {
            if self.state.lock().numbers.set_remote(fd as u32) {
                return Ok(fd);
            }
            // A local file has got the same number meanwhile. Linux is told of all such numbers
            // first, or it would go from one to the next and back.
            self.agree()?;
            let flags = remote::linux(linux::__NR_fcntl, &[fd, linux::F_GETFD.into()])?;
            let command = match flags {
                0 => linux::F_DUPFD,
                _ => linux::F_DUPFD_CLOEXEC,
            };
            let moved = remote::linux(linux::__NR_fcntl, &[fd, command.into(), 0]);
            let _ = remote::linux(linux::__NR_close, &[fd]);
            self.state.lock().numbers.set_unplaced(fd as u32);
            fd = moved?;
        }
    }

    /// Makes a descriptor of a local device one of Linux's. Anything else stays as it is, and
    /// `false` is returned.
    pub fn globalize(&self, fd: u64) -> Result<bool, Errno> {
        let Some(file) = self.find(fd) else { return Ok(true) };
        let Object::Device(device) = file.object else { return Ok(false) };
        let close_on_exec = if self.close_on_exec(fd) { linux::O_CLOEXEC } else { 0 };
        let flags = file.status() | close_on_exec;
        let open = Operation::OpenDevice { device: device.into(), flags, fd: fd as u32 };
        linux_result(remote::request(open)?)?;
        self.forget_local(fd as u32);
        Ok(true)
    }

    /// A number is Linux's from here on, which has a file there: nobody uses the local one by way
    /// of the table any more when this returns.
    pub(super) fn forget_local(&self, number: u32) {
        let local = {
            let mut state = self.state.lock();
            state.numbers.set_free(number);
            state.numbers.set_remote(number);
            self.places.put(number, None)
        };
        drop(local);
    }
}

/// Has Linux store the status of a device at `address` of the program, as fstat(2) does.
pub fn device_status(device: Device, address: UserAddr) -> SysResult {
    linux_result(remote::request(Operation::DeviceStatus { device: device.into(), to: address })?)
}
