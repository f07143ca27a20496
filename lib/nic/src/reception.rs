// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which frames a card receives beside those for its own address and for all: what several users
//! want, each of whom takes back what it wanted.

use crate::HardwareAddress;

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

    /// Whether anybody wants everything.
    pub fn wants_all(&self) -> bool {
        self.all > 0
    }

    /// Whether anybody wants what is for any group.
    pub fn wants_groups(&self) -> bool {
        self.groups > 0
    }

    /// The addresses that are wanted, each once.
    pub fn addresses(&self) -> impl Iterator<Item = HardwareAddress> + Clone {
        self.addresses.iter().flatten().map(|(address, _)| *address)
    }
}
