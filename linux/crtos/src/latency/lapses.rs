// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lapses of threads, made of the events of a trace.

use std::collections::{BTreeMap, BTreeSet};

use crtos_abi::channel::{
    LAPSE_FAULT, LAPSE_MEMORY, OP_SYSCALL, TRACE_CALL, TRACE_CALL_END, TRACE_FAULT,
    TRACE_FAULT_END, TRACE_LAPSE, TRACE_MAPPED, TRACE_MAPPING, TRACE_PATH, TRACE_REGISTERS,
    TRACE_REMOTE, TRACE_REMOTE_END, TRACE_STACK,
};
use crtos_channel::operation;
use serde::Serialize;

use crate::{
    text::harmless,
    trace::{collect::Event, timeline::call_name},
};

/// What kind of lapse it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Linux did something.
    Remote,
    /// A page was not there, or not to be written to.
    PageFault,
    /// A system call changed the program's memory.
    Memory,
}

/// Where a program was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The instruction pointer.
    pub instruction: u64,
    /// Stack pointer and RBP, if stacks were recorded.
    pub registers: Option<(u64, u64)>,
    /// Words from the stack pointer up.
    pub stack: Vec<u64>,
}

/// Something that has no worst case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapse {
    /// The thread.
    pub thread: u32,
    /// Its kind.
    pub kind: Kind,
    /// What it was, in words.
    pub what: String,
    /// What Linux did meanwhile.
    pub inside: BTreeSet<String>,
    /// When it began, nanoseconds.
    pub start: u64,
    /// How long it took; `None` if its end was not seen.
    pub duration: Option<u64>,
    /// Where the program was.
    pub place: Place,
}

/// A file that a program executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The thread that mapped it.
    pub thread: u32,
    /// Its address.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub path: Vec<u8>,
}

/// What events tell.
#[derive(Debug)]
pub enum Told {
    /// A lapse is over.
    Lapse(Lapse),
    /// A program has mapped a file.
    Mapping(Mapping),
}

/// A thread, as far as events have told of it.
#[derive(Default)]
struct Thread {
    /// The system call that it makes.
    call: u64,
    /// The lapse that it is in. Others within it are part of it.
    open: Option<Open>,
    mapping: Option<Mapping>,
}

struct Open {
    lapse: Lapse,
    /// Whether it is known what it is.
    is_named: bool,
    /// The kind of event that ends it.
    until: u32,
    /// How many such ends are those of other lapses within it.
    within: u32,
}

/// Makes lapses of events in the order of time.
#[derive(Default)]
pub struct Reader(BTreeMap<u32, Thread>);

impl Reader {
    /// Takes an event. Returns what is complete by it.
    pub fn add(&mut self, event: &Event) -> Option<Told> {
        let thread = self.0.entry(event.thread).or_default();
        match event.kind {
            TRACE_CALL => {
                thread.call = event.first;
                // Who makes a call is in no lapse: the end of what is open was lost.
                return thread.open.take().map(|open| Told::Lapse(open.lapse));
            }
            TRACE_LAPSE => thread.begin(event),
            TRACE_REGISTERS => thread.registers(event.first, event.second),
            TRACE_STACK => thread.stack([event.first, event.second]),
            TRACE_REMOTE => thread.name_remote(event.first, event.second),
            TRACE_FAULT => thread.name_fault(event.second),
            TRACE_REMOTE_END | TRACE_FAULT_END | TRACE_CALL_END => {
                return thread.end(event).map(Told::Lapse);
            }
            TRACE_MAPPING => {
                let (start, offset) = (event.first, event.second);
                let (length, path) = (0, Vec::new());
                let mapping = Mapping { thread: event.thread, start, length, offset, path };
                thread.mapping = Some(mapping);
            }
            TRACE_PATH => {
                let path = thread.mapping.as_mut().map(|mapping| &mut mapping.path)?;
                let bytes = [event.first.to_le_bytes(), event.second.to_le_bytes()].concat();
                path.extend(bytes.into_iter().filter(|byte| *byte != 0));
            }
            TRACE_MAPPED => {
                let mapping = thread.mapping.take()?;
                return Some(Told::Mapping(Mapping { length: event.first, ..mapping }));
            }
            _ => {}
        }
        None
    }

