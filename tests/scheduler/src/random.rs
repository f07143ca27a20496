// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads do random things to each other, on several CPUs.

use crtos_sched::{CpuSet, Level, deadline::Reservation};

use crate::{
    arch::percpu,
    invariants,
    machine::{self, chance, note, on, once_in},
    task::{
        Policy, Scheduling, Thread, scheduler,
        thread::{self, here},
        view,
    },
    time::{self, Nanos},
};

/// Does so many steps on so many CPUs with so many threads.
pub fn run(seed: u64, cpus: usize, threads: u64, steps: u64) {
    machine::seed(seed);
    machine::start(cpus);
    invariants::begin();
    for _ in 0..threads {
        percpu::go_on(chance(cpus as u64) as usize);
        view::spawn(Scheduling::ORDINARY);
    }
    machine::settle();
    for _ in 0..steps {
        for _ in 0..=chance(4) {
            time::pass(Nanos(if once_in(4) { chance(120_000) } else { chance(500) }));
            on(chance(cpus as u64) as usize, step);
        }
        machine::settle();
    }
}

/// A thread, by chance.
pub fn thread() -> &'static Thread {
    let threads: Vec<_> = thread::all().into_iter().filter(|thread| !thread.is_idle).collect();
    threads[chance(threads.len() as u64) as usize]
}

fn level(most: u64) -> Level {
    Level::from_number(1 + chance(most) as u8)
}

fn scheduling() -> Scheduling {
    let real_time = |policy| Scheduling { policy, level: level(5), ..Scheduling::ORDINARY };
    match chance(8) {
        0 | 1 => Scheduling::ORDINARY,
        2..=4 => real_time(Policy::Fifo),
        5 | 6 => real_time(Policy::RoundRobin),
        _ => {
            let (runtime, period) = (50_000 + chance(150_000), 200_000 + 100_000 * chance(5));
            let (runtime, period) = (Nanos(runtime), Nanos(period));
            let reservation = Reservation::new(runtime, period, period).expect("a reservation");
            let level = Level::DEADLINE;
            Scheduling { policy: Policy::Deadline, level, reservation, ..Scheduling::ORDINARY }
        }
    }
}

fn affinity() -> CpuSet {
    let all = percpu::all().iter().fold(CpuSet::default(), |all, cpu| all.with(cpu.index));
    let some = CpuSet(chance(1 << all.count()) as u32);
    if some.is_empty() || once_in(2) { all } else { some }
}

/// Whether it may run on all CPUs, as a thread with a deadline has to.
fn may_run_anywhere(thread: &Thread) -> bool {
    view::thread(thread).allowed.count() as usize == percpu::all().len()
}

/// The CPU that goes on does something: an interrupt, or its thread.
pub fn step() {
    if !once_in(3) && machine::take_interrupt() {
        return;
    }
    let (me, other) = (here(), thread());
    // One that has not left another CPU does nothing yet.
    let places = percpu::all().iter().filter(|cpu| core::ptr::eq(cpu.current(), me)).count();
    if places > 1 {
        return;
    }
    let id = other.id.0;
    if me.is_idle {
        if once_in(3) {
            note(|| format!("an interrupt wakes {id}"));
            percpu::in_interrupt(|| view::wake(other));
        }
    } else if once_in(6) {
        note(|| format!("an interrupt of {} wakes {id}", me.id.0));
        percpu::in_interrupt(|| view::wake(other));
    } else {
        act(me, other);
    }
    percpu::preempt_if_needed();
}

fn act(me: &Thread, other: &Thread) {
    let (id, who) = (other.id.0, me.id.0);
    let has_deadline = other.scheduling().policy == Policy::Deadline;
    match chance(10) {
        0 | 1 => {
            note(|| format!("{who} waits"));
            scheduler::block(None);
        }
        2 => {
            note(|| format!("{who} sleeps"));
            scheduler::sleep_until(time::now() + Nanos(1 + chance(300_000)));
        }
        3 => {
            note(|| format!("{who} yields"));
            scheduler::yield_now();
        }
        4..=6 => {
            note(|| format!("{who} wakes {id}"));
            view::wake(other);
        }
        7 => {
            let wanted = scheduling();
            if wanted.policy != Policy::Deadline || may_run_anywhere(other) {
                note(|| format!("{who} gives {id} {:?}, {:?}", wanted.policy, wanted.level));
                view::set_scheduling(other, wanted);
            }
        }
        8 => {
            let level = if once_in(2) { Level::ORDINARY } else { level(6) };
            note(|| format!("{who} has {id} inherit {level:?}"));
            view::set_inherited(other, level);
        }
        _ if has_deadline => {}
        _ => {
            let cpus = affinity();
            note(|| format!("{who} has {id} run on {:x}", cpus.0));
            view::set_affinity(other, cpus);
        }
    }
}
