// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's root: Debian 12 made from packages, read-only.
//!
//! A package `NAME/SUITE` is one of another suite. It comes without what it depends on, so that the
//! rest stays what it is.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::bootstrap::{Bootstrap, Variant};
use crate::{apt, paths, progress};

/// The packages that every guest has, beside the essential ones: what the tests need that run by
/// default, since another image takes longer than most of them.
const PACKAGES: &[&str] = &[
    "arping",
    "bash",
    "bsdextrautils",
    "busybox-static",
    "can-utils",
    "dbus",
    "e2fsprogs",
    "ethtool",
    "file",
    "fio",
    "gcc",
    "gdb-minimal",
    "gojq",
    "iperf3",
    "iproute2",
    "kexec-tools",
    "kmod",
    "less",
    "libc6-dev",
    "linuxptp",
    "ltrace",
    "mbpoll",
    "mesaflash",
    "netcat-openbsd",
    "pciutils",
    "picocom",
    "procps",
    "psmisc",
    "python3",
    "python3-can",
    "python3-minimal",
    "python3-prometheus-client",
    "python3-serial",
    "rt-tests",
    "setserial",
    "socat",
    "strace",
    "stress-ng",
    "systemd-sysv",
    "tcpdump",
    "time",
    "udev",
    "util-linux",
    "util-linux-extra",
    "xxd",
];

/// What no test reads.
const EXCLUDED: &[&str] = &[
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/var/lib/apt/lists/*",
];

/// Packages of every guest that give way to another one, with which they cannot be installed.
const REPLACED: &[(&str, &str)] = &[("gdb-minimal", "gdb")];

/// What is installed with these additional packages.
fn with(additional: &[String]) -> BTreeSet<&str> {
    let additional: BTreeSet<&str> = additional.iter().map(String::as_str).collect();
    let gives_way =
        |name: &str| REPLACED.iter().any(|(own, other)| *own == name && additional.contains(other));
    let own = PACKAGES.iter().copied().filter(|name| !gives_way(name));
    own.chain(additional.iter().copied()).collect()
}

/// Makes sure that the image with these additional packages is in the cache.
pub fn ensure(additional: &[String]) -> Result<PathBuf> {
    let packages = with(additional);
    let mut hasher = DefaultHasher::new();
    (apt::RELEASE, &packages, EXCLUDED).hash(&mut hasher);
    let name = format!("{}-{:016x}", apt::RELEASE, hasher.finish());
    let folder = paths::cache().join("images");
    let image = folder.join(format!("{name}.squashfs"));
    if image.exists() {
        return Ok(image);
    }
    let _lock = paths::lock(&paths::cache().join("locks"), &name)?;
    if image.exists() {
        return Ok(image);
    }
    let _step = progress::step("make the guest's root from Debian packages");
    fs::create_dir_all(&folder)?;
    let packages: Vec<_> = packages.into_iter().collect();
    make(&packages, &image).context("make the guest's root from Debian packages")?;
    Ok(image)
}

fn make(packages: &[&str], image: &PathBuf) -> Result<()> {
    let scratch = tempfile::tempdir_in(paths::cache())?;
    let tar = scratch.path().join("root.tar");
    let (others, own): (Vec<&str>, Vec<&str>) =
        packages.iter().partition(|name| name.contains('/'));
    let mut options = Vec::new();
    for (name, suite) in others.iter().filter_map(|other| other.split_once('/')) {
        for file in apt::download(suite, &[name], &scratch.path().join(name))? {
            let file = file.display().to_string();
            let extract = format!("dpkg-deb --extract {} \"$1\"", shlex::try_quote(&file)?);
            options.push(format!("--customize-hook={extract}"));
        }
    }
    // Packages with alternatives, such as openjdk, link pages there and fail without the folder.
    options.push("--essential-hook=mkdir -p \"$1/usr/share/man/man1\"".to_owned());
    options.extend(EXCLUDED.iter().map(|path| format!("--dpkgopt=path-exclude={path}")));
    let debian = Bootstrap {
        variant: Variant::Minimal,
        release: apt::RELEASE,
        sources: &apt::release_sources()?,
        packages: &own,
        options: &options,
    };
    debian.make(scratch.path(), &tar)?;
    // Not compressed: an emulated CPU would have to decompress it.
    let half_made = scratch.path().join("root.squashfs");
    let mut squash = Command::new("sqfstar");
    squash.args(["-noI", "-noD", "-noF", "-noX", "-no-progress"]).arg(&half_made);
    let input = fs::File::open(&tar)?;
    let output = squash.stdin(input).stdout(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("sqfstar: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(half_made, image)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_gives_way_to_one_that_replaces_it() {
        assert!(with(&[]).contains("gdb-minimal"));
        let packages = ["gdb".to_owned(), "tcpdump".to_owned()];
        let with_gdb = with(&packages);
        assert!(with_gdb.contains("gdb") && with_gdb.contains("tcpdump"));
        assert!(!with_gdb.contains("gdb-minimal"));
    }
}
