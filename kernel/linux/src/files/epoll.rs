// SPDX-License-Identifier: MIT OR Apache-2.0
//! epoll sets.
//!
//! A set has two halves under one descriptor. Linux's half is the descriptor itself, a remote one,
//! and has the remote members; ours stands beside it ([`Sets`]) and has the local ones, which Linux
//! does not know. A wait for a set that has local members alone asks nothing of Linux; for a mixed
//! one the shadow waits in Linux meanwhile, as in poll(2), and what both find is reported together.
//! A set that is a member of another is so in both halves.
//!
//! A local member is a watcher of its file. Being told takes constant time: it stands in line, one
//! waiting thread is woken, and who watches the set is told afterwards: by the thread that made the
//! file ready, or by interrupts that follow.

use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_abi::UserAddr;
use crtos_files::interests::{EDGE, EXCLUSIVE, Interests, ONCE, Room, Token, WAKE_UP};

use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::{Mutex, WaitError, WaitQueue},
    time::Nanos,
};

use super::{Events, Notified, Source, Watcher, Watchers};
use crate::{abi::Errno, memory::user, signal};

/// Bytes of a `struct epoll_event`.
pub const EVENT: usize = 12;
/// Most sets that are members of each other in a row.
const NESTED: usize = 4;

/// Held while a set becomes a member of another.
static NESTING: Mutex<()> = Mutex::new(());

/// What is known of a set when something happens to its members.
pub struct Core {
    interests: SpinLock<Interests<Weak<dyn Source>>>,
    to_wait: WaitQueue,
    watchers: Watchers,
    /// How many members Linux's half has, as far as is known.
    remote: AtomicUsize,
}

/// The half of an epoll set that is here.
pub struct Set {
    core: Arc<Core>,
    /// By number and address of the file.
    members: Mutex<BTreeMap<(u32, usize), Arc<Member>>>,
    /// One at a time takes members out of the line.
    looking: Mutex<()>,
    /// How many sets may be above this one.
    depth: AtomicUsize,
}

/// What the watchers of a file know of a member.
struct Member {
    set: Weak<Set>,
    core: Arc<Core>,
    key: (u32, usize),
    token: Token,
    /// The events that concern the file.
    heard: Events,
    /// Those that it shares with members of other sets (EPOLLEXCLUSIVE).
    shared: Events,
}

/// What one call of epoll_ctl(2) asks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Events and flags.
    pub events: u32,
    /// Returned with them.
    pub data: u64,
}

impl Wanted {
    /// What a `struct epoll_event` says, which is packed.
    pub fn from_bytes(bytes: [u8; EVENT]) -> Self {
        let [a, b, c, d, data @ ..] = bytes;
        Self { events: u32::from_le_bytes([a, b, c, d]), data: u64::from_le_bytes(data) }
    }

    /// As a `struct epoll_event`.
    pub fn to_bytes(self) -> [u8; EVENT] {
        let mut bytes = [0; EVENT];
        bytes[..4].copy_from_slice(&self.events.to_le_bytes());
        bytes[4..].copy_from_slice(&self.data.to_le_bytes());
        bytes
    }

    /// As a member has it: errors are always reported.
    fn events(self) -> u32 {
        self.events | (Events::ERROR | Events::HANG_UP).bits()
    }

    /// EPOLLEXCLUSIVE.
    pub fn is_exclusive(self) -> bool {
        self.events & EXCLUSIVE != 0
    }

    /// Whether the events may stand beside EPOLLEXCLUSIVE.
    pub fn may_be_exclusive(self) -> bool {
        const ALLOWED: Events = Events::IN.union(Events::OUT).union(Events::ERROR);
        let known = (ALLOWED | Events::HANG_UP).bits() | WAKE_UP | EDGE | EXCLUSIVE;
        self.events & !known == 0 && self.events & ONCE == 0
    }
}

