// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPUs and how much memory a cell may have: everything that can be refused before anything
//! is changed.

use std::path::Path;

use crtos_abi::{MAX_CELL_CPUS, boot::MAX_PRIVATE};

use crate::{
    code::Code,
    cpulist::CpuList,
    failure::{Failure, Result},
    install,
    machine::Machine,
    size::Size,
};

/// Least memory of a realm.
pub const MIN_REALM: Size = Size::mib(64);

/// Refuses a user who is not root; `reason` says why only root may.
pub fn root(machine: &Machine, asked: &str, reason: &str) -> Result<()> {
    match machine.is_admin() {
        true => Ok(()),
        false => Err(Failure::new(Code::NotPermitted, asked, reason)
            .remedy("run it as root, for instance with sudo")),
    }
}

/// Refuses CPUs that Linux cannot give up; `taken` are those that cells have.
pub fn cpus(machine: &Machine, wanted: &CpuList, taken: &CpuList) -> Result<()> {
    let (present, online) = (machine.present(), machine.online());
    let free: CpuList =
        online.iter().filter(|cpu| machine.can_unplug(*cpu) && !taken.contains(*cpu)).collect();
    let refuse = |code: Code, cpu: u32, reason: &str| {
        let remedy = match free.is_empty() {
            true => "this machine has no CPU to give away at the moment".to_string(),
            false => format!("{} can be taken", free.named()),
        };
        Err(Failure::new(code, format!("take CPU {cpu}"), reason).remedy(remedy))
    };
    for cpu in wanted.iter() {
        if !present.contains(cpu) {
            return refuse(
                Code::CpuAbsent,
                cpu,
                &format!("no such CPU; this machine has {}", present.named()),
            );
        }
        if taken.contains(cpu) {
            return refuse(Code::CpuTaken, cpu, "it is busy: a cell has it already");
        }
        if !online.contains(cpu) {
            return refuse(
                Code::CpuOffline,
                cpu,
                "it is offline; Linux can only give up CPUs that it uses",
            );
        }
        if !machine.can_unplug(cpu) {
            return refuse(Code::CpuBoot, cpu, "it is the boot CPU, which Linux cannot give up");
        }
        if let Some(group) = machine.partition_with(cpu) {
            let group = group.display();
            return Err(Failure::new(
                Code::CpuExclusive,
                format!("take CPU {cpu}"),
                format!("the control group {group} has it for itself"),
            )
            .remedy(format!(
                "`echo member >{group}/cpuset.cpus.partition`, or choose another CPU"
            )));
        }
    }
    if wanted.len() > MAX_CELL_CPUS {
        let asked = format!("take {} CPUs", wanted.len());
        return Err(Failure::new(
            Code::CellLimit,
            asked,
            format!("a cell has at most {MAX_CELL_CPUS}"),
        )
        .remedy("name fewer"));
    }
    Ok(())
}

/// Returns the CPUs that come online for the launch of the hypervisor, which has to reach all of
/// them. Refuses if Linux cannot bring some online.
pub fn launch(machine: &Machine) -> Result<CpuList> {
    const ASKED: &str = "launch the hypervisor on all CPUs";
    let present = machine.present();
    if let Some(listed) = machine.listed()
        && listed > present.len()
    {
        let reason =
            format!("Linux knows {} of the {listed} CPUs that the firmware lists", present.len());
        return Err(Failure::new(Code::CpusUnreachable, ASKED, reason)
            .remedy("boot without `nr_cpus=`, `possible_cpus=` and `disable_cpu_apicid=`"));
    }
    let asleep = present.without(&machine.online());
    let remedy = match machine.smt().as_deref() {
        Some("off") => {
            "`echo on >/sys/devices/system/cpu/smt/control` before; `off` is possible afterwards"
        }
        Some("forceoff") => "boot without `nosmt=force`",
        _ => return Ok(asleep),
    };
    match asleep.is_empty() {
        true => Ok(asleep),
        false => {
            let reason =
                format!("hardware threads are off, and so Linux does not start {}", asleep.named());
            Err(Failure::new(Code::CpusUnreachable, ASKED, reason).remedy(remedy))
        }
    }
}

