// SPDX-License-Identifier: MIT OR Apache-2.0
//! A card of any [kind](crtos_nic::kinds): its interrupts, its thread, sending.
//!
//! An interrupt is one access to the card, which then interrupts no more, and wakes the thread.
//! The thread takes what has come and hands it over, at most [`MOST`] frames in a [`PERIOD`], or as
//! many as take [its share](SHARE) of it, and has the card interrupt again. So a flood takes that
//! share of a CPU from threads below the thread's priority, whatever filters the frames pass, and
//! from those above it one interrupt until they leave the CPU.
//!
//! A more urgent thread of that CPU that waits for a frame takes it itself, in place of the card's
//! ([`Lead`](crtos_nic::lead)): one frame each time that it waits, and for its own socket. What is
//! left, and what others do with that frame, is the card's thread's.

use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::{
    mem,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use crtos_core::{
    arch::interrupts::InService,
    devices::{
        interrupts::{self, Handler},
        pci::{Function, Switch},
    },
    mm::heap,
    task::{self, Level, Mutex, Scheduling, Spawn, Thread, WaitError, WaitQueue},
    time::{self, Nanos, Ticks},
    warn,
};
use crtos_nic::{
    card::{BUFFER, Found, Kind, Progress, Receive, Transmit},
    kinds::{self, Visitor},
    lead::Lead,
    reception::{Filter, Reception},
    settings::Settings,
};
use spin::Once;

use super::bus::Bus;
use crate::{
    abi::Errno,
    signal,
    sockets::net::interface::{
        self, HEADER, HardwareAddress, Interface, NetAddress, News, Stamp, Taker,
    },
};

/// Most frames that are handed over in a [`PERIOD`], where each interrupt counts as one.
const MOST: u32 = 64;
/// What [`MOST`] is for.
const PERIOD: Nanos = Nanos::from_millis(1);
/// The thread works for one part of so many of the time, as soon as it has worked for that part of
/// a [`PERIOD`].
const SHARE: u64 = 4;
/// How often a card is looked at that does not interrupt, or whose ring was full.
const LOOK_EVERY: Nanos = Nanos::from_micros(200);
/// The priority of the thread: what interrupts of devices have under PREEMPT_RT.
const PRIORITY: u32 = 50;
const LEVEL: Level = match Level::new(PRIORITY) {
    Some(level) => level,
    None => panic!("it is no priority"),
};
/// How long a card takes at most until it receives what it was told to.
const FILTER_WITHIN: Nanos = Nanos::from_millis(100);
/// How long a reset takes at most.
const RESET_WITHIN: Nanos = Nanos::from_millis(100);

/// Frames and interrupts of a [`PERIOD`], for the thread and for those who take frames in its
/// place.
struct Quota {
    end: Ticks,
    /// Those that are still taken.
    left: u32,
}

impl Quota {
    fn begin() -> Self {
        Self { end: time::ticks() + time::clock().ticks(PERIOD), left: MOST }
    }

    /// Whether no more are taken until its [end](Self::end).
    fn is_spent(&mut self) -> bool {
        if time::ticks() >= self.end {
            *self = Self::begin();
        }
        self.left == 0
    }

    /// One is taken.
    fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn end(&self) -> Nanos {
        time::now() + time::duration(self.end - time::ticks())
    }
}

/// A stretch of the thread's work, and the rest that this costs. However long it takes to hand over
/// a frame, the next stretch begins only after the rest.
struct Stint {
    start: Nanos,
    /// Processor time that the thread had used.
    used: Nanos,
}

impl Stint {
    /// The caller, the thread, begins to work.
    fn begin() -> Self {
        Self { start: time::now(), used: task::current().time_used() }
    }

    /// Until when the thread, the caller, has to rest, if it has to. A stretch that is long over
    /// begins anew.
    fn rest(&mut self) -> Option<Nanos> {
        let worked = task::current().time_used().0.saturating_sub(self.used.0);
        let end = self.start + Nanos(PERIOD.0.max(SHARE * worked));
        if time::now() >= end {
            *self = Self::begin();
            return None;
        }
        (worked >= PERIOD.0 / SHARE).then_some(end)
    }
}

/// What who takes frames works with.
struct Work<R> {
    receiver: R,
    buffer: Box<[u8]>,
    quota: Quota,
    /// What is to be told of the frame in the buffer.
    untold: Option<Untold>,
    /// The thread hands over another frame, which came before.
    is_telling: bool,
}

/// A frame that was taken.
struct Untold {
    length: usize,
    stamp: Stamp,
    /// The socket that has heard it.
    heard_by: Option<u64>,
}

impl Untold {
    #[inline(always)]
    fn news<'a>(&self, index: u32, own: HardwareAddress, buffer: &'a [u8]) -> News<'a> {
        let Self { length, stamp, heard_by } = *self;
        News { index, own, frame: &buffer[..length], stamp, origin: None, heard_by }
    }
}

