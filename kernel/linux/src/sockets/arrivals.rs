// SPDX-License-Identifier: MIT OR Apache-2.0
//! When messages come. It is noted as long as a socket of the realm wants to know, as Linux does
//! (`netstamp_needed_key`): the clock would be read in the handlers of interrupts.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::time::{self, Clock, Nanos};

/// What a message has that came while nobody wanted to know.
pub const UNKNOWN: Nanos = Nanos(0);

/// How many sockets want to know.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// The time of a message that comes now (CLOCK_REALTIME), or [`UNKNOWN`]. Any context.
#[inline(always)]
pub fn now() -> Nanos {
    if WANTED.load(Ordering::Relaxed) == 0 { UNKNOWN } else { clock() }
}

#[inline(never)]
fn clock() -> Nanos {
    time::linux(Clock::Realtime)
}

/// The time of a message that is told now and has to have one: when it came, or now if that is not
/// known.
pub fn told(came: Nanos) -> Nanos {
    if came == UNKNOWN { clock() } else { came }
}

/// Whether a socket wants to know. Once it does, it does to its end.
#[derive(Default)]
pub struct Want(AtomicBool);

impl Want {
    /// It wants to from now on.
    pub fn arise(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            WANTED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Want {
    fn drop(&mut self) {
        if *self.0.get_mut() {
            WANTED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
