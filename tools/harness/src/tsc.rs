// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a guest's time stamp counter counts: without `--icount` QEMU hands the host's through.
//!
//! Linux would find out by comparing it with an emulated timer, and be wrong by any factor on a
//! busy host; all its times would be wrong by that factor afterwards.

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frequency in kHz; `None` on hosts that have no such counter.
pub fn frequency_khz() -> Option<u64> {
    static FREQUENCY: OnceLock<Option<u64>> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let (time, count) = sample()?;
        sleep(Duration::from_millis(100));
        let (later, count_later) = sample()?;
        let nanoseconds = u64::try_from((later - time).as_nanos()).ok()?;
        count_later.wrapping_sub(count).checked_mul(1_000_000)?.checked_div(nanoseconds)
    })
}

/// Both clocks at one moment: the closest of some tries, since the host may run something else in
/// between.
fn sample() -> Option<(Instant, u64)> {
    (0..20)
        .filter_map(|_| {
            let before = Instant::now();
            let count = counter()?;
            Some((before.elapsed(), before, count))
        })
        .min()
        .map(|(_, time, count)| (time, count))
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<u64> {
    // SAFETY: Every x86-64 processor has the instruction, and Linux lets programs use it.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_is_plausible() {
        if let Some(khz) = frequency_khz() {
            assert!((500_000..20_000_000).contains(&khz), "{khz} kHz");
        }
    }
}
