// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the CPU of a thread that wakes up works on that, without what other CPUs execute meanwhile.
//!
//! In virtual time the instructions of all CPUs add up, so a latency holds what others did in the same moment. A plugin of QEMU
//! (`harness/observer/own.c`) notes who executes for how long, when a thread begins to sleep, and what it then reads in the time stamp counter. From that come
//! the latencies one by one, which have to be those that cyclictest found. From the reading backwards, as many instructions as the latency has nanoseconds are
//! those between the time that was asked for and the reading; what others have of them is taken away. What remains is the CPU's own: what it
//! executed, whatever for, and the time in which no CPU did anything.

use anyhow::{Context, Result, ensure};
use crtos_results::{Cell, Histogram};

use super::observer::{self, Trace};

/// What there are beside numbers of CPUs in the first four bits of a word.
const WAITED: u64 = 12;
const SLEEPS: u64 = 13;
const READ: u64 = 14;
/// The other bits.
const NUMBER: u32 = 60;
/// By so many of a million kHz the counter's frequency may be another one for Linux.
const CALIBRATION: u64 = 20;
/// How often the first latency is guessed anew.
const ROUNDS: usize = 3;
/// In nanoseconds.
const ROUNDING: i64 = 1;

/// An observer of a machine.
pub struct Observer {
    trace: Trace,
}

impl Observer {
    pub fn new() -> Result<Self> {
        Ok(Self { trace: Trace::new()? })
    }

    /// For QEMU: the plugin with its argument.
    pub fn plugin(&self) -> Result<String> {
        Ok(format!("{},{}", observer::compile("own")?.display(), self.trace.argument()))
    }

    /// Adds to a cell of cyclictest, which has just been measured, what was the CPU's own.
    pub fn complete(&mut self, cell: &mut Cell, interval_us: u64) -> Result<()> {
        let events = self.trace.words()?.into_iter().map(Event::new).collect::<Vec<_>>();
        if let Ok(told) = &cell.outcome {
            cell.own = Some(own(&events, told, i64::try_from(interval_us * 1000)?)?);
        }
        Ok(())
    }
}

/// What a word of the trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A CPU executed so many instructions before another one did.
    Turn(u64, u64),
    /// Until now all CPUs waited.
    Waited,
    /// A thread began to sleep until a certain time.
    Sleeps,
    /// It found this in the time stamp counter. The turn before is its CPU's.
    Read(u64),
}

impl Event {
    fn new(word: u64) -> Self {
        let number = word & ((1 << NUMBER) - 1);
        match word >> NUMBER {
            WAITED => Self::Waited,
            SLEEPS => Self::Sleeps,
            READ => Self::Read(number),
            cpu => Self::Turn(cpu, number),
        }
    }
}

/// A wake-up: where its reading of the clock is among the events, and what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wakeup {
    at: usize,
    counter: u64,
}

fn wakeups(events: &[Event]) -> Vec<Wakeup> {
    let mut sleeps = false;
    let wakeup = |(at, event): (usize, &Event)| match *event {
        Event::Sleeps => {
            sleeps = true;
            None
        }
        Event::Read(counter) if sleeps => {
            sleeps = false;
            Some(Wakeup { at, counter })
        }
        _ => None,
    };
    events.iter().enumerate().filter_map(wakeup).collect()
}

/// How many nanoseconds one of the counter's ticks may be. Linux finds out at boot, not always to the last digit, and rounds.
fn rates() -> impl Iterator<Item = f64> {
    let (ns, bits) = (1_000_000_u64, 24);
    let rate = move |khz: u64| {
        let factor = |shift: u32| (((ns << shift) + khz / 2) / khz, shift);
        // That many bits are the most that a factor has.
        let (factor, shift) = Some(factor(bits))
            .filter(|(factor, _)| factor >> bits == 0)
            .unwrap_or(factor(bits - 1));
        factor as f64 / (1_u64 << shift) as f64
    };
    (ns - CALIBRATION..=ns + CALIBRATION).map(rate)
}

