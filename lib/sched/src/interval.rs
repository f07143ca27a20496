// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periodic timers: which expiry is next, and how many were missed.

use crate::time::Nanos;

/// Returns the first expiry after `now` of a timer that is due at `deadline` and then every
/// `interval` (not 0), and the number of its expiries up to `now`, which is 0 if it is not due yet.
pub fn forward(deadline: Nanos, interval: Nanos, now: Nanos) -> (Nanos, u64) {
    if now < deadline || interval == Nanos::ZERO {
        return (deadline, 0);
    }
    let expired = (now.0 - deadline.0) / interval.0 + 1;
    (Nanos(deadline.0.saturating_add(expired.saturating_mul(interval.0))), expired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_expiry_is_the_first_behind_now(
            deadline in 0u64..1 << 40, interval in 1u64..1 << 30, now in 0u64..1 << 41,
        ) {
            let (next, expired) = forward(Nanos(deadline), Nanos(interval), Nanos(now));
            prop_assert!(next.0 > now);
            prop_assert_eq!(next.0, deadline + expired * interval);
            prop_assert!(expired == 0 || next.0 - interval <= now);
        }
    }
}
