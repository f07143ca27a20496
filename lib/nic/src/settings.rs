// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an interface was under Linux, as a word of the kernel's command line tells:
//! `eth1,0018,3,1500,1000,525400123456,10.0.0.1/24,fe80::1/64`. That is its name, its PCI function,
//! its number, the most bytes behind a header, how many frames wait, its address, and those of its
//! networks. The virtual Ethernet has no function: `-`.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::HardwareAddress;

/// What an interface was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bus, device and function, if it is one of a card.
    pub function: Option<u16>,
    /// Its number.
    pub index: u32,
    /// Most bytes of a frame behind its header.
    pub mtu: usize,
    /// How many frames wait to be sent.
    pub queue_length: u32,
    /// Its address.
    pub own: HardwareAddress,
    /// Addresses of its networks, with the bits of these.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Least and most bytes of a frame behind its header.
const MTU: core::ops::RangeInclusive<usize> = 68..=1500;
/// Bytes of the longest name.
const NAME: usize = 15;

impl<'a> Settings<'a> {
    /// What a word tells; `None` if that is nothing sound.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split(',');
        let mut field = || fields.next();
        let name = field().filter(|name| (1..=NAME).contains(&name.len()))?;
        let function = match field()? {
            "-" => None,
            text => Some(u16::from_str_radix(text, 16).ok()?),
        };
        let index = field()?.parse().ok().filter(|&index| index > 0)?;
        let mtu = field()?.parse().ok().filter(|mtu| MTU.contains(mtu))?;
        let queue_length = field()?.parse().ok()?;
        let own = hardware_address(field()?)?;
        let addresses = fields.map(network).collect::<Option<_>>()?;
        Some(Self { name, function, index, mtu, queue_length, own, addresses })
    }
}

fn hardware_address(text: &str) -> Option<HardwareAddress> {
    let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 12)?;
    let [_, _, address @ ..] = number.to_be_bytes();
    Some(address)
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_what_an_interface_was() {
        let word = "eth1,0018,3,1500,1000,525400123456,10.0.0.1/24,fe80::1/64";
        let settings = Settings::parse(word).unwrap();
        assert_eq!((settings.name, settings.function, settings.index), ("eth1", Some(0x18), 3));
        assert_eq!((settings.mtu, settings.queue_length), (1500, 1000));
        assert_eq!(settings.own, [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let all = settings.addresses.iter().map(|(a, b)| format!("{a}/{b}")).collect::<Vec<_>>();
        assert_eq!(all.join(" "), "10.0.0.1/24 fe80::1/64");
        let without = Settings::parse("crtos0,-,3,1500,0,525400123456").unwrap();
        assert_eq!(without.function, None);
        assert!(Settings::parse("eth1,18,3,1500,0,525400123456").unwrap().addresses.is_empty());
    }

    #[test]
    fn what_is_not_sound_is_nothing() {
        for word in [
            "",
            "eth1",
            ",18,3,1500,0,525400123456",
            "a-name-too-long-,18,3,1500,0,525400123456",
            "eth1,10018,3,1500,0,525400123456",
            "eth1,18,0,1500,0,525400123456",
            "eth1,18,3,9000,0,525400123456",
            "eth1,18,3,1500,0,5254001234",
            "eth1,18,3,1500,0,525400123456,10.0.0.1/33",
            "eth1,18,3,1500,0,525400123456,10.0.0.1",
        ] {
            assert_eq!(Settings::parse(word), None, "{word}");
        }
    }
}
