// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locked realms: what has to hold before, and what stays open to a Linux that wants to end one.

use std::fs;

use crate::{
    code::Code,
    failure::{Failure, Result},
    machine::Machine,
    start::step,
};

/// What to do about watchdogs that run.
pub const STOP_WATCHDOGS: &str = "have nobody feed it: `RuntimeWatchdogSec=0` in systemd's system.conf and `systemctl daemon-reexec`, stop the service `watchdog`";
/// What to do about ways that stay open.
pub const REMEDY: &str = "none is known; see docs/security.md for what a locked realm withstands";

/// Refuses if something is under way that would reset the machine all the same.
pub fn check(machine: &Machine, asked: &str) -> Result<()> {
    let running = watchdogs(machine);
    match running.is_empty() {
        true => Ok(()),
        false => {
            let reason = format!(
                "a watchdog would reset the machine when Linux hangs, active: {}",
                running.join(", ")
            );
            Err(Failure::new(Code::Watchdog, format!("{asked}, locked"), reason)
                .remedy(STOP_WATCHDOGS))
        }
    }
}

/// Says that it is locked, and what stays open.
pub fn tell(machine: &Machine) {
    let mut open = open_ways(machine);
    open.push("firmware and by devices (docs/security.md)".into());
    step(&format!("locked; Linux could end it by {} alone", open.join(", by ")));
}

/// Returns the watchdogs that run, or may run.
pub fn watchdogs(machine: &Machine) -> Vec<String> {
    let mut running = Vec::new();
    for number in 0.. {
        let folder = format!("/sys/class/watchdog/watchdog{number}");
        if !machine.exists(&folder) {
            break;
        }
        let driver = machine.read(format!("{folder}/identity")).unwrap_or_default();
        match machine.read(format!("{folder}/state")).as_deref() {
            Some("inactive") => (),
            Some(_) => running.push(format!("watchdog{number} ({driver})")),
            None => running.push(format!("perhaps watchdog{number}")),
        }
    }
    running
}

/// Returns what of this machine resets it and is not watched by the hypervisor.
pub fn open_ways(machine: &Machine) -> Vec<String> {
    match fs::read(machine.path("/sys/firmware/acpi/tables/FACP")) {
        Ok(table) => open_registers(&table).map(String::from).collect(),
        Err(_) => Vec::new(),
    }
}

/// A register of ACPI's FADT (ACPI 6.5, 5.2.9), by which the machine is reset or sleeps.
struct Register {
    name: &'static str,
    /// Where the table has its address, a generic one (5.2.3.2).
    offset: usize,
}

const REGISTERS: [Register; 4] = [
    Register { name: "ACPI's reset register, which is not a port", offset: 116 },
    Register { name: "ACPI's PM1a control register, which is not a port", offset: 172 },
    Register { name: "ACPI's PM1b control register, which is not a port", offset: 184 },
    Register { name: "ACPI's sleep control register, which is not a port", offset: 244 },
];

/// Bytes of a generic address; the first says in which space, the last eight where.
const ADDRESS_SIZE: usize = 12;
/// The space of I/O ports.
const PORTS: u8 = 1;

/// Returns the registers that the table has and that are no ports.
fn open_registers(table: &[u8]) -> impl Iterator<Item = &'static str> {
    REGISTERS.iter().filter_map(|register| {
        let address = table.get(register.offset..register.offset + ADDRESS_SIZE)?;
        let is_there = address[4..].iter().any(|byte| *byte != 0);
        (is_there && address[0] != PORTS).then_some(register.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    #[test]
    fn registers_that_are_no_ports_stay_open() {
        let mut table = vec![0; 276];
        let mut set = |offset: usize, space: u8, address: u8| {
            table[offset] = space;
            table[offset + 4] = address;
        };
        set(116, 1, 0xf9);
        set(172, 1, 4);
        set(184, 0, 0);
        set(244, 0, 0);
        assert_eq!(open_registers(&table).count(), 0);
        table[116] = 0;
        assert_eq!(open_registers(&table).count(), 1);
        table[116] = 2;
        assert!(open_registers(&table).all(|name| name.contains("reset register")));
        assert_eq!(open_registers(&table[..120]).count(), 0, "a table that is cut");
    }

    #[test]
    fn a_watchdog_that_runs_is_named() {
        let fake = Fake::fit();
        assert!(check(&fake.machine(), "lock").is_ok());
        fake.write("/sys/class/watchdog/watchdog0/identity", "iTCO_wdt");
        fake.write("/sys/class/watchdog/watchdog0/state", "inactive");
        assert!(check(&fake.machine(), "lock").is_ok());
        fake.write("/sys/class/watchdog/watchdog0/state", "active");
        let failure = check(&fake.machine(), "lock").unwrap_err().to_string();
        assert!(
            failure.contains("iTCO_wdt") && failure.contains("RuntimeWatchdogSec"),
            "{failure}"
        );
    }
}
