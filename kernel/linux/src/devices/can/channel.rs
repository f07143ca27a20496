// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel: what its interrupt does, sending, and its way back onto the bus.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_can::{
    Controller, Frame, Queue,
    frame::error,
    sja1000::{Event, State},
};
use crtos_core::{
    arch::interrupts::window_in_timer,
    devices::interrupts,
    sync::SpinLock,
    task::Timer,
    time::{self, Clock, Nanos},
    warn,
};
use spin::Once;

use super::{Bridge, Ports};
use crate::{
    abi::Errno,
    sockets::can::{
        interface::{Interface, Outgoing},
        member::{self, News},
    },
};

/// How often a channel is looked at that does not interrupt. In that time at most 6 frames come at
/// 1 Mbit/s, for which the controller has room.
const LOOK_EVERY: Nanos = Nanos::from_micros(250);
/// What an interrupt looks at, at most.
const STEPS: u32 = 16;
/// Most frames that may wait to be sent.
const LONGEST_QUEUE: u32 = 1024;

/// What is known of a channel from the start.
pub(super) struct Facts {
    /// The name of the interface.
    pub name: &'static str,
    /// The number by which programs know it.
    pub index: u32,
    /// The line on which it interrupts.
    pub interrupt_line: u32,
    /// How many frames wait to be sent.
    pub queue_length: u32,
}

/// The controller, and what is to be sent.
struct Sending {
    controller: Controller<Ports>,
    /// What the controller sends.
    now: Option<Outgoing>,
    queue: Queue<Outgoing>,
    /// It takes part in the bus, or is off it because of errors.
    is_up: bool,
    /// When it is started anew.
    restart_at: Option<Nanos>,
}

/// A channel.
pub(super) struct Channel {
    facts: Facts,
    sending: SpinLock<Sending>,
    bridge: Bridge,
    /// Looks at the channel; taken away never.
    timer: SpinLock<Option<Timer>>,
    /// The vector by which it interrupts, if the realm has its interrupt line.
    vector: Once<u8>,
    /// It interrupts. Otherwise the timer looks all the time.
    interrupts: AtomicBool,
}

/// Its interrupts.
struct Interrupts(Arc<Channel>);

impl interrupts::Handler for Interrupts {
    fn interrupt(&self) {
        self.0.serve();
    }

    fn silence(&self) -> bool {
        let channel = &*self.0;
        // A line that is a level interrupts as long as the device likes.
        if !interrupts::mask(channel.facts.interrupt_line) {
            return false;
        }
        channel.interrupts.store(false, Ordering::Relaxed);
        channel.sending.lock().controller.silence();
        channel.bridge.let_interrupt(false);
        channel.look_at(time::now() + LOOK_EVERY);
        true
    }
}

/// What is to be told of a step.
enum Step {
    /// Nothing: there was nothing to do.
    Done,
    /// A frame came, or tells of an error.
    Came(Frame),
    /// A frame was sent, or given up.
    Sent(Outgoing, bool),
    /// There was something to do that nobody is told of.
    More,
}

impl Sending {
    /// Takes one step. Interrupts off; some 40 accesses to the controller at most.
    fn step(&mut self) -> Step {
        match self.controller.event() {
            None => Step::Done,
            Some(Event::Frame(frame)) => {
                if self.controller.state() == State::BusOff && self.restart_at.is_none() {
                    self.restart_at = Some(match self.controller.settings().restart {
                        0 => Nanos::MAX,
                        milliseconds => time::now() + Nanos::from_millis(milliseconds.into()),
                    });
                }
                Step::Came(frame)
            }
            Some(Event::Sent { done }) => {
                let sent = self.now.take();
                self.go_on();
                sent.map_or(Step::More, |sent| Step::Sent(sent, done))
            }
        }
    }

    fn go_on(&mut self) {
        if let Some(next) = self.queue.pop() {
            self.controller.send(&next.frame);
            self.now = Some(next);
        }
    }

    /// One of the frames that wait, when it is off the bus: none of them will be sent.
    fn give_up(&mut self) -> Option<Outgoing> {
        self.restart_at?;
        self.now.take().or_else(|| self.queue.pop())
    }

    /// Starts the controller anew if the time for that has come; says whether it did. Interrupts
    /// off.
    fn restart(&mut self, now: Nanos) -> bool {
        let is_due = self.restart_at.is_some_and(|at| at <= now);
        if is_due {
            self.is_up = self.controller.start();
            self.restart_at = None;
        }
        is_due
    }
}

