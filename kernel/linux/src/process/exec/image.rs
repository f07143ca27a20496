// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program and its interpreter: their segments, which are private mappings of their files.

use alloc::vec::Vec;

use crtos_abi::UserAddr;
use crtos_syscalls::exec::{HEADER_BYTES, Image, ImageError, Segment};
use linux_raw_sys::general as linux;

use crtos_core::mm::{
    heap,
    space::{AddressSpace, Backing, Map, MapError, Placement, Protection},
};

use super::{ExecError, Scratch};
use crate::{
    memory::{contents::Contents, mappings, named},
    remote,
};

/// What maps files into an address space.
struct Loader<'a> {
    space: &'a AddressSpace,
}

/// Loads the program of descriptor `fd`, and the interpreter that it asks for. `random` varies
/// where the program goes.
pub fn load(
    space: &AddressSpace,
    fd: u64,
    random: u64,
) -> Result<(Image, Option<Image>), ExecError> {
    let loader = Loader { space };
    let file = loader.file(fd)?;
    let image = parse(&file)?;
    let image = if image.is_relocatable {
        // The upper half of the word is for the base; the lower one is used for the heap.
        image.place(Image::random_base(random >> 32)).map_err(ExecError::Image)?
    } else {
        image
    };
    loader.map_segments(&file, &image)?;
    let Some(interpreter) = image.interpreter else { return Ok((image, None)) };
    let name = read(&file, interpreter.offset, interpreter.length as usize)?;
    // Linux reads the name where it lies, up to its zero.
    if name.len() as u64 != interpreter.length || name.last() != Some(&0) {
        return Err(ExecError::Image(ImageError::Invalid));
    }
    let fd = loader.open(&name)?;
    let loaded = loader.load_interpreter(fd);
    let _ = remote::linux(linux::__NR_close, &[fd]);
    Ok((image, Some(loaded?)))
}

/// Reads and checks the headers of a file.
fn parse(file: &Contents) -> Result<Image, ExecError> {
    Image::parse(&read(file, 0, HEADER_BYTES)?).map_err(ExecError::Image)
}

/// Up to so many bytes of a file.
fn read(file: &Contents, offset: u64, length: usize) -> Result<Vec<u8>, ExecError> {
    let mut bytes = Vec::new();
    if !heap::makes_room(&mut bytes, length) {
        return Err(ExecError::Memory);
    }
    bytes.resize(length, 0);
    let length = file.read(offset, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

impl Loader<'_> {
    /// The contents of a file.
    fn file(&self, fd: u64) -> Result<Contents<'_>, ExecError> {
        Ok(Contents::of(self.space, fd, mappings::is_shared)?)
    }

    /// Opens the file of that name, which ends with its zero.
    fn open(&self, name: &[u8]) -> Result<u64, ExecError> {
        const AT_FDCWD: u64 = -100_i64 as u64;
        let flags = u64::from(linux::O_RDONLY | linux::O_CLOEXEC);
        let path = Scratch::open(self.space, name.len() as u64)?;
        self.space.write(path.start, name)?;
        remote::linux(linux::__NR_openat, &[AT_FDCWD, path.start.get(), flags])
            .map_err(|_| ExecError::Interpreter)
    }

    /// Loads an interpreter where there is room, as mmap finds it.
    fn load_interpreter(&self, fd: u64) -> Result<Image, ExecError> {
        let file = self.file(fd)?;
        let mut image = parse(&file)?;
        if image.is_relocatable {
            let (start, end) = (image.start(), image.end());
            let anywhere = Placement::Anywhere { hint: UserAddr::NULL };
            let room = self.space.map(Map::private(anywhere, end - start, Protection::empty()))?;
            self.space.unmap(room, end - start)?;
            let base =
                room.checked_sub(start.get()).ok_or(ExecError::Image(ImageError::Invalid))?;
            image = image.place(base).map_err(ExecError::Image)?;
        }
        self.map_segments(&file, &image)?;
        Ok(image)
    }

    fn map_segments(&self, file: &Contents, image: &Image) -> Result<(), ExecError> {
        image.segments.iter().try_for_each(|segment| self.map_segment(file, segment))
    }

    /// Maps the pages of a segment that have bytes of the file, whatever else lies in them, and
    /// zeros behind those.
    fn map_segment(&self, file: &Contents, segment: &Segment) -> Result<(), ExecError> {
        let start = segment.start();
        let protection = Protection::from_bits_truncate(segment.protection);
        let mut end = start;
        if segment.file_size > 0 {
            let offset = segment.offset - (segment.address - start);
            let file_end = segment.offset + segment.file_size;
            if file_end > file.size {
                return Err(ExecError::Image(ImageError::Invalid));
            }
            let mirror = file.cover(offset..file_end, self.space.populates_files())?;
            let behind = segment.address + segment.file_size;
            end = behind.page_up().ok_or(ExecError::Image(ImageError::Invalid))?;
            let object = named::named((file.fd(), file.identity), file.object.clone());
            let backing = Backing::private(object.clone(), offset);
            let map = Map::private(Placement::NoReplace(start), end - start, protection);
            self.map(Map { backing: Some(backing), ..map })?;
            if let Some(mirror) = mirror {
                self.space.use_mirror(mirror);
            }
            named::tell(&object, start..end, protection, offset);
            if segment.memory_size > segment.file_size && protection.contains(Protection::WRITE) {
                self.space.zero(behind, end - behind)?;
            }
        }
        if end < segment.end() {
            let rest = segment.end() - end;
            self.map(Map::private(Placement::NoReplace(end), rest, protection))?;
        }
        Ok(())
    }

    fn map(&self, map: Map) -> Result<(), MapError> {
        self.space.map(map).map(|_| ())
    }
}
