// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's memory that a transfer reads or writes: one range, or the ranges of an `iovec`. It
//! may change or go away meanwhile: each copy says how far it came.

use alloc::vec::Vec;

use crtos_abi::{PAGE_SIZE, UserAddr};

use crtos_core::{
    arch::{InterruptsOff, user_memory},
    mm::heap,
    personality::FastResult,
};

use crate::{abi::Errno, memory::user};

/// Most ranges of a vector (UIO_MAXIOV).
const RANGES: usize = 1024;

/// Bytes that are few, such as a counter.
const FEW: usize = 64;

/// Ranges of the program's memory, and how far a transfer has come.
pub struct Memory {
    /// The present range.
    address: UserAddr,
    length: u64,
    /// The ranges behind it, the last one first.
    further: Vec<(UserAddr, u64)>,
    left: u64,
}

fn check(address: UserAddr, length: u64) -> Result<(), Errno> {
    if user_memory::is_range(address, length) { Ok(()) } else { Err(Errno::EFAULT) }
}

impl Memory {
    /// Most bytes that one call transfers, as under Linux.
    pub const MOST: u64 = 0x7fff_f000;

    /// One range, as read(2) and write(2) are given.
    #[inline(always)]
    pub fn one(address: UserAddr, length: u64) -> Result<Self, Errno> {
        if (length as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        check(address, length)?;
        let length = length.min(Self::MOST);
        Ok(Self { address, length, further: Vec::new(), left: length })
    }

    /// The ranges of `count` iovecs at `vector`.
    pub fn vector(vector: UserAddr, count: u64) -> Result<Self, Errno> {
        let count = usize::try_from(count).ok().filter(|&count| count <= RANGES);
        let count = count.ok_or(Errno::EINVAL)?;
        let mut further = Vec::new();
        if !heap::lends(16 * count) || further.try_reserve_exact(count).is_err() {
            return Err(Errno::ENOMEM);
        }
        let mut left = 0;
        for index in 0..count as u64 {
            let [address, length] = user::read_words(vector.wrapping_add(16 * index))?;
            let address = UserAddr::new(address);
            if (length as i64) < 0 {
                return Err(Errno::EINVAL);
            }
            check(address, length)?;
            let length = length.min(Self::MOST - left);
            left += length;
            further.push((address, length));
        }
        further.reverse();
        let (address, length) = further.pop().unwrap_or((UserAddr::NULL, 0));
        Ok(Self { address, length, further, left })
    }

    /// Bytes to go.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Has the transfer end after `length` bytes.
    pub fn limit(&mut self, length: u64) {
        self.left = self.left.min(length);
    }

    /// Has `call` of the fast path do the rest if that is one range; its result, if it could.
    #[inline(always)]
    pub fn at_once(&self, call: impl FnOnce(UserAddr, u64) -> FastResult) -> Option<u64> {
        if !self.further.is_empty() {
            return None;
        }
        let interrupts = InterruptsOff::take();
        let done = call(self.address, self.length);
        drop(interrupts);
        done.result()
    }

    /// Has `step` transfer up to so many bytes at an address, until `length` bytes are done or it
    /// did less.
    #[inline(always)]
    fn advance(
        &mut self,
        length: usize,
        mut step: impl FnMut(UserAddr, usize, usize) -> usize,
    ) -> usize {
        let mut done = 0;
        loop {
            let part = (length - done).min(self.length as usize);
            let moved = step(self.address, done, part);
            self.address += moved as u64;
            self.length -= moved as u64;
            self.left -= moved as u64;
            done += moved;
            if moved < part || done == length {
                return done;
            }
            let Some(next) = self.further.pop() else { return done };
            (self.address, self.length) = next;
        }
    }

    /// Copies from the program; returns how many bytes. Fewer than asked for: there is no more, or
    /// the memory is bad. May sleep.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        self.advance(to.len(), |address, at, length| read(address, &mut to[at..at + length]))
    }

    /// Copies to the program, as [`Memory::read`].
    #[inline(always)]
    pub fn write(&mut self, from: &[u8]) -> usize {
        // A few bytes mostly have a page that is there.
        if from.len() <= FEW && self.write_whole(from) {
            return from.len();
        }
        self.write_parts(from)
    }

    #[inline(never)]
    fn write_parts(&mut self, from: &[u8]) -> usize {
        self.advance(from.len(), |address, at, length| write(address, &from[at..at + length]))
    }

    /// Copies all of `from` to the program if that is possible at once: the present range has room,
    /// and its pages are there. Interrupts off; at most [`user_memory::STEP`] bytes.
    #[inline(always)]
    pub fn write_at_once(&mut self, from: &[u8]) -> bool {
        let length = from.len() as u64;
        let done = length <= self.length && user_memory::write_at_once(self.address, from);
        if done {
            self.address += length;
            self.length -= length;
            self.left -= length;
        }
        done
    }

    /// Copies all of `from` to the program if that does not take long: as
    /// [`write_at_once`](Self::write_at_once), but of any length, and with interrupts on. Otherwise
    /// a part of it may be there already. Does not sleep.
    #[inline(always)]
    pub fn write_if_there(&mut self, from: &[u8]) -> bool {
        if from.len() <= user_memory::STEP {
            let interrupts = InterruptsOff::take();
            let done = self.write_at_once(from);
            drop(interrupts);
            return done;
        }
        self.write_whole(from)
    }

    /// Copies all of `from` to the program if the present range has room and the pages are there.
    /// Otherwise a part of it may be there already. Does not sleep.
    #[inline(always)]
    fn write_whole(&mut self, from: &[u8]) -> bool {
        let length = from.len() as u64;
        let fits = length <= self.length;
        let done = fits && user_memory::write(self.address, from) == from.len();
        if done {
            self.address += length;
            self.length -= length;
            self.left -= length;
        }
        done
    }

    /// Writes zeros, as [`Memory::write`].
    pub fn clear(&mut self, length: usize) -> usize {
        self.advance(length, |address, _, length| clear(address, length))
    }
}

/// Bytes up to the end of the page, at most `length`.
fn piece(address: UserAddr, length: usize) -> usize {
    length.min((PAGE_SIZE - address.page_offset()) as usize)
}

fn read(address: UserAddr, to: &mut [u8]) -> usize {
    let mut done = user_memory::read(address, to);
    while done < to.len() {
        let at = address + done as u64;
        let length = piece(at, to.len() - done);
        if user::read(at, &mut to[done..done + length]).is_err() {
            break;
        }
        done += length;
    }
    done
}

fn write(address: UserAddr, from: &[u8]) -> usize {
    let mut done = user_memory::write(address, from);
    while done < from.len() {
        let at = address + done as u64;
        let length = piece(at, from.len() - done);
        if user::write(at, &from[done..done + length]).is_err() {
            break;
        }
        done += length;
    }
    done
}

fn clear(address: UserAddr, length: usize) -> usize {
    let mut done = user_memory::clear(address, length);
    while done < length {
        let at = address + done as u64;
        let part = piece(at, length - done);
        if user::zero(at, part as u64).is_err() {
            break;
        }
        done += part;
    }
    done
}
