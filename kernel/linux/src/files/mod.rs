// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the real-time kernel, and the one table of descriptors.
//!
//! A descriptor is *local* if its file lives here, or *remote* if it is one of the shadow's in
//! Linux. Both kinds are numbered by one table, lowest free number first
//! ([`crtos_files::Numbers`]): [`Files`], which all threads of a process share and a fork copies.
//! The rest of the table's story, how the shadow's numbers are kept in step, is in [`agreement`].
//!
//! | file | concept |
//! |---|---|
//! | [`description`] | an open file description, which descriptors share by reference |
//! | [`owner`] | who is to be signalled when a file is ready |
//! | [`sigio`] | the signal that tells them |
//! | [`agreement`] | the shadow's numbers and ours |
//! | [`leaving`] | local files that become Linux's |
//! | [`successor`] | what Linux has in their place |
//! | [`memory`] | the program's memory that a transfer reads or writes |
//! | [`wait`] | waiting until a file has what a call wants |
//! | [`watch`] | who is told when a file becomes ready: poll, epoll |
//! | [`epoll`] | epoll sets |
//! | [`device`] | /dev/null, /dev/zero, /dev/full |
//! | [`names`] | paths that name descriptors |
//! | [`pipe`] | pipes |
//! | [`event`] | eventfd |
//! | [`timer`] | timerfd |
//! | [`signals`] | signalfd |
//! | [`last_words`] | /dev/last_kmsg |
//! | [`character`] | devices that the kernel drives |
//! | [`socket`] | sockets that are local, and how they become so |
//! | [`lock`] | locks of a file |
//! | [`aio`] | contexts of asynchronous transfers |
//! | [`fast`] | calls that finish at once |

pub mod agreement;
pub mod aio;
pub mod character;
pub mod description;
pub mod device;
pub mod epoll;
pub mod event;
pub mod fast;
pub mod last_words;
pub mod leaving;
pub mod lock;
pub mod memory;
pub mod names;
pub mod owner;
pub mod pipe;
pub mod position;
pub mod sigio;
pub mod signals;
pub mod socket;
pub mod successor;
pub mod timer;
pub mod wait;
pub mod watch;

pub use description::{Description, Object};
pub use memory::Memory;
pub use watch::{Events, Notified, Source, Watcher, Watchers};

use alloc::sync::Arc;

use crtos_files::{NUMBERS, Numbers, WORDS};

use device::Device;
use epoll::Sets;
use linux_raw_sys::general as linux;

use crtos_core::{
    hazard::{FastCall, Removed, Table},
    personality::FastResult,
    sync::SpinLock,
    task::{self, Mutex},
    time::{self, Nanos},
};

use crate::{
    abi::Errno,
    process::{ThreadExt as _, UserThread},
};

struct State {
    numbers: Numbers,
    /// Soft limit of descriptors (RLIMIT_NOFILE).
    limit: u64,
    /// `/dev/null`, `/dev/zero`, `/dev/full` and `/dev/last_kmsg` are what these names say.
    devices: bool,
    /// The shadow may have descriptors that are not known here.
    unsure: bool,
}

/// The table of descriptors of a process.
pub struct Files {
    /// Held for a bounded number of steps, also while a file is put in its place or taken from
    /// there.
    state: SpinLock<State>,
    places: Table<Description, { WORDS - 1 }>,
    /// The local halves of epoll sets.
    pub sets: Sets,
    /// Held while the shadow's numbers are brought into agreement.
    agreement: Mutex<()>,
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

/// The table of the calling process.
pub fn table() -> Result<Arc<Files>, Errno> {
    let current = task::current();
    current.user().map(|user| user.process.files().clone()).ok_or(Errno::EBADF)
}

/// The local file of descriptor `fd` of the calling process. One that has left the realm is Linux's
/// from here on. May sleep then.
pub fn find(fd: u64) -> Option<Arc<Description>> {
    let current = task::current();
    let files = current.user()?.process.files.get()?;
    let file = files.find(fd)?;
    if file.has_left() { follow(files, file, fd) } else { Some(file) }
}

/// As [`find`], of a `file` that has left the realm.
#[cold]
fn follow(files: &Files, file: Arc<Description>, fd: u64) -> Option<Arc<Description>> {
    /// After how long a call that could not follow is made again.
    const PERIOD: Nanos = Nanos::from_millis(1);
    drop(file);
    let result = files.follow();
    let file = files.find(fd);
    // The one who sends it away may have to run on this CPU, to come to an end with that.
    if result.is_err() || file.as_ref().is_some_and(|file| file.has_left()) {
        task::sleep_until(time::now() + PERIOD);
    }
    file
}

/// What poll and epoll look at here of descriptor `fd`: a local file, or the local half of an epoll
/// set.
pub fn source(fd: u64) -> Option<Arc<dyn Source>> {
    if let Some(file) = find(fd) {
        return Some(file);
    }
    let set = table().ok()?.sets.get(fd)?;
    Some(set)
}

impl Files {
    /// An empty table.
    pub fn new() -> Self {
        let state = State { numbers: Numbers::new(), limit: 1024, devices: false, unsure: true };
        Self {
            state: SpinLock::new(state),
            places: Table::default(),
            sets: Sets::default(),
            agreement: Mutex::new(()),
        }
    }

