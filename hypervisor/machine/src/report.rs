// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux can read: counters, states and the log (see [`crtos_abi::report`]). Written only,
//! never read back.

use core::fmt::{self, Write};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crtos_abi::cell::CELL_NAME_LEN;
use crtos_abi::report::{CELL_NONE, CPU_ROOT, EXIT_REASONS, REPORT_LOG_SIZE, Report};
use crtos_abi::ring::RingHeader;
use crtos_abi::{ABI_VERSION, MAX_CPUS, image::REPORT_SIZE};
use crtos_partition::address::PhysAddr;
use crtos_partition::ids::{CellId, CpuIndex};
use crtos_partition::lifecycle::State;
use crtos_partition::log::{Line, LogWriter, RingMemory};

use crate::{direct_map, launch_info, processor};

/// Offset of the log's bytes, which follow its header.
const LOG_BYTES: usize = offset_of!(Report, log) + size_of::<RingHeader>();
const _: () = assert!(LOG_BYTES + REPORT_LOG_SIZE as usize <= REPORT_SIZE as usize);

/// Physical address of the report area; 0 before the launch.
static AREA: AtomicU64 = AtomicU64::new(0);
static WRITER: LogWriter = LogWriter::new();

/// The area, once there is one.
#[inline]
fn area() -> Option<*mut Report> {
    let area = AREA.load(Ordering::Relaxed);
    (area != 0).then(|| direct_map::pointer(PhysAddr::new(area)))
}

/// Stores a value into a field of the report, once there is one: `store!(AtomicU32: report.state =
/// 1)`.
macro_rules! store {
    ($atomic:ident: report.$($field:ident $([$index:expr])?).+ = $value:expr) => {
        if let Some(report) = area() {
            // SAFETY: `start` has made the area hold a `Report`, aligned and for ever. Only atomics
            // are taken from it, here alone, and guests only read.
            let field: *mut _ = unsafe { &raw mut (*report).$($field $([$index])?).+ };
            // SAFETY: A field of the report lives for ever, and has the size and alignment of the
            // atomic.
            unsafe { $atomic::from_ptr(field) }.store($value, Ordering::Release);
        }
    };
}

/// Starts the report in `area`.
///
/// # Safety
/// It is [`REPORT_SIZE`] bytes of RAM, aligned to that and in reach of the direct map, which the
/// hypervisor has for this alone and for ever.
pub(crate) unsafe fn start(area: PhysAddr, cpu_count: u32) {
    // SAFETY: Nothing but the report lies there.
    unsafe { direct_map::clear(area, REPORT_SIZE) };
    AREA.store(area.get(), Ordering::Relaxed);
    store!(AtomicU32: report.abi_version = ABI_VERSION);
    store!(AtomicU32: report.cpu_count = cpu_count);
    store!(AtomicU32: report.log.capacity = REPORT_LOG_SIZE);
    CpuIndex::first(MAX_CPUS).for_each(|cpu| owner(cpu, CPU_ROOT));
    state(Hypervisor::Runs);
}

/// State of the hypervisor.
#[derive(Clone, Copy)]
pub enum Hypervisor {
    /// It has left all CPUs.
    Left = 0,
    /// It runs.
    Runs = 1,
    /// It stopped because of a fault of its own.
    Died = 2,
}

/// Reports the state of the hypervisor.
pub(crate) fn state(state: Hypervisor) {
    store!(AtomicU32: report.state = state as u32);
}

/// Reports the number of free pages of the hypervisor.
pub(crate) fn free_pages(pages: usize) {
    store!(AtomicU64: report.free_pages = pages as u64);
}

/// Reports how many IOMMUs there are, how many of them Linux does not have itself, and how many of
/// these confine the addresses of Linux's devices, and their interrupts.
pub(crate) fn iommus(all: usize, taken: usize, confining: usize, remapping: usize) {
    store!(AtomicU32: report.iommus = all as u32);
    store!(AtomicU32: report.iommus_taken = taken as u32);
    store!(AtomicU32: report.iommus_confining = confining as u32);
    store!(AtomicU32: report.iommus_remapping = remapping as u32);
    store!(AtomicU32: report.dma_checked = launch_info::get().dma_checked);
}

/// Reports how often an entry of Linux's was refused in an IOMMU, for an interrupt or for memory,
/// and how often memory for a copy was missing.
pub(crate) fn iommu_refusals(interrupts: u64, memory: u64, missing: u64) {
    store!(AtomicU64: report.iommu_refusals = interrupts);
    store!(AtomicU64: report.dma_refusals = memory);
    store!(AtomicU64: report.dma_missing = missing);
}

/// Reports how many requests of a device IOMMUs refused. The `index` of the device is below
/// [`crtos_abi::report::MAX_FAULTING_DEVICES`].
pub(crate) fn device_faults(index: usize, device: u16, count: u32) {
    store!(AtomicU32: report.device_faults[index].device = device.into());
    store!(AtomicU32: report.device_faults[index].count = count);
}

