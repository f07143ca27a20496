// SPDX-License-Identifier: MIT OR Apache-2.0
//! poll and select over local and remote descriptors.
//!
//! A set without local descriptors goes to Linux as it is. A set of local ones alone is watched
//! here. In a mixture the thread watches the local ones while its shadow polls the others, from a
//! copy of the set in memory of the program that it does not know of; a local file that becomes
//! ready ends the shadow's wait.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

use crtos_syscalls::structs::PollFd;
use smallvec::SmallVec;

use crtos_abi::{UserAddr, channel::RESULT_NOT_MADE};
use crtos_channel::Operation;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::{heap, space::BadAddress},
    task::{self, Thread, WakeReason},
    time::{self, Nanos},
};

use super::descriptors::remote as others;
use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    files::{self, Events, Notified, Source, Watcher, Watchers},
    memory::{
        Scratch,
        timespec::{SECOND, read_timespec, write_timespec},
        user,
    },
    process::{Restart, ThreadExt as _, lapse},
    remote::{self, pass_again},
    signal,
};

/// A member of a set.
struct Member {
    fd: u32,
    wanted: Events,
    found: Events,
    /// What Linux found.
    there: Events,
    /// The local file, or the half of an epoll set that is here.
    source: Option<Arc<dyn Source>>,
    /// Linux has to look.
    remote: bool,
}

/// The members of a set. A small one needs no memory of the heap, which takes time to give back.
type Members = SmallVec<[Member; 4]>;

/// POLLNVAL.
const INVALID: Events = Events::from_bits_retain(0x20);
/// Reported whether they were asked for or not.
const ALWAYS: Events = Events::ERROR.union(Events::HANG_UP).union(Events::LEFT);

impl Member {
    fn new(fd: i32, wanted: Events) -> Self {
        let source = if fd < 0 { None } else { files::source(fd as u64) };
        let is_set = source.as_deref().is_some_and(|source| source.as_set().is_some());
        let remote = fd >= 0 && (source.is_none() || is_set);
        let none = Events::empty();
        Self { fd: fd as u32, wanted, found: none, there: none, source, remote }
    }

    /// Looks at it; says whether it is ready for something.
    fn look(&mut self) -> bool {
        self.found = self.there;
        if let Some(source) = &self.source {
            self.found |= source.ready() & (self.wanted | ALWAYS);
        }
        !self.found.is_empty()
    }

    fn watchers(&self) -> Option<&Watchers> {
        self.source.as_deref().and_then(Source::watchers)
    }
}

/// Looks at all members; says whether one is ready for something.
fn look(members: &mut [Member]) -> bool {
    members.iter_mut().fold(false, |ready, member| member.look() | ready)
}

/// How a wait ended.
enum End {
    /// Some are ready, or the time is over.
    Over,
    /// A signal.
    Interrupted,
}

/// Waits until a member is ready, until `deadline` (kernel time; `None`: for ever), or for a
/// signal. RESTART_ALWAYS if one has become Linux's: the set is to be read again. Sleeps.
fn wait(members: &mut [Member], deadline: Option<Nanos>) -> Result<End, Errno> {
    let is_mixed = members.iter().any(|member| member.remote);
    if is_mixed {
        lapse::refuse()?;
    }
    let watcher = watcher(is_mixed)?;
    let mut watched = 0;
    let result = (|| {
        loop {
            let ready = look(members);
            let over = deadline.is_some_and(|deadline| deadline <= time::now());
            if ready || over {
                // A signal that comes meanwhile changes nothing any more.
                if is_mixed {
                    let _ = ask_linux(members, Some(time::now()), ask);
                }
                return Ok(End::Over);
            }
            if watched < members.len() {
                for member in members[watched..].iter() {
                    if let Some(source) = &member.source {
                        source.watch(watcher.clone())?;
                    }
                    watched += 1;
                }
                continue;
            }
            if signal::is_interrupted() {
                // What is ready comes before the signal.
                if is_mixed {
                    let _ = ask_linux(members, Some(time::now()), ask);
                }
                return Ok(End::Interrupted);
            }
            if is_mixed {
                match ask_linux(members, deadline, in_linux) {
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(error),
                    Ok(()) if members.iter().any(|member| !member.there.is_empty()) => {
                        look(members);
                        return Ok(End::Over);
                    }
                    Ok(()) => {}
                }
            } else if task::block(deadline) == WakeReason::Timeout {
                continue;
            }
        }
    })();
    for member in &members[..watched] {
        if let Some(watchers) = member.watchers() {
            watchers.remove(&watcher);
        }
    }
    if members.iter().any(|member| member.found.contains(Events::LEFT)) {
        files::table()?.follow()?;
        return Err(Errno::RESTART_ALWAYS);
    }
    result
}

