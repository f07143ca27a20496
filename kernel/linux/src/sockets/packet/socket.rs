// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet socket: bind, send, receive.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::UserAddr;
use crtos_core::{
    arch::user_memory,
    mm::object::Object as MemoryObject,
    task::{Mutex, WaitError},
};
use crtos_nic::{card::USUAL_LONGEST, stamping::Stamping};
use linux_raw_sys::net;

use super::{
    SOL_PACKET,
    address::LinkAddress,
    core::{Core, Message},
    kept::{self, Kept},
    member,
    options::{self, Options},
    wants::Wants,
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers, description,
        socket::{Address, Foreign, More, Received, Reception, SendControl, Socket},
    },
    memory::user,
    signal,
    sockets::{
        common::Common,
        error_queue::Taken,
        filter,
        net::{
            buffer::with_buffer,
            interface::{self, HEADER, Interface, LONGEST, Leading, Listening, News, Taker},
        },
    },
};

/// Bytes of what waits to be received, and to be sent.
const SIOCINQ: u32 = 0x541b;
const SIOCOUTQ: u32 = 0x5411;
/// The control message that tells what is known of a frame, and in it that the frame is whole, or
/// that its checksum was found right.
const AUXILIARY: u32 = 8;
const IS_THERE: u32 = 1;
/// Most bytes that a program gives of a short frame.
const SHORT: usize = 242;
/// The control message that reports a frame that was sent (PACKET_TX_TIMESTAMP).
const REPORT: u32 = 16;

/// What came of taking a frame by a buffer.
enum Slow<R> {
    Taken(R),
    None,
    /// The buffer is too short for it.
    TooLong,
}

/// A packet socket.
pub struct PacketSocket {
    options: Options,
    core: Arc<Core>,
    is_member: AtomicBool,
    /// What it is bound to; held while that changes.
    binding: Mutex<Option<Listening>>,
}

/// The calling thread, which reads: a frame that comes goes to its memory at once, if that is
/// there, and waits otherwise.
struct Reader<'a, R, F> {
    core: &'a Core,
    memory: &'a mut Memory,
    how: Reception,
    /// What it wants to know of the frame.
    tell: F,
    /// The frame that it has got.
    got: Option<R>,
}

impl<R, F: Fn(&Message) -> R> Taker for Reader<'_, R, F> {
    fn number(&self) -> u64 {
        self.core.number
    }

    fn hear(&mut self, news: &News) -> bool {
        let core = self.core;
        let Some(wanted) = core.wanted(news) else { return core.is_of(news.index) };
        let part = wanted.part;
        let room = part.len().min(self.memory.left() as usize);
        if !self.how.peeks && core.is_next() && self.memory.write_if_there(&part[..room]) {
            core.taken.fetch_add(1, Ordering::Relaxed);
            self.got = Some((self.tell)(&wanted.message(core, news)));
        } else {
            core.keep(&wanted.message(core, news), part);
        }
        true
    }
}

/// How a frame is sent.
struct Way {
    interface: Arc<dyn Interface>,
    to: Option<LinkAddress>,
    protocol: u16,
    nonblocking: bool,
    /// What is to be reported.
    stamping: Stamping,
}

impl PacketSocket {
    /// What takes the place of a socket of Linux's that is bound to that. It hears nothing so far.
    pub fn of(foreign: &Foreign, bound: LinkAddress) -> Result<Self, Errno> {
        let common = Common::of(foreign, net::AF_PACKET)?;
        let options = Options::of(foreign)?;
        let wants = Wants::new(bound.protocol, filter::of(foreign)?);
        common.prepare_reports()?;
        let kept = Kept::new(common.receive_buffer())?;
        let is_cooked = foreign.kind == net::SOCK_DGRAM;
        let core = Core::new(description::number(), common, is_cooked, wants, kept);
        // Older kernels do not tell it.
        let ring_stamps = foreign.number(SOL_PACKET, options::TIMESTAMP).unwrap_or(0);
        core.ring_stamps.store(ring_stamps, Ordering::Relaxed);
        let ignores = foreign.number(SOL_PACKET, options::IGNORE_OUTGOING).unwrap_or(0);
        core.wants.set_ignores_outgoing(ignores != 0);
        Ok(Self {
            options,
            core: Arc::new(core),
            is_member: AtomicBool::new(false),
            binding: Mutex::new(None),
        })
    }

