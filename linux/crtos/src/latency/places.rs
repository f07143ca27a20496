// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of places in programs, and who called what is there.
//!
//! Callers are found by the tables for exceptions (`.eh_frame`), which programs have without debug
//! information, or by frame pointers where there is no table. Functions are named by debug
//! information if it is there, else by the symbols of the file.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    ops::Range,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use addr2line::Loader;
use framehop::{
    ExplicitModuleSectionInfo, Module, Unwinder,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};
use object::{
    LittleEndian,
    elf::{
        FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC,
        STT_GNU_IFUNC,
    },
    read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym},
};
use serde::Serialize;

use super::lapses::{Mapping, Place};
use crate::text::harmless;

/// Most frames of a stack.
const MOST_FRAMES: usize = 64;
/// Most bytes of a file that is read.
const MOST_BYTES: u64 = 1 << 30;
/// The sections that the unwinder is told of.
const SECTIONS: [&str; 4] = [".text", ".eh_frame", ".eh_frame_hdr", ".got"];

/// A frame of a stack, with what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// Its address in the program.
    pub address: u64,
    /// The file that is mapped there.
    pub object: Option<String>,
    /// The address in that file.
    pub offset: Option<u64>,
    /// The function.
    pub function: Option<String>,
    /// The source file, if the object has debug information.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

/// An executable or a library.
struct Binary {
    /// Debug information, read when it is asked for.
    loader: OnceCell<Option<Loader>>,
    file: File,
    /// Address, end and name of each function, by address. Names are as the file has them.
    symbols: Vec<(u64, u64, String)>,
    /// Offsets and addresses of the segments that are executed. A page of the file may belong to
    /// another one as well.
    segments: Vec<(Range<u64>, u64)>,
    sections: BTreeMap<&'static str, (Range<u64>, Rc<[u8]>)>,
}

impl Binary {
    fn read(path: &Path) -> Option<Self> {
        // What a program has mapped may be anything by now: no pipe and no device is opened.
        let place = File::options().read(true).custom_flags(nix::libc::O_PATH).open(path).ok()?;
        let about = place.metadata().ok()?;
        (about.is_file() && about.len() <= MOST_BYTES).then_some(())?;
        let file = File::open(itself(&place)).ok()?;
        let bytes = fs::read(itself(&file)).ok()?;
        let header = FileHeader64::<LittleEndian>::parse(&*bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &*bytes).ok()?;
        let is_executed = |segment: &&ProgramHeader64<LittleEndian>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0
        };
        let segments = segments.iter().filter(is_executed);
        let segments = segments.map(|segment| {
            let (offset, size) = (segment.p_offset(endian), segment.p_filesz(endian));
            (offset..offset.saturating_add(size), segment.p_vaddr(endian))
        });
        let segments = segments.collect();
        let table = header.sections(endian, &*bytes).ok()?;
        let sections = table.iter().filter_map(|section| {
            let name = table.section_name(endian, section).ok()?;
            let name = SECTIONS.into_iter().find(|wanted| wanted.as_bytes() == name)?;
            let (address, size) = (section.sh_addr(endian), section.sh_size(endian));
            let (offset, length) = section.file_range(endian)?;
            let place = offset as usize..offset.checked_add(length)? as usize;
            let contents = bytes.get(place)?.into();
            Some((name, (address..address.saturating_add(size), contents)))
        });
        let sections = sections.collect();
        let mut symbols = Vec::new();
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Ok(table) = table.symbols(endian, &*bytes, kind) else { continue };
            let functions = table.iter().filter(|symbol| {
                matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) && symbol.st_size(endian) > 0
            });
            symbols.extend(functions.filter_map(|symbol| {
                let name = symbol.name(endian, table.strings()).ok()?;
                let name = String::from_utf8_lossy(name).into_owned();
                let start = symbol.st_value(endian);
                Some((start, start.saturating_add(symbol.st_size(endian)), name))
            }));
        }
        symbols.sort();
        Some(Self { loader: OnceCell::new(), file, symbols, segments, sections })
    }

    /// Returns the address in the file of what lies at an offset of it.
    fn address_of(&self, offset: u64) -> Option<u64> {
        const PAGE: u64 = crtos_abi::PAGE_SIZE;
        let covers = |range: &Range<u64>| (range.start / PAGE * PAGE..range.end).contains(&offset);
        let (range, address) = self.segments.iter().find(|(range, _)| covers(range))?;
        address.checked_add(offset)?.checked_sub(range.start)
    }

    fn section(&self, name: &str) -> (Option<Range<u64>>, Option<Rc<[u8]>>) {
        match self.sections.get(name) {
            Some((addresses, contents)) => (Some(addresses.clone()), Some(contents.clone())),
            None => (None, None),
        }
    }

    /// Describes the file at `bias` for the unwinder.
    fn module(&self, path: &str, addresses: Range<u64>, bias: u64) -> Module<Rc<[u8]>> {
        let (text_svma, text) = self.section(".text");
        let (eh_frame_svma, eh_frame) = self.section(".eh_frame");
        let (eh_frame_hdr_svma, eh_frame_hdr) = self.section(".eh_frame_hdr");
        let (got_svma, _) = self.section(".got");
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma,
            text,
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            got_svma,
            ..Default::default()
        };
        Module::new(path.to_string(), addresses, bias, info)
    }

    fn function(&self, address: u64) -> Option<String> {
        let behind = self.symbols.partition_point(|(start, ..)| *start <= address);
        let mut candidates = self.symbols[..behind].iter().rev().take(8);
        let found = candidates.find(|(_, end, _)| address < *end)?;
        let name = addr2line::demangle_auto(found.2.as_str().into(), None);
        Some(harmless(name.as_bytes()))
    }

    fn loader(&self) -> Option<&Loader> {
        self.loader.get_or_init(|| Loader::new(itself(&self.file)).ok()).as_ref()
    }
}

