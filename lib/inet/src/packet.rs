// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames and packets: taken apart, checked, and made.
//!
//! A packet that is made lies in a frame behind room for the header of Ethernet, so that nothing is
//! copied on the way down.

use alloc::{vec, vec::Vec};
use core::net::Ipv4Addr;

use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
        Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, IpAddress, IpProtocol,
        Ipv4Packet, TcpPacket, UdpPacket, checksum,
    },
};

/// Bytes of the header of a frame.
pub const ETHERNET: usize = 14;
/// Bytes of the header of a packet that is made here: it has no options.
pub const IP: usize = 20;
/// Bytes of the header of a datagram of UDP.
pub const UDP: usize = 8;
/// Most bytes of a frame.
pub const LONGEST: usize = ETHERNET + 9000;
/// Most bytes of one where there are no jumbo frames.
pub const USUAL: usize = ETHERNET + 1500;
/// Most bytes of data of a datagram.
pub const MOST_DATA: usize = 65535 - IP - UDP;
/// What packets begin with that nobody has set otherwise: how many routers they may pass.
pub const LIFETIME: u8 = 64;

/// The address of a station.
pub type Station = [u8; 6];

/// A protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP.
    Icmp,
    /// IGMP.
    Igmp,
    /// Another one, by its number.
    Other(u8),
}

impl Protocol {
    /// The one of a number (IPPROTO_*).
    pub fn of(number: u8) -> Self {
        match IpProtocol::from(number) {
            IpProtocol::Udp => Self::Udp,
            IpProtocol::Tcp => Self::Tcp,
            IpProtocol::Icmp => Self::Icmp,
            IpProtocol::Igmp => Self::Igmp,
            _ => Self::Other(number),
        }
    }
}

impl From<Protocol> for IpProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Udp => Self::Udp,
            Protocol::Tcp => Self::Tcp,
            Protocol::Icmp => Self::Icmp,
            Protocol::Igmp => Self::Igmp,
            Protocol::Other(number) => Self::from(number),
        }
    }
}

/// A frame that came.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A station asks for an address, or answers.
    Arp(Arp),
    /// A packet.
    Ip(Packet<'a>),
}

/// A question for the station with an address, or the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// It asks.
    pub asks: bool,
    /// Who sends it.
    pub sender: (Ipv4Addr, Station),
    /// The address that is asked for, or who is answered.
    pub target: Ipv4Addr,
}

/// A packet whose header is sound.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Where it comes from.
    pub source: Ipv4Addr,
    /// Where it goes.
    pub destination: Ipv4Addr,
    /// What is in it.
    pub protocol: Protocol,
    /// How many routers it may still pass.
    pub lifetime: u8,
    /// The type of service: DSCP and ECN.
    pub service: u8,
    /// Its number, by which its fragments belong together.
    pub number: u16,
    /// Where this fragment begins in the whole.
    pub offset: usize,
    /// Further fragments follow.
    pub has_more: bool,
    /// What is in it.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// Whether it is only a part.
    pub fn is_fragment(&self) -> bool {
        self.has_more || self.offset > 0
    }

    /// The header of the whole of which it is a part.
    pub fn whole(&self) -> Header {
        Header {
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            lifetime: self.lifetime,
            service: self.service,
            number: self.number,
            offset: 0,
            has_more: false,
            is_whole: false,
        }
    }
}

/// Whether that can be the address of one station.
pub fn is_unicast(address: Ipv4Addr) -> bool {
    !(address.is_broadcast() || address.is_multicast() || address.is_unspecified())
}

/// For whom a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whom {
    /// This station.
    This,
    /// Several stations.
    Several,
    /// Another one.
    Another,
}

/// For whom a frame is, where the station is `own`.
pub fn whom(frame: &[u8], own: Station) -> Whom {
    match frame.first_chunk::<6>() {
        Some(to) if *to == own => Whom::This,
        Some(to) if to[0] & 1 != 0 => Whom::Several,
        _ => Whom::Another,
    }
}

