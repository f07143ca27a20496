// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends `count=NUMBER` messages by its first link through a lock-free ring, `send=PEER`, or
//! receives and checks them, `receive=PEER`. The other one may be `tests/programs/messages.c`. What
//! it has done so far is in its output section: when it starts again, it goes on there.
//!
//! Its state is 1 while it does, 2 at the end, and 3 if a message is not what it should be.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crtos_inmates::{boot, halt, inmate, link, link::Link, println, wait_for_interrupt};

inmate!(main, |_| ());

/// Words of an output section: how many messages are in the ring's slots, or were taken from those
/// of the other one; whether a ring of the doorbell is awaited; and the slots.
const SENT: usize = 0;
const TAKEN: usize = 1;
const SLEEPS: usize = 2;
const SLOTS: usize = 16;
/// Messages that are under way at most.
const ROOM: u64 = 1024;

/// Looks before it sleeps: mostly the other one is about to send or take.
const LOOKS: u32 = 5000;

/// One end of a ring.
struct End {
    link: Link,
    peer: usize,
    own: &'static [AtomicU64],
    theirs: &'static [AtomicU64],
}

/// What message number `number` is.
fn message(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl End {
    fn new(link: Link, peer: usize) -> Self {
        let (own, theirs) = (link.output(link.own()), link.output(peer));
        Self { link, peer, own, theirs }
    }

    /// Says how much is done, and rings if the other one waits for that.
    fn tell(&self, word: usize, done: u64) {
        self.own[word].store(done, Ordering::Release);
        // What is done before the look; pairs with the fence of who goes to sleep.
        fence(Ordering::SeqCst);
        if self.theirs[SLEEPS].load(Ordering::Relaxed) != 0 {
            self.link.ring(self.peer);
        }
    }

    /// Waits until `is_there` says so.
    fn sleep_until(&self, is_there: impl Fn() -> bool) {
        while !(0..LOOKS).any(|_| is_there()) {
            let seen = self.link.rings();
            self.own[SLEEPS].store(1, Ordering::Relaxed);
            // The word before the look; pairs with the fence of who tells.
            fence(Ordering::SeqCst);
            // Interrupts are off: what rings behind the look ends the wait.
            if !is_there() && self.link.rings() == seen {
                wait_for_interrupt();
            }
            self.own[SLEEPS].store(0, Ordering::Relaxed);
        }
    }

    /// Messages that were sent and not taken. A peer that says nonsense has a full ring.
    fn under_way(&self, sent: u64) -> u64 {
        sent.wrapping_sub(self.theirs[TAKEN].load(Ordering::Acquire)).min(ROOM)
    }

    fn send(&self, count: u64) {
        for number in self.own[SENT].load(Ordering::Relaxed)..count {
            self.sleep_until(|| self.under_way(number) < ROOM);
            self.own[SLOTS + (number % ROOM) as usize].store(message(number), Ordering::Relaxed);
            self.tell(SENT, number + 1);
        }
        self.sleep_until(|| self.under_way(count) == 0);
    }

    /// Whether all are what they should be.
    fn receive(&self, count: u64) -> bool {
        let sent = || self.theirs[SENT].load(Ordering::Acquire);
        for number in self.own[TAKEN].load(Ordering::Relaxed)..count {
            self.sleep_until(|| sent() > number);
            let found = self.theirs[SLOTS + (number % ROOM) as usize].load(Ordering::Relaxed);
            if found != message(number) {
                println!("messages: number {number} is {found:#x}");
                return false;
            }
            self.tell(TAKEN, number + 1);
        }
        true
    }
}

fn main(cpu: usize) {
    let Some(link) = link::all().next().filter(|_| cpu == 0) else { halt() };
    link.listen_on(cpu);
    link.set_state(1);
    let count = boot::number("count").unwrap_or(1000);
    let good = match (boot::number("send"), boot::number("receive")) {
        (Some(peer), _) => {
            End::new(link, peer as usize).send(count);
            true
        }
        (_, Some(peer)) => End::new(link, peer as usize).receive(count),
        _ => false,
    };
    link.set_state(if good { 2 } else { 3 });
    link.ring(0);
}
