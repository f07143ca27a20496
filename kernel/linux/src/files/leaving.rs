// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local files that leave the realm, because a descriptor is passed over a socket, or because the
//! program goes on in Linux.
//!
//! - A device becomes Linux's as at any call that only Linux can make ([`Files::globalize`]).
//! - A pipe or an eventfd that no other table has, that nobody uses just now and nobody watches but
//!   the table's epoll sets: Linux makes one, which gets what is in it, all its descriptors and its
//!   places in the sets. Whoever was about to use the local one makes the call again, and finds
//!   Linux's.
//! - Everything else stays.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::{PAGE_SIZE, UserAddr};
use linux_raw_sys::general as linux;

use crtos_core::mm::heap;

use super::{
    Description, Files, Object, Source as _,
    epoll::{Set, Wanted},
};
use crate::{
    abi::Errno,
    memory::{Scratch, user},
    remote,
};

/// Most descriptors of a file that leaves.
const MOST: usize = 64;

/// A descriptor of a file that leaves.
struct Leaving {
    number: u32,
    file: Arc<Description>,
}

/// A place in an epoll set, which a descriptor that leaves has.
struct Place {
    set: Arc<Set>,
    set_number: u32,
    number: u32,
    wanted: Wanted,
}

/// What Linux has made: of a pipe the end that reads and the one that writes, of an eventfd twice
/// the same.
struct Made {
    reader: u64,
    writer: u64,
}

impl Made {
    /// The one that a description becomes.
    fn of(&self, file: &Description) -> u64 {
        if file.reads { self.reader } else { self.writer }
    }
}

