// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of sysfs that list CPUs, as programs of the realm see them.
//!
//! To Linux the realm's CPUs are offline, but programs of the realm run there. C libraries count
//! processors by these files, and libnuma finds the node of a CPU in them. They show the realm's
//! CPUs beside Linux's. To a program with a numbering of its own they show the realm's alone, from
//! 0 on.

use core::fmt::{self, Write};

use crate::cpulist::CpuList;

/// A file that lists CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// A list of CPUs: `online`, `possible`, `present`.
    Cpus(Kind),
    /// The list of a node's CPUs.
    NodeList(u16),
    /// The mask of a node's CPUs.
    NodeMask(u16),
}

/// Which CPUs of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Those that are online.
    Online,
    /// Those that can be there.
    Possible,
    /// Those that are there.
    Present,
}

const FOLDER: &[u8] = b"/sys/devices/system/";

impl File {
    /// An upper bound of the bytes of a name, its zero included.
    pub const LONGEST_NAME: usize = 48;

    /// Returns the file of this exact name.
    pub fn named(name: &[u8]) -> Option<Self> {
        let name = name.strip_prefix(FOLDER)?;
        let kind = match name {
            b"cpu/online" => Kind::Online,
            b"cpu/possible" => Kind::Possible,
            b"cpu/present" => Kind::Present,
            _ => {
                let rest = name.strip_prefix(b"node/node")?;
                let slash = rest.iter().position(|&byte| byte == b'/')?;
                let (number, file) = rest.split_at(slash);
                let canonical = number == b"0" || !number.starts_with(b"0");
                let digits = number.iter().all(u8::is_ascii_digit) && canonical;
                let node = core::str::from_utf8(number).ok().filter(|_| digits)?.parse().ok()?;
                return match file {
                    b"/cpulist" => Some(Self::NodeList(node)),
                    b"/cpumap" => Some(Self::NodeMask(node)),
                    _ => None,
                };
            }
        };
        Some(Self::Cpus(kind))
    }

    /// Encodes the file as a word of a request (`OP_TOPOLOGY`).
    pub fn to_word(self) -> u64 {
        match self {
            Self::Cpus(kind) => kind as u64,
            Self::NodeList(node) => 3 | u64::from(node) << 8,
            Self::NodeMask(node) => 4 | u64::from(node) << 8,
        }
    }

    /// Decodes the word of a request.
    pub fn from_word(word: u64) -> Option<Self> {
        let node = (word >> 8) as u16;
        Some(match word as u8 {
            0 => Self::Cpus(Kind::Online),
            1 => Self::Cpus(Kind::Possible),
            2 => Self::Cpus(Kind::Present),
            3 => Self::NodeList(node),
            4 => Self::NodeMask(node),
            _ => return None,
        })
    }

    /// Returns the memory node that the file belongs to, if it does.
    pub fn node(self) -> Option<u16> {
        match self {
            Self::Cpus(_) => None,
            Self::NodeList(node) | Self::NodeMask(node) => Some(node),
        }
    }
}

impl fmt::Display for File {
    /// Its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(FOLDER).map_err(|_| fmt::Error)?)?;
        match self {
            Self::Cpus(Kind::Online) => f.write_str("cpu/online"),
            Self::Cpus(Kind::Possible) => f.write_str("cpu/possible"),
            Self::Cpus(Kind::Present) => f.write_str("cpu/present"),
            Self::NodeList(node) => write!(f, "node/node{node}/cpulist"),
            Self::NodeMask(node) => write!(f, "node/node{node}/cpumap"),
        }
    }
}

/// A text of limited length.
pub struct Text {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Text {
    /// The most bytes of a text, more than any list of [`CpuList::CPUS`] CPUs has.
    pub const MOST: usize = 1024;

    /// Makes a text of what `fill` writes to the buffer that it gets; `fill` returns the number of
    /// bytes.
    pub fn filled(fill: impl FnOnce(&mut [u8]) -> usize) -> Self {
        let mut text = Self { bytes: [0; Self::MOST], length: 0 };
        text.length = fill(&mut text.bytes).min(Self::MOST);
        text
    }

