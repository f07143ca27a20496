// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be measured, and under which loads.

/// How a figure is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Debian's cyclictest.
    Cyclictest,
    /// a program of `tools/bench/`, by its name; the figure's name is its argument.
    Program(&'static str),
    /// By `crtos bench` itself: `crtos up` and `crtos down` of the realm.
    UpDown,
}

/// What the figures are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// From an interrupt that is due to the thread; measured under every load.
    Latency,
    /// System calls that the realm does itself.
    LocalCall,
    /// System calls that Linux does for the realm.
    RemoteCall,
    /// Threads and processes.
    Threads,
    /// Everything else.
    Other,
}

impl Group {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 5] =
        [Self::Latency, Self::LocalCall, Self::RemoteCall, Self::Threads, Self::Other];

    /// A heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Latency => "Timer and interrupt latency",
            Self::LocalCall => "System calls, local in the realm",
            Self::RemoteCall => "System calls, remote in the realm",
            Self::Threads => "Threads and processes",
            Self::Other => "Other",
        }
    }
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name on command lines and in JSON.
    pub name: &'static str,
    /// What it is, for tables.
    pub title: &'static str,
    /// Its group.
    pub group: Group,
    /// What measures it.
    pub how: How,
    /// Samples in the full set; of latencies what the settings say.
    pub samples: u64,
    /// It needs two CPUs of its system.
    pub two_cpus: bool,
    /// Only the realm has it.
    pub realm_only: bool,
    /// It is of devices that only the emulated machine has.
    pub devices: bool,
}

const fn figure(
    name: &'static str,
    title: &'static str,
    group: Group,
    program: &'static str,
    samples: u64,
) -> Figure {
    Figure {
        name,
        title,
        group,
        how: How::Program(program),
        samples,
        two_cpus: false,
        realm_only: false,
        devices: false,
    }
}

const fn across(figure: Figure) -> Figure {
    Figure { two_cpus: true, ..figure }
}

const fn of_device(figure: Figure) -> Figure {
    Figure { devices: true, ..figure }
}

/// Name of the figure that cyclictest gives.
pub const CYCLICTEST: &str = "cyclictest";
/// Name of the figure of the clock readings themselves.
pub const OVERHEAD: &str = "overhead";

/// All figures, in the order of tables.
pub const FIGURES: &[Figure] = &[
    Figure {
        how: How::Cyclictest,
        ..figure(CYCLICTEST, "cyclictest, SCHED_FIFO", Group::Latency, "", 0)
    },
    figure("interrupt", "interrupt to a thread in read()", Group::Latency, "timer", 0),
    of_device(figure(
        "uio",
        "interrupt of a PCI function to a thread in read()",
        Group::Latency,
        "device",
        0,
    )),
    of_device(figure(
        "uio-poll",
        "interrupt of a PCI function to a thread in poll()",
        Group::Latency,
        "device",
        0,
    )),
    of_device(figure(
        "uart",
        "interrupt of a UART to a thread in read()",
        Group::Latency,
        "device",
        0,
    )),
    of_device(figure(
        "can",
        "interrupt of a CAN controller to a thread in read()",
        Group::Latency,
        "device",
        0,
    )),
    of_device(figure(
        "net",
        "send() by a network card to a thread in read() by another",
        Group::Latency,
        "device",
        0,
    )),
    figure(OVERHEAD, "reading the clock twice", Group::LocalCall, "syscalls", 10_000),
    figure("getpid", "getpid", Group::LocalCall, "syscalls", 10_000),
    figure("read-zero", "read of /dev/zero", Group::LocalCall, "syscalls", 10_000),
    figure("write-null", "write to /dev/null", Group::LocalCall, "syscalls", 10_000),
    figure("open-close", "open and close of /dev/zero", Group::LocalCall, "syscalls", 10_000),
    figure("clock-call", "clock_gettime, system call", Group::LocalCall, "syscalls", 10_000),
    figure("clock", "clock_gettime, C library", Group::LocalCall, "syscalls", 10_000),
    figure("file-read", "pread of a file", Group::RemoteCall, "syscalls", 10_000),
    figure("file-write", "pwrite to a file", Group::RemoteCall, "syscalls", 10_000),
    figure("file-open-close", "open and close of a file", Group::RemoteCall, "syscalls", 5_000),
    figure("doorbell", "umask: doorbell and back", Group::RemoteCall, "syscalls", 10_000),
    figure("futex-wake", "futex wake to run, same CPU", Group::Threads, "futex", 5_000),
    across(figure(
        "futex-wake-across",
        "futex wake to run, across CPUs",
        Group::Threads,
        "futex",
        2_000,
    )),
    figure("switch-process", "context switch, processes", Group::Threads, "switch", 10_000),
    figure("switch-thread", "context switch, threads", Group::Threads, "switch", 10_000),
    figure("pipe", "pipe round trip, same CPU", Group::Threads, "pipe", 5_000),
    across(figure("pipe-across", "pipe round trip, across CPUs", Group::Threads, "pipe", 2_000)),
    figure("signal", "signal to handler", Group::Threads, "signal", 5_000),
    figure("signal-return", "signal, handler and return", Group::Threads, "signal", 5_000),
    figure("thread-start", "thread start", Group::Threads, "thread", 1_000),
    figure("thread-join", "thread start to join", Group::Threads, "thread", 1_000),
    figure("fork-exit", "fork, exit, wait", Group::Threads, "process", 300),
    figure("fork-exec", "fork, exec, exit, wait", Group::Threads, "process", 200),
    figure("compute", "10 M instructions of computation", Group::Other, "compute", 100),
    figure("compute-timer", "the same with a 1 kHz timer", Group::Other, "compute", 100),
    Figure { how: How::UpDown, realm_only: true, ..figure("up", "crtos up", Group::Other, "", 10) },
    Figure {
        how: How::UpDown,
        realm_only: true,
        ..figure("down", "crtos down", Group::Other, "", 10)
    },
];

