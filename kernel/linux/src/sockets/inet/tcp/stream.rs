// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection.

use alloc::sync::{Arc, Weak};
use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crtos_core::{
    arch,
    mm::heap,
    sync::SpinLock,
    task::{self, Mutex, MutexGuard, WaitQueue},
    time::{self, Nanos},
};
use crtos_inet::{
    connection::{Connection, Failure, Phase},
    packet::{self, Packet},
};
use linux_raw_sys::net;

use super::{Core, Handle, MOST_ORPHANS, ORPHAN, ORPHANS, PORTS, listener::Listener, wait};
use crate::{
    abi::Errno,
    files::Events,
    sockets::inet::{clock, link::Link},
};

/// Bytes of the headers of a packet with a segment.
const HEADERS: usize = 40;

/// A connection.
pub(super) struct Stream {
    pub(super) core: Arc<Core>,
    pub(super) link: Arc<Link>,
    /// Most bytes of a segment.
    pub(super) segment: u32,
    pub(super) connection: Mutex<Connection>,
    /// When it is to be looked at; `u64::MAX` for never.
    pub(super) due: AtomicU64,
    /// Held while a program's memory is read or written, so that bytes stay in order.
    pub(super) reading: Mutex<()>,
    pub(super) writing: Mutex<()>,
    /// It came to that one, and was not accepted.
    pub(super) listener: SpinLock<Option<Weak<Listener>>>,
    /// No program has it any more: until when it may go on; 0 while one has.
    pub(super) orphan_until: AtomicU64,
    /// The level of the highest thread that waits for it.
    pub(super) awaited_at: AtomicU32,
    /// It was there once, and has options that count from then on.
    pub(super) was_open: AtomicBool,
}

impl Stream {
    pub(super) fn new(core: Arc<Core>, link: Arc<Link>) -> Result<Arc<Self>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOBUFS);
        }
        // Linux counts twice what a program may fill.
        let receive = core.common.receive_buffer() as usize / 2;
        let send = core.common.send_buffer() as usize;
        let most = link.interface.mtu().saturating_sub(HEADERS) as u32;
        let segment = match core.own_options.value(net::TCP_MAXSEG) {
            0 => most,
            asked => asked.min(most),
        };
        let mtu = segment as usize + HEADERS;
        let connection = Connection::new(mtu, arch::random(), receive, send, time::now().0);
        let connection = connection.ok_or(Errno::ENOBUFS)?;
        Ok(Arc::new(Self {
            core,
            link,
            segment,
            connection: Mutex::new(connection),
            due: AtomicU64::new(u64::MAX),
            reading: Mutex::new(()),
            writing: Mutex::new(()),
            listener: SpinLock::new(None),
            orphan_until: AtomicU64::new(0),
            awaited_at: AtomicU32::new(0),
            was_open: AtomicBool::new(false),
        }))
    }

    pub(super) fn is_orphan(&self) -> bool {
        self.orphan_until.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_listener(&self, listener: Option<Weak<Listener>>) {
        // What is dropped is dropped with nothing locked.
        let before = core::mem::replace(&mut *self.listener.lock(), listener);
        drop(before);
    }

    pub(super) fn transmit(&self, frame: &mut [u8]) {
        let service = self.core.options.ip(net::IP_TOS) as u8;
        if service != 0 {
            packet::set_service(frame, service);
        }
        // What finds no room is lost, and sent again later.
        let _ = self.link.send(frame);
    }

    pub(super) fn receive(self: &Arc<Self>, packet: &Packet, remote: SocketAddrV4, resets: bool) {
        // Who comes from further away than is permitted is not heard.
        if u32::from(packet.lifetime) < self.core.options.ip(net::IP_MINTTL) {
            return;
        }
        let mut connection = self.connection.lock();
        let now = time::now().0;
        let out = &mut |frame: &mut [u8]| self.transmit(frame);
        connection.receive(packet.bytes, remote, resets, now, out);
        self.finish(connection);
    }

    /// Sends what a call or a segment has made due, and tells who waits.
    pub(super) fn finish(self: &Arc<Self>, mut connection: MutexGuard<'_, Connection>) {
        let now = time::now().0;
        if connection.phase() == Phase::Open && !self.was_open.swap(true, Ordering::Relaxed) {
            self.core.apply(&mut connection);
        }
        let has_more = connection.send_due(now, &mut |frame: &mut [u8]| self.transmit(frame));
        let mut due = match has_more {
            true => now,
            false => connection.due(now).unwrap_or(u64::MAX),
        };
        let (failure, phase) = (connection.take_failure(), connection.phase());
        let local = connection.local();
        let is_deaf = connection.has_heard_all();
        if self.is_orphan() {
            due = due.min(self.orphan_until.load(Ordering::Relaxed));
        }
        // While it is locked: what the next one finds due is later than this, and who finds it over
        // is told why.
        self.due.store(due, Ordering::Relaxed);
        if let Some(failure) = failure {
            self.core.common.fail(match failure {
                Failure::Refused => Errno::ECONNREFUSED,
                Failure::Reset => Errno::ECONNRESET,
                Failure::TimedOut => Errno::ETIMEDOUT,
            });
        }
        drop(connection);
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            listener.changed(self, phase, local);
        }
        let is_over = matches!(phase, Phase::Closed | Phase::Lingering);
        if is_over && self.is_orphan() {
            self.leave(local.port());
        }
        clock::wake_by(due);
        self.core.readers.wake(1);
        self.core.writers.wake(1);
        let mut events = Events::IN | Events::READ_NORMAL | Events::OUT | Events::WRITE_NORMAL;
        events.set(Events::READ_HANG_UP, is_deaf);
        events.set(Events::HANG_UP, is_over);
        events.set(Events::ERROR, failure.is_some());
        self.core.watchers.notify(events);
    }

    /// Gives its place back.
    pub(super) fn leave(self: &Arc<Self>, port: u16) {
        let taken = PORTS.lock().remove(port, &Handle::Stream(self.clone()));
        if taken.is_some() && self.is_orphan() {
            ORPHANS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// No program has it any more: it ends by itself, or at once.
    pub(super) fn abandon(self: &Arc<Self>, at_once: bool) {
        let mut connection = self.connection.lock();
        let is_many = ORPHANS.fetch_add(1, Ordering::Relaxed) >= MOST_ORPHANS;
        self.orphan_until.store(time::now().0 + ORPHAN, Ordering::Relaxed);
        // What was not read will not be: the other end is to know.
        if at_once || is_many || connection.received() > 0 {
            connection.abort();
        } else {
            connection.close();
        }
        connection.refuse();
        self.finish(connection);
        self.link.bring_back();
    }

    /// Waits in `queue` until `take` gives something.
    pub(super) fn wait<T>(
        &self,
        queue: &WaitQueue,
        deadline: Option<Nanos>,
        take: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        let level = task::current().scheduling().level.get();
        self.awaited_at.fetch_max(level, Ordering::Relaxed);
        clock::lend(level);
        let result = wait(queue, deadline, take);
        self.awaited_at.store(0, Ordering::Relaxed);
        result
    }
}
