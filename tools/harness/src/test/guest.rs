// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that need a guest.
//!
//! - `tests/guest/*.sh` and `tests/attack/*.sh` run inside a guest, as their headers say.
//! - `tests/abi/*.c` run under Linux and in the realm of one guest per kernel; both must end with 0
//!   and print the same. Each with one kernel unless all are asked for: linked statically with one
//!   of one version, dynamically with one of the other and PREEMPT_RT.
//! - `tests/host/*.sh` run on the host and boot what they need by themselves.
//!
//! A script that ends with 77 says that it cannot run here.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Selection;
use super::header::Header;
use super::report::{Report, Verdict};
use crate::bench::turns::Turns;
use crate::kernels::Flavour;
use crate::vm::{Config, Outcome, Vm, interrupted};
use crate::{paths, programs, qemu, run, vm_command};

/// What scripts of the guest share: they are sent one by one.
pub const PRELUDE: &str = include_str!("prelude.sh");
/// What runs a program of the ABI tests in both realms.
const ABI_SCRIPT: &str = include_str!("abi.sh");
/// Exit status of a script that cannot run here.
const SKIP: u8 = 77;
/// The kernel of the ABI tests where neither all nor some are asked for.
const ABI_KERNEL: Flavour = Flavour::V6_1;
/// That of those linked dynamically: of the other version.
const ABI_KERNEL_DYNAMIC: Flavour = Flavour::V6_12;
/// Parameter of the boot without measures against what processors do ahead: they take a fifth of
/// what this Linux takes in emulation. The other kernels have them, and this one in virtual time
/// and with `--full`.
const NO_MITIGATIONS: (Flavour, &str) = (Flavour::V6_12, "mitigations=off");
/// Seconds that a program of the ABI tests has in each realm: it takes some, and more on a busy
/// host.
const ABI_SECONDS: u64 = 600;
/// How long a look at a failed guest may take.
const LOOK: Duration = Duration::from_secs(60);
/// How long a healthy realm may take to run a program that does nothing.
const PROBE: Duration = Duration::from_secs(60);

/// A test.
#[derive(Debug, Clone)]
pub struct Case {
    /// `guest/NAME`, `attack/NAME`, `abi/NAME` or `host/NAME`.
    name: String,
    /// What to run: in the guest, or on the host.
    script: String,
    header: Header,
}

/// What is run together.
#[derive(Debug)]
pub enum Batch {
    /// A script of the host.
    Host(Box<Case>),
    /// Tests that share a guest with this kernel.
    Guest(Flavour, VecDeque<Case>),
}

impl Batch {
    /// The sum of the time limits.
    fn limit(&self) -> Duration {
        match self {
            Self::Host(case) => case.header.timeout,
            Self::Guest(_, cases) => cases.iter().map(|case| case.header.timeout).sum(),
        }
    }
}

/// The selected tests, grouped by the guest that they need.
pub fn plan(selection: &Selection) -> Result<Vec<Batch>> {
    let (mut shared, mut alone): (Vec<Batch>, Vec<Batch>) = (vec![], vec![]);
    let mut cases = abi_cases(selection)?;
    cases.extend(script_cases("guest")?);
    cases.extend(script_cases("attack")?);
    cases.retain(|case| selection.wants(&case.name) && (selection.full || !case.header.full));
    for mut case in cases {
        if selection.full {
            let settings: String =
                case.header.settings().map(|(name, value)| format!("{name}={value}\n")).collect();
            case.script.insert_str(0, &settings);
        }
        let mut kernels = case.header.kernels.clone();
        if selection.full || !selection.kernels.is_empty() {
            kernels.extend(&case.header.more_kernels);
        }
        let stands = |further: &Flavour| kernels.contains(&further.stands_for());
        let asked = Flavour::FURTHER.iter().filter(|kernel| selection.kernels.contains(kernel));
        let further: Vec<_> = asked.copied().filter(stands).collect();
        kernels.extend(further);
        for kernel in kernels.into_iter().filter(|&kernel| selection.wants_kernel(kernel)) {
            let mut case = case.clone();
            if !selection.full && !case.header.icount && kernel == NO_MITIGATIONS.0 {
                case.header.add_boot_parameter(NO_MITIGATIONS.1);
            }
            let fits = |batch: &&mut Batch| match batch {
                Batch::Guest(other, cases) => {
                    let fits = |one: &Case| one.header.same_machine(&case.header);
                    *other == kernel && cases.iter().all(fits)
                }
                Batch::Host(_) => false,
            };
            match shared.iter_mut().find(fits) {
                Some(Batch::Guest(_, cases)) => cases.push_back(case),
                _ if case.header.shared => shared.push(Batch::Guest(kernel, [case].into())),
                _ => alone.push(Batch::Guest(kernel, [case].into())),
            }
        }
    }
    let mut batches: Vec<_> = host_cases()?
        .into_iter()
        .filter(|case| selection.wants(&case.name) && (selection.full || !case.header.full))
        .map(|mut case| {
            if !selection.full {
                case.header.full_setting.clear();
            }
            Batch::Host(Box::new(case))
        })
        .collect();
    batches.append(&mut shared);
    batches.append(&mut alone);
    Ok(batches)
}

