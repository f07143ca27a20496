// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads.
//!
//! What the scheduler knows of a thread lies in the thread itself and belongs to the CPU that the
//! thread is assigned to: whoever holds the lock of that CPU's scheduler may look at it. A thread
//! changes its CPU under the lock of the old one.

use super::deadlines::{self, Overload};
use super::inheritance;
use super::scheduler::{self, Sched};
use super::scheduling::Scheduling;
use super::user::{self, UserState};
use crate::arch::context::initial_stack;
use crate::arch::{cpu, percpu};
use crate::hazard::{self, AT_LENGTH, BRIEFLY, Entry, FastCall};
use crate::mm::space::device;
use crate::mm::{AddressSpace, heap, stacks};
use crate::personality::Carried;
use crate::sync::SpinLock;
use crate::time::{self, Nanos};
use crate::trace::Place;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crtos_abi::channel::TRACE_KERNEL_THREAD;
use crtos_abi::ids::{RealmCpu, Tid};
use crtos_sched::{AtomicCpu, CpuSet, Level, clock::Ticks};

/// Why [`super::block`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeReason {
    /// Somebody called [`Thread::wake`] since the last return of `block`.
    Woken,
    /// Somebody called [`Thread::hand_over_quietly`].
    Handed,
    /// The deadline passed.
    Timeout,
}

/// Number of a thread; reused after the thread is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadId(pub u16);

/// Most threads: those of the channel's slots and those of the kernel.
pub const MAX_THREADS: usize = 1152;

/// There is no room or no memory for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnError;

/// A thread of the kernel or of a process.
pub struct Thread {
    /// Its number.
    pub id: ThreadId,
    /// For the log.
    pub name: String,
    /// How a trace calls it.
    pub trace_id: u32,
    /// What it carries for the personality.
    pub carried: Carried,
    /// What it needs to run a program.
    pub(super) user: Option<UserState>,
    pub(super) space: SpinLock<Option<Arc<AddressSpace>>>,
    pub(super) stack_top: u64,
    /// Its stack pointer while it is on no CPU, else 0; see `context::switch_stacks`.
    pub(super) stack_pointer: AtomicU64,
    /// The CPU that it is assigned to.
    pub(super) cpu: AtomicCpu,
    pub(super) sched: Sched,
    /// Ticks that it has run, up to the last switch.
    pub(super) run_time: AtomicU64,
    pub(super) switches: AtomicU64,
    /// Its rank, for those who do not hold the scheduler's lock.
    pub(super) rank: AtomicU8,
    /// [`NOTHING`], or why it does not simply return to user mode.
    attention: AtomicU8,
    /// It used up a budget and wants to know.
    overran: AtomicBool,
    /// System calls that ended on the fast path; the entry counts.
    fast_calls: AtomicU64,
    /// How many losses of devices it knows of.
    losses: AtomicU64,
    /// Where its program is, for a trace.
    pub(crate) place: Place,
    body: SpinLock<Option<Body>>,
}

/// Values of [`Thread::attention`]: nothing; it has to look what is pending; it knows what it has
/// to do.
const NOTHING: u8 = 0;
const LOOK: u8 = 1;
const OWN: u8 = 2;

impl Thread {
    /// Whether devices were withdrawn from programs since this was asked last, or since the thread
    /// was made. Any context.
    pub(crate) fn learns_of_losses(&self) -> bool {
        let now = device::losses();
        self.losses.swap(now, Ordering::Relaxed) != now
    }

    /// Offset of the counter of calls on the fast path, for the assembly.
    pub const FAST_CALLS: usize = core::mem::offset_of!(Self, fast_calls);

    /// Makes the thread's next (or present) [`super::block`] return [`WakeReason::Woken`]. Any
    /// context.
    pub fn wake(&self) {
        let interrupts = cpu::disable_interrupts();
        self.wake_quietly();
        if interrupts {
            percpu::open();
        }
    }