/// The latencies of wake-ups whose thread wanted to wake up every `interval`, if the first one is known. After one that takes longer, those times are
/// left out that are over.
fn latencies(wakeups: &[Wakeup], first: i64, interval: i64, rate: f64) -> Vec<i64> {
    let Some(start) = wakeups.first() else { return Vec::new() };
    let mut asked = -first;
    let latency = |wakeup: &Wakeup| {
        let now = (wakeup.counter.wrapping_sub(start.counter) as f64 * rate).round() as i64;
        let latency = now - asked;
        asked += (latency + interval - 1).div_euclid(interval).max(1) * interval;
        latency
    };
    wakeups.iter().map(latency).collect()
}

/// The same, if only the least one is known.
fn latencies_from(wakeups: &[Wakeup], least: i64, interval: i64, rate: f64) -> Vec<i64> {
    let mut first = least;
    // What is left out depends on the first.
    for _ in 0..ROUNDS {
        let found = latencies(wakeups, first, interval, rate);
        first += least - found.iter().min().copied().unwrap_or(least);
    }
    latencies(wakeups, first, interval, rate)
}

/// Whether these are the latencies that cyclictest told, which are sorted. Both are rounded. Those that it cannot tell apart count as the longest.
fn are_told(latencies: &[i64], told: &[i64]) -> bool {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let near = |(found, told): (&i64, &i64)| (found - told).abs() <= ROUNDING;
    let most = told.last();
    let is_same =
        |(found, wanted)| near((found, wanted)) || (found < wanted && Some(wanted) == most);
    sorted.len() == told.len()
        && sorted.last().zip(most).is_none_or(near)
        && sorted.iter().zip(told).all(is_same)
}

/// How many instructions other CPUs have of the last `latency` nanoseconds before an event, which is the last one's of its CPU. Where all CPUs
/// waited, so did this one, and what comes before is not looked at.
fn others(before: &[Event], latency: u64) -> u64 {
    let Some(Event::Turn(own, _)) = before.last() else { return 0 };
    let (mut left, mut others) = (latency, 0);
    for event in before.iter().rev() {
        match event {
            Event::Turn(cpu, count) => {
                let part = left.min(*count);
                left -= part;
                others += if cpu == own { 0 } else { part };
            }
            Event::Waited => break,
            Event::Sleeps | Event::Read(_) => {}
        }
        if left == 0 {
            break;
        }
    }
    others
}