/// A buffer that has room for all that a card of that kind receives.
fn buffer<K: Kind>() -> Box<[u8]> {
    vec![0; BUFFER.max(K::LONGEST)].into()
}

/// When the thread goes on.
enum Next {
    /// At once.
    Again,
    /// At that time.
    At(Nanos),
    /// At that time, with a new stretch of work. If the end were looked at again, that look would
    /// be work that puts it off, for ever.
    Rested(Nanos),
    /// When the card interrupts.
    Interrupt,
}

/// What the kernel has of a card, whatever its kind.
pub(super) trait Card: Interface + Handler {
    /// What its kind is called.
    fn kind(&self) -> &'static str;

    /// It has interrupted, or somebody else by the same interrupt; says whether it was it.
    /// Interrupts off; one access.
    fn has_interrupted(&self) -> bool;

    /// Has its thread run, once; `false` if there are too many.
    fn run(self: Arc<Self>) -> bool;

    /// It ends: it moves nothing any more, nor does its thread. May sleep.
    fn end(&self, is_lost: bool);
}

/// Why a card is not started.
pub(super) type Refusal = &'static str;

/// Starts the card that is that function and has these settings; it does not interrupt so far. May
/// sleep.
pub(super) fn start(
    function: u16,
    settings: &Settings<'static>,
    vector: u8,
) -> Result<Arc<dyn Card>, Refusal> {
    if !heap::has_reserve() {
        return Err("memory runs low");
    }
    let function = Function::find(function).ok_or("the realm does not have it")?;
    let start = Start { settings, vector, function };
    kinds::visit(start.function.ids(), start).unwrap_or(Err("its card is not known"))
}

/// What a card is started with.
struct Start<'a> {
    settings: &'a Settings<'static>,
    vector: u8,
    function: Function,
}

impl Visitor for Start<'_> {
    type Output = Result<Arc<dyn Card>, Refusal>;

    fn visit<K: Kind>(self) -> Self::Output {
        Ok(Driven::<K, _>::start(self.function, self.settings, self.vector)?)
    }
}

/// A card of that kind, which is connected by that.
pub(super) struct Driven<K: Kind, B: Bus> {
    kind: K,
    name: &'static str,
    index: u32,
    mtu: usize,
    queue_length: u32,
    own: HardwareAddress,
    addresses: Vec<NetAddress>,
    registers: B::Registers,
    memory: B::Memory,
    work: Mutex<Work<K::Receiver>>,
    /// Who takes the next frame, if it is not the thread.
    lead: Lead,
    /// How many sockets listen to it.
    listeners: Arc<AtomicU32>,
    /// It copies a frame, so others wait for it with interrupts on.
    sending: Mutex<K::Transmitter>,
    /// Somebody waits until frames can be sent.
    was_full: AtomicBool,
    writers: WaitQueue,
    filter: Mutex<Filter>,
    bus: Mutex<B>,
    switch: Option<Switch>,
    vector: u8,
    /// It interrupted too often, and is looked at instead.
    is_silent: AtomicBool,
    thread: Once<Arc<Thread>>,
    /// The thread is to end, and has ended.
    is_ending: AtomicBool,
    has_ended: AtomicBool,
}