    /// As [`wake`](Self::wake) where interrupts are off and stay so.
    #[inline(always)]
    pub fn wake_quietly(&self) {
        scheduler::wake(self, WakeReason::Woken);
    }

    /// Makes the thread's next (or present) [`super::block`] return [`WakeReason::Handed`]: what it
    /// waits for there is its own from now on, so that it need not look. Whoever stops waiting
    /// calls [`super::forget_handed`] if this was called. Interrupts are off and stay so.
    #[inline(always)]
    pub fn hand_over_quietly(&self) {
        scheduler::wake(self, WakeReason::Handed);
    }

    /// Has [`crate::personality::Personality::attend`] called before the thread returns to user
    /// mode, also if it is there now. Does not wake it. Any context.
    pub fn set_attention(&self) {
        self.note_attention();
        scheduler::interrupt(self);
    }

    /// As [`Self::set_attention`], for the next time that it comes to return.
    pub(super) fn note_attention(&self) {
        self.attention.store(LOOK, Ordering::Release);
    }

    /// Notes that the thread, which runs on this CPU, has used up its budget, for
    /// `return_to_user`. Interrupts off.
    pub(super) fn note_overrun(&self) {
        self.overran.store(true, Ordering::Relaxed);
        self.note_attention();
    }

    /// Whether it has used up a budget since the last question.
    pub fn take_overrun(&self) -> bool {
        self.overran.load(Ordering::Relaxed) && self.overran.swap(false, Ordering::Relaxed)
    }

    /// Clears the flag; `return_to_user` calls this first.
    pub fn clear_attention(&self) {
        self.attention.store(NOTHING, Ordering::Release);
    }

    /// Whether the flag is set.
    pub fn attention(&self) -> bool {
        self.attention.load(Ordering::Acquire) != NOTHING
    }

    /// The thread, which is the calling one, has something to do before it returns to user mode for
    /// which it need not look at anything else. On the fast path.
    pub fn set_own_attention(&self) {
        let _ = self.exchange_attention(NOTHING, OWN);
        percpu::this().set_attention(true);
    }

    /// It does that now. Whether it has to look as well stays as it was.
    pub fn clear_own_attention(&self) {
        let _ = self.exchange_attention(OWN, NOTHING);
    }

    fn exchange_attention(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.attention.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
    }

    /// Changes how it is scheduled, which is refused if the CPUs have not as much left as it wants
    /// to reserve. Thread context.
    pub fn try_set_scheduling(&self, scheduling: Scheduling) -> Result<(), Overload> {
        deadlines::set_scheduling(self, scheduling)?;
        inheritance::level_changed(self);
        Ok(())
    }

    /// Schedules it as `what`, which `from` has had so far; that one, which is about to end, is an
    /// ordinary thread from now on. Nobody else can reserve meanwhile what that one had. Refused as
    /// by [`try_set_scheduling`](Self::try_set_scheduling). Thread context.
    pub fn take_over(&self, from: &Thread, what: Scheduling) -> Result<(), Overload> {
        deadlines::hand_over(from, self, what)?;
        inheritance::level_changed(from);
        inheritance::level_changed(self);
        Ok(())
    }

    /// Changes how it is scheduled, to something without a reservation. Thread context.
    pub fn set_scheduling(&self, scheduling: Scheduling) {
        debug_assert_eq!(scheduling.share(), 0);
        // Giving up a reservation is not refused.
        let _ = self.try_set_scheduling(scheduling);
    }

    /// How it is scheduled.
    pub fn scheduling(&self) -> Scheduling {
        scheduler::scheduling(self)
    }

    /// The CPUs that it may run on.
    pub fn affinity(&self) -> CpuSet {
        scheduler::affinity(self)
    }

    /// Restricts it to `cpus`, at least one of which runs (see [`super::online`]). When this
    /// returns in the thread itself, it is on one of them. Any context.
    pub fn set_affinity(&self, cpus: CpuSet) {
        scheduler::set_affinity(self, cpus);
    }

