// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs, of which one goes on at a time: which one, what interrupts it, and what was done last.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::{collections::VecDeque, sync::Mutex};

use crate::{
    arch::percpu::{self, PerCpu},
    invariants, random,
    task::{scheduler, thread, view},
    time,
};

/// What is told of the past if something does not hold.
const PAST: usize = 100;
/// CPUs that go on inside of each other, at most.
const DEPTH: usize = 3;

/// Other CPUs may go on, and interrupts come in windows.
static IS_LIVE: AtomicBool = AtomicBool::new(false);
static NESTED: AtomicUsize = AtomicUsize::new(0);
static CHANCE: AtomicU64 = AtomicU64::new(1);
static NOTES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Sets what chance follows from.
pub fn seed(seed: u64) {
    CHANCE.store(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, Relaxed);
    for _ in 0..10 {
        chance(2);
    }
}

/// A number below `limit`, by chance (xorshift).
pub fn chance(limit: u64) -> u64 {
    let mut word = CHANCE.load(Relaxed);
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    CHANCE.store(word, Relaxed);
    (word >> 11) % limit
}

/// Whether something happens that does so once in so many times.
pub fn once_in(times: u64) -> bool {
    chance(times) == 0
}

/// Keeps what goes on, to be told if something does not hold.
pub fn note(what: impl FnOnce() -> String) {
    if let Ok(mut notes) = NOTES.lock() {
        let (indent, cpu) = ("  ".repeat(NESTED.load(Relaxed)), percpu::this().index);
        notes.push_back(format!("{indent}{:?}, CPU {cpu}: {}", time::shown(), what()));
        if notes.len() > PAST {
            notes.pop_front();
        }
    }
}

/// Tells what was done last, and ends.
pub fn fail(what: &str) -> ! {
    IS_LIVE.store(false, Relaxed);
    for note in NOTES.lock().expect("notes").iter() {
        println!("{note}");
    }
    for cpu in percpu::all() {
        println!("CPU {}: {:?}", cpu.index, view::cpu(cpu.index));
    }
    for thread in thread::all() {
        println!("{:?}", view::thread(thread));
    }
    println!("FAILED: {what}");
    std::process::exit(1);
}

/// Starts so many CPUs.
pub fn start(cpus: usize) {
    percpu::make(cpus);
    for cpu in 0..cpus {
        percpu::go_on(cpu);
        view::set_up();
    }
    for cpu in 0..cpus {
        percpu::go_on(cpu);
        view::start();
    }
}

/// Says whether other CPUs may go on, and interrupts come in windows.
pub fn live(is_live: bool) {
    IS_LIVE.store(is_live, Relaxed);
}

fn may_nest() -> bool {
    IS_LIVE.load(Relaxed) && NESTED.load(Relaxed) < DEPTH
}

/// Has `f` go on on that CPU.
pub fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    let before = percpu::go_on(cpu);
    NESTED.fetch_add(1, Relaxed);
    percpu::this().is_busy.store(true, Relaxed);
    let result = f();
    percpu::this().is_busy.store(false, Relaxed);
    NESTED.fetch_sub(1, Relaxed);
    percpu::go_on(before);
    result
}

/// The CPU that goes on holds no lock: another one may do something.
pub fn others_go_on() {
    if !may_nest() || !once_in(6) {
        return;
    }
    let is_free = |&(_, cpu): &(usize, &PerCpu)| !cpu.is_busy.load(Relaxed);
    let free: Vec<usize> =
        percpu::all().iter().enumerate().filter(is_free).map(|(cpu, _)| cpu).collect();
    if !free.is_empty() {
        on(free[chance(free.len() as u64) as usize], || match once_in(2) {
            true => _ = take_interrupt(),
            false => random::step(),
        });
    }
}

/// The CPU that goes on takes interrupts, and switches to no thread.
pub fn window() {
    if !may_nest() {
        return;
    }
    NESTED.fetch_add(1, Relaxed);
    percpu::this().take_interrupt();
    if once_in(3) {
        let thread = random::thread();
        note(|| format!("in a window, an interrupt wakes {}", thread.id.0));
        view::wake(thread);
    }
    take_timer();
    NESTED.fetch_sub(1, Relaxed);
    others_go_on();
}

/// Takes the timer's interrupt on the CPU that goes on, if it is due.
fn take_timer() -> bool {
    let cpu = percpu::this();
    let is_due = cpu.timer() < time::shown();
    if is_due {
        note(|| "the timer".into());
        cpu.set_timer(time::Nanos::MAX);
        percpu::in_interrupt(scheduler::timer_interrupt);
    }
    is_due
}

/// Takes an interrupt on the CPU that goes on, if there is one; says whether there was.
pub fn take_interrupt() -> bool {
    let cpu = percpu::this();
    if !take_timer() {
        // Who is idle looks itself.
        let looks = cpu.needs_resched() && thread::here().is_idle;
        if !cpu.take_interrupt() && !looks {
            return false;
        }
        note(|| "another CPU's interrupt".into());
    }
    percpu::preempt_if_needed();
    true
}

/// Has all CPUs do what is due, and looks whether all is as it has to be.
pub fn settle() {
    let due = |cpu| {
        on(cpu, || {
            let was_due = take_interrupt() || percpu::this().needs_resched();
            percpu::preempt_if_needed();
            was_due
        })
    };
    for _ in 0..10_000 {
        // All of them, not up to the first.
        if (0..percpu::all().len()).filter(|&cpu| due(cpu)).count() == 0 {
            live(false);
            invariants::check();
            return live(true);
        }
    }
    fail("it does not come to rest");
}
