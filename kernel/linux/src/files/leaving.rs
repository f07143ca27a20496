// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local files that leave the realm, because a descriptor is passed over a socket, or because the
//! program goes on in Linux.
//!
//! - A device becomes Linux's as at any call that only Linux can make ([`Files::globalize`]).
//! - A pipe or an eventfd has Linux make one, which gets what is in it: its [`Successor`]s, one for
//!   each end. Each process that has the local file *follows* when it uses it next
//!   ([`Files::follow`]): Linux's file takes its numbers and its places in epoll sets. Who waits is
//!   woken, makes the call again, and follows by that.
//! - Everything else stays, and so does an end of a pipe that was opened more than once, or an
//!   eventfd that the kernel itself signals.

use alloc::sync::Arc;

use crtos_abi::{PAGE_SIZE, UserAddr};
use linux_raw_sys::general as linux;

use crtos_core::mm::heap;

use super::{Description, Files, Object, Source as _, epoll::Wanted, successor::Successor};
use crate::{
    abi::Errno,
    memory::{Scratch, user},
    remote,
};

/// What Linux has made: of a pipe the end that reads and the one that writes, of an eventfd twice
/// the same.
struct Made {
    reader: u64,
    writer: u64,
}

impl Files {
    /// Makes a descriptor one of Linux's, and with it all others of the same file. `false` if that
    /// cannot be: everything is as before then. May sleep; waits for Linux.
    pub fn leave(&self, fd: u64) -> Result<bool, Errno> {
        let Some(file) = self.find(fd) else { return Ok(true) };
        match file.object {
            Object::Device(_) => self.globalize(fd),
            Object::Pipe(_) | Object::Event(_) => {
                // Another process may send it away at the same time.
                if !file.has_left() && !self.send_away(&file)? && !file.has_left() {
                    return Ok(false);
                }
                drop(file);
                self.follow().map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Before the process goes on in Linux: what can be Linux's becomes so. The others are closed
    /// there.
    pub fn leave_to_linux(&self) -> Result<(), Errno> {
        let mut from = 0;
        while let Some(number) = self.next_local(from) {
            from = number + 1;
            if !self.close_on_exec(number.into()) && !self.leave(number.into())? {
                crtos_core::warn!(
                    "descriptor {number} is local to the realm and closed in a program that goes on in Linux"
                );
            }
        }
        Ok(())
    }

    /// Has what `file` is of, a pipe or an eventfd, become Linux's.
    fn send_away(&self, file: &Description) -> Result<bool, Errno> {
        // For its successors.
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        self.agree()?;
        let Some(made) = self.make_alike(file)? else { return Ok(false) };
        let result = hand_over(&made, file);
        self.close_made(&made);
        result
    }

    /// Has Linux make an empty file of the same kind; `None` where it has none of that size.
    fn make_alike(&self, file: &Description) -> Result<Option<Made>, Errno> {
        match &file.object {
            Object::Pipe(pipe) => {
                let space = user::space()?;
                let ends = Scratch::open(&space, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
                let flags = linux::O_CLOEXEC | linux::O_NONBLOCK;
                remote::linux(linux::__NR_pipe2, &[ends.start.get(), flags.into()])?;
                let [ends] = user::read_words(ends.start)?;
                let reader = self.settle(ends & u64::from(u32::MAX))?;
                let made = Made { reader, writer: self.settle(ends >> 32)? };
                let size = [reader, linux::F_SETPIPE_SZ.into(), pipe.size()];
                if remote::linux(linux::__NR_fcntl, &size) != Ok(pipe.size()) {
                    self.close_made(&made);
                    return Ok(None);
                }
                Ok(Some(made))
            }
            Object::Event(event) => {
                let semaphore = if event.is_semaphore() { linux::EFD_SEMAPHORE } else { 0 };
                let flags = semaphore | linux::EFD_CLOEXEC | linux::EFD_NONBLOCK;
                let made = remote::linux(linux::__NR_eventfd2, &[0, flags.into()])?;
                let made = self.settle(made)?;
                Ok(Some(Made { reader: made, writer: made }))
            }
            _ => Ok(None),
        }
    }

    fn close_made(&self, made: &Made) {
        self.close_in_linux(made.reader);
        if made.writer != made.reader {
            self.close_in_linux(made.writer);
        }
    }

    /// Closes what Linux has at a number.
    fn close_in_linux(&self, fd: u64) {
        drop(self.remove(fd));
        let _ = remote::linux(linux::__NR_close, &[fd]);
    }

    /// Has the successors of all local files that have left take their places in this table, which
    /// is the caller's, and in its epoll sets. May sleep; waits for Linux.
    pub fn follow(&self) -> Result<(), Errno> {
        let mut from = 0;
        while let Some(number) = self.next_local(from) {
            from = number + 1;
            let file = self.find(number.into());
            if let Some(file) = file.filter(|file| file.has_left())
                && let Some(successor) = file.successor()
            {
                self.with_successor(&successor, |fd| self.succeed(&file, &successor, fd))?;
            }
        }
        self.follow_in_sets()
    }

    /// Calls `place` with a descriptor of a successor.
    fn with_successor<R>(
        &self,
        successor: &Successor,
        place: impl FnOnce(u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        // Linux chooses a number, which it does in agreement.
        self.agree()?;
        let fd = self.settle(successor.take()?)?;
        let result = place(fd);
        self.close_in_linux(fd);
        result
    }

    /// Puts Linux's file of descriptor `fd` at all numbers of `file`, and at its places in epoll
    /// sets.
    fn succeed(&self, file: &Description, successor: &Successor, fd: u64) -> Result<(), Errno> {
        // No fork copies the table meanwhile, and Linux's files are taken for placeholders.
        let _agreement = self.hold();
        successor.with_status(|| {
            file.owner.give_to_linux(fd)?;
            let status = [fd, linux::F_SETFL.into(), file.status().into()];
            remote::linux(linux::__NR_fcntl, &status).map(|_| ())
        })?;
        let is_meant = |other: &Arc<Description>| other.address() == file.address();
        let mut from = Some(0);
        while let Some(number) = from.and_then(|from| self.next_local(from)) {
            from = number.checked_add(1);
            if !self.find(number.into()).as_ref().is_some_and(is_meant) {
                continue;
            }
            let close = self.close_on_exec(number.into());
            let flags = if close { linux::O_CLOEXEC } else { 0 };
            remote::linux(linux::__NR_dup3, &[fd, number.into(), flags.into()])?;
            self.forget_local(number);
            self.join_sets(file, Some(number), number)?;
        }
        // By numbers that are another file's by now: a set has a file as long as anybody has it.
        self.join_sets(file, None, fd as u32)
    }

    /// As [`follow`](Self::follow) of members of epoll sets whose files other processes have.
    fn follow_in_sets(&self) -> Result<(), Errno> {
        loop {
            let mut left = None;
            self.sets.each(|_, set| left = left.take().or_else(|| set.left()));
            let Some(file) = left else { return Ok(()) };
            let Some(successor) = file.successor() else { return Ok(()) };
            self.with_successor(&successor, |fd| self.join_sets(&*file, None, fd as u32))?;
        }
    }

    /// Linux's file at number `fd` takes the places that `file` has in epoll sets, by the number
    /// `member` or by any.
    fn join_sets(
        &self,
        file: &dyn super::Source,
        member: Option<u32>,
        fd: u32,
    ) -> Result<(), Errno> {
        let space = user::space()?;
        let event = Scratch::open(&space, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
        let mut result = Ok(());
        self.sets.each(|set_number, set| {
            while let Some(wanted) = set.give_away(file, member) {
                set.add_remote();
                if let Err(error) = join(set_number, fd, wanted, event.start) {
                    set.remove_remote();
                    result = Err(error);
                }
            }
        });
        result
    }
}

/// Linux's file at number `fd` becomes a member of its half of a set. What is wanted is told at an
/// address of the program.
fn join(set: u32, fd: u32, wanted: Wanted, at: UserAddr) -> Result<(), Errno> {
    user::write(at, &wanted.to_bytes())?;
    let args = [set.into(), linux::EPOLL_CTL_ADD.into(), fd.into(), at.get()];
    remote::linux(linux::__NR_epoll_ctl, &args).map(|_| ())
}

/// Moves what is in a pipe or an eventfd to what Linux has made.
fn hand_over(made: &Made, file: &Description) -> Result<bool, Errno> {
    let space = user::space()?;
    let scratch = Scratch::open(&space, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
    let put = |bytes: &[u8]| {
        user::write(scratch.start, bytes)?;
        let length = bytes.len() as u64;
        match remote::linux(linux::__NR_write, &[made.writer, scratch.start.get(), length])? {
            written if written == length => Ok(()),
            _ => Err(Errno::EAGAIN),
        }
    };
    match &file.object {
        Object::Pipe(pipe) => {
            // An end that nobody has is closed with what was made: who uses the other one learns of
            // that at once.
            let keep = |end, is_used| match is_used {
                true => Successor::keep(end).map(Some),
                false => Some(None),
            };
            let Some(reader) = keep(made.reader, pipe.has_readers()) else { return Ok(false) };
            let Some(writer) = keep(made.writer, pipe.has_writers()) else { return Ok(false) };
            let mut are_packets = false;
            pipe.leave([reader, writer], |bytes, is_packet| {
                // Packets stay packets, and a write does not wait.
                if is_packet != are_packets {
                    let packets = if is_packet { linux::O_DIRECT } else { 0 };
                    let flags = packets | linux::O_NONBLOCK;
                    let args = [made.writer, linux::F_SETFL.into(), flags.into()];
                    remote::linux(linux::__NR_fcntl, &args)?;
                    are_packets = is_packet;
                }
                put(bytes)
            })
        }
        Object::Event(event) => match Successor::keep(made.reader) {
            Some(successor) => event.leave(successor, |counted| put(&counted.to_le_bytes())),
            None => Ok(false),
        },
        _ => Ok(false),
    }
}