/// Returns the CPU of Linux that calls of a cell with the CPUs `taken` interrupt if nothing else is
/// known: the one that was asked for, or the first.
pub fn linux_cpu(machine: &Machine, wanted: Option<u32>, taken: &CpuList) -> Result<u32> {
    let (present, online) = (machine.present(), machine.online());
    let free: CpuList = online.iter().filter(|cpu| !taken.contains(*cpu)).collect();
    let Some(cpu) = wanted else { return Ok(free.iter().next().unwrap_or(0)) };
    let reason = match cpu {
        cpu if !present.contains(cpu) => {
            format!("no such CPU; this machine has {}", present.named())
        }
        cpu if taken.contains(cpu) => "it is not one of Linux then".to_owned(),
        cpu if !online.contains(cpu) => "it is offline".to_owned(),
        cpu => return Ok(cpu),
    };
    Err(Failure::new(Code::DoorbellCpu, format!("have CPU {cpu} take the realm's calls"), reason)
        .remedy(format!("choose one of {}", free.named())))
}

/// Refuses more memory than Linux can give up.
pub fn memory(machine: &Machine, wanted: Size) -> Result<()> {
    let Some(available) = machine.available() else { return Ok(()) };
    if wanted <= available {
        return Ok(());
    }
    let blocks = machine.free_blocks().unwrap_or(Size(0));
    Err(Failure::new(
        Code::MemoryShort,
        format!("take {wanted} of memory"),
        format!("Linux can give up {available} ({blocks} of it are free in blocks of 2 MiB)"),
    )
    .remedy("ask for less, or end programs that use much memory"))
}

/// How the memory of a realm is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// For the real-time kernel; Linux loses it.
    pub private: Size,
    /// For the pages of processes.
    pub shared: Size,
}

impl Split {
    /// Returns both together.
    pub fn whole(self) -> Size {
        Size(self.private.0 + self.shared.0)
    }
}

/// Divides `memory`. `private` is how much of it the user wants to be private, if that was said.
pub fn split(memory: Size, private: Option<Size>) -> Result<Split> {
    let memory = memory.whole_blocks();
    if memory < MIN_REALM {
        return Err(Failure::new(
            Code::MemoryTooSmall,
            format!("start a realm with {memory}"),
            format!("it needs at least {MIN_REALM}"),
        )
        .remedy("`--memory 256M` is a good start"));
    }
    let usual = Size(memory.0 / 4).max(Size::mib(32)).min(Size::mib(256));
    let private = private.unwrap_or(usual).whole_blocks();
    let most = Size(memory.0 - Size::mib(2).0).min(Size(MAX_PRIVATE));
    if private < Size::mib(8) || private > most {
        return Err(Failure::new(
            Code::PrivateMemory,
            format!("use {private} of {memory} as private memory"),
            format!("between 8 MiB and {most} are possible"),
        )
        .remedy("leave `--private` out"));
    }
    Ok(Split { private, shared: Size(memory.0 - private.0) })
}

