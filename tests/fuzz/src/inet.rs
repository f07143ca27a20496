// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a station of the network sends: packets with sound checksums, near the numbers that a
//! connection of TCP goes by. The other end never counts more bytes than were sent.

use bolero::TypeGenerator;
use crtos_inet::connection::Connection;
use crtos_inet::packet::{self, ETHERNET, Frame, Header, IP, LONGEST, Packet, Protocol};
use crtos_inet::reassembly::Reassembly;
use crtos_inet::{Ipv4Addr, SocketAddrV4};

use crate::numbers::Rare;

const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 4000);
const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 80);
const MILLISECOND: u64 = 1_000_000;

/// What the other end does, in its order.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    /// This end waits for a connection.
    listens: bool,
    #[generator(bolero::generator::produce::<Vec<Step>>().with().len(1usize..40))]
    steps: Vec<Step>,
}

/// One packet, and what the program does then.
#[derive(Clone, Debug, TypeGenerator)]
struct Step {
    flags: u8,
    /// How far its numbers are from what is expected.
    sequence: Rare<i32>,
    acknowledges: Rare<i32>,
    window: u16,
    options: Rare<[u8; 12]>,
    data: Vec<u8>,
    fragment: Rare<u16>,
    wrong: Rare<(u16, u8)>,
    writes: u16,
    takes: bool,
    ends: Rare<bool>,
    milliseconds: u16,
}

impl Step {
    /// Mostly those that have a connection go on.
    fn flags(&self) -> u8 {
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const RST: u8 = 4;
        const PSH: u8 = 8;
        const ACK: u8 = 16;
        match self.flags % 16 {
            0 | 1 => SYN,
            2 | 3 => SYN | ACK,
            4..9 => ACK,
            9 | 10 => PSH | ACK,
            11 | 12 => FIN | ACK,
            13 => RST | ACK,
            _ => self.flags,
        }
    }
}

/// The two numbers by which the other end goes.
#[derive(Default)]
struct Numbers {
    own: u32,
    expected: u32,
}

fn segment(step: &Step, numbers: &Numbers) -> Vec<u8> {
    let options = step.options.get();
    let mut tcp = vec![0; if options.is_some() { 32 } else { 20 }];
    let near = |number: u32, by: Rare<i32>| number.wrapping_add_signed(by.get().unwrap_or(0));
    tcp[..2].copy_from_slice(&THERE.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&HERE.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&near(numbers.own, step.sequence).to_be_bytes());
    tcp[8..12].copy_from_slice(&near(numbers.expected, step.acknowledges).to_be_bytes());
    tcp[12] = (tcp.len() as u8 / 4) << 4;
    tcp[13] = step.flags();
    tcp[14..16].copy_from_slice(&step.window.to_be_bytes());
    if let Some(options) = options {
        tcp[20..].copy_from_slice(&options);
    }
    tcp.extend(&step.data);
    packet::fill_segment(&mut tcp, *THERE.ip(), *HERE.ip());
    tcp
}

fn frame(step: &Step, payload: &[u8]) -> Vec<u8> {
    let fragment = step.fragment.get();
    let header = Header {
        source: *THERE.ip(),
        destination: *HERE.ip(),
        protocol: Protocol::Tcp,
        lifetime: 64,
        service: 0,
        number: 1,
        offset: fragment.map_or(0, |offset| usize::from(offset & 0x1fff) * 8),
        has_more: fragment.is_some_and(|offset| offset & 0x2000 != 0),
        is_whole: false,
    };
    let mut frame = vec![0; ETHERNET + IP];
    frame.extend(payload);
    packet::write_header(&mut frame, &header, payload.len());
    packet::write_ip_frame(&mut frame, [2; 6], [4; 6]);
    if let Some((place, value)) = step.wrong.get() {
        let place = usize::from(place) % frame.len();
        frame[place] = value;
    }
    frame
}

/// Everything that a packet meets on its way up.
fn parse(packet: &Packet) {
    packet::parse_datagram(packet.payload, packet.source, packet.destination);
    packet::parse_icmp(packet.payload);
    packet::parse_query(packet.payload);
    let mut answer = [0; LONGEST];
    packet::write_port_unreachable(&mut answer, packet);
    packet::write_reset(&mut answer, packet);
}

/// The target.
pub fn inet(input: &Input) {
    let Some(mut own) = Connection::new(1500, 7, 8 << 10, 8 << 10, 0) else { return };
    match input.listens {
        true => own.listen(HERE),
        false => assert!(own.connect(HERE, THERE)),
    }
    let mut waiting = Reassembly::new();
    let mut numbers = Numbers { own: 1000, expected: 0 };
    let mut now = 0;
    for step in &input.steps {
        now += u64::from(step.milliseconds) * MILLISECOND;
        let mut expected = numbers.expected;
        // What this end has sent last is what the other one acknowledges.
        let mut out = |frame: &mut [u8]| {
            let packet = packet::parse_packet(&frame[ETHERNET..]).expect("a sound packet is sent");
            assert_eq!((packet.source, packet.destination), (*HERE.ip(), *THERE.ip()));
            let tcp = packet.payload;
            assert!(packet::parse_segment(tcp, packet.source, packet.destination).is_some());
            let at = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            let length = tcp.len() - usize::from(tcp[12] >> 4) * 4;
            let counted = u32::from(tcp[13] & 3 != 0);
            expected = at.wrapping_add(length as u32).wrapping_add(counted);
        };
        own.send_due(now, &mut out);
        let bytes = frame(step, &segment(step, &numbers));
        if let Some(Frame::Ip(packet)) = packet::parse(&bytes) {
            parse(&packet);
            if packet.is_fragment() {
                waiting.add(&packet, now);
            }
            let known = packet::parse_segment(packet.payload, packet.source, packet.destination);
            if let Some(known) = known.filter(|_| !packet.is_fragment()) {
                own.receive(packet.bytes, THERE, known.resets, now, &mut out);
                let counted = u32::from(step.flags() & 3 != 0) + step.data.len() as u32;
                numbers.own = numbers.own.wrapping_add(counted);
            }
        }
        own.write(&vec![1; usize::from(step.writes)], step.takes, now);
        own.send_due(now, &mut out);
        numbers.expected = expected;
        if step.takes {
            let mut to = [0; 100];
            let got = own.peek(&mut to);
            own.take(got);
        }
        match step.ends.get() {
            Some(true) => own.close(),
            Some(false) => own.abort(),
            None => {}
        }
        assert!(own.due(now).is_none_or(|due| due >= now));
        assert!(own.received() <= 8 << 10 && own.unsent() <= 8 << 10);
    }
}
