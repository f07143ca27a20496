// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/crtos` (see [`crtos_abi::ioctl`]) behind safe functions. Beside `serial_port`, no other
//! file of this crate needs `unsafe`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    mem::size_of,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use crtos_abi::{
    ABI_VERSION,
    cell::PortRange,
    channel::Channel,
    ids::{Pid, RealmCpu},
    ioctl::{
        self, CellDevice, CellEthernet, CellInterface, CreateCell, DEVICE_NAME_LEN, Info, Link,
        LinkJoin, LoadCell, Reason, StartCell, Transfer,
    },
    report::{REPORT_LOG_SIZE, Report as RawReport},
};
use nix::errno::Errno;

use crate::{
    code::Code,
    cpulist::CpuList,
    failure::{Failure, Result},
    machine::Machine,
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
/// The group that may use it.
pub const GROUP: &str = "crtos";
/// What root does to open it to the group while it is there; `crtos up` does that as well.
pub const OPEN_TO_GROUP: &str = "`chgrp crtos /dev/crtos`, `chmod 660 /dev/crtos`";

/// What to do where the loaded module is of another version.
pub const OTHER_VERSION: &str = "`systemctl restart crtos.service`, or `crtos down`, then `crtos up`, \
    loads the installed module; programs that run in the realm end with it";

/// The open device. What is changed through it is undone when it is closed, until [`Device::keep`].
pub struct Device(File);

/// Why the device refused.
#[derive(Debug)]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The module's words, or the error number's.
    pub reason: String,
    /// The code of the module's words, or of the error number.
    pub code: Code,
}

impl Refusal {
    /// Makes it of an error number and the module's words, which may be none.
    fn new(errno: Errno, words: &str) -> Self {
        match Code::split(words) {
            Some((code, words)) => Self { errno, reason: words.into(), code },
            None if words.is_empty() => Self {
                errno,
                reason: errno.desc().into(),
                code: match errno {
                    Errno::EINTR => Code::Interrupted,
                    Errno::ENOMEM => Code::OutOfMemory,
                    Errno::EINVAL | Errno::EFAULT | Errno::ENOTTY => Code::BadCall,
                    _ => Code::System,
                },
            },
            None => Self { errno, reason: words.into(), code: Code::BadCall },
        }
    }

    /// Returns the failure of a command that asked for `asked`.
    pub fn asked(self, asked: impl Into<String>) -> Failure {
        Failure::new(self.code, asked, self.reason)
    }
}

/// A call of the device whose argument is a number.
#[derive(Clone, Copy)]
#[repr(u32)]
enum NumberCall {
    Enable = ioctl::IOC_ENABLE,
    Disable = ioctl::IOC_DISABLE,
    Stop = ioctl::IOC_CELL_STOP,
    Destroy = ioctl::IOC_CELL_DESTROY,
    Keep = ioctl::IOC_KEEP,
    Lock = ioctl::IOC_CELL_LOCK,
    Seal = ioctl::IOC_CELL_SEAL,
    Doorbell = ioctl::IOC_DOORBELL,
    Trace = ioctl::IOC_TRACE,
}

/// An argument of a call of the device: a structure without addresses.
///
/// # Safety
/// Call `NUMBER` takes the address of a `Self`, and reads and writes no other memory of the
/// process. Any bytes are a valid `Self`.
unsafe trait Argument {
    /// The call (`IOC_*`).
    const NUMBER: u32;
}

// SAFETY: the call fills the structure, all of whose fields are integers.
unsafe impl Argument for Info {
    const NUMBER: u32 = ioctl::IOC_INFO;
}

// SAFETY: the call reads the structure and fills in `apic_ids`; all of its fields are integers.
unsafe impl Argument for CreateCell {
    const NUMBER: u32 = ioctl::IOC_CELL_CREATE;
}

// SAFETY: the call reads the structure, all of whose fields are integers. Its addresses are those
// of the cell.
unsafe impl Argument for StartCell {
    const NUMBER: u32 = ioctl::IOC_CELL_START;
}

/// Argument of the call that gives a device to a cell.
#[repr(transparent)]
struct AddDevice(CellDevice);