/// As [`in_linux`], of a call that does not wait, so that nothing ends it.
fn ask(nr: u32, args: Args) -> SysResult {
    remote::linux(nr, &args)
}

/// Has Linux poll the remote members by `call`, at most until `deadline`. EINTR if that ended
/// before anything was found.
fn ask_linux(
    members: &mut [Member],
    deadline: Option<Nanos>,
    call: impl FnOnce(u32, Args) -> SysResult,
) -> Result<(), Errno> {
    const ENTRY: u64 = size_of::<PollFd>() as u64;
    const TIME: u64 = 16;
    let space = user::space()?;
    let scratch = Scratch::open(&space, TIME + members.len() as u64 * ENTRY)?;
    let entries = scratch.start + TIME;
    for (index, member) in members.iter().enumerate() {
        let fd = if member.remote { member.fd } else { u32::MAX };
        let entry = PollFd { fd: fd as i32, events: member.wanted.bits() as u16, found: 0 };
        user::write_struct(entries + index as u64 * ENTRY, &entry)?;
    }
    let timeout = match deadline {
        None => UserAddr::NULL,
        Some(deadline) => {
            write_timespec(scratch.start, Nanos(rest(deadline)))?;
            scratch.start
        }
    };
    let args = [entries.get(), members.len() as u64, timeout.get(), 0, 0, 0];
    call(linux::__NR_ppoll, args)?;
    for (index, member) in members.iter_mut().enumerate().filter(|(_, member)| member.remote) {
        let entry: PollFd = user::read_struct(entries + index as u64 * ENTRY)?;
        member.there = Events::from_bits_retain(entry.found.into());
        member.found |= member.there;
    }
    Ok(())
}

/// Has Linux make a call that waits. EINTR if a signal came, or a local file became ready, before
/// it was over.
pub fn in_linux(nr: u32, args: Args) -> SysResult {
    let current = task::current();
    let interruptible = &current.user().ok_or(Errno::ESRCH)?.interruptible;
    // Who sends a signal from here on ends the call.
    interruptible.store(true, Ordering::SeqCst);
    let result = match signal::is_interrupted() {
        true => Ok(RESULT_NOT_MADE),
        false => remote::request(Operation::SystemCall { number: nr, arguments: &args }),
    };
    interruptible.store(false, Ordering::Relaxed);
    match result? {
        RESULT_NOT_MADE => Err(Errno::EINTR),
        result => linux_result(result),
    }
}

/// A thread whose shadow polls: the call in Linux ends when a local file becomes ready.
pub struct InLinux(Arc<Thread>);

impl Watcher for InLinux {
    fn notify(&self, _: Events) -> Notified {
        if let Some(user) = self.0.user() {
            remote::interrupt(user);
        }
        self.0.wake();
        Notified::default()
    }
}

impl InLinux {
    /// The calling thread.
    pub fn of_caller() -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        Ok(Arc::new(Self(task::current().arc())))
    }
}

/// Who is told when a member becomes ready.
fn watcher(is_mixed: bool) -> Result<Arc<dyn Watcher>, Errno> {
    if is_mixed {
        return Ok(InLinux::of_caller()?);
    }
    Ok(task::current().arc())
}

/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = SECOND / 1000;

/// What a wait that a signal ended returns.
const INTERRUPTED: Errno = Errno::RESTART_NO_HANDLER;

/// poll(fds, count, milliseconds).
pub fn poll(row: &Row, [fds, count, timeout, ..]: Args) -> SysResult {
    let timeout = timeout as i32;
    let deadline = (timeout >= 0).then(|| time::now() + Nanos::from_millis(timeout as u64));
    poll_until(row, UserAddr::new(fds), count, deadline)
}