impl Core {
    /// A member may be ready for `events`. Says whether that makes the set ready, which those who
    /// watch it have to be told, and whether somebody was woken. Any context.
    fn tell(&self, token: Token, events: Events) -> (bool, bool) {
        let is_ready = self.interests.lock().tell(token, events.bits());
        (is_ready, is_ready && self.to_wait.wake(1) > 0)
    }

    /// A member was found ready for `events`. Thread context.
    fn look(&self, token: Token, events: Events) {
        if self.tell(token, events).0 {
            self.announce();
        }
    }

    /// The set has become ready. Any context.
    fn announce(&self) {
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    fn in_line(&self) -> usize {
        self.interests.lock().in_line()
    }

    fn next(&self) -> Option<(Token, Weak<dyn Source>)> {
        let mut interests = self.interests.lock();
        interests.take_first().map(|(token, source)| (token, source.clone()))
    }

    /// Makes room for one more member.
    fn make_room(&self) -> Result<(), Errno> {
        if self.interests.lock().has_room() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let room = Room::new();
        let refused = self.interests.lock().add_room(room);
        refused.map_err(|_| Errno::ENOSPC)
    }
}

impl Member {
    /// Whether those who wait for this member do all that is to be done about these events. As
    /// under Linux, who reads need not be the one who writes.
    fn is_served(&self, events: Events) -> bool {
        let directions = events & (Events::IN | Events::OUT);
        directions != Events::IN | Events::OUT && self.shared.contains(directions)
    }
}

impl Watcher for Member {
    fn notify(&self, events: Events) -> Notified {
        let (is_ready, has_woken) = self.core.tell(self.token, events & self.heard);
        let has_others = is_ready && !self.core.watchers.is_empty();
        // Who waits in Linux as well is one of these others. As under Linux, who watches the set
        // otherwise does not count: nobody may wait for it.
        let is_heard = has_woken || has_others && self.core.remote.load(Ordering::SeqCst) > 0;
        let is_taken = self.is_exclusive() && is_heard && self.is_served(events);
        Notified { has_others, is_taken }
    }

    fn is_exclusive(&self) -> bool {
        !self.shared.is_empty()
    }

    fn announce(&self) {
        self.core.announce();
    }

    fn is_last(&self) -> bool {
        self.core.watchers.is_empty()
    }

    fn ends_with(&self, file: usize) -> bool {
        self.key.1 == file
    }

    fn end(&self) {
        if let Some(set) = self.set.upgrade() {
            drop(set.forget(self.key));
        }
    }
}

fn address(source: &Arc<dyn Source>) -> usize {
    Arc::as_ptr(source).cast::<()>().addr()
}

impl Set {
    /// A set without members.
    pub fn new() -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let core = Arc::new(Core {
            interests: SpinLock::new(Interests::default()),
            to_wait: WaitQueue::new(),
            watchers: Watchers::of_watcher(),
            remote: AtomicUsize::new(0),
        });
        Ok(Arc::new(Self {
            core,
            members: Mutex::new(BTreeMap::new()),
            looking: Mutex::new(()),
            depth: AtomicUsize::new(0),
        }))
    }

    /// Whether Linux has to be asked.
    pub fn has_remote(&self) -> bool {
        self.core.remote.load(Ordering::SeqCst) > 0
    }

    /// Linux's half has one member more.
    pub fn add_remote(&self) {
        if self.core.remote.fetch_add(1, Ordering::SeqCst) == 0 {
            // Those who wait go on in Linux.
            self.core.to_wait.wake_all();
        }
    }

