// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of a PCI function.

use std::fmt;

/// Bus, device and function number of a PCI function of segment 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(u16);

impl Function {
    /// From bus, device and function in 16 bits.
    pub fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns bus, device and function in 16 bits.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns the address without its segment, such as `03:00.0`.
    pub fn without_segment(self) -> String {
        let [function, bus] = self.0.to_le_bytes();
        format!("{bus:02x}:{:02x}.{}", function >> 3, function & 7)
    }

    /// Reads an address such as `0000:03:00.0` or `03:00.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str, most: u16| {
            let found = u16::from_str_radix(text, 16).ok()?;
            (found <= most && !text.starts_with('+')).then_some(found)
        };
        let (rest, function) = text.rsplit_once('.')?;
        let mut fields = rest.rsplit(':');
        let (device, bus) = (fields.next()?, fields.next()?);
        let is_first = fields.next().is_none_or(|segment| number(segment, 0).is_some());
        if !is_first || fields.next().is_some() {
            return None;
        }
        let device = number(device, 31)? << 3 | number(function, 7)?;
        Some(Self(number(bus, 255)? << 8 | device))
    }
}

impl fmt::Display for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "0000:{}", self.without_segment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text| Function::parse(text).map(|function| function.to_string());
        assert_eq!(parse("03:1f.7").as_deref(), Some("0000:03:1f.7"));
        assert_eq!(parse("0000:ff:00.0").as_deref(), Some("0000:ff:00.0"));
        for bad in [
            "",
            "eth0",
            "3",
            "03:20.0",
            "03:00.8",
            "1:100:00.0",
            "0001:03:00.0",
            "0:0:0:0.0",
            "+3:0.0",
            ":0.0",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
