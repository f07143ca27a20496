// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/crtos` (see [`crtos_abi::ioctl`]) with safe calls. The only file here that needs `unsafe`.

use std::{
    fs::File,
    io,
    mem::size_of,
    os::fd::{AsRawFd, OwnedFd},
};

use crtos_abi::{
    ABI_VERSION,
    channel::Channel,
    ioctl::{self, CreateCell, Info, LoadCell, Reason, StartCell, Transfer},
    report::{REPORT_LOG_SIZE, Report as RawReport},
};
use nix::errno::Errno;

use crate::{
    cpulist::CpuList,
    failure::{Failure, Result, plain},
    report::Report,
    ring::{Reader, Source},
    text::padded,
    threads::{
        COUNTERS_SIZE, Counters, SECTIONS_OFFSET, SECTIONS_SIZE, SLOTS_OFFSET, SLOTS_SIZE, Section,
        Thread,
    },
};

/// Path of the device.
pub const PATH: &str = "/dev/crtos";

/// The open device. What is changed through it is undone when it is closed, until [`Device::keep`].
pub struct Device(File);

/// Why the device refused.
#[derive(Debug)]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The module's words, or the error number's.
    pub reason: String,
}

impl Refusal {
    /// A failure of `asked`.
    pub fn asked(self, asked: impl Into<String>) -> Failure {
        let failure = Failure::new(asked, self.reason);
        match self.errno {
            Errno::EPERM => failure.remedy("run this command as root"),
            _ => failure,
        }
    }
}

/// Result of a call of the device.
type Call<T> = std::result::Result<T, Refusal>;

impl Device {
    /// Opens the device if the module is loaded.
    pub fn open() -> io::Result<Self> {
        File::options().read(true).write(true).open(PATH).map(Self)
    }

    /// Opens the device for a command that needs a module of the same version; says what to do when
    /// there is none.
    pub fn require(asked: &str) -> Result<Self> {
        let device = Self::open().map_err(|error| {
            let failure = match error.kind() {
                io::ErrorKind::NotFound => return not_up(asked),
                io::ErrorKind::PermissionDenied => {
                    Failure::new(asked, format!("no permission to use {PATH}"))
                }
                _ => Failure::new(asked, format!("{PATH}: {}", plain(&error))),
            };
            failure
                .remedy("run it as root, or become a member of the group `crtos` and log in again")
        })?;
        device.info(asked)?;
        Ok(device)
    }

    /// The system, if the module speaks this command's version of the interface.
    pub fn info(&self, asked: &str) -> Result<Info> {
        let info = self.raw_info().map_err(|refusal| refusal.asked(asked))?;
        if info.abi_version != ABI_VERSION {
            return Err(Failure::new(
                asked,
                format!(
                    "the loaded module speaks version {} of the interface, this command version {ABI_VERSION}",
                    info.abi_version
                ),
            )
            .remedy("install both from the same build; `crtos down --unload`, then `crtos up` loads the installed module"));
        }
        Ok(info)
    }

    /// The system, whatever the module's version.
    pub fn raw_info(&self) -> Call<Info> {
        let mut info = Info {
            abi_version: 0,
            enabled: 0,
            cells: 0,
            realm: ioctl::NO_CELL,
            tsc_khz: 0,
            x2apic: 0,
            processes: 0,
            reserved: 0,
            cell_cpus: [0; 4],
        };
        self.structure(ioctl::IOC_INFO, &mut info)?;
        Ok(info)
    }

