// SPDX-License-Identifier: MIT OR Apache-2.0
//! First process of the test guest.
//!
//! As `/init` of the initramfs it loads the modules it finds beside it, lays the
//! disks over each other and makes that the root ([`root`]). Then it starts
//! itself once more to serve the host ([`serve`]) and, being process 1, reaps, until a script hands
//! the machine to another init ([`hand_over`]).

mod root;
mod serve;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use rustix::process::{WaitOptions, getpid, wait};
use rustix::system::{RebootCommand, reboot};

fn main() -> ExitCode {
    let result = if getpid().is_init() { init() } else { serve::serve() };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The console: it is all there is this early.
            eprintln!("crtos-agent: {error:#}");
            power_off_if_init();
            ExitCode::FAILURE
        }
    }
}

/// What process 1 does: never returns but for a failure.
fn init() -> Result<()> {
    root::enter()?;
    let server = Command::new("/proc/self/exe").arg("serve").spawn().context("start the server")?;
    let server = i32::try_from(server.id())?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_pid() == server => power_off_if_init(),
            Ok(_) | Err(rustix::io::Errno::INTR) => hand_over()?,
            Err(error) => return Err(error).context("wait for processes"),
        }
    }
}

/// If a script has written the path of an init to `/run/init`, that is process 1 from now on, and
/// the server is one of its processes. Looked at whenever an orphan ends.
fn hand_over() -> Result<()> {
    let Ok(init) = fs::read_to_string("/run/init") else { return Ok(()) };
    Err(Command::new(init.trim()).exec()).with_context(|| format!("become {}", init.trim()))
}

/// Ends the machine if this is process 1, whose end would be a panic.
fn power_off_if_init() {
    if getpid().is_init() {
        rustix::fs::sync();
        // If this fails, the panic that follows tells the host as well.
        let _ = reboot(RebootCommand::PowerOff);
    }
}
