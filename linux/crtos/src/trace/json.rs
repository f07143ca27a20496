// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace event format: JSON that Perfetto and Trace Compass open.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{
    collect::Record,
    timeline::{Item, Timeline},
};

/// Formats a time in microseconds with three digits behind the point, as the format wants it. No
/// binary fraction is exact enough for nanoseconds after some months.
pub fn micros(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// Writes the trace.
pub fn write(to: &mut dyn Write, record: &Record, timeline: &Timeline) -> io::Result<()> {
    let about = json!({
        "clock": "CLOCK_MONOTONIC",
        "events": record.events.len(),
        "lost_events": record.lost,
        "crtos": env!("CARGO_PKG_VERSION"),
    });
    // Without `displayTimeUnit`: Perfetto took `ns` there for the unit of the times until 2022.
    write!(to, "{{\"otherData\":{about},\"traceEvents\":[")?;
    let mut separator = "";
    let mut line = |text: String| {
        let result = write!(to, "{separator}\n{text}");
        separator = ",";
        result
    };
    for (process, name) in &timeline.processes {
        line(metadata("process_name", *process, 0, name))?;
    }
    for (row, name) in &timeline.rows {
        line(metadata("thread_name", row.process, row.thread, name))?;
    }
    for item in &timeline.items {
        line(event(item))?;
    }
    writeln!(to, "\n]}}")
}

fn metadata(kind: &str, process: u32, thread: u32, name: &str) -> String {
    json!({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}})
        .to_string()
}

fn event(item: &Item) -> String {
    let (name, details) = (json!(item.name), details(item));
    let (process, thread, start) = (item.row.process, item.row.thread, micros(item.start));
    let kind = match item.duration {
        Some(duration) => format!("\"ph\":\"X\",\"dur\":{}", micros(duration)),
        None => "\"ph\":\"i\",\"s\":\"t\"".to_string(),
    };
    format!(
        "{{{kind},\"name\":{name},\"pid\":{process},\"tid\":{thread},\"ts\":{start},\"args\":{details}}}"
    )
}

fn details(item: &Item) -> Value {
    let pairs = item.details.iter().map(|(name, value)| ((*name).to_string(), json!(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{
        collect::{Event, Name},
        timeline,
    };
    use crtos_abi::{
        channel::*,
        ids::{Pid, RealmCpu, Tid},
    };
    use proptest::prelude::*;

    fn parse(record: &Record) -> Value {
        let mut bytes = Vec::new();
        write(&mut bytes, record, &timeline::build(record, &[3])).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn event(time: u64, kind: u32, thread: u32, first: u64, second: u64) -> Event {
        Event { time, cpu: RealmCpu::first(), kind, thread, first, second }
    }

    fn of<'a>(value: &'a Value, kind: &str) -> Vec<&'a Value> {
        let events = value["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == kind).collect()
    }

    #[test]
    fn a_remote_read() {
        let events = vec![
            event(1000, TRACE_SWITCH, TRACE_KERNEL_THREAD, 80 << 32 | 42, 0),
            event(1500, TRACE_CALL, 42, 0, 5),
            event(2000, TRACE_REMOTE, 42, 0, 0),
            event(2001, TRACE_DOORBELL, 42, 0, 0),
            event(7000, TRACE_REMOTE_END, 42, 0, 1),
            event(8000, TRACE_CALL_END, 42, 0, 1),
            event(9000, TRACE_CALL, 42, 39, 0),
            event(9001, TRACE_INTERRUPT, 42, 0xd1, 0),
            event(9002, TRACE_INTERRUPT_END, 42, 0, 0),
        ];
        let name = Name { pid: Pid::new(40).unwrap(), command: "a \"quoted\"\nname".into() };
        let names = [(Tid::new(42).unwrap(), name)].into();
        let record = Record { events, lost: 7, names, devices: [(0xd1, "ttyS1".into())].into() };
        let value = parse(&record);
        assert_eq!(value["otherData"]["lost_events"], 7);
        assert!(value.get("displayTimeUnit").is_none());
        let slices = of(&value, "X");
        let slice = |name: &str| *slices.iter().find(|slice| slice["name"] == name).unwrap();
        let (read, linux) = (slice("read"), slice("Linux: read"));
        assert_eq!((read["pid"].as_u64(), read["tid"].as_u64()), (Some(40), Some(42)));
        assert_eq!((read["ts"].as_f64(), read["dur"].as_f64()), (Some(1.5), Some(6.5)));
        assert_eq!(read["args"]["result"], "1");
        assert_eq!((linux["ts"].as_f64(), linux["dur"].as_f64()), (Some(2.0), Some(5.0)));
        // What did not end goes on to the end.
        assert_eq!(slice("getpid")["dur"].as_f64(), Some(0.002));
        assert_eq!(slice("interrupt of ttyS1")["ts"].as_f64(), Some(9.001));
        assert_eq!(of(&value, "i")[0]["name"], "doorbell of Linux");
        assert!(of(&value, "M").iter().any(|meta| meta["args"]["name"] == "CPU 3"));
    }

    proptest! {
        /// Whatever the kernel, or Linux in its place, stores there.
        #[test]
        fn slices_of_a_row_nest(
            raw in prop::collection::vec((0u32..12, 0u32..4, any::<u8>(), any::<u64>()), 0..200),
        ) {
            let events = raw.iter().zip(0..).map(|(&(kind, thread, first, second), time)| {
                event(time * 10, kind, thread, first.into(), second)
            });
            let record = Record { events: events.collect(), ..Default::default() };
            let value = parse(&record);
            let slices = of(&value, "X");
            let span = |slice: &Value| {
                let number = |name: &str| (slice[name].as_f64().unwrap() * 1000.0).round() as u64;
                (number("ts"), number("ts") + number("dur"))
            };
            for (index, one) in slices.iter().enumerate() {
                for other in &slices[..index] {
                    if one["pid"] != other["pid"] || one["tid"] != other["tid"] {
                        continue;
                    }
                    let ((a, b), (c, d)) = (span(one), span(other));
                    prop_assert!(b <= c || d <= a || a <= c && d <= b || c <= a && b <= d);
                }
            }
        }
    }
}
