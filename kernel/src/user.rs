// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words in a program's memory. An address is an allegation until a copy through the address space has succeeded.

use alloc::sync::Arc;

use crate::{
    mm::space::{AddressSpace, BadAddress},
    task,
};

/// The address space of the calling program.
pub fn space() -> Result<Arc<AddressSpace>, BadAddress> {
    task::current().space().ok_or(BadAddress)
}

/// Reads `N` 64-bit words.
pub fn read_words<const N: usize>(address: u64) -> Result<[u64; N], BadAddress> {
    let mut bytes = [[0; 8]; N];
    space()?.read(address, bytes.as_flattened_mut())?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Writes 64-bit words.
pub fn write_words<const N: usize>(address: u64, words: [u64; N]) -> Result<(), BadAddress> {
    space()?.write(address, words.map(u64::to_le_bytes).as_flattened())
}

/// Reads a 32-bit word.
pub fn read_u32(address: u64) -> Result<u32, BadAddress> {
    let mut bytes = [0; 4];
    space()?.read(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Writes a 32-bit word.
pub fn write_u32(address: u64, value: u32) -> Result<(), BadAddress> {
    space()?.write(address, &value.to_le_bytes())
}

/// Reads bytes.
pub fn read(address: u64, to: &mut [u8]) -> Result<(), BadAddress> {
    space()?.read(address, to)
}

/// Writes bytes.
pub fn write(address: u64, from: &[u8]) -> Result<(), BadAddress> {
    space()?.write(address, from)
}
