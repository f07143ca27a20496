// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rings of events, read while the real-time kernel writes them.

use std::{
    collections::BTreeMap,
    mem::{offset_of, size_of},
};

use crtos_abi::{
    channel::{Channel, TRACE_EVENTS, TimePage, TraceEvent},
    ids::{Pid, RealmCpu, Tid},
};

use crate::{
    device::{Device, Refusal},
    view::View,
};

const EVENT: usize = size_of::<TraceEvent>();

/// An event and where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: RealmCpu,
    /// `TRACE_*`.
    pub kind: u32,
    /// The thread that ran.
    pub thread: u32,
    /// See [`TraceEvent`].
    pub first: u64,
    /// See [`TraceEvent`].
    pub second: u64,
}

/// A thread of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its process.
    pub pid: Pid,
    /// Command name.
    pub command: String,
}

/// What was recorded.
#[derive(Debug, Default)]
pub struct Record {
    /// In the order of time.
    pub events: Vec<Event>,
    /// Events that were overwritten before they were read.
    pub lost: u64,
    /// Threads of programs by their ids.
    pub names: BTreeMap<Tid, Name>,
    /// Devices by the vectors with which they interrupt.
    pub devices: BTreeMap<u8, String>,
}

impl Record {
    /// What is known of a thread of a program.
    pub fn name(&self, thread: u32) -> Option<&Name> {
        self.names.get(&Tid::new(thread)?)
    }
}

/// The line from the time stamp counter to CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Clock {
    tsc: u64,
    monotonic: u64,
    mult: u32,
    shift: u32,
}

impl Clock {
    fn parse(page: View<'_>) -> Option<Self> {
        let clock = Self {
            tsc: page.u64(offset_of!(TimePage, tsc_base)),
            monotonic: page.u64(offset_of!(TimePage, monotonic)),
            mult: page.u32(offset_of!(TimePage, mult)),
            shift: page.u32(offset_of!(TimePage, shift)),
        };
        // Odd: it was read while Linux wrote it.
        let whole = page.u32(offset_of!(TimePage, sequence)).is_multiple_of(2);
        (whole && clock.shift <= 32).then_some(clock)
    }

    /// Also of counts before the base.
    fn time(self, tsc: u64) -> u64 {
        let ticks = i128::from(tsc) - i128::from(self.tsc);
        let time = i128::from(self.monotonic) + ((ticks * i128::from(self.mult)) >> self.shift);
        u64::try_from(time).unwrap_or(0)
    }
}

/// Reads the rings.
pub struct Collector<'a> {
    device: &'a Device,
    cell: u32,
    capacity: u64,
    /// Up to where each ring was read.
    read: Vec<u64>,
    clock: Clock,
    rounds: u32,
    record: Record,
}

impl<'a> Collector<'a> {
    /// From now on, of `cpus` CPUs. The kernel writes what `want` names, as `TRACE_WANT_*`, until
    /// [`end`](Self::end), or until the device is closed.
    pub fn begin(device: &'a Device, cell: u32, cpus: usize, want: u32) -> Result<Self, Refusal> {
        let clock = Clock { tsc: 0, monotonic: 0, mult: 1, shift: 0 };
        let (read, record) = (vec![0; cpus], Record::default());
        let mut new = Self { device, cell, capacity: 1, read, clock, rounds: 0, record };
        let word = new.bytes(offset_of!(Channel, trace_capacity), 4)?;
        let capacity = u64::from(View(&word).u32(0));
        new.capacity = capacity.clamp(1, TRACE_EVENTS as u64 / cpus.max(1) as u64);
        new.read = new.written()?;
        device.trace(want)?;
        Ok(new)
    }

    /// Has the kernel write no more. What it has written can be read.
    pub fn end(&self) -> Result<(), Refusal> {
        self.device.trace(0)
    }