/// Argument of the call that takes it back.
#[repr(transparent)]
struct RemoveDevice(CellDevice);

// SAFETY: the call reads the structure, which holds integers.
unsafe impl Argument for AddDevice {
    const NUMBER: u32 = ioctl::IOC_DEVICE_ADD;
}

// SAFETY: the call reads the structure, which holds integers.
unsafe impl Argument for RemoveDevice {
    const NUMBER: u32 = ioctl::IOC_DEVICE_REMOVE;
}

// SAFETY: the call reads the structure, which holds integers and bytes.
unsafe impl Argument for CellInterface {
    const NUMBER: u32 = ioctl::IOC_INTERFACE_SHOW;
}

// SAFETY: the call reads and fills the structure, which holds integers and bytes.
unsafe impl Argument for CellEthernet {
    const NUMBER: u32 = ioctl::IOC_ETHERNET_ADD;
}

// SAFETY: the call reads and fills the structure, which holds integers and bytes.
unsafe impl Argument for LinkJoin {
    const NUMBER: u32 = ioctl::IOC_LINK_JOIN;
}

/// Argument of a call about links, by the number of the call.
#[repr(transparent)]
struct AboutLink<const CALL: u32>(Link);

// SAFETY: each call about links reads and fills the structure alone, which holds integers and
// bytes; `CALL` is private to this file, which names no others.
unsafe impl<const CALL: u32> Argument for AboutLink<CALL> {
    const NUMBER: u32 = CALL;
}

/// A name with at least one zero behind it; a longer one is cut.
pub fn name<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut name = [0; LEN];
    let bytes = text.as_bytes().iter().take(LEN - 1);
    name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    name
}

fn cell_device(cell: u32, text: &str, flags: u32) -> CellDevice {
    // The address of a function is shorter.
    CellDevice { cell, flags, name: name::<DEVICE_NAME_LEN>(text) }
}

// SAFETY: the call fills the structure, which holds bytes.
unsafe impl Argument for Reason {
    const NUMBER: u32 = ioctl::IOC_REASON;
}

/// Bytes of the argument of a call, which are part of its number.
const fn size_in(number: u32) -> usize {
    (number >> 16) as usize & 0x3fff
}

const _: () = assert!(size_in(Info::NUMBER) == size_of::<Info>());
const _: () = assert!(size_in(CreateCell::NUMBER) == size_of::<CreateCell>());
const _: () = assert!(size_in(StartCell::NUMBER) == size_of::<StartCell>());
const _: () = assert!(size_in(AddDevice::NUMBER) == size_of::<AddDevice>());
const _: () = assert!(size_in(RemoveDevice::NUMBER) == size_of::<RemoveDevice>());
const _: () = assert!(size_in(CellInterface::NUMBER) == size_of::<CellInterface>());
const _: () = assert!(size_in(CellEthernet::NUMBER) == size_of::<CellEthernet>());
const _: () = assert!(size_in(Reason::NUMBER) == size_of::<Reason>());
const _: () = assert!(size_in(ioctl::IOC_CELL_LOAD) == size_of::<LoadCell>());
const _: () = assert!(size_in(ioctl::IOC_REPORT) == size_of::<Transfer>());
const _: () = assert!(size_in(ioctl::IOC_CHANNEL) == size_of::<Transfer>());
const _: () = assert!(size_in(ioctl::IOC_CHANNEL_WRITE) == size_of::<Transfer>());

/// Memory of crtos that can be read.
enum Area {
    /// The report of the hypervisor.
    Report,
    /// The channel of a cell with a real-time kernel, the shared block of another one.
    Channel { cell: u32 },
}

/// Result of a call of the device.
pub type Call<T> = std::result::Result<T, Refusal>;

impl Device {
    /// Opens the device if the module is loaded.
    pub fn open() -> io::Result<Self> {
        File::options().read(true).write(true).open(PATH).map(Self)
    }

    /// Opens the device for a command that needs a module of the same version; says what to do when
    /// there is none.
    pub fn require(asked: &str) -> Result<Self> {
        let device = Self::require_any(asked)?;
        device.info(asked)?;
        Ok(device)
    }

