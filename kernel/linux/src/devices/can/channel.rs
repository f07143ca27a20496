// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel: what its interrupt does, sending, and its way back onto the bus.

use alloc::{string::String, sync::Arc};

use crtos_can::{
    Controller, Frame, Intake, Queue,
    frame::error,
    sja1000::{Event, State},
};
use crtos_core::{
    arch::interrupts::{InService, InterruptsOff, window_if_long, window_in_timer},
    devices::interrupts::Handler,
    sync::SpinLock,
    time::{self, Nanos},
};

use super::{Bridge, Ports};
use crate::{
    abi::Errno,
    devices::attendance::Attendance,
    sockets::{
        arrivals,
        can::{
            interface::{Interface, Outgoing},
            member::{self, News},
        },
    },
};

/// What an interrupt looks at, at most.
const STEPS: u32 = 16;
/// Most frames that may wait to be sent.
const LONGEST_QUEUE: u32 = 1024;

/// What is known of a channel from the start.
pub(super) struct Facts {
    /// The name of the interface.
    pub name: String,
    /// The number by which programs know it.
    pub index: u32,
    /// How many frames wait to be sent.
    pub queue_length: u32,
}

/// The controller, and what is to be sent.
struct Sending {
    intake: Intake<Ports>,
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
    /// How the controller is attended to. Between two looks of the timer at most 6 frames come at
    /// 1 Mbit/s, for which it has room.
    pub attendance: Attendance,
}

/// Its interrupts.
struct Interrupts(Arc<Channel>);

impl Handler for Interrupts {
    fn interrupt(&self, service: InService) {
        self.0.serve(Some(service));
    }

    fn silence(&self) -> bool {
        let channel = &*self.0;
        // A line that is a level interrupts as long as the device likes. The controller goes on: it
        // tells causes only as long as it interrupts for them.
        let is_masked = channel.attendance.mask();
        if is_masked {
            channel.bridge.let_interrupt(false);
            channel.attendance.silence();
        }
        is_masked
    }
}

/// What is to be told of a step.
enum Step {
    /// Nothing: there was nothing to do. When it is off the bus, until when.
    Done(Option<Nanos>),
    /// A frame came, or tells of an error.
    Came(Frame),
    /// A frame was sent, or given up.
    Sent(Outgoing, bool),
    /// There was something to do that nobody is told of.
    More,
}

impl Sending {
    /// Takes one step. Interrupts off; some 40 accesses to the controller at most.
    #[inline(always)]
    fn step(&mut self) -> Step {
        match self.intake.take() {
            None => Step::Done(self.restart_at),
            Some(event) => self.follow(event),
        }
    }

    /// What follows from what the controller tells. Interrupts off; some 20 accesses at most.
    fn follow(&mut self, event: Event) -> Step {
        match event {
            Event::Frame(frame) => {
                let controller = &self.intake.controller;
                if controller.state() == State::BusOff && self.restart_at.is_none() {
                    self.restart_at = Some(match controller.settings().restart {
                        0 => Nanos::MAX,
                        milliseconds => time::now() + Nanos::from_millis(milliseconds.into()),
                    });
                }
                Step::Came(frame)
            }
            Event::Sent { done } => {
                let sent = self.now.take();
                self.go_on();
                sent.map_or(Step::More, |sent| Step::Sent(sent, done))
            }
        }
    }

    fn go_on(&mut self) {
        if let Some(next) = self.queue.pop() {
            self.intake.controller.send(&next.frame);
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
            self.is_up = self.intake.controller.start();
            self.restart_at = None;
        }
        is_due
    }
}

