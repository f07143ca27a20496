// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of a CPU for a thread, from what each CPU publishes about itself.
//!
//! Each CPU publishes three things: how urgent the thread is that it runs; how urgent the first
//! thread is that waits there and could run elsewhere (its *surplus*); how many ordinary threads
//! wait. Two rules keep the most urgent threads running wherever their affinity lets them:
//!
//! - *push*: a thread that becomes ready goes to a CPU that runs something less urgent ([`place`]);
//! - *pull*: a CPU that is about to run something less urgent than another CPU's surplus fetches
//!   that thread first ([`source`]).
//!
//! Both look at each allowed CPU once.

use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::ids::RealmCpu;

use crate::queue::Level;
use crate::time::Nanos;

/// A set of CPUs of the realm: bit `n` is the CPU of index `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuSet(pub u32);

impl CpuSet {
    /// All CPUs.
    pub const ALL: Self = Self(u32::MAX);

    /// Makes the set of one CPU.
    pub const fn one(cpu: RealmCpu) -> Self {
        Self(1 << cpu.get())
    }

    /// Says whether `cpu` is in the set.
    pub const fn contains(self, cpu: RealmCpu) -> bool {
        self.0 >> cpu.get() & 1 != 0
    }

    /// Returns the CPUs that both sets contain.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the set with `cpu`.
    #[must_use]
    pub const fn with(self, cpu: RealmCpu) -> Self {
        Self(self.0 | Self::one(cpu).0)
    }

    /// Returns the set without `cpu`.
    #[must_use]
    pub const fn without(self, cpu: RealmCpu) -> Self {
        Self(self.0 & !Self::one(cpu).0)
    }

    /// Counts the CPUs.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Says whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the CPUs, lowest first.
    pub fn iter(self) -> impl Iterator<Item = RealmCpu> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let cpu = (left != 0).then(|| RealmCpu::again(left.trailing_zeros()));
            left &= left.wrapping_sub(1);
            cpu
        })
    }
}

const _: () = assert!(u32::BITS as usize == crtos_abi::MAX_CELL_CPUS);

/// A CPU of the realm that changes while others read it.
pub struct AtomicCpu(AtomicU32);

impl AtomicCpu {
    /// Starts with `cpu`.
    pub const fn new(cpu: RealmCpu) -> Self {
        Self(AtomicU32::new(cpu.to_word()))
    }

    /// Returns the CPU that it is.
    #[inline]
    pub fn load(&self, ordering: Ordering) -> RealmCpu {
        RealmCpu::again(self.0.load(ordering))
    }

    /// Changes it to `cpu`.
    #[inline]
    pub fn store(&self, cpu: RealmCpu, ordering: Ordering) {
        self.0.store(cpu.to_word(), ordering);
    }
}

/// The order in which threads run, across levels and deadlines: the greater one runs first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Urgency(u64);

impl Urgency {
    /// The urgency of an idle CPU.
    pub const IDLE: Self = Self(0);
    /// The urgency of ordinary threads.
    pub const ORDINARY: Self = Self(1);

    /// Returns the urgency of a thread of `level`.
    pub const fn of_level(level: Level) -> Self {
        Self(1 + level.get() as u64)
    }

    /// Returns the urgency of a thread with that absolute deadline: the earlier, the more urgent,
    /// and more than any level.
    pub const fn of_deadline(deadline: Nanos) -> Self {
        Self(u64::MAX - if deadline.0 >> 63 == 0 { deadline.0 } else { u64::MAX >> 1 })
    }

    /// Returns the level, or as an error the deadline, that it is the urgency of.
    pub const fn level(self) -> Result<Level, Nanos> {
        match self.0 {
            0 => Ok(Level::ORDINARY),
            level if level <= Level::COUNT as u64 => Ok(Level::from_number((level - 1) as u8)),
            deadline => Err(Nanos(u64::MAX - deadline)),
        }
    }

    /// Returns it as a word to publish.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Makes it from a published word.
    pub const fn from_published(word: u64) -> Self {
        Self(word)
    }
}

