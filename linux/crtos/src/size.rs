// SPDX-License-Identifier: MIT OR Apache-2.0
//! Amounts of memory as people write them: `512M`, `1G`, `64MiB`.

use std::{fmt, str::FromStr};

use crtos_abi::LARGE_PAGE_SIZE;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Returns `count` mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns the size rounded up to blocks of 2 MiB, in which memory changes owner.
    pub const fn whole_blocks(self) -> Self {
        Self(self.0.next_multiple_of(LARGE_PAGE_SIZE))
    }
}

/// Reads an amount of memory that has a unit, so that nobody gets bytes who meant MiB.
pub fn with_unit(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 != 0 && text.ends_with(|last: char| last.is_ascii_digit()) {
        true => Err(format!("`{text}` has no unit; write `{text}M` for MiB, `{text}G` for GiB")),
        false => Ok(size),
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no amount of memory; write one like 512M or 1G");
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = unit.to_ascii_uppercase();
        let shift = match unit.strip_suffix("IB").unwrap_or(&unit) {
            "" if unit.is_empty() => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        if number > (1 << 47) >> shift {
            return Err(format!("`{text}` is more than any machine has"));
        }
        Ok(Self(number << shift))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let (shift, unit) = match bytes {
            b if b >= 10 << 30 || (b >= 1 << 30 && b % (1 << 30) == 0) => (30, "GiB"),
            b if b >= 1 << 20 => (20, "MiB"),
            b if b >= 1 << 10 => (10, "KiB"),
            _ => return write!(f, "{bytes} bytes"),
        };
        let whole = bytes >> shift;
        let tenth = ((bytes - (whole << shift)) * 10) >> shift;
        match tenth {
            0 => write!(f, "{whole} {unit}"),
            _ => write!(f, "{whole}.{tenth} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("512M", 512 << 20),
            ("1g", 1 << 30),
            ("2GiB", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "1.5G", "-1M", "1X", "5iB", "99999999T", "1 M"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn memory_has_a_unit() {
        assert_eq!(with_unit("512M"), Ok(Size::mib(512)));
        assert_eq!(with_unit("0"), Ok(Size(0)));
        assert!(with_unit("512").unwrap_err().contains("write `512M` for MiB"));
        assert!(with_unit("x").unwrap_err().contains("no amount of memory"));
    }

    #[test]
    fn writes_what_people_read() {
        for (bytes, text) in [
            (12, "12 bytes"),
            (64 << 10, "64 KiB"),
            (1536 << 10, "1.5 MiB"),
            (512 << 20, "512 MiB"),
            (1 << 30, "1 GiB"),
            (1536 << 20, "1536 MiB"),
            (31 << 29, "15.5 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn rounds_up_to_blocks() {
        assert_eq!(Size(1).whole_blocks(), Size::mib(2));
        assert_eq!(Size::mib(64).whole_blocks(), Size::mib(64));
    }
}
