// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACPI's tables of IOMMUs: those of the manuals and of emulators, and hostile ones.

use crtos_iommu::Requester;
use crtos_iommu::acpi::Error;
use crtos_iommu::acpi::dmar::{Device, Dmar, Kind, Structure};
use crtos_iommu::acpi::ivrs::{Block, Entry, Ivrs};
use proptest::prelude::*;

/// A table with its length and its sum.
fn table(signature: &[u8; 4], head: &[u8], structures: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[..4].copy_from_slice(signature);
    bytes.extend(head);
    bytes.extend(structures.concat());
    seal(bytes)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() as u32).to_le_bytes();
    bytes[4..8].copy_from_slice(&length);
    bytes[9] = 0;
    bytes[9] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    bytes
}

fn unit(flags: u8, base: u64, scope: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 16 + scope.len() as u8, 0, flags, 0, 0, 0];
    bytes.extend(base.to_le_bytes());
    bytes.extend(scope);
    bytes
}

/// The example of VT-d 8.3.1.4, and memory for a device behind a bridge.
fn dmar() -> Vec<u8> {
    let mut reserved = vec![1, 0, 34, 0, 0, 0, 0, 0];
    reserved.extend(0x7a00_0000_u64.to_le_bytes());
    reserved.extend(0x7a0f_ffff_u64.to_le_bytes());
    reserved.extend([1, 10, 0, 0, 0, 0, 0x1c, 0, 2, 1]);
    let structures = [
        unit(0, 0xfed9_0000, &[1, 8, 0, 0, 0, 0, 4, 0, 1, 8, 0, 0, 0, 0, 5, 0]),
        unit(0, 0xfed9_1000, &[2, 8, 0, 0, 0, 0, 7, 0]),
        unit(1, 0xfed9_2000, &[3, 8, 0, 0, 2, 0, 31, 7, 4, 8, 0, 0, 1, 0, 31, 6]),
        reserved,
        vec![5, 0, 16, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 5, 0],
    ];
    table(b"DMAR", &[38, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &structures)
}

#[test]
fn the_example_of_the_manual() {
    let bytes = dmar();
    let dmar = Dmar::new(&bytes).expect("well-formed");
    assert_eq!((dmar.address_bits(), dmar.remaps_interrupts()), (39, true));
    let structures: Vec<_> = dmar.structures().map(|found| found.expect("fits")).collect();
    let units: Vec<_> = structures
        .iter()
        .filter_map(|structure| match structure {
            Structure::Unit { registers, rest, scope, .. } => Some((registers, *rest, scope)),
            _ => None,
        })
        .collect();
    let [first, second, third] = units[..] else { panic!("{units:?}") };
    assert_eq!((first.0, first.1), (&(0xfed9_0000..=0xfed9_0fff), false));
    let devices = |scope: &crtos_iommu::acpi::dmar::Scope<'_>| -> Vec<(Kind, Option<u16>)> {
        let devices = scope.devices().map(|found| found.expect("fits"));
        devices.map(|device| (device.kind, device.requester().map(|id| id.0))).collect()
    };
    assert_eq!(devices(first.2), [(Kind::Endpoint, Some(0x20)), (Kind::Endpoint, Some(0x28))]);
    assert_eq!(devices(second.2), [(Kind::Bridge, Some(0x38))]);
    assert!(third.1);
    assert_eq!(devices(third.2), [(Kind::IoApic(2), Some(0xff)), (Kind::Hpet(1), Some(0xfe))]);
    let Structure::Reserved { memory, scope, .. } = &structures[3] else { panic!() };
    assert_eq!(memory, &(0x7a00_0000..=0x7a0f_ffff));
    assert_eq!(devices(scope), [(Kind::Endpoint, None)]);
    assert!(matches!(structures[4], Structure::Other(5)));
}

