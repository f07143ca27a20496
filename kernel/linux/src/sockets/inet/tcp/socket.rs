// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program has: a socket that connects, waits for connections, or is one.

use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use core::net::{Ipv4Addr, SocketAddrV4};

use crtos_abi::UserAddr;
use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::Mutex,
    time::{self, Nanos},
};
use crtos_inet::{
    connection::{Connection, Phase},
    packet,
    ports::Binding,
};
use linux_raw_sys::{ioctl, net};

use super::{
    Core, Handle, MOST_WAITING, PART, PORTS,
    listener::{Listener, Queue},
    stream::Stream,
    wait,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers,
        socket::{Address, Foreign, Received, Reception, SendControl, Socket},
    },
    memory::user,
    sockets::{
        common::Common,
        inet::{self, address_of, link, options::Options, port, socket_address},
        net::interface,
    },
};

/// The way in which it gives way to others, as TCP_CONGESTION tells it, and the bytes of its name.
const CONGESTION: [u8; 16] = *b"reno\0\0\0\0\0\0\0\0\0\0\0\0";
const CONGESTION_NAME: usize = 4;

/// The bits of a type of service that tell of congestion.
const ECN: u8 = 3;

/// What a socket is.
enum Role {
    /// Neither of the others; bound to that, if it is.
    Idle(Option<Binding>),
    Listener(Arc<Listener>, Option<Binding>),
    Stream(Connected),
}

/// A connection of a socket.
struct Connected {
    stream: Arc<Stream>,
    /// The program knows that it is there.
    is_known: bool,
    /// What the socket is bound to, with connection or without.
    bound: Option<Binding>,
}

/// A socket of TCP.
pub struct Tcp {
    core: Arc<Core>,
    role: Mutex<Role>,
}

impl Tcp {
    /// What takes the place of a socket of Linux's of the family `domain`, which is bound to that
    /// address if its port is not 0.
    pub fn of(foreign: &Foreign, domain: u32, local: SocketAddrV4) -> Result<Self, Errno> {
        let own_options = super::options::Options::of(foreign)?;
        let core = Core::new(Common::of(foreign, domain)?, Options::of(foreign)?, own_options);
        let own = Self { core, role: Mutex::new(Role::Idle(None)) };
        if local.port() != 0 {
            let binding = own.take_port(local)?;
            *own.role.lock() = Role::Idle(Some(binding));
        }
        Ok(own)
    }

    fn options(&self) -> &Options {
        &self.core.options
    }

    fn take_port(&self, local: SocketAddrV4) -> Result<Binding, Errno> {
        let bound = Handle::Bound(self.core.clone());
        port::take(&PORTS, local, &self.core.common, self.options(), bound)
    }

    fn leave_port(&self, binding: &Binding) {
        let handle = Handle::Bound(self.core.clone());
        let taken = PORTS.lock().remove(binding.local.port(), &handle);
        drop(taken);
    }

    fn stream(&self) -> Option<Arc<Stream>> {
        match &*self.role.lock() {
            Role::Stream(connected) => Some(connected.stream.clone()),
            _ => None,
        }
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        match &*self.role.lock() {
            Role::Listener(listener, _) => Some(listener.clone()),
            _ => None,
        }
    }

