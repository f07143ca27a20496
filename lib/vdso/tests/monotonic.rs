// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock whose rate changes all the time goes back for no reader, on whatever CPU.
#![cfg(target_arch = "x86_64")]

use core::arch::x86_64::{_mm_lfence, _rdtsc};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use crtos_abi::channel::TimePage;
use crtos_sched::steer::{Line, Steered};
use crtos_vdso::{Clock, Contents, contents, read, steps, write};

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has both instructions.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// A page of zeros.
struct Page(Box<TimePage>);

impl Page {
    fn new() -> Self {
        // SAFETY: zeros are numbers.
        Self(Box::new(unsafe { core::mem::zeroed() }))
    }
}

fn said(clock: &Steered) -> Contents {
    let line = clock.line();
    Contents {
        shift: line.shift,
        mult: line.mult,
        tsc_base: line.start,
        monotonic: line.base,
        ..Contents::default()
    }
}

#[test]
fn no_reader_sees_it_go_back() {
    let mut page = Page::new();
    let (page, stop) = (&raw mut *page.0 as usize, AtomicBool::new(false));
    let mut clock = Steered::new(2_000_000, counter(), 1_000_000_000);
    // SAFETY: the page outlives the threads, and only this one writes.
    unsafe { write(page as *mut TimePage, || said(&clock)) };
    let latest = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = latest.load(Ordering::SeqCst);
                    // SAFETY: as above.
                    let reading =
                        unsafe { read(page as *const TimePage, Clock::Monotonic, counter) };
                    if reading.is_consistent {
                        assert!(reading.time >= seen, "{} after {seen}", reading.time);
                        latest.fetch_max(reading.time, Ordering::SeqCst);
                    }
                }
            });
        }
        for turn in 0..300_000_u64 {
            // A leader who is far ahead and far behind by turns.
            let base = if turn % 2 == 0 { 1 << 50 } else { 0 };
            let leader = Line { start: counter(), base, mult: 1 << 23, shift: 24 };
            let mult = clock.plan(counter(), Some(&leader));
            let make = || {
                clock.begin(counter(), mult);
                said(&clock)
            };
            // SAFETY: as above.
            unsafe { write(page as *mut TimePage, make) };
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_written_is_what_the_page_says() {
    let mut page = Page::new();
    let page = &raw mut *page.0;
    let written = Contents {
        shift: 30,
        mult: 2,
        raw_mult: 3,
        tsc_base: 4,
        monotonic: 5,
        realtime: 6,
        boottime: 7,
        tai: 8,
        raw: 9,
        tick: 10,
        steps: 11,
        realtime_steps: 12,
    };
    // SAFETY: the page is this test's.
    unsafe {
        write(page, || {
            assert_eq!(contents(page, 3), None, "while it is written");
            written
        });
        assert_eq!((contents(page, 1), steps(page)), (Some(written), (11, 12)));
        (*page).sequence |= 1;
        assert_eq!(contents(page, 100), None, "an owner who does not finish");
    }
}
