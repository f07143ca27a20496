// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays ping-pong by its first link. `serve=PEER` and `rounds=NUMBER`: rings that peer with a
//! number in its own output section, and waits until that one has the same number there. Otherwise
//! it answers: of whichever peer rings, the number becomes its own, and it rings that peer.
//! `attack=WHAT` does what a peer may not: `foreign` stores to the output section of peer 0,
//! `table` to the state table of peer 0, `header` to the header, `beyond` behind the end.
//! `attack=strange` rings cells that are no neighbours, and says how many it could ring.
//!
//! Its state is 1 while it answers, and 2 when it has played all rounds.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering;

use crtos_abi::hypercall::HC_DOORBELL;
use crtos_abi::link::{LINK_MEMORY, LINK_SIZE_MAX};
use crtos_inmates::wait_for_interrupt;
use crtos_inmates::{boot, halt, hypercall, inmate, link, link::Link, println, time};

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

/// Waits until there are more rings than `seen`, and returns how many there are.
fn await_ring(link: &Link, seen: u32) -> u32 {
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
    let (own, theirs) = (&link.output(link.own())[0], &link.output(peer)[0]);
    let mut seen = link.rings();
    while link.state(peer) != 1 {
        core::hint::spin_loop();
    }
    link.set_state(1);
    let (start, mut longest) = (time::tsc(), 0);
    for round in 1..=rounds {
        let sent = time::tsc();
        own.store(round, Ordering::Release);
        link.ring(peer);
        while theirs.load(Ordering::Acquire) != round {
            seen = await_ring(link, seen);
        }
        longest = longest.max(time::tsc() - sent);
    }
    let mean = time::nanos(time::tsc() - start) / rounds.max(1);
    link.set_state(2);
    link.ring(0);
    println!("link: {rounds} rounds, {mean} ns in the mean, {} at most", time::nanos(longest));
}

fn answer(link: &Link) -> ! {
    let own = &link.output(link.own())[0];
    let mut last = [0; 8];
    let mut seen = link.rings();
    link.set_state(1);
    link.ring(0);
    loop {
        for peer in (0..link.peers()).filter(|peer| *peer != link.own()) {
            let number = link.output(peer)[0].load(Ordering::Acquire);
            if number != last[peer] {
                last[peer] = number;
                own.store(number, Ordering::Release);
                link.ring(peer);
            }
        }
        seen = await_ring(link, seen);
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