    /// Hears what is on that interface from now on, or on all of the realm, of that protocol unless
    /// it is 0. May sleep.
    pub fn listen_to(&self, found: Option<Arc<dyn Interface>>, protocol: u16) -> Result<(), Errno> {
        let mut binding = self.binding.lock();
        if !self.is_member.load(Ordering::Relaxed) {
            member::join(&self.core)?;
            self.is_member.store(true, Ordering::Relaxed);
        }
        let mut listening = Some(Listening::begin(found.as_deref()));
        let index = found.as_ref().map_or(0, |interface| interface.index());
        self.core.wants.bind(index, protocol);
        // Those who look whether others listen find rather one too many.
        core::mem::swap(&mut *binding, &mut listening);
        drop(listening);
        if let Some(interface) = found {
            interface.attend();
            if !interface.is_up() {
                self.core.common.fail(Errno::ENETDOWN);
            }
        }
        Ok(())
    }

    /// Fails with the error that waits to be told, and takes it.
    fn check(&self) -> Result<(), Errno> {
        if self.core.has_lost.swap(false, Ordering::Relaxed) {
            return Err(Errno::ENETDOWN);
        }
        self.core.common.check()
    }

    /// Moves a message that waits to memory, or leaves it if it is to stay. What `tell` says of it,
    /// or an error that waits to be told; `None` if there is nothing. May sleep.
    #[inline(never)]
    fn take_kept<R>(
        &self,
        memory: &mut Memory,
        how: Reception,
        tell: impl Fn(&Message) -> R,
    ) -> Option<Result<R, Errno>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        let room = memory.left() as usize;
        let (told, is_left) = {
            let mut inbox = self.core.kept.lock();
            let (message, [bytes, further]) = inbox.first()?;
            let told = tell(message);
            let bytes = &bytes[..bytes.len().min(room)];
            let is_short = further.is_empty() && bytes.len() <= user_memory::STEP;
            if !is_short || !memory.write_at_once(bytes) {
                drop(inbox);
                return self.take_slowly(memory, how, tell);
            }
            if !how.peeks {
                inbox.pop();
            }
            (told, !inbox.is_empty())
        };
        if is_left {
            self.core.readers.wake(1);
        }
        Some(Ok(told))
    }

    /// The same by a buffer: of what is long, or where memory is not there.
    #[inline(never)]
    fn take_slowly<R>(
        &self,
        memory: &mut Memory,
        how: Reception,
        tell: impl Fn(&Message) -> R,
    ) -> Option<Result<R, Errno>> {
        let most = memory.left().min(LONGEST as u64) as usize;
        // A jumbo frame needs a longer buffer, which lies in the heap.
        for room in [most.min(USUAL_LONGEST), most] {
            let taken = with_buffer(room, |buffer| {
                let (message, length, is_left) = {
                    let mut inbox = self.core.kept.lock();
                    let Some(length) = inbox.next_length() else { return Ok(Slow::None) };
                    if length > room && room < most {
                        return Ok(Slow::TooLong);
                    }
                    let Some((message, _)) = inbox.peek(buffer) else { return Ok(Slow::None) };
                    if !how.peeks {
                        inbox.pop();
                    }
                    (message, length.min(room), !inbox.is_empty())
                };
                if is_left {
                    self.core.readers.wake(1);
                }
                match memory.write(&buffer[..length]) < length {
                    true => Err(Errno::EFAULT),
                    false => Ok(Slow::Taken(tell(&message))),
                }
            });
            match taken {
                Ok(Slow::Taken(told)) => return Some(Ok(told)),
                Ok(Slow::None) => return None,
                Ok(Slow::TooLong) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    /// Moves the first message to memory, as recv(2) does; what `tell` says of it. May sleep.
    #[inline(always)]
    fn take<R>(
        &self,
        memory: &mut Memory,
        how: Reception,
        tell: impl Fn(&Message) -> R,
    ) -> Result<R, Errno> {
        if let Some(taken) = self.take_kept(memory, how, &tell) {
            return taken;
        }
        if how.nonblocking {
            return Err(Errno::EAGAIN);
        }
        let deadline = self.core.common.receive_deadline();
        loop {
            let bound = self.interface().and_then(interface::by_index);
            let mut leading = Leading::new(bound);
            let mut reader = Reader { core: &self.core, memory, how, tell: &tell, got: None };
            let waited = self.core.readers.wait_until(
                deadline,
                |_| signal::is_interrupted(),
                || {
                    leading.take_over(&mut reader);
                    (reader.got.is_some() || self.core.has_something()).then_some(())
                },
            );
            waited.map_err(|error| match error {
                WaitError::Timeout => Errno::EAGAIN,
                // A wait that ends by itself is not begun anew.
                WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                WaitError::Interrupted => Errno::RESTART,
            })?;
            if let Some(told) = reader.got {
                return Ok(told);
            }
            drop(leading);
            // Somebody else may have taken it.
            if let Some(taken) = self.take_kept(memory, how, &tell) {
                return taken;
            }
        }
    }

    /// Changes the room for messages. What waits stays, as far as there is room. May sleep.
    fn resize(&self) -> Result<(), Errno> {
        let mut fresh = kept::inbox(self.core.common.receive_buffer())?;
        with_buffer(LONGEST, |buffer| {
            loop {
                let mut inbox = self.core.kept.lock();
                let Some((message, length)) = inbox.peek(buffer) else {
                    core::mem::swap(&mut *inbox, &mut fresh);
                    let has_some = !inbox.is_empty();
                    drop(inbox);
                    // Who has looked meanwhile may have found nothing.
                    if has_some {
                        self.core.tell();
                    }
                    return Ok(());
                };
                inbox.pop();
                drop(inbox);
                fresh.push(message, &buffer[..length.min(LONGEST)]);
            }
        })
    }

    /// Sends a frame of which a program gives `given` bytes, by `read`.
    fn send_frame(
        &self,
        way: &Way,
        given: usize,
        read: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), Errno> {
        // A short one is spared the clearing of a long buffer.
        match given {
            0..=SHORT => self.send_by(way, given, read, &mut [0; HEADER + SHORT]),
            _ => with_buffer(HEADER + given.min(LONGEST), |buffer| {
                self.send_by(way, given, read, buffer)
            }),
        }
    }

    /// The same, by a buffer that has room for it and for a header.
    fn send_by(
        &self,
        way: &Way,
        given: usize,
        read: &mut dyn FnMut(&mut [u8]) -> bool,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        let length = self.frame(way, given, read, buffer)?;
        let asked = self.core.common.stamping.begin(way.stamping, &self.core);
        let frame = &buffer[..length];
        loop {
            match interface::send(&way.interface, frame, self.core.number, asked.as_ref()) {
                Err(Errno::ENOBUFS) if !way.nonblocking => {
                    way.interface.wait_for_room(self.core.common.send_deadline())?;
                }
                result => return result,
            }
        }
    }

    /// Sends what the ring has for that, and returns how many bytes; `None` if there is no ring.
    fn send_ring(&self, way: &Way) -> Option<SysResult> {
        self.options.with_transmit_ring(|ring, skips| {
            let mut done = 0;
            // Not more than once round, however fast the program fills it.
            for _ in 0..ring.frames() {
                let send = |given: usize, copy: &mut dyn FnMut(&mut [u8])| {
                    self.send_frame(way, given, &mut |to| {
                        copy(to);
                        true
                    })
                };
                match ring.take(skips, send) {
                    None => break,
                    Some(Ok(length)) => done += length as u64,
                    Some(Err(error)) if done == 0 => return Err(error),
                    Some(Err(_)) => break,
                }
                if signal::is_interrupted() {
                    break;
                }
            }
            Ok(done)
        })
    }

    /// The frame that a program gives, in `buffer`; its length.
    fn frame(
        &self,
        way: &Way,
        given: usize,
        read: &mut dyn FnMut(&mut [u8]) -> bool,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let Way { interface, to, protocol, .. } = way;
        let start = if self.core.is_cooked { HEADER } else { 0 };
        let most = interface.mtu() + HEADER - start;
        // With a tag of a VLAN it may be longer.
        let longest = if self.core.is_cooked { most } else { most + 4 };
        if given > longest {
            return Err(Errno::EMSGSIZE);
        }
        if self.core.is_cooked {
            let station = to.and_then(|to| to.station).ok_or(Errno::EINVAL)?;
            let told = match *protocol {
                1 | 4 => given as u16,
                protocol => protocol,
            };
            buffer[..6].copy_from_slice(&station);
            buffer[6..12].copy_from_slice(&interface.hardware_address());
            buffer[12..HEADER].copy_from_slice(&told.to_be_bytes());
        } else if given < HEADER {
            return Err(Errno::EINVAL);
        }
        let length = start + given;
        if !read(&mut buffer[start..length]) {
            return Err(Errno::EFAULT);
        }
        const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
        if given > most && !TAGS.contains(&[buffer[12], buffer[13]]) {
            return Err(Errno::EMSGSIZE);
        }
        Ok(length)
    }

    /// What a control message tells of a message.
    fn more(&self, message: &Message) -> Option<More> {
        if !self.options.tells_more.load(Ordering::Relaxed) {
            return None;
        }
        let mut bytes = [0; 20];
        let words = [IS_THERE, message.whole as u32, message.length as u32];
        bytes[..12].copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        bytes[14..16].copy_from_slice(&(message.header as u16).to_ne_bytes());
        Some(More::new(SOL_PACKET, AUXILIARY, &bytes))
    }
}

impl Socket for PacketSocket {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let address = LinkAddress::parse(address)?;
        let found = match address.interface {
            0 => None,
            index => Some(interface::by_index(index).ok_or(Errno::ENODEV)?),
        };
        self.listen_to(found, address.protocol)
    }

    fn connect(&self, _: &Address) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        if of_peer {
            return Err(Errno::EOPNOTSUPP);
        }
        let wants = self.core.wants.now();
        let (interface, protocol) = (wants.interface(), wants.protocol());
        let found = interface::by_index(interface);
        let station = found.map(|interface| interface.hardware_address());
        Ok(LinkAddress { protocol, interface, kind: 0, station }.of_socket())
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        control: &SendControl,
    ) -> SysResult {
        let to = to.map(LinkAddress::parse).transpose()?;
        let (index, protocol) = match to {
            Some(to) => (to.interface, to.protocol),
            None => {
                let wants = self.core.wants.now();
                (wants.interface(), wants.protocol())
            }
        };
        let interface = interface::by_index(index).ok_or(Errno::ENXIO)?;
        if !interface.is_up() {
            return Err(Errno::ENETDOWN);
        }
        self.check()?;
        let stamping = self.core.common.stamping_of(control)?;
        let way = Way { interface, to, protocol, nonblocking, stamping };
        if let Some(sent) = self.send_ring(&way) {
            return sent;
        }
        let given = memory.left();
        let length = usize::try_from(given).unwrap_or(usize::MAX);
        self.send_frame(&way, length, &mut |to| memory.read(to) == to.len())?;
        Ok(given)
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        // As under Linux, that is no flag here, and neither is MSG_WAITALL.
        Err(Errno::EINVAL)
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        if how.waits_for_all {
            return Err(Errno::EINVAL);
        }
        let room = memory.left() as usize;
        let message = self.take(memory, how, |message| *message)?;
        let length = message.length.min(room);
        let mut told = self.core.common.told(message.stamp, message.lost);
        told.more = self.more(&message);
        Ok(Received {
            length: if how.tells_length { message.length } else { length } as u64,
            flags: if length < message.length { net::MSG_TRUNC } else { 0 },
            from: message.from.of_frame(),
            told,
        })
    }

    fn read(&self, memory: &mut Memory, how: Reception) -> SysResult {
        let room = memory.left() as usize;
        let told = self.take(memory, how, |message| (message.stamp, message.length))?;
        let (stamp, length) = told;
        self.core.common.note(stamp);
        Ok(length.min(room) as u64)
    }

    fn receive_report(&self, memory: &mut Memory) -> Result<Received, Errno> {
        let length = self.core.common.errors.next_length().max(USUAL_LONGEST);
        with_buffer(length, |buffer| {
            let Taken { mut received, entry, .. } =
                self.core.common.receive_report(memory, buffer)?;
            received.told.more = Some(More::new(SOL_PACKET, REPORT, &entry.extended()));
            Ok(received)
        })
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        match level {
            net::SOL_SOCKET if name == net::SO_ERROR => {
                let lost = self.core.has_lost.swap(false, Ordering::Relaxed);
                if lost {
                    self.core.common.fail(Errno::ENETDOWN);
                }
                self.core.common.get(name)
            }
            net::SOL_SOCKET if name == net::SO_BINDTODEVICE => Ok(self.options.device()),
            net::SOL_SOCKET => self.core.common.get(name),
            SOL_PACKET => self.options.get(&self.core, name),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        match level {
            net::SOL_SOCKET if name == net::SO_BINDTODEVICE => self.options.set_device(value),
            net::SOL_SOCKET => {
                let set = |program| self.core.wants.set_filter(program);
                if let Some(done) = filter::set_option(&self.core.common, name, value, set) {
                    return done;
                }
                self.core.common.set(name, value)?;
                self.core.common.prepare_reports()?;
                let resizes = matches!(name, net::SO_RCVBUF | net::SO_RCVBUFFORCE);
                if resizes { self.resize() } else { Ok(()) }
            }
            SOL_PACKET => self.options.set(&self.core, name, value),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        match request {
            SIOCINQ => {
                let length = self.core.kept.lock().next_length().unwrap_or(0);
                user::write_u32(argument, length as u32)?;
                Ok(0)
            }
            // Nothing waits here to be sent.
            SIOCOUTQ => user::write_u32(argument, 0).map(|()| 0).map_err(Errno::from),
            _ => self.core.common.asked(request, argument).unwrap_or(Err(Errno::ENOTTY)),
        }
    }

    fn filter(&self) -> Result<Vec<u8>, Errno> {
        Ok(self.core.wants.filter().map_or_else(Vec::new, |program| program.to_bytes()))
    }

    fn option_at(&self, level: u32, name: u32, at: UserAddr) -> Result<Vec<u8>, Errno> {
        match (level, name) {
            (SOL_PACKET, options::HEADER_LENGTH) => self.options.header_length(at),
            _ => self.option(level, name),
        }
    }

    fn map(&self, offset: u64, length: u64) -> Result<Arc<MemoryObject>, Errno> {
        if offset != 0 {
            return Err(Errno::EINVAL);
        }
        self.options.map(length)
    }

    fn interface(&self) -> Option<u32> {
        self.core.wants.now().only_interface()
    }

    fn ready(&self) -> Events {
        let readable = self.core.has_some();
        let mut events = Events::OUT | Events::WRITE_NORMAL | Events::WRITE_BAND;
        events.set(Events::IN | Events::READ_NORMAL, readable);
        events |= self.core.common.failures();
        if self.core.has_lost.load(Ordering::Relaxed) {
            events |= Events::ERROR;
        }
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.core.watchers
    }

    fn number(&self) -> u64 {
        self.core.number
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        if self.is_member.load(Ordering::Relaxed) {
            member::leave(&self.core);
        }
        // Not in the thread of an interface, which may have the last use of what frames reach.
        self.core.set_ring(None);
    }
}
