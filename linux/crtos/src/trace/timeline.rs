// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes slices and instants of events: one row for each CPU with what it ran, one for each thread
//! with its system calls.

use std::collections::BTreeMap;

use crtos_abi::channel::{
    KICK_VECTOR, OP_SYSCALL, TIMER_VECTOR, TRACE_CALL, TRACE_CALL_END, TRACE_DOORBELL, TRACE_FAULT,
    TRACE_INTERRUPT, TRACE_INTERRUPT_END, TRACE_KERNEL_THREAD, TRACE_REMOTE, TRACE_REMOTE_END,
    TRACE_SWITCH, TRACE_WAKE,
};
use crtos_channel::operation;

use super::collect::{Event, Name, Record};
use crate::text::harmless;

/// Stands for the CPUs where a process is expected; no process of Linux has such an id.
pub const CPUS: u32 = 10_000_000;
/// Stands for the real-time kernel.
pub const KERNEL: u32 = 10_000_001;

/// A row of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Process id, [`CPUS`] or [`KERNEL`].
    pub process: u32,
    /// Thread id, or Linux's number of a CPU.
    pub thread: u32,
}

/// Something on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its row.
    pub row: Row,
    /// Its name.
    pub name: String,
    /// Beginning, nanoseconds.
    pub start: u64,
    /// Duration, nanoseconds; an instant has none.
    pub duration: Option<u64>,
    /// Further values.
    pub details: Vec<(&'static str, String)>,
}

/// What is shown.
#[derive(Debug, Default)]
pub struct Timeline {
    /// In no particular order.
    pub items: Vec<Item>,
    /// Names of processes.
    pub processes: BTreeMap<u32, String>,
    /// Names of rows.
    pub rows: BTreeMap<Row, String>,
}

/// A slice whose end was not seen yet.
struct Open {
    name: String,
    start: u64,
    /// The kind of event that ends it.
    until: u32,
    details: Vec<(&'static str, String)>,
}

struct Builder<'a> {
    record: &'a Record,
    cpus: &'a [u32],
    timeline: Timeline,
    /// Slices, the innermost last.
    open: BTreeMap<Row, Vec<Open>>,
    kernel_names: BTreeMap<u32, String>,
}

/// Lays out what was recorded on `cpus`, Linux's numbers in the order of the cell.
pub fn build(record: &Record, cpus: &[u32]) -> Timeline {
    let mut builder = Builder {
        record,
        cpus,
        timeline: Timeline::default(),
        open: BTreeMap::new(),
        kernel_names: BTreeMap::new(),
    };
    for event in &record.events {
        builder.add(event);
    }
    builder.finish()
}

/// Returns the name of a system call.
pub fn call_name(number: u64) -> String {
    match crtos_syscalls::lookup(number) {
        Some(row) => row.name.to_string(),
        None => format!("system call {number}"),
    }
}

/// Returns the name of a request to Linux.
fn request_name(op: u64, number: u64) -> String {
    match op as u32 {
        OP_SYSCALL => format!("Linux: {}", call_name(number)),
        other => match operation::name(other) {
            Some(name) => format!("Linux: {name}"),
            None => format!("Linux: request {op}"),
        },
    }
}

