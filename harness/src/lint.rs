// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x lint`: formatting, clippy, shellcheck, the style of the C module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::toolchain::{self, BareMetal, LINUX, Model};
use crate::{parts, paths, progress, run, setup};

/// Longest line of the module, in columns.
const COLUMNS: usize = 100;
/// Columns that a tab goes on to.
const TAB: usize = 8;
/// Licence of the module.
const MODULE_LICENCE: &str = "GPL-2.0-only";
/// Licence of everything else.
const LICENCE: &str = "MIT OR Apache-2.0";
/// Crates that are built for bare metal.
const BARE_CRATES: &[&str] = &["crtos-hypervisor", "crtos-kernel", "crtos-inmates"];

/// A check; its error is what it found.
type Check = fn() -> Result<()>;

/// Runs every check and fails if any did.
pub fn lint() -> Result<()> {
    setup::ensure()?;
    let checks: [(&str, Check); 6] = [
        ("rustfmt", formatting),
        ("clippy", clippy),
        ("clippy for bare metal", clippy_bare),
        ("shellcheck", shell),
        ("style of the module", module),
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

fn module() -> Result<()> {
    let mut complaints = Vec::new();
    for path in tracked()? {
        if path.starts_with("module") && has_extension(&path, &["c", "h"]) {
            let text = fs::read_to_string(paths::root().join(&path))?;
            let is_source = has_extension(&path, &["c"]);
            complaints.extend(
                style(&text, is_source)
                    .into_iter()
                    .map(|(line, what)| format!("{}:{line}: {what}", path.display())),
            );
        }
    }
    report(&complaints)
}

/// What is wrong with a C file: line numbers and reasons.
fn style(text: &str, is_source: bool) -> Vec<(usize, &'static str)> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let width = line.chars().fold(0, |column, character| match character {
            '\t' => column / TAB * TAB + TAB,
            _ => column + 1,
        });
        let is_licence = number == 0 && line.contains("SPDX");
        let checks = [
            (width > COLUMNS && !line.contains('"'), "longer than 100 columns"),
            (line.ends_with([' ', '\t']), "space at the end"),
            (line.starts_with("        "), "spaces where a tab belongs"),
            (has_line_comment(line) && !is_licence, "a C++ comment"),
            (
                is_source && line.trim_start().starts_with("#if"),
                "a condition of the preprocessor in a .c file",
            ),
        ];
        let found = checks.iter().filter(|(is_wrong, _)| *is_wrong);
        complaints.extend(found.map(|(_, what)| (number + 1, *what)));
    }
    complaints
}

/// Whether `//` is there outside of strings and of `/* */` on the same line.
fn has_line_comment(line: &str) -> bool {
    let Some(position) = line.find("//") else { return false };
    let before = &line[..position];
    let in_string = before.matches('"').count() % 2 == 1;
    !in_string && !before.contains("/*") && !before.trim_start().starts_with('*')
}

fn licences() -> Result<()> {
    let mut complaints = Vec::new();
    for path in tracked()? {
        if !has_extension(&path, &["rs", "c", "h", "S", "sh", "ld"]) {
            continue;
        }
        let text = fs::read_to_string(paths::root().join(&path))?;
        let licence = if path.starts_with("module") { MODULE_LICENCE } else { LICENCE };
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

#[cfg(test)]
mod tests {
    use super::style;

    #[test]
    fn good_c_is_left_alone() {
        let text = "// SPDX-License-Identifier: GPL-2.0-only\n/* http://example */\n\
            int main(void)\n{\n\tputs(\"a // b\");\n}\n";
        assert!(style(text, true).is_empty());
    }

    #[test]
    fn bad_c_is_found() {
        let long = format!("\t{}", "x".repeat(93));
        let text = format!("int a; // no\nint b; \n        int c;\n#ifdef D\n{long}\n");
        let lines: Vec<_> = style(&text, true).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
        assert_eq!(style("#ifdef D\n", false), []);
    }
}
