// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays ping-pong by its first link. `serve=PEER` and `rounds=NUMBER`: rings that peer with a
//! number in its own output section, and waits until that one has the same number there, and then
//! for `pause=NANOSECONDS`. Otherwise it answers: of whichever peer rings, the number becomes its
//! own, and it rings that peer. Behind the number is the time stamp counter, when it was sent or
//! heard of.
//! `attack=WHAT` does what a peer may not: `foreign` stores to the output section of peer 0,
//! `table` to the state table of peer 0, `header` to the header, `beyond` behind the end.
//! `attack=strange` rings cells that are no neighbours, and says how many it could ring.
//! `attack=wild` makes calls with wild arguments, and says how many were done. `attack=hide` takes
//! back a ring of Linux's program for each one of peer 1; `attack=flood` rings all cells, for ever,
//! and with `rest=NANOSECONDS` halts for so long after each [`BURST`] of rings.
//!
//! Its state is 1 while it answers, and 2 when it has played all rounds.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::hypercall::{HC_CELL_LINK, HC_DOORBELL};
use crtos_abi::link::{LINK_MEMORY, LINK_SIZE_MAX, MAX_LINK_PEERS};
use crtos_inmates::wait_for_interrupt;
use crtos_inmates::{apic, boot, halt, hypercall, inmate, link, link::Link, println, time};

inmate!(main, |_| ());

fn main(cpu: usize) {
    if cpu != 0 {
        halt();
    }
    let Some(link) = link::all().next() else {
        println!("link: the cell has none");
        halt();
    };
    link.listen_on(cpu);
    match boot::command_line().split_whitespace().find_map(|word| word.strip_prefix("attack=")) {
        Some(what) => attack(&link, what),
        None => match boot::number("serve") {
            Some(peer) => serve(&link, peer as usize),
            None => answer(&link),
        },
    }
}

/// How many of the last ways from one peer to the other are kept.
const KEPT: usize = 200;

/// The number of a peer, and the time stamp counter of then.
fn words(link: &Link, peer: usize) -> [&'static AtomicU64; 2] {
    let output = link.output(peer);
    [&output[0], &output[1]]
}

/// Rings of each cell, one right after the other.
const BURST: u32 = 500;

/// How often each peer has rung.
type Rings = [u32; MAX_LINK_PEERS];

/// Waits until there are other rings than `seen`, and returns how many there are.
fn await_ring(link: &Link, seen: Rings) -> Rings {
    loop {
        // Interrupts are off: what rings behind the look ends the wait.
        let rings = link.rings();
        if rings != seen {
            return rings;
        }
        wait_for_interrupt();
    }
}

fn serve(link: &Link, peer: usize) {
    let rounds = boot::number("rounds").unwrap_or(1000);
    let pause = time::ticks(boot::number("pause").unwrap_or(0));
    let ([own, own_stamp], [theirs, their_stamp]) = (words(link, link.own()), words(link, peer));
    let mut ways = [0; KEPT];
    let mut seen = link.rings();
    while link.state(peer) != 1 {
        core::hint::spin_loop();
    }
    link.set_state(1);
    let (start, mut longest) = (time::tsc(), 0);
    for round in 1..=rounds {
        let sent = time::tsc();
        own_stamp.store(sent, Ordering::Relaxed);
        own.store(round, Ordering::Release);
        link.ring(peer);
        while theirs.load(Ordering::Acquire) != round {
            seen = await_ring(link, seen);
        }
        let back = time::tsc();
        longest = longest.max(back - sent);
        // A ring of somebody else may have told it before.
        ways[round as usize % KEPT] = their_stamp.load(Ordering::Relaxed).saturating_sub(sent);
        while time::tsc() - back < pause {
            core::hint::spin_loop();
        }
    }
    let mean = time::nanos(time::tsc() - start) / rounds.max(1);
    link.set_state(2);
    link.ring(0);
    println!("link: {rounds} rounds, {mean} ns in the mean, {} at most", time::nanos(longest));
    ways.sort_unstable();
    let ways = &ways[KEPT - KEPT.min(rounds as usize)..];
    let [median, most] = [ways.len() / 2, ways.len() - 1].map(|at| time::nanos(ways[at]));
    println!("link: one way {median} ns in the median, {most} at most, of {}", ways.len());
}

