// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine: QEMU's command line and its monitor.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use crtos_agent::{CONTROL_PORT, LAYER_SERIAL, STDIN_PORT};

use crate::foreign::{Packages, Tree};
use crate::iommu::Iommu;
use crate::kernels::Kernel;
use crate::mesa::Card;
use crate::{tsc, vmlinux};

/// Mount tag of the folder that the guest shares.
pub const SHARE_TAG: &str = "share";
/// Bytes of the scratch disk.
pub const DISK_SIZE: u64 = 128 << 20;
/// Address of the network card by which a guest reaches what the host does.
pub const NETWORK_CARD: &str = "52:54:00:12:34:56";
/// Loops of Linux's delay in a tick, in virtual time: nanoseconds, at Debian's 250 ticks a second.
const LOOPS_PER_TICK: u64 = 1_000_000_000 / 250;
/// I/O port of the debug console.
const DEBUGCON_PORT: u16 = 0xe9;
/// A newer QEMU than the installed one, 11.1, and its firmware: before, devices of the I/O APIC
/// lose their interrupts with an IOMMU of AMD's kind, no process of its own plays a device, and
/// there is no 82576.
const NEWER: Packages =
    Packages { name: "qemu", suites: &["trixie", "trixie-backports"], names: &["qemu-system-x86"] };
/// Folders of its firmware.
const FIRMWARE: &[&str] = &["usr/share/qemu", "usr/share/seabios"];

/// Tells whether it takes the newer one: for an IOMMU, of which there is none in xAPIC mode, for
/// network cards, or for cards of Mesa Electronics.
pub fn is_newer(xapic: bool, iommu: &Iommu, cards: Option<Cards>, mesa: &[Card]) -> bool {
    let by_iommu = !xapic && matches!(iommu, Iommu::Amd(_));
    by_iommu || cards == Some(Cards::Igb) || !mesa.is_empty()
}

/// Two UARTs, ttyS1 and ttyS2, which are wired to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Uarts {
    /// As the firmware's ports have them, with interrupts by an edge.
    Isa,
    /// On PCI cards, with interrupts by a level.
    Pci,
}

/// Two network cards on one wire, which master the bus by way of the IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cards {
    /// With an 82574L each.
    E1000e,
    /// Of virtio, of version 1.
    Virtio,
    /// With an 82576 each.
    Igb,
}

/// A machine, and what is in its drives.
pub struct Machine<'a> {
    /// The kernel to boot.
    pub kernel: &'a Kernel,
    /// The initramfs for it.
    pub initramfs: &'a Path,
    /// The read-only layers of the root, lowest first.
    pub layers: &'a [PathBuf],
    /// The disk that is the root, to read and write.
    pub root: Option<&'a Path>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Size of the memory, as QEMU writes it.
    pub memory: &'a str,
    /// A folder of the host for the guest.
    pub share: Option<&'a Path>,
    /// Virtual time is the number of executed instructions.
    pub icount: bool,
    /// No x2APIC, and so no IOMMU.
    pub xapic: bool,
    /// The IOMMU.
    pub iommu: &'a Iommu,
    /// A disk and network cards that master the bus by way of the IOMMU, which other devices of
    /// virtio do not.
    pub devices: Option<Cards>,
    /// Two further UARTs.
    pub uarts: Option<Uarts>,
    /// A parallel port, to which nothing is connected.
    pub parallel: bool,
    /// A card of virtio in QEMU's network, by which the guest reaches what the host does.
    pub network: bool,
    /// Two cards with CAN controllers on one bus.
    pub can: bool,
    /// Cards of Mesa Electronics, which the harness plays.
    pub mesa: &'a [Card],
    /// Two devices that the IOMMU does not tell from each other: functions of one slot.
    pub pair: bool,
    /// Parameters for the kernel beside those that emulation needs.
    pub boot_parameters: &'a str,
    /// Where the serial console goes.
    pub console: &'a Path,
    /// Where bytes written to the debug port go.
    pub debugcon: Option<&'a Path>,
    /// Pipes of a further monitor, by their common name.
    pub monitor: Option<&'a Path>,
    /// Plugins of QEMU, with their arguments.
    pub plugins: &'a [String],
    /// The processor of the host that runs all of it; any if `None`.
    pub processor: Option<usize>,
    /// Folder of the sockets.
    pub sockets: &'a Path,
}

