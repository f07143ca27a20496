// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/crtos`.
//!
//! Whoever opens the device and changes something holds it until `KEEP`: when the file is released
//! before, the module undoes everything (stops and destroys the cells the file made, brings CPUs
//! back, leaves the hypervisor). Calls up to [`IOC_KEEP`] need CAP_SYS_ADMIN; the others need
//! access to the device only. Each call returns 0 or a number, or -1 with `errno`; [`IOC_REASON`]
//! gives the last failure on the file in words.
//!
//! Numbers are full `_IOC` values, type 0xC7.
//!
//! [`IOC_INFO`], [`IOC_CELL_DESTROY`] and [`IOC_DISABLE`] are the same in all versions, so that the
//! command takes down what another version has started (decision 0058).

use crate::cell::{CELL_NAME_LEN, MAX_MSR_RANGES, MAX_PORT_RANGES, MsrRange, PortRange};

/// Type byte of the numbers.
pub const IOC_TYPE: u32 = 0xc7;

/// Launch the hypervisor on all CPUs; argument 0 or [`ENABLE_CHECKED_DMA`]. EALREADY if it runs,
/// EINVAL for another argument.
pub const IOC_ENABLE: u32 = 0x0000_c701;
/// Argument of [`IOC_ENABLE`]: the devices of Linux translate by Linux's own page tables, which are
/// checked when they are attached and when memory changes its owner. Without it they translate by
/// copies of them, so that no device of a hostile Linux reaches memory of a cell.
pub const ENABLE_CHECKED_DMA: u32 = 1;
/// Leave the hypervisor. EBUSY while a cell exists.
pub const IOC_DISABLE: u32 = 0x0000_c702;
/// Take CPUs and memory and create a cell; argument [`CreateCell`]. Returns the cell's number.
pub const IOC_CELL_CREATE: u32 = 0xc228_c703;
/// Copy into a cell; argument [`LoadCell`].
pub const IOC_CELL_LOAD: u32 = 0x4020_c704;
/// Start a cell; argument [`StartCell`].
pub const IOC_CELL_START: u32 = 0x4020_c705;
/// Stop a cell; the argument is its number.
pub const IOC_CELL_STOP: u32 = 0x0000_c706;
/// Stop and destroy a cell, give back what it had; the argument is its number. EBUSY while rich
/// real-time processes live in it unless [`CELL_FORCE`] is or-ed in, which kills their shadows
/// first, but not those of a locked cell.
pub const IOC_CELL_DESTROY: u32 = 0x0000_c707;
/// Keep what was done by this file: closing it undoes nothing any more.
pub const IOC_KEEP: u32 = 0x0000_c708;
/// Lock a cell that runs, and keep it; the argument is its number. It is destroyed only after it
/// has agreed: a real-time kernel is asked by [`IOC_CELL_DESTROY`], and agrees when no process is
/// left.
pub const IOC_CELL_LOCK: u32 = 0x0000_c709;
/// Have the real-time kernel of a locked cell take no new process from Linux until it ends; the
/// argument is the cell's number. Forks of its processes, and programs that these execute, go on.
pub const IOC_CELL_SEAL: u32 = 0x0000_c70a;
/// Give a PCI function to a cell; argument [`CellDevice`]. Its driver in Linux lets it go. ENODEV
/// if there is none, EBUSY if it cannot be told from others or a cell has it, EOPNOTSUPP if no
/// IOMMU confines it, ENOTTY if it cannot be reset. Returns the number of a
/// range of ports, or of a device that is described.
pub const IOC_DEVICE_ADD: u32 = 0x4088_c70b;
/// Take a device back from a cell; argument [`CellDevice`], of whose flags the bus counts. Linux's
/// driver gets it.
pub const IOC_DEVICE_REMOVE: u32 = 0x4088_c70c;
/// Show an interface of Linux's while the realm has its card; argument [`CellInterface`]. It goes
/// with the card. EEXIST or EBUSY if Linux has another one of that name or number, EOPNOTSUPP in a
/// network namespace, where none is shown.
pub const IOC_INTERFACE_SHOW: u32 = 0x4050_c70d;
/// Make Linux's end of the virtual Ethernet to the realm; argument [`CellEthernet`]. It goes with
/// the cell. EEXIST if Linux has an interface of that name, EBUSY if there is one already or the
/// cell runs.
pub const IOC_ETHERNET_ADD: u32 = 0xc020_c70e;
/// Make a link ([`crate::link`]); argument [`Link`], of which name and sizes count. Returns its
/// number. EEXIST if there is one of that name.
pub const IOC_LINK_CREATE: u32 = 0xc078_c718;
/// Give the memory of a link back; argument [`Link`], whose name counts. EBUSY while a cell is a
/// peer or a program of Linux has it open.
pub const IOC_LINK_DESTROY: u32 = 0xc078_c719;
/// Tell of the link with a number; argument [`Link`]. ENOENT if there is none. Anybody may ask.
pub const IOC_LINK_INFO: u32 = 0xc078_c71a;
/// Make a cell that has not run a peer of a link, until it is destroyed; argument [`LinkJoin`].
/// ENOENT if there is no such link, EBUSY if it has no such place.
pub const IOC_LINK_JOIN: u32 = 0xc030_c71b;
/// In [`CellDevice::flags`]: also one that cannot be reset.
pub const DEVICE_NO_RESET: u32 = 1;
/// There as well: a platform device of Linux, by its name on that bus. The realm alone gets such.
pub const DEVICE_ON_PLATFORM: u32 = 2;
/// There as well: a range of I/O ports, by the first and the last one in hexadecimal:
/// "378-37f". The realm alone gets such. EBUSY if a driver of Linux or a cell has one of them.
pub const DEVICE_PORTS: u32 = 4;
/// There as well: a function that interrupts by its pin alone, which is not to interrupt the realm.
/// Likewise a device that is described.
pub const DEVICE_NO_INTERRUPT: u32 = 8;
/// There as well: a device that has I/O ports, and that the realm's kernel drives, by its
/// description ([`crate::channel::WantedDevice::description`]); to take it back, by the name that
/// this tells. The realm alone gets such. EEXIST if the realm has one of that
/// name, and another description. EBUSY if
/// somebody has one of its ports, or its line; EOPNOTSUPP if its line is no pin of an I/O APIC, or
/// an IOMMU is in the way.
pub const DEVICE_DESCRIBED: u32 = 16;

