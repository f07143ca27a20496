// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN interfaces that Linux gives up while the realm has them.
//!
//! Linux's driver lets the card go, and nobody else gets it. The function stays enabled, so that
//! Linux knows its interrupt. `ip` tells and sets what the interface is set to, as whoever set it
//! before has done.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    code::Code,
    failure::{Asked, Failure, Result, plain},
    ip::{ip, rename},
    machine::Machine,
};

/// The driver of the cards that the realm has a driver for.
const DRIVER: &str = "kvaser_pci";
/// Kind of network hardware: CAN (ARPHRD_CAN).
const HARDWARE: &str = "280";
/// Nanoseconds of a tick of the controller's clock.
const TICK: u64 = 125;
/// Modes, as `ip` tells them, with their numbers (CAN_CTRLMODE_*).
const MODES: [(&str, u32); 6] = [
    ("LOOPBACK", 0x01),
    ("LISTEN-ONLY", 0x02),
    ("TRIPLE-SAMPLING", 0x04),
    ("ONE-SHOT", 0x08),
    ("BERR-REPORTING", 0x10),
    ("PRESUME-ACK", 0x40),
];

/// What an interface is set to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Settings {
    is_up: bool,
    queue_length: u64,
    /// Nanoseconds of a quantum, and the segments of a bit in quanta.
    quantum: u64,
    propagation: u64,
    phase_1: u64,
    phase_2: u64,
    jump: u64,
    restart: u64,
    modes: Vec<String>,
}

/// A CAN interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Can {
    /// Its name, such as can0.
    pub name: String,
    /// The PCI function, such as 0000:00:05.0.
    pub function: String,
    /// The number of the interface.
    index: u64,
    /// The first ports of the card's bridge and of its controller.
    ports: [u16; 2],
    /// The line on which it interrupts; known when it is taken.
    pub line: u32,
    settings: Settings,
}

fn asked(name: &str) -> String {
    format!("take {name} from Linux")
}

fn sysfs(function: &str, file: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(function).join(file)
}

impl Settings {
    /// What `ip -json -details link show` tells, with the number of the interface. `None` if it has
    /// no bit rate.
    fn told(json: &[u8]) -> Option<(u64, Self)> {
        let all: Value = serde_json::from_slice(json).ok()?;
        let link = all.get(0)?;
        let data = &link["linkinfo"]["info_data"];
        let timing = &data["bittiming"];
        let words = |value: &Value| -> Vec<String> {
            let words = value.as_array().into_iter().flatten();
            words.filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        let settings = Self {
            is_up: words(&link["flags"]).iter().any(|flag| flag == "UP"),
            queue_length: link["txqlen"].as_u64().unwrap_or(10),
            quantum: timing["tq"].as_u64().filter(|&quantum| quantum > 0)?,
            propagation: timing["prop_seg"].as_u64()?,
            phase_1: timing["phase_seg1"].as_u64()?,
            phase_2: timing["phase_seg2"].as_u64()?,
            jump: timing["sjw"].as_u64()?,
            restart: data["restart_ms"].as_u64().unwrap_or(0),
            modes: words(&data["ctrlmode"]),
        };
        Some((link["ifindex"].as_u64()?, settings))
    }

    /// As the real-time kernel reads them.
    fn word(&self) -> String {
        let is_on = |(name, _): &&(&str, u32)| self.modes.iter().any(|mode| mode == name);
        let modes: u32 = MODES.iter().filter(is_on).map(|(_, number)| number).sum();
        let before = self.propagation + self.phase_1;
        let prescaler = self.quantum / TICK;
        format!("{prescaler}/{before}/{}/{}/{modes}/{}", self.phase_2, self.jump, self.restart)
    }

    /// The words by which `ip link set NAME` sets an interface to them.
    fn words(&self) -> Vec<String> {
        let numbers = [
            ("tq", self.quantum),
            ("prop-seg", self.propagation),
            ("phase-seg1", self.phase_1),
            ("phase-seg2", self.phase_2),
            ("sjw", self.jump),
            ("restart-ms", self.restart),
        ];
        let numbers =
            numbers.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]);
        let known = |mode: &&String| MODES.iter().any(|(name, _)| name == *mode);
        let modes = self.modes.iter().filter(known);
        let modes = modes.flat_map(|mode| [mode.to_lowercase(), "on".into()]);
        ["type".to_string(), "can".into()].into_iter().chain(numbers).chain(modes).collect()
    }
}

impl Can {
    /// Whether there is a CAN interface of that name.
    pub fn is_one(machine: &Machine, name: &str) -> bool {
        !name.contains('/')
            && machine.read(format!("/sys/class/net/{name}/type")).as_deref() == Some(HARDWARE)
    }

    /// Finds the CAN interface `name`, if it can be taken.
    pub fn find(machine: &Machine, name: &str) -> Result<Self> {
        Self::find_with(machine, name, || ip(&["-json", "-details", "link", "show", "dev", name]))
    }

