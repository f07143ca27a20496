// SPDX-License-Identifier: MIT OR Apache-2.0
//! A serial line: opening and closing it, and what its interrupt does.

use alloc::{format, string::String, sync::Arc};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linux_raw_sys::general as linux;

use crtos_core::{
    arch::interrupts::{InService, window_in_timer},
    devices::interrupts::Handler,
    sync::SpinLock,
    task::{SpawnError, WaitError, WaitQueue},
};
use crtos_tty::{Port, Wake, port::STEPS, uart::Kind};

use super::{Ports, transfer, turn::Turn};
use crate::{
    abi::{Errno, SysResult},
    devices::attendance::Attendance,
    files::{
        Events, Memory, Watchers,
        character::{Character, Signalled},
        lock::Locks,
    },
    remote, signal,
};

/// What is known of a UART from the start.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// The number in its name.
    pub index: u64,
    /// The first of its ports.
    pub first_port: u16,
    /// The speed with divisor 1, in baud.
    pub highest: u32,
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
    /// How many have it open, or that the realm has it no more; taken before `port`.
    openings: SpinLock<Openings>,
    /// How often it was hung up: what was opened before that is dead. Changed under `openings`.
    generation: AtomicU32,
    /// Nobody else may open it (TIOCEXCL).
    pub is_exclusive: AtomicBool,
    /// What is only kept.
    pub kept: SpinLock<Kept>,
    /// Who reads, and who writes.
    pub reading: Turn,
    /// See [`Line::reading`].
    pub writing: Turn,
    /// Who reads waits for bytes.
    pub readers: WaitQueue,
    /// Who writes waits for room.
    pub writers: WaitQueue,
    /// Who waits for modem lines.
    modem: WaitQueue,
    /// The number of changes of modem lines of which all who wait were told.
    told: AtomicU32,
    /// Who waits for time to pass; nobody wakes these but by a signal.
    pub idlers: WaitQueue,
    watchers: Watchers,
    locks: Locks,
    /// How the UART is attended to. At 460,800 baud 12 bytes come between two looks of the timer,
    /// for which the FIFO has room.
    pub attendance: Attendance,
}

/// How many have a line open.
enum Openings {
    /// So many.
    Count(u32),
    /// Nobody opens it any more.
    Gone,
}

/// The interrupts of a line's UART.
struct Interrupts(Arc<Line>);

impl Handler for Interrupts {
    fn interrupt(&self, service: InService) {
        if !self.0.serve(Some(service)) {
            self.0.attendance.look_later();
        }
    }

    fn silence(&self) -> bool {
        self.0.get(Port::silence);
        self.0.attendance.silence();
        true
    }
}

impl Line {
    /// Makes the line `name`, closed, which is attended to until its [end](Self::end). Sleeps.
    pub fn start(
        name: &str,
        facts: Facts,
        attendance: Attendance,
        port: Port<Ports>,
    ) -> Result<Arc<Self>, SpawnError> {
        let kept = Kept { size: [0; 8], flags: 0, close_delay: 50, closing_wait: 3000 };
        let line = Arc::new(Self {
            path: format!("/dev/{name}"),
            facts,
            port: SpinLock::new(port),
            openings: SpinLock::new(Openings::Count(0)),
            generation: AtomicU32::new(0),
            is_exclusive: AtomicBool::new(false),
            kept: SpinLock::new(kept),
            reading: Turn::new(),
            writing: Turn::new(),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            modem: WaitQueue::new(),
            told: AtomicU32::new(0),
            idlers: WaitQueue::new(),
            watchers: Watchers::new(),
            locks: Locks::default(),
            attendance,
        });
        let own = line.clone();
        line.attendance.start(Arc::new(Interrupts(line.clone())), move || own.look())?;
        Ok(line)
    }

    /// Which UART it has.
    pub fn kind(&self) -> Kind {
        self.get(|port| port.kind())
    }

    /// The timer has come. Interrupt context.
    fn look(&self) {
        let done = self.serve(None) && self.attendance.interrupts();
        if !done && self.openings() > 0 {
            self.attendance.look_later();
        }
    }

    /// Does what the UART asks for, and says whether it asks for nothing more: then its next
    /// interrupt is a new edge. Interrupt context.
    ///
    /// An interrupt receives and sends at most 20 bytes each, 4 in each step, and each step wakes
    /// one of those who wait for bytes, for room, and for modem lines. There is an interrupt window
    /// behind each step and behind each wake-up. A step accesses the UART at most 19 times, for a
    /// byte that comes alone 3 times. On a PC's oldest bus an access takes about a microsecond,
    /// whatever the processor. Behind the first step other devices may interrupt, and the UART if
    /// it has more: those who serve it take turns.
    fn serve(&self, mut service: Option<InService>) -> bool {
        for _ in 0..STEPS {
            let (more, wake) = {
                let mut port = self.port.lock_quietly();
                (port.serve(), port.take_wake())
            };
            drop(service.take());
            self.wake(wake, window_in_timer);
            if !more {
                return true;
            }
            window_in_timer();
        }
        false
    }

    /// Has the UART send what a thread wants to be sent, as far as it has room. Thread context.
    pub fn send(&self) {
        for _ in 0..STEPS {
            let (more, wake) = {
                let mut port = self.port.lock();
                (port.step(), port.take_wake())
            };
            self.wake(wake, || {});
            if !more {
                break;
            }
        }
    }

