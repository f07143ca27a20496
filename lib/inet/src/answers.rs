// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a station sends because others ask, or send what nobody wants: some at once, and then one
//! now and then. So whoever sends a flood gets none back, and has none sent to others.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many answers there are.
#[derive(Debug)]
pub struct Answers {
    /// So many at once.
    most: u64,
    /// And one in so many nanoseconds.
    every: u64,
    /// Until when they are used up.
    used: AtomicU64,
}

impl Answers {
    /// `most` at once, and one in `every` nanoseconds.
    pub const fn new(most: u64, every: u64) -> Self {
        Self { most, every, used: AtomicU64::new(0) }
    }

    /// Takes one, if there is one at the time `now`. Any context.
    pub fn take(&self, now: u64) -> bool {
        let take = |used: u64| {
            let used = used.max(now.saturating_sub(self.most * self.every));
            (used < now).then_some(used + self.every)
        };
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In no time are there more than it says, and who asks late enough gets one.
        #[test]
        fn answers_have_a_rate(
            most in 1u64..100,
            every in 1u64..1000,
            pauses in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0u64..5000], 1..300),
        ) {
            let answers = Answers::new(most, every);
            let mut now = 1_000_000;
            let mut taken = std::vec::Vec::new();
            for pause in pauses {
                now += pause;
                if answers.take(now) {
                    taken.push(now);
                } else {
                    prop_assert!(taken.last().is_some_and(|last| now - last < every));
                }
            }
            for (at, first) in taken.iter().enumerate() {
                for (number, last) in taken[at..].iter().enumerate() {
                    prop_assert!(number as u64 <= most + (last - first) / every);
                }
            }
        }
    }
}
