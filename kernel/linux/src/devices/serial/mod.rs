// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serial lines: a 16550 that the realm has is `/dev/ttySn` there.
//!
//! What a serial line does with bytes is in the crate `crtos-tty`. Here are threads that wait, the
//! interrupt, and Linux's numbers of what programs ask for.
//!
//! Linux describes a UART by `serial,ttyS1,2f8-2ff,3,115200`: its ports, the line on which it
//! interrupts, and the speed with divisor 1.
//!
//! | module | concept |
//! |---|---|
//! | [`mod@line`] | a serial line: opening, closing, what its interrupt does |
//! | [`transfer`] | reading, writing, waiting until all is sent |
//! | [`turn`] | one read, and one write, at a time |
//! | [`control`] | ioctl |

mod control;
mod line;
mod transfer;
mod turn;

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use crtos_core::{
    devices::{Device, ports::IoPorts},
    info,
    task::Mutex,
    warn,
};
use crtos_tty::{Port, Uart};

use super::{Driver, attendance::Attendance, described::Described, users::users};
use crate::{
    abi::Errno,
    files::{Object, character::Character},
};
use line::{Line, Opening};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start: || false, described: Some(("serial", come)), open };

/// All serial lines.
static LINES: Mutex<Vec<Arc<Line>>> = Mutex::new(Vec::new());

/// Linux's number of the first serial line (`st_rdev`), major number 4: the others follow it.
const FIRST_NUMBER: u64 = 4 << 8 | 64;
/// Most serial lines of Linux that have a name of that kind.
const MOST: u64 = 192;

/// The registers of a UART, each a port.
struct Ports(IoPorts);

impl crtos_tty::Ports for Ports {
    fn read(&mut self, register: u8) -> u8 {
        self.0.read(register)
    }

    fn write(&mut self, register: u8, value: u8) {
        self.0.write(register, value);
    }
}

fn come(device: Device<'_>) -> Option<Arc<dyn Described>> {
    let name = device.name;
    let index = name.strip_prefix("ttyS").and_then(|digits| digits.parse().ok());
    let (Some(index), Ok(highest)) = (index.filter(|&it| it < MOST), device.more.parse()) else {
        warn!("{name}: {} is no speed, or this is no name of a serial line", device.more);
        return None;
    };
    if LINES.lock().iter().any(|line| line.facts.index == index) {
        warn!("{name}: there is one already");
        return None;
    }
    let attendance = Attendance::new(&device);
    let first = device.ports.first();
    let Some(uart) = Uart::find(Ports(device.ports)) else {
        warn!("{name}: there is no UART at port {first:#x}");
        return None;
    };
    let facts = line::Facts { index, first_port: first, highest };
    let Ok(line) = Line::start(name, facts, attendance, Port::new(uart, highest)) else {
        warn!("{name}: there are too many timers");
        return None;
    };
    let works = line.attendance.words();
    info!("{name}: {:?} at port {first:#x}, up to {highest} baud, {works}", line.kind());
    LINES.lock().push(line.clone());
    super::found();
    Some(line)
}

impl Described for Line {
    fn leave(&self, is_lost: bool) -> bool {
        if !self.end(is_lost) {
            return false;
        }
        LINES.lock().retain(|line| !core::ptr::eq(&**line, self));
        true
    }

    fn users(&self) -> Vec<u32> {
        let number = FIRST_NUMBER + self.facts.index;
        users(&[], |file| match file {
            Object::Character(special) => special.status.device_of_file == number,
            _ => false,
        })
    }

    fn has_line(&self, line: u32) -> bool {
        self.attendance.has(line)
    }
}

fn open(number: u64, flags: u32) -> Option<Result<Box<dyn Character>, Errno>> {
    let index = number.checked_sub(FIRST_NUMBER)?;
    let line = LINES.lock().iter().find(|line| line.facts.index == index)?.clone();
    Some(Opening::new(&line, flags).map(|opening| Box::new(opening) as Box<dyn Character>))
}
