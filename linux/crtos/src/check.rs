// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos check`: whether this machine can run crtos; what is missing, why it matters, and the
//! remedy.

use std::path::Path;
use std::process::{Command, Stdio};

use crtos_abi::{ABI_VERSION, ioctl::Info};
use serde::Serialize;

use crate::{
    code::Code,
    confinement::{self, Confinement},
    cpulist::CpuList,
    device::{self, Device},
    failure::{Result, STATUS_FAILED},
    install::{self, Told},
    machine::Machine,
    requirements::{self, MIN_REALM},
    size::{self, Size},
    text::{BAD, DOUBTFUL, FAINT, GOOD},
};

mod ends;

/// VM_CR, whose bit SVMDIS firmware sets to disable SVM (AMD APM vol. 2, 15.30.1).
const MSR_VM_CR: u32 = 0xc001_0114;
/// Bit of [`MSR_VM_CR`]: SVM is disabled.
const VM_CR_SVMDIS: u64 = 1 << 4;
/// SYSCFG, of which two bits switch memory encryption on (AMD APM vol. 2, 15.34 and 7.10).
const MSR_SYSCFG: u32 = 0xc001_0010;
/// Bits of [`MSR_SYSCFG`]: memory is encrypted, with one key or with several.
const SYSCFG_ENCRYPTION: u64 = 1 << 23 | 1 << 26;
/// APIC_BASE (AMD APM vol. 2, 16.3.1).
const MSR_APIC_BASE: u32 = 0x1b;
/// Bit of [`MSR_APIC_BASE`]: x2APIC mode.
const APIC_BASE_EXTD: u64 = 1 << 10;

/// What to do where registers cannot be read.
const UNREADABLE: &str =
    "run this as root, who has the module msr loaded for it; `crtos up` finds out as well";

/// Check whether this machine can run crtos
///
/// Checks everything that crtos needs or profits from, and shows what was found. If something is
/// not as it should be, the command tells why that matters and what the remedy is. It changes
/// nothing. Some checks need root, who has Linux's module msr loaded meanwhile.
#[derive(clap::Args)]
#[command(after_long_help = "\
Marks: ok, note (works, but something is lost or could not be seen), MISSING (crtos cannot run).

With --json one object: fit (boolean), requirements (array of: name, verdict (\"ok\", \"note\", \"unknown\" or \"missing\"), code
(for `crtos explain`), found, why, remedy (null if none is needed)).

Exit status: 0 the machine is fit; 1 something is missing; 2 usage.")]
pub struct Check {
    /// CPUs to check for, as for `crtos up` [default: all that Linux could give up]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Memory to check for, as for `crtos up`
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::with_unit)]
    memory: Size,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How well a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// It is as it should be.
    Ok,
    /// It works, but something is lost.
    Note,
    /// It cannot be determined.
    Unknown,
    /// It is not met, so crtos cannot run.
    Missing,
}

/// A requirement and what was found.
#[derive(Clone, Debug, Serialize)]
struct Requirement {
    name: &'static str,
    verdict: Verdict,
    code: &'static str,
    found: String,
    why: &'static str,
    remedy: Option<String>,
}

/// What the checks look at.
struct Probe<'a> {
    machine: &'a Machine,
    /// The module's own words, if it is loaded and the device can be opened.
    info: Option<Info>,
    cpus: Option<CpuList>,
    memory: Size,
}

/// What was found, and the remedy if there is something to do.
struct Finding {
    verdict: Verdict,
    found: String,
    remedy: Option<String>,
    /// The code of what is wrong, if it is another one than that of the requirement.
    code: Option<Code>,
}

impl Finding {
    fn new(verdict: Verdict, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict, found: found.into(), remedy: Some(remedy.into()), code: None }
    }

    fn code(self, code: Code) -> Self {
        Self { code: Some(code), ..self }
    }
}

fn ok(found: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Ok, found: found.into(), remedy: None, code: None }
}

fn note(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Verdict::Note, found, remedy)
}

fn unknown(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Verdict::Unknown, found, remedy)
}

fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Verdict::Missing, found, remedy)
}

