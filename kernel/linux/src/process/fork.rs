// SPDX-License-Identifier: MIT OR Apache-2.0
//! New processes: fork, vfork, clone without CLONE_THREAD.
//!
//! The shadow forks in Linux. The new shadow asks for a process of its own, naming the slot of the
//! thread that forked it, and the housekeeper finds what that thread has left for the child: a
//! [`Fork`]. The child copies the parent's memory while the parent waits, and goes on with the
//! parent's registers.
//!
//! With CLONE_VM the two shadows share their memory in Linux, and the processes share their address
//! space here. With CLONE_VFORK the parent's shadow waits in Linux until the child has executed a
//! program or ended.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::{PAGE_SIZE, ids::ProcessNumber};
use crtos_channel::{Operation, Parent, Slot};
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::UserContext,
    mm::{
        page_cache,
        space::{AddressSpace, BadAddress, MapError},
    },
    sync::SpinLock,
    task::{self, Mutex, Thread},
    time::{self, Nanos},
};

use crate::{
    abi::{Errno, SysResult, linux_result},
    futex::across,
    memory::mappings,
    process::{
        self, End, Process, ThreadExt as _, UserThread,
        clone::Wanted,
        lapse, spares,
        start::{self, Beginning, Birth},
        threads,
    },
    remote::{self, end},
    signal, timers,
};

/// What a child takes from its parent.
pub struct Fork {
    /// Slot of the parent.
    slot: Slot,
    /// The parent, which stays in [`split`] until `done`.
    parent: Arc<Thread>,
    /// The child has what it needs.
    done: AtomicBool,
    /// The parent goes on. As under Linux it does so first, unless the child outranks it: a child
    /// of a real-time thread that shares its CPU and never waits does not keep it from its next
    /// instruction.
    goes_on: AtomicBool,
    /// The child while it waits for that.
    child: SpinLock<Option<Arc<Thread>>>,
    beginning: SpinLock<Option<Beginning>>,
    wanted: Wanted,
    /// How often what the parent's shadow does on signals had been changed.
    changes: u64,
}

/// Parents whose children have not come yet.
static FORKS: Mutex<Vec<Arc<Fork>>> = Mutex::new(Vec::new());

/// Pages of the pool that a fork leaves free.
const SPARE: u64 = 256;

/// fork().
pub fn fork(context: &UserContext) -> SysResult {
    process(context, &Wanted { signal: linux::SIGCHLD, ..Wanted::default() })
}

/// vfork().
pub fn vfork(context: &UserContext) -> SysResult {
    let flags = u64::from(linux::CLONE_VM | linux::CLONE_VFORK);
    process(context, &Wanted { flags, signal: linux::SIGCHLD, ..Wanted::default() })
}

/// Flags that Linux deals with: what the shadows share, whose child it is.
const OF_LINUX: u32 = linux::CLONE_VM
    | linux::CLONE_VFORK
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SYSVSEM
    | linux::CLONE_IO
    | linux::CLONE_PARENT
    | linux::CLONE_PIDFD
    | linux::CLONE_NEWNS
    | linux::CLONE_NEWCGROUP
    | linux::CLONE_NEWUTS
    | linux::CLONE_NEWIPC
    | linux::CLONE_NEWUSER
    | linux::CLONE_NEWNET;

/// clone(2) for processes.
pub fn process(context: &UserContext, wanted: &Wanted) -> SysResult {
    // A process without the descriptors of its own could not have a device of its own.
    let apart = wanted.has(linux::CLONE_FILES) && !wanted.has(linux::CLONE_VM);
    let missing = linux::CLONE_SIGHAND | linux::CLONE_NEWPID | linux::CLONE_NEWTIME;
    if apart || wanted.has(missing) {
        return Err(Errno::EINVAL);
    }
    if task::current().scheduling().of_child().is_none() {
        return Err(Errno::EAGAIN);
    }
    lapse::refuse()?;
    let mut beginning = Beginning::of_child(context)?;
    beginning.apply(wanted)?;
    if !wanted.has(linux::CLONE_VM) {
        // The copy, and a little so that the parent is not the one that finds nothing left.
        let space = crate::memory::user::space()?;
        let (_, present) = space.usage();
        let room = page_cache::make_room(present / PAGE_SIZE + SPARE);
        if !room || !space.is_within_quota(present) {
            return Err(Errno::ENOMEM);
        }
    }
    split(beginning, wanted)
}

