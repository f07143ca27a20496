// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/self/maps` (proc(5)): what Linux tells by that name is the shadow's. A program that opens
//! it gets a local file, which tells its own mappings.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::fmt::{self, Write as _};

use crtos_abi::UserAddr;
use crtos_core::{
    mm::{
        heap,
        held::Name,
        space::{AddressSpace, Kind, Protection, Region},
    },
    task::{self, Mutex},
};
use crtos_files::NUMBERS;
use linux_raw_sys::general as linux;
use spin::Once;

use super::user;
use crate::{
    abi::{Errno, SysResult},
    files::{self, Memory, character::Character, lock::Locks, names, position::Position},
    process::ThreadExt as _,
    remote,
};

/// The locks of all these files.
static LOCKS: Once<Locks> = Once::new();
/// Where the name begins in a line.
const NAME_AT: usize = 73;

/// Opens the file if that is what the path at an address of the program means. Linux decides
/// whether the program may. Sleeps, and asks Linux.
pub fn open(path: UserAddr, flags: u32) -> Option<SysResult> {
    let current = task::current();
    let user = current.user()?;
    // What only stands for the file (O_PATH) is Linux's.
    let is_meant = flags & linux::O_PATH == 0 && names::is_maps(path, user.process.pid);
    is_meant.then(|| open_own(path, flags))
}

fn open_own(path: UserAddr, flags: u32) -> SysResult {
    const AT_FDCWD: u64 = -100_i64 as u64;
    let files = files::table()?;
    files.agree()?;
    let made = remote::own_call(linux::__NR_openat, &[AT_FDCWD, path.get(), flags.into(), 0])?;
    let fd = files.settle(made)?;
    if fd < NUMBERS.into() {
        let file = Box::new(Maps::of(Arc::downgrade(&user::space()?)));
        files.localize(fd, flags | linux::O_LARGEFILE, Ok(file), None)?;
    }
    Ok(fd)
}

/// An opening of the file.
struct Maps {
    /// Of the program that has opened it.
    space: Weak<AddressSpace>,
    position: Position,
    cursor: Mutex<Cursor>,
}

/// How far the file was read.
struct Cursor {
    /// The position of what is next.
    position: u64,
    /// What is next: the rest of some lines.
    rest: Vec<u8>,
    /// Behind which address the mappings of the lines behind those end.
    behind: UserAddr,
}

impl Cursor {
    const START: Self = Self { position: 0, rest: Vec::new(), behind: UserAddr::NULL };

    /// Has some lines be there, unless there are no more.
    fn fill(&mut self, space: &AddressSpace) -> Result<(), Errno> {
        /// Bytes with which it is enough, so that a large program does not fill the heap.
        const ENOUGH: usize = 4096;
        if !self.rest.is_empty() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let mut text = Text(Vec::new());
        while text.0.len() < ENOUGH
            && let Some(region) = space.next_region(self.behind)
        {
            text.line(&region).map_err(|_| Errno::ENOMEM)?;
            self.behind = region.end;
        }
        self.rest = text.0;
        Ok(())
    }

    /// So many bytes were read.
    fn advance(&mut self, count: usize) {
        self.rest.drain(..count);
        self.position += count as u64;
    }

    /// Goes to a position, or to the end if that comes before.
    fn go_to(&mut self, position: u64, space: &AddressSpace) -> Result<(), Errno> {
        // What is read from the beginning is what there is now.
        if position == 0 || position < self.position {
            *self = Self::START;
        }
        while self.position < position {
            self.fill(space)?;
            if self.rest.is_empty() {
                break;
            }
            let left = position - self.position;
            self.advance((self.rest.len() as u64).min(left) as usize);
        }
        Ok(())
    }
}

impl Maps {
    fn of(space: Weak<AddressSpace>) -> Self {
        Self { space, position: Position::default(), cursor: Mutex::new(Cursor::START) }
    }
}

impl Character for Maps {
    fn path(&self) -> &str {
        "/proc/self/maps"
    }

    fn read(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.position.here(|position| self.read_at(memory, position))
    }

    fn seek(&self, offset: u64, whence: u32) -> SysResult {
        // It has no end to count from, as under Linux.
        self.position.seek(offset, whence, || Err(Errno::EINVAL))
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn read_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        // Of a program that has ended nothing is mapped.
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut cursor = self.cursor.lock();
        cursor.go_to(position, &space)?;
        let mut done = 0;
        while memory.left() > 0 && cursor.position == position + done {
            cursor.fill(&space)?;
            let wanted = cursor.rest.len().min(memory.left() as usize);
            let moved = memory.write(&cursor.rest[..wanted]);
            cursor.advance(moved);
            done += moved as u64;
            if moved < wanted && done == 0 {
                return Err(Errno::EFAULT);
            }
            if wanted == 0 || moved < wanted {
                break;
            }
        }
        Ok(done)
    }

    fn again(&self) -> Option<Box<dyn Character>> {
        Some(Box::new(Self::of(self.space.clone())))
    }

    fn locks(&self) -> &Locks {
        LOCKS.call_once(Locks::default)
    }
}

/// A text that fails where memory ends.
struct Text(Vec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.add(part.as_bytes())
    }
}

impl Text {
    fn add(&mut self, part: &[u8]) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.extend_from_slice(part);
        Ok(())
    }

    fn line(&mut self, region: &Region) -> fmt::Result {
        let start = self.0.len();
        let attributes = &region.attributes;
        let rights = attributes.protection;
        let has = |right, letter| if rights.contains(right) { letter } else { '-' };
        let (reads, writes) = (has(Protection::READ, 'r'), has(Protection::WRITE, 'w'));
        let executes = has(Protection::EXECUTE, 'x');
        let is_shared = attributes.is_shared();
        let shared = if is_shared { 's' } else { 'p' };
        let (first, end) = (region.start.get(), region.end.get());
        write!(self, "{first:08x}-{end:08x} {reads}{writes}{executes}{shared} ")?;
        let name = region.object_at(region.start).and_then(|(object, _)| object.name());
        let name = name.map(|name| &**name);
        match name {
            Some(Name::File { device, number, .. }) => {
                let offset = attributes.backing.as_ref().map_or(0, |backing| backing.offset);
                let major = device >> 8 & 0xfff;
                let minor = device & 0xff | device >> 12 & 0xf_ff00;
                write!(self, "{offset:08x} {major:02x}:{minor:02x} {number} ")?;
            }
            _ => self.write_str("00000000 00:00 0 ")?,
        }
        let name: &[u8] = match (name, attributes.kind) {
            (Some(Name::File { path, .. }), _) => path,
            (Some(Name::Vdso), _) if is_shared => b"[vvar]",
            (Some(Name::Vdso), _) => b"[vdso]",
            (None, Kind::Heap) => b"[heap]",
            (None, Kind::Stack) => b"[stack]",
            _ => return self.add(b"\n"),
        };
        while self.0.len() < start + NAME_AT {
            self.add(b" ")?;
        }
        for &byte in name {
            match byte {
                b'\n' => self.add(b"\\012")?,
                byte => self.add(&[byte])?,
            }
        }
        self.add(b"\n")
    }
}
