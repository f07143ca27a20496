// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x lint`: everything that is checked without running the system.
//!
//! | file | concept |
//! |---|---|
//! | [`layers`] | modules that depend on each other in one direction |
//! | [`module`] | the style of the C module: this project's rules, and Linux's |
//! | [`checkpatch`] | Linux's script for style, fetched once |
//! | [`width`] | how wide lines may be |

mod checkpatch;
mod layers;
mod module;
mod width;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::toolchain::{self, BareMetal, LINUX, Model};
use crate::{parts, paths, progress, run, setup};

/// Licence of the module.
const MODULE_LICENCE: &str = "GPL-2.0-only";
/// Licence of everything else.
const LICENCE: &str = "MIT OR Apache-2.0";
/// Crates that are built for bare metal.
const BARE_CRATES: &[&str] = &[
    "crtos-hypervisor",
    "crtos-machine",
    "crtos-core",
    "crtos-linux",
    "crtos-kernel",
    "crtos-inmates",
];

/// A check; its error is what it found.
type Check = fn() -> Result<()>;

/// Runs every check and fails if any did.
pub fn lint() -> Result<()> {
    setup::ensure()?;
    let checks: [(&str, Check); 10] = [
        ("rustfmt", formatting),
        ("clippy", clippy),
        ("clippy for bare metal", clippy_bare),
        ("shellcheck", shell),
        ("documentation", documentation),
        ("width of lines", width::width),
        ("style of the module", module::style),
        ("checkpatch", module::checkpatch),
        ("layers of modules", || layers::check(&paths::root())),
        ("licences", licences),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        let step = progress::step(name);
        let result = check();
        drop(step);
        match result {
            Ok(()) => println!("ok       {name}"),
            Err(error) => {
                println!("FAILED   {name}\n{error:#}\n");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("lint: {}", failed.join(", "));
    }
    Ok(())
}

fn formatting() -> Result<()> {
    run::quietly(toolchain::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let host = ["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"];
    run::quietly(toolchain::cargo().args(host))?;
    let shadow = ["clippy", "--quiet", "--target", LINUX, "-p", "crtos-shadow", "--bins"];
    run::quietly(toolchain::cargo().args(shadow).args(["--", "-D", "warnings"]))
}

fn clippy_bare() -> Result<()> {
    let mut cargo = parts::with_vdso(BareMetal::get()?.cargo("clippy", Model::Static))?;
    cargo.arg("--target-dir").arg(paths::target().join("parts"));
    cargo.arg("--quiet").args(BARE_CRATES.iter().flat_map(|name| ["-p", name]));
    run::quietly(cargo.args(["--", "-D", "warnings"]))?;
    let mut cargo = BareMetal::get()?.cargo("clippy", Model::SharedObject);
    cargo.arg("--target-dir").arg(paths::target().join("parts"));
    cargo.args(["--quiet", "-p", "crtos-vdso", "--features", "image"]);
    run::quietly(cargo.args(["--", "-D", "warnings"]))
}

/// Links of the documentation lead somewhere, also those of what is private.
fn documentation() -> Result<()> {
    let document = |mut cargo: Command, arguments: &[&str]| {
        cargo.args(["--quiet", "--no-deps", "--document-private-items"]).args(arguments);
        // The documentation is for those who work on the project, and has what is private.
        let flags = "-D warnings -A rustdoc::private_intra_doc_links";
        run::quietly(cargo.env("RUSTDOCFLAGS", flags))
    };
    let host = |arguments: &[&str]| {
        let mut cargo = toolchain::cargo();
        cargo.arg("doc");
        document(cargo, arguments)
    };
    let bare = |model, arguments: &[&str]| {
        let mut cargo = BareMetal::get()?.cargo("doc", model);
        cargo.arg("--target-dir").arg(paths::target().join("parts"));
        document(parts::with_vdso(cargo)?, arguments)
    };
    host(&[])?;
    host(&["--target", LINUX, "-p", "crtos-shadow", "--bins"])?;
    let crates: Vec<_> = BARE_CRATES.iter().flat_map(|name| ["-p", name]).collect();
    bare(Model::Static, &crates)?;
    bare(Model::SharedObject, &["-p", "crtos-vdso", "--features", "image"])
}

/// The files that git knows, with paths relative to the project.
fn tracked() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(paths::root()).args(["ls-files"]);
    let text = run::output(&mut git).context("list the files of the project")?;
    Ok(text.lines().map(PathBuf::from).filter(|path| paths::root().join(path).exists()).collect())
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
}

fn shell() -> Result<()> {
    let is_script = |path: &PathBuf| {
        has_extension(path, &["sh"]) || ["x", ".ci/run"].iter().any(|name| path == Path::new(name))
    };
    let scripts = tracked()?.into_iter().filter(is_script);
    let mut shellcheck = Command::new("shellcheck");
    // `demo.sh` has no first line: the harness gives it to bash.
    shellcheck.current_dir(paths::root()).args(["--shell=bash", "--severity=warning"]);
    run::quietly(shellcheck.args(scripts))
}

fn licences() -> Result<()> {
    let mut complaints = Vec::new();
    for path in tracked()? {
        if !has_extension(&path, &["rs", "c", "h", "S", "sh", "ld"]) {
            continue;
        }
        let text = fs::read_to_string(paths::root().join(&path))?;
        let licence = if module::has(&path) { MODULE_LICENCE } else { LICENCE };
        let wanted = format!("SPDX-License-Identifier: {licence}");
        if !text.lines().take(2).any(|line| line.contains(&wanted)) {
            complaints.push(format!("{}: no `{wanted}` at the top", path.display()));
        }
    }
    report(&complaints)
}

fn report(complaints: &[String]) -> Result<()> {
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}