fn read_header(path: &Path) -> Result<Header> {
    let text = fs::read_to_string(path)?;
    Header::parse(&text).with_context(|| format!("{}", path.display()))
}

/// The scripts of a folder of `tests` that run inside a guest.
fn script_cases(folder: &str) -> Result<Vec<Case>> {
    let case = |(name, path): (String, PathBuf)| {
        let header = read_header(&path)?;
        let common = path.with_file_name("../common");
        let used = header.uses.iter().map(|name| common.join(name).with_extension("sh"));
        let mut script = PRELUDE.to_owned();
        for part in used.chain([path.clone()]) {
            let text = fs::read_to_string(&part);
            script.push('\n');
            script += &text.with_context(|| format!("read {}", part.display()))?;
        }
        Ok(Case { name: format!("{folder}/{name}"), script, header })
    };
    programs::files(folder, "sh")?.into_iter().map(case).collect()
}

fn host_cases() -> Result<Vec<Case>> {
    let case = |(name, path): (String, PathBuf)| {
        let script = path.canonicalize()?.display().to_string();
        Ok(Case { name: format!("host/{name}"), script, header: read_header(&path)? })
    };
    programs::files("host", "sh")?.into_iter().map(case).collect()
}

fn abi_cases(selection: &Selection) -> Result<Vec<Case>> {
    let kernels = |name: &str| {
        if selection.full || !selection.kernels.is_empty() {
            Flavour::ALL.to_vec()
        } else if name.ends_with(programs::DYNAMIC) {
            vec![ABI_KERNEL_DYNAMIC]
        } else {
            vec![ABI_KERNEL]
        }
    };
    let case = |name: String| Case {
        script: abi_script(&name),
        name: format!("abi/{name}"),
        header: Header {
            kernels: kernels(&name),
            shared: true,
            timeout: Duration::from_secs(3 * ABI_SECONDS),
            ..Header::default()
        },
    };
    Ok(programs::alone()?.into_iter().map(case).collect())
}

/// Runs one program in both realms and compares.
fn abi_script(name: &str) -> String {
    format!("set -- {}/{name} {ABI_SECONDS} {SKIP}\n{ABI_SCRIPT}", programs::ABI)
}

/// Takes the tests whose programs do not compile from the plan: they have failed.
fn without_broken(plan: &mut Vec<Batch>, report: &Report) -> Result<()> {
    let broken = programs::compile_tests()?;
    let is_broken = |case: &Case| case.name.strip_prefix("abi/").and_then(|name| broken.get(name));
    for batch in &mut *plan {
        let Batch::Guest(kernel, cases) = batch else { continue };
        cases.retain(|case| {
            let why = is_broken(case);
            if let Some(why) = why {
                let why = format!(
                    "{why}\nIt does not compile, so it was not run: correct its source in tests/abi. \
                     The programs of the tests are compiled with `--no-build`, too."
                );
                add(report, case, *kernel, Verdict::Failed(why), Duration::ZERO);
            }
            why.is_none()
        });
    }
    plan.retain(|batch| !matches!(batch, Batch::Guest(_, cases) if cases.is_empty()));
    Ok(())
}

/// Runs everything, some guests at a time.
pub fn run(mut plan: Vec<Batch>, jobs: usize, report: &Report) -> Result<()> {
    without_broken(&mut plan, report)?;
    // What takes long first, so that no long one runs alone at the end. The time limits tell what
    // does.
    plan.sort_by_key(|batch| Reverse(batch.limit()));
    let queue = Mutex::new(VecDeque::from(plan));
    let work = || -> Result<()> {
        loop {
            let batch = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match batch {
                Some(_) if interrupted().load(Ordering::Relaxed) => return Ok(()),
                Some(Batch::Host(case)) => on_host(&case, report)?,
                Some(Batch::Guest(kernel, cases)) => run_batch(kernel, cases, report),
                None => return Ok(()),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow!("a thread failed"))?)
    })
}

