// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serial lines: a 16550 that the realm has is `/dev/ttySn` there.
//!
//! What a serial line does with bytes is in the crate `crtos-tty`. Here are threads that wait, the
//! interrupt, and Linux's numbers of what programs ask for.
//!
//! The command line names a UART by `device=serial,ttyS1,2f8-2ff,3,115200`: its ports, the line on
//! which it interrupts, and the speed with divisor 1.
//!
//! | module | concept |
//! |---|---|
//! | [`mod@line`] | a serial line: opening, closing, what its interrupt does |
//! | [`transfer`] | reading, writing, waiting until all is sent |
//! | [`control`] | ioctl |

mod control;
mod line;
mod transfer;

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use spin::Once;

use crtos_core::{
    devices::{self, Device, ports::IoPorts},
    info, warn,
};
use crtos_tty::{Port, Uart};

use super::Driver;
use crate::{abi::Errno, files::character::Character};
use line::{Line, Opening};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, open };

/// All serial lines.
static LINES: Once<Vec<Arc<Line>>> = Once::new();

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

fn start() -> bool {
    let lines: Vec<_> = devices::of_driver("serial").filter_map(start_line).collect();
    let found = !lines.is_empty();
    LINES.call_once(|| lines);
    found
}

fn start_line(device: Device) -> Option<Arc<Line>> {
    let Device { name, ports, line, more, .. } = device;
    let index = name.strip_prefix("ttyS").and_then(|digits| digits.parse().ok());
    let (Some(index), Ok(highest)) = (index.filter(|&index| index < MOST), more.parse()) else {
        warn!("{name}: {more} is no speed, or this is no name of a serial line");
        return None;
    };
    let first = ports.first();
    let Some(uart) = Uart::find(Ports(ports)) else {
        warn!("{name}: there is no UART at port {first:#x}");
        return None;
    };
    let facts = line::Facts { index, first_port: first, highest };
    let Ok(line) = Line::start(name, facts, line, Port::new(uart, highest)) else {
        warn!("{name}: there are too many timers");
        return None;
    };
    let works = line.attendance.words();
    info!("{name}: {:?} at port {first:#x}, up to {highest} baud, {works}", line.kind());
    Some(line)
}

fn open(number: u64, flags: u32) -> Option<Result<Box<dyn Character>, Errno>> {
    let index = number.checked_sub(FIRST_NUMBER)?;
    let line = LINES.get()?.iter().find(|line| line.facts.index == index)?;
    Some(Opening::new(line, flags).map(|opening| Box::new(opening) as Box<dyn Character>))
}
