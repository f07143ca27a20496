// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos ps`: the threads that live in the real-time realm.

use std::time::Duration;

use serde::Serialize;

use crate::{cpulist::CpuList, device::Device, failure::Result, size::Size, text, threads::Thread};

/// What the command does, for the messages of failures.
const ASKED: &str = "list the programs in the realm";

/// List the threads in the real-time realm
///
/// PID and TID are those of Linux; COMMAND is the program's name. STATE: R running or ready, S
/// sleeping, L waiting for a system call that Linux makes. PRIO: real-time priority, - for ordinary
/// threads. CPU: Linux's number. TIME: processor time in minutes, seconds and milliseconds.
/// SWITCHES: how often the thread was switched to. LOCAL, REMOTE: system calls that the real-time
/// kernel did itself, and those that it had Linux do. MEM: memory of the process.
///
/// Threads that have ended, and shadow threads of Linux in which no thread runs, are not shown. The
/// real-time kernel tells of a thread when it goes to Linux, and of all four times a second.
#[derive(clap::Args)]
#[command(after_long_help = "\
With --json an array of objects: pid, tid, uid, command, state, priority, cpu (null if unknown),
time_ns, switches, local_calls, remote_calls, memory_bytes.

Exit status: 0 done, also if nothing runs; 1 failed; 2 usage.")]
pub struct Ps {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A thread in JSON.
#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    tid: u32,
    uid: u32,
    command: &'a str,
    state: char,
    priority: u32,
    cpu: Option<u32>,
    time_ns: u64,
    switches: u64,
    local_calls: u64,
    remote_calls: u64,
    memory_bytes: u64,
}

impl Ps {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let device = Device::require(ASKED)?;
        let realm = device.realm(ASKED)?;
        let mut threads = device.threads(realm).map_err(|refusal| refusal.asked(ASKED))?;
        threads.retain(Thread::lives);
        let cpus = device.report(ASKED)?.cpus_of(realm);
        if self.json {
            let rows: Vec<_> = threads.iter().map(|thread| row(thread, &cpus)).collect();
            return crate::print_json(&rows);
        }
        anstream::println!("{}", show(&threads, &cpus));
        Ok(())
    }
}

/// Returns Linux's number of the thread's CPU.
fn cpu(thread: &Thread, cpus: &CpuList) -> Option<u32> {
    cpus.of_realm(thread.cpu?)
}

fn row<'a>(thread: &'a Thread, cpus: &CpuList) -> Row<'a> {
    Row {
        pid: thread.pid.get(),
        tid: thread.tid.get(),
        uid: thread.uid,
        command: &thread.command,
        state: thread.state,
        priority: thread.priority,
        cpu: cpu(thread, cpus),
        time_ns: thread.time.as_nanos() as u64,
        switches: thread.switches,
        local_calls: thread.local_calls,
        remote_calls: thread.remote_calls,
        memory_bytes: thread.memory,
    }
}

/// Formats a time as minutes, seconds and milliseconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}.{:03}", seconds / 60, seconds % 60, time.subsec_millis())
}

fn show(threads: &[Thread], cpus: &CpuList) -> String {
    let header = [
        "PID", "TID", "COMMAND", "STATE", "PRIO", "CPU", "TIME", "SWITCHES", "LOCAL", "REMOTE",
        "MEM",
    ];
    let rows = threads.iter().map(|thread| {
        vec![
            thread.pid.to_string(),
            thread.tid.to_string(),
            thread.command.clone(),
            thread.state.to_string(),
            if thread.priority == 0 { "-".into() } else { thread.priority.to_string() },
            cpu(thread, cpus).map_or("-".into(), |cpu| cpu.to_string()),
            clock(thread.time),
            thread.switches.to_string(),
            thread.local_calls.to_string(),
            thread.remote_calls.to_string(),
            Size(thread.memory).to_string(),
        ]
    });
    text::table(&header, &[0, 1, 4, 5, 6, 7, 8, 9, 10], rows.collect())
}

#[cfg(test)]
mod tests {
    use crtos_abi::ids::{Pid, RealmCpu, Tid};

    use super::*;

    #[test]
    fn shows_a_header_and_a_line_per_thread() {
        let thread = Thread {
            pid: Pid::new(812).unwrap(),
            tid: Tid::new(812).unwrap(),
            uid: 0,
            command: "busybox".into(),
            state: 'S',
            priority: 0,
            cpu: RealmCpu::new(1),
            time: Duration::from_millis(61_234),
            switches: 5,
            local_calls: 6,
            remote_calls: 7,
            memory: 3 << 20,
        };
        let cpus = "2-3".parse().unwrap();
        let text = show(&[thread], &cpus);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("PID  TID"));
        let words: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(
            words,
            ["812", "812", "busybox", "S", "-", "3", "1:01.234", "5", "6", "7", "3", "MiB"]
        );
        assert_eq!(show(&[], &cpus).lines().count(), 1);
    }
}
