// SPDX-License-Identifier: MIT OR Apache-2.0
//! The housekeeper: a thread of ordinary priority that makes processes when Linux asks for them,
//! has spare shadow threads made, tidies up behind Linux, and looks at its clocks.
//!
//! No other thread of the kernel sleeps until a time while nothing happens: each timer on a CPU
//! makes every wake-up there longer.

use alloc::{boxed::Box, sync::Arc, sync::Weak, vec::Vec};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::channel::KERNEL_SEALED;
use crtos_abi::ids::RealmCpu;
use crtos_channel::{
    Channel, Operation, OwnedSlot, Poll, Question, Request, Start, operation::Room,
};
use spin::Once;

use crtos_core::{
    arch,
    devices::interrupts,
    mm::{space::AddressSpace, window},
    task::{self, Mutex, Scheduling, Spawn, Thread, WaitQueue},
    time::{self, Nanos},
};

use crate::{
    memory::shared,
    process::{
        Process, ThreadExt as _, UserThread, exec, execve, fork, spares,
        start::{self, Birth},
        threads,
        user_limits::{self, UserLimits},
    },
    remote::{
        self, lock,
        revocation::{self, Revoker},
        slots,
    },
};

static HOUSEKEEPER: Once<Arc<Thread>> = Once::new();

/// How often the housekeeper looks around. The module stores Linux's clocks twice a second.
const PERIOD: Nanos = Nanos::from_millis(250);

/// How often the housekeeper has begun and ended to look for what Linux offers.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Threads that wait for the end of a look.
static LOOKING: WaitQueue = WaitQueue::new();

/// Processes that want spares.
static WANTING: Mutex<Vec<Weak<Process>>> = Mutex::new(Vec::new());

/// Looks which PCI functions the realm is to have.
static LOOK: Once<fn(Channel)> = Once::new();

/// Has the housekeeper call `look` when Linux has changed what PCI functions the realm is to have,
/// and once before. Thread context; it may sleep. Before the housekeeper starts.
pub fn set_look_at_devices(look: fn(Channel)) {
    LOOK.call_once(|| look);
}

/// Starts the housekeeper.
pub fn start() {
    let what =
        Spawn { name: "housekeeper", scheduling: Scheduling::ORDINARY, ..Default::default() };
    match task::spawn(what, keep_house) {
        Ok(thread) => {
            HOUSEKEEPER.call_once(|| thread);
        }
        Err(error) => {
            crtos_core::error!("no thread for the housekeeper: {error:?}; processes cannot be made")
        }
    }
}

/// Has the housekeeper look at what Linux offered. Any context.
pub fn wake() {
    if let Some(thread) = HOUSEKEEPER.get() {
        thread.wake();
    }
}

/// Has the housekeeper make spares for `process`. Thread context; may sleep.
pub fn want_spares(process: &Arc<Process>) {
    {
        // Once, since threads of a higher priority may keep the housekeeper waiting for long.
        let mut wanting = WANTING.lock();
        if !wanting.iter().any(|other| ptr::eq(other.as_ptr(), Arc::as_ptr(process))) {
            wanting.push(Arc::downgrade(process));
        }
    }
    wake();
}

/// Waits until the housekeeper has made all processes that it was about to make. Thread context;
/// sleeps.
pub fn wait_for_round() {
    let next = BEGUN.load(Ordering::SeqCst) + 1;
    wake();
    let has_ended = || (ENDED.load(Ordering::SeqCst) >= next).then_some(());
    let _ = LOOKING.wait_until(None, |_| false, has_ended);
}

fn keep_house() {
    let Some(channel) = remote::channel() else { return };
    // Spares that make further ones.
    let mut makers = Vec::new();
    // When to look at Linux's clocks, and whether Linux goes on.
    let mut look_at = time::now();
    // What there was before this thread has not been asked about.
    let mut has_looked = false;
    loop {
        let round = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
        slots::take_offers(|slot| match slots::accept(slot) {
            // An id that has come again would be two programs'.
            Some((owned, Start::Thread)) if threads::is_taken(&owned) => spares::dispose([owned]),
            Some((owned, Start::Process)) if threads::is_taken(&owned) => refuse(channel, owned),
            Some((owned, Start::Process)) => make(channel, owned),
            Some((owned, Start::Thread)) => match threads::find_outer(owned.pid()) {
                Some(process) if process.number == owned.process() => {
                    spares::give_back(&process, owned)
                }
                _ => spares::dispose([owned]),
            },
            None => spares::take_signal(channel, slot),
        });
        ENDED.store(round, Ordering::SeqCst);
        LOOKING.wake_all();
        answer_end(channel);
        answer_seal(channel);
        answer_devices(channel, &mut has_looked);
        shared::recall(channel);
        window::give_up();
        replenish(channel, &mut makers);
        spares::free_left(channel);
        revocation::collect();
        if time::now() >= look_at {
            task::clock_set::lead();
            remote::end::look_again();
            interrupts::publish();
            look_at = time::now() + PERIOD;
        }
        slots::owners(|thread| {
            if let Some(user) = thread.user() {
                user.publish(thread);
            }
        });
        task::block(Some(look_at));
    }
}

