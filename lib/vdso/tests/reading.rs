// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings are what the page says, and never a mixture of two updates.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    thread,
};

use crtos_abi::channel::TimePage;
use crtos_vdso::{Clock, Reading, read, tick};
use proptest::prelude::*;

const CLOCKS: [Clock; 5] =
    [Clock::Monotonic, Clock::Realtime, Clock::Boottime, Clock::Tai, Clock::Raw];

fn page() -> TimePage {
    TimePage {
        sequence: 2,
        shift: 10,
        mult: 2048,
        raw_mult: 1024,
        tsc_base: 1000,
        monotonic: 5,
        realtime: 600,
        boottime: 7,
        tai: 637,
        raw: 3,
        tick: 4_000_000,
        steps: 0,
        realtime_steps: 0,
        reserved: [0; 1003],
    }
}

fn at(page: &TimePage, clock: Clock, tsc: u64) -> Reading {
    // SAFETY: the page lives and nobody writes to it.
    unsafe { read(page, clock, || tsc) }
}

#[test]
fn each_clock_has_its_line() {
    let page = page();
    let times = CLOCKS.map(|clock| at(&page, clock, 1500));
    assert_eq!(times.map(|reading| reading.time), [1005, 1600, 1007, 1637, 503]);
    assert!(times.iter().all(|reading| reading.is_consistent));
    assert_eq!(at(&page, Clock::Monotonic, 3).time, 5, "a counter that is behind");
    // SAFETY: as above.
    assert_eq!(unsafe { tick(&page) }, 4_000_000);
}

#[test]
fn a_page_that_is_never_finished_is_not_waited_for() {
    let page = TimePage { sequence: 3, ..page() };
    assert_eq!(at(&page, Clock::Raw, 1500), Reading { time: 503, is_consistent: false });
}

#[test]
fn numbers_are_those_of_linux() {
    let clock = Clock::from_number;
    assert_eq!([0, 1, 4, 7, 11].map(clock), [1, 0, 4, 2, 3].map(|index| Some(CLOCKS[index])));
    assert_eq!([5, 6].map(clock), [Some(Clock::Realtime), Some(Clock::Monotonic)]);
    assert_eq!([2, 3, 8, 9, 10, 12, u32::MAX].map(clock), [None; 7]);
    assert!((0..12).filter(|&number| Clock::is_coarse(number)).eq([5, 6]));
}

#[test]
fn no_reading_mixes_two_updates() {
    let mut page = page();
    let (page, stop) = (&raw mut page as usize, AtomicBool::new(false));
    let field = |offset: usize| {
        // SAFETY: a field of the page, which outlives the threads and is reached by atomics alone.
        unsafe { AtomicU64::from_ptr((page + offset) as *mut u64) }
    };
    // SAFETY: as above.
    let sequence = unsafe { AtomicU32::from_ptr(page as *mut u32) };
    thread::scope(|scope| {
        scope.spawn(|| {
            for update in 1..200_000_u64 {
                let number = sequence.load(Ordering::Relaxed);
                sequence.store(number + 1, Ordering::Relaxed);
                fence(Ordering::Release);
                // Together the two always say the same at one count.
                field(core::mem::offset_of!(TimePage, tsc_base)).store(update, Ordering::Relaxed);
                field(core::mem::offset_of!(TimePage, monotonic))
                    .store(2 * update, Ordering::Relaxed);
                sequence.store(number + 2, Ordering::Release);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: as above.
            let reading = unsafe { read(page as *const TimePage, Clock::Monotonic, || 1_000_000) };
            assert!(
                !reading.is_consistent || [2_000_000, 1_998_005].contains(&reading.time),
                "{reading:?}"
            );
        }
    });
}

proptest! {
    #[test]
    fn no_numbers_do_harm(sequence: u32, shift: u32, mult: u32, base: u64, tsc: u64) {
        let page = TimePage { sequence, shift, mult, tsc_base: base, monotonic: base, ..page() };
        let reading = at(&page, Clock::Monotonic, tsc);
        prop_assert_eq!(reading.is_consistent, sequence % 2 == 0);
    }
}