fn on_host(case: &Case, report: &Report) -> Result<()> {
    let start = Instant::now();
    let mut command = Command::new("timeout");
    command.args(["-k", "10", &case.header.timeout.as_secs().to_string(), "bash", &case.script]);
    command.current_dir(paths::root()).env(vm_command::NO_BUILD, "true");
    command.envs(case.header.settings());
    let output = run::captured(&mut command)?;
    let verdict = match output.status.code() {
        Some(0) => Verdict::Passed,
        Some(code) if code == i32::from(SKIP) => Verdict::Skipped,
        _ => Verdict::Failed(format!("{}\n{}", output.status, run::both(&output))),
    };
    report.add(&case.name, verdict, start.elapsed(), &format!("./x test guest {}", case.name));
    Ok(())
}

/// Runs tests one after the other in a guest, and in a new one after a test that
/// broke the guest.
fn run_batch(kernel: Flavour, mut cases: VecDeque<Case>, report: &Report) {
    while let Some(first) = cases.front() {
        if interrupted().load(Ordering::Relaxed) {
            return;
        }
        let start = Instant::now();
        let mut machine = first.header.clone();
        cases.iter().for_each(|case| machine.join(&case.header));
        let mut guest = match boot(kernel, &machine, report) {
            Ok(guest) => guest,
            Err(error) => {
                // The next guest would be no better.
                let mut why = format!("{error:#}");
                for case in cases.drain(..) {
                    add(report, &case, kernel, Verdict::Failed(why.clone()), start.elapsed());
                    "no guest, for the reason above".clone_into(&mut why);
                }
                return;
            }
        };
        while let Some(case) = cases.pop_front() {
            let start = Instant::now();
            let (verdict, is_usable) = in_guest(&mut guest, &case);
            add(report, &case, kernel, verdict, start.elapsed());
            if !is_usable {
                break;
            }
        }
        guest.forget_console();
    }
}

fn add(report: &Report, case: &Case, kernel: Flavour, verdict: Verdict, time: Duration) {
    let again = format!("./x test guest {} --kernels {kernel}", case.name);
    report.add(&format!("{} on {kernel}", case.name), verdict, time, &again);
}

fn boot(kernel: Flavour, header: &Header, report: &Report) -> Result<Vm> {
    let start = Instant::now();
    // QEMU has mapped the file when the guest is up.
    let turns = header.short_turns.then(Turns::new).transpose()?;
    let newer = qemu::is_newer(header.xapic, &header.iommu, header.devices, &header.mesa);
    let plugins = turns.iter().map(|turns| turns.plugin(newer)).collect::<Result<_>>()?;
    let config = Config {
        kernel,
        cpus: header.cpus,
        memory: header.memory.clone(),
        packages: header.packages.clone(),
        xapic: header.xapic,
        iommu: header.iommu.clone(),
        devices: header.devices,
        uarts: header.uarts,
        parallel: header.parallel,
        can: header.can,
        mesa: header.mesa.clone(),
        pair: header.pair,
        icount: header.icount,
        boot_parameters: header.boot.clone(),
        plugins,
        ..Config::default()
    };
    let mut guest = Vm::boot(&config, None)?;
    if header.realm {
        vm_command::start_realm(&mut guest, &config)?;
    }
    if let Some(turns) = turns {
        turns.set(true)?;
    }
    report.note_boot(start.elapsed());
    Ok(guest)
}

/// Runs one test; also tells whether the guest is good for another one.
fn in_guest(guest: &mut Vm, case: &Case) -> (Verdict, bool) {
    let (outcome, text) = match guest.capture(&case.script, case.header.timeout) {
        Ok(result) => result,
        Err(error) => return (Verdict::Failed(format!("{error:#}")), false),
    };
    match outcome {
        Outcome::Exit(0) => return (Verdict::Passed, true),
        Outcome::Exit(SKIP) => return (Verdict::Skipped, true),
        _ => {}
    }
    let mut why = format!("{text}\n--- {}\n", outcome.explain());
    let Outcome::Exit(_) = outcome else {
        why += &guest.console_tail();
        return (Verdict::Failed(why), false);
    };
    let look =
        "echo '--- dmesg'; dmesg | tail -n 25; echo '--- crtos log'; crtos log 2>&1 | tail -n 40";
    if let Ok((_, text)) = guest.capture(look, LOOK) {
        why += &text;
    }
    why += &guest.console_tail();
    // A realm that the script started may still be there, and in what state?
    let is_healthy = case.header.shared && case.header.realm && probe(guest);
    (Verdict::Failed(why), is_healthy)
}

/// Whether the realm still runs programs.
fn probe(guest: &mut Vm) -> bool {
    matches!(guest.capture("crtos run -- busybox true", PROBE), Ok((Outcome::Exit(0), _)))
}
