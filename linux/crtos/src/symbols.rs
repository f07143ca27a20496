// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of addresses in the real-time kernel, from its installed file.

use std::fs;

use object::{
    LittleEndian,
    elf::{FileHeader64, STT_FUNC, STT_NOTYPE},
    read::elf::{FileHeader, Sym},
};

use crate::install;

/// Functions by address.
#[derive(Debug, Default)]
pub struct Symbols(Vec<(u64, String)>);

/// Where the entries of interrupts begin, and how far apart they are.
const STUBS: &str = "interrupt_stubs";
const STUB_SIZE: u64 = 16;

impl Symbols {
    /// Reads those of the installed kernel; none if it cannot be read.
    pub fn installed() -> Self {
        fs::read(install::kernel()).ok().and_then(|elf| Self::parse(&elf)).unwrap_or_default()
    }

    fn parse(elf: &[u8]) -> Option<Self> {
        let header = FileHeader64::<LittleEndian>::parse(elf).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, elf).ok()?;
        let table = sections.symbols(endian, elf, object::elf::SHT_SYMTAB).ok()?;
        let mut symbols: Vec<_> = table
            .iter()
            .filter(|symbol| {
                matches!(symbol.st_type(), STT_FUNC | STT_NOTYPE) && symbol.st_shndx(endian) != 0
            })
            .filter_map(|symbol| {
                let name = std::str::from_utf8(symbol.name(endian, table.strings()).ok()?).ok()?;
                let name = format!("{:#}", rustc_demangle::demangle(name));
                Some((symbol.st_value(endian), name))
            })
            .filter(|(_, name)| !name.is_empty())
            .collect();
        symbols.sort();
        Some(Self(symbols))
    }

    /// Returns function and offset, or the number itself if there is no function.
    pub fn name(&self, address: u64) -> String {
        let behind = self.0.partition_point(|(start, _)| *start <= address);
        match self.0[..behind].last() {
            Some((start, name)) if name == STUBS => match (address - start) / STUB_SIZE {
                exception @ 0..32 => format!("exception {exception}"),
                vector => format!("interrupt {vector}"),
            },
            Some((start, name)) => format!("{name}+{:#x}", address - start),
            None => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_function_before() {
        let symbols = Symbols(vec![
            (0x1000, "first".into()),
            (0x2000, STUBS.into()),
            (0x3000, "second".into()),
        ]);
        assert_eq!(symbols.name(0x500), "0x500");
        assert_eq!(symbols.name(0x1000), "first+0x0");
        assert_eq!(symbols.name(0x1fff), "first+0xfff");
        assert_eq!(symbols.name(0x2000 + 14 * 16), "exception 14");
        assert_eq!(symbols.name(0x2000 + 236 * 16), "interrupt 236");
        assert_eq!(symbols.name(0x3001), "second+0x1");
    }
}
