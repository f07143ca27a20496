// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C programs of the tests, compiled for any Linux and laid over the guest's
//! root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{layer, paths, progress, run};

/// Where the guest has the programs of `tests/abi`.
pub const ABI: &str = "/usr/lib/crtos-tests/abi";
/// Where the guest has the programs of `tests/programs`; `$PROGRAMS` there.
pub const PROGRAMS: &str = "/usr/lib/crtos-tests/programs";

/// How they are compiled.
const FLAGS: &[&str] = &["-static", "-O2", "-Wall", "-Werror", "-pthread"];

/// The programs as a layer of the guest's root; nothing if there are none.
pub fn layer() -> Result<Option<PathBuf>> {
    let tree = paths::target().join("parts/tests");
    {
        let _lock = paths::lock(&paths::target().join("locks"), "programs")?;
        for (source, to) in [("abi", ABI), ("programs", PROGRAMS)] {
            let source = paths::root().join("tests").join(source);
            compile_all(&source, &tree.join(to.trim_start_matches('/')))?;
        }
    }
    layer::make("tests", &tree)
}

/// Compiles what changed, and removes what has no source any more. A program that
/// does not compile is told and left out: the others are still of use.
fn compile_all(sources: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut kept = Vec::new();
    let Ok(entries) = fs::read_dir(sources) else { return Ok(()) };
    let headers_changed = newest_header(sources)?;
    for entry in entries {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let program = folder.join(source.file_stem().unwrap_or_default());
        let changed = fs::metadata(&source)?.modified()?;
        let changed = headers_changed.map_or(changed, |headers| changed.max(headers));
        let is_current =
            fs::metadata(&program).and_then(|p| p.modified()).is_ok_and(|t| t > changed);
        match if is_current { Ok(()) } else { compile(&source, &program) } {
            Ok(()) => kept.push(program),
            Err(error) => eprintln!("x: left out: {error:#}"),
        }
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !kept.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// When the last of the headers beside the sources changed.
fn newest_header(sources: &Path) -> Result<Option<std::time::SystemTime>> {
    let mut newest = None;
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            newest = newest.max(Some(fs::metadata(path)?.modified()?));
        }
    }
    Ok(newest)
}

fn compile(source: &Path, program: &Path) -> Result<()> {
    let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let _step = progress::step(format!("compile {name}"));
    let mut gcc = Command::new("gcc");
    gcc.args(FLAGS).arg("-o").arg(program).arg(source);
    run::quietly(&mut gcc).with_context(|| format!("compile {name}"))
}
