// SPDX-License-Identifier: MIT OR Apache-2.0
//! A serial line: opening and closing it, and what its interrupt does.

use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_channel::Operation;
use linux_raw_sys::general as linux;
use spin::Once;

use crtos_core::{
    arch::interrupts::window_in_timer,
    devices::interrupts,
    sync::SpinLock,
    task::{SpawnError, Timer, WaitQueue},
    time::{self, Nanos},
    warn,
};
use crtos_tty::{Port, Wake, port::STEPS, uart::Kind};

use super::{Ports, transfer};
use crate::{
    abi::{Errno, SysResult, linux_result},
    files::{Events, Memory, Watchers, character::Character, lock::Locks, wait},
    remote,
};

/// How often an open line is looked at whose UART does not interrupt, and after how long one that
/// had more to do than an interrupt does. At 460,800 baud 12 bytes come in that time, for which the
/// FIFO has room.
const LOOK_EVERY: Nanos = Nanos::from_micros(250);

/// What is known of a UART from the start.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// The number in its name.
    pub index: u64,
    /// The first of its ports.
    pub first_port: u16,
    /// The line on which it interrupts.
    pub interrupt_line: u32,
    /// The speed with divisor 1, in baud.
    pub highest: u32,
}

/// Who has the line open.
#[derive(Clone, Copy, Default)]
struct Openings {
    count: u32,
    /// How often the line was hung up: what was opened before that is dead.
    generation: u32,
}

/// What programs can set that Linux only keeps.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// `struct winsize`.
    pub size: [u8; 8],
    /// Flags of `struct serial_struct`.
    pub flags: u32,
    /// Hundredths of a second that a close waits for its carrier, and for what is not sent; the
    /// latter is at most [`transfer::NO_WAIT`], which means not at all.
    pub close_delay: u16,
    /// See [`Kept::close_delay`].
    pub closing_wait: u16,
}

/// A serial line.
pub(super) struct Line {
    path: String,
    /// What is known from the start.
    pub facts: Facts,
    /// The line itself; the interrupt takes it as well.
    port: SpinLock<Port<Ports>>,
    /// Who has it open; taken before `port`.
    openings: SpinLock<Openings>,
    /// Nobody else may open it (TIOCEXCL).
    pub is_exclusive: AtomicBool,
    /// What is only kept.
    pub kept: SpinLock<Kept>,
    /// Who waits for bytes.
    pub readers: WaitQueue,
    /// Who waits for room.
    pub writers: WaitQueue,
    /// Who waits for modem lines.
    pub modem: WaitQueue,
    /// Who waits for time to pass; nobody wakes these but by a signal.
    pub idlers: WaitQueue,
    watchers: Watchers,
    locks: Locks,
    /// Looks at the line; taken away never.
    timer: SpinLock<Option<Timer>>,
    /// The vector by which the UART interrupts, if the realm has its interrupt line.
    vector: Once<u8>,
    /// It interrupts. Otherwise the timer looks all the time.
    interrupts: AtomicBool,
}

/// The interrupts of a line's UART.
struct Interrupts(Arc<Line>);

impl interrupts::Handler for Interrupts {
    fn interrupt(&self) {
        if !self.0.serve() {
            self.0.look_later();
        }
    }

    fn silence(&self) -> bool {
        self.0.interrupts.store(false, Ordering::Relaxed);
        self.0.get(Port::silence);
        self.0.look_later();
        true
    }
}

impl Line {
    /// Makes the line `name`, closed. Sleeps.
    pub fn start(
        name: &'static str,
        facts: Facts,
        port: Port<Ports>,
    ) -> Result<Arc<Self>, SpawnError> {
        let kept = Kept { size: [0; 8], flags: 0, close_delay: 50, closing_wait: 3000 };
        let line = Arc::new(Self {
            path: format!("/dev/{name}"),
            facts,
            port: SpinLock::new(port),
            openings: SpinLock::new(Openings::default()),
            is_exclusive: AtomicBool::new(false),
            kept: SpinLock::new(kept),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            modem: WaitQueue::new(),
            idlers: WaitQueue::new(),
            watchers: Watchers::new(),
            locks: Locks::default(),
            timer: SpinLock::new(None),
            vector: Once::new(),
            interrupts: AtomicBool::new(false),
        });
        let own = line.clone();
        let timer = Timer::new(Box::new(move || own.look()))?;
        *line.timer.lock() = Some(timer);
        if interrupts::route(facts.interrupt_line, None)
            && let Some(vector) = interrupts::register(name, Box::new(Interrupts(line.clone())))
        {
            line.vector.call_once(|| vector);
        }
        Ok(line)
    }

