// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results for a terminal.

use comfy_table::{CellAlignment, Table, TableComponent, presets};

use crate::catalogue::{CYCLICTEST, FIGURES, Figure, Group, LOADS, NO_LOAD};
use crate::compare::Finding;
use crate::goals::Goal;
use crate::histogram::Histogram;
use crate::model::{Cell, Results, System};

/// Nanoseconds as microseconds with the digits that matter.
pub fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    match ns {
        0..1_000 => format!("{us:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        1_000..100_000 => format!("{us:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        100_000..10_000_000 => format!("{us:.0}"),
        _ => thousands((us).round() as u64),
    }
}

/// A number with a thin space between groups of three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// How many times the one is the other.
pub fn times(large: u64, small: u64) -> String {
    format!("{:.1} times", large as f64 / small.max(1) as f64)
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    // Between the lines there are no lines.
    table
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections);
    table
}

/// Right-aligns all columns but the first ones.
fn align(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Everything: the latencies by load, the other figures by system, what failed.
pub fn results(results: &Results) -> String {
    let mut parts = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.under_load()) {
        if results.of_figure(figure.name).next().is_some() {
            parts.push(latencies(results, figure));
        }
        parts.extend(own(results, figure));
    }
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Latency) {
        parts.extend(by_system(results, group));
    }
    parts.extend(failures(results));
    parts.join("\n\n")
}

/// One line per system and load.
fn latencies(results: &Results, figure: &Figure) -> String {
    let header =
        ["system", "load", "least", "quarter", "median", "3 quarters", "99.9 %", "most", "exits"];
    let mut table = table(header.map(str::to_owned).to_vec());
    for system in results.systems() {
        for load in LOADS {
            let Some(cell) = results.cell(&system.name, load.name, figure.name) else { continue };
            let Some(m) = cell.measurement() else { continue };
            let s = m.summary;
            let values = [s.min, s.first_quartile, s.median, s.third_quartile, s.p999, s.max];
            let mut row = vec![system.name.clone(), load.name.to_owned()];
            row.extend(values.map(microseconds));
            row.push(cell.exits_of_program().map_or_else(String::new, |exits| exits.to_string()));
            table.add_row(row);
        }
    }
    align(&mut table, 2);
    format!("{}, µs\n{table}", figure.title)
}

/// The same without what other CPUs executed, as far as an observer told them apart.
fn own(results: &Results, figure: &Figure) -> Option<String> {
    let header = ["system", "load", "least", "median", "99.9 %", "most", "most of all CPUs"];
    let mut table = table(header.map(str::to_owned).to_vec());
    for cell in results.cells.iter().filter(|cell| cell.figure == figure.name) {
        let Some(own) = cell.own.as_ref().and_then(Histogram::summary) else { continue };
        let Some(m) = cell.measurement() else { continue };
        let mut row = vec![cell.system.name.clone(), cell.load.clone()];
        row.extend([own.min, own.median, own.p999, own.max, m.summary.max].map(microseconds));
        table.add_row(row);
    }
    align(&mut table, 2);
    (!table.is_empty()).then(|| format!("{}, what is its CPU's own, µs\n{table}", figure.title))
}

/// Median and maximum of each figure of a group, one column per system.
fn by_system(results: &Results, group: Group) -> Option<String> {
    let figures = FIGURES.iter().filter(|figure| figure.group == group);
    let systems = results.systems();
    let mut header = vec![format!("{}, µs: median / most", group.title())];
    header.extend(systems.iter().map(|system| system.name.clone()));
    let mut table = table(header);
    for figure in figures {
        let value = |system: &&System| match results.find(&system.name, NO_LOAD, figure.name) {
            Some(m) => {
                format!("{} / {}", microseconds(m.summary.median), microseconds(m.summary.max))
            }
            None => String::new(),
        };
        let values: Vec<String> = systems.iter().map(value).collect();
        if values.iter().any(|value| !value.is_empty()) {
            table.add_row([vec![figure.title.to_owned()], values].concat());
        }
    }
    align(&mut table, 1);
    (!table.is_empty()).then(|| table.to_string())
}

fn failures(results: &Results) -> Option<String> {
    let failed = results.cells.iter().filter_map(|cell| {
        let reason = cell.outcome.as_ref().err()?;
        Some(format!("  {}: {reason}", cell_name(cell)))
    });
    let failed: Vec<_> = failed.collect();
    (!failed.is_empty()).then(|| format!("not measured:\n{}", failed.join("\n")))
}

/// System, load and figure in one line.
pub fn cell_name(cell: &Cell) -> String {
    match cell.load.as_str() {
        NO_LOAD => format!("{}, {}", cell.system.name, cell.figure),
        load => format!("{}, {} under {load}", cell.system.name, cell.figure),
    }
}

/// What came out of a cell, in one line, as progress.
pub fn outcome(cell: &Cell) -> String {
    let result = match (&cell.outcome, cell.measurement()) {
        (Err(reason), _) => format!("not measured: {reason}"),
        (Ok(_), None) => "no samples".to_owned(),
        (Ok(_), Some(m)) => {
            let s = m.summary;
            let least = if cell.figure == CYCLICTEST {
                format!("least {}, ", microseconds(s.min))
            } else {
                String::new()
            };
            format!("{least}median {}, most {} µs", microseconds(s.median), microseconds(s.max))
        }
    };
    format!("{}: {result} ({:.0} s)", cell_name(cell), cell.seconds)
}

/// The goals with a mark each.
pub fn goals(goals: &[Goal]) -> String {
    let mut table = table(["system", "goal", "measured", ""].map(str::to_owned).to_vec());
    for goal in goals {
        let mark = match goal.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured",
        };
        table.add_row([&goal.system, &goal.goal, &goal.measured, mark]);
    }
    table.to_string()
}

/// What a comparison found.
pub fn findings(findings: &[Finding]) -> String {
    let mut table = table(
        ["figure", "expected", "measured", "change", "allowed", ""].map(str::to_owned).to_vec(),
    );
    for finding in findings {
        table.add_row([
            finding.name.clone(),
            finding.expected.map_or_else(String::new, |ns| format!("{ns} ns")),
            finding.measured.map_or_else(String::new, |ns| format!("{ns} ns")),
            finding.change().map_or_else(String::new, |change| format!("{change:+.1} %")),
            finding.tolerance.map_or_else(String::new, |tolerance| format!("{tolerance} %")),
            finding.verdict.words().to_owned(),
        ]);
    }
    align(&mut table, 1);
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let cases = [
            (0, "0"),
            (60, "0.06"),
            (1147, "1.15"),
            (59_000, "59"),
            (294_123, "294"),
            (12_345_678, "12\u{202f}346"),
        ];
        for (ns, text) in cases {
            assert_eq!(microseconds(ns), text);
        }
        assert_eq!(thousands(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn everything_is_in_the_tables() {
        let mut results = example::results();
        results.cells[0].outcome = Err("no such program".into());
        let text = super::results(&results);
        for part in [
            "realm beside 6.1",
            "hackbench",
            "59",
            "0.37 / 0.37",
            "6.1, cyclictest: no such program",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("its CPU's own"));
        results.cells[1].own = Some([(4_200, 9), (7_100, 1)].into_iter().collect());
        let text = super::results(&results);
        let own = text.lines().skip_while(|line| !line.contains("its CPU's own"));
        let line = own.skip(1).find(|line| line.contains("hackbench")).unwrap();
        for value in ["4.2", "7.1", "59"] {
            assert!(line.contains(value), "{value}\n{line}");
        }
    }
}