impl Channel {
    /// Starts a channel. `None` if its controller does not start, or there is no memory.
    pub fn start(
        facts: Facts,
        attendance: Attendance,
        controller: Controller<Ports>,
        bridge: Bridge,
    ) -> Option<Arc<Self>> {
        let mut intake = Intake::new(controller)?;
        let queue = Queue::new(facts.queue_length.clamp(1, LONGEST_QUEUE) as usize)?;
        let is_up = intake.controller.start();
        if !is_up {
            return None;
        }
        let (now, restart_at) = (None, None);
        let sending = Sending { intake, now, queue, is_up, restart_at };
        let sending = SpinLock::new(sending);
        let channel = Arc::new(Self { facts, sending, bridge, attendance });
        let (handler, own) = (Arc::new(Interrupts(channel.clone())), channel.clone());
        channel.attendance.start(handler, move || own.look()).ok()?;
        Some(channel)
    }

    /// The realm gives the card back, or has lost it: nothing of it is touched when this returns,
    /// and frames that wait are given up. Thread context; sleeps.
    pub fn end(&self) {
        {
            let mut sending = self.sending.lock();
            sending.is_up = false;
            sending.intake.controller.stop();
        }
        self.bridge.let_interrupt(false);
        self.attendance.end();
        for _ in 0..=LONGEST_QUEUE {
            let lost = {
                let mut sending = self.sending.lock();
                sending.now.take().or_else(|| sending.queue.pop())
            };
            let Some(Outgoing { frame, origin, .. }) = lost else { break };
            let news = self.news(frame, Some((origin, false)));
            let interrupts = InterruptsOff::take();
            member::tell(&news, window_if_long);
            drop(interrupts);
        }
    }

    /// The timer has come. Interrupt context.
    fn look(&self) {
        self.serve(None);
        let restarted = self.sending.lock().restart(time::now());
        if restarted {
            self.tell(Frame::error(error::RESTARTED, [0; 8]), None);
        }
        if !self.attendance.interrupts() {
            self.attendance.look_later();
        }
    }

    /// Does what the controller asks for, 16 frames at most, and the timer the rest. Interrupt
    /// context. There is an interrupt window behind each step, and before each socket is told.
    /// Behind the first step other devices may interrupt, and the controller for further frames: it
    /// leaves them to who tells of the first.
    fn serve(&self, service: Option<InService>) {
        let mut step = {
            let mut sending = self.sending.lock_quietly();
            if !sending.intake.begin() {
                return;
            }
            sending.step()
        };
        drop(service);
        for number in 1.. {
            match step {
                Step::Done(None) => return,
                Step::Done(Some(restart_at)) => return self.leave_bus(restart_at),
                Step::More => window_in_timer(),
                Step::Came(frame) => self.tell(frame, None),
                Step::Sent(sent, done) => self.tell_sent(sent, done),
            }
            if number == STEPS {
                break;
            }
            step = self.sending.lock_quietly().step();
        }
        self.sending.lock_quietly().intake.end();
        self.attendance.look_later();
    }

    /// What is to be done when it is off the bus: frames that wait are given up, and the timer has
    /// it come back.
    fn leave_bus(&self, at: Nanos) {
        for _ in 0..=LONGEST_QUEUE {
            let Some(lost) = self.sending.lock().give_up() else { break };
            self.tell_sent(lost, false);
        }
        if at != Nanos::MAX && self.attendance.interrupts() {
            self.attendance.look_at(at);
        }
    }

    /// Who has sent the frame learns that, and others if it was on the bus.
    fn tell_sent(&self, sent: Outgoing, done: bool) {
        self.tell(sent.frame, Some((sent.origin, done && sent.is_heard)));
    }

    #[inline(always)]
    fn tell(&self, frame: Frame, origin: Option<(u64, bool)>) {
        member::tell(&self.news(frame, origin), window_in_timer);
    }

    fn news(&self, frame: Frame, origin: Option<(u64, bool)>) -> News {
        News {
            interface: self.facts.index,
            frame,
            stamp: arrivals::now(),
            origin: origin.map(|(origin, _)| origin),
            is_heard: origin.is_none_or(|(_, is_heard)| is_heard),
        }
    }
}

impl Interface for Channel {
    fn name(&self) -> &str {
        &self.facts.name
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
        if self.attendance.call_here() {
            self.bridge.let_interrupt(true);
        }
    }
}
