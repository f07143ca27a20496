// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program and its interpreter: their segments, read through the shadow.

use alloc::vec::Vec;

use crtos_syscalls::exec::{HEADER_BYTES, Image, ImageError, Segment};
use linux_raw_sys::general as linux;

use super::{ExecError, window::Window};
use crate::{
    mm::space::{AddressSpace, Map, Placement, Protection},
    syscall,
};

/// What reads files into an address space.
struct Loader<'a> {
    space: &'a AddressSpace,
    window: Window<'a>,
}

/// Loads the program of descriptor `fd`, and the interpreter that it asks for. `random` varies where the program goes.
pub fn load(
    space: &AddressSpace,
    fd: u64,
    random: u64,
) -> Result<(Image, Option<Image>), ExecError> {
    let loader = Loader { space, window: Window::open(space, Window::FOR_FILES)? };

    let image = loader.parse(fd)?;
    let image = if image.is_relocatable {
        // The upper half of the word is for the base; the lower one is used for the heap.
        image.place(Image::random_base(random >> 32)).map_err(ExecError::Image)?
    } else {
        image
    };
    loader.load_segments(fd, &image)?;
    let Some(interpreter) = image.interpreter else { return Ok((image, None)) };
    let length = loader.window.fill(fd, interpreter.offset, interpreter.length)?;
    // Linux reads the name where it lies, up to its zero.
    if length != interpreter.length || loader.byte(length - 1)? != 0 {
        return Err(ExecError::Image(ImageError::Invalid));
    }
    let fd = loader.open(loader.window.start)?;
    let loaded = loader.load_interpreter(fd);
    let _ = syscall::linux(linux::__NR_close, &[fd]);
    Ok((image, Some(loaded?)))
}

impl Loader<'_> {
    /// Reads and checks the headers of a file.
    fn parse(&self, fd: u64) -> Result<Image, ExecError> {
        let length = self.window.fill(fd, 0, HEADER_BYTES as u64)? as usize;
        let mut start = Vec::new();
        start.try_reserve_exact(length).map_err(|_| ExecError::Memory)?;
        start.resize(length, 0);
        self.space.read(self.window.start, &mut start)?;
        Image::parse(&start).map_err(ExecError::Image)
    }

    /// Opens the file whose name is at `path`.
    fn open(&self, path: u64) -> Result<u64, ExecError> {
        const AT_FDCWD: u64 = -100_i64 as u64;
        let flags = u64::from(linux::O_RDONLY | linux::O_CLOEXEC);
        syscall::linux(linux::__NR_openat, &[AT_FDCWD, path, flags])
            .map_err(|_| ExecError::Interpreter)
    }

    /// The byte at an offset of the window.
    fn byte(&self, offset: u64) -> Result<u8, ExecError> {
        let mut byte = [0];
        self.space.read(self.window.start + offset, &mut byte)?;
        Ok(byte[0])
    }

    /// Loads an interpreter where there is room, as mmap finds it.
    fn load_interpreter(&self, fd: u64) -> Result<Image, ExecError> {
        let mut image = self.parse(fd)?;
        if image.is_relocatable {
            let (start, end) = (image.start(), image.end());
            let anywhere = Placement::Anywhere { hint: 0 };
            let room = self.space.map(Map::private(anywhere, end - start, Protection::empty()))?;
            self.space.unmap(room, end - start)?;
            let base = room.checked_sub(start).ok_or(ExecError::Image(ImageError::Invalid))?;
            image = image.place(base).map_err(ExecError::Image)?;
        }
        self.load_segments(fd, &image)?;
        Ok(image)
    }

    fn load_segments(&self, fd: u64, image: &Image) -> Result<(), ExecError> {
        image.segments.iter().try_for_each(|segment| self.load_segment(fd, segment))
    }

    fn load_segment(&self, fd: u64, segment: &Segment) -> Result<(), ExecError> {
        self.space.map(Map::private(
            Placement::NoReplace(segment.start()),
            segment.end() - segment.start(),
            Protection::from_bits_truncate(segment.protection),
        ))?;
        // What lies in the file before the segment on its first page is mapped as well, as on Linux.
        let before = segment.address - segment.start();
        let length = if segment.file_size > 0 { segment.file_size + before } else { 0 };
        match self.window.copy(fd, segment.offset - before, segment.start(), length)? == length {
            true => Ok(()),
            false => Err(ExecError::Image(ImageError::Invalid)),
        }
    }
}
