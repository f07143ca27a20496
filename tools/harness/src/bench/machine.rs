// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine whose time is the number of executed instructions, set up for measuring.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crtos_results::catalogue::{CYCLICTEST, Figure};
use crtos_results::{Cell, Histogram, Order};

use super::own::Observer;
use super::system::{CPU, CPUS, OTHER_CPU, Target};
use super::turns::Turns;
use crate::qemu::{Cards, Uarts};
use crate::vm::{Config, Job, Outcome, Vm};
use crate::{progress, quote};

/// Memory of the machine.
pub const MEMORY: &str = "2G";
/// Memory that Linux gives to the realm.
const REALM_MEMORY: &str = "768M";
/// The devices, for `crtos up`: edu, a UART with its ports, a CAN controller with those of the one
/// at the other end of its bus, from CAN on, and two network cards on one wire.
const REALM_DEVICES: &str = " --device EDU --no-reset --device ttyS1 --device can0 \
                             --device near --device far \
                             --command-line ports=2f8-2ff --port CAN-LAST:exclusive";
/// As many ports a CAN controller has.
const CAN_PORTS: u16 = 0x80;
/// Sets can0 and the network cards up. Tells the first port of the other controller on can0's bus,
/// which nobody drives, and edu's address.
const WIRES: &str = "set -e
modprobe -a kvaser_pci can_raw e1000e af_packet
until [ -e /sys/class/net/can1 ]; do sleep 0.1; done
ip link set can0 type can bitrate 500000
ip link set can0 up
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
cards=(/sys/bus/pci/drivers/e1000e/0000*/net/*)
ip link set ${cards[0]##*/} name near
ip link set ${cards[1]##*/} name far
for card in near far; do
	ip link set $card up
	until grep -q 1 /sys/class/net/$card/carrier; do sleep 0.1; done
done
other=$(basename \"$(readlink -f /sys/class/net/can1/device)\")
awk 'NR == 2 { print $1 }' /sys/bus/pci/devices/$other/resource
echo $other >/sys/bus/pci/devices/$other/driver/unbind
grep -lx 0x11e8 /sys/bus/pci/devices/*/device | head -n 1 | cut -d/ -f6";
/// The same for programs of Linux. Interrupts come to the measured CPU. The UART interrupts for
/// each byte, as the realm's do; Linux would have it wait for further ones.
const LINUX_DEVICES: &str = "set -e
modprobe uio_pci_generic
place=/sys/bus/pci/devices/EDU
echo uio_pci_generic >$place/driver_override
echo ${place##*/} >/sys/bus/pci/drivers_probe
echo 1 >/sys/class/tty/ttyS1/rx_trig_bytes
can=/sys/class/net/can0/device
for line in $(cat $place/irq /sys/class/tty/ttyS1/irq $can/irq;
	ls /sys/class/net/near/device/msi_irqs; ls /sys/class/net/far/device/msi_irqs); do
	echo CPU >/proc/irq/$line/smp_affinity_list
done";
/// How long the machine may take to boot, in real time, on a busy host.
const BOOT_PATIENCE: Duration = Duration::from_secs(400);
/// How long a measurement may take in real time, beside its samples.
const PATIENCE: Duration = Duration::from_secs(400);
/// How much longer than in virtual time samples may take in real time.
const SLOWNESS: u32 = 40;
/// How much longer again if somebody observes.
const OBSERVED: u32 = 4;

/// A booted machine.
pub struct Measuring {
    vm: Vm,
    /// The CPU of Linux that the realm's calls interrupt, if not the first.
    doorbell_cpu: Option<u32>,
    /// What `crtos up` was told of CPUs and devices; none if the realm is not up.
    realm: Option<String>,
    /// Linux has given devices to who measures them.
    has_devices: bool,
    /// What devices are connected to, once that is so.
    wires: Option<Wires>,
    turns: Turns,
    /// Tells CPUs apart.
    observer: Option<Observer>,
}

/// Where devices are.
#[derive(Clone)]
struct Wires {
    /// The first port of the CAN controller that a program drives.
    can_port: u16,
    /// The address of edu.
    edu: String,
}

impl Wires {
    /// What `crtos up` is told.
    fn words(&self) -> String {
        REALM_DEVICES
            .replace("EDU", &self.edu)
            .replace("CAN", &format!("{:#x}", self.can_port))
            .replace("LAST", &format!("{:#x}", self.can_port + (CAN_PORTS - 1)))
    }
}

impl Measuring {
    /// Boots a system.
    pub fn boot(target: Target) -> Result<Self> {
        Self::start(target, Vec::new())
    }

    /// Boots a system under the eyes of somebody who tells its CPUs apart.
    pub fn boot_for_own(target: Target) -> Result<Self> {
        let observer = Observer::new()?;
        let mut machine = Self::start(target, vec![observer.plugin()?])?;
        machine.observer = Some(observer);
        Ok(machine)
    }

    /// Boots a system under the eyes of a plugin of QEMU.
    pub fn observed(target: Target, plugin: String) -> Result<Self> {
        Self::start(target, vec![plugin])
    }

    fn start(target: Target, mut plugins: Vec<String>) -> Result<Self> {
        let turns = Turns::new()?;
        plugins.push(turns.plugin(false)?);
        let config = Config {
            kernel: target.flavour,
            cpus: CPUS,
            memory: MEMORY.to_owned(),
            icount: true,
            devices: Some(Cards::E1000e),
            uarts: Some(Uarts::Isa),
            can: true,
            boot_parameters: target.boot_parameters(),
            plugins,
            ..Config::default()
        };
        let vm = Vm::boot(&config, Some(Instant::now() + BOOT_PATIENCE))?;
        let doorbell_cpu = target.shadow_cpu();
        let (realm, has_devices, wires) = (None, false, None);
        Ok(Self { vm, doorbell_cpu, realm, has_devices, wires, turns, observer: None })
    }

    /// Gives the virtual CPUs short turns, or turns that nothing interrupts.
    pub fn short_turns(&self, short: bool) -> Result<()> {
        self.turns.set(short)
    }

    /// Sees to it that the realm is up with these CPUs, and no devices.
    pub fn realm_on(&mut self, cpus: &str) -> Result<()> {
        self.realm_with(&format!("--cpus {cpus}"))
    }

    /// Sees to it that the realm is up with these CPUs and devices, in words of `crtos up`.
    fn realm_with(&mut self, words: &str) -> Result<()> {
        if self.realm.as_deref() == Some(words) {
            return Ok(());
        }
        let _step = progress::step(format!("start the realm with {words}"));
        let down = if self.realm.take().is_some() { "crtos down && " } else { "" };
        let doorbell = self.doorbell_cpu.map(|cpu| format!(" --doorbell-cpu {cpu}"));
        let doorbell = doorbell.unwrap_or_default();
        let script = format!("{down}crtos up {words} --memory {REALM_MEMORY}{doorbell}");
        let (outcome, text) = self.vm.capture(&script, PATIENCE)?;
        if outcome != Outcome::Exit(0) {
            bail!("the realm does not start, {}\n{text}", outcome.explain());
        }
        self.realm = Some(words.to_owned());
        Ok(())
    }

    /// Sees to it that devices are connected.
    fn wires(&mut self) -> Result<Wires> {
        if let Some(wires) = &self.wires {
            return Ok(wires.clone());
        }
        let (outcome, text) = self.vm.capture(WIRES, PATIENCE)?;
        let mut words = text.split_whitespace();
        let port = words.next().and_then(|word| word.strip_prefix("0x"));
        let port = port.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let (Outcome::Exit(0), Some(can_port), Some(edu)) = (&outcome, port, words.next()) else {
            bail!("devices are not connected, {}\n{text}", outcome.explain());
        };
        Ok(self.wires.insert(Wires { can_port, edu: edu.to_owned() }).clone())
    }

    /// Sees to it that programs of Linux find the devices.
    fn devices_for_linux(&mut self, wires: &Wires) -> Result<()> {
        if self.has_devices {
            return Ok(());
        }
        let script = LINUX_DEVICES.replace("CPU", &CPU.to_string()).replace("EDU", &wires.edu);
        let (outcome, text) = self.vm.capture(&script, PATIENCE)?;
        if outcome != Outcome::Exit(0) {
            bail!("Linux has no devices, {}\n{text}", outcome.explain());
        }
        self.has_devices = true;
        Ok(())
    }

    /// Carries out an order.
    ///
    /// # Errors
    /// That the machine is of no use any more.
    pub fn measure(&mut self, order: &Order) -> Result<Cell> {
        let devices = Figure::named(&order.figure).is_some_and(|figure| figure.devices);
        let wires = devices.then(|| self.wires()).transpose()?;
        if order.system.realm {
            let cpus = match order.other_cpu {
                Some(_) => format!("{OTHER_CPU},{CPU}"),
                None => CPU.to_string(),
            };
            let devices = wires.as_ref().map(Wires::words).unwrap_or_default();
            self.realm_with(&format!("--cpus {cpus}{devices}"))?;
        } else if let Some(wires) = &wires {
            self.devices_for_linux(wires)?;
        }
        // A path of one CPU at a time has its exact length only if nothing cuts it.
        self.short_turns(Figure::named(&order.figure).is_some_and(Figure::under_load))?;
        let start = Instant::now();
        let samples = Duration::from_micros(order.samples * order.interval_us);
        let slowness = if self.observer.is_some() { OBSERVED } else { 1 };
        let can_port = format!("CAN_PORT={}", wires.map_or(0, |wires| wires.can_port));
        let words = ["env", &can_port, "crtos", "bench", "--cell", &serde_json::to_string(order)?];
        let text =
            self.run(&words.map(str::to_owned), (PATIENCE + samples * SLOWNESS) * slowness)?;
        let mut cell: Cell = serde_json::from_str(&text).context("what `crtos bench` printed")?;
        cell.seconds = start.elapsed().as_secs_f64();
        if order.figure == CYCLICTEST {
            let told: Vec<_> = cell.outcome.iter().cloned().collect();
            cell.own = self.own(&told, order.interval_us)?.pop();
        } else if devices
            && let Some(observer) = &mut self.observer
            && let Ok(told) = &cell.outcome
        {
            cell.own = Some(observer.own_of_device(told)?);
        }
        Ok(cell)
    }

    /// What was the CPUs' own of the latencies that cyclictest has just told of its threads, which
    /// wake up every so many microseconds. Nothing without an observer.
    pub fn own(&mut self, told: &[Histogram], interval_us: u64) -> Result<Vec<Histogram>> {
        let observer = self.observer.as_mut();
        observer.map_or_else(|| Ok(Vec::new()), |observer| observer.own(told, interval_us))
    }

    /// Runs a command to its successful end and returns what it printed.
    pub fn run(&mut self, words: &[String], patience: Duration) -> Result<String> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let outcome = self.vm.run(Job {
            script: quote::script(words)?,
            stdin: None,
            terminal: None,
            stdout: &mut stdout,
            stderr: &mut stderr,
            deadline: Some(Instant::now() + patience),
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match outcome {
            Outcome::Exit(0) => Ok(text(&stdout)),
            outcome => bail!("{}: {} {}", outcome.explain(), text(&stdout), text(&stderr)),
        }
    }

    /// Runs a script whose failure does not matter, and returns what it printed.
    pub fn ask(&mut self, script: &str) -> String {
        self.vm
            .capture(script, PATIENCE)
            .map_or_else(|_| String::new(), |(_, text)| text.trim().to_owned())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.vm.forget_console();
    }
}
