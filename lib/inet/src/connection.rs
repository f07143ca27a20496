// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of TCP.
//!
//! Each connection is an interface of the crate `smoltcp` with one socket, which gets the packets
//! that are meant for it and nothing else. So what one connection costs does not depend on others,
//! and connections need no common lock.

use alloc::{boxed::Box, vec, vec::Vec};
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::{
    iface::{Config, Interface, PollResult, SocketHandle, SocketSet, SocketStorage},
    phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::tcp::{self, CongestionControl, State},
    time::{Duration, Instant},
    wire::{
        HardwareAddress, IpAddress, IpCidr, Ipv4Cidr, Ipv4Packet, TcpOption, TcpPacket,
        TcpSeqNumber,
    },
};

use crate::packet::{ETHERNET, IP, LONGEST};

/// Bytes of the header of a segment without options.
const TCP: usize = 20;
/// Most bytes of a segment's data for an end that does not say how many it takes (RFC 9293, 3.7.1).
const USUAL_SEGMENT: usize = 536;

/// Fewest bytes of a buffer: a few segments.
pub const LEAST_BUFFER: usize = 8 << 10;
/// Fewest segments that find room in what is sent: the other end may wait for a second one before
/// it acknowledges, and for its timer if none comes.
const LEAST_SEGMENTS: usize = 4;
/// Most bytes of a buffer.
pub const MOST_BUFFER: usize = 512 << 10;
/// How often who takes nothing is asked at least whether it does again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long bytes wait for more at most, as under Linux: nanoseconds.
const LONGEST_HOLD: u64 = 200_000_000;
/// Most segments that are sent in one go.
pub const BURST: usize = 64;

/// Why a connection ended without its programs closing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The other end has nobody there.
    Refused,
    /// The other end has ended it.
    Reset,
    /// The other end does not answer any more.
    TimedOut,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It waits for one who asks.
    Listening,
    /// It has asked, or was asked, and is not there yet.
    Opening,
    /// It is there, or one of its directions is.
    Open,
    /// Both ends have closed it; late packets are awaited.
    Lingering,
    /// It is over, or has never been.
    Closed,
}

/// Takes a packet behind room for the header of a frame. The connection is locked meanwhile.
pub type Out<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A connection.
pub struct Connection {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    mtu: usize,
    /// Where a packet is made, behind room for the header of a frame.
    frame: Box<[u8]>,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
    failure: Option<Failure>,
    progress: Progress,
    /// How often the program wants it asked whether the other end is there.
    keep_alive: Option<Duration>,
    /// The program closes it (FIN), so that it ends by itself.
    is_closing: bool,
    /// Nothing that comes is wanted any more.
    is_deaf: bool,
    /// Short segments are sent at once (TCP_NODELAY).
    is_prompt: bool,
    /// Short segments wait until they are full (TCP_CORK).
    is_corked: bool,
    held: Held,
}

/// Bytes that wait for more: fewer than a segment has. `smoltcp` does not know of them.
struct Held {
    bytes: Box<[u8]>,
    length: usize,
    /// Since when there are any.
    since: u64,
}

/// How far it has sent, which `smoltcp` forgets when it sends something again.
///
/// Its acknowledgments then bear the number of what it sends again, and the other end takes them
/// for old ones. When both ends do that, neither hears the other any more. RFC 9293, 3.10.7.4,
/// wants SND.NXT in them.
#[derive(Default)]
struct Progress {
    /// The number behind all that was ever sent: SND.NXT.
    next: Option<TcpSeqNumber>,
    /// The number up to which the other end has everything: SND.UNA.
    acknowledged: Option<TcpSeqNumber>,
    /// The number up to which the other end was told that everything came: RCV.NXT.
    wanted: Option<TcpSeqNumber>,
    /// The number behind the last segment that was not a full one.
    short: Option<TcpSeqNumber>,
    /// Most bytes of data of a segment.
    full: usize,
    /// The other end takes nothing at the moment: it wants the number of what it lacks.
    is_shut: bool,
}

impl Progress {
    fn new(mtu: usize) -> Self {
        Self { full: mtu.saturating_sub(IP + TCP), ..Self::default() }
    }

    /// A packet comes to a socket in that state, in whose buffer so many bytes find room. Anybody
    /// may have made it up: what `smoltcp` does not take for a segment of the other end says
    /// nothing.
    fn hear(&mut self, packet: &[u8], state: State, room: usize) {
        let Ok(packet) = Ipv4Packet::new_checked(packet) else { return };
        let Ok(segment) = TcpPacket::new_checked(packet.payload()) else { return };
        let is_sound = match state {
            State::Closed => false,
            State::Listen => segment.syn() && !segment.ack(),
            State::SynSent => {
                let is_answer = self.next == Some(segment.ack_number());
                segment.syn() && (!segment.ack() || is_answer)
            }
            _ => !segment.syn() && segment.ack() && self.is_awaited(&segment, room),
        };
        if !is_sound || segment.rst() {
            return;
        }
        self.is_shut = segment.window_len() == 0;
        if segment.syn() {
            self.full = self.full.min(most_data(segment.options()));
        }
        if segment.ack() {
            self.acknowledged = Some(segment.ack_number());
        }
    }

