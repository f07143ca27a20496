// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line by which a platform device interrupts programs, with the rules of Linux's
//! uio_pdrv_genirq: an interrupt disables it, and a program enables it again by writing to the
//! file. A level is masked meanwhile. Of edges that come meanwhile one is remembered.

use core::sync::atomic::{AtomicU8, Ordering};

use crtos_channel::WantedLine;
use crtos_core::{devices::interrupts, sync::SpinLock};

/// Nothing is told.
const DISABLED: u8 = 0;
/// The next interrupt is told.
const ENABLED: u8 = 1;
/// Nothing is told, and an edge has come.
const PENDING: u8 = 2;

/// The line of a place, if the device there has one.
pub(super) struct Line {
    wanted: SpinLock<Option<WantedLine>>,
    state: AtomicU8,
}

impl Line {
    /// None.
    pub const fn new() -> Self {
        Self { wanted: SpinLock::new(None), state: AtomicU8::new(DISABLED) }
    }

    /// The device has that line from now on, enabled. Thread context.
    pub fn set(&self, line: Option<WantedLine>) {
        *self.wanted.lock() = line;
        self.state.store(ENABLED, Ordering::Relaxed);
    }

    /// Which line it is. Any context.
    pub fn get(&self) -> Option<WantedLine> {
        *self.wanted.lock()
    }

    /// Has it interrupt the calling thread's CPU by that vector, as far as it is enabled; `false`
    /// if the realm does not have it. Thread context; sleeps.
    pub fn start(&self, vector: u8) -> bool {
        let Some(line) = self.get() else { return true };
        let is_on = !line.is_level || self.state.load(Ordering::Relaxed) == ENABLED;
        interrupts::route(line.number, is_on.then_some(vector))
    }

    /// It interrupts nobody. Thread context; sleeps.
    pub fn stop(&self) {
        if let Some(line) = self.get() {
            interrupts::route(line.number, None);
        }
    }

    /// It has interrupted. Says whether that is to be told. Interrupts off; a level is one exit.
    pub fn interrupt(&self) -> bool {
        match self.get() {
            None => true,
            Some(line) if line.is_level => {
                // Where the hypervisor is busy the level interrupts once more, and comes here.
                interrupts::mask(line.number);
                self.state.swap(DISABLED, Ordering::Relaxed) == ENABLED
            }
            Some(_) => {
                let next = |state| if state == ENABLED { DISABLED } else { PENDING };
                self.advance(next) == ENABLED
            }
        }
    }

    /// A program enables it, to interrupt its CPU by that vector. Says whether an edge that came
    /// before is to be told now. Thread context; sleeps.
    pub fn enable(&self, vector: u8) -> bool {
        let Some(line) = self.get() else { return false };
        if !line.is_level {
            let next = |state| if state == PENDING { DISABLED } else { ENABLED };
            return self.advance(next) == PENDING;
        }
        self.state.store(ENABLED, Ordering::Relaxed);
        interrupts::route(line.number, Some(vector));
        false
    }

    /// A program disables it. Thread context; sleeps.
    pub fn disable(&self) {
        match self.get() {
            Some(line) if line.is_level => {
                self.state.store(DISABLED, Ordering::Relaxed);
                interrupts::route(line.number, None);
            }
            _ => {
                self.advance(|state| if state == ENABLED { DISABLED } else { state });
            }
        }
    }

    /// It interrupts too often; `false` if it may do so again, `None` if there is no line. A level
    /// interrupts as often as programs enable it, which bounds it. Interrupts off.
    pub fn silence(&self) -> Option<bool> {
        let line = self.get()?;
        Some(interrupts::mask(line.number) && !line.is_level)
    }

    /// Changes the state. Returns what it was.
    fn advance(&self, next: impl Fn(u8) -> u8) -> u8 {
        let next = |state| Some(next(state));
        match self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(state) | Err(state) => state,
        }
    }
}