    /// Restricts it to the CPU that runs the caller. Any context.
    pub fn come_here(&self) {
        self.set_affinity(CpuSet::one(percpu::this().index));
    }

    /// Its level, with what it inherits.
    pub fn effective_level(&self) -> Level {
        Level::from_number(self.rank.load(Ordering::Relaxed).saturating_sub(1))
    }

    /// Rank for the channel: 1 + effective level, or
    /// [`RANK_IDLE`](crtos_abi::channel::RANK_IDLE) of an idle thread.
    pub fn rank(&self) -> u32 {
        self.rank.load(Ordering::Relaxed).into()
    }

    /// Index in the cell of the CPU that it is assigned to, where it runs, ran or will run; for
    /// other threads than the caller a hint.
    pub fn cpu(&self) -> RealmCpu {
        self.cpu.load(Ordering::Acquire)
    }

    /// Whether it waits for something other than a CPU. Any context.
    pub fn is_asleep(&self) -> bool {
        scheduler::is_asleep(self)
    }

    /// Processor time used, up to the last switch.
    pub fn run_time(&self) -> Nanos {
        time::duration(self.ticks_run())
    }

    /// The same in ticks.
    pub(super) fn ticks_run(&self) -> Ticks {
        Ticks(self.run_time.load(Ordering::Relaxed))
    }

    /// Processor time used, up to now. Any context.
    pub fn time_used(&self) -> Nanos {
        scheduler::time_used(self)
    }

    /// Of that, what it has used since it last slept. Any context.
    pub fn time_awake(&self) -> Nanos {
        scheduler::time_awake(self)
    }

    /// Times that it was switched to.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// System calls that ended on the fast path.
    pub fn fast_calls(&self) -> u64 {
        self.fast_calls.load(Ordering::Relaxed)
    }

    /// Its address space, if it belongs to a process.
    pub fn space(&self) -> Option<Arc<AddressSpace>> {
        self.space.lock().clone()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        release_id(self.id);
    }
}

/// The threads that the scheduler knows, by number; each entry owns a reference.
static THREADS: [Entry<Thread>; MAX_THREADS] = [const { Entry::empty() }; MAX_THREADS];

/// The thread with number `id`.
///
/// # Safety
/// That thread does not end during the use of the result: it is queued, assigned or waited for
/// under a lock that the caller holds and that it would have to take before.
#[inline(always)]
pub(crate) unsafe fn by_id(id: u16) -> &'static Thread {
    // SAFETY: the entry owns a reference that is taken away by [`forget`] alone, after the end.
    match unsafe { THREADS[usize::from(id)].get() } {
        Some(thread) => thread,
        None => panic!("there is no thread {id}"),
    }
}

/// `thread`, for as long as the scheduler knows it.
///
/// # Safety
/// As of [`by_id`].
#[inline(always)]
pub(super) unsafe fn known(thread: &Thread) -> &'static Thread {
    // SAFETY: the entry of its number owns a reference, as in [`by_id`].
    unsafe { &*core::ptr::from_ref(thread) }
}

/// Calls `f` with the thread with number `id`, if there is one. `f` does not sleep and uses no
/// entry of a table. Any context; interrupts are off meanwhile.
fn with<R>(id: u16, f: impl FnOnce(&Thread) -> R) -> Option<R> {
    let entry = THREADS.get(usize::from(id))?;
    let interrupts = cpu::disable_interrupts();
    // SAFETY: interrupts are off. `forget` gives the reference back when no CPU names the thread
    // any more.
    let result = unsafe { entry.with::<BRIEFLY, _>(None, |thread| Some(f(thread))) };
    if interrupts {
        percpu::open();
    }
    result
}

/// [`Thread::wake`] for the thread with number `id`, if there is one. Any context.
pub fn wake(id: u16) {
    with(id, Thread::wake_quietly);
}

