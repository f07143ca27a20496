// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions and interrupt lines of cells: Linux gives them and takes them back, cells drive
//! them.
//!
//! Linux's calls hold its CPUs while what its devices reach changes. A cell's calls wait for
//! nobody: while one of Linux's is under way they are refused.

use core::fmt;

use crtos_abi::hypercall::*;
use crtos_iommu::Requester;
use crtos_iommu::mappings::Request;
use crtos_machine::cell;
use crtos_machine::cpu::{self, Owner};
use crtos_machine::io_apic::Pin;
use crtos_machine::local::Local;
use crtos_machine::ownership::{self, Ownership, lock};
use crtos_machine::{launch_info, report};
use crtos_partition::address::PhysAddr;
use crtos_partition::error::Refusal;
use crtos_partition::ids::{ApicId, CellId};
use crtos_partition::lifecycle::State;

use crate::interrupts::OfCells;
use crate::linux;

/// Gives a function to a cell. See [`crtos_abi::hypercall::HC_DEVICE_ADD`].
pub fn add(local: &mut Local, id: CellId, config: PhysAddr) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    check_open(id)?;
    let config = ownership.read(config)?;
    // From here on no CPU of Linux is between two accesses to configuration space.
    ownership.watch_configuration();
    linux::flush(local, linux::cpus())?;
    let device = ownership.check_device(id, &config)?;
    let _hold = linux::hold(local)?;
    ownership.add_device(id, &device, &OfCells)?;
    if cell::runs(id)
        && let Err(refusal) = ownership.connect(id, device.function, &OfCells)
    {
        // Nothing of it has run: no CPU of the cell has used it.
        let _ = ownership.disconnect(id, device.function, &OfCells);
        let _ = ownership.remove_device(id, device.function, &OfCells);
        return Err(refusal);
    }
    tell(local, id, format_args!("has device {}", Requester(device.function)));
    Ok(())
}

/// Takes a function back. See [`crtos_abi::hypercall::HC_DEVICE_REMOVE`].
pub fn remove(local: &mut Local, id: CellId, function: u64) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    check_open(id)?;
    let function = named(function)?;
    {
        let _hold = linux::hold(local)?;
        ownership.disconnect(id, function, &OfCells)?;
    }
    // Those that are about to come in have cached nothing.
    let running = cpu::those(|cpu| cpu.owner() == Owner::Cell(id));
    linux::flush(local, running)?;
    let _hold = linux::hold(local)?;
    ownership.remove_device(id, function, &OfCells)?;
    tell(local, id, format_args!("has device {} no more", Requester(function)));
    Ok(())
}

/// Gives an interrupt line to a cell. See [`crtos_abi::hypercall::HC_LINE_ADD`].
pub fn add_line(
    local: &mut Local,
    id: CellId,
    number: u64,
    place: u64,
    requester: u64,
) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    check_open(id)?;
    let requester = (requester != NO_REQUESTER).then(|| named(requester).map(Requester));
    let requester = requester.transpose()?;
    let entry = u8::try_from(place >> 16).map_err(|_| Refusal::Invalid)?;
    let pin = Pin { io_apic: usize::from(place as u16), entry };
    let _hold = linux::hold(local)?;
    ownership.add_line(id, named(number)?, pin, requester, &OfCells)?;
    let io_apic = pin.io_apic;
    tell(local, id, format_args!("has line {number}, pin {entry} of I/O APIC {io_apic}"));
    Ok(())
}

/// Takes an interrupt line back. See [`crtos_abi::hypercall::HC_LINE_REMOVE`].
pub fn remove_line(local: &mut Local, id: CellId, number: u64) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    check_open(id)?;
    let _hold = linux::hold(local)?;
    ownership.remove_line(id, named(number)?)?;
    tell(local, id, format_args!("has line {number} no more"));
    Ok(())
}

/// Logs what became of a cell.
fn tell(local: &Local, id: CellId, what: fmt::Arguments<'_>) {
    report::line(format_args!("cpu{} {}: {what}", local.index(), cell::get(id).name()));
}