    fn find_with(
        machine: &Machine,
        name: &str,
        tell: impl FnOnce() -> std::result::Result<Vec<u8>, String>,
    ) -> Result<Self> {
        let refuse = |code: Code, reason: String| Failure::new(code, asked(name), reason);
        let at = |file: &str| machine.path(format!("/sys/class/net/{name}/{file}"));
        let link = |file: &str| {
            let to = fs::canonicalize(at(file)).ok()?;
            Some(to.file_name()?.to_string_lossy().into_owned())
        };
        let driver = link("device/driver").unwrap_or_else(|| "none".into());
        let Some(function) = link("device").filter(|_| driver == DRIVER) else {
            return Err(refuse(Code::DeviceUnfit, format!("its driver is {driver}")).remedy(
                "the realm drives PCI cards of Kvaser with SJA1000 controllers (kvaser_pci)",
            ));
        };
        let others = fs::read_dir(at("device/net")).into_iter().flatten().flatten().count();
        if others > 1 {
            return Err(refuse(Code::DeviceUnfit, "its card has further interfaces".into())
                .remedy("only cards with one channel can be taken"));
        }
        let resource = machine.read(format!("/sys/class/net/{name}/device/resource"));
        let resource = resource.unwrap_or_default();
        let [Some(bridge), Some(controller)] = [0, 1].map(|bar| first_port(&resource, bar)) else {
            return Err(refuse(Code::DeviceUnfit, "its card has no I/O ports".into()));
        };
        let users = receivers(machine, name);
        if users > 0 {
            return Err(refuse(
                Code::DeviceInUse,
                format!("programs receive from it, by {users} filters"),
            )
            .remedy(
                "end them first, and routes of the kernel (`cangw -F`); /proc/net/can tells of the \
                 filters",
            ));
        }
        let json = tell().map_err(|reason| {
            refuse(Code::IpMissing, reason)
                .remedy("install `ip` (package iproute2), which tells its bit rate")
        })?;
        let Some((index, settings)) = Settings::told(&json) else {
            return Err(refuse(Code::CanBitRate, "it has no bit rate".into())
                .remedy(format!("`ip link set {name} type can bitrate 500000`, for example")));
        };
        let (name, ports) = (name.to_owned(), [bridge, controller]);
        Ok(Self { name, function, index, ports, line: 0, settings })
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.settings.is_up
    }

    /// Returns what the real-time kernel and the module learn of it.
    pub fn description(&self) -> String {
        let [bridge, controller] =
            self.ports().map(|ports| format!("{:x}-{:x}", ports.start(), ports.end()));
        let Self { name, line, index, settings, .. } = self;
        let (queue, settings) = (settings.queue_length, settings.word());
        format!("can,{name},{controller}+{bridge},{line},{index}:{queue}:{settings}")
    }

    /// The I/O ports of the bridge, and of the controller.
    pub fn ports(&self) -> [RangeInclusive<u16>; 2] {
        const PORTS: u16 = 0x80;
        self.ports.map(|first| first..=first + (PORTS - 1))
    }

    /// Linux's driver lets it go, if it has it, and no other one takes it; the function stays
    /// enabled. Learns on which line it interrupts.
    pub fn release(&mut self) -> Result<()> {
        let at = |file: &str| sysfs(&self.function, file);
        let write = |file: &str, text: &str| fs::write(at(file), text).asked(asked(&self.name));
        // What is no driver's name.
        write("driver_override", "crtos\n")?;
        if at("driver").exists() {
            write("driver/unbind", &self.function)?;
        }
        // Linux counts how often it was enabled.
        if fs::read_to_string(at("enable")).asked(asked(&self.name))?.trim() == "0" {
            write("enable", "1")?;
        }
        // It may be another one than before.
        let line = fs::read_to_string(at("irq")).asked(asked(&self.name))?;
        self.line = line.trim().parse().unwrap_or(0);
        Ok(())
    }

    /// Linux's driver takes it back, and it is set as it was.
    pub fn give_back(&self) -> std::result::Result<(), String> {
        let write = |path: &Path, text: &str| {
            fs::write(path, text).map_err(|error| format!("{}: {}", path.display(), plain(&error)))
        };
        let at = |file: &str| sysfs(&self.function, file);
        if !at("driver").exists() {
            // Fails where it was not enabled.
            let _ = fs::write(at("enable"), "0");
            write(&at("driver_override"), "\n")?;
            write(Path::new("/sys/bus/pci/drivers_probe"), &self.function)?;
        } else {
            write(&at("driver_override"), "\n")?;
        }
        let found = fs::read_dir(at("net")).ok().and_then(|mut names| names.next()?.ok());
        let found = found.ok_or("its driver does not take it")?;
        let name = found.file_name().to_string_lossy().into_owned();
        let name = rename(name, &self.name);
        let words = self.settings.words();
        let words = words.iter().map(String::as_str);
        // It was not taken at all if it is up.
        if ip(&["link", "set", &name].into_iter().chain(words).collect::<Vec<_>>()).is_ok() {
            let length = self.settings.queue_length.to_string();
            let state = if self.settings.is_up { "up" } else { "down" };
            ip(&["link", "set", &name, "txqueuelen", &length, state])?;
        }
        Ok(())
    }
}

