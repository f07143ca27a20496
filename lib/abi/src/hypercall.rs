// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls into the hypervisor: `VMMCALL` (`VMCALL` on Intel) with the number in RAX,
//! arguments in RDI, RSI, RDX, R10 and the result in RAX. Only privilege level 0
//! may call. A negative result is one of the `HV_*` errors. All other registers are kept.
//!
//! Calls of the root cell do a bounded amount of work: at most one block of 2 MiB is
//! cleared or copied a call.

/// Returns [`crate::ABI_VERSION`]; any cell may call it.
pub const HC_VERSION: u64 = 0;
/// Root: leave the hypervisor on this CPU (see [`crate::image`], step 5). Refused with [`HV_BUSY`]
/// while a cell exists.
pub const HC_LEAVE: u64 = 1;
/// Root: create a cell. RDI = physical address of a [`crate::cell::CellConfig`]. Returns the cell's
/// number (0..MAX_CELLS). Refused with [`HV_DENIED`] if a CPU has left the hypervisor.
pub const HC_CELL_CREATE: u64 = 2;
/// Root: give memory to a cell that has not run, or was reclaimed since. RDI = cell, RSI = physical
/// address of a [`crate::cell::Region`] (at most 2 MiB; private ones are cleared and removed from
/// the root cell). A cell that runs, locked or not, takes shared memory in its share window alone
/// ([`crate::share`]); refused with [`HV_BUSY`] while a CPU of the cell may still reach what has
/// left a place.
pub const HC_CELL_MAP: u64 = 3;
/// Root: copy into a private region of a cell that has not run since it got its memory. RDI = cell,
/// RSI = address in the cell, RDX = physical source in the root cell, R10 = bytes (at most 64 KiB;
/// neither side crosses a 2 MiB boundary).
pub const HC_CELL_LOAD: u64 = 4;
/// Root: start a cell that has not run since it got its memory; its CPUs must be offline in Linux.
/// RDI = cell, RSI = entry address, RDX = CR3 in the cell, R10 = argument. See [`crate::boot`] for
/// the state in which CPUs start.
pub const HC_CELL_START: u64 = 5;
/// Root: stop a cell; its CPUs are parked, its memory stays until [`HC_CELL_RECLAIM`]. Stopping a
/// stopped or failed cell succeeds. RDI = cell.
pub const HC_CELL_STOP: u64 = 6;
/// Root: take back the memory of a stopped cell, one region a call, cleared. RDI = cell. Returns 1
/// while something is left, 0 when all is back: the cell then takes memory again.
pub const HC_CELL_RECLAIM: u64 = 7;
/// Root: forget a stopped cell without memory. RDI = cell. Its CPUs wait for Linux's start-up IPI,
/// and Linux has its devices.
pub const HC_CELL_DESTROY: u64 = 8;
/// Root: say whether doorbells of a cell may ring on a CPU. RDI = cell, RSI = vector (32..=255), or
/// 0 if they no longer may, RDX = APIC id of a CPU of the root cell, R10 = 1 to make that CPU the
/// doorbell's home, 0 otherwise. A doorbell rings at home if it names no CPU on which it may ring.
/// A cell has one home at a time.
pub const HC_DOORBELL_ROUTE: u64 = 9;
/// Ring a doorbell. Root: RDI = cell, RSI = index of a CPU in the cell, on which it rings, RDX = 1
/// for a link, 0 otherwise. Cell: RSI = 0, RDI = number of a CPU of the root cell, or
/// [`DOORBELL_ANYWHERE`]. It rings on that CPU if the root cell has allowed so by
/// [`HC_DOORBELL_ROUTE`], else at the doorbell's home. Or RSI = number of a cell that is a
/// neighbour ([`HC_CELL_LINK`]) plus 1, RDI = index of a CPU there; [`HV_DENIED`] if it is none,
/// [`HV_BUSY`] if it does not run, or has no such CPU.
pub const HC_DOORBELL: u64 = 10;
/// Cell: append the byte in RDI to the hypervisor's log, line by line, with the cell's name.
pub const HC_PUTC: u64 = 11;
/// Any cell: what became of the root cell; returns a `ROOT_*` number. When that changes, the
/// doorbell of each cell rings on its first CPU.
pub const HC_ROOT_STATE: u64 = 12;
/// Root: lock a running cell. RDI = cell. From then on only the cell ends that, by
/// [`HC_CELL_UNLOCK`] or by breaking its bounds; until then the calls that would stop, fill, start,
/// reclaim or destroy it are refused with [`HV_LOCKED`], and Linux neither resets the machine nor
/// switches it off: whoever tries halts Linux. Refused with [`HV_OWNED`] if another cell has a port
/// that resets the machine.
pub const HC_CELL_LOCK: u64 = 13;
/// Cell: agree to its end, if it is locked. The last locked cell that does so beside a halted root
/// cell has the machine reset, as the root cell wanted.
pub const HC_CELL_UNLOCK: u64 = 14;
/// Cell: the address at which it sees the byte of the machine's memory at the address in RDI, which
/// it knows from a machine check. [`HV_INVALID`] if it does not see that.
pub const HC_ADDRESS: u64 = 15;

