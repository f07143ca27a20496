// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the CPU of a thread that wakes up works on that, without what other CPUs execute
//! meanwhile.
//!
//! In virtual time the instructions of all CPUs add up, so a latency holds what others did in the
//! same moment. A plugin of QEMU (`tools/harness/observer/own.c`) notes who executes for how long
//! before a thread that has slept reads the time stamp counter, and what that holds. From that come
//! the latencies one by one, which have to be near those that cyclictest found. From the reading
//! backwards, as many instructions as the latency has nanoseconds are those between the time that
//! was asked for and the reading; what others have of them is taken away. What remains is the CPU's
//! own: what it executed, whatever for, and the time in which no CPU did anything.
//!
//! Where a program gives a device its reason to interrupt, a latency is what its other thread finds
//! in the counter, less what the one had found that gave the reason.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use crtos_results::Histogram;

use super::observer::{self, Trace};

/// What there are beside numbers of CPUs in the first four bits of a word.
const WAITED: u64 = 12;
const FORGOTTEN: u64 = 13;
const WOKE: u64 = 14;
const READ: u64 = 15;
/// The other bits.
const NUMBER: u32 = 60;
/// By so many of a million kHz the counter's frequency may be another one for Linux.
const CALIBRATION: u64 = 20;
/// Between two such rates: steps that are tried where Linux has bent the rate meanwhile.
const STEPS: i32 = 50;
/// How often the first latency is guessed anew.
const ROUNDS: usize = 3;
/// So far from those that cyclictest told latencies may be, in nanoseconds, rank by rank: what a
/// clock gains or loses until Linux bends it again.
const NEAR: u64 = 300;
/// Rounds of a program that measures devices before the first one that counts.
const WARM_UP: usize = 10;

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
        let (readings, function) = observer::readings(observer::DEVICES)?;
        let function = function.context("the program does not tell where samples begin")?;
        let marks = observer::marks(readings.into_iter().filter(|at| function.contains(at)));
        let plugin = observer::compile("own")?;
        Ok(format!("{},{marks}{}", plugin.display(), self.trace.argument()))
    }

    /// What was the CPU's own of the latencies that a program has just told of a device.
    ///
    /// # Errors
    /// That what was seen is not what the program told.
    pub fn own_of_device(&mut self, told: &Histogram) -> Result<Histogram> {
        let words = self.trace.words()?;
        let events: Vec<_> = words.into_iter().map(Event::new).collect();
        of_device(&events, told)
    }

    /// What was the CPUs' own of the latencies that cyclictest has just told of its threads, which
    /// wake up every so many microseconds.
    ///
    /// # Errors
    /// That what was seen is not what cyclictest told.
    pub fn own(&mut self, told: &[Histogram], interval_us: u64) -> Result<Vec<Histogram>> {
        let words = self.trace.words()?;
        let events: Vec<_> = words.into_iter().map(Event::new).collect();
        let interval = i64::try_from(interval_us * 1000)?;
        let mut threads = wakeups(&events);
        told.iter().map(|told| own(&events, &mut threads, told, interval)).collect()
    }
}

/// What a word of the trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A CPU executed so many instructions before another one did.
    Turn(u64, u64),
    /// Until now all CPUs waited.
    Waited,
    /// What came before is not known.
    Forgotten,
    /// A thread has slept until a certain time.
    Woke(u64),
    /// It finds this in the time stamp counter. The last turn is its CPU's. One that has not slept
    /// gives a device its reason then.
    Read(u64),
}

impl Event {
    fn new(word: u64) -> Self {
        let number = word & ((1 << NUMBER) - 1);
        match word >> NUMBER {
            WAITED => Self::Waited,
            FORGOTTEN => Self::Forgotten,
            WOKE => Self::Woke(number),
            READ => Self::Read(number),
            cpu => Self::Turn(cpu, number),
        }
    }
}