/// Returns the first I/O port of a base address register, by the lines of `resource`.
fn first_port(resource: &str, bar: usize) -> Option<u16> {
    /// IORESOURCE_IO.
    const PORTS: u64 = 0x100;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let mut words = resource.lines().nth(bar)?.split_whitespace().map(number);
    let (first, last, flags) = (words.next()??, words.next()??, words.next()??);
    let is_whole = flags & PORTS != 0 && last.checked_sub(first) == Some(0x7f);
    u16::try_from(first).ok().filter(|_| is_whole && last <= u64::from(u16::MAX))
}

/// Returns how many filters of sockets receive from an interface.
fn receivers(machine: &Machine, name: &str) -> usize {
    let lists = ["all", "fil", "inv", "sff", "eff", "err"];
    let of = |list: &str| {
        let list = machine.read(format!("/proc/net/can/rcvlist_{list}")).unwrap_or_default();
        list.lines().filter(|line| line.split_whitespace().next() == Some(name)).count()
    };
    lists.into_iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::machine::fake::Fake;

    const TOLD: &str = r#"[{"ifindex":4,"ifname":"can0","flags":["NOARP","UP","LOWER_UP","ECHO"],
        "mtu":16,"txqlen":10,"linkinfo":{"info_kind":"can","info_data":{"ctrlmode":["ONE-SHOT"],
        "state":"ERROR-ACTIVE","restart_ms":100,"bittiming":{"bitrate":500000,
        "sample_point":"0.875","tq":125,"prop_seg":6,"phase_seg1":7,"phase_seg2":2,"sjw":1,
        "brp":1},"clock":8000000}}}]"#;
    const RESOURCE: &str = "0x000000000000c080 0x000000000000c0ff 0x0000000000040101\n\
        0x000000000000c100 0x000000000000c17f 0x0000000000040101\n";

    fn with_card() -> Fake {
        let fake = Fake::fit();
        let function = "/sys/devices/pci0000:00/0000:00:05.0";
        fake.write(&format!("{function}/net/can0/type"), "280\n");
        fake.write(&format!("{function}/resource"), RESOURCE);
        fake.write("/sys/bus/pci/drivers/kvaser_pci/bind", "");
        fake.write("/sys/class/net/lo/type", "772\n");
        let path = |path: &str| fake.machine().path(path);
        symlink(path("/sys/bus/pci/drivers/kvaser_pci"), path(&format!("{function}/driver")))
            .unwrap();
        symlink(path(function), path(&format!("{function}/net/can0/device"))).unwrap();
        symlink(path(&format!("{function}/net/can0")), path("/sys/class/net/can0")).unwrap();
        fake
    }

    fn find(fake: &Fake, name: &str, told: &str) -> Result<Can> {
        Can::find_with(&fake.machine(), name, || Ok(told.into()))
    }

    #[test]
    fn an_interface_is_what_linux_tells() {
        let can = find(&with_card(), "can0", TOLD).unwrap();
        assert_eq!(can.description(), "can,can0,c100-c17f+c080-c0ff,0,4:10:1/13/2/1/8/100");
        assert_eq!(
            can.settings.words().join(" "),
            "type can tq 125 prop-seg 6 phase-seg1 7 phase-seg2 2 sjw 1 restart-ms 100 one-shot on"
        );
        let text = serde_json::to_vec(&[&can]).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Can>>(&text).unwrap(), [can]);
    }

    #[test]
    fn what_cannot_be_taken_is_refused() {
        let refused =
            |fake: &Fake, name: &str, told: &str| find(fake, name, told).unwrap_err().to_string();
        let fake = with_card();
        assert!(refused(&fake, "can0", r#"[{"ifindex":4}]"#).contains("no bit rate"));
        assert!(refused(&fake, "can0", "").contains("no bit rate"));
        fake.write("/proc/net/can/rcvlist_all", "receive list 'rx_all':\n  can0  000  00000000\n");
        assert!(refused(&fake, "can0", TOLD).contains("programs receive"));
        let fake = with_card();
        fake.write("/sys/devices/pci0000:00/0000:00:05.0/net/can1/type", "280\n");
        assert!(refused(&fake, "can0", TOLD).contains("further interfaces"));
        let fake = with_card();
        fake.write(
            "/sys/devices/pci0000:00/0000:00:05.0/resource",
            "0xfe000000 0xfe00007f 0x200\n",
        );
        assert!(refused(&fake, "can0", TOLD).contains("no I/O ports"));
    }

    #[test]
    fn other_names_are_not_those_of_can_interfaces() {
        let fake = with_card();
        let machine = fake.machine();
        assert!(Can::is_one(&machine, "can0"));
        assert!(["lo", "can1", "../net/can0", ""].iter().all(|name| !Can::is_one(&machine, name)));
    }
}
