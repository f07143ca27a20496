// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos up`: Linux gives up CPUs and memory, and the real-time realm starts on them.

use std::{
    fs, mem,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    time::{Duration, Instant},
};

use crtos_abi::{
    cell::PortRange,
    ioctl::{CREATE_CALLS_FOLLOW, CREATE_REALM, DEVICE_NO_INTERRUPT},
};

use crate::{
    borrowed::{self, Borrowed},
    code::Code,
    confinement::{Confinement, LinuxDma},
    cpu_choice::CpuChoice,
    cpulist::CpuList,
    device::{self, Device},
    devices::{self, Manner, Target},
    driven::{self, Driven},
    ethernet::{self, Ends, Network},
    failure::{Failure, Result},
    huge_pages::{self, MemoryFrom},
    install,
    kvm::{self, Kvm},
    link::Joined,
    loader, locked,
    machine::Machine,
    net::Net,
    ranges,
    report::State,
    requirements::{self, Split},
    size::{self, Size},
    start::{self, Interruption, Wanted, step},
    threads::KernelState,
    user_limit::UserLimit,
};

/// Name of the cell with the real-time kernel.
const NAME: &str = "realtime";
/// What the command does, for the messages of failures.
const ASKED: &str = "start the real-time realm";
/// How long the real-time kernel may take to report itself. It takes milliseconds, but the host of
/// a virtual machine may leave its CPU without time. Ctrl-C ends the wait.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Give CPUs and memory to the real-time realm and start it
///
/// Loads the module if necessary, launches the hypervisor underneath the running Linux, unplugs the
/// CPUs, takes the memory in blocks of 2 MiB wherever they lie, and starts the real-time kernel
/// there. If anything fails, or the command is interrupted or killed, everything is as before.
///
/// The memory is divided into a private part for the real-time kernel, which Linux cannot touch,
/// and a pool for the pages of processes.
///
/// Afterwards members of the group `crtos` may use `crtos run`, if there is such a group.
///
/// Options that are not given are taken from /etc/crtos/realm.toml, if there is that file; CPUs and
/// memory have to be said here or there. `crtos plan` proposes such a file for this machine.
#[derive(clap::Args)]
#[command(
    override_usage = "crtos up [OPTIONS]",
    after_long_help = "\
Examples:
  crtos up
  crtos up --config other.toml --dry-run
  crtos up --cpus 3 --memory 512M
  crtos up --cpus 2-3 --memory 1G --private 128M
  crtos up --cpus 3 --memory 512M --doorbell-cpu 2
  crtos up --cpus 3 --memory 512M --device ttyS1 --device can0 --device 03:00.0
  crtos up --cpus 3 --memory 512M --ethernet 10.9.0.2/24
  crtos up --cpus 3 --memory 512M --limit alice:memory=64M:priority=40
  crtos up --cpus 3 --memory 512M --locked
  crtos up --cpus 3 --memory 512M --dry-run

