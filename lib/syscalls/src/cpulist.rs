// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of CPUs as Linux writes them in sysfs: `0-3,7` and a newline. Reading is lenient, because
//! a machine wrote the list. Lists on the command line, which people write, have a strict reader of
//! their own.

use core::fmt::{self, Write};

/// A set of CPUs `0..256`, by Linux's numbers: bit `n % 64` of word `n / 64` is CPU `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuList(pub [u64; 4]);

impl CpuList {
    /// The number of CPUs that a list can name.
    pub const CPUS: usize = 256;

    /// Reads a list; `None` if the text is not one. Leaves out CPUs from [`Self::CPUS`] on.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut list = Self::default();
        let text = core::str::from_utf8(text).ok()?.trim();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            (first..=last.min(Self::CPUS - 1)).for_each(|cpu| list.add(cpu));
        }
        Some(list)
    }

    /// Adds a CPU; one from [`Self::CPUS`] on is left out.
    pub fn add(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Says whether `cpu` is in the list.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word & 1 << (cpu % 64) != 0)
    }

    /// Returns the CPUs of both lists.
    pub fn union(self, other: Self) -> Self {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        Self(words)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpu = 0;
        let mut separator = "";
        while cpu < Self::CPUS {
            let length = (cpu..Self::CPUS).take_while(|cpu| self.contains(*cpu)).count();
            match length {
                0 => (),
                1 => write!(f, "{separator}{cpu}")?,
                _ => write!(f, "{separator}{cpu}-{}", cpu + length - 1)?,
            }
            if length > 0 {
                separator = ",";
            }
            cpu += length + 1;
        }
        f.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn reads_what_linux_writes() {
        let list = CpuList::parse(b"0-2,7,64\n").unwrap();
        assert_eq!(list, CpuList([0b1000_0111, 1, 0, 0]));
        assert_eq!(list.to_string(), "0-2,7,64\n");
        assert_eq!(CpuList::parse(b"\n"), Some(CpuList::default()));
        assert_eq!(CpuList::default().to_string(), "\n");
        assert_eq!(CpuList::parse(b"255-300"), Some(CpuList([0, 0, 0, 1 << 63])));
        assert_eq!(CpuList::parse(b"one"), None);
        assert_eq!(CpuList::parse(&[0xff]), None);
    }

    proptest::proptest! {
        #[test]
        fn every_set_survives(words: [u64; 4]) {
            let list = CpuList(words);
            proptest::prop_assert_eq!(CpuList::parse(list.to_string().as_bytes()), Some(list));
        }
    }
}
