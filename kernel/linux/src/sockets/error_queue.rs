// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits to be received with MSG_ERRQUEUE (recv(2)): reports of when frames were sent
//! (SO_TIMESTAMPING), and of what did not arrive (IP_RECVERR, ip(7)).
//!
//! The memory of it is there before anything comes: nothing is allocated when a frame is sent or
//! lost.

use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_core::{mm::heap, sync::SpinLock};
use crtos_inet::{inbox::About, packet::Unreachable};
use crtos_nic::{inbox::Inbox, stamping::Report};
use linux_raw_sys::{errno, net};

use crate::{
    abi::Errno,
    files::{Memory, socket::Received},
};

/// Most bytes of what waits, with what Linux counts for each.
const MOST: u32 = 64 << 10;

/// Something that is told.
#[derive(Clone, Copy)]
pub enum Entry {
    /// A frame was sent. Its bytes go with that.
    Sent(Report),
    /// A datagram did not arrive. The beginning of its data goes with that.
    Lost(Loss),
}

/// A datagram that did not arrive.
#[derive(Clone, Copy)]
pub struct Loss {
    /// The error that its sender is told.
    pub error: Errno,
    /// Where it was sent.
    pub to: SocketAddrV4,
    /// Who says so.
    pub cause: Cause,
}

/// Who says that something did not arrive.
#[derive(Clone, Copy)]
pub enum Cause {
    /// It was not sent: a packet has that many bytes at most.
    TooLong(u32),
    /// A message of ICMP came.
    Icmp(Message),
}

/// A message of ICMP.
#[derive(Clone, Copy)]
pub struct Message {
    /// What it says.
    pub why: Unreachable,
    /// What is known of the packet with it.
    pub about: About,
}

impl Entry {
    /// What a control message tells (`struct sock_extended_err`).
    pub fn extended(&self) -> [u8; 16] {
        /// SO_EE_ORIGIN_LOCAL, SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_TIMESTAMPING.
        const LOCAL: u8 = 1;
        const ICMP: u8 = 2;
        const TIMESTAMPING: u8 = 4;
        let (error, from, info, data) = match self {
            Self::Sent(report) => {
                let origin = [TIMESTAMPING, 0, 0, 0];
                (errno::ENOMSG, origin, report.event as u32, report.number)
            }
            Self::Lost(Loss { error, cause, .. }) => match cause {
                Cause::TooLong(most) => (error.number(), [LOCAL, 0, 0, 0], *most, 0),
                Cause::Icmp(Message { why, .. }) => {
                    (error.number(), [ICMP, why.kind, why.code, 0], why.info, 0)
                }
            },
        };
        let words = [error.to_ne_bytes(), from, info.to_ne_bytes(), data.to_ne_bytes()];
        let mut bytes = [0; 16];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// The error that calls tell as long as this waits.
    fn error(&self) -> Option<Errno> {
        match self {
            Self::Lost(Loss { error, cause: Cause::Icmp(_), .. }) => Some(*error),
            _ => None,
        }
    }
}

/// What waits for a socket.
pub struct ErrorQueue {
    /// With bytes that go with each; `None` until somebody has asked for something.
    entries: SpinLock<Option<Inbox<Entry>>>,
    /// How many wait.
    waiting: AtomicU32,
    /// That there are some is urgent data as well (SO_SELECT_ERR_QUEUE).
    is_urgent: AtomicBool,
}

/// What was received.
pub struct Taken<'a> {
    /// What is told of it but for what the family adds.
    pub received: Received,
    /// What it is.
    pub entry: Entry,
    /// What goes with it, as much of that as finds room.
    pub bytes: &'a [u8],
    /// The error that calls tell now, if it is another one: `Some(None)` for none.
    pub error: Option<Option<Errno>>,
}

impl ErrorQueue {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            entries: SpinLock::new(None),
            waiting: AtomicU32::new(0),
            is_urgent: AtomicBool::new(false),
        }
    }

    /// That there is something is urgent data as well, or not.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
    }

    /// Whether that there is something is urgent data as well.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Sees to it that there is memory, for a socket that receives so many bytes. It stays until
    /// the socket is closed: a frame that waits for its station is reported also if none is asked
    /// for any more. May sleep.
    pub fn prepare(&self, receive_buffer: u32) -> Result<(), Errno> {
        if self.entries.lock().is_some() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let fresh = Inbox::new(receive_buffer.min(MOST) as usize).ok_or(Errno::ENOMEM)?;
        let other = {
            let mut entries = self.entries.lock();
            if entries.is_none() { entries.replace(fresh) } else { Some(fresh) }
        };
        drop(other);
        Ok(())
    }

    /// Something waits from now on, unless there is no room. Any context; bounded: a copy.
    pub fn push(&self, entry: Entry, bytes: &[u8]) {
        if let Some(entries) = &mut *self.entries.lock()
            && entries.push(entry, bytes)
        {
            self.waiting.store(entries.len() as u32, Ordering::Relaxed);
        }
    }

    /// Forgets what waits. Interrupts are off for a part of it at a time.
    pub fn clear(&self) {
        /// What is forgotten at a time.
        const PART: usize = 16;
        let mut is_over = false;
        while !is_over {
            let mut entries = self.entries.lock();
            let Some(entries) = &mut *entries else { return };
            is_over = !(0..PART).all(|_| entries.pop());
            self.waiting.store(entries.len() as u32, Ordering::Relaxed);
        }
    }

    /// Bytes that go with the first one; 0 if there is none.
    pub fn next_length(&self) -> usize {
        self.entries.lock().as_ref().and_then(|entries| entries.next_length()).unwrap_or(0)
    }

    /// Receives the first one; `buffer` has then what goes with it. EAGAIN if there is none.
    pub fn receive<'a>(
        &self,
        memory: &mut Memory,
        buffer: &'a mut [u8],
    ) -> Result<Taken<'a>, Errno> {
        let (entry, length, next) = {
            let mut entries = self.entries.lock();
            let entries = entries.as_mut().ok_or(Errno::EAGAIN)?;
            let (entry, length) = entries.peek(buffer).ok_or(Errno::EAGAIN)?;
            entries.pop();
            self.waiting.store(entries.len() as u32, Ordering::Relaxed);
            (entry, length, entries.first().and_then(|(next, _)| next.error()))
        };
        let bytes = &buffer[..length.min(buffer.len())];
        let there = bytes.len().min(memory.left() as usize);
        if memory.write(&bytes[..there]) < there {
            return Err(Errno::EFAULT);
        }
        let is_cut = if there < bytes.len() { net::MSG_TRUNC } else { 0 };
        let received = Received {
            length: there as u64,
            flags: net::MSG_ERRQUEUE | is_cut,
            ..Received::default()
        };
        let error = (next.is_some() || entry.error().is_some()).then_some(next);
        Ok(Taken { received, entry, bytes, error })
    }
}
