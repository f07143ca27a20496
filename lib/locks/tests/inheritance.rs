// SPDX-License-Identifier: MIT OR Apache-2.0
//! After any sequence of calls every thread inherits the highest level of all that wait for it,
//! directly or along chains.

use crtos_locks::{Graph, inheritance::Lock};
use crtos_sched::Level;
use proptest::prelude::*;

const THREADS: usize = 8;
const MUTEXES: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Acquire(u16, usize),
    GiveUp(u16),
    Release(usize),
    SetLevel(u16, u32),
    /// Carries on one of the changes that are under way.
    Settle(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..THREADS as u16, 0..MUTEXES).prop_map(|(t, m)| Step::Acquire(t, m)),
        1 => (0..THREADS as u16).prop_map(Step::GiveUp),
        2 => (0..MUTEXES).prop_map(Step::Release),
        2 => (0..THREADS as u16, 0u32..5).prop_map(|(t, l)| Step::SetLevel(t, l)),
        4 => (0usize..8).prop_map(Step::Settle),
    ]
}

#[derive(Default)]
struct World {
    graph: Graph<THREADS>,
    base: [u32; THREADS],
    inherited: [u32; THREADS],
    /// Of each mutex: its owner, its lock in the graph while there is one, its waiters.
    owner: [Option<u16>; MUTEXES],
    lock: [Option<Lock>; MUTEXES],
    waiters: [Vec<u16>; MUTEXES],
    under_way: Vec<u16>,
}

impl World {
    fn waits(&self, thread: u16) -> Option<usize> {
        (0..MUTEXES).find(|&m| self.waiters[m].contains(&thread))
    }

    fn settle(&mut self, index: usize) {
        if self.under_way.is_empty() {
            return;
        }
        let thread = self.under_way.remove(index % self.under_way.len());
        let inherited = &mut self.inherited;
        let next = self.graph.settle(thread, 1, |t, level| inherited[t as usize] = level.get());
        self.under_way.extend(next);
    }

    fn level(&self, thread: u16) -> u32 {
        self.base[thread as usize].max(self.expected(thread))
    }

    /// The highest level of all that wait for `thread`.
    fn expected(&self, thread: u16) -> u32 {
        (0..MUTEXES)
            .filter(|&m| self.owner[m] == Some(thread))
            .flat_map(|m| &self.waiters[m])
            .map(|&waiter| self.level(waiter))
            .max()
            .unwrap_or(0)
    }

    fn reaches(&self, mut from: u16, to: u16) -> bool {
        loop {
            if from == to {
                return true;
            }
            match self.waits(from) {
                Some(m) => from = self.owner[m].unwrap(),
                None => return false,
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Acquire(t, m) if self.waits(t).is_none() => match self.owner[m] {
                None => self.owner[m] = Some(t),
                Some(owner) => {
                    let base = Level::new(self.base[t as usize]).unwrap();
                    let result = self.graph.enqueue(t, base, self.lock[m], owner);
                    assert_eq!(result.is_err(), self.reaches(owner, t));
                    if let Ok(lock) = result {
                        self.lock[m] = Some(lock);
                        self.waiters[m].push(t);
                        self.under_way.push(owner);
                    }
                }
            },
            Step::GiveUp(t) => {
                let m = self.waits(t);
                let left = self.graph.dequeue(t);
                assert_eq!(left.map(|(lock, _)| lock), m.and_then(|m| self.lock[m]));
                if let (Some(m), Some((lock, owner))) = (m, left) {
                    assert_eq!(Some(owner), self.owner[m]);
                    self.waiters[m].retain(|&other| other != t);
                    self.under_way.push(owner);
                    if !self.graph.is_wanted(lock) {
                        assert!(self.waiters[m].is_empty());
                        self.lock[m] = None;
                    }
                }
            }
            Step::Release(m) => {
                let Some(owner) = self.owner[m].filter(|&owner| self.waits(owner).is_none()) else {
                    return;
                };
                match self.lock[m] {
                    None => self.owner[m] = None,
                    Some(lock) => {
                        let heir = self.graph.hand_over(lock).unwrap();
                        assert!(self.waiters[m].contains(&heir));
                        self.waiters[m].retain(|&other| other != heir);
                        self.owner[m] = Some(heir);
                        self.under_way.extend([owner, heir]);
                        if self.waiters[m].is_empty() {
                            self.lock[m] = None;
                        }
                    }
                }
            }
            Step::SetLevel(t, level) => {
                self.base[t as usize] = level;
                self.graph.set_base(t, Level::new(level).unwrap());
                self.under_way.push(t);
            }
            Step::Settle(index) => self.settle(index),
            Step::Acquire(..) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn owners_inherit_the_highest_level(
        steps in proptest::collection::vec(step(), 0..120),
        rest in any::<u64>(),
    ) {
        let mut world = World::default();
        for step in steps {
            world.take(step);
        }
        let mut rest = rest;
        while !world.under_way.is_empty() {
            rest = rest.wrapping_mul(6364136223846793005).wrapping_add(1);
            world.settle((rest >> 33) as usize);
        }
        for t in 0..THREADS as u16 {
            prop_assert_eq!(world.inherited[t as usize], world.expected(t), "thread {}", t);
        }
        for m in 0..MUTEXES {
            if let Some(lock) = world.lock[m] {
                let heir = world.graph.heir(lock).unwrap();
                let highest = world.waiters[m].iter().map(|&t| world.level(t)).max();
                prop_assert_eq!(Some(world.level(heir)), highest);
            }
        }
    }
}