/// Goes on with a poll that a signal without handler interrupted.
pub fn go_on(fds: UserAddr, count: u64, deadline: Nanos) -> SysResult {
    let row = crtos_syscalls::lookup(linux::__NR_poll.into()).ok_or(Errno::EINTR)?;
    poll_until(row, fds, count, Some(deadline))
}

/// poll(2) until `deadline`, which a signal without handler does not change.
fn poll_until(row: &Row, fds: UserAddr, count: u64, deadline: Option<Nanos>) -> SysResult {
    const FOR_EVER: u64 = u64::MAX;
    let args = |timeout| [fds.get(), count, timeout, 0, 0, 0];
    let result = loop {
        break match (PollSet::read(fds, count)?, deadline) {
            (Some(mut set), _) => match set.wait(deadline) {
                Err(Errno::RESTART_ALWAYS) if !signal::is_interrupted() => continue,
                result => result,
            },
            (None, None) => others(row, args(FOR_EVER)),
            // A signal for another thread may make it begin anew.
            (None, Some(deadline)) => {
                pass_again(row, || args(rest(deadline).div_ceil(MILLISECOND).min(i32::MAX as u64)))
            }
        };
    };
    let Some(deadline) = deadline.filter(|_| result == Err(INTERRUPTED)) else { return result };
    if let Some(user) = task::current().user() {
        *user.restart.lock() = Some(Restart::Poll { fds, count, deadline });
    }
    Err(Errno::RESTART_BLOCK)
}

/// ppoll(fds, count, timeout, mask, size).
pub fn ppoll(row: &Row, args: Args) -> SysResult {
    let [fds, count, timeout, mask, size, _] = args;
    let mask = UserAddr::new(mask);
    let Some(mut set) = PollSet::read(UserAddr::new(fds), count)? else {
        // Linux says itself how much time was left.
        let args = [fds, count, timeout, 0, 0, 0];
        return masked(row, args, (mask, size), || {
            remote::linux(linux::__NR_poll, &[fds, count, 0])
        });
    };
    wait_masked(UserAddr::new(timeout), mask, size, |deadline| set.wait(deadline))
}

/// Has Linux make a call that waits with the mask of that address and size, which it does not know.
/// What is ready comes before a signal: where one that the mask lets in has come before the call,
/// `at_once` asks for that without waiting.
pub fn masked(
    row: &Row,
    args: Args,
    (mask, size): (UserAddr, u64),
    at_once: impl FnOnce() -> SysResult,
) -> SysResult {
    signal::masked(mask, size, || match others(row, args) {
        Err(Errno::RESTART_ALWAYS) if !mask.is_null() => match at_once()? {
            0 => Err(INTERRUPTED),
            count => Ok(count),
        },
        other => other,
    })
}

/// Has `wait` wait with the mask and for the time that ppoll(2) and pselect(2) are given.
fn wait_masked(
    timeout: UserAddr,
    mask: UserAddr,
    size: u64,
    wait: impl FnOnce(Option<Nanos>) -> SysResult,
) -> SysResult {
    let deadline = read_deadline(timeout)?;
    let result = signal::masked(mask, size, || wait(deadline));
    write_rest(timeout, deadline);
    result
}

/// The end of a time to wait for, in kernel time; `None`: for ever.
pub fn read_deadline(timeout: UserAddr) -> Result<Option<Nanos>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    Ok(Some(Nanos(time::now().0.saturating_add(read_timespec(timeout)?.0))))
}

/// How long it is until then.
pub fn rest(deadline: Nanos) -> u64 {
    deadline.0.saturating_sub(time::now().0)
}

/// Says how much time was left. As under Linux an address that cannot be written does not matter.
fn write_rest(timeout: UserAddr, deadline: Option<Nanos>) {
    if let Some(deadline) = deadline {
        let rest = rest(deadline);
        let _ = user::write_words(timeout, [rest / SECOND, rest % SECOND]);
    }
}

/// The set of poll(2).
struct PollSet {
    address: UserAddr,
    members: Members,
}

