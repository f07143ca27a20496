// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that ran later than a limit after they had been made ready.

use super::{
    collect::{Event, Record},
    jobs::{Jobs, Part, Span},
    json::micros,
    timeline::{Item, Row, Timeline},
};

/// Looks for wake-ups in events as they are read: the latencies of [jobs](Jobs).
#[derive(Debug, Default)]
pub struct Lateness {
    jobs: Jobs,
    /// The latest of all.
    worst: Option<Span>,
}

impl Lateness {
    /// Takes the events of a round. Returns the latest wake-up among those that are complete now.
    pub fn add(&mut self, round: &[Event]) -> Option<Span> {
        let latest = self.wake_ups(round).into_iter().max_by_key(Span::length);
        if latest.map(|one| one.length()) > self.worst.map(|one| one.length()) {
            self.worst = latest;
        }
        latest
    }

    /// Takes the events of a round. Returns the wake-ups that are complete now.
    pub fn wake_ups(&mut self, round: &[Event]) -> Vec<Span> {
        let mut spans = self.jobs.add(round);
        spans.retain(|span| span.part == Part::Latency);
        spans
    }

    /// Returns the latest wake-up of all.
    pub fn worst(&self) -> Option<Span> {
        self.worst
    }
}

/// Marks the time in which a thread was late, on its row.
pub fn mark(timeline: &mut Timeline, record: &Record, late: &Span) {
    let process = record.name(late.thread).map_or(late.thread, |name| name.pid.get());
    timeline.items.push(Item {
        row: Row { process, thread: late.thread },
        name: format!("late: {} µs", micros(late.length())),
        start: late.ready,
        duration: Some(late.length()),
        details: Vec::new(),
    });
}

#[cfg(test)]
mod tests {
    use crtos_abi::{
        channel::{TRACE_KERNEL_THREAD, TRACE_SWITCH, TRACE_WAKE},
        ids::RealmCpu,
    };

    use super::*;

    fn event(cpu: usize, time: u64, kind: u32, thread: u32, priority: u64) -> Event {
        let (cpu, first) = (RealmCpu::new(cpu).unwrap(), priority << 32 | u64::from(thread));
        Event { time, cpu, kind, thread: 1, first, second: 0 }
    }

    #[test]
    fn the_latest_wake_up_is_found() {
        let mut late = Lateness::default();
        let events = [
            event(0, 10, TRACE_WAKE, 5, 80),
            event(0, 12, TRACE_SWITCH, 5, 80),
            event(0, 20, TRACE_WAKE, 6, 70),
            event(0, 30, TRACE_SWITCH, 5, 80),
            event(0, 50, TRACE_SWITCH, 6, 70),
        ];
        assert_eq!(late.add(&events), None, "another CPU may have earlier ones");
        assert_eq!(
            late.add(&[]),
            Some(Span {
                thread: 6,
                part: Part::Latency,
                cpu: RealmCpu::new(0).unwrap(),
                ready: 20,
                end: 50
            })
        );
        assert_eq!(late.add(&[]), None);
        assert_eq!(late.worst().unwrap().length(), 30);
    }

    #[test]
    fn a_wake_up_that_another_cpu_tells_later_counts() {
        let mut late = Lateness::default();
        assert_eq!(late.add(&[event(1, 40, TRACE_SWITCH, 5, 80)]), None);
        assert_eq!(late.add(&[event(0, 15, TRACE_WAKE, 5, 80)]).unwrap().length(), 25);
    }

    #[test]
    fn ordinary_threads_and_those_of_the_kernel_may_wait() {
        let mut late = Lateness::default();
        late.add(&[
            event(0, 10, TRACE_WAKE, 5, 0),
            event(0, 10, TRACE_WAKE, TRACE_KERNEL_THREAD | 3, 50),
            event(0, 90, TRACE_SWITCH, 5, 0),
            event(0, 99, TRACE_SWITCH, TRACE_KERNEL_THREAD | 3, 50),
        ]);
        assert_eq!(late.add(&[]), None);
        assert_eq!(late.worst(), None);
    }
}
