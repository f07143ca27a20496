// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual Ethernet between Linux and the realm: Linux's interface, and what the realm is told
//! of its end.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use crtos_abi::ioctl::CellEthernet;

use crate::{
    device::{self, Device},
    failure::Result,
};

/// The name of both ends.
pub const NAME: &str = "crtos0";
/// Most bytes behind the header of a frame.
const MTU: u32 = 1500;
/// How many frames wait at the realm's end, as programs are told.
const QUEUE_LENGTH: u32 = 1000;
/// Most addresses.
pub const MOST_ADDRESSES: usize = 8;

/// An address of the realm's end, with the bits of its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: Ipv4Addr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("`{text}` is not an address with the bits of its network");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let bits = bits.parse().map_err(|_| wrong())?;
        if !(1..=31).contains(&bits) {
            return Err("a network has 1 to 31 bits".into());
        }
        let is_host = !address.is_multicast()
            && !address.is_loopback()
            && !address.is_broadcast()
            && address.octets()[0] != 0;
        is_host
            .then_some(Self { address, bits })
            .ok_or_else(|| format!("{address} is no station's"))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Both ends, as the module has made them.
#[derive(Debug)]
pub struct Ends {
    index: u32,
    address: [u8; 6],
}

impl Ends {
    /// Has Linux have its interface, for a cell that does not run. It goes with the cell.
    pub fn make(device: &Device, cell: u32, asked: &str) -> Result<Self> {
        let name = device::name(NAME);
        let mut made = CellEthernet { cell, index: 0, name, address: [0; 6], reserved: [0; 2] };
        device.add_ethernet(&mut made).map_err(|refusal| refusal.asked(asked))?;
        Ok(Self { index: made.index, address: made.address })
    }

    /// The word by which the real-time kernel learns of its end.
    pub fn word(&self, networks: &[Network]) -> String {
        let own = self.address.map(|byte| format!("{byte:02x}")).concat();
        let networks: String = networks.iter().map(|network| format!(",{network}")).collect();
        format!("device=net,{NAME},-,{},{MTU},{QUEUE_LENGTH},{own}{networks}", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crtos_nic::settings::Settings;

    #[test]
    fn a_network_is_an_address_with_bits() {
        let network: Network = "10.9.0.2/24".parse().unwrap();
        assert_eq!(network.to_string(), "10.9.0.2/24");
        for text in [
            "",
            "10.9.0.2",
            "10.9.0.2/",
            "10.9.0.2/0",
            "10.9.0.2/32",
            "10.9.0/24",
            "224.0.0.1/24",
            "127.0.0.1/8",
            "0.0.0.0/8",
            "255.255.255.255/24",
            "fe80::1/64",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_kernel_understands_the_word() {
        let ends = Ends { index: 7, address: [2, 0, 0, 0xab, 0xcd, 0xef] };
        let word = ends.word(&["10.9.0.2/24".parse().unwrap()]);
        let settings = Settings::parse(word.strip_prefix("device=net,").unwrap()).unwrap();
        assert_eq!((settings.name, settings.function, settings.index), (NAME, None, 7));
        assert_eq!(settings.own, ends.address);
        assert_eq!(settings.addresses.len(), 1);
    }
}
