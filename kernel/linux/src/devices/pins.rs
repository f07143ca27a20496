// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupt pins of PCI functions that programs drive. A pin raises a line of an I/O APIC, a level
//! that stays as long as the function asks for it. Functions of the realm may share a line.
//!
//! An interrupt asks each function on the line, by its status register, and switches off the pins
//! of those that have asked, by their command registers: as Linux does for such programs
//! (`pci_check_and_mask_intx`). A program that has served its function switches the pin on again.
//! If the function still asks then, it interrupts at once.
//!
//! A line that interrupts too often, or for nobody, is masked until all functions on it are closed:
//! what holds it may be a device that Linux has, or a function whose pin cannot be switched off.

use alloc::sync::Arc;
use core::fmt;

use crtos_abi::device::MAX_DEVICES;
use crtos_core::{
    arch::interrupts::InService,
    devices::{
        interrupts::{self, Handler, Vector},
        pci,
    },
    sync::SpinLock,
    task::{self, Mutex},
    time::{self, Nanos},
    warn,
};
use spin::Once;

/// Most lines: a machine has four to eight for pins.
const LINES: usize = 8;

/// Interrupts in a row for which nobody has asked, before the line is masked.
const MOST_FOR_NOBODY: u32 = 100;

/// Who is told of a function's interrupts.
pub trait Hears: Sync {
    /// It has interrupted by its pin, which is off since. Interrupts off; bounded.
    fn hear(&self);
}

/// A line on which functions may be.
struct Line {
    on_it: SpinLock<OnIt>,
    /// Held by who says which CPU the line interrupts; there from the first function on.
    route: Once<Mutex<()>>,
    /// The vector of its interrupts, from when a function on it is open first; `None` if there was
    /// no further one.
    vector: Once<Option<u8>>,
}

/// What is on a line.
struct OnIt {
    /// Linux's number of the line.
    number: u32,
    /// Interrupts since somebody has asked.
    for_nobody: u32,
    members: [Option<Member>; MAX_DEVICES],
}

/// A function on a line.
#[derive(Clone, Copy)]
struct Member {
    function: u16,
    hears: &'static dyn Hears,
    /// A program has it open.
    is_open: bool,
    /// Its pin interrupts while it is open.
    is_on: bool,
}

static ALL: [Line; LINES] = [const { Line::new() }; LINES];

impl Line {
    const fn new() -> Self {
        let on_it = OnIt { number: 0, for_nobody: 0, members: [None; MAX_DEVICES] };
        Self { on_it: SpinLock::new(on_it), route: Once::new(), vector: Once::new() }
    }

    fn vector(&'static self) -> Option<u8> {
        let register = || interrupts::register("", Arc::new(Interrupts(self))).map(Vector::keep);
        let is_new = !self.vector.is_completed();
        let vector = *self.vector.call_once(register);
        if is_new {
            self.rename();
        }
        vector
    }

    fn route(&self) -> &Mutex<()> {
        self.route.call_once(|| Mutex::new(()))
    }

    /// In statistics it has the name of its functions.
    fn rename(&self) {
        let Some(&Some(vector)) = self.vector.get() else { return };
        let on_it = *self.on_it.lock();
        interrupts::rename(vector, on_it);
    }
}

impl Clone for OnIt {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for OnIt {}

impl OnIt {
    fn is_empty(&self) -> bool {
        self.members.iter().all(Option::is_none)
    }

    fn is_open(&self) -> bool {
        self.members.iter().flatten().any(|member| member.is_open)
    }

