// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU did while a thread was late.

use std::collections::BTreeMap;

use crate::trace::timeline::{CPUS, Timeline};

/// What a CPU did, and for how long within a time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Did {
    /// A thread or an interrupt, as the trace names it.
    pub what: String,
    /// Nanoseconds.
    pub ns: u64,
}

/// Returns what Linux's CPU `cpu` did from `from` to `to`, the longest first. The time of an
/// interrupt is not its thread's; what no slice has is that of an idle CPU.
pub fn between(timeline: &Timeline, cpu: u32, from: u64, to: u64) -> Vec<Did> {
    let mut slices: Vec<(u64, u64, &str)> = timeline
        .items
        .iter()
        .filter(|item| item.row.process == CPUS && item.row.thread == cpu)
        .filter_map(|item| {
            let end = item.start + item.duration?;
            let (start, end) = (item.start.max(from), end.min(to));
            (start < end).then_some((start, end, item.name.as_str()))
        })
        .collect();
    // The outer one of two that begin together first.
    slices.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    let mut covered = 0;
    let mut outer: Vec<(u64, &str)> = Vec::new();
    for (start, end, name) in slices {
        while outer.last().is_some_and(|(end, _)| *end <= start) {
            outer.pop();
        }
        match outer.last() {
            Some((_, around)) => {
                let time = times.entry(around).or_default();
                *time = time.saturating_sub(end - start);
            }
            None => covered += end - start,
        }
        *times.entry(name).or_default() += end - start;
        outer.push((end, name));
    }
    let idle = (to.saturating_sub(from)).saturating_sub(covered);
    let mut all: Vec<Did> =
        times.into_iter().map(|(what, ns)| Did { what: what.to_owned(), ns }).collect();
    all.push(Did { what: "idle".into(), ns: idle });
    all.retain(|one| one.ns > 0);
    all.sort_by_key(|one| std::cmp::Reverse(one.ns));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::{Item, Row};

    fn item(thread: u32, name: &str, start: u64, length: u64) -> Item {
        let row = Row { process: CPUS, thread };
        Item { row, name: name.into(), start, duration: Some(length), details: Vec::new() }
    }

    #[test]
    fn interrupts_are_apart_from_their_threads() {
        let items = vec![
            item(3, "spin (7)", 0, 80),
            item(3, "interrupt of eth1", 30, 10),
            item(3, "control (5)", 90, 100),
            item(2, "other (9)", 0, 200),
        ];
        let timeline = Timeline { items, ..Timeline::default() };
        let found = between(&timeline, 3, 20, 100);
        let found: Vec<_> = found.iter().map(|did| (did.what.as_str(), did.ns)).collect();
        let expected =
            [("spin (7)", 50), ("control (5)", 10), ("idle", 10), ("interrupt of eth1", 10)];
        assert_eq!(found.len(), expected.len());
        assert!(expected.iter().all(|one| found.contains(one)), "{found:?}");
        assert_eq!(found[0], expected[0]);
    }
}