/// The path of a file that is open, wherever it is now.
fn itself(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Where a file lies in a program.
struct Placed {
    addresses: Range<u64>,
    /// What is added to addresses of the file.
    bias: u64,
    name: String,
    binary: Option<Rc<Binary>>,
}

/// The files that a program executes.
#[derive(Default)]
pub struct Program {
    placed: Vec<Placed>,
    unwinder: UnwinderX86_64<Rc<[u8]>>,
    cache: CacheX86_64,
}

/// Files that were read.
#[derive(Default)]
pub struct Binaries(BTreeMap<PathBuf, Option<Rc<Binary>>>);

impl Program {
    /// Takes what the program has mapped.
    pub fn map(&mut self, mapping: &Mapping, binaries: &mut Binaries) {
        let path = PathBuf::from(OsStr::from_bytes(&mapping.path));
        let binary = binaries
            .0
            .entry(path.clone())
            .or_insert_with(|| Binary::read(&path).map(Rc::new))
            .clone();
        let addresses = mapping.start..mapping.start.saturating_add(mapping.length);
        let address = binary.as_ref().and_then(|binary| binary.address_of(mapping.offset));
        let bias = mapping.start.wrapping_sub(address.unwrap_or(mapping.offset));
        if let Some(binary) = &binary {
            self.unwinder.add_module(binary.module(&mapping.name(), addresses.clone(), bias));
        }
        self.placed.push(Placed { addresses, bias, name: mapping.name(), binary });
    }

    /// Returns the addresses of a place and of its callers, the innermost first. Those of callers
    /// lie within the calling instruction.
    pub fn callers(&mut self, place: &Place) -> Vec<u64> {
        let Some((stack, frame)) = place.registers else { return vec![place.instruction] };
        let mut read = |address: u64| {
            let offset = address.checked_sub(stack).ok_or(())?;
            place.stack.get((offset / 8) as usize).copied().ok_or(())
        };
        let registers = UnwindRegsX86_64::new(place.instruction, stack, frame);
        let mut frames =
            self.unwinder.iter_frames(place.instruction, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == MOST_FRAMES {
                break;
            }
        }
        addresses
    }

    /// Tells what is known of an address.
    pub fn frame(&self, address: u64) -> Frame {
        // The last one that was mapped there.
        let found = self.placed.iter().rev().find(|placed| placed.addresses.contains(&address));
        let Some(placed) = found else { return Frame { address, ..Frame::default() } };
        let offset = address.wrapping_sub(placed.bias);
        let mut frame = Frame {
            address,
            object: Some(placed.name.clone()),
            offset: Some(offset),
            ..Frame::default()
        };
        let Some(binary) = &placed.binary else { return frame };
        frame.function = binary.function(offset);
        let frames = binary.loader().and_then(|loader| loader.find_frames(offset).ok());
        if let Some(source) = frames.and_then(|mut frames| frames.next().ok().flatten()) {
            let name = source.function.as_ref().and_then(|name| name.demangle().ok());
            frame.function = name.map(|name| harmless(name.as_bytes())).or(frame.function);
            if let Some(location) = source.location {
                frame.file = location.file.map(|file| harmless(file.as_bytes()));
                frame.line = location.line;
            }
        }
        frame
    }
}

impl Frame {
    /// Shows it in words: the function, or the address in the file.
    pub fn show(&self) -> String {
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
        let source = self.file.as_deref().map(|file| match self.line {
            Some(line) => format!(" at {}:{line}", name(file)),
            None => format!(" at {}", name(file)),
        });
        let source = source.unwrap_or_default();
        match (&self.function, &self.object, self.offset) {
            (Some(function), Some(object), _) => format!("{function} ({}){source}", name(object)),
            (None, Some(object), Some(offset)) => format!("{}+{offset:#x}{source}", name(object)),
            _ => format!("{:#x}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where this program is, by its own mappings.
    fn here() -> (Program, Place) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let (mut program, mut binaries) = (Program::default(), Binaries::default());
        for line in maps.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [addresses, "r-xp", offset, _, _, path] = words[..] else { continue };
            let (start, end) = addresses.split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, length) = (number(start), number(end) - number(start));
            let (offset, path) = (number(offset), path.as_bytes().to_vec());
            program.map(&Mapping { thread: 1, start, length, offset, path }, &mut binaries);
        }
        let instruction = here as *const () as u64;
        (program, Place { instruction, ..Place::default() })
    }

    #[test]
    fn functions_have_names() {
        let (mut program, place) = here();
        assert_eq!(program.callers(&place), [place.instruction]);
        let frame = program.frame(place.instruction);
        // With debug information, by its name alone.
        assert!(frame.function.as_deref().unwrap().ends_with("here"), "{frame:?}");
        assert!(frame.file.as_deref().is_none_or(|file| file.ends_with("places.rs")), "{frame:?}");
        let nowhere = program.frame(8);
        assert_eq!((nowhere.object.as_ref(), &*nowhere.show()), (None, "0x8"));
    }
}
