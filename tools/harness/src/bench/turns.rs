// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the turns of virtual CPUs are.

use std::os::unix::fs::FileExt;

use anyhow::Result;
use tempfile::NamedTempFile;

use super::observer;

/// Instructions of a short turn: few beside any path, so that busy CPUs advance nearly alike.
pub const SHORT: u64 = 200;
/// While one CPU works for another, turns that end at arbitrary points would only blur the length
/// of the path.
const LONG: u64 = 0;

/// Ends them by a plugin of QEMU (`tools/harness/observer/turns.c`). This is the file that tells it
/// when.
pub struct Turns(NamedTempFile);

impl Turns {
    /// Long ones.
    pub fn new() -> Result<Self> {
        let turns = Self(NamedTempFile::new()?);
        turns.set(false)?;
        Ok(turns)
    }

    /// For QEMU, perhaps the newer one: the plugin with its argument.
    pub fn plugin(&self, newer: bool) -> Result<String> {
        let interface = if newer { observer::NEWER_INTERFACE } else { observer::INTERFACE };
        let plugin = observer::compile_for("turns", interface)?;
        Ok(format!("{},turn={}", plugin.display(), self.0.path().display()))
    }

    /// Short ones, or those that nothing ends but their CPU. At once.
    pub fn set(&self, short: bool) -> Result<()> {
        let turn = if short { SHORT } else { LONG };
        Ok(self.0.as_file().write_all_at(&turn.to_ne_bytes(), 0)?)
    }
}