/// The protocols of the frames that [`parse`] takes apart.
pub const PROTOCOLS: [u16; 2] = [0x0800, 0x0806];

/// Takes a frame apart. `None` if it is of another protocol, or not sound.
pub fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Arp => parse_arp(frame.payload()).map(Frame::Arp),
        EthernetProtocol::Ipv4 => parse_packet(frame.payload()).map(Frame::Ip),
        _ => None,
    }
}

fn parse_arp(bytes: &[u8]) -> Option<Arp> {
    let packet = ArpPacket::new_checked(bytes).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let asks = match operation {
        ArpOperation::Request => true,
        ArpOperation::Reply => false,
        ArpOperation::Unknown(_) => return None,
    };
    if !source_hardware_addr.is_unicast() {
        return None;
    }
    let sender = (source_protocol_addr, source_hardware_addr.0);
    Some(Arp { asks, sender, target: target_protocol_addr })
}

/// Takes a packet apart; what follows it is no part of it.
pub fn parse_packet(bytes: &[u8]) -> Option<Packet<'_>> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    let header = usize::from(packet.header_len());
    let whole = usize::from(packet.total_len());
    if packet.version() != 4 || header < IP || whole < header || !packet.verify_checksum() {
        return None;
    }
    let source = packet.src_addr();
    // The source is one station. Nothing that comes for an address of its own comes from nobody.
    if !is_unicast(source) || source.is_loopback() {
        return None;
    }
    let protocol = Protocol::of(packet.next_header().into());
    let bytes = bytes.get(..whole)?;
    Some(Packet {
        bytes,
        source,
        destination: packet.dst_addr(),
        protocol,
        lifetime: packet.hop_limit(),
        service: packet.dscp() << 2 | packet.ecn(),
        number: packet.ident(),
        offset: usize::from(packet.frag_offset()),
        has_more: packet.more_frags(),
        payload: bytes.get(header..)?,
    })
}

/// A datagram of UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The sender's port; 0 if it wants no answer.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The data.
    pub data: &'a [u8],
}

/// Takes a datagram apart that one of these addresses has sent to the other.
pub fn parse_datagram(
    payload: &[u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
) -> Option<Datagram<'_>> {
    let udp = UdpPacket::new_checked(payload).ok()?;
    if usize::from(udp.len()) < UDP || udp.dst_port() == 0 {
        return None;
    }
    if !udp.verify_checksum(&IpAddress::Ipv4(source), &IpAddress::Ipv4(destination)) {
        return None;
    }
    Some(Datagram { source: udp.src_port(), destination: udp.dst_port(), data: udp.payload() })
}

/// What of a segment of TCP says whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// It asks for a connection: SYN alone.
    pub opens: bool,
    /// It ends one at once: RST.
    pub resets: bool,
}

/// Looks at a segment that one of these addresses has sent to the other.
pub fn parse_segment(payload: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> Option<Segment> {
    let tcp = TcpPacket::new_checked(payload).ok()?;
    if tcp.src_port() == 0 || tcp.dst_port() == 0 {
        return None;
    }
    if !tcp.verify_checksum(&IpAddress::Ipv4(source), &IpAddress::Ipv4(destination)) {
        return None;
    }
    Some(Segment {
        source: tcp.src_port(),
        destination: tcp.dst_port(),
        opens: tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin(),
        resets: tcp.rst(),
    })
}

/// Writes the checksum of a segment with its header.
pub fn fill_segment(segment: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr) {
    if let Ok(mut tcp) = TcpPacket::new_checked(segment) {
        tcp.fill_checksum(&IpAddress::Ipv4(source), &IpAddress::Ipv4(destination));
    }
}

/// What a message of ICMP tells of a packet that did not reach its destination (RFC 792).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// The type of the message: [`Self::DESTINATION`], [`Self::TIME`] or [`Self::PARAMETER`].
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Of a packet that is too long, the most bytes of one that is not; of one with an unsound
    /// header, where that is.
    pub info: u32,
}

