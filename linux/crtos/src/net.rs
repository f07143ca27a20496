// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces that Linux gives up while the realm has them.
//!
//! The card is given as every PCI function. What the interface was set to is written to a file
//! first: the realm uses it, and a later command sets the interface the same again if this one is
//! killed. `ip` tells and sets it, as whoever set it before has done. Meanwhile Linux shows a
//! stand-in, by which no route leads.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crtos_abi::ioctl::{CellInterface, INTERFACE_CARRIER, INTERFACE_FULL_DUPLEX};
use crtos_nic::{kinds, virtio};
use nix::errno::Errno;
use serde_json::Value;

use crate::{
    code::Code,
    device::{self, Device},
    failure::{Asked, Failure, Result},
    function::Function,
    ip::{ip, rename},
    machine::Machine,
    start::step,
    state, text,
};

/// File that tells which interfaces are taken.
const RECORD: &str = "/run/crtos/net.json";
/// Most bytes behind the header of a frame that the realm sends.
const MOST_MTU: u64 = 1500;
/// Most addresses that the realm is told of.
const MOST_ADDRESSES: usize = 8;
/// How long Linux's driver may take to show the interface again.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Net {
    /// Its name, such as eth1.
    pub name: String,
    /// The PCI function, such as 0000:00:05.0.
    function: String,
    index: u64,
    is_up: bool,
    mtu: u64,
    queue_length: u64,
    /// Its address.
    own: String,
    /// Those of its networks, such as 10.0.0.1/24.
    addresses: Vec<String>,
    /// What Linux knows of its cable.
    #[serde(default)]
    cable: Cable,
    /// Whether Linux has it back, while the realm goes on.
    #[serde(default)]
    is_back: bool,
}

/// What Linux knows of a cable.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Cable {
    has_carrier: bool,
    is_full_duplex: bool,
    /// Mbit/s.
    speed: Option<u32>,
}

impl Cable {
    fn of(machine: &Machine, name: &str) -> Self {
        let told = |file| machine.read(format!("/sys/class/net/{name}/{file}"));
        let is = |file, word: &str| told(file).is_some_and(|text| text.trim() == word);
        Self {
            has_carrier: is("carrier", "1"),
            is_full_duplex: is("duplex", "full"),
            speed: told("speed").and_then(|text| text.trim().parse().ok()),
        }
    }
}

fn asked(name: &str) -> String {
    format!("take {name} from Linux")
}

/// What `ip` tells of an interface.
struct Told {
    /// `ip -json address show`.
    addresses: Vec<u8>,
    /// `ip -json route show`, of IPv4 and IPv6.
    routes: [Vec<u8>; 2],
}

impl Told {
    fn of(name: &str) -> std::result::Result<Self, String> {
        Ok(Self {
            addresses: ip(&["-json", "address", "show", "dev", name])?,
            routes: [
                ip(&["-json", "-4", "route", "show", "dev", name])?,
                ip(&["-json", "-6", "route", "show", "dev", name])?,
            ],
        })
    }

    /// The first network behind a gateway.
    fn gateway(&self) -> Option<String> {
        self.routes.iter().find_map(|json| {
            let all: Value = serde_json::from_slice(json).ok()?;
            let routes = all.as_array()?.iter();
            let mut behind = routes.filter(|route| route.get("gateway").is_some());
            Some(behind.next()?["dst"].as_str().unwrap_or("another network").to_owned())
        })
    }
}

impl Net {
    /// The interface that `device` means, a name of Linux's or a PCI function, if it is one of a
    /// card that the realm drives itself.
    pub fn named(machine: &Machine, device: &str) -> Option<String> {
        let driver = |function: Function| {
            let link = machine.path(format!("/sys/bus/pci/devices/{function}/driver"));
            let driver = fs::canonicalize(link).ok()?;
            kinds::ALL.iter().find(|about| driver.file_name().is_some_and(|it| it == about.driver))
        };
        if let Some(function) = Function::parse(device) {
            driver(function)?;
            return interface_of(machine, function);
        }
        let is_name = !device.is_empty() && !device.contains('/') && !device.starts_with('.');
        is_name.then_some(())?;
        driver(function_of(machine, device)?)?;
        Some(device.to_owned())
    }

    /// Finds the interface `name`, if it can be taken.
    pub fn find(machine: &Machine, name: &str) -> Result<Self> {
        Self::find_with(machine, name, || Told::of(name))
    }

