// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous transfers (io_submit(2) and relatives). See [`crate::files::aio`].

use alloc::sync::Arc;

use crtos_abi::UserAddr;
use crtos_core::{
    task,
    time::{self, Nanos},
};
use crtos_syscalls::lookup;
use linux_raw_sys::general as linux;

use super::descriptors;
use crate::{
    abi::{Args, Errno, SysResult},
    files::{
        self, Memory,
        aio::{Context, Outcome},
        event::Signaller,
    },
    memory::{Scratch, timespec::SECOND, user},
    process::{Process, ThreadExt as _},
    signal,
};

/// What is asked for (`IOCB_CMD_*`).
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// An eventfd is told as well (IOCB_FLAG_RESFD).
const TELLS: u32 = 1;

/// Words of a `struct iocb`, and where the kernel's key is in it.
const WORDS: usize = 8;
const KEY: u64 = 8;

/// What a program asks for: a `struct iocb`.
struct Asked {
    at: UserAddr,
    data: u64,
    flags_of_transfer: u32,
    what: u16,
    fd: u64,
    buffer: u64,
    count: u64,
    offset: u64,
    flags: u32,
    /// The eventfd.
    told: u64,
}

impl Asked {
    fn read(at: UserAddr) -> Result<Self, Errno> {
        let [data, key, what, buffer, count, offset, reserved, more]: [u64; WORDS] =
            user::read_words(at)?;
        if reserved != 0 || (count as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            at,
            data,
            flags_of_transfer: (key >> 32) as u32,
            what: what as u16,
            fd: what >> 32,
            buffer,
            count,
            offset,
            flags: more as u32,
            told: more >> 32,
        })
    }

    /// The eventfd that is told.
    fn event(&self) -> Result<Option<Signaller>, Errno> {
        if self.flags & TELLS == 0 {
            return Ok(None);
        }
        let file = files::find(self.told).ok_or_else(|| match exists(self.told) {
            Ok(()) => Errno::EINVAL,
            Err(error) => error,
        })?;
        Signaller::new(file).map(Some)
    }

    /// Does it. An error of the outer result is that of a call that asks for nothing sound; the
    /// inner one is how it came out.
    fn carry_out(&self) -> Result<SysResult, Errno> {
        let (is_transfer, reads) = match self.what {
            PREAD | PREADV => (true, true),
            PWRITE | PWRITEV => (true, false),
            FSYNC | FDSYNC => (false, false),
            _ => return Err(Errno::EINVAL),
        };
        if !is_transfer {
            let all = self.buffer | self.offset | self.count | u64::from(self.flags_of_transfer);
            if all != 0 {
                return Err(Errno::EINVAL);
            }
            let number = if self.what == FSYNC { linux::__NR_fsync } else { linux::__NR_fdatasync };
            return match call(number, [self.fd, 0, 0, 0, 0, 0]) {
                // There is nothing that could be written back.
                Err(Errno::EINVAL) => Err(Errno::EINVAL),
                result => sound(result),
            };
        }
        let buffer = UserAddr::new(self.buffer);
        let is_vector = matches!(self.what, PREADV | PWRITEV);
        // Bad ranges are told at once, bad memory in them is how the transfer comes out.
        let memory = match is_vector {
            true => Memory::vector(buffer, self.count)?,
            false => Memory::one(buffer, self.count)?,
        };
        drop(memory);
        if (self.offset as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let number = match (self.flags_of_transfer, is_vector, reads) {
            (0, false, true) => linux::__NR_pread64,
            (0, false, false) => linux::__NR_pwrite64,
            (0, true, true) => linux::__NR_preadv,
            (0, true, false) => linux::__NR_pwritev,
            _ => return self.carry_out_by_flags(is_vector, reads),
        };
        let arguments = [self.fd, self.buffer, self.count, self.offset, 0, 0];
        match call(number, arguments) {
            // What has no positions is read and written where it is.
            Err(Errno::ESPIPE) => {
                let number = match (is_vector, reads) {
                    (false, true) => linux::__NR_read,
                    (false, false) => linux::__NR_write,
                    (true, true) => linux::__NR_readv,
                    (true, false) => linux::__NR_writev,
                };
                sound(call(number, arguments))
            }
            result => sound(result),
        }
    }

    /// The same where flags of the transfer say how (RWF_*).
    fn carry_out_by_flags(&self, is_vector: bool, reads: bool) -> Result<SysResult, Errno> {
        let space = user::space()?;
        let scratch = Scratch::open(&space, 16)?;
        user::write_words(scratch.start, [self.buffer, self.count])?;
        let (vector, count) = match is_vector {
            true => (self.buffer, self.count),
            false => (scratch.start.get(), 1),
        };
        let number = if reads { linux::__NR_preadv2 } else { linux::__NR_pwritev2 };
        let flags = self.flags_of_transfer.into();
        // The position's own upper half is in its first word.
        match call(number, [self.fd, vector, count, self.offset, 0, flags]) {
            Err(Errno::ESPIPE) => sound(call(number, [self.fd, vector, count, u64::MAX, 0, flags])),
            Err(Errno::EOPNOTSUPP) => Err(Errno::EOPNOTSUPP),
            result => sound(result),
        }
    }
}

/// What a call came to, but for what Linux says at once.
fn sound(result: SysResult) -> Result<SysResult, Errno> {
    match result {
        // A signal came before it was begun: it is asked for once more.
        Err(error @ (Errno::EBADF | Errno::RESTART_ALWAYS)) => Err(error),
        Err(Errno::EISDIR) => Err(Errno::EINVAL),
        result => Ok(result),
    }
}

