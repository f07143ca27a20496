// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vDSO: a shared object that the kernel maps into every program. C libraries read clocks and
//! the number of the CPU by it, without a system call. The time page lies on the page before it.
//!
//! Entry points, version and weak names are Linux's (vdso(7)). What an entry point cannot answer,
//! it asks by the system call.
#![no_std]
#![no_main]

use core::{arch::asm, panic::PanicInfo};

use crtos_abi::{PAGE_SIZE, channel::TimePage};
use crtos_vdso::{Clock, read, tick};

// Numbers of system calls.
const GETTIMEOFDAY: u64 = 96;
const TIME: u64 = 201;
const CLOCK_GETTIME: u64 = 228;
const CLOCK_GETRES: u64 = 229;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Selector of the segment whose limit holds the number of the CPU, and from bit 12 on that of its
/// memory node.
const CPU_SELECTOR: u32 = 0x7b;

/// `struct timespec`; with microseconds also `struct timeval`.
#[repr(C)]
struct Time {
    seconds: u64,
    fraction: u64,
}

/// Returns the address of the time page, the page before this object.
#[inline(always)]
fn time_page() -> *const TimePage {
    let page;
    // SAFETY: the instruction computes an address, and touches neither memory nor flags.
    unsafe {
        asm!("lea {}, [rip + __ehdr_start - {size}]", out(reg) page, size = const PAGE_SIZE,
            options(nomem, nostack, preserves_flags, pure));
    }
    page
}

/// Reads the time stamp counter, after all instructions before it have completed.
#[inline(always)]
fn counter() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instructions read a counter into EAX and EDX.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(low) | u64::from(high) << 32
}

/// Makes a system call with two arguments.
#[inline(always)]
fn system_call(number: u64, first: u64, second: u64) -> i32 {
    let result: u64;
    // SAFETY: the call writes at most to where the program's own pointers lead, and the kernel
    // checks these; SYSCALL overwrites RCX and R11, which are declared.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result as i32
}

/// Reads `clock` in nanoseconds; `None` if Linux writes to the page all the time.
#[inline(always)]
fn time_of(clock: Clock) -> Option<u64> {
    // SAFETY: the kernel maps the time page together with this object, page-aligned, for as long as
    // the program runs.
    let reading = unsafe { read(time_page(), clock, counter) };
    reading.is_consistent.then_some(reading.time)
}

/// clock_gettime(2).
#[unsafe(no_mangle)]
extern "C" fn __vdso_clock_gettime(clock: u32, to: *mut Time) -> i32 {
    match Clock::from_number(clock).and_then(time_of) {
        Some(time) => {
            // SAFETY: clock_gettime(3) has its caller pass a valid pointer.
            unsafe { to.write(Time { seconds: time / SECOND, fraction: time % SECOND }) };
            0
        }
        None => system_call(CLOCK_GETTIME, clock.into(), to as u64),
    }
}

/// clock_getres(2).
#[unsafe(no_mangle)]
extern "C" fn __vdso_clock_getres(clock: u32, to: *mut Time) -> i32 {
    if Clock::from_number(clock).is_none() {
        return system_call(CLOCK_GETRES, clock.into(), to as u64);
    }
    // SAFETY: the kernel maps the time page together with this object, page-aligned, for as long as
    // the program runs.
    let fraction = if Clock::is_coarse(clock) { unsafe { tick(time_page()) }.into() } else { 1 };
    if !to.is_null() {
        // SAFETY: clock_getres(3) has its caller pass a valid pointer or null.
        unsafe { to.write(Time { seconds: 0, fraction }) };
    }
    0
}

/// gettimeofday(2).
#[unsafe(no_mangle)]
extern "C" fn __vdso_gettimeofday(to: *mut Time, zone: *mut u64) -> i32 {
    if !zone.is_null() {
        return system_call(GETTIMEOFDAY, to as u64, zone as u64);
    }
    if to.is_null() {
        return 0;
    }
    match time_of(Clock::Realtime) {
        Some(time) => {
            // SAFETY: gettimeofday(2) has its caller pass a valid pointer or null, and it is not
            // null.
            unsafe { to.write(Time { seconds: time / SECOND, fraction: time % SECOND / 1000 }) };
            0
        }
        None => system_call(GETTIMEOFDAY, to as u64, 0),
    }
}

/// time(2).
#[unsafe(no_mangle)]
extern "C" fn __vdso_time(to: *mut u64) -> u64 {
    let Some(time) = time_of(Clock::Realtime) else {
        return system_call(TIME, to as u64, 0) as u64;
    };
    let seconds = time / SECOND;
    if !to.is_null() {
        // SAFETY: time(2) has its caller pass a valid pointer or null.
        unsafe { to.write(seconds) };
    }
    seconds
}

/// getcpu(2).
#[unsafe(no_mangle)]
extern "C" fn __vdso_getcpu(cpu: *mut u32, node: *mut u32, _cache: *mut u8) -> i32 {
    let limit: u32;
    // SAFETY: the instruction reads the limit of a segment, which the kernel keeps in the table of
    // every CPU.
    unsafe {
        asm!("lsl {0:e}, {1:e}", out(reg) limit, in(reg) CPU_SELECTOR, options(nomem, nostack));
    }
    // SAFETY: getcpu(2) has its caller pass valid pointers or null.
    unsafe {
        if !cpu.is_null() {
            cpu.write(limit & 0xfff);
        }
        if !node.is_null() {
            node.write(limit >> 12);
        }
    }
    0
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    loop {}
}
