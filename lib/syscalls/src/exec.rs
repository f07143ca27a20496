// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executables: the segments that an ELF file asks to be loaded, and the stack with which a program
//! starts.
//!
//! See the System V ABI, chapter 5 (program loading) and 3.4.1 (initial stack), and Linux's
//! `fs/binfmt_elf.c` for the order of the auxiliary vector.

use arrayvec::ArrayVec;
use crtos_abi::{UserAddr, channel::USER_END};
use elf::{
    abi, endian::LittleEndian, file::Class as FileClass, file::FileHeader, file::parse_ident,
    segment::ProgramHeader, segment::SegmentTable,
};

/// Bytes of the file that hold its header and program headers.
pub const HEADER_BYTES: usize = 4096;

/// The most segments of an executable that are loaded.
pub const MAX_SEGMENTS: usize = 16;

const PAGE: u64 = crtos_abi::PAGE_SIZE;

/// The highest end of a program: a page stays free behind it.
const LAST_END: UserAddr = UserAddr::new(USER_END - PAGE);

/// The most bytes of the name of an interpreter, its zero included (PATH_MAX).
pub const MAX_INTERPRETER: u64 = 4096;

/// The base of a position-independent program before random bits are added, as on Linux (two thirds
/// of the address space).
const PIE_BASE: UserAddr = UserAddr::new(0x5555_5555_4000);

/// Why a file cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// Not an ELF file for x86-64.
    Format,
    /// Its headers contradict themselves.
    Invalid,
}

impl ImageError {
    /// Returns the reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            ImageError::Format => "not an executable for Linux on x86-64",
            ImageError::Invalid => "the headers of the executable contradict themselves",
        }
    }
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte; [`Image::place`] adds the base.
    pub address: UserAddr,
    /// Bytes that come from the file.
    pub file_size: u64,
    /// Bytes in memory; those behind `file_size` are zero.
    pub memory_size: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bits of PROT_READ, PROT_WRITE, PROT_EXEC.
    pub protection: u8,
}

impl Segment {
    /// Returns the address of the first page.
    pub fn start(&self) -> UserAddr {
        self.address.page_down()
    }

    /// Returns the address one past the last page.
    pub fn end(&self) -> UserAddr {
        (self.address + self.memory_size + (PAGE - 1)).page_down()
    }
}

/// The place in the file of the interpreter's name (PT_INTERP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes, the zero at the end included; at least 2, at most [`MAX_INTERPRETER`].
    pub length: u64,
}

/// An executable, or the interpreter (the dynamic loader) of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// It may lie anywhere: [`Image::place`] decides. Until then its addresses count from 0.
    pub is_relocatable: bool,
    /// The interpreter that it asks for.
    pub interpreter: Option<Interpreter>,
    /// Address at which execution starts.
    pub entry: UserAddr,
    /// Address of the program headers, [`UserAddr::NULL`] if they are not loaded.
    pub headers: UserAddr,
    /// Number of program headers.
    pub header_count: u64,
    /// The stack has to be executable (PT_GNU_STACK).
    pub executable_stack: bool,
    /// The parts that are loaded, in ascending order, without overlap.
    pub segments: ArrayVec<Segment, MAX_SEGMENTS>,
}

/// Bytes of a program header.
const HEADER_SIZE: u64 = 56;

impl Image {
    /// Reads the headers at the start of a file, which anybody may have written.
    pub fn parse(start: &[u8]) -> Result<Image, ImageError> {
        let (header, table) = headers(start)?;
        let mut image = Image {
            is_relocatable: match header.e_type {
                abi::ET_EXEC => false,
                abi::ET_DYN => true,
                _ => return Err(ImageError::Format),
            },
            interpreter: None,
            entry: UserAddr::new(header.e_entry),
            headers: UserAddr::NULL,
            header_count: header.e_phnum.into(),
            executable_stack: true,
            segments: ArrayVec::new(),
        };
        for segment in table.iter() {
            match segment.p_type {
                abi::PT_INTERP if image.interpreter.is_none() => {
                    let (offset, length) = (segment.p_offset, segment.p_filesz);
                    if !(2..=MAX_INTERPRETER).contains(&length) {
                        return Err(ImageError::Invalid);
                    }
                    image.interpreter = Some(Interpreter { offset, length });
                }
                abi::PT_GNU_STACK => image.executable_stack = segment.p_flags & abi::PF_X != 0,
                abi::PT_LOAD if segment.p_memsz > 0 => image.add(&segment, header.e_phoff)?,
                _ => {}
            }
        }
        let inside = |segment: &Segment| {
            (segment.address..segment.address + segment.memory_size).contains(&image.entry)
        };
        if image.segments.iter().any(inside) { Ok(image) } else { Err(ImageError::Invalid) }
    }

    /// Returns a base for a relocatable program, which the low 28 bits of `random` vary by pages,
    /// as on Linux.
    pub fn random_base(random: u64) -> UserAddr {
        PIE_BASE + (random & 0xfff_ffff) * PAGE
    }

