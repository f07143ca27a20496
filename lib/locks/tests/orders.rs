// SPDX-License-Identifier: MIT OR Apache-2.0
//! No wake-up is lost in a list of orders: each waiter that was to be woken is in one of those that
//! come out, or the list was full. They come out in the order of their words.

use crtos_abi::UserAddr;
use crtos_locks::orders::{Full, Order, Orders};
use proptest::prelude::*;

const ROOM: usize = 4;

/// Counts that are small, and the greatest.
fn count() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..5, Just(u32::MAX)]
}

proptest! {
    #[test]
    fn behaves_like_a_list_of_sums(
        steps in proptest::collection::vec(
            proptest::option::weighted(0.7, (0u64..8, 1u32..4, count())),
            0..100,
        ),
    ) {
        let mut orders = Orders::<ROOM>::new();
        let mut model: Vec<Order> = Vec::new();
        for step in steps {
            let Some((word, bits, count)) = step else {
                let oldest = (!model.is_empty()).then(|| model.remove(0));
                prop_assert_eq!(orders.take(), oldest);
                continue;
            };
            let order = Order { word: UserAddr::new(0x1000 + word * 4), count, bits, crowd: 0 };
            let result = orders.add(order);
            let same = |other: &&mut Order| other.word == order.word && other.bits == bits;
            if let Some(other) = model.iter_mut().find(same) {
                other.count = other.count.saturating_add(count);
                prop_assert_eq!(result, Ok(()));
            } else if model.len() < ROOM {
                model.push(order);
                prop_assert_eq!(result, Ok(()));
            } else {
                prop_assert_eq!(result, Err(Full));
            }
            prop_assert_eq!(orders.is_empty(), model.is_empty());
        }
        for expected in model {
            prop_assert_eq!(orders.take(), Some(expected));
        }
        prop_assert_eq!(orders.take(), None);
    }
}
