// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executables of this machine, damaged ones, and the initial stack.

use crtos_abi::UserAddr;
use crtos_syscalls::exec::{Facts, Image, ImageError, build_stack};
use proptest::prelude::*;

/// A minimal ELF header with one PT_LOAD.
fn elf(
    kind: u16,
    entry: u64,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [kind, 62] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(1_u32.to_le_bytes());
    for word in [entry, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [1_u32, 5] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [offset, address, address, file_size, memory_size, 4096] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

#[test]
fn fixed_and_position_independent() {
    let image = Image::parse(&elf(2, 0x40_1000, 0, 0x40_0000, 0x2000, 0x5001)).unwrap();
    let start = UserAddr::new(0x40_0000);
    let (entry, headers) = (start + 0x1000, start + 0x40);
    assert_eq!((image.entry, image.headers, image.header_count), (entry, headers, 1));
    assert_eq!(image.end(), start + 0x6000);
    assert!(image.executable_stack);
    assert!(!image.is_relocatable);
    let image = Image::parse(&elf(3, 0x1000, 0, 0, 0x2000, 0x2000)).unwrap();
    assert!(image.is_relocatable);
    let base = Image::random_base(7);
    assert_eq!(base, UserAddr::new(0x5555_5555_4000 + 7 * 4096));
    let image = image.place(base).unwrap();
    assert_eq!((image.entry, image.headers), (base + 0x1000, base + 0x40));
    assert_eq!((image.start(), image.end()), (base, base + 0x2000));
    let image = Image::parse(&elf(3, 0x1000, 0, 0, 0x2000, 0x2000)).unwrap();
    assert_eq!(image.place(UserAddr::new(0x7fff_ffff_e000)), Err(ImageError::Invalid));
}

#[test]
fn a_dynamic_program_names_its_loader() {
    let file = std::fs::read("/bin/true").unwrap();
    let image = Image::parse(&file[..4096]).unwrap();
    let interpreter = image.interpreter.unwrap();
    let name = &file[interpreter.offset as usize..][..interpreter.length as usize];
    assert_eq!(name, b"/lib64/ld-linux-x86-64.so.2\0");
    let loader = std::fs::read("/lib64/ld-linux-x86-64.so.2").unwrap();
    assert_eq!(Image::parse(&loader[..4096]).unwrap().interpreter, None);
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(Image::parse(b"#!/bin/sh"), Err(ImageError::Format));
    assert_eq!(Image::parse(&elf(1, 0, 0, 0, 1, 1)), Err(ImageError::Format));
    // More from the file than in memory; offset and address differ within a page; end wraps; no
    // entry.
    for bad in [
        elf(2, 0x40_0000, 0, 0x40_0000, 2, 1),
        elf(2, 0x40_0000, 1, 0x40_0000, 1, 1),
        elf(2, 0x40_0000, 0, 0x40_0000, 1, u64::MAX),
        elf(2, 0x50_0000, 0, 0x40_0000, 1, 1),
    ] {
        assert_eq!(Image::parse(&bad), Err(ImageError::Invalid));
    }
}

proptest! {
    #[test]
    fn no_header_does_harm(
        kind in 2..4_u16,
        entry: u64,
        offset: u64,
        address: u64,
        file: u64,
        memory: u64,
        base: u64,
    ) {
        let image = Image::parse(&elf(kind, entry, offset, address, file, memory));
        if let Ok(image) = image.and_then(|image| image.place(UserAddr::new(base).page_down())) {
            for segment in &image.segments {
                prop_assert!(segment.start() <= segment.address && segment.end() <= UserAddr::END);
                prop_assert!(segment.file_size <= segment.memory_size);
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bytes;
        let _ = Image::parse(&bytes);
        let head = elf(2, 0, 0, 0, 0, 0);
        for (to, from) in bytes.iter_mut().zip(&head[..24]) {
            *to = *from;
        }
        let _ = Image::parse(&bytes);
    }

    #[test]
    fn a_stack_reads_back(
        args in proptest::collection::vec("[a-z]{0,20}", 0..5),
        env in proptest::collection::vec("[A-Z]=[a-z]{0,20}", 0..5),
        room in 0..4096_usize,
    ) {
        let strings: Vec<u8> =
            args.iter().chain(&env).flat_map(|text| text.bytes().chain([0])).collect();
        let top = UserAddr::END;
        let mut out = vec![0xaa; room];
        let facts = Facts {
            entry: UserAddr::new(0x1234),
            random: [9; 16],
            ids: [1, 1, 2, 2],
            ..Facts::default()
        };
        let Some(pointer) = build_stack(&mut out, top, b"/bin/x\0", &strings, args.len(), &facts)
        else {
            prop_assert!(room < 2048);
            return Ok(());
        };
        prop_assert_eq!(pointer.offset_in(16), 0);
        let at = |address: UserAddr| out.len() - (top - address) as usize;
        let word = |address: UserAddr| {
            u64::from_le_bytes(out[at(address)..at(address) + 8].try_into().unwrap())
        };
        let text = |address: UserAddr| {
            let bytes = &out[at(address)..];
            String::from_utf8(bytes[..bytes.iter().position(|&byte| byte == 0).unwrap()].to_vec())
                .unwrap()
        };
        prop_assert_eq!(word(pointer), args.len() as u64);
        let mut cursor = pointer + 8;
        for expected in [&args, &env] {
            for string in expected {
                prop_assert_eq!(&text(UserAddr::new(word(cursor))), string);
                cursor += 8;
            }
            prop_assert_eq!(word(cursor), 0);
            cursor += 8;
        }
        let mut auxiliary = std::collections::HashMap::new();
        while word(cursor) != 0 {
            auxiliary.insert(word(cursor), word(cursor + 8));
            cursor += 16;
        }
        prop_assert_eq!(auxiliary[&9], 0x1234);
        prop_assert_eq!(auxiliary[&23], 0);
        prop_assert_eq!(text(UserAddr::new(auxiliary[&31])), "/bin/x");
        prop_assert_eq!(text(UserAddr::new(auxiliary[&15])), "x86_64");
        prop_assert_eq!(out[at(UserAddr::new(auxiliary[&25]))], 9);
    }
}
