// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps that a socket asks for (SO_TIMESTAMPING), of what it receives, and of what it sends.
//!
//! Which stamps these are is in [`crtos_nic::stamping`]. Reports of what was sent wait in the
//! [`ErrorQueue`](super::error_queue::ErrorQueue).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_nic::stamping::{self, OPT_TSONLY, Report, Stamping};
use linux_raw_sys::net;

use super::net::interface::{Asked, Reporter, Stamp};
use crate::{abi::Errno, files::socket::SendControl};

/// What a socket asks for.
pub struct Stamps {
    flags: AtomicU32,
    /// By which of its two numbers the option was set.
    name: AtomicU32,
    /// The number of the next message that is sent.
    next: AtomicU32,
}

impl Stamps {
    /// Nothing is asked for.
    pub fn new() -> Self {
        Self {
            flags: AtomicU32::new(0),
            name: AtomicU32::new(net::SO_TIMESTAMPING_OLD),
            next: AtomicU32::new(0),
        }
    }

    /// The same is asked for as here, of a connection that came.
    pub fn of_connection(&self) -> Self {
        let own = Self::new();
        own.flags.store(self.flags.load(Ordering::Relaxed), Ordering::Relaxed);
        own.name.store(self.name(), Ordering::Relaxed);
        own
    }

    /// What is asked for.
    pub fn asked(&self) -> Stamping {
        Stamping::of_flags(self.flags.load(Ordering::Relaxed))
    }

    /// By which number the option was set, which is the kind of its control messages.
    pub fn name(&self) -> u32 {
        self.name.load(Ordering::Relaxed)
    }

    /// setsockopt(2).
    pub fn set(&self, name: u32, flags: u32) -> Result<(), Errno> {
        let fresh = Stamping::new(flags).map_err(|_| Errno::EINVAL)?;
        if fresh.has(stamping::BIND_PHC) {
            // There are no clocks that are made of a card's.
            return Err(Errno::EOPNOTSUPP);
        }
        if fresh.begins_numbers(self.asked()) {
            self.next.store(0, Ordering::Relaxed);
        }
        self.name.store(name, Ordering::Relaxed);
        self.flags.store(fresh.flags(), Ordering::Relaxed);
        Ok(())
    }

    /// What is asked for of a message, which may say so itself.
    pub fn of_message(&self, control: &SendControl) -> Result<Stamping, Errno> {
        match control.reports {
            None => Ok(self.asked()),
            Some(flags) => self.asked().of_message(flags).map_err(|_| Errno::EINVAL),
        }
    }

    /// A message is sent of which that is asked for: what is to be reported, if anything. Any
    /// context.
    pub fn begin<R: Reporter + 'static>(
        &self,
        stamping: Stamping,
        reporter: &Arc<R>,
    ) -> Option<Asked> {
        if !stamping.reports() {
            return None;
        }
        let numbers = stamping.numbers();
        let number = if numbers { self.next.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Some(Asked { reporter: reporter.clone(), stamping, number })
    }
}

impl Asked {
    /// Reports that a frame has gone at `stamp` by the interface with that number. Any context;
    /// bounded.
    pub fn tell(&self, stamp: Stamp, interface: u32, frame: &[u8]) {
        let is_alone = self.stamping.has(OPT_TSONLY);
        let (interface, frame) = if is_alone { (0, &[][..]) } else { (interface, frame) };
        for event in self.stamping.events(false) {
            let report = Report { event, number: self.number, stamps: stamp.stamps(), interface };
            self.reporter.report(&report, frame);
        }
    }
}
