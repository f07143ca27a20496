// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x install`: what a machine needs, below a prefix. The module is built on that machine, for
//! its kernels, from the sources that lie there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::parts::{self, Part};
use crate::{paths, setup};

/// What is installed; the module's sources rather than the module.
pub const PARTS: &[Part] =
    &[Part::Kernel, Part::Inmates, Part::Shadow, Part::Crtos, Part::Bench, Part::Sources];
/// Folders of the staging tree that are installed; the modules in it are for the tests' guests.
const FOLDERS: &[&str] = &[
    "sbin",
    "lib/crtos",
    "lib/systemd",
    "lib/sysusers.d",
    "lib/udev",
    "share",
    concat!("src/crtos-", env!("CARGO_PKG_VERSION")),
];

/// Options of `./x install`.
#[derive(Args)]
pub struct Options {
    /// The root of the machine that it is installed for.
    #[arg(long, default_value = "/", value_name = "DIR")]
    destdir: PathBuf,
    /// Where on that machine.
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    prefix: PathBuf,
}

/// Builds and installs.
pub fn install(options: &Options) -> Result<()> {
    let below = options.prefix.strip_prefix("/");
    let below = below.with_context(|| format!("{} is not absolute", options.prefix.display()))?;
    ensure!(below != Path::new(""), "the prefix is the root; say which folder, such as /usr/local");
    setup::ensure()?;
    parts::build(PARTS)?;
    copy_built(&options.destdir.join(below))
}

/// Copies what was built below the folder that is the prefix.
pub fn copy_built(prefix: &Path) -> Result<()> {
    let stage = paths::stage().join("usr");
    for folder in FOLDERS {
        copy(&stage.join(folder), &prefix.join(folder))?;
    }
    Ok(())
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
            continue;
        }
        let mode = entry.metadata()?.permissions().mode();
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        parts::install(&fs::read(entry.path())?, &to, mode)?;
    }
    Ok(())
}
