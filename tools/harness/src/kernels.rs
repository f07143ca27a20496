// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's own kernels, unmodified, with the modules and headers that belong to
//! them. They are unpacked into the cache and not installed on the host.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::{apt, newest, paths, progress, run};

/// A kernel that the tests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// Debian 12's.
    V6_1,
    /// Debian 12's with PREEMPT_RT.
    V6_1Rt,
    /// Debian 12 backports'.
    V6_12,
    /// Debian 12 backports' with PREEMPT_RT.
    V6_12Rt,
    /// Debian 12's for virtual machines alone.
    V6_1Cloud,
    /// Debian 12 backports' for virtual machines alone.
    V6_12Cloud,
    /// The newest of Debian 13's backports.
    Newest,
}

impl Flavour {
    /// Those that are measured, and that tests name, oldest first.
    pub const ALL: [Self; 4] = [Self::V6_1, Self::V6_1Rt, Self::V6_12, Self::V6_12Rt];
    /// Those that are tried only if they are asked for.
    pub const FURTHER: &'static [Self] = Self::EVERY.split_at(Self::ALL.len()).1;
    /// Both: first those of [`Self::ALL`].
    const EVERY: [Self; 7] = [
        Self::V6_1,
        Self::V6_1Rt,
        Self::V6_12,
        Self::V6_12Rt,
        Self::V6_1Cloud,
        Self::V6_12Cloud,
        Self::Newest,
    ];

    /// The name that command lines and test headers use.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_1Rt => "6.1-rt",
            Self::V6_12 => "6.12",
            Self::V6_12Rt => "6.12-rt",
            Self::V6_1Cloud => "6.1-cloud",
            Self::V6_12Cloud => "6.12-cloud",
            Self::Newest => "newest",
        }
    }

    /// The flavour of that name, one of [`Self::ALL`].
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flavour| flavour.name() == name)
    }

    /// The one for which tests are meant that run on this one as well.
    pub fn stands_for(self) -> Self {
        match self {
            Self::V6_1Cloud => Self::V6_1,
            Self::V6_12Cloud | Self::Newest => Self::V6_12,
            other => other,
        }
    }

    /// Whether it has PREEMPT_RT.
    pub fn has_preempt_rt(self) -> bool {
        matches!(self, Self::V6_1Rt | Self::V6_12Rt)
    }

    /// The package that always depends on the newest build: what of (`image` or
    /// `headers`) and the versions that count.
    ///
    /// # Errors
    /// This one does not come from the machine's own sources.
    fn metapackage(self, what: &str) -> Result<(String, &'static str)> {
        let (name, series) = match self {
            Self::V6_1 => ("amd64", "6.1."),
            Self::V6_1Rt => ("rt-amd64", "6.1."),
            Self::V6_1Cloud => ("cloud-amd64", "6.1."),
            Self::V6_12 => ("amd64", "6.12."),
            Self::V6_12Rt => ("rt-amd64", "6.12."),
            Self::V6_12Cloud => ("cloud-amd64", "6.12."),
            Self::Newest => bail!("the newest kernel has no package here"),
        };
        Ok((format!("linux-{what}-{name}"), series))
    }
}

/// Kernels that are asked for: names with commas between them, or `all`.
#[derive(Debug, Clone, Default)]
pub struct Asked(pub Vec<Flavour>);

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Flavour::EVERY.to_vec()));
        }
        text.split(',')
            .map(|name| Flavour::from_str(name, false))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ValueEnum for Flavour {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::EVERY
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Folders of modules that no virtual machine has a use for.
const UNWANTED: &[&str] = &[
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/net/ethernet",
    "drivers/net/usb",
    "drivers/infiniband",
    "drivers/scsi",
    "drivers/staging",
    "drivers/usb",
    "drivers/iio",
    "drivers/hwmon",
    "drivers/input",
    "drivers/hid",
    "drivers/mmc",
    "drivers/mtd",
    "drivers/ata",
    "drivers/isdn",
    "drivers/bluetooth",
    "drivers/firewire",
    "drivers/thunderbolt",
    "drivers/soundwire",
    "drivers/platform",
    "drivers/video",
    "drivers/comedi",
    "drivers/nfc",
    "net/bluetooth",
    "net/mac80211",
    "net/wireless",
    "fs/xfs",
    "fs/btrfs",
    "fs/ocfs2",
    "fs/f2fs",
    "fs/ceph",
    "fs/smb",
    "fs/gfs2",
    "fs/jfs",
    "fs/ntfs3",
];

/// The only folders of network cards that are wanted.
const NETWORK_CARDS: [&str; 2] =
    ["drivers/net/ethernet/intel/e1000e", "drivers/net/ethernet/intel/igb"];

/// What must be loaded before the root can be mounted and the host be heard.
pub const EARLY: &[&str] = &["virtio_pci", "virtio_blk", "virtio_console", "squashfs", "overlay"];

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Which one it is.
    pub flavour: Flavour,
    /// What `uname -r` says under it.
    pub release: String,
    folder: PathBuf,
}

