// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a device with a line is attended to: it interrupts, or a timer looks at it. The timer does
//! so where the realm does not have the line, where the line interrupts nobody any more, and after
//! the device was silenced.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::{
    devices::interrupts::{self, Handler},
    task::{SpawnError, Timer},
    time::{self, Nanos},
    warn,
};
use spin::Once;

/// How often a device is looked at that does not interrupt.
pub const LOOK_EVERY: Nanos = Nanos::from_micros(250);

/// How a device is attended to.
pub struct Attendance {
    name: &'static str,
    /// The line on which it interrupts.
    line: u32,
    /// Looks at it; taken away never.
    timer: Once<Timer>,
    /// The vector by which it interrupts, if the realm has its line.
    vector: Once<u8>,
    /// It interrupts. Otherwise the timer is to look all the time.
    interrupts: AtomicBool,
}

impl Attendance {
    /// That of the device `name`, which does not interrupt yet.
    pub fn new(name: &'static str, line: u32) -> Self {
        let (timer, vector) = (Once::new(), Once::new());
        Self { name, line, timer, vector, interrupts: AtomicBool::new(false) }
    }

    /// Has interrupts be handled by `handler`, as far as the realm has the line, and the timer call
    /// `look`. Once. Thread context; sleeps.
    pub fn start(
        &self,
        handler: Box<dyn Handler>,
        look: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), SpawnError> {
        let timer = Timer::new(Box::new(look))?;
        self.timer.call_once(|| timer);
        if interrupts::route(self.line, None)
            && let Some(vector) = interrupts::register(self.name, handler)
        {
            self.vector.call_once(|| vector);
        }
        Ok(())
    }

    /// The line on which it interrupts.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// What is told of it as it starts.
    pub fn words(&self) -> &'static str {
        match self.vector.is_completed() {
            true => "interrupts",
            false => "looked at by a timer, since the realm does not have its interrupt",
        }
    }

    /// Whether it interrupts.
    pub fn interrupts(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed)
    }

    /// Has it interrupt this CPU from now on, if it can. Says whether it does. Thread context;
    /// sleeps.
    pub fn call_here(&self) -> bool {
        let Some(&vector) = self.vector.get() else { return false };
        let routed = interrupts::route(self.line, Some(vector));
        let before = self.interrupts.swap(routed, Ordering::Relaxed);
        match routed {
            true => interrupts::restart(vector),
            false if before => {
                warn!("{}: does not interrupt any more, and is looked at by a timer", self.name);
            }
            false => {}
        }
        routed
    }

    /// It interrupts no more. The timer looks. Any context.
    pub fn silence(&self) {
        self.interrupts.store(false, Ordering::Relaxed);
        self.look_later();
    }

    /// Has its line interrupt nobody; false if that is not possible just now. Any context; one VM
    /// exit.
    pub fn mask(&self) -> bool {
        interrupts::mask(self.line)
    }

    /// Has the timer look after a while. Any context.
    pub fn look_later(&self) {
        self.look_at(time::now() + LOOK_EVERY);
    }

    /// Has the timer look at that time. Any context.
    pub fn look_at(&self, time: Nanos) {
        if let Some(timer) = self.timer.get() {
            timer.arm(time);
        }
    }
}