/// Makes the child and waits until it has what it needs. Returns its pid.
fn split(beginning: Beginning, wanted: &Wanted) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let files = user.process.files();
    if wanted.has(linux::CLONE_PIDFD) {
        files.agree()?;
    }
    let fork = Arc::new(Fork {
        slot: user.slot,
        parent: current.arc(),
        done: AtomicBool::new(false),
        goes_on: AtomicBool::new(wanted.has(linux::CLONE_VFORK)),
        child: SpinLock::new(None),
        beginning: SpinLock::new(Some(beginning)),
        wanted: *wanted,
        changes: signal::changes(&user.process),
    });
    {
        let mut forks = FORKS.lock();
        forks.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        forks.push(fork.clone());
    }
    let flags = wanted.flags & u64::from(OF_LINUX) | u64::from(wanted.signal);
    // No placeholder moves while the shadow and the table are copied. Linux holds a parent that
    // waits for its child's exec for as long as that takes.
    let holds = !wanted.has(linux::CLONE_VFORK);
    let agreement = holds.then(|| files.hold());
    // Nor does what the shadow does on signals change, which the child has, too.
    let actions = holds.then(|| user.process.changing_action.lock());
    // A child that has the caller's memory mostly has its stack as well.
    let tie = wanted.has(linux::CLONE_VFORK).then(|| user.process.tie());
    let child = remote::request(Operation::Fork { flags, pidfd: wanted.pidfd });
    let made = matches!(child, Ok(child) if child > 0);
    while !fork.done.load(Ordering::Acquire) {
        process::note_if_gone();
        // Without a child nobody comes any more, but one that came needs the parent.
        if (!made || user.process.is_ending() || end::has_ended()) && take_back(&fork) {
            break;
        }
        task::block(None);
    }
    if tie.is_some() && end::has_ended() {
        wait_for_guests(&user.process);
    }
    drop(tie);
    drop(actions);
    drop(agreement);
    fork.let_go();
    let child = linux_result(child?)?;
    if wanted.has(linux::CLONE_PIDFD) {
        let fd = crate::memory::user::read_u32(wanted.pidfd)?;
        let settled = files.settle(fd.into())? as u32;
        if settled != fd {
            crate::memory::user::write_u32(wanted.pidfd, settled)?;
        }
    }
    Ok(child)
}

/// How often [`wait_for_guests`] looks.
const PERIOD: Nanos = Nanos::from_millis(1);

/// Linux has ended, and cannot say when a child of vfork(2) has: waits for that, or for the end of
/// `process`.
fn wait_for_guests(process: &Process) {
    let has_guests = || {
        let mut any = false;
        threads::each_process(|other| {
            let same = Arc::ptr_eq(&other.space, &process.space);
            any |= same && !core::ptr::eq(&**other, process);
        });
        any
    };
    while !process.is_ending() && has_guests() {
        task::sleep_until(time::now() + PERIOD);
    }
}

/// Takes back what no child has taken; false if one has.
fn take_back(fork: &Arc<Fork>) -> bool {
    let mut forks = FORKS.lock();
    let place = forks.iter().position(|other| Arc::ptr_eq(other, fork));
    place.map(|place| forks.swap_remove(place)).is_some()
}

/// What that thread has left for its child. Who takes it lets go by [`Fork::finish`] or [`child`].
pub fn take(parent: Parent) -> Option<Arc<Fork>> {
    // The parent may have gone since, and its slot be that of a thread of another program.
    let is_meant = |fork: &Arc<Fork>| {
        let process = fork.parent.user().map(|user| user.process.number);
        fork.slot == parent.slot && process == Some(parent.process)
    };
    let mut forks = FORKS.lock();
    let place = forks.iter().position(is_meant)?;
    Some(forks.swap_remove(place))
}

impl Fork {
    /// The parent's memory, if the child shares it; `number` is the child's process number.
    pub fn shared_space(&self, number: ProcessNumber) -> Option<Arc<AddressSpace>> {
        let parent = self.parent.user()?;
        let shares = self.wanted.has(linux::CLONE_VM) && parent.process.number == number;
        shares.then(|| parent.process.space.clone())
    }

    /// The child needs the parent no more.
    pub fn finish(&self) {
        self.done.store(true, Ordering::Release);
        self.parent.wake();
    }

    /// The parent goes on, whatever came of it.
    fn let_go(&self) {
        self.goes_on.store(true, Ordering::SeqCst);
        let child = self.child.lock().take();
        if let Some(child) = child {
            child.wake();
        }
    }

    /// The child waits until the parent goes on, or until its own process ends.
    fn wait_for_parent(&self, user: &UserThread) {
        *self.child.lock() = Some(task::current().arc());
        while !self.goes_on.load(Ordering::SeqCst) && !user.process.is_ending() {
            task::block(None);
            process::note_if_gone();
        }
    }
}