/// What the CPUs publish about themselves.
pub trait Cpus {
    /// Returns how urgent the thread is that `cpu` runs or is about to run.
    fn running(&self, cpu: RealmCpu) -> Urgency;
    /// Returns how urgent the first thread is that waits on `cpu` and could run elsewhere;
    /// [`Urgency::IDLE`] if there is none.
    fn surplus(&self, cpu: RealmCpu) -> Urgency;
    /// Returns the number of ordinary threads that wait on `cpu`.
    fn waiting(&self, cpu: RealmCpu) -> u32;
}

/// Chooses a CPU of `allowed` (not empty) for a thread that becomes ready. That is `home`, where it
/// ran last, if it runs there at once; otherwise the CPU that runs the least urgent thread. Among
/// equals it is the one where the fewest threads wait, and `home` before others.
#[inline]
pub fn place(cpus: &impl Cpus, urgency: Urgency, allowed: CpuSet, home: RealmCpu) -> RealmCpu {
    let mut best = None;
    if allowed.contains(home) {
        let running = cpus.running(home);
        if running < urgency {
            return home;
        }
        best = Some((home, running));
    }
    for cpu in allowed.without(home).iter() {
        let running = cpus.running(cpu);
        let is_better = |(best, least)| {
            running < least || running == least && cpus.waiting(cpu) < cpus.waiting(best)
        };
        if best.is_none_or(is_better) {
            best = Some((cpu, running));
        }
    }
    best.map_or(home, |(cpu, _)| cpu)
}