/// Answers Linux, if it asks whether the realm may end: it may when no program is left. It may as
/// well when Linux has ended itself. Processes are made by this thread, so none comes meanwhile.
fn answer_end(channel: Channel) {
    let asked = channel.asked(Question::End);
    if (asked.is_some() || remote::end::has_ended()) && !slots::is_owned() {
        arch::agree_to_end();
    }
    if let Some(asked) = asked {
        channel.answer(Question::End, asked);
    }
}

/// Seals the realm, if Linux asks for that and it is locked. What was offered before has its
/// process.
fn answer_seal(channel: Channel) {
    let Some(asked) = channel.asked(Question::Seal) else { return };
    let was_sealed = lock::is_sealed();
    if lock::seal() {
        channel.set_kernel_state(KERNEL_SEALED);
        if !was_sealed {
            crtos_core::info!("sealed: no new program of Linux is taken any more");
        }
    }
    channel.answer(Question::Seal, asked);
}

/// Looks which PCI functions the realm is to have.
fn answer_devices(channel: Channel, has_looked: &mut bool) {
    let asked = channel.asked(Question::Devices);
    if asked.is_some() || !*has_looked {
        if let Some(look) = LOOK.get() {
            look(channel);
        }
        *has_looked = true;
    }
    if let Some(asked) = asked {
        channel.answer(Question::Devices, asked);
    }
}

/// Has spares made where they are wanted, and takes back those that have made some.
fn replenish(channel: Channel, makers: &mut Vec<(Weak<Process>, OwnedSlot)>) {
    if remote::end::has_ended() {
        makers.clear();
        WANTING.lock().clear();
    }
    let mut index = 0;
    while index < makers.len() {
        let (_, owned) = &mut makers[index];
        match owned.poll() {
            Poll::Waiting if !channel.notices(owned.slot()).gone => index += 1,
            // They touch no memory of the program.
            Poll::Fault { .. } => {
                owned.answer(crtos_channel::Answer::Bad);
                remote::ring(channel, owned.slot());
            }
            Poll::Waiting | Poll::Reply(_) => {
                let (process, owned) = makers.swap_remove(index);
                match process.upgrade() {
                    Some(process) => spares::return_maker(&process, owned),
                    None => spares::dispose([owned]),
                }
            }
        }
    }
    let wanting = core::mem::take(&mut *WANTING.lock());
    for process in wanting.iter().filter_map(Weak::upgrade) {
        spares::tidy(&process);
        let Some((mut owned, count)) = spares::take_maker(&process) else { continue };
        let (rank, cpu) = (task::current().rank(), task::current().cpu());
        let mut room = Room::default();
        let heritage = owned.heritage();
        let operation = Operation::MakeThreads { count, heritage }.encode(&mut room);
        owned.request(&Request { operation, rank, cpu });
        let slot = owned.slot();
        makers.push((Arc::downgrade(&process), owned));
        remote::ring(channel, slot);
    }
}

/// Makes a process, or has its shadow end.
fn make(channel: Channel, owned: OwnedSlot) {
    let (slot, number, pid) = (owned.slot(), owned.process(), owned.pid());
    // Whether it goes on with a process that is here: what the kernel itself knows of.
    let fork = owned.parent().and_then(fork::take);
    let ids = (owned.namespace(), owned.own_tid().leads());
    let executes = fork.is_none() && execve::claim(ids);
    if owned.parent().is_some() && fork.is_none() {
        crtos_core::debug!("pid {pid}: its parent is gone");
        return refuse(channel, owned);
    }
    if lock::is_sealed() && fork.is_none() && !executes {
        crtos_core::info!("pid {pid}: a new program is refused, the realm is sealed");
        return end(channel, owned, Operation::Refuse);
    }
    let shared = fork.as_ref().and_then(|fork| fork.shared_space(number));
    let is_guest = shared.is_some();
    let space = match shared {
        Some(space) => Ok(space),
        None => {
            let quota = owned.payer().and_then(user_limits::of).and_then(UserLimits::memory);
            AddressSpace::new(Box::new(Revoker { process: number }), quota)
        }
    };
    let owned = match space {
        Ok(space) => {
            let process = Arc::new(Process::new(space, &owned, is_guest));
            if owned.has_uncertain_ids() {
                process.doubt_ids();
            }
            let user = UserThread::new(process, &owned);
            let mut body: fn() = exec::first_thread;
            if let Some(fork) = &fork {
                *user.birth.lock() = Birth::Fork(fork.clone());
                body = fork::child;
            }
            match start::begin(user, owned, Scheduling::ORDINARY, body) {
                Ok(()) => return,
                Err(owned) => owned,
            }
        }
        Err(_) => owned,
    };
    crtos_core::warn!("no memory for a process (pid {pid}, slot {slot})");
    fork.iter().for_each(|fork| fork.finish());
    if executes {
        drop(execve::taken_over(ids));
    }
    refuse(channel, owned);
}

/// Has the shadow of a process that cannot be made exit with 126.
fn refuse(channel: Channel, owned: OwnedSlot) {
    end(channel, owned, Operation::Exit { status: 126 });
}

/// Has the shadow of a process that is not made end by that operation.
fn end(channel: Channel, mut owned: OwnedSlot, operation: Operation<'_>) {
    let mut room = Room::default();
    let operation = operation.encode(&mut room);
    owned.request(&Request { operation, rank: 0, cpu: RealmCpu::first() });
    let slot = owned.slot();
    spares::dispose([owned]);
    remote::ring(channel, slot);
}