    /// Whether a segment acknowledges what was sent, and lies where the other end may send. That is
    /// the whole buffer, of which `smoltcp` offers a part.
    fn is_awaited(&self, segment: &TcpPacket<&[u8]>, room: usize) -> bool {
        let number = segment.ack_number();
        let is_past = self.acknowledged.is_some_and(|last| number < last);
        if is_past || self.next.is_none_or(|next| number > next) {
            return false;
        }
        let begin = segment.seq_number();
        let end = begin + segment.payload().len();
        self.wanted.is_none_or(|wanted| {
            begin <= wanted + room && (wanted <= begin || wanted < end && end <= wanted + room)
        })
    }

    /// A packet is sent: notes its number, or corrects it if it only acknowledges.
    fn tell(&mut self, packet: &mut [u8]) {
        let Ok(mut packet) = Ipv4Packet::new_checked(packet) else { return };
        let ends = [packet.src_addr(), packet.dst_addr()].map(IpAddress::Ipv4);
        let Ok(mut segment) = TcpPacket::new_checked(packet.payload_mut()) else { return };
        let (number, length) = (segment.seq_number(), segment.segment_len());
        let data = length - usize::from(segment.syn()) - usize::from(segment.fin());
        if (1..self.full).contains(&data) {
            self.short = Some(number + length);
        }
        if segment.syn() {
            (self.acknowledged, self.short) = (Some(number), None);
        }
        if segment.ack() {
            self.wanted = Some(segment.ack_number());
        }
        match self.next {
            _ if segment.rst() => {}
            Some(next) if length == 0 && number < next && !self.is_shut => {
                segment.set_seq_number(next);
                segment.fill_checksum(&ends[0], &ends[1]);
            }
            Some(next) if !segment.syn() && number + length <= next => {}
            _ => self.next = Some(number + length),
        }
    }

    /// Whether a short segment may follow, with so many bytes that are not acknowledged or not
    /// sent: if it has all of them, and the other end has the last short one.
    ///
    /// That is what Linux does (`tcp_nagle_check`). To wait until everything is acknowledged
    /// (RFC 1122, 4.2.3.4), as `smoltcp` does, is to wait for the other end's timer if it
    /// acknowledges every second segment.
    fn permits_short(&self, queued: usize) -> bool {
        let (Some(next), Some(acknowledged)) = (self.next, self.acknowledged) else { return false };
        let under_way = if next > acknowledged { next - acknowledged } else { 0 };
        queued.saturating_sub(under_way) < self.full
            && self.short.is_none_or(|short| short <= acknowledged)
    }
}

/// Most bytes of data that an end takes in a segment, by the options of its first one.
fn most_data(mut options: &[u8]) -> usize {
    while !options.is_empty() {
        match TcpOption::parse(options) {
            Ok((_, TcpOption::MaxSegmentSize(most))) => return most.into(),
            Ok((rest, option)) if option != TcpOption::EndOfList => options = rest,
            _ => break,
        }
    }
    USUAL_SEGMENT
}

/// The way of packets through one call.
struct Wire<'a> {
    incoming: Option<&'a [u8]>,
    out: Out<'a>,
    progress: &'a mut Progress,
    mtu: usize,
    frame: &'a mut [u8],
}

struct Incoming<'a>(&'a [u8]);

struct Outgoing<'a> {
    out: &'a mut dyn FnMut(&mut [u8]),
    progress: &'a mut Progress,
    frame: &'a mut [u8],
}

impl Wire<'_> {
    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { out: &mut *self.out, progress: self.progress, frame: self.frame }
    }
}

impl Device for Wire<'_> {
    type RxToken<'a>
        = Incoming<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let packet = self.incoming.take()?;
        Some((Incoming(packet), self.outgoing()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        Some(self.outgoing())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, make: F) -> R {
        let end = self.frame.len().min(ETHERNET + length);
        let frame = &mut self.frame[..end];
        let result = make(&mut frame[ETHERNET..]);
        self.progress.tell(&mut frame[ETHERNET..]);
        (self.out)(frame);
        result
    }
}

/// So many zeros; `None` if there is no memory for them. A program chooses how many.
fn zeros(count: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).ok()?;
    bytes.resize(count, 0);
    Some(bytes)
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1000) as i64)
}

