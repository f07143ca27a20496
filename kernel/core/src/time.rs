// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks. The kernel's own clock counts from its boot and never steps; all deadlines are in it.
//!
//! The clocks of programs start where Linux's are. CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW are the
//! kernel's from then on: Linux leads their rates, within a bound ([`crtos_sched::steer`]). The
//! others have their distance from CLOCK_MONOTONIC, which Linux says. Programs read them from the
//! kernel's time page. What Linux stores in the channel is an allegation, which the kernel looks at
//! a few times a second and when Linux says that it set a clock.

use crate::arch::cpu;
use crate::mm::layout;
use crate::sync::SpinLock;
use core::cell::{Cell, UnsafeCell};
use crtos_abi::{boot::KERNEL_BASE, channel::TimePage};
use crtos_sched::{
    clock::TscClock,
    steer::{Line, Steered},
};
use crtos_vdso::Contents;
use crtos_vm::Frame;
use spin::Once;

pub use crtos_sched::{Nanos, clock::Ticks};
pub use crtos_vdso::Clock;

static CLOCK: Once<TscClock> = Once::new();

/// Starts the kernel's clock at 0, and the clocks of programs where Linux's are. At boot.
pub fn set_up() {
    let khz = layout::boot_info().tsc_khz;
    CLOCK.call_once(|| TscClock::new(cpu::tsc(), khz));
    let said = said_by_linux();
    let start = cpu::tsc();
    let begin = |line: Option<Line>| {
        Steered::new(khz, start, line.map_or(0, |line| line.at(start).min(LATEST_START)))
    };
    let mut own = Own {
        monotonic: begin(said.as_ref().map(monotonic)),
        raw: begin(said.as_ref().map(raw)),
        said: said.unwrap_or(Contents { tick: 1, ..Contents::default() }),
    };
    own.publish(None);
    *OWN.lock() = Some(own);
}

/// The conversion between ticks of the time stamp counter and kernel time.
pub fn clock() -> &'static TscClock {
    match CLOCK.get() {
        Some(clock) => clock,
        None => panic!("the clock is used before it was set up"),
    }
}

/// Time since the kernel's boot. Any context.
pub fn now() -> Nanos {
    clock().time(cpu::tsc())
}

/// The tick that it is now. Any context.
pub fn ticks() -> Ticks {
    Ticks(cpu::tsc())
}

/// The duration of so many ticks. Any context.
pub fn duration(ticks: Ticks) -> Nanos {
    clock().duration(ticks)
}

/// Time of one of the clocks of programs. Any context that may take a spin lock.
pub fn linux(clock: Clock) -> Nanos {
    read(clock, cpu::tsc)
}

/// The same, with the counter read by `tsc`. While another CPU writes the page, this waits for it,
/// as for a spin lock.
fn read(clock: Clock, tsc: impl Fn() -> u64) -> Nanos {
    loop {
        // SAFETY: the page is the kernel's for ever, and is reached by atomics alone.
        let reading = unsafe { crtos_vdso::read(page(), clock, &tsc) };
        if reading.is_consistent {
            return Nanos(reading.time);
        }
    }
}

/// Time of one of the clocks of programs; `None` if that takes more than one look. Any context.
pub fn try_linux(clock: Clock) -> Option<Nanos> {
    // SAFETY: the page is the kernel's for ever, and is reached by atomics alone.
    let reading = unsafe { crtos_vdso::try_read(page(), clock, cpu::tsc) };
    reading.is_consistent.then_some(Nanos(reading.time))
}

/// Nanoseconds between two moves of Linux's coarse clocks.
pub fn coarse_resolution() -> u64 {
    // SAFETY: the page is the kernel's for ever, and is reached by atomics alone.
    u64::from(unsafe { crtos_vdso::tick(page()) })
}

/// How often one of Linux's clocks was set. Any context.
pub fn steps() -> u32 {
    // SAFETY: the page is the kernel's for ever, and is reached by atomics alone.
    unsafe { crtos_vdso::steps(page()) }.0
}

/// How often CLOCK_REALTIME was set. Any context.
pub fn realtime_steps() -> u32 {
    // SAFETY: the page is the kernel's for ever, and is reached by atomics alone.
    unsafe { crtos_vdso::steps(page()) }.1
}

/// The kernel's time page. Programs read it.
struct Page(UnsafeCell<TimePage>);

// SAFETY: the page is reached by atomics alone.
unsafe impl Sync for Page {}

static PAGE: Page = Page(UnsafeCell::new(TimePage {
    sequence: 0,
    shift: 0,
    mult: 0,
    raw_mult: 0,
    tsc_base: 0,
    monotonic: 0,
    realtime: 0,
    boottime: 0,
    tai: 0,
    raw: 0,
    tick: 1,
    steps: 0,
    realtime_steps: 0,
    reserved: [0; 1003],
}));

fn page() -> *const TimePage {
    PAGE.0.get()
}

/// The frame of the kernel's time page: nothing else lies in it, so programs may read it.
pub(crate) fn page_frame() -> Frame {
    Frame(page() as u64 - KERNEL_BASE)
}

/// The latest time at which a clock starts: 146 years. None reaches the end of its numbers.
const LATEST_START: u64 = 1 << 62;

/// The most looks at what Linux stores. Linux writes it in about 20 instructions, so that a second
/// look mostly suffices.
const TRIES: u32 = 4;