    /// Begins a connection.
    fn begin(&self, mut remote: SocketAddrV4) -> Result<Arc<Stream>, Errno> {
        let mut role = self.role.lock();
        let bound = match &*role {
            Role::Idle(bound) => *bound,
            Role::Stream(connected) if !connected.is_known => return Err(Errno::EALREADY),
            Role::Listener(..) | Role::Stream(_) => return Err(Errno::EISCONN),
        };
        if remote.port() == 0 {
            return Err(Errno::ECONNREFUSED);
        }
        let own = bound.map_or(Ipv4Addr::UNSPECIFIED, |binding| *binding.local.ip());
        let device = self.options().device();
        let to = link::meant(*remote.ip(), own, device);
        remote.set_ip(to);
        let link = link::route(to, device).ok_or(Errno::ENETUNREACH)?;
        if !packet::is_unicast(to) || link.is_broadcast(to) {
            return Err(Errno::ENETUNREACH);
        }
        let stream = Stream::new(self.core.clone(), link.clone())?;
        let own = if own.is_unspecified() { link.source(to) } else { own };
        let port = bound.map_or(0, |binding| binding.local.port());
        let mut binding =
            Binding { remote: Some(remote), ..Binding::new(SocketAddrV4::new(own, port)) };
        port::let_share(&mut binding, &self.core.common, self.options());
        {
            let mut ports = PORTS.lock();
            if port == 0 {
                let port = ports.free(binding, port::draw()).ok_or(Errno::EADDRNOTAVAIL)?;
                binding.local.set_port(port);
            }
            if ports.has_connection(binding.local, remote) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            ports.add(binding, Handle::Stream(stream.clone()))?;
        }
        if let Some(bound) = bound {
            self.leave_port(&bound);
        }
        link.interface.attend();
        let mut connection = stream.connection.lock();
        let has_begun = connection.connect(binding.local, remote);
        self.core.apply(&mut connection);
        // What an earlier one left to tell.
        let _ = self.core.common.check();
        *role = Role::Stream(Connected { stream: stream.clone(), is_known: false, bound });
        drop(role);
        if !has_begun {
            connection.abort();
            self.core.common.fail(Errno::EADDRNOTAVAIL);
        }
        stream.finish(connection);
        link.bring_back();
        Ok(stream)
    }

    /// The connection that was asked for, as long as the program does not know how that came out.
    fn asked_for(&self) -> Option<Arc<Stream>> {
        match &*self.role.lock() {
            Role::Stream(connected) if !connected.is_known => Some(connected.stream.clone()),
            _ => None,
        }
    }

    /// The program is told that the connection is there, or that it was not to be had. Then another
    /// one can be asked for.
    fn tell(&self, stream: &Arc<Stream>, is_there: bool) {
        let mut role = self.role.lock();
        match &mut *role {
            Role::Stream(connected) if Arc::ptr_eq(&connected.stream, stream) => {
                connected.is_known = true
            }
            _ => return,
        }
        if !is_there {
            self.become_idle(&mut role);
            drop(role);
            let local = stream.connection.lock().local();
            stream.leave(local.port());
        }
    }

    /// It is neither connection nor listener any more, and bound to what it was bound to. Returns
    /// what it was.
    fn become_idle(&self, role: &mut Role) -> Role {
        let bound = match role {
            Role::Idle(bound) | Role::Listener(_, bound) => *bound,
            Role::Stream(connected) => connected.bound,
        };
        // Its port has been its own all the time.
        let is_kept = matches!(role, Role::Idle(_))
            || bound.is_some_and(|bound| {
                PORTS.lock().add(bound, Handle::Bound(self.core.clone())).is_ok()
            });
        core::mem::replace(role, Role::Idle(bound.filter(|_| is_kept)))
    }

    /// Ends what it is at once: a connection, with or without an answer, or a listener.
    fn disconnect(&self) {
        let before = {
            let mut role = self.role.lock();
            self.become_idle(&mut role)
        };
        match before {
            Role::Idle(_) => return,
            Role::Listener(listener, _) => listener.close(),
            Role::Stream(connected) => {
                let was_there = connected.stream.connection.lock().phase() != Phase::Closed;
                connected.stream.abandon(true);
                if was_there {
                    self.core.common.fail(Errno::ECONNRESET);
                }
            }
        }
        self.core.readers.wake_all();
        self.core.writers.wake_all();
        self.core.watchers.notify(self.ready());
    }

    /// How a connection that was asked for came out; `None` if that is not known yet.
    fn outcome(&self, stream: &Arc<Stream>) -> Option<Result<(), Errno>> {
        match stream.connection.lock().phase() {
            Phase::Opening | Phase::Listening => None,
            Phase::Closed if !self.core.common.has_failed() => Some(Err(Errno::ECONNABORTED)),
            Phase::Closed => Some(self.core.common.check()),
            Phase::Open | Phase::Lingering => Some(Ok(())),
        }
    }