impl Kernel {
    /// A kernel that is installed on a disk, with a copy of `/boot` in a folder; the rest is on the
    /// disk alone.
    pub fn of_disk(flavour: Flavour, release: String, folder: PathBuf) -> Self {
        Self { flavour, release, folder }
    }

    /// The kernel's image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// A squashfs with `usr/lib/modules`.
    pub fn modules_layer(&self) -> PathBuf {
        self.folder.join("modules.squashfs")
    }

    /// The folder of the modules, after `depmod`.
    pub fn modules(&self) -> PathBuf {
        self.folder.join("usr/lib/modules").join(&self.release)
    }

    /// `make ARGUMENTS` for a module whose source is in a folder.
    pub fn make(&self, source: &Path, arguments: &[&str]) -> Command {
        if self.flavour == Flavour::Newest {
            return newest::make(&self.folder, &self.release, source, arguments);
        }
        let mut make = Command::new("make");
        make.arg("-C").arg(self.headers()).arg(format!("M={}", source.display())).args(arguments);
        make
    }

    /// The build tree that modules are compiled against.
    fn headers(&self) -> PathBuf {
        self.folder.join("usr/src").join(format!("linux-headers-{}", self.release))
    }

    /// The files of these modules and of what they need, in the order to load them.
    pub fn load_order(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let folder = self.modules();
        let dependencies = fs::read_to_string(folder.join("modules.dep"))?;
        let builtin = fs::read_to_string(folder.join("modules.builtin"))?;
        let files = load_order(&dependencies, &builtin, names)?;
        Ok(files.into_iter().map(|file| folder.join(file)).collect())
    }
}

/// Whether a kernel is in the cache.
pub fn is_cached(flavour: Flavour) -> bool {
    stamp(&folder(flavour)).exists()
}

fn folder(flavour: Flavour) -> PathBuf {
    paths::cache().join("kernels").join(flavour.name())
}

/// Makes sure that a kernel is in the cache.
pub fn ensure(flavour: Flavour) -> Result<Kernel> {
    let folder = folder(flavour);
    if let Some(kernel) = cached(flavour, &folder) {
        return Ok(kernel);
    }
    let _lock = paths::lock(&paths::cache().join("locks"), &format!("kernel-{flavour}"))?;
    if let Some(kernel) = cached(flavour, &folder) {
        return Ok(kernel);
    }
    let _step = progress::step(format!("fetch Debian's kernel {flavour}"));
    if folder.exists() {
        newest::remove(&folder)?;
        fs::remove_dir_all(&folder).context("remove a half-made kernel")?;
    }
    fs::create_dir_all(&folder)?;
    unpack(flavour, &folder).with_context(|| format!("fetch Debian's kernel {flavour}"))
}

/// Another number makes another cache, and another index of modules, after a change of what is left
/// out.
pub const LAYOUT: u32 = 3;

/// The file that is written last, with the release in it.
fn stamp(folder: &Path) -> PathBuf {
    folder.join(format!("release-{LAYOUT}"))
}

fn cached(flavour: Flavour, folder: &Path) -> Option<Kernel> {
    let release = fs::read_to_string(stamp(folder)).ok()?;
    let folder = folder.canonicalize().ok()?;
    Some(Kernel { flavour, release: release.trim().to_owned(), folder })
}

fn unpack(flavour: Flavour, folder: &Path) -> Result<Kernel> {
    let folder = folder.canonicalize()?;
    let release = match flavour {
        Flavour::Newest => newest::unpack(&folder)?,
        other => unpack_packages(other, &folder)?,
    };
    let kernel = Kernel { flavour, release, folder };
    prepare_modules(&kernel)?;
    fs::write(stamp(&kernel.folder), &kernel.release)?;
    Ok(kernel)
}

/// Unpacks a kernel of the machine's own sources. Returns what `uname -r` will say.
fn unpack_packages(flavour: Flavour, folder: &Path) -> Result<String> {
    let image = concrete_package(flavour, "image")?;
    let headers = concrete_package(flavour, "headers")?;
    let release = image.0.trim_start_matches("linux-image-").to_owned();
    let mut packages = vec![image.0.clone(), headers.0.clone()];
    for package in apt::depends(&headers.0, &headers.1)? {
        if package.starts_with("linux-headers-") || package.starts_with("linux-kbuild-") {
            packages.push(package);
        }
    }
    download(&packages, folder)?;
    relocate_headers(&folder.join("usr/src").join(format!("linux-headers-{release}")))?;
    // Debian's root has /lib -> usr/lib, and so must a layer over it.
    fs::create_dir_all(folder.join("usr/lib/modules"))?;
    let modules = |root: &str| folder.join(root).join("modules").join(&release);
    fs::rename(modules("lib"), modules("usr/lib"))?;
    fs::remove_dir_all(folder.join("lib"))?;
    Ok(release)
}