/// The same if that thread is assigned to this CPU, is more urgent than `level`, and has no budget
/// (SCHED_DEADLINE) that may keep it from running; says whether it is so. Any context.
pub fn wake_here(id: u16, level: Level) -> bool {
    let wake = |thread: &Thread| {
        let own = thread.effective_level();
        let is_meant = thread.cpu() == percpu::this().index && own > level && own < Level::DEADLINE;
        if is_meant {
            thread.wake_quietly();
        }
        is_meant
    };
    with(id, wake).unwrap_or(false)
}

/// [`Thread::hand_over_quietly`] for the thread with number `id`, if there is one. Any context.
pub fn hand_over(id: u16) {
    with(id, Thread::hand_over_quietly);
}

/// As [`hand_over`], on the fast path.
#[inline(always)]
pub fn hand_over_fast<T>(_: &mut FastCall<'_, T>, id: u16) {
    if let Some(entry) = THREADS.get(usize::from(id)) {
        // SAFETY: the call is proof that interrupts are and stay off; `forget` gives the reference
        // back when no CPU names the thread any more.
        unsafe { entry.with::<AT_LENGTH, _>((), Thread::hand_over_quietly) }
    }
}

/// The level of the thread with number `id`, without what it inherits; that of ordinary threads if
/// there is none. Any context.
pub fn level(id: u16) -> Level {
    with(id, |thread| thread.scheduling().level).unwrap_or(Level::ORDINARY)
}

/// Has the thread with number `id`, if there is one, inherit `level`. Any context.
pub(super) fn inherit(id: u16, level: Level) {
    with(id, |thread| scheduler::set_inherited(thread, level));
}

/// Has the scheduler know `thread`.
pub(super) fn register(thread: &Arc<Thread>) -> &'static Thread {
    THREADS[usize::from(thread.id.0)].replace(Some(thread.clone()));
    // SAFETY: the thread is not started yet.
    unsafe { by_id(thread.id.0) }
}

/// Has the scheduler no longer know the thread with number `id`, which ended and has left its CPU.
pub(super) fn forget(id: u16) -> Option<Arc<Thread>> {
    let thread = THREADS[usize::from(id)].replace(None)?;
    hazard::wait_until_unused(thread);
    // SAFETY: the entry had this reference.
    Some(unsafe { Arc::from_raw(thread.as_ptr()) })
}

static IDS: SpinLock<[u64; MAX_THREADS / 64]> = SpinLock::new([0; MAX_THREADS / 64]);

/// The lowest free number.
fn allocate_id() -> Result<ThreadId, SpawnError> {
    let mut ids = IDS.lock();
    let (word, bits) =
        ids.iter_mut().enumerate().find(|(_, bits)| **bits != u64::MAX).ok_or(SpawnError)?;
    let bit = bits.trailing_ones();
    *bits |= 1 << bit;
    Ok(ThreadId((word * 64) as u16 + bit as u16))
}

fn release_id(id: ThreadId) {
    IDS.lock()[usize::from(id.0) / 64] &= !(1 << (id.0 % 64));
}

/// What a thread does.
pub(super) enum Body {
    /// A function, which need not return.
    Function(fn()),
    /// A closure, whose box is freed when it returns.
    Closure(Box<dyn FnOnce() + Send>),
}

/// What a new thread is made of.
pub struct Spawn<'a> {
    /// For the log.
    pub name: &'a str,
    /// How a trace calls it; `None` for threads of the kernel.
    pub trace_id: Option<Tid>,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// The address space it runs in; `None` for threads of the kernel.
    pub space: Option<Arc<AddressSpace>>,
    /// What it carries for the personality.
    pub carried: Carried,
    /// The CPUs that it may run on.
    pub affinity: CpuSet,
}

impl Default for Spawn<'_> {
    fn default() -> Self {
        Self {
            name: "",
            trace_id: None,
            scheduling: Scheduling::ORDINARY,
            space: None,
            carried: Carried::NOTHING,
            affinity: CpuSet::ALL,
        }
    }
}