impl PollSet {
    /// Reads the set; `None` if all of it is Linux's.
    fn read(address: UserAddr, count: u64) -> Result<Option<Self>, Errno> {
        let count = count as u32;
        let files = files::table()?;
        if files.has_none() {
            return Ok(None);
        }
        if u64::from(count) > files.limit() {
            return Err(Errno::EINVAL);
        }
        let mut members = Members::new();
        if !heap::lends(count as usize * size_of::<Member>())
            || members.try_reserve_exact(count as usize).is_err()
        {
            return Err(Errno::ENOMEM);
        }
        for index in 0..u64::from(count) {
            let entry: PollFd = user::read_struct(address.wrapping_add(index * 8))?;
            let wanted = Events::from_bits_retain(entry.events.into());
            members.push(Member::new(entry.fd, wanted));
        }
        // A placeholder that is to go is not there.
        for member in members.iter_mut().filter(|member| member.remote) {
            if files.is_hidden(member.fd.into()) {
                (member.remote, member.there, member.found) = (false, INVALID, INVALID);
            }
        }
        let local = members.iter().any(|member| member.source.is_some() || member.found == INVALID);
        Ok(local.then_some(Self { address, members }))
    }

    fn wait(&mut self, deadline: Option<Nanos>) -> SysResult {
        let end = wait(&mut self.members, deadline)?;
        let mut count = 0;
        for (index, member) in self.members.iter().enumerate() {
            let at = self.address.wrapping_add(index as u64 * 8 + 6);
            user::write_u16(at, member.found.bits() as u16)?;
            count += u64::from(!member.found.is_empty());
        }
        match end {
            End::Interrupted if count == 0 => Err(INTERRUPTED),
            _ => Ok(count),
        }
    }
}

/// Events of select(2)'s three sets.
const READ: Events = Events::from_bits_retain(0x1 | 0x40 | 0x80 | 0x8 | 0x10);
const WRITE: Events = Events::from_bits_retain(0x4 | 0x100 | 0x200 | 0x8);
const EXCEPT: Events = Events::PRIORITY;
const SETS: [Events; 3] = [READ, WRITE, EXCEPT];

/// The sets of select(2).
struct SelectSet {
    addresses: [UserAddr; 3],
    words: usize,
    members: Members,
    /// For each member, which of the three sets it is in.
    sets: Vec<u8>,
}

impl SelectSet {
    /// Reads the sets; `None` if all of it is Linux's.
    fn read(count: u64, sets: [u64; 3]) -> Result<Option<Self>, Errno> {
        let sets = sets.map(UserAddr::new);
        let files = files::table()?;
        if files.has_none() {
            return Ok(None);
        }
        let count = count as i32;
        if count < 0 {
            return Err(Errno::EINVAL);
        }
        let count = u64::from(count as u32).min(files.limit().clamp(64, 65536));
        let words = count.div_ceil(64) as usize;
        let (mut members, mut kinds) = (Members::new(), Vec::new());
        let mut any = false;
        for word in 0..words {
            let mut bits = [0; 3];
            for (bits, &set) in bits.iter_mut().zip(&sets) {
                if !set.is_null() {
                    *bits = read_word(set, word as u64, count)?;
                }
            }
            let mut all = bits[0] | bits[1] | bits[2];
            let more = all.count_ones() as usize;
            if !heap::lends((members.len() + more) * size_of::<Member>())
                || members.try_reserve(more).is_err()
            {
                return Err(Errno::ENOMEM);
            }
            kinds.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            while all != 0 {
                let bit = all.trailing_zeros();
                all &= all - 1;
                let fd = word as u32 * 64 + bit;
                let mut wanted = Events::empty();
                let mut kind = 0;
                for (set, (bits, events)) in bits.iter().zip(SETS).enumerate() {
                    if bits >> bit & 1 == 1 {
                        wanted |= events;
                        kind |= 1 << set;
                    }
                }
                let member = Member::new(fd as i32, wanted);
                if member.source.is_none() && files.is_hidden(fd.into()) {
                    return Err(Errno::EBADF);
                }
                any |= member.source.is_some();
                members.push(member);
                kinds.push(kind);
            }
        }
        Ok(any.then_some(Self { addresses: sets, words, members, sets: kinds }))
    }

