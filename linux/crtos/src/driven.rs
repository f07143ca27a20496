// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of Linux that the realm's kernel drives by I/O ports: UARTs and CAN interfaces. They
//! come when the realm is started, or later.
//!
//! What a device is and was set to is written to a file first; then Linux gives it up, and the
//! realm gets it. If a command is killed on the way, a later one goes on from there: `crtos device
//! add` to its end, `crtos device remove` and `crtos down` back to the beginning.

use std::{fmt, ops::RangeInclusive, path::Path};

use crtos_abi::{cell::PortRange, channel::DESCRIPTION_LEN, ioctl};
use nix::errno::Errno;

use crate::{
    can::Can,
    code::Code,
    device::{Call, Device},
    failure::{Asked, Result},
    machine::Machine,
    start::step,
    state, text,
    uart::Uart,
};

/// File that tells of those that Linux has given up, or is about to.
const RECORD: &str = "/run/crtos/driven.json";

/// A device that the realm's kernel drives.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Driven {
    /// A UART.
    Uart(Uart),
    /// A CAN interface.
    Can(Can),
}

/// A device that Linux has given up, or is about to.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Taken {
    device: Driven,
    /// By which the hypervisor tells of it, if the realm has it.
    number: Option<u32>,
}

impl fmt::Display for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Driven {
    /// Finds the device that Linux knows by `name`, if it is of such a kind, and can be taken.
    pub fn find(machine: &Machine, name: &str) -> Option<Result<Self>> {
        if name.starts_with("ttyS") {
            Some(Uart::find(machine, name).map(Self::Uart))
        } else if Can::is_one(machine, name) {
            Some(Can::find(machine, name).map(Self::Can))
        } else {
            None
        }
    }

    /// The name by which Linux and programs know it.
    pub fn name(&self) -> &str {
        match self {
            Self::Uart(uart) => &uart.name,
            Self::Can(can) => &can.name,
        }
    }

