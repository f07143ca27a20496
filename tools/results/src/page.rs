// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as one HTML page that needs nothing else: no network, no script. Readable in light and
//! dark.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::catalogue::{FIGURES, Figure, Group, LOADS, Load, NO_LOAD};
use crate::goals::{self, Goal};
use crate::model::{Cell, Measurement, Results, System};
use crate::plot;
use crate::table::{cell_name, microseconds, thousands};

/// Colours and layout.
const STYLE: &str = include_str!("page.css");
/// Seconds of a day.
const DAY: u64 = 86_400;

/// The page.
pub fn page(results: &Results) -> String {
    let title = "crtos: measured";
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (machine(results))
                (goal_table(&goals::check(results)))
                @for figure in FIGURES.iter().filter(|figure| figure.under_load()) {
                    (latencies(results, figure))
                }
                @for group in Group::ALL.into_iter().filter(|group| *group != Group::Latency) {
                    (group_table(results, group))
                }
                (exits(results))
                (histograms(results))
                (method(results))
                (failures(results))
            }
        }
    };
    body.into_string()
}

fn machine(results: &Results) -> Markup {
    let machine = &results.machine;
    html! {
        p .faint {
            (date(results.time)) " · " (machine.processor) ", " (machine.cpus) " CPUs, "
            (thousands(machine.memory_mib)) " MiB"
            @if let Some(emulator) = &machine.emulator { " · " (emulator) }
            @for (name, version) in &machine.versions { " · " (name) " " (version) }
        }
        @if results.method.virtual_time {
            p {
                "Time is virtual: one executed instruction is one nanosecond. The numbers are lengths of paths; "
                "under load they hold what the emulator adds, a turn of another CPU or two of 2.3 µs each. "
                a href="#method" { "How it was measured" }
            }
        }
    }
}

/// Days since 1970 as a date of the Gregorian calendar.
pub fn date(time: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, time / DAY);
    loop {
        let length = 365 + u64::from(is_leap(year));
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

fn goal_table(goals: &[Goal]) -> Markup {
    if goals.is_empty() {
        return html! {};
    }
    let met = goals.iter().filter(|goal| goal.met == Some(true)).count();
    // Every system has the same goals in the same order.
    let systems: Vec<&[Goal]> = goals.chunk_by(|a, b| a.system == b.system).collect();
    html! {
        h2 { "Goals" }
        p { (met) " of " (goals.len()) " met." }
        div .scroll { table {
            thead { tr {
                th { "Goal" }
                @for goals in &systems { th .text { (goals[0].system) } }
            } }
            tbody { @for (index, goal) in systems[0].iter().enumerate() { tr {
                td { (code(&goal.goal)) }
                @for goals in &systems {
                    td .text { @match goals[index].met {
                        Some(true) => { span .met { "✓ " } (code(&goals[index].measured)) },
                        Some(false) => { span .missed { "✗ " } (code(&goals[index].measured)) },
                        None => span .faint { "not measured" },
                    } }
                }
            } } }
        } }
    }
}

/// Text in which backticks mark code.
fn code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// The loads under which a figure was measured.
fn loads<'a>(results: &'a Results, figure: &'a Figure) -> impl Iterator<Item = &'static Load> + 'a {
    LOADS.iter().filter(|load| results.of_figure(figure.name).any(|m| m.cell.load == load.name))
}

fn latencies(results: &Results, figure: &Figure) -> Markup {
    let all: Vec<Measurement<'_>> = results.of_figure(figure.name).collect();
    let least = all.iter().map(|m| m.summary.min).min();
    let largest = all.iter().map(|m| m.summary.max).max();
    let Some((least, largest)) = least.zip(largest) else { return html! {} };
    let of_load = |load: &Load| -> Vec<Measurement<'_>> {
        let systems = results.systems();
        systems.iter().filter_map(|s| results.find(&s.name, load.name, figure.name)).collect()
    };
    html! {
        h2 { (figure.title) }
        p {
            "Box: quartiles; line in it: median; whiskers: least and most; small tick: 99.9 %. The number is the most. "
            "Logarithmic, the same axis in every panel."
        }
        (legend(results))
        div .panels { @for load in loads(results, figure) {
            div .panel {
                h3 { @if load.name == NO_LOAD { "Without load" } @else { code { (load.describe()) } } }
                (plot::boxes(&of_load(load), least, largest))
            }
        } }
    }
}

