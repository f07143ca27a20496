// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal-driven I/O (O_ASYNC): a signal tells the owner of a file that it is ready.
//!
//! A thread that makes the file ready sends the signal itself. An interrupt notes what for, and
//! has a timer of the file expire at once, whose function sends it, in sections of its own:
//! several that come before that are told as one.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_core::{arch::interrupts, mm::heap, sync::SpinLock, task::Timer, time};
use crtos_signal::{
    Info,
    info::{SI_KERNEL, SI_SIGIO},
};
use linux_raw_sys::general as linux;

use super::{Events, Notified, Watcher};
use crate::{abi::Errno, signal::Recipient};

/// What a signal tells of the first of these that a file is ready for: `si_code`, and the bits of
/// `si_band`.
const REASONS: [(Events, i32, u64); 5] = [
    (Events::IN, 1, 0x41),
    (Events::OUT, 2, 0x304),
    (Events::PRIORITY, 5, 0x82),
    (Events::ERROR, 4, 0x8),
    (Events::HANG_UP, 6, 0x18),
];

/// Signals whose codes mean something else.
const WITH_CODES: [u32; 7] = [
    linux::SIGILL,
    linux::SIGTRAP,
    linux::SIGBUS,
    linux::SIGFPE,
    linux::SIGSEGV,
    linux::SIGCHLD,
    linux::SIGSYS,
];

/// Tells the owner of an open file description.
pub struct Sigio {
    /// The address of the description.
    file: usize,
    /// The descriptor by which it was asked for.
    descriptor: u32,
    /// The events that concern the description.
    heard: Events,
    /// What is still to be told.
    events: AtomicU32,
    /// The signal; 0 for SIGIO, without what it tells of.
    signal: AtomicU32,
    /// Put there, and taken away, in thread context alone: it may be the last who knows a process.
    recipient: SpinLock<Option<Recipient>>,
    /// Tells it. Taken away at the end.
    timer: SpinLock<Option<Timer>>,
}

impl Sigio {
    /// Of the description at the address `file`, whose `heard` events are told. Nobody is told yet.
    /// Thread context.
    pub fn new(file: usize, descriptor: u32, heard: Events) -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let own = Arc::new(Self {
            file,
            descriptor,
            heard,
            events: AtomicU32::new(0),
            signal: AtomicU32::new(0),
            recipient: SpinLock::new(None),
            timer: SpinLock::new(None),
        });
        let told = own.clone();
        let timer = Timer::new(Box::new(move || told.tell(interrupts::window_in_timer)))
            .map_err(|_| Errno::ENOMEM)?;
        *own.timer.lock() = Some(timer);
        Ok(own)
    }

    /// Sends to that one from now on. Thread context; may sleep.
    pub fn set_recipient(&self, recipient: Option<Recipient>) {
        let before = core::mem::replace(&mut *self.recipient.lock(), recipient);
        drop(before);
    }

    /// The process that it sends to goes on as `recipient` by execve(2): it does so if that is
    /// certainly of the same user. Thread context; may sleep.
    pub fn follow(&self, recipient: Recipient) {
        let mut place = self.recipient.lock();
        let before = match &*place {
            Some(before) if before.has_user_of(&recipient) => place.replace(recipient),
            _ => Some(recipient),
        };
        drop(place);
        drop(before);
    }

    /// Sends that signal from now on.
    pub fn set_signal(&self, signal: u32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Tells what the file has become ready for. `window` is called between two sections. Thread
    /// context, or a timer's function.
    fn tell(&self, window: impl Fn()) {
        let mut events = Events::from_bits_truncate(self.events.swap(0, Ordering::Relaxed));
        for (event, code, band) in REASONS {
            if events.contains(event) {
                self.send(code, band, &window);
                // An end and an error come with what can be read and written because of them.
                events &= Events::OUT;
            }
        }
    }

    fn send(&self, code: i32, band: u64, window: impl Fn()) {
        let plain = Info::new(linux::SIGIO, SI_KERNEL);
        let info = match self.signal.load(Ordering::Relaxed) {
            0 => plain,
            signal if WITH_CODES.contains(&signal) => {
                Info::readiness(signal, SI_SIGIO, band, self.descriptor)
            }
            signal => Info::readiness(signal, code, band, self.descriptor),
        };
        window();
        let mut sent = match &*self.recipient.lock() {
            // Where there is no room for the signal, its owner hears of that by the plain one.
            Some(to) => to.send_from_interrupt(info).or_else(|| to.send_from_interrupt(plain)),
            None => None,
        };
        while let Some(left) = sent.as_mut().filter(|sent| sent.is_pending()) {
            window();
            match &*self.recipient.lock() {
                Some(to) => to.step(left),
                None => return,
            }
        }
    }
}

impl Watcher for Sigio {
    fn notify(&self, events: Events) -> Notified {
        let events = events & self.heard;
        self.events.fetch_or(events.bits(), Ordering::Relaxed);
        Notified { has_others: !events.is_empty(), is_taken: false }
    }

    fn announce(&self) {
        if interrupts::are_on() {
            self.tell(|| ());
        } else if let Some(timer) = &*self.timer.lock() {
            timer.arm(time::now());
        }
    }

    fn is_last(&self) -> bool {
        false
    }

    fn ends_with(&self, file: usize) -> bool {
        file == self.file
    }

    fn end(&self) {
        self.set_recipient(None);
        let timer = self.timer.lock().take();
        drop(timer);
    }
}