impl Files {
    /// Makes a descriptor one of Linux's, and with it all others of the same file. `false` if that
    /// cannot be: everything is as before then. May sleep; waits for Linux.
    pub fn leave(&self, fd: u64) -> Result<bool, Errno> {
        let Some(file) = self.find(fd) else { return Ok(true) };
        match file.object {
            Object::Device(_) => self.globalize(fd),
            Object::Pipe(_) | Object::Event(_) => {
                // Linux chooses numbers, which it does in agreement and before that is held.
                self.agree()?;
                let Some(made) = self.make_alike(&file)? else { return Ok(false) };
                let left = self.move_to(&made, file);
                self.close_in_linux(made.reader);
                if made.writer != made.reader {
                    self.close_in_linux(made.writer);
                }
                left
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
                    self.close_in_linux(made.reader);
                    self.close_in_linux(made.writer);
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

    /// Closes what Linux has at a number.
    fn close_in_linux(&self, fd: u64) {
        drop(self.remove(fd));
        let _ = remote::linux(linux::__NR_close, &[fd]);
    }

    /// Moves what `file` is of, which is a pipe or an eventfd, with all its descriptors.
    fn move_to(&self, made: &Made, file: Arc<Description>) -> Result<bool, Errno> {
        // No fork copies the table meanwhile.
        let _agreement = self.hold();
        let Some(all) = self.all_alike(file)? else { return Ok(false) };
        let Some(first) = all.first() else { return Ok(false) };
        let watched = first.file.watchers().map_or(0, |watchers| watchers.count());
        let Some(places) = self.places_of(&all, watched)? else { return Ok(false) };
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
        // Packets stay packets, and a write does not wait.
        set_status(made, &all, linux::O_NONBLOCK)?;
        self.place(made, &all)?;
        join(&places, scratch.start).inspect_err(|_| self.displace(&all))?;
        let forget = || all.iter().for_each(|one| self.forget_local(one.number));
        match &first.file.object {
            Object::Pipe(pipe) => pipe.leave(put, forget).inspect_err(|_| {
                part(&places);
                self.displace(&all);
            })?,
            Object::Event(event) => {
                forget();
                match event.leave() {
                    0 => {}
                    counted => put(&counted.to_le_bytes())?,
                }
            }
            _ => return Ok(false),
        }
        set_status(made, &all, 0)?;
        Ok(true)
    }

    /// The `count` places that descriptors have in epoll sets of this table; `None` if they have
    /// fewer or more there.
    fn places_of(&self, all: &[Leaving], count: usize) -> Result<Option<Vec<Place>>, Errno> {
        let mut places: Vec<Place> = Vec::new();
        if !heap::lends(count * size_of::<Place>()) || places.try_reserve_exact(count).is_err() {
            return Err(Errno::ENOMEM);
        }
        let mut found = 0;
        self.sets.each(|set_number, set| {
            // One that has several numbers.
            if places.iter().any(|place| Arc::ptr_eq(&place.set, &set)) {
                return;
            }
            for (index, one) in all.iter().enumerate() {
                if all[..index].iter().any(|other| Arc::ptr_eq(&one.file, &other.file)) {
                    continue;
                }
                set.each_of(one.file.address(), |number, wanted| {
                    found += 1;
                    if found <= count {
                        places.push(Place { set: set.clone(), set_number, number, wanted });
                    }
                });
            }
        });
        Ok((found == count).then_some(places))
    }

    /// All descriptors of the same pipe or eventfd as `file`; `None` if somebody else has it or
    /// uses it. The agreement is held.
    fn all_alike(&self, file: Arc<Description>) -> Result<Option<Vec<Leaving>>, Errno> {
        let (address, pipe) = (file.address(), file.pipe().cloned());
        drop(file);
        let is_alike = |other: &Description| match &pipe {
            Some(pipe) => other.pipe().is_some_and(|other| Arc::ptr_eq(pipe, other)),
            None => other.address() == address,
        };
        let mut all = Vec::new();
        if !heap::has_reserve() || all.try_reserve_exact(MOST).is_err() {
            return Err(Errno::ENOMEM);
        }
        let mut from = Some(0);
        while let Some(number) = from.and_then(|from| self.next_local(from)) {
            if let Some(file) = self.find(number.into()).filter(|file| is_alike(file)) {
                if all.len() == MOST {
                    return Ok(None);
                }
                all.push(Leaving { number, file });
            }
            from = number.checked_add(1);
        }
        let references = |one: &Leaving| {
            // One of the table, and one of this list.
            2 * all.iter().filter(|other| Arc::ptr_eq(&one.file, &other.file)).count()
        };
        let is_own = |one: &Leaving| Arc::strong_count(&one.file) == references(one);
        // Linux's has one description for each end.
        let is_the_only_one = |one: &Leaving| {
            let same_end = |other: &&Leaving| one.file.reads == other.file.reads;
            all.iter().filter(same_end).all(|other| Arc::ptr_eq(&one.file, &other.file))
                && (pipe.is_none() || one.file.reads != one.file.writes)
        };
        let is_only_here = pipe.as_ref().is_none_or(|pipe| {
            let end = |reads| all.iter().any(|one| one.file.reads == reads);
            Arc::strong_count(pipe) == usize::from(end(true)) + usize::from(end(false)) + 1
        });
        let goes = is_only_here && all.iter().all(|one| is_own(one) && is_the_only_one(one));
        Ok(goes.then_some(all))
    }

    /// Linux's file is put at the numbers of the local one, which stays in the table. The agreement
    /// is held, so that Linux's is taken for a placeholder there.
    fn place(&self, made: &Made, all: &[Leaving]) -> Result<(), Errno> {
        for (done, Leaving { number, file }) in all.iter().enumerate() {
            let number = u64::from(*number);
            let flags = if self.close_on_exec(number) { linux::O_CLOEXEC } else { 0 };
            let args = [made.of(file), number, flags.into()];
            if let Err(error) = remote::linux(linux::__NR_dup3, &args) {
                self.displace(&all[..done]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes back what [`place`](Self::place) did.
    fn displace(&self, all: &[Leaving]) {
        for Leaving { number, .. } in all {
            let _ = remote::linux(linux::__NR_close, &[u64::from(*number)]);
            self.state.lock().numbers.set_unplaced(*number);
        }
    }
}

/// The status flags of Linux's file, and `further` ones, become those of the local one.
fn set_status(made: &Made, all: &[Leaving], further: u32) -> Result<(), Errno> {
    for Leaving { file, .. } in all {
        file.owner.give_to_linux(made.of(file))?;
        let flags = u64::from(file.status() | further);
        remote::linux(linux::__NR_fcntl, &[made.of(file), linux::F_SETFL.into(), flags])?;
    }
    Ok(())
}

/// Linux's files take the places in its halves of the sets. Those of ours go with the local file.
/// What is wanted is told at an address of the program. If that fails, Linux forgets those that
/// joined with their files.
fn join(places: &[Place], at: UserAddr) -> Result<(), Errno> {
    for (done, Place { set, set_number, number, wanted }) in places.iter().enumerate() {
        let add = linux::EPOLL_CTL_ADD.into();
        let args = [(*set_number).into(), add, (*number).into(), at.get()];
        let joined = user::write(at, &wanted.to_bytes())
            .map_err(Errno::from)
            .and_then(|()| remote::linux(linux::__NR_epoll_ctl, &args));
        if let Err(error) = joined {
            part(&places[..done]);
            return Err(error);
        }
        set.add_remote();
    }
    Ok(())
}

/// Linux's files are about to go from its halves of the sets, with their numbers.
fn part(places: &[Place]) {
    places.iter().for_each(|place| place.set.remove_remote());
}
