// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of SCHED_FIFO on one CPU, compared with lists as POSIX and Linux have them: who wakes or
//! yields is the last of its level, who was preempted the first, who is raised the last, and who is
//! lowered the first, but behind the one that runs. Who gets the CPUs that it has keeps its place.

use crtos_sched::{CpuSet, Level};

use crate::{
    arch::percpu,
    machine::{self, chance, fail, note, once_in},
    random,
    task::{
        Scheduling, Thread, scheduler,
        thread::{self, here},
        view::{self, Does},
    },
};

/// Levels, with the one of ordinary threads.
const LEVELS: usize = 7;

#[derive(Clone, Copy)]
struct Known {
    own: usize,
    inherited: usize,
    is_asleep: bool,
}

impl Known {
    fn level(&self) -> usize {
        self.own.max(self.inherited)
    }
}

struct Model {
    lists: [Vec<u16>; LEVELS],
    known: Vec<Known>,
}

impl Model {
    fn of(&mut self, id: u16) -> &mut Known {
        &mut self.known[usize::from(id)]
    }

    fn list(&mut self, id: u16) -> &mut Vec<u16> {
        let level = self.of(id).level();
        &mut self.lists[level]
    }

    fn remove(&mut self, id: u16) {
        self.list(id).retain(|&other| other != id);
    }

    fn wake(&mut self, id: u16) {
        if core::mem::take(&mut self.of(id).is_asleep) {
            self.list(id).push(id);
        }
    }

    fn change(&mut self, id: u16, change: impl FnOnce(&mut Known)) {
        let before = self.of(id).level();
        let mut after = *self.of(id);
        change(&mut after);
        if after.level() == before || after.is_asleep {
            *self.of(id) = after;
            return;
        }
        self.remove(id);
        *self.of(id) = after;
        let runs = here().id.0;
        let list = self.list(id);
        match id == runs || after.level() < before {
            true => list.insert(usize::from(id != runs && list.first() == Some(&runs)), id),
            false => list.push(id),
        }
    }
}

fn fifo(level: usize) -> Scheduling {
    Scheduling::fifo(level as u32).expect("a level of real-time threads")
}

/// Does so many steps with so many threads.
pub fn run(seed: u64, threads: u64, steps: u64) {
    machine::seed(seed);
    machine::start(1);
    (0..threads).for_each(|_| view::spawn(fifo(1)));
    percpu::preempt_if_needed();
    while !here().is_idle {
        scheduler::block(None);
    }
    let asleep = Known { own: 1, inherited: 0, is_asleep: true };
    let mut model =
        Model { lists: [const { Vec::new() }; LEVELS], known: vec![asleep; thread::all().len()] };
    for _ in 0..steps {
        step(&mut model, here(), random::thread());
        // Several things may happen before a switch.
        if !once_in(3) {
            percpu::preempt_if_needed();
            compare(&model);
        }
    }
}

fn step(model: &mut Model, me: &Thread, other: &Thread) {
    let (who, id) = (me.id.0, other.id.0);
    match chance(9) {
        0 | 1 if !me.is_idle => {
            note(|| format!("{who} waits"));
            scheduler::block(None);
            if view::thread(me).does == Does::Rest {
                model.remove(who);
                model.of(who).is_asleep = true;
            }
        }
        2 if !me.is_idle => {
            note(|| format!("{who} yields"));
            model.remove(who);
            model.list(who).push(who);
            scheduler::yield_now();
        }
        3..=5 => {
            note(|| format!("{id} is woken"));
            view::wake(other);
            model.wake(id);
        }
        6 => {
            let own = 1 + chance(4) as usize;
            note(|| format!("{id} has level {own}"));
            model.change(id, |known| known.own = own);
            view::set_scheduling(other, fifo(own));
        }
        7 => {
            note(|| format!("{id} may run everywhere"));
            view::set_affinity(other, CpuSet::ALL);
        }
        _ => {
            let inherited = chance(6) as usize;
            note(|| format!("{id} inherits level {inherited}"));
            model.change(id, |known| known.inherited = inherited);
            view::set_inherited(other, Level::from_number(inherited as u8));
        }
    }
}

fn compare(model: &Model) {
    let expected: Vec<u16> = model.lists.iter().rev().flatten().copied().collect();
    let seen = view::cpu(percpu::this().index);
    let current = Some(seen.current).filter(|_| !seen.is_idle);
    let found: Vec<u16> = current.into_iter().chain(seen.first).chain(seen.queued).collect();
    if expected != found {
        fail(&format!("the order is {found:?}, not {expected:?}"));
    }
}
