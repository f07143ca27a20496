// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the real-time kernel tells in the channel (see [`crtos_abi::channel`]): its threads and its
//! counters.

use std::{
    mem::{offset_of, size_of},
    time::Duration,
};

use crtos_abi::{
    MAX_CELL_CPUS,
    channel::{
        self, Channel, DEVICE_VECTOR, DEVICE_VECTORS, DeviceInterrupts, SECTIONS, SLOTS, Slot,
    },
    ids::{Pid, RealmCpu, Tid},
};

use crate::{text::padded, view::View};

/// Bytes of the channel in front of its slots, which [`Counters::parse`] reads.
pub const COUNTERS_SIZE: usize = offset_of!(Channel, revocations);

/// Offset of the slots in the channel.
pub const SLOTS_OFFSET: u64 = offset_of!(Channel, slots) as u64;
/// Bytes of the slots, which [`Thread::parse_all`] reads.
pub const SLOTS_SIZE: usize = SLOTS * size_of::<Slot>();

/// State of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelState {
    /// It has not reported itself yet.
    Starting,
    /// It is ready for processes.
    Ready,
    /// It runs, and takes no new program.
    Sealed,
    /// A fault of its own stopped it.
    Dead,
}

/// Counters of the real-time kernel.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Its state.
    pub state: KernelState,
    /// Doorbells that it rang.
    pub doorbells_sent: u64,
    /// Doorbells that each CPU took, as for `idle`.
    pub doorbells_taken: Vec<u64>,
    /// All pages of the pool.
    pub pool_pages: u64,
    /// Free pages of the pool.
    pub pool_free: u64,
    /// Bytes of its heap.
    pub heap_size: u64,
    /// Bytes of its heap that are in use.
    pub heap_used: u64,
    /// Time that each CPU of the cell was idle, in the cell's order. There is an entry for each CPU
    /// that a cell can have.
    pub idle: Vec<Duration>,
    /// Rank of what each CPU runs, as for `idle`.
    pub ranks: Vec<u32>,
    /// Devices that interrupt it.
    pub devices: Vec<Interrupts>,
}

/// A device that interrupts the real-time kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupts {
    /// By this vector.
    pub vector: u8,
    /// Its name.
    pub device: String,
    /// How often it has.
    pub count: u64,
}

impl Interrupts {
    /// Reads the devices at the beginning of the channel, where it has some.
    fn parse_all(view: View<'_>) -> Vec<Self> {
        let device = |(place, vector)| {
            let start = offset_of!(Channel, interrupts) + place * size_of::<DeviceInterrupts>();
            let name = view.bytes(start + offset_of!(DeviceInterrupts, name), NAME);
            let count = view.u64(start + offset_of!(DeviceInterrupts, count));
            Self { vector, device: padded(name), count }
        };
        let all = (0..DEVICE_VECTORS).zip(DEVICE_VECTOR..).map(device);
        all.filter(|device| !device.device.is_empty()).collect()
    }
}

/// Bytes of a device's name.
const NAME: usize = size_of::<DeviceInterrupts>() - size_of::<u64>();