/// A wake-up: where it is among the events, and what its thread found in the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wakeup {
    at: usize,
    counter: u64,
}

/// The wake-ups of each thread.
fn wakeups(events: &[Event]) -> BTreeMap<u64, Vec<Wakeup>> {
    let mut threads = BTreeMap::<_, Vec<_>>::new();
    for (at, pair) in events.windows(2).enumerate() {
        if let [Event::Woke(thread), Event::Read(counter)] = *pair {
            threads.entry(thread).or_default().push(Wakeup { at, counter });
        }
    }
    threads
}

/// What was found in the counter before a device was given each of its reasons, and the wake-up
/// that followed of the thread that waits for that.
fn reasons(events: &[Event]) -> Vec<(u64, Wakeup)> {
    let given = (0..events.len()).filter_map(|at| {
        let has_slept = at > 0 && matches!(events[at - 1], Event::Woke(_));
        match events[at] {
            Event::Read(counter) if !has_slept => Some((at, counter)),
            _ => None,
        }
    });
    let given: Vec<_> = given.collect();
    let ends = given.iter().skip(1).map(|(at, _)| *at).chain([events.len()]);
    let rounds: Vec<_> = given.iter().zip(ends).collect();
    // Others sleep as well. It is the one that wakes up most often.
    let woken = |from: usize, to: usize| {
        (from..to.saturating_sub(1)).filter_map(|at| match events[at..at + 2] {
            [Event::Woke(thread), Event::Read(counter)] => Some((thread, Wakeup { at, counter })),
            _ => None,
        })
    };
    let mut often = BTreeMap::<u64, usize>::new();
    for ((from, _), to) in &rounds {
        woken(*from, *to).for_each(|(thread, _)| *often.entry(thread).or_default() += 1);
    }
    let waits = often.into_iter().max_by_key(|(_, count)| *count).map(|(thread, _)| thread);
    let followed = rounds.iter().filter_map(|((from, counter), to)| {
        let (_, wakeup) = woken(*from, *to).find(|(thread, _)| Some(*thread) == waits)?;
        Some((*counter, wakeup))
    });
    followed.collect()
}

/// What is left of the latencies that a program told of a device.
fn of_device(events: &[Event], told: &Histogram) -> Result<Histogram> {
    let reasons = reasons(events);
    let count: u64 = told.iter().map(|(_, count)| count).sum();
    let count = usize::try_from(count)?;
    let seen = reasons.len();
    ensure!(seen == count + WARM_UP, "{count} interrupts told, and {WARM_UP} before; {seen} seen");
    let latency = |(start, wakeup): &(u64, Wakeup)| wakeup.counter.wrapping_sub(*start);
    let mut latencies: Vec<_> = reasons[WARM_UP..].iter().map(latency).collect();
    latencies.sort_unstable();
    let told = told.iter().flat_map(|(value, count)| (0..count).map(move |_| value));
    let far = latencies.iter().zip(told).map(|(seen, told)| seen.abs_diff(told)).max();
    let far = far.unwrap_or(0);
    ensure!(far <= NEAR, "the interrupts that were seen are others: {far} ns between them");
    let own = reasons[WARM_UP..].iter().map(|reason| {
        let latency = latency(reason);
        (latency - others(&events[..reason.1.at], latency), 1)
    });
    Ok(own.collect())
}

/// How many nanoseconds one of the counter's ticks may be. Linux finds out at boot, not always to
/// the last digit, and rounds.
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

/// The latencies of wake-ups whose thread wanted to wake up every `interval`, if the first one is
/// known. After one that takes longer, those times are left out that are over.
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

fn median(sorted: &[i64]) -> i64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Latencies one by one, and how far they are, rank by rank, from the same ones that are sorted.
struct Fit {
    latencies: Vec<i64>,
    distance: u64,
}