    fn find_with(
        machine: &Machine,
        name: &str,
        tell: impl FnOnce() -> std::result::Result<Told, String>,
    ) -> Result<Self> {
        let refuse = |code: Code, reason: String| Failure::new(code, asked(name), reason);
        let at = |file: &str| machine.path(format!("/sys/class/net/{name}/{file}"));
        let Some(function) = function_of(machine, name) else {
            return Err(refuse(Code::DeviceUnfit, "it has no PCI function".into()));
        };
        let id = |file: &str| {
            let text = machine.read(format!("/sys/bus/pci/devices/{function}/{file}"))?;
            u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        let id = id("vendor").zip(id("device"));
        if !kinds::ALL.iter().any(|about| id.is_some_and(|id| about.ids.contains(&id))) {
            let known: Vec<_> = kinds::ALL.iter().map(|about| about.name).collect();
            let reason = format!("its card is none that the realm drives ({})", known.join(", "));
            return Err(refuse(Code::DeviceUnfit, reason).remedy(format!(
                "programs can drive it: `crtos device add {function}`, when the realm is up"
            )));
        }
        let features = machine.read(format!("/sys/class/net/{name}/device/features"));
        let is_confined =
            || features.is_some_and(|bits| bits.as_bytes().get(virtio::BY_IOMMU) == Some(&b'1'));
        if id.is_some_and(|(vendor, _)| vendor == virtio::VENDOR) && !is_confined() {
            return Err(refuse(Code::Iommu, "it reaches memory without the IOMMU".into()).remedy(
                "whoever makes the machine gives it VIRTIO_F_ACCESS_PLATFORM: QEMU by \
                 `iommu_platform=on,disable-legacy=on`",
            ));
        }
        if at("master").exists() {
            return Err(refuse(Code::DeviceInUse, "it is a part of a bridge or a bond".into()));
        }
        let mut entries = fs::read_dir(at("")).into_iter().flatten().flatten();
        let above = entries
            .find_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned()));
        if let Some(above) = above {
            return Err(refuse(Code::DeviceInUse, format!("{above} is on top of it"))
                .remedy(format!("`ip link delete {above}`, for example")));
        }
        let told = tell().map_err(|reason| {
            refuse(Code::IpMissing, reason)
                .remedy("install `ip` (package iproute2), which tells its addresses")
        })?;
        if let Some(network) = told.gateway() {
            return Err(refuse(Code::DeviceInUse, format!("Linux reaches {network} by it"))
                .remedy(format!("`ip route flush dev {name}`, or use another interface")));
        }
        let net = Self::told(name, function.to_string(), &told.addresses);
        let mut net =
            net.ok_or_else(|| refuse(Code::DeviceUnfit, "`ip` does not tell of it".into()))?;
        net.cable = Cable::of(machine, name);
        if net.mtu > MOST_MTU {
            return Err(refuse(Code::DeviceUnfit, format!("its MTU is {}", net.mtu))
                .remedy(format!("`ip link set {name} mtu {MOST_MTU}`")));
        }
        let receivers = receivers(machine, net.index);
        if receivers > 0 {
            return Err(refuse(
                Code::DeviceInUse,
                format!("{receivers} packet sockets of programs are bound to it"),
            )
            .remedy("end them first; /proc/net/packet tells of them"));
        }
        Ok(net)
    }

    fn told(name: &str, function: String, json: &[u8]) -> Option<Self> {
        let all: Value = serde_json::from_slice(json).ok()?;
        let link = all.as_array()?.iter().find(|link| link["ifname"] == name)?;
        let flags = link["flags"].as_array()?;
        let addresses = link["addr_info"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|info| {
            Some(format!("{}/{}", info["local"].as_str()?, info["prefixlen"].as_u64()?))
        });
        Some(Self {
            name: name.to_owned(),
            function,
            index: link["ifindex"].as_u64()?,
            is_up: flags.iter().any(|flag| flag == "UP"),
            mtu: link["mtu"].as_u64()?,
            queue_length: link["txqlen"].as_u64().unwrap_or(1000),
            own: link["address"].as_str()?.to_owned(),
            addresses: addresses.collect(),
            cable: Cable::default(),
            is_back: false,
        })
    }

    /// Its PCI function.
    pub fn function(&self) -> Option<Function> {
        Function::parse(&self.function)
    }

    /// Returns the word by which the real-time kernel learns of it.
    pub fn word(&self) -> String {
        let Self { name, index, mtu, queue_length, .. } = self;
        let number = self.function().map_or(0, Function::number);
        let own = self.own.replace(':', "");
        let networks = self.addresses.iter().take(MOST_ADDRESSES).map(|one| format!(",{one}"));
        let networks: String = networks.collect();
        format!("device=net,{name},{number:04x},{index},{mtu},{queue_length},{own}{networks}")
    }

    /// Its description for the module, if it can have one.
    fn described(&self, cell: u32) -> Option<CellInterface> {
        let bytes = self.own.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
        let bytes: Option<Vec<u8>> = bytes.collect();
        let Cable { has_carrier, is_full_duplex, speed } = self.cable;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        Some(CellInterface {
            cell,
            flags: flag(has_carrier, INTERFACE_CARRIER)
                | flag(is_full_duplex, INTERFACE_FULL_DUPLEX),
            function: device::name(&self.function),
            name: device::name(&self.name),
            index: self.index.try_into().ok()?,
            mtu: self.mtu.try_into().ok()?,
            queue_length: self.queue_length.try_into().ok()?,
            speed: speed.unwrap_or(u32::MAX),
            address: bytes?.try_into().ok()?,
            reserved: [0; 2],
        })
    }

    /// Has Linux show the interface while a cell has its card. Linux tells programs its addresses
    /// of IPv4, and has no route by them; the realm has no others.
    pub fn show(&self, file: &Device, cell: u32) -> Result<()> {
        let asked = || format!("show {} under Linux", self.name);
        let described = self.described(cell);
        let mut described = described.ok_or_else(|| {
            Failure::new(Code::DeviceUnfit, asked(), "its address is not one of Ethernet")
        })?;
        match file.show_interface(&mut described) {
            Ok(()) => {}
            Err(refusal) if refusal.errno == Errno::EOPNOTSUPP => {
                step(&format!("Linux does not show {}: {}", self.name, refusal.reason));
                return Ok(());
            }
            Err(refusal) => return Err(refusal.asked(asked())),
        }
        for address in self.addresses.iter().take(MOST_ADDRESSES).filter(|one| one.contains('.')) {
            // Linux takes one of that scope for nothing that it sends by other interfaces.
            let set = ["address", "add", address, "dev", &self.name, "noprefixroute"];
            if let Err(reason) = ip(&[&set[..], &["scope", "link"]].concat()) {
                text::warn(
                    &format!("Linux does not show {address} of {}: {reason}", self.name),
                    "programs that ask by ioctl learn it in the realm",
                );
            }
        }
        Ok(())
    }

    /// The interface that the realm has by that function, or had when it was started.
    pub fn of_realm(function: Function) -> Option<Self> {
        recorded().into_iter().find(|net| net.function() == Some(function))
    }

    /// Sets the interface as it was, after the realm has given its card back.
    pub fn come_back(&self) -> Result<()> {
        self.return_to_linux();
        self.note(true)
    }

    /// Has the realm get its card once more, by `add`.
    pub fn go_again(
        &self,
        machine: &Machine,
        file: &Device,
        cell: u32,
        add: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if let Some(name) = Self::named(machine, &self.function) {
            Self::find(machine, &name)?;
        }
        self.note(false)?;
        let is_taken = || file.remove_device(cell, &self.function).is_err();
        let (failure, is_taken) = match add().map(|()| self.show(file, cell)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => (failure, is_taken()),
            Err(failure) => (failure, false),
        };
        // A program of the realm may use it already.
        if !is_taken {
            self.come_back()?;
        }
        Err(failure)
    }

    /// Notes whether Linux has it back, while the realm goes on.
    fn note(&self, is_back: bool) -> Result<()> {
        let noted = state::change(Path::new(RECORD), |all: &mut Vec<Self>| {
            let meant = all.iter_mut().filter(|net| net.function == self.function);
            meant.for_each(|net| net.is_back = is_back);
        });
        noted.asked(format!("write {RECORD}"))
    }

    /// Sets the interface as it was, or says why it is not.
    fn return_to_linux(&self) {
        if let Err(reason) = self.give_back() {
            text::warn(
                &format!("{} is not as it was: {reason}", self.name),
                "set it by `ip link` and `ip address`; `dmesg` may say why",
            );
        }
    }

    /// Sets the interface as it was, once Linux's driver has it.
    fn give_back(&self) -> std::result::Result<(), String> {
        let machine = Machine::here();
        let end = Instant::now() + BACK_WITHIN;
        let found = loop {
            match self.function().and_then(|function| interface_of(&machine, function)) {
                Some(found) => break found,
                None if Instant::now() > end => return Err("its driver does not take it".into()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let own = Path::new("/sys/class/net").join(&found).join("address");
        let now = fs::read_to_string(own).unwrap_or_default();
        let name = rename(found, &self.name);
        if now.trim() != self.own {
            ip(&["link", "set", &name, "address", &self.own])?;
        }
        let (mtu, length) = (self.mtu.to_string(), self.queue_length.to_string());
        let state = if self.is_up { "up" } else { "down" };
        ip(&["link", "set", &name, "mtu", &mtu, "txqueuelen", &length, state])?;
        for address in &self.addresses {
            // Linux makes those of IPv6 that belong to the link by itself.
            let _ = ip(&["address", "replace", address, "dev", &name]);
        }
        Ok(())
    }
}

/// The PCI function of an interface. Between both may be what is of another bus.
fn function_of(machine: &Machine, name: &str) -> Option<Function> {
    let device = fs::canonicalize(machine.path(format!("/sys/class/net/{name}/device"))).ok()?;
    let mut above = device.ancestors().filter_map(|place| place.file_name()?.to_str());
    above.find_map(|name| Function::parse(name).filter(|function| function.to_string() == name))
}

/// The interface of a PCI function: in its folder, or in that of what it has on another bus.
fn interface_of(machine: &Machine, function: Function) -> Option<String> {
    let place = machine.path(format!("/sys/bus/pci/devices/{function}"));
    let inner = fs::read_dir(&place).into_iter().flatten().flatten();
    let inner = inner.filter(|entry| entry.file_name().to_string_lossy().starts_with("virtio"));
    let mut places =
        std::iter::once(place.join("net")).chain(inner.map(|it| it.path().join("net")));
    places.find_map(|place| fs::read_dir(place).ok()?.next()?.ok()?.file_name().into_string().ok())
}

/// Returns how many packet sockets of Linux are bound to an interface.
fn receivers(machine: &Machine, index: u64) -> usize {
    const INTERFACE: usize = 4;
    let all = machine.read("/proc/net/packet").unwrap_or_default();
    let bound = all.lines().skip(1).filter(|line| {
        line.split_whitespace().nth(INTERFACE).and_then(|word| word.parse().ok()) == Some(index)
    });
    bound.count()
}

/// Notes that Linux is about to give up `interfaces`.
pub fn take(interfaces: &[Net]) -> Result<()> {
    if !interfaces.is_empty() {
        state::store(Path::new(RECORD), &interfaces).asked(format!("write {RECORD}"))?;
    }
    Ok(())
}

/// Sets the interfaces as they were that were taken from Linux, whichever command took them. No
/// cell may have them any more.
pub fn give_back() {
    state::settle(Path::new(RECORD), |net: Net| {
        if !net.is_back {
            net.return_to_linux();
        }
    });
}

fn recorded() -> Vec<Net> {
    state::load(Path::new(RECORD)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::machine::fake::Fake;

    const TOLD: &str = r#"[{"ifindex":3,"ifname":"eth1","flags":["BROADCAST","UP","LOWER_UP"],
        "mtu":1500,"txqlen":1000,"address":"52:54:00:12:34:56","addr_info":[{"family":"inet",
        "local":"10.0.0.1","prefixlen":24,"scope":"global","label":"eth1"},{"family":"inet6",
        "local":"fe80::1","prefixlen":64,"scope":"link"}]}]"#;

    fn with_card() -> Fake {
        let fake = Fake::fit();
        let function = "/sys/devices/pci0000:00/0000:00:03.0";
        fake.write(&format!("{function}/net/eth1/flags"), "0x1003\n");
        fake.write(&format!("{function}/vendor"), "0x8086\n");
        fake.write(&format!("{function}/device"), "0x10d3\n");
        fake.write("/sys/bus/pci/drivers/e1000e/bind", "");
        fake.write("/sys/bus/pci/devices/none", "");
        fake.write("/sys/class/net/none", "");
        let path = |path: &str| fake.machine().path(path);
        symlink(path("/sys/bus/pci/drivers/e1000e"), path(&format!("{function}/driver"))).unwrap();
        symlink(path(function), path(&format!("{function}/net/eth1/device"))).unwrap();
        symlink(path(function), path("/sys/bus/pci/devices/0000:00:03.0")).unwrap();
        symlink(path(&format!("{function}/net/eth1")), path("/sys/class/net/eth1")).unwrap();
        fake
    }

    fn find(fake: &Fake, told: &str, routes: &str) -> Result<Net> {
        let told = Told { addresses: told.into(), routes: [routes.into(), "[]".into()] };
        Net::find_with(&fake.machine(), "eth1", || Ok(told))
    }

    #[test]
    fn an_interface_is_what_linux_tells() {
        let fake = with_card();
        for name in ["eth1", "00:03.0", "0000:00:03.0"] {
            assert_eq!(Net::named(&fake.machine(), name).as_deref(), Some("eth1"), "{name}");
        }
        for name in ["eth2", "00:04.0", "", "../eth1", "ttyS1"] {
            assert_eq!(Net::named(&fake.machine(), name), None, "{name}");
        }
        let net = find(&fake, TOLD, "[]").unwrap();
        let word = "device=net,eth1,0018,3,1500,1000,525400123456,10.0.0.1/24,fe80::1/64";
        assert_eq!(net.word(), word);
        assert_eq!(net.function().map(|function| function.number()), Some(0x18));
        let own = r#"[{"dst":"10.0.0.0/24","protocol":"kernel","scope":"link"}]"#;
        assert_eq!(find(&fake, TOLD, own).unwrap(), net);
    }

    #[test]
    fn what_linux_needs_is_refused() {
        let refused = |fake: &Fake, told: &str, routes: &str| {
            find(fake, told, routes).unwrap_err().to_string()
        };
        let fake = with_card();
        let behind = r#"[{"dst":"default","gateway":"10.0.0.254"}]"#;
        assert!(refused(&fake, TOLD, behind).contains("Linux reaches default by it"));
        assert!(refused(&fake, &TOLD.replace("1500", "9000"), "[]").contains("MTU is 9000"));
        assert!(refused(&fake, "[]", "[]").contains("does not tell"));
        let heads = "sk RefCnt Type Proto Iface R Rmem User Inode\n";
        fake.write(
            "/proc/net/packet",
            format!("{heads}0 3 3 0003 3 1 0 0 1\n0 3 3 0003 2 1 0 0 1\n"),
        );
        assert!(refused(&fake, TOLD, "[]").contains("1 packet sockets"));
        let fake = with_card();
        fake.write("/sys/devices/pci0000:00/0000:00:03.0/net/eth1/upper_br0/x", "");
        assert!(refused(&fake, TOLD, "[]").contains("br0 is on top"));
        fake.write("/sys/devices/pci0000:00/0000:00:03.0/device", "0x153a\n");
        assert!(refused(&fake, TOLD, "[]").contains("none that the realm drives"));
    }

    #[test]
    fn an_interface_of_virtio_is_behind_another_bus() {
        let fake = Fake::fit();
        let function = "/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0";
        let device = format!("{function}/virtio3");
        fake.write(&format!("{device}/net/eth1/flags"), "0x1003\n");
        fake.write(&format!("{function}/vendor"), "0x1af4\n");
        fake.write(&format!("{function}/device"), "0x1041\n");
        fake.write("/sys/bus/pci/drivers/virtio-pci/bind", "");
        fake.write("/sys/bus/pci/devices/none", "");
        fake.write("/sys/class/net/none", "");
        let path = |path: &str| fake.machine().path(path);
        let driver = path("/sys/bus/pci/drivers/virtio-pci");
        symlink(driver, path(&format!("{function}/driver"))).unwrap();
        symlink(path(&device), path(&format!("{device}/net/eth1/device"))).unwrap();
        symlink(path(function), path("/sys/bus/pci/devices/0000:01:00.0")).unwrap();
        symlink(path(&format!("{device}/net/eth1")), path("/sys/class/net/eth1")).unwrap();
        for name in ["eth1", "01:00.0"] {
            assert_eq!(Net::named(&fake.machine(), name).as_deref(), Some("eth1"), "{name}");
        }
        let features = |bits: &str| fake.write(&format!("{device}/features"), format!("{bits}\n"));
        features(&format!("{}0{}", "1".repeat(33), "1".repeat(30)));
        let refusal = find(&fake, TOLD, "[]").unwrap_err().to_string();
        assert!(refusal.contains("without the IOMMU"), "{refusal}");
        features(&format!("{}1{}", "0".repeat(33), "0".repeat(30)));
        let net = find(&fake, TOLD, "[]").unwrap();
        assert_eq!(net.function().map(|function| function.number()), Some(0x100));
    }
}
