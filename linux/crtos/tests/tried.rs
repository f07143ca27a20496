// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of `docs/troubleshooting.md` have what the guest's scripts try, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The scripts whose cases the tables have.
const SCRIPTS: [&str; 4] =
    ["wrong-configurations", "broken-machines", "broken-boot", "broken-realms"];
/// What begins a case: its name and its code follow.
const CASES: [&str; 3] = ["explained ", "found ", "file "];
/// A name for a code in a script.
const NAMED: (&str, &str) = ("$bad", "bad-configuration");

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The case that a line of a script is.
fn case(line: &str) -> Option<(String, String)> {
    let rest = CASES.iter().find_map(|word| line.trim_start().strip_prefix(word))?;
    let (name, rest) = rest.strip_prefix('\'')?.split_once('\'')?;
    let code = rest.split_whitespace().next()?;
    let code = if code == NAMED.0 { NAMED.1 } else { code };
    Some((name.to_owned(), code.to_owned()))
}

/// The case that a line of a table is: `| name | words | [code](#code) |`.
fn row(line: &str) -> Option<(String, String)> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let &[name, _, code] = cells.as_slice() else { return None };
    let (code, section) = code.strip_prefix('[')?.split_once("](#")?;
    assert_eq!(section, format!("{code})"), "{line}");
    Some((name.to_owned(), code.to_owned()))
}

#[test]
fn the_tables_have_what_is_tried() {
    let page = read("docs/troubleshooting.md");
    let scripts = SCRIPTS.map(|name| read(&format!("tests/guest/{name}.sh")));
    let tried: BTreeSet<_> =
        scripts.iter().flat_map(|text| text.lines().filter_map(case)).collect();
    let told: BTreeSet<_> = page.lines().filter_map(row).collect();
    let missing: Vec<_> = tried.symmetric_difference(&told).collect();
    assert!(missing.is_empty(), "in one of both alone: {missing:#?}");
    assert!(tried.len() >= 40);
}
