// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration space of a function that a program drives. It reads what is there; base address
//! registers answer with their size when all ones are written. How the function interrupts is said
//! by other calls. Its memory stays on.

/// Bytes that there are.
pub const SIZE: u64 = 256;
/// Command below, status above.
pub const COMMAND: u64 = 0x04;
/// Of the command: the pin does not interrupt.
pub const PIN_OFF: u32 = 0x0400;
/// I/O space and bus master.
const COMMAND_BITS: u32 = 0x0005;
/// Errors in the status register, which ones clear.
const ERRORS: u32 = 0xf900_0000;
const BASE_ADDRESSES: core::ops::Range<u64> = 0x10..0x28;

/// Which bits a program may write of the four bytes at `register`.
pub fn writable(register: u64) -> u32 {
    match register {
        COMMAND => COMMAND_BITS | ERRORS,
        _ if BASE_ADDRESSES.contains(&register) => u32::MAX,
        _ => 0,
    }
}

/// The part of a transfer at `position` of `left` bytes that lies in one register: the register,
/// the bit at which it begins, how many bytes it has.
pub fn piece(position: u64, left: u64) -> (u64, u32, usize) {
    let within = position % 4;
    (position - within, within as u32 * 8, left.min(4 - within) as usize)
}

/// The bits of a register that a piece of `count` bytes from `bit` on has.
pub fn mask(bit: u32, count: usize) -> u32 {
    (u32::MAX >> (32 - 8 * count as u32)) << bit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces cover a transfer, each byte once.
        #[test]
        fn pieces_are_the_transfer(start in 0..SIZE, length in 1..32u64) {
            let mut at = start;
            while at < start + length {
                let (register, bit, count) = piece(at, start + length - at);
                let within = u64::from(bit) / 8;
                prop_assert!(register % 4 == 0 && count > 0 && within + count as u64 <= 4);
                prop_assert_eq!(register + within, at);
                at += count as u64;
            }
            prop_assert_eq!(at, start + length);
        }

        /// Interrupts, memory and capabilities are not a program's to switch.
        #[test]
        fn little_is_writable(register in (0..SIZE / 4).prop_map(|number| 4 * number)) {
            let bits = writable(register);
            prop_assert!(bits == 0 || register == 4 || (0x10..0x28).contains(&register));
            prop_assert!(register != 4 || bits & 0x0402 == 0);
        }
    }
}