    fn wait(&mut self, deadline: Option<Nanos>) -> SysResult {
        let end = wait(&mut self.members, deadline)?;
        if self.members.iter().any(|member| member.found.contains(INVALID)) {
            return Err(Errno::EBADF);
        }
        let found = |member: &Member, kind: u8, set: usize| {
            kind >> set & 1 == 1 && member.found.intersects(SETS[set])
        };
        let pairs = || self.members.iter().zip(&self.sets);
        let count = pairs()
            .map(|(member, &kind)| (0..3).filter(|&set| found(member, kind, set)).count() as u64)
            .sum();
        if count == 0 && matches!(end, End::Interrupted) {
            return Err(INTERRUPTED);
        }
        for (set, &address) in self.addresses.iter().enumerate().filter(|(_, at)| !at.is_null()) {
            for word in 0..self.words {
                let bits = pairs()
                    .filter(|(member, _)| member.fd as usize / 64 == word)
                    .filter(|&(member, &kind)| found(member, kind, set))
                    .fold(0, |bits, (member, _)| bits | 1 << (member.fd % 64));
                user::write_words(address + word as u64 * 8, [bits])?;
            }
        }
        Ok(count)
    }
}

/// A word of a set, without the bits from `count` on.
fn read_word(set: UserAddr, word: u64, count: u64) -> Result<u64, BadAddress> {
    let [bits] = user::read_words(set.wrapping_add(word * 8))?;
    let valid = count - word * 64;
    Ok(if valid >= 64 { bits } else { bits & ((1 << valid) - 1) })
}

/// select(count, readable, writable, exceptional, timeout).
pub fn select(row: &Row, args: Args) -> SysResult {
    let [count, readable, writable, exceptional, timeout, _] = args;
    let sets = SelectSet::read(count, [readable, writable, exceptional])?;
    let Some(mut set) = sets else { return others(row, args) };
    let timeout = UserAddr::new(timeout);
    let deadline = match timeout {
        UserAddr::NULL => None,
        at => {
            let [seconds, micros] = user::read_words(at)?;
            if (seconds | micros) >> 63 != 0 {
                return Err(Errno::EINVAL);
            }
            let duration =
                seconds.saturating_mul(SECOND).saturating_add(micros.saturating_mul(1000));
            Some(Nanos(time::now().0.saturating_add(duration)))
        }
    };
    let result = set.wait(deadline);
    if let Some(deadline) = deadline {
        let rest = rest(deadline);
        let _ = user::write_words(timeout, [rest / SECOND, rest % SECOND / 1000]);
    }
    result
}

/// Has Linux look at the sets of select(2), of which all is its own, without waiting. They stay
/// what they are if nothing is ready.
fn select_at_once(count: u64, sets: [u64; 3]) -> SysResult {
    const TIME: u64 = 16;
    let count = u64::from(count as u32).min(files::table()?.limit().clamp(64, 65536));
    let length = count.div_ceil(64) * 8;
    let space = user::space()?;
    let scratch = Scratch::open(&space, TIME + sets.len() as u64 * length)?;
    let mut args = [count, 0, 0, 0, scratch.start.get()];
    user::write_words(scratch.start, [0, 0])?;
    let copy = |to: UserAddr, from: UserAddr| {
        (0..length).step_by(8).try_for_each(|at| {
            let word: [u64; 1] = user::read_words(from.wrapping_add(at))?;
            user::write_words(to.wrapping_add(at), word)
        })
    };
    let mut at = scratch.start + TIME;
    for (&set, arg) in sets.iter().zip(&mut args[1..]).filter(|(set, _)| **set != 0) {
        copy(at, UserAddr::new(set))?;
        *arg = at.get();
        at += length;
    }
    let ready = remote::linux(linux::__NR_select, &args)?;
    if ready > 0 {
        for (&set, &arg) in sets.iter().zip(&args[1..]).filter(|(set, _)| **set != 0) {
            copy(UserAddr::new(set), UserAddr::new(arg))?;
        }
    }
    Ok(ready)
}

/// pselect6(count, readable, writable, exceptional, timeout, mask and its size).
pub fn pselect6(row: &Row, args: Args) -> SysResult {
    let [count, readable, writable, exceptional, timeout, mask] = args;
    let sets = SelectSet::read(count, [readable, writable, exceptional])?;
    let [mask, size] = if mask == 0 { [0, 0] } else { user::read_words(UserAddr::new(mask))? };
    let mask = UserAddr::new(mask);
    let Some(mut set) = sets else {
        let args = [count, readable, writable, exceptional, timeout, 0];
        let sets = [readable, writable, exceptional];
        return masked(row, args, (mask, size), || select_at_once(count, sets));
    };
    wait_masked(UserAddr::new(timeout), mask, size, |deadline| set.wait(deadline))
}
