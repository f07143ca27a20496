// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use crtos_abi::UserAddr;
use crtos_syscalls::{Row, lookup};
use linux_raw_sys::general as linux;

use super::{elsewhere, local};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Memory, Object},
    memory::user,
    remote::pass,
};

/// Position that means the file's own.
pub(super) const HERE: u64 = u64::MAX;

/// read(fd, buffer, length).
pub fn read(row: &Row, args: Args) -> SysResult {
    read_to(row, args, Memory::one)
}

/// write(fd, buffer, length).
pub fn write(row: &Row, args: Args) -> SysResult {
    let [fd, buffer, length, ..] = args;
    write_from(row, args, Memory::one, |done| {
        let rest = (UserAddr::new(buffer).wrapping_add(done), length - done);
        write_rest(fd, done, [Ok(rest)])
    })
}

/// readv(fd, vector, count).
pub fn readv(row: &Row, args: Args) -> SysResult {
    read_to(row, args, Memory::vector)
}

/// writev(fd, vector, count).
pub fn writev(row: &Row, args: Args) -> SysResult {
    let [fd, vector, count, ..] = args;
    write_from(row, args, Memory::vector, |done| {
        let mut before = done;
        let rest = (0..count).map(|index| {
            let at = UserAddr::new(vector).wrapping_add(index * 16);
            let [start, length] = user::read_words(at)?;
            let skipped = before.min(length);
            before -= skipped;
            Ok((UserAddr::new(start).wrapping_add(skipped), length - skipped))
        });
        write_rest(fd, done, rest)
    })
}

/// As [`read_to`]. Where the file leaves the realm in the middle of a write, `rest` goes on behind
/// what was written.
#[inline(always)]
fn write_from(
    row: &Row,
    args: Args,
    ranges: impl FnOnce(UserAddr, u64) -> Result<Memory, Errno>,
    rest: impl FnOnce(u64) -> u64,
) -> SysResult {
    let file = local!(row, args);
    if !file.writes {
        return Err(Errno::EBADF);
    }
    let mut memory = ranges(UserAddr::new(args[1]), args[2])?;
    let written = file.write(&mut memory, false)?;
    let is_cut = memory.left() > 0 && file.has_left();
    let waits = is_cut && file.status() & linux::O_NONBLOCK == 0;
    Ok(if waits { rest(written) } else { written })
}

/// Has Linux write those ranges to its file, behind `done` bytes; tells how many there are then.
#[cold]
fn write_rest(
    fd: u64,
    done: u64,
    ranges: impl IntoIterator<Item = Result<(UserAddr, u64), Errno>>,
) -> u64 {
    let mut done = done;
    if files::find(fd).is_some() {
        return done;
    }
    for range in ranges {
        let Ok((start, length)) = range else { break };
        if length == 0 {
            continue;
        }
        let args = [fd, start.get(), length, 0, 0, 0];
        match lookup(linux::__NR_write.into()).map(|row| pass(row, args)) {
            Some(Ok(written)) => {
                done += written;
                if written < length {
                    break;
                }
            }
            _ => break,
        }
    }
    done
}

/// `ranges`: what the second and the third argument of a transfer say of the program's memory.
#[inline(always)]
pub(super) fn read_to(
    row: &Row,
    args: Args,
    ranges: impl FnOnce(UserAddr, u64) -> Result<Memory, Errno>,
) -> SysResult {
    let file = local!(row, args);
    if !file.reads {
        return Err(Errno::EBADF);
    }
    file.read(&mut ranges(UserAddr::new(args[1]), args[2])?, false)
}

/// Whether a position can be given.
pub(super) fn check_position(file: &Description, position: u64) -> Result<(), Errno> {
    if (position as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    match &file.object {
        // Here it means nothing.
        Object::Device(_) => Ok(()),
        Object::Character(special) if special.file.has_positions() => Ok(()),
        _ => Err(Errno::ESPIPE),
    }
}

/// What finds the program's memory, by the second and the third argument of a transfer.
type Ranges = fn(UserAddr, u64) -> Result<Memory, Errno>;

fn read_positioned(row: &Row, args: Args, ranges: Ranges) -> SysResult {
    let file = local!(row, args);
    check_position(&file, args[3])?;
    if !file.reads {
        return Err(Errno::EBADF);
    }
    file.read_at(&mut ranges(UserAddr::new(args[1]), args[2])?, args[3], false)
}

fn write_positioned(row: &Row, args: Args, ranges: Ranges) -> SysResult {
    let file = local!(row, args);
    check_position(&file, args[3])?;
    if !file.writes {
        return Err(Errno::EBADF);
    }
    file.write_at(&mut ranges(UserAddr::new(args[1]), args[2])?, args[3], false)
}

/// pread64(fd, buffer, length, position).
pub fn pread(row: &Row, args: Args) -> SysResult {
    read_positioned(row, args, Memory::one)
}

/// pwrite64(fd, buffer, length, position).
pub fn pwrite(row: &Row, args: Args) -> SysResult {
    write_positioned(row, args, Memory::one)
}

/// preadv(fd, vector, count, position).
pub fn preadv(row: &Row, args: Args) -> SysResult {
    read_positioned(row, args, Memory::vector)
}

/// pwritev(fd, vector, count, position).
pub fn pwritev(row: &Row, args: Args) -> SysResult {
    write_positioned(row, args, Memory::vector)
}

/// Whether the transfer must not wait, from the RWF_* flags.
pub(super) fn transfer_flags(file: &Description, flags: u64, writes: bool) -> Result<bool, Errno> {
    let common = linux::RWF_HIPRI | linux::RWF_DSYNC | linux::RWF_SYNC | linux::RWF_NOWAIT;
    let known = if writes { common | linux::RWF_APPEND } else { common };
    let nowait = flags as u32 & linux::RWF_NOWAIT != 0;
    let offers = matches!(file.object, Object::Device(_) | Object::Pipe(_)) || !nowait;
    if flags as u32 & !known != 0 || !offers {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(nowait)
}

/// preadv2(fd, vector, count, position, high position, flags).
pub fn preadv2(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    if args[3] != HERE {
        check_position(&file, args[3])?;
    }
    if !file.reads {
        return Err(Errno::EBADF);
    }
    let mut memory = Memory::vector(UserAddr::new(args[1]), args[2])?;
    let nonblocking = transfer_flags(&file, args[5], false)?;
    match args[3] {
        HERE => file.read(&mut memory, nonblocking),
        position => file.read_at(&mut memory, position, nonblocking),
    }
}

/// pwritev2(fd, vector, count, position, high position, flags).
pub fn pwritev2(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    if args[3] != HERE {
        check_position(&file, args[3])?;
    }
    if !file.writes {
        return Err(Errno::EBADF);
    }
    let mut memory = Memory::vector(UserAddr::new(args[1]), args[2])?;
    let nonblocking = transfer_flags(&file, args[5], true)?;
    match args[3] {
        HERE => file.write(&mut memory, nonblocking),
        position => file.write_at(&mut memory, position, nonblocking),
    }
}

/// lseek(fd, offset, whence).
pub fn lseek(row: &Row, args: Args) -> SysResult {
    const SEEK_MAX: u32 = 4;
    match &local!(row, args).object {
        _ if args[2] as u32 > SEEK_MAX => Err(Errno::EINVAL),
        Object::Character(special) => special.file.seek(args[1], args[2] as u32),
        Object::Pipe(_) | Object::LastWords(_) | Object::Socket(_) => Err(Errno::ESPIPE),
        _ => Ok(0),
    }
}
