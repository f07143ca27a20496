// SPDX-License-Identifier: MIT OR Apache-2.0
//! splice, tee, vmsplice and sendfile with a local pipe. All others are Linux's.
//!
//! Bytes go from one descriptor to the other by way of [`Scratch`] memory of the program, which
//! both kernels can reach. A pipe lends them, or has room for them before they come, so that what
//! finds no place is still there.

use alloc::sync::Arc;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_syscalls::{Row, lookup};
use linux_raw_sys::general as linux;

use super::descriptors::remote;
use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Memory, Object, pipe::Pipe},
    memory::{Scratch, contents::Status, user},
    remote::pass,
};

/// Flags of the calls.
const KNOWN: u32 =
    linux::SPLICE_F_MOVE | linux::SPLICE_F_NONBLOCK | linux::SPLICE_F_MORE | linux::SPLICE_F_GIFT;

/// Most bytes on their way at a time.
const PIECE: u64 = 64 << 10;

/// One end of a transfer.
enum End {
    /// A file of this kernel.
    Local(Arc<Description>),
    /// A descriptor of Linux.
    Remote(u64),
}

impl End {
    /// What a descriptor stands for.
    fn of(fd: u64) -> Result<Self, Errno> {
        let files = files::table()?;
        match files::find(fd) {
            Some(file) => Ok(Self::Local(file)),
            None if files.is_hidden(fd) => Err(Errno::EBADF),
            None => Ok(Self::Remote(fd)),
        }
    }

    fn pipe(&self) -> Option<&Arc<Pipe>> {
        match self {
            Self::Local(file) => file.pipe(),
            Self::Remote(_) => None,
        }
    }

    /// What it is for a splice.
    fn nature(&self) -> Result<Nature, Errno> {
        match self {
            Self::Local(file) => Ok(Nature {
                status: file.status(),
                streams: !matches!(
                    file.object,
                    Object::Event(_) | Object::Timer(_) | Object::Signals(_)
                ),
                is_directory: false,
            }),
            Self::Remote(fd) => {
                let status = Status::of(*fd)?;
                let kind = status.file.mode & linux::S_IFMT;
                Ok(Nature {
                    status: status.flags as u32,
                    // An epoll set, an inotify and the like are no files of any kind.
                    streams: kind != 0,
                    is_directory: kind == linux::S_IFDIR,
                })
            }
        }
    }

    fn is_nonblocking(&self) -> bool {
        matches!(self, Self::Local(file) if file.status() & linux::O_NONBLOCK != 0)
    }

    /// Reads into the program's memory, at a position if there is one.
    fn read(
        &self,
        to: UserAddr,
        length: u64,
        position: Option<u64>,
        nonblocking: bool,
    ) -> SysResult {
        match (self, position) {
            (Self::Local(file), None) => file.read(&mut Memory::one(to, length)?, nonblocking),
            (Self::Local(_), Some(_)) => Err(Errno::EINVAL),
            (Self::Remote(fd), None) => ask(linux::__NR_read, [*fd, to.get(), length, 0]),
            (Self::Remote(fd), Some(at)) => ask(linux::__NR_pread64, [*fd, to.get(), length, at]),
        }
    }

    /// Writes from the program's memory.
    fn write(
        &self,
        from: UserAddr,
        length: u64,
        position: Option<u64>,
        nonblocking: bool,
    ) -> SysResult {
        match (self, position) {
            (Self::Local(file), None) => file.write(&mut Memory::one(from, length)?, nonblocking),
            (Self::Local(_), Some(_)) => Err(Errno::EINVAL),
            (Self::Remote(fd), None) => ask(linux::__NR_write, [*fd, from.get(), length, 0]),
            (Self::Remote(fd), Some(at)) => {
                ask(linux::__NR_pwrite64, [*fd, from.get(), length, at])
            }
        }
    }
}

