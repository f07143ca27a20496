// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux can read: counters, states and the log (see [`crtos_abi::report`]). Written only, never read back.

use core::fmt::{self, Write};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crtos_abi::report::{CellReport, CpuReport, EXIT_REASONS, REPORT_LOG_SIZE, Report};
use crtos_abi::ring::RingHeader;
use crtos_abi::{ABI_VERSION, image::REPORT_SIZE};
use crtos_partition::log::{Line, LogWriter, RingMemory};

use crate::machine::{self, Failure};
use crate::{host, memory};

const LOG: usize = offset_of!(Report, log);
const LOG_BYTES: usize = LOG + size_of::<RingHeader>();
const _: () = assert!(LOG_BYTES + REPORT_LOG_SIZE as usize <= REPORT_SIZE as usize);

/// Physical address of the report area; 0 before the launch.
static AREA: AtomicU64 = AtomicU64::new(0);
static WRITER: LogWriter = LogWriter::new();

/// The `T` at `offset` of the area.
fn field<T>(offset: usize) -> Option<&'static T> {
    let area = AREA.load(Ordering::Relaxed);
    // SAFETY: The area is physically contiguous, REPORT_SIZE bytes and read-only for guests; only atomics are taken from it.
    (area != 0).then(|| unsafe { &*memory::pointer::<T>(area + offset as u64) })
}

fn store_u32(offset: usize, value: u32) {
    if let Some(field) = field::<AtomicU32>(offset) {
        field.store(value, Ordering::Release);
    }
}

fn store_u64(offset: usize, value: u64) {
    if let Some(field) = field::<AtomicU64>(offset) {
        field.store(value, Ordering::Release);
    }
}

/// Starts the report in `area`.
pub fn start(area: u64, cpu_count: u32) {
    memory::clear(area, REPORT_SIZE);
    AREA.store(area, Ordering::Relaxed);
    store_u32(offset_of!(Report, abi_version), ABI_VERSION);
    store_u32(offset_of!(Report, cpu_count), cpu_count);
    store_u32(LOG + offset_of!(RingHeader, capacity), REPORT_LOG_SIZE);
    for cpu in 0..crtos_abi::MAX_CPUS {
        owner(cpu, crtos_abi::report::CPU_ROOT);
    }
    state(1);
}

/// State of the hypervisor: 0 left, 1 runs, 2 died.
pub fn state(state: u32) {
    store_u32(offset_of!(Report, state), state);
}

/// Free pages of the hypervisor.
pub fn free_pages(pages: usize) {
    store_u64(offset_of!(Report, free_pages), pages as u64);
}

fn cpu_field(cpu: usize, offset: usize) -> usize {
    offset_of!(Report, cpus) + cpu * size_of::<CpuReport>() + offset
}

/// How often `cpu` left its guest for `reason`.
pub fn exits(cpu: usize, reason: usize, count: u64) {
    let reason = reason.min(EXIT_REASONS - 1);
    store_u64(cpu_field(cpu, offset_of!(CpuReport, exits) + reason * 8), count);
}

/// How often `cpu` rang a doorbell.
pub fn doorbells(cpu: usize, count: u64) {
    store_u64(cpu_field(cpu, offset_of!(CpuReport, doorbells)), count);
}

/// Who owns `cpu`.
pub fn owner(cpu: usize, owner: u32) {
    store_u32(cpu_field(cpu, offset_of!(CpuReport, owner)), owner);
}

fn cell_field(cell: usize, offset: usize) -> usize {
    offset_of!(Report, cells) + cell * size_of::<CellReport>() + offset
}

/// State of `cell` (`CELL_*`).
pub fn cell_state(cell: usize, state: u32) {
    store_u32(cell_field(cell, offset_of!(CellReport, state)), state);
}

/// A new cell: its name; nothing of the one before is left.
pub fn cell_created(cell: usize, name: &[u8]) {
    for offset in (0..size_of::<CellReport>()).step_by(8) {
        store_u64(cell_field(cell, offset), 0);
    }
    for (index, byte) in name.iter().enumerate() {
        if let Some(field) =
            field::<AtomicU8>(cell_field(cell, offset_of!(CellReport, name) + index))
        {
            field.store(*byte, Ordering::Relaxed);
        }
    }
}

/// Bytes of memory of `cell`.
pub fn cell_memory(cell: usize, private: u64, shared: u64) {
    store_u64(cell_field(cell, offset_of!(CellReport, private_bytes)), private);
    store_u64(cell_field(cell, offset_of!(CellReport, shared_bytes)), shared);
}

/// How `cell` failed. Its state is stored afterwards.
pub fn cell_failed(cell: usize, failure: &Failure) {
    let store = |offset, value| store_u64(cell_field(cell, offset), value);
    store_u32(cell_field(cell, offset_of!(CellReport, cpu)), failure.cpu as u32);
    store_u32(cell_field(cell, offset_of!(CellReport, reason)), failure.reason as u32);
    store(offset_of!(CellReport, rip), failure.rip);
    store(offset_of!(CellReport, address), failure.address);
    store(offset_of!(CellReport, code), failure.code);
    store(offset_of!(CellReport, qualification), failure.qualification);
}

struct Ring;

impl RingMemory for Ring {
    fn capacity(&self) -> u64 {
        REPORT_LOG_SIZE.into()
    }

    fn store(&self, offset: u64, byte: u8) {
        if let Some(field) = field::<AtomicU8>(LOG_BYTES + offset as usize) {
            field.store(byte, Ordering::Relaxed);
        }
    }

    fn publish(&self, written: u64) {
        store_u64(LOG + offset_of!(RingHeader, written), written);
    }
}

/// Appends a line to the log; the time is put in front.
pub fn line(text: fmt::Arguments) {
    let mut line = Line::at(host::tsc(), machine::launch_info().tsc_khz);
    // A line that is too long is cut.
    let _ = line.write_fmt(text);
    WRITER.append(&Ring, line.finish());
}

/// The last words of the hypervisor.
pub fn died(text: fmt::Arguments) {
    line(format_args!("hypervisor: died: {text}"));
    state(2);
}