impl Unreachable {
    /// There is no way to where it was sent.
    pub const DESTINATION: u8 = 3;
    /// It was under way for too long.
    pub const TIME: u8 = 11;
    /// Its header is not sound.
    pub const PARAMETER: u8 = 12;
    /// Codes of [`Self::DESTINATION`]: nobody has that port; it must not be cut.
    pub const PORT: u8 = 3;
    /// See [`Self::PORT`].
    pub const TOO_LONG: u8 = 4;
    /// There is no such station.
    pub const HOST: Self = Self { kind: Self::DESTINATION, code: 1, info: 0 };
}

/// The beginning of a packet that was sent from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returned<'a> {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its source, with the port of a protocol that has ports.
    pub source: (Ipv4Addr, u16),
    /// Its destination, likewise.
    pub destination: (Ipv4Addr, u16),
    /// The beginning of what is in it: eight bytes at least.
    pub payload: &'a [u8],
}

/// What a message of ICMP is to who gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmp<'a> {
    /// Somebody asks whether the station is there: that is to be sent back.
    Echo {
        /// Numbers of the question.
        ident: u16,
        /// Likewise.
        sequence: u16,
        /// Its data.
        data: &'a [u8],
    },
    /// A packet of this station did not arrive.
    Unreachable(Unreachable, Returned<'a>),
}

/// Takes a message of ICMP apart.
pub fn parse_icmp(payload: &[u8]) -> Option<Icmp<'_>> {
    let packet = Icmpv4Packet::new_checked(payload).ok()?;
    if !packet.verify_checksum() {
        return None;
    }
    let (kind, code) = (u8::from(packet.msg_type()), packet.msg_code());
    // What the type and the code say more about.
    let more = payload.get(4..8)?;
    let info = match (kind, code) {
        _ if packet.msg_type() == Icmpv4Message::EchoRequest => {
            return Some(Icmp::Echo {
                ident: packet.echo_ident(),
                sequence: packet.echo_seq_no(),
                data: packet.data(),
            });
        }
        (Unreachable::DESTINATION, Unreachable::TOO_LONG) => {
            u16::from_be_bytes([more[2], more[3]]).into()
        }
        (Unreachable::PARAMETER, _) => more[0].into(),
        (Unreachable::DESTINATION | Unreachable::TIME, _) => 0,
        _ => return None,
    };
    let why = Unreachable { kind, code, info };
    Some(Icmp::Unreachable(why, returned(payload.get(8..)?)?))
}

/// Looks at the beginning of a packet that was sent from here.
pub fn returned(bytes: &[u8]) -> Option<Returned<'_>> {
    /// Bytes of it that have to be there, behind its header.
    const LEAST: usize = 8;
    let header = bytes.first_chunk::<IP>()?;
    let length = usize::from(header[0] & 15) * 4;
    let payload = bytes.get(length.max(IP)..)?;
    let ports = payload.first_chunk::<LEAST>()?;
    let protocol = Protocol::of(header[9]);
    let has_ports = matches!(protocol, Protocol::Udp | Protocol::Tcp);
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let port = |at: usize| match has_ports {
        true => u16::from_be_bytes([ports[at], ports[at + 1]]),
        false => 0,
    };
    let (source, destination) = ((address(12), port(0)), (address(16), port(2)));
    Some(Returned { protocol, source, destination, payload })
}

/// What the header of a packet says that is made here.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Where it comes from.
    pub source: Ipv4Addr,
    /// Where it goes.
    pub destination: Ipv4Addr,
    /// What is in it.
    pub protocol: Protocol,
    /// How many routers it may pass.
    pub lifetime: u8,
    /// DSCP and ECN.
    pub service: u8,
    /// Its number.
    pub number: u16,
    /// Where this fragment begins in the whole; a multiple of 8.
    pub offset: usize,
    /// Further fragments follow.
    pub has_more: bool,
    /// Nobody may cut it.
    pub is_whole: bool,
}

