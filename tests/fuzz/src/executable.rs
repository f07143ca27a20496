// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executables: headers of ELF files, and the stack with which a program starts.

use bolero::TypeGenerator;
use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_syscalls::exec::{Facts, Image, MAX_INTERPRETER, MAX_SEGMENTS, Segment, build_stack};

use crate::numbers::{Few, Rare, Word};

/// Bytes of an ELF file's header.
const HEADER: usize = 64;
/// Bytes of a program header.
const PROGRAM_HEADER: usize = 56;
/// Offset of the address in it.
const ADDRESS: usize = 16;

/// A file.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    /// `e_type`.
    kind: u8,
    /// From the start of the first program header's memory.
    entry: u8,
    /// In place of that.
    other_entry: Rare<Word>,
    /// Added to the offset of the program headers.
    moved: Rare<Word>,
    /// In place of their number.
    count: Rare<u16>,
    #[generator(bolero::generator::produce::<Vec<Program>>().with().len(0usize..6))]
    programs: Vec<Program>,
    /// A byte that is something else.
    change: Rare<(u16, u8)>,
    /// How many bytes of the file there are.
    length: Rare<u16>,
    /// Where it is put, in pages.
    base: Word,
}

/// A program header.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Program {
    /// `p_type`.
    kind: u8,
    flags: u8,
    offset: Word,
    address: Address,
    /// Leaves the offset where it is, not at the same place in its page as the address.
    is_odd: Rare<()>,
    file_size: Few,
    /// In place of that.
    other_file_size: Rare<Word>,
    /// How much larger the memory is.
    more: Word,
    /// In place of the sum.
    other_memory_size: Rare<Word>,
}

/// Where a program header has its memory.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Address {
    /// Behind the one before it, with so many bytes between them.
    Behind(Few),
    /// That many bytes before the end of the one before it.
    Before(Few),
    Anywhere(Word),
}

impl Program {
    /// The header, and the end of its memory. The one before it ends at `before`.
    fn bytes(&self, before: u64) -> ([u8; PROGRAM_HEADER], u64) {
        /// PT_LOAD three times, PT_INTERP, PT_GNU_STACK.
        const KINDS: [u32; 5] = [1, 1, 1, 3, 0x6474_e551];
        let address = match self.address {
            Address::Behind(bytes) => before.wrapping_add(bytes.value()),
            Address::Before(bytes) => before.wrapping_sub(bytes.value()),
            Address::Anywhere(word) => word.value(),
        };
        let file_size = self.other_file_size.get().map_or(self.file_size.value(), Word::value);
        let offset = match self.is_odd.get() {
            None => (self.offset.value() & !(PAGE_SIZE - 1)) | (address % PAGE_SIZE),
            Some(()) => self.offset.value(),
        };
        let memory_size = file_size.wrapping_add(self.more.value());
        let memory_size = self.other_memory_size.get().map_or(memory_size, Word::value);
        let kind = KINDS[usize::from(self.kind) % KINDS.len()];
        let first = u64::from(kind) | u64::from(self.flags & 7) << 32;
        let words = [first, offset, address, 0, file_size, memory_size, PAGE_SIZE];
        let mut bytes = [0; PROGRAM_HEADER];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, address.wrapping_add(memory_size))
    }
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        /// ET_EXEC, ET_DYN, and one that is not executed.
        const KINDS: [u8; 4] = [2, 3, 3, 4];
        let offset = (HEADER as u64).wrapping_add(self.moved.get().map_or(0, Word::value));
        let count = self.count.get().unwrap_or(self.programs.len() as u16);
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend([KINDS[usize::from(self.kind) % KINDS.len()], 0, 62, 0, 1, 0, 0, 0]);
        let mut end = PAGE_SIZE;
        let mut programs = Vec::new();
        for program in &self.programs {
            let (header, next) = program.bytes(end);
            programs.push(header);
            end = next;
        }
        let first = programs.first().map_or(0, |header| word(header, ADDRESS));
        let entry = first.wrapping_add(self.entry.into());
        let entry = self.other_entry.get().map_or(entry, Word::value);
        bytes.extend(entry.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.resize(54, 0);
        bytes.extend((PROGRAM_HEADER as u16).to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(programs.as_flattened());
        if let Some((at, byte)) = self.change.get() {
            let length = bytes.len();
            bytes[usize::from(at) % length] = byte;
        }
        if let Some(length) = self.length.get() {
            bytes.truncate(length.into());
        }
        bytes
    }
}