    /// Opens the device for a command that gets along with a module of any version; says what to do
    /// when there is none.
    pub fn require_any(asked: &str) -> Result<Self> {
        Self::open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if Machine::here().module_loaded("crtos") => {
                let reason = format!("the module is loaded, and there is no {PATH}");
                Failure::new(Code::DeviceMissing, asked, reason)
            }
            io::ErrorKind::NotFound => not_up(asked),
            io::ErrorKind::PermissionDenied => {
                Failure::new(Code::DeviceAccess, asked, format!("no permission to use {PATH}"))
                    .remedy(way_in(&Machine::here()))
            }
            _ => Failure::io(format!("{asked}: open {PATH}"), &error),
        })
    }

    /// Returns the number of the cell with the real-time kernel, for a command that needs it.
    pub fn realm(&self, asked: &str) -> Result<u32> {
        realm(&self.info(asked)?).ok_or_else(|| not_up(asked))
    }

    /// Returns what the module says of the system, if it speaks this command's version of the
    /// interface.
    pub fn info(&self, asked: &str) -> Result<Info> {
        let info = self.raw_info().map_err(|refusal| refusal.asked(asked))?;
        if info.abi_version != ABI_VERSION {
            return Err(Failure::new(Code::PartsDiffer, asked,
                format!(
                    "the loaded module speaks version {} of the interface, this command version {ABI_VERSION}",
                    info.abi_version
                ),
            )
            .remedy(OTHER_VERSION));
        }
        Ok(info)
    }

    /// Returns what the module says of the system, whatever its version is.
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
        self.structure(&mut info)?;
        Ok(info)
    }

    /// Launches the hypervisor, with flags `ENABLE_*` of [`crtos_abi::ioctl`]. Succeeds if it runs
    /// already.
    pub fn enable(&self, flags: u32) -> Call<()> {
        match self.number(NumberCall::Enable, flags) {
            Err(refusal) if refusal.errno != Errno::EALREADY => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Leaves the hypervisor.
    pub fn disable(&self) -> Call<()> {
        self.number(NumberCall::Disable, 0).map(drop)
    }

    /// Creates a cell; returns its number and fills in `apic_ids`.
    pub fn create(&self, cell: &mut CreateCell) -> Call<u32> {
        self.structure(cell)
    }

    /// Copies into a cell that does not run.
    pub fn load(&self, cell: u32, cell_address: u64, bytes: &[u8]) -> Call<()> {
        let (source, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        let mut load = LoadCell { cell, reserved: 0, cell_address, source, length };
        // SAFETY: beside the structure, the call reads `length` bytes at `source`, which are those
        // of `bytes`.
        let result = unsafe { self.raw(ioctl::IOC_CELL_LOAD, &mut load) };
        self.check(result).map(drop)
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
        self.structure(&mut start).map(drop)
    }

    /// Stops a cell.
    pub fn stop(&self, cell: u32) -> Call<()> {
        self.number(NumberCall::Stop, cell).map(drop)
    }

    /// Stops and destroys a cell; `force` ends the processes that live in it.
    pub fn destroy(&self, cell: u32, force: bool) -> Call<()> {
        let force = if force { ioctl::CELL_FORCE } else { 0 };
        self.number(NumberCall::Destroy, cell | force).map(drop)
    }

    /// Gives the PCI function of this address to a cell; `flags` are `ioctl::DEVICE_NO_*`.
    pub fn add_device(&self, cell: u32, name: &str, flags: u32) -> Call<()> {
        self.structure(&mut AddDevice(cell_device(cell, name, flags))).map(drop)
    }

    /// Takes the PCI function of this address back from a cell.
    pub fn remove_device(&self, cell: u32, name: &str) -> Call<()> {
        self.structure(&mut RemoveDevice(cell_device(cell, name, 0))).map(drop)
    }

    /// Gives the platform device of this name to a cell.
    pub fn add_platform_device(&self, cell: u32, name: &str) -> Call<()> {
        let device = cell_device(cell, name, ioctl::DEVICE_ON_PLATFORM);
        self.structure(&mut AddDevice(device)).map(drop)
    }

    /// Takes the platform device of this name back from a cell.
    pub fn remove_platform_device(&self, cell: u32, name: &str) -> Call<()> {
        let device = cell_device(cell, name, ioctl::DEVICE_ON_PLATFORM);
        self.structure(&mut RemoveDevice(device)).map(drop)
    }

    /// Gives I/O ports to a cell; returns the number by which the report tells of them.
    pub fn add_ports(&self, cell: u32, ports: &PortRange) -> Call<u32> {
        let name = format!("{:x}-{:x}", ports.first, ports.last);
        self.structure(&mut AddDevice(cell_device(cell, &name, ioctl::DEVICE_PORTS)))
    }

    /// Takes I/O ports back from a cell.
    pub fn remove_ports(&self, cell: u32, ports: &PortRange) -> Call<()> {
        let name = format!("{:x}-{:x}", ports.first, ports.last);
        let device = cell_device(cell, &name, ioctl::DEVICE_PORTS);
        self.structure(&mut RemoveDevice(device)).map(drop)
    }

    /// Gives a cell the device that is described; `flags` are 0 or `ioctl::DEVICE_NO_INTERRUPT`.
    /// Returns the number by which the report tells of it.
    pub fn add_described(&self, cell: u32, description: &str, flags: u32) -> Call<u32> {
        let flags = flags | ioctl::DEVICE_DESCRIBED;
        self.structure(&mut AddDevice(cell_device(cell, description, flags)))
    }

    /// Takes the device that was described, and has this name, back from a cell.
    pub fn remove_described(&self, cell: u32, name: &str) -> Call<()> {
        let device = cell_device(cell, name, ioctl::DEVICE_DESCRIBED);
        self.structure(&mut RemoveDevice(device)).map(drop)
    }

    /// Has Linux show an interface whose card a cell has.
    pub fn show_interface(&self, interface: &mut CellInterface) -> Call<()> {
        self.structure(interface).map(drop)
    }

    /// Makes Linux's end of the virtual Ethernet to a cell that does not run; fills in its number
    /// and the address of the other end.
    pub fn add_ethernet(&self, ethernet: &mut CellEthernet) -> Call<()> {
        self.structure(ethernet).map(drop)
    }

    /// Makes a link of this name and these sizes.
    pub fn create_link(&self, link: &mut Link) -> Call<()> {
        self.structure(&mut AboutLink::<{ ioctl::IOC_LINK_CREATE }>(*link)).map(drop)
    }

    /// Gives the memory of the link of this name back.
    pub fn destroy_link(&self, link: &mut Link) -> Call<()> {
        self.structure(&mut AboutLink::<{ ioctl::IOC_LINK_DESTROY }>(*link)).map(drop)
    }

    /// Fills in what the link of this number is; ENOENT if there is none.
    pub fn link_info(&self, link: &mut Link) -> Call<()> {
        let mut about = AboutLink::<{ ioctl::IOC_LINK_INFO }>(*link);
        self.structure(&mut about)?;
        *link = about.0;
        Ok(())
    }

    /// Makes a cell that has not run a peer of a link; fills in which one, of which link.
    pub fn join_link(&self, join: &mut LinkJoin) -> Call<()> {
        self.structure(join).map(drop)
    }

    /// Keeps what was changed through this file, also when the file is closed.
    pub fn keep(&self) -> Call<()> {
        self.number(NumberCall::Keep, 0).map(drop)
    }

    /// Locks a cell, and keeps it as [`Device::keep`] does.
    pub fn lock(&self, cell: u32) -> Call<()> {
        self.number(NumberCall::Lock, cell).map(drop)
    }

    /// Seals the realm in a cell that is locked.
    pub fn seal(&self, cell: u32) -> Call<()> {
        self.number(NumberCall::Seal, cell).map(drop)
    }

    /// Rings the doorbell of a cell on one of its CPUs.
    pub fn doorbell(&self, cell: u32, cpu: RealmCpu) -> Call<()> {
        let cpu = (cpu.get() as u32) << ioctl::DOORBELL_CPU_SHIFT;
        self.number(NumberCall::Doorbell, cell | cpu).map(drop)
    }

    /// Has the real-time kernel trace what `TRACE_WANT_*` name; 0: nothing.
    pub fn trace(&self, what: u32) -> Call<()> {
        self.number(NumberCall::Trace, what).map(drop)
    }

    /// Copies from the report area, from `offset` on.
    pub fn report_bytes(&self, offset: u64, buffer: &mut [u8]) -> Call<()> {
        self.copy_from(Area::Report, offset, buffer)
    }

    /// Copies from the channel of a cell with a real-time kernel, or from the shared block of
    /// another cell, from `offset` on.
    pub fn channel_bytes(&self, cell: u32, offset: u64, buffer: &mut [u8]) -> Call<()> {
        self.copy_from(Area::Channel { cell }, offset, buffer)
    }

    /// Copies bytes out of an area.
    fn copy_from(&self, area: Area, offset: u64, buffer: &mut [u8]) -> Call<()> {
        let (number, cell) = match area {
            Area::Report => (ioctl::IOC_REPORT, 0),
            Area::Channel { cell } => (ioctl::IOC_CHANNEL, cell),
        };
        let (address, length) = (buffer.as_mut_ptr() as u64, buffer.len() as u64);
        let mut transfer = Transfer { cell, reserved: 0, offset, buffer: address, length };
        // SAFETY: beside the structure, the call writes `length` bytes at the address, which are
        // those of `buffer`, held exclusively.
        let result = unsafe { self.raw(number, &mut transfer) };
        self.check(result).map(drop)
    }

    /// Writes to the shared block of a cell without a real-time kernel, from `offset` on.
    pub fn write_channel(&self, cell: u32, offset: u64, bytes: &[u8]) -> Call<()> {
        let (address, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        let mut transfer = Transfer { cell, reserved: 0, offset, buffer: address, length };
        // SAFETY: beside the structure, the call reads `length` bytes at the address, which are
        // those of `bytes`.
        let result = unsafe { self.raw(ioctl::IOC_CHANNEL_WRITE, &mut transfer) };
        self.check(result).map(drop)
    }

    /// Reads the hypervisor's report.
    pub fn report(&self, asked: &str) -> Result<Report> {
        let mut bytes = vec![0; size_of::<RawReport>()];
        self.report_bytes(0, &mut bytes).map_err(|refusal| refusal.asked(asked))?;
        Ok(Report::parse(&bytes))
    }

    /// Reads the counters of the real-time kernel in `cell`.
    pub fn counters(&self, cell: u32) -> Call<Counters> {
        let mut bytes = vec![0; COUNTERS_SIZE];
        self.channel_bytes(cell, 0, &mut bytes)?;
        Ok(Counters::parse(&bytes))
    }

    /// Reads which sections with interrupts off were the longest of the real-time kernel in `cell`.
    pub fn sections(&self, cell: u32) -> Call<Vec<Section>> {
        let mut bytes = vec![0; SECTIONS_SIZE];
        self.channel_bytes(cell, SECTIONS_OFFSET, &mut bytes)?;
        Ok(Section::parse_all(&bytes))
    }

    /// Reads the threads of the realm in `cell`.
    pub fn threads(&self, cell: u32) -> Call<Vec<Thread>> {
        let mut bytes = vec![0; SLOTS_SIZE];
        self.channel_bytes(cell, SLOTS_OFFSET, &mut bytes)?;
        Ok(Thread::parse_all(&bytes))
    }

    /// Reads which processes the realm in `cell` has, with their command names.
    pub fn programs(&self, cell: u32) -> Call<BTreeMap<Pid, String>> {
        let mut programs = BTreeMap::new();
        // Shadow threads that wait for a thread have no name.
        for thread in self.threads(cell)? {
            let name: &mut String = programs.entry(thread.pid).or_default();
            if name.is_empty() {
                *name = thread.command;
            }
        }
        Ok(programs)
    }

    /// Returns a reader of the hypervisor's log.
    pub fn hypervisor_log(&self) -> Reader<impl Source + '_> {
        let base = std::mem::offset_of!(RawReport, log) as u64;
        let read = move |offset: u64, buffer: &mut [u8]| {
            self.report_bytes(base + offset, buffer)
                .map_err(|refusal| refusal.asked("read the hypervisor's log"))
        };
        Reader::new(read, REPORT_LOG_SIZE)
    }

    /// Returns a reader of the log of the real-time kernel in `cell`.
    pub fn kernel_log(&self, cell: u32) -> Reader<impl Source + '_> {
        let base = std::mem::offset_of!(Channel, log) as u64;
        let read = move |offset: u64, buffer: &mut [u8]| {
            self.channel_bytes(cell, base + offset, buffer)
                .map_err(|refusal| refusal.asked("read the real-time kernel's log"))
        };
        Reader::new(read, crtos_abi::channel::KERNEL_LOG_SIZE)
    }

    /// Returns the descriptor, so that another program can inherit it.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into()
    }

    /// Makes a call whose argument is a number.
    fn number(&self, call: NumberCall, argument: u32) -> Call<u32> {
        // SAFETY: the calls that take a number read and write no memory of this process.
        let result =
            unsafe { nix::libc::ioctl(self.0.as_raw_fd(), call as u64, u64::from(argument)) };
        self.check(result)
    }

    /// Makes a call whose argument is a structure without addresses.
    fn structure<T: Argument>(&self, argument: &mut T) -> Call<u32> {
        // SAFETY: `T` says that the call reads and writes nothing but the structure.
        let result = unsafe { self.raw(T::NUMBER, argument) };
        self.check(result)
    }

    /// Makes call `number` with the address of `argument`. Returns what ioctl(2) does.
    ///
    /// # Safety
    /// The call reads and writes at most `size_of::<T>()` bytes at its argument, leaves a valid `T`
    /// there, and reads and writes other memory of this process only if the caller holds it for
    /// that.
    unsafe fn raw<T>(&self, number: u32, argument: &mut T) -> i32 {
        // SAFETY: `argument` is held exclusively; the caller ensures that nothing else is touched
        // but what it holds as well.
        unsafe { nix::libc::ioctl(self.0.as_raw_fd(), number.into(), std::ptr::from_mut(argument)) }
    }

    /// Returns the call's value, or why it was refused.
    fn check(&self, result: i32) -> Call<u32> {
        if let Ok(value) = u32::try_from(result) {
            return Ok(value);
        }
        let errno = Errno::last();
        let mut reason = Reason { text: [0; 256] };
        // SAFETY: `Reason` says that the call writes nothing but the structure.
        let words = match unsafe { self.raw(Reason::NUMBER, &mut reason) } {
            0 => padded(&reason.text),
            _ => String::new(),
        };
        Err(Refusal::new(errno, &words))
    }
}

