// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole Debians on disks: with systemd, with their own kernel and the initramfs that
//! `update-initramfs` made, and with what DKMS needs, so that they want no network.
//!
//! The emulator starts the kernel itself, as it does for other guests: firmware and boot loader
//! come in no test. On the disk is a file system alone, which needs no loop device to be made.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::bootstrap::{Bootstrap, Variant};
use crate::kernels::{Flavour, Kernel};
use crate::{apt, paths, progress, run};

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Release {
    /// Its name in package sources.
    fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// Its number.
    fn number(self) -> &'static str {
        match self {
            Self::Bookworm => "12",
            Self::Trixie => "13",
        }
    }

    /// Its kernel, or the series of it that other guests have from elsewhere.
    pub fn kernel(self) -> Flavour {
        match self {
            Self::Bookworm => Flavour::V6_1,
            Self::Trixie => Flavour::V6_12,
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Debian {}", self.number())
    }
}

impl ValueEnum for Release {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Bookworm, Self::Trixie]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.number()))
    }
}

/// A disk of somebody's own, which keeps what its guests change.
#[derive(Debug, Clone)]
pub struct Disk {
    /// What is on it when it is new.
    pub release: Release,
    /// The file, made when it is not there.
    pub file: PathBuf,
}

/// Packages of such a Debian, beside those that each one has.
const PACKAGES: &[&str] = &[
    "dbus",
    "dkms",
    "gcc",
    "initramfs-tools",
    "iproute2",
    "jq",
    "kmod",
    "libc6-dev",
    "linux-headers-amd64",
    "linux-image-amd64",
    "make",
    "procps",
    "rt-tests",
    "systemd-sysv",
    "udev",
];
/// Makes a machine of the packages; its argument is the root.
const FURNISH: &str = include_str!("disk.sh");
/// Size of the file system, most of which is a hole in the file.
const SIZE: &str = "8G";
/// Where the agent is, which is no part of what is in the cache.
const AGENT_FOLDER: &str = "/usr/local/sbin";
const AGENT: &str = "crtos-agent";

impl Disk {
    /// Makes sure that the file is there, with the agent. Returns the kernel that is on it.
    pub fn ensure(&self, agent: &Path) -> Result<Kernel> {
        let folder = made(self.release)?;
        let kernel = kernel(self.release, &folder)?;
        if self.file.exists() {
            return Ok(kernel);
        }
        let _step = progress::step(format!("copy {} to {}", self.release, self.file.display()));
        let half_made = self.file.with_extension("half-made");
        run::quietly(
            Command::new("cp").args(["--sparse=always"]).arg(disk(&folder)).arg(&half_made),
        )?;
        write_agent(agent, &half_made)?;
        fs::rename(&half_made, &self.file)
            .with_context(|| format!("make {}", self.file.display()))?;
        Ok(kernel)
    }
}

/// Puts the agent onto a disk that no guest uses.
fn write_agent(agent: &Path, disk: &Path) -> Result<()> {
    let requests = tempfile::NamedTempFile::new()?;
    let source = agent.display();
    let text = format!(
        "cd {AGENT_FOLDER}\nwrite \"{source}\" {AGENT}\nset_inode_field {AGENT} mode 0100755\n"
    );
    fs::write(requests.path(), text)?;
    let debugfs = || Command::new("/sbin/debugfs");
    let said = run::captured(debugfs().args(["-w", "-f"]).arg(requests.path()).arg(disk))?;
    // Its status tells of no failure.
    let ask = format!("stat {AGENT_FOLDER}/{AGENT}");
    let there = run::output(debugfs().args(["-R", &ask]).arg(disk))?;
    ensure!(there.contains("Mode:  0755"), "the agent is not on the disk: {}", run::both(&said));
    Ok(())
}

/// The initramfs that lies beside the kernel.
pub fn initramfs(kernel: &Kernel) -> PathBuf {
    kernel.image().with_file_name(format!("initrd.img-{}", kernel.release))
}

fn disk(folder: &Path) -> PathBuf {
    folder.join("disk")
}

/// The kernel of a Debian that was made.
fn kernel(release: Release, folder: &Path) -> Result<Kernel> {
    let entries = fs::read_dir(folder.join("boot")).context("the disk has no /boot")?;
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = names.find_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    let name = name.with_context(|| format!("{release} has no kernel"))?;
    Ok(Kernel::of_disk(release.kernel(), name, folder.to_owned()))
}

/// Makes sure that a Debian is in the cache. Returns its folder.
fn made(release: Release) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (PACKAGES, FURNISH, SIZE).hash(&mut hasher);
    let name = format!("{}-{:016x}", release.suite(), hasher.finish());
    let folder = paths::cache().join("disks").join(&name);
    if !folder.exists() {
        let _lock = paths::lock(&paths::cache().join("locks"), &format!("disk-{name}"))?;
        if !folder.exists() {
            let what = format!("make a disk with {release} from its packages");
            let _step = progress::step(what.clone());
            make(release, &folder).context(what)?;
        }
    }
    Ok(folder)
}

fn make(release: Release, folder: &Path) -> Result<()> {
    let disks = folder.parent().context("a folder in a folder")?;
    fs::create_dir_all(disks)?;
    let scratch = tempfile::tempdir_in(disks)?;
    let root = scratch.path().join("root");
    let result = bootstrap(release, scratch.path(), &root).and_then(|()| {
        let half_made = scratch.path().join("made");
        fs::create_dir_all(half_made.join("boot"))?;
        for entry in fs::read_dir(root.join("boot"))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("vmlinuz-") || name.starts_with("initrd.img-") {
                fs::copy(entry.path(), half_made.join("boot").join(&*name))?;
            }
        }
        let mut format = run::as_root("/sbin/mke2fs");
        format.args(["-q", "-t", "ext4", "-L", "root", "-d"]).arg(&root);
        run::quietly(format.arg(disk(&half_made)).arg(SIZE))?;
        run::quietly(run::as_root("chmod").arg("644").arg(disk(&half_made)))?;
        fs::rename(half_made, folder)?;
        Ok(())
    });
    // It is root's, so that the folder around it does not vanish by itself.
    run::quietly(run::as_root("rm").arg("-rf").arg(&root))?;
    result
}

fn bootstrap(release: Release, scratch: &Path, root: &Path) -> Result<()> {
    let debian = Bootstrap {
        variant: Variant::Minimal,
        release: release.suite(),
        sources: &apt::sources_of(release.suite())?,
        packages: PACKAGES,
        options: &[],
    };
    debian.make(scratch, root)?;
    run::quietly(run::as_root("sh").args(["-c", FURNISH, "sh"]).arg(root))
}