fn answer(link: &Link) -> ! {
    let [own, own_stamp] = words(link, link.own());
    let mut last = [0; 8];
    let mut seen = link.rings();
    link.set_state(1);
    link.ring(0);
    let mut heard = 0;
    loop {
        for peer in (0..link.peers()).filter(|peer| *peer != link.own()) {
            let number = link.output(peer)[0].load(Ordering::Acquire);
            if number != last[peer] {
                last[peer] = number;
                own_stamp.store(heard, Ordering::Relaxed);
                own.store(number, Ordering::Release);
                link.ring(peer);
            }
        }
        seen = await_ring(link, seen);
        heard = time::tsc();
    }
}

fn attack(link: &Link, what: &str) {
    let number = (0..8).find(|number| boot::info().peer(*number).is_some()).unwrap_or(0);
    let base = LINK_MEMORY + number as u64 * LINK_SIZE_MAX;
    link.set_state(1);
    println!("link: {what}");
    let at = match what {
        "foreign" => &raw const link.output(0)[0] as u64,
        "table" => base + 4096,
        "header" => base,
        "beyond" => base + LINK_SIZE_MAX - 4096,
        "wild" => return wild(),
        "hide" => hide(base, link.own() as u64),
        "flood" => flood(link),
        _ => {
            let rung =
                (0..=64).filter(|cell| hypercall::call(HC_DOORBELL, 0, 1 + cell) == 0).count();
            println!("link: rang {rung} cells");
            return;
        }
    };
    // SAFETY: nothing of the program is there: the hypervisor stops the cell.
    unsafe { (at as *mut u64).write_volatile(1) };
    println!("link: still alive");
}

/// Rings all cells for ever.
fn flood(link: &Link) -> ! {
    let rest = boot::number("rest").map(time::ticks);
    if rest.is_some() {
        apic::calibrate();
    }
    loop {
        for _ in 0..BURST {
            (1..link.peers()).filter(|peer| *peer != link.own()).for_each(|peer| {
                link.ring(peer);
            });
        }
        if let Some(rest) = rest {
            apic::start_timer_at(time::tsc() + rest);
            wait_for_interrupt();
        }
    }
}

/// Asks for neighbours, and rings CPUs that no cell has.
fn wild() {
    const NUMBERS: [u64; 8] = [0, 1, 2, 15, 16, 1 << 31, 1 << 32, u64::MAX];
    let pairs = || NUMBERS.into_iter().flat_map(|one| NUMBERS.map(|other| (one, other)));
    let linked =
        pairs().filter(|(one, other)| hypercall::call(HC_CELL_LINK, *one, *other) == 0).count();
    // A neighbour has one CPU, number 0 there.
    let rung = pairs()
        .filter(|(cpu, cell)| {
            *cpu != 0 && *cell != 0 && hypercall::call(HC_DOORBELL, *cpu, *cell) == 0
        })
        .count();
    println!("link: linked {linked}, rang {rung}");
}

/// Takes back a ring of peer 0 for each one of peer 1, so that the sum stays.
fn hide(base: u64, own: u64) -> ! {
    let rung = |peer: u64| {
        // SAFETY: a word of the state table, which is mapped for ever and reached by atomics.
        unsafe { &*((base + (1 + peer) * 4096 + 8) as *const AtomicU32) }
    };
    let (theirs, mine) = (rung(1), rung(own));
    let sum = mine.load(Ordering::Relaxed).wrapping_add(theirs.load(Ordering::Relaxed));
    loop {
        mine.store(sum.wrapping_sub(theirs.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}
