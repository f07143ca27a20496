// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events in the order of time, while they are read.

use super::collect::Event;

/// Puts events in order as they are read: CPU by CPU, so that an event may come after later ones of
/// another CPU, but not after a whole round of them.
#[derive(Debug, Default)]
pub struct Order {
    /// Events that were not returned yet.
    waiting: Vec<Event>,
    /// The last time of the round before this one.
    horizon: u64,
}

impl Order {
    /// Takes the events of a round. Returns those, in order, before which none can come any more.
    pub fn add(&mut self, round: &[Event]) -> Vec<Event> {
        let horizon = self.horizon;
        self.waiting.extend_from_slice(round);
        self.horizon = self.waiting.iter().map(|event| event.time).fold(horizon, u64::max);
        self.waiting.sort_by_key(|event| event.time);
        let complete = self.waiting.partition_point(|event| event.time <= horizon);
        self.waiting.drain(..complete).collect()
    }
}