    fn member(&mut self, function: u16) -> Option<&mut Member> {
        self.members.iter_mut().flatten().find(|member| member.function == function)
    }
}

impl fmt::Display for OnIt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut functions = self.members.iter().flatten().map(|member| member.function);
        let Some(first) = functions.next() else { return Ok(()) };
        write!(f, "{}", pci::address(first))?;
        match functions.count() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What handles the interrupts of a line.
struct Interrupts(&'static Line);

impl Handler for Interrupts {
    fn interrupt(&self, service: InService) {
        let mut told = [None; MAX_DEVICES];
        let (mut has_asked, mut is_busy) = (false, false);
        let mut on_it = self.0.on_it.lock();
        for (member, told) in on_it.members.iter_mut().flatten().zip(&mut told) {
            if !(member.is_open && member.is_on) {
                continue;
            }
            match pci::hush_pin(member.function) {
                Some(asked) => {
                    member.is_on = !asked;
                    has_asked |= asked;
                    *told = asked.then_some(member.hears);
                }
                None => is_busy = true,
            }
        }
        on_it.for_nobody = if has_asked || is_busy { 0 } else { on_it.for_nobody + 1 };
        let is_for_nobody = on_it.for_nobody > MOST_FOR_NOBODY;
        drop(on_it);
        if let Some(&Some(vector)) = self.0.vector.get() {
            // Who could not be asked interrupts again at once, which is not the function's fault.
            if is_busy {
                interrupts::restart(vector);
            } else if is_for_nobody {
                interrupts::suspect(vector);
            }
        }
        drop(service);
        told.into_iter().flatten().for_each(Hears::hear);
    }

    fn silence(&self) -> bool {
        interrupts::mask(self.0.on_it.lock().number)
    }
}

/// Whether functions are on that line. Any context.
pub fn has(number: u32) -> bool {
    ALL.iter().any(|line| {
        let on_it = line.on_it.lock();
        on_it.number == number && !on_it.is_empty()
    })
}

/// The pin of a function, which is on a line until this is dropped.
pub struct Pin {
    line: &'static Line,
    function: u16,
}

impl Pin {
    /// Puts a function on a line, with its pin on as soon as it is open. `None` if there are too
    /// many lines. By the thread alone that has functions come and go.
    pub fn join(number: u32, function: u16, hears: &'static dyn Hears) -> Option<Self> {
        let is_empty = |line: &&Line| line.on_it.lock().is_empty();
        let is_it = |line: &&Line| line.on_it.lock().number == number;
        let known = ALL.iter().find(|line| is_it(line) && !is_empty(line));
        let line = known.or_else(|| ALL.iter().find(is_empty))?;
        {
            let mut on_it = line.on_it.lock();
            on_it.number = number;
            let place = on_it.members.iter_mut().find(|place| place.is_none())?;
            *place = Some(Member { function, hears, is_open: false, is_on: true });
        }
        line.rename();
        Some(Self { line, function })
    }

    /// Has it interrupt: the calling thread's CPU, or that of the functions on the line that are
    /// open already. `false` if that is not possible. Thread context; sleeps.
    pub fn open(&self) -> bool {
        let Some(vector) = self.line.vector() else {
            warn!("{}: no vector is left for its line", pci::address(self.function));
            return false;
        };
        let _route = self.line.route().lock();
        let (number, is_first) = {
            let mut on_it = self.line.on_it.lock();
            let is_first = !on_it.is_open();
            if let Some(member) = on_it.member(self.function) {
                member.is_open = true;
            }
            (on_it.number, is_first)
        };
        if is_first {
            self.line.on_it.lock().for_nobody = 0;
            interrupts::restart(vector);
            if !interrupts::route(number, Some(vector)) {
                self.change(|member| member.is_open = false);
                return false;
            }
        }
        self.apply();
        true
    }

    /// The opposite. Thread context; sleeps.
    pub fn close(&self) {
        let _route = self.line.route().lock();
        self.change(|member| member.is_open = false);
        self.apply();
        let on_it = *self.line.on_it.lock();
        if !on_it.is_open() {
            interrupts::route(on_it.number, None);
        }
    }

    /// Switches it on or off, as far as the function is open. Thread context; sleeps.
    pub fn switch(&self, on: bool) {
        self.change(|member| member.is_on = on);
        self.apply();
    }

    /// Whether it is on. Any context.
    pub fn is_on(&self) -> bool {
        self.line.on_it.lock().member(self.function).is_some_and(|member| member.is_on)
    }

    fn change(&self, change: impl FnOnce(&mut Member)) {
        self.line.on_it.lock().member(self.function).map(change);
    }

    /// Has the function's register say what is meant.
    fn apply(&self) {
        /// How often the hypervisor may be busy.
        const TRIES: u32 = 2000;
        for _ in 0..TRIES {
            let is_done = {
                // No interrupt comes between the look and the switch.
                let mut on_it = self.line.on_it.lock();
                let member = on_it.member(self.function);
                let on = member.is_some_and(|member| member.is_open && member.is_on);
                pci::switch_pin(self.function, on)
            };
            if is_done {
                return;
            }
            task::sleep_until(time::now() + Nanos::from_micros(200));
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.close();
        {
            let mut on_it = self.line.on_it.lock();
            let is_it = |member: &Member| member.function == self.function;
            let mut members = on_it.members.iter_mut();
            if let Some(place) = members.find(|place| place.as_ref().is_some_and(is_it)) {
                *place = None;
            }
        }
        self.line.rename();
    }
}
