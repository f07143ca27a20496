// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that ran later than a limit after they had been made ready.

use std::collections::BTreeMap;

use crtos_abi::{
    channel::{TRACE_KERNEL_THREAD, TRACE_SWITCH, TRACE_WAKE},
    ids::RealmCpu,
};

use super::{collect::Event, order::Order};

/// A wake-up of a real-time thread of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// The thread.
    pub thread: u32,
    /// Where it ran.
    pub cpu: RealmCpu,
    /// When it was made ready, nanoseconds.
    pub ready: u64,
    /// When it ran.
    pub ran: u64,
}

impl WakeUp {
    /// How long it was ready and did not run, nanoseconds.
    pub fn latency(&self) -> u64 {
        self.ran - self.ready
    }
}

/// Looks for wake-ups in events as they are read.
#[derive(Debug, Default)]
pub struct Lateness {
    order: Order,
    /// When each thread was made ready that has not run since.
    ready: BTreeMap<u32, u64>,
    /// The latest of all.
    worst: Option<WakeUp>,
}

impl Lateness {
    /// Takes the events of a round. Returns the latest wake-up among those that are complete now.
    pub fn add(&mut self, round: &[Event]) -> Option<WakeUp> {
        let latest = self.wake_ups(round).into_iter().max_by_key(WakeUp::latency);
        if latest.map(|one| one.latency()) > self.worst.map(|one| one.latency()) {
            self.worst = latest;
        }
        latest
    }

    /// Takes the events of a round. Returns the wake-ups that are complete now.
    pub fn wake_ups(&mut self, round: &[Event]) -> Vec<WakeUp> {
        let events = self.order.add(round);
        events.iter().filter_map(|event| self.look(event)).collect()
    }

    /// Returns the latest wake-up of all.
    pub fn worst(&self) -> Option<WakeUp> {
        self.worst
    }

    fn look(&mut self, event: &Event) -> Option<WakeUp> {
        let (thread, priority) = (event.first as u32, event.first >> 32);
        match event.kind {
            // Ordinary threads wait for each other, and so do those of the kernel.
            TRACE_WAKE if priority > 0 && thread & TRACE_KERNEL_THREAD == 0 => {
                self.ready.insert(thread, event.time);
                None
            }
            TRACE_SWITCH => {
                let ready = self.ready.remove(&thread)?;
                Some(WakeUp { thread, cpu: event.cpu, ready, ran: event.time.max(ready) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
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
            Some(WakeUp { thread: 6, cpu: RealmCpu::new(0).unwrap(), ready: 20, ran: 50 })
        );
        assert_eq!(late.add(&[]), None);
        assert_eq!(late.worst().unwrap().latency(), 30);
    }

    #[test]
    fn a_wake_up_that_another_cpu_tells_later_counts() {
        let mut late = Lateness::default();
        assert_eq!(late.add(&[event(1, 40, TRACE_SWITCH, 5, 80)]), None);
        assert_eq!(late.add(&[event(0, 15, TRACE_WAKE, 5, 80)]).unwrap().latency(), 25);
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
