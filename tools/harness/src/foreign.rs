// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of a newer Debian. They are unpacked into the cache and not installed, and run with
//! their own loader and libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bootstrap::{Bootstrap, Variant};
use crate::{apt, paths, progress, run};

/// Folders of libraries that programs find by absolute paths, below the folder of all libraries.
const PRIVATE_LIBRARIES: &[&str] = &["pulseaudio"];

/// Packages to unpack.
pub struct Packages {
    /// What they are called together.
    pub name: &'static str,
    /// The release of Debian, and a suite of it that is preferred.
    pub suites: &'static [&'static str],
    /// Those that are asked for: what they depend on comes along.
    pub names: &'static [&'static str],
}

/// Unpacked packages.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Makes sure that packages are in the cache.
    pub fn ensure(packages: &Packages) -> Result<Self> {
        let Packages { name, suites, .. } = packages;
        let root = paths::cache().join(format!("{name}-{}", suites.last().unwrap_or(&"")));
        if !root.exists() {
            let _lock = paths::lock(&paths::cache().join("locks"), name)?;
            if !root.exists() {
                let what = format!("fetch {name}");
                let _step = progress::step(what.clone());
                packages.unpack(&root).context(what)?;
            }
        }
        // Its parts find each other by absolute paths.
        Ok(Self { root: root.canonicalize()? })
    }

    /// A file or folder of the packages, by its path below the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The folder of the libraries.
    pub fn libraries(&self) -> PathBuf {
        self.path("usr/lib/x86_64-linux-gnu")
    }

    /// A program of the packages, to be given arguments.
    pub fn program(&self, name: &str) -> Command {
        let libraries = self.libraries();
        let mut folders = vec![libraries.clone()];
        folders.extend(PRIVATE_LIBRARIES.iter().map(|folder| libraries.join(folder)));
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.args(["--library-path", &folders.join(":")]);
        command.arg(self.path("usr/bin").join(name));
        command
    }
}

impl Packages {
    fn unpack(&self, root: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(paths::cache())?;
        let half_made = scratch.path().join("tree");
        let release = self.suites.first().context("the packages are of no release")?;
        let sources = self.suites.iter().map(|suite| apt::suite(suite));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let prefer = |suite| format!("--aptopt=APT::Default-Release \"{suite}\"");
        let preferred: Vec<_> = self.suites.get(1).map(prefer).into_iter().collect();
        let debian = Bootstrap {
            variant: Variant::Extracted,
            release,
            sources: &sources,
            packages: self.names,
            options: &preferred,
        };
        debian.make(scratch.path(), &half_made)?;
        run::quietly(run::as_root("mv").arg("-T").arg(half_made).arg(root))
    }
}