impl Channel {
    /// Starts a channel. `None` if its controller does not start, or there is no memory.
    pub fn start(
        facts: Facts,
        mut controller: Controller<Ports>,
        bridge: Bridge,
    ) -> Option<Arc<Self>> {
        let queue = Queue::new(facts.queue_length.clamp(1, LONGEST_QUEUE) as usize)?;
        let is_up = controller.start();
        if !is_up {
            return None;
        }
        let (now, restart_at) = (None, None);
        let sending = Sending { controller, now, queue, is_up, restart_at };
        let channel = Arc::new(Self {
            facts,
            sending: SpinLock::new(sending),
            bridge,
            timer: SpinLock::new(None),
            vector: Once::new(),
            interrupts: AtomicBool::new(false),
        });
        let own = channel.clone();
        *channel.timer.lock() = Some(Timer::new(Box::new(move || own.look())).ok()?);
        let handler = Box::new(Interrupts(channel.clone()));
        if interrupts::route(channel.facts.interrupt_line, None)
            && let Some(vector) = interrupts::register(channel.facts.name, handler)
        {
            channel.vector.call_once(|| vector);
        }
        channel.attend();
        Some(channel)
    }

    /// Whether the realm has its interrupt line.
    pub fn can_interrupt(&self) -> bool {
        self.vector.is_completed()
    }

    /// The timer has come. Interrupt context.
    fn look(&self) {
        self.serve();
        let restarted = self.sending.lock().restart(time::now());
        if restarted {
            self.tell(Frame::error(error::RESTARTED, [0; 8]), None);
        }
        if !self.interrupts.load(Ordering::Relaxed) {
            self.look_at(time::now() + LOOK_EVERY);
        }
    }

    fn look_at(&self, time: Nanos) {
        if let Some(timer) = &*self.timer.lock() {
            timer.arm(time);
        }
    }

    /// Does what the controller asks for, 16 frames at most; a line that is a level interrupts
    /// again for the rest. Interrupt context. There is an interrupt window behind each step, and
    /// behind each socket that is told.
    fn serve(&self) {
        for _ in 0..STEPS {
            let step = self.sending.lock().step();
            window_in_timer();
            match step {
                Step::Done => break,
                Step::More => {}
                Step::Came(frame) => self.tell(frame, None),
                Step::Sent(sent, done) => self.tell_sent(sent, done),
            }
        }
        self.leave_bus();
    }

    /// What is to be done when it is off the bus: frames that wait are given up, and the timer has
    /// it come back.
    fn leave_bus(&self) {
        let Some(at) = self.sending.lock().restart_at else { return };
        for _ in 0..=LONGEST_QUEUE {
            let Some(lost) = self.sending.lock().give_up() else { break };
            self.tell_sent(lost, false);
        }
        if at != Nanos::MAX && self.interrupts.load(Ordering::Relaxed) {
            self.look_at(at);
        }
    }

    /// Who has sent the frame learns that, and others if it was on the bus.
    fn tell_sent(&self, sent: Outgoing, done: bool) {
        self.tell(sent.frame, Some((sent.origin, done && sent.is_heard)));
    }

    fn tell(&self, frame: Frame, origin: Option<(u64, bool)>) {
        let news = News {
            interface: self.facts.index,
            frame,
            stamp: time::linux(Clock::Realtime),
            origin: origin.map(|(origin, _)| origin),
            is_heard: origin.is_none_or(|(_, is_heard)| is_heard),
        };
        member::tell(&news, window_in_timer);
    }
}

impl Interface for Channel {
    fn name(&self) -> &str {
        self.facts.name
    }

    fn index(&self) -> u32 {
        self.facts.index
    }

    fn queue_length(&self) -> u32 {
        self.facts.queue_length
    }

    fn is_up(&self) -> bool {
        self.sending.lock().is_up
    }

    fn send(&self, outgoing: Outgoing) -> Result<(), Errno> {
        let mut sending = self.sending.lock();
        if !sending.is_up {
            return Err(Errno::ENETDOWN);
        }
        if sending.restart_at.is_some() {
            return Err(Errno::ENOBUFS);
        }
        sending.queue.push(outgoing).map_err(|_| Errno::ENOBUFS)?;
        if sending.now.is_none() {
            sending.go_on();
        }
        Ok(())
    }

    fn attend(&self) {
        let Some(&vector) = self.vector.get() else {
            self.look_at(time::now() + LOOK_EVERY);
            return;
        };
        let was_silenced = !self.interrupts.load(Ordering::Relaxed);
        let routed = interrupts::route(self.facts.interrupt_line, Some(vector));
        if !routed {
            if !was_silenced {
                warn!(
                    "{}: does not interrupt any more, and is looked at by a timer",
                    self.facts.name
                );
            }
            self.interrupts.store(false, Ordering::Relaxed);
            self.look_at(time::now() + LOOK_EVERY);
            return;
        }
        interrupts::restart(vector);
        self.interrupts.store(true, Ordering::Relaxed);
        self.sending.lock().controller.listen();
        self.bridge.let_interrupt(true);
    }
}
