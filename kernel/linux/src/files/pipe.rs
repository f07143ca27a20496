// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes.
//!
//! A sleeping lock, which lends its holder the level of its highest waiter, protects the contents;
//! it is held for one page at most, so a long transfer of an ordinary thread holds up a real-time
//! thread for the copy of a page. A write of up to PIPE_BUF bytes is one such step and therefore
//! atomic. Who waits looks at counters and needs no lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use alloc::sync::Arc;
use crtos_abi::UserAddr;
use crtos_files::{Claim, Loan, NoMemory, PAGE, PipeRing};
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::user_memory,
    mm::heap,
    personality::FastResult,
    sync::SpinLock,
    task::{Mutex, WaitQueue},
};

use super::{
    Events, Memory, Watchers,
    successor::{self, Successor},
    wait,
};
use crate::{
    abi::{Errno, SysResult},
    signal,
};

/// Buffers of a new pipe: 64 KiB.
const SIZE: usize = 16;
/// Most bytes of a pipe (/proc/sys/fs/pipe-max-size).
const MOST: u64 = 1 << 20;

/// A pipe.
pub struct Pipe {
    ring: Mutex<PipeRing>,
    /// Buffers in use, buffers that are lent or claimed, and buffers, for those who do not hold the
    /// lock.
    used: AtomicUsize,
    lent: AtomicUsize,
    size: AtomicUsize,
    /// Open descriptions that read, and that write.
    readers: AtomicU32,
    writers: AtomicU32,
    to_read: WaitQueue,
    to_write: WaitQueue,
    watchers: Watchers,
    /// It has left the realm: whoever still uses it makes the call again. Set with the lock held,
    /// as is the next one.
    has_left: AtomicBool,
    /// A description reads and writes, as no end of Linux's own does.
    is_double: AtomicBool,
    /// The ends that it has become in Linux, as long as somebody has them here.
    successors: SpinLock<[Option<Arc<Successor>>; 2]>,
    /// Inode number.
    pub number: u64,
    /// The user who has made it: who may open it by the name of a descriptor.
    pub owner: u32,
}

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Self::ENOMEM
    }
}