fn legend(results: &Results) -> Markup {
    let systems = results.systems();
    let has = |wanted: fn(&System) -> bool| systems.iter().any(|system| wanted(system));
    html! {
        p .legend {
            @if has(|s| s.realm) { span .realm { i {} "the realm" } }
            @if has(|s| !s.realm && !s.preempt_rt && !s.isolated) { span .linux { i {} "Linux" } }
            @if has(|s| !s.realm && s.preempt_rt && !s.isolated) { span .rt { i {} "PREEMPT_RT" } }
            @if has(|s| s.isolated) { span .linux.isolated { i {} "with an isolated CPU" } }
        }
    }
}

fn group_table(results: &Results, group: Group) -> Markup {
    let systems = results.systems();
    let figures = FIGURES.iter().filter(|figure| figure.group == group);
    let figures: Vec<_> = figures.filter(|f| results.of_figure(f.name).next().is_some()).collect();
    if figures.is_empty() {
        return html! {};
    }
    html! {
        h2 { (group.title()) }
        p { "Median, and the most beneath it, in µs." }
        div .scroll { table {
            thead { tr { th {} @for system in &systems { th { (system.name) } } } }
            tbody { @for figure in figures { tr {
                td { (figure.title) }
                @for system in &systems {
                    @match results.find(&system.name, NO_LOAD, figure.name) {
                        Some(m) => td title=(plot::numbers(&m.summary)) {
                            (microseconds(m.summary.median))
                            br;
                            span .most { (microseconds(m.summary.max)) }
                        },
                        None => td .faint { "–" },
                    }
                }
            } } }
        } }
    }
}

/// VM exits of the program's CPU and of the others, for systems with a hypervisor.
fn exits(results: &Results) -> Markup {
    let with_exits = |cell: &&Cell| {
        cell.exits.is_some() && Figure::named(&cell.figure).is_some_and(Figure::under_load)
    };
    let cells: Vec<&Cell> = results.cells.iter().filter(with_exits).collect();
    if cells.is_empty() {
        return html! {};
    }
    let others = |cell: &Cell| -> u64 {
        let exits = cell.exits.iter().flatten().filter(|(cpu, _)| **cpu != cell.cpu);
        exits.flat_map(|(_, reasons)| reasons.values()).sum()
    };
    html! {
        h2 { "VM exits during each run" }
        details { summary { "by run" }
            div .scroll { table {
                thead { tr { th { "Run" } th { "CPU of the program" } th { "CPUs of Linux" } } }
                tbody { @for cell in cells { tr {
                    td { (cell_name(cell)) }
                    td { (cell.exits_of_program().unwrap_or_default()) }
                    td { (thousands(others(cell))) }
                } } }
            } }
        }
    }
}

fn histograms(results: &Results) -> Markup {
    html! {
        h2 { "Histograms" }
        p { "Values in µs, logarithmic; heights grow with the logarithm of the number of samples." }
        @for system in results.systems() {
            @let cells = results.cells.iter().filter(|cell| cell.system.name == system.name);
            @let class = match system {
                System { realm: true, .. } => "realm",
                System { preempt_rt: true, .. } => "rt",
                System { .. } => "linux",
            };
            details {
                summary { (system.name) span .faint { " (" (system.kernel) ")" } }
                div .panels.small {
                    @for m in cells.filter_map(Cell::measurement) {
                        div .panel class=(class) {
                            h3 {
                                (m.cell.figure)
                                @if m.cell.load != NO_LOAD { " under " (m.cell.load) }
                            }
                            (plot::histogram(m.histogram, &m.summary))
                            div .faint title=(m.cell.command) { (plot::numbers(&m.summary)) }
                        }
                    }
                }
            }
        }
    }
}

fn method(results: &Results) -> Markup {
    html! {
        h2 #method { "How it was measured" }
        @for remark in &results.method.remarks { p { (code(remark)) } }
        p {
            "Latencies: " (thousands(results.method.samples)) " samples, " (results.method.interval_us)
            " µs apart. What each figure means, and how it is taken, is in docs/measuring.md."
        }
    }
}

fn failures(results: &Results) -> Markup {
    let failed: Vec<_> = results
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.outcome.as_ref().err()?)))
        .collect();
    html! {
        @if !failed.is_empty() {
            h2 { "Not measured" }
            ul { @for (cell, reason) in failed { li { (cell_name(cell)) ": " (reason) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example;

    #[test]
    fn the_page_needs_no_network() {
        let mut results = example::results();
        results.cells[0].outcome = Err("<b>no such program</b>".into());
        let text = page(&results);
        for outside in ["http:", "https:", "<script", "src=", "@import", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
        for part in ["hackbench", "realm beside 6.1", "2023-11-14", "&lt;b&gt;no such"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (time, text) in
            [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (4_107_542_400, "2100-03-01")]
        {
            assert_eq!(date(time), text);
        }
    }
}
