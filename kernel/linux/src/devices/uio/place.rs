// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function or a platform device that programs drive: opening and closing it, its interrupts.

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_channel::Wanted;
use spin::Once;

use crtos_core::{
    arch::interrupts::InService,
    devices::{
        interrupts::{self, Handler, Vector},
        pci::{self, Function, Registers, Switch},
        ports,
    },
    mm::{heap, object::Object},
    task::{Mutex, Timer, WaitQueue},
    time,
};

use super::line::Line;
use crate::{
    abi::{Errno, SysResult},
    devices::{
        functions::{self, Driven},
        pins::{Hears, Pin},
    },
    files::{
        Events, Memory, Watchers,
        character::{Character, Signalled},
        lock::Locks,
        wait,
    },
};

/// Bytes of the counter that programs read, and of what they write.
const WORD: u64 = 4;
/// Maps of a function, as Linux has them.
const MOST_MAPS: usize = 5;

/// Where a function can be.
pub(super) struct Place {
    /// The function that is there.
    pub device: Mutex<Option<Device>>,
    /// How often one came or went: what was opened before is dead.
    generation: AtomicU32,
    /// Interrupts so far.
    events: AtomicU32,
    /// What switches its interrupts off ([`Switch::to_word`]), while they are on; else 0.
    switch: AtomicU64,
    /// By what a platform device interrupts.
    pub line: Line,
    /// Who waits for an interrupt.
    readers: WaitQueue,
    /// How many of them are still to be woken, by the timer.
    rest: AtomicUsize,
    timer: Once<Timer>,
    watchers: Watchers,
    locks: Locks,
    /// The vector of its interrupts; `None` if there was no further one.
    vector: Once<Option<u8>>,
}

/// A function of the realm.
pub(super) struct Device {
    /// What Linux said of it.
    pub wanted: Wanted,
    driver: Driver,
    /// The memory that programs may map, in the order of the base address registers. The first ones
    /// are maps, by number.
    objects: Vec<Arc<Object>>,
}

/// Who drives a function.
enum Driver {
    /// Whichever program has it open. There is no function if it is a platform device, and a pin
    /// if the function interrupts by that.
    Program { function: Option<Box<Function>>, pin: Option<Pin>, openings: u32 },
    /// A driver of the kernel.
    Kernel(Arc<dyn Driven>),
}

impl Device {
    /// The function that Linux says to be there; `None` if the realm does not have it, memory runs
    /// low, its driver cannot use it, or there are too many lines. `place` hears its pin. May
    /// sleep.
    pub fn find(wanted: Wanted, place: &'static Place) -> Option<Self> {
        if !heap::has_reserve() {
            return None;
        }
        if let Some(registers) = pci::platform_registers(wanted.function) {
            let driver = Driver::Program { function: None, pin: None, openings: 0 };
            return Self::of_program(wanted, driver, registers);
        }
        let function = Function::find(wanted.function)?;
        if let Some(driver) = functions::driver_of(&function) {
            let driver = Driver::Kernel((driver.start)(function)?);
            return Some(Self { wanted, driver, objects: Vec::new() });
        }
        let registers = function.registers();
        let pin = match wanted.line.filter(|_| !function.has_messages()) {
            Some(line) => Some(Pin::join(line.number, wanted.function, place)?),
            None => None,
        };
        function.open_ports();
        let driver = Driver::Program { function: Some(Box::new(function)), pin, openings: 0 };
        Self::of_program(wanted, driver, registers)
    }

    fn of_program(wanted: Wanted, driver: Driver, registers: Vec<Registers>) -> Option<Self> {
        let registers = registers.into_iter();
        let objects = registers.map(Object::of_registers).collect::<Result<_, _>>().ok()?;
        Some(Self { wanted, driver, objects })
    }

    /// Whether a program has it open or mapped.
    pub fn is_used(&self) -> bool {
        let is_open = match &self.driver {
            Driver::Program { openings, .. } => *openings > 0,
            Driver::Kernel(driven) => Arc::strong_count(driven) > 1,
        };
        is_open || self.objects.iter().any(|object| Arc::strong_count(object) > 1)
    }

    /// Bus, device and function in 16 bits.
    pub fn function(&self) -> u16 {
        self.wanted.function
    }

    /// Its configuration space and its pin, if it interrupts by that.
    pub fn pin(&self) -> Option<(&Function, &Pin)> {
        match &self.driver {
            Driver::Program { function: Some(function), pin: Some(pin), .. } => {
                Some((function, pin))
            }
            _ => None,
        }
    }