/// A requirement: its name, the code of what is wrong, why it matters, the function that checks it.
type Entry = (&'static str, Code, &'static str, fn(&Probe<'_>) -> Finding);

/// All requirements, in the order in which they are shown.
const REQUIREMENTS: &[Entry] = &[
    (
        "Linux",
        Code::LinuxVersion,
        "the module is written for the kernels that Debian packages",
        linux,
    ),
    ("root", Code::NotPermitted, "taking CPUs and memory from Linux needs CAP_SYS_ADMIN", root),
    (
        "processor",
        Code::NoSvm,
        "the hypervisor needs AMD's virtualization extensions (SVM)",
        processor,
    ),
    (
        "nested paging",
        Code::NestedPaging,
        "memory of cells is kept apart by nested page tables",
        nested_paging,
    ),
    (
        "firmware",
        Code::SvmDisabled,
        "the firmware may have disabled SVM until the next reset",
        firmware,
    ),
    (
        "other hypervisors",
        Code::OtherHypervisor,
        "only one hypervisor can use the processor's virtualization at a time",
        other_hypervisors,
    ),
    (
        "memory encryption",
        Code::MemoryEncryption,
        "it gives all memory a second address, which would lead round the partition",
        memory_encryption,
    ),
    (
        "page tables",
        Code::PageTables,
        "the hypervisor is made for 4-level page tables",
        page_tables,
    ),
    (
        "x2APIC",
        Code::X2apic,
        "without x2APIC mode a cell's timer and interrupts cost VM exits",
        x2apic,
    ),
    (
        "IOMMU",
        Code::Iommu,
        "real machines have x2APIC mode only with an IOMMU that remaps interrupts",
        iommu,
    ),
    ("devices", Code::Iommu, confinement::WHY, devices),
    (
        "time stamp counter",
        Code::TimeStampCounter,
        "both realms measure time by it, so it must run at one rate at all times and on all CPUs",
        tsc,
    ),
    (
        "CPUs",
        Code::NoSpareCpu,
        "at least one CPU stays with Linux, and one goes to the realm",
        cpus,
    ),
    (
        "offline CPUs",
        Code::CpusUnreachable,
        "a CPU that the hypervisor does not reach at its launch could touch everything",
        offline,
    ),
    ("CPU hotplug", Code::NoSpareCpu, "CPUs are taken from Linux by unplugging them", hotplug),
    (
        "hardware threads",
        Code::HardwareThreads,
        "a hardware thread of the same core that stays with Linux disturbs the realm's timing",
        siblings,
    ),
    ("memory", Code::MemoryShort, "memory is taken from Linux in blocks of 2 MiB", memory),
    (
        "secure boot",
        Code::ModuleSignature,
        "a kernel that is locked down refuses modules that no known key has signed",
        lockdown,
    ),
    (
        "module",
        Code::ModuleMissing,
        "crtos.ko takes CPUs and memory from Linux, and the hypervisor is a part of it",
        module,
    ),
    (
        "loaded module",
        Code::PartsDiffer,
        "command and module have to speak the same version",
        loaded,
    ),
    ("real-time kernel", Code::PartDamaged, "it runs the programs", kernel),
    ("shadow", Code::PartDamaged, "it is the Linux half of each program", shadow),
    (
        "panic",
        Code::EndsWithLinux,
        "the realm survives a panic of Linux, but not a reset of the machine",
        ends::panic,
    ),
    (
        "crash kernel",
        Code::EndsWithLinux,
        "it takes over when Linux panics, saves memory and resets the machine, which ends the realm",
        ends::crash_kernel,
    ),
    ("kexec", Code::EndsWithLinux, "when Linux starts another kernel, the realm ends", ends::kexec),
    (
        "watchdog",
        Code::Watchdog,
        "it resets the machine when Linux hangs, which the realm would survive otherwise",
        ends::watchdog,
    ),
    (
        "locked realm",
        Code::EndsWithLinux,
        "`crtos up --locked` keeps Linux from resetting the machine, as far as it does so by I/O ports",
        ends::locked,
    ),
    (
        "keys that reset",
        Code::EndsWithLinux,
        "whoever has the keyboard or the serial console resets the machine, and so ends the realm",
        ends::keys,
    ),
    (
        "group",
        Code::DeviceAccess,
        "members of the group `crtos` may use `crtos run` without being root",
        group,
    ),
];

impl Check {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let machine = Machine::here();
        let info = Device::open().ok().and_then(|device| device.raw_info().ok());
        let probe = Probe { machine: &machine, info, cpus: self.cpus, memory: self.memory };
        let registers = Registers::open(&machine);
        let found = examine(&probe);
        drop(registers);
        let fit = found.iter().all(|requirement| requirement.verdict != Verdict::Missing);
        if self.json {
            #[derive(Serialize)]
            struct Answer<'a> {
                fit: bool,
                requirements: &'a [Requirement],
            }
            crate::print_json(&Answer { fit, requirements: &found })?;
        } else {
            show(&found, fit);
        }
        Ok(if fit { 0 } else { STATUS_FAILED })
    }
}

fn examine(probe: &Probe<'_>) -> Vec<Requirement> {
    let requirement = |&(name, code, why, look): &Entry| {
        let Finding { verdict, found, remedy, code: other } = look(probe);
        Requirement { name, verdict, code: other.unwrap_or(code).name(), found, why, remedy }
    };
    REQUIREMENTS.iter().map(requirement).collect()
}

