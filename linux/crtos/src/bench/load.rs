// SPDX-License-Identifier: MIT OR Apache-2.0
//! A load on Linux while something is measured.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crtos_results::catalogue::Load;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a load may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two checks whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// A load that runs until it is dropped.
pub struct Running {
    /// The leader of a session that holds all of its processes.
    leader: Child,
}

impl Running {
    /// Starts a load with ordinary priority on some CPUs, or on all. The load `none` starts
    /// nothing.
    pub fn start(load: &Load, cpus: Option<&str>) -> Result<Option<Self>, String> {
        if load.command.is_empty() {
            return Ok(None);
        }
        let mut command = Command::new("chrt");
        command.args(["--other", "0", "setsid"]);
        command.args(cpus.into_iter().flat_map(|cpus| ["taskset", "-c", cpus]));
        command.args(load.command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Some loads write files to the working directory.
        command.current_dir(std::env::temp_dir());
        let leader = command.spawn().map_err(|error| format!("the load {}: {error}", load.name))?;
        Ok(Some(Self { leader }))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.leader.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    /// Ends the load: asks its leader, then kills all that is left of the session.
    fn drop(&mut self) {
        let session = self.leader.id();
        if let Ok(pid) = i32::try_from(session) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < PATIENCE {
            sleep(POLL);
        }
        // The status says only whether some process was left.
        let _ = Command::new("pkill").args(["-KILL", "-s", &session.to_string()]).status();
        let _ = self.leader.wait();
    }
}
