// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps from an empty machine to a running cell: load the module, launch the hypervisor,
//! create, load, start.
//!
//! Until [`Device::keep`] the module undoes all of it when the device is closed, also if this
//! process is killed.

use std::{
    io::IsTerminal,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crtos_abi::{
    MAX_CELL_CPUS,
    cell::{CELL_NAME_LEN, MAX_MSR_RANGES, MAX_PORT_RANGES, MsrRange, PortRange},
    ioctl::{CREATE_REALM, CreateCell},
    link::LINK_VECTOR,
};

use crate::{
    code::Code,
    cpulist::CpuList,
    device::{Device, Refusal},
    failure::{Failure, Result},
    install,
    kvm::Kvm,
    loader::{CellFacts, Loadable},
    log,
    machine::Machine,
    port_ranges, refused_module,
    size::Size,
    text,
};

/// Vector on which a cell's doorbell arrives. Higher ones go first: those of a cell's timer and of
/// its devices, so that these do not wait for what Linux wants.
const DOORBELL_VECTOR: u32 = 0xc0;
/// Bytes that are copied into a cell by one call, so that Ctrl-C is seen in between.
const LOAD_CHUNK: usize = 1 << 20;

/// Notices SIGINT, SIGTERM and SIGHUP, so that a command ends between two steps and reports that.
pub struct Interruption(Arc<AtomicUsize>);

impl Interruption {
    /// Keeps these signals from ending the process by themselves.
    pub fn watch() -> Self {
        let flag = Arc::new(AtomicUsize::new(0));
        for signal in
            [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            // Without the handler the signal ends the process, and the module undoes the same.
            let _ = signal_hook::flag::register_usize(signal, flag.clone(), signal as usize);
        }
        Self(flag)
    }

    /// Fails if a signal came.
    pub fn check(&self, asked: &str) -> Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                Code::Interrupted,
                asked,
                "interrupted; everything is as it was before",
            )
            .remedy("call the command again")),
        }
    }

    /// Returns the signal that came.
    pub fn signal(&self) -> Option<i32> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}

/// Says what the command does, if standard error is a terminal.
pub fn step(text: &str) {
    if std::io::stderr().is_terminal() {
        anstream::eprintln!("{}{text}{:#}", text::FAINT, text::FAINT);
    }
}

/// Loads the installed module if it is not loaded, and opens the device. One that was installed
/// before takes its place as long as nothing is up.
pub fn open_device(machine: &Machine, asked: &str) -> Result<Device> {
    if gives_way(machine) {
        let links = std::fs::read_dir(machine.path("/dev/crtos-shm"));
        if links.is_ok_and(|mut links| links.next().is_some()) {
            return Err(Failure::new(
                Code::ModuleBusy,
                asked,
                "the loaded module was installed before this one, and has links",
            )
            .remedy("`crtos link list`, destroy them, then call the command again"));
        }
        step("removing the module that was installed before");
        unload_module().map_err(|reason| {
            let reason = format!("the loaded module was installed before this one: {reason}");
            Failure::new(Code::ModuleBusy, asked, reason)
                .remedy("end what uses it, then `crtos down --unload`")
        })?;
    }
    if !machine.module_loaded("crtos") {
        step("loading the module");
        load_module(machine, asked)?;
    }
    Device::require(asked)
}

/// Whether the loaded module is another one than the installed one, and nothing is up.
pub fn gives_way(machine: &Machine) -> bool {
    let info = Device::open().ok().and_then(|device| device.raw_info().ok());
    info.is_some_and(|info| info.enabled == 0 && info.cells == 0) && is_replaced(machine)
}

/// Whether another module is installed than the one that is loaded.
fn is_replaced(machine: &Machine) -> bool {
    let Some(installed) = install::module_path(machine) else { return false };
    ["version", "srcversion"].into_iter().any(|field| {
        let loaded = machine.read(format!("/sys/module/crtos/{field}"));
        let installed = install::module_fact(&machine.path(&installed), field);
        loaded.is_some() && installed.is_some() && loaded != installed
    })
}

/// Removes the module, also if its file has gone. On failure the reason is returned.
pub fn unload_module() -> std::result::Result<(), String> {
    let run = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(text::harmless(output.stderr.trim_ascii())),
        Err(error) => Err(format!("{}: {error}", command.get_program().display())),
    };
    // What only this module needed goes as well, as far as the index of modules knows.
    run(Command::new("modprobe").args(["-r", "crtos"]))
        .or_else(|_| run(Command::new("rmmod").arg("crtos")))
}

/// Refuses if there is no module for the running kernel.
pub fn module_is_installed(machine: &Machine, asked: &str) -> Result<()> {
    let release = machine.release().unwrap_or_default();
    if install::module_path(machine).is_some() {
        return Ok(());
    }
    Err(Failure::new(
        Code::ModuleMissing,
        asked,
        format!("the module crtos.ko is not installed for the running kernel {release}"),
    )
    .remedy(install::build_module(&release)))
}

fn load_module(machine: &Machine, asked: &str) -> Result<()> {
    module_is_installed(machine, asked)?;
    let modprobe = Command::new("modprobe").arg("crtos").stdin(Stdio::null()).output();
    let reason = match modprobe {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => text::harmless(output.stderr.trim_ascii()),
        Err(error) => return Err(Failure::io(format!("{asked}: run modprobe"), &error)),
    };
    let release = machine.release().unwrap_or_default();
    Err(refused_module::explain(asked, &reason, &release, takes_signed_alone(machine)))
}

