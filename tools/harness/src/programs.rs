// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C programs of the tests, compiled for any Linux and laid over the guest's
//! root, and those that measure, which are installed.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::{layer, paths, progress, run};

/// Where the guest has the programs of `tests/abi`.
pub const ABI: &str = "/usr/lib/crtos-tests/abi";
/// Where the guest has the programs of `tests/programs`; `$PROGRAMS` there.
pub const PROGRAMS: &str = "/usr/lib/crtos-tests/programs";

/// Where the guest has the real-time kernel that tests itself, from its root.
pub const SELF_TEST: &str = "usr/lib/crtos-tests/self-test.elf";

/// How they are compiled.
const FLAGS: &[&str] = &["-O2", "-Wall", "-Werror", "-pthread"];

/// What the name of a dynamically linked program ends with.
pub const DYNAMIC: &str = "-dynamic";

/// The ways to compile a program besides the static one with glibc.
const WAYS: &[Way] = &[
    Way { line: "// also: dynamic", ending: DYNAMIC, compiler: "gcc", options: &["-pie"] },
    // The headers of Linux's ABI are not musl's.
    Way {
        line: "// also: musl",
        ending: "-musl",
        compiler: "musl-gcc",
        options: &[
            "-static",
            "-idirafter",
            "/usr/include",
            "-idirafter",
            "/usr/include/x86_64-linux-gnu",
        ],
    },
];
/// The way that each program is compiled.
const STATIC: Way = Way { line: "", ending: "", compiler: "gcc", options: &["-static"] };

/// A way to compile a program.
struct Way {
    /// The line near the top of a program that asks for it.
    line: &'static str,
    /// What is appended to the program's name.
    ending: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
}

/// The line near the top of a program that a script runs with arguments of its own.
const BY_SCRIPT: &str = "// run: by a script";

/// Whether a line near the top of a program says that.
fn says(source: &Path, line: &str) -> bool {
    let text = fs::read_to_string(source).unwrap_or_default();
    text.lines().take(4).any(|other| other == line)
}

/// The ways that a program is compiled.
fn ways(source: &Path) -> impl Iterator<Item = &'static Way> {
    [&STATIC].into_iter().chain(WAYS.iter().filter(move |way| says(source, way.line)))
}

/// The files of a folder of `tests` with that ending, sorted.
pub fn files(folder: &str, extension: &str) -> Result<Vec<(String, PathBuf)>> {
    let folder = paths::root().join("tests").join(folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((stem, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file of `tests` is the test of that name, such as `guest/rounds`.
pub fn is_test(name: &str) -> bool {
    let file = paths::root().join("tests").join(name);
    ["sh", "c"].iter().any(|extension| file.with_extension(extension).is_file())
}

/// The programs of `tests/abi` that are tests by themselves, sorted.
pub fn alone() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, path) in files("abi", "c")? {
        if !says(&path, BY_SCRIPT) {
            names.extend(ways(&path).map(|way| format!("{name}{}", way.ending)));
        }
    }
    names.sort();
    Ok(names)
}

/// The tree of the tests, which lies over the guest's root.
pub fn tree() -> PathBuf {
    paths::target().join("parts/tests")
}

/// Compiles the programs of the tests. Returns the names of those that do not compile, and why.
pub fn compile_tests() -> Result<BTreeMap<String, String>> {
    let _lock = paths::lock(&paths::target().join("locks"), "programs")?;
    let mut broken = BTreeMap::new();
    for (source, to) in [("abi", ABI), ("programs", PROGRAMS)] {
        let source = paths::root().join("tests").join(source);
        broken.extend(compile_all(&source, &tree().join(to.trim_start_matches('/')))?);
    }
    Ok(broken)
}

/// The tree of the tests as a layer of the guest's root; nothing if there are no tests.
pub fn layer() -> Result<Option<PathBuf>> {
    for why in compile_tests()?.values() {
        // The others are still of use.
        eprintln!("x: left out: {why}");
    }
    layer::of_tree("tests", &tree())
}

/// Compiles the programs of `tools/bench/` into a folder of the staging tree.
pub fn install_bench(folder: &Path) -> Result<()> {
    let _lock = paths::lock(&paths::target().join("locks"), "programs")?;
    let broken = compile_all(&paths::root().join("tools/bench"), folder)?;
    broken.into_values().next().map_or(Ok(()), |why| Err(anyhow!(why)))
}

/// A program that has to be compiled.
struct Work {
    source: PathBuf,
    program: PathBuf,
    way: &'static Way,
}

/// Compiles what changed, and removes what has no source any more. Returns the names of
/// those that do not compile, and why; they are left out.
fn compile_all(sources: &Path, folder: &Path) -> Result<BTreeMap<String, String>> {
    fs::create_dir_all(folder)?;
    let (mut kept, mut work) = (Vec::new(), Vec::new());
    let Ok(entries) = fs::read_dir(sources) else { return Ok(BTreeMap::new()) };
    let headers_changed = newest_header(sources)?;
    for entry in entries {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let changed = fs::metadata(&source)?.modified()?;
        let changed = headers_changed.map_or(changed, |headers| changed.max(headers));
        for way in ways(&source) {
            let program = folder.join(format!("{name}{}", way.ending));
            let is_current =
                fs::metadata(&program).and_then(|p| p.modified()).is_ok_and(|t| t > changed);
            if is_current {
                kept.push(program);
            } else {
                work.push(Work { source: source.clone(), program, way });
            }
        }
    }
    let mut broken = BTreeMap::new();
    for (program, result) in at_once(&work) {
        match result {
            Ok(()) => kept.push(program),
            Err(error) => {
                let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
                broken.insert(name, format!("{error:#}"));
            }
        }
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !kept.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(broken)
}

/// Compiles several programs at once, one for each processor.
fn at_once(work: &[Work]) -> Vec<(PathBuf, Result<()>)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let compile_some = || {
        while let Some(work) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = compile(work);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((work.program.clone(), result));
        }
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..processors.min(work.len()) {
            scope.spawn(compile_some);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
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

fn compile(work: &Work) -> Result<()> {
    let Work { source, program, way } = work;
    let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let _step = progress::step(format!("compile {name}"));
    let mut compiler = Command::new(way.compiler);
    // What an interrupted compiler leaves behind has another name.
    let half_made = program.with_extension("half-made");
    compiler.args(FLAGS).args(way.options).arg("-o").arg(&half_made).arg(source);
    run::quietly(&mut compiler).with_context(|| format!("compile {name}"))?;
    fs::rename(half_made, program).with_context(|| format!("name {name}"))
}
