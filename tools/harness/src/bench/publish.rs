// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of results: tables on the terminal, JSON and the page on disk, statistics in the
//! documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use crtos_results::{Results, goals, markdown, page, table};

use super::machine::Measuring;
use super::{Options, Versions};
use crate::paths;

/// Prints tables and goals, writes the files; returns 1 if a cell could not be measured.
pub fn show(results: &Results, options: &Options) -> Result<u8> {
    let (json, html) = (results.to_json()?, page::page(results));
    let folder = paths::target().join("bench");
    if options.from.is_none() {
        write(&folder.join("results.json"), &json)?;
        write(&folder.join("results.html"), &html)?;
    }
    for (file, text) in [(&options.json, &json), (&options.html, &html)] {
        if let Some(file) = file {
            write(file, text)?;
        }
    }
    println!("{}\n", table::results(results));
    let goals = goals::check(results);
    if !goals.is_empty() {
        println!("{}\n", table::goals(&goals));
    }
    for remark in &results.method.remarks {
        println!("{remark}");
    }
    if options.from.is_none() {
        println!("\nresults: {0}/results.json, {0}/results.html", folder.display());
    }
    Ok(u8::from(results.cells.iter().any(|cell| cell.outcome.is_err())))
}

/// Writes their statistics to the documentation.
pub fn into_docs(results: &Results) -> Result<()> {
    write(&paths::root().join("docs/results.md"), &markdown::markdown(results))
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

/// Versions of the guest's programs.
pub fn versions(machine: &mut Measuring) -> Versions {
    let text = machine.ask(
        "dpkg-query -W -f '${Package} ${Version}\\n' rt-tests stress-ng libc6; crtos --version",
    );
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, version)| (name.trim_end_matches(':').to_owned(), version.to_owned()))
        .collect()
}
