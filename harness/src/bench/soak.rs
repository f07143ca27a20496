// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything at once for long: priority inheritance and timers on two CPUs of the realm, with load in both realms.

use std::time::Duration;

use anyhow::Result;

use super::machine::Measuring;
use super::system::{CPU, OTHER_CPU, Target};
use crate::kernels::Flavour;
use crate::progress;

/// What runs in the guest; `MINUTES` and `CPUS` are set before it.
const SCRIPT: &str = include_str!("soak.sh");
/// How much longer than in virtual time it may take in real time.
const SLOWNESS: u64 = 40;
/// What it may take beside.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Runs it; returns 0 if nothing went wrong.
pub fn soak(minutes: u32, kernel: Flavour) -> Result<u8> {
    let mut machine = Measuring::boot(Target::realm(kernel))?;
    let cpus = format!("{OTHER_CPU},{CPU}");
    machine.realm_on(&cpus)?;
    let _step = progress::step(format!("everything at once for {minutes} minutes of virtual time"));
    let script = format!("MINUTES={minutes} CPUS={cpus}\n{SCRIPT}");
    let patience = PATIENCE + Duration::from_secs(u64::from(minutes) * 60 * SLOWNESS);
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