impl<K: Kind, B: Bus> Driven<K, B> {
    /// Starts it; it does not interrupt so far. May sleep.
    pub(super) fn start(
        mut bus: B,
        settings: &Settings<'static>,
        vector: u8,
    ) -> Result<Arc<Self>, Refusal> {
        let kind = K::find(|register| bus.configuration(register));
        let kind = kind.ok_or("it is not what its number says")?;
        let registers = bus.registers(kind.place()).ok_or("it has no registers")?;
        kind.reset(&registers);
        let end = time::now() + RESET_WITHIN;
        while !kind.is_reset(&registers) {
            if time::now() > end {
                return Err("it cannot be reset");
            }
            task::sleep_until(time::now() + Nanos::from_millis(1));
        }
        let memory = bus.memory(K::MEMORY).ok_or("no memory that it reaches")?;
        // It has to master the bus before it is told of descriptors. It does not interrupt yet.
        let interrupts = bus.start(vector);
        let parts = kind.start(&registers, &memory, B::BASE, settings.own);
        let (receiver, transmitter) = match parts {
            Ok(parts) => parts,
            Err(reason) => {
                kind.reset(&registers);
                bus.stop();
                B::part(&registers, &memory);
                return Err(reason);
            }
        };
        let addresses = settings.addresses.iter();
        let addresses =
            addresses.map(|&(address, prefix)| NetAddress { address, prefix }).collect();
        Ok(Arc::new(Self {
            kind,
            name: settings.name,
            index: settings.index,
            mtu: settings.mtu,
            queue_length: settings.queue_length,
            own: settings.own,
            addresses,
            registers,
            memory,
            work: Mutex::new(Work {
                receiver,
                buffer: buffer::<K>(),
                quota: Quota::begin(),
                untold: None,
                is_telling: false,
            }),
            lead: Lead::new(),
            listeners: Arc::default(),
            sending: Mutex::new(transmitter),
            was_full: AtomicBool::new(false),
            writers: WaitQueue::new(),
            filter: Mutex::new(Filter::default()),
            switch: bus.switch(),
            bus: Mutex::new(bus),
            vector,
            is_silent: AtomicBool::new(!interrupts),
            thread: Once::new(),
            is_ending: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }))
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.wake();
        }
    }

    fn is_gone(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Takes what has come, which may be no frame; `None` if there is nothing. Of the last one all
    /// was told.
    #[inline(always)]
    fn take(&self, work: &mut Work<K::Receiver>) -> Option<Option<Untold>> {
        let found = work.receiver.receive(&self.registers, &self.memory, &mut work.buffer)?;
        Some(match found {
            Found::Frame(frame) if (HEADER..=K::LONGEST).contains(&frame.length) => {
                let stamp = Stamp::of_arrival(frame.stamp.map(Nanos));
                Some(Untold { length: frame.length, stamp, heard_by: None })
            }
            _ => None,
        })
    }

    /// Hands what was taken over to a socket alone, and leaves it to the thread if it is anything
    /// to others.
    #[inline(always)]
    fn tell_alone(&self, work: &mut Work<K::Receiver>, untold: Untold, taker: &mut dyn Taker) {
        let news = untold.news(self.index, self.own, &work.buffer);
        let listens = taker.hear(&news);
        let others = self.listeners.load(Ordering::Relaxed) > listens.into();
        if others || interface::concerns_stack(&news) {
            work.untold = Some(Untold { heard_by: Some(taker.number()), ..untold });
        }
    }

    /// What its thread does, with a buffer of its own.
    fn work(self: &Arc<Self>, mut buffer: Box<[u8]>) {
        let interface: Arc<dyn Interface> = self.clone();
        let mut stint = Stint::begin();
        while !self.is_gone() {
            let mut has_taken = false;
            while stint.rest().is_none() && self.hand_over(&mut buffer) {
                has_taken = true;
            }
            self.tell_card(&mut self.work.lock());
            if has_taken {
                interface::settled(&interface);
            }
            self.look_for_room();
            // Until a time it does not interrupt; what finds no room until then is lost.
            match self.pause(&mut stint) {
                Next::Again => {}
                Next::At(time) => task::sleep_until(time),
                Next::Rested(time) => {
                    task::sleep_until(time);
                    stint = Stint::begin();
                }
                Next::Interrupt => {
                    let waits = self.is_silent.load(Ordering::Relaxed)
                        || self.was_full.load(Ordering::Relaxed);
                    task::block(waits.then(|| time::now() + LOOK_EVERY));
                }
            }
        }
    }

    /// Hands over a frame that has come, if the quota allows it; says whether there was one. Nobody
    /// who leads waits for that, and lends its priority to filters of others.
    fn hand_over(&self, buffer: &mut Box<[u8]>) -> bool {
        let untold = {
            let mut work = self.work.lock();
            work.is_telling = false;
            if work.quota.is_spent() || self.is_gone() {
                return false;
            }
            if work.untold.is_none() {
                let Some(taken) = self.take(&mut work) else { return false };
                work.untold = taken;
                work.quota.spend();
            }
            mem::swap(&mut work.buffer, buffer);
            let untold = work.untold.take();
            work.is_telling = untold.is_some();
            untold
        };
        if let Some(untold) = untold {
            interface::received(&untold.news(self.index, self.own, buffer));
        }
        true
    }

    /// Has the card interrupt, unless the thread, the caller, has to rest or the quota is spent.
    fn pause(&self, stint: &mut Stint) -> Next {
        if let Some(end) = stint.rest() {
            return Next::Rested(end);
        }
        let mut work = self.work.lock();
        if work.quota.is_spent() {
            return Next::At(work.quota.end());
        }
        if self.is_quiet(&mut work) { Next::Interrupt } else { Next::Again }
    }

    /// Tells the card of the buffers that are its again.
    #[inline(always)]
    fn tell_card(&self, work: &mut Work<K::Receiver>) {
        work.receiver.tell(&self.registers, &self.memory);
        B::settle(&self.registers);
    }

    /// Has the card interrupt for the next frame; `false` if one is there already.
    #[inline(always)]
    fn is_quiet(&self, work: &mut Work<K::Receiver>) -> bool {
        self.kind.take_causes(&self.registers);
        if work.receiver.has_more(&self.memory) {
            return false;
        }
        work.quota.spend();
        !self.kind.let_interrupt(&self.registers, &self.memory, &work.receiver)
    }

    /// Takes one frame, for a thread that was woken in place of the card's. Says whether it may
    /// still lead, and whether the card's thread has something left to do.
    #[inline(always)]
    fn take_one(&self, taker: &mut dyn Taker) -> (bool, bool) {
        let mut work = self.work.lock();
        if self.is_gone() || work.untold.is_some() || work.is_telling {
            return (false, true);
        }
        // The thread waits until its end.
        if work.quota.is_spent() {
            return (false, true);
        }
        let Some(taken) = self.take(&mut work) else {
            // It was for something else, such as the link: the caller still waits for a frame.
            self.offer();
            return (true, !self.is_quiet(&mut work));
        };
        work.quota.spend();
        if let Some(untold) = taken {
            self.tell_alone(&mut work, untold, taker);
        }
        // The receiver tells the card by itself of buffers, when they are some.
        B::settle(&self.registers);
        let leaves_some =
            work.untold.is_some() || work.quota.left == 0 || !self.is_quiet(&mut work);
        (false, leaves_some)
    }

    /// Tells those who wait for it that frames can be sent again.
    fn look_for_room(&self) {
        if self.was_full.load(Ordering::Relaxed) && self.has_room() {
            self.was_full.store(false, Ordering::Relaxed);
            self.writers.wake_all();
        }
    }

    fn has_room(&self) -> bool {
        self.sending.lock().has_room(&self.registers, &self.memory)
    }

    fn set_filter(&self, filter: &Filter) {
        // What it was told at its start may be under way.
        self.await_filter();
        self.kind.set_filter(&self.registers, &self.memory, filter, self.own);
        if self.await_filter() != Progress::Done && !self.is_gone() {
            warn!("{}: does not receive what is wanted", self.name);
        }
    }

    /// Waits until the card has answered what it was told to receive, for [`FILTER_WITHIN`] at
    /// most. Sleeps.
    fn await_filter(&self) -> Progress {
        let end = time::now() + FILTER_WITHIN;
        loop {
            let progress = self.kind.filter_progress(&self.memory);
            if progress != Progress::Pending || self.is_gone() || time::now() > end {
                return progress;
            }
            task::sleep_until(time::now() + Nanos::from_micros(50));
        }
    }
}