impl Pipe {
    /// An empty pipe without ends, of the user `owner`.
    pub fn new(number: u64, owner: u32) -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        Ok(Arc::new(Self {
            ring: Mutex::new(PipeRing::new(SIZE)?),
            used: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            size: AtomicUsize::new(SIZE),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            to_read: WaitQueue::new(),
            to_write: WaitQueue::new(),
            watchers: Watchers::new(),
            has_left: AtomicBool::new(false),
            is_double: AtomicBool::new(false),
            successors: SpinLock::new([None, None]),
            number,
            owner,
        }))
    }

    /// An open description begins to use it.
    pub fn open(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        let _ring = self.ring.lock();
        self.check_here()?;
        self.is_double.fetch_or(reads && writes, Ordering::Relaxed);
        self.readers.fetch_add(reads.into(), Ordering::SeqCst);
        self.writers.fetch_add(writes.into(), Ordering::SeqCst);
        Ok(())
    }

    /// An open description is gone.
    pub fn close(&self, reads: bool, writes: bool) {
        if reads && self.readers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.to_write.wake_all();
            self.watchers.notify(Events::ERROR | Events::OUT);
            self.drop_unused();
        }
        if writes && self.writers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.to_read.wake_all();
            self.watchers.notify(Events::HANG_UP | Events::IN);
            self.drop_unused();
        }
    }

    /// Whether it has left the realm.
    #[inline(always)]
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }

    /// What the end that reads, or the one that writes, has become in Linux.
    pub fn successor(&self, reads: bool) -> Option<Arc<Successor>> {
        self.successors.lock()[usize::from(!reads)].clone()
    }

    /// Drops ends of Linux that nobody has here any more.
    fn drop_unused(&self) {
        for (end, users) in [&self.readers, &self.writers].into_iter().enumerate() {
            let unused = {
                let mut successors = self.successors.lock();
                let is_unused = users.load(Ordering::SeqCst) == 0;
                if is_unused { successors[end].take() } else { None }
            };
            drop(unused);
        }
    }

    /// Whether there is nothing to read just now.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.used.load(Ordering::SeqCst) == 0
    }

    fn is_full(&self) -> bool {
        self.free() == 0
    }

    /// Buffers that are free.
    fn free(&self) -> usize {
        let taken = self.used.load(Ordering::SeqCst) + self.lent.load(Ordering::SeqCst);
        self.size.load(Ordering::SeqCst).saturating_sub(taken)
    }

    /// Whether somebody has the end that reads.
    pub fn has_readers(&self) -> bool {
        self.readers.load(Ordering::SeqCst) > 0
    }

    /// Whether somebody has the end that writes.
    pub fn has_writers(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    /// Reads what is there, and waits if that is nothing.
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let result = self.read_steps(memory, nonblocking);
        self.pass_on_read();
        result
    }

    /// Who was woken to read, and leaves something, also because it failed, wakes the next one.
    fn pass_on_read(&self) {
        if !self.is_empty() {
            self.to_read.wake(1);
        }
    }

    fn read_steps(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let mut done = 0;
        while memory.left() > 0 {
            let step = self.read_step(memory)?;
            match step {
                Step::Moved(bytes, more) => {
                    done += bytes;
                    if !more {
                        break;
                    }
                }
                Step::Fault if done == 0 => return Err(Errno::EFAULT),
                Step::Fault => break,
                Step::Stuck if done > 0 => break,
                Step::Stuck => {
                    if self.is_at_end()? {
                        break;
                    }
                    self.wait_for_bytes(nonblocking)?;
                    if let Some(bytes) = memory.at_once(|to, length| self.read_at_once(to, length))
                    {
                        done += bytes;
                        break;
                    }
                }
            }
        }
        Ok(done)
    }

    /// As [`Pipe::read`] of the first buffer, which stays there.
    pub fn peek(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let result = self.peek_steps(memory, nonblocking);
        self.pass_on_read();
        result
    }

    fn peek_steps(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        loop {
            let seen = self.ring.lock().first().map(|bytes| {
                let wanted = bytes.len().min(memory.left() as usize);
                (memory.write(&bytes[..wanted]), wanted)
            });
            match seen {
                Some((0, wanted)) if wanted > 0 => return Err(Errno::EFAULT),
                Some((seen, _)) => return Ok(seen as u64),
                None if self.is_at_end()? => return Ok(0),
                None => self.wait_for_bytes(nonblocking)?,
            }
        }
    }

    /// Whether nothing will come, where nothing is there.
    fn is_at_end(&self) -> Result<bool, Errno> {
        self.check_here()?;
        // In this order: the last writer may have written before it went.
        Ok(!self.has_writers() && self.is_empty())
    }

    /// Whether it is here still.
    fn check_here(&self) -> Result<(), Errno> {
        match self.has_left() {
            true => Err(successor::made_again()),
            false => Ok(()),
        }
    }

    /// Whether somebody can read what is written; who writes gets a signal if not.
    fn check_readers(&self) -> Result<(), Errno> {
        self.check_here()?;
        if !self.has_readers() {
            signal::raise(linux::SIGPIPE);
            return Err(Errno::EPIPE);
        }
        Ok(())
    }

    /// It leaves the realm: what is in it goes to `put`, buffer by buffer and whether each is a
    /// packet, and then it is the `successors`, the end that reads first, of those ends that
    /// somebody has. Who wants to use it meanwhile waits, and makes the call again afterwards. If
    /// `put` fails, it stays, as it does (`false`) if an end was opened more than once, since
    /// Linux's has one description for each, and if a part of it is lent or claimed. May sleep.
    pub fn leave(
        &self,
        successors: [Option<Successor>; 2],
        mut put: impl FnMut(&[u8], bool) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        let unused = {
            let mut ring = self.ring.lock();
            if self.has_left() {
                return Ok(true);
            }
            let ends = [&self.readers, &self.writers].map(|users| users.load(Ordering::SeqCst));
            let has_place = |(users, end): (u32, &Option<_>)| users <= u32::from(end.is_some());
            if ring.lent() > 0
                || self.is_double.load(Ordering::Relaxed)
                || !ends.into_iter().zip(&successors).all(has_place)
            {
                return Ok(false);
            }
            for (bytes, is_packet) in ring.contents() {
                put(bytes, is_packet)?;
            }
            *self.successors.lock() = successors.map(|end| end.map(Arc::new));
            self.has_left.store(true, Ordering::SeqCst);
            self.used.store(0, Ordering::SeqCst);
            self.size.store(0, Ordering::SeqCst);
            ring.retire()
        };
        drop(unused);
        self.drop_unused();
        self.to_read.wake_all();
        self.to_write.wake_all();
        self.watchers.notify(Events::all());
        Ok(true)
    }

    /// Waits until there may be something to read, which there was not.
    fn wait_for_bytes(&self, nonblocking: bool) -> Result<(), Errno> {
        let ready = || {
            (!self.is_empty() || !self.has_writers() || self.check_here().is_err()).then_some(())
        };
        wait::take_later(&self.to_read, nonblocking, ready)
    }

    /// Lends what is there, and waits if that is nothing: copies it to the program, and keeps it
    /// until it is known how much of that has got where it goes to. Returns how much was copied.
    pub fn lend(&self, memory: &mut Memory, nonblocking: bool) -> Result<(Lent<'_>, u64), Errno> {
        let mut lent = Lent { pipe: self, loan: Loan::default(), gone: 0 };
        let result = self.lend_steps(&mut lent.loan, memory, nonblocking);
        self.pass_on_read();
        result.map(|seen| (lent, seen))
    }

    fn lend_steps(&self, loan: &mut Loan, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let mut done = 0;
        while memory.left() > 0 {
            let mut wanted = 0;
            let seen = {
                let mut ring = self.ring.lock();
                let seen = ring.lend(loan, memory.left() as usize, |from| {
                    wanted = from.len();
                    memory.write(from)
                });
                self.note_loan(&ring);
                seen
            };
            done += seen.unwrap_or(0) as u64;
            match seen {
                Some(seen) if seen == wanted => {}
                Some(_) if done == 0 => return Err(Errno::EFAULT),
                None if done == 0 => {
                    if self.is_at_end()? {
                        break;
                    }
                    self.wait_for_bytes(nonblocking)?;
                }
                _ => break,
            }
        }
        Ok(done)
    }

    /// Claims room for up to `length` bytes that are about to come, and waits if there is none.
    pub fn claim(&self, length: u64, nonblocking: bool) -> Result<Claimed<'_>, Errno> {
        let mut claimed = Claimed { pipe: self, claim: Claim::default(), room: 0 };
        while claimed.room < length {
            self.check_readers()?;
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            let is_more = {
                let mut ring = self.ring.lock();
                self.check_here()?;
                let is_more = ring.claim(&mut claimed.claim);
                self.note_loan(&ring);
                is_more?
            };
            match is_more {
                true => claimed.room += PAGE as u64,
                false if claimed.room > 0 => break,
                false => self.wait_for_room(nonblocking)?,
            }
        }
        self.pass_on_write();
        Ok(claimed)
    }

    /// Notes for those who do not hold the lock what a change of a loan or a claim has changed.
    fn note_loan(&self, ring: &PipeRing) {
        self.lent.store(ring.lent(), Ordering::SeqCst);
        self.used.store(ring.count(), Ordering::SeqCst);
    }

    /// How many bytes can be written without waiting, once there is room for any.
    pub fn room(&self, nonblocking: bool) -> SysResult {
        loop {
            self.check_readers()?;
            match self.free() {
                0 => self.wait_for_room(nonblocking)?,
                buffers => {
                    // It is some time until the caller writes.
                    self.pass_on_write();
                    return Ok((buffers * PAGE) as u64);
                }
            }
        }
    }

    /// Waits until there may be room, of which there was none.
    fn wait_for_room(&self, nonblocking: bool) -> Result<(), Errno> {
        let ready =
            || (!self.is_full() || !self.has_readers() || self.check_here().is_err()).then_some(());
        wait::take_later(&self.to_write, nonblocking, ready)
    }

    /// Moves at most a buffer to the program.
    fn read_step(&self, memory: &mut Memory) -> Result<Step, Errno> {
        if self.is_empty() {
            return Ok(Step::Stuck);
        }
        let mut wanted = 0;
        let mut ring = self.ring.lock();
        let was_full = ring.is_full();
        let popped = ring.pop(memory.left() as usize, |from| {
            wanted = from.len();
            memory.write(from)
        });
        let (left, is_full) = (ring.count(), ring.is_full());
        self.used.store(left, Ordering::SeqCst);
        drop(ring);
        if popped.is_some() {
            self.announce_read(was_full, is_full);
        }
        Ok(match popped {
            None => Step::Stuck,
            Some((taken, _)) if taken < wanted => {
                if taken == 0 {
                    Step::Fault
                } else {
                    Step::Moved(taken as u64, true)
                }
            }
            Some((taken, packet)) => Step::Moved(taken as u64, left > 0 && !packet),
        })
    }

    /// Tells those who want to write of a read.
    fn announce_read(&self, was_full: bool, is_full: bool) {
        if was_full && !is_full {
            self.to_write.wake(1);
        }
        // Each write looks for an edge, as Linux tells pollers after every read that made room.
        if !is_full {
            self.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
        }
    }

    /// As [`Pipe::read`], on the fast path: at most a step, if nothing is behind what is read.
    #[inline(never)]
    pub fn read_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        if self.is_empty()
            || length > Memory::MOST
            || !user_memory::is_range(buffer, length)
            || !self.watchers.are_few()
        {
            return FastResult::FULL;
        }
        let Some(mut ring) = self.ring.try_lock().filter(|ring| ring.keeps_page()) else {
            return FastResult::FULL;
        };
        let (was_full, is_last) = (ring.is_full(), ring.count() == 1);
        let popped = ring.pop(length as usize, |from| {
            let all = is_last || from.len() as u64 == length;
            let fits = all && from.len() <= user_memory::STEP;
            if fits && user_memory::write_at_once(buffer, from) { from.len() } else { 0 }
        });
        let is_full = ring.is_full();
        self.used.store(ring.count(), Ordering::SeqCst);
        drop(ring);
        let taken = popped.map_or(0, |(taken, _)| taken as u64);
        if taken == 0 {
            return FastResult::FULL;
        }
        self.announce_read(was_full, is_full);
        FastResult::done(taken)
    }

    /// Writes everything; without room it waits, or says how far it came.
    pub fn write(&self, memory: &mut Memory, nonblocking: bool, packets: bool) -> SysResult {
        let result = self.write_steps(memory, nonblocking, packets);
        self.pass_on_write();
        result
    }

    /// Who was woken to write, and leaves room, also because it failed, wakes the next one.
    fn pass_on_write(&self) {
        if !self.is_full() {
            self.to_write.wake(1);
        }
    }

    fn write_steps(&self, memory: &mut Memory, nonblocking: bool, packets: bool) -> SysResult {
        let mut done = 0;
        let mut first = true;
        while memory.left() > 0 {
            if let Err(error) = self.check_readers() {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            let step = self.write_step(memory, packets, core::mem::take(&mut first));
            match step {
                Ok(Step::Moved(bytes, _)) => done += bytes,
                Err(_) | Ok(Step::Fault) if done > 0 => break,
                Err(error) => return Err(error),
                Ok(Step::Fault) => return Err(Errno::EFAULT),
                Ok(Step::Stuck) => match self.wait_for_room(nonblocking) {
                    Err(_) if done > 0 => return Ok(done),
                    waited => waited?,
                },
            }
        }
        Ok(done)
    }

    /// Moves at most a page from the program. With `first` an odd number of bytes may go behind
    /// what is there.
    fn write_step(&self, memory: &mut Memory, packets: bool, first: bool) -> Result<Step, Errno> {
        if self.is_full() && (!first || packets) {
            return Ok(Step::Stuck);
        }
        let length = memory.left() as usize;
        let odd = length % PAGE;
        let mut ring = self.ring.lock();
        self.check_here()?;
        let was_empty = ring.is_empty();
        let appended = match first && !packets && odd != 0 {
            true => ring.append(odd, |to| memory.read(to)),
            false => None,
        };
        let moved = match appended {
            Some(moved) => Some(moved),
            None if ring.is_full() => None,
            None if !ring.has_spare() && !heap::has_reserve() => return Err(Errno::ENOMEM),
            None => Some(ring.push(length, packets, |to| memory.read(to))?),
        };
        self.used.store(ring.count(), Ordering::SeqCst);
        drop(ring);
        let Some(moved) = moved else { return Ok(Step::Stuck) };
        if moved > 0 {
            self.announce_write(was_empty);
        }
        Ok(if moved == 0 { Step::Fault } else { Step::Moved(moved as u64, true) })
    }

    /// Tells those who want to read of a write.
    fn announce_write(&self, was_empty: bool) {
        if was_empty {
            self.to_read.wake(1);
        }
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    /// As [`Pipe::write`], on the fast path: at most a step, not in packets.
    #[inline(never)]
    pub fn write_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        if !(1..=user_memory::STEP as u64).contains(&length)
            || !self.has_readers()
            || !self.watchers.are_few()
        {
            return FastResult::FULL;
        }
        let Some(mut ring) = self.ring.try_lock() else { return FastResult::FULL };
        let length = length as usize;
        let was_empty = ring.is_empty();
        let fill = |to: &mut [u8]| {
            if user_memory::read_at_once(buffer, to) { to.len() } else { 0 }
        };
        let moved = match ring.append(length, fill) {
            Some(moved) => moved,
            None if ring.is_full() || !ring.has_spare() => 0,
            None => ring.push(length, false, fill).unwrap_or(0),
        };
        self.used.store(ring.count(), Ordering::SeqCst);
        drop(ring);
        if moved == 0 {
            return FastResult::FULL;
        }
        self.announce_write(was_empty);
        FastResult::done(moved as u64)
    }

    /// What an open description can do without waiting.
    pub fn ready(&self, reads: bool, writes: bool) -> Events {
        let mut events = Events::empty();
        if self.has_left() {
            return successor::events();
        }
        if reads {
            events.set(Events::IN | Events::READ_NORMAL, !self.is_empty());
            events.set(Events::HANG_UP, !self.has_writers());
        }
        if writes {
            events.set(Events::OUT | Events::WRITE_NORMAL, !self.is_full());
            events.set(Events::ERROR, !self.has_readers());
        }
        events
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Bytes to read (FIONREAD).
    pub fn bytes(&self) -> u64 {
        self.ring.lock().bytes() as u64
    }

    /// F_GETPIPE_SZ.
    pub fn size(&self) -> u64 {
        (self.size.load(Ordering::SeqCst) * PAGE) as u64
    }

    /// F_SETPIPE_SZ.
    pub fn set_size(&self, bytes: u32) -> SysResult {
        let size = u64::from(bytes).max(PAGE as u64).next_power_of_two();
        if bytes > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        if size > MOST {
            return Err(Errno::EPERM);
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let fits = {
            let mut ring = self.ring.lock();
            self.check_here()?;
            let fits = ring.resize(size as usize / PAGE)?;
            self.size.store(ring.size(), Ordering::SeqCst);
            fits
        };
        if !fits {
            return Err(Errno::EBUSY);
        }
        self.to_write.wake_all();
        self.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
        Ok(size)
    }
}

/// The first buffers of a pipe, whose bytes somebody moves elsewhere. When it ends, those that have
/// not gone are there again, before all others: that needs no memory.
pub struct Lent<'a> {
    pipe: &'a Pipe,
    loan: Loan,
    /// How many bytes have gone.
    gone: usize,
}

impl Lent<'_> {
    /// So many bytes, the first ones, have got where they go to. May sleep.
    pub fn end(mut self, gone: u64) {
        self.gone = gone as usize;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Self { pipe, loan, gone } = self;
        let (was_full, was_empty, is_full, is_empty) = {
            let mut ring = pipe.ring.lock();
            if ring.lent() == 0 {
                return;
            }
            let (was_full, was_empty) = (ring.is_full(), ring.is_empty());
            ring.take_back(core::mem::take(loan), *gone);
            pipe.note_loan(&ring);
            (was_full, was_empty, ring.is_full(), ring.is_empty())
        };
        if *gone > 0 {
            pipe.announce_read(was_full, is_full);
        }
        if was_empty && !is_empty {
            pipe.announce_write(true);
        }
    }
}