/// Root: give a PCI function or a platform device to a cell that has not run, or runs and is not
/// locked. RDI = cell, RSI = physical address of a [`crate::device::DeviceConfig`]. Linux loses its
/// registers, and may not write its configuration space. Refused with [`HV_DENIED`] if it is a
/// function that no IOMMU confines, with [`HV_OWNED`] if a cell has it, its number or one of its
/// ports, or its memory is not Linux's.
pub const HC_DEVICE_ADD: u64 = 16;
/// Root: take a function back. RDI = cell, RSI = function. It does not master the bus any more.
pub const HC_DEVICE_REMOVE: u64 = 17;
/// Cell: the function number RDI of those that it has (0 is the first one), and
/// [`crate::device::LISTED_PLATFORM`] if that is none, but a platform device, and
/// [`crate::device::LISTED_WITHOUT_MEMORY`] if it reaches none of its own accord; then also how
/// many bits its addresses have, from [`crate::device::LISTED_WIDTH_SHIFT`] on; [`HV_INVALID`] if
/// the cell does not have so many. The order changes when a function goes. Calls of cells about
/// devices are refused with [`HV_BUSY`] while a call of Linux is under way: try again.
pub const HC_DEVICE_LIST: u64 = 18;
/// Cell: read four bytes of a function's configuration space. RDI = function, RSI = register (a
/// multiple of 4 below 256).
pub const HC_DEVICE_READ: u64 = 19;
/// Cell: write there. RDI, RSI = as to read, RDX = value, R10 = which bits of it are written. See
/// [`crate::device`] for what is not lost.
pub const HC_DEVICE_WRITE: u64 = 20;
/// Cell: have a message of a function interrupt a CPU of the cell. RDI = function, RSI = number of
/// the message (below [`crate::device::MAX_MESSAGES`]), RDX = vector (32..=255; 0: no more), R10 =
/// APIC id of the CPU. Returns what the function is to send: the data in bits 31..0, the address
/// less 0xFEE0_0000 from bit 32 on.
pub const HC_DEVICE_INTERRUPT: u64 = 21;

/// Root: give an interrupt line to a cell that has not run, or runs and is not locked. RDI = cell,
/// RSI = number by which the cell knows the line (below 2^16), RDX = index of the I/O APIC (see
/// [`crate::image::LaunchInfo::io_apics`]) in bits 15..0 and the pin there in bits 31..16, R10 =
/// the function as which that I/O APIC sends messages, or [`NO_REQUESTER`]. The pin's entry is
/// masked, keeps trigger mode and polarity, and is not Linux's until [`HC_LINE_REMOVE`], or until
/// the cell is destroyed. Refused with [`HV_OWNED`] if a cell has that pin or number, with
/// [`HV_DENIED`] if an IOMMU is on the way that is not the hypervisor's, or cannot tell who sends.
pub const HC_LINE_ADD: u64 = 22;
/// Cell: have a line interrupt a CPU of the cell. RDI = number of the line, RSI = vector (32..=255;
/// 0: no more), RDX = APIC id of the CPU. [`HV_INVALID`] if the cell does not have the line,
/// [`HV_DENIED`] if it cannot interrupt that CPU; refused with [`HV_BUSY`] as calls about devices
/// are. What the line asks for meanwhile may be lost if it is triggered by an edge.
pub const HC_LINE_INTERRUPT: u64 = 23;