impl Counters {
    /// Reads the first [`COUNTERS_SIZE`] bytes of the channel.
    pub fn parse(bytes: &[u8]) -> Self {
        let view = View(bytes);
        let per_cpu = |words: usize| (0..MAX_CELL_CPUS).map(move |cpu| view.u64(words + cpu * 8));
        // A program other than the real-time kernel uses the block in its own way.
        let is_channel = view.u64(offset_of!(Channel, magic)) == channel::CHANNEL_MAGIC;
        Self {
            state: match view.u32(offset_of!(Channel, kernel_state)) {
                channel::KERNEL_READY if is_channel => KernelState::Ready,
                channel::KERNEL_SEALED if is_channel => KernelState::Sealed,
                channel::KERNEL_DEAD if is_channel => KernelState::Dead,
                _ => KernelState::Starting,
            },
            doorbells_sent: view.u64(offset_of!(Channel, doorbells_sent)),
            doorbells_taken: per_cpu(offset_of!(Channel, doorbells_taken)).collect(),
            pool_pages: view.u64(offset_of!(Channel, pool_pages)),
            pool_free: view.u64(offset_of!(Channel, pool_free)),
            heap_size: view.u64(offset_of!(Channel, heap_size)),
            heap_used: view.u64(offset_of!(Channel, heap_used)),
            idle: per_cpu(offset_of!(Channel, idle_time)).map(Duration::from_nanos).collect(),
            ranks: (0..MAX_CELL_CPUS)
                .map(|cpu| view.u32(offset_of!(Channel, ranks) + cpu * 4))
                .collect(),
            devices: if is_channel { Interrupts::parse_all(view) } else { Vec::new() },
        }
    }
}

/// Offset of the longest sections in the channel.
pub const SECTIONS_OFFSET: u64 = offset_of!(Channel, sections) as u64;
/// Bytes of the sections of all CPUs, which [`Section::parse_all`] reads.
pub const SECTIONS_SIZE: usize = MAX_CELL_CPUS * SECTIONS * size_of::<channel::Section>();

/// A section of the kernel with interrupts off; see [`channel::Section`].
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its CPU.
    pub cpu: RealmCpu,
    /// Duration of the longest, in ticks of the time stamp counter.
    pub ticks: u64,
    /// Address at which it began.
    pub begin: u64,
    /// Address at which it ended.
    pub end: u64,
}

impl Section {
    /// Reads [`SECTIONS_SIZE`] bytes: the sections of each CPU, the longest first.
    pub fn parse_all(bytes: &[u8]) -> Vec<Self> {
        let parse = |(cpu, bytes): (RealmCpu, &[u8])| {
            let view = View(bytes);
            Self {
                cpu,
                ticks: view.u64(offset_of!(channel::Section, ticks)),
                begin: view.u64(offset_of!(channel::Section, begin)),
                end: view.u64(offset_of!(channel::Section, end)),
            }
        };
        let cpus = RealmCpu::all().flat_map(|cpu| [cpu; SECTIONS]);
        let entries = cpus.zip(bytes.chunks_exact(size_of::<channel::Section>()));
        let mut sections: Vec<_> =
            entries.map(parse).filter(|section| section.ticks != 0).collect();
        sections.sort_by_key(|section| (section.cpu, std::cmp::Reverse(section.ticks)));
        sections
    }
}

/// A thread of a rich real-time process.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Real user id.
    pub uid: u32,
    /// Command name.
    pub command: String,
    /// `R` running or ready, `S` sleeping, `L` waiting for Linux, `X` ended, `?` not made yet.
    pub state: char,
    /// Real-time priority, 0 for ordinary.
    pub priority: u32,
    /// Its CPU, if there is such a one.
    pub cpu: Option<RealmCpu>,
    /// Processor time.
    pub time: Duration,
    /// How often it was switched to.
    pub switches: u64,
    /// Local system calls.
    pub local_calls: u64,
    /// Remote system calls.
    pub remote_calls: u64,
    /// Bytes of memory of the process.
    pub memory: u64,
}

impl Thread {
    /// Tells whether there is a thread of a program: it was begun, and has not ended.
    pub fn lives(&self) -> bool {
        !matches!(self.state, 'X' | '?')
    }

    /// Reads all slots that have a thread with ids that there can be. They take [`SLOTS_SIZE`]
    /// bytes.
    pub fn parse_all(bytes: &[u8]) -> Vec<Self> {
        let slots = bytes.chunks_exact(size_of::<Slot>());
        let mut threads: Vec<_> = slots.filter_map(|slot| Self::parse(View(slot))).collect();
        threads.sort_by_key(|thread| (thread.pid, thread.tid));
        threads
    }