impl Machine<'_> {
    /// Socket that QEMU connects the control port to.
    pub fn control_socket(&self) -> PathBuf {
        self.sockets.join("control")
    }

    /// Socket that QEMU connects the port for standard input to.
    pub fn stdin_socket(&self) -> PathBuf {
        self.sockets.join("stdin")
    }

    /// Socket that QEMU connects its monitor to.
    pub fn monitor_socket(&self) -> PathBuf {
        self.sockets.join("monitor")
    }

    /// The file of the scratch disk, [`DISK_SIZE`] bytes.
    pub fn disk(&self) -> PathBuf {
        self.sockets.join("disk")
    }

    /// Socket that QEMU connects a card to which the harness plays.
    pub fn card_socket(&self, card: Card) -> PathBuf {
        self.sockets.join(format!("card-{:x}", card.slot()))
    }

    /// Socket that is the wire between the two UARTs.
    fn wire(&self) -> PathBuf {
        self.sockets.join("wire")
    }

    /// The command that starts the machine. It ends together with the thread
    /// that starts it.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(number) = self.processor {
            command.args(["taskset", "--cpu-list", &number.to_string()]);
        }
        let emulator = self.emulator()?;
        command.arg(emulator.get_program()).args(emulator.get_args());
        command.args(["-M", "q35,kernel-irqchip=off,hpet=on", "-nodefaults", "-no-user-config"]);
        command.args(["-global", "hpet.msi=on"]);
        command.args(["-display", "none", "-vga", "none", "-net", "none", "-no-reboot"]);
        command.args(["-smp", &self.cpus.to_string(), "-m", self.memory]);
        self.add_processor(&mut command);
        self.add_clock(&mut command);
        command.arg("-kernel").arg(self.kernel_file()?).arg("-initrd").arg(self.initramfs);
        command.args(["-append", &self.kernel_command_line()]);
        command.arg("-serial").arg(with_path("file:", self.console));
        self.add_ports(&mut command);
        self.add_drives(&mut command);
        if let Some(cards) = self.devices {
            self.add_devices(&mut command, cards);
        }
        if let Some(kind) = self.uarts {
            self.add_uarts(&mut command, kind);
        }
        if self.parallel {
            command.args(["-chardev", "null,id=printer"]);
            command.args(["-device", "isa-parallel,iobase=0x378,irq=7,chardev=printer"]);
        }
        if self.network {
            command.args(["-netdev", "user,id=network,ipv6=off"]);
            let card = format!("virtio-net-pci,netdev=network,mac={NETWORK_CARD},romfile=");
            command.arg("-device").arg(card);
        }
        if self.can {
            command.args(["-object", "can-bus,id=bus"]);
            // Neither shares its interrupt with a device that Linux uses.
            for place in ["0x14", "0x15"] {
                command.arg("-device").arg(format!("kvaser_pci,canbus=bus,addr={place}"));
            }
        }
        self.add_cards(&mut command);
        // A device whose messages and accesses to memory a driver chooses, at all addresses.
        const EDU: &str = "edu,dma_mask=0xffffffffffffffff";
        command.args(["-device", EDU]);
        if self.pair {
            // UARTs, to which nothing is connected.
            for (id, place) in [("one", "0x1c.0,multifunction=on"), ("other", "0x1c.1")] {
                command.arg("-chardev").arg(format!("null,id={id}"));
                command.arg("-device").arg(format!("pci-serial,chardev={id},addr={place}"));
            }
            // Two that master the bus.
            for place in ["0x18.0,multifunction=on", "0x18.1"] {
                command.arg("-device").arg(format!("{EDU},addr={place}"));
            }
        }
        if self.devices.is_some() {
            // One more, for a cell.
            command.args(["-device", EDU]);
            // Registers that count accesses.
            command.args(["-device", "pci-testdev,addr=0x16"]);
        }
        if let Some(file) = self.debugcon {
            command.arg("-chardev").arg(with_path("file,id=debugcon,path=", file));
            command.arg("-device");
            command.arg(format!("isa-debugcon,iobase={DEBUGCON_PORT:#x},chardev=debugcon"));
        }
        if let Some(pipe) = self.monitor {
            command.arg("-chardev").arg(with_path("pipe,id=commands,path=", pipe));
            command.args(["-mon", "chardev=commands,mode=readline"]);
        }
        Ok(command)
    }

    /// QEMU: the installed one, or the newer one, which is fetched if it is not in the cache.
    fn emulator(&self) -> Result<Command> {
        const NAME: &str = "qemu-system-x86_64";
        if !is_newer(self.xapic, self.iommu, self.devices, self.mesa) {
            return Ok(Command::new(NAME));
        }
        let tree = Tree::ensure(&NEWER)?;
        let mut command = tree.program(NAME);
        for folder in FIRMWARE {
            command.arg("-L").arg(tree.path(folder));
        }
        Ok(command)
    }

    /// Kernels with PREEMPT_RT start as boot loaders start them, and place themselves at random.
    /// The others start sooner.
    fn kernel_file(&self) -> Result<PathBuf> {
        if self.kernel.flavour.has_preempt_rt() {
            return Ok(self.kernel.image());
        }
        vmlinux::ensure(self.kernel)
    }

    /// Only what emulation needs, unless somebody wants more. On a busy host, ticks come too late
    /// for Linux's check of the timer, which ends in a panic. The HPET is there for attacks; Linux
    /// would have it stand in for the real-time clock.
    fn kernel_command_line(&self) -> String {
        let line = "console=ttyS0 tsc=reliable no_timer_check hpet=disable";
        let needed = if self.icount {
            // Not quiet: lines of the log tell when to switch modes. The counter counts
            // nanoseconds, and Linux need not find that out on each CPU.
            format!("{line} earlyprintk=ttyS0 tsc_early_khz=1000000 lpj={LOOPS_PER_TICK}")
        } else {
            match tsc::frequency_khz() {
                Some(khz) => format!("{line} quiet tsc_early_khz={khz}"),
                None => format!("{line} quiet"),
            }
        };
        let root = if self.root.is_some() { "root=/dev/vda " } else { "" };
        format!("{needed} {root}{}", self.boot_parameters).trim_end().to_owned()
    }

    /// `-monitor`: no busy idle by MWAIT.
    fn add_processor(&self, command: &mut Command) {
        if self.xapic {
            command.args(["-cpu", "EPYC,+svm,+npt,-x2apic,-monitor"]);
        } else {
            command.args(["-device", &self.iommu.device()]);
            command.args(["-cpu", "EPYC,+svm,+npt,+x2apic,-monitor"]);
        }
    }

    /// One thread of the host runs all virtual CPUs in turn. With one for each, CPUs that wait for
    /// each other's locks would wait for turns of milliseconds where the host has fewer processors.
    /// And QEMU (10.0) has a race: when a virtual CPU restores its floating-point registers, it
    /// clears a flag of the *first* CPU (IGNNE#), without a lock, in the word (`hflags2`) that also
    /// says whether that CPU is under nested paging and has its global interrupt flag set. An exit
    /// or VMRUN of the first CPU at that moment may be undone in that word. Then the hypervisor's
    /// own accesses go through Linux's nested tables and exit, QEMU writes the hypervisor's state
    /// into Linux's control block, and that CPU exits for ever.
    ///
    /// A plugin needs the threads: with a single one, QEMU (10.0) crashes. The machine has to keep
    /// to one processor of the host then ([`crate::processor`]). QEMU clears the flag by one
    /// instruction, and a thread on the same processor does not come in between.
    fn add_clock(&self, command: &mut Command) {
        match (self.icount, self.plugins.is_empty()) {
            (true, _) => command.args(["-icount", "shift=0,sleep=off", "-accel", "tcg"]),
            (false, false) => command.args(["-accel", "tcg,thread=multi"]),
            (false, true) => command.args(["-accel", "tcg,thread=single"]),
        };
        for plugin in self.plugins {
            command.args(["-plugin", plugin]);
        }
    }

    fn add_ports(&self, command: &mut Command) {
        command.args(["-device", "virtio-serial-pci,max_ports=3"]);
        let ports = [
            ("control", self.control_socket(), CONTROL_PORT),
            ("stdin", self.stdin_socket(), STDIN_PORT),
        ];
        for (id, socket, name) in ports {
            command.arg("-chardev").arg(with_path(&format!("socket,id={id},path="), &socket));
            command.arg("-device").arg(format!("virtserialport,chardev={id},name={name}"));
        }
        command.arg("-chardev").arg(with_path("socket,id=monitor,path=", &self.monitor_socket()));
        command.args(["-mon", "chardev=monitor,mode=control"]);
    }

    /// An empty NVMe disk, and two cards on one wire.
    fn add_devices(&self, command: &mut Command, cards: Cards) {
        let drive = "if=none,id=disk,format=raw,cache=unsafe,file=";
        command.arg("-drive").arg(with_path(drive, &self.disk()));
        command.args(["-device", "nvme,drive=disk,serial=disk"]);
        for (card, chassis) in [("first", 1), ("second", 2)] {
            command.arg("-netdev").arg(format!("hubport,id={card},hubid=0"));
            let device = match cards {
                Cards::E1000e => "e1000e",
                Cards::Igb => "igb",
                // It sends by a timer of one nanosecond, which virtual time waits for, and not when
                // a thread of the emulator comes to it.
                Cards::Virtio => {
                    "virtio-net-pci,disable-legacy=on,iommu_platform=on,ats=off,romfile=,\
                     ioeventfd=off,tx=timer,x-txtimer=1"
                }
            };
            let mut device = format!("{device},netdev={card}");
            if cards != Cards::E1000e {
                // At a port of its own, there is room for virtual functions of a card, and one of
                // virtio can be reset.
                let port = format!("pcie-root-port,id={card}-port,chassis={chassis}");
                command.arg("-device").arg(port);
                device += &format!(",bus={card}-port");
            }
            command.arg("-device").arg(device);
        }
    }

    /// ttyS1 and ttyS2. Neither shares its interrupt with the console's.
    fn add_uarts(&self, command: &mut Command, kind: Uarts) {
        let [first, second] = match kind {
            Uarts::Isa => {
                ["isa-serial,index=1,iobase=0x2f8,irq=3", "isa-serial,index=2,iobase=0x3e8,irq=5"]
            }
            Uarts::Pci => ["pci-serial,addr=0x16", "pci-serial,addr=0x17"],
        };
        let ends = [("listens", first, ",server=on,wait=off"), ("connects", second, "")];
        for (id, uart, mode) in ends {
            let socket = with_path(&format!("socket,id={id}{mode},path="), &self.wire());
            command.arg("-chardev").arg(socket);
            command.arg("-device").arg(format!("{uart},chardev={id}"));
        }
    }

    /// The cards that the harness plays.
    fn add_cards(&self, command: &mut Command) {
        for &card in self.mesa {
            let device = serde_json::json!({
                "driver": "vfio-user-pci",
                "addr": format!("{:#x}", card.slot()),
                "socket": { "type": "unix", "path": self.card_socket(card) },
                // As long as the host may be busy.
                "x-msg-timeout": 100_000,
            });
            command.arg("-device").arg(device.to_string());
        }
    }

    fn add_drives(&self, command: &mut Command) {
        if let Some(disk) = self.root {
            let drive = "if=none,id=root,format=raw,cache=unsafe,file=";
            command.arg("-drive").arg(with_path(drive, disk));
            command.args(["-device", "virtio-blk-pci,drive=root"]);
        }
        for (number, layer) in self.layers.iter().enumerate() {
            let drive = format!("if=none,id=layer{number},format=raw,read-only=on,file=");
            command.arg("-drive").arg(with_path(&drive, layer));
            let device =
                format!("virtio-blk-pci,drive=layer{number},serial={LAYER_SERIAL}{number}");
            command.arg("-device").arg(device);
        }
        if let Some(folder) = self.share {
            let fsdev = "local,id=share,security_model=none,multidevs=remap,path=";
            command.arg("-fsdev").arg(with_path(fsdev, folder));
            command.arg("-device").arg(format!("virtio-9p-pci,fsdev=share,mount_tag={SHARE_TAG}"));
        }
    }
}

