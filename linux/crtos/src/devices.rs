// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos device`: PCI functions and platform devices that cells have.

use std::{
    fmt,
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use crtos_abi::ioctl;
use serde::Serialize;

use crate::{
    code::Code,
    device::{self, Call, Device},
    driven::{self, Driven},
    failure::{Failure, Result},
    function::Function,
    machine::Machine,
    net::Net,
    port_ranges::Ports,
    ranges,
    report::{DeviceOfCell, Report},
    text::table,
};

/// Give devices to the real-time realm or to a cell, and take them back
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
/// can0, nvme1n1, uio0), or a vendor and a device id (8086:10d3) if there is one such device;
/// or the name of a platform device (`ls /sys/bus/platform/devices`), which the realm alone gets:
/// one with memory, and an interrupt, that does not master the bus;
/// or a range of I/O ports (0x378-0x37f), for programs of the realm, which no driver of Linux has.
///
/// To the realm, a serial port (ttyS1) is its UART, and can0 a CAN interface, which programs use
/// there by the same name, as under Linux; other cells get the PCI function. Linux has it back with
/// the settings that it had.
///
/// `crtos up --device` takes the same but for ports (`--port`), and network interfaces (eth1),
/// which are given back and given again here.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos device add 03:00.0
  crtos device add ttyS1
  crtos device add eth1 --cell demo
  crtos device add 0x378-0x37f
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
    /// disk with something mounted, the console, a serial port that a program has open.
    Add {
        /// Address, name or ids
        device: String,
        /// The cell, by name or number [default: the real-time realm]
        #[arg(long)]
        cell: Option<String>,
        #[command(flatten)]
        manner: Manner,
    },
    /// Take a device back from its cell
    ///
    /// Refused while a program of the realm has it open or mapped, or a socket of it.
    Remove {
        /// Address, name or ids
        device: String,
    },
    /// List the devices that cells have
    ///
    /// With --json an array of objects: function (the address of a PCI function, the range of I/O
    /// ports, or the name of another device), cell (its name), kind (function, network, platform,
    /// ports, uart, can), and for a network card the name of its interface.
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// How PCI functions are given.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Also PCI functions that cannot be reset, neither now nor when they come back
    #[arg(long)]
    no_reset: bool,
    /// PCI functions that interrupt by their pins alone do not interrupt in the realm
    ///
    /// Also those whose interrupt a driver of Linux has, or that no cell can have. Programs use
    /// their registers. The realm looks at UARTs and CAN interfaces by a timer.
    #[arg(long)]
    no_interrupt: bool,
}

impl Manner {
    /// The same for the module.
    fn flags(self) -> u32 {
        let no_reset = if self.no_reset { ioctl::DEVICE_NO_RESET } else { 0 };
        no_reset | self.line()
    }

    /// Likewise, as far as it is about lines.
    pub fn line(self) -> u32 {
        if self.no_interrupt { ioctl::DEVICE_NO_INTERRUPT } else { 0 }
    }
}

/// A device that Linux has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A PCI function.
    Function(Function),
    /// A platform device, by its name.
    Platform(String),
    /// I/O ports.
    Ports(Ports),
    /// What the realm's kernel drives by I/O ports.
    Driven(Box<Driven>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(function) => function.fmt(f),
            Self::Platform(name) => name.fmt(f),
            Self::Ports(ports) => ports.fmt(f),
            Self::Driven(driven) => driven.fmt(f),
        }
    }
}

impl Target {
    /// Where Linux lists it.
    fn place(&self, machine: &Machine) -> Option<PathBuf> {
        Some(machine.path(match self {
            Self::Function(function) => format!("/sys/bus/pci/devices/{function}"),
            Self::Platform(name) => format!("{PLATFORM}/{name}"),
            Self::Ports(_) | Self::Driven(_) => return None,
        }))
    }