Exit status: 0 the realm is up; 1 refused or failed, nothing has changed; 2 usage."
)]
pub struct Up {
    /// The file with options that are not given here; /dev/null has none [default:
    /// /etc/crtos/realm.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// CPUs that Linux gives up, such as 3 or 2-3,6, core:3 or node:1; never the boot CPU
    ///
    /// core:3 is the whole core of CPU 3, with all of its hardware threads; node:1 is all CPUs of
    /// that NUMA node.
    #[arg(long, value_name = "LIST")]
    cpus: CpuChoice,
    /// Memory that Linux gives up, such as 512M; at least 64M
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    memory: Size,
    /// The one CPU of Linux that the realm's calls of Linux interrupt [default: the CPU on which
    /// the call's shadow waits]
    ///
    /// No other CPU is interrupted then, and a shadow that waits on another one is woken from
    /// there. While the CPU is offline, calls interrupt another one.
    #[arg(long, value_name = "CPU")]
    doorbell_cpu: Option<u32>,
    /// Where the memory comes from
    ///
    /// The realm needs blocks of 2 MiB. On a machine that has run for long, Linux may have few of
    /// them. Pages of the pool, which was reserved at boot, are such blocks at any time; the pool
    /// is smaller by them while the realm has them.
    #[arg(long, value_name = "WHERE", value_enum, default_value_t)]
    memory_from: MemoryFrom,
    /// How much of the memory is private to the real-time kernel [default: a quarter, 32M to 256M]
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    private: Option<Size>,
    /// I/O ports that the realm may use, such as 0xe9 or 0x3f8-0x3ff:exclusive (then Linux may
    /// not); repeatable
    #[arg(long = "port", value_name = "RANGE", value_parser = ranges::ports)]
    ports: Vec<PortRange>,
    /// A device that the realm has: a serial port, such as ttyS1, a CAN interface, such as can0, a
    /// network interface, such as eth1, a PCI function or a platform device; repeatable
    ///
    /// A serial port is /dev/ttyS1 in the realm. Programs open it there where Linux lets them, and
    /// nothing of Linux is on the way of its bytes, modem lines and interrupts then. A port that
    /// programs of Linux have open, that is the console, or whose interrupt a driver of Linux has,
    /// is refused.
    ///
    /// A CAN interface is one of a PCI card that Linux drives by kvaser_pci, with a bit rate (`ip
    /// link set can0 type can bitrate 500000`). The realm takes over its settings. It is up there,
    /// under the same name, and gone from Linux until it is given back.
    ///
    /// A network interface is one of a card with an 82574L or an 82576, which Linux drives by
    /// e1000e or igb, or of virtio; its address (03:00.0) names it as well. The realm takes over
    /// its name, its MTU and its addresses. An interface by which Linux reaches a gateway, or that
    /// is a part of another one, is refused.
    ///
    /// Every other name is that of a PCI function, as `crtos device add` takes it: an address
    /// (03:00.0), a name that Linux has for it (nvme1n1), or a vendor and a device id (8086:10d3);
    /// or that of a platform device (`ls /sys/bus/platform/devices`).
    /// Linux has all of them again after `crtos device remove` or `crtos down`.
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// A virtual Ethernet between Linux and the realm: the address of the realm's end, with the
    /// bits of its network, such as 10.9.0.2/24; repeatable
    ///
    /// Linux gets an interface crtos0, and so does the realm. Give Linux's end an address of the
    /// same network (`ip address add 10.9.0.1/24 dev crtos0; ip link set crtos0 up`), make it a
    /// part of a bridge, or move it to a network namespace. Programs of the realm use their end by
    /// its address or its name.
    #[arg(long, value_name = "ADDRESS/BITS")]
    ethernet: Vec<Network>,
    /// A link of which the realm becomes a peer (`crtos link create`), such as plant, or plant:2 to
    /// be peer 2; repeatable
    ///
    /// Programs of the realm have it as /dev/crtos-shm/plant, with the rights of that peer.
    #[arg(long = "link", value_name = "NAME[:PEER]")]
    links: Vec<Joined>,
    #[command(flatten)]
    manner: Manner,
    /// How devices of Linux are kept from memory of cells, where there is an IOMMU
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    linux_dma: LinuxDma,
    /// What the programs of a user may have, such as alice:cpus=2:memory=64M:priority=40;
    /// repeatable
    ///
    /// `cpus` are those of the realm that they may use. `memory` is that of all of them together,
    /// a page that several map counted for each; where it is used up, calls fail with ENOMEM, and a
    /// program that touches a new page is killed. `priority` is the highest that they may ask for,
    /// besides what Linux permits them (RLIMIT_RTPRIO); 0 is none. USER is a name or a number; `*`
    /// stands for each user but root who is not named, and all of them share its memory. The real
    /// user id counts that a program has when it begins, in a user namespace that of who made it.
    #[arg(long = "limit", value_name = "USER:LIMITS")]
    limits: Vec<UserLimit>,
    /// Lock the realm: Linux cannot stop, reload or read it, nor reset the machine, until all
    /// programs in it have ended and `crtos down` is called
    ///
    /// If Linux tries to reset the machine or to switch it off, it is halted, and the realm goes
    /// on. Without this, root may do all of that at any time.
    #[arg(long)]
    locked: bool,
    /// Change nothing: say every step, and all that would be refused
    #[arg(long)]
    dry_run: bool,
    /// The real-time kernel [default: the installed one]
    #[arg(long, value_name = "FILE", default_value_os_t = install::kernel(),
        hide_default_value = true)]
    kernel: PathBuf,
    /// Command line of the real-time kernel
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    command_line: String,
    /// The CPUs that are meant.
    #[arg(skip)]
    chosen: CpuList,
    /// The UARTs and CAN interfaces that the devices are.
    #[arg(skip)]
    driven: Vec<Driven>,
    /// The PCI functions and platform devices that they are.
    #[arg(skip)]
    targets: Vec<Target>,
    /// The network interfaces that they are.
    #[arg(skip)]
    nets: Vec<Net>,
    /// The ends of the virtual Ethernet.
    #[arg(skip)]
    ends: Option<Ends>,
    /// Linux's KVM.
    #[arg(skip)]
    kvm: Kvm,
}