    /// Launches the hypervisor; fine if it runs.
    pub fn enable(&self) -> Call<()> {
        match self.number(ioctl::IOC_ENABLE, 0) {
            Err(refusal) if refusal.errno != Errno::EALREADY => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Leaves the hypervisor.
    pub fn disable(&self) -> Call<()> {
        self.number(ioctl::IOC_DISABLE, 0).map(drop)
    }

    /// Creates a cell; returns its number and fills in `apic_ids`.
    pub fn create(&self, cell: &mut CreateCell) -> Call<u32> {
        self.structure(ioctl::IOC_CELL_CREATE, cell)
    }

    /// Copies into a cell that does not run.
    pub fn load(&self, cell: u32, cell_address: u64, bytes: &[u8]) -> Call<()> {
        let source = bytes.as_ptr() as u64;
        let length = bytes.len() as u64;
        let mut load = LoadCell { cell, reserved: 0, cell_address, source, length };
        self.structure(ioctl::IOC_CELL_LOAD, &mut load).map(drop)
    }

    /// Starts a cell at `entry` with its initial page tables.
    pub fn start(&self, cell: u32, entry: u64) -> Call<()> {
        let mut start = StartCell {
            cell,
            reserved: 0,
            entry,
            page_table: crtos_abi::boot::INITIAL_TABLES,
            argument: crtos_abi::boot::BOOT_INFO_ADDRESS,
        };
        self.structure(ioctl::IOC_CELL_START, &mut start).map(drop)
    }

    /// Stops a cell.
    pub fn stop(&self, cell: u32) -> Call<()> {
        self.number(ioctl::IOC_CELL_STOP, cell).map(drop)
    }

    /// Stops and destroys a cell; `force` ends the processes that live in it.
    pub fn destroy(&self, cell: u32, force: bool) -> Call<()> {
        let force = if force { ioctl::CELL_FORCE } else { 0 };
        self.number(ioctl::IOC_CELL_DESTROY, cell | force).map(drop)
    }

    /// Makes lasting what was changed through this file.
    pub fn keep(&self) -> Call<()> {
        self.number(ioctl::IOC_KEEP, 0).map(drop)
    }

    /// Rings the doorbell of a cell.
    pub fn doorbell(&self, cell: u32) -> Call<()> {
        self.number(ioctl::IOC_DOORBELL, cell).map(drop)
    }

    /// Has the real-time kernel trace, or not.
    pub fn trace(&self, on: bool) -> Call<()> {
        self.number(ioctl::IOC_TRACE, on.into()).map(drop)
    }

    /// Copies from the report area.
    pub fn report_bytes(&self, offset: u64, buffer: &mut [u8]) -> Call<()> {
        self.transfer(ioctl::IOC_REPORT, 0, offset, buffer)
    }

    /// Copies from the channel or shared block of a cell.
    pub fn channel_bytes(&self, cell: u32, offset: u64, buffer: &mut [u8]) -> Call<()> {
        self.transfer(ioctl::IOC_CHANNEL, cell, offset, buffer)
    }

    /// Writes to the shared block of a cell without a real-time kernel.
    pub fn write_channel(&self, cell: u32, offset: u64, bytes: &[u8]) -> Call<()> {
        self.transfer(ioctl::IOC_CHANNEL_WRITE, cell, offset, &mut bytes.to_vec())
    }

    /// The hypervisor's report.
    pub fn report(&self, asked: &str) -> Result<Report> {
        let mut bytes = vec![0; size_of::<RawReport>()];
        self.report_bytes(0, &mut bytes).map_err(|refusal| refusal.asked(asked))?;
        Ok(Report::parse(&bytes))
    }

    /// The counters of the real-time kernel in `cell`.
    pub fn counters(&self, cell: u32) -> Call<Counters> {
        let mut bytes = vec![0; COUNTERS_SIZE];
        self.channel_bytes(cell, 0, &mut bytes)?;
        Ok(Counters::parse(&bytes))
    }

    /// The longest sections with interrupts off of the real-time kernel in `cell`.
    pub fn sections(&self, cell: u32) -> Call<Vec<Section>> {
        let mut bytes = vec![0; SECTIONS_SIZE];
        self.channel_bytes(cell, SECTIONS_OFFSET, &mut bytes)?;
        Ok(Section::parse_all(&bytes))
    }

    /// The threads of the realm in `cell`.
    pub fn threads(&self, cell: u32) -> Call<Vec<Thread>> {
        let mut bytes = vec![0; SLOTS_SIZE];
        self.channel_bytes(cell, SLOTS_OFFSET, &mut bytes)?;
        Ok(Thread::parse_all(&bytes))
    }

    /// The hypervisor's log.
    pub fn hypervisor_log(&self) -> Reader<impl Source + '_> {
        let base = std::mem::offset_of!(RawReport, log) as u64;
        let read = move |offset: u64, buffer: &mut [u8]| {
            self.report_bytes(base + offset, buffer)
                .map_err(|refusal| refusal.asked("read the hypervisor's log"))
        };
        Reader::new(read, REPORT_LOG_SIZE)
    }

    /// The log of the real-time kernel in `cell`.
    pub fn kernel_log(&self, cell: u32) -> Reader<impl Source + '_> {
        let base = std::mem::offset_of!(Channel, log) as u64;
        let read = move |offset: u64, buffer: &mut [u8]| {
            self.channel_bytes(cell, base + offset, buffer)
                .map_err(|refusal| refusal.asked("read the real-time kernel's log"))
        };
        Reader::new(read, crtos_abi::channel::KERNEL_LOG_SIZE)
    }

