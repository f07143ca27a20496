// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed parts and their versions.

use std::{
    fs,
    mem::offset_of,
    path::{Path, PathBuf},
    process::Command,
};

use crtos_abi::note::Note;
use object::{
    LittleEndian,
    elf::FileHeader64,
    read::elf::{FileHeader, SectionHeader},
};

use crate::{machine::Machine, view::View};

/// Returns the folder that this program was installed below: /usr, /usr/local, or what else whoever
/// installed it chose. Everything else is found from there.
fn prefix() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).unwrap_or(Path::new("/usr")).to_owned()
}

/// Returns the path of an installed part: `../lib/crtos/NAME`, seen from this program's folder.
pub fn part(name: &str) -> PathBuf {
    prefix().join("lib/crtos").join(name)
}

/// Returns the path of the real-time kernel.
pub fn kernel() -> PathBuf {
    part("kernel.elf")
}

/// Returns the path of the Linux half of programs in the realm.
pub fn shadow() -> PathBuf {
    part("shadow")
}

/// Returns where the module for the running kernel is installed.
pub fn module_path(machine: &Machine) -> Option<PathBuf> {
    let modules = Path::new("/lib/modules").join(machine.release()?);
    ["updates", "updates/dkms", "extra"]
        .into_iter()
        .flat_map(|folder| {
            ["", ".xz", ".zst", ".gz"].map(|end| modules.join(format!("{folder}/crtos.ko{end}")))
        })
        .find(|path| machine.exists(path))
}

/// Returns what to do where there is no module for this kernel.
pub fn build_module(release: &str) -> String {
    let sources = prefix().join(concat!("src/crtos-", env!("CARGO_PKG_VERSION")));
    format!(
        "install the headers of {release} (linux-headers-{release}), then `dkms autoinstall`, or \
         `make -C {} modules modules_install` and `depmod`",
        sources.display()
    )
}

/// What a file tells about its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is no such file.
    Missing,
    /// It exists and tells no version.
    Silent,
    /// Version of the interface.
    Abi(u32),
}

/// Reads the version of an ELF file with a note of it (section `.note.crtos`).
pub fn elf(machine: &Machine, path: &Path) -> Told {
    let Ok(file) = fs::read(machine.path(path)) else { return Told::Missing };
    match section(&file, ".note.crtos") {
        Some(note) if note.len() >= size_of::<Note>() && has_our_name(note) => {
            Told::Abi(View(note).u32(offset_of!(Note, abi_version)))
        }
        _ => Told::Silent,
    }
}

fn has_our_name(note: &[u8]) -> bool {
    let ours = Note::new().name;
    View(note).bytes(offset_of!(Note, name), ours.len()) == ours
}

/// Reads the version of the module's file.
pub fn module(path: &Path) -> Told {
    let version = module_fact(path, "interface").and_then(|text| text.parse().ok());
    match path.exists() {
        true => version.map_or(Told::Silent, Told::Abi),
        false => Told::Missing,
    }
}

/// Returns a field of the module's `.modinfo`, such as `version`.
fn module_field(file: &[u8], field: &str) -> Option<String> {
    let info = section(file, ".modinfo")?;
    let mut entries = info.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    entries.find_map(|entry| {
        let (name, value) = entry.split_once('=')?;
        (name == field).then(|| value.to_string())
    })
}

/// Returns a field of the `.modinfo` of a module's file, which may be compressed.
pub fn module_fact(path: &Path, field: &str) -> Option<String> {
    if path.extension().is_some_and(|end| end == "ko") {
        return module_field(&fs::read(path).ok()?, field);
    }
    modinfo(path, field)
}

/// Returns the name of who signed a module's file, which may be compressed.
pub fn module_signer(path: &Path) -> Option<String> {
    modinfo(path, "signer")
}

fn modinfo(path: &Path, field: &str) -> Option<String> {
    let output = Command::new("modinfo").args(["-F", field]).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let value = text.trim();
    (output.status.success() && !value.is_empty()).then(|| value.to_owned())
}

/// Returns the content of a section of an ELF file.
fn section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    sections.section_by_name(endian, name.as_bytes())?.1.data(endian, file).ok()
}
