// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speeds of a serial line: Linux's codes for them, and the divisor of a UART's clock.

use linux_raw_sys::general as linux;

/// Codes of `c_cflag` and what they stand for, in baud.
const CODES: [(u32, u32); 31] = [
    (linux::B0, 0),
    (linux::B50, 50),
    (linux::B75, 75),
    (linux::B110, 110),
    (linux::B134, 134),
    (linux::B150, 150),
    (linux::B200, 200),
    (linux::B300, 300),
    (linux::B600, 600),
    (linux::B1200, 1200),
    (linux::B1800, 1800),
    (linux::B2400, 2400),
    (linux::B4800, 4800),
    (linux::B9600, 9600),
    (linux::B19200, 19_200),
    (linux::B38400, 38_400),
    (linux::B57600, 57_600),
    (linux::B115200, 115_200),
    (linux::B230400, 230_400),
    (linux::B460800, 460_800),
    (linux::B500000, 500_000),
    (linux::B576000, 576_000),
    (linux::B921600, 921_600),
    (linux::B1000000, 1_000_000),
    (linux::B1152000, 1_152_000),
    (linux::B1500000, 1_500_000),
    (linux::B2000000, 2_000_000),
    (linux::B2500000, 2_500_000),
    (linux::B3000000, 3_000_000),
    (linux::B3500000, 3_500_000),
    (linux::B4000000, 4_000_000),
];

/// Returns the speed of a code, in baud; `None` for BOTHER and for what is no code.
pub fn of_code(code: u32) -> Option<u32> {
    CODES.iter().find(|(other, _)| *other == code).map(|(_, baud)| *baud)
}

/// Returns the code of a speed in baud, if it has one.
pub fn code(baud: u32) -> Option<u32> {
    CODES.iter().find(|(_, other)| *other == baud).map(|(code, _)| *code)
}

/// Returns the divisor for a speed in baud: that which comes closest. `highest` is the speed with
/// divisor 1. `None` if the UART does not have that speed; Linux allows 1 % more than the highest
/// one, and less than 1 baud below the lowest one.
pub fn divisor(highest: u32, baud: u32) -> Option<u16> {
    let lowest = (highest / u32::from(u16::MAX)).max(1);
    if baud < lowest || baud > highest.saturating_add(highest / 100) {
        return None;
    }
    let rounded = (u64::from(highest) + u64::from(baud) / 2) / u64::from(baud);
    Some(u16::try_from(rounded).unwrap_or(u16::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_speeds_divide_the_clock() {
        let divisors = [50, 110, 134, 9600, 57_600, 115_200, 116_000].map(|b| divisor(115_200, b));
        let wanted = [2304, 1047, 860, 12, 2, 1, 1].map(Some);
        assert_eq!(divisors, wanted);
        assert_eq!([0, 230_400].map(|b| divisor(115_200, b)), [None, None]);
        assert_eq!([50, 61].map(|b| divisor(4_000_000, b)), [None, Some(0xffff)]);
    }

    #[test]
    fn codes_are_those_of_their_speeds() {
        for (code_, baud) in CODES {
            assert_eq!((of_code(code_), code(baud)), (Some(baud), Some(code_)));
        }
        assert_eq!((of_code(linux::BOTHER), code(250_000)), (None, None));
    }

    proptest! {
        #[test]
        fn no_other_divisor_comes_closer(baud in 2u32..=115_200) {
            let highest = 115_200;
            let found = u32::from(divisor(highest, baud).unwrap());
            // In units that avoid fractions of the period.
            let error = |d: u32| (u64::from(d) * u64::from(baud)).abs_diff(highest.into());
            prop_assert!(error(found) <= error(found + 1));
            prop_assert!(found == 1 || error(found) <= error(found - 1));
        }
    }
}