    /// Whether the realm has its interrupt line.
    pub fn can_interrupt(&self) -> bool {
        self.vector.is_completed()
    }

    /// Which UART it has.
    pub fn kind(&self) -> Kind {
        self.get(|port| port.kind())
    }

    /// The timer has come. Interrupt context.
    fn look(&self) {
        let done = self.serve() && self.interrupts.load(Ordering::Relaxed);
        if !done && self.openings.lock().count > 0 {
            self.look_later();
        }
    }

    fn look_later(&self) {
        if let Some(timer) = &*self.timer.lock() {
            timer.arm(time::now() + LOOK_EVERY);
        }
    }

    /// Does what the UART asks for, and says whether it asks for nothing more: then its next
    /// interrupt is a new edge. Interrupt context.
    ///
    /// An interrupt receives and sends at most 20 bytes each, 4 in each step, and each step wakes
    /// one of those who wait for bytes, for room, and for modem lines. There is an interrupt window
    /// behind each step and behind each wake-up. A step accesses the UART at most 15 times, and
    /// the look at what it asks for once; an interrupt 80 times. On a PC's oldest bus an access
    /// takes about a microsecond, whatever the processor.
    fn serve(&self) -> bool {
        for _ in 0..STEPS {
            if !self.step(window_in_timer) && !self.get(Port::is_pending) {
                return true;
            }
        }
        false
    }

    /// Has the UART send what a thread wants to be sent, as far as it has room. Thread context.
    pub fn send(&self) {
        let mut left = STEPS;
        while left > 0 && self.step(|| {}) {
            left -= 1;
        }
    }

    /// One step of the line. Says whether there may be more to do. `window`: what opens an
    /// interrupt window where that is to be done.
    fn step(&self, window: impl Fn()) -> bool {
        let (more, wake) = {
            let mut port = self.port.lock();
            (port.step(), port.take_wake())
        };
        window();
        self.wake(wake, window);
        more
    }

    /// Has `f` look at the line, interrupts off.
    pub fn get<R>(&self, f: impl FnOnce(&mut Port<Ports>) -> R) -> R {
        f(&mut self.port.lock())
    }

    /// Changes the line by `f`, sends what can be sent afterwards and wakes who is to be woken.
    /// Thread context.
    pub fn change<R>(&self, f: impl FnOnce(&mut Port<Ports>) -> R) -> R {
        let (result, wake) = {
            let mut port = self.port.lock();
            (f(&mut port), port.take_wake())
        };
        self.wake(wake, || {});
        self.send();
        result
    }

    /// Wakes one of those who wait for each of these, which wakes the next one if there is
    /// something left. `window` is called behind each wake-up.
    fn wake(&self, wake: Wake, window: impl Fn()) {
        let wake = match wake.contains(Wake::HANG_UP) {
            true => self.hang_up(),
            false => wake,
        };
        if wake.contains(Wake::READ) {
            self.readers.wake(1);
            window();
            self.watchers.notify(Events::IN | Events::READ_NORMAL | self.hung_up_events());
            window();
        }
        if wake.contains(Wake::WRITE) {
            self.writers.wake(1);
            window();
            self.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
            window();
        }
        if wake.contains(Wake::MODEM) {
            self.modem.wake(1);
        }
    }

    fn hung_up_events(&self) -> Events {
        match self.openings.lock().count {
            0 => Events::HANG_UP | Events::ERROR,
            _ => Events::empty(),
        }
    }