    fn make_connection(&self, address: &Address, waits: bool) -> Result<(), Errno> {
        if address.family() == Some(net::AF_UNSPEC) {
            self.disconnect();
            return Ok(());
        }
        let remote = socket_address(address)?;
        let stream = match self.asked_for() {
            Some(stream) => stream,
            None => {
                let stream = self.begin(remote)?;
                if !waits {
                    // However soon the answer comes.
                    return Err(Errno::EINPROGRESS);
                }
                stream
            }
        };
        let outcome = match self.outcome(&stream) {
            Some(outcome) => outcome,
            None if !waits => return Err(Errno::EALREADY),
            None => {
                let deadline = self.core.common.send_deadline();
                let queue = &self.core.writers;
                let outcome = stream.wait(queue, deadline, || self.outcome(&stream));
                // Others may wait to send.
                queue.wake(1);
                match outcome {
                    Ok(outcome) => outcome,
                    Err(Errno::EAGAIN) => return Err(Errno::EINPROGRESS),
                    Err(error) => return Err(error),
                }
            }
        };
        self.tell(&stream, outcome.is_ok());
        outcome
    }

    /// Waits until bytes can be sent.
    fn wait_for_room(&self, stream: &Arc<Stream>, deadline: Option<Nanos>) -> Result<(), Errno> {
        stream.wait(&self.core.writers, deadline, || {
            let connection = stream.connection.lock();
            let is_opening = connection.phase() == Phase::Opening;
            let can_go_on = !connection.may_send() || connection.room() > 0;
            (!is_opening && can_go_on || self.core.common.has_failed()).then_some(())
        })
    }

    /// Sends a part of a program's bytes; returns how many. EAGAIN if there is no room, EPIPE if
    /// nobody takes them.
    fn send_part(
        &self,
        stream: &Arc<Stream>,
        memory: &mut Memory,
        follows: bool,
    ) -> Result<usize, Errno> {
        let writing = stream.writing.lock();
        let room = {
            let connection = stream.connection.lock();
            match connection.phase() {
                Phase::Opening => return Err(Errno::EAGAIN),
                _ if !connection.may_send() => return Err(Errno::EPIPE),
                _ => connection.room(),
            }
        };
        if room == 0 {
            return Err(Errno::EAGAIN);
        }
        let mut part = [0; PART];
        let length = room.min(PART).min(memory.left() as usize);
        let copied = memory.read(&mut part[..length]);
        if copied == 0 {
            return Err(Errno::EFAULT);
        }
        let mut connection = stream.connection.lock();
        // Room only grows while others do not write.
        let written = connection.write(&part[..copied], follows, time::now().0);
        stream.finish(connection);
        drop(writing);
        if written < copied { Err(Errno::EPIPE) } else { Ok(written) }
    }

    /// Gives a part of what came to a program; returns how many bytes.
    fn receive_part(
        &self,
        stream: &Arc<Stream>,
        memory: &mut Memory,
        how: Reception,
    ) -> Result<usize, Errno> {
        let reading = stream.reading.lock();
        let mut part = [0; PART];
        let length = (memory.left() as usize).min(PART);
        let there = stream.connection.lock().peek(&mut part[..length]);
        let copied = give(&part[..there], memory, how)?;
        if copied > 0 {
            let mut connection = stream.connection.lock();
            connection.take(copied);
            stream.finish(connection);
        }
        drop(reading);
        Ok(copied)
    }

    /// Shows a program what came, and leaves it there; returns how many bytes.
    fn look(
        &self,
        stream: &Arc<Stream>,
        memory: &mut Memory,
        how: Reception,
    ) -> Result<usize, Errno> {
        let wanted = memory.left() as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let is_enough = || {
            let connection = stream.connection.lock();
            let least = if how.waits_for_all { wanted } else { self.least(&connection) };
            connection.received() >= least.min(wanted)
                || self.core.common.has_failed()
                || is_over(&connection)
        };
        let deadline = self.core.common.receive_deadline();
        let (reading, length) = loop {
            let waited = match is_enough() {
                true => Ok(()),
                false if how.nonblocking => Err(Errno::EAGAIN),
                false => stream.wait(&self.core.readers, deadline, || is_enough().then_some(())),
            };
            let reading = stream.reading.lock();
            let length = stream.connection.lock().received().min(wanted);
            if length > 0 {
                break (reading, length);
            }
            self.core.common.check()?;
            waited?;
            if is_over(&stream.connection.lock()) {
                return Ok(0);
            }
            // Another thread has taken them.
        };
        let mut part = [0; PART];
        let mut long = Vec::new();
        let bytes = match part.get_mut(..length) {
            Some(bytes) => bytes,
            None => {
                if !heap::makes_room(&mut long, length) {
                    return Err(Errno::ENOMEM);
                }
                long.resize(length, 0);
                &mut long
            }
        };
        let there = stream.connection.lock().peek(bytes);
        let shown = give(&bytes[..there], memory, how);
        drop(reading);
        shown
    }

