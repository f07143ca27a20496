// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page attribute table: eight memory types of a byte each (APM vol. 2, 7.8).

/// Value after a reset (APM vol. 2, table 14-1).
pub const RESET: u64 = 0x0007_0406_0007_0406;

/// Tells whether each of the eight memory types is one that exists. VMRUN fails with any other.
pub fn is_valid(value: u64) -> bool {
    value.to_le_bytes().iter().all(|memory_type| matches!(memory_type, 0 | 1 | 4..=7))
}

#[cfg(test)]
mod tests {
    use super::{RESET, is_valid};

    #[test]
    fn a_reserved_type_is_not_valid() {
        assert!(is_valid(RESET));
        assert!(!is_valid(RESET & !0xff | 2));
        assert!(!is_valid(RESET & !0xff | 8));
    }
}