    /// The local file of descriptor `fd`. Any context.
    pub fn find(&self, fd: u64) -> Option<Arc<Description>> {
        self.places.get(fd as u32)
    }

    /// Calls `f` with the local file of descriptor `fd`, or says `none`; see [`Table::with`].
    #[inline(always)]
    pub fn with<R>(
        &self,
        call: &mut FastCall<'_, UserThread>,
        fd: u64,
        none: R,
        f: impl FnOnce(&Description) -> R,
    ) -> R {
        self.places.with(call, fd as u32, none, f)
    }

    /// Whether the program may not reach Linux's descriptor of this number: it is one of ours, or
    /// only a placeholder.
    pub fn is_hidden(&self, fd: u64) -> bool {
        let state = self.state.lock();
        state.numbers.is_local(fd as u32) || state.numbers.is_stale(fd as u32)
    }

    /// Whether the paths of the local devices lead to them.
    pub fn has_devices(&self) -> bool {
        self.state.lock().devices
    }

    /// Paths may mean something else from now on (chroot, mount): devices are opened by Linux.
    pub fn forget_devices(&self) {
        self.state.lock().devices = false;
    }

    /// The limit of numbers (RLIMIT_NOFILE).
    pub fn limit(&self) -> u64 {
        self.state.lock().limit
    }

    /// Sets the limit of numbers (RLIMIT_NOFILE).
    pub fn set_limit(&self, limit: u64) {
        self.state.lock().limit = limit;
    }

    /// Whether no further descriptor is to be had. May sleep; asks Linux as [`Files::insert`] does.
    pub fn is_full(&self) -> Result<bool, Errno> {
        self.make_sure()?;
        Ok(self.state.lock().lowest(0).is_none())
    }

    /// A descriptor for `file`: the lowest free number from `from` on. EMFILE beyond the limit. May
    /// sleep; asks Linux only if it made descriptors that are not known here.
    pub fn insert(
        &self,
        file: Arc<Description>,
        from: u32,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        self.make_sure()?;
        loop {
            let number = {
                let mut state = self.state.lock();
                let number = state.lowest(from).ok_or(Errno::EMFILE)?;
                if self.places.has_room(number) {
                    state.numbers.set_local(number, close_on_exec);
                    let before = self.places.put(number, Some(file));
                    drop(state);
                    drop(before);
                    return Ok(number);
                }
                number
            };
            self.places.make_room(number)?;
        }
    }

    /// A descriptor for `device`, as [`Files::insert`], on the fast path: if that needs neither
    /// memory nor Linux. Interrupts off.
    pub fn open_at_once(&self, device: Device, flags: u32) -> FastResult {
        let mut state = self.state.lock_quietly();
        let usable = state.devices && !state.unsure;
        let number = state.lowest(0).filter(|&number| usable && self.places.has_room(number));
        let file = number.and_then(|_| Description::open_spare(device, flags));
        let (Some(number), Some(file)) = (number, file) else { return FastResult::FULL };
        state.numbers.set_local(number, flags & linux::O_CLOEXEC != 0);
        let before = self.places.put(number, Some(file));
        drop(state);
        drop(before);
        FastResult::done(number.into())
    }

    /// Frees a number that has a device, on the fast path. Interrupts off.
    pub fn close_at_once(&self, call: &mut FastCall<'_, UserThread>, fd: u64) -> FastResult {
        let number = fd as u32;
        let mut state = self.state.lock_quietly();
        if !self.places.with(call, number, false, Description::is_device) {
            return FastResult::FULL;
        }
        let file = self.places.put(number, None);
        state.numbers.set_free(number);
        drop(state);
        drop(file);
        FastResult::done(0)
    }

    /// Makes `number`, which is below the limit, a descriptor of `file`; returns the local file
    /// that it replaces. The caller has closed a remote one.
    pub fn insert_at(
        &self,
        number: u32,
        file: Arc<Description>,
        close_on_exec: bool,
    ) -> Result<Option<Removed<Description>>, Errno> {
        self.places.make_room(number)?;
        let before = {
            let mut state = self.state.lock();
            state.numbers.set_local(number, close_on_exec);
            self.places.put(number, Some(file))
        };
        self.unlock_parts(before.as_deref());
        Ok(before)
    }