/// Chooses the CPU of `others` from whose surplus a CPU that is about to run `running` should fetch
/// a thread.
pub fn source(cpus: &impl Cpus, running: Urgency, others: CpuSet) -> Option<RealmCpu> {
    let most = others.iter().max_by_key(|&cpu| cpus.surplus(cpu))?;
    (cpus.surplus(most) > running).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thread: its level, where it may run, where it is, whether it wants to run.
    #[derive(Clone, Debug)]
    struct Thread {
        level: u32,
        allowed: u32,
        home: RealmCpu,
        ready: bool,
    }

    /// CPUs with the threads that are assigned to each; each runs its most urgent one.
    #[derive(Clone, Debug)]
    struct Machine {
        count: usize,
        threads: Vec<Thread>,
    }

    impl Thread {
        fn urgency(&self) -> Urgency {
            Urgency::of_level(Level::new(self.level).unwrap())
        }
    }

    impl Machine {
        fn on(&self, cpu: RealmCpu) -> Vec<usize> {
            let mut here: Vec<usize> = (0..self.threads.len())
                .filter(|&t| self.threads[t].ready && self.threads[t].home == cpu)
                .collect();
            here.sort_by_key(|&t| std::cmp::Reverse(self.threads[t].level));
            here
        }

        fn all(&self) -> CpuSet {
            RealmCpu::all().take(self.count).fold(CpuSet::default(), CpuSet::with)
        }

        fn allowed(&self, thread: usize) -> CpuSet {
            let allowed = CpuSet(self.threads[thread].allowed).and(self.all());
            if allowed.is_empty() { CpuSet::one(RealmCpu::first()) } else { allowed }
        }

        /// What waits on `cpu`.
        fn queue(&self, cpu: RealmCpu) -> Vec<usize> {
            self.on(cpu).split_off(usize::from(!self.on(cpu).is_empty()))
        }

        fn wake(&mut self, thread: usize) {
            let to = place(
                self,
                self.threads[thread].urgency(),
                self.allowed(thread),
                self.threads[thread].home,
            );
            assert!(self.allowed(thread).contains(to));
            (self.threads[thread].home, self.threads[thread].ready) = (to, true);
            self.push(to);
        }

        /// What `cpu` does with those that wait after one was added.
        fn push(&mut self, cpu: RealmCpu) {
            for thread in self.queue(cpu) {
                let to = place(self, self.threads[thread].urgency(), self.allowed(thread), cpu);
                if self.running(to) < self.threads[thread].urgency() {
                    self.threads[thread].home = to;
                    return self.push(to);
                }
            }
        }

        fn sleep(&mut self, thread: usize) {
            self.threads[thread].ready = false;
            self.pull(self.threads[thread].home);
        }

        fn pull(&mut self, cpu: RealmCpu) {
            let mut others = self.all().without(cpu);
            while let Some(from) = source(self, self.running(cpu), others) {
                let least = self.running(cpu);
                match self
                    .queue(from)
                    .into_iter()
                    .find(|&t| self.allowed(t).contains(cpu) && self.threads[t].urgency() > least)
                {
                    Some(thread) => self.threads[thread].home = cpu,
                    None => others = others.without(from),
                }
            }
        }
    }

    impl Cpus for Machine {
        fn running(&self, cpu: RealmCpu) -> Urgency {
            self.on(cpu).first().map_or(Urgency::IDLE, |&t| self.threads[t].urgency())
        }
        fn surplus(&self, cpu: RealmCpu) -> Urgency {
            let movable = |&t: &usize| self.allowed(t).count() > 1;
            self.queue(cpu)
                .into_iter()
                .find(movable)
                .map_or(Urgency::IDLE, |t| self.threads[t].urgency())
        }
        fn waiting(&self, cpu: RealmCpu) -> u32 {
            self.queue(cpu).iter().filter(|&&t| self.threads[t].level == 0).count() as u32
        }
    }

    fn cpu(index: usize) -> RealmCpu {
        RealmCpu::new(index).unwrap()
    }

    fn thread() -> impl Strategy<Value = Thread> {
        let level = prop_oneof![Just(0), 1u32..5];
        (level, any::<u32>(), 0usize..4).prop_map(|(level, allowed, home)| Thread {
            level,
            allowed,
            home: cpu(home),
            ready: false,
        })
    }

    proptest! {
        /// No thread waits while a CPU that it may use runs something less urgent.
        #[test]
        fn the_most_urgent_run(
            count in 1usize..5,
            threads in proptest::collection::vec(thread(), 1..10),
            steps in proptest::collection::vec((0usize..10, any::<bool>()), 0..60),
        ) {
            let mut machine = Machine { count, threads };
            let threads = machine.threads.len();
            for thread in &mut machine.threads {
                thread.home = cpu(thread.home.get() % count);
            }
            for (thread, wakes) in steps {
                let thread = thread % threads;
                match (machine.threads[thread].ready, wakes) {
                    (false, true) => machine.wake(thread),
                    (true, false) => machine.sleep(thread),
                    _ => {}
                }
                for cpu in RealmCpu::all().take(count) {
                    for waiting in machine.queue(cpu) {
                        for other in machine.allowed(waiting).iter() {
                            prop_assert!(
                                machine.running(other) >= machine.threads[waiting].urgency(),
                                "{waiting} waits on {cpu} while {other} runs less: {machine:?}"
                            );
                        }
                    }
                }
            }
        }

        #[test]
        fn a_thread_stays_where_it_can_run(level in 1u32..100, home in 0usize..4) {
            let machine = Machine { count: 4, threads: vec![] };
            prop_assert_eq!(
                place(
                    &machine,
                    Urgency::of_level(Level::new(level).unwrap()),
                    CpuSet(15),
                    cpu(home)
                ),
                cpu(home)
            );
        }
    }

    #[test]
    fn deadlines_come_before_levels() {
        let at = |n| Urgency::of_deadline(Nanos(n));
        assert!(at(5) > at(6) && at(u64::MAX) > Urgency::of_level(Level::DEADLINE));
        assert!(Urgency::of_level(Level::DEADLINE) > Urgency::of_level(Level::MAX));
        assert_eq!(at(5).level(), Err(Nanos(5)));
        for level in [Level::ORDINARY, Level::new(1).unwrap(), Level::MAX, Level::DEADLINE] {
            assert_eq!(Urgency::of_level(level).level(), Ok(level));
        }
    }

    #[test]
    fn sets() {
        let set = CpuSet::one(cpu(3)).with(cpu(0)).with(cpu(31));
        assert_eq!(set.iter().collect::<Vec<_>>(), [cpu(0), cpu(3), cpu(31)]);
        assert!(set.contains(cpu(31)) && !set.contains(cpu(30)) && set.count() == 3);
        assert!(set.without(cpu(0)).without(cpu(3)).without(cpu(31)).is_empty());
        assert_eq!(CpuSet::ALL.count(), 32);
    }
}
