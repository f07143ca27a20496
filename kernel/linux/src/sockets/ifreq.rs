// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structure by which ioctls ask for a network interface (`struct ifreq`, netdevice(7)).

use crtos_abi::UserAddr;

use crate::{
    abi::{Errno, SysResult},
    memory::user,
};

/// Bytes of the name of an interface, and of all.
const NAME: usize = 16;
const SIZE: usize = 40;

/// What a program asks, and is answered.
pub struct InterfaceRequest {
    at: UserAddr,
    bytes: [u8; SIZE],
}

impl InterfaceRequest {
    /// Copies the one at an address of the program.
    pub fn read(at: UserAddr) -> Result<Self, Errno> {
        let mut bytes = [0; SIZE];
        user::read(at, &mut bytes)?;
        Ok(Self { at, bytes })
    }

    /// The name of the interface that it asks for.
    pub fn name(&self) -> &[u8] {
        let name = &self.bytes[..NAME];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        &name[..end]
    }

    /// The number, where it asks for the name.
    pub fn index(&self) -> u32 {
        self.bytes[NAME..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
    }

    /// The flags that it sets.
    pub fn flags(&self) -> u16 {
        self.bytes[NAME..].first_chunk().map_or(0, |half| u16::from_ne_bytes(*half))
    }

    /// The address in the program where more is asked.
    pub fn address(&self) -> u64 {
        self.bytes[NAME..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
    }

    /// Answers with a name, which is shorter than 16 bytes.
    pub fn set_name(&mut self, name: &str) {
        self.bytes[..NAME].fill(0);
        self.bytes[..name.len()].copy_from_slice(name.as_bytes());
    }

    /// Answers with a value, of at most 24 bytes.
    pub fn put(&mut self, value: &[u8]) {
        self.bytes[NAME..][..value.len()].copy_from_slice(value);
    }

    /// Answers with an address of hardware of that kind (ARPHRD_*), of at most 14 bytes.
    pub fn put_hardware(&mut self, kind: u16, address: &[u8]) {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        bytes[2..][..address.len()].copy_from_slice(address);
        self.put(&bytes);
    }

    /// Gives the program its answer.
    pub fn write(&self) -> SysResult {
        user::write(self.at, &self.bytes)?;
        Ok(0)
    }
}
