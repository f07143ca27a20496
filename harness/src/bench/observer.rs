// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observers: plugins of QEMU, in `harness/observer`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use crtos_abi::LARGE_PAGE_SIZE;
use crtos_abi::image::{HYPERVISOR_BASE, MAX_HYPERVISOR_BLOCKS};

use crate::{paths, run};

/// Where the hypervisor is (abi/src/image.rs), and how large it is at most.
pub const HYPERVISOR: (u64, u64) =
    (HYPERVISOR_BASE, MAX_HYPERVISOR_BLOCKS as u64 * LARGE_PAGE_SIZE);

/// An observer, compiled.
pub fn compile(name: &str) -> Result<PathBuf> {
    let folder = paths::target().join("observer");
    fs::create_dir_all(&folder)?;
    let plugin = folder.canonicalize()?.join(format!("{name}.so"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&plugin);
    gcc.arg(paths::root().join("harness/observer").join(format!("{name}.c")));
    run::quietly(&mut gcc).context("compile the observer")?;
    Ok(plugin)
}
