// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x deb`: Debian packages of what was built, and what lintian says of them.
//!
//! The project's own compiler builds everything before, since Debian's is older. The packages'
//! build only divides up the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{install, parts, paths, progress, run, setup};

/// Version of the packages, as of everything.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder that the packages are in.
fn folder() -> PathBuf {
    paths::target().join("deb")
}

/// Builds, and makes the packages. Returns their files.
pub fn deb() -> Result<Vec<PathBuf>> {
    setup::ensure()?;
    parts::build(install::PARTS)?;
    let packages = package(&folder())?;
    lint(&packages)?;
    Ok(packages)
}

/// Makes packages of what was built, in a folder that has nothing else. Returns their files.
pub fn package(folder: &Path) -> Result<Vec<PathBuf>> {
    let _step = progress::step("make Debian packages");
    // What an older build left would be among them.
    let _ = fs::remove_dir_all(folder);
    let source = folder.join(format!("crtos-{VERSION}"));
    install::copy_built(&source.join("tree/usr"))?;
    let root = paths::root();
    install::copy(&root.join("packaging/debian"), &source.join("debian"))?;
    install::copy(&root.join("docs"), &source.join("docs"))?;
    fs::copy(root.join("README.md"), source.join("README.md"))?;
    fs::write(source.join("debian/changelog"), changelog()?)?;
    let mut build = Command::new("dpkg-buildpackage");
    run::quietly(build.args(["--build=binary", "--no-sign"]).current_dir(&source))?;
    fs::remove_dir_all(&source)?;
    let mut packages: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect();
    packages.sort();
    Ok(packages)
}

/// Debian's changelog, which names the version. Its date is that of the latest commit, or that of
/// the sources where they come without git.
fn changelog() -> Result<String> {
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%cD"]).current_dir(paths::root());
    let mut unpacked = Command::new("date");
    unpacked.args(["--rfc-email", "--reference"]).arg(paths::root().join("Cargo.toml"));
    let date = run::output(&mut log).or_else(|_| run::output(&mut unpacked))?;
    let control = fs::read_to_string(paths::root().join("packaging/debian/control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("debian/control names no maintainer")?;
    let date = date.trim();
    Ok(format!(
        "crtos ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
         -- {maintainer}  {date}\n"
    ))
}

/// Has lintian look at them; its errors and warnings are ours.
fn lint(packages: &[PathBuf]) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--profile", "debian"]);
    // Packages that are not uploaded to Debian close no bug of it.
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    run::quietly(lintian.args(packages.iter().map(PathBuf::as_path).map(Path::as_os_str)))
}
