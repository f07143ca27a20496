// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos device`: PCI functions that cells have.

use std::path::Path;

use clap::Subcommand;
use serde::Serialize;

use crate::{
    device::{self, Device},
    failure::{Failure, Result},
    function::Function,
    machine::Machine,
    ranges,
    report::Report,
    text::table,
};

/// Give PCI devices to the real-time realm or to a cell, and take them back
///
/// The device's driver in Linux lets it go. The cell has its registers and interrupts to itself,
/// and the device reaches the memory of that cell alone, for which the machine needs an IOMMU.
/// `crtos down`, `crtos cell destroy` and `crtos device remove` give it back to Linux.
/// Devices that the IOMMU does not tell from it (of one slot, for example) go along, and come back
/// with it; drivers of Linux must have let them go before.
///
/// Programs of the realm drive it through Linux's UIO: /dev/uioN shows its registers (mmap) and
/// waits for its interrupts (read, poll). There the device reaches no memory.
///
/// DEVICE is an address (0000:03:00.0 or 03:00.0), a name that Linux has for it (eth1, ttyS4,
/// can0, nvme1n1, uio0), or a vendor and a device id (8086:10d3) if there is one such device.
/// `crtos up --device` takes the same, and serial ports without PCI.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos device add 03:00.0
  crtos device add eth1 --cell demo
  crtos device list
  crtos device remove 03:00.0

Exit status: 0 done; 1 refused or failed; 2 usage.")]
pub struct Devices {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Give a device to a cell
    ///
    /// The cell may run. A device that Linux uses is refused: a network interface that is up, a
    /// disk with something mounted, the console.
    Add {
        /// Address, name or ids
        device: String,
        /// The cell, by name or number [default: the real-time realm]
        #[arg(long)]
        cell: Option<String>,
        /// Also a device that cannot be reset, neither now nor when it comes back
        #[arg(long)]
        no_reset: bool,
    },
    /// Take a device back from its cell
    ///
    /// Refused while a program of the realm has it open or mapped.
    Remove {
        /// Address or ids
        device: String,
    },
    /// List the devices that cells have
    ///
    /// With --json an array of objects: function (its address), cell (its name).
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Where Linux lists what it calls devices by names, and the word for such a thing.
const CLASSES: [&str; 5] = ["net", "tty", "block", "uio", "input"];

/// Finds the function that the user means.
fn find(machine: &Machine, asked: &str, text: &str) -> Result<Function> {
    if let Some(function) = Function::parse(text) {
        return Ok(function);
    }
    let by_name = CLASSES.iter().find_map(|class| {
        let place =
            machine.path(format!("/sys/class/{class}/{text}/device")).canonicalize().ok()?;
        place.ancestors().find_map(|place| listed(place.file_name()?.to_str()?))
    });
    if let Some(function) = by_name {
        return Ok(function);
    }
    let all = functions(machine);
    let mut found = all.iter().filter(|function| ids(machine, **function).as_deref() == Some(text));
    match (found.next(), found.next()) {
        (Some(function), None) => Ok(*function),
        (Some(one), Some(other)) => {
            let reason = format!("several devices are {text}: {one}, {other}");
            Err(Failure::new(asked, reason).remedy("name it by its address"))
        }
        (None, _) => Err(unknown(machine, asked, text)),
    }
}

/// Explains that a name is of no PCI function, and says what there is for other devices.
fn unknown(machine: &Machine, asked: &str, text: &str) -> Failure {
    let other = |what: &str, option: String| {
        let reason = format!("`{text}` is no PCI function, but {what}");
        let remedy = format!("a realm gets it when it starts: `crtos up ... {option}`");
        Failure::new(asked, reason).remedy(remedy)
    };
    if text.starts_with("ttyS") && machine.exists(format!("/sys/class/tty/{text}")) {
        return other("a serial port", format!("--device {text}"));
    }
    if ranges::ports(text).is_ok() {
        return other("a range of I/O ports", format!("--port {text}"));
    }
    Failure::new(asked, format!("there is no device `{text}`"))
        .remedy("`lspci -D` or `ls /sys/bus/pci/devices` lists the addresses")
}

/// The function that sysfs lists by that name; names of other buses may be alike.
fn listed(name: &str) -> Option<Function> {
    Function::parse(name).filter(|function| function.to_string() == name)
}

fn functions(machine: &Machine) -> Vec<Function> {
    let entries = std::fs::read_dir(machine.path("/sys/bus/pci/devices")).into_iter().flatten();
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| listed(&name)).collect()
}