    /// Formats `what`; `None` if that is longer than [`Self::MOST`].
    pub fn of(what: impl fmt::Display) -> Option<Self> {
        let mut text = Self { bytes: [0; Self::MOST], length: 0 };
        write!(text, "{what}").ok()?;
        Some(text)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.length).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Returns the contents of `file` with the CPUs `realm` added to Linux's contents `linux`; with
/// `alone`, of `realm` only. `None` if `linux` is not the contents of such a file.
pub fn show(file: File, mut linux: Text, realm: CpuList, alone: bool) -> Option<Text> {
    let File::NodeMask(_) = file else {
        let own = if alone { CpuList::default() } else { CpuList::parse(linux.bytes())? };
        return Text::of(own.union(realm));
    };
    // Hexadecimal digits from the last CPUs to the first, with commas in between: as many as Linux
    // shows.
    let mut first = 0;
    for digit in linux.bytes_mut().iter_mut().rev() {
        let value = match *digit {
            b',' | b'\n' => continue,
            byte => (byte as char).to_digit(16)?,
        };
        let value = if alone { 0 } else { value };
        let bits = (0..4)
            .fold(value, |bits, bit| bits | u32::from(realm.contains(first + bit as usize)) << bit);
        *digit = char::from_digit(bits, 16)? as u8;
        first += 4;
    }
    Some(linux)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const FILES: [(&[u8], File); 6] = [
        (b"/sys/devices/system/cpu/online", File::Cpus(Kind::Online)),
        (b"/sys/devices/system/cpu/possible", File::Cpus(Kind::Possible)),
        (b"/sys/devices/system/cpu/present", File::Cpus(Kind::Present)),
        (b"/sys/devices/system/node/node0/cpulist", File::NodeList(0)),
        (b"/sys/devices/system/node/node12/cpumap", File::NodeMask(12)),
        (b"/sys/devices/system/node/node65535/cpumap", File::NodeMask(65535)),
    ];

    #[test]
    fn names_and_words_name_the_same_file() {
        for (name, file) in FILES {
            assert_eq!(File::named(name), Some(file));
            assert_eq!(file.to_string().as_bytes(), name);
            assert!(name.len() < File::LONGEST_NAME);
            assert_eq!(File::from_word(file.to_word()), Some(file));
        }
    }

    #[test]
    fn other_names_are_none() {
        for name in [
            "/sys/devices/system/cpu/offline",
            "/sys/devices/system/cpu/online/",
            "sys/devices/system/cpu/online",
            "/sys/devices/system/node/node00/cpumap",
            "/sys/devices/system/node/node/cpumap",
            "/sys/devices/system/node/node+1/cpumap",
            "/sys/devices/system/node/node65536/cpumap",
            "/sys/devices/system/node/node0/meminfo",
            "",
        ] {
            assert_eq!(File::named(name.as_bytes()), None, "{name}");
        }
        assert_eq!(File::from_word(5), None);
    }

    fn shown(file: File, linux: &str, realm: &str, alone: bool) -> Option<std::string::String> {
        let realm = CpuList::parse(realm.as_bytes()).unwrap();
        show(file, Text::of(linux).unwrap(), realm, alone)
            .map(|text| std::string::String::from_utf8(text.bytes().to_vec()).unwrap())
    }

    #[test]
    fn the_realm_is_beside_linux_or_alone() {
        let list = File::Cpus(Kind::Online);
        assert_eq!(shown(list, "0,1\n", "2,3", false).unwrap(), "0-3\n");
        assert_eq!(shown(list, "0,1\n", "0,1", true).unwrap(), "0-1\n");
        assert_eq!(shown(list, "zero\n", "2", false), None);
        let mask = File::NodeMask(0);
        assert_eq!(shown(mask, "3\n", "2,3", false).unwrap(), "f\n");
        assert_eq!(shown(mask, "c\n", "0", true).unwrap(), "1\n");
        assert_eq!(
            shown(mask, "00000000,00000003\n", "2,35", false).unwrap(),
            "00000008,00000007\n"
        );
        assert_eq!(shown(mask, "3g\n", "2", false), None);
        // A CPU beyond those that Linux shows.
        assert_eq!(shown(mask, "3\n", "4", false).unwrap(), "3\n");
    }
}
