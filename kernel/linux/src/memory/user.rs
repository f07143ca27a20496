// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words in a program's memory. An address is an allegation until a copy has succeeded: first by
//! the program's own translations, and where that is not possible, by the address space, which
//! makes pages present.

use alloc::sync::Arc;

use crtos_abi::UserAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crtos_core::{
    arch::user_memory,
    mm::space::{AddressSpace, BadAddress},
    task,
};

/// The address space of the calling program.
pub fn space() -> Result<Arc<AddressSpace>, BadAddress> {
    task::current().space().ok_or(BadAddress)
}

/// Reads `N` 64-bit words.
pub fn read_words<const N: usize>(address: UserAddr) -> Result<[u64; N], BadAddress> {
    let mut bytes = [[0; 8]; N];
    read(address, bytes.as_flattened_mut())?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Writes 64-bit words.
pub fn write_words<const N: usize>(address: UserAddr, words: [u64; N]) -> Result<(), BadAddress> {
    write(address, words.map(u64::to_le_bytes).as_flattened())
}

/// Reads a structure. What it says is an allegation.
pub fn read_struct<T: FromBytes + IntoBytes>(address: UserAddr) -> Result<T, BadAddress> {
    let mut value = T::new_zeroed();
    read(address, value.as_mut_bytes())?;
    Ok(value)
}

/// Writes a structure.
pub fn write_struct<T: IntoBytes + Immutable>(
    address: UserAddr,
    value: &T,
) -> Result<(), BadAddress> {
    write(address, value.as_bytes())
}

/// Reads a 32-bit word.
pub fn read_u32(address: UserAddr) -> Result<u32, BadAddress> {
    let mut bytes = [0; 4];
    read(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Writes a 16-bit word.
#[inline(always)]
pub fn write_u16(address: UserAddr, value: u16) -> Result<(), BadAddress> {
    let bytes = value.to_le_bytes();
    match user_memory::write(address, &bytes) {
        done if done == bytes.len() => Ok(()),
        _ => write(address, &bytes),
    }
}

/// Writes a 32-bit word.
pub fn write_u32(address: UserAddr, value: u32) -> Result<(), BadAddress> {
    write(address, &value.to_le_bytes())
}

/// Reads bytes. May sleep.
pub fn read(address: UserAddr, to: &mut [u8]) -> Result<(), BadAddress> {
    let done = user_memory::read(address, to);
    match &mut to[done..] {
        [] => Ok(()),
        rest => space()?.read(address.wrapping_add(done as u64), rest),
    }
}

/// Writes bytes. May sleep.
pub fn write(address: UserAddr, from: &[u8]) -> Result<(), BadAddress> {
    let done = user_memory::write(address, from);
    match &from[done..] {
        [] => Ok(()),
        rest => space()?.write(address.wrapping_add(done as u64), rest),
    }
}

/// Clears memory. May sleep.
pub fn zero(address: UserAddr, length: u64) -> Result<(), BadAddress> {
    let done = user_memory::clear(address, length as usize) as u64;
    match length - done {
        0 => Ok(()),
        rest => space()?.zero(address.wrapping_add(done), rest),
    }
}