/// Reads a file that will be loaded into a cell.
pub fn image(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let failure = Failure::io(format!("load {}", path.display()), &error);
        match path == install::kernel() {
            true => failure
                .with_code(Code::PartDamaged)
                .remedy("reinstall crtos; this file is part of it"),
            false => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    fn refused(fake: &Fake, wanted: &str, taken: &str) -> String {
        let taken = taken.parse().unwrap_or_default();
        cpus(&fake.machine(), &wanted.parse().unwrap(), &taken).unwrap_err().to_string()
    }

    #[test]
    fn cpus_that_linux_uses_and_can_unplug_are_fine() {
        let fake = Fake::fit();
        cpus(&fake.machine(), &"2,3".parse().unwrap(), &CpuList::default()).unwrap();
    }

    #[test]
    fn other_cpus_are_refused_with_those_that_are_free() {
        let fake = Fake::fit();
        assert_eq!(
            refused(&fake, "9", ""),
            "cannot take CPU 9: no such CPU; this machine has CPUs 0-3\n  remedy: CPUs 1-3 can be taken\n  more: crtos explain cpu-absent"
        );
        assert!(refused(&fake, "0", "").contains("the boot CPU"));
        assert!(refused(&fake, "3", "3").contains("busy"));
        assert!(refused(&fake, "3", "3").contains("CPUs 1,2 can be taken"));
        let group = "/sys/fs/cgroup/machine.slice/one";
        fake.write(&format!("{group}/cpuset.cpus.partition"), "isolated\n");
        fake.write(&format!("{group}/cpuset.cpus.effective"), "2-3\n");
        let said = refused(&fake, "3", "");
        assert!(said.contains("machine.slice/one has it for itself"), "{said}");
        assert!(said.contains("`echo member >/sys/fs/cgroup/machine.slice/one/cpuset"), "{said}");
        fake.write(&format!("{group}/cpuset.cpus.partition"), "isolated invalid (hotplug)\n");
        cpus(&fake.machine(), &"3".parse().unwrap(), &CpuList::default()).unwrap();
        fake.write("/sys/devices/system/cpu/online", "0-2\n");
        assert!(refused(&fake, "3", "").contains("offline"));
        fake.write("/sys/devices/system/cpu/online", "0\n");
        assert!(refused(&fake, "3", "").contains("no CPU to give away"));
    }

    #[test]
    fn all_cpus_take_part_in_the_launch() {
        let fake = Fake::fit();
        let cpu = "/sys/devices/system/cpu";
        let asleep = || launch(&fake.machine()).map(|cpus| cpus.to_string());
        let refused = || asleep().unwrap_err().to_string();
        assert_eq!(asleep().unwrap(), "");
        fake.write(&format!("{cpu}/online"), "0-1\n");
        assert_eq!(asleep().unwrap(), "2,3");
        fake.write(&format!("{cpu}/smt/control"), "off\n");
        assert!(refused().contains("CPUs 2,3") && refused().contains("smt/control"));
        fake.write(&format!("{cpu}/smt/control"), "forceoff\n");
        assert!(refused().contains("nosmt=force"));
        fake.write(&format!("{cpu}/online"), "0-3\n");
        assert_eq!(asleep().unwrap(), "");
        let mut table = vec![0; 44];
        (0..5).for_each(|id| table.extend([0, 8, 1, id, 1, 0, 0, 0]));
        fake.write("/sys/firmware/acpi/tables/APIC", table);
        assert!(refused().contains("4 of the 5 CPUs") && refused().contains("nr_cpus="));
    }

    #[test]
    fn calls_interrupt_a_cpu_that_linux_keeps() {
        let fake = Fake::fit();
        let choose =
            |wanted, taken: &str| linux_cpu(&fake.machine(), wanted, &taken.parse().unwrap());
        assert_eq!(choose(None, "3").unwrap(), 0);
        assert_eq!(choose(Some(1), "2,3").unwrap(), 1);
        let refused = |wanted| choose(Some(wanted), "3").unwrap_err().to_string();
        assert_eq!(
            refused(3),
            "cannot have CPU 3 take the realm's calls: it is not one of Linux then\n  remedy: choose one of CPUs 0-2\n  more: crtos explain doorbell-cpu"
        );
        assert!(refused(9).contains("no such CPU"));
        fake.write("/sys/devices/system/cpu/online", "1-3\n");
        assert!(refused(0).contains("offline"));
        assert_eq!(choose(None, "3").unwrap(), 1);
    }

    #[test]
    fn too_much_memory_is_refused_with_what_there_is() {
        let fake = Fake::fit();
        memory(&fake.machine(), Size::mib(512)).unwrap();
        let refusal = memory(&fake.machine(), Size::mib(4096)).unwrap_err().to_string();
        assert!(refusal.starts_with("cannot take 4 GiB of memory: Linux can give up 878.9 MiB"));
        assert!(refusal.contains("416 MiB of it are free in blocks of 2 MiB"));
    }

    #[test]
    fn memory_is_divided_without_a_rest() {
        let mib = Size::mib;
        assert_eq!(split(mib(512), None).unwrap(), Split { private: mib(128), shared: mib(384) });
        assert_eq!(split(mib(64), None).unwrap(), Split { private: mib(32), shared: mib(32) });
        assert_eq!(split(mib(4096), None).unwrap().private, mib(256));
        assert_eq!(split(mib(512), Some(mib(63))).unwrap().private, mib(64));
        assert!(split(mib(16), None).is_err());
        assert!(split(mib(128), Some(mib(128))).is_err());
    }
}