    /// Whether both mean the same device.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ports(one), Self::Ports(other)) => one.is(other),
            (Self::Driven(one), Self::Driven(other)) => one.name() == other.name(),
            _ => self == other,
        }
    }

    /// What kind of device it is, in one word.
    fn kind(&self) -> &'static str {
        match self {
            Self::Function(_) => "function",
            Self::Platform(_) => "platform",
            Self::Ports(_) => "ports",
            Self::Driven(driven) => driven.kind(),
        }
    }

    /// Which one a cell has.
    fn of_report(machine: &Machine, device: &DeviceOfCell) -> Self {
        match device.platform {
            true => Self::numbered(machine, device.function.number(), |number| {
                let driven = driven::numbered(number).map(|it| Self::Driven(Box::new(it)));
                driven.or_else(|| Ports::numbered(number).map(Self::Ports))
            }),
            false => Self::Function(device.function),
        }
    }

    /// Which one has that number, where `noted` tells of which ports or device a command has noted
    /// it.
    fn numbered(machine: &Machine, number: u16, noted: impl Fn(u16) -> Option<Self>) -> Self {
        let text = number.to_string();
        let folder = "/sys/bus/platform/drivers/crtos";
        let entries = std::fs::read_dir(machine.path(folder)).into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_it = |name: &String| {
            machine.read(format!("{folder}/{name}/crtos_number")).as_deref() == Some(&text)
        };
        // A note may be older: of a command that took ports back, and was killed.
        if let Some(name) = names.find(is_it) {
            return Self::Platform(name);
        }
        // Linux may just have lost the device.
        noted(number).unwrap_or_else(|| Self::Platform(format!("platform device {number}")))
    }

    /// Gives it to a cell.
    pub fn add(&self, asked: &str, file: &Device, cell: u32, manner: Manner) -> Result<()> {
        let call = |call: Call<()>| call.map_err(|refusal| refusal.asked(asked));
        match self {
            Self::Function(function) => {
                call(file.add_device(cell, &function.to_string(), manner.flags()))
            }
            Self::Platform(name) => call(file.add_platform_device(cell, name)),
            Self::Ports(ports) => call(ports.add(file, cell)),
            Self::Driven(driven) => {
                driven.as_ref().clone().add(&Machine::here(), file, cell, manner.line())
            }
        }
    }

    fn remove(&self, asked: &str, file: &Device, cell: u32) -> Result<()> {
        let call = |call: Call<()>| call.map_err(|refusal| refusal.asked(asked));
        match self {
            Self::Function(function) => call(file.remove_device(cell, &function.to_string())),
            Self::Platform(name) => call(file.remove_platform_device(cell, name)),
            Self::Ports(ports) => call(ports.remove(file, cell)),
            Self::Driven(driven) => driven.remove(file, cell),
        }
    }
}

/// Where Linux lists platform devices.
const PLATFORM: &str = "/sys/bus/platform/devices";

/// The platform device of that name, or to which the file in `/sys/class/uio` of that name leads.
fn platform(machine: &Machine, text: &str) -> Option<Target> {
    let is_one = |name: &str| !name.contains('/') && machine.exists(format!("{PLATFORM}/{name}"));
    if is_one(text) && ![".", "..", ""].contains(&text) {
        return Some(Target::Platform(text.into()));
    }
    let place = machine.path(format!("/sys/class/uio/{text}/device")).canonicalize().ok()?;
    let name = place.file_name()?.to_str().filter(|name| is_one(name))?;
    Some(Target::Platform(name.into()))
}

/// Where Linux lists what it calls devices by names, and the word for such a thing.
const CLASSES: [&str; 5] = ["net", "tty", "block", "uio", "input"];

/// The controllers by which an NVMe subsystem is reached, that Linux lists in a folder; none of
/// another folder. Disks of NVMe are below their subsystem, which is no PCI function.
fn controllers(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let is_one = folder.parent().is_some_and(|parent| parent.ends_with("nvme-subsystem"));
    let entries = is_one.then(|| std::fs::read_dir(folder).ok()).flatten();
    entries.into_iter().flatten().flatten().filter_map(|entry| entry.path().canonicalize().ok())
}

