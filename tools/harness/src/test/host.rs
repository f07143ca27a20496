// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of the host: those of `cargo test`, each one counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::Selection;
use super::report::{Report, Verdict};
use crate::{progress, run, toolchain};

/// How long the targets of tests/fuzz run with `--full`: some minutes each.
const FUZZ_LONG: [(&str, &str); 2] =
    [("BOLERO_RANDOM_ITERATIONS", "1000000000"), ("BOLERO_RANDOM_TEST_TIME_MS", "120000")];

/// Cargo, for tests. What they link unwinds; programs that they start would be compiled once more
/// with all that they depend on if these did not.
fn unwinding_cargo() -> Command {
    let mut cargo = toolchain::cargo();
    cargo.env("CARGO_PROFILE_DEV_PANIC", "unwind");
    cargo
}

/// Runs the tests of all crates that have some for the host.
pub fn run(selection: &Selection, report: &Report) -> Result<()> {
    let start = Instant::now();
    let step = progress::step("cargo test --no-run");
    let mut cargo = unwinding_cargo();
    // Whether it succeeds is seen by the next one, which tells what is wrong.
    cargo.args(["test", "--quiet", "--no-run"]).stdin(Stdio::null()).stderr(Stdio::null());
    let _ = cargo.status();
    drop(step);
    report.note("build of the host's tests", start.elapsed());
    let _step = progress::step("cargo test");
    let mut cargo = unwinding_cargo();
    cargo.args(["test", "--quiet", "--no-fail-fast", "--", "--format=pretty"]);
    if selection.full {
        cargo.envs(FUZZ_LONG);
    }
    if !selection.filter.is_empty() {
        cargo.arg(&selection.filter);
    }
    let start = Instant::now();
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("run {}", run::name(&cargo)))?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut last = Instant::now();
    let (mut failed, mut told) = (false, Vec::new());
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        let Some((name, verdict)) = parse(&line) else {
            // What a failed test printed comes after the list of tests.
            if failed {
                told.push(line);
            }
            continue;
        };
        failed |= matches!(verdict, Verdict::Failed(_));
        let again = format!("./x test host {name}");
        report.add(name, verdict, last.elapsed(), &again);
        last = Instant::now();
    }
    let status = child.wait()?;
    report.tell(&told);
    if !status.success() && !failed {
        let why = format!("cargo test: {status}; its messages are above");
        report.add("cargo test", Verdict::Failed(why), start.elapsed(), "./x test host");
    }
    Ok(())
}

/// Name and end of the test that a line of libtest is about.
fn parse(line: &str) -> Option<(&str, Verdict)> {
    let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = match end.split(',').next()?.trim() {
        "ok" => Verdict::Passed,
        "ignored" => Verdict::Skipped,
        "FAILED" => Verdict::Failed("its output follows below".to_owned()),
        _ => return None,
    };
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libtest_are_told_from_others() {
        assert_eq!(parse("test a::b ... ok"), Some(("a::b", Verdict::Passed)));
        assert_eq!(parse("test a::b ... ignored, slow"), Some(("a::b", Verdict::Skipped)));
        assert!(matches!(parse("test a ... FAILED"), Some(("a", Verdict::Failed(_)))));
        assert_eq!(parse("test result: ok. 3 passed; 0 failed"), None);
        assert_eq!(parse("running 3 tests"), None);
    }
}
