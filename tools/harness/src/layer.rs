// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layers of the guest's root that the host makes: what was built, and trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Result;

use crate::{deb, install, paths, run};

/// What was built as a layer, as its Debian packages install it; with it the module for each of the
/// kernels, where DKMS would have built it. Nothing if nothing was built yet.
pub fn installed() -> Result<Option<PathBuf>> {
    let stage = paths::stage();
    if !stage.exists() {
        return Ok(None);
    }
    let since = newest(&stage)?.max(newest(&paths::root().join("packaging"))?);
    make("crtos", since, |layer| {
        let scratch = tempfile::tempdir_in(paths::target())?;
        let root = scratch.path().join("root");
        for package in deb::package(&scratch.path().join("deb"))? {
            let mut unpack = Command::new("dpkg-deb");
            run::quietly(unpack.arg("--extract").arg(package).arg(&root))?;
        }
        let lib = root.join("usr/lib");
        install::copy(&stage.join("usr/lib/modules"), &lib.join("modules"))?;
        // As on every Debian today; a folder of that name would hide the guest's.
        install::copy(&root.join("lib"), &lib)?;
        fs::remove_dir_all(root.join("lib"))?;
        squash(&root, layer)
    })
    .map(Some)
}

/// A tree as a layer; nothing if there is no tree.
pub fn of_tree(name: &str, tree: &Path) -> Result<Option<PathBuf>> {
    if !tree.exists() {
        return Ok(None);
    }
    make(name, newest(tree)?, |layer| squash(tree, layer)).map(Some)
}

/// A layer of what has not changed since then, made if need be.
fn make(name: &str, since: SystemTime, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let _lock = paths::lock(&paths::target().join("locks"), &format!("layer-{name}"))?;
    let since_epoch = since.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    // A name of its own for each state: a guest may still use an older one.
    let folder = paths::target().join("layers");
    let layer = folder.join(format!("{name}-{since_epoch}.squashfs"));
    if layer.exists() {
        return Ok(layer);
    }
    fs::create_dir_all(&folder)?;
    remove_old(&folder, &format!("{name}-"))?;
    let half_made = folder.join(format!("{name}.half-made"));
    fill(&half_made)?;
    fs::rename(half_made, &layer)?;
    Ok(layer)
}

/// Makes a squashfs of a tree.
fn squash(tree: &Path, layer: &Path) -> Result<()> {
    let mut squash = Command::new("mksquashfs");
    squash.arg(tree).arg(layer).args(["-noI", "-noD", "-noF", "-noX", "-no-xattrs"]);
    run::quietly(squash.args(["-noappend", "-no-progress", "-all-root"]))
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
