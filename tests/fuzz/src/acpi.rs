// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACPI's tables of IOMMUs: what was put together from whole structures is found again, up to the
//! first one that does not fit, and whatever the bytes are, reading ends.

use bolero::TypeGenerator;
use crtos_iommu::acpi::Error;
use crtos_iommu::acpi::dmar::{Dmar, Structure};
use crtos_iommu::acpi::ivrs::{Block, Ivrs};

use crate::numbers::Rare;

/// A table.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    is_dmar: bool,
    #[generator(bolero::generator::produce::<Vec<Piece>>().with().len(0usize..8))]
    pieces: Vec<Piece>,
    #[generator(bolero::generator::produce::<Vec<Rare<Change>>>().with().len(0usize..4))]
    changes: Vec<Rare<Change>>,
    wrong_sum: Rare<u8>,
    /// How many bytes are left of it.
    cut: Rare<u16>,
}

/// A byte that is another one.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Change {
    place: u16,
    value: u8,
}

/// A structure.
#[derive(Clone, Debug, TypeGenerator)]
enum Piece {
    /// A unit, with registers in this page and some devices.
    Unit {
        page: u32,
        flags: u8,
        devices: Vec<Device>,
    },
    /// Memory of so many pages.
    Memory {
        page: u32,
        pages: u8,
        devices: Vec<Device>,
    },
    Other(u8, Vec<u8>),
}

/// A device of a unit.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Device {
    kind: u8,
    number: u8,
    id: u16,
    other: u16,
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[..4].copy_from_slice(if self.is_dmar { b"DMAR" } else { b"IVRS" });
        for piece in &self.pieces {
            bytes.extend(if self.is_dmar { piece.of_dmar() } else { piece.of_ivrs() });
        }
        for change in self.changes.iter().filter_map(|change| change.get()) {
            let place = 36 + usize::from(change.place) % (bytes.len() - 36);
            bytes[place] = change.value;
        }
        let length = (bytes.len() as u32).to_le_bytes();
        bytes[4..8].copy_from_slice(&length);
        bytes[9] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
        bytes[9] = bytes[9].wrapping_add(self.wrong_sum.get().unwrap_or(0));
        let cut = self.cut.get().map_or(bytes.len(), usize::from);
        bytes.truncate(cut);
        bytes
    }

    /// Whether nothing was changed.
    fn is_plain(&self) -> bool {
        let changed = self.changes.iter().any(|change| change.get().is_some());
        !changed && self.wrong_sum.get().is_none() && self.cut.get().is_none()
    }
}

impl Piece {
    fn of_dmar(&self) -> Vec<u8> {
        let (mut bytes, devices) = match self {
            Self::Unit { page, flags, devices } => {
                let base = u64::from(*page) << 12;
                ([&[0, 0, 0, 0, *flags, 0, 0, 0][..], &base.to_le_bytes()].concat(), &devices[..])
            }
            Self::Memory { page, pages, devices } => {
                let first = u64::from(*page) << 12;
                let last = first + (u64::from(*pages) << 12) + 0xfff;
                let head = &[1, 0, 0, 0, 0, 0, 0, 0][..];
                ([head, &first.to_le_bytes(), &last.to_le_bytes()].concat(), &devices[..])
            }
            Self::Other(kind, rest) => ([&[kind | 2, 1, 0, 0][..], rest].concat(), &[][..]),
        };
        for device in devices {
            let [low, high] = device.id.to_le_bytes();
            bytes.extend([device.kind, 8, 0, 0, device.number, high, low >> 3, low & 7]);
        }
        with_length(bytes)
    }

    fn of_ivrs(&self) -> Vec<u8> {
        let (mut bytes, devices) = match self {
            Self::Unit { page, flags, devices } => {
                let base = u64::from(*page) << 14;
                let head = &[0x11, *flags, 0, 0, 2, 0, 0x40, 0][..];
                ([head, &base.to_le_bytes(), &[0; 24]].concat(), &devices[..])
            }
            Self::Memory { page, pages, .. } => {
                let first = u64::from(*page) << 12;
                let size = (u64::from(*pages) << 12) + 0x1000;
                let head = &[0x20, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..];
                ([head, &first.to_le_bytes(), &size.to_le_bytes()].concat(), &[][..])
            }
            Self::Other(kind, rest) => ([&[kind | 0x80, 1, 0, 0][..], rest].concat(), &[][..]),
        };
        for device in devices {
            let [low, high] = device.id.to_le_bytes();
            let [other_low, other_high] = device.other.to_le_bytes();
            match device.kind % 3 {
                0 => bytes.extend([2, low, high, 0]),
                1 => bytes.extend([0x42, low, high, 0, 0, other_low, other_high, 0]),
                _ => {
                    let kind = 1 + device.kind % 2;
                    bytes.extend([0x48, 0, 0, 0, device.number, other_low, other_high, kind]);
                }
            }
        }
        with_length(bytes)
    }

    /// The number of its devices, if it keeps them.
    fn devices(&self, is_dmar: bool) -> usize {
        match self {
            Self::Unit { devices, .. } => devices.len(),
            Self::Memory { devices, .. } if is_dmar => devices.len(),
            _ => 0,
        }
    }
}

/// A structure with its length.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() as u16).to_le_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes
}

/// What was found: for each structure the page where its registers or its memory begin, if it has
/// any, and the number of its devices.
type Found = Vec<Result<(Option<u64>, usize), Error>>;

/// Runs the target.
pub fn acpi(input: &Input) {
    let bytes = input.bytes();
    let found = if input.is_dmar { dmar(&bytes) } else { ivrs(&bytes) };
    match &found {
        Ok(found) => assert!(found.len() <= bytes.len() / 4, "{} of {bytes:x?}", found.len()),
        Err(_) => assert!(!input.is_plain(), "{found:?}: {bytes:x?}"),
    }
    if input.is_plain() {
        let expected = input.pieces.iter().map(|piece| {
            let address = match piece {
                Piece::Unit { page, .. } if !input.is_dmar => Some(u64::from(*page) << 14),
                Piece::Unit { page, .. } | Piece::Memory { page, .. } => {
                    Some(u64::from(*page) << 12)
                }
                Piece::Other(..) => None,
            };
            Ok((address, piece.devices(input.is_dmar)))
        });
        assert_eq!(found, Ok(expected.collect()), "{bytes:x?}");
    }
}

fn dmar(bytes: &[u8]) -> Result<Found, Error> {
    let structures = Dmar::new(bytes)?.structures();
    Ok(structures
        .map(|structure| match structure? {
            Structure::Unit { registers, scope, .. } => {
                Ok((Some(*registers.start()), scope.devices().map_while(Result::ok).count()))
            }
            Structure::Reserved { memory, scope, .. } => {
                Ok((Some(*memory.start()), scope.devices().map_while(Result::ok).count()))
            }
            Structure::Other(_) => Ok((None, 0)),
        })
        .collect())
}

fn ivrs(bytes: &[u8]) -> Result<Found, Error> {
    let blocks = Ivrs::new(bytes)?.blocks();
    Ok(blocks
        .map(|block| match block? {
            Block::Unit { registers, scope, .. } => {
                Ok((Some(*registers.start()), scope.entries().map_while(Result::ok).count()))
            }
            Block::Memory { memory, .. } => Ok((Some(*memory.start()), 0)),
            Block::Other(_) => Ok((None, 0)),
        })
        .collect())
}