/// Room in a pipe that nobody else gets: what is brought there finds a place, and needs no memory.
pub struct Claimed<'a> {
    pipe: &'a Pipe,
    claim: Claim,
    /// For so many bytes.
    room: u64,
}

impl Claimed<'_> {
    /// How many bytes there is room for.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Writes as much as there is room for; returns how much. May sleep.
    pub fn write(mut self, memory: &mut Memory) -> u64 {
        let mut done = 0;
        while memory.left() > 0 {
            let (written, was_empty) = {
                let mut ring = self.pipe.ring.lock();
                let was_empty = ring.is_empty();
                let length = memory.left() as usize;
                let written = ring.fill(&mut self.claim, length, |to| memory.read(to));
                self.pipe.note_loan(&ring);
                (written, was_empty)
            };
            if written == 0 {
                break;
            }
            self.pipe.announce_write(was_empty);
            done += written as u64;
        }
        done
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let (was_full, is_full) = {
            let mut ring = self.pipe.ring.lock();
            let was_full = ring.is_full();
            ring.give_up(core::mem::take(&mut self.claim));
            self.pipe.note_loan(&ring);
            (was_full, ring.is_full())
        };
        if was_full && !is_full {
            self.pipe.announce_read(was_full, is_full);
        }
    }
}

/// How far one step came.
enum Step {
    /// So many bytes; whether a reader may go on without waiting.
    Moved(u64, bool),
    /// The program's memory is bad.
    Fault,
    /// Empty or full.
    Stuck,
}