/// The kernel's module by which registers of the processor are read. It is loaded for a check by
/// root, and unloaded again.
struct Registers(bool);

impl Registers {
    /// Loads it where it is missing.
    fn open(machine: &Machine) -> Self {
        let wanted = machine.is_admin() && !machine.exists("/dev/cpu/0/msr");
        Self(wanted && Self::modprobe(&["-q", "msr"]))
    }

    fn modprobe(arguments: &[&str]) -> bool {
        let mut modprobe = Command::new("modprobe");
        modprobe.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
        modprobe.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        if self.0 {
            Self::modprobe(&["-q", "-r", "msr"]);
        }
    }
}

fn show(found: &[Requirement], fit: bool) {
    for requirement in found {
        let (style, mark) = match requirement.verdict {
            Verdict::Ok => (GOOD, "ok"),
            Verdict::Note => (DOUBTFUL, "note"),
            Verdict::Unknown => (DOUBTFUL, "unknown"),
            Verdict::Missing => (BAD, "MISSING"),
        };
        anstream::println!(
            "{style}{mark:<7}{style:#}  {}: {}",
            requirement.name,
            requirement.found
        );
        if let Some(remedy) = &requirement.remedy {
            anstream::println!("         {FAINT}why:{FAINT:#} {}", requirement.why);
            anstream::println!("         {FAINT}remedy:{FAINT:#} {remedy}");
            anstream::println!("         {FAINT}more:{FAINT:#} crtos explain {}", requirement.code);
        }
    }
    match fit {
        true => anstream::println!("{GOOD}This machine is fit for crtos.{GOOD:#}"),
        false => anstream::println!("{BAD}This machine is not fit for crtos yet.{BAD:#}"),
    }
}

impl Probe<'_> {
    /// Returns the CPUs to check: those asked for, or all that Linux uses and could give up.
    fn candidates(&self) -> CpuList {
        match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => {
                self.machine.online().iter().filter(|cpu| self.machine.can_unplug(*cpu)).collect()
            }
        }
    }

    /// Tells whether the hypervisor of crtos runs.
    fn enabled(&self) -> bool {
        self.info.is_some_and(|info| info.enabled != 0)
    }
}

fn linux(probe: &Probe<'_>) -> Finding {
    let release = probe.machine.release().unwrap_or_else(|| "unknown".into());
    if !cfg!(target_arch = "x86_64") {
        return missing(
            format!("{release} for another processor than x86-64"),
            "use an x86-64 machine",
        );
    }
    match probe.machine.version() {
        Some(version) if version >= (6, 1) => ok(release),
        _ => missing(release, "use Linux 6.1 or later"),
    }
}

fn root(probe: &Probe<'_>) -> Finding {
    match probe.machine.is_admin() {
        true => ok("this user may take them"),
        false => note(
            "this user may not take them",
            "use sudo for `crtos up` and `crtos down`, and for a more complete check",
        ),
    }
}

/// Tells whether the processor is one of AMD's kind.
fn is_amd(machine: &Machine) -> bool {
    matches!(machine.vendor().as_deref(), Some("AuthenticAMD" | "HygonGenuine"))
}

/// What would follow from the lack of the right processor is no finding of its own.
fn not_looked_at() -> Finding {
    let found = "not looked at: see `processor`".into();
    Finding { verdict: Verdict::Unknown, found, remedy: None, code: None }
}

fn processor(probe: &Probe<'_>) -> Finding {
    let model = probe.machine.model().unwrap_or_else(|| "unknown".into());
    let vendor = probe.machine.vendor().unwrap_or_default();
    if !is_amd(probe.machine) {
        return missing(
            format!("{model} ({vendor})"),
            "use a machine with an AMD processor; Intel's VMX is not supported yet",
        );
    }
    match probe.machine.flags().contains("svm") || probe.enabled() {
        true => ok(format!("{model}, SVM")),
        false => missing(
            format!("{model} without SVM"),
            "enable SVM (AMD-V) in the firmware's setup; in a virtual machine enable nested virtualization",
        ),
    }
}

fn nested_paging(probe: &Probe<'_>) -> Finding {
    if !probe.machine.flags().contains("svm") && !probe.enabled() {
        return not_looked_at();
    }
    match probe.machine.flags().contains("npt") || probe.enabled() {
        true => ok("supported"),
        false => missing("not supported", "use a processor with nested paging (AMD, since 2007)"),
    }
}

fn firmware(probe: &Probe<'_>) -> Finding {
    if probe.enabled() {
        return ok("SVM is in use by crtos");
    }
    if !is_amd(probe.machine) {
        return not_looked_at();
    }
    match probe.machine.msr(MSR_VM_CR) {
        Some(value) if value & VM_CR_SVMDIS != 0 => {
            missing("SVM is disabled (VM_CR.SVMDIS)", "enable SVM (AMD-V) in the firmware's setup")
        }
        Some(_) => ok("SVM is enabled"),
        None => unknown("not visible: /dev/cpu/0/msr cannot be read", UNREADABLE),
    }
}