/// Returns how a user who is not root gets to use the device.
fn way_in(machine: &Machine) -> String {
    match (machine.group(GROUP), is_open_to_group(machine)) {
        (None, _) => format!(
            "run it as root, or have root make the group that may use it: `groupadd --system {GROUP}`, \
             `usermod --append --groups {GROUP} USER`, {OPEN_TO_GROUP}; then log in again"
        ),
        (Some(_), false) => format!(
            "{PATH} is not the group's, which was made after `crtos up`; root gives it: {OPEN_TO_GROUP}"
        ),
        (Some(_), true) => format!(
            "run it as root, or have root make you a member: `usermod --append --groups {GROUP} USER`; \
             then log in again"
        ),
    }
}

/// Tells whether the device is the group's.
pub fn is_open_to_group(machine: &Machine) -> bool {
    let Ok(about) = fs::metadata(machine.path(PATH)) else { return false };
    Some(about.gid()) == machine.group(GROUP) && about.mode() & 0o60 == 0o60
}

/// Returns the failure of a command that needs the realm or a cell while there is none.
pub fn not_up(asked: &str) -> Failure {
    Failure::new(Code::NotUp, asked, "crtos is not up")
        .remedy("`crtos up --cpus LIST --memory SIZE` starts the real-time realm")
}

/// Returns the CPUs that cells have.
pub fn cell_cpus(info: &Info) -> CpuList {
    CpuList::from_mask(&info.cell_cpus)
}

/// Returns the number of the cell with the real-time kernel, if there is one.
pub fn realm(info: &Info) -> Option<u32> {
    (info.realm != ioctl::NO_CELL).then_some(info.realm)
}