    /// The carrier is gone: what was opened is dead. Says who is to be woken. Any context.
    fn hang_up(&self) -> Wake {
        let mut openings = self.openings.lock();
        *openings = Openings { count: 0, generation: openings.generation.wrapping_add(1) };
        let mut port = self.port.lock();
        port.hang_up();
        port.take_wake()
    }

    /// Opens it; returns the generation of the opening. Sleeps.
    fn open(&self) -> u32 {
        if self.openings().count == 0 {
            self.route();
        }
        let generation = {
            let mut openings = self.openings.lock();
            openings.count += 1;
            if openings.count == 1 {
                self.port.lock().open();
            }
            openings.generation
        };
        // Also for what was lost if it was opened twice at once.
        self.look_later();
        generation
    }

    /// Has the UART interrupt this CPU, if it can and was not silenced.
    fn route(&self) {
        let Some(&vector) = self.vector.get() else { return };
        let was_routed = self.interrupts.load(Ordering::Relaxed);
        let is_silent = self.get(|port| port.is_silent());
        let routed = !is_silent && interrupts::route(self.facts.interrupt_line, Some(vector));
        self.interrupts.store(routed, Ordering::Relaxed);
        if was_routed && !routed {
            warn!("{}: does not interrupt any more, and is looked at by a timer", self.path);
        }
    }

    /// An opening of that generation ends.
    fn close(&self, generation: u32) {
        let mut openings = self.openings.lock();
        if openings.generation != generation {
            return;
        }
        openings.count -= 1;
        if openings.count == 0 {
            self.port.lock().close();
            self.is_exclusive.store(false, Ordering::Relaxed);
        }
    }

    fn openings(&self) -> Openings {
        *self.openings.lock()
    }
}

/// An opening of a serial line.
pub(super) struct Opening {
    /// The line.
    pub line: Arc<Line>,
    generation: u32,
}

impl Opening {
    /// Opens `line` with flags of open(2). EBUSY if it is exclusive to others and the caller has no
    /// CAP_SYS_ADMIN. Waits for the carrier unless O_NONBLOCK or CLOCAL says otherwise.
    pub fn new(line: &Arc<Line>, flags: u32) -> Result<Self, Errno> {
        if line.is_exclusive.load(Ordering::Relaxed) && line.openings().count > 0 {
            let operation = Operation::IsCapable { capability: linux::CAP_SYS_ADMIN };
            let capable = remote::request(operation).map(linux_result);
            if !capable.is_ok_and(|result| result.is_ok()) {
                return Err(Errno::EBUSY);
            }
        }
        let opening = Self { line: line.clone(), generation: line.open() };
        if flags & linux::O_NONBLOCK == 0 {
            let found =
                || (line.get(|port| port.has_carrier()) || opening.is_hung_up()).then_some(());
            wait::take_later(&line.modem, false, found)?;
            line.modem.wake(1);
        }
        Ok(opening)
    }

    /// Whether the line was hung up since.
    pub fn is_hung_up(&self) -> bool {
        self.line.openings().generation != self.generation
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let openings = self.line.openings();
        if openings.count == 1 && !self.is_hung_up() {
            transfer::wait_at_close(self);
        }
        self.line.close(self.generation);
    }
}

impl Character for Opening {
    fn path(&self) -> &str {
        &self.line.path
    }

    fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        transfer::read(self, memory, nonblocking)
    }

    fn write(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        transfer::write(self, memory, nonblocking)
    }

    fn ioctl(&self, request: u32, argument: u64) -> SysResult {
        super::control::ioctl(self, request, argument)
    }

    fn ready(&self) -> Events {
        let (readable, writable) = self.line.get(|port| {
            (port.is_readable(transfer::least_to_poll(port.termios())), port.is_writable())
        });
        let mut events = Events::empty();
        let hung_up = self.is_hung_up();
        events.set(Events::IN | Events::READ_NORMAL, readable || hung_up);
        events.set(Events::OUT | Events::WRITE_NORMAL, writable || hung_up);
        events.set(Events::HANG_UP | Events::ERROR, hung_up);
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.line.watchers
    }

    fn locks(&self) -> &Locks {
        &self.line.locks
    }
}
