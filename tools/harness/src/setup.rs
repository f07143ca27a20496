// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs what the build and the tests need, on Debian 12.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::toolchain::{BARE, BareMetal};
use crate::{apt, image, kernels, paths, progress, run};

/// Packages of Debian 12 itself.
const PACKAGES: &[&str] = &[
    "debhelper",
    "dh-dkms",
    "dkms",
    "dpkg-dev",
    "gcc",
    "gcc-12",
    "kmod",
    "libc6-dev",
    "libelf1",
    "lintian",
    "lz4",
    "make",
    "mmdebstrap",
    "musl-tools",
    "pahole",
    "perl",
    "shellcheck",
    "squashfs-tools",
    "util-linux",
    "xz-utils",
    "zstd",
];
/// Debian's Rust with the source of its library; LLVM's linker comes on top.
const RUST: &[&str] = &["rustc-web", "cargo-web", "rust-web-src", "rustfmt-web", "rust-web-clippy"];
/// QEMU: Debian 12's own has no x2APIC without KVM.
const QEMU: &[&str] = &["qemu-system-x86", "seabios", "ipxe-qemu"];
/// The oldest QEMU that will do, as Debian numbers it.
const QEMU_VERSION: &str = "1:10";
/// The file of the package source that is added if there is none.
const SOURCE_NAME: &str = "crtos-backports";

/// Installs what is missing; quick if nothing is.
pub fn ensure() -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    if !is_debian_12() {
        bail!(
            "the set-up knows only Debian 12 (amd64). Here, install the equivalents of {} \
             yourself, and a Rust compiler with the target {BARE}",
            [PACKAGES, QEMU].concat().join(" ")
        );
    }
    let _lock = paths::lock(&paths::cache().join("locks"), "setup")?;
    for need in missing {
        need.provide()?;
    }
    let left: Vec<_> = self::missing()?.iter().map(Need::describe).collect();
    if !left.is_empty() {
        bail!("still missing after the set-up: {}", left.join("; "));
    }
    Ok(())
}

/// `./x setup`: also fetches the kernels and makes the guest's root.
pub fn setup() -> Result<()> {
    ensure()?;
    for flavour in kernels::Flavour::ALL {
        kernels::ensure(flavour)?;
    }
    image::ensure(&[]).map(drop)
}

/// Something that has to be installed.
enum Need {
    Packages(Vec<&'static str>),
    Qemu,
    Backports,
    Rust,
}

/// What is not there yet, in the order to provide it.
fn missing() -> Result<Vec<Need>> {
    let mut needs = Vec::new();
    let names: Vec<_> = PACKAGES.iter().chain(QEMU).copied().collect();
    let installed = installed_versions(&names);
    let lacking = |name: &&&str| !installed.iter().any(|(installed, _)| installed == **name);
    let packages: Vec<_> = PACKAGES.iter().filter(lacking).copied().collect();
    if !packages.is_empty() {
        needs.push(Need::Packages(packages));
    }
    // Also the kernels come from there, until they are in the cache.
    let has_kernels = kernels::Flavour::ALL.iter().all(|flavour| kernels::is_cached(*flavour));
    let qemu = installed.iter().find(|(name, _)| name == QEMU[0]);
    let has_qemu = qemu.is_some_and(|(_, version)| is_at_least(version, QEMU_VERSION));
    let needs_backports = !(has_kernels && has_qemu);
    if needs_backports && !has_backports() {
        needs.push(Need::Backports);
    }
    if !has_qemu {
        needs.push(Need::Qemu);
    }
    if BareMetal::find()?.is_none() {
        needs.push(Need::Rust);
    }
    Ok(needs)
}

/// The installed ones among some packages, with their versions.
fn installed_versions(names: &[&str]) -> Vec<(String, String)> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${Package} ${db:Status-Status} ${Version}\n"]).args(names);
    // Its status tells only that some are unknown.
    let Ok(output) = run::captured(&mut query) else { return vec![] };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, "installed", version] => Some((name.to_owned(), version.to_owned())),
        _ => None,
    };
    text.lines().filter_map(parse).collect()
}

fn is_at_least(version: &str, wanted: &str) -> bool {
    run::succeeds(Command::new("dpkg").args(["--compare-versions", version, "ge", wanted]))
}

/// Whether apt knows a QEMU that is new enough, and so the suite it is in.
fn has_backports() -> bool {
    let versions = apt::versions(QEMU[0]).unwrap_or_default();
    versions.iter().any(|version| is_at_least(version, QEMU_VERSION))
}

fn is_debian_12() -> bool {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let says = |line: &str| text.lines().any(|l| l.replace('"', "") == line);
    says("ID=debian") && says("VERSION_ID=12")
}

impl Need {
    fn describe(&self) -> String {
        match self {
            Self::Packages(names) => format!("packages {}", names.join(" ")),
            Self::Qemu => format!("QEMU {QEMU_VERSION} or newer"),
            Self::Backports => "the backports suite among the package sources".to_owned(),
            Self::Rust => format!("a Rust compiler with the target {BARE}"),
        }
    }

    fn provide(&self) -> Result<()> {
        let _step = progress::step(format!("install {}", self.describe()));
        match self {
            Self::Packages(names) => install(names, None),
            Self::Backports => add_backports(),
            Self::Qemu => install(QEMU, Some(&format!("{}-backports", apt::RELEASE))),
            Self::Rust => provide_rust(),
        }
        .with_context(|| format!("install {}", self.describe()))
    }
}

/// Installs packages without removing any.
fn install(names: &[&str], suite: Option<&str>) -> Result<()> {
    let attempt = || {
        let mut get = apt_get();
        get.args(["install", "-q", "-y", "--no-remove", "--no-install-recommends"]);
        get.args(suite.iter().flat_map(|suite| ["-t", suite])).args(names);
        run::quietly(&mut get)
    };
    // The lists may be old or, in a container, not there at all.
    attempt().or_else(|_| update().and_then(|()| attempt()))
}

/// Has apt read its lists anew.
pub fn update() -> Result<()> {
    run::quietly(apt_get().args(["update", "-q"]))
}

/// apt-get as root, asking nothing, waiting for others.
fn apt_get() -> Command {
    let mut command = run::as_root("env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command
}

/// Adds the backports suite of the mirror that the machine uses already.
fn add_backports() -> Result<()> {
    update()?;
    if has_backports() {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let files = apt::write_sources(&[apt::backports()?], scratch.path(), SOURCE_NAME)?;
    for file in files {
        let to = Path::new("/etc/apt/sources.list.d").join(file.file_name().unwrap_or_default());
        run::quietly(run::as_root("install").args(["-m", "644"]).arg(&file).arg(to))?;
    }
    update()
}

/// Adds the target to the machine's Rust, or else installs Debian's beside it.
fn provide_rust() -> Result<()> {
    let mut rustup = Command::new("rustup");
    if run::succeeds(rustup.args(["target", "add", BARE]).current_dir(paths::root())) {
        return Ok(());
    }
    let linkers =
        run::output(Command::new("apt-cache").args(["search", "--names-only", "^lld-[0-9]+$"]))?;
    let number = |line: &str| line.strip_prefix("lld-")?.split(' ').next()?.parse::<u32>().ok();
    let newest = linkers.lines().filter_map(number).max();
    let linker = format!("lld-{}", newest.context("Debian has no package lld-*")?);
    install(&[RUST, &[linker.as_str()]].concat(), None)
}
