// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program asks for by `VFIO_DEVICE_SET_IRQS`.

use core::ops::Range;

use crate::Refused;
use crate::abi::{INTERRUPTS, size};

/// Kinds of interrupts, by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The pin.
    Pin,
    /// Messages that configuration space describes (MSI).
    Messages,
    /// Messages of a table (MSI-X).
    Table,
    /// Errors of PCI Express.
    Errors,
    /// Linux wants the function back.
    Request,
}

impl Kind {
    /// The kind with that index.
    pub fn of(index: u32) -> Option<Self> {
        const ALL: [Kind; INTERRUPTS as usize] =
            [Kind::Pin, Kind::Messages, Kind::Table, Kind::Errors, Kind::Request];
        ALL.get(index as usize).copied()
    }
}

/// What comes behind the structure, for each interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing.
    None,
    /// A byte: whether it is meant.
    Bool,
    /// A descriptor of an eventfd, or -1.
    Event,
}

impl Data {
    /// Bytes for each interrupt.
    pub fn size(self) -> usize {
        match self {
            Self::None => 0,
            Self::Bool => 1,
            Self::Event => 4,
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The interrupt is masked.
    Mask,
    /// It is not masked any more.
    Unmask,
    /// It is raised, or is said who hears it.
    Trigger,
}

/// A request that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of which kind.
    pub kind: Kind,
    /// Which of them.
    pub numbers: Range<u32>,
    /// What is to be done.
    pub action: Action,
    /// By what it is said.
    pub data: Data,
}

/// The words of the structure, `argsz` being the first: what it asks for, where there are
/// `count_of` interrupts of each kind. (`vfio_set_irqs_validate_and_prepare`.)
pub fn request(words: [u32; 5], count_of: impl Fn(Kind) -> u32) -> Result<Request, Refused> {
    const DATA: u32 = 7;
    const ACTIONS: u32 = 7 << 3;
    let [bytes, flags, index, start, count] = words;
    let kind = Kind::of(index).ok_or(Refused::Invalid)?;
    let end = start.checked_add(count).filter(|end| *end < u32::MAX).ok_or(Refused::Invalid)?;
    let most = count_of(kind);
    if bytes < size::IRQ_SET || flags & !(DATA | ACTIONS) != 0 || start >= most || end > most {
        return Err(Refused::Invalid);
    }
    let data = match flags & DATA {
        1 => Data::None,
        2 => Data::Bool,
        4 => Data::Event,
        _ => return Err(Refused::Invalid),
    };
    let action = match flags & ACTIONS {
        0x08 => Action::Mask,
        0x10 => Action::Unmask,
        0x20 => Action::Trigger,
        _ => return Err(Refused::Invalid),
    };
    let room = u64::from(bytes - size::IRQ_SET);
    if room < u64::from(count) * data.size() as u64 {
        return Err(Refused::Invalid);
    }
    Ok(Request { kind, numbers: start..end, action, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRIGGER: u32 = 0x20;

    #[test]
    fn what_a_driver_asks_for() {
        let ask = |words| request(words, |kind| if kind == Kind::Table { 5 } else { 0 });
        let asked = |numbers, data| {
            Ok(Request { kind: Kind::Table, numbers, action: Action::Trigger, data })
        };
        assert_eq!(ask([24, 4 | TRIGGER, 2, 0, 1]), asked(0..1, Data::Event));
        assert_eq!(ask([20, 1 | TRIGGER, 2, 0, 0]), asked(0..0, Data::None));
        assert_eq!(ask([22, 2 | TRIGGER, 2, 3, 2]), asked(3..5, Data::Bool));
        // Too little room, too many, a kind that there is none of, two kinds of data.
        assert_eq!(ask([23, 4 | TRIGGER, 2, 0, 1]), Err(Refused::Invalid));
        assert_eq!(ask([99, 4 | TRIGGER, 2, 4, 2]), Err(Refused::Invalid));
        assert_eq!(ask([20, 1 | TRIGGER, 0, 0, 0]), Err(Refused::Invalid));
        assert_eq!(ask([99, 5 | TRIGGER, 2, 0, 1]), Err(Refused::Invalid));
        assert_eq!(ask([99, 4 | TRIGGER, 5, 0, 1]), Err(Refused::Invalid));
    }

    proptest! {
        /// Whatever a program says, what is accepted is there, and its data are in what it has.
        #[test]
        fn what_is_accepted_is_there(
            bytes in prop_oneof![0u32..64, any::<u32>()],
            flags in prop_oneof![0u32..64, any::<u32>()],
            index in 0u32..8,
            start in prop_oneof![0u32..8, any::<u32>()],
            count in prop_oneof![0u32..8, any::<u32>()],
            most in 0u32..8,
        ) {
            if let Ok(asked) = request([bytes, flags, index, start, count], |_| most) {
                prop_assert!(asked.numbers.end <= most && asked.numbers.start < most);
                prop_assert_eq!(asked.numbers.len(), count as usize);
                prop_assert!(20 + asked.numbers.len() * asked.data.size() <= bytes as usize);
                prop_assert_eq!(Kind::of(index), Some(asked.kind));
            }
        }
    }
}
