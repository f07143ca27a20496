// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports that programs of the realm have: those that it was started with, and those that it got
//! while it ran. A file tells later commands which they are.

use std::{fmt, path::Path};

use crtos_abi::cell::PortRange;

use crate::{
    code::Code,
    device::{Call, Device, Refusal},
    failure::{Asked, Result},
    machine::Machine,
    ranges, state,
};

/// File that tells of them.
const RECORD: &str = "/run/crtos/ports.json";

/// A range of I/O ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ports {
    first: u16,
    last: u16,
    /// By which the hypervisor tells of it, if the realm got it while it ran.
    number: Option<u32>,
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.first, self.last)
    }
}

impl Ports {
    /// Reads `0x378-0x37f`; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        // Other devices may have numbers for names.
        let range = text.starts_with("0x").then(|| ranges::ports(text).ok()).flatten()?;
        Some(Self::of(&range))
    }

    fn of(range: &PortRange) -> Self {
        Self { first: range.first, last: range.last, number: None }
    }

    fn range(&self) -> PortRange {
        PortRange { first: self.first, last: self.last, flags: 0 }
    }

    /// Whether both are the same ports.
    pub fn is(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last)
    }

    /// Gives them to a cell that runs.
    pub fn add(&self, file: &Device, cell: u32) -> Call<()> {
        let named = |refusal| name_users(&Machine::here(), &[self.range()], refusal);
        let number = file.add_ports(cell, &self.range()).map_err(named)?;
        self.note(Some(Self { number: Some(number), ..*self }));
        Ok(())
    }

    /// Takes them back from it.
    pub fn remove(&self, file: &Device, cell: u32) -> Call<()> {
        file.remove_ports(cell, &self.range())?;
        self.note(None);
        Ok(())
    }

    /// Notes what the realm has of them now.
    fn note(&self, now: Option<Self>) {
        // Without it they are listed by their number.
        let _ = state::change(Path::new(RECORD), |all: &mut Vec<Self>| {
            // A note of others with that number is older: a command that took them back was killed.
            let is_number = |other: &Self| now.is_some_and(|now| other.number == now.number);
            all.retain(|other| !other.is(self) && !is_number(other));
            all.extend(now);
        });
    }

    /// Those that the hypervisor tells of by that number.
    pub fn numbered(number: u16) -> Option<Self> {
        recorded().into_iter().find(|ports| ports.number == Some(number.into()))
    }

    /// Those that the realm was started with.
    pub fn from_the_start() -> impl Iterator<Item = Self> {
        recorded().into_iter().filter(|ports| ports.number.is_none())
    }
}

/// Who has ports of a range, as Linux lists them: the innermost entries, such as `0378-037a :
/// parport0`.
fn users(list: &str, range: &PortRange) -> Vec<String> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = list.lines().collect();
    let innermost = lines
        .iter()
        .enumerate()
        .filter(|(index, line)| lines.get(index + 1).is_none_or(|next| depth(next) <= depth(line)));
    let names = innermost.filter_map(|(_, line)| {
        let (ports, name) = line.trim().split_once(" : ")?;
        // Those of a bus are free where nothing is listed within.
        let name = Some(name).filter(|name| !name.starts_with("PCI Bus"))?;
        let (first, last) = ports.split_once('-')?;
        let first = u16::from_str_radix(first, 16).ok()?;
        let last = u16::from_str_radix(last, 16).ok()?;
        let meets = range.first <= last && first <= range.last;
        meets.then(|| format!("{name} has {first:#x}-{last:#x}"))
    });
    names.collect()
}

/// Adds to a refusal of ports who has them in Linux.
pub fn name_users(machine: &Machine, ranges: &[PortRange], mut refusal: Refusal) -> Refusal {
    let list = machine.read("/proc/ioports").unwrap_or_default();
    let users: Vec<String> = ranges.iter().flat_map(|range| users(&list, range)).collect();
    if refusal.code == Code::PortsInUse && !users.is_empty() {
        refusal.reason = format!("{} ({})", refusal.reason, users.join(", "));
    }
    refusal
}

fn recorded() -> Vec<Ports> {
    state::load(Path::new(RECORD)).unwrap_or_default()
}

/// Notes which the realm is started with.
pub fn take(ranges: &[PortRange]) -> Result<()> {
    let all: Vec<Ports> = ranges.iter().map(Ports::of).collect();
    if all.is_empty() {
        return Ok(());
    }
    state::store(Path::new(RECORD), &all).asked(format!("write {RECORD}"))
}

/// The realm has none any more.
pub fn give_back() {
    state::settle(Path::new(RECORD), |_: Ports| ());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ports() {
        const LIST: &str = "0000-0cf7 : PCI Bus 0000:00\n  0040-0043 : timer0\n  \
            0378-037a : parport0\n  0600-067f : 0000:00:1f.0\n    0600-0603 : ACPI PM1a\n\
            0d00-ffff : PCI Bus 0000:00\n";
        let of = |text| users(LIST, &ranges::ports(text).expect("a range"));
        assert_eq!(of("0x378-0x37f"), ["parport0 has 0x378-0x37a"]);
        assert_eq!(
            of("0x43-0x600"),
            ["timer0 has 0x40-0x43", "parport0 has 0x378-0x37a", "ACPI PM1a has 0x600-0x603"]
        );
        assert_eq!(of("0x604-0xe00"), [""; 0]);
    }

    #[test]
    fn ranges_have_names() {
        let read = |text| Ports::parse(text).map(|ports| ports.to_string());
        assert_eq!(read("0x378-0x37f").as_deref(), Some("0x378-0x37f"));
        assert_eq!(read("0x61").as_deref(), Some("0x61-0x61"));
        for other in ["378-37f", "0x37f-0x378", "8086:10d3", "03:00.0", "eth1", "0x10000", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