/// Describe the system; argument [`Info`].
pub const IOC_INFO: u32 = 0x8040_c710;
/// Copy the report area; argument [`Transfer`].
pub const IOC_REPORT: u32 = 0x4020_c711;
/// Copy from the channel of a cell (for inmates: any of the shared block); argument [`Transfer`].
/// Without CAP_SYS_ADMIN: from the real-time kernel's counters, sections or slots alone (EPERM
/// otherwise), and of a slot no more than ps(1) tells of a thread; the rest is zero.
pub const IOC_CHANNEL: u32 = 0x4020_c712;
/// Tell in words why the last call on this file failed; argument [`Reason`].
pub const IOC_REASON: u32 = 0x8100_c713;
/// Ring the doorbell of a cell; the argument is its number and, from [`DOORBELL_CPU_SHIFT`] on, the
/// index of the CPU in the cell that is to hear it. Needs CAP_SYS_ADMIN.
pub const IOC_DOORBELL: u32 = 0x0000_c714;
/// See [`IOC_DOORBELL`].
pub const DOORBELL_CPU_SHIFT: u32 = 16;
/// Write to the shared block of a cell that has no real-time kernel; argument [`Transfer`]. Needs
/// CAP_SYS_ADMIN.
pub const IOC_CHANNEL_WRITE: u32 = 0x4020_c715;
/// Have the real-time kernel write a trace of what the argument names (`TRACE_WANT_*`), or stop it
/// (0). It stops at the latest when the file is closed. Needs CAP_SYS_ADMIN.
pub const IOC_TRACE: u32 = 0x0000_c716;

/// Become the shadow of a new process in the realm; argument [`Spawn`]. Once a file.
pub const IOC_SPAWN: u32 = 0xc020_c720;
/// Become a further shadow thread of the file's process, with whose first thread the caller shares
/// its memory. The low half of the argument is 0, or 1 + slot of the thread that made the caller a
/// process of its own; the high half is what the caller inherited
/// ([`crate::channel::Slot::heritage_or_payer`]). Returns the slot.
pub const IOC_THREAD: u32 = 0x0000_c721;
/// Deliver the result of the last request (if any) and wait for the next one; argument [`Remote`].
/// EINTR is never returned: a signal's handler runs and the call is resumed by calling it again
/// with `has_result` = 0. ESRCH when the realm is gone.
pub const IOC_REMOTE: u32 = 0xc048_c722;
/// Forward a signal to the realm; argument the first 48 bytes of its `siginfo`. Waits until the
/// last one of the calling thread was taken. Callable from a signal handler.
pub const IOC_SIGNAL: u32 = 0x4030_c723;
/// Open the device once more, for a shadow, which may have no right to do that by name (any more);
/// the argument is 0 or O_CLOEXEC. Returns the descriptor.
pub const IOC_REOPEN: u32 = 0x0000_c724;
/// Copy memory of the caller; argument [`CopyRange`]. EFAULT if not all of it is there, or may be
/// written to. What process_vm_readv(2) would do, which a container may forbid.
pub const IOC_COPY: u32 = 0x4018_c725;