fn other_hypervisors(probe: &Probe<'_>) -> Finding {
    let machine = probe.machine;
    if !machine.module_loaded("kvm_amd") {
        return ok("none");
    }
    let users = machine.module_users("kvm_amd").unwrap_or(0);
    if users > 0 {
        return missing(
            format!("KVM is in use ({users} users of kvm_amd)"),
            "shut down the virtual machines of this Linux",
        );
    }
    ok("kvm_amd is loaded, no virtual machine runs")
}

fn memory_encryption(probe: &Probe<'_>) -> Finding {
    // The hypervisor is not launched with it, and keeps it off.
    if probe.enabled() {
        return ok("off");
    }
    if !is_amd(probe.machine) {
        return not_looked_at();
    }
    let flags = probe.machine.flags();
    if flags.contains("sev") && flags.contains("hypervisor") {
        return missing(
            "this is an encrypted virtual machine (SEV)",
            "use a virtual machine without SEV, or a real one",
        );
    }
    match probe.machine.msr(MSR_SYSCFG) {
        Some(value) if value & SYSCFG_ENCRYPTION != 0 => missing(
            "on (SYSCFG)",
            "boot Linux with `mem_encrypt=off`, and disable SME (SMEE) in the firmware's setup",
        ),
        Some(_) => ok("off"),
        None => unknown("not visible: /dev/cpu/0/msr cannot be read", UNREADABLE),
    }
}

fn page_tables(probe: &Probe<'_>) -> Finding {
    match probe.machine.flags().contains("la57") {
        true => missing("5 levels", "boot Linux with `no5lvl`"),
        false => ok("4 levels"),
    }
}

fn x2apic(probe: &Probe<'_>) -> Finding {
    let machine = probe.machine;
    let remedy = "enable x2APIC and the IOMMU in the firmware's setup; Linux then uses it without `nox2apic`, `intremap=off`, `iommu=off`, `amd_iommu=off`";
    let by_register = || machine.msr(MSR_APIC_BASE).map(|value| value & APIC_BASE_EXTD != 0);
    match probe.info.map(|info| info.x2apic != 0).or_else(by_register) {
        Some(true) => ok("Linux uses it"),
        Some(false) if machine.flags().contains("x2apic") => {
            note("supported, but Linux runs in xAPIC mode", remedy)
        }
        Some(false) => note("not supported", "use a processor or virtual machine with x2APIC"),
        None => unknown("not visible: /dev/cpu/0/msr cannot be read", UNREADABLE),
    }
}

fn iommu(probe: &Probe<'_>) -> Finding {
    let there = probe.machine.has_iommu();
    let remaps = probe.machine.remaps_interrupts();
    match (there, remaps) {
        (true, true) => ok("in use, with interrupt remapping"),
        (true, false) => note(
            "in use, without interrupt remapping",
            "boot Linux without `intremap=off`; look at the firmware's setup",
        ),
        (false, true) => ok("interrupt remapping is in use"),
        (false, false) => note(
            "none in use",
            "enable the IOMMU (AMD-Vi) in the firmware's setup; boot Linux without `amd_iommu=off`",
        ),
    }
}

fn devices(probe: &Probe<'_>) -> Finding {
    match Confinement::expected(probe.machine, false) {
        Confinement::Whole | Confinement::Checked => {
            ok("they will be confined to Linux's memory and CPUs")
        }
        Confinement::Interrupts => note(
            "their interrupts will be confined, their accesses to memory not",
            confinement::REMEDY,
        ),
        Confinement::Memory { .. } => note(
            format!(
                "their accesses to memory will be confined, their interrupts not: {}",
                confinement::UNREMAPPED
            ),
            confinement::REMEDY,
        ),
        Confinement::None(reason) => note(format!("not confined: {reason}"), confinement::REMEDY),
    }
}

fn tsc(probe: &Probe<'_>) -> Finding {
    let flags = probe.machine.flags();
    let source = probe
        .machine
        .read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".into());
    let constant = flags.contains("constant_tsc");
    if source != "tsc" {
        return note(
            format!("Linux's clock source is {source}"),
            "see why in `dmesg | grep -i tsc`; in a virtual machine boot with `tsc=reliable`",
        );
    }
    match constant && flags.contains("nonstop_tsc") {
        true => ok("invariant, and Linux's clock source"),
        false => note(
            "Linux's clock source, but the processor does not say that it is invariant",
            "turn off frequency scaling and deep idle states if times drift",
        ),
    }
}