/// What is left of the latencies that cyclictest told.
fn own(events: &[Event], told: &Histogram, interval: i64) -> Result<Histogram> {
    let wakeups = wakeups(events);
    let told: Vec<i64> = told
        .iter()
        .flat_map(|(value, count)| (0..count).map(move |_| value.cast_signed()))
        .collect();
    ensure!(wakeups.len() == told.len(), "{} of {} wake-ups seen", wakeups.len(), told.len());
    let least = told.first().copied().unwrap_or_default();
    let latencies = rates()
        .map(|rate| latencies_from(&wakeups, least, interval, rate))
        .find(|latencies| are_told(latencies, &told))
        .context("the wake-ups that were seen are not those of cyclictest")?;
    let own = wakeups.iter().zip(latencies).map(|(wakeup, latency)| {
        let latency = latency.max(0).cast_unsigned();
        (latency - others(&events[..wakeup.at], latency), 1)
    });
    Ok(own.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: u64 = 2;

    fn turns() -> impl Strategy<Value = Vec<Event>> {
        let turn = (0..4_u64, 1..400_u64).prop_map(|(cpu, count)| Event::Turn(cpu, count));
        let event = prop_oneof![20 => turn, 1 => Just(Event::Waited), 1 => Just(Event::Sleeps)];
        prop::collection::vec(event, 0..60)
    }

    /// The CPU of each instruction of the last ones, backwards, until all waited.
    fn instructions(events: &[Event]) -> Vec<u64> {
        let last = events.iter().rposition(|event| *event == Event::Waited);
        let turns = events.iter().skip(last.map_or(0, |at| at + 1)).rev();
        let cpus = turns.flat_map(|event| match event {
            Event::Turn(cpu, count) => vec![*cpu; *count as usize],
            _ => Vec::new(),
        });
        cpus.collect()
    }

    proptest! {
        #[test]
        fn others_are_counted_within_the_latency(mut events in turns(), own in 1..400_u64, latency in 0..9_000_u64) {
            events.push(Event::Turn(OWN, own));
            let instructions = instructions(&events);
            let within = instructions.iter().take(latency as usize);
            prop_assert_eq!(
                others(&events, latency),
                within.filter(|cpu| **cpu != OWN).count() as u64
            );
        }

        #[test]
        fn a_turn_in_two_parts_is_the_same(mut events in turns(), own in 2..400_u64, latency in 0..9_000_u64, part in 1..400_u64) {
            let mut parts = events.clone();
            events.push(Event::Turn(OWN, own));
            let part = part.min(own - 1);
            parts.extend([Event::Turn(OWN, part), Event::Turn(OWN, own - part)]);
            prop_assert_eq!(others(&events, latency), others(&parts, latency));
        }

        #[test]
        fn latencies_come_out_as_they_were(
            late in prop::collection::vec(1..350_000_i64, 1..80),
            start in 0..u64::MAX / 2,
            calibrated in 0..2 * CALIBRATION as usize,
        ) {
            let interval = 100_000;
            let rate = rates().nth(calibrated).unwrap();
            let mut asked = 0;
            let wakeups: Vec<_> = late.iter().map(|late| {
                let ticks = (((asked + late) as f64) / rate).round() as u64;
                asked += ((late + interval - 1) / interval).max(1) * interval;
                Wakeup { at: 0, counter: start + ticks }
            }).collect();
            let mut told = late.clone();
            told.sort_unstable();
            prop_assert!(are_told(&latencies(&wakeups, late[0], interval, rate), &told));
            let mut other = told.clone();
            other[0] -= 3;
            prop_assert!(!are_told(&latencies(&wakeups, late[0], interval, rate), &other));
        }
    }

    /// Wake-ups after 10, 30 and 20 ns, in the second of which another CPU had 15, and all had waited before the third.
    fn trace() -> Vec<Event> {
        use Event::*;
        [
            [Sleeps, Turn(0, 900), Turn(OWN, 10), Read(5_010), Turn(OWN, 5)],
            [Sleeps, Turn(1, 935), Turn(0, 15), Turn(OWN, 15), Read(6_030)],
            [Sleeps, Turn(1, 500), Waited, Turn(OWN, 12), Read(7_020)],
        ]
        .concat()
    }

    #[test]
    fn what_others_executed_is_left_out() {
        let told = [(10, 1), (20, 1), (30, 1)].into_iter().collect();
        let own = own(&trace(), &told, 1_000).unwrap();
        assert_eq!(own, [(10, 1), (15, 1), (20, 1)].into_iter().collect());
    }

    #[test]
    fn other_wakeups_than_those_of_cyclictest_are_told() {
        let others = [[(10, 1), (20, 1), (90, 1)], [(10, 1), (25, 1), (30, 1)]];
        for told in others {
            assert!(own(&trace(), &told.into_iter().collect(), 1_000).is_err());
        }
        assert!(own(&trace(), &[(10, 1), (20, 1)].into_iter().collect(), 1_000).is_err());
    }

    #[test]
    fn words_are_events() {
        let word = |what: u64, number: u64| Event::new(what << NUMBER | number);
        assert_eq!(word(3, 77), Event::Turn(3, 77));
        assert_eq!((word(WAITED, 0), word(SLEEPS, 0)), (Event::Waited, Event::Sleeps));
        assert_eq!(word(READ, 1 << 50), Event::Read(1 << 50));
    }
}
