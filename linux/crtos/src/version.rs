// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos version`: versions of all parts, and whether they fit together.

use crtos_abi::ABI_VERSION;
use serde::Serialize;

use crate::{
    device::Device,
    failure::{Result, STATUS_FAILED},
    install::{self, Told},
    machine::Machine,
    text::{BAD, GOOD, table},
};

/// Show the versions of all parts, and whether they fit together
///
/// Each part knows the version of the interface that it speaks. Parts of different versions refuse
/// to work together. The hypervisor is a part of the module.
#[derive(clap::Args)]
#[command(after_long_help = "\
With --json an array of objects: part, version (or null), interface (or null), fits (boolean or null
if unknown), path.

Exit status: 0 all parts that are there fit together; 1 some do not; 2 usage.")]
pub struct Version {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A part and its version.
#[derive(Serialize)]
pub struct Part {
    /// Its name.
    part: &'static str,
    /// Its release.
    version: Option<String>,
    /// Version of the interface that it speaks.
    interface: Option<u32>,
    /// Whether that is this command's version; unknown if the part does not tell.
    fits: Option<bool>,
    /// Its path.
    path: String,
    /// Whether it exists.
    #[serde(skip)]
    present: bool,
}

impl Part {
    fn new(part: &'static str, path: impl Into<String>, told: Told) -> Self {
        let interface = match told {
            Told::Abi(version) => Some(version),
            _ => None,
        };
        Self {
            part,
            version: None,
            interface,
            fits: interface.map(|version| version == ABI_VERSION),
            path: path.into(),
            present: told != Told::Missing,
        }
    }
}

/// Returns all parts of an installation.
pub fn parts(machine: &Machine) -> Vec<Part> {
    let mut parts = vec![Part {
        version: Some(env!("CARGO_PKG_VERSION").into()),
        ..Part::new("command", "this program", Told::Abi(ABI_VERSION))
    }];

    let path = install::module_path(machine);
    let file = path.as_ref().map(|path| machine.path(path));
    let told = file.as_deref().map_or(Told::Missing, install::module);
    let shown = path.map_or("crtos.ko".into(), |path| path.display().to_string());
    parts.push(Part {
        version: file.and_then(|file| install::module_fact(&file, "version")),
        ..Part::new("module", shown, told)
    });

    let told = match Device::open().ok().and_then(|device| device.raw_info().ok()) {
        Some(info) => Told::Abi(info.abi_version),
        None if machine.module_loaded("crtos") => Told::Silent,
        None => Told::Missing,
    };
    parts.push(Part {
        version: machine.read("/sys/module/crtos/version"),
        ..Part::new("module, loaded", "/dev/crtos", told)
    });

    for (part, path) in [("real-time kernel", install::kernel()), ("shadow", install::shadow())] {
        parts.push(Part::new(part, path.display().to_string(), install::elf(machine, &path)));
    }
    parts
}

impl Version {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let parts = parts(&Machine::here());
        if self.json {
            crate::print_json(&parts)?;
        } else {
            let rows = parts.iter().map(|part| {
                let verdict = match (part.present, part.fits) {
                    (false, _) => "missing".to_string(),
                    (true, Some(true)) => format!("{GOOD}fits{GOOD:#}"),
                    (true, Some(false)) => format!("{BAD}does not fit{BAD:#}"),
                    (true, None) => "unknown".to_string(),
                };
                vec![
                    part.part.to_string(),
                    part.version.clone().unwrap_or_else(|| "-".into()),
                    part.interface.map_or("-".into(), |version| version.to_string()),
                    part.path.clone(),
                    verdict,
                ]
            });
            let header = ["PART", "VERSION", "INTERFACE", "PATH", ""];
            anstream::println!("{}", table(&header, &[2], rows.collect()));
        }
        Ok(if parts.iter().any(|part| part.fits == Some(false)) { STATUS_FAILED } else { 0 })
    }
}
