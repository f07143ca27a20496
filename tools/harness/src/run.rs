// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tools of the host.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// How many lines of a failed tool's output its error shows.
const TAIL: usize = 60;

/// Runs a tool to its end and returns its standard output. The error of a tool
/// that fails holds the end of what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = captured(command)?;
    if !output.status.success() {
        bail!("{}: {}\n{}", name(command), output.status, tail(&both(&output)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a tool to its end; silent unless it fails.
pub fn quietly(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Whether a tool can be run and succeeds.
pub fn succeeds(command: &mut Command) -> bool {
    captured(command).is_ok_and(|output| output.status.success())
}

/// Runs a tool to its end and returns everything that it printed.
pub fn captured(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("run {}", name(command)))
}

/// Standard output, then standard error.
pub fn both(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{out}{error}")
}

/// The command line, for messages.
pub fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A tool that needs to be root: itself, or through sudo.
pub fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