/// An option that ends in a path, in which QEMU wants commas doubled.
fn with_path(option: &str, path: &Path) -> String {
    format!("{option}{}", path.display().to_string().replace(',', ",,"))
}

/// QEMU's monitor.
pub struct Monitor {
    stream: BufReader<File>,
}

impl Monitor {
    /// Opens the conversation that QEMU began on `stream`.
    pub fn new(stream: File) -> Result<Self> {
        let mut monitor = Self { stream: BufReader::new(stream) };
        monitor.read_line()?;
        monitor.ask(&serde_json::json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Gives a command of the human monitor.
    pub fn command(&mut self, line: &str) -> Result<()> {
        self.ask(&serde_json::json!({
            "execute": "human-monitor-command",
            "arguments": { "command-line": line },
        }))
    }

    /// Sends a request and waits for its answer, past any event.
    fn ask(&mut self, request: &serde_json::Value) -> Result<()> {
        writeln!(self.stream.get_mut(), "{request}").context("write to QEMU's monitor")?;
        loop {
            let answer = self.read_line()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU's monitor refused {request}: {error}");
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }

    fn read_line(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).context("read from QEMU's monitor")? == 0 {
            bail!("QEMU's monitor closed");
        }
        Ok(serde_json::from_str(&line)?)
    }
}
