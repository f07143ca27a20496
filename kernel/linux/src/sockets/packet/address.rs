// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct sockaddr_ll`.

use linux_raw_sys::net;

use crate::{
    abi::Errno,
    files::socket::Address,
    sockets::net::{interface::HardwareAddress, requests::HARDWARE},
};

/// Bytes of the structure, and in front of the address in it.
pub const SIZE: usize = 20;
const ADDRESS_AT: usize = 12;

/// An address.
#[derive(Clone, Copy, Default, Debug)]
pub struct LinkAddress {
    /// ETH_P_*.
    pub protocol: u16,
    /// The number of the interface.
    pub interface: u32,
    /// For whom a frame was (PACKET_*).
    pub kind: u8,
    /// The address of a station; `None` where there is none.
    pub station: Option<HardwareAddress>,
}

impl LinkAddress {
    /// What a program gives.
    pub fn parse(address: &Address) -> Result<Self, Errno> {
        let bytes = address.bytes();
        let whole: &[u8; SIZE] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
        let [f, g, a, b, i, j, k, l, _, _, kind, length, station @ ..] = *whole;
        if u32::from(u16::from_ne_bytes([f, g])) != net::AF_PACKET {
            return Err(Errno::EINVAL);
        }
        if bytes.len() < ADDRESS_AT + usize::from(length) {
            return Err(Errno::EINVAL);
        }
        let [station @ .., _, _] = station;
        Ok(Self {
            protocol: u16::from_be_bytes([a, b]),
            interface: u32::from_ne_bytes([i, j, k, l]),
            kind,
            station: Some(station),
        })
    }

    /// The bytes of the structure.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..2].copy_from_slice(&(net::AF_PACKET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        if let Some(station) = self.station {
            bytes[8..10].copy_from_slice(&HARDWARE.to_ne_bytes());
            bytes[10] = self.kind;
            bytes[11] = station.len() as u8;
            bytes[ADDRESS_AT..ADDRESS_AT + station.len()].copy_from_slice(&station);
        }
        bytes
    }

    /// Where a frame came from.
    pub fn of_frame(&self) -> Address {
        Address::new(&self.bytes())
    }

    /// What a socket is bound to: without what is behind the address.
    pub fn of_socket(&self) -> Address {
        let length = self.station.map_or(0, |station| station.len());
        Address::new(&self.bytes()[..ADDRESS_AT + length])
    }
}
