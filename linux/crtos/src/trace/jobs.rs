// SPDX-License-Identifier: MIT OR Apache-2.0
//! The jobs of real-time threads, in events: a job begins when its thread is made ready, and ends
//! when the thread waits again.

use std::collections::BTreeMap;

use crtos_abi::{
    channel::{TRACE_KERNEL_THREAD, TRACE_SWITCH, TRACE_WAKE},
    ids::RealmCpu,
};

use super::{collect::Event, order::Order};

/// A part of a job that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From the moment in which the thread was made ready to the one in which it ran.
    Latency,
    /// From the same moment to the one in which it waited again: its own time is in it.
    Response,
}

/// How long a part of a job took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The thread.
    pub thread: u32,
    /// What was complete then.
    pub part: Part,
    /// Where the thread ran last.
    pub cpu: RealmCpu,
    /// When it was made ready, nanoseconds.
    pub ready: u64,
    /// When the part was complete.
    pub end: u64,
}

impl Span {
    /// How long it took, nanoseconds.
    pub fn length(&self) -> u64 {
        self.end - self.ready
    }
}

/// A job that has begun.
#[derive(Clone, Copy, Debug)]
struct Job {
    ready: u64,
    priority: u64,
    has_run: bool,
    /// Where and when another thread of its priority took over. Unless the job goes on, it ended
    /// there.
    left: Option<(RealmCpu, u64)>,
}

/// Looks for jobs in events as they are read.
#[derive(Debug, Default)]
pub struct Jobs {
    order: Order,
    open: BTreeMap<u32, Job>,
}

impl Jobs {
    /// Takes the events of a round. Returns the parts of jobs that are complete now.
    pub fn add(&mut self, round: &[Event]) -> Vec<Span> {
        let events = self.order.add(round);
        let mut spans = Vec::new();
        for event in &events {
            match event.kind {
                TRACE_WAKE => self.wake(event, &mut spans),
                TRACE_SWITCH => self.switch(event, &mut spans),
                _ => {}
            }
        }
        spans
    }

    /// When the oldest of the jobs began that have not ended.
    pub fn oldest(&self) -> Option<u64> {
        self.open.values().map(|job| job.ready).min()
    }

    fn wake(&mut self, event: &Event, spans: &mut Vec<Span>) {
        let (thread, priority) = (event.first as u32, event.first >> 32);
        if let Some(Job { ready, left: Some((cpu, end)), .. }) = self.open.remove(&thread) {
            spans.push(Span { thread, part: Part::Response, cpu, ready, end });
        }
        // Ordinary threads wait for each other, and so do those of the kernel.
        if priority > 0 && thread & TRACE_KERNEL_THREAD == 0 {
            let job = Job { ready: event.time, priority, has_run: false, left: None };
            self.open.insert(thread, job);
        }
    }

    /// Who ran before is ready as long as its priority is not above the next one's.
    fn switch(&mut self, event: &Event, spans: &mut Vec<Span>) {
        let (next, priority, cpu) = (event.first as u32, event.first >> 32, event.cpu);
        let thread = event.thread;
        if thread != next
            && let Some(job) = self.open.get_mut(&thread)
            && job.has_run
        {
            if priority < job.priority {
                let (ready, end) = (job.ready, event.time.max(job.ready));
                self.open.remove(&thread);
                spans.push(Span { thread, part: Part::Response, cpu, ready, end });
            } else if priority == job.priority {
                job.left = Some((cpu, event.time.max(job.ready)));
            }
        }
        if let Some(job) = self.open.get_mut(&next) {
            job.left = None;
            if !job.has_run {
                job.has_run = true;
                let (ready, end) = (job.ready, event.time.max(job.ready));
                spans.push(Span { thread: next, part: Part::Latency, cpu, ready, end });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u32 = TRACE_KERNEL_THREAD | 1;

    fn event(time: u64, kind: u32, from: u32, to: u32, priority: u64) -> Event {
        let first = priority << 32 | u64::from(to);
        Event { time, cpu: RealmCpu::new(0).unwrap(), kind, thread: from, first, second: 0 }
    }

    /// What is complete after all of the events.
    fn spans(events: &[Event]) -> Vec<(u32, Part, u64)> {
        let mut jobs = Jobs::default();
        let mut all = jobs.add(events);
        all.extend(jobs.add(&[]));
        all.iter().map(|span| (span.thread, span.part, span.length())).collect()
    }

    #[test]
    fn a_job_ends_when_its_thread_leaves_the_cpu_to_a_lesser_one() {
        let found = spans(&[
            event(10, TRACE_WAKE, IDLE, 5, 80),
            event(12, TRACE_SWITCH, IDLE, 5, 80),
            event(40, TRACE_SWITCH, 5, IDLE, 0),
        ]);
        assert_eq!(found, [(5, Part::Latency, 2), (5, Part::Response, 30)]);
    }

    #[test]
    fn who_is_preempted_has_not_ended() {
        let found = spans(&[
            event(10, TRACE_WAKE, IDLE, 5, 80),
            event(12, TRACE_SWITCH, IDLE, 5, 80),
            event(20, TRACE_WAKE, 5, 6, 90),
            event(21, TRACE_SWITCH, 5, 6, 90),
            event(70, TRACE_SWITCH, 6, 5, 80),
            event(75, TRACE_SWITCH, 5, IDLE, 0),
        ]);
        let expected = [
            (5, Part::Latency, 2),
            (6, Part::Latency, 1),
            (6, Part::Response, 50),
            (5, Part::Response, 65),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn among_equals_the_next_wake_up_tells_that_the_job_had_ended() {
        let waits = [
            event(10, TRACE_WAKE, IDLE, 5, 80),
            event(12, TRACE_SWITCH, IDLE, 5, 80),
            event(20, TRACE_SWITCH, 5, 6, 80),
            event(90, TRACE_WAKE, 6, 5, 80),
        ];
        assert_eq!(spans(&waits), [(5, Part::Latency, 2), (5, Part::Response, 10)]);
        let mut yields = waits;
        yields[3] = event(90, TRACE_SWITCH, 6, 5, 80);
        assert_eq!(spans(&yields), [(5, Part::Latency, 2)]);
    }

    #[test]
    fn ordinary_threads_have_no_jobs() {
        let found = spans(&[
            event(10, TRACE_WAKE, IDLE, 5, 0),
            event(12, TRACE_SWITCH, IDLE, 5, 0),
            event(40, TRACE_SWITCH, 5, IDLE, 0),
        ]);
        assert_eq!(found, []);
    }
}
