// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a page of the documentation: short enough to lie beside the source, with the
//! statistics of every cell and without its samples.

use std::fmt::Write as _;

use crate::catalogue::{FIGURES, Figure, LOADS};
use crate::goals::{self, Goal};
use crate::model::{Cell, Results};
use crate::page::date;
use crate::table::{cell_name, microseconds};

/// Writes the page.
pub fn markdown(results: &Results) -> String {
    let mut text = head(results);
    text += &goal_table(&goals::check(results));
    for figure in FIGURES {
        text += &figure_table(results, figure);
    }
    text += &failures(results);
    text
}

fn head(results: &Results) -> String {
    let Results { machine, method, .. } = results;
    let mut text = format!(
        "# Results\n\n\
         `./x bench --publish` wrote this page; the run ended on {}. [measuring.md](measuring.md) \
         says what each figure means and how it is taken.\n\n\
         - Machine: {}, {} CPUs, {} MiB",
        date(results.time),
        machine.processor,
        machine.cpus,
        machine.memory_mib,
    );
    for (name, version) in &machine.versions {
        // Writing to a string does not fail.
        let _ = write!(text, ", {name} {version}");
    }
    if let Some(emulator) = &machine.emulator {
        let _ = write!(text, ", {emulator}");
    }
    let kernels = results.systems().iter().fold(Vec::new(), |mut kernels, system| {
        if !kernels.contains(&system.kernel) {
            kernels.push(system.kernel.clone());
        }
        kernels
    });
    let _ = write!(
        text,
        ".\n- Kernels: {}.\n- Latencies: {} samples, {} µs apart.\n\n",
        kernels.join(", "),
        method.samples,
        method.interval_us
    );
    for remark in &method.remarks {
        text += remark;
        text += "\n\n";
    }
    text + "Times are in microseconds; exits are VM exits of the program's CPU.\n"
}

fn goal_table(goals: &[Goal]) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let mut text = "\n## Goals\n\n| system | goal | measured | |\n|---|---|---|---|\n".to_owned();
    for goal in goals {
        let mark = match goal.met {
            Some(true) => "met",
            Some(false) => "not met",
            None => "not measured",
        };
        row(&mut text, &[&goal.system, &goal.goal, &goal.measured, mark]);
    }
    text
}

/// The cells of a figure, a line each; nothing if it was not measured.
fn figure_table(results: &Results, figure: &Figure) -> String {
    let mut lines = String::new();
    for system in results.systems() {
        for load in LOADS {
            let Some(cell) = results.cell(&system.name, load.name, figure.name) else { continue };
            lines += &cell_line(cell, figure);
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let load = if figure.under_load() { " load |" } else { "" };
    let columns = 7 + usize::from(figure.under_load());
    format!(
        "\n## {}: {}\n\n| system |{load} samples | minimum | median | 99.9 % | maximum | exits |\n|{}\n{lines}",
        figure.name,
        figure.title,
        "---|".repeat(columns)
    )
}

fn cell_line(cell: &Cell, figure: &Figure) -> String {
    let Some(m) = cell.measurement() else { return String::new() };
    let s = m.summary;
    let mut values = vec![cell.system.name.clone()];
    values.extend(figure.under_load().then(|| cell.load.clone()));
    values.push(s.count.to_string());
    values.extend([s.min, s.median, s.p999, s.max].map(microseconds));
    values.push(cell.exits_of_program().map_or_else(String::new, |exits| exits.to_string()));
    let mut line = String::new();
    row(&mut line, &values);
    line
}

fn failures(results: &Results) -> String {
    let failed = results.cells.iter().filter_map(|cell| {
        let reason = cell.outcome.as_ref().err()?;
        Some(format!("- {}: {reason}\n", cell_name(cell)))
    });
    let failed: String = failed.collect();
    if failed.is_empty() { failed } else { format!("\n## Not measured\n\n{failed}") }
}

fn row<T: AsRef<str>>(text: &mut String, values: &[T]) {
    for value in values {
        // A bar would end the cell.
        let _ = write!(text, "| {} ", value.as_ref().replace('|', "\\|"));
    }
    *text += "|\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example;

    #[test]
    fn every_cell_has_a_line() {
        let mut results = example::results();
        results.cells[0].outcome = Err("no such program".into());
        let text = markdown(&results);
        for part in [
            "the run ended on 2023-11-14.",
            "| realm beside 6.1 | hackbench | 100 | 0.9 | 0.9 | 3.1 | 3.1 | 0 |\n",
            "| 6.1 | 10 | 0.37 | 0.37 | 0.37 | 0.37 |  |\n",
            "- 6.1, cyclictest: no such program\n",
            "## Goals",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("\n## cyclictest:").count(), 1, "{text}");
    }

    #[test]
    fn rows_of_a_table_have_as_many_cells_as_its_head() {
        let text = markdown(&example::results());
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let bars: Vec<_> = table.lines().map(|line| line.matches('|').count()).collect();
            assert!(bars.iter().all(|count| *count == bars[0]), "{table}");
        }
    }
}
