// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports and model-specific registers as they are given on the command line: `0xe9`,
//! `0x3f8-0x3ff:exclusive`, `0x10-0x12:rw`.

use crtos_abi::cell::{MSR_READ, MSR_WRITE, MsrRange, PORT_EXCLUSIVE, PortRange};

/// Reads a number, which is hexadecimal with `0x`.
fn number<T: TryFrom<u32>>(text: &str) -> Result<T, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value
        .ok()
        .and_then(|value| value.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no number, or too large; write it like 0x3f8"))
}

/// Reads `FIRST` or `FIRST-LAST`.
fn range<T: TryFrom<u32> + Copy + PartialOrd>(text: &str) -> Result<(T, T), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("`{text}` runs backwards"));
    }
    Ok((first, last))
}

/// Reads `FIRST[-LAST][:exclusive]`.
pub fn ports(text: &str) -> Result<PortRange, String> {
    let (numbers, flags) = match text.split_once(':') {
        None => (text, 0),
        Some((numbers, "exclusive")) => (numbers, PORT_EXCLUSIVE),
        Some((_, other)) => {
            return Err(format!("`{other}` is unknown; only `exclusive` may follow"));
        }
    };
    let (first, last) = range(numbers)?;
    Ok(PortRange { first, last, flags })
}

/// Reads `FIRST[-LAST]:r`, `:w` or `:rw`.
pub fn msrs(text: &str) -> Result<MsrRange, String> {
    let (numbers, flags) = match text.split_once(':') {
        Some((numbers, "r")) => (numbers, MSR_READ),
        Some((numbers, "w")) => (numbers, MSR_WRITE),
        Some((numbers, "rw")) => (numbers, MSR_READ | MSR_WRITE),
        _ => return Err(format!("`{text}` does not say `:r`, `:w` or `:rw`")),
    };
    let (first, last) = range(numbers)?;
    Ok(MsrRange { first, last, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ports() {
        assert_eq!(ports("0xe9"), Ok(PortRange { first: 0xe9, last: 0xe9, flags: 0 }));
        assert_eq!(
            ports("0x3f8-0x3ff:exclusive"),
            Ok(PortRange { first: 0x3f8, last: 0x3ff, flags: PORT_EXCLUSIVE })
        );
        for text in ["", "x", "0x10000", "2-1", "1:shared", "1-2-3"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_registers() {
        assert_eq!(
            msrs("0xc0010000-0xc0010003:rw"),
            Ok(MsrRange { first: 0xc001_0000, last: 0xc001_0003, flags: MSR_READ | MSR_WRITE })
        );
        assert_eq!(msrs("16:r"), Ok(MsrRange { first: 16, last: 16, flags: MSR_READ }));
        for text in ["16", "16:x", "16:", "2-1:r"] {
            assert!(msrs(text).is_err(), "{text}");
        }
    }
}