/// Whether what Linux lists at `path` is of the device at `place`.
fn is_of(path: &Path, place: &Path) -> bool {
    let by_controller =
        |folder: &Path| controllers(folder).any(|controller| controller.starts_with(place));
    path.starts_with(place) || path.ancestors().any(by_controller)
}

/// Finds the device that the user means to give to a cell, or to take back.
fn find(machine: &Machine, asked: &str, text: &str) -> Result<Target> {
    if let Some(taken) = driven::taken(text) {
        return Ok(Target::Driven(Box::new(taken)));
    }
    match platform(machine, text).or_else(|| Ports::parse(text).map(Target::Ports)) {
        Some(device) => Ok(device),
        None => find_function(machine, asked, text).map(Target::Function),
    }
}

/// Finds the function that the user means.
fn find_function(machine: &Machine, asked: &str, text: &str) -> Result<Function> {
    if let Some(function) = Function::parse(text) {
        return Ok(function);
    }
    let by_name = CLASSES.iter().find_map(|class| {
        let place =
            machine.path(format!("/sys/class/{class}/{text}/device")).canonicalize().ok()?;
        let function =
            |place: &Path| place.ancestors().find_map(|at| listed(at.file_name()?.to_str()?));
        function(&place).or_else(|| {
            let mut functions = controllers(&place).filter_map(|controller| function(&controller));
            functions.next().filter(|one| functions.all(|other| other == *one))
        })
    });
    if let Some(function) = by_name {
        return Ok(function);
    }
    let all = functions(machine);
    let wanted = text.to_ascii_lowercase();
    let mut found =
        all.iter().filter(|function| ids(machine, **function).as_ref() == Some(&wanted));
    match (found.next(), found.next()) {
        (Some(function), None) => Ok(*function),
        (Some(one), Some(other)) => {
            let reason = format!("several devices are {text}: {one}, {other}");
            Err(Failure::new(Code::DeviceUnknown, asked, reason).remedy("name it by its address"))
        }
        (None, _) => Err(unknown(machine, asked, text)),
    }
}

