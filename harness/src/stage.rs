// SPDX-License-Identifier: MIT OR Apache-2.0
//! The staging tree as a layer of the guest's root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::{paths, run};

/// A squashfs of the staging tree, made anew when the tree is newer; nothing if
/// nothing was built yet.
pub fn layer() -> Result<Option<PathBuf>> {
    let stage = paths::stage();
    if !stage.exists() {
        return Ok(None);
    }
    let _lock = paths::lock(&paths::target().join("locks"), "stage")?;
    let newest = newest(&stage)?;
    let since_epoch = newest.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    // A name of its own for each state: a guest may still use an older one.
    let folder = paths::target().join("layers");
    let layer = folder.join(format!("crtos-{since_epoch}.squashfs"));
    if layer.exists() {
        return Ok(Some(layer));
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).context("remove an old layer")?;
    }
    fs::create_dir_all(&folder)?;
    let half_made = folder.join("half-made");
    let mut squash = Command::new("mksquashfs");
    squash.arg(&stage).arg(&half_made).args(["-noI", "-noD", "-noF", "-noX", "-no-xattrs"]);
    squash.args(["-noappend", "-no-progress", "-all-root"]);
    run::quietly(&mut squash)?;
    fs::rename(half_made, &layer)?;
    Ok(Some(layer))
}

/// When anything in a tree was changed last.
fn newest(path: &Path) -> Result<SystemTime> {
    let about = fs::symlink_metadata(path)?;
    let mut newest = about.modified()?;
    if about.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(self::newest(&entry?.path())?);
        }
    }
    Ok(newest)
}
