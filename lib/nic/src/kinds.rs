// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of cards that there are drivers for. A further one is one more line.

use crate::{
    card::{About, Kind},
    intel, virtio,
};

/// What is done with a kind that was found.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<K: Kind>(self) -> Self::Output;
}

macro_rules! kinds {
    ($($kind:ty,)*) => {
        /// What all are called, and how they are known.
        pub const ALL: &[About] = &[$(<$kind as Kind>::ABOUT),*];

        /// Has `visitor` visit the kind of a card with that vendor and device; `None` if there is
        /// no driver for it.
        pub fn visit<V: Visitor>(id: (u16, u16), visitor: V) -> Option<V::Output> {
            $(if <$kind as Kind>::ABOUT.ids.contains(&id) {
                return Some(visitor.visit::<$kind>());
            })*
            None
        }
    };
}

kinds! {
    intel::e1000e::E1000e,
    intel::igb::Igb,
    virtio::Virtio,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;

    impl Visitor for Name {
        type Output = &'static str;
        fn visit<K: Kind>(self) -> &'static str {
            K::ABOUT.name
        }
    }

    #[test]
    fn a_card_has_the_kind_of_its_id() {
        for about in ALL {
            for &id in about.ids {
                assert_eq!(visit(id, Name), Some(about.name));
            }
        }
        assert_eq!(visit((0x8086, 0xffff), Name), None);
        let mut ids: Vec<_> = ALL.iter().flat_map(|about| about.ids).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "a card of two kinds");
    }
}