/// Tells whether Linux is locked down, and would take a module that is signed.
fn takes_signed_alone(machine: &Machine) -> bool {
    let lockdown = machine.read("/sys/kernel/security/lockdown");
    let takes_none = machine.read("/proc/sys/kernel/modules_disabled").as_deref() == Some("1");
    lockdown.is_some_and(|modes| !modes.contains("[none]")) && !takes_none
}

/// Description of a new cell.
pub struct Wanted<'a> {
    /// Its name, at most 31 bytes.
    pub name: &'a str,
    /// Its CPUs.
    pub cpus: &'a CpuList,
    /// The CPU of Linux that its calls interrupt; with `CREATE_CALLS_FOLLOW` only those that no
    /// shadow waits for.
    pub linux_cpu: u32,
    /// Private memory, in whole blocks.
    pub private: Size,
    /// Pool, in whole blocks.
    pub shared: Size,
    /// `ENABLE_*` of [`crtos_abi::ioctl`], unless the hypervisor runs already.
    pub launch: u32,
    /// `CREATE_*` of [`crtos_abi::ioctl`].
    pub flags: u32,
    /// Ports it may use.
    pub ports: &'a [PortRange],
    /// Registers it may use.
    pub msrs: &'a [MsrRange],
}

/// Launches the hypervisor, before which `kvm` gives way, and creates a cell. Returns its number,
/// and what its boot information says.
pub fn create(
    machine: &Machine,
    device: &Device,
    asked: &str,
    wanted: &Wanted<'_>,
    kvm: &mut Kvm,
) -> Result<(u32, CellFacts)> {
    let Wanted { name, cpus, linux_cpu, private, shared, launch, flags, ports, msrs } = *wanted;
    if ports.len() > MAX_PORT_RANGES || msrs.len() > MAX_MSR_RANGES {
        let reason = format!(
            "at most {MAX_PORT_RANGES} ranges of ports and {MAX_MSR_RANGES} of registers are possible"
        );
        return Err(
            Failure::new(Code::CellLimit, asked, reason).remedy("name fewer, or join ranges")
        );
    }
    let is_realm = flags & CREATE_REALM != 0;
    let link_vector = if is_realm { LINK_VECTOR.into() } else { DOORBELL_VECTOR };
    let mut cell = CreateCell {
        name: [0; CELL_NAME_LEN],
        cpus: cpus.mask(),
        private_size: private.0,
        shared_size: shared.0,
        flags,
        doorbell_vector: DOORBELL_VECTOR,
        port_count: ports.len() as u32,
        msr_count: msrs.len() as u32,
        linux_cpu,
        link_vector,
        ports: [PortRange::default(); MAX_PORT_RANGES],
        msrs: [MsrRange::default(); MAX_MSR_RANGES],
        apic_ids: [0; MAX_CELL_CPUS],
    };
    cell.name[..name.len()].copy_from_slice(name.as_bytes());
    cell.ports[..ports.len()].copy_from_slice(ports);
    cell.msrs[..msrs.len()].copy_from_slice(msrs);

    step("launching the hypervisor");
    let mut launched = device.enable(launch);
    let has_other = |refusal: &Refusal| refusal.code == Code::OtherHypervisor;
    if launched.as_ref().is_err_and(has_other) && kvm.give_way(machine) {
        launched = device.enable(launch);
    }
    launched.map_err(|refusal| refusal.asked(asked))?;
    step(&format!("taking {} and {} from Linux", cpus.named(), Size(private.0 + shared.0)));
    let number = device
        .create(&mut cell)
        .map_err(|refusal| port_ranges::name_users(machine, ports, refusal).asked(asked))?;
    let facts = CellFacts {
        cpus: cpus.iter().collect(),
        apic_ids: cell.apic_ids[..cpus.len()].to_vec(),
        private_size: private.0,
        shared_size: shared.0,
        doorbell_vector: DOORBELL_VECTOR,
        tsc_khz: device.info(asked)?.tsc_khz,
        has_channel: true,
        links: 0,
    };
    Ok((number, facts))
}

/// Copies everything into a cell that does not run.
pub fn load(
    device: &Device,
    asked: &str,
    cell: u32,
    loadable: &Loadable,
    interruption: &Interruption,
) -> Result<()> {
    for piece in &loadable.pieces {
        for (index, chunk) in piece.bytes.chunks(LOAD_CHUNK).enumerate() {
            interruption.check(asked)?;
            let address = piece.address + (index * LOAD_CHUNK) as u64;
            device.load(cell, address, chunk).map_err(|refusal| refusal.asked(asked))?;
        }
    }
    Ok(())
}

/// Shows the ends of the logs on standard error, because they may explain a failure.
pub fn show_logs(device: &Device, cell: Option<u32>) {
    /// Lines of each log.
    const LINES: usize = 15;
    let show = |name: &str, lines: Vec<Vec<u8>>| {
        for line in lines.iter().skip(lines.len().saturating_sub(LINES)) {
            anstream::eprintln!("  {}", log::labelled(name, line));
        }
    };
    show("hypervisor", log::everything(&mut device.hypervisor_log()).unwrap_or_default());
    if let Some(cell) = cell {
        show("kernel", log::everything(&mut device.kernel_log(cell)).unwrap_or_default());
    }
}
