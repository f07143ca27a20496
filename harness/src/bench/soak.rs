// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything at once for long, in virtual time: priority inheritance and timers on two CPUs of the realm, with load in both realms.

use std::time::Duration;

use anyhow::Result;

use super::machine::Measuring;
use super::system::Target;
use crate::kernels::Flavour;
use crate::progress;

/// What runs in the guest. Set before it: seconds, and the most nanoseconds that a thread may be late.
const SCRIPT: &str = include_str!("../../../tests/guest/soak.sh");
/// 4 µs under load, and 1 for what runs beside on the same CPUs.
const MOST_NS: u64 = 5_000;
/// How much longer than in virtual time it may take in real time.
const SLOWNESS: u64 = 20;
const SLOWNESS_OF_SHORT_TURNS: u64 = 100;
/// What it may take beside.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Runs it; returns 0 if nothing went wrong. `latencies` are judged with short turns of the CPUs, which makes it many times slower.
pub fn soak(minutes: u32, latencies: bool, kernel: Flavour) -> Result<u8> {
    let mut machine = Measuring::boot(Target::realm(kernel))?;
    machine.turns(latencies)?;
    let _step = progress::step(format!("everything at once for {minutes} minutes of virtual time"));
    let seconds = u64::from(minutes) * 60;
    let most = if latencies { format!("MOST_NS={MOST_NS}") } else { String::new() };
    let script = format!("SOAK={seconds} {most}\n{SCRIPT}");
    let slowness = if latencies { SLOWNESS_OF_SHORT_TURNS } else { SLOWNESS };
    let patience = PATIENCE + Duration::from_secs(seconds * slowness);
    match machine.run(&["bash".to_owned(), "-c".to_owned(), script], patience) {
        Ok(text) => {
            println!("{text}");
            Ok(0)
        }
        Err(error) => {
            println!("{error:#}");
            Ok(1)
        }
    }
}