/// EBADF if Linux has no descriptor `fd` for the program.
fn exists(fd: u64) -> Result<(), Errno> {
    call(linux::__NR_fcntl, [fd, linux::F_GETFD.into(), 0, 0, 0, 0]).map(|_| ())
}

/// Makes a call on a descriptor, as the program would.
fn call(number: u32, args: Args) -> SysResult {
    let row = lookup(number.into()).ok_or(Errno::ENOSYS)?;
    match number {
        linux::__NR_read => descriptors::read(row, args),
        linux::__NR_write => descriptors::write(row, args),
        linux::__NR_readv => descriptors::readv(row, args),
        linux::__NR_writev => descriptors::writev(row, args),
        linux::__NR_pread64 => descriptors::pread(row, args),
        linux::__NR_pwrite64 => descriptors::pwrite(row, args),
        linux::__NR_preadv => descriptors::preadv(row, args),
        linux::__NR_pwritev => descriptors::pwritev(row, args),
        linux::__NR_preadv2 => descriptors::preadv2(row, args),
        linux::__NR_pwritev2 => descriptors::pwritev2(row, args),
        linux::__NR_fcntl => descriptors::fcntl(row, args),
        _ => descriptors::remote(row, args),
    }
}

fn process() -> Result<Arc<Process>, Errno> {
    task::current().user().map(|user| user.process.clone()).ok_or(Errno::ESRCH)
}

fn context(name: u64) -> Result<Arc<Context>, Errno> {
    process()?.contexts.get(name)
}

/// More events are no number of such: Linux makes room for twice as many, of 256 MiB at most.
const MOST_EVENTS: u32 = 0x1000_0000 / 32 / 2;

/// io_setup(count, context).
pub fn io_setup([count, at, ..]: Args) -> SysResult {
    let at = UserAddr::new(at);
    let [before] = user::read_words(at)?;
    let count = count as u32;
    if before != 0 || count == 0 || count > MOST_EVENTS {
        return Err(Errno::EINVAL);
    }
    let process = process()?;
    let context = process.contexts.add(&process.space, count)?;
    if let Err(error) = user::write_words(at, [context.name()]) {
        let _ = process.contexts.remove(&process.space, context.name());
        return Err(error.into());
    }
    Ok(0)
}

/// io_destroy(context).
pub fn io_destroy([name, ..]: Args) -> SysResult {
    let process = process()?;
    process.contexts.remove(&process.space, name).map(|()| 0)
}

/// io_submit(context, count, control blocks).
pub fn io_submit([name, count, blocks, ..]: Args) -> SysResult {
    if (count as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let context = context(name)?;
    let process = process()?;
    let blocks = UserAddr::new(blocks);
    // As under Linux, not more than are told without anybody taking them.
    let count = count.min(context.room());
    let mut done = 0;
    while done < count && !process.is_ending() {
        match submit(&context, blocks.wrapping_add(8 * done)) {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Does what the control block asks for whose address is at `at`.
fn submit(context: &Context, at: UserAddr) -> Result<(), Errno> {
    let [block] = user::read_words(at)?;
    let asked = Asked::read(UserAddr::new(block))?;
    context.begin()?;
    let prepare = || {
        let event = asked.event()?;
        user::write_u32(asked.at + KEY, 0)?;
        Ok((event, asked.carry_out()?))
    };
    let (event, result) = prepare().map_err(|error: Errno| {
        context.cancel();
        // A descriptor that is none is complained of first.
        if error == Errno::RESTART_ALWAYS || files::find(asked.fd).is_some() {
            error
        } else {
            exists(asked.fd).err().unwrap_or(error)
        }
    })?;
    let result = result.unwrap_or_else(|error| match Errno::restart(error.value()) {
        // It is not made again.
        Some(_) => Errno::EINTR.value(),
        None => error.value(),
    });
    context.tell(&Outcome { data: asked.data, control_block: asked.at.get(), result });
    if let Some(event) = event {
        event.signal();
    }
    Ok(())
}

/// io_cancel(context, control block, result): what is under way is not to be ended.
pub fn io_cancel([name, block, ..]: Args) -> SysResult {
    user::read_u32(UserAddr::new(block).wrapping_add(KEY))?;
    context(name)?;
    Err(Errno::EINVAL)
}

/// Until when a call waits; `None` for as long as it takes, 0 if it does not. Any time will do, as
/// under Linux.
fn deadline(timeout: UserAddr) -> Result<Option<Nanos>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    let [seconds, nanoseconds] = user::read_words(timeout)?.map(|word| word as i64);
    let time = i128::from(seconds) * i128::from(SECOND) + i128::from(nanoseconds);
    let time = u64::try_from(time.max(0)).unwrap_or(u64::MAX);
    Ok(Some(if time == 0 { Nanos::ZERO } else { Nanos(time::now().0.saturating_add(time)) }))
}

fn get_events(args: Args, deadline: Option<Nanos>) -> SysResult {
    let [name, least, most, events, ..] = args;
    let context = context(name)?;
    if least as i64 > most as i64 || (least as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    context.receive(UserAddr::new(events), least, most, deadline)
}

/// io_getevents(context, least, most, events, timeout).
pub fn io_getevents(args: Args) -> SysResult {
    get_events(args, deadline(UserAddr::new(args[4]))?)
}

/// io_pgetevents(context, least, most, events, timeout, mask): with the mask of signals that a
/// `struct __aio_sigset` names.
pub fn io_pgetevents(args: Args) -> SysResult {
    let deadline = deadline(UserAddr::new(args[4]))?;
    let [mask, size] = match args[5] {
        0 => [0, 0],
        at => user::read_words(UserAddr::new(at))?,
    };
    signal::masked(UserAddr::new(mask), size, || get_events(args, deadline))
}