impl Fit {
    /// With that rate. The first latency is the one with which the medians are the same.
    fn at(rate: f64, wakeups: &[Wakeup], told: &[i64], interval: i64) -> Self {
        let sorted = |first| {
            let mut latencies = latencies(wakeups, first, interval, rate);
            latencies.sort_unstable();
            latencies
        };
        let least = told.first().copied().unwrap_or_default();
        let mut first = least;
        // What is left out depends on the first.
        for _ in 0..ROUNDS {
            first += least - sorted(first).first().copied().unwrap_or(least);
        }
        first += median(told) - median(&sorted(first));
        let (latencies, sorted) = (latencies(wakeups, first, interval, rate), sorted(first));
        // Those that cyclictest cannot tell apart count as the longest.
        let most = told.last();
        let far = |(found, told): (&i64, &i64)| match found < told && Some(told) == most {
            true => 0,
            false => found.abs_diff(*told),
        };
        let last = sorted.last().zip(most).map_or(0, |(found, told)| found.abs_diff(*told));
        let distance = sorted.iter().zip(told).map(far).max().unwrap_or(0).max(last);
        Self { latencies, distance }
    }

    /// With the best of all rates.
    fn best(wakeups: &[Wakeup], told: &[i64], interval: i64) -> Option<Self> {
        let at = |rate| (rate, Self::at(rate, wakeups, told, interval));
        let distance = |(_, fit): &(f64, Self)| fit.distance;
        let (rate, fit) = rates().map(at).min_by_key(distance)?;
        let step = 1e-6 / f64::from(STEPS);
        let bent = (-STEPS..=STEPS).map(|steps| at(rate + f64::from(steps) * step));
        bent.chain([(rate, fit)]).min_by_key(distance).map(|(_, fit)| fit)
    }
}

/// How many instructions other CPUs have of the last `latency` nanoseconds before an event, which
/// is the last one's of its CPU. Where all CPUs waited, so did this one, and what comes before is
/// not looked at, nor is what is not known.
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
            Event::Waited | Event::Forgotten => break,
            Event::Woke(_) | Event::Read(_) => {}
        }
        if left == 0 {
            break;
        }
    }
    others
}