fn cpus(probe: &Probe<'_>) -> Finding {
    let present = probe.machine.present();
    match present.len() {
        0 => unknown("not visible", "mount sysfs at /sys"),
        1 => missing("one", "use a machine with two CPUs or more"),
        count => ok(format!("{count} ({present}), online: {}", probe.machine.online())),
    }
}

fn offline(probe: &Probe<'_>) -> Finding {
    if probe.enabled() {
        return ok("the hypervisor has all CPUs");
    }
    match requirements::launch(probe.machine) {
        Ok(asleep) if asleep.is_empty() => ok("none"),
        Ok(asleep) => ok(format!("{}: online for a moment at the launch", asleep.named())),
        Err(failure) => {
            let (reason, remedy) = failure.explained();
            missing(reason, remedy)
        }
    }
}

fn hotplug(probe: &Probe<'_>) -> Finding {
    let machine = probe.machine;
    let candidates = probe.candidates();
    let taken = probe.info.as_ref().map(device::cell_cpus).unwrap_or_default();
    if candidates.is_empty() {
        return match taken.is_empty() {
            true => missing(
                "Linux can unplug no CPU",
                "use a kernel with CONFIG_HOTPLUG_CPU and more than one CPU online",
            ),
            false => ok(format!("cells have {}", taken.named())),
        };
    }
    match requirements::cpus(machine, &candidates, &taken) {
        Ok(()) => ok(format!("{} can be taken", candidates.named())),
        Err(failure) => {
            let (found, code) = (failure.sentence(), failure.code());
            let (_, remedy) = failure.explained();
            missing(found, remedy).code(code)
        }
    }
}

fn siblings(probe: &Probe<'_>) -> Finding {
    let candidates = probe.candidates();
    let shared: Vec<_> = candidates
        .iter()
        .filter_map(|cpu| {
            let siblings = probe.machine.siblings(cpu);
            (siblings.len() > 1).then(|| format!("{siblings}"))
        })
        .collect();
    let Some(example) = shared.first() else {
        return ok("one per core");
    };
    let whole = candidates
        .iter()
        .all(|cpu| probe.machine.siblings(cpu).iter().all(|sibling| candidates.contains(sibling)));
    match whole && probe.cpus.is_some() {
        true => ok("whole cores are asked for"),
        false => note(
            format!("cores have several (such as CPUs {example})"),
            format!("give the realm whole cores: `crtos up --cpus {example}`"),
        ),
    }
}

fn memory(probe: &Probe<'_>) -> Finding {
    let wanted = probe.memory.max(MIN_REALM);
    let Some(available) = probe.machine.available() else {
        return unknown("not visible", "mount procfs at /proc");
    };
    let blocks = probe.machine.free_blocks().unwrap_or(Size(0));
    let found = format!("{available} available, {blocks} of it free in blocks of 2 MiB");
    if wanted > available {
        return missing(found, format!("free memory; {wanted} are needed"));
    }
    match wanted > blocks {
        true => note(
            found,
            "Linux has to move pages to make more blocks; `echo 1 >/proc/sys/vm/compact_memory` does it beforehand",
        ),
        false => ok(found),
    }
}

fn lockdown(probe: &Probe<'_>) -> Finding {
    let machine = probe.machine;
    let enforced = machine.read("/sys/module/module/parameters/sig_enforce");
    let lockdown = machine.read("/sys/kernel/security/lockdown").unwrap_or_default();
    let locked = ["[integrity]", "[confidentiality]"].iter().any(|mode| lockdown.contains(mode));
    if !locked && enforced.as_deref() != Some("Y") {
        return ok("the kernel loads modules without a signature");
    }
    if machine.module_loaded("crtos") {
        return ok("on, but the module is loaded");
    }
    let path = install::module_path(machine);
    let signer = path.and_then(|path| install::module_signer(&machine.path(&path)));
    let keys = machine.read("/proc/keys").unwrap_or_default();
    signature(signer.as_deref(), &keys)
}

/// Whether Linux takes a module with that signer, of whom `keys` (/proc/keys) may have one.
fn signature(signer: Option<&str>, keys: &str) -> Finding {
    const SIGN: &str = "sign crtos.ko with a key that the machine knows (mokutil --import), or turn secure boot off in the firmware's setup";
    let Some(signer) = signer else {
        return missing("on: this kernel refuses unsigned modules", SIGN);
    };
    // Of a certificate Linux shows for whom it is, perhaps their organization first, then numbers.
    let is_theirs = |key: &str| {
        key.split_once(" asymmetri ")
            .is_some_and(|(_, description)| description.split(": ").any(|part| part == signer))
    };
    match keys.lines().any(is_theirs) {
        true => ok(format!("on, and Linux has a key of {signer}, who signed the module")),
        false => missing(format!("on: Linux has no key of {signer}, who signed the module"), SIGN),
    }
}