    /// What kind of device it is, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uart(_) => "uart",
            Self::Can(_) => "can",
        }
    }

    /// Who uses it in Linux, in words, and what to do about it, if it could be taken nevertheless.
    pub fn user(&self) -> Option<(String, String)> {
        match self {
            Self::Can(can) if can.is_up() => {
                let name = &can.name;
                let remedy = format!("`ip link set {name} down`");
                Some((format!("the network interface {name} is up"), remedy))
            }
            _ => None,
        }
    }

    /// The line on which it interrupts; 0 for none. Of a CAN interface it is known when Linux has
    /// given that up.
    fn line(&self) -> u32 {
        match self {
            Self::Uart(uart) => uart.line,
            Self::Can(can) => can.line,
        }
    }

    /// Whether one of these I/O ports is its own.
    pub fn has_port_of(&self, range: &PortRange) -> bool {
        let meets =
            |own: &RangeInclusive<u16>| range.first <= *own.end() && *own.start() <= range.last;
        match self {
            Self::Uart(uart) => meets(&uart.ports()),
            Self::Can(can) => can.ports().iter().any(meets),
        }
    }

    /// As the real-time kernel learns of it.
    fn description(&self) -> String {
        match self {
            Self::Uart(uart) => uart.description(),
            Self::Can(can) => can.description(),
        }
    }

    /// Gives it to the realm, in the cell of that number; `flags` are 0 or
    /// [`ioctl::DEVICE_NO_INTERRUPT`]. Goes on where a command was killed that did so.
    pub fn add(mut self, machine: &Machine, file: &Device, cell: u32, flags: u32) -> Result<()> {
        let mut is_there = false;
        let added = self.release(machine).and_then(|()| {
            self.give(file, cell, flags).map_err(|refusal| {
                is_there = refusal.errno == Errno::EEXIST;
                let failure = refusal.asked(self.asked());
                match is_there {
                    true => failure.remedy(format!("`crtos device remove {self}` takes it back")),
                    false => failure,
                }
            })
        });
        match added {
            Ok(number) => self.note(Some(Some(number))),
            Err(failure) => {
                if !is_there {
                    self.return_to_linux();
                    self.note(None)?;
                }
                Err(failure)
            }
        }
    }

    fn asked(&self) -> String {
        format!("give {self} to the realm")
    }

    /// Has Linux give it up.
    fn release(&mut self, machine: &Machine) -> Result<()> {
        if let Self::Uart(uart) = self {
            uart.learn()?;
        }
        self.note(Some(None))?;
        match self {
            Self::Uart(uart) => uart.release(machine),
            Self::Can(can) => can.release(),
        }
    }

    fn give(&self, file: &Device, cell: u32, flags: u32) -> Call<u32> {
        let description = self.description();
        if description.len() >= DESCRIPTION_LEN {
            let reason = "its settings are too long to be told".into();
            return Err(crate::device::Refusal {
                errno: Errno::E2BIG,
                reason,
                code: Code::CellLimit,
            });
        }
        let with = |flags| file.add_described(cell, &description, flags);
        let without_line = |reason: &str| {
            step(&format!("{self} is looked at by a timer: {reason}"));
            with(flags | ioctl::DEVICE_NO_INTERRUPT)
        };
        if flags & ioctl::DEVICE_NO_INTERRUPT != 0 {
            return without_line("it is not to interrupt, or shares its interrupt");
        }
        if self.line() == 0 {
            return without_line("it has no interrupt");
        }
        match with(flags) {
            Err(refusal) if refusal.errno == Errno::EOPNOTSUPP => without_line(&refusal.reason),
            given => given,
        }
    }

    /// Takes it back from the realm, in the cell of that number.
    pub fn remove(&self, file: &Device, cell: u32) -> Result<()> {
        match file.remove_described(cell, self.name()) {
            // The realm does not have it: a command was killed.
            Err(refusal) if refusal.errno != Errno::ENODEV => {
                return Err(refusal.asked(format!("take {self} back")));
            }
            _ => self.return_to_linux(),
        }
        self.note(None)
    }

    /// Linux has it as before, or it is told why not.
    fn return_to_linux(&self) {
        let returned = match self {
            Self::Uart(uart) => uart.give_back(),
            Self::Can(can) => can.give_back(),
        };
        if let Err(reason) = returned {
            let remedy = match self {
                Self::Uart(uart) => format!("`setserial /dev/{} autoconfig`", uart.name),
                Self::Can(can) => format!("echo {} >/sys/bus/pci/drivers_probe", can.function),
            };
            text::warn(
                &format!("Linux does not take {self} back: {reason}"),
                &format!("{remedy}; `dmesg` may say why"),
            );
        }
    }

    /// Notes that Linux has given it up, and by which number the realm has it; or that it has not.
    fn note(&self, taken: Option<Option<u32>>) -> Result<()> {
        let noted = state::change(Path::new(RECORD), |all: &mut Vec<Taken>| {
            // A note of another one with that number is older: a command was killed.
            let is_number =
                |other: &Taken| taken.flatten().is_some_and(|number| other.number == Some(number));
            for other in all.iter_mut().filter(|other| is_number(other)) {
                other.number = None;
            }
            all.retain(|other| other.device.name() != self.name());
            all.extend(taken.map(|number| Taken { device: self.clone(), number }));
        });
        noted.asked(format!("write {RECORD}"))
    }
}

fn recorded() -> Vec<Taken> {
    state::load(Path::new(RECORD)).unwrap_or_default()
}

/// The device of that name that Linux has given up.
pub fn taken(name: &str) -> Option<Driven> {
    recorded().into_iter().map(|one| one.device).find(|device| device.name() == name)
}

/// The one that the hypervisor tells of by that number.
pub fn numbered(number: u16) -> Option<Driven> {
    let mut all = recorded().into_iter();
    Some(all.find(|one| one.number == Some(number.into()))?.device)
}

/// Which of those that a realm is started with share a line with another one of them: none of these
/// can have it.
pub fn sharing(devices: &[Driven]) -> Vec<bool> {
    let shares = |one: &Driven| {
        let is_other = |other: &&Driven| other.line() == one.line() && other.name() != one.name();
        one.line() != 0 && devices.iter().any(|other| is_other(&other))
    };
    devices.iter().map(shares).collect()
}

/// Gives Linux the devices back that were taken from it, whichever command took them. No cell may
/// have them any more.
pub fn give_back() {
    state::settle(Path::new(RECORD), |taken: Taken| taken.device.return_to_linux());
}