    /// How many bytes make it readable (SO_RCVLOWAT).
    fn least(&self, connection: &Connection) -> usize {
        let asked = self.core.common.value(net::SO_RCVLOWAT) as usize;
        asked.min(connection.most_received())
    }

    /// Whether a read returns at once.
    fn is_readable(&self, stream: &Stream) -> bool {
        let connection = stream.connection.lock();
        connection.received() > 0 || self.core.common.has_failed() || is_over(&connection)
    }

    /// Gives a program what came, and waits for it; returns how many bytes.
    fn take(
        &self,
        stream: &Arc<Stream>,
        memory: &mut Memory,
        how: Reception,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        // Of all waits of this call, from the first one on.
        let mut deadline = None;
        while memory.left() > 0 {
            let count = match self.receive_part(stream, memory, how) {
                Ok(count) => count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += count;
            if count > 0 {
                continue;
            }
            let is_enough = || done >= self.least(&stream.connection.lock());
            if done > 0 && !how.waits_for_all && is_enough() {
                break;
            }
            if done == 0 {
                self.core.common.check()?;
            }
            let has_ended = {
                let connection = stream.connection.lock();
                connection.received() == 0 && is_over(&connection)
            };
            if has_ended {
                break;
            }
            if how.nonblocking {
                if done == 0 {
                    return Err(Errno::EAGAIN);
                }
                break;
            }
            let until = *deadline.get_or_insert_with(|| self.core.common.receive_deadline());
            let is_there = || self.is_readable(stream).then_some(());
            match stream.wait(&self.core.readers, until, is_there) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) if done > 0 && self.core.common.has_failed() => break,
                Ok(()) => {}
            }
        }
        Ok(done)
    }
}

/// Whether nothing more comes.
fn is_over(connection: &Connection) -> bool {
    connection.phase() != Phase::Opening && !connection.may_receive()
}

/// Gives bytes to a program, or throws them away if that is what it wants (MSG_TRUNC); returns how
/// many. EFAULT if it takes none.
fn give(bytes: &[u8], memory: &mut Memory, how: Reception) -> Result<usize, Errno> {
    if how.tells_length {
        memory.limit(memory.left() - bytes.len() as u64);
        return Ok(bytes.len());
    }
    let copied = memory.write(bytes);
    if copied == 0 && !bytes.is_empty() { Err(Errno::EFAULT) } else { Ok(copied) }
}