fn module(probe: &Probe<'_>) -> Finding {
    let machine = probe.machine;
    let release = machine.release().unwrap_or_default();
    match install::module_path(machine) {
        Some(path) => {
            let file = machine.path(&path);
            let magic = install::module_fact(&file, "vermagic").unwrap_or_default();
            let built = magic.split(' ').next().unwrap_or_default().to_string();
            match install::module(&file) {
                _ if !built.is_empty() && built != release => missing(
                    format!("{} is built for Linux {built}", path.display()),
                    install::build_module(&release),
                )
                .code(Code::ModuleBuild),
                what => told(what, &path),
            }
        }
        None if machine.module_loaded("crtos") => ok("loaded, though not installed"),
        None => {
            missing(format!("no crtos.ko for Linux {release}"), install::build_module(&release))
        }
    }
}

fn loaded(probe: &Probe<'_>) -> Finding {
    match probe.info {
        Some(info) if info.abi_version == ABI_VERSION => ok(match device::realm(&info) {
            Some(_) => "loaded, the realm is up",
            None => "loaded",
        }),
        Some(info) => missing(
            format!("version {}, this command has {ABI_VERSION}", info.abi_version),
            device::OTHER_VERSION,
        )
        .code(Code::PartsDiffer),
        None if probe.machine.module_loaded("crtos") => unknown(
            "loaded; this user may not use it",
            "run this as root or as a member of the group `crtos`",
        ),
        None => ok("not loaded; `crtos up` loads it"),
    }
}

fn told(what: Told, path: &Path) -> Finding {
    let path = path.display();
    match what {
        Told::Missing => {
            missing(format!("{path} does not exist"), "reinstall crtos; this file is part of it")
        }
        Told::Abi(version) if version != ABI_VERSION => missing(
            format!("{path} has version {version}, this command {ABI_VERSION}"),
            "install all parts from the same build",
        )
        .code(Code::PartsDiffer),
        _ => ok(path.to_string()),
    }
}

fn part(probe: &Probe<'_>, path: &Path) -> Finding {
    told(install::elf(probe.machine, path), path)
}

fn kernel(probe: &Probe<'_>) -> Finding {
    part(probe, &install::kernel())
}

fn shadow(probe: &Probe<'_>) -> Finding {
    part(probe, &install::shadow())
}

