// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to hold when nothing is due any more.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crtos_sched::{CpuSet, Urgency};

use crate::{
    arch::percpu,
    machine::fail,
    task::{
        thread,
        view::{self, Does, SeenCpu, SeenThread},
    },
    time::{self, Nanos},
};

/// How long an ordinary thread may wait beside a CPU that is idle, and a little more.
const PATIENCE: Nanos = Nanos::from_micros(1001);

/// Since when CPUs run threads, summed up.
static BEGIN: AtomicU64 = AtomicU64::new(0);

fn cpus() -> Vec<SeenCpu> {
    percpu::all().iter().map(|cpu| view::cpu(cpu.index)).collect()
}

/// Time is counted from now on.
pub fn begin() {
    let ran: u64 = thread::all().into_iter().map(|thread| view::thread(thread).has_run).sum();
    BEGIN.store(cpus().iter().map(|cpu| cpu.since).sum::<u64>() - ran, Relaxed);
}

/// Ends the simulation if something does not hold.
pub fn check() {
    let cpus = cpus();
    let threads: Vec<SeenThread> = thread::all().into_iter().map(view::thread).collect();
    for (cpu, seen) in percpu::all().iter().zip(&cpus) {
        let place = cpu.index;
        if seen.told != seen.running {
            fail(&format!("CPU {place} tells that it runs something else"));
        }
        if on_cpu(cpu) != seen.current {
            fail(&format!("CPU {place} has not switched"));
        }
        let is_movable = |id: &u16| threads[usize::from(*id)].is_movable;
        if seen.queued.iter().filter(|id| is_movable(id)).count() as u32 != seen.movable {
            fail(&format!("CPU {place} counts those that may run elsewhere wrongly"));
        }
        let first = seen.first.map(|first| &threads[usize::from(first)]);
        if first.is_some_and(|first| first.allowed != CpuSet::one(place)) {
            fail(&format!("CPU {place} has a first thread that nobody else knows of"));
        }
        if cpu.timer() > seen.due || cpu.timer() != seen.programmed {
            fail(&format!("CPU {place} has its timer at {:?}", cpu.timer()));
        }
    }
    for thread in threads.iter().filter(|thread| !thread::of(thread.id).is_idle) {
        check_thread(thread, &cpus);
    }
    let ran: u64 = threads.iter().map(|thread| thread.has_run).sum();
    if cpus.iter().map(|cpu| cpu.since).sum::<u64>() - ran != BEGIN.load(Relaxed) {
        fail("time was lost, or counted twice");
    }
}

fn on_cpu(cpu: &'static percpu::PerCpu) -> u16 {
    let is_there = |thread: &&thread::Thread| core::ptr::eq(*thread, cpu.current());
    thread::all().into_iter().find(is_there).map_or(u16::MAX, |thread| thread.id.0)
}

/// A thread is in one place, and waits only where nothing less urgent runs.
fn check_thread(thread: &SeenThread, cpus: &[SeenCpu]) {
    let id = thread.id;
    let waits = |cpu: &SeenCpu| cpu.queued.iter().chain(&cpu.first).filter(|&&x| x == id).count();
    let waiting: usize = cpus.iter().map(waits).sum();
    let running = cpus.iter().filter(|cpu| cpu.current == id).count();
    let own = &cpus[thread.cpu.get()];
    let is_right = match thread.does {
        Does::Run => running == 1 && waiting == 0 && own.current == id,
        Does::Wait => running == 0 && waiting == 1 && waits(own) == 1,
        Does::Rest => running == 0 && waiting == 0,
        Does::Move => false,
    };
    if !is_right {
        fail(&format!("thread {id} is at {running} CPUs, and waits at {waiting}"));
    }
    if thread.is_overdrawn && thread.does != Does::Rest {
        fail(&format!("thread {id} goes on without a budget"));
    }
    if thread.does != Does::Wait {
        return;
    }
    // Who takes turns with it ends its own.
    if own.running == thread.urgency
        && let Some(turn) = view::thread(thread::of(own.current)).turn
        && own.due > time::shown() + turn
    {
        fail(&format!("thread {id} waits for a turn that does not end"));
    }
    for place in thread.allowed.iter() {
        if cpus[place.get()].running >= thread.urgency {
            continue;
        }
        // An ordinary thread has time, if its CPU looks.
        let is_looked_at = own.due <= time::shown() + PATIENCE && place != thread.cpu;
        if thread.urgency > Urgency::ORDINARY || !is_looked_at {
            fail(&format!("thread {id} waits on CPU {} while {place} runs less", thread.cpu));
        }
    }
}