    /// Returns the lapses whose end was not seen.
    pub fn finish(self) -> impl Iterator<Item = Lapse> {
        self.0.into_values().filter_map(|thread| thread.open).map(|open| open.lapse)
    }
}

impl Thread {
    fn begin(&mut self, event: &Event) {
        let (kind, until) = match event.second as u32 {
            LAPSE_MEMORY => (Kind::Memory, TRACE_CALL_END),
            LAPSE_FAULT => (Kind::PageFault, TRACE_FAULT_END),
            _ => (Kind::Remote, TRACE_REMOTE_END),
        };
        if let Some(open) = &mut self.open {
            open.within += u32::from(open.until == until);
            return;
        }
        let lapse = Lapse {
            thread: event.thread,
            kind,
            what: call_name(self.call),
            inside: BTreeSet::new(),
            start: event.time,
            duration: None,
            place: Place { instruction: event.first, ..Place::default() },
        };
        let is_named = kind == Kind::Memory;
        self.open = Some(Open { lapse, is_named, until, within: 0 });
    }

    /// The lapse of which the place is told now. Those within another one have none.
    fn unnamed(&mut self) -> Option<&mut Open> {
        self.open.as_mut().filter(|open| open.within == 0 && open.lapse.inside.is_empty())
    }

    fn registers(&mut self, stack: u64, frame: u64) {
        if let Some(open) = self.unnamed().filter(|open| open.lapse.place.registers.is_none()) {
            open.lapse.place.registers = Some((stack, frame));
        }
    }

    fn stack(&mut self, words: [u64; 2]) {
        if let Some(open) = self.unnamed() {
            open.lapse.place.stack.extend(words);
        }
    }

    fn name_remote(&mut self, op: u64, number: u64) {
        let call = self.call;
        let Some(open) = &mut self.open else { return };
        let name = match op as u32 {
            OP_SYSCALL => call_name(number),
            other => match operation::name(other) {
                Some(name) => name.to_string(),
                None => format!("request {op}"),
            },
        };
        if open.is_named {
            open.lapse.inside.insert(name);
            return;
        }
        open.is_named = true;
        open.lapse.what = call_name(call);
        if open.lapse.what != name {
            open.lapse.inside.insert(name);
        }
    }

    fn name_fault(&mut self, error: u64) {
        const PRESENT: u64 = 1;
        const WRITE: u64 = 1 << 1;
        const FETCH: u64 = 1 << 4;
        if let Some(open) = self.open.as_mut().filter(|open| !open.is_named) {
            open.is_named = true;
            open.lapse.what = match error {
                e if e & PRESENT != 0 => "write to a shared page",
                e if e & FETCH != 0 => "first execution of a page",
                e if e & WRITE != 0 => "first write to a page",
                _ => "first read of a page",
            }
            .into();
        }
    }

    fn end(&mut self, event: &Event) -> Option<Lapse> {
        let open = self.open.as_mut().filter(|open| open.until == event.kind)?;
        if open.within > 0 {
            open.within -= 1;
            return None;
        }
        let mut lapse = self.open.take()?.lapse;
        lapse.duration = Some(event.time.saturating_sub(lapse.start));
        Some(lapse)
    }
}

