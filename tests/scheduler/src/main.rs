// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of the real-time kernel, as it is, on simulated CPUs: `simulate random SEED CPUS
//! THREADS STEPS` does random things, `simulate lists SEED THREADS STEPS` compares the order of
//! threads of SCHED_FIFO on one CPU with lists. Ends with 1 and tells what was done last if
//! something does not hold.
//!
//! One CPU goes on at a time. Others do so where it releases a lock, interrupts another one, or
//! opens an interrupt window, so that all orders of sections that hold a lock come about, but no
//! orders of single accesses to memory. Registers and stacks are not simulated: who waits for a
//! thread that has not left its CPU yet goes on at once.
//!
//! | module | stands for |
//! |---|---|
//! | [`arch`], [`sync`], [`time`], [`mm`], [`trace`], [`personality`] | what the scheduler uses |
//! | [`task`] | threads, and the kernel's own files of the scheduler |
//! | [`machine`] | CPUs: what goes on, and where |
//! | [`invariants`] | what has to hold when nothing is due any more |
//! | [`random`], [`lists`] | the two simulations |
#![deny(unsafe_code)]
#![allow(dead_code, unused_imports, reason = "the kernel's files have more than is simulated")]

extern crate alloc;

mod arch;
mod invariants;
mod lists;
mod machine;
mod random;
mod sync;
mod task;
mod time;

/// There is no channel to Linux.
mod mm {
    pub mod layout {
        use crtos_abi::ids::RealmCpu;

        pub struct Channel;

        impl Channel {
            pub fn lower_rank(&self, _: RealmCpu, _: u32) {}
            pub fn raise_rank(&self, _: RealmCpu, _: u32) {}
        }

        pub fn channel_view() -> Option<Channel> {
            None
        }
    }
}

/// What is traced is told if something does not hold.
mod trace {
    use crate::{machine::note, task::Thread};

    pub fn wake(thread: &Thread) {
        note(|| format!("{} becomes ready on {}", thread.id.0, thread.cpu()));
    }

    pub fn switch(next: &Thread) {
        note(|| format!("switches to {}", next.id.0));
    }
}

/// Nobody is told of anything.
mod personality {
    use crate::{
        machine,
        task::{Level, Thread},
    };

    pub fn level_changed(_: &Thread, _: Level) -> bool {
        false
    }

    pub fn rank_fell(_: u32) {
        machine::others_go_on();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize| arguments.get(place)?.parse::<u64>().ok();
    match (arguments.get(1).map(String::as_str), [number(2), number(3), number(4), number(5)]) {
        (Some("random"), [Some(seed), Some(cpus), Some(threads), Some(steps)]) => {
            random::run(seed, cpus as usize, threads, steps);
        }
        (Some("lists"), [Some(seed), Some(threads), Some(steps), None]) => {
            lists::run(seed, threads, steps);
        }
        _ => {
            eprintln!("usage: simulate random SEED CPUS THREADS STEPS | lists SEED THREADS STEPS");
            std::process::exit(2);
        }
    }
}
