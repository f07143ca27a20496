// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos down`: Linux gets its CPUs and its memory back.

use std::collections::BTreeMap;

use crtos_abi::{ABI_VERSION, MAX_CELLS, ioctl::Info};

use crate::{
    borrowed,
    code::Code,
    device::{self, Device},
    failure::{Failure, Result},
    kvm,
    machine::Machine,
    report::State,
    requirements,
    start::{self, step},
    state, text,
};

/// What the command does, for the messages of failures.
const ASKED: &str = "take crtos down";

/// End the real-time realm and all other cells, and leave the hypervisor
///
/// Linux gets its CPUs and its memory back. While programs run in the realm, the command refuses
/// and names them, unless `--force` is given. A locked realm ends only when no program is left in
/// it, whatever is given. A realm that another version of crtos has started ends as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos down
  crtos down --force --unload

Exit status: 0 done; 1 refused or failed (also if crtos is not up); 2 usage.")]
pub struct Down {
    /// Kill programs that run in the realm
    #[arg(long)]
    force: bool,
    /// Remove the module as well
    #[arg(long)]
    unload: bool,
}

impl Down {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let machine = Machine::here();
        let loaded = machine.module_loaded("crtos");
        let was_up = loaded && self.take_down(&machine)?;
        match (self.unload, loaded) {
            (true, true) => unload(),
            (true, false) => Ok(()),
            (false, _) if was_up => Ok(()),
            (false, _) => Err(device::not_up(ASKED)),
        }
    }

    /// Takes everything down. Returns whether there was anything.
    fn take_down(&self, machine: &Machine) -> Result<bool> {
        // After an upgrade the module may be one of another version, which takes these calls too.
        let device = Device::require_any(ASKED)?;
        let info = device.raw_info().map_err(|refusal| refusal.asked(ASKED))?;
        if info.enabled == 0 && info.cells == 0 {
            // A command that had taken them was killed.
            borrowed::give_back();
            kvm::give_back();
            return Ok(false);
        }
        requirements::root(machine, ASKED, "only root may give CPUs and memory back to Linux")?;
        let is_locked = is_locked(&device, &info)?;
        if info.processes > 0 && (is_locked || !self.force) {
            return Err(busy(&device, &info, is_locked));
        }
        let cpus = device::cell_cpus(&info);
        for cell in (0..MAX_CELLS as u32).filter(|cell| info.cells >> cell & 1 == 1) {
            step(&format!("ending cell {cell}"));
            device.destroy(cell, self.force).map_err(|refusal| {
                match refusal.errno {
                    // A program was started meanwhile.
                    nix::errno::Errno::EBUSY
                        if Some(cell) == device::realm(&info) && !is_locked && !self.force =>
                    {
                        busy(&device, &Info { processes: 1, ..info }, false)
                    }
                    _ => refusal.asked(ASKED),
                }
            })?;
            state::forget(cell);
        }
        borrowed::give_back();
        step("leaving the hypervisor");
        device.disable().map_err(|refusal| refusal.asked(ASKED))?;
        kvm::give_back();

        let online = machine.online();
        for cpu in cpus.iter().filter(|cpu| !online.contains(*cpu)) {
            text::warn(
                &format!("CPU {cpu} did not come back online"),
                &format!("echo 1 >/sys/devices/system/cpu/cpu{cpu}/online; `dmesg` may say why"),
            );
        }
        Ok(true)
    }
}

/// Whether this command knows what the module's memory means.
fn is_of_this_version(info: &Info) -> bool {
    info.abi_version == ABI_VERSION
}

/// Whether the realm is locked. A module of another version says so when the realm is to end.
fn is_locked(device: &Device, info: &Info) -> Result<bool> {
    if !is_of_this_version(info) {
        return Ok(false);
    }
    let report = device.report(ASKED)?;
    Ok(report.cell(info.realm).is_some_and(|cell| cell.state == State::Locked))
}

/// Returns the failure that names the programs, or tells how many there are.
fn busy(device: &Device, info: &Info, is_locked: bool) -> Failure {
    let programs = match is_of_this_version(info) {
        true => device.programs(info.realm).unwrap_or_default(),
        false => BTreeMap::new(),
    };
    let mut reason = match programs.len().max(info.processes as usize) {
        1 => "a program runs in the realm".to_string(),
        many => format!("{many} programs run in the realm"),
    };
    if !programs.is_empty() {
        reason.push(':');
    }
    for (pid, command) in &programs {
        reason.push_str(&format!("\n    {pid} {command}"));
    }
    let code = if is_locked { Code::CellLocked } else { Code::ProgramsLive };
    Failure::new(code, ASKED, reason).remedy(match is_locked {
        true => "the realm is locked: end them first; `--force` does not help",
        false => "end them first, or use `crtos down --force`",
    })
}

/// Removes the module.
fn unload() -> Result<()> {
    step("removing the module");
    let asked = "remove the module";
    start::unload_module().map_err(|reason| {
        Failure::new(Code::ModuleBusy, asked, reason)
            .remedy("destroy all cells and links first: `crtos cell list`, `crtos link list`")
    })
}