/// Vendor and device id of a function, as `8086:10d3`.
fn ids(machine: &Machine, function: Function) -> Option<String> {
    let id = |file| machine.read(format!("/sys/bus/pci/devices/{function}/{file}"));
    let digits = |id: String| id.trim_start_matches("0x").to_string();
    Some(format!("{}:{}", digits(id("vendor")?), digits(id("device")?)))
}

/// Who uses a function in Linux, in words, and what to do about it.
fn user(machine: &Machine, function: Function) -> Option<(String, String)> {
    let place = machine.path(format!("/sys/bus/pci/devices/{function}")).canonicalize().ok()?;
    let of_it = |class: &str| {
        let entries = std::fs::read_dir(machine.path(format!("/sys/class/{class}")));
        let names = entries.into_iter().flatten().flatten();
        let place = place.clone();
        names
            .filter(move |entry| {
                entry.path().canonicalize().is_ok_and(|path| path.starts_with(&place))
            })
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect::<Vec<_>>()
    };
    const UP: u64 = 1;
    for name in of_it("net") {
        let flags = machine.read(format!("/sys/class/net/{name}/flags")).unwrap_or_default();
        let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
        if flags & UP != 0 {
            let remedy = format!("`ip link set {name} down`");
            return Some((format!("the network interface {name} is up"), remedy));
        }
    }
    let mounts = machine.read("/proc/mounts").unwrap_or_default();
    let swaps = machine.read("/proc/swaps").unwrap_or_default();
    for name in of_it("block") {
        let uses = |line: &str| {
            let source = line.split_whitespace().next().unwrap_or_default();
            Path::new(source).file_name().is_some_and(|file| file == name.as_str())
        };
        if let Some(line) = mounts.lines().find(|line| uses(line)) {
            let at = line.split_whitespace().nth(1).unwrap_or_default();
            return Some((format!("{name} is mounted at {at}"), format!("`umount {at}`")));
        }
        if swaps.lines().any(uses) {
            return Some((format!("{name} is swap space"), format!("`swapoff /dev/{name}`")));
        }
        let holders = std::fs::read_dir(machine.path(format!("/sys/class/block/{name}/holders")));
        if let Some(holder) = holders.into_iter().flatten().flatten().next() {
            let holder = holder.file_name().to_string_lossy().into_owned();
            return Some((format!("{name} is a part of {holder}"), format!("stop {holder} first")));
        }
    }
    let consoles = machine.read("/sys/class/tty/console/active").unwrap_or_default();
    let console = of_it("tty").into_iter().find(|name| consoles.split(' ').any(|one| one == name));
    console
        .map(|name| (format!("{name} is a console"), "boot Linux with another console".to_string()))
}

/// A device of a cell, in JSON.
#[derive(Serialize)]
struct Row {
    function: String,
    cell: String,
}

fn rows(report: &Report) -> Vec<Row> {
    let name = |number: u32| report.cell(number).map(|cell| cell.name.clone()).unwrap_or_default();
    let devices = report.devices.iter();
    devices
        .map(|device| Row { function: device.function.to_string(), cell: name(device.cell) })
        .collect()
}

