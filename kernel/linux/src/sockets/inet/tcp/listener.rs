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
    sockets::inet::{link, port},
};

/// Connections that came to a port.
pub(super) struct Queue {
    /// Memory for more.
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
        let Some(stream) = self.take_spare() else { return };
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

    /// Memory for a connection: of a spare one, or of one that takes long to be there.
    fn take_spare(&self) -> Option<Arc<Stream>> {
        let oldest = {
            let mut queue = self.queue.lock();
            if let Some(spare) = queue.spares.pop() {
                return Some(spare);
            }
            let now = time::now().0;
            let is_late = |&&(begun, _): &&(u64, _)| now - begun.min(now) >= OPENING_LEAST;
            queue.opening.front().filter(is_late)?;
            queue.opening.pop_front()?.1
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

    /// Makes memory for one more connection. Thread context; may sleep.
    pub(super) fn replenish(&self) -> Result<(), Errno> {
        let link = match self.local.ip().is_unspecified() {
            true => link::by_index(self.core.options.device()),
            false => link::owner(*self.local.ip()),
        };
        let link = link.ok_or(Errno::ENETDOWN)?;
        let common = self.core.common.of_connection();
        let own_options = self.core.own_options.of_connection();
        let core = Core::new(common, self.core.options.of_connection(), own_options);
        let stream = Stream::new(core, link)?;
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