/// A unit of AMD in two forms, with the devices of an old chipset.
fn ivrs() -> Vec<u8> {
    let devices: Vec<u8> = [
        &[2, 8, 0, 0][..],
        &[3, 0, 1, 0, 4, 0xff, 0xff, 0],
        &[0x43, 0, 2, 0, 0, 0xa4, 0, 0, 4, 0xff, 2, 0],
        &[0x48, 0, 0, 0xd7, 0x21, 0xa0, 0, 1],
        &[0x48, 0, 0, 0, 0, 0xa0, 0, 2],
        &[0, 0, 0, 0],
    ]
    .concat();
    let block = |form: u8, features: &[u8], devices: &[u8]| {
        let length = 24 + features.len() + devices.len();
        let mut bytes = vec![form, 0xb0, length as u8, 0, 2, 0, 0x40, 0];
        bytes.extend(0xfd20_0000_u64.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(features);
        bytes.extend(devices);
        bytes
    };
    let mut features = 0x2_5bd7_u64.to_le_bytes().to_vec();
    features.extend([0; 8]);
    let named: Vec<u8> = [&[0xf0, 0xa5, 0, 0x40][..], &[b'A'; 16], &[2, 3], b"ABC"].concat();
    let mut memory = vec![0x22, 0x07, 32, 0, 0x10, 0, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    memory.extend(0xac00_0000_u64.to_le_bytes());
    memory.extend(0x1000_u64.to_le_bytes());
    let blocks = [block(0x10, &[], &devices), block(0x40, &features, &named), memory];
    table(b"IVRS", &[0x43, 0x30, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0], &blocks)
}

#[test]
fn a_table_of_an_amd_machine() {
    let bytes = ivrs();
    let blocks: Vec<_> = Ivrs::new(&bytes).expect("well-formed").blocks().collect();
    let [Ok(old), Ok(new), Ok(memory)] = &blocks[..] else { panic!("{blocks:?}") };
    let Block::Unit { form: 0x10, registers, requester, scope, .. } = old else { panic!() };
    assert_eq!((registers, requester), (&(0xfd20_0000..=0xfd20_3fff), &Requester(2)));
    let entries: Vec<_> = scope.entries().map(|found| found.expect("fits")).collect();
    let last = Entry::Last(Requester(0xffff));
    let chipset = Requester(0xa0);
    let expected = [
        Entry::One(Requester(8)),
        Entry::First(Requester(0x100)),
        last,
        Entry::FirstAlias(Requester(0x200), Requester(0xa4)),
        Entry::Last(Requester(0x2ff)),
        Entry::IoApic(0x21, chipset),
        Entry::Hpet(0, chipset),
        Entry::Padding,
    ];
    assert_eq!(entries, expected);
    let Block::Unit { form: 0x40, registers, features, scope, .. } = new else { panic!() };
    assert_eq!(registers, &(0xfd20_0000..=0xfd27_ffff));
    assert!(features.is_some_and(|features| features.has_extended_interrupts()));
    assert_eq!(scope.entries().collect::<Vec<_>>(), [Ok(Entry::Named(Requester(0xa5)))]);
    let Block::Memory { devices, memory, exempted: false, read, write, .. } = memory else {
        panic!("{memory:?}")
    };
    assert_eq!((devices, memory), (&(0x10..=0x17), &(0xac00_0000..=0xac00_0fff)));
    assert!(*read && *write);
}

#[test]
fn what_is_no_table_is_refused() {
    let bytes = dmar();
    assert_eq!(Dmar::new(&bytes[..bytes.len() - 1]).err(), Some(Error::Truncated));
    assert_eq!(Dmar::new(&[]).err(), Some(Error::Signature));
    assert_eq!(Ivrs::new(&bytes).err(), Some(Error::Signature));
    let mut wrong = bytes.clone();
    wrong[60] ^= 1;
    assert_eq!(Dmar::new(&wrong).err(), Some(Error::Checksum));
    let short = seal(bytes[..47].to_vec());
    assert_eq!(Dmar::new(&short).err(), Some(Error::Truncated));
    // A structure of no length, and one that is longer than the table.
    for length in [0, 0xff] {
        let mut bytes = bytes.clone();
        bytes[50] = length;
        let bytes = seal(bytes);
        let found: Vec<_> = Dmar::new(&bytes).expect("well-formed").structures().collect();
        assert!(matches!(found[..], [Err(Error::Structure(48))]), "{found:?}");
    }
}

/// Addresses that cannot be: a misaligned unit, memory that is no pages, or that has no end.
#[test]
fn impossible_addresses_are_refused() {
    let reserved = |first: u64, last: u64| {
        let head = [1, 0, 24, 0, 0, 0, 0, 0];
        [&head[..], &first.to_le_bytes(), &last.to_le_bytes()].concat()
    };
    let head = [38, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let first = |structure: Vec<u8>| {
        let bytes = table(b"DMAR", &head, &[structure]);
        let found = Dmar::new(&bytes).expect("well-formed").structures().next();
        found.expect("a structure").is_ok()
    };
    let mut large = unit(0, 0xfed9_1000, &[]);
    assert!(first(large.clone()));
    large[5] = 1;
    assert!(!first(large));
    assert!(!first(unit(0, 0xfed9_0800, &[])));
    assert!(!first(unit(0, u64::MAX - 0x7ff, &[])));
    assert!(first(reserved(0x1000, 0x1fff)));
    for (start, end) in [(0x1000, 0x17ff), (0x1800, 0x1fff), (0x2000, 0x1fff), (0x3000, 0x1fff)] {
        assert!(!first(reserved(start, end)), "{start:x} to {end:x}");
    }
    let memory = |start: u64, size: u64| {
        let head = [0x20, 7, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let block = [&head[..], &start.to_le_bytes(), &size.to_le_bytes()].concat();
        let bytes = table(b"IVRS", &[0; 12], &[block]);
        let found = Ivrs::new(&bytes).expect("well-formed").blocks().next();
        found.expect("a block").is_ok()
    };
    assert!(memory(0x1000, 0x1000) && memory(u64::MAX - 0xfff, 0x1000));
    assert!(!memory(0x1000, 0) && !memory(u64::MAX - 0xfff, 0x1001));
}

/// Reads all of a table, and how many things it has found.
fn read_all(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut device = |device: Result<Device<'_>, Error>| {
        count += 1;
        let id = device.ok().and_then(|device| Some((device.requester()?, device.bus)));
        assert!(id.is_none_or(|(id, bus)| id.0 >> 8 == bus.into()));
    };
    if let Ok(dmar) = Dmar::new(bytes) {
        for structure in dmar.structures() {
            if let Ok(Structure::Unit { scope, .. } | Structure::Reserved { scope, .. }) = structure
            {
                scope.devices().for_each(&mut device);
            }
        }
    }
    if let Ok(ivrs) = Ivrs::new(bytes) {
        for block in ivrs.blocks() {
            count += 1;
            if let Ok(Block::Unit { scope, .. }) = block {
                count += scope.entries().count();
            }
        }
    }
    count
}

proptest! {
    /// Changed bytes, a sum that is right, and any length: readers end, and never panic.
    #[test]
    fn hostile_tables(
        is_dmar: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        more in prop::collection::vec(any::<u8>(), 0..100),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = if is_dmar { dmar() } else { ivrs() };
        bytes.extend(more);
        for (index, value) in changes {
            let index = 36 + index.index(bytes.len() - 36);
            bytes[index] = value;
        }
        bytes.truncate(36 + length.index(bytes.len() - 35));
        let bytes = seal(bytes);
        prop_assert!(read_all(&bytes) <= bytes.len());
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(read_all(&bytes), 0);
        let mut bytes = [&b"DMAR"[..], &bytes].concat();
        read_all(&bytes);
        bytes[..4].copy_from_slice(b"IVRS");
        read_all(&bytes);
    }
}