    /// The memory that programs may map.
    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The realm does not have it any more.
    pub fn forget(&self) {
        let registers = self.objects.iter().filter_map(|object| object.registers());
        registers.for_each(|registers| registers.forget());
        ports::remove_function(self.function());
        if let Driver::Kernel(driven) = &self.driver {
            driven.leave();
        }
    }
}

/// The path that leads to a device: Linux numbers these by the minor number.
pub(super) fn path_of(wanted: Wanted) -> String {
    let number = wanted.number;
    format!("/dev/uio{}", number & 0xff | number >> 12 & 0xf_ff00)
}

/// What handles the interrupts of a place.
struct Interrupts(&'static Place);

impl Handler for Interrupts {
    fn interrupt(&self, service: InService) {
        let is_told = self.0.line.interrupt();
        drop(service);
        if is_told {
            self.0.interrupt();
        }
    }

    fn silence(&self) -> bool {
        let off = || Switch::of_word(self.0.switch.load(Ordering::Relaxed)).is_none_or(Switch::off);
        self.0.line.silence().unwrap_or_else(off)
    }
}

impl Hears for Place {
    fn hear(&self) {
        self.interrupt();
    }
}

impl Place {
    /// A place with nothing.
    pub fn new() -> Self {
        Self {
            device: Mutex::new(None),
            generation: AtomicU32::new(0),
            events: AtomicU32::new(0),
            switch: AtomicU64::new(0),
            line: Line::new(),
            readers: WaitQueue::new(),
            rest: AtomicUsize::new(0),
            timer: Once::new(),
            watchers: Watchers::new(),
            locks: Locks::default(),
            vector: Once::new(),
        }
    }

    /// Gets it ready for a function, with a vector of its own unless that has a pin; `false` if
    /// memory runs low. May sleep.
    pub fn prepare(&'static self, has_pin: bool) -> bool {
        if self.timer.get().is_none() {
            let Ok(timer) = Timer::new(Box::new(|| self.wake_next())) else { return false };
            self.timer.call_once(|| timer);
        }
        let vector = || interrupts::register("", Arc::new(Interrupts(self))).map(Vector::keep);
        has_pin || self.vector.call_once(vector).is_some()
    }

    /// The function that was there is gone, or one has come, which has that name.
    pub fn renew(&self, name: impl fmt::Display) {
        if let Some(&Some(vector)) = self.vector.get() {
            interrupts::rename(vector, name);
        }
        self.switch.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
        self.readers.wake_all();
        self.watchers.notify(Events::IN | Events::READ_NORMAL | Events::ERROR | Events::HANG_UP);
    }

    /// The device has interrupted. Any context.
    fn interrupt(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.readers.wake(1);
        let rest = self.readers.len();
        if rest > 0
            && let Some(timer) = self.timer.get()
        {
            self.rest.store(rest, Ordering::Relaxed);
            timer.arm(time::now());
        }
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
    }

    /// Wakes one more of those who read: each has an interrupt of its own. Interrupts off.
    fn wake_next(&self) {
        let rest = self.rest.load(Ordering::Relaxed);
        if rest == 0 || self.readers.wake(1) == 0 {
            return;
        }
        self.rest.store(rest - 1, Ordering::Relaxed);
        if rest > 1
            && let Some(timer) = self.timer.get()
        {
            timer.arm(time::now());
        }
    }

    /// Opens the function if it has that number, with flags of open(2). May sleep.
    pub fn open(
        &'static self,
        number: u64,
        flags: u32,
    ) -> Option<Result<Box<dyn Character>, Errno>> {
        let mut device = self.device.lock();
        let device = device.as_mut().filter(|device| device.wanted.number == number)?;
        if !heap::has_reserve() {
            return Some(Err(Errno::ENOMEM));
        }
        let path = path_of(device.wanted);
        let (function, pin, openings) = match &mut device.driver {
            Driver::Kernel(driven) => return Some(driven.clone().open(path, flags)),
            Driver::Program { function, pin, openings } => (function, pin, openings),
        };
        let interrupts = match function {
            Some(function) => function.has_messages() || pin.is_some(),
            None => self.line.get().is_some(),
        };
        let starts = match pin {
            _ if *openings > 0 || !interrupts => true,
            Some(pin) => pin.open(),
            None => self.start(function.as_deref_mut()),
        };
        if !starts {
            return Some(Err(Errno::ENODEV));
        }
        *openings += 1;
        Some(Ok(Box::new(Opening {
            place: self,
            path,
            generation: self.generation.load(Ordering::Acquire),
            seen: AtomicU32::new(self.events.load(Ordering::Relaxed)),
            interrupts,
        })))
    }

    /// Has the function interrupt the calling thread's CPU.
    fn start(&self, function: Option<&mut Function>) -> bool {
        let Some(vector) = self.vector() else { return false };
        let switch = function.as_ref().and_then(|function| function.switch());
        self.switch.store(switch.map_or(0, Switch::to_word), Ordering::Relaxed);
        interrupts::restart(vector);
        match function {
            Some(function) => function.start(vector),
            None => self.line.start(vector),
        }
    }

    fn vector(&self) -> Option<u8> {
        self.vector.get().copied().flatten()
    }

    /// An opening of that generation ends.
    fn close(&self, generation: u32) {
        let mut device = self.device.lock();
        if self.generation.load(Ordering::Acquire) != generation {
            return;
        }
        let Some(device) = device.as_mut() else { return };
        let Driver::Program { function, pin, openings } = &mut device.driver else { return };
        *openings -= 1;
        if *openings == 0 {
            if let Some(pin) = pin {
                pin.close();
            }
            match function {
                Some(function) => function.stop(),
                None => self.line.stop(),
            }
            self.switch.store(0, Ordering::Relaxed);
        }
    }
}

/// An opening of a function.
struct Opening {
    place: &'static Place,
    path: String,
    generation: u32,
    /// The count that was read last.
    seen: AtomicU32,
    /// It interrupts at all.
    interrupts: bool,
}

impl Opening {
    fn is_gone(&self) -> bool {
        self.place.generation.load(Ordering::Acquire) != self.generation
    }

    /// The count, if it is another one than was read last.
    fn news(&self) -> Option<u32> {
        let count = self.place.events.load(Ordering::Relaxed);
        (count != self.seen.load(Ordering::Relaxed)).then_some(count)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.place.close(self.generation);
    }
}

impl Character for Opening {
    fn path(&self) -> &str {
        &self.path
    }

    fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() != WORD {
            return Err(Errno::EINVAL);
        }
        let count = wait::take(&self.place.readers, nonblocking, || {
            if self.is_gone() || !self.interrupts {
                return Some(Err(Errno::EIO));
            }
            self.news().map(Ok)
        })??;
        if (memory.write(&count.to_le_bytes()) as u64) < WORD {
            return Err(Errno::EFAULT);
        }
        self.seen.store(count, Ordering::Relaxed);
        Ok(WORD)
    }

    /// Switches the line of a platform device: off by 0, else on. A function's interrupts are not
    /// switched so, as by uio_pci_generic.
    fn write(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        if memory.left() != WORD {
            return Err(Errno::EINVAL);
        }
        let mut word = [0; WORD as usize];
        if (memory.read(&mut word) as u64) < WORD {
            return Err(Errno::EFAULT);
        }
        match (self.is_gone(), self.interrupts) {
            (true, _) => return Err(Errno::EINVAL),
            (_, false) => return Err(Errno::EIO),
            _ => {}
        }
        // It is not given back meanwhile.
        let _device = self.place.device.lock();
        if self.is_gone() {
            return Err(Errno::EINVAL);
        }
        if self.place.line.get().is_none() {
            return Err(Errno::ENOSYS);
        }
        if word == [0; WORD as usize] {
            self.place.line.disable();
        } else if let Some(vector) = self.place.vector()
            && self.place.line.enable(vector)
        {
            self.place.interrupt();
        }
        Ok(WORD)
    }

    fn ioctl(&self, _request: u32, _argument: u64) -> SysResult {
        Err(Errno::ENOTTY)
    }

    /// The offset is the number of the map, in pages.
    fn map(&self, offset: u64, length: u64) -> Result<Arc<Object>, Errno> {
        let device = self.place.device.lock();
        let device = device.as_ref().filter(|_| !self.is_gone()).ok_or(Errno::EINVAL)?;
        let index = usize::try_from(offset / PAGE_SIZE).map_err(|_| Errno::EINVAL)?;
        let mut maps = device.objects.iter().take(MOST_MAPS);
        let object = maps.nth(index).filter(|object| length <= object.limit());
        object.cloned().ok_or(Errno::EINVAL)
    }

    fn ready(&self) -> Events {
        if self.is_gone() || !self.interrupts {
            return Events::IN | Events::READ_NORMAL | Events::ERROR | Events::HANG_UP;
        }
        let mut events = Events::empty();
        events.set(Events::IN | Events::READ_NORMAL, self.news().is_some());
        events
    }

    fn signalled(&self) -> Signalled {
        Signalled::Owner
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.place.watchers)
    }

    fn locks(&self) -> &Locks {
        &self.place.locks
    }
}