/// Makes a thread that runs `body` in the kernel and makes it ready. A body that does not return
/// captures nothing: what it captured would be lost. Does not sleep, but allocates: not on a
/// real-time path.
pub fn spawn(
    what: Spawn<'_>,
    body: impl FnOnce() + Send + 'static,
) -> Result<Arc<Thread>, SpawnError> {
    let thread = make(what, Body::Closure(Box::new(body)))?;
    scheduler::add(&thread);
    Ok(thread)
}

/// As [`spawn`], but the thread waits for [`start`], and its body may end in user mode
/// ([`crate::arch::enter_user`]).
pub fn prepare(what: Spawn<'_>, body: fn()) -> Result<Arc<Thread>, SpawnError> {
    make(what, Body::Function(body))
}

/// Makes a thread ready that was prepared. Any context.
pub fn start(thread: &Arc<Thread>) {
    scheduler::add(thread);
}

/// The rank of a thread with that effective level.
pub(super) const fn rank_of(level: Level) -> u8 {
    1 + level.get() as u8
}

/// Makes a thread without making it ready.
pub(super) fn make(what: Spawn<'_>, body: Body) -> Result<Arc<Thread>, SpawnError> {
    if !heap::has_reserve() {
        return Err(SpawnError);
    }
    let user = match &what.space {
        Some(space) => Some(UserState::new(space).ok_or(SpawnError)?),
        None => None,
    };
    let id = allocate_id()?;
    let Ok(stack_top) = stacks::make(id.0, what.space.is_some()) else {
        release_id(id);
        return Err(SpawnError);
    };
    // SAFETY: the stack belongs to the new number, is mapped, and nobody runs on it.
    let stack_pointer = unsafe { initial_stack(stack_top, first_steps) };
    Ok(Arc::new(Thread {
        id,
        name: String::from(what.name),
        trace_id: what.trace_id.map_or(TRACE_KERNEL_THREAD | u32::from(id.0), Tid::get),
        carried: what.carried,
        user,
        space: SpinLock::new(what.space),
        stack_top,
        stack_pointer: AtomicU64::new(stack_pointer),
        run_time: AtomicU64::new(0),
        switches: AtomicU64::new(0),
        rank: AtomicU8::new(rank_of(what.scheduling.level)),
        attention: AtomicU8::new(NOTHING),
        overran: AtomicBool::new(false),
        fast_calls: AtomicU64::new(0),
        losses: AtomicU64::new(device::losses()),
        place: Place::default(),
        cpu: AtomicCpu::new(percpu::this().index),
        sched: Sched::new(what.scheduling, what.affinity),
        body: SpinLock::new(Some(body)),
    }))
}

/// Where every thread starts. Interrupts off.
extern "sysv64" fn first_steps() -> ! {
    scheduler::arrive();
    cpu::restore_interrupts(true);
    let body = current().body.lock().take();
    match body {
        Some(Body::Function(body)) => body(),
        Some(Body::Closure(body)) => body(),
        None => {}
    }
    scheduler::exit()
}

/// The current thread. It exists as long as it runs, which is as long as it can look at this.
pub struct Current(*const Thread, PhantomData<*mut ()>);

impl Current {
    /// A reference to keep or to give to others.
    pub fn arc(&self) -> Arc<Thread> {
        // SAFETY: the pointer came from the `Arc` that the scheduler keeps while the thread lives.
        unsafe {
            Arc::increment_strong_count(self.0);
            Arc::from_raw(self.0)
        }
    }
}

impl Deref for Current {
    type Target = Thread;
    fn deref(&self) -> &Thread {
        // SAFETY: the thread runs, or this could not be called, and the scheduler keeps it while it
        // does.
        unsafe { &*self.0 }
    }
}

/// The current thread. Not before the first thread runs.
pub fn current() -> Current {
    let thread = percpu::current();
    assert!(!thread.is_null(), "no thread runs yet");
    Current(thread, PhantomData)
}

/// Whether the current thread runs on page tables of a program.
pub fn runs_program() -> bool {
    // SAFETY: the current thread exists while it runs.
    unsafe { percpu::current().as_ref() }.is_some_and(user::uses_tables)
}
