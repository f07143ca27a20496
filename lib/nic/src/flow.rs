// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number by which programs spread frames over workers: frames of one flow have the same one, in
//! both directions.

/// Protocols of frames: IPv4 and IPv6.
const FOUR: u16 = 0x0800;
const SIX: u16 = 0x86dd;
/// Protocols with ports: TCP, UDP, UDP-Lite, DCCP, SCTP.
const WITH_PORTS: [u8; 5] = [6, 17, 136, 33, 132];

/// What a packet says of its flow.
struct Ends<'a> {
    from: &'a [u8],
    to: &'a [u8],
    /// The protocol behind the header.
    kind: u8,
    /// What is there of that, ports first; nothing where these are elsewhere.
    behind: &'a [u8],
}

fn ends(protocol: u16, packet: &[u8]) -> Option<Ends<'_>> {
    match protocol {
        FOUR => {
            let header = usize::from(packet.first()? & 0xf) * 4;
            // All of its fragments are of one flow, and only the first has ports.
            let is_part = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff != 0;
            let behind = if is_part { &[] } else { packet.get(header..).unwrap_or(&[]) };
            let (from, to) = (packet.get(12..16)?, packet.get(16..20)?);
            Some(Ends { from, to, kind: *packet.get(9)?, behind })
        }
        SIX => {
            let behind = packet.get(40..).unwrap_or(&[]);
            let (from, to) = (packet.get(8..24)?, packet.get(24..40)?);
            Some(Ends { from, to, kind: *packet.get(6)?, behind })
        }
        _ => None,
    }
}

/// Mixes bytes into a number (the multiplication of FNV-1a, and a shift that spreads the result).
fn mix(start: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mixed = bytes.into_iter().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    });
    mixed ^ mixed >> 32
}

/// The number of the flow of a frame of that protocol, of which `packet` is what is behind the
/// header; never 0. `seed` makes it hard to guess which flows have the same one. Bounded.
pub fn hash(seed: u64, protocol: u16, packet: &[u8]) -> u32 {
    let mixed = match ends(protocol, packet) {
        None => mix(seed, protocol.to_be_bytes()),
        Some(Ends { from, to, kind, behind }) => {
            let (from_port, to_port) = match behind {
                [a, b, c, d, ..] if WITH_PORTS.contains(&kind) => ([*a, *b], [*c, *d]),
                _ => ([0; 2], [0; 2]),
            };
            let end =
                |address: &[u8], port: [u8; 2]| mix(seed, address.iter().copied().chain(port));
            let (one, other) = (end(from, from_port), end(to, to_port));
            let both = [one.min(other), one.max(other)].map(u64::to_ne_bytes);
            mix(seed, both.as_flattened().iter().copied().chain([kind]))
        }
    };
    (mixed as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of UDP by IPv4.
    fn packet(from: (u32, u16), to: (u32, u16)) -> [u8; 28] {
        let mut bytes = [0; 28];
        (bytes[0], bytes[9]) = (0x45, 17);
        bytes[12..16].copy_from_slice(&from.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&to.0.to_be_bytes());
        bytes[20..22].copy_from_slice(&from.1.to_be_bytes());
        bytes[22..24].copy_from_slice(&to.1.to_be_bytes());
        bytes
    }

    #[test]
    fn flows_are_spread() {
        let hashes = (0..1000u16).map(|port| hash(1, FOUR, &packet((1, port), (2, 53))) % 8);
        let mut workers = [0; 8];
        hashes.for_each(|worker| workers[worker as usize] += 1);
        assert!(workers.iter().all(|&count| (80..170).contains(&count)), "{workers:?}");
    }

    proptest::proptest! {
        /// Both directions have the same number, other content does not change it, and no bytes
        /// are too strange.
        #[test]
        fn a_flow_has_one_number(
            from: (u32, u16),
            to: (u32, u16),
            seed: u64,
            content in proptest::collection::vec(0u8.., 0..60),
            protocol: u16,
            six: bool,
        ) {
            let there = hash(seed, FOUR, &packet(from, to));
            assert_eq!(there, hash(seed, FOUR, &packet(to, from)));
            let longer = [packet(from, to).as_slice(), &content].concat();
            assert_eq!(there, hash(seed, FOUR, &longer));
            let protocol = if six { SIX } else { protocol };
            assert_ne!(hash(seed, protocol, &content), 0);
            assert_ne!(hash(seed, FOUR, &content), 0);
        }
    }
}