    fn bytes(&self, offset: usize, length: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; length];
        self.device.channel_bytes(self.cell, offset as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// How many events each CPU has written.
    fn written(&self) -> Result<Vec<u64>, Refusal> {
        let bytes = self.bytes(offset_of!(Channel, trace_written), self.read.len() * 8)?;
        Ok((0..self.read.len()).map(|cpu| View(&bytes).u64(cpu * 8)).collect())
    }

    /// Reads what came since the last time.
    pub fn read(&mut self) -> Result<(), Refusal> {
        let page = self.bytes(offset_of!(Channel, time), size_of::<TimePage>())?;
        if let Some(clock) = Clock::parse(View(&page)) {
            self.clock = clock;
        }
        let written = self.written()?;
        for (cpu, end) in RealmCpu::all().zip(written) {
            let mut from = self.read[cpu.get()];
            if end.wrapping_sub(from) > self.capacity {
                let kept = end.saturating_sub(self.capacity);
                self.record.lost += kept.saturating_sub(from);
                from = kept;
            }
            let bytes = self.ring(cpu, from, end)?;
            // What was overwritten meanwhile may be mixed; the one that is being written is not
            // counted yet.
            let now = self.written()?.get(cpu.get()).copied().unwrap_or(end);
            let whole = (now + 1).saturating_sub(self.capacity).clamp(from, end);
            self.record.lost += whole - from;
            let events = bytes.chunks_exact(EVENT).skip((whole - from) as usize);
            let events = events.map(|bytes| self.event(cpu, View(bytes))).collect::<Vec<_>>();
            self.record.events.extend(events);
            self.read[cpu.get()] = end;
        }
        // Names of threads change rarely; those that end are seen by a look now and then.
        if self.rounds.is_multiple_of(8) {
            self.read_names()?;
        }
        self.rounds += 1;
        Ok(())
    }

    /// Events `from..end` of the ring of `cpu`, at most as many as it has.
    fn ring(&self, cpu: RealmCpu, from: u64, end: u64) -> Result<Vec<u8>, Refusal> {
        let start = offset_of!(Channel, trace_events) + cpu.get() * self.capacity as usize * EVENT;
        let mut bytes = Vec::new();
        let mut at = from;
        while at < end {
            let place = at % self.capacity;
            let count = (end - at).min(self.capacity - place);
            let piece = self.bytes(start + place as usize * EVENT, count as usize * EVENT)?;
            bytes.extend(piece);
            at += count;
        }
        Ok(bytes)
    }

    fn event(&self, cpu: RealmCpu, view: View<'_>) -> Event {
        Event {
            time: self.clock.time(view.u64(offset_of!(TraceEvent, time))),
            cpu,
            kind: view.u32(offset_of!(TraceEvent, kind)),
            thread: view.u32(offset_of!(TraceEvent, thread)),
            first: view.u64(offset_of!(TraceEvent, first)),
            second: view.u64(offset_of!(TraceEvent, second)),
        }
    }

    /// Reads the names of threads and devices that are there now.
    pub fn read_names(&mut self) -> Result<(), Refusal> {
        for thread in self.device.threads(self.cell)? {
            let name = Name { pid: thread.pid, command: thread.command };
            self.record.names.insert(thread.tid, name);
        }
        let devices = self.device.counters(self.cell)?.devices;
        let devices = devices.into_iter().map(|device| (device.vector, device.device));
        self.record.devices.extend(devices);
        Ok(())
    }

    /// The events that were read and not forgotten; those behind `from` were read last.
    pub fn events(&self, from: usize) -> &[Event] {
        self.record.events.get(from..).unwrap_or_default()
    }

    /// How many events were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.record.lost
    }

    /// The threads of programs that were seen.
    pub fn names(&self) -> impl Iterator<Item = (&Tid, &Name)> {
        self.record.names.iter()
    }

    /// What is known of a thread of a program.
    pub fn name(&self, thread: u32) -> Option<&Name> {
        self.record.name(thread)
    }

    /// What was read of the time from `from` to `to` and not forgotten.
    pub fn between(&self, from: u64, to: u64) -> Record {
        let all = self.record.events.iter();
        let mut events: Vec<_> =
            all.filter(|event| (from..=to).contains(&event.time)).copied().collect();
        events.sort_by_key(|event| event.time);
        let Record { lost, names, devices, .. } = &self.record;
        Record { events, lost: *lost, names: names.clone(), devices: devices.clone() }
    }

    /// Forgets events before a time. Returns how many are left.
    pub fn forget_before(&mut self, time: u64) -> usize {
        self.record.events.retain(|event| event.time >= time);
        self.record.events.len()
    }

    /// All that was read.
    pub fn finish(mut self) -> Record {
        // If the realm ends meanwhile, the names are those of before.
        let _ = self.read_names();
        self.record.events.sort_by_key(|event| event.time);
        self.record
    }
}