/// Why a child cannot take over from its parent.
#[derive(Debug)]
enum AdoptError {
    /// Nobody forked it.
    NoParent,
    /// No memory for the copy.
    Memory,
}

impl From<MapError> for AdoptError {
    fn from(_: MapError) -> Self {
        Self::Memory
    }
}

impl From<BadAddress> for AdoptError {
    fn from(_: BadAddress) -> Self {
        Self::Memory
    }
}

/// Body of the first thread of a forked process.
pub fn child() {
    {
        let current = task::current();
        let Some(user) = current.user() else { return };
        let birth = core::mem::take(&mut *user.birth.lock());
        let adopted = match &birth {
            Birth::Fork(fork) => {
                let adopted = adopt(user, fork);
                fork.finish();
                fork.wait_for_parent(user);
                adopted
            }
            _ => Err(AdoptError::NoParent),
        };
        match adopted {
            Ok(beginning) => *user.birth.lock() = Birth::Thread(beginning),
            Err(error) => {
                crtos_core::warn!("pid {}: fork: {error:?}", user.process.outer_pid);
                user.process.end(End::Status(126));
            }
        }
    }
    process::note_if_gone();
    process::end_if_due();
    start::enter();
}

/// Gives the child what it does on signals. What the shadow of a parent that waits for its child's
/// exec does may have been changed by other threads, before the shadow was copied or since.
fn adopt_actions(user: &UserThread, parent: &UserThread, fork: &Fork) -> Result<(), remote::Gone> {
    // Otherwise the parent holds it.
    let waits = fork.wanted.has(linux::CLONE_VFORK);
    let changing = waits.then(|| parent.process.changing_action.lock());
    signal::copy(user, parent, &fork.wanted);
    let changed = signal::changed_since(&parent.process, fork.changes);
    drop(changing);
    signal::tell_shadow(user, changed)
}

/// Gives the child everything that it has of its parent.
fn adopt(user: &UserThread, fork: &Fork) -> Result<Beginning, AdoptError> {
    let parent = fork.parent.user().ok_or(AdoptError::NoParent)?;
    let wanted = &fork.wanted;
    let space = &user.process.space;
    let cpus = user.process.inherited_cpus(fork.parent.affinity());
    task::current().set_affinity(cpus);
    if let Some(scheduling) = fork.parent.scheduling().of_child() {
        task::current().set_scheduling(user.process.inherited_scheduling(scheduling));
    }
    if !wanted.has(linux::CLONE_VM) {
        let is_partial = space.copy_from(&parent.process.space)?;
        if is_partial {
            // The shadow has all.
            mappings::tidy(space);
        }
        if space.reads_on_demand() {
            // Without one, Linux cannot touch what was not read.
            let _ = spares::reserve_spare();
        }
        if parent.process.herald.is_there() {
            across::prepare();
        }
    }
    if wanted.has(linux::CLONE_FILES) {
        user.process.files.call_once(|| parent.process.files().clone());
    } else {
        user.process.files().copy(parent.process.files()).map_err(|_| AdoptError::Memory)?;
    }
    let sibling = wanted.has(linux::CLONE_PARENT);
    user.process.account.call_once(|| parent.process.account().of_child(sibling));
    adopt_actions(user, parent, fork).map_err(|_| AdoptError::NoParent)?;
    timers::copy_limits(&user.process, &parent.process).map_err(|_| AdoptError::Memory)?;
    user.process.set_own_limits(*parent.process.own_limits.lock());
    user.process.numbering.set(parent.process.numbering.get());
    let strict = parent.process.strict.load(Ordering::Relaxed);
    user.process.strict.store(strict, Ordering::Relaxed);
    let wildcard = parent.process.wildcard.load(Ordering::Relaxed);
    user.process.wildcard.store(wildcard, Ordering::Relaxed);
    if user.process.keeps_ids() {
        user.ids.inherit(&parent.ids);
    }
    user.speculation.inherit(&parent.speculation);
    user.set_command(&*parent.command.lock());
    let pid = user.process.pid.get().to_le_bytes();
    // As Linux: an address that is none does not matter any more.
    if wanted.has(linux::CLONE_PARENT_SETTID) {
        let _ = parent.process.space.write(wanted.parent_tid, &pid);
    }
    if wanted.has(linux::CLONE_CHILD_SETTID) {
        let _ = space.write(wanted.child_tid, &pid);
    }
    if wanted.has(linux::CLONE_CHILD_CLEARTID) {
        user.set_clear_child_tid(wanted.child_tid);
    }
    fork.beginning.lock().take().ok_or(AdoptError::NoParent)
}