impl Connection {
    /// A connection that is nowhere yet. Allocates all that it ever has: both buffers, two frames,
    /// and some 2 KiB. `seed` is a number that nobody can guess. `None` if there is no memory for
    /// the buffers.
    pub fn new(mtu: usize, seed: u64, receive: usize, send: usize, now: u64) -> Option<Self> {
        let mtu = mtu.min(LONGEST - ETHERNET);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let (mut nothing, mut progress) = (|_: &mut [u8]| {}, Progress::new(mtu));
        let mut frame: Box<[u8]> = zeros(ETHERNET + mtu)?.into();
        let held = Held { bytes: zeros(mtu)?.into(), length: 0, since: 0 };
        let mut wire = Wire {
            incoming: None,
            out: &mut nothing,
            progress: &mut progress,
            mtu,
            frame: &mut frame,
        };
        let interface = Interface::new(config, &mut wire, instant(now));
        let buffer =
            |size: usize| zeros(size.clamp(LEAST_BUFFER, MOST_BUFFER)).map(tcp::SocketBuffer::new);
        let send = buffer(send.max(LEAST_SEGMENTS * mtu))?;
        let mut socket = tcp::Socket::new(buffer(receive)?, send);
        socket.set_congestion_control(CongestionControl::Reno);
        let mut sockets = SocketSet::new(vec![SocketStorage::EMPTY]);
        let handle = sockets.add(socket);
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Some(Self {
            interface,
            sockets,
            handle,
            mtu,
            frame,
            local: nowhere,
            remote: None,
            failure: None,
            progress,
            keep_alive: None,
            is_closing: false,
            is_deaf: false,
            is_prompt: false,
            is_corked: false,
            held,
        })
    }

