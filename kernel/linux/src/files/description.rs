// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open file descriptions: what descriptors refer to, shared by dup, fork and exec. The last
//! reference closes the file.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use crtos_core::{hazard::Shared, mm::heap, sync::SpinLock};

use super::{
    Events, Memory, Source, Watcher, Watchers,
    character::{Signalled, Special},
    device::Device,
    event::Event,
    last_words::LastWords,
    owner::Owner,
    pipe::Pipe,
    sigio::Sigio,
    signals::Signals,
    socket::Reception,
    socket::SendControl,
    socket::Socket,
    successor::Successor,
    timer::Timer,
};
use crate::{
    abi::{Errno, SysResult},
    signal,
};

/// What a description is of.
pub enum Object {
    /// A device without state.
    Device(Device),
    /// One or both ends of a pipe, by the description's access.
    Pipe(Arc<Pipe>),
    /// An eventfd.
    Event(Box<Event>),
    /// A timerfd.
    Timer(Box<Timer>),
    /// A signalfd.
    Signals(Box<Signals>),
    /// `/dev/last_kmsg`.
    LastWords(LastWords),
    /// A device that the kernel drives.
    Character(Box<Special>),
    /// A socket.
    Socket(Box<dyn Socket>),
}

/// An open file description.
pub struct Description {
    /// It can be read.
    pub reads: bool,
    /// It can be written.
    pub writes: bool,
    status: AtomicU32,
    /// Who is to be signalled when it is ready.
    pub owner: Owner,
    /// The file.
    pub object: Object,
}

/// Status flags that fcntl(2) can change.
const CHANGEABLE: u32 = linux::O_APPEND | linux::O_NONBLOCK | linux::O_NOATIME;

/// Descriptions of devices that nobody uses, so that opening and closing devices needs no memory.
static SPARES: SpinLock<Spares> = SpinLock::new(Spares { files: [const { None }; 16], count: 0 });

struct Spares {
    files: [Option<Arc<Description>>; 16],
    count: usize,
}