    /// Moves a relocatable image to `base`, a multiple of the page size. Fails if it does not fit
    /// into the address space.
    pub fn place(mut self, base: UserAddr) -> Result<Image, ImageError> {
        // Until now its addresses are distances from the base.
        let distance = base.get();
        if self.end().checked_add(distance).is_none_or(|end| end > LAST_END) {
            return Err(ImageError::Invalid);
        }
        self.entry += distance;
        if !self.headers.is_null() {
            self.headers += distance;
        }
        for segment in &mut self.segments {
            segment.address += distance;
        }
        Ok(self)
    }

    /// Adds the segment of a PT_LOAD header; `headers_offset` is the offset of the program headers
    /// in the file.
    fn add(&mut self, header: &ProgramHeader, headers_offset: u64) -> Result<(), ImageError> {
        let address = UserAddr::new(header.p_vaddr);
        let end = address.checked_add(header.p_memsz).filter(|&end| end <= LAST_END);
        let file_end = header.p_offset.checked_add(header.p_filesz);
        let behind = self.end();
        if end.is_none()
            || file_end.is_none()
            || header.p_filesz > header.p_memsz
            || header.p_offset % PAGE != address.page_offset()
            || address.page_down() < behind
        {
            return Err(ImageError::Invalid);
        }
        let flag = |flag, protection| if header.p_flags & flag != 0 { protection } else { 0 };
        let segment = Segment {
            address,
            file_size: header.p_filesz,
            memory_size: header.p_memsz,
            offset: header.p_offset,
            protection: flag(abi::PF_R, 1) | flag(abi::PF_W, 2) | flag(abi::PF_X, 4),
        };
        if self.headers.is_null()
            && (header.p_offset..header.p_offset + header.p_filesz).contains(&headers_offset)
        {
            self.headers = address + (headers_offset - header.p_offset);
        }
        self.segments.try_push(segment).map_err(|_| ImageError::Invalid)
    }

    /// Returns the address of the first segment's first page.
    pub fn start(&self) -> UserAddr {
        self.segments.first().map_or(UserAddr::NULL, Segment::start)
    }

    /// Returns the address behind the last segment's last page, where the heap may start.
    pub fn end(&self) -> UserAddr {
        self.segments.last().map_or(UserAddr::NULL, Segment::end)
    }
}

/// Reads the file header and finds the program headers.
fn headers(
    start: &[u8],
) -> Result<(FileHeader<LittleEndian>, SegmentTable<'_, LittleEndian>), ImageError> {
    let ident_bytes = start.get(..abi::EI_NIDENT).ok_or(ImageError::Format)?;
    let ident = parse_ident::<LittleEndian>(ident_bytes).map_err(|_| ImageError::Format)?;
    if ident.1 != FileClass::ELF64 {
        return Err(ImageError::Format);
    }
    let tail = start.get(abi::EI_NIDENT..64).ok_or(ImageError::Format)?;
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| ImageError::Format)?;
    if header.e_machine != abi::EM_X86_64 {
        return Err(ImageError::Format);
    }
    if u64::from(header.e_phentsize) != HEADER_SIZE || header.e_phnum == 0 {
        return Err(ImageError::Invalid);
    }
    let first = usize::try_from(header.e_phoff).map_err(|_| ImageError::Invalid)?;
    let length = usize::from(header.e_phnum) * HEADER_SIZE as usize;
    let bytes = first
        .checked_add(length)
        .and_then(|end| start.get(first..end))
        .ok_or(ImageError::Invalid)?;
    Ok((header, SegmentTable::new(LittleEndian, FileClass::ELF64, bytes)))
}

/// The values of the auxiliary vector that are not addresses in the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// AT_SYSINFO_EHDR: address of the vDSO.
    pub vdso: UserAddr,
    /// AT_MINSIGSTKSZ: bytes of a signal frame.
    pub signal_stack: u64,
    /// AT_HWCAP.
    pub hwcap: u64,
    /// AT_HWCAP2.
    pub hwcap2: u64,
    /// AT_PHDR.
    pub headers: UserAddr,
    /// AT_PHNUM.
    pub header_count: u64,
    /// AT_BASE: address of the interpreter, [`UserAddr::NULL`] without one.
    pub base: UserAddr,
    /// AT_ENTRY: entry address of the program, not of its interpreter.
    pub entry: UserAddr,
    /// AT_UID, AT_EUID, AT_GID, AT_EGID.
    pub ids: [u32; 4],
    /// The bytes that AT_RANDOM points to.
    pub random: [u8; 16],
}