/// Or-ed to the argument of [`IOC_CELL_DESTROY`].
pub const CELL_FORCE: u32 = 0x8000_0000;

/// In [`CreateCell::flags`]: the cell runs the real-time kernel (channel initialised, processes may
/// be spawned).
pub const CREATE_REALM: u32 = 1;
/// In [`CreateCell::flags`]: a call interrupts the CPU on which its shadow thread waits, and
/// `linux_cpu` only where that is not known.
pub const CREATE_CALLS_FOLLOW: u32 = 2;

/// Argument of [`IOC_CELL_CREATE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CreateCell {
    /// Name, zero padded.
    pub name: [u8; CELL_NAME_LEN],
    /// Linux CPU numbers, bit per CPU.
    pub cpus: [u64; 4],
    /// Bytes of private memory, a multiple of 2 MiB.
    pub private_size: u64,
    /// Bytes of the shared pool, a multiple of 2 MiB, may be 0.
    pub shared_size: u64,
    /// `CREATE_*`.
    pub flags: u32,
    /// Vector of the cell's doorbell.
    pub doorbell_vector: u32,
    /// Valid entries of `ports`.
    pub port_count: u32,
    /// Valid entries of `msrs`.
    pub msr_count: u32,
    /// The CPU of Linux that the cell's calls interrupt; see [`CREATE_CALLS_FOLLOW`].
    pub linux_cpu: u32,
    /// Vector of the cell's doorbell if it rings for a link; may be the same one.
    pub link_vector: u32,
    /// Ports the cell may use.
    pub ports: [PortRange; MAX_PORT_RANGES],
    /// Registers the cell may use.
    pub msrs: [MsrRange; MAX_MSR_RANGES],
    /// Out: APIC ids of the cell's CPUs in ascending order of Linux's numbers.
    pub apic_ids: [u32; crate::MAX_CELL_CPUS],
}

/// Argument of [`IOC_CELL_LOAD`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoadCell {
    /// Cell.
    pub cell: u32,
    /// Zero.
    pub reserved: u32,
    /// Address in the cell.
    pub cell_address: u64,
    /// Source in the caller.
    pub source: u64,
    /// Bytes.
    pub length: u64,
}

/// Bytes of the name of a PCI function, zero padded.
pub const FUNCTION_NAME_LEN: usize = 32;
/// Bytes of what tells which device is meant, zero padded.
pub const DEVICE_NAME_LEN: usize = 128;

/// Argument of [`IOC_DEVICE_ADD`] and [`IOC_DEVICE_REMOVE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CellDevice {
    /// Cell.
    pub cell: u32,
    /// `DEVICE_*`.
    pub flags: u32,
    /// Segment, bus, device and function, such as "0000:03:00.0", or the name, or the description;
    /// zero padded.
    pub name: [u8; DEVICE_NAME_LEN],
}

/// In [`CellInterface::flags`]: the cable leads to somebody.
pub const INTERFACE_CARRIER: u32 = 1;
/// There as well: frames go in both directions at once.
pub const INTERFACE_FULL_DUPLEX: u32 = 2;
/// Bytes of the name of an interface, with a zero (IFNAMSIZ).
pub const INTERFACE_NAME_LEN: usize = 16;

/// Argument of [`IOC_INTERFACE_SHOW`]: what an interface was under Linux.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CellInterface {
    /// Cell.
    pub cell: u32,
    /// `INTERFACE_*`.
    pub flags: u32,
    /// Segment, bus, device and function of its card, zero padded.
    pub function: [u8; FUNCTION_NAME_LEN],
    /// Its name, zero padded.
    pub name: [u8; INTERFACE_NAME_LEN],
    /// Its number.
    pub index: u32,
    /// Most bytes of a frame behind the header.
    pub mtu: u32,
    /// How many frames wait to be sent, at most.
    pub queue_length: u32,
    /// Mbit/s, or all bits if that is not known.
    pub speed: u32,
    /// Its own address.
    pub address: [u8; 6],
    /// Zero.
    pub reserved: [u8; 2],
}

