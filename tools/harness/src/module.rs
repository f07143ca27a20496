// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds modules of Linux for each kernel, out of tree: crtos', and those of the tests.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::kernels::{self, Flavour, Kernel};
use crate::{parts, paths, run};

/// File name of crtos' module.
const CRTOS: &str = "crtos.ko";
/// The hypervisor's image among the sources of crtos' module.
const IMAGE: &str = "hypervisor.bin";
/// Name of the tests' attacker.
const ATTACK: &str = "attack";
/// Name of their platform device.
const PLATFORM: &str = "platform";
/// Headers of crtos that the attacker uses, too.
const SHARED_HEADERS: &[&str] = &["abi.h", "channel.h", "hypercall.h"];

/// A file of a module's source: its name and its bytes.
pub type Source = (PathBuf, Vec<u8>);

/// Version of everything.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What DKMS reads, among the sources of crtos' module, and what stands for the version there.
const DKMS: (&str, &str) = ("dkms.conf", "#MODULE_VERSION#");

/// Puts the sources of crtos' module, with the hypervisor's image, into the staging tree, for the
/// kernels of users. Returns them.
pub fn stage_sources(stage: &Path, image: Vec<u8>) -> Result<Vec<Source>> {
    let mut sources = read_sources(&paths::root().join("linux/module"), Path::new(""))?;
    let is_hidden = |name: &Path| name.to_string_lossy().starts_with('.');
    sources.retain(|(name, _)| !is_hidden(name) && name != Path::new(IMAGE));
    sources.push((IMAGE.into(), image));
    for (_, bytes) in sources.iter_mut().filter(|(name, _)| name == Path::new(DKMS.0)) {
        *bytes = String::from_utf8_lossy(bytes).replace(DKMS.1, VERSION).into_bytes();
    }
    copy_sources(&sources, &stage.join("usr/src").join(format!("crtos-{VERSION}")))?;
    Ok(sources)
}

/// Builds crtos' module with the hypervisor's image for all kernels, and puts it into the staging
/// tree, with its sources.
pub fn build(stage: &Path, image: Vec<u8>) -> Result<()> {
    let sources = stage_sources(stage, image)?;
    for_all_kernels(|flavour, kernel| {
        let installed = stage.join("usr/lib/modules").join(&kernel.release);
        let module = installed.join("updates").join(CRTOS);
        let is_new = compile("crtos", flavour, kernel, &sources, &module)?;
        if is_new || !installed.join("modules.dep").exists() {
            index(kernel, &installed)?;
        }
        Ok(())
    })
}

/// Builds the modules of the tests for all kernels and puts them into the tree of the tests: the
/// attacker, and a platform device.
pub fn build_attacker(tree: &Path) -> Result<()> {
    let platform = read_sources(&paths::root().join("tests/guest/module"), Path::new(""))?;
    let mut sources = read_sources(&paths::root().join("tests/attack/module"), Path::new(""))?;
    for name in SHARED_HEADERS {
        let path = paths::root().join("linux/module").join(name);
        sources.push((name.into(), fs::read(path)?));
    }
    for_all_kernels(|flavour, kernel| {
        let folder = tree.join("usr/lib/crtos-tests/attack").join(&kernel.release);
        compile(PLATFORM, flavour, kernel, &platform, &folder.join("platform.ko"))?;
        compile(ATTACK, flavour, kernel, &sources, &folder.join("attack.ko")).map(drop)
    })
}

fn for_all_kernels(build: impl Fn(Flavour, &Kernel) -> Result<()> + Sync) -> Result<()> {
    let build = |flavour| build(flavour, &kernels::ensure(flavour)?);
    let further = Flavour::FURTHER.iter().copied().filter(|&flavour| kernels::is_cached(flavour));
    let flavours: Vec<_> = Flavour::ALL.into_iter().chain(further).collect();
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            flavours.iter().map(|&flavour| scope.spawn(move || build(flavour))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread failed"))).collect()
    });
    for (flavour, result) in flavours.into_iter().zip(results) {
        result?.with_context(|| format!("the module for kernel {flavour}"))?;
    }
    Ok(())
}