    /// Where it lies, which is nowhere that another one does.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// As under Linux, a process that closes one descriptor of a file unlocks all parts that it has
    /// locked of it.
    fn unlock_parts(&self, closed: Option<&Description>) {
        if let Some(Object::Character(special)) = closed.map(|file| &file.object) {
            special.file.locks().release_parts(self.address());
        }
    }

    /// Whether dup2 may make `number`: it is below the limit and one that local files can have.
    pub fn is_allowed(&self, number: u32) -> bool {
        u64::from(number) < self.state.lock().limit.min(NUMBERS.into())
    }

    /// Whether no descriptor has anything here.
    pub fn has_none(&self) -> bool {
        self.sets.is_empty() && self.next_local(0).is_none()
    }

    /// Frees a number. Returns its local file, if it had one, and whether Linux has something of
    /// its own there.
    pub fn remove(&self, fd: u64) -> (Option<Removed<Description>>, bool) {
        let number = fd as u32;
        let (file, hidden) = {
            let mut state = self.state.lock();
            let file = self.places.put(number, None);
            let hidden = file.is_some() || state.numbers.is_stale(number);
            state.numbers.set_free(number);
            (file, hidden)
        };
        self.unlock_parts(file.as_deref());
        (file, !hidden)
    }

    /// FD_CLOEXEC of a local descriptor.
    pub fn close_on_exec(&self, fd: u64) -> bool {
        self.state.lock().numbers.close_on_exec(fd as u32)
    }

    /// Sets FD_CLOEXEC of a local descriptor.
    pub fn set_close_on_exec(&self, fd: u64, on: bool) {
        self.state.lock().numbers.set_close_on_exec(fd as u32, on);
    }

    /// Whether Linux has a file at a number, as far as is known; [`make_sure`](Self::make_sure)
    /// comes before.
    pub fn is_remote(&self, number: u32) -> bool {
        let state = self.state.lock();
        state.numbers.is_used(number) && !state.numbers.is_local(number)
    }

    /// Linux has closed all that it had at `first..=last`.
    pub fn forget(&self, first: u32, last: u32) {
        let mut from = Some(first);
        while let Some(first) = from {
            let mut state = self.state.lock();
            state.unsure = true;
            from = state.numbers.forget_remote(first, last);
        }
    }

    /// The first local number from `from` on.
    pub fn next_local(&self, from: u32) -> Option<u32> {
        self.state.lock().numbers.locals(from).next()
    }

    /// Gives this table, which is empty, what `parent` has: a fork. The caller holds the parent's
    /// agreement and this table is not in use yet. Preemptible between any two numbers. What other
    /// threads of the parent do meanwhile may be in the child's shadow or not, so the next local
    /// descriptor asks.
    pub fn copy(&self, parent: &Files) -> Result<(), Errno> {
        let (numbers, limit, devices) = {
            let state = parent.state.lock();
            (state.numbers.clone(), state.limit, state.devices)
        };
        for number in numbers.locals(0) {
            if let Some(file) = parent.find(number.into()) {
                self.places.make_room(number)?;
                drop(self.places.put(number, Some(file)));
            }
        }
        let mut state = self.state.lock();
        state.numbers = numbers;
        (state.limit, state.devices) = (limit, devices);
        state.unsure = true;
        drop(state);
        self.sets.copy(&parent.sets, |_| true)?;
        // What was closed between the two looks is not there.
        let mut from = 0;
        while let Some(number) = self.next_local(from) {
            if !self.places.has(number) {
                self.state.lock().numbers.set_free(number);
            }
            from = number + 1;
        }
        Ok(())
    }

    /// Closes all local files: the process ends.
    pub fn close_all(&self) {
        self.sets.close(0, u32::MAX);
        let mut from = 0;
        while let Some(number) = self.next_local(from) {
            drop(self.remove(number.into()));
            from = number + 1;
        }
    }

    /// Takes over, at exec, what `before` had and what does not close on exec.
    pub fn inherit(&self, before: &Files) -> Result<(), Errno> {
        let mut from = 0;
        while let Some(number) = before.next_local(from) {
            from = number + 1;
            if before.close_on_exec(number.into()) {
                continue;
            }
            if let Some(file) = before.find(number.into()) {
                file.owner.follow();
                if let Object::Character(special) = &file.object {
                    special.file.locks().hand_over_parts(before.address(), self.address());
                }
                drop(self.insert_at(number, file, false)?);
            }
        }
        self.sets.copy(&before.sets, |number| self.is_remote(number))
    }
}

impl State {
    /// The lowest free number from `from` on, below the limit.
    fn lowest(&self, from: u32) -> Option<u32> {
        let limit = self.limit.min(NUMBERS.into());
        self.numbers.lowest(from).filter(|&number| u64::from(number) < limit)
    }
}