/// Runs the target: an image that is accepted can be loaded.
pub fn executable(input: &Input) {
    let Ok(image) = Image::parse(&input.bytes()) else { return };
    check(&image, UserAddr::NULL);
    assert!(image.segments.len() <= MAX_SEGMENTS);
    if let Some(interpreter) = image.interpreter {
        assert!((2..=MAX_INTERPRETER).contains(&interpreter.length), "{interpreter:?}");
    }
    let base = UserAddr::new(input.base.value()).page_down();
    if let Ok(placed) = image.clone().place(base) {
        check(&placed, base);
        let shift = |address: UserAddr| address + base.get();
        assert_eq!(placed.entry, shift(image.entry));
        assert_eq!(placed.start(), shift(image.start()));
        assert_eq!(placed.end(), shift(image.end()));
    }
}

/// What has to hold of an image that lies at `base`.
fn check(image: &Image, base: UserAddr) {
    let mut behind = base;
    for segment in &image.segments {
        assert!(segment.start() >= behind, "segments overlap: {image:x?}");
        assert!(segment.memory_size > 0 && segment.file_size <= segment.memory_size, "{image:x?}");
        assert!(segment.end() > segment.start(), "{image:x?}");
        assert!(segment.offset.checked_add(segment.file_size).is_some(), "{image:x?}");
        assert_eq!(segment.offset % PAGE_SIZE, segment.address.page_offset(), "{image:x?}");
        assert_eq!(segment.protection & !7, 0, "{image:x?}");
        behind = segment.end();
    }
    assert!(behind < UserAddr::END, "{image:x?}");
    let holds = |address: UserAddr| {
        let offset = |start: UserAddr| address.get().checked_sub(start.get());
        image.segments.iter().any(|s| offset(s.address).is_some_and(|at| at < s.memory_size))
    };
    assert!(holds(image.entry), "the entry is nowhere: {image:x?}");
    let in_file =
        |s: &Segment| image.headers >= s.address && image.headers - s.address < s.file_size;
    assert!(
        image.headers.is_null() || image.segments.iter().any(in_file),
        "the headers are nowhere: {image:x?}"
    );
}

/// The word at an offset.
fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(*bytes[offset..].first_chunk().expect("a word"))
}

/// Arguments and environment, and the room for them.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Strings {
    path: Vec<u8>,
    strings: Vec<Vec<u8>>,
    /// How many of them are arguments.
    arguments: u8,
    /// Bytes behind the last zero.
    rest: Vec<u8>,
    room: u16,
    top: u16,
}

/// Runs the target: the stack leads to each string, in its order, and lies within its room.
pub fn stack(input: &Strings) {
    let string = |bytes: &Vec<u8>| {
        let mut bytes: Vec<_> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        bytes.push(0);
        bytes
    };
    let strings: Vec<Vec<u8>> = input.strings.iter().map(string).collect();
    let mut text = strings.concat();
    text.extend(input.rest.iter().filter(|byte| **byte != 0));
    let arguments = usize::from(input.arguments) % 8;
    // Where the stack ends is a multiple of the page size.
    let top = UserAddr::new((u64::from(input.top) + 0x10) * PAGE_SIZE);
    let mut out = vec![0xaa; usize::from(input.room) % 4096];
    let facts = Facts::default();
    let result = build_stack(&mut out, top, &string(&input.path), &text, arguments, &facts);
    let Some(pointer) = result else { return };
    assert!(arguments <= strings.len(), "{arguments} arguments of {} strings", strings.len());
    assert!(pointer.is_aligned(16) && pointer < top && top - pointer <= out.len() as u64);
    let start = top - out.len() as u64;
    let at =
        |address: UserAddr| &out[usize::try_from(address - start).expect("within the stack")..];
    let word = |index: u64| word(at(pointer + 8 * index), 0);
    assert_eq!(word(0), arguments as u64);
    let mut index = 1;
    for (number, string) in strings.iter().enumerate() {
        if number == arguments {
            assert_eq!(word(index), 0, "no end of the arguments");
            index += 1;
        }
        assert!(
            at(UserAddr::new(word(index))).starts_with(string),
            "string {number} is another one"
        );
        index += 1;
    }
}