    fn parse(view: View<'_>) -> Option<Self> {
        if view.u32(offset_of!(Slot, state)) == channel::SLOT_FREE {
            return None;
        }
        Some(Self {
            pid: Pid::new(view.u32(offset_of!(Slot, pid)))?,
            tid: Tid::new(view.u32(offset_of!(Slot, tid)))?,
            uid: view.u32(offset_of!(Slot, uid)),
            command: padded(view.bytes(offset_of!(Slot, command), 16)),
            state: match view.u32(offset_of!(Slot, thread_state)) {
                channel::THREAD_RUNNING => 'R',
                channel::THREAD_SLEEPING => 'S',
                channel::THREAD_REMOTE => 'L',
                channel::THREAD_EXITED => 'X',
                _ => '?',
            },
            priority: view.u32(offset_of!(Slot, priority)),
            cpu: RealmCpu::new(view.u32(offset_of!(Slot, cpu)) as usize),
            time: Duration::from_nanos(view.u64(offset_of!(Slot, run_time))),
            switches: view.u64(offset_of!(Slot, switches)),
            local_calls: view.u64(offset_of!(Slot, local_calls)),
            remote_calls: view.u64(offset_of!(Slot, remote_calls)),
            memory: view.u64(offset_of!(Slot, pages)).saturating_mul(crtos_abi::PAGE_SIZE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Builder;

    #[test]
    fn a_block_that_is_no_channel_tells_of_no_kernel() {
        let mut bytes = Builder::new(COUNTERS_SIZE);
        bytes.u32(offset_of!(Channel, kernel_state), channel::KERNEL_READY);
        let mut channel = Builder::new(COUNTERS_SIZE);
        channel
            .u32(offset_of!(Channel, kernel_state), channel::KERNEL_READY)
            .u64(offset_of!(Channel, magic), channel::CHANNEL_MAGIC);
        assert_eq!(Counters::parse(&bytes.finish()).state, KernelState::Starting);
        assert_eq!(Counters::parse(&channel.finish()).state, KernelState::Ready);
    }

    #[test]
    fn devices_are_those_with_names() {
        let mut channel = Builder::new(COUNTERS_SIZE);
        let third = offset_of!(Channel, interrupts) + 2 * size_of::<DeviceInterrupts>();
        channel
            .u64(offset_of!(Channel, magic), channel::CHANNEL_MAGIC)
            .u64(offset_of!(Channel, interrupts) + offset_of!(DeviceInterrupts, count), 5)
            .u64(third + offset_of!(DeviceInterrupts, count), 7)
            .u64(third + offset_of!(DeviceInterrupts, name), u64::from_le_bytes(*b"ttyS1\0\0\0"));
        let devices = Counters::parse(&channel.finish()).devices;
        let expected = Interrupts { vector: DEVICE_VECTOR + 2, device: "ttyS1".into(), count: 7 };
        assert_eq!(devices, [expected]);
    }

    #[test]
    fn reads_the_slots_in_use() {
        let mut bytes = Builder::new(SLOTS_SIZE);
        for (slot, pid) in [(5, 900), (9, 800)] {
            let base = slot * size_of::<Slot>();
            bytes
                .u32(base + offset_of!(Slot, state), channel::SLOT_BUSY)
                .u32(base + offset_of!(Slot, pid), pid)
                .u32(base + offset_of!(Slot, tid), pid)
                .u32(base + offset_of!(Slot, thread_state), channel::THREAD_REMOTE)
                .u64(base + offset_of!(Slot, run_time), 1_500_000_000)
                .bytes(base + offset_of!(Slot, command), b"busybox");
        }
        let threads = Thread::parse_all(&bytes.finish());
        assert_eq!(threads.iter().map(|t| t.pid.get()).collect::<Vec<_>>(), [800, 900]);
        assert_eq!(threads[0].command, "busybox");
        assert_eq!(threads[0].state, 'L');
        assert_eq!(threads[0].time, Duration::from_millis(1500));
    }
}
