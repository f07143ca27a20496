// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's checkpatch. Debian has it only in the whole source of a kernel, so that is fetched once,
//! and the three files that count are kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, progress, run, setup};

/// The package with the source, and what lies in it: a folder of that name, packed.
const SOURCE: &str = "linux-source-6.1";
/// The script first, then the lists that it reads.
const FILES: [&str; 3] = ["checkpatch.pl", "spelling.txt", "const_structs.checkpatch"];

/// The path of the script, which is fetched if it is not there yet.
pub fn script() -> Result<PathBuf> {
    let folder = paths::cache().join("checkpatch");
    let is_there = || FILES.iter().all(|name| folder.join(name).exists());
    if !is_there() {
        let _lock = paths::lock(&paths::cache().join("locks"), "checkpatch")?;
        if !is_there() {
            let _step = progress::step(format!("fetch checkpatch from {SOURCE} (140 MB)"));
            fetch(&folder).context("fetch checkpatch")?;
        }
    }
    // The script is run in another folder.
    folder.join(FILES[0]).canonicalize().context("find checkpatch")
}

fn fetch(folder: &Path) -> Result<()> {
    let scratch = tempfile::tempdir_in(paths::cache())?;
    let download = || {
        let mut get = Command::new("apt-get");
        run::quietly(get.args(["download", "-q", SOURCE]).current_dir(scratch.path()))
    };
    // The lists may be old or, in a container, not there at all.
    download().or_else(|_| setup::update().and_then(|()| download()))?;
    // tar stops when it has found the last of them, which the others do not mind.
    let unpack = "dpkg-deb --fsys-tarfile \"$1\"_*.deb | tar -xO \"./usr/src/$1.tar.xz\" | xz -dc |
        (package=$1; shift; tar -x --occurrence=1 --strip-components=2 \"${@/#/$package/scripts/}\")";
    let mut bash = Command::new("bash");
    bash.args(["-c", unpack, "bash", SOURCE]).args(FILES).current_dir(scratch.path());
    run::quietly(&mut bash)?;
    fs::create_dir_all(folder)?;
    for name in FILES {
        fs::rename(scratch.path().join(name), folder.join(name))
            .with_context(|| format!("{SOURCE} has no {name}"))?;
    }
    Ok(())
}
