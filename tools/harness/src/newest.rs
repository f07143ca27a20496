// SPDX-License-Identifier: MIT OR Apache-2.0
//! The newest kernel that Debian offers for a release: in the backports of the stable one. Its
//! programs that build modules, and its compiler, do not run with the libraries of
//! [`apt::RELEASE`], so it comes with the tree of a small Debian that has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bootstrap::{Bootstrap, Variant};
use crate::{apt, paths, run};

/// The release, and the suite with its newest kernel.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// What is there beside the essential packages, from the second suite where one has it.
const PACKAGES: &[&str] = &[
    "gcc",
    "kmod",
    "linux-headers-amd64/trixie-backports",
    "linux-image-amd64/trixie-backports",
    "make",
];
/// Copies the kernel and its modules out of the tree $1 into the folder $2, for the owner of $2.
const TAKE: &str = "set -e
mkdir -p \"$2/boot\" \"$2/usr/lib/modules\"
cp -a \"$1\"/boot/vmlinuz-* \"$2/boot\"
cp -a \"$1\"/usr/lib/modules/*-amd64 \"$2/usr/lib/modules\"
rm -f \"$2\"/usr/lib/modules/*/build \"$2\"/usr/lib/modules/*/source
chmod -R u+rw \"$2/boot\" \"$2/usr\"
chown -R --reference=\"$2\" \"$2/boot\" \"$2/usr\"";
/// Runs make with $4... for the headers $3 of the tree $1, in the folder $2 outside of it.
const MAKE: &str = "set -e
tree=$1 folder=$2 headers=$3
shift 3
mount --bind \"$folder\" \"$tree/mnt\"
mount -t proc proc \"$tree/proc\"
chroot \"$tree\" make -C \"$headers\" M=/mnt \"$@\"
chown -R --reference=\"$folder\" \"$tree/mnt\"";

/// The tree in the folder of the kernel. It is root's.
fn tree(folder: &Path) -> PathBuf {
    folder.join("tree")
}

/// Puts the kernel with its modules, and the tree, into a folder. Returns what `uname -r` will say.
pub fn unpack(folder: &Path) -> Result<String> {
    let tree = tree(folder);
    let scratch = tempfile::tempdir_in(paths::cache())?;
    let mut sources = apt::sources_of(SUITES[0])?;
    sources.push(apt::suite(SUITES[1])?);
    let debian = Bootstrap {
        variant: Variant::Minimal,
        release: SUITES[0],
        sources: &sources,
        packages: PACKAGES,
        options: &[],
    };
    debian.make(scratch.path(), &tree)?;
    run::quietly(run::as_root("sh").args(["-c", TAKE, "sh"]).arg(&tree).arg(folder))?;
    let modules = fs::read_dir(folder.join("usr/lib/modules"))?.next();
    let release = modules.context("the tree has no modules")??.file_name();
    Ok(release.to_string_lossy().into_owned())
}

/// Removes what [`unpack`] may have left.
pub fn remove(folder: &Path) -> Result<()> {
    run::quietly(run::as_root("rm").arg("-rf").arg(tree(folder)))
}

/// `make ARGUMENTS` in a folder with the source of a module, for the kernel of that release.
pub fn make(folder: &Path, release: &str, source: &Path, arguments: &[&str]) -> Command {
    let mut make = run::as_root("unshare");
    make.args(["--mount", "sh", "-c", MAKE, "sh"]).arg(tree(folder)).arg(source);
    make.arg(format!("/usr/src/linux-headers-{release}")).args(arguments);
    make
}
