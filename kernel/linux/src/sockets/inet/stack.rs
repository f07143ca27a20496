// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a packet is that came.

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddrV4};

use crtos_core::time;
use crtos_inet::{
    inbox::About,
    packet::{self, ETHERNET, Frame, IP, Icmp, Packet, Protocol, Returned, UDP, USUAL, Whom},
    ports::Way,
};

use super::{
    link::{self, Link},
    raw, tcp, udp,
};
use crate::sockets::{
    error_queue::Message,
    net::{
        buffer::with_buffer,
        interface::{Interface, News, Stack as StackOf, Stamp},
    },
};

/// The stack, as interfaces know it.
pub struct Stack;

/// The only one.
pub static STACK: Stack = Stack;

impl StackOf for Stack {
    fn receive(&self, news: &News) {
        let Some(link) = link::by_index(news.index) else { return };
        let whom = packet::whom(news.frame, link.station());
        // It came because somebody listens to everything.
        if whom == Whom::Another {
            return;
        }
        match packet::parse(news.frame) {
            Some(Frame::Arp(arp)) => link.hear(&arp),
            Some(Frame::Ip(packet)) if !is_forged(&link, &packet, whom) => {
                deliver(&link, &packet, news.stamp);
            }
            _ => {}
        }
    }

    fn settle(&self, interface: &Arc<dyn Interface>) {
        if let Some(link) = link::by_index(interface.index()) {
            link.bring_back();
        }
    }

    fn come(&self, interface: &Arc<dyn Interface>) {
        link::come(interface);
    }

    fn go(&self, interface: &Arc<dyn Interface>) {
        link::go(interface);
        udp::interface_is_gone(interface.index());
        tcp::interface_is_gone(interface.index());
        raw::interface_is_gone(interface.index());
    }
}

/// Whether nobody makes such a packet: nobody else sends as this station, whichever of its
/// interfaces has that address, or as all; and there is no connection with several at once.
fn is_forged(link: &Link, packet: &Packet, whom: Whom) -> bool {
    packet.protocol == Protocol::Tcp && whom != Whom::This
        || link.is_broadcast(packet.source)
        || link::is_of_realm(packet.source)
}

/// Brings a packet that came at `stamp` to whose it is. Thread context; nothing is locked.
pub fn deliver(link: &Arc<Link>, packet: &Packet, stamp: Stamp) {
    let to = packet.destination;
    let is_own = link.is_own(to);
    let is_group = to.is_multicast() && (link.is_in(to) || to == ALL_SYSTEMS);
    if !is_own && !is_group && !link.is_broadcast(to) {
        return;
    }
    if !packet.is_fragment() {
        let header = &packet.bytes[..packet.bytes.len() - packet.payload.len()];
        return deliver_whole(link, packet, header, stamp);
    }
    // Segments of TCP are not cut: they say so.
    if packet.protocol != Protocol::Tcp {
        let mut reassembly = link.reassembly.lock();
        if let Some(payload) = reassembly.add(packet, time::now().0) {
            let mut header = [0; ETHERNET + IP];
            packet::write_header(&mut header, &packet.whole(), payload.len());
            let whole = Packet { payload, ..*packet };
            deliver_whole(link, &whole, &header[ETHERNET..], stamp);
        }
    }
}

/// Brings a packet that is whole, and has that header, to whose it is.
fn deliver_whole(link: &Arc<Link>, packet: &Packet, header: &[u8], stamp: Stamp) {
    let is_own = link.is_own(packet.destination);
    if raw::is_any() {
        let about = about(link, packet, 0, stamp);
        raw::deliver(packet.protocol, about, header, packet.payload);
    }
    match packet.protocol {
        Protocol::Udp => deliver_datagram(link, packet, header, stamp),
        Protocol::Tcp if is_own => tcp::deliver(link, packet),
        Protocol::Icmp if is_own => deliver_icmp(link, packet, stamp),
        Protocol::Igmp => {
            if let Some(group) = packet::parse_query(packet.payload) {
                link.answer_query(group);
            }
        }
        _ => {}
    }
}

/// The group of all stations.
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// What is known of a packet, which came at `stamp` from that port.
fn about(link: &Link, packet: &Packet, port: u16, stamp: Stamp) -> About {
    About {
        source: (packet.source, port),
        destination: packet.destination,
        stamp: stamp.software.0,
        hardware: stamp.hardware.map(|at| at.0),
        interface: link.interface.index(),
        lifetime: packet.lifetime,
        service: packet.service,
        lost: 0,
    }
}

fn deliver_datagram(link: &Arc<Link>, packet: &Packet, header: &[u8], stamp: Stamp) {
    let (source, destination, payload) = (packet.source, packet.destination, packet.payload);
    let Some(datagram) = packet::parse_datagram(payload, source, destination) else { return };
    let about = about(link, packet, datagram.source, stamp);
    let way = Way {
        local: SocketAddrV4::new(destination, datagram.destination),
        remote: SocketAddrV4::new(source, datagram.source),
        interface: about.interface,
    };
    let is_for_one = link.is_own(destination);
    // What is behind the datagram belongs to nobody.
    let whole = &payload[..UDP + datagram.data.len()];
    if udp::deliver(&way, about, (header, whole), is_for_one) || !is_for_one {
        return;
    }
    if link.may_answer() {
        let mut frame = [0; USUAL];
        if let Some(length) = packet::write_port_unreachable(&mut frame, packet) {
            answer(link, packet, Protocol::Icmp, &mut frame, length);
        }
    }
}

fn deliver_icmp(link: &Link, packet: &Packet, stamp: Stamp) {
    match packet::parse_icmp(packet.payload) {
        Some(Icmp::Echo { ident, sequence, data }) => {
            if !link.may_answer() {
                return;
            }
            // One for which there is no memory is not answered.
            let _ = with_buffer(packet.payload.len(), |message| {
                if packet::write_echo(message, ident, sequence, data).is_some() {
                    let (from, to) = (packet.destination, packet.source);
                    let header = link.header(Protocol::Icmp, from, to);
                    let _ = link.send_parts(&header, message, |frame| link.send(frame));
                }
                Ok(())
            });
        }
        Some(Icmp::Unreachable(why, returned)) => {
            let about = about(link, packet, 0, stamp);
            report(link, Message { why, about }, &returned);
        }
        None => {}
    }
}

/// A packet that was sent from here by `link` did not arrive, as a message says. Thread context;
/// nothing is locked.
pub fn report(link: &Link, message: Message, returned: &Returned) {
    let (source, destination) = (returned.source, returned.destination);
    let way = Way {
        local: SocketAddrV4::new(source.0, source.1),
        remote: SocketAddrV4::new(destination.0, destination.1),
        interface: link.interface.index(),
    };
    match returned.protocol {
        Protocol::Udp => udp::report(&way, message, returned.payload),
        Protocol::Tcp => tcp::report(&way, &message),
        _ => {}
    }
    raw::report(way.interface, message, returned);
}

/// Sends what answers a packet, of which `length` bytes lie behind the room for its header.
pub fn answer(link: &Link, to: &Packet, protocol: Protocol, frame: &mut [u8], length: usize) {
    let header = link.header(protocol, to.destination, to.source);
    packet::write_header(frame, &header, length);
    if let Some(frame) = frame.get_mut(..ETHERNET + IP + length) {
        let _ = link.send(frame);
    }
}