/// Refuses where a cell has to agree.
fn check_open(id: CellId) -> Result<(), Refusal> {
    match cell::get(id).state() {
        None => Err(Refusal::NoCell),
        Some(State::Locked) => Err(Refusal::Locked),
        Some(State::Reclaiming) => Err(Refusal::Busy),
        Some(State::Created | State::Running | State::Stopped | State::Failed) => Ok(()),
    }
}

/// Connects the functions of a cell that is about to run.
pub fn connect(local: &mut Local, ownership: &mut Ownership, id: CellId) -> Result<(), Refusal> {
    if ownership.device(id, 0).is_none() {
        return Ok(());
    }
    let _hold = linux::hold(local)?;
    ownership.connect_all(id, &OfCells)
}

/// Disconnects the functions of a cell that no CPU runs any more, and silences its lines.
pub fn disconnect(local: &mut Local, ownership: &mut Ownership, id: CellId) -> Result<(), Refusal> {
    ownership.silence_lines(id);
    if !ownership.any_connected(id) {
        return Ok(());
    }
    let _hold = linux::hold(local)?;
    ownership.disconnect_all(id, &OfCells)
}

/// Gives the functions and lines of a cell back to Linux that no CPU runs any more.
pub fn remove_all(local: &mut Local, ownership: &mut Ownership, id: CellId) -> Result<(), Refusal> {
    ownership.remove_lines(id);
    if ownership.device(id, 0).is_none() {
        return Ok(());
    }
    let _hold = linux::hold(local)?;
    ownership.remove_all(id, &OfCells)
}

/// Carries out a call of a cell about its devices, unless one of Linux is under way.
pub fn call(id: CellId, call: u64, arguments: [u64; 4]) -> Result<i64, Refusal> {
    let [first, second, third, fourth] = arguments;
    let mut own = ownership::try_lock().ok_or(Refusal::Busy)?;
    match call {
        HC_DEVICE_LIST => own.listed(id, first).ok_or(Refusal::Invalid),
        HC_DEVICE_READ => own.read_register(id, named(first)?, second).map(i64::from),
        HC_DEVICE_WRITE => {
            let (value, mask) = (third as u32, fourth as u32);
            own.write_register(id, named(first)?, second, value, mask).map(|()| 0)
        }
        HC_DEVICE_INTERRUPT => {
            let target = target(id, third, fourth)?;
            let (address, data) = own.set_device_message(id, named(first)?, second, target)?;
            Ok(i64::from(address & 0xf_ffff) << 32 | i64::from(data))
        }
        HC_LINE_INTERRUPT => {
            own.set_line(id, named(first)?, target(id, second, third)?).map(|()| 0)
        }
        HC_DEVICE_MAP => {
            let request = Request::Map { input: second, memory: third, pages: fourth };
            own.remap(id, named(first)?, request).map(|()| 0)
        }
        HC_DEVICE_UNMAP => {
            let request = Request::Unmap { input: second, pages: third };
            own.remap(id, named(first)?, request).map(|()| 0)
        }
        _ => Err(Refusal::NoCall),
    }
}

/// The CPU of a cell and the vector that it names; `None` if nobody is to be interrupted.
fn target(id: CellId, vector: u64, apic: u64) -> Result<Option<(ApicId, u8)>, Refusal> {
    match vector {
        0 => Ok(None),
        32..=255 => {
            let apic = u32::try_from(apic).map(ApicId).map_err(|_| Refusal::Invalid)?;
            let mut own = cell::get(id).cpus().map(launch_info::apic_id);
            if !own.any(|own| own == apic) {
                return Err(Refusal::Owned);
            }
            Ok(Some((apic, vector as u8)))
        }
        _ => Err(Refusal::Invalid),
    }
}

/// The function or the line that a guest names.
fn named(function: u64) -> Result<u16, Refusal> {
    u16::try_from(function).map_err(|_| Refusal::Invalid)
}
