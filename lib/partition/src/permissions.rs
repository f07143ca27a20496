// SPDX-License-Identifier: MIT OR Apache-2.0
//! Permission bitmaps that the processor reads: I/O ports (AMD APM vol. 2, 15.10) and
//! model-specific registers (15.11). A set bit means: exit.

use core::ops::RangeInclusive;

use crtos_abi::cell::{MSR_READ, MSR_WRITE};

/// Bytes of a port bitmap: three pages.
pub const PORT_BITMAP_SIZE: usize = 3 * 4096;
/// Bytes of an MSR bitmap: two pages.
pub const MSR_BITMAP_SIZE: usize = 2 * 4096;

/// Tells whether two ranges of ports have one in common.
pub fn ports_meet(one: &RangeInclusive<u16>, other: &RangeInclusive<u16>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

/// Makes all ports exit (`true`) or none.
pub fn trap_all_ports(bitmap: &mut [u8], trap: bool) {
    bitmap.fill(if trap { 0xff } else { 0 });
}

/// Makes ports `first..=last` exit or not.
pub fn trap_ports(bitmap: &mut [u8], first: u16, last: u16, trap: bool) {
    for port in usize::from(first)..=usize::from(last) {
        let bit = 1 << (port % 8);
        if let Some(byte) = bitmap.get_mut(port / 8) {
            *byte = if trap { *byte | bit } else { *byte & !bit };
        }
    }
}

/// Tells whether an access to `port` exits.
pub fn port_trapped(bitmap: &[u8], port: u16) -> bool {
    bitmap.get(usize::from(port) / 8).is_none_or(|byte| byte & (1 << (port % 8)) != 0)
}

/// Bit number of the read permission of `msr`, the write permission follows; `None` for registers
/// that the bitmap does not cover: they always exit.
fn msr_bit(msr: u32) -> Option<usize> {
    let (base, range) = match msr {
        0..=0x1fff => (0, 0),
        0xc000_0000..=0xc000_1fff => (0xc000_0000, 1),
        0xc001_0000..=0xc001_1fff => (0xc001_0000, 2),
        _ => return None,
    };
    Some(((msr - base) as usize + range * 0x2000) * 2)
}

/// Tells whether access to `msr` can be permitted without an exit.
pub fn msr_covered(msr: u32) -> bool {
    msr_bit(msr).is_some()
}

/// Makes all registers exit (`true`) or none of those that the bitmap covers.
pub fn trap_all_msrs(bitmap: &mut [u8], trap: bool) {
    bitmap.fill(if trap { 0xff } else { 0 });
}

/// Makes all registers exit when they are written, and none that the bitmap covers when it is read.
pub fn trap_all_msr_writes(bitmap: &mut [u8]) {
    bitmap.fill(0b1010_1010);
}

/// Makes accesses (`MSR_READ`, `MSR_WRITE` or both) to `msr` exit or not.
pub fn trap_msr(bitmap: &mut [u8], msr: u32, access: u32, trap: bool) {
    let Some(bit) = msr_bit(msr) else { return };
    for (offset, kind) in [(0, MSR_READ), (1, MSR_WRITE)] {
        let mask = 1 << ((bit + offset) % 8);
        if let (true, Some(byte)) = (access & kind != 0, bitmap.get_mut((bit + offset) / 8)) {
            *byte = if trap { *byte | mask } else { *byte & !mask };
        }
    }
}

/// Tells whether the access to `msr` exits.
pub fn msr_trapped(bitmap: &[u8], msr: u32, access: u32) -> bool {
    let Some(bit) = msr_bit(msr) else { return true };
    [(0, MSR_READ), (1, MSR_WRITE)].iter().any(|(offset, kind)| {
        access & kind != 0 && bitmap[(bit + offset) / 8] & (1 << ((bit + offset) % 8)) != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_the_permitted_ports_do_not_exit(first: u16, length in 0u16..300, probe: u16) {
            let last = first.saturating_add(length);
            let mut bitmap = vec![0; PORT_BITMAP_SIZE];
            trap_all_ports(&mut bitmap, true);
            trap_ports(&mut bitmap, first, last, false);
            for port in [probe, first, last, first.wrapping_sub(1), last.wrapping_add(1)] {
                prop_assert_eq!(port_trapped(&bitmap, port), !(first..=last).contains(&port));
            }
        }

        #[test]
        fn exactly_the_permitted_registers_do_not_exit(
            range in 0usize..3, offset in 0u32..0x2000, access in 1u32..4, probe in 0u32..0x2000
        ) {
            let base = [0, 0xc000_0000, 0xc001_0000][range];
            let mut bitmap = vec![0; MSR_BITMAP_SIZE];
            trap_all_msrs(&mut bitmap, true);
            trap_msr(&mut bitmap, base + offset, access, false);
            for kind in [MSR_READ, MSR_WRITE] {
                prop_assert_eq!(msr_trapped(&bitmap, base + offset, kind), access & kind == 0);
                prop_assert!(probe == offset || msr_trapped(&bitmap, base + probe, kind));
                prop_assert!(msr_trapped(&bitmap, 0x4000_0000 + probe, kind));
            }
        }
    }
}
