// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the parts of the system into the staging tree.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;

use crate::toolchain::{self, BareMetal, LINUX, Model};
use crate::{flat, module, paths, programs as compiled, progress, run};

/// Makes a Linux program need no library of the system that it runs on.
const STATIC: &str = "-Ctarget-feature=+crt-static";

/// Files that are installed as they are, below the staging tree.
const FILES: &[(&str, &str)] = &[
    ("linux/module/60-crtos.rules", "usr/lib/udev/rules.d/60-crtos.rules"),
    ("packaging/sysusers.conf", "usr/lib/sysusers.d/crtos.conf"),
    ("packaging/systemd/crtos.service", "usr/lib/systemd/system/crtos.service"),
    ("packaging/systemd/crtos-run@.service", "usr/lib/systemd/system/crtos-run@.service"),
    ("packaging/realm.toml.5", "usr/share/man/man5/realm.toml.5"),
    ("packaging/crtos.7", "usr/share/man/man7/crtos.7"),
    ("packaging/realm.toml", "usr/share/doc/crtos/examples/realm.toml"),
];

/// A part of the system that is built on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The partitioning hypervisor, which becomes a part of the Linux module.
    Hypervisor,
    /// The real-time kernel.
    Kernel,
    /// The real-time kernel with tests of itself, for the tests.
    SelfTest,
    /// Bare-metal programs for cells.
    Inmates,
    /// The Linux half of a rich real-time process.
    Shadow,
    /// The command line, with its manual pages, completions, units and the like.
    Crtos,
    /// The programs that measure.
    Bench,
    /// The Linux module's sources, with the hypervisor in it.
    Sources,
    /// The Linux module, for each of the kernels, with the hypervisor in it.
    Module,
    /// The tests' hostile module, for each of the kernels.
    Attacker,
}

/// What is built at the same time, each group one by one: linking a whole program keeps one
/// processor busy for a minute.
const GROUPS: &[&[Part]] = &[
    &[Part::Kernel],
    &[Part::SelfTest],
    &[Part::Shadow, Part::Crtos],
    &[Part::Hypervisor, Part::Inmates, Part::Sources, Part::Module, Part::Attacker, Part::Bench],
];

/// Builds parts; all of them if none is named.
pub fn build(parts: &[Part]) -> Result<()> {
    make_stage()?;
    let is_wanted = |part: &&Part| parts.is_empty() || parts.contains(part);
    let build_group = |group: &[Part]| {
        group.iter().filter(is_wanted).try_for_each(|part| {
            part.build().with_context(|| format!("build the part `{}`", part.name()))
        })
    };
    thread::scope(|scope| {
        let groups: Vec<_> =
            GROUPS.iter().map(|group| scope.spawn(|| build_group(group))).collect();
        // All of them end before one of their errors is told.
        let ends: Vec<_> = groups.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.map_err(|_| anyhow!("a thread failed"))?)
    })
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn build(self) -> Result<()> {
        let _step = progress::step(format!("build {}", self.name()));
        let stage = paths::stage();
        match self {
            Self::Hypervisor => hypervisor().map(drop),
            Self::Kernel => {
                let program = kernel("kernel", &[])?;
                install(&fs::read(program)?, &stage.join("usr/lib/crtos/kernel.elf"), 0o644)
            }
            Self::SelfTest => {
                let program = kernel("self-test", &["--features", "self-test"])?;
                install(&fs::read(program)?, &compiled::tree().join(compiled::SELF_TEST), 0o644)
            }
            Self::Inmates => install_inmates(
                &bare_programs("crtos-inmates")?,
                &stage.join("usr/lib/crtos/inmates"),
            ),
            Self::Shadow => {
                let program = one(linux_programs("crtos-shadow", None)?)?;
                install(&fs::read(program)?, &stage.join("usr/lib/crtos/shadow"), 0o755)
            }
            Self::Crtos => {
                let program = one(linux_programs("crtos", Some(STATIC))?)?;
                install(&fs::read(&program)?, &stage.join("usr/sbin/crtos"), 0o755)?;
                run::quietly(Command::new(program).arg("man").arg(stage.join("usr/share")))?;
                FILES.iter().try_for_each(|(from, to)| {
                    let bytes = fs::read(paths::root().join(from));
                    install(&bytes.with_context(|| format!("read {from}"))?, &stage.join(to), 0o644)
                })
            }
            Self::Bench => compiled::install_bench(&stage.join("usr/lib/crtos/bench")),
            Self::Sources => module::stage_sources(&stage, hypervisor()?).map(drop),
            Self::Module => module::build(&stage, hypervisor()?),
            Self::Attacker => module::build_attacker(&compiled::tree()),
        }
    }
}

