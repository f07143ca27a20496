// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust compilers: one for Linux, one that has the library for bare metal.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{paths, progress, run};

/// Target of the parts that run under Linux.
pub const LINUX: &str = "x86_64-unknown-linux-gnu";
/// Target of the parts that run on bare metal.
pub const BARE: &str = "x86_64-unknown-none";

/// Where Debian installs programs, also its Rust.
const DEBIAN_BIN: &str = "/usr/bin";
/// The parts of the library that bare metal has.
const LIBRARY: &str = "-Zbuild-std=core,alloc,compiler_builtins";
/// Without a C library somebody has to define `memcpy` and its kin.
const LIBRARY_FEATURES: &str = "-Zbuild-std-features=compiler-builtins-mem";

/// Cargo as the harness was started with it.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(paths::root()).env_remove("RUSTFLAGS");
    command
}

/// How code for bare metal is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Linked at a fixed address in the lowest or highest 2 GiB.
    Static,
    /// Runs far from there.
    PositionIndependent,
    /// A shared object for programs.
    SharedObject,
}

/// A compiler that can build for bare metal.
#[derive(Debug, Clone)]
pub enum BareMetal {
    /// The machine's default one can.
    Default,
    /// Debian's, with a library that the harness built.
    Debian {
        /// What to pass as `--sysroot`.
        sysroot: PathBuf,
        /// Debian's name for LLVM's linker.
        linker: PathBuf,
    },
}

impl BareMetal {
    /// Finds one, building Debian's library once if need be; `None` if something
    /// has to be installed.
    pub fn find() -> Result<Option<Self>> {
        if has_library("rustc") {
            return Ok(Some(Self::Default));
        }
        let (Some(linker), Some(_)) = (debian_linker(), debian_library_source()) else {
            return Ok(None);
        };
        let sysroot = debian_sysroot(&linker)?;
        Ok(Some(Self::Debian { sysroot, linker }))
    }

    /// Finds one or says that there is none.
    pub fn get() -> Result<Self> {
        Self::find()?.context("no Rust compiler here can build for bare metal; run `./x setup`")
    }

    /// `cargo VERB` for bare metal.
    pub fn cargo(&self, verb: &str, model: Model) -> Command {
        let mut command = match self {
            Self::Default => cargo(),
            Self::Debian { .. } => debian_cargo(),
        };
        command.current_dir(paths::root()).args([verb, "--target", BARE]);
        let relocation = if model == Model::Static { "static" } else { "pic" };
        let mut flags = vec![format!("-Crelocation-model={relocation}")];
        if model == Model::SharedObject {
            // Debuggers and C++ look through its functions.
            flags.push("-Cforce-unwind-tables=yes".into());
        }
        if let Self::Debian { sysroot, linker } = self {
            flags.push(format!("--sysroot={}", sysroot.display()));
            command.arg("--config").arg(format!("target.{BARE}.linker={:?}", linker.display()));
        }
        command.arg("--config").arg(format!("target.{BARE}.rustflags={flags:?}"));
        command
    }
}

/// Debian's cargo, with Debian's compiler and tools.
fn debian_cargo() -> Command {
    let mut command = Command::new(Path::new(DEBIAN_BIN).join("cargo"));
    let old = env::var_os("PATH").unwrap_or_default();
    let folders = [PathBuf::from(DEBIAN_BIN)].into_iter().chain(env::split_paths(&old));
    if let Ok(path) = env::join_paths(folders) {
        command.env("PATH", path);
    }
    command.env("RUSTC", Path::new(DEBIAN_BIN).join("rustc"));
    for variable in ["RUSTFLAGS", "RUSTUP_TOOLCHAIN", "CARGO"] {
        command.env_remove(variable);
    }
    command
}

/// Whether a compiler has the library for bare metal.
fn has_library(rustc: &str) -> bool {
    let mut ask = Command::new(rustc);
    // Where rustup finds which compiler that is.
    ask.current_dir(paths::root());
    ask.args(["--print", "target-libdir", "--target", BARE]);
    run::output(&mut ask).is_ok_and(|folder| holds_core(Path::new(folder.trim())))
}

fn holds_core(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcore-") && name.ends_with(".rlib")
    })
}

/// The newest of LLVM's linkers that Debian has installed.
fn debian_linker() -> Option<PathBuf> {
    let version = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("ld.lld-")?.parse().ok()
    };
    let entries = fs::read_dir(DEBIAN_BIN).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| version(path).is_some()).max_by_key(version)
}

/// The library's source that belongs to Debian's compiler.
fn debian_library_source() -> Option<PathBuf> {
    let rustc = Path::new(DEBIAN_BIN).join("rustc");
    let root = run::output(Command::new(rustc).args(["--print", "sysroot"])).ok()?;
    let source = Path::new(root.trim()).join("lib/rustlib/src/rust/library");
    source.exists().then_some(source)
}

/// The folder with Debian's library for bare metal, built at the first call.
fn debian_sysroot(linker: &Path) -> Result<PathBuf> {
    let rustc = Path::new(DEBIAN_BIN).join("rustc");
    let version = run::output(Command::new(rustc).arg("--version"))?;
    let version = version.split_whitespace().nth(1).unwrap_or("unknown");
    fs::create_dir_all(paths::cache())?;
    let sysroot = paths::cache().canonicalize()?.join(format!("rust-{version}"));
    let library = sysroot.join("lib/rustlib").join(BARE).join("lib");
    if holds_core(&library) {
        return Ok(sysroot);
    }
    let _lock = paths::lock(&paths::cache().join("locks"), "rust")?;
    if !holds_core(&library) {
        let _step = progress::step("build Rust's library for bare metal");
        build_library(&library, linker).context("build Rust's library for bare metal")?;
    }
    Ok(sysroot)
}

fn build_library(library: &Path, linker: &Path) -> Result<()> {
    let scratch = tempfile::tempdir_in(paths::cache())?;
    let folder = scratch.path();
    let manifest = "[package]\nname = \"empty\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::create_dir(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "#![no_std]\n")?;
    let mut cargo = debian_cargo();
    cargo.current_dir(folder).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", "target");
    cargo.args(["build", "--release", "--target", BARE, LIBRARY, LIBRARY_FEATURES]);
    cargo.arg("--config").arg(format!("target.{BARE}.linker={:?}", linker.display()));
    run::quietly(&mut cargo)?;
    let half_made = library.with_extension("half-made");
    fs::create_dir_all(&half_made)?;
    let mut copied = 0;
    for entry in fs::read_dir(folder.join("target").join(BARE).join("release/deps"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".rlib") && !name.starts_with("libempty-") {
            fs::copy(&path, half_made.join(&name))?;
            copied += 1;
        }
    }
    if copied == 0 {
        bail!("cargo left no library behind");
    }
    fs::rename(half_made, library)?;
    Ok(())
}