impl Figure {
    /// The figure of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| figure.name == name)
    }

    /// Whether it is measured under every load; the others are measured without load.
    pub fn under_load(&self) -> bool {
        self.group == Group::Latency
    }
}

/// What keeps Linux busy meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// The command; it runs until it is killed. Empty for none.
    pub command: &'static [&'static str],
}

const fn stress(name: &'static str, command: &'static [&'static str]) -> Load {
    Load { name, command }
}

/// Name of the load that is none.
pub const NO_LOAD: &str = "none";

/// All loads: hackbench, and ten stressors of stress-ng at once, as in the paper. Sizes of
/// memory are such that ten fit into a small machine.
pub const LOADS: &[Load] = &[
    Load { name: NO_LOAD, command: &[] },
    Load { name: "hackbench", command: &["hackbench", "-g", "10", "-l", "1000000000"] },
    stress("cpu", &["stress-ng", "--cpu", "10"]),
    stress("vm", &["stress-ng", "--vm", "10", "--vm-bytes", "32M"]),
    stress("stream", &["stress-ng", "--stream", "10", "--stream-l3-size", "1M"]),
    stress("fork", &["stress-ng", "--fork", "10"]),
    stress("io", &["stress-ng", "--io", "10"]),
    stress("timer", &["stress-ng", "--timer", "10", "--timer-freq", "10000"]),
    stress("sock", &["stress-ng", "--sock", "10"]),
    stress("udp", &["stress-ng", "--udp", "10"]),
];

impl Load {
    /// The load of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        LOADS.iter().find(|load| load.name == name)
    }

    /// The command line, for readers.
    pub fn describe(&self) -> String {
        match self.command {
            [] => "nothing".into(),
            words => words.join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, figure) in FIGURES.iter().enumerate() {
            assert!(
                FIGURES[..index].iter().all(|other| other.name != figure.name),
                "{}",
                figure.name
            );
        }
        for (index, load) in LOADS.iter().enumerate() {
            assert!(LOADS[..index].iter().all(|other| other.name != load.name), "{}", load.name);
        }
    }

    #[test]
    fn every_figure_has_its_program_and_its_words() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let words = std::fs::read_to_string(format!("{root}/docs/measuring.md")).unwrap();
        for figure in FIGURES {
            assert!(
                words.contains(&format!("`{}`", figure.name)),
                "docs/measuring.md lacks {}",
                figure.name
            );
            if let How::Program(name) = figure.how {
                let source =
                    std::fs::read_to_string(format!("{root}/tools/bench/{name}.c")).unwrap();
                assert!(
                    source.contains(&format!("\"{}\"", figure.name)),
                    "{name}.c lacks {}",
                    figure.name
                );
            }
        }
        for load in LOADS {
            assert!(
                words.contains(&format!("`{}`", load.name)),
                "docs/measuring.md lacks {}",
                load.name
            );
        }
    }
}