impl Socket for Tcp {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let local = socket_address(address)?;
        port::check(local.port())?;
        let mut role = self.role.lock();
        if !matches!(*role, Role::Idle(None)) {
            return Err(Errno::EINVAL);
        }
        if !local.ip().is_unspecified() {
            let link = link::owner(*local.ip()).ok_or(Errno::EADDRNOTAVAIL)?;
            link.interface.attend();
        }
        *role = Role::Idle(Some(self.take_port(local)?));
        Ok(())
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        self.make_connection(address, true)
    }

    fn connect_soon(&self, address: &Address) -> Result<(), Errno> {
        self.make_connection(address, false)
    }

    fn listen(&self, backlog: u32) -> Result<(), Errno> {
        let mut role = self.role.lock();
        let chosen = match &*role {
            Role::Idle(bound) => *bound,
            // Its memory is there already.
            Role::Listener(..) => return Ok(()),
            Role::Stream(_) => return Err(Errno::EINVAL),
        };
        let bound = match chosen {
            Some(bound) => bound,
            None => self.take_port(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?,
        };
        let count = (backlog as i32).clamp(0, MOST_WAITING as i32 - 1) as usize + 1;
        let (mut spares, mut opening, mut ready) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let most = (MOST_WAITING + 1) * interface::MOST;
        spares.try_reserve_exact(most).map_err(|_| Errno::ENOBUFS)?;
        opening.try_reserve_exact(most).map_err(|_| Errno::ENOBUFS)?;
        ready.try_reserve_exact(most).map_err(|_| Errno::ENOBUFS)?;
        let listener = Arc::new(Listener {
            core: self.core.clone(),
            local: bound.local,
            queue: SpinLock::new(Queue { spares, opening, ready }),
        });
        listener.begin(count)?;
        let binding = Binding { listens: true, ..bound };
        {
            let mut ports = PORTS.lock();
            let own = Handle::Bound(self.core.clone());
            let before = ports.remove(bound.local.port(), &own);
            if let Err(refusal) = ports.bind(binding, Handle::Listener(listener.clone())) {
                // It has its port still, which somebody else listens on.
                let _ = ports.add(bound, own);
                return Err(refusal.into());
            }
            drop(ports);
            drop(before);
        }
        *role = Role::Listener(listener, chosen);
        Ok(())
    }

    fn accept(&self, nonblocking: bool) -> Result<(Box<dyn Socket>, Address), Errno> {
        let listener = self.listener().ok_or(Errno::EINVAL)?;
        let take = || {
            let is_over = self.listener().is_none_or(|now| !Arc::ptr_eq(&now, &listener));
            let next = listener.queue.lock().ready.pop_front();
            match next {
                Some(stream) => Some(Ok(stream)),
                None => is_over.then_some(Err(Errno::EINVAL)),
            }
        };
        let stream = match take() {
            Some(taken) => taken?,
            None if nonblocking => return Err(Errno::EAGAIN),
            None => wait(&self.core.readers, self.core.common.receive_deadline(), take)??,
        };
        stream.set_listener(None);
        // If there is no memory, it has one place less until the next one.
        let _ = listener.replenish(&stream.link);
        let remote = stream.connection.lock().remote();
        let remote = remote.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let core = stream.core.clone();
        let connected = Connected { stream, is_known: true, bound: None };
        let accepted = Self { core, role: Mutex::new(Role::Stream(connected)) };
        Ok((Box::new(accepted), address_of(remote)))
    }

    fn shutdown(&self, how: u32) -> Result<(), Errno> {
        if how > net::SHUT_RDWR {
            return Err(Errno::EINVAL);
        }
        if self.listener().is_some() {
            if how != net::SHUT_WR {
                self.disconnect();
            }
            return Ok(());
        }
        let stream = self.stream().ok_or(Errno::ENOTCONN)?;
        let mut connection = stream.connection.lock();
        match connection.phase() {
            Phase::Closed => return Err(Errno::ENOTCONN),
            Phase::Opening => {
                drop(connection);
                self.disconnect();
                return Ok(());
            }
            _ => {}
        }
        if how != net::SHUT_RD {
            connection.close();
        }
        if how != net::SHUT_WR {
            connection.refuse();
        }
        stream.finish(connection);
        stream.link.bring_back();
        self.core.readers.wake_all();
        Ok(())
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        let local = match &*self.role.lock() {
            Role::Idle(bound) => bound.map(|binding| binding.local),
            Role::Listener(listener, _) => Some(listener.local),
            Role::Stream(connected) => {
                let connection = connected.stream.connection.lock();
                if of_peer {
                    let is_there = matches!(connection.phase(), Phase::Open | Phase::Lingering);
                    let remote = connection.remote().filter(|_| is_there);
                    return remote.map(address_of).ok_or(Errno::ENOTCONN);
                }
                Some(connection.local())
            }
        };
        if of_peer {
            return Err(Errno::ENOTCONN);
        }
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(address_of(local.unwrap_or(nowhere)))
    }

    fn send(
        &self,
        memory: &mut Memory,
        _: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult {
        let Some(stream) = self.stream() else {
            self.core.common.check()?;
            return Err(Errno::EPIPE);
        };
        let mut done = 0;
        // Of all waits of this call, from the first one on.
        let mut deadline = None;
        let mut result = self.core.common.check();
        while result.is_ok() && memory.left() > 0 {
            result = match self.send_part(&stream, memory, control.follows) {
                Ok(count) => {
                    done += count as u64;
                    stream.link.bring_back();
                    Ok(())
                }
                Err(Errno::EAGAIN) if !nonblocking => {
                    let until = *deadline.get_or_insert_with(|| self.core.common.send_deadline());
                    self.wait_for_room(&stream, until).and_then(|()| self.core.common.check())
                }
                Err(error) => Err(error),
            };
        }
        let can_others = {
            let connection = stream.connection.lock();
            !connection.may_send() || connection.room() > 0
        };
        if can_others {
            self.core.writers.wake(1);
        }
        match result {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn check_way(&self, flags: u32) -> Result<(), Errno> {
        if flags & net::MSG_OOB == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        // There is no urgent byte.
        Err(Errno::EINVAL)
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        let Some(stream) = self.stream() else {
            self.core.common.check()?;
            return Err(Errno::ENOTCONN);
        };
        let done = match how.peeks {
            true => self.look(&stream, memory, how),
            false => self.take(&stream, memory, how),
        };
        stream.link.bring_back();
        let is_left = {
            let connection = stream.connection.lock();
            connection.received() > 0 || is_over(&connection)
        };
        if is_left {
            // One of those who wait is woken: the next one takes what is left, or hears of the end.
            self.core.readers.wake(1);
        }
        Ok(Received { length: done? as u64, ..Received::default() })
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        if (level, name) == (net::SOL_SOCKET, net::SO_ACCEPTCONN) {
            let listens = u32::from(self.listener().is_some());
            return Ok(listens.to_ne_bytes().to_vec());
        }
        if let Some(value) = self.options().get(level, name) {
            return Ok(value);
        }
        if level == net::SOL_SOCKET {
            return self.core.common.get(name);
        }
        let value = match (level, name) {
            (net::SOL_TCP, net::TCP_MAXSEG) => match self.stream() {
                Some(stream) => stream.segment,
                None => self.core.own_options.get(name).unwrap_or_default(),
            },
            (net::SOL_TCP, net::TCP_CONGESTION) => return Ok(CONGESTION.to_vec()),
            (net::SOL_TCP, net::TCP_INFO) => return Ok(self.info()),
            (net::SOL_TCP, _) => self.core.own_options.get(name).ok_or(Errno::ENOPROTOOPT)?,
            (net::SOL_IP, net::IP_MTU) => match self.stream() {
                Some(stream) => stream.link.interface.mtu() as u32,
                None => return Err(Errno::ENOTCONN),
            },
            (net::SOL_IP, _) => return Err(Errno::ENOPROTOOPT),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        // Groups have nothing to do with connections.
        match (level, name) {
            (net::SOL_IP, net::IP_MULTICAST_TTL | net::IP_MULTICAST_IF) => {
                return Err(Errno::EINVAL);
            }
            (net::SOL_IP, net::IP_ADD_MEMBERSHIP | net::IP_DROP_MEMBERSHIP) => {
                return Err(Errno::EPROTO);
            }
            _ => {}
        }
        // That the network is congested is said by TCP itself.
        let is_service = (level, name) == (net::SOL_IP, net::IP_TOS);
        let service = value.first().filter(|_| is_service).map(|service| [service & !ECN]);
        let value = service.as_ref().map_or(value, |service| &service[..]);
        let result = match self.options().set(level, name, value) {
            Some(result) => result,
            None if level == net::SOL_SOCKET => self.core.common.set(name, value),
            None if level == net::SOL_TCP => self.set_tcp(name, value),
            None => Err(Errno::ENOPROTOOPT),
        };
        if let Some(stream) = self.stream() {
            let mut connection = stream.connection.lock();
            self.core.apply(&mut connection);
            // As under Linux, this is a word to what waits, too.
            if (level, name) == (net::SOL_TCP, net::TCP_NODELAY) && self.is_prompt() {
                connection.release();
            }
            stream.finish(connection);
        }
        result
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        let count = |of: fn(&Connection) -> usize| {
            let stream = self.stream();
            stream.map_or(0, |stream| of(&stream.connection.lock())) as u32
        };
        let value = match request {
            ioctl::FIONREAD if self.listener().is_some() => return Err(Errno::EINVAL),
            ioctl::FIONREAD => count(Connection::received),
            ioctl::TIOCOUTQ => count(Connection::unsent),
            // What comes next is not behind urgent data.
            ioctl::SIOCATMARK => 0,
            _ => return inet::ioctl(request, argument),
        };
        user::write_u32(argument, value)?;
        Ok(0)
    }

    fn interface(&self) -> Option<u32> {
        let local = match &*self.role.lock() {
            Role::Idle(bound) => (*bound)?.local,
            Role::Listener(listener, _) => listener.local,
            Role::Stream(connected) => return Some(connected.stream.link.interface.index()),
        };
        let own = link::owner(*local.ip()).map(|link| link.interface.index());
        own.or(Some(self.options().device()).filter(|&index| index != 0))
    }

    fn ready(&self) -> Events {
        let mut events = Events::empty();
        events.set(Events::ERROR, self.core.common.has_failed());
        if let Some(listener) = self.listener() {
            let is_there = !listener.queue.lock().ready.is_empty();
            events.set(Events::IN | Events::READ_NORMAL, is_there);
            return events;
        }
        let Some(stream) = self.stream() else {
            return events | Events::OUT | Events::WRITE_NORMAL | Events::HANG_UP;
        };
        let connection = stream.connection.lock();
        let phase = connection.phase();
        if phase == Phase::Opening {
            return events;
        }
        let is_deaf = connection.has_heard_all();
        let is_readable = connection.received() >= self.least(&connection) || is_deaf;
        let is_writable = !connection.may_send() || connection.room() > connection.unsent() / 2;
        events.set(Events::IN | Events::READ_NORMAL, is_readable);
        events.set(Events::OUT | Events::WRITE_NORMAL, is_writable);
        events.set(Events::READ_HANG_UP, is_deaf);
        events.set(Events::HANG_UP, is_deaf && !connection.may_send());
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.core.watchers
    }

    fn number(&self) -> u64 {
        self.core.number
    }
}

impl Tcp {
    fn set_tcp(&self, name: u32, value: &[u8]) -> Result<(), Errno> {
        if name == net::TCP_CONGESTION {
            // Programs need not end it by a 0.
            let mut name = value.split(|byte| *byte == 0);
            let asked = name.next().filter(|name| !name.is_empty()).ok_or(Errno::EINVAL)?;
            let is_known = CONGESTION.starts_with(asked) && asked.len() == CONGESTION_NAME;
            return if is_known { Ok(()) } else { Err(Errno::ENOENT) };
        }
        let number = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
        // One that has begun keeps what it has.
        if name == net::TCP_WINDOW_CLAMP && number == 0 && self.has_begun() {
            return Err(Errno::EINVAL);
        }
        self.core.own_options.set(name, number)
    }

    /// Whether short segments are sent at once.
    fn is_prompt(&self) -> bool {
        self.core.own_options.value(net::TCP_NODELAY) != 0
    }

    /// Whether it has listened or connected.
    fn has_begun(&self) -> bool {
        !matches!(*self.role.lock(), Role::Idle(_))
    }

    /// What is known for a `struct tcp_info`: the state, and the length of segments.
    fn info(&self) -> Vec<u8> {
        const LENGTH: usize = 232;
        const SEND_MSS: usize = 16;
        const RECEIVE_MSS: usize = 20;
        let mut info = alloc::vec![0; LENGTH];
        info[0] = match (self.stream(), self.listener()) {
            (Some(stream), _) => {
                let segment = stream.segment.to_ne_bytes();
                info[SEND_MSS..SEND_MSS + 4].copy_from_slice(&segment);
                info[RECEIVE_MSS..RECEIVE_MSS + 4].copy_from_slice(&segment);
                stream.connection.lock().state_number()
            }
            (_, Some(_)) => 10,
            _ => 7,
        };
        info
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        let role = core::mem::replace(&mut *self.role.lock(), Role::Idle(None));
        match role {
            Role::Idle(Some(binding)) => self.leave_port(&binding),
            Role::Idle(None) => {}
            Role::Listener(listener, _) => listener.close(),
            Role::Stream(connected) => {
                connected.stream.abandon(self.core.common.linger() == Some(0));
            }
        }
    }
}