/// Compiles a module, unless what is installed at `to` is current; true if it was not.
fn compile(
    name: &str,
    flavour: Flavour,
    kernel: &Kernel,
    sources: &[Source],
    to: &Path,
) -> Result<bool> {
    let folder = paths::target().join("parts/module").join(format!("{name}-{flavour}"));
    let _lock = paths::lock(&paths::target().join("locks"), &format!("module-{name}-{flavour}"))?;
    // kbuild takes a second to find that nothing changed.
    let fingerprint = fingerprint(kernel, sources);
    let stamp = folder.join(".built");
    let is_current = fs::read_to_string(&stamp).is_ok_and(|old| old == fingerprint);
    if is_current && to.exists() {
        return Ok(false);
    }
    copy_sources(sources, &folder)?;
    let folder = folder.canonicalize()?;
    let mut make = kernel.make(&folder, &["--no-print-directory", "KCFLAGS=-Werror", "modules"]);
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    run::quietly(&mut make)?;
    let module = fs::read(folder.join(name).with_extension("ko"));
    parts::install(&module.context("kbuild made no module")?, to, 0o644)?;
    fs::write(stamp, fingerprint)?;
    Ok(true)
}

/// All files of a folder and its subfolders, with paths relative to `root`.
fn read_sources(root: &Path, below: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            sources.extend(read_sources(root, &name)?);
        } else {
            sources.push((name, fs::read(entry.path())?));
        }
    }
    sources.sort();
    Ok(sources)
}

/// A private copy, whose unchanged files keep their times; files that are gone
/// from the source go from the copy as well.
fn copy_sources(sources: &[Source], folder: &Path) -> Result<()> {
    if folder.exists() {
        for (name, _) in read_sources(folder, Path::new(""))? {
            let is_source = name.extension().is_some_and(|e| e == "c" || e == "h");
            let text = name.to_string_lossy();
            let is_made = text.ends_with(".mod.c") || text.starts_with("unit-");
            if is_source && !is_made && !sources.iter().any(|(source, _)| *source == name) {
                fs::remove_file(folder.join(name))?;
            }
        }
    }
    for (name, bytes) in sources {
        parts::install(bytes, &folder.join(name), 0o644)?;
    }
    Ok(())
}

fn fingerprint(kernel: &Kernel, sources: &[Source]) -> String {
    let mut hasher = DefaultHasher::new();
    (&kernel.release, kernel.modules(), kernels::LAYOUT, sources).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Writes what modprobe reads, for the kernel's own modules and ours together.
fn index(kernel: &Kernel, installed: &Path) -> Result<()> {
    let scratch = tempfile::tempdir_in(paths::target())?;
    let tree = scratch.path().join("lib/modules").join(&kernel.release);
    fs::create_dir_all(tree.join("updates"))?;
    std::os::unix::fs::symlink(kernel.modules().join("kernel"), tree.join("kernel"))?;
    for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(kernel.modules().join(name), tree.join(name))?;
    }
    fs::copy(installed.join("updates").join(CRTOS), tree.join("updates").join(CRTOS))?;
    let mut depmod = Command::new("/sbin/depmod");
    run::quietly(depmod.arg("-b").arg(scratch.path()).arg(&kernel.release))?;
    for entry in fs::read_dir(&tree)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            parts::install(&fs::read(entry.path())?, &installed.join(entry.file_name()), 0o644)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{VERSION, paths};

    #[test]
    fn the_module_says_the_version_of_everything() {
        let source = fs::read_to_string(paths::root().join("linux/module/main.c")).unwrap();
        assert!(source.contains(&format!("\nMODULE_VERSION(\"{VERSION}\");\n")));
    }
}