impl<K: Kind, B: Bus> Card for Driven<K, B> {
    fn kind(&self) -> &'static str {
        K::ABOUT.name
    }

    #[inline(always)]
    fn has_interrupted(&self) -> bool {
        if !self.kind.has_interrupted(&self.memory) {
            return false;
        }
        self.kind.mask(&self.registers, &self.memory);
        // One that is elsewhere by now, less urgent, or has a budget leaves it to the thread.
        if !self.lead.ask().is_some_and(|leader| task::wake_here(leader, LEVEL)) {
            self.wake();
        }
        true
    }

    fn run(self: Arc<Self>) -> bool {
        let Some(scheduling) = Scheduling::fifo(PRIORITY) else { return false };
        let (own, buffer) = (self.clone(), buffer::<K>());
        let what = Spawn { name: self.name, scheduling, ..Spawn::default() };
        let thread = task::spawn(what, move || {
            own.work(buffer);
            own.has_ended.store(true, Ordering::Release);
        });
        let Ok(thread) = thread else { return false };
        self.thread.call_once(|| thread);
        true
    }

    fn end(&self, is_lost: bool) {
        self.is_ending.store(true, Ordering::Release);
        while self.thread.get().is_some() && !self.has_ended.load(Ordering::Acquire) {
            self.wake();
            task::sleep_until(time::now() + Nanos::from_micros(100));
        }
        // Nor does a thread take a frame in its place.
        drop(self.work.lock());
        if !is_lost {
            self.kind.reset(&self.registers);
            self.bus.lock().stop();
        }
        B::part(&self.registers, &self.memory);
        self.writers.wake_all();
    }
}