/// Explains that a name is of no PCI function, and says what there is for other devices.
fn unknown(machine: &Machine, asked: &str, text: &str) -> Failure {
    if text.starts_with("ttyS") && machine.exists(format!("/sys/class/tty/{text}")) {
        return Failure::new(
            Code::DeviceUnknown,
            asked,
            format!("`{text}` is a serial port, not a PCI function"),
        )
        .remedy("the real-time realm alone gets it: `crtos device add`, without `--cell`");
    }
    let absent = Failure::new(Code::DeviceUnknown, asked, format!("there is no device `{text}`"));
    if let Some(name) = text.strip_prefix("/dev/").filter(|name| !name.is_empty()) {
        return absent.remedy(format!("name it without its folder: {name}"));
    }
    match ranges::ports(text) {
        Err(reason) if text.starts_with("0x") => Failure::new(Code::DeviceUnknown, asked, reason)
            .remedy("I/O ports are written like 0x378-0x37f, at most 0xffff"),
        Ok(_) => absent.remedy("if you mean I/O ports: in hexadecimal, such as 0x378-0x37f"),
        Err(_) => {
            absent.remedy("`lspci -D` lists addresses, `ls /sys/bus/platform/devices` other names")
        }
    }
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

/// Who uses a device in Linux, in words, and what to do about it.
fn user(machine: &Machine, device: &Target) -> Option<(String, String)> {
    let place = device.place(machine)?.canonicalize().ok()?;
    let of_it = |class: &str| {
        let entries = std::fs::read_dir(machine.path(format!("/sys/class/{class}")));
        let names = entries.into_iter().flatten().flatten();
        let place = place.clone();
        names
            .filter(move |entry| entry.path().canonicalize().is_ok_and(|path| is_of(&path, &place)))
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
        // Whoever has it is in another mount namespace, for example.
        let exclusively = File::options()
            .read(true)
            .custom_flags(nix::libc::O_EXCL | nix::libc::O_NONBLOCK)
            .open(machine.path(format!("/dev/{name}")));
        if exclusively.is_err_and(|error| error.raw_os_error() == Some(nix::libc::EBUSY)) {
            let remedy = format!("`grep {name} /proc/*/mountinfo` shows who has it mounted");
            return Some((format!("somebody has {name} for himself, as by mounting it"), remedy));
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
    kind: &'static str,
    /// By which programs know it, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

fn rows(machine: &Machine, report: &Report, realm: Option<u32>) -> Vec<Row> {
    let cell = |number: u32| report.cell(number).map(|cell| cell.name.clone()).unwrap_or_default();
    let devices = report.devices.iter().map(|device| {
        let target = Target::of_report(machine, device);
        let net = interface(&target, device.cell, realm);
        Row {
            function: target.to_string(),
            cell: cell(device.cell),
            kind: if net.is_some() { "network" } else { target.kind() },
            name: net.map(|net| net.name),
        }
    });
    // Ports that `crtos up` gives, the hypervisor does not tell apart.
    let from_the_start = realm
        .into_iter()
        .flat_map(|realm| Ports::from_the_start().map(move |ports| (ports.to_string(), realm)));
    let from_the_start = from_the_start.map(|(function, realm)| Row {
        function,
        cell: cell(realm),
        kind: "ports",
        name: None,
    });
    devices.chain(from_the_start).collect()
}

impl Devices {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        match self.verb {
            Verb::Add { device, cell, manner } => {
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
                    return Err(Failure::new(Code::CellUnknown, &asked, "there is no such cell")
                        .remedy("`crtos cell list` shows the cells"));
                };
                let machine = Machine::here();
                let is_realm = device::realm(&info) == Some(number);
                // What Linux has given up already is not its any more.
                let is_taken = driven::taken(&device).is_some();
                let target = match Driven::find(&machine, &device).filter(|_| is_realm) {
                    Some(driven) if !is_taken => {
                        Target::Driven(Box::new(unused_driven(&asked, driven?)?))
                    }
                    _ => find(&machine, &asked, &device)?,
                };
                let known = report.devices.iter();
                let mut known =
                    known.filter(|known| Target::of_report(&machine, known).is(&target));
                if let Some(known) = known.next() {
                    let name = report.cell(known.cell).map(|cell| cell.name.as_str());
                    let reason = format!("the cell {} has it already", name.unwrap_or("?"));
                    return Err(Failure::new(Code::DeviceTaken, &asked, reason)
                        .remedy(format!("`crtos device remove {target}` takes it back")));
                }
                let add = || target.add(&asked, &file, number, manner);
                match interface(&target, number, device::realm(&info)) {
                    Some(net) => net.go_again(&machine, &file, number, add),
                    None => unused(&machine, &asked, target.clone()).and_then(|_| add()),
                }
            }
            Verb::Remove { device } => {
                let asked = format!("take {device} back");
                let file = Device::require(&asked)?;
                let machine = Machine::here();
                let target = find(&machine, &asked, &device)?;
                let report = file.report(&asked)?;
                let mut devices = report.devices.iter();
                let known = devices.find(|known| Target::of_report(&machine, known).is(&target));
                if let (Target::Driven(driven), Some(realm)) =
                    (&target, device::realm(&file.info(&asked)?))
                {
                    return driven.remove(&file, realm);
                }
                let Some(known) = known else {
                    if let Target::Ports(ports) = &target
                        && let Some(realm) = device::realm(&file.info(&asked)?)
                    {
                        if Ports::from_the_start().any(|one| one.is(ports)) {
                            let reason = "the realm was started with them";
                            return Err(Failure::new(Code::DeviceTaken, asked, reason)
                                .remedy("`crtos down` gives them back"));
                        }
                        // The command that gave them was killed before it took note of that.
                        return ports.remove(&file, realm).map_err(|refusal| refusal.asked(asked));
                    }
                    return Err(Failure::new(Code::DeviceAbsent, &asked, "no cell has it")
                        .remedy("`crtos device list` shows those that cells have"));
                };
                target.remove(&asked, &file, known.cell)?;
                match interface(&target, known.cell, device::realm(&file.info(&asked)?)) {
                    Some(net) => net.come_back(),
                    None => Ok(()),
                }
            }
            Verb::List { json } => {
                let asked = "list the devices of cells";
                let file = Device::require(asked)?;
                let info = file.info(asked)?;
                let rows = match info.enabled {
                    0 => Vec::new(),
                    _ => rows(&Machine::here(), &file.report(asked)?, device::realm(&info)),
                };
                if json {
                    return crate::print_json(&rows);
                }
                let rows = rows.into_iter().map(|row| {
                    vec![row.function, row.kind.into(), row.name.unwrap_or_default(), row.cell]
                });
                let heads = ["DEVICE", "KIND", "NAME", "CELL"];
                anstream::println!("{}", table(&heads, &[], rows.collect()));
                Ok(())
            }
        }
    }
}

/// The interface that the device is in the realm, if it is one and `cell` is the realm.
fn interface(target: &Target, cell: u32, realm: Option<u32>) -> Option<Net> {
    match target {
        Target::Function(function) if realm == Some(cell) => Net::of_realm(*function),
        _ => None,
    }
}

/// Finds the device that the user means, if Linux does not use it.
pub fn choose(machine: &Machine, asked: &str, device: &str) -> Result<Target> {
    unused(machine, asked, find(machine, asked, device)?)
}

/// Refuses a device that Linux uses, or does not have.
fn unused(machine: &Machine, asked: &str, target: Target) -> Result<Target> {
    if let Target::Function(function) = &target
        && target.place(machine).is_none_or(|place| !place.exists())
    {
        let reason = format!("there is no PCI function {function}");
        return Err(
            Failure::new(Code::DeviceUnknown, asked, reason).remedy("`lspci -D` lists addresses")
        );
    }
    refuse_used(asked, user(machine, &target)).map(|()| target)
}

fn unused_driven(asked: &str, driven: Driven) -> Result<Driven> {
    refuse_used(asked, driven.user()).map(|()| driven)
}

fn refuse_used(asked: &str, user: Option<(String, String)>) -> Result<()> {
    let Some((reason, remedy)) = user else { return Ok(()) };
    Err(Failure::new(Code::DeviceInUse, asked, format!("Linux uses it: {reason}")).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_linux_names_is_no_range_of_ports() {
        let root = tempfile::tempdir().expect("a directory");
        let device = root.path().join("sys/bus/platform/drivers/crtos/pnp:00");
        std::fs::create_dir_all(&device).expect("made");
        std::fs::write(device.join("crtos_number"), "65535\n").expect("written");
        let machine = Machine::below(root.path());
        let noted = |_| Ports::parse("0x378-0x37f").map(Target::Ports);
        let told = |number| Target::numbered(&machine, number, noted).to_string();
        assert_eq!([65535, 65534].map(told), ["pnp:00", "0x378-0x37f"]);
        let unknown = Target::numbered(&machine, 65534, |_| None);
        assert_eq!(unknown, Target::Platform("platform device 65534".into()));
    }

    #[test]
    fn a_disk_of_nvme_is_of_its_controller() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).expect("made");
        let controller = at("sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0");
        let subsystem = at("sys/devices/virtual/nvme-subsystem/nvme-subsys0");
        for folder in [&controller, &subsystem.join("nvme0n1/holders")] {
            std::fs::create_dir_all(folder).expect("made");
        }
        for folder in ["sys/bus/pci/devices", "sys/class/block", "proc"] {
            std::fs::create_dir_all(at(folder)).expect("made");
        }
        link(&at("sys/devices/pci0000:00/0000:00:04.0"), &at("sys/bus/pci/devices/0000:00:04.0"));
        link(&controller, &subsystem.join("nvme0"));
        link(&subsystem, &subsystem.join("nvme0n1/device"));
        link(&subsystem.join("nvme0n1"), &at("sys/class/block/nvme0n1"));
        std::fs::write(at("proc/mounts"), "/dev/nvme0n1 /data ext4 rw 0 0\n").expect("written");
        let machine = Machine::below(root.path());
        let disk = find(&machine, "test", "nvme0n1").expect("found");
        assert_eq!(disk, Target::Function(Function::new(0x20)));
        let (reason, _) = user(&machine, &disk).expect("it is used");
        assert_eq!(reason, "nvme0n1 is mounted at /data");
    }

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
            assert_eq!(user(&machine, &found), None);
        }
        assert!(find(&machine, "test", "eth2").is_err());
        // Linux names other things nearly as functions.
        let port = at("sys/devices/pnp0/00:04/00:04:0/00:04:0.0");
        std::fs::create_dir_all(port.join("tty/ttyS1")).expect("made");
        std::fs::create_dir_all(at("sys/class/tty")).expect("made");
        link(&port, &port.join("tty/ttyS1/device"));
        link(&port.join("tty/ttyS1"), &at("sys/class/tty/ttyS1"));
        let refused = |text| find(&machine, "test", text).unwrap_err().to_string();
        assert!(refused("ttyS1").contains("is a serial port"), "{}", refused("ttyS1"));
        assert!(refused("378-0x37f").contains("in hexadecimal"), "{}", refused("378-0x37f"));
        let ports = find(&machine, "test", "0x378-0x37f").expect("found");
        assert_eq!((ports.to_string().as_str(), ports.kind()), ("0x378-0x37f", "ports"));
        assert_eq!(user(&machine, &ports), None);
        assert!(refused("ttyS2").contains("no device"));
        write(&pci.join("net/eth1/flags"), "0x1003\n");
        let card = Target::Function(Function::new(0x18));
        let (reason, _) = user(&machine, &card).expect("it is used");
        assert!(reason.contains("eth1 is up"), "{reason}");
        // A platform device, by its name and by that of its file.
        let device = at("sys/devices/platform/MSFT0101:00");
        std::fs::create_dir_all(device.join("uio/uio0")).expect("made");
        std::fs::create_dir_all(at("sys/bus/platform/devices")).expect("made");
        std::fs::create_dir_all(at("sys/class/uio")).expect("made");
        link(&device, &at("sys/bus/platform/devices/MSFT0101:00"));
        link(&device, &device.join("uio/uio0/device"));
        link(&device.join("uio/uio0"), &at("sys/class/uio/uio0"));
        for name in ["MSFT0101:00", "uio0"] {
            let found = find(&machine, "test", name).expect("found");
            assert_eq!(found, Target::Platform("MSFT0101:00".into()));
        }
        for name in [".", "..", "", "../devices/MSFT0101:00", "MSFT0101:01"] {
            assert!(find(&machine, "test", name).is_err(), "{name}");
        }
        // Which of them a cell has, its driver tells.
        let number = at("sys/bus/platform/drivers/crtos/MSFT0101:00");
        std::fs::create_dir_all(&number).expect("made");
        write(&number.join("crtos_number"), "65535\n");
        let of_report = |number, platform| {
            let function = Function::new(number);
            Target::of_report(&machine, &DeviceOfCell { function, platform, cell: 0 }).to_string()
        };
        assert_eq!(of_report(0xffff, true), "MSFT0101:00");
        assert_eq!(of_report(0xfffe, true), "platform device 65534");
        assert_eq!(of_report(0x18, false), "0000:00:03.0");
    }
}