    /// Has `f` look at the line, interrupts off.
    #[inline(always)]
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
    /// something left. `window` is called before each wake-up.
    fn wake(&self, wake: Wake, window: impl Fn()) {
        let (wake, events) = match wake.contains(Wake::HANG_UP) {
            true => (self.hang_up(), Events::HANG_UP | Events::ERROR),
            false => (wake, Events::empty()),
        };
        if wake.contains(Wake::READ) {
            window();
            self.readers.wake(1);
            window();
            self.watchers.notify(Events::IN | Events::READ_NORMAL | events);
        }
        if wake.contains(Wake::WRITE) {
            window();
            self.writers.wake(1);
            window();
            self.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
        }
        if wake.contains(Wake::MODEM) {
            window();
            self.modem.wake(1);
        }
    }

    /// Waits for a change of modem lines until `found` says that something is the case. An
    /// interrupt wakes one thread. If that waits for another line, it wakes all others, once for
    /// each change.
    pub fn wait_for_modem<R>(&self, mut found: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        let found = || {
            let result = found();
            let changes = self.get(|port| port.counters().modem_changes());
            if result.is_none() && self.told.swap(changes, Ordering::Relaxed) != changes {
                self.modem.wake_all();
            }
            result
        };
        let waited = self.modem.wait_until(None, |_| signal::is_interrupted(), found);
        self.modem.wake(1);
        waited
    }

    /// The carrier is gone: what was opened is dead. Says who is to be woken. Any context.
    fn hang_up(&self) -> Wake {
        let mut openings = self.openings.lock();
        if let Openings::Count(count) = &mut *openings {
            *count = 0;
        }
        self.generation.fetch_add(1, Ordering::Release);
        let mut port = self.port.lock();
        port.hang_up();
        port.take_wake()
    }

    /// The realm gives the UART back, or has lost it: nobody opens the line any more, and nothing
    /// of it is touched when this returns. `false` if somebody has it open and it is not lost; who
    /// has is hung up otherwise. Thread context; sleeps.
    pub fn end(&self, is_lost: bool) -> bool {
        {
            let mut openings = self.openings.lock();
            if matches!(*openings, Openings::Count(1..)) && !is_lost {
                return false;
            }
            *openings = Openings::Gone;
        }
        self.wake(Wake::HANG_UP, || {});
        self.attendance.end();
        true
    }

    /// Opens it; returns the generation of the opening. ENXIO if the realm has it no more. Sleeps.
    fn open(&self) -> Result<u32, Errno> {
        // One that was silenced stays so.
        if self.openings() == 0 && !self.get(|port| port.is_silent()) {
            self.attendance.call_here();
        }
        let generation = {
            let mut openings = self.openings.lock();
            let Openings::Count(count) = &mut *openings else { return Err(Errno::ENXIO) };
            *count += 1;
            if *count == 1 {
                self.port.lock().open();
                self.kept.lock().size = [0; 8];
            }
            self.generation()
        };
        // Also for what was lost if it was opened twice at once.
        self.attendance.look_later();
        Ok(generation)
    }

    /// An opening of that generation ends, if it is not the last one; says whether it is. Of
    /// several that end at once, one is.
    fn close_further(&self, generation: u32) -> bool {
        let mut openings = self.openings.lock();
        match &mut *openings {
            Openings::Count(1) => self.generation() == generation,
            Openings::Count(count) if self.generation() == generation => {
                *count -= 1;
                false
            }
            _ => false,
        }
    }

    /// An opening of that generation ends, which was the last one some time before.
    fn close_last(&self, generation: u32) {
        let mut openings = self.openings.lock();
        if self.generation() != generation {
            return;
        }
        let Openings::Count(count) = &mut *openings else { return };
        *count -= 1;
        if *count == 0 {
            self.port.lock().close();
            self.is_exclusive.store(false, Ordering::Relaxed);
        }
    }

    fn openings(&self) -> u32 {
        match *self.openings.lock() {
            Openings::Count(count) => count,
            Openings::Gone => 0,
        }
    }

    fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
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
        let is_taken = line.is_exclusive.load(Ordering::Relaxed) && line.openings() > 0;
        if is_taken && !remote::is_capable(linux::CAP_SYS_ADMIN).unwrap_or(false) {
            return Err(Errno::EBUSY);
        }
        let opening = Self { line: line.clone(), generation: line.open()? };
        if flags & linux::O_NONBLOCK == 0 {
            let found =
                || (line.get(|port| port.has_carrier()) || opening.is_hung_up()).then_some(());
            line.wait_for_modem(found).map_err(|_| Errno::RESTART)?;
        }
        Ok(opening)
    }

    /// Whether the line was hung up since.
    pub fn is_hung_up(&self) -> bool {
        self.line.generation() != self.generation
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.line.close_further(self.generation) {
            transfer::wait_at_close(self);
            self.line.close_last(self.generation);
        }
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

    fn signalled(&self) -> Signalled {
        Signalled::OwnerOrCaller
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.line.watchers)
    }

    fn locks(&self) -> &Locks {
        &self.line.locks
    }
}