impl Mapping {
    /// Returns the path for people.
    pub fn name(&self) -> String {
        harmless(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use crtos_abi::{channel::LAPSE_REMOTE, ids::RealmCpu};

    use super::*;

    const WRITE: u64 = 1;
    const MMAP: u64 = 9;

    fn read(events: &[(u64, u32, u64, u64)]) -> (Vec<Lapse>, Vec<Mapping>, Vec<Lapse>) {
        let mut reader = Reader::default();
        let (mut lapses, mut mappings) = (Vec::new(), Vec::new());
        for &(time, kind, first, second) in events {
            let cpu = RealmCpu::new(0).unwrap();
            match reader.add(&Event { time, cpu, kind, thread: 7, first, second }) {
                Some(Told::Lapse(lapse)) => lapses.push(lapse),
                Some(Told::Mapping(mapping)) => mappings.push(mapping),
                None => {}
            }
        }
        (lapses, mappings, reader.finish().collect())
    }

    #[test]
    fn a_call_of_linux_has_name_time_and_place() {
        let (lapses, _, open) = read(&[
            (10, TRACE_CALL, WRITE, 1),
            (11, TRACE_LAPSE, 0x1234, 80 << 32 | u64::from(LAPSE_REMOTE)),
            (11, TRACE_REGISTERS, 0x7000, 0x7100),
            (11, TRACE_STACK, 1, 2),
            (11, TRACE_STACK, 3, 4),
            (12, TRACE_REMOTE, OP_SYSCALL.into(), WRITE),
            (40, TRACE_REMOTE_END, OP_SYSCALL.into(), 1),
            (41, TRACE_CALL_END, WRITE, 1),
        ]);
        let [lapse] = &lapses[..] else { panic!("{lapses:?}") };
        assert_eq!((lapse.kind, &*lapse.what, lapse.duration), (Kind::Remote, "write", Some(29)));
        assert_eq!(lapse.place.instruction, 0x1234);
        assert_eq!(lapse.place.registers, Some((0x7000, 0x7100)));
        assert_eq!(lapse.place.stack, [1, 2, 3, 4]);
        assert!(lapse.inside.is_empty() && open.is_empty());
    }

    #[test]
    fn ordinary_threads_have_no_lapses() {
        let (lapses, _, open) = read(&[
            (10, TRACE_CALL, WRITE, 1),
            (12, TRACE_REMOTE, OP_SYSCALL.into(), WRITE),
            (40, TRACE_REMOTE_END, OP_SYSCALL.into(), 1),
            (50, TRACE_FAULT, 0x5000, 2),
            (51, TRACE_FAULT_END, 0x5000, 0),
        ]);
        assert!(lapses.is_empty() && open.is_empty());
    }

    #[test]
    fn what_linux_does_within_a_lapse_is_part_of_it() {
        let (lapses, _, open) = read(&[
            (10, TRACE_CALL, MMAP, 0),
            (11, TRACE_LAPSE, 0x1, u64::from(LAPSE_MEMORY)),
            (12, TRACE_LAPSE, 0x1, u64::from(LAPSE_REMOTE)),
            (12, TRACE_REMOTE, OP_SYSCALL.into(), MMAP),
            (30, TRACE_REMOTE_END, OP_SYSCALL.into(), 0),
            (31, TRACE_CALL_END, MMAP, 0),
            (40, TRACE_LAPSE, 0x2, u64::from(LAPSE_FAULT)),
            (40, TRACE_FAULT, 0x5000, 6),
            (43, TRACE_FAULT_END, 0x5000, 0),
            (50, TRACE_LAPSE, 0x3, u64::from(LAPSE_FAULT)),
            (50, TRACE_FAULT, 0x5000, 7),
        ]);
        let [mmap, fault] = &lapses[..] else { panic!("{lapses:?}") };
        assert_eq!((mmap.kind, &*mmap.what, mmap.duration), (Kind::Memory, "mmap", Some(20)));
        assert_eq!(mmap.inside, ["mmap".to_string()].into());
        assert_eq!((fault.kind, &*fault.what), (Kind::PageFault, "first write to a page"));
        let [last] = &open[..] else { panic!("{open:?}") };
        assert_eq!((&*last.what, last.duration), ("write to a shared page", None));
    }

    #[test]
    fn a_path_may_have_any_length() {
        let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
        let (_, mappings, _) = read(&[
            (1, TRACE_MAPPING, 0x40_0000, 0x1000),
            (1, TRACE_PATH, word(b"/usr/lib"), word(b"/long/na")),
            (1, TRACE_PATH, word(b"me\0\0\0\0\0\0"), 0),
            (1, TRACE_MAPPED, 0x2000, 0),
        ]);
        let [mapping] = &mappings[..] else { panic!("{mappings:?}") };
        assert_eq!(mapping.name(), "/usr/lib/long/name");
        assert_eq!((mapping.start, mapping.length, mapping.offset), (0x40_0000, 0x2000, 0x1000));
    }
}
