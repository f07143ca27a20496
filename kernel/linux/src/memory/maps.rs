// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/self/maps` (proc(5)): what Linux tells by that name is the shadow's. A program that opens
//! it gets a file with the mappings that it has at that moment.

use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_core::{
    mm::{
        object::Name,
        space::{AddressSpace, Kind, Protection, Region},
    },
    task,
};
use linux_raw_sys::general as linux;

use super::{Scratch, user};
use crate::{
    abi::{Errno, SysResult},
    files::{self, names},
    process::ThreadExt as _,
    remote,
};

/// Flags of open(2) that change nothing of it.
const PLAIN: u32 = linux::O_CLOEXEC
    | linux::O_LARGEFILE
    | linux::O_NOATIME
    | linux::O_NOCTTY
    | linux::O_NOFOLLOW
    | linux::O_NONBLOCK;
/// Bytes that Linux is given at a time.
const PART: usize = 16 * PAGE_SIZE as usize;
/// Where the name begins in a line.
const NAME_AT: usize = 73;

/// Opens the file if that is what the path at an address of the program means. Sleeps, and asks
/// Linux.
pub fn open(path: UserAddr, flags: u32) -> Option<SysResult> {
    let current = task::current();
    let user = current.user()?;
    let is_meant = flags & !PLAIN == 0 && names::is_maps(path, user.process.pid);
    is_meant.then(|| make(flags & linux::O_CLOEXEC != 0))
}

fn make(closes: bool) -> SysResult {
    let space = user::space()?;
    let text = text(&space)?;
    let files = files::table()?;
    files.agree()?;
    let length = text.len().clamp(PAGE_SIZE as usize, PART) as u64;
    let scratch = Scratch::open(&space, length.next_multiple_of(PAGE_SIZE))?;
    space.write(scratch.start, b"maps\0")?;
    let flags = if closes { linux::MFD_CLOEXEC } else { 0 };
    let made = remote::own_call(linux::__NR_memfd_create, &[scratch.start.get(), flags.into()])?;
    let fd = files.settle(made)?;
    for (part, at) in text.chunks(PART).zip((0..).step_by(PART)) {
        space.write(scratch.start, part)?;
        let args = [fd, scratch.start.get(), part.len() as u64, at];
        remote::linux(linux::__NR_pwrite64, &args)?;
    }
    Ok(fd)
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
        let name = name.as_deref();
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

fn text(space: &AddressSpace) -> Result<Vec<u8>, Errno> {
    let mut text = Text(Vec::new());
    let mut result = Ok(());
    space.regions(&mut |region| result = result.and_then(|()| text.line(region)));
    result.map_err(|_| Errno::ENOMEM)?;
    Ok(text.0)
}