impl<K: Kind, B: Bus> Handler for Driven<K, B> {
    fn interrupt(&self, _: InService) {
        self.has_interrupted();
    }

    /// It is looked at instead. One access and one VM exit.
    fn silence(&self) -> bool {
        self.kind.mask(&self.registers, &self.memory);
        self.is_silent.store(true, Ordering::Relaxed);
        self.wake();
        self.switch.is_none_or(Switch::off)
    }
}

impl<K: Kind, B: Bus> Interface for Driven<K, B> {
    fn name(&self) -> &str {
        self.name
    }

    fn index(&self) -> u32 {
        self.index
    }

    fn hardware_address(&self) -> HardwareAddress {
        self.own
    }

    fn mtu(&self) -> usize {
        self.kind.mtu(&self.memory).unwrap_or(self.mtu)
    }

    fn queue_length(&self) -> u32 {
        self.queue_length
    }

    fn addresses(&self) -> &[NetAddress] {
        &self.addresses
    }

    fn is_up(&self) -> bool {
        !self.is_gone()
    }

    fn has_carrier(&self) -> bool {
        self.kind.has_link(&self.registers)
    }

    fn transmit(&self, frame: &[u8]) -> Result<(), Errno> {
        if !(HEADER..=K::LONGEST).contains(&frame.len()) {
            return Err(Errno::EMSGSIZE);
        }
        if self.is_gone() {
            return Err(Errno::ENETDOWN);
        }
        let sent = self.sending.lock().transmit(&self.registers, &self.memory, frame);
        B::settle(&self.registers);
        if sent.is_err() {
            self.was_full.store(true, Ordering::Relaxed);
            self.wake();
            return Err(Errno::ENOBUFS);
        }
        Ok(())
    }

    fn wait_for_room(&self, deadline: Option<Nanos>) -> Result<(), Errno> {
        let condition = || {
            if self.is_gone() {
                return Some(Err(Errno::ENETDOWN));
            }
            if self.has_room() {
                return Some(Ok(()));
            }
            // Others who send may have taken the room of which those who wait were told.
            if !self.was_full.swap(true, Ordering::Relaxed) {
                self.wake();
            }
            None
        };
        self.writers.wait_until(deadline, |_| signal::is_interrupted(), condition).map_err(
            |error| match error {
                WaitError::Timeout => Errno::EAGAIN,
                WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                WaitError::Interrupted => Errno::RESTART,
            },
        )?
    }

    fn admit(&self, what: Reception) -> Result<(), Errno> {
        let mut filter = self.filter.lock();
        filter.admit(what).map_err(|_| Errno::ENOBUFS)?;
        self.set_filter(&filter);
        Ok(())
    }

    fn refuse(&self, what: Reception) {
        let mut filter = self.filter.lock();
        filter.refuse(what);
        self.set_filter(&filter);
    }

    fn attend(&self) {
        let mut bus = self.bus.lock();
        if self.is_gone() {
            return;
        }
        interrupts::restart(self.vector);
        self.is_silent.store(false, Ordering::Relaxed);
        if !bus.start(self.vector) {
            warn!("{}: does not interrupt, and is looked at", self.name);
            self.is_silent.store(true, Ordering::Relaxed);
        }
        // Another CPU would have to be told of each frame, and tell the reader's of it.
        if let Some(thread) = self.thread.get() {
            thread.come_here();
        }
        self.wake();
    }

    fn offer(&self) {
        let me = task::current();
        // On another CPU it would have to be told by another interrupt.
        let is_here = self.thread.get().is_some_and(|thread| thread.cpu() == me.cpu());
        let level = me.effective_level();
        // One that has a budget may have to wait for the next one, and the card with it.
        if is_here && level > LEVEL && level < Level::DEADLINE {
            self.lead.offer(me.id.0, level.get() as u8);
        }
    }

    fn take_over(&self, taker: &mut dyn Taker) -> bool {
        if !self.lead.take_over(task::current().id.0) {
            return true;
        }
        let (leads, leaves_some) = self.take_one(taker);
        if leaves_some {
            self.wake();
        }
        leads
    }

    fn listeners(&self) -> &Arc<AtomicU32> {
        &self.listeners
    }

    fn resign(&self) {
        if self.lead.resign(task::current().id.0) {
            self.wake();
        }
    }
}