impl Devices {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        match self.verb {
            Verb::Add { device, cell, no_reset } => {
                let asked = format!("give {device} to a cell");
                let file = Device::require(&asked)?;
                let info = file.info(&asked)?;
                let report = match info.enabled {
                    0 => return Err(device::not_up(&asked)),
                    _ => file.report(&asked)?,
                };
                let number = match &cell {
                    None => device::realm(&info),
                    Some(cell) => report.named(cell).map(|known| known.number),
                };
                let Some(number) = number else {
                    return Err(Failure::new(&asked, "there is no such cell")
                        .remedy("`crtos cell list` shows the cells"));
                };
                give(&Machine::here(), &file, &asked, number, &device, no_reset)
            }
            Verb::Remove { device } => {
                let asked = format!("take {device} back");
                let file = Device::require(&asked)?;
                let function = find(&Machine::here(), &asked, &device)?;
                let report = file.report(&asked)?;
                let mut devices = report.devices.iter();
                let known = devices.find(|known| known.function == function);
                let Some(known) = known else {
                    return Err(Failure::new(&asked, "no cell has it")
                        .remedy("`crtos device list` shows those that cells have"));
                };
                let removed = file.remove_device(known.cell, &function.to_string());
                removed.map_err(|refusal| refusal.asked(asked))
            }
            Verb::List { json } => {
                let asked = "list the devices of cells";
                let file = Device::require(asked)?;
                let rows = match file.info(asked)?.enabled {
                    0 => Vec::new(),
                    _ => rows(&file.report(asked)?),
                };
                if json {
                    return crate::print_json(&rows);
                }
                let rows = rows.into_iter().map(|row| vec![row.function, row.cell]).collect();
                anstream::println!("{}", table(&["DEVICE", "CELL"], &[], rows));
                Ok(())
            }
        }
    }
}

/// Gives the device that the user means to a cell.
pub fn give(
    machine: &Machine,
    file: &Device,
    asked: &str,
    cell: u32,
    device: &str,
    no_reset: bool,
) -> Result<()> {
    let function = choose(machine, asked, device)?;
    let added = file.add_device(cell, &function.to_string(), no_reset);
    added.map_err(|refusal| refusal.asked(asked))
}

/// Finds the function that the user means, if Linux does not use it.
pub fn choose(machine: &Machine, asked: &str, device: &str) -> Result<Function> {
    let function = find(machine, asked, device)?;
    match user(machine, function) {
        None => Ok(function),
        Some((reason, remedy)) => {
            Err(Failure::new(asked, format!("Linux uses it: {reason}")).remedy(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_and_users() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        let pci = at("sys/devices/pci0000:00/0000:00:03.0");
        std::fs::create_dir_all(pci.join("net/eth1")).expect("made");
        std::fs::create_dir_all(at("sys/bus/pci/devices")).expect("made");
        std::fs::create_dir_all(at("sys/class/net")).expect("made");
        let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).expect("made");
        link(&pci, &at("sys/bus/pci/devices/0000:00:03.0"));
        link(&pci, &pci.join("net/eth1/device"));
        link(&pci.join("net/eth1"), &at("sys/class/net/eth1"));
        let write = |path: &Path, text: &str| std::fs::write(path, text).expect("written");
        write(&pci.join("vendor"), "0x8086\n");
        write(&pci.join("device"), "0x10d3\n");
        write(&pci.join("net/eth1/flags"), "0x1002\n");
        let machine = Machine::below(root.path());
        for name in ["eth1", "8086:10d3", "00:03.0"] {
            let found = find(&machine, "test", name).expect("found");
            assert_eq!(found.to_string(), "0000:00:03.0");
            assert_eq!(user(&machine, found), None);
        }
        assert!(find(&machine, "test", "eth2").is_err());
        // Linux names other things nearly as functions.
        let port = at("sys/devices/pnp0/00:04/00:04:0/00:04:0.0");
        std::fs::create_dir_all(port.join("tty/ttyS1")).expect("made");
        std::fs::create_dir_all(at("sys/class/tty")).expect("made");
        link(&port, &port.join("tty/ttyS1/device"));
        link(&port.join("tty/ttyS1"), &at("sys/class/tty/ttyS1"));
        let refused = |text| find(&machine, "test", text).unwrap_err().to_string();
        assert!(refused("ttyS1").contains("--device ttyS1"), "{}", refused("ttyS1"));
        assert!(refused("0x378-0x37f").contains("--port 0x378-0x37f"));
        assert!(refused("ttyS2").contains("no device"));
        write(&pci.join("net/eth1/flags"), "0x1003\n");
        let (reason, _) = user(&machine, Function::new(0x18)).expect("it is used");
        assert!(reason.contains("eth1 is up"), "{reason}");
    }
}
