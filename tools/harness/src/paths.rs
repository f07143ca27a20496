// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The folder of the project: that of `./x`, which says so, or else that of the harness's source.
pub fn root() -> PathBuf {
    let source = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    env::var_os("CRTOS_ROOT").map_or_else(source, PathBuf::from)
}

/// What is made once and kept: guest images, kernels, the Rust library.
pub fn cache() -> PathBuf {
    root().join(".cache")
}

/// What builds make.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The staging tree, laid out as installed.
pub fn stage() -> PathBuf {
    target().join("crtos")
}

/// Where console logs and the like are kept after a run.
pub fn logs() -> PathBuf {
    target().join("logs")
}

/// A lock that other runs of the harness respect, held until it is dropped.
pub struct Lock {
    _file: File,
}

/// Waits for the lock of that name in `folder`.
pub fn lock(folder: &Path, name: &str) -> Result<Lock> {
    let file = lock_file(folder, name)?;
    flock(&file, FlockOperation::LockExclusive).context("take a lock")?;
    Ok(Lock { _file: file })
}

/// The lock of that name in `folder`, if nobody has it.
pub fn try_lock(folder: &Path, name: &str) -> Result<Option<Lock>> {
    let file = lock_file(folder, name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).context("take a lock"),
    }
}

fn lock_file(folder: &Path, name: &str) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let path = folder.join(format!("{name}.lock"));
    File::create(&path).with_context(|| format!("open {}", path.display()))
}