impl Up {
    /// Returns CPUs and memory as they are asked for.
    #[cfg(test)]
    pub fn wanted(&self) -> (CpuChoice, Size) {
        (self.cpus.clone(), self.memory)
    }

    /// Runs the command.
    pub fn run(mut self) -> Result<()> {
        let machine = Machine::here();
        let split = requirements::split(self.memory, self.private)?;
        self.chosen = self.cpus.on(&machine)?;
        self.limits.iter_mut().for_each(|limit| limit.look_up(&machine));
        requirements::root(&machine, ASKED, "only root may take CPUs and memory from Linux")?;
        if self.dry_run {
            return self.rehearse(&machine, split);
        }
        let interruption = Interruption::watch();
        let device = start::open_device(&machine, ASKED)?;
        let mut borrowed = None;
        let done = self.check(&machine, Some(&device), split).and_then(|image| {
            let mut cell = None;
            // If a command that had taken some was killed.
            borrowed::give_back();
            self.find_devices(&machine)?;
            borrowed = Some(Borrowed::take(&machine, self.pooled(split), &self.nets, &self.ports)?);
            let done = self.bring_up(&machine, &device, split, &image, &interruption, &mut cell);
            if done.is_err() && interruption.signal().is_none() {
                start::show_logs(&device, cell);
            }
            done
        });
        let done = done.and_then(|()| device.report(ASKED));
        // Everything is undone before the failure is reported.
        drop(device);
        let kvm = mem::take(&mut self.kvm);
        match borrowed {
            Some(borrowed) if done.is_ok() => {
                borrowed.keep();
                kvm.keep_away();
            }
            borrowed => drop((borrowed, kvm)),
        }
        if let (Err(failure), Some(signal)) = (&done, interruption.signal()) {
            anstream::eprintln!("crtos: {failure}");
            // The shell has to see that the signal ended the command.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
        let report = done?;
        open_to_group(&machine);
        let (cpus, memory) = (self.chosen.named(), self.memory);
        anstream::println!("the real-time realm is up on {cpus} with {memory}");
        step(&Confinement::of(&machine, &report).line());
        if self.locked {
            locked::tell(&machine);
        }
        Ok(())
    }

    /// Refuses what can be refused before anything changes. Returns the kernel's file.
    fn check(&self, machine: &Machine, device: Option<&Device>, split: Split) -> Result<Vec<u8>> {
        let (failures, image) = self.failures(machine, device, split)?;
        failures.into_iter().next().map_or(Ok(image), Err)
    }

    /// Returns all that can be refused before anything changes, and the kernel's file, which is
    /// empty if that is refused.
    fn failures(
        &self,
        machine: &Machine,
        device: Option<&Device>,
        split: Split,
    ) -> Result<(Vec<Failure>, Vec<u8>)> {
        let mut taken = CpuList::default();
        let mut runs = false;
        if let Some(device) = device {
            let info = device.info(ASKED)?;
            taken = device::cell_cpus(&info);
            runs = info.enabled != 0;
            if runs && !self.linux_dma.is_chosen_by(&device.report(ASKED)?) {
                let reason = "the hypervisor runs already, with another choice of --linux-dma";
                return Err(Failure::new(Code::LinuxDma, ASKED, reason)
                    .remedy("make the same choice, or destroy all cells first"));
            }
            if let Some(cell) = device::realm(&info) {
                let cpus = device.report(ASKED)?.cpus_of(cell);
                return Err(Failure::new(
                    Code::AlreadyUp,
                    ASKED,
                    format!("it is already up on {}", cpus.named()),
                )
                .remedy("`crtos down` ends it"));
            }
        }
        let checks = [
            if runs { Ok(()) } else { requirements::launch(machine).map(drop) },
            requirements::cpus(machine, &self.chosen, &taken),
            self.check_ethernet(),
            UserLimit::check(&self.limits, ASKED, &self.chosen, self.memory),
            self.doorbell_cpu(machine).map(drop),
            if self.locked { locked::check(machine, ASKED) } else { Ok(()) },
            match self.pooled(split) {
                Some(memory) => huge_pages::check(machine, memory),
                None => requirements::memory(machine, split.whole()),
            },
        ];
        let mut failures: Vec<_> = checks.into_iter().filter_map(Result::err).collect();
        let image = self.image(split).unwrap_or_else(|failure| {
            failures.push(failure);
            Vec::new()
        });
        Ok((failures, image))
    }

    /// Returns how much memory comes from the pool of huge pages, if any does.
    fn pooled(&self, split: Split) -> Option<Size> {
        (self.memory_from == MemoryFrom::Hugetlb).then(|| split.whole())
    }

    fn check_ethernet(&self) -> Result<()> {
        let most = ethernet::MOST_ADDRESSES;
        match self.ethernet.len() > most {
            true => Err(Failure::new(
                Code::CellLimit,
                ASKED,
                format!("--ethernet takes {most} addresses at most"),
            )
            .remedy("name fewer")),
            false => Ok(()),
        }
    }

    /// Returns the kernel's file, which fits what it is to get.
    fn image(&self, split: Split) -> Result<Vec<u8>> {
        let facts =
            loader::CellFacts { private_size: split.private.0, ..loader::CellFacts::default() };
        let image = requirements::image(&self.kernel)?;
        self.layout(&image, &facts)?;
        Ok(image)
    }

    /// Returns the CPU of Linux that the realm's calls interrupt, if no shadow waits for them
    /// elsewhere.
    fn doorbell_cpu(&self, machine: &Machine) -> Result<u32> {
        requirements::linux_cpu(machine, self.doorbell_cpu, &self.chosen)
    }

    /// Returns the kernel's command line: whether the realm is locked, its ports, which the kernel
    /// gives to programs (ioperm), its network interfaces, limits of users, and the words that the
    /// user adds.
    fn kernel_command_line(&self) -> String {
        let ports: Vec<String> =
            self.ports.iter().map(|range| format!("{:x}-{:x}", range.first, range.last)).collect();
        let locked = self.locked.then(|| "locked".to_owned());
        let ports = (!ports.is_empty()).then(|| format!("ports={}", ports.join(",")));
        let devices = self.nets.iter().map(|net| Some(net.word()));
        let devices = devices.chain([self.ends.as_ref().map(|ends| ends.word(&self.ethernet))]);
        let limits = self.limits.iter().map(|limit| limit.word(&self.chosen));
        let words = Some(self.command_line.clone()).filter(|words| !words.is_empty());
        let all = [locked, ports].into_iter().chain(devices).chain(limits).chain([words]);
        all.flatten().collect::<Vec<_>>().join(" ")
    }

    fn layout(&self, image: &[u8], facts: &loader::CellFacts) -> Result<loader::Loadable> {
        loader::layout(image, facts, &self.kernel_command_line()).map_err(|error| {
            Failure::new(Code::ImageUnfit, format!("load {}", self.kernel.display()), error)
        })
    }

    /// Finds the devices that were asked for.
    fn find_devices(&mut self, machine: &Machine) -> Result<()> {
        self.devices.clone().iter().try_for_each(|name| self.find_device(machine, name))
    }

    fn find_device(&mut self, machine: &Machine, name: &str) -> Result<()> {
        if let Some(found) = Driven::find(machine, name) {
            let found = found?;
            if self.ports.iter().any(|range| found.has_port_of(range)) {
                // Linux's driver would fault at exclusive ones before it has let go.
                let reason = "--port asks for its I/O ports as well";
                return Err(Failure::new(Code::DevicePorts, giving(name), reason).remedy(
                    "leave these ports out: the real-time kernel drives the device by them",
                ));
            }
            self.driven.push(found);
        } else if let Some(name) = Net::named(machine, name) {
            let net = Net::find(machine, &name)?;
            self.targets.extend(net.function().map(Target::Function));
            self.nets.push(net);
        } else {
            self.targets.push(devices::choose(machine, &giving(name), name)?);
        }
        Ok(())
    }

    fn rehearse(mut self, machine: &Machine, split: Split) -> Result<()> {
        let device = match machine.module_loaded("crtos") && !start::gives_way(machine) {
            true => Some(Device::require(ASKED)?),
            false => None,
        };
        let (mut failures, _) = self.failures(machine, device.as_ref(), split)?;
        if device.is_none() {
            failures.splice(0..0, start::module_is_installed(machine, ASKED).err());
        }
        for name in self.devices.clone() {
            failures.extend(self.find_device(machine, &name).err());
        }
        if device.is_none() {
            println!("would load the module crtos");
        }
        let runs = device.as_ref().map(|device| device.info(ASKED)).transpose()?;
        if runs.is_none_or(|info| info.enabled == 0) {
            let asleep = requirements::launch(machine).unwrap_or_default();
            if kvm::is_idle(machine) {
                println!("would unload KVM, which no virtual machine uses");
            }
            if !asleep.is_empty() {
                println!("would bring {} online for the launch", asleep.named());
            }
            println!("would launch the hypervisor on {}", machine.present().named());
        }
        println!("would take {} from Linux", self.chosen.named());
        println!(
            "would take {} of memory from {}: {} private to the real-time kernel, {} for processes",
            split.whole(),
            match self.memory_from {
                MemoryFrom::Anywhere => "Linux",
                MemoryFrom::Hugetlb => "Linux's pool of huge pages",
            },
            split.private,
            split.shared
        );
        let interrupted = match self.doorbell_cpu {
            Some(cpu) => format!("CPU {cpu}"),
            None => "the CPU on which their shadow waits".into(),
        };
        println!("would have the realm's calls interrupt {interrupted}");
        let driven = self.driven.iter().map(Driven::name);
        for name in driven.chain(self.nets.iter().map(|net| net.name.as_str())) {
            println!("would take {name} from Linux");
        }
        for target in &self.targets {
            println!("would take {target} from Linux");
        }
        if !self.ethernet.is_empty() {
            println!("would make the interface {}", ethernet::NAME);
        }
        for link in &self.links {
            println!("would make the realm a peer of the link {}", link.name());
        }
        for limit in &self.limits {
            println!("would limit {limit}");
        }
        println!("would start {}", self.kernel.display());
        if self.locked {
            println!("would lock the realm");
        }
        println!("{}", Confinement::expected(machine, self.linux_dma.is_checked()).line());
        let last = failures.pop();
        for failure in failures {
            failure.tell();
        }
        last.map_or(Ok(()), Err)
    }

    fn bring_up(
        &mut self,
        machine: &Machine,
        device: &Device,
        split: Split,
        image: &[u8],
        interruption: &Interruption,
        cell: &mut Option<u32>,
    ) -> Result<()> {
        interruption.check(ASKED)?;
        let wanted = Wanted {
            name: NAME,
            cpus: &self.chosen,
            linux_cpu: self.doorbell_cpu(machine)?,
            private: split.private,
            shared: split.shared,
            launch: self.linux_dma.flags(),
            flags: match self.doorbell_cpu {
                Some(_) => CREATE_REALM,
                None => CREATE_REALM | CREATE_CALLS_FOLLOW,
            },
            ports: &self.ports,
            msrs: &[],
        };
        let (number, mut facts) = start::create(machine, device, ASKED, &wanted, &mut self.kvm)?;
        *cell = Some(number);
        for link in &self.links {
            interruption.check(ASKED)?;
            facts.links |= link.join(device, ASKED, number)?;
        }
        interruption.check(ASKED)?;
        step("starting the real-time kernel");
        if !self.ethernet.is_empty() {
            self.ends = Some(Ends::make(device, number, ASKED)?);
        }
        let loadable = self.layout(image, &facts)?;
        start::load(device, ASKED, number, &loadable, interruption)?;
        device.start(number, loadable.entry).map_err(|refusal| refusal.asked(ASKED))?;
        wait_until_ready(device, number, interruption)?;
        for (driven, shares) in self.driven.iter().zip(driven::sharing(&self.driven)) {
            interruption.check(ASKED)?;
            let without = if shares { DEVICE_NO_INTERRUPT } else { 0 };
            driven.clone().add(machine, device, number, self.manner.line() | without)?;
        }
        for target in &self.targets {
            interruption.check(ASKED)?;
            target.add(&giving(&target.to_string()), device, number, self.manner)?;
        }
        for net in &self.nets {
            interruption.check(ASKED)?;
            net.show(device, number)?;
        }
        interruption.check(ASKED)?;
        let kept = if self.locked { device.lock(number) } else { device.keep() };
        kept.map_err(|refusal| refusal.asked(ASKED))
    }
}

/// What is done with a device, for the messages of failures.
fn giving(name: &str) -> String {
    format!("give {name} to the realm")
}

/// Waits until the kernel in `cell` reports itself.
fn wait_until_ready(device: &Device, cell: u32, interruption: &Interruption) -> Result<()> {
    let failed = |code: Code, reason: String| {
        Failure::new(code, ASKED, reason).remedy(
            "everything is as it was before; the ends of the logs of the hypervisor and the kernel are above",
        )
    };
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        interruption.check(ASKED)?;
        match device.counters(cell).map_err(|refusal| refusal.asked(ASKED))?.state {
            KernelState::Ready | KernelState::Sealed => return Ok(()),
            KernelState::Dead => {
                return Err(failed(Code::KernelStopped, "the real-time kernel stopped".into()));
            }
            KernelState::Starting => {}
        }
        let report = device.report(ASKED)?;
        let described = report.cell(cell);
        if let Some(breach) = described.and_then(|cell| cell.breach) {
            let reason = format!("the real-time kernel {}", breach.sentence());
            return Err(failed(Code::KernelStopped, reason));
        }
        if described.is_some_and(|cell| cell.state == State::Stopped) {
            return Err(failed(Code::KernelStopped, "somebody stopped its cell".into()));
        }
        if Instant::now() > deadline {
            let seconds = READY_WITHIN.as_secs();
            let reason = format!("the real-time kernel did not report itself within {seconds} s");
            return Err(failed(Code::KernelSilent, reason));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the group `crtos` use the device, if there is such a group.
fn open_to_group(machine: &Machine) {
    let Some(group) = machine.group(device::GROUP) else { return };
    let done = chown(device::PATH, None, Some(group))
        .and_then(|()| fs::set_permissions(device::PATH, fs::Permissions::from_mode(0o660)));
    if let Err(error) = done {
        anstream::eprintln!(
            "crtos: {} cannot be opened to the group `crtos`: {error}",
            device::PATH
        );
    }
}