impl Builder<'_> {
    fn cpu(&self, event: &Event) -> Row {
        Row { process: CPUS, thread: self.cpus.get(event.cpu.get()).copied().unwrap_or(u32::MAX) }
    }

    fn thread(&self, thread: u32) -> Row {
        if thread & TRACE_KERNEL_THREAD != 0 {
            return Row { process: KERNEL, thread: thread & !TRACE_KERNEL_THREAD };
        }
        let process = self.program(thread).map_or(thread, |name| name.pid.get());
        Row { process, thread }
    }

    /// What is known of a program's thread.
    fn program(&self, thread: u32) -> Option<&Name> {
        self.record.name(thread)
    }

    /// Returns a thread's name for people.
    fn name(&self, thread: u32) -> String {
        if thread & TRACE_KERNEL_THREAD != 0 {
            return match self.kernel_names.get(&thread) {
                Some(name) => name.clone(),
                None => format!("kernel thread {}", thread & !TRACE_KERNEL_THREAD),
            };
        }
        match self.program(thread) {
            Some(name) => harmless(name.command.as_bytes()),
            None => format!("thread {thread}"),
        }
    }

    /// Learns the name that came with an event.
    fn learn(&mut self, event: &Event) {
        let thread = event.first as u32;
        if thread & TRACE_KERNEL_THREAD != 0 {
            let bytes = event.second.to_le_bytes();
            let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            let name = harmless(&bytes[..length]);
            if !name.is_empty() {
                self.kernel_names.insert(thread, name);
            }
        }
    }

    fn begin(
        &mut self,
        row: Row,
        start: u64,
        until: u32,
        name: String,
        details: Vec<(&'static str, String)>,
    ) {
        self.open.entry(row).or_default().push(Open { name, start, until, details });
    }

    /// Ends the innermost slice of `row` that `kind` ends, and what is inside of it.
    fn end(&mut self, row: Row, kind: u32, time: u64, detail: Option<(&'static str, String)>) {
        let Some(stack) = self.open.get_mut(&row) else { return };
        let Some(place) = stack.iter().rposition(|open| open.until == kind) else { return };
        let mut ended = stack.split_off(place);
        if let (Some(first), Some(detail)) = (ended.first_mut(), detail) {
            first.details.push(detail);
        }
        self.close(row, ended, time);
    }

    fn close(&mut self, row: Row, ended: Vec<Open>, time: u64) {
        let items = ended.into_iter().map(|open| Item {
            row,
            name: open.name,
            start: open.start,
            duration: Some(time.saturating_sub(open.start)),
            details: open.details,
        });
        self.timeline.items.extend(items);
    }

    fn instant(&mut self, row: Row, time: u64, name: String, details: Vec<(&'static str, String)>) {
        self.timeline.items.push(Item { row, name, start: time, duration: None, details });
    }

    fn add(&mut self, event: &Event) {
        let (cpu, thread, time) = (self.cpu(event), self.thread(event.thread), event.time);
        let hex = |value: u64| format!("{value:#x}");
        match event.kind {
            TRACE_SWITCH => {
                self.learn(event);
                let next = event.first as u32;
                let mut name = self.name(next);
                let mut details = vec![("priority", (event.first >> 32).to_string())];
                if next & TRACE_KERNEL_THREAD == 0 {
                    name = format!("{name} ({next})");
                    details.push(("tid", next.to_string()));
                }
                self.end(cpu, TRACE_SWITCH, time, None);
                if name != "idle" {
                    self.begin(cpu, time, TRACE_SWITCH, name, details);
                }
            }
            TRACE_WAKE => {
                self.learn(event);
                let woken = event.first as u32;
                let details = vec![
                    ("tid", (woken & !TRACE_KERNEL_THREAD).to_string()),
                    ("priority", (event.first >> 32).to_string()),
                ];
                self.instant(cpu, time, format!("wake {}", self.name(woken)), details);
            }
            TRACE_INTERRUPT => {
                let name = match u8::try_from(event.first) {
                    Ok(TIMER_VECTOR) => "interrupt of the timer".to_string(),
                    Ok(KICK_VECTOR) => "interrupt of another CPU".to_string(),
                    Ok(vector) => match self.record.devices.get(&vector) {
                        Some(device) => format!("interrupt of {device}"),
                        None => format!("interrupt {vector}"),
                    },
                    _ => format!("interrupt {}", event.first),
                };
                self.begin(cpu, time, TRACE_INTERRUPT_END, name, Vec::new());
            }
            TRACE_INTERRUPT_END => self.end(cpu, TRACE_INTERRUPT_END, time, None),
            TRACE_CALL => {
                // A call that never returned: execve, rt_sigreturn, the end of a thread that had
                // this id.
                self.end(thread, TRACE_CALL_END, time, None);
                let details = vec![("first argument", hex(event.second))];
                self.begin(thread, time, TRACE_CALL_END, call_name(event.first), details);
            }
            TRACE_CALL_END => {
                let result = ("result", (event.second as i64).to_string());
                self.end(thread, TRACE_CALL_END, time, Some(result));
            }
            TRACE_REMOTE => {
                let name = request_name(event.first, event.second);
                self.begin(thread, time, TRACE_REMOTE_END, name, Vec::new());
            }
            TRACE_REMOTE_END => {
                let result = ("result", (event.second as i64).to_string());
                self.end(thread, TRACE_REMOTE_END, time, Some(result));
            }
            TRACE_FAULT => {
                let details = vec![("address", hex(event.first)), ("error", hex(event.second))];
                self.instant(thread, time, "page fault".into(), details);
            }
            TRACE_DOORBELL => self.instant(cpu, time, "doorbell of Linux".into(), Vec::new()),
            _ => {}
        }
    }

    fn finish(mut self) -> Timeline {
        let last = self.record.events.last().map_or(0, |event| event.time);
        for (row, open) in std::mem::take(&mut self.open) {
            self.close(row, open, last);
        }
        let rows: std::collections::BTreeSet<Row> =
            self.timeline.items.iter().map(|item| item.row).collect();
        for row in rows {
            let (process, name) = match row.process {
                CPUS => ("CPUs of the realm".to_string(), format!("CPU {}", row.thread)),
                KERNEL => {
                    let name = self.name(row.thread | TRACE_KERNEL_THREAD);
                    ("real-time kernel".to_string(), name)
                }
                process => (self.name(process), self.name(row.thread)),
            };
            self.timeline.processes.insert(row.process, process);
            self.timeline.rows.insert(row, name);
        }
        self.timeline
    }
}
