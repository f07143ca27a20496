// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which frames a card receives beside those for its own address and for all: what several users
//! want, each of whom takes back what it wanted.

use crate::{
    HardwareAddress,
    card::{RECEIVE_ALL, RECEIVE_GROUPS, Registers, VALID, register},
};

/// What somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// Everything.
    All,
    /// What is for any group.
    Groups,
    /// What is for that address, which is a group's or a further one of its own.
    Address(HardwareAddress),
}

/// Most addresses.
pub const MOST: usize = 32;
/// Further addresses of its own that a card knows; with more it receives everything.
const OWN: usize = 15;
/// Words of the table of groups.
const WORDS: usize = 128;

/// There are too many addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

/// What all want together.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    all: u32,
    groups: u32,
    addresses: [Option<(HardwareAddress, u32)>; MOST],
}

/// Whether an address is that of a group.
pub fn is_group(address: &HardwareAddress) -> bool {
    address[0] & 1 != 0
}

impl Filter {
    /// One more wants that.
    pub fn admit(&mut self, what: Reception) -> Result<(), TooMany> {
        match what {
            Reception::All => self.all += 1,
            Reception::Groups => self.groups += 1,
            Reception::Address(address) => {
                if let Some((_, users)) =
                    self.addresses.iter_mut().flatten().find(|(known, _)| *known == address)
                {
                    *users += 1;
                    return Ok(());
                }
                let free = self.addresses.iter_mut().find(|place| place.is_none());
                *free.ok_or(TooMany)? = Some((address, 1));
            }
        }
        Ok(())
    }

    /// One wants it no more.
    pub fn refuse(&mut self, what: Reception) {
        match what {
            Reception::All => self.all = self.all.saturating_sub(1),
            Reception::Groups => self.groups = self.groups.saturating_sub(1),
            Reception::Address(address) => {
                for place in &mut self.addresses {
                    if let Some((known, users)) = place
                        && *known == address
                    {
                        *users -= 1;
                        place.take_if(|(_, users)| *users == 0);
                    }
                }
            }
        }
    }

    /// Has the card, whose own address is `own`, receive that. Some 170 accesses.
    pub fn apply(&self, registers: &impl Registers, own: HardwareAddress) {
        let addresses = || self.addresses.iter().flatten().map(|(address, _)| *address);
        let mut table = [0u32; WORDS];
        for group in addresses().filter(is_group) {
            let hash = usize::from(group[4] >> 4) | usize::from(group[5]) << 4;
            table[hash >> 5] |= 1 << (hash & 31);
        }
        for (word, at) in table.into_iter().zip((register::GROUPS..).step_by(4)) {
            registers.write(at, word);
        }
        let further = || addresses().filter(|address| !is_group(address));
        let mut own_ones = core::iter::once(own).chain(further().take(OWN));
        for place in 0..=OWN as u32 {
            let at = register::ADDRESSES + 8 * place;
            let [a, b, c, d, e, f] = own_ones.next().map_or([0; 6], |address| address);
            let is_there = [a, b, c, d, e, f] != [0; 6];
            registers.write(at, u32::from_le_bytes([a, b, c, d]));
            let high = u32::from_le_bytes([e, f, 0, 0]);
            registers.write(at + 4, high | if is_there { VALID } else { 0 });
        }
        let all = self.all > 0 || further().count() > OWN;
        let mut control = registers.read(register::RECEIVE) & !(RECEIVE_ALL | RECEIVE_GROUPS);
        control |= if all { RECEIVE_ALL | RECEIVE_GROUPS } else { 0 };
        control |= if self.groups > 0 { RECEIVE_GROUPS } else { 0 };
        registers.write(register::RECEIVE, control);
    }
}
