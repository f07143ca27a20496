// SPDX-License-Identifier: MIT OR Apache-2.0
//! The style of the C module.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{checkpatch, has_extension, report, tracked};
use crate::{paths, run};

/// The folders of modules: crtos', and those of the tests.
const FOLDERS: [&str; 3] = ["linux/module", "tests/attack/module", "tests/guest/module"];

/// Tells whether a file is a part of a module.
pub fn has(path: &Path) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// The rules of this project.
pub fn style() -> Result<()> {
    let mut found = Vec::new();
    for path in tracked()? {
        if has(&path) && has_extension(&path, &["c", "h"]) {
            let text = fs::read_to_string(paths::root().join(&path))?;
            let is_source = has_extension(&path, &["c"]);
            found.extend(
                complaints(&text, is_source)
                    .into_iter()
                    .map(|(line, what)| format!("{}:{line}: {what}", path.display())),
            );
        }
    }
    report(&found)
}

/// What is wrong with a C file: line numbers and reasons.
fn complaints(text: &str, is_source: bool) -> Vec<(usize, &'static str)> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let is_licence = number == 0 && line.contains("SPDX");
        let checks = [
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

/// The rules of Linux; `.checkpatch.conf` of crtos' module says which do not apply, and why.
pub fn checkpatch() -> Result<()> {
    let files = tracked()?.into_iter().filter(|path| has_extension(path, &["c", "h", "S"]));
    let names = files.filter(|path| has(path)).map(|path| paths::root().join(path));
    let mut perl = Command::new("perl");
    perl.current_dir(paths::root().join(FOLDERS[0])).arg(checkpatch::script()?);
    perl.args(["--terse", "--show-types", "--quiet", "--no-summary", "--color=never", "--file"]);
    run::quietly(perl.args(names))
}

#[cfg(test)]
mod tests {
    use super::complaints;

    #[test]
    fn good_c_is_left_alone() {
        let text = "// SPDX-License-Identifier: GPL-2.0-only\n/* http://example */\n\
            int main(void)\n{\n\tputs(\"a // b\");\n}\n";
        assert!(complaints(text, true).is_empty());
    }

    #[test]
    fn bad_c_is_found() {
        let text = "int a; // no\nint b; \n        int c;\n#ifdef D\n";
        let lines: Vec<_> = complaints(text, true).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert_eq!(complaints("#ifdef D\n", false), []);
    }
}