/// Argument of [`IOC_ETHERNET_ADD`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CellEthernet {
    /// Cell.
    pub cell: u32,
    /// Out: Linux's number of the interface.
    pub index: u32,
    /// Name of the interface, zero padded.
    pub name: [u8; INTERFACE_NAME_LEN],
    /// Out: the address of the realm's end.
    pub address: [u8; 6],
    /// Zero.
    pub reserved: [u8; 2],
}

/// Argument of the calls about links.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Name, zero padded.
    pub name: [u8; 32],
    /// Its number, below [`crate::link::MAX_LINKS`].
    pub number: u32,
    /// How many peers there may be, 2 to [`crate::link::MAX_LINK_PEERS`].
    pub peers: u32,
    /// Bytes of the common section, a multiple of 4 KiB.
    pub common: u64,
    /// Bytes of each output section, likewise.
    pub output: u64,
    /// Out: the cell that is a peer, or [`NO_CELL`].
    pub cells: [u32; 8],
    /// Out: what the peers say of their states; 0: not there.
    pub states: [u32; 8],
}

/// Argument of [`IOC_LINK_JOIN`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LinkJoin {
    /// Name of the link, zero padded.
    pub name: [u8; 32],
    /// Cell.
    pub cell: u32,
    /// In: the number of the peer that it is to be, or 0: the first that is free. Out: which one.
    pub peer: u32,
    /// Out: the number of the link.
    pub number: u32,
    /// Zero.
    pub reserved: u32,
}

/// Argument of [`IOC_CELL_START`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StartCell {
    /// Cell.
    pub cell: u32,
    /// Zero.
    pub reserved: u32,
    /// Entry address.
    pub entry: u64,
    /// CR3 in the cell.
    pub page_table: u64,
    /// Passed in RDI.
    pub argument: u64,
}

/// Argument of [`IOC_INFO`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// [`crate::ABI_VERSION`] of the module.
    pub abi_version: u32,
    /// 1 while the hypervisor runs.
    pub enabled: u32,
    /// Bit per existing cell.
    pub cells: u32,
    /// Number of the cell with the real-time kernel, or [`NO_CELL`].
    pub realm: u32,
    /// Ticks of the time stamp counter per millisecond.
    pub tsc_khz: u32,
    /// 1 if Linux uses x2APIC mode.
    pub x2apic: u32,
    /// Living rich real-time processes.
    pub processes: u32,
    /// Zero.
    pub reserved: u32,
    /// Linux CPU numbers that cells have, bit per CPU.
    pub cell_cpus: [u64; 4],
}

/// No cell.
pub const NO_CELL: u32 = 0xffff_ffff;

/// Argument of [`IOC_REPORT`], [`IOC_CHANNEL`] and [`IOC_CHANNEL_WRITE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Cell (not for the report).
    pub cell: u32,
    /// Zero.
    pub reserved: u32,
    /// Offset in the area.
    pub offset: u64,
    /// Buffer of the caller.
    pub buffer: u64,
    /// Bytes.
    pub length: u64,
}

/// Argument of [`IOC_REASON`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Reason {
    /// Zero-terminated text: what was asked, why it was refused, what to do. Empty if nothing
    /// failed.
    pub text: [u8; 256],
}

/// Argument of [`IOC_SPAWN`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Spawn {
    /// Out: process number; `mmap` of the device at offset `process << 47 | address` gives the
    /// process's memory at that very address.
    pub process: u32,
    /// Out: slot of the first thread.
    pub slot: u32,
    /// In: 0, or 1 + slot of the thread that forked the caller.
    pub parent: u32,
    /// In, if `parent` is not 0: descriptor of the file that the process of `parent` has.
    pub parent_file: i32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Argument of [`IOC_REMOTE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// In: slot of the calling thread.
    pub slot: u32,
    /// In: 1 if `result` holds the result of the last request.
    pub has_result: u32,
    /// In: that result, as a system call returns it (-errno on failure).
    pub result: i64,
    /// Out: `OP_*`.
    pub op: u32,
    /// Out: system call number.
    pub nr: u32,
    /// Out: arguments of the operation or the system call.
    pub args: [u64; 6],
}

/// Argument of [`IOC_COPY`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    /// Address to which the bytes go.
    pub to: u64,
    /// Address from which they come.
    pub from: u64,
    /// Bytes.
    pub length: u64,
}
