// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a device with a line is attended to: it interrupts, or a timer looks at it. The timer does
//! so where the realm does not have the line, where the line interrupts nobody any more, and after
//! the device was silenced.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::{
    devices::{
        Device,
        interrupts::{self, Handler, Vector},
    },
    sync::SpinLock,
    task::{SpawnError, Timer},
    time::{self, Nanos},
    warn,
};

/// How often a device is looked at that does not interrupt.
pub const LOOK_EVERY: Nanos = Nanos::from_micros(250);

/// How a device is attended to.
pub struct Attendance {
    name: String,
    /// The line on which it interrupts.
    line: u32,
    /// The realm has that for it.
    has_line: bool,
    /// Looks at it, until the [end](Self::end).
    timer: SpinLock<Option<Timer>>,
    /// The vector by which it interrupts, if it does, until the end.
    vector: SpinLock<Option<Vector>>,
    /// It interrupts. Otherwise the timer is to look all the time.
    interrupts: AtomicBool,
}

impl Attendance {
    /// That of a device, which does not interrupt yet.
    pub fn new(device: &Device) -> Self {
        let Device { name, line, has_line, .. } = *device;
        let (timer, vector) = (SpinLock::new(None), SpinLock::new(None));
        let interrupts = AtomicBool::new(false);
        Self { name: name.into(), line, has_line, timer, vector, interrupts }
    }

    /// Has interrupts be handled by `handler`, as far as the realm has the line, and the timer call
    /// `look`, until the [end](Self::end). Thread context; sleeps.
    pub fn start(
        &self,
        handler: Arc<dyn Handler>,
        look: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), SpawnError> {
        *self.timer.lock() = Some(Timer::new(Box::new(look))?);
        if self.has_line && interrupts::route(self.line, None) {
            *self.vector.lock() = interrupts::register(&self.name, handler);
        }
        Ok(())
    }

    /// The device goes, and asks for nothing any more: nobody attends to it when this returns.
    /// Thread context; sleeps.
    pub fn end(&self) {
        self.interrupts.store(false, Ordering::Relaxed);
        if self.has_line {
            interrupts::route(self.line, None);
        }
        // What they call is not called any more when they are dropped, outside of the locks.
        let vector = self.vector.lock().take();
        drop(vector);
        let timer = self.timer.lock().take();
        drop(timer);
    }

    /// Whether it has that line.
    pub fn has(&self, line: u32) -> bool {
        self.has_line && self.line == line
    }

    /// The line on which it interrupts.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// What is told of it as it starts.
    pub fn words(&self) -> &'static str {
        match self.vector.lock().is_some() {
            true => "interrupts",
            false => "looked at by a timer, since the realm does not have its interrupt",
        }
    }

    /// Whether it interrupts.
    pub fn interrupts(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed)
    }

    /// Has it interrupt this CPU from now on, if it can. Says whether it does. The timer looks once
    /// in any case, since what the line asks for meanwhile may be lost. Thread context; sleeps.
    pub fn call_here(&self) -> bool {
        let calls = self.route_here();
        self.look_later();
        calls
    }

    fn route_here(&self) -> bool {
        let vector = self.vector.lock().as_ref().map(Vector::number);
        let Some(vector) = vector else { return false };
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
        if let Some(timer) = &*self.timer.lock() {
            timer.arm(time);
        }
    }
}