fn group(probe: &Probe<'_>) -> Finding {
    match probe.machine.group("crtos") {
        Some(_)
            if probe.machine.exists(device::PATH) && !device::is_open_to_group(probe.machine) =>
        {
            note(format!("exists, but {} is not its own", device::PATH), device::OPEN_TO_GROUP)
        }
        Some(_) => ok("exists"),
        None => note("there is none; only root may use `crtos run`", "groupadd --system crtos"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::machine::fake::Fake;

    /// Makes a machine on which everything is installed.
    fn installed() -> Fake {
        let fake = Fake::fit();
        fake.write(install::kernel().to_str().unwrap(), "ELF");
        fake.write(install::shadow().to_str().unwrap(), "ELF");
        fake.write("/lib/modules/6.1.0-32-amd64/updates/crtos.ko", "module");
        // APIC_BASE: x2APIC mode. VM_CR lies far behind; the file is sparse.
        let msr = fake.machine().path("/dev/cpu/0/msr");
        fake.write("/dev/cpu/0/msr", "");
        let file = std::fs::File::options().write(true).open(msr).unwrap();
        use std::os::unix::fs::FileExt;
        file.write_all_at(&0xfee0_0d00u64.to_le_bytes(), MSR_APIC_BASE.into()).unwrap();
        file.write_all_at(&8u64.to_le_bytes(), MSR_VM_CR.into()).unwrap();
        fake
    }

    fn all(fake: &Fake) -> Vec<Requirement> {
        let machine = fake.machine();
        examine(&Probe { machine: &machine, info: None, cpus: None, memory: Size::mib(64) })
    }

    fn one(fake: &Fake, name: &str) -> Requirement {
        all(fake).into_iter().find(|requirement| requirement.name == name).unwrap()
    }

    #[test]
    fn a_fit_machine_is_fit() {
        for requirement in all(&installed()) {
            assert_eq!(requirement.verdict, Verdict::Ok, "{requirement:?}");
        }
    }

    #[test]
    fn each_requirement_is_seen_to_be_missing() {
        let cpuinfo = |flags: &str| {
            format!("vendor_id : AuthenticAMD\nmodel name : AMD EPYC\nflags : {flags}\n")
        };
        type Change = Box<dyn Fn(&Fake)>;
        let write = |path: &'static str, content: String| -> Change {
            Box::new(move |fake| fake.write(path, &content))
        };
        let remove = |path: &'static str| -> Change { Box::new(move |fake| fake.remove(path)) };
        let removed =
            |path: PathBuf| -> Change { Box::new(move |fake| fake.remove(path.to_str().unwrap())) };
        let intel = cpuinfo("vmx").replace("AuthenticAMD", "GenuineIntel");
        let online = "/sys/devices/system/cpu/online";
        let cases: Vec<(&str, Verdict, Change)> = vec![
            ("Linux", Verdict::Missing, write("/proc/sys/kernel/osrelease", "5.10.0-amd64".into())),
            ("root", Verdict::Note, write("/proc/self/status", "CapEff:\t0000000000000000".into())),
            ("processor", Verdict::Missing, write("/proc/cpuinfo", intel)),
            ("processor", Verdict::Missing, write("/proc/cpuinfo", cpuinfo("npt"))),
            ("nested paging", Verdict::Missing, write("/proc/cpuinfo", cpuinfo("svm"))),
            ("firmware", Verdict::Unknown, remove("/dev/cpu/0/msr")),
            ("x2APIC", Verdict::Unknown, remove("/dev/cpu/0/msr")),
            ("memory encryption", Verdict::Unknown, remove("/dev/cpu/0/msr")),
            (
                "memory encryption",
                Verdict::Missing,
                write("/proc/cpuinfo", cpuinfo("svm npt hypervisor sev")),
            ),
            (
                "other hypervisors",
                Verdict::Missing,
                Box::new(|fake| {
                    fake.write("/sys/module/kvm_amd/initstate", "live");
                    fake.write("/sys/module/kvm_amd/refcnt", "4");
                }),
            ),
            ("page tables", Verdict::Missing, write("/proc/cpuinfo", cpuinfo("svm npt la57"))),
            ("IOMMU", Verdict::Note, write("/proc/interrupts", "IO-APIC".into())),
            (
                "time stamp counter",
                Verdict::Note,
                write(
                    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                    "hpet".into(),
                ),
            ),
            ("CPUs", Verdict::Missing, write("/sys/devices/system/cpu/present", "0".into())),
            (
                "offline CPUs",
                Verdict::Missing,
                Box::new(|fake| {
                    fake.write("/sys/devices/system/cpu/online", "0,2");
                    fake.write("/sys/devices/system/cpu/smt/control", "off");
                }),
            ),
            ("CPU hotplug", Verdict::Missing, write(online, "0".into())),
            (
                "hardware threads",
                Verdict::Note,
                write("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2-3".into()),
            ),
            ("memory", Verdict::Missing, write("/proc/meminfo", "MemAvailable: 1000 kB".into())),
            (
                "memory",
                Verdict::Note,
                write("/proc/buddyinfo", "Node 0, zone Normal 9 9 9 9 9 9 9 9 9 0 0".into()),
            ),
            (
                "secure boot",
                Verdict::Missing,
                write("/sys/kernel/security/lockdown", "none [integrity] confidentiality".into()),
            ),
            ("module", Verdict::Missing, remove("/lib/modules")),
            ("real-time kernel", Verdict::Missing, removed(install::kernel())),
            ("shadow", Verdict::Missing, removed(install::shadow())),
            ("panic", Verdict::Note, write("/proc/sys/kernel/panic", "10".into())),
            ("panic", Verdict::Note, write("/proc/sys/kernel/panic", "-1".into())),
            ("panic", Verdict::Unknown, remove("/proc/sys/kernel/panic")),
            ("crash kernel", Verdict::Note, write("/sys/kernel/kexec_crash_loaded", "1".into())),
            ("kexec", Verdict::Note, write("/sys/kernel/kexec_loaded", "1".into())),
            (
                "watchdog",
                Verdict::Note,
                write("/sys/class/watchdog/watchdog0/state", "active".into()),
            ),
            (
                "watchdog",
                Verdict::Note,
                write("/sys/class/watchdog/watchdog0/identity", "sp5100".into()),
            ),
            ("keys that reset", Verdict::Note, write("/proc/sys/kernel/sysrq", "1".into())),
            ("keys that reset", Verdict::Note, write("/proc/sys/kernel/sysrq", "438".into())),
            ("keys that reset", Verdict::Note, write("/proc/sys/kernel/ctrl-alt-del", "1".into())),
            ("group", Verdict::Note, write("/etc/group", "root:x:0:".into())),
        ];
        for (name, verdict, change) in cases {
            let fake = installed();
            change(&fake);
            let requirement = one(&fake, name);
            assert_eq!(requirement.verdict, verdict, "{requirement:?}");
            assert!(requirement.remedy.is_some(), "{requirement:?}");
        }
    }

    #[test]
    fn what_follows_from_another_processor_is_not_missing_as_well() {
        let fake = installed();
        fake.write("/proc/cpuinfo", "vendor_id : GenuineIntel\nmodel name : Xeon\nflags : vmx\n");
        let missing: Vec<_> =
            all(&fake).into_iter().filter(|one| one.verdict == Verdict::Missing).collect();
        assert_eq!(missing.iter().map(|one| one.name).collect::<Vec<_>>(), ["processor"]);
        for name in ["nested paging", "firmware", "memory encryption"] {
            let one = one(&fake, name);
            assert_eq!((one.verdict, one.remedy), (Verdict::Unknown, None), "{name}");
        }
    }

    #[test]
    fn a_device_that_is_not_the_groups_is_told() {
        let fake = installed();
        fake.write(device::PATH, "");
        assert_eq!(one(&fake, "group").verdict, Verdict::Note);
        let path = fake.machine().path(device::PATH);
        let own = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&path).unwrap());
        fake.write("/etc/group", format!("root:x:0:\ncrtos:x:{own}:\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o660);
        std::fs::set_permissions(&path, mode).unwrap();
        assert_eq!(one(&fake, "group").verdict, Verdict::Ok);
    }

    #[test]
    fn what_is_open_to_devices_is_told() {
        let fake = installed();
        let found = one(&fake, "devices").found;
        assert_eq!(found, "they will be confined to Linux's memory and CPUs");
        fake.remove("/sys/class/iommu/dmar0");
        fake.write("/sys/class/iommu/ivhd0/name", "ivhd0\n");
        assert_eq!(one(&fake, "devices").found, found);
        fake.remove("/sys/class/iommu/ivhd0");
        fake.write("/sys/class/iommu/other0/name", "other0\n");
        assert_eq!(one(&fake, "devices").found, "not confined: the IOMMU stays with Linux");
        fake.remove("/sys/class/iommu/other0");
        fake.write("/proc/interrupts", "  1:  9  IO-APIC  1-edge  i8042\n");
        assert_eq!(one(&fake, "devices").found, "not confined: no IOMMU is in use");
    }

    #[test]
    fn keys_are_taken_from_those_that_are_allowed() {
        let fake = installed();
        for (allowed, remedy) in [("1", "382"), ("438", "310"), ("128", "0")] {
            fake.write("/proc/sys/kernel/sysrq", allowed);
            let requirement = one(&fake, "keys that reset");
            assert_eq!(requirement.remedy, Some(format!("`sysctl kernel.sysrq={remedy}`")));
        }
        fake.write("/proc/sys/kernel/sysrq", "310");
        assert_eq!(one(&fake, "keys that reset").verdict, Verdict::Ok);
    }

    /// A machine on which everything is installed, with this value in a register.
    fn with_register(register: u32, value: u64) -> Fake {
        let fake = installed();
        let msr = fake.machine().path("/dev/cpu/0/msr");
        let file = std::fs::File::options().write(true).open(msr).unwrap();
        use std::os::unix::fs::FileExt;
        file.write_all_at(&value.to_le_bytes(), register.into()).unwrap();
        fake
    }

    #[test]
    fn a_key_of_the_signer_is_looked_for() {
        const SIGNER: &str = "DKMS module signing key";
        let line = |kind: &str, name: &str, end: &str| {
            format!("1b2c I------     1 perm 1f030000     0     0 {kind} {name}: {end}\n")
        };
        let others = line("asymmetri", "Debian Secure Boot CA", "6ccece7e: X509.rsa bb419ea1 []")
            + &line("keyring  ", SIGNER, "1");
        let enrolled = others.clone() + &line("asymmetri", SIGNER, "51a3c2: X509.rsa 51a3c2 []");
        assert_eq!(signature(None, &enrolled).verdict, Verdict::Missing);
        assert_eq!(signature(Some(SIGNER), &others).verdict, Verdict::Missing);
        assert_eq!(signature(Some("signing key"), &enrolled).verdict, Verdict::Missing);
        assert_eq!(signature(Some(SIGNER), &enrolled).verdict, Verdict::Ok);
    }

    #[test]
    fn firmware_that_disables_svm_is_seen() {
        let fake = with_register(MSR_VM_CR, VM_CR_SVMDIS);
        assert_eq!(one(&fake, "firmware").verdict, Verdict::Missing);
    }

    #[test]
    fn memory_encryption_is_seen_with_one_key_and_with_several() {
        for (value, verdict) in [
            (1 << 23, Verdict::Missing),
            (1 << 26, Verdict::Missing),
            (!SYSCFG_ENCRYPTION, Verdict::Ok),
        ] {
            let fake = with_register(MSR_SYSCFG, value);
            assert_eq!(one(&fake, "memory encryption").verdict, verdict, "{value:#x}");
        }
    }
}