/// Linux's time page, if there is a channel.
fn page_of_linux() -> Option<*const TimePage> {
    // SAFETY: only the address is computed, inside the mapped channel.
    layout::channel().map(|channel| unsafe { &raw const (*channel.as_ptr()).time })
}

/// What Linux says of its clocks, all of which may be wrong; `None` if it writes it all the time.
fn said_by_linux() -> Option<Contents> {
    // SAFETY: the channel is mapped for ever, and its time page is reached by atomics alone.
    unsafe { crtos_vdso::contents(page_of_linux()?, TRIES) }
}

/// The line of CLOCK_MONOTONIC.
fn monotonic(said: &Contents) -> Line {
    let Contents { tsc_base, monotonic, mult, shift, .. } = *said;
    Line { start: tsc_base, base: monotonic, mult, shift }
}

/// The line of CLOCK_MONOTONIC_RAW.
fn raw(said: &Contents) -> Line {
    let Contents { tsc_base, raw, raw_mult, shift, .. } = *said;
    Line { start: tsc_base, base: raw, mult: raw_mult, shift }
}

/// The clocks of programs.
struct Own {
    monotonic: Steered,
    raw: Steered,
    /// What Linux said last.
    said: Contents,
}

/// Whoever holds this writes the kernel's time page.
static OWN: SpinLock<Option<Own>> = SpinLock::new(None);

impl Own {
    /// Writes the page. With rates, both lines begin anew while readers cannot finish, so that none
    /// has read a later time from an old line than a new one shows.
    fn publish(&mut self, rates: Option<[u32; 2]>) {
        let make = || {
            if let Some([monotonic, raw]) = rates {
                let start = cpu::tsc();
                self.monotonic.begin(start, monotonic);
                self.raw.begin(start, raw);
            }
            let (monotonic, raw, said) = (self.monotonic.line(), self.raw.line(), &self.said);
            // As far ahead of CLOCK_MONOTONIC as Linux's.
            let beside = |time: u64| time.wrapping_sub(said.monotonic).wrapping_add(monotonic.base);
            Contents {
                shift: monotonic.shift,
                mult: monotonic.mult,
                raw_mult: raw.mult,
                tsc_base: monotonic.start,
                monotonic: monotonic.base,
                realtime: beside(said.realtime),
                boottime: beside(said.boottime),
                tai: beside(said.tai),
                raw: raw.base,
                tick: said.tick,
                steps: said.steps,
                realtime_steps: said.realtime_steps,
            }
        };
        // SAFETY: the page is the kernel's for ever. The lock is held: nobody else writes.
        unsafe { crtos_vdso::write(PAGE.0.get(), make) }
    }
}

/// Looks at what Linux says, leads the clocks by it, and follows clocks that were set. The rates
/// change at most every tenth of a second.
pub(crate) fn lead() {
    let said = said_by_linux();
    let mut own = OWN.lock();
    let Some(own) = &mut *own else { return };
    let now = cpu::tsc();
    let rates = own.monotonic.is_due(now).then(|| {
        [
            own.monotonic.plan(now, said.as_ref().map(monotonic).as_ref()),
            own.raw.plan(now, said.as_ref().map(raw).as_ref()),
        ]
    });
    own.said = said.unwrap_or(own.said);
    own.publish(rates);
}

/// A number that changes at least every few seconds while Linux goes on telling of its clocks, as
/// [`lead`] saw it last.
pub fn pulse_of_linux() -> u64 {
    OWN.lock().as_ref().map_or(0, |own| own.said.tsc_base)
}

/// Follows clocks that Linux says it set, if it does. The rates stay. Any context that may take a
/// spin lock; at most `TRIES` looks at Linux's page.
pub(crate) fn follow() {
    let Some(page) = page_of_linux() else { return };
    // SAFETY: the channel is mapped for ever, and its time page is reached by atomics alone.
    if unsafe { crtos_vdso::steps(page) }.0 == steps() {
        return;
    }
    let mut own = OWN.lock();
    if let (Some(own), Some(said)) = (&mut *own, said_by_linux()) {
        own.said = said;
        own.publish(None);
    }
}

/// The kernel's time at which `clock` will show `time`; now if that has passed. Both clocks are
/// read at one moment, so whatever interrupts this, it is not early. Any context.
fn deadline(clock: Clock, time: Nanos) -> Nanos {
    let moment = Cell::new(0);
    let read_moment = || {
        moment.set(cpu::tsc());
        moment.get()
    };
    let shown = read(clock, read_moment);
    self::clock().time(moment.get()) + (time - shown)
}

/// When a wait ends, or a timer expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// At a time of the kernel's clock.
    At(Nanos),
    /// When a clock that can be set shows a time.
    Shown(Clock, Nanos),
}

impl Deadline {
    /// When `clock` shows `time`. CLOCK_BOOTTIME jumps when Linux was suspended.
    pub fn of(clock: Clock, time: Nanos) -> Self {
        match clock {
            Clock::Realtime | Clock::Tai | Clock::Boottime => Self::Shown(clock, time),
            Clock::Monotonic | Clock::Raw => Self::At(deadline(clock, time)),
        }
    }

    /// The kernel's time of that, as Linux's clocks stand. Any context.
    pub fn time(self) -> Nanos {
        match self {
            Self::At(time) => time,
            Self::Shown(clock, time) => deadline(clock, time),
        }
    }

    /// Whether that can change.
    pub fn can_move(self) -> bool {
        matches!(self, Self::Shown(..))
    }
}

impl From<Nanos> for Deadline {
    fn from(time: Nanos) -> Self {
        Self::At(time)
    }
}
