// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of TCP (tcp(7)).
//!
//! | module | concept |
//! |---|---|
//! | [`stream`] | a connection |
//! | [`listener`] | who waits for connections |
//! | [`socket`] | what a program has: either of these, or neither so far |
//! | [`options`] | options of TCP |
//!
//! A thread that calls does what is to be done for its connection itself. A segment that comes is
//! brought to its connection by a thread of the interface's driver. Each connection has a lock,
//! which is held for the segments of one call at most, and never while a program's memory is
//! touched.

mod listener;
mod options;
mod socket;
mod stream;

pub use socket::Tcp;

use alloc::sync::Arc;
use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_core::{
    task::{Mutex, WaitError, WaitQueue},
    time::{self, Nanos},
};
use crtos_inet::{
    connection::{Connection, Phase},
    packet::{self, Packet, Protocol, USUAL},
    ports::{Ports, Way},
};
use linux_raw_sys::net;

use super::{icmp::meaning, link::Link, options::Options, stack};
use crate::{
    abi::Errno,
    files::{Watchers, description},
    memory::timespec::SECOND,
    signal,
    sockets::{common::Common, error_queue::Message},
};
use listener::Listener;
use stream::Stream;

/// Most sockets of TCP that the realm has, those that a program has closed and that are not over
/// included.
const MOST: usize = 256;
/// Most of these that no program has any more.
const MOST_ORPHANS: usize = 64;
/// Most connections of a listener that were not accepted.
const MOST_WAITING: usize = 8;
/// How long a connection that nobody has may go on: nanoseconds.
const ORPHAN: u64 = 60 * SECOND;
/// How long a connection may take to be there, before another one gets its place if that is
/// wanted, and before it is given up.
const OPENING_LEAST: u64 = SECOND;
const OPENING_MOST: u64 = 127 * SECOND;
/// How long the other end may say nothing although it should.
const PATIENCE: u64 = 900 * SECOND;
/// Bytes that are copied from and to a program at a time.
const PART: usize = 2048;

/// Who has which port.
static PORTS: Mutex<Ports<Handle>> = Mutex::new(Ports::new(MOST, true));
static ORPHANS: AtomicUsize = AtomicUsize::new(0);

/// What waiting threads have of a socket.
struct Core {
    number: u64,
    readers: WaitQueue,
    writers: WaitQueue,
    watchers: Watchers,
    common: Common,
    options: Options,
    /// Those of TCP.
    own_options: options::Options,
}

/// What has a port.
#[derive(Clone)]
enum Handle {
    Bound(Arc<Core>),
    Listener(Arc<Listener>),
    Stream(Arc<Stream>),
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bound(a), Self::Bound(b)) => Arc::ptr_eq(a, b),
            (Self::Listener(a), Self::Listener(b)) => Arc::ptr_eq(a, b),
            (Self::Stream(a), Self::Stream(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Brings a segment to its connection. Thread context; nothing is locked.
pub fn deliver(link: &Arc<Link>, packet: &Packet) {
    let (source, destination) = (packet.source, packet.destination);
    let Some(segment) = packet::parse_segment(packet.payload, source, destination) else { return };
    let way = Way {
        local: SocketAddrV4::new(destination, segment.destination),
        remote: SocketAddrV4::new(source, segment.source),
        interface: link.interface.index(),
    };
    let found = PORTS.lock().find(&way, 0);
    match found {
        Some(Handle::Stream(stream)) => stream.receive(packet, way.remote, segment.resets),
        Some(Handle::Listener(listener)) if segment.opens => listener.open(packet, &way),
        _ if segment.resets || !link.may_answer() => {}
        _ => {
            let mut frame = [0; USUAL];
            if let Some(length) = packet::write_reset(&mut frame, packet) {
                stack::answer(link, packet, Protocol::Tcp, &mut frame, length);
            }
        }
    }
}

/// A segment did not arrive. Only who asks for a connection is told: others go on, since anybody
/// may have made that up.
pub fn report(way: &Way, message: &Message) {
    let found = PORTS.lock().find(way, 0);
    if let Some(Handle::Stream(stream)) = found {
        let mut connection = stream.connection.lock();
        if connection.phase() == Phase::Opening && connection.remote() == Some(way.remote) {
            stream.core.common.fail(meaning(&message.why).0);
            connection.abort();
            stream.finish(connection);
        }
    }
}

/// Connections over an interface that is gone are over.
pub fn interface_is_gone(index: u32) {
    // Each that ends makes place for the next one.
    for at in (0..MOST).rev() {
        let found = PORTS.lock().nth_of_all(at);
        if let Some(Handle::Stream(stream)) = found
            && stream.link.interface.index() == index
        {
            let mut connection = stream.connection.lock();
            stream.core.common.fail(Errno::ENETDOWN);
            connection.abort();
            stream.finish(connection);
        }
    }
}

/// Does what is due now. Returns when something is next, and the level of the highest thread that
/// waits. Thread context; nothing is locked.
pub fn look() -> (Option<u64>, u32) {
    let (mut next, mut level) = (u64::MAX, 0);
    // From the last one: what goes leaves its place to one that was looked at.
    let count = PORTS.lock().len();
    for at in (0..count).rev() {
        let found = PORTS.lock().nth_of_all(at);
        let Some(Handle::Stream(stream)) = found else { continue };
        let now = time::now().0;
        if stream.due.load(Ordering::Relaxed) <= now {
            let mut connection = stream.connection.lock();
            if stream.is_orphan() && stream.orphan_until.load(Ordering::Relaxed) <= now {
                connection.abort();
            }
            stream.finish(connection);
        }
        next = next.min(stream.due.load(Ordering::Relaxed));
        level = level.max(stream.awaited_at.load(Ordering::Relaxed));
    }
    ((next < u64::MAX).then_some(next), level)
}

impl Core {
    fn new(common: Common, options: Options, own_options: options::Options) -> Arc<Self> {
        Arc::new(Self {
            number: description::number(),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            watchers: Watchers::new(),
            common,
            options,
            own_options,
        })
    }

    /// Has a connection do what options say.
    fn apply(&self, connection: &mut Connection) {
        let option = |name| u64::from(self.own_options.value(name));
        let seconds = |name| option(name) * SECOND;
        connection.set_prompt(option(net::TCP_NODELAY) != 0);
        connection.set_corked(option(net::TCP_CORK) != 0);
        connection.set_lifetime(self.options.ip(net::IP_TTL) as u8);
        let keeps = self.common.has(net::SO_KEEPALIVE);
        let idle = seconds(net::TCP_KEEPIDLE);
        connection.set_keep_alive(keeps.then_some(idle));
        let patience = match (option(net::TCP_USER_TIMEOUT), connection.phase()) {
            (0, Phase::Opening | Phase::Listening) => OPENING_MOST,
            (0, _) if keeps => idle + seconds(net::TCP_KEEPINTVL) * option(net::TCP_KEEPCNT),
            (0, _) => PATIENCE,
            (millis, _) => millis * 1_000_000,
        };
        connection.set_patience(Some(patience));
    }
}

fn wait<T>(
    queue: &WaitQueue,
    deadline: Option<Nanos>,
    take: impl FnMut() -> Option<T>,
) -> Result<T, Errno> {
    queue.wait_until(deadline, |_| signal::is_interrupted(), take).map_err(|error| match error {
        WaitError::Timeout => Errno::EAGAIN,
        WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
        WaitError::Interrupted => Errno::RESTART,
    })
}