/// Writes the header of a packet with `length` bytes in it into a frame.
pub fn write_header(frame: &mut [u8], header: &Header, length: usize) {
    let Some(bytes) = frame.get_mut(ETHERNET..ETHERNET + IP) else { return };
    let mut packet = Ipv4Packet::new_unchecked(bytes);
    packet.set_version(4);
    packet.set_header_len(IP as u8);
    packet.set_dscp(header.service >> 2);
    packet.set_ecn(header.service & 3);
    packet.set_total_len((IP + length) as u16);
    packet.set_ident(header.number);
    packet.clear_flags();
    packet.set_dont_frag(header.is_whole);
    packet.set_more_frags(header.has_more);
    packet.set_frag_offset(header.offset as u16);
    packet.set_hop_limit(header.lifetime);
    packet.set_next_header(header.protocol.into());
    packet.set_src_addr(header.source);
    packet.set_dst_addr(header.destination);
    packet.fill_checksum();
}

/// Sets the type of service of a packet that lies in a frame.
pub fn set_service(frame: &mut [u8], service: u8) {
    let Some(bytes) = frame.get_mut(ETHERNET..ETHERNET + IP) else { return };
    let mut packet = Ipv4Packet::new_unchecked(bytes);
    packet.set_dscp(service >> 2);
    packet.set_ecn(service & 3);
    packet.fill_checksum();
}

/// Where a packet goes that lies in a frame.
pub fn destination(frame: &[u8]) -> Option<Ipv4Addr> {
    frame
        .get(ETHERNET..)
        .and_then(<[u8]>::first_chunk::<IP>)
        .map(|header| Ipv4Addr::new(header[16], header[17], header[18], header[19]))
}

/// Writes the header of a datagram before its data, with the checksum of all of it.
pub fn write_datagram(datagram: &mut [u8], source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) {
    if datagram.len() < UDP {
        return;
    }
    let length = datagram.len() as u16;
    let mut udp = UdpPacket::new_unchecked(datagram);
    udp.set_src_port(source.1);
    udp.set_dst_port(destination.1);
    udp.set_len(length);
    udp.fill_checksum(&IpAddress::Ipv4(source.0), &IpAddress::Ipv4(destination.0));
}

/// Writes the header of a frame.
pub fn write_ethernet(frame: &mut [u8], from: Station, to: Station, protocol: EthernetProtocol) {
    if frame.len() < ETHERNET {
        return;
    }
    let mut frame = EthernetFrame::new_unchecked(frame);
    frame.set_src_addr(EthernetAddress(from));
    frame.set_dst_addr(EthernetAddress(to));
    frame.set_ethertype(protocol);
}

/// The header of a frame with a packet.
pub fn write_ip_frame(frame: &mut [u8], from: Station, to: Station) {
    write_ethernet(frame, from, to, EthernetProtocol::Ipv4);
}

/// All stations.
pub const ALL: Station = [0xff; 6];