    /// Linux's half has one member less.
    pub fn remove_remote(&self) {
        let less = |count: usize| count.checked_sub(1);
        let _ = self.core.remote.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Adds file `source` of descriptor `fd`.
    pub fn add(
        self: &Arc<Self>,
        fd: u32,
        source: &Arc<dyn Source>,
        wanted: Wanted,
    ) -> Result<(), Errno> {
        let key = (fd, address(source));
        let token = {
            let mut members = self.members.lock();
            if members.contains_key(&key) {
                return Err(Errno::EEXIST);
            }
            self.core.make_room()?;
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            let weak = Arc::downgrade(source);
            let token = self.core.interests.lock().add(weak, wanted.events(), wanted.data);
            let token = token.ok_or(Errno::ENOMEM)?;
            let shared = if wanted.is_exclusive() { wanted.events() } else { 0 };
            let member = Arc::new(Member {
                set: Arc::downgrade(self),
                core: self.core.clone(),
                key,
                token,
                heard: source.heard(),
                shared: Events::from_bits_truncate(shared),
            });
            if let Err(error) = source.watch(member.clone()) {
                drop(self.core.interests.lock().remove(token));
                return Err(error);
            }
            members.insert(key, member);
            token
        };
        self.core.look(token, source.ready());
        Ok(())
    }

    /// Changes what is wanted of a member.
    pub fn change(&self, fd: u32, source: &Arc<dyn Source>, wanted: Wanted) -> Result<(), Errno> {
        let token = self.token(fd, source)?;
        {
            let mut interests = self.core.interests.lock();
            if interests.wanted(token).is_some_and(|events| events & EXCLUSIVE != 0) {
                return Err(Errno::EINVAL);
            }
            interests.change(token, wanted.events(), wanted.data);
        }
        self.core.look(token, source.ready());
        Ok(())
    }

    /// Removes a member.
    pub fn remove(&self, fd: u32, source: &Arc<dyn Source>) -> Result<(), Errno> {
        let member = self.forget((fd, address(source))).ok_or(Errno::ENOENT)?;
        if let Some(watchers) = source.watchers() {
            watchers.remove(&(member as Arc<dyn Watcher>));
        }
        Ok(())
    }

    /// Removes a member that is of `file`, by that number or by any, and returns what is wanted of
    /// it: Linux's half is to have it. May sleep.
    pub fn give_away(&self, file: &dyn Source, number: Option<u32>) -> Option<Wanted> {
        let address = core::ptr::from_ref(file).cast::<()>().addr();
        let is_meant =
            |key: &(u32, usize)| key.1 == address && number.is_none_or(|number| number == key.0);
        let (key, token) = {
            let members = self.members.lock();
            let (&key, member) = members.iter().find(|(key, _)| is_meant(key))?;
            (key, member.token)
        };
        let wanted = {
            let mut interests = self.core.interests.lock();
            (interests.wanted(token), interests.data(token))
        };
        // Of two who look, one has it.
        let member = self.forget(key)?;
        if let Some(watchers) = file.watchers() {
            watchers.remove(&(member as Arc<dyn Watcher>));
        }
        let (events, data) = (wanted.0?, wanted.1?);
        Some(Wanted { events, data })
    }

    /// A member that has left the realm. May sleep.
    pub fn left(&self) -> Option<Arc<dyn Source>> {
        let mut from = (0, 0);
        loop {
            // One at a time: what is dropped here may be the last reference to a member.
            let (key, token) = {
                let members = self.members.lock();
                members.range(from..).next().map(|(&key, member)| (key, member.token))?
            };
            let source = self.core.interests.lock().source(token).and_then(Weak::upgrade);
            if let Some(source) = source.filter(|source| source.successor().is_some()) {
                return Some(source);
            }
            from = (key.0, key.1 + 1);
        }
    }

    /// The address of the file of a member: the one of descriptor `fd` with so many before it.
    pub fn member(&self, fd: u32, offset: u32) -> Option<usize> {
        let members = self.members.lock();
        let of_number = members.range((fd, 0)..=(fd, usize::MAX));
        of_number.map(|(key, _)| key.1).nth(offset as usize)
    }

    fn token(&self, fd: u32, source: &Arc<dyn Source>) -> Result<Token, Errno> {
        let members = self.members.lock();
        members.get(&(fd, address(source))).map(|member| member.token).ok_or(Errno::ENOENT)
    }

    /// Removes a member whose file does not tell it any more, or is about not to.
    fn forget(&self, key: (u32, usize)) -> Option<Arc<Member>> {
        let member = self.members.lock().remove(&key)?;
        let source = self.core.interests.lock().remove(member.token);
        drop(source);
        Some(member)
    }

    /// Has `add` make `inner` a member of this set. ELOOP if it contains this one, or too many
    /// would stand in a row.
    pub fn nest<R>(
        &self,
        inner: &Arc<Self>,
        add: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let _nesting = NESTING.lock();
        let depth = self.depth.load(Ordering::Relaxed) + 1;
        inner.descend(depth, &|set, depth| {
            let is_loop = core::ptr::eq(set, self) || depth > NESTED;
            if is_loop { Err(Errno::ELOOP) } else { Ok(()) }
        })?;
        let result = add()?;
        inner.descend(depth, &|set, depth| {
            set.depth.fetch_max(depth, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(result)
    }

    /// Calls `visit` with this set at `depth`, and with all that it contains. Ends where `visit`
    /// fails; the depth is bounded.
    fn descend(
        &self,
        depth: usize,
        visit: &dyn Fn(&Set, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        visit(self, depth)?;
        let mut from = (0, 0);
        loop {
            // One at a time: what is dropped here may be the last reference to a member.
            let next = {
                let members = self.members.lock();
                members.range(from..).next().map(|(&key, member)| (key, member.token))
            };
            let Some((key, token)) = next else { return Ok(()) };
            let source = self.core.interests.lock().source(token).and_then(Weak::upgrade);
            if let Some(set) = source.as_deref().and_then(Source::as_set) {
                set.descend(depth + 1, visit)?;
            }
            from = (key.0, key.1 + 1);
        }
    }

    /// Stores up to `most` events of local members at `address` of the program; says how many.
    /// RESTART_ALWAYS if one has left the realm: the caller follows, and asks again. May sleep.
    pub fn report(&self, address: UserAddr, most: u64) -> Result<u64, Errno> {
        let mut count = 0;
        {
            // Whoever looks just now has taken a member out of line that may be ready still.
            let _looking = self.looking.lock();
            for _ in 0..self.core.in_line() {
                if count == most {
                    break;
                }
                let Some((token, source)) = self.core.next() else { break };
                let Some(source) = source.upgrade() else { continue };
                let ready = source.ready();
                if ready.contains(Events::LEFT) {
                    if count == 0 {
                        return Err(Errno::RESTART_ALWAYS);
                    }
                    self.core.tell(token, Events::all());
                    break;
                }
                let ready = ready.bits();
                let (wanted, report) = {
                    let mut interests = self.core.interests.lock();
                    (interests.wanted(token), interests.report(token, ready))
                };
                let (Some(wanted), Some((events, data))) = (wanted, report) else { continue };
                let event = Wanted { events, data }.to_bytes();
                if user::write(address + count * EVENT as u64, &event).is_err() {
                    self.core.interests.lock().take_back(token, wanted);
                    if count == 0 {
                        return Err(Errno::EFAULT);
                    }
                    break;
                }
                count += 1;
            }
        }
        if self.core.in_line() > 0 {
            self.core.to_wait.wake(1);
        }
        Ok(count)
    }

    /// Waits until a member may be ready, or Linux has to be asked. `false` if the time is over,
    /// EINTR if a signal came.
    pub fn wait(&self, deadline: Option<Nanos>) -> Result<bool, Errno> {
        let may_go_on = || (self.core.in_line() > 0 || self.has_remote()).then_some(());
        match self.core.to_wait.wait_until(deadline, |_| signal::is_interrupted(), may_go_on) {
            Ok(()) => Ok(true),
            Err(WaitError::Timeout) => Ok(false),
            Err(WaitError::Interrupted) => Err(Errno::EINTR),
        }
    }
}

impl Source for Set {
    /// Whether a local member is ready.
    fn ready(&self) -> Events {
        // As in `report`.
        let _looking = self.looking.lock();
        for _ in 0..self.core.in_line() {
            let Some((token, source)) = self.core.next() else { break };
            let Some(source) = source.upgrade() else { continue };
            let ready = source.ready();
            if ready.contains(Events::LEFT) {
                return Events::LEFT;
            }
            if self.core.interests.lock().tell(token, ready.bits()) {
                return Events::IN | Events::READ_NORMAL;
            }
        }
        Events::empty()
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.core.watchers)
    }

    fn heard(&self) -> Events {
        Events::all()
    }

    fn as_set(&self) -> Option<&Set> {
        Some(self)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.core.watchers.close(core::ptr::from_ref(self).addr());
        let members = core::mem::take(&mut *self.members.lock());
        for member in members.into_values() {
            let source = self.core.interests.lock().remove(member.token);
            if let Some(source) = source.as_ref().and_then(Weak::upgrade)
                && let Some(watchers) = source.watchers()
            {
                watchers.remove(&(member as Arc<dyn Watcher>));
            }
        }
    }
}

/// The local halves of a process's sets, by the numbers of their descriptors.
pub struct Sets {
    sets: Mutex<BTreeMap<u32, Arc<Set>>>,
    /// How many they are.
    count: AtomicUsize,
}

impl Default for Sets {
    /// None.
    fn default() -> Self {
        Self { sets: Mutex::new(BTreeMap::new()), count: AtomicUsize::new(0) }
    }
}

impl Sets {
    /// The set of descriptor `fd`.
    pub fn get(&self, fd: u64) -> Option<Arc<Set>> {
        if self.is_empty() {
            return None;
        }
        self.sets.lock().get(&(fd as u32)).cloned()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Linux has made descriptor `fd`, of `set` or of something else.
    pub fn put(&self, fd: u64, set: Option<Arc<Set>>) {
        if set.is_none() && self.is_empty() {
            return;
        }
        let before = {
            let mut sets = self.sets.lock();
            let before = match set {
                Some(set) => sets.insert(fd as u32, set),
                None => sets.remove(&(fd as u32)),
            };
            self.count.store(sets.len(), Ordering::Relaxed);
            before
        };
        drop(before);
    }

    /// Descriptors `first..=last` are closed.
    pub fn close(&self, first: u32, last: u32) {
        let mut from = first;
        while let Some(fd) = self.next(from).filter(|&fd| fd <= last) {
            self.put(fd.into(), None);
            from = fd.saturating_add(1);
        }
    }

    /// Takes over those of `before` whose descriptors `keeps` says are still there. ENOMEM if there
    /// is no memory for them.
    pub fn copy(&self, before: &Sets, keeps: impl Fn(u32) -> bool) -> Result<(), Errno> {
        let mut from = Some(0);
        while let Some(fd) = from.and_then(|from| before.next(from)) {
            if keeps(fd) {
                if !heap::has_reserve() {
                    return Err(Errno::ENOMEM);
                }
                self.put(fd.into(), before.get(fd.into()));
            }
            from = fd.checked_add(1);
        }
        Ok(())
    }

    /// Whether the descriptor may become one more of its set, if it is of one: ENOMEM if there is
    /// no memory for that. To be asked before Linux makes it.
    pub fn may_copy(&self, fd: u64) -> Result<(), Errno> {
        match self.is_empty() || heap::has_reserve() || self.get(fd).is_none() {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Calls `each` with each number and its set: a set may have several. A list of all would be as
    /// long as a program likes. May sleep.
    pub fn each(&self, mut each: impl FnMut(u32, Arc<Set>)) {
        let mut from = Some(0);
        while let Some(fd) = from.and_then(|from| self.next(from)) {
            self.get(fd.into()).into_iter().for_each(|set| each(fd, set));
            from = fd.checked_add(1);
        }
    }

    /// The first set's number from `from` on.
    fn next(&self, from: u32) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.sets.lock().range(from..).next().map(|(&fd, _)| fd)
    }
}