/// Name and version of the package that a metapackage stands for.
fn concrete_package(flavour: Flavour, what: &str) -> Result<(String, String)> {
    let (meta, series) = flavour.metapackage(what)?;
    let versions = apt::versions(&meta)?;
    let version = versions.iter().find(|version| version.starts_with(series));
    let version = version.with_context(|| {
        format!("apt knows no {meta} {series}*; run `apt-get update`, then try again")
    })?;
    let prefix = format!("linux-{what}-{series}");
    let depends = apt::depends(&meta, version)?;
    let package = depends.into_iter().find(|package| package.starts_with(&prefix));
    let package = package.with_context(|| format!("{meta} {version} depends on no {prefix}*"))?;
    let newest = apt::versions(&package)?.into_iter().next();
    Ok((package, newest.unwrap_or_else(|| version.clone())))
}

/// Fetches packages and unpacks them, without installing anything.
fn download(packages: &[String], folder: &Path) -> Result<()> {
    let debs = tempfile::tempdir_in(folder)?;
    let mut get = Command::new("apt-get");
    get.args(["download", "-q"]).args(packages).current_dir(debs.path());
    run::quietly(&mut get)?;
    for deb in fs::read_dir(debs.path())? {
        let deb = deb?.path();
        run::quietly(Command::new("dpkg-deb").arg("-x").arg(deb).arg(folder))?;
    }
    Ok(())
}

/// Makes the build tree find its other half wherever the cache lies.
fn relocate_headers(headers: &Path) -> Result<()> {
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).context("the headers have no Makefile")?;
    let here = "$(dir $(abspath $(lastword $(MAKEFILE_LIST))))../";
    fs::write(&makefile, text.replace("/usr/src/", here))?;
    Ok(())
}

/// Leaves out what no guest needs, unpacks the rest, and makes a layer of it.
fn prepare_modules(kernel: &Kernel) -> Result<()> {
    let modules = kernel.modules();
    // depmod looks there.
    std::os::unix::fs::symlink("usr/lib", kernel.folder.join("lib"))?;
    let mut cards: Vec<_> =
        NETWORK_CARDS.iter().map(|cards| modules.join("kernel").join(cards)).collect();
    cards.retain(|cards| cards.exists());
    let aside = kernel.folder.join("cards");
    fs::create_dir_all(&aside)?;
    for (number, cards) in cards.iter().enumerate() {
        fs::rename(cards, aside.join(number.to_string()))?;
    }
    for name in UNWANTED {
        let unwanted = modules.join("kernel").join(name);
        if unwanted.exists() {
            fs::remove_dir_all(unwanted)?;
        }
    }
    for (number, cards) in cards.iter().enumerate() {
        fs::create_dir_all(cards.parent().context("a folder in a folder")?)?;
        fs::rename(aside.join(number.to_string()), cards)?;
    }
    fs::remove_dir(&aside)?;
    let unpack = "find \"$1\" -name '*.ko.xz' -print0 | xargs -0 -r -n 50 -P \"$(nproc)\" xz -d";
    run::quietly(Command::new("sh").args(["-c", unpack, "sh"]).arg(&modules))?;
    let mut depmod = Command::new("/sbin/depmod");
    depmod.arg("-b").arg(&kernel.folder).arg(&kernel.release);
    run::quietly(&mut depmod)?;
    let mut squash = Command::new("mksquashfs");
    squash.arg(kernel.folder.join("usr")).arg(kernel.modules_layer());
    squash.args(["-keep-as-directory", "-noappend", "-comp", "lz4", "-no-progress", "-all-root"]);
    squash.args(["-e", "src", "share", "lib/linux-kbuild*", "-wildcards"]);
    run::quietly(&mut squash)
}

/// The files to load, in order, so that each of `names` can be loaded: from the
/// texts of `modules.dep` and `modules.builtin`.
fn load_order(dependencies: &str, builtin: &str, names: &[&str]) -> Result<Vec<String>> {
    let stem = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.split('.').next().unwrap_or(file).replace('-', "_")
    };
    let mut order: Vec<String> = Vec::new();
    for name in names {
        let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
        let Some((file, needs)) = lines.into_iter().find(|(file, _)| stem(file) == *name) else {
            if builtin.lines().any(|file| stem(file) == *name) {
                continue;
            }
            bail!("the kernel has no module {name}");
        };
        // depmod lists what must be loaded first last.
        for file in needs.split_whitespace().rev().chain([file]) {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let dependencies = "k/v/virtio.ko:\nk/v/virtio_ring.ko: k/v/virtio.ko\n\
            k/b/virtio-blk.ko: k/v/virtio_ring.ko k/v/virtio.ko\n";
        let builtin = "k/fs/overlayfs/overlay.ko\n";
        let order = load_order(dependencies, builtin, &["overlay", "virtio_blk"]).unwrap();
        assert_eq!(order, ["k/v/virtio.ko", "k/v/virtio_ring.ko", "k/b/virtio-blk.ko"]);
        assert!(load_order(dependencies, builtin, &["squashfs"]).is_err());
    }
}