    fn socket(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.handle)
    }

    fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn set_local(&mut self, local: SocketAddrV4) {
        self.local = local;
        // Every station is a neighbour: who is one is not this one's business.
        let own = IpCidr::Ipv4(Ipv4Cidr::new(*local.ip(), 0));
        self.interface.update_ip_addrs(|all| {
            all.clear();
            // There is room for two.
            let _ = all.push(own);
        });
    }

    /// Waits for one who asks for this port. Whatever was before is forgotten. The address is one
    /// station's.
    pub fn listen(&mut self, local: SocketAddrV4) {
        self.set_local(local);
        (self.remote, self.failure, self.held.length) = (None, None, 0);
        self.progress = Progress::new(self.mtu);
        let socket = self.socket_mut();
        socket.abort();
        // A port that is not 0 and a connection that is not open: it cannot fail.
        let _ = socket.listen((IpAddress::Ipv4(*local.ip()), local.port()));
    }

    /// Asks the other end for a connection. `false` if that is none. Both addresses are those of
    /// one station each.
    pub fn connect(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        self.set_local(local);
        (self.remote, self.failure, self.held.length) = (Some(remote), None, 0);
        self.progress = Progress::new(self.mtu);
        let Self { interface, sockets, handle, .. } = self;
        let socket = sockets.get_mut::<tcp::Socket>(*handle);
        socket.abort();
        let to = (IpAddress::Ipv4(*remote.ip()), remote.port());
        let from = (IpAddress::Ipv4(*local.ip()), local.port());
        socket.connect(interface.context(), to, from).is_ok()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.socket().state() {
            State::Closed => Phase::Closed,
            State::Listen => Phase::Listening,
            State::SynSent | State::SynReceived => Phase::Opening,
            State::TimeWait => Phase::Lingering,
            _ => Phase::Open,
        }
    }

    /// Its state, by Linux's number of it (`struct tcp_info`).
    pub fn state_number(&self) -> u8 {
        match self.socket().state() {
            State::Established => 1,
            State::SynSent => 2,
            State::SynReceived => 3,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::TimeWait => 6,
            State::Closed => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Listen => 10,
            State::Closing => 11,
        }
    }

    /// Its own end.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// The other end, once there is one.
    pub fn remote(&self) -> Option<SocketAddrV4> {
        self.remote
    }

    /// Why it ended, if it did by itself; told once.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// A packet came that is meant for it. `remote`: who sent it. `resets`: it is one that ends
    /// connections.
    pub fn receive(
        &mut self,
        packet: &[u8],
        remote: SocketAddrV4,
        resets: bool,
        now: u64,
        out: Out,
    ) {
        let (before, room) = (self.socket().state(), self.most_received());
        let progress = &mut self.progress;
        progress.hear(packet, before, room);
        let (mtu, frame) = (self.mtu, &mut *self.frame);
        let mut wire = Wire { incoming: Some(packet), out, progress, mtu, frame };
        self.interface.poll_ingress_single(instant(now), &mut wire, &mut self.sockets);
        let after = self.socket().state();
        if before == State::Listen && after == State::SynReceived {
            self.remote = Some(remote);
        }
        // Who was asked and did not want to is asked by the next one.
        if before == State::SynReceived && after == State::Listen {
            self.remote = None;
        }
        if after == State::Closed && before != State::Closed && resets {
            self.failure = match before {
                State::SynSent => Some(Failure::Refused),
                State::TimeWait | State::LastAck | State::Closing => None,
                _ => Some(Failure::Reset),
            };
        }
        if self.is_deaf {
            self.discard();
        }
        self.ask_who_is_shut();
        self.permit_short();
    }

    /// Has a short segment sent, or wait.
    fn permit_short(&mut self) {
        let queued = self.socket().send_queue();
        let is_permitted = self.is_prompt || self.progress.permits_short(queued);
        if self.socket().nagle_enabled() == is_permitted {
            self.socket_mut().set_nagle_enabled(!is_permitted);
        }
    }

    /// Asks an end that takes nothing, with bytes there for it, as one that is to be kept alive.
    ///
    /// `smoltcp` asks it by itself, but not when it has said so with bytes on their way to it: an
    /// acknowledgment that was overtaken does. When these bytes are to be sent again, it has no
    /// timer any more (its `Socket::dispatch`, after `should_retransmit`).
    fn ask_who_is_shut(&mut self) {
        let waits = self.progress.is_shut && self.socket().send_queue() > 0;
        let every = match self.keep_alive {
            every if !waits => every,
            Some(every) => Some(every.min(ASK_AGAIN)),
            None => Some(ASK_AGAIN),
        };
        if self.socket().keep_alive() != every {
            self.socket_mut().set_keep_alive(every);
        }
    }

    /// Sends what is due. Says whether more is, because it was too much for one go.
    pub fn send_due(&mut self, now: u64, out: Out) -> bool {
        if self.held.length > 0 && now >= self.held.since.saturating_add(LONGEST_HOLD) {
            self.release();
        }
        let before = self.socket().state();
        let mut left = BURST;
        while left > 0 {
            self.permit_short();
            let progress = &mut self.progress;
            let (mtu, frame) = (self.mtu, &mut *self.frame);
            let mut wire = Wire { incoming: None, out: &mut *out, progress, mtu, frame };
            let sent = self.interface.poll_egress(instant(now), &mut wire, &mut self.sockets);
            if sent != PollResult::SocketStateChanged {
                break;
            }
            left -= 1;
        }
        let after = self.socket().state();
        let has_ended = before != State::Closed && after == State::Closed;
        if has_ended && before != State::TimeWait && before != State::LastAck {
            self.failure = Some(Failure::TimedOut);
        }
        left == 0
    }

    /// When [`send_due`](Self::send_due) is to be called next.
    pub fn due(&mut self, now: u64) -> Option<u64> {
        let at = self.interface.poll_at(instant(now), &self.sockets);
        let at = at.map(|at| (at.total_micros() as u64).saturating_mul(1000));
        let release = (self.held.length > 0).then(|| self.held.since.saturating_add(LONGEST_HOLD));
        at.into_iter().chain(release).min().map(|at| at.max(now))
    }

    /// Takes bytes to be sent; returns how many. If `more` follow, or the program has said that
    /// short segments wait, what is no full segment waits.
    pub fn write(&mut self, bytes: &[u8], more: bool, now: u64) -> usize {
        if !more && !self.is_corked {
            self.release();
            let taken = self.socket_mut().send_slice(bytes).unwrap_or(0);
            self.permit_short();
            return taken;
        }
        if !self.may_send() {
            return 0;
        }
        let bytes = &bytes[..bytes.len().min(self.room())];
        let full = self.progress.full.clamp(1, self.held.bytes.len());
        let whole = (self.held.length + bytes.len()) / full * full;
        let (now_sent, rest) = match whole.checked_sub(self.held.length) {
            Some(first) if whole > 0 => bytes.split_at(first),
            _ => (&bytes[..0], bytes),
        };
        if whole > 0 {
            self.release();
            // There is room for all.
            let _ = self.socket_mut().send_slice(now_sent);
            self.permit_short();
        }
        if self.held.length == 0 {
            self.held.since = now;
        }
        let end = self.held.length + rest.len();
        self.held.bytes[self.held.length..end].copy_from_slice(rest);
        self.held.length = end;
        bytes.len()
    }

    /// What waits for more waits no longer.
    pub fn release(&mut self) {
        let length = core::mem::take(&mut self.held.length);
        if length > 0 {
            let Self { sockets, handle, held, .. } = self;
            let socket = sockets.get_mut::<tcp::Socket>(*handle);
            // There is room for it.
            let _ = socket.send_slice(&held.bytes[..length]);
            self.permit_short();
        }
    }

    /// Short segments wait until they are full (TCP_CORK).
    pub fn set_corked(&mut self, on: bool) {
        if core::mem::replace(&mut self.is_corked, on) && !on {
            self.release();
        }
    }

    /// Copies bytes that came, without taking them; returns how many.
    pub fn peek(&mut self, to: &mut [u8]) -> usize {
        self.socket_mut().peek_slice(to).unwrap_or(0)
    }

    /// Takes bytes that came.
    pub fn take(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let taken = self.socket_mut().recv(|bytes| {
                let taken = bytes.len().min(left);
                (taken, taken)
            });
            match taken {
                Ok(taken) if taken > 0 => left -= taken,
                _ => return,
            }
        }
    }

    fn discard(&mut self) {
        let there = self.socket().recv_queue();
        self.take(there);
    }

    /// Bytes that came and were not taken.
    pub fn received(&self) -> usize {
        self.socket().recv_queue()
    }

    /// How many such bytes there can be.
    pub fn most_received(&self) -> usize {
        self.socket().recv_capacity()
    }

    /// Bytes that were not sent, or not acknowledged.
    pub fn unsent(&self) -> usize {
        self.socket().send_queue() + self.held.length
    }

    /// Room for bytes to be sent.
    pub fn room(&self) -> usize {
        self.socket().send_capacity() - self.unsent()
    }

    /// Whether bytes may still come.
    pub fn may_receive(&self) -> bool {
        self.socket().may_recv() && !self.is_deaf
    }

    /// Whether the other end sends no more, or nobody wants what it sends. What came before may
    /// wait still.
    pub fn has_heard_all(&self) -> bool {
        let is_open = matches!(
            self.socket().state(),
            State::SynSent
                | State::SynReceived
                | State::Listen
                | State::Established
                | State::FinWait1
                | State::FinWait2
        );
        !is_open || self.is_deaf
    }

    /// Whether bytes may still be sent.
    pub fn may_send(&self) -> bool {
        self.socket().may_send()
    }

    /// Nothing more is sent from here (FIN).
    pub fn close(&mut self) {
        self.is_closing = true;
        self.release();
        self.socket_mut().close();
    }

    /// Whether it was [closed](Self::close).
    pub fn is_closed(&self) -> bool {
        self.is_closing
    }

    /// What comes from now on is thrown away.
    pub fn refuse(&mut self) {
        self.is_deaf = true;
        self.discard();
    }

    /// Ends it at once: the other end is told (RST).
    pub fn abort(&mut self) {
        self.is_closing = true;
        self.socket_mut().abort();
    }

    /// Short segments are sent at once (TCP_NODELAY).
    pub fn set_prompt(&mut self, on: bool) {
        self.is_prompt = on;
        self.permit_short();
    }

    /// Asks whether the other end is there, each time that nothing came for so many nanoseconds.
    pub fn set_keep_alive(&mut self, every: Option<u64>) {
        self.keep_alive = every.map(|every| Duration::from_micros(every / 1000));
        self.ask_who_is_shut();
    }

    /// It ends when the other end says nothing for so many nanoseconds although it should.
    pub fn set_patience(&mut self, patience: Option<u64>) {
        let patience = patience.map(|patience| Duration::from_micros(patience / 1000));
        self.socket_mut().set_timeout(patience);
    }

    /// How many routers its packets may pass; 0 counts as 1.
    pub fn set_lifetime(&mut self, lifetime: u8) {
        self.socket_mut().set_hop_limit(Some(lifetime.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{self, Header, Protocol};
    use proptest::prelude::*;
    use std::{boxed::Box, vec::Vec};

    const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 4000);
    const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 80);
    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MILLISECOND;

    /// What becomes of a packet on its way.
    #[derive(Clone, Copy, Debug)]
    enum Fate {
        Arrives,
        Lost,
        Twice,
        /// So many milliseconds later, so that others overtake it.
        Late(u64),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            6 => Just(Fate::Arrives),
            1 => Just(Fate::Lost),
            1 => Just(Fate::Twice),
            1 => (1u64..60).prop_map(Fate::Late),
        ]
    }

    /// Two ends, and packets on their way between them.
    struct Line {
        ends: [Connection; 2],
        /// When a packet arrives, at which end, and the packet.
        under_way: Vec<(u64, usize, Box<[u8]>)>,
        fates: Vec<Fate>,
        sent: usize,
        now: u64,
    }

    impl Line {
        fn new(fates: Vec<Fate>) -> Self {
            let end = |seed| Connection::new(1500, seed, 16 << 10, 16 << 10, 0).unwrap();
            let mut ends = [end(1), end(2)];
            ends[1].listen(THERE);
            assert!(ends[0].connect(HERE, THERE));
            Self { ends, under_way: Vec::new(), fates, sent: 0, now: 0 }
        }

        fn send(&mut self, to: usize, packets: Vec<Box<[u8]>>) {
            for packet in packets {
                let fate = match self.fates.is_empty() {
                    true => Fate::Arrives,
                    false => self.fates[self.sent % self.fates.len()],
                };
                self.sent += 1;
                let soon = self.now + MILLISECOND;
                match fate {
                    Fate::Arrives => self.under_way.push((soon, to, packet)),
                    Fate::Lost => {}
                    Fate::Twice => {
                        self.under_way.push((soon, to, packet.clone()));
                        self.under_way.push((soon + 3 * MILLISECOND, to, packet));
                    }
                    Fate::Late(by) => self.under_way.push((soon + by * MILLISECOND, to, packet)),
                }
            }
        }

        /// Goes on to the next event, at most until then. `false` if there is none.
        fn step(&mut self) -> bool {
            for end in 0..2 {
                let mut packets = Vec::new();
                let mut out = |frame: &mut [u8]| packets.push(Box::from(&frame[ETHERNET..]));
                self.ends[end].send_due(self.now, &mut out);
                self.send(1 - end, packets);
            }
            let arrival = self.under_way.iter().map(|packet| packet.0).min();
            let due = |end: &mut Connection| end.due(self.now);
            let timers = self.ends.iter_mut().filter_map(due).min();
            let Some(next) = arrival.into_iter().chain(timers).min() else { return false };
            self.now = next.max(self.now);
            while let Some(at) = self.under_way.iter().position(|packet| packet.0 <= self.now) {
                let (_, end, bytes) = self.under_way.remove(at);
                let packet = packet::parse_packet(&bytes).unwrap();
                let segment =
                    packet::parse_segment(packet.payload, packet.source, packet.destination)
                        .unwrap();
                let remote = SocketAddrV4::new(packet.source, segment.source);
                let mut packets = Vec::new();
                let mut out = |frame: &mut [u8]| packets.push(Box::from(&frame[ETHERNET..]));
                self.ends[end].receive(&bytes, remote, segment.resets, self.now, &mut out);
                self.send(1 - end, packets);
            }
            true
        }

        fn take(&mut self, end: usize) -> Vec<u8> {
            let mut all = std::vec![0; self.ends[end].received()];
            let mut done = 0;
            while done < all.len() {
                let got = self.ends[end].peek(&mut all[done..]);
                self.ends[end].take(got);
                done += got;
            }
            all
        }
    }

    /// Moves bytes both ways, and closes both ends.
    fn transfer(fates: Vec<Fate>, there: &[u8], back: &[u8]) -> (Line, Vec<u8>, Vec<u8>) {
        let mut line = Line::new(fates);
        let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
        let data = [there, back];
        for _ in 0..20_000 {
            if !line.step() {
                break;
            }
            for end in 0..2 {
                let bytes = line.take(end);
                got[end].extend(bytes);
                if line.ends[end].may_send() && !line.ends[end].is_closed() {
                    sent[end] += line.ends[end].write(&data[end][sent[end]..], false, 0);
                    if sent[end] == data[end].len() {
                        line.ends[end].close();
                    }
                }
            }
        }
        let [back, there] = got;
        (line, there, back)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_go_both_ways() {
        let (a, b) = (bytes(200_000), bytes(70_000));
        let (mut line, there, back) = transfer(Vec::new(), &a, &b);
        assert!(there == a && back == b);
        for end in &mut line.ends {
            assert_eq!((end.phase(), end.take_failure()), (Phase::Closed, None));
        }
    }

    #[test]
    fn the_end_is_heard_of_before_all_is_taken() {
        let mut line = Line::new(Vec::new());
        while line.ends.iter().any(|end| end.phase() != Phase::Open) {
            assert!(!line.ends[0].has_heard_all() && line.step());
        }
        assert_eq!(line.ends[0].write(b"hello", false, 0), 5);
        line.ends[0].close();
        while !line.ends[1].has_heard_all() {
            assert!(line.step());
        }
        let end = &mut line.ends[1];
        assert!(end.received() == 5 && end.may_receive() && end.may_send());
        assert!(!line.ends[0].has_heard_all());
        assert_eq!(line.take(1), b"hello");
        assert!(line.ends[1].has_heard_all() && !line.ends[1].may_receive());
        line.ends[1].close();
        while !line.ends[0].has_heard_all() {
            assert!(line.step());
        }
    }

    /// Both ends lose all acknowledgments, and send again what the other one has.
    #[test]
    fn both_ends_send_again_what_has_arrived() {
        use Fate::*;
        let first = [Twice, Arrives, Twice, Arrives, Arrives, Late(1)];
        let fates = [&first[..], &[Arrives; 6], &[Lost; 3], &[Arrives; 7]].concat();
        let (a, b) = (bytes(4969), bytes(17845));
        let (_, there, back) = transfer(fates, &a, &b);
        assert!(there == a && back == b, "{} and {} bytes", there.len(), back.len());
    }

    /// Who sends hears from an acknowledgment that was overtaken that nothing is taken, and the
    /// later ones are lost.
    #[test]
    fn an_old_word_that_nothing_is_taken() {
        use Fate::*;
        let first = [Arrives, Arrives, Arrives, Lost, Twice, Twice, Arrives, Arrives, Arrives];
        let then = [Lost, Lost, Late(20), Late(22), Arrives, Late(2), Arrives, Arrives, Lost];
        let fates = [&first[..], &then, &[Arrives; 7]].concat();
        let (a, b) = (bytes(49153), bytes(52073));
        let (_, there, back) = transfer(fates, &a, &b);
        assert!(there == a && back == b, "{} and {} bytes", there.len(), back.len());
    }

    /// The other end acknowledges one segment late, and has all before that nevertheless.
    #[test]
    fn the_rest_of_a_message_does_not_wait() {
        let mut line = Line::new(Vec::new());
        while line.ends[1].phase() != Phase::Open {
            assert!(line.step());
        }
        for length in [1, 1460, 1461, 2000, 2920, 4000] {
            let (message, begin, mut got) = (bytes(length), line.now, Vec::new());
            assert_eq!(line.ends[0].write(&message, false, 0), length);
            while got.len() < length {
                assert!(line.step());
                got.extend(line.take(1));
            }
            assert!(got == message);
            let took = line.now - begin;
            assert!(took <= 2 * MILLISECOND, "{length} bytes took {took} ns");
            // All is acknowledged before the next one.
            while line.ends[0].unsent() > 0 {
                assert!(line.step());
            }
        }
    }

    /// Many short writes make few segments.
    #[test]
    fn one_short_segment_is_under_way() {
        for (prompt, most) in [(false, 3), (true, 100)] {
            let mut line = Line::new(Vec::new());
            line.ends[0].set_prompt(prompt);
            while line.ends[1].phase() != Phase::Open {
                assert!(line.step());
            }
            let before = line.sent;
            for _ in 0..100 {
                assert_eq!(line.ends[0].write(b"x", false, 0), 1);
                let mut packets = Vec::new();
                let mut out = |frame: &mut [u8]| packets.push(Box::from(&frame[ETHERNET..]));
                line.ends[0].send_due(line.now, &mut out);
                line.send(1, packets);
            }
            let sent = line.sent - before;
            assert!((1..=most).contains(&sent) && (sent == most) == prompt, "{sent}");
        }
    }

    /// What is no full segment waits for more, but not for ever, and goes before the end.
    #[test]
    fn short_segments_wait() {
        let mut line = Line::new(Vec::new());
        while line.ends[1].phase() != Phase::Open {
            assert!(line.step());
        }
        let (message, mut got) = (bytes(4000), Vec::new());
        line.ends[0].set_corked(true);
        let begin = line.now;
        for part in message[..3000].chunks(100) {
            assert_eq!(line.ends[0].write(part, false, line.now), 100);
        }
        assert_eq!(line.ends[0].unsent(), 3000);
        while line.now < begin + 100 * MILLISECOND && line.step() {
            got.extend(line.take(1));
        }
        assert_eq!(got.len(), 2920, "two full ones");
        while got.len() < 3000 {
            assert!(line.step());
            got.extend(line.take(1));
        }
        assert!(line.now >= begin + 200 * MILLISECOND && line.now < begin + 300 * MILLISECOND);
        // It waits no longer when the program says so.
        let begin = line.now;
        line.ends[0].write(&message[3000..3500], false, line.now);
        line.ends[0].set_corked(false);
        while got.len() < 3500 {
            assert!(line.step());
            got.extend(line.take(1));
        }
        // What follows takes along what has waited for it.
        line.ends[0].write(&message[3500..3600], true, line.now);
        line.ends[0].write(&message[3600..3700], false, line.now);
        while got.len() < 3700 {
            assert!(line.step());
            got.extend(line.take(1));
        }
        assert!(line.now < begin + 100 * MILLISECOND);
        line.ends[0].write(&message[3700..], true, line.now);
        line.ends[0].close();
        (0..100).all(|_| line.step());
        got.extend(line.take(1));
        assert!(got == message && line.now < begin + 100 * MILLISECOND);
    }

    /// The header of a packet that says that the other end has sent it.
    fn header_from_there() -> Header {
        Header {
            source: *THERE.ip(),
            destination: *HERE.ip(),
            protocol: Protocol::Tcp,
            lifetime: 64,
            service: 0,
            number: 1,
            offset: 0,
            has_more: false,
            is_whole: true,
        }
    }

    /// A segment that says that the other end has sent it.
    fn made_up(number: u32, acknowledges: u32, flags: u8, window: u16, options: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![0; ETHERNET + IP];
        frame.extend([0, 80, 0x0f, 0xa0]);
        frame.extend([number.to_be_bytes(), acknowledges.to_be_bytes()].concat());
        frame.extend([(((TCP + options.len()) / 4) << 4) as u8, flags]);
        frame.extend(window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(options);
        let segment = &mut frame[ETHERNET + IP..];
        packet::fill_segment(segment, *THERE.ip(), *HERE.ip());
        let length = frame.len() - ETHERNET - IP;
        packet::write_header(&mut frame, &header_from_there(), length);
        frame.split_off(ETHERNET)
    }

    /// Who does not know the numbers of a connection has it send nothing, however short what waits
    /// is, and does not have it ask.
    #[test]
    fn made_up_segments_say_nothing() {
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        let mut line = Line::new(Vec::new());
        while line.ends[1].phase() != Phase::Open {
            assert!(line.step());
        }
        let (own, now) = (&mut line.ends[0], line.now);
        let mut sent = Vec::new();
        let mut send = |own: &mut Connection| {
            own.send_due(now, &mut |frame: &mut [u8]| {
                let packet = packet::parse_packet(&frame[ETHERNET..]).unwrap();
                sent.push(TcpPacket::new_checked(packet.payload).unwrap().payload().to_vec());
            });
            sent.concat()
        };
        own.write(b"a", false, now);
        assert_eq!(send(own), b"a");
        own.write(b"b", false, now);
        let next = own.progress.next.unwrap().0 as u32;
        let wanted = own.progress.wanted.unwrap().0 as u32;
        for distance in [1 << 20, 1 << 30, 3 << 30, 0_u32.wrapping_sub(2)] {
            let number = wanted.wrapping_add(distance);
            let all = [
                made_up(number, next, ACK, 1000, &[]),
                made_up(number, next, ACK, 0, &[]),
                made_up(wanted, next.wrapping_add(distance), ACK, 0, &[]),
                made_up(number, next, SYN | ACK, 0, &[2, 4, 0, 100]),
                made_up(number, 0, SYN, 0, &[2, 4, 0, 100]),
                made_up(number, 0, 4, 0, &[]),
            ];
            for segment in all {
                own.receive(&segment, THERE, segment[33] & 4 != 0, now, &mut |_| {});
                assert_eq!(send(own), b"a");
                assert_eq!((own.socket().keep_alive(), own.progress.full), (None, 1460));
            }
        }
        let sound = made_up(wanted, next, ACK, 1000, &[]);
        own.receive(&sound, THERE, false, now, &mut |_| {});
        assert_eq!(send(own), b"ab");
    }

    #[test]
    fn an_end_that_is_reset() {
        let mut line = Line::new(Vec::new());
        (0..100).all(|_| line.step());
        assert_eq!(line.ends[1].remote(), Some(HERE));
        line.ends[1].abort();
        (0..100).all(|_| line.step());
        assert_eq!(line.ends[0].take_failure(), Some(Failure::Reset));
        assert_eq!(line.ends[0].phase(), Phase::Closed);
    }

    #[test]
    fn an_end_that_does_not_answer() {
        let mut line = Line::new(std::vec![Fate::Lost]);
        line.ends[0].set_patience(Some(20 * SECOND));
        (0..1000).all(|_| line.step() && line.now < 100 * SECOND);
        assert_eq!(line.ends[0].take_failure(), Some(Failure::TimedOut));
        assert!((20 * SECOND..60 * SECOND).contains(&line.now));
    }

    #[test]
    fn a_listener_is_used_again() {
        let mut line = Line::new(Vec::new());
        line.step();
        line.step();
        line.ends[1].listen(THERE);
        assert_eq!((line.ends[1].phase(), line.ends[1].remote()), (Phase::Listening, None));
        line.under_way.clear();
        assert!(line.ends[0].connect(HERE, THERE));
        (0..100).all(|_| line.step());
        assert_eq!(line.ends.map(|end| end.phase()), [Phase::Open; 2]);
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..80)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn nothing_is_lost_doubled_or_swapped(
            fates in prop::collection::vec(fate(), 3..60),
            there in 1usize..60_000,
            back in 1usize..60_000,
        ) {
            // Not all of them are lost.
            let mut fates = fates;
            fates.extend([Fate::Arrives; 7]);
            let (a, b) = (bytes(there), bytes(back));
            let (_, there, back) = transfer(fates, &a, &b);
            prop_assert!(there == a, "{} of {}", there.len(), a.len());
            prop_assert!(back == b, "{} of {}", back.len(), b.len());
        }

        /// What a peer makes up, with sound checksums and the right ports, harms nothing.
        #[test]
        fn hostile_segments(
            segments in prop::collection::vec(
                (any::<[u8; 20]>(), any_bytes(), 0u64..3000, any::<bool>()),
                1..80,
            ),
            listens in any::<bool>(),
        ) {
            let mut own = Connection::new(1500, 7, 8 << 10, 8 << 10, 0).unwrap();
            match listens {
                true => own.listen(HERE),
                false => assert!(own.connect(HERE, THERE)),
            }
            let mut now = 0;
            let mut last = [0; 4];
            for (header, rest, time, is_near) in segments {
                now += time * MILLISECOND;
                let mut acknowledged = last;
                let mut out = |frame: &mut [u8]| {
                    acknowledged.copy_from_slice(&frame[ETHERNET + 24..ETHERNET + 28]);
                };
                own.send_due(now, &mut out);
                let mut frame = std::vec![0; ETHERNET + 20];
                frame.extend(header);
                frame.extend(&rest);
                let tcp = &mut frame[ETHERNET + 20..];
                tcp[..4].copy_from_slice(&[0, 80, 0x0f, 0xa0]);
                if is_near {
                    let next = u32::from_be_bytes(acknowledged).wrapping_add(1);
                    tcp[8..12].copy_from_slice(&next.to_be_bytes());
                }
                let most = (20 + rest.len()) / 4;
                tcp[12] = ((5 + usize::from(tcp[12]) % 11).min(most).min(15) as u8) << 4;
                let length = tcp.len();
                let mut segment = smoltcp::wire::TcpPacket::new_unchecked(&mut *tcp);
                segment.fill_checksum(
                    &IpAddress::Ipv4(*THERE.ip()),
                    &IpAddress::Ipv4(*HERE.ip()),
                );
                packet::write_header(&mut frame, &header_from_there(), length);
                let mut out = |frame: &mut [u8]| {
                    last.copy_from_slice(&frame[ETHERNET + 24..ETHERNET + 28]);
                };
                let resets = frame[ETHERNET + 20 + 13] & 4 != 0;
                own.receive(&frame[ETHERNET..], THERE, resets, now, &mut out);
                own.write(&[1; 3000], is_near, now);
                own.send_due(now, &mut |_| {});
                let mut to = [0; 100];
                let got = own.peek(&mut to);
                own.take(got);
                own.due(now);
            }
        }
    }
}
