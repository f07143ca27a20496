// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux writes for an IOMMU: whatever it is, a copy of it harms no cell, and decoding what
//! was encoded gives the same.

use bolero::TypeGenerator;
use crtos_iommu::amd::device::{Interrupts, device};
use crtos_iommu::amd::irte::Form;
use crtos_iommu::amd::{commands, irte as amd_irte};
use crtos_iommu::attachment::{Attachment, Translation};
use crtos_iommu::interrupt::{Cpus, Interrupt};
use crtos_iommu::vtd::irte as vtd_irte;
use crtos_iommu::vtd::queue::Mode;
use crtos_iommu::vtd::registers::{Capability, ExtendedCapability};
use crtos_partition::icr::{Address, Delivery};
use crtos_partition::ids::ApicId;

use crate::numbers::Few;

/// Words of Linux.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    words: [Word; 8],
    capability: u64,
    extended: u64,
    modes: [bool; 4],
}

/// A word of an entry.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Word {
    /// Low bits, and an address or a destination.
    Fields(Few, Few, Few),
    Any(u64),
}

impl Word {
    fn value(self) -> u64 {
        match self {
            Self::Fields(low, middle, high) => {
                low.value() | middle.value() << 16 | high.value() << 32
            }
            Self::Any(word) => word,
        }
    }
}

/// A cell has the CPU 3, and asked for vector 0x41.
struct Cells;

impl Cpus for Cells {
    fn foreign(&self) -> impl Iterator<Item = Address> {
        [Address { id: ApicId(3), logical: 8, clustered: false }].into_iter()
    }

    fn asked(&self, cpu: ApicId, vector: u8) -> bool {
        cpu == ApicId(3) && vector == 0x41
    }
}

/// What a unit may send.
fn harmless(interrupt: &Interrupt) {
    let ordinary = matches!(interrupt.delivery, Delivery::Fixed | Delivery::LowestPriority);
    let by_id = !interrupt.logical && interrupt.destination == 3;
    assert!(ordinary && (!by_id || interrupt.vector == 0x41), "{interrupt:x?}");
}

/// Runs the target.
pub fn iommu(input: &Input) {
    let words = input.words.map(Word::value);
    let [first, second, third, fourth, ..] = words;
    let [extended, wide, scalable, chipset] = input.modes;
    let raw = u128::from(second) << 64 | u128::from(first);

    let (copy, verdict) = vtd_irte::copy(raw, extended, &Cells);
    match vtd_irte::Irte::decode(copy, extended) {
        Ok(Some(entry)) => {
            assert!(verdict.is_ok());
            harmless(&entry.interrupt);
            assert_eq!(entry.encode(extended), copy);
        }
        Ok(None) => (),
        Err(error) => panic!("{error:?}: {raw:x} gave {copy:x}"),
    }
    let form = if wide { Form::Long { extended } } else { Form::Short };
    let (copy, verdict) = amd_irte::copy(raw, form, &Cells);
    match amd_irte::Irte::decode(copy, form) {
        Ok(Some(entry)) => {
            assert!(verdict.is_ok());
            harmless(&entry.interrupt);
            assert_eq!(entry.encode(form), copy);
        }
        Ok(None) => (),
        Err(error) => panic!("{error:?}: {raw:x} gave {copy:x}"),
    }

    let entry = [first, second, third, fourth];
    let copy = device(entry, None, Interrupts::Blocked, chipset);
    let attachment = Attachment::of_device(copy).map(|attachment| attachment.translation);
    assert_eq!(attachment, Ok(Translation::Blocked));
    assert_eq!(Interrupts::of_device(copy), Ok(Interrupts::Blocked));
    for attachment in [
        Attachment::of_context(raw),
        Attachment::of_scalable_context(entry),
        Attachment::of_process(words),
        Attachment::of_device(entry),
    ] {
        if let Ok(Translation::Tables { top, levels, .. }) = attachment.map(|a| a.translation) {
            assert!((1..=6).contains(&levels) && top.is_aligned(4096), "{attachment:?}");
        }
    }

    let capability = Capability(input.capability);
    let mode = Mode { capability, extended: ExtendedCapability(input.extended), wide, scalable };
    let _ = mode.decode(entry);
    let _ = commands::decode([first, second]);
}
