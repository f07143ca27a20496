// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the parts of the system into the staging tree.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{paths, progress, run};

/// Target of the parts that run under Linux.
const LINUX: &str = "x86_64-unknown-linux-gnu";

/// Builds the guest's agent and returns its path.
pub fn agent() -> Result<PathBuf> {
    let _step = progress::step("build the guest's agent");
    let folder = paths::target().join("parts");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(paths::root()).args(["build", "--quiet", "--release", "--target", LINUX]);
    cargo.args(["--config", "target.x86_64-unknown-linux-gnu.rustflags=['-Ctarget-feature=+crt-static']"]);
    cargo.args(["-p", "crtos-agent", "--target-dir"]).arg(&folder);
    run::quietly(&mut cargo)?;
    Ok(folder.join(LINUX).join("release/crtos-agent"))
}
