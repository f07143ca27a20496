// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of programs that PCI functions reach.
//!
//! A [`Mapping`] has the pages pinned, and they are given back only when the hypervisor has said of
//! every function that it reaches them no more. So no function ever reaches memory that is somebody
//! else's by then, whatever a program does or how it ends.

use alloc::vec::Vec;

use crtos_abi::device::{MAPPED_READ, MAPPED_WRITE, MAX_MAPPED_PAGES};
use crtos_abi::hypercall::{HC_DEVICE_MAP, HC_DEVICE_UNMAP, HV_BUSY, HV_INVALID, HV_NO_MEMORY};
use crtos_vm::FRAME_SIZE;

use crate::arch::hypercall::call_device;
use crate::mm::space::Pinned;
use crate::time::Nanos;
use crate::warn;

/// Why a function does not find memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The tables are full.
    NoMemory,
    /// The realm does not have the function any more, or the IOMMU does not react.
    Gone,
}

/// Pages that functions find at an address of their own.
pub struct Mapping {
    /// The first address.
    input: u64,
    /// `None` if it is lost.
    pinned: Option<Pinned>,
    /// `MAPPED_*`.
    rights: u64,
    functions: Vec<u16>,
}

impl Mapping {
    /// No function finds them so far. They may read, write, or both.
    pub fn new(input: u64, pinned: Pinned, read: bool, write: bool) -> Self {
        let rights = if read { MAPPED_READ } else { 0 } | if write { MAPPED_WRITE } else { 0 };
        Self { input, pinned: Some(pinned), rights, functions: Vec::new() }
    }

    /// Has a function find the pages: all of them or, if that fails, none. Asks the hypervisor;
    /// thread context; may sleep.
    pub fn attach(&mut self, function: u16) -> Result<(), Refused> {
        let Some(pinned) = &self.pinned else { return Err(Refused::Gone) };
        if self.functions.try_reserve(1).is_err() {
            return Err(Refused::NoMemory);
        }
        self.functions.push(function);
        let refused = pinned.pieces(MAX_MAPPED_PAGES).find_map(|(page, frame, pages)| {
            let input = self.input + page * FRAME_SIZE;
            let arguments = [function.into(), input, frame.0 | self.rights, pages];
            Some(call(HC_DEVICE_MAP, arguments)).filter(|&result| result != 0)
        });
        let Some(refused) = refused else { return Ok(()) };
        self.detach(function);
        Err(if refused == HV_NO_MEMORY { Refused::NoMemory } else { Refused::Gone })
    }

    /// Has a function find them no more. Asks the hypervisor; thread context; may sleep.
    pub fn detach(&mut self, function: u16) {
        let Some(place) = self.functions.iter().position(|&other| other == function) else {
            return;
        };
        self.functions.swap_remove(place);
        let pages = self.pinned.as_ref().map_or(0, Pinned::pages);
        for page in (0..pages).step_by(MAX_MAPPED_PAGES as usize) {
            let input = self.input + page * FRAME_SIZE;
            let count = MAX_MAPPED_PAGES.min(pages - page);
            // A function that is gone reaches nothing.
            if !matches!(call(HC_DEVICE_UNMAP, [function.into(), input, count, 0]), 0 | HV_INVALID)
            {
                warn!("the IOMMU does not react: {} pages are lost", pages);
                if let Some(pinned) = self.pinned.take() {
                    pinned.lose();
                }
                return;
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        while let Some(&function) = self.functions.last() {
            self.detach(function);
        }
    }
}

/// Makes a call about devices, for some seconds while the hypervisor is busy with one of Linux.
fn call(number: u64, arguments: [u64; 4]) -> i64 {
    let result = call_device(number, arguments);
    if result != HV_BUSY {
        return result;
    }
    super::call_again(20_000, Nanos::from_micros(200), || call_device(number, arguments))
}
