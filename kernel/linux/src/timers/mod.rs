// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers of processes.
//!
//! | file | concept |
//! |---|---|
//! | [`posix`] | timer_create(2) and relatives |
//! | [`interval`] | setitimer(2), alarm(2); ITIMER_REAL |
//! | [`processor`] | timers and limits of processor time, and the two above in that time |
//! | [`sleep`] | nanosleep(2), clock_nanosleep(2) |
//! | [`clock`] | in which clock a timer or sleeper counts |
//!
//! A timer counts in one of Linux's clocks; only the deadline that the processor's timer is set for
//! is in kernel time.

mod clock;
mod interval;
mod posix;
mod processor;
mod sleep;

pub use clock::Counting;
pub use interval::{Kept, alarm, getitimer, resume, setitimer, take};
pub use posix::{
    read_itimerspec, signal_taken, timer_create, timer_delete, timer_getoverrun, timer_gettime,
    timer_settime, write_itimerspec,
};
pub use processor::{copy_limits, go_on as processor_go_on, limit, look};
pub use sleep::{clock_nanosleep, go_on, nanosleep};

use core::sync::atomic::AtomicBool;

use crtos_core::task::Mutex;

use crate::abi::Errno;

/// The timers of a process.
pub struct Timers {
    posix: Mutex<posix::Table>,
    real: Mutex<Option<interval::Real>>,
    processor: Mutex<Option<processor::Processor>>,
    /// What the process has used is to be looked at.
    to_look: AtomicBool,
}

impl Default for Timers {
    /// None.
    fn default() -> Self {
        Self {
            posix: Mutex::new(posix::Table::new()),
            real: Mutex::new(None),
            processor: Mutex::new(None),
            to_look: AtomicBool::new(false),
        }
    }
}

impl Timers {
    /// Deletes all, when the process ends. Thread context; may sleep.
    pub fn clear(&self) {
        let table = core::mem::replace(&mut *self.posix.lock(), posix::Table::new());
        drop(table);
        let real = self.real.lock().take();
        drop(real);
        let processor = self.processor.lock().take();
        drop(processor);
    }
}

/// What is there, or else is made now.
fn made<T>(
    place: &mut Option<T>,
    make: impl FnOnce() -> Result<T, Errno>,
) -> Result<&mut T, Errno> {
    let there = match place.take() {
        Some(there) => there,
        None => make()?,
    };
    Ok(place.insert(there))
}
