// SPDX-License-Identifier: MIT OR Apache-2.0
//! UARTs that Linux gives up while the realm has them.
//!
//! Linux is told that the port has no UART (as `setserial /dev/ttyS1 uart none` does): it frees the
//! I/O ports and the interrupt, and fails with EIO where a program of Linux reads or writes. The
//! driver stays bound, because unbinding may have firmware turn the UART off.

use std::{
    fs, io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use crate::{
    code::Code,
    failure::{Asked, Failure, Result, plain},
    machine::Machine,
    serial_port::{SerialPort, Settings},
    text,
};

/// I/O ports of a UART.
const PORTS: u16 = 8;
/// Who has the interrupts of cells' devices in Linux.
const OWN: &str = "crtos";

/// A UART of a serial port.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Uart {
    /// Name of the serial port, such as ttyS1.
    pub name: String,
    /// The first of its I/O ports.
    first: u16,
    /// The line on which it interrupts.
    pub line: u32,
    /// The speed with divisor 1, in baud.
    highest: u32,
    /// What Linux knows of it ([`Settings`]), once that is [learnt](Self::learn).
    settings: Vec<u8>,
}

fn asked(name: &str) -> String {
    format!("take {name} from Linux")
}

fn path(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

impl Uart {
    /// Finds the UART of the serial port `name`, if it can be taken.
    pub fn find(machine: &Machine, name: &str) -> Result<Self> {
        let refuse = |code: Code, reason: String| Failure::new(code, asked(name), reason);
        let told = |file: &str| machine.read(format!("/sys/class/tty/{name}/{file}"));
        let is_name = name.strip_prefix("ttyS").is_some_and(|number| number.parse::<u8>().is_ok());
        let kind = told("type").filter(|_| is_name);
        let Some(kind) = kind else {
            return Err(refuse(Code::DeviceUnknown, "there is no serial port of that name".into())
                .remedy("name one of /dev/ttyS*, such as ttyS1"));
        };
        if kind == "0" {
            return Err(refuse(Code::DeviceUnknown, "Linux has found no UART there".into())
                .remedy("`setserial -g /dev/ttyS*` shows which there are"));
        }
        if told("console").as_deref() == Some("Y") {
            return Err(refuse(Code::DeviceInUse, "it is Linux's console".into())
                .remedy("boot without `console=` for that port"));
        }
        let number = |file: &str| {
            let text = told(file)?;
            match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
        };
        let first = number("port").filter(|_| number("io_type") == Some(0));
        let first = first.and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
        let (Some(first), Some(line), Some(clock)) = (first, number("irq"), number("uartclk"))
        else {
            return Err(refuse(Code::DeviceUnfit, "its UART has no I/O ports".into())
                .remedy("a UART that is reached by memory cannot be taken"));
        };
        let users = users(machine, name);
        if !users.is_empty() {
            return Err(in_use(name, &users));
        }
        let drivers = machine.read(format!("/sys/kernel/irq/{line}/actions")).unwrap_or_default();
        if line != 0 && !drivers.is_empty() {
            let drivers = text::harmless(drivers.as_bytes());
            if drivers == OWN {
                let reason = format!("another device of cells has its interrupt {line}");
                return Err(refuse(Code::DeviceInterrupt, reason).remedy(
                    "give both when the realm starts, or that one with `--no-interrupt` before it",
                ));
            }
            if drivers == name {
                let reason = "Linux is closing it, and waits until what was written is sent".into();
                return Err(refuse(Code::DeviceInUse, reason).remedy(format!(
                    "try again: it waits for 30 s, or what `setserial -a /dev/{name}` tells as \
                     closing_wait",
                )));
            }
            let reason = format!("Linux has interrupt {line}, its own, for {drivers}");
            return Err(refuse(Code::DeviceInUse, reason)
                .remedy("close what uses that, or remove its driver"));
        }
        Ok(Self { name: name.into(), first, line, highest: clock / 16, settings: Vec::new() })
    }

    /// Returns what the real-time kernel and the module learn of it.
    pub fn description(&self) -> String {
        let Self { name, line, highest, .. } = self;
        let (first, last) = self.ports().into_inner();
        format!("serial,{name},{first:x}-{last:x},{line},{highest}")
    }

    /// Its I/O ports.
    pub fn ports(&self) -> RangeInclusive<u16> {
        self.first..=self.first + (PORTS - 1)
    }

    /// Learns what Linux knows of it, if that is not known.
    pub fn learn(&mut self) -> Result<()> {
        if self.settings.is_empty() {
            let settings = SerialPort::open(&path(&self.name)).and_then(|port| port.settings());
            self.settings = settings.asked(asked(&self.name))?.bytes().to_vec();
        }
        Ok(())
    }

    /// Has Linux give it up. It may have done so already.
    pub fn release(&self, machine: &Machine) -> Result<()> {
        let name = &self.name;
        let port = SerialPort::open(&path(name)).asked(asked(name))?;
        let settings = self.settings().asked(asked(name))?;
        port.set(&settings.without_uart()).map_err(|error| match error.kind() {
            // Opened meanwhile.
            io::ErrorKind::ResourceBusy => {
                let me = std::process::id().to_string();
                let mut users = users(machine, name);
                users.retain(|user| !user.starts_with(&format!("{me} ")));
                in_use(name, &users)
            }
            _ => Failure::io(asked(name), &error),
        })
    }

    /// Gives it back to Linux.
    pub fn give_back(&self) -> std::result::Result<(), String> {
        let set = || SerialPort::open(&path(&self.name))?.set(&self.settings()?);
        set().map_err(|error| plain(&error))
    }

    fn settings(&self) -> io::Result<Settings> {
        Settings::from_bytes(&self.settings).ok_or(io::ErrorKind::InvalidData.into())
    }
}

fn in_use(name: &str, users: &[String]) -> Failure {
    let reason = format!("programs have it open:\n    {}", users.join("\n    "));
    Failure::new(Code::DeviceInUse, asked(name), reason).remedy("end them first")
}

/// Returns who has the serial port open, by process id and command.
fn users(machine: &Machine, name: &str) -> Vec<String> {
    let wanted = path(name);
    let processes = fs::read_dir(machine.path("/proc")).into_iter().flatten().flatten();
    let mut users = Vec::new();
    for process in processes {
        let id = process.file_name().to_string_lossy().into_owned();
        if id.parse::<u32>().is_err() {
            continue;
        }
        let links = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if links.into_iter().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == wanted)) {
            let command = machine.read(format!("/proc/{id}/comm")).unwrap_or_default();
            users.push(format!("{id} {}", text::harmless(command.as_bytes())));
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    fn with_uart() -> Fake {
        let fake = Fake::fit();
        for (file, text) in [
            ("type", "4\n"),
            ("port", "0x2F8\n"),
            ("irq", "3\n"),
            ("uartclk", "1843200\n"),
            ("io_type", "0\n"),
            ("console", "N\n"),
        ] {
            fake.write(&format!("/sys/class/tty/ttyS1/{file}"), text);
        }
        fake
    }

    #[test]
    fn a_uart_is_what_linux_tells() {
        let uart = Uart::find(&with_uart().machine(), "ttyS1").unwrap();
        assert_eq!(uart.description(), "serial,ttyS1,2f8-2ff,3,115200");
    }

    #[test]
    fn what_cannot_be_taken_is_refused() {
        let refused = |file: &str, text: &str| {
            let fake = with_uart();
            fake.write(&format!("/sys/class/tty/ttyS1/{file}"), text);
            Uart::find(&fake.machine(), "ttyS1").unwrap_err().to_string()
        };
        assert!(refused("type", "0").contains("no UART"));
        assert!(refused("console", "Y").contains("console"));
        assert!(refused("io_type", "2").contains("no I/O ports"));
        let fake = with_uart();
        fake.write("/sys/kernel/irq/3/actions", "\n");
        assert!(Uart::find(&fake.machine(), "ttyS1").is_ok());
        fake.write("/sys/kernel/irq/3/actions", "ttyS3\n");
        let refusal = Uart::find(&fake.machine(), "ttyS1").unwrap_err().to_string();
        assert!(refusal.contains("interrupt 3, its own, for ttyS3"), "{refusal}");
        // Nobody has it open: its last user has ended before what it wrote was sent.
        fake.write("/sys/kernel/irq/3/actions", "ttyS1\n");
        let refusal = Uart::find(&fake.machine(), "ttyS1").unwrap_err().to_string();
        assert!(refusal.contains("is closing it"), "{refusal}");
        fake.write("/sys/kernel/irq/3/actions", "crtos\n");
        let refusal = Uart::find(&fake.machine(), "ttyS1").unwrap_err().to_string();
        assert!(refusal.contains("another device of cells"), "{refusal}");
        let fake = with_uart();
        for name in ["ttyS2", "ttyUSB0", "../tty1", ""] {
            let refusal = Uart::find(&fake.machine(), name).unwrap_err().to_string();
            assert!(refusal.contains("no serial port of that name"), "{name}: {refusal}");
        }
    }

    #[test]
    fn who_has_it_open_is_named() {
        let fake = with_uart();
        fake.write("/proc/77/comm", "getty\n");
        fake.write("/proc/77/fd/0", "");
        fake.remove("/proc/77/fd/0");
        let fd = fake.machine().path("/proc/77/fd/0");
        std::os::unix::fs::symlink("/dev/ttyS1", fd).unwrap();
        let refusal = Uart::find(&fake.machine(), "ttyS1").unwrap_err().to_string();
        assert!(refusal.contains("77 getty"), "{refusal}");
    }
}
