// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps that a socket asks for (SO_TIMESTAMPING), and the reports of when its frames were
//! sent, which wait until they are received with MSG_ERRQUEUE.
//!
//! Which stamps these are is in [`crtos_nic::stamping`]. The memory of the reports is there before
//! they come: nothing is allocated when a frame is sent.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::{mm::heap, sync::SpinLock};
use crtos_nic::{
    inbox::Inbox,
    stamping::{self, OPT_TSONLY, Report, Stamping},
};
use linux_raw_sys::{errno, net};

use super::net::interface::{Asked, Reporter, Stamp};
use crate::{
    abi::Errno,
    files::{
        Memory,
        socket::{Received, SendControl, Told},
    },
};

/// Most bytes of reports that wait, with what Linux counts for each.
const MOST: u32 = 64 << 10;

/// What a socket asks for, and what waits for it.
pub struct Stamps {
    flags: AtomicU32,
    /// By which of its two numbers the option was set.
    name: AtomicU32,
    /// The number of the next message that is sent.
    next: AtomicU32,
    /// That there are reports is urgent data as well (SO_SELECT_ERR_QUEUE).
    is_urgent: AtomicBool,
    /// Reports that wait, with their frames; `None` until some were asked for.
    reports: SpinLock<Option<Inbox<Report>>>,
    /// How many wait.
    waiting: AtomicU32,
}

impl Stamps {
    /// Nothing is asked for.
    pub fn new() -> Self {
        Self {
            flags: AtomicU32::new(0),
            name: AtomicU32::new(net::SO_TIMESTAMPING_OLD),
            next: AtomicU32::new(0),
            is_urgent: AtomicBool::new(false),
            reports: SpinLock::new(None),
            waiting: AtomicU32::new(0),
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

    /// That there are reports is urgent data as well, or not.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
    }

    /// Whether that there are reports is urgent data as well.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Whether a report waits.
    pub fn has_reports(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Sees to it that there is memory for reports of a socket that receives so many bytes, if some
    /// are asked for. It stays until the socket is closed: a frame that waits for its station is
    /// reported also if none is asked for any more. May sleep.
    pub fn prepare(&self, stamping: Stamping, receive_buffer: u32) -> Result<(), Errno> {
        if !stamping.reports() || self.reports.lock().is_some() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let fresh = Inbox::new(receive_buffer.min(MOST) as usize).ok_or(Errno::ENOMEM)?;
        let other = {
            let mut reports = self.reports.lock();
            if reports.is_none() { reports.replace(fresh) } else { Some(fresh) }
        };
        drop(other);
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

    /// A report waits from now on, unless there is no room. Any context; bounded: a copy.
    pub fn push(&self, report: &Report, frame: &[u8]) {
        if let Some(reports) = &mut *self.reports.lock()
            && reports.push(*report, frame)
        {
            self.waiting.store(reports.len() as u32, Ordering::Relaxed);
        }
    }

    /// Bytes of the frame of the first report; 0 if there is none.
    pub fn next_length(&self) -> usize {
        self.reports.lock().as_ref().and_then(|reports| reports.next_length()).unwrap_or(0)
    }

    /// Receives the first report: what is told of it but for what the family adds, the report, and
    /// its frame, which `buffer` has then, as much of it as finds room. EAGAIN if there is none.
    pub fn receive<'a>(
        &self,
        memory: &mut Memory,
        buffer: &'a mut [u8],
    ) -> Result<(Received, Report, &'a [u8]), Errno> {
        let (report, length) = {
            let mut reports = self.reports.lock();
            let reports = reports.as_mut().ok_or(Errno::EAGAIN)?;
            let found = reports.peek(buffer).ok_or(Errno::EAGAIN)?;
            reports.pop();
            self.waiting.store(reports.len() as u32, Ordering::Relaxed);
            found
        };
        let frame = &buffer[..length.min(buffer.len())];
        let there = frame.len().min(memory.left() as usize);
        if memory.write(&frame[..there]) < there {
            return Err(Errno::EFAULT);
        }
        let is_cut = if there < frame.len() { net::MSG_TRUNC } else { 0 };
        let stamps = self.asked().sent(report.stamps).map(|stamps| (stamps, self.name()));
        let received = Received {
            length: there as u64,
            flags: net::MSG_ERRQUEUE | is_cut,
            told: Told { stamps, ..Told::default() },
            ..Received::default()
        };
        Ok((received, report, frame))
    }
}

/// What a control message tells of a report (`struct sock_extended_err`).
pub fn extended(report: &Report) -> [u8; 16] {
    /// SO_EE_ORIGIN_TIMESTAMPING.
    const ORIGIN: u8 = 4;
    let words = [errno::ENOMSG, ORIGIN.into(), report.event as u32, report.number];
    let mut bytes = [0; 16];
    bytes.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    bytes
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