/// The station that a group is.
pub fn station_of(group: Ipv4Addr) -> Station {
    let [_, b, c, d] = group.octets();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// Bytes of a question for an address, or of an answer.
pub const ARP: usize = ETHERNET + 28;

/// A frame that asks for the station with an address, or that answers.
pub fn arp(asks: bool, from: (Ipv4Addr, Station), to: (Ipv4Addr, Station)) -> [u8; ARP] {
    let mut frame = [0; ARP];
    write_ethernet(&mut frame, from.1, to.1, EthernetProtocol::Arp);
    let target = if asks { [0; 6] } else { to.1 };
    let repr = ArpRepr::EthernetIpv4 {
        operation: if asks { ArpOperation::Request } else { ArpOperation::Reply },
        source_hardware_addr: EthernetAddress(from.1),
        source_protocol_addr: from.0,
        target_hardware_addr: EthernetAddress(target),
        target_protocol_addr: to.0,
    };
    repr.emit(&mut ArpPacket::new_unchecked(&mut frame[ETHERNET..]));
    frame
}

/// Bytes of the beginning of each message of ICMP.
pub const ICMP: usize = 8;
/// Types of messages: an echo request, and the answer.
pub const ECHO: u8 = 8;
/// See [`ECHO`].
pub const ECHO_REPLY: u8 = 0;

/// Makes a message an echo request that its answer is known by, with the checksum of all of it.
/// `false` if it is none.
pub fn write_echo_request(message: &mut [u8], ident: u16) -> bool {
    let Some(&mut [kind, code, ..]) = message.first_chunk_mut::<ICMP>() else { return false };
    if kind != ECHO || code != 0 {
        return false;
    }
    let mut packet = Icmpv4Packet::new_unchecked(message);
    packet.set_echo_ident(ident);
    packet.fill_checksum();
    true
}

/// By what the answer to an echo request is known, of a message that is one, or that answers one.
pub fn echo_ident(message: &[u8]) -> Option<u16> {
    let &[kind, _, _, _, high, low, ..] = message.first_chunk::<ICMP>()?;
    matches!(kind, ECHO | ECHO_REPLY).then(|| u16::from_be_bytes([high, low]))
}

/// Whether a message of ICMP is sound; its type.
pub fn icmp_type(message: &[u8]) -> Option<u8> {
    let packet = Icmpv4Packet::new_checked(message).ok()?;
    packet.verify_checksum().then(|| packet.msg_type().into())
}

/// A message that a packet did not arrive, with the beginning of that.
pub fn unreachable(why: &Unreachable, packet: &[u8]) -> Vec<u8> {
    let mut message = vec![0; ICMP + packet.len()];
    message[..2].copy_from_slice(&[why.kind, why.code]);
    message[ICMP..].copy_from_slice(packet);
    Icmpv4Packet::new_unchecked(&mut message).fill_checksum();
    message
}

/// Fills in what whoever gives a packet with its header leaves out (IP_HDRINCL, raw(7)): its
/// length, its checksum, and its source and number where they are 0. `None` if the header is not
/// sound.
pub fn complete(packet: &mut [u8], source: Ipv4Addr, number: u16) -> Option<()> {
    let length = u16::try_from(packet.len()).ok()?;
    let header = usize::from(packet.first()? & 15) * 4;
    if header < IP || header > packet.len() {
        return None;
    }
    let mut packet = Ipv4Packet::new_unchecked(packet);
    packet.set_total_len(length);
    if packet.src_addr().is_unspecified() {
        packet.set_src_addr(source);
    }
    if packet.ident() == 0 {
        packet.set_ident(number);
    }
    packet.fill_checksum();
    Some(())
}

/// Writes the answer to an echo request; `None` if there is no room.
pub fn write_echo(message: &mut [u8], ident: u16, sequence: u16, data: &[u8]) -> Option<usize> {
    emit_icmp(message, &Icmpv4Repr::EchoReply { ident, seq_no: sequence, data })
}

fn emit_icmp(message: &mut [u8], repr: &Icmpv4Repr) -> Option<usize> {
    let length = repr.buffer_len();
    let room = message.get_mut(..length)?;
    repr.emit(&mut Icmpv4Packet::new_unchecked(room), &ChecksumCapabilities::default());
    Some(length)
}

/// Writes that nobody has the port that a packet was for; returns the length. `None` if that is not
/// to be told.
pub fn write_port_unreachable(frame: &mut [u8], packet: &Packet) -> Option<usize> {
    let header = smoltcp::wire::Ipv4Repr::parse(
        &Ipv4Packet::new_checked(packet.bytes).ok()?,
        &ChecksumCapabilities::ignored(),
    )
    .ok()?;
    // As many bytes of it as fit into the least that everybody takes.
    let data = &packet.payload[..packet.payload.len().min(548 - IP)];
    let repr =
        Icmpv4Repr::DstUnreachable { reason: Icmpv4DstUnreachable::PortUnreachable, header, data };
    emit_icmp(frame.get_mut(ETHERNET + IP..)?, &repr)
}

/// Bytes of a message of IGMP.
pub const IGMP: usize = 8;
/// Its kinds: who is in a group? I am; I am no more.
const QUERY: u8 = 0x11;
const REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;

/// Whether a message of IGMP asks who is in a group; the group, or 0.0.0.0 for any.
pub fn parse_query(payload: &[u8]) -> Option<Ipv4Addr> {
    let message = payload.first_chunk::<IGMP>()?;
    let is_query = message[0] == QUERY && checksum::data(payload) == !0;
    is_query.then(|| Ipv4Addr::new(message[4], message[5], message[6], message[7]))
}

/// Writes that this station is in a group, or leaves it, behind the header of a packet.
pub fn write_membership(frame: &mut [u8], group: Ipv4Addr, leaves: bool) {
    let Some(room) = frame.get_mut(ETHERNET + IP..ETHERNET + IP + IGMP) else { return };
    room.fill(0);
    room[0] = if leaves { LEAVE } else { REPORT };
    room[4..].copy_from_slice(&group.octets());
    let sum = !checksum::data(room);
    room[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the answer to a segment that belongs to no connection, behind the header of a packet;
/// returns its length. `None` if there is none.
pub fn write_reset(frame: &mut [u8], packet: &Packet) -> Option<usize> {
    use smoltcp::wire::{TcpControl, TcpRepr};
    let tcp = TcpPacket::new_checked(packet.payload).ok()?;
    if tcp.rst() {
        return None;
    }
    let length = tcp.segment_len();
    let is_answer = tcp.ack();
    let repr = TcpRepr {
        src_port: tcp.dst_port(),
        dst_port: tcp.src_port(),
        control: TcpControl::Rst,
        seq_number: if is_answer { tcp.ack_number() } else { smoltcp::wire::TcpSeqNumber(0) },
        ack_number: (!is_answer).then(|| tcp.seq_number() + length),
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let length = repr.buffer_len();
    let room = frame.get_mut(ETHERNET + IP..ETHERNET + IP + length)?;
    repr.emit(
        &mut TcpPacket::new_unchecked(room),
        &IpAddress::Ipv4(packet.destination),
        &IpAddress::Ipv4(packet.source),
        &ChecksumCapabilities::default(),
    );
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

    fn header(protocol: Protocol) -> Header {
        Header {
            source: HERE,
            destination: THERE,
            protocol,
            lifetime: 3,
            service: 0xb9,
            number: 77,
            offset: 0,
            has_more: false,
            is_whole: true,
        }
    }

    fn udp(data: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![0; ETHERNET + IP + UDP + data.len()];
        frame[ETHERNET + IP + UDP..].copy_from_slice(data);
        write_datagram(&mut frame[ETHERNET + IP..], (HERE, 5), (THERE, 6));
        write_header(&mut frame, &header(Protocol::Udp), UDP + data.len());
        write_ip_frame(&mut frame, [2; 6], [4; 6]);
        frame
    }

    #[test]
    fn what_is_made_is_understood() {
        let frame = udp(b"hello");
        let Some(Frame::Ip(packet)) = parse(&frame) else { panic!("no packet") };
        assert_eq!((packet.source, packet.destination), (HERE, THERE));
        assert_eq!((packet.lifetime, packet.service, packet.number), (3, 0xb9, 77));
        assert!(!packet.is_fragment());
        let datagram = parse_datagram(packet.payload, HERE, THERE).unwrap();
        assert_eq!(datagram, Datagram { source: 5, destination: 6, data: b"hello" });
        // What Ethernet adds to a short frame is not data.
        let mut padded = frame.clone();
        padded.resize(60, 0xaa);
        let Some(Frame::Ip(packet)) = parse(&padded) else { panic!("no packet") };
        assert_eq!(parse_datagram(packet.payload, HERE, THERE).unwrap().data, b"hello");
    }

    #[test]
    fn who_is_told_of_a_port_that_nobody_has() {
        let frame = udp(b"hello");
        let Some(Frame::Ip(packet)) = parse(&frame) else { panic!("no packet") };
        let mut answer = [0; LONGEST];
        let length = write_port_unreachable(&mut answer, &packet).unwrap();
        let icmp = parse_icmp(&answer[ETHERNET + IP..ETHERNET + IP + length]).unwrap();
        let why = Unreachable { kind: 3, code: Unreachable::PORT, info: 0 };
        let (source, destination) = ((HERE, 5), (THERE, 6));
        let payload = &frame[ETHERNET + IP..];
        let packet = Returned { protocol: Protocol::Udp, source, destination, payload };
        assert_eq!(icmp, Icmp::Unreachable(why, packet));
    }

    #[test]
    fn what_is_told_of_a_packet_on_its_way() {
        let sent = udp(b"hello");
        let message = |kind, code, more: [u8; 4]| {
            let mut bytes = [&[kind, code, 0, 0][..], &more, &sent[ETHERNET..]].concat();
            let sum = !checksum::data(&bytes);
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            match parse_icmp(&bytes) {
                Some(Icmp::Unreachable(why, packet)) => {
                    let data = &packet.payload[UDP..];
                    assert_eq!((packet.destination, data), ((THERE, 6), &b"hello"[..]));
                    Some((why.kind, why.code, why.info))
                }
                other => {
                    assert_eq!(other, None);
                    None
                }
            }
        };
        assert_eq!(message(3, 4, [9, 9, 5, 0]), Some((3, 4, 1280)));
        assert_eq!(message(3, 13, [9, 9, 5, 0]), Some((3, 13, 0)));
        assert_eq!(message(11, 0, [1, 2, 3, 4]), Some((11, 0, 0)));
        assert_eq!(message(12, 0, [7, 2, 3, 4]), Some((12, 0, 7)));
        // Source quench and a redirect say nothing of that kind.
        assert_eq!(message(4, 0, [0; 4]), None);
        assert_eq!(message(5, 1, [0; 4]), None);
    }

    #[test]
    fn for_whom_a_frame_is() {
        let frame = udp(b"hello");
        assert_eq!(whom(&frame, [4; 6]), Whom::This);
        assert_eq!(whom(&frame, [6; 6]), Whom::Another);
        let group = [&station_of(Ipv4Addr::new(239, 1, 2, 3))[..], &frame[6..]].concat();
        assert_eq!(whom(&group, [4; 6]), Whom::Several);
        assert_eq!(whom(&arp(true, (HERE, [2; 6]), (THERE, ALL)), [4; 6]), Whom::Several);
        assert_eq!(whom(&[4; 5], [4; 6]), Whom::Another);
    }

    #[test]
    fn questions_for_a_station() {
        let frame = arp(true, (HERE, [2; 6]), (THERE, ALL));
        let Some(Frame::Arp(heard)) = parse(&frame) else { panic!("no question") };
        assert_eq!(heard, Arp { asks: true, sender: (HERE, [2; 6]), target: THERE });
    }

    #[test]
    fn groups() {
        let mut frame = [0; ETHERNET + IP + IGMP];
        let group = Ipv4Addr::new(239, 1, 2, 3);
        write_membership(&mut frame, group, false);
        let message = &frame[ETHERNET + IP..];
        assert_eq!(message, [0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]);
        // A report is no question.
        assert_eq!(parse_query(message), None);
        assert_eq!(parse_query(&[0x11, 100, 0xee, 0x9b, 0, 0, 0, 0]), Some(Ipv4Addr::UNSPECIFIED));
        assert_eq!(station_of(Ipv4Addr::new(239, 129, 2, 3)), [1, 0, 0x5e, 1, 2, 3]);
    }

    #[test]
    fn an_echo_is_the_same() {
        let mut frame = [0; 200];
        let length = write_echo(&mut frame, 1, 2, b"data").unwrap();
        assert_eq!(length, 12);
        assert_eq!(write_echo(&mut frame, 1, 2, &[0; 200]), None);
    }

    #[test]
    fn an_echo_is_known_by_its_number() {
        let mut request = [ECHO, 0, 9, 9, 9, 9, 0, 1, b'x'];
        assert!(write_echo_request(&mut request, 0x1234));
        let echo = Icmp::Echo { ident: 0x1234, sequence: 1, data: b"x" };
        assert_eq!(parse_icmp(&request), Some(echo));
        let mut answer = [0; 9];
        assert_eq!(write_echo(&mut answer, 0x1234, 1, b"x"), Some(9));
        assert_eq!(icmp_type(&answer), Some(ECHO_REPLY));
        assert_eq!([&request, &answer].map(|message| echo_ident(message)), [Some(0x1234); 2]);
        // Neither is that of something else, nor of what is too short.
        assert_eq!(echo_ident(&[3, 1, 0, 0, 0x12, 0x34, 0, 1]), None);
        assert_eq!(echo_ident(&request[..7]), None);
        assert!(!write_echo_request(&mut request[..7], 1));
        assert!(!write_echo_request(&mut answer, 1));
        answer[8] ^= 1;
        assert_eq!(icmp_type(&answer), None);
    }

    #[test]
    fn what_others_leave_out_of_a_header() {
        let sent = udp(b"hello");
        let mut packet = sent[ETHERNET..].to_vec();
        packet[2..6].fill(0);
        packet[10..16].fill(0);
        complete(&mut packet, HERE, 77).unwrap();
        assert_eq!(packet, sent[ETHERNET..]);
        // What is there stays.
        complete(&mut packet, THERE, 5).unwrap();
        assert_eq!(packet, sent[ETHERNET..]);
        for unsound in [0x44, 0x4f] {
            packet[0] = unsound;
            assert_eq!(complete(&mut packet, HERE, 77), None);
        }
        assert_eq!(complete(&mut [], HERE, 77), None);
    }

    #[test]
    fn a_packet_that_nobody_took() {
        let sent = udp(b"hello");
        let message = unreachable(&Unreachable::HOST, &sent[ETHERNET..]);
        let Some(Icmp::Unreachable(why, returned)) = parse_icmp(&message) else { panic!() };
        assert_eq!((why, returned.destination), (Unreachable::HOST, (THERE, 6)));
    }

    proptest! {
        #[test]
        fn nothing_panics_on_hostile_frames(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            protocol in prop::sample::select(&[1u8, 2, 6, 17, 89][..]),
            is_sound in any::<bool>(),
        ) {
            if is_sound && bytes.len() >= ETHERNET + IP {
                bytes[12..14].copy_from_slice(&[8, 0]);
                let total = (bytes.len() - ETHERNET) as u16;
                bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total.to_be_bytes());
                bytes[ETHERNET] = 0x45;
                bytes[ETHERNET + 9] = protocol;
                bytes[ETHERNET + 12] = 10;
                Ipv4Packet::new_unchecked(&mut bytes[ETHERNET..]).fill_checksum();
            }
            if let Some(Frame::Ip(packet)) = parse(&bytes) {
                parse_datagram(packet.payload, packet.source, packet.destination);
                parse_segment(packet.payload, packet.source, packet.destination);
                parse_icmp(packet.payload);
                parse_query(packet.payload);
                icmp_type(packet.payload);
                echo_ident(packet.payload);
                returned(packet.bytes);
                let mut answer = [0; LONGEST];
                write_port_unreachable(&mut answer, &packet);
                write_reset(&mut answer, &packet);
            }
            complete(&mut bytes.clone(), HERE, 1);
            write_echo_request(&mut bytes, 1);
        }

        #[test]
        fn what_was_changed_on_the_way_is_not_taken(at in 0usize..13, bit in 0u8..8) {
            let mut frame = udp(b"hello");
            frame[ETHERNET + IP + at] ^= 1 << bit;
            let Some(Frame::Ip(packet)) = parse(&frame) else { return Ok(()) };
            prop_assert_eq!(parse_datagram(packet.payload, HERE, THERE), None);
        }
    }
}