/// The guest's agent, built if need be.
pub fn agent() -> Result<PathBuf> {
    let _step = progress::step("build the guest's agent");
    one(linux_programs("crtos-agent", Some(STATIC))?)
}

/// An empty staging tree, unless there is one.
fn make_stage() -> Result<()> {
    let stage = paths::stage();
    fs::create_dir_all(stage.join("usr/lib"))?;
    // As Debian has it: a folder of that name would hide the guest's.
    let link = stage.join("lib");
    if fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink("usr/lib", &link)?;
    }
    Ok(())
}

/// Builds the programs of a crate for bare metal.
fn bare_programs(package: &str) -> Result<Vec<PathBuf>> {
    // The hypervisor lies in the middle of the lower half.
    let model =
        if package == "crtos-hypervisor" { Model::PositionIndependent } else { Model::Static };
    programs(BareMetal::get()?.cargo("build", model), package, "bare")
}

/// The hypervisor's image, built if need be: the module contains it.
fn hypervisor() -> Result<Vec<u8>> {
    let program = one(bare_programs("crtos-hypervisor")?)?;
    flat::flatten(&fs::read(&program)?)
}

/// The vDSO, built if need be: a shared object that the kernel contains.
fn vdso() -> Result<PathBuf> {
    let mut cargo = BareMetal::get()?.cargo("build", Model::SharedObject);
    cargo.args(["--features", "image"]);
    one(programs(cargo, "crtos-vdso", "vdso")?)
}

/// The real-time kernel, built if need be in a folder of that name.
fn kernel(folder: &str, arguments: &[&str]) -> Result<PathBuf> {
    let mut cargo = with_vdso(BareMetal::get()?.cargo("build", Model::Static))?;
    cargo.args(arguments);
    one(programs(cargo, "crtos-kernel", folder)?)
}

/// Tells the kernel's build where the vDSO is.
pub fn with_vdso(mut cargo: Command) -> Result<Command> {
    cargo.env("CRTOS_VDSO", vdso()?);
    Ok(cargo)
}

/// Builds the programs of a crate for Linux.
fn linux_programs(package: &str, flags: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut cargo = toolchain::cargo();
    cargo.args(["build", "--target", LINUX]);
    cargo.arg("--config").arg(format!("target.{LINUX}.rustflags={:?}", Vec::from_iter(flags)));
    programs(cargo, package, "linux")
}

/// Runs cargo on one crate and returns the programs that it has.
fn programs(mut cargo: Command, package: &str, folder: &str) -> Result<Vec<PathBuf>> {
    // A folder of its own: whoever runs cargo by hand does not block this, and what is built at the
    // same time neither.
    cargo.arg("--target-dir").arg(paths::target().join("parts").join(folder));
    cargo.args(["--profile", profile(package), "--bins", "-p", package]);
    cargo.arg("--message-format=json-render-diagnostics");
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("run {}", run::name(&cargo)))?;
    if !output.status.success() {
        bail!("cargo failed on {package}");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(executable).collect())
}

/// How a crate is optimized.
fn profile(package: &str) -> &'static str {
    match package {
        "crtos" | "crtos-agent" => "command",
        _ => "release",
    }
}

/// The program that a message of cargo is about.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_program = message["target"]["kind"][0] == "bin";
    message["executable"].as_str().filter(|_| is_program).map(PathBuf::from)
}

fn one(mut programs: Vec<PathBuf>) -> Result<PathBuf> {
    match (programs.len(), programs.pop()) {
        (1, Some(program)) => Ok(program),
        (count, _) => bail!("the crate has {count} programs where one is wanted"),
    }
}

/// Puts a file into the staging tree, leaving it alone if it is there already.
pub fn install(bytes: &[u8], to: &Path, mode: u32) -> Result<()> {
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let folder = to.parent().context("a file in no folder")?;
    fs::create_dir_all(folder)?;
    let half_made = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(half_made.path(), bytes)?;
    fs::set_permissions(half_made.path(), fs::Permissions::from_mode(mode))?;
    half_made.persist(to).with_context(|| format!("write {}", to.display()))?;
    Ok(())
}

/// Makes the folder hold exactly these programs.
fn install_inmates(programs: &[PathBuf], folder: &Path) -> Result<()> {
    let mut kept = Vec::new();
    for program in programs {
        let name = format!("{}.elf", program.file_name().unwrap_or_default().to_string_lossy());
        install(&fs::read(program)?, &folder.join(&name), 0o644)?;
        kept.push(name);
    }
    if kept.is_empty() {
        bail!("the crate has no programs");
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !kept.iter().any(|name| entry.file_name() == name.as_str()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_in_one_group() {
        for part in Part::value_variants() {
            assert_eq!(GROUPS.iter().flat_map(|group| *group).filter(|p| *p == part).count(), 1);
        }
    }
}