/// What is left of the latencies that cyclictest told of a thread. It is one of those that were
/// seen, which is taken from them.
fn own(
    events: &[Event],
    threads: &mut BTreeMap<u64, Vec<Wakeup>>,
    told: &Histogram,
    interval: i64,
) -> Result<Histogram> {
    let told: Vec<i64> = told
        .iter()
        .flat_map(|(value, count)| (0..count).map(move |_| value.cast_signed()))
        .collect();
    let seen: Vec<_> = threads.values().map(Vec::len).collect();
    ensure!(seen.contains(&told.len()), "{} wake-ups told, {seen:?} seen", told.len());
    let of_thread = |(thread, wakeups): (&u64, &Vec<Wakeup>)| {
        Fit::best(wakeups, &told, interval).map(|fit| (*thread, fit))
    };
    let same = threads.iter().filter(|(_, wakeups)| wakeups.len() == told.len());
    let best = same.filter_map(of_thread).min_by_key(|(_, fit)| fit.distance);
    let (thread, Fit { latencies, distance }) = best.context("no wake-up was told")?;
    ensure!(
        distance <= NEAR,
        "the wake-ups that were seen are not those of cyclictest: {distance} ns between them"
    );
    let wakeups = threads.remove(&thread).unwrap_or_default();
    let own = wakeups.iter().zip(latencies).map(|(wakeup, latency)| {
        let latency = latency.max(0).cast_unsigned();
        (latency - others(&events[..wakeup.at], latency), 1)
    });
    Ok(own.collect())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    const OWN: u64 = 2;
    /// In nanoseconds.
    const INTERVAL: i64 = 100_000;
    const ROUNDING: u64 = 1;

    fn turns() -> impl Strategy<Value = Vec<Event>> {
        let turn = (0..4_u64, 1..400_u64).prop_map(|(cpu, count)| Event::Turn(cpu, count));
        let event = prop_oneof![
            20 => turn,
            1 => Just(Event::Waited),
            1 => Just(Event::Forgotten),
            1 => Just(Event::Woke(7)),
        ];
        prop::collection::vec(event, 0..60)
    }

    /// The CPU of each instruction of the last ones, backwards, until all waited or nothing is
    /// known.
    fn instructions(events: &[Event]) -> Vec<u64> {
        let ends = |event: &Event| matches!(event, Event::Waited | Event::Forgotten);
        let last = events.iter().rposition(ends);
        let turns = events.iter().skip(last.map_or(0, |at| at + 1)).rev();
        let cpus = turns.flat_map(|event| match event {
            Event::Turn(cpu, count) => vec![*cpu; *count as usize],
            _ => Vec::new(),
        });
        cpus.collect()
    }

    /// How late wake-ups are that want to come every `interval`. None is late by whole intervals:
    /// what the counter rounds would decide whether one more time is left out.
    fn late(interval: i64, longest: i64, count: Range<usize>) -> impl Strategy<Value = Vec<i64>> {
        let rounding = ROUNDING.cast_signed();
        let tells = move |late: &i64| (late + rounding).rem_euclid(interval) > 2 * rounding;
        prop::collection::vec((1..longest).prop_filter("whole intervals", tells), count)
    }

    proptest! {
        #[test]
        fn others_are_counted_within_the_latency(
            mut events in turns(),
            own in 1..400_u64,
            latency in 0..9_000_u64,
        ) {
            events.push(Event::Turn(OWN, own));
            let instructions = instructions(&events);
            let within = instructions.iter().take(latency as usize);
            prop_assert_eq!(
                others(&events, latency),
                within.filter(|cpu| **cpu != OWN).count() as u64
            );
        }

        #[test]
        fn a_turn_in_two_parts_is_the_same(
            mut events in turns(),
            own in 2..400_u64,
            latency in 0..9_000_u64,
            part in 1..400_u64,
        ) {
            let mut parts = events.clone();
            events.push(Event::Turn(OWN, own));
            let part = part.min(own - 1);
            parts.extend([Event::Turn(OWN, part), Event::Turn(OWN, own - part)]);
            prop_assert_eq!(others(&events, latency), others(&parts, latency));
        }

        #[test]
        fn latencies_come_out_as_they_were(
            late in prop_oneof![
                late(INTERVAL, 350_000, 1..80),
                late(INTERVAL, 90_000, 3..80),
            ],
            start in 0..u64::MAX / 2,
            calibrated in 0..2 * CALIBRATION as usize,
        ) {
            let interval = INTERVAL;
            let rate = rates().nth(calibrated).unwrap();
            let mut asked = 0;
            let wakeups: Vec<_> = late.iter().map(|late| {
                let ticks = (((asked + late) as f64) / rate).round() as u64;
                asked += ((late + interval - 1) / interval).max(1) * interval;
                Wakeup { at: 0, counter: start + ticks }
            }).collect();
            let mut told = late.clone();
            told.sort_unstable();
            let near = |found: &[i64]| {
                found.iter().zip(&late).all(|(found, late)| found.abs_diff(*late) <= ROUNDING)
            };
            prop_assert!(near(&latencies(&wakeups, late[0], interval, rate)));
            // The first one is found where few are so long that others are left out.
            prop_assume!(late.len() > 2 && late.iter().all(|late| *late < interval));
            let fit = Fit::at(rate, &wakeups, &told, interval);
            prop_assert!(near(&fit.latencies) && fit.distance <= ROUNDING);
            let mut other = told.clone();
            *other.last_mut().unwrap() += 3;
            prop_assert!(Fit::at(rate, &wakeups, &other, interval).distance > ROUNDING);
        }
    }

    const THREAD: u64 = 0x7000;
    const OTHER: u64 = 0x8000;

    /// Wake-ups after 10, 30 and 20 ns, in the second of which another CPU had 15, and all had
    /// waited before the third. Another thread wakes up twice on that CPU.
    fn trace() -> Vec<Event> {
        use Event::*;
        [
            &[Turn(0, 900), Turn(OWN, 10), Woke(THREAD), Read(5_010), Turn(OWN, 5)][..],
            &[Turn(1, 20), Woke(OTHER), Read(5_035)],
            &[Turn(1, 935), Turn(0, 15), Turn(OWN, 15), Woke(THREAD), Read(6_030)],
            &[Turn(1, 13), Woke(OTHER), Read(6_043)],
            &[Turn(1, 500), Waited, Turn(OWN, 12), Woke(THREAD), Read(7_020)],
        ]
        .concat()
    }

    fn own_of(told: &[Histogram]) -> Result<Vec<Histogram>> {
        let events = trace();
        let mut threads = wakeups(&events);
        told.iter().map(|told| own(&events, &mut threads, told, 1_000)).collect()
    }

    #[test]
    fn what_others_executed_is_left_out() {
        let told = [(10, 1), (20, 1), (30, 1)].into_iter().collect();
        let own = own_of(&[told]).unwrap();
        assert_eq!(own, [[(10, 1), (15, 1), (20, 1)].into_iter().collect()]);
    }

    #[test]
    fn threads_are_told_apart() {
        let told = [
            [(35, 1), (43, 1)].into_iter().collect(),
            [(10, 1), (20, 1), (30, 1)].into_iter().collect(),
        ];
        let own = own_of(&told).unwrap();
        let wanted = [(20, 1), (13, 1)].into_iter().collect();
        assert_eq!(own, [wanted, [(10, 1), (15, 1), (20, 1)].into_iter().collect()]);
        assert!(own_of(&[told[0].clone(), told[0].clone()]).is_err());
    }

    #[test]
    fn other_wakeups_than_those_of_cyclictest_are_told() {
        let others = [[(10, 1), (20, 1), (900, 1)], [(10, 1), (500, 1), (530, 1)]];
        for told in others {
            assert!(own_of(&[told.into_iter().collect()]).is_err());
        }
        assert!(own_of(&[[(10, 1)].into_iter().collect()]).is_err());
    }

    #[test]
    fn a_device_has_its_own_part() {
        use Event::*;
        // Another CPU has a part, and once another thread wakes up.
        let round = |start: u64, others: u64| {
            let other = [Woke(OTHER), Read(1)];
            let end = [Turn(OWN, 30), Woke(THREAD), Read(start + 50 + others), Turn(OWN, 900)];
            let begin = [Read(start), Turn(OWN, 20), Turn(1, others)];
            [&begin[..], &other[..if others > 7 { 2 } else { 0 }], &end[..]].concat()
        };
        let mut events: Vec<_> = (0..WARM_UP as u64).flat_map(|at| round(at, 7)).collect();
        let told: Histogram = [(50, 1), (90, 1)].into_iter().collect();
        assert!(of_device(&events, &told).is_err());
        events.extend([round(9_000, 0), round(20_000, 40)].concat());
        assert_eq!(of_device(&events, &told).unwrap(), [(50, 2)].into_iter().collect());
        let other: Histogram = [(50, 1), (900, 1)].into_iter().collect();
        assert!(of_device(&events, &other).is_err());
    }

    #[test]
    fn words_are_events() {
        let word = |what: u64, number: u64| Event::new(what << NUMBER | number);
        assert_eq!(word(3, 77), Event::Turn(3, 77));
        assert_eq!((word(WAITED, 0), word(FORGOTTEN, 0)), (Event::Waited, Event::Forgotten));
        assert_eq!((word(WOKE, 9), word(READ, 1 << 50)), (Event::Woke(9), Event::Read(1 << 50)));
    }
}