/// Cell: have a function that reaches no memory of its own accord find pages of the cell. RDI =
/// function, RSI = first address that the function names, RDX = where the cell has the memory, and
/// [`crate::device::MAPPED_READ`], [`crate::device::MAPPED_WRITE`], R10 = number of pages (1 to
/// [`crate::device::MAX_MAPPED_PAGES`]); all addresses are multiples of 4 KiB. [`HV_INVALID`] if
/// the cell does not have the function or all of the memory, or the function finds something there
/// already; [`HV_NO_MEMORY`] if there are [`crate::device::MAX_DEVICE_TABLES`] tables: then a part
/// may be found, and is to be taken back. [`HV_BUSY`] as calls about devices.
pub const HC_DEVICE_MAP: u64 = 24;
/// Cell: have a function find none of these pages any more; where it finds nothing, nothing
/// happens. RDI = function, RSI = first address, RDX = number of pages. When it returns 0, nothing
/// that the function has begun reaches the memory any more; [`HV_TIMEOUT`] if the IOMMU does not
/// react.
pub const HC_DEVICE_UNMAP: u64 = 25;

/// Root: take an interrupt line back from a cell that is not locked. RDI = cell, RSI = number by
/// which the cell knew it. It is masked, and Linux's.
pub const HC_LINE_REMOVE: u64 = 26;

/// Cell: give places of the share window up, whether something is there or not. RDI = index of a
/// word of 64 places, RSI = which of them. Each CPU of the cell forgets its translations; until all
/// have, the root cell is told that the cell may reach the pages. [`HV_BUSY`] as calls about
/// devices.
pub const HC_PLACES_LEAVE: u64 = 27;
/// Root: tell whether a cell reaches a page at a place of its share window. RDI = cell, RSI =
/// number of the place. Returns 1 or 0; [`HV_BUSY`] while it is gone and a CPU of the cell may
/// still reach it.
pub const HC_PLACE_HELD: u64 = 28;

/// Root: make two cells neighbours, which may ring each other's doorbells until one of them is
/// destroyed. RDI, RSI = the cells. Refused with [`HV_LOCKED`] if one is locked. When a cell has
/// failed, and no CPU runs it any more, the root cell hears that cell's doorbell.
pub const HC_CELL_LINK: u64 = 29;

/// For [`HC_LINE_ADD`]: nobody knows.
pub const NO_REQUESTER: u64 = !0;

/// For [`HC_ROOT_STATE`]: the root cell runs, as far as the hypervisor can tell.
pub const ROOT_RUNS: i64 = 0;
/// For [`HC_ROOT_STATE`]: the hypervisor has halted all CPUs of the root cell, for good: it wanted
/// to reset the machine, or to switch it off, beside a cell that does not agree to its end.
pub const ROOT_HALTED: i64 = 1;

/// For [`HC_DOORBELL`]: no CPU in particular.
pub const DOORBELL_ANYWHERE: u64 = !0;

/// The argument is out of range or contradicts itself.
pub const HV_INVALID: i64 = -1;
/// No such cell.
pub const HV_NO_CELL: i64 = -2;
/// The cell is not in a state that allows it, or something still uses it.
pub const HV_BUSY: i64 = -3;
/// The hypervisor's memory is used up.
pub const HV_NO_MEMORY: i64 = -4;
/// The memory, CPU or port belongs to another cell or to the hypervisor.
pub const HV_OWNED: i64 = -5;
/// Not for the caller.
pub const HV_DENIED: i64 = -6;
/// No such call.
pub const HV_NO_CALL: i64 = -7;
/// A CPU did not react in time (2 s; a virtual machine's CPU may not run for a while).
pub const HV_TIMEOUT: i64 = -8;
/// The cell is locked.
pub const HV_LOCKED: i64 = -9;