/// Reports which device stands at `index`, below [`crtos_abi::device::MAX_DEVICES`], of which kind
/// it is, and whose.
pub(crate) fn device(index: usize, device: Option<(u16, u16, u32)>) {
    let (function, kind, cell) = device.unwrap_or_default();
    store!(AtomicU16: report.devices[index].present = 0);
    store!(AtomicU16: report.devices[index].function = function);
    store!(AtomicU32: report.devices[index].cell = cell);
    store!(AtomicU16: report.devices[index].present = kind);
}

/// Reports how often `cpu` left its guest for `reason`, below [`EXIT_REASONS`].
#[inline]
pub(crate) fn exits(cpu: CpuIndex, reason: usize, count: u64) {
    let reason = reason.min(EXIT_REASONS - 1);
    store!(AtomicU64: report.cpus[cpu.get()].exits[reason] = count);
}

/// Reports how often `cpu` rang a doorbell.
#[inline]
pub(crate) fn doorbells(cpu: CpuIndex, count: u64) {
    store!(AtomicU64: report.cpus[cpu.get()].doorbells = count);
}

/// Reports how long `cpu` has been in the hypervisor, in ticks of the time stamp counter.
#[inline]
pub(crate) fn ticks(cpu: CpuIndex, ticks: u64) {
    store!(AtomicU64: report.cpus[cpu.get()].ticks = ticks);
}

/// Reports who owns `cpu`: a cell, [`CPU_ROOT`] or [`crtos_abi::report::CPU_PARKED`].
pub(crate) fn owner(cpu: CpuIndex, owner: u32) {
    store!(AtomicU32: report.cpus[cpu.get()].owner = owner);
}

/// Reports the state of `cell`; `None` if it does not exist.
pub(crate) fn cell_state(cell: CellId, state: Option<State>) {
    let code = state.map_or(CELL_NONE, State::code);
    store!(AtomicU32: report.cells[cell.get()].state = code);
}

/// Reports a new cell: its name; nothing of the one before is left.
pub(crate) fn cell_created(cell: CellId, name: &[u8]) {
    cell_state(cell, None);
    cell_memory(cell, 0, 0);
    let none = Failure { cpu: None, reason: 0, rip: 0, address: 0, code: 0, qualification: 0 };
    cell_failed(cell, &none);
    for (index, byte) in name.iter().enumerate().take(CELL_NAME_LEN) {
        store!(AtomicU8: report.cells[cell.get()].name[index] = *byte);
    }
}

/// Reports the bytes of memory of `cell`.
pub(crate) fn cell_memory(cell: CellId, private: u64, shared: u64) {
    store!(AtomicU64: report.cells[cell.get()].private_bytes = private);
    store!(AtomicU64: report.cells[cell.get()].shared_bytes = shared);
}

/// How a cell broke its bounds.
pub struct Failure {
    /// On which CPU; `None` if it has not.
    pub cpu: Option<CpuIndex>,
    /// `EXIT_*` of [`crtos_abi::report`].
    pub reason: usize,
    /// Instruction pointer.
    pub rip: u64,
    /// Address, port or register.
    pub address: u64,
    /// Exit code of the processor.
    pub code: u64,
    /// Its first information word.
    pub qualification: u64,
}

/// Reports how `cell` failed. Its state is stored afterwards.
pub(crate) fn cell_failed(cell: CellId, failure: &Failure) {
    let cell = cell.get();
    store!(AtomicU32: report.cells[cell].cpu = failure.cpu.map_or(0, CpuIndex::get) as u32);
    store!(AtomicU32: report.cells[cell].reason = failure.reason as u32);
    store!(AtomicU64: report.cells[cell].rip = failure.rip);
    store!(AtomicU64: report.cells[cell].address = failure.address);
    store!(AtomicU64: report.cells[cell].code = failure.code);
    store!(AtomicU64: report.cells[cell].qualification = failure.qualification);
}

struct Ring;

impl RingMemory for Ring {
    fn capacity(&self) -> u64 {
        REPORT_LOG_SIZE.into()
    }

    fn store(&self, offset: u64, byte: u8) {
        let Some(report) = area() else { return };
        assert!(offset < REPORT_LOG_SIZE.into());
        // SAFETY: The log's bytes lie in the area behind the header of the log.
        let place = unsafe { report.cast::<u8>().add(LOG_BYTES + offset as usize) };
        // SAFETY: The byte lies in the area, of which only atomics are taken, here alone, and
        // guests only read.
        unsafe { AtomicU8::from_ptr(place) }.store(byte, Ordering::Relaxed);
    }

    fn publish(&self, written: u64) {
        store!(AtomicU64: report.log.written = written);
    }
}

/// Appends a line to the log; the time is put in front.
pub fn line(text: fmt::Arguments) {
    let mut line = Line::at(processor::tsc(), launch_info::get().tsc_khz);
    // A line that is too long is cut.
    let _ = line.write_fmt(text);
    WRITER.append(&Ring, line.finish());
}

/// Appends the last words of the hypervisor to the log.
pub fn died(text: fmt::Arguments) {
    line(format_args!("hypervisor: died: {text}"));
    state(Hypervisor::Died);
}
