// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of CPUs as Linux writes them: `3`, `2,3`, `1-3,6`. People write them, so the error says
//! what is wrong with a text that is no list.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crtos_abi::{MAX_CPUS, ids::RealmCpu};

/// A set of Linux CPU numbers, each below [`MAX_CPUS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Returns Linux's number of `cpu` in a realm that has these.
    pub fn of_realm(&self, cpu: RealmCpu) -> Option<u32> {
        self.iter().nth(cpu.get())
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether `cpu` is among them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns those that are not in `others`.
    pub fn without(&self, others: &Self) -> Self {
        Self(self.0.difference(&others.0).copied().collect())
    }

    /// Returns a bit for each CPU, as the device takes it.
    pub fn mask(&self) -> [u64; 4] {
        let mut mask = [0; 4];
        for cpu in self.iter() {
            mask[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        mask
    }

    /// Makes a list of a bit for each CPU, the reverse of [`Self::mask`].
    pub fn from_mask(mask: &[u64; 4]) -> Self {
        (0..MAX_CPUS as u32).filter(|cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
    }

    /// Returns words for a message: "CPU 3" or "CPUs 2-3".
    pub fn named(&self) -> String {
        if self.len() == 1 { format!("CPU {self}") } else { format!("CPUs {self}") }
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| match digits.trim().parse::<u32>() {
            Ok(cpu) if (cpu as usize) < MAX_CPUS => Ok(cpu),
            Ok(cpu) => Err(format!("{cpu} is too large: CPUs are numbered below {MAX_CPUS}")),
            Err(_) => Err(format!("`{digits}` is no CPU number; write CPUs like 3 or 1-3,6")),
        };
        let mut set = BTreeSet::new();
        for part in text.trim().split(',') {
            match part.split_once('-') {
                None => {
                    set.insert(number(part)?);
                }
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(format!("`{part}` runs backwards"));
                    }
                    set.extend(first..=last);
                }
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_numbers_and_ranges() {
        let list: CpuList = "1-3,6".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2, 3, 6]);
        assert_eq!("2,3".parse::<CpuList>().unwrap().to_string(), "2,3");
        assert_eq!("3,2,2,1".parse::<CpuList>().unwrap().to_string(), "1-3");
    }

    #[test]
    fn refuses_what_is_no_list() {
        for text in ["", "a", "1-", "-1", "3-1", "1,,2", "256", "1;2"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_mask_lead_back(numbers in proptest::collection::btree_set(0u32..256, 1..40)) {
            let list: CpuList = numbers.into_iter().collect();
            prop_assert_eq!(&list.to_string().parse::<CpuList>().unwrap(), &list);
            prop_assert_eq!(&CpuList::from_mask(&list.mask()), &list);
        }
    }
}
