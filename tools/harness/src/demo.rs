// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x run`: shows the system at work, from an empty machine to a program in the
//! realm.

use std::io::{stderr, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::vm::{Config, Job, Outcome, Vm};
use crate::{FAILURE, parts, setup, vm_command};

/// What is shown.
const SCRIPT: &str = include_str!("demo.sh");
/// How long that may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Sets up, builds, boots and shows; returns the exit status.
pub fn run() -> Result<u8> {
    vm_command::watch_signals()?;
    setup::ensure()?;
    parts::build(&[])?;
    let config = Config::default();
    let mut vm = Vm::boot(&config, None)?;
    vm_command::start_realm(&mut vm, &config)?;
    let outcome = vm.run(Job {
        script: SCRIPT.to_owned(),
        stdin: None,
        terminal: None,
        stdout: &mut stdout(),
        stderr: &mut stderr(),
        deadline: Some(Instant::now() + LIMIT),
    })?;
    if outcome == Outcome::Exit(0) {
        vm.forget_console();
        return Ok(0);
    }
    eprintln!("x run: {}\n{}", outcome.explain(), vm.console_tail());
    Ok(match outcome {
        Outcome::Exit(status) => status,
        _ => FAILURE,
    })
}
