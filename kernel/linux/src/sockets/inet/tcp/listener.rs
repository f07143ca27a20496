// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for connections.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::net::SocketAddrV4;
use core::sync::atomic::Ordering;

use crtos_core::{sync::SpinLock, time};
use crtos_inet::{
    connection::Phase,
    packet::Packet,
    ports::{Binding, Way},
};

use super::{Core, Handle, OPENING_LEAST, PORTS, stream::Stream};
use crate::{
    abi::Errno,
    files::Events,
    sockets::inet::{
        link::{self, Link},
        port,
    },
};

/// Connections that came to a port.
pub(super) struct Queue {
    /// Memory for more, of each interface that they may come by.
    pub(super) spares: Vec<Arc<Stream>>,
    /// Those that are not there yet, and when they came.
    pub(super) opening: VecDeque<(u64, Arc<Stream>)>,
    /// Those that can be accepted.
    pub(super) ready: VecDeque<Arc<Stream>>,
}

/// Who waits for connections.
pub(super) struct Listener {
    pub(super) core: Arc<Core>,
    pub(super) local: SocketAddrV4,
    pub(super) queue: SpinLock<Queue>,
}

impl Listener {
    /// Somebody asks for a connection. Thread context; nothing is locked.
    pub(super) fn open(self: &Arc<Self>, packet: &Packet, way: &Way) {
        let Some(stream) = self.take_spare(way.interface) else { return };
        stream.connection.lock().listen(way.local);
        stream.was_open.store(false, Ordering::Relaxed);
        stream.set_listener(Some(Arc::downgrade(self)));
        let mut binding = Binding { remote: Some(way.remote), ..Binding::new(way.local) };
        port::let_share(&mut binding, &stream.core.common, &stream.core.options);
        let added = PORTS.lock().add(binding, Handle::Stream(stream.clone()));
        {
            let mut queue = self.queue.lock();
            match added {
                Ok(()) => queue.opening.push_back((time::now().0, stream.clone())),
                Err(_) => queue.spares.push(stream.clone()),
            }
        }
        if added.is_ok() {
            let mut connection = stream.connection.lock();
            let now = time::now().0;
            let out = &mut |frame: &mut [u8]| stream.transmit(frame);
            connection.receive(packet.bytes, way.remote, false, now, out);
            stream.core.apply(&mut connection);
            stream.finish(connection);
        }
    }

    /// Memory for a connection over that interface: of a spare one, or of one that takes long to be
    /// there.
    fn take_spare(&self, interface: u32) -> Option<Arc<Stream>> {
        let is_meant = |stream: &Stream| stream.link.interface.index() == interface;
        let oldest = {
            let mut queue = self.queue.lock();
            if let Some(at) = queue.spares.iter().rposition(|spare| is_meant(spare)) {
                return Some(queue.spares.swap_remove(at));
            }
            let at = queue.opening.iter().position(|(_, stream)| is_meant(stream))?;
            let now = time::now().0;
            let is_late = |begun: u64| now - begun.min(now) >= OPENING_LEAST;
            queue.opening.get(at).filter(|&&(begun, _)| is_late(begun))?;
            queue.opening.remove(at)?.1
        };
        oldest.leave(self.local.port());
        Some(oldest)
    }

    /// A connection that was not accepted has gone on.
    pub(super) fn changed(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        phase: Phase,
        local: SocketAddrV4,
    ) {
        let is_ready = {
            let mut queue = self.queue.lock();
            let at = queue.opening.iter().position(|(_, other)| Arc::ptr_eq(other, stream));
            let Some(at) = at else { return };
            match phase {
                Phase::Opening => return,
                Phase::Open | Phase::Lingering => {
                    queue.opening.remove(at);
                    queue.ready.push_back(stream.clone());
                    true
                }
                // It was withdrawn.
                Phase::Listening | Phase::Closed => {
                    queue.opening.remove(at);
                    false
                }
            }
        };
        if is_ready {
            self.core.readers.wake(1);
            self.core.watchers.notify(Events::IN | Events::READ_NORMAL);
        } else {
            stream.leave(local.port());
            let _ = stream.core.common.check();
            self.queue.lock().spares.push(stream.clone());
        }
    }

    /// Whether connections come by `link`.
    fn hears(&self, link: &Link) -> bool {
        let (own, device) = (*self.local.ip(), self.core.options.device());
        match own.is_unspecified() {
            true => device == 0 || device == link.interface.index(),
            false => link.is_own(own),
        }
    }

    /// Makes memory for `count` connections over each interface by which some may come. Thread
    /// context; may sleep.
    pub(super) fn begin(&self, count: usize) -> Result<(), Errno> {
        let mut links = link::all().filter(|link| self.hears(link)).peekable();
        links.peek().ok_or(Errno::ENETDOWN)?;
        for link in links {
            for _ in 0..count {
                self.replenish(&link)?;
            }
        }
        Ok(())
    }

    /// Makes memory for one more connection over `link`. Thread context; may sleep.
    pub(super) fn replenish(&self, link: &Arc<Link>) -> Result<(), Errno> {
        let common = self.core.common.of_connection();
        let own_options = self.core.own_options.of_connection();
        let core = Core::new(common, self.core.options.of_connection(), own_options);
        let stream = Stream::new(core, link.clone())?;
        self.queue.lock().spares.push(stream);
        Ok(())
    }

    /// Nobody waits any more.
    pub(super) fn close(self: &Arc<Self>) {
        let taken = PORTS.lock().remove(self.local.port(), &Handle::Listener(self.clone()));
        drop(taken);
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let opening = queue.opening.pop_front().map(|(_, stream)| stream);
                opening.or_else(|| queue.ready.pop_front())
            };
            let Some(stream) = next else { break };
            stream.set_listener(None);
            stream.abandon(true);
        }
        let spares = core::mem::take(&mut self.queue.lock().spares);
        drop(spares);
    }
}
