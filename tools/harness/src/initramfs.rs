// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initramfs of the guest: the agent, and the modules that it needs to find
//! the disks and the host. For a machine without disks also what would be on them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cpio::newc::{Builder, trailer};

use crate::kernels::Kernel;

/// Mode bits of a folder that anyone may enter.
const FOLDER: u32 = 0o040_755;
/// Mode bits of a program.
const PROGRAM: u32 = 0o100_755;
/// Mode bits of a character device that only root may use.
const DEVICE: u32 = 0o020_600;
/// Major and minor number of `/dev/console`.
const CONSOLE: (u32, u32) = (5, 1);

/// Writes the initramfs for a kernel to `file`, with `modules` and all that they need, and with
/// `layers` of the root; not compressed, for an emulated CPU would have to decompress it.
pub fn write(
    kernel: &Kernel,
    modules: &[&str],
    agent: &Path,
    layers: &[PathBuf],
    file: &Path,
) -> Result<()> {
    let mut archive = File::create(file).context("write the initramfs")?;
    for folder in ["dev", "modules", "images"] {
        archive = Builder::new(folder).mode(FOLDER).write(archive, 0).finish()?;
    }
    // The kernel opens it for the agent's messages before anything is mounted.
    archive = Builder::new("dev/console")
        .mode(DEVICE)
        .rdev_major(CONSOLE.0)
        .rdev_minor(CONSOLE.1)
        .write(archive, 0)
        .finish()?;
    archive = add(archive, "init", agent)?;
    for (number, module) in kernel.load_order(modules)?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive = add(archive, &format!("modules/{number:02}-{name}"), module)?;
    }
    for (number, layer) in layers.iter().enumerate() {
        archive = add(archive, &format!("images/{number}"), layer)?;
    }
    trailer(archive)?;
    Ok(())
}

/// Adds one file of the host under a name of the guest.
fn add(archive: File, name: &str, from: &Path) -> Result<File> {
    let bytes = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    let size = u32::try_from(bytes.len())?;
    let mut entry = Builder::new(name).mode(PROGRAM).write(archive, size);
    entry.write_all(&bytes)?;
    Ok(entry.finish()?)
}