/// Builds the initial stack in `out`, whose last byte lies just below the address `top`. `strings`
/// holds `argc` zero-terminated arguments and, right behind them, the environment; `path` is
/// zero-terminated. Returns the stack pointer, or `None` if `out` is too small or `strings` has
/// fewer than `argc` strings.
pub fn build_stack(
    out: &mut [u8],
    top: UserAddr,
    path: &[u8],
    strings: &[u8],
    argc: usize,
    facts: &Facts,
) -> Option<UserAddr> {
    let mut stack = Stack { top, used: 0, out };
    // Linux leaves a null pointer at the very top.
    stack.push(&[0; 8])?;
    let path = stack.push(path)?;
    let strings_at = stack.push(strings)?;
    stack.align(16);
    let platform = stack.push(b"x86_64\0")?;
    let random = stack.push(&facts.random)?;
    stack.align(16);

    let ids = facts.ids.map(u64::from);
    let secure = u64::from(ids[0] != ids[1] || ids[2] != ids[3]);
    let vector: [(u64, u64); 21] = [
        (AT_SYSINFO_EHDR, facts.vdso.get()),
        (AT_MINSIGSTKSZ, facts.signal_stack),
        (AT_HWCAP, facts.hwcap),
        (AT_PAGESZ, PAGE),
        (AT_CLKTCK, 100),
        (AT_PHDR, facts.headers.get()),
        (AT_PHENT, HEADER_SIZE),
        (AT_PHNUM, facts.header_count),
        (AT_BASE, facts.base.get()),
        (AT_FLAGS, 0),
        (AT_ENTRY, facts.entry.get()),
        (AT_UID, ids[0]),
        (AT_EUID, ids[1]),
        (AT_GID, ids[2]),
        (AT_EGID, ids[3]),
        (AT_SECURE, secure),
        (AT_RANDOM, random.get()),
        (AT_HWCAP2, facts.hwcap2),
        (AT_EXECFN, path.get()),
        (AT_PLATFORM, platform.get()),
        (AT_NULL, 0),
    ];
    let count = strings.iter().filter(|&&byte| byte == 0).count();
    if argc > count {
        return None;
    }
    // argc, argv, null, envp, null, auxv.
    let words = 1 + count + 2 + 2 * vector.len();
    if words % 2 == 1 {
        stack.push(&[0; 8])?;
    }
    let mut starts = strings_at;
    for &(kind, value) in vector.iter().rev() {
        stack.push_word(value)?;
        stack.push_word(kind)?;
    }
    stack.push_word(0)?;
    let pointers = stack.reserve((count + 1) * 8)?;
    for (index, string) in strings.split_inclusive(|&byte| byte == 0).enumerate().take(count) {
        // The null between arguments and environment takes a word as well.
        let word = index + usize::from(index >= argc);
        stack.set(pointers + 8 * word as u64, starts.get())?;
        starts += string.len() as u64;
    }
    stack.push_word(argc as u64)
}

/// A stack that grows down in a buffer.
struct Stack<'a> {
    /// Address one past the buffer's last byte.
    top: UserAddr,
    /// Bytes in use, at the end of the buffer.
    used: usize,
    out: &'a mut [u8],
}

impl Stack<'_> {
    /// Reserves `length` zero bytes and returns their address.
    fn reserve(&mut self, length: usize) -> Option<UserAddr> {
        self.used = self.used.checked_add(length).filter(|&used| used <= self.out.len())?;
        let start = self.out.len() - self.used;
        self.out[start..start + length].fill(0);
        Some(self.top - self.used as u64)
    }

    /// Pushes `bytes` and returns their address.
    fn push(&mut self, bytes: &[u8]) -> Option<UserAddr> {
        let address = self.reserve(bytes.len())?;
        let start = self.out.len() - self.used;
        self.out[start..start + bytes.len()].copy_from_slice(bytes);
        Some(address)
    }

    /// Pushes a word and returns its address.
    fn push_word(&mut self, value: u64) -> Option<UserAddr> {
        self.push(&value.to_le_bytes())
    }

    /// Stores a word at an address in use.
    fn set(&mut self, address: UserAddr, value: u64) -> Option<()> {
        let from_top = usize::try_from(self.top - address).ok()?;
        let start = self.out.len().checked_sub(from_top)?;
        self.out.get_mut(start..start + 8)?.copy_from_slice(&value.to_le_bytes());
        Some(())
    }

    /// Moves down to a multiple of `alignment`, a power of two.
    fn align(&mut self, alignment: u64) {
        let excess = (self.top - self.used as u64).offset_in(alignment);
        // The next push finds out whether that is still within the buffer.
        self.used += excess as usize;
    }
}

const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_FLAGS: u64 = 8;
const AT_ENTRY: u64 = 9;
const AT_UID: u64 = 11;
const AT_EUID: u64 = 12;
const AT_GID: u64 = 13;
const AT_EGID: u64 = 14;
const AT_PLATFORM: u64 = 15;
const AT_HWCAP: u64 = 16;
const AT_CLKTCK: u64 = 17;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;
const AT_HWCAP2: u64 = 26;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;
const AT_MINSIGSTKSZ: u64 = 51;
