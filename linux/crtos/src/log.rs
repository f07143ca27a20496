// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos log`: what the hypervisor and the real-time kernel wrote.

use std::{thread::sleep, time::Duration};

use crate::{
    device::{self, Device},
    failure::Result,
    ring::{Reader, Source},
    text::{FAINT, harmless},
};

/// What the command does, for the messages of failures.
const ASKED: &str = "read the log";

/// Show what the hypervisor and the real-time kernel wrote
///
/// Both write into memory that Linux can read, so the log can be read after the realm has crashed.
/// Each line has the time (seconds of the time stamp counter) and the writer. The hypervisor's log
/// is kept after `crtos down` as long as the module is loaded. Only root reads the real-time
/// kernel's; for others it is left out, and a line on standard error says so.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit status: 0 done; 1 failed; 2 usage.")]
pub struct Log {
    /// Keep showing what is written, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Show only the hypervisor's log
    #[arg(long, conflicts_with = "kernel")]
    hypervisor: bool,
    /// Show only the real-time kernel's log
    #[arg(long)]
    kernel: bool,
}

impl Log {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let device = Device::require(ASKED)?;
        let mut hypervisor = device.hypervisor_log();
        let mut kernel = None;
        let mut first = true;
        loop {
            let mut lines = Vec::new();
            if !self.kernel {
                lines.extend(new(&mut hypervisor, first)?.into_iter().map(|l| ("hypervisor", l)));
            }
            if !self.hypervisor {
                let realm = device::realm(&device.info(ASKED)?);
                if first && self.kernel && realm.is_none() && !self.follow {
                    return Err(device::not_up("read the real-time kernel's log"));
                }
                // A realm that came after another begins a new log.
                if kernel.as_ref().map(|(cell, _)| *cell) != realm {
                    kernel = realm.map(|cell| (cell, device.kernel_log(cell)));
                }
                if let Some((_, reader)) = &mut kernel {
                    match new(reader, first) {
                        Ok(new) => lines.extend(new.into_iter().map(|line| ("kernel", line))),
                        Err(failure) if first && self.kernel => return Err(failure),
                        Err(failure) if first => {
                            let (reason, _) = failure.explained();
                            anstream::eprintln!(
                                "crtos: the real-time kernel's log is left out: {reason}"
                            );
                            kernel = None;
                        }
                        // The realm went down meanwhile.
                        Err(_) => kernel = None,
                    }
                }
            }
            lines.sort_by_key(|(_, line)| time(line));
            for (name, line) in lines {
                anstream::println!("{}", labelled(name, &line));
            }
            if !self.follow {
                return Ok(());
            }
            first = false;
            sleep(Duration::from_millis(100));
        }
    }
}

fn new(reader: &mut Reader<impl Source>, first: bool) -> Result<Vec<Vec<u8>>> {
    if first { everything(reader) } else { reader.lines() }
}

/// Returns all lines, also one that its writer did not finish.
pub fn everything(reader: &mut Reader<impl Source>) -> Result<Vec<Vec<u8>>> {
    let mut lines = reader.lines()?;
    lines.extend(reader.unfinished().map(<[u8]>::to_vec));
    Ok(lines)
}

/// Splits a line into its time, as it is written (`12.345678` or `[   12.345678]`), and the rest.
fn split_time(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = match line.strip_prefix('[') {
        Some(line) => line.split_once("] ")?,
        None => line.split_once(' ')?,
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (seconds, micros) = time.trim_start().split_once('.')?;
    (digits(seconds) && digits(micros)).then_some((time.trim_start(), rest))
}

/// Returns the time at the start of a line in microseconds. Lines without one sort first.
fn time(line: &[u8]) -> u64 {
    let line = String::from_utf8_lossy(line);
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    match split_time(&line).and_then(|(time, _)| time.split_once('.')) {
        Some((seconds, micros)) => {
            number(seconds).saturating_mul(1_000_000).saturating_add(number(micros))
        }
        None => 0,
    }
}

/// Returns a line with its writer's name behind the time.
pub fn labelled(name: &str, line: &[u8]) -> String {
    let line = harmless(line);
    let (time, rest) = match split_time(&line) {
        Some((time, rest)) => (format!("[{time:>12}] "), rest),
        None => (String::new(), line.as_str()),
    };
    // Some lines name their writer themselves.
    let rest = rest.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(rest);
    format!("{FAINT}{time}{name}:{FAINT:#} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_sort_by_their_time() {
        assert_eq!(time(b"12.000345 hello"), 12_000_345);
        assert_eq!(time(b"[   12.000345] hello"), 12_000_345);
        assert_eq!(time(b"hello"), 0);
        assert_eq!(time(b"[cpu 1.5] hello"), 0);
        let mut lines = [&b"9.000002 b"[..], b"10.000001 c", b"9.000001 a"];
        lines.sort_by_key(|line| time(line));
        assert_eq!(lines, [&b"9.000001 a"[..], b"9.000002 b", b"10.000001 c"]);
    }

    #[test]
    fn lines_have_their_writer_behind_the_time() {
        let plain =
            |name, line: &[u8]| anstream::adapter::strip_str(&labelled(name, line)).to_string();
        assert_eq!(plain("kernel", b"1.000002 ready"), "[    1.000002] kernel: ready");
        assert_eq!(plain("kernel", b"[    1.000002] ready"), "[    1.000002] kernel: ready");
        assert_eq!(plain("kernel", b"1.000002 kernel: ready"), "[    1.000002] kernel: ready");
        assert_eq!(plain("kernel", b"no time"), "kernel: no time");
        assert_eq!(plain("kernel", b"1.000002 \x1b[2J"), "[    1.000002] kernel: \u{fffd}[2J");
    }
}