/// Inode numbers of what has no name.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A fresh inode number.
pub fn number() -> u64 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Description {
    /// Opens `object` with the access mode and status flags of open(2) in `flags`. ENOMEM if memory
    /// runs low.
    pub fn open(object: Object, flags: u32) -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let mut file = Self::new(object, flags);
        if let Object::Pipe(pipe) = &file.object
            && let Err(error) = pipe.open(file.reads, file.writes)
        {
            // It is not open, so it does not close.
            let _ = core::mem::replace(&mut file.object, Object::Device(Device::Null));
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn new(object: Object, flags: u32) -> Self {
        const KEPT: u32 =
            linux::O_ACCMODE | CHANGEABLE | linux::O_DIRECT | linux::O_LARGEFILE | linux::O_SYNC;
        let mode = flags & linux::O_ACCMODE;
        let (reads, writes) = (mode != linux::O_WRONLY, mode != linux::O_RDONLY);
        Self { reads, writes, status: AtomicU32::new(flags & KEPT), owner: Owner::new(), object }
    }

    /// As [`Description::open`] of a device, without memory if there is a spare one. Any context.
    pub fn open_spare(device: Device, flags: u32) -> Option<Arc<Self>> {
        let mut file = {
            let mut spares = SPARES.lock();
            spares.count = spares.count.checked_sub(1)?;
            let last = spares.count;
            spares.files[last].take()?
        };
        *Arc::get_mut(&mut file)? = Self::new(Object::Device(device), flags);
        Some(file)
    }

    /// Where it lies, which is nowhere that another one does.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Whether it is of a device.
    pub fn is_device(&self) -> bool {
        matches!(self.object, Object::Device(_))
    }

    /// The pipe, if it is of one.
    pub fn pipe(&self) -> Option<&Arc<Pipe>> {
        match &self.object {
            Object::Pipe(pipe) => Some(pipe),
            _ => None,
        }
    }

    /// Whether it has left the realm: Linux has it, and here are only those who have not followed.
    #[inline]
    pub fn has_left(&self) -> bool {
        match &self.object {
            Object::Pipe(pipe) => pipe.has_left(),
            Object::Event(event) => event.has_left(),
            _ => false,
        }
    }

    /// F_GETFL.
    pub fn status(&self) -> u32 {
        self.status.load(Ordering::Relaxed)
    }

    /// F_SETFL: changes what can be changed.
    pub fn set_status(&self, flags: u32) {
        let can = match self.object {
            Object::Pipe(_) => CHANGEABLE | linux::O_DIRECT,
            _ => CHANGEABLE,
        };
        let update = |status| Some(status & !can | flags & can);
        let _ = self.status.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Sets O_NONBLOCK alone (FIONBIO).
    pub fn set_nonblocking(&self, on: bool) {
        match on {
            true => self.status.fetch_or(linux::O_NONBLOCK, Ordering::Relaxed),
            false => self.status.fetch_and(!linux::O_NONBLOCK, Ordering::Relaxed),
        };
    }

    fn signalled(&self) -> Signalled {
        match &self.object {
            Object::Pipe(_) | Object::Socket(_) => Signalled::Owner,
            Object::Character(special) => special.file.signalled(),
            _ => Signalled::Nobody,
        }
    }

    /// O_ASYNC by descriptor `fd`: whether its owner is signalled when it is ready. ENOTTY if it
    /// cannot be. Thread context; may sleep.
    pub fn set_signalling(&self, fd: u64, on: bool) -> Result<(), Errno> {
        if on == self.is(linux::FASYNC) {
            return Ok(());
        }
        match self.signalled() {
            Signalled::Nobody => return Err(Errno::ENOTTY),
            Signalled::OwnerOrCaller if on && self.owner.number() == 0 => {
                self.owner.set_caller();
            }
            _ => {}
        }
        let sigio = on.then(|| Sigio::new(self.address(), fd as u32, self.heard())).transpose()?;
        if let Some(sigio) = &sigio {
            self.watch(sigio.clone()).inspect_err(|_| sigio.end())?;
            self.status.fetch_or(linux::FASYNC, Ordering::Relaxed);
        } else {
            self.status.fetch_and(!linux::FASYNC, Ordering::Relaxed);
        }
        if let Some(before) = self.owner.tell(sigio) {
            let before: Arc<dyn Watcher> = before;
            if let Some(watchers) = self.watchers() {
                watchers.remove(&before);
            }
            before.end();
        }
        Ok(())
    }

    fn is(&self, flag: u32) -> bool {
        self.status() & flag != 0
    }

    /// Whether writes to a pipe are packets.
    pub fn is_packets(&self) -> bool {
        self.is(linux::O_DIRECT)
    }

    /// read(2). `nonblocking`: besides O_NONBLOCK (RWF_NOWAIT).
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let nonblocking = nonblocking || self.is(linux::O_NONBLOCK);
        match &self.object {
            _ if !self.reads => Err(Errno::EBADF),
            Object::Device(device) => device.read(memory),
            Object::Pipe(pipe) => pipe.read(memory, nonblocking),
            Object::Event(event) => event.read(memory, nonblocking),
            Object::Timer(timer) => timer.read(memory, nonblocking),
            Object::Signals(signals) => signals.read(memory, nonblocking),
            Object::LastWords(words) => words.read(memory, nonblocking),
            Object::Character(special) => special.file.read(memory, nonblocking),
            Object::Socket(socket) => {
                socket.read(memory, Reception { nonblocking, ..Reception::default() })
            }
        }
    }

    /// write(2).
    pub fn write(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        let nonblocking = nonblocking || self.is(linux::O_NONBLOCK);
        match &self.object {
            _ if !self.writes => Err(Errno::EBADF),
            Object::Device(device) => device.write(memory),
            Object::Pipe(pipe) => pipe.write(memory, nonblocking, self.is_packets()),
            Object::Event(event) => event.write(memory, nonblocking),
            Object::Character(special) => special.file.write(memory, nonblocking),
            Object::Socket(socket) => {
                let sent = socket.send(memory, None, nonblocking, &SendControl::default());
                if sent == Err(Errno::EPIPE) && socket.is_stream() {
                    signal::raise(linux::SIGPIPE);
                }
                sent
            }
            Object::Timer(_) | Object::Signals(_) | Object::LastWords(_) => Err(Errno::EINVAL),
        }
    }

    /// pread(2): as [`read`](Self::read), from a position, where there are such.
    pub fn read_at(&self, memory: &mut Memory, position: u64, nonblocking: bool) -> SysResult {
        match &self.object {
            Object::Character(special) if self.reads => special.file.read_at(memory, position),
            _ => self.read(memory, nonblocking),
        }
    }

    /// pwrite(2): as [`write`](Self::write), to a position, where there are such.
    pub fn write_at(&self, memory: &mut Memory, position: u64, nonblocking: bool) -> SysResult {
        match &self.object {
            Object::Character(special) if self.writes => special.file.write_at(memory, position),
            _ => self.write(memory, nonblocking),
        }
    }
}

impl Source for Description {
    fn ready(&self) -> Events {
        match &self.object {
            Object::Device(device) => device.ready(),
            Object::Pipe(pipe) => pipe.ready(self.reads, self.writes),
            Object::Event(event) => event.ready(),
            Object::Timer(timer) => timer.ready(),
            Object::Signals(signals) => signals.ready(),
            Object::LastWords(words) => words.ready(),
            Object::Character(special) => special.file.ready(),
            Object::Socket(socket) => socket.ready(),
        }
    }

    fn watchers(&self) -> Option<&Watchers> {
        match &self.object {
            Object::Device(_) => None,
            Object::Pipe(pipe) => Some(pipe.watchers()),
            Object::Event(event) => Some(event.watchers()),
            Object::Timer(timer) => Some(timer.watchers()),
            Object::Signals(signals) => Some(signals.watchers()),
            Object::LastWords(words) => Some(words.watchers()),
            Object::Character(special) => special.file.watchers(),
            Object::Socket(socket) => Some(socket.watchers()),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        if let Object::Signals(signals) = &self.object {
            signals.listen()?;
        }
        self.watchers().map_or(Ok(()), |watchers| watchers.add(watcher))
    }

    fn successor(&self) -> Option<Arc<Successor>> {
        match &self.object {
            Object::Pipe(pipe) => pipe.successor(self.reads),
            Object::Event(event) => event.successor(),
            _ => None,
        }
    }

    fn heard(&self) -> Events {
        const READ: Events = Events::IN.union(Events::READ_NORMAL).union(Events::HANG_UP);
        const WRITE: Events = Events::OUT.union(Events::WRITE_NORMAL).union(Events::ERROR);
        let mut events = Events::empty();
        events.set(READ, self.reads);
        events.set(WRITE, self.writes);
        events
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // Some devices have nobody to tell.
        if let Some(watchers) = self.watchers() {
            watchers.close(self.address());
        }
        match &self.object {
            Object::Pipe(pipe) => pipe.close(self.reads, self.writes),
            Object::Character(special) => special.file.locks().release_all(self.address()),
            _ => {}
        }
    }
}

impl Shared for Description {
    /// Gives a reference back. Any context if it is one to a device.
    fn give_back(file: Arc<Self>) {
        if file.is_device() && Arc::strong_count(&file) == 1 {
            let mut spares = SPARES.lock();
            let count = spares.count;
            if let Some(place) = spares.files.get_mut(count) {
                *place = Some(file);
                spares.count += 1;
                return;
            }
        }
        drop(file);
    }
}