/// Has Linux read or write.
fn ask(number: u32, [a, b, c, d]: [u64; 4]) -> SysResult {
    pass(lookup(number.into()).ok_or(Errno::ENOSYS)?, [a, b, c, d, 0, 0])
}

/// What a file is for a splice.
struct Nature {
    /// The status flags, with the access mode.
    status: u32,
    /// It takes and gives bytes as they come.
    streams: bool,
    is_directory: bool,
}

/// Whether the ends may be read and written.
fn check(input: &End, output: &End) -> Result<[Nature; 2], Errno> {
    let (input, output) = (input.nature()?, output.nature()?);
    let mode = |nature: &Nature| nature.status & linux::O_ACCMODE;
    match (mode(&input), mode(&output)) {
        (linux::O_WRONLY, _) | (_, linux::O_RDONLY) => Err(Errno::EBADF),
        _ => Ok([input, output]),
    }
}

/// Whether bytes can go from one to the other: told before anything is waited for.
fn check_kinds([input, output]: &[Nature; 2]) -> Result<(), Errno> {
    match input.streams && !input.is_directory && output.streams {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// A transfer between two descriptors, one of them a local pipe.
struct Transfer {
    input: End,
    output: End,
    /// Where to read and write, if not where the files are.
    from: Option<u64>,
    to: Option<u64>,
    nonblocking: bool,
}

impl Transfer {
    /// Moves up to `length` bytes; tells how many.
    fn run(&self, length: u64) -> SysResult {
        let space = user::space()?;
        let scratch = Scratch::open(&space, length.min(PIECE).next_multiple_of(PAGE_SIZE))?;
        match (self.input.pipe(), self.output.pipe()) {
            (None, None) => Err(Errno::EINVAL),
            (None, Some(to)) => self.bring(&scratch, to, length),
            (Some(from), Some(to)) => {
                let room = to.room(self.nonblocking)?;
                self.take(&scratch, from, length.min(room), 0)
            }
            (Some(from), None) => {
                let mut done = 0;
                while done < length {
                    match self.take(&scratch, from, length - done, done) {
                        Ok(0) => break,
                        Ok(moved) => done += moved,
                        Err(_) if done > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(done)
            }
        }
    }

    /// Moves what the scratch memory holds, at most, into a pipe, which has room for all that is
    /// read: what has no position would lose it otherwise.
    fn bring(&self, scratch: &Scratch<'_>, to: &Pipe, length: u64) -> SysResult {
        let room = to.claim(length.min(PIECE), self.nonblocking)?;
        let length = length.min(room.room());
        let count = self.input.read(scratch.start, length, self.from, self.nonblocking)?;
        Ok(room.write(&mut Memory::one(scratch.start, count)?))
    }

    /// Moves what the scratch memory holds, at most, out of a pipe, after `done` bytes.
    fn take(&self, scratch: &Scratch<'_>, from: &Pipe, length: u64, done: u64) -> SysResult {
        let nonblocking = self.nonblocking || done > 0;
        let mut memory = Memory::one(scratch.start, length.min(PIECE))?;
        let (lent, count) = from.lend(&mut memory, nonblocking)?;
        let mut written = 0;
        let mut result = Ok(());
        while written < count {
            let at = self.to.map(|position| position.wrapping_add(done + written));
            match self.output.write(scratch.start + written, count - written, at, self.nonblocking)
            {
                Ok(0) => break,
                Ok(moved) => written += moved,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        lent.end(written);
        match result {
            Err(error) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }
}

/// The offset at `pointer`, if there is one.
fn offset(pointer: UserAddr) -> Result<Option<u64>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    let [offset] = user::read_words(pointer)?;
    if (offset as i64) < 0 { Err(Errno::EINVAL) } else { Ok(Some(offset)) }
}

/// Stores how far an offset has come.
fn store_offset(pointer: UserAddr, before: Option<u64>, moved: u64) -> Result<(), Errno> {
    if let Some(before) = before {
        user::write_words(pointer, [before.wrapping_add(moved)])?;
    }
    Ok(())
}

/// splice(input, its offset, output, its offset, length, flags).
pub fn splice(row: &Row, args: Args) -> SysResult {
    let [input, from, output, to, length, flags] = args;
    let [from, to] = [from, to].map(UserAddr::new);
    if length == 0 {
        return Ok(0);
    }
    if flags as u32 & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let (input, output) = (End::of(input)?, End::of(output)?);
    if input.pipe().is_none() && output.pipe().is_none() {
        return remote(row, args);
    }
    let natures = check(&input, &output)?;
    if input.pipe().is_some() && !from.is_null() || output.pipe().is_some() && !to.is_null() {
        return Err(Errno::ESPIPE);
    }
    if let (Some(a), Some(b)) = (input.pipe(), output.pipe())
        && Arc::ptr_eq(a, b)
    {
        return Err(Errno::EINVAL);
    }
    if output.pipe().is_none() && natures[1].status & linux::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    check_kinds(&natures)?;
    let nonblocking = flags as u32 & linux::SPLICE_F_NONBLOCK != 0
        || input.is_nonblocking()
        || output.is_nonblocking();
    let (start, end) = (offset(from)?, offset(to)?);
    let moved = Transfer { input, output, from: start, to: end, nonblocking }.run(length)?;
    store_offset(from, start, moved)?;
    store_offset(to, end, moved)?;
    Ok(moved)
}

/// sendfile(output, input, offset, length).
pub fn sendfile(row: &Row, args: Args) -> SysResult {
    let [output, input, from, length, ..] = args;
    let (input, output) = (End::of(input)?, End::of(output)?);
    // From a pipe, Linux refuses it.
    if output.pipe().is_none() || matches!(input, End::Local(_)) {
        return remote(row, args);
    }
    let from = UserAddr::new(from);
    let start = offset(from)?;
    let natures = check(&input, &output)?;
    if length == 0 {
        return Ok(0);
    }
    check_kinds(&natures)?;
    let moved =
        Transfer { input, output, from: start, to: None, nonblocking: false }.run(length)?;
    store_offset(from, start, moved)?;
    Ok(moved)
}

/// tee(input, output, length, flags): at most a page at a time.
pub fn tee(row: &Row, args: Args) -> SysResult {
    let [input, output, length, flags, ..] = args;
    if flags as u32 & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let (input, output) = (End::of(input)?, End::of(output)?);
    check(&input, &output)?;
    let (from, to) = match (input.pipe(), output.pipe()) {
        (None, None) => return remote(row, args),
        (Some(from), Some(to)) if !Arc::ptr_eq(from, to) => (from, to),
        _ => return Err(Errno::EINVAL),
    };
    let nonblocking = flags as u32 & linux::SPLICE_F_NONBLOCK != 0
        || input.is_nonblocking()
        || output.is_nonblocking();
    let space = user::space()?;
    let scratch = Scratch::open(&space, PAGE_SIZE)?;
    let length = length.min(PAGE_SIZE).min(to.room(nonblocking)?);
    let seen = from.peek(&mut Memory::one(scratch.start, length)?, nonblocking)?;
    output.write(scratch.start, seen, None, nonblocking)
}

/// vmsplice(fd, vector, count, flags): as writev or readv, but that a write does not wait for more
/// room than there is.
pub fn vmsplice(row: &Row, args: Args) -> SysResult {
    let [fd, vector, count, flags, ..] = args;
    if flags as u32 & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let End::Local(file) = End::of(fd)? else { return remote(row, args) };
    let pipe = file.pipe().ok_or(Errno::EBADF)?;
    let nonblocking = flags as u32 & linux::SPLICE_F_NONBLOCK != 0;
    let mut memory = Memory::vector(UserAddr::new(vector), count)?;
    if memory.left() == 0 {
        return Ok(0);
    }
    if !file.writes {
        return file.read(&mut memory, nonblocking);
    }
    memory.limit(pipe.room(nonblocking)?);
    file.write(&mut memory, nonblocking)
}
