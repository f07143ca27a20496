// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ip` (package iproute2), which tells and sets network interfaces as people do.

use std::process::{Command, Stdio};

use crate::text;

/// Runs `ip` with these words, and returns what it prints, or why it failed.
pub fn ip(words: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(text::harmless(output.stderr.trim_ascii())),
    }
}

/// Gives the interface `found` the name that it had, if nobody else has that. Returns the name that
/// it has then.
pub fn rename(found: String, name: &str) -> String {
    let is_renamed = found != name && ip(&["link", "set", &found, "name", name]).is_ok();
    if is_renamed { name.to_owned() } else { found }
}