    /// The descriptor, to be handed to another program.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into()
    }

    /// A call that copies `buffer`, which the kernel reads or writes.
    fn transfer(&self, number: u32, cell: u32, offset: u64, buffer: &mut [u8]) -> Call<()> {
        let length = buffer.len() as u64;
        let buffer = buffer.as_mut_ptr() as u64;
        let mut transfer = Transfer { cell, reserved: 0, offset, buffer, length };
        self.structure(number, &mut transfer).map(drop)
    }

    /// A call whose argument is a number.
    fn number(&self, number: u32, argument: u32) -> Call<u32> {
        // SAFETY: the calls that take a number read and write no memory of this process.
        let result =
            unsafe { nix::libc::ioctl(self.0.as_raw_fd(), number.into(), u64::from(argument)) };
        self.check(result)
    }

    /// A call whose argument is the structure `T`.
    fn structure<T>(&self, number: u32, argument: &mut T) -> Call<u32> {
        self.check(self.raw(number, argument))
    }

    fn raw<T>(&self, number: u32, argument: &mut T) -> i32 {
        assert_eq!((number >> 16) as usize & 0x3fff, size_of::<T>(), "number and structure differ");
        // SAFETY: the number says that the kernel reads and writes at most `size_of::<T>()` bytes
        // at the pointer, which `argument` holds exclusively; all such `T` are plain integers, of
        // which any value is valid. Addresses within `T` come from slices that the callers in this
        // file hold for the call, exclusively where the kernel writes.
        unsafe { nix::libc::ioctl(self.0.as_raw_fd(), number.into(), std::ptr::from_mut(argument)) }
    }

    /// The call's value, or why it was refused.
    fn check(&self, result: i32) -> Call<u32> {
        if let Ok(value) = u32::try_from(result) {
            return Ok(value);
        }
        let errno = Errno::last();
        let mut reason = Reason { text: [0; 256] };
        let words = match self.raw(ioctl::IOC_REASON, &mut reason) {
            0 => padded(&reason.text),
            _ => String::new(),
        };
        let reason = if words.is_empty() { errno.desc().to_string() } else { words };
        Err(Refusal { errno, reason })
    }
}

/// The failure of a command that needs the realm or a cell while there is none.
pub fn not_up(asked: &str) -> Failure {
    Failure::new(asked, "crtos is not up")
        .remedy("`crtos up --cpus LIST --memory SIZE` starts the real-time realm")
}

/// The CPUs that cells have.
pub fn cell_cpus(info: &Info) -> CpuList {
    CpuList::from_mask(&info.cell_cpus)
}

/// The cell with the real-time kernel.
pub fn realm(info: &Info) -> Option<u32> {
    (info.realm != ioctl::NO_CELL).then_some(info.realm)
}
