// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree of the host as a layer of the guest's root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Result;

use crate::{paths, run};

/// The staging tree as a layer; nothing if nothing was built yet.
pub fn stage() -> Result<Option<PathBuf>> {
    make("crtos", &paths::stage())
}

/// A squashfs of a tree, made anew when the tree has changed; nothing if there is
/// no tree.
pub fn make(name: &str, tree: &Path) -> Result<Option<PathBuf>> {
    if !tree.exists() {
        return Ok(None);
    }
    let _lock = paths::lock(&paths::target().join("locks"), &format!("layer-{name}"))?;
    let since_epoch = newest(tree)?.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    // A name of its own for each state: a guest may still use an older one.
    let folder = paths::target().join("layers");
    let layer = folder.join(format!("{name}-{since_epoch}.squashfs"));
    if layer.exists() {
        return Ok(Some(layer));
    }
    fs::create_dir_all(&folder)?;
    remove_old(&folder, &format!("{name}-"))?;
    let half_made = folder.join(format!("{name}.half-made"));
    let mut squash = Command::new("mksquashfs");
    squash.arg(tree).arg(&half_made).args(["-noI", "-noD", "-noF", "-noX", "-no-xattrs"]);
    squash.args(["-noappend", "-no-progress", "-all-root"]);
    run::quietly(&mut squash)?;
    fs::rename(half_made, &layer)?;
    Ok(Some(layer))
}

/// Removes earlier states. A guest that has one open keeps it until it ends.
fn remove_old(folder: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
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
