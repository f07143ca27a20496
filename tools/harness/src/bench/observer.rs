// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observers: plugins of QEMU, in `tools/harness/observer`.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use crtos_abi::LARGE_PAGE_SIZE;
use crtos_abi::image::{HYPERVISOR_BASE, MAX_HYPERVISOR_BLOCKS};
use object::{Object, ObjectSection, ObjectSymbol};
use tempfile::TempDir;

use crate::{paths, run};

/// Where the hypervisor is (lib/abi/src/image.rs), and how large it is at most.
pub const HYPERVISOR: Range<u64> =
    HYPERVISOR_BASE..HYPERVISOR_BASE + MAX_HYPERVISOR_BLOCKS as u64 * LARGE_PAGE_SIZE;

/// Versions of QEMU's interface for plugins: that of the installed QEMU, and of the newer one.
pub const INTERFACE: u32 = 3;
/// See [`INTERFACE`].
pub const NEWER_INTERFACE: u32 = 7;

/// An observer, compiled for the installed QEMU.
pub fn compile(name: &str) -> Result<PathBuf> {
    compile_for(name, INTERFACE)
}

/// An observer, compiled for a version of the interface.
pub fn compile_for(name: &str, interface: u32) -> Result<PathBuf> {
    let folder = paths::target().join("observer");
    fs::create_dir_all(&folder)?;
    let plugin = folder.canonicalize()?.join(format!("{name}-{interface}.so"));
    // A machine that runs has the old one.
    let new = tempfile::NamedTempFile::new_in(&folder)?.into_temp_path();
    let mut gcc = Command::new("gcc");
    gcc.arg(format!("-DINTERFACE={interface}"));
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&new);
    gcc.arg(paths::root().join("tools/harness/observer").join(format!("{name}.c")));
    run::quietly(&mut gcc).context("compile the observer")?;
    new.persist(&plugin)?;
    Ok(plugin)
}

/// How it reads its clock: lfence, rdtsc, lfence; and where in that is the mark.
const READING: [u8; 8] = [0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x0f, 0xae, 0xe8];
const MARK_OFFSET: u64 = 3;
/// The program that measures devices, and its function in which samples begin.
pub const DEVICES: &str = "device";
const GIVES: &str = "give_reasons";

/// Addresses of the instructions at which a program reads its clock, and of the function in which
/// samples begin, if it has one for that.
pub fn readings(program: &str) -> Result<(Vec<u64>, Option<Range<u64>>)> {
    let program = paths::stage().join("usr/lib/crtos/bench").join(program);
    let bytes = fs::read(&program).with_context(|| format!("read {}", program.display()))?;
    let file = object::File::parse(&*bytes).context("read the program")?;
    let text = file.section_by_name(".text").context("the program has no code")?;
    let code = text.data()?.windows(READING.len()).enumerate();
    let readings = code.filter(|(_, bytes)| *bytes == READING);
    let readings = readings.map(|(offset, _)| text.address() + offset as u64 + MARK_OFFSET);
    let function = file.symbols().find(|symbol| symbol.name() == Ok(GIVES));
    let function = function.map(|symbol| symbol.address()..symbol.address() + symbol.size());
    Ok((readings.collect(), function))
}

/// The argument by which observers are told of such instructions, with a comma.
pub fn marks(readings: impl IntoIterator<Item = u64>) -> String {
    readings.into_iter().map(|mark| format!("mark={mark:x},")).collect()
}

/// The entries of interrupts and exceptions in the kernel: their name, how many, how far apart.
const STUBS: (&str, u64, u64) = ("interrupt_stubs", 256, 16);

/// What observers are told of the realm's kernel.
pub struct Kernel {
    /// Its file.
    pub file: PathBuf,
    /// What is in that.
    pub bytes: Vec<u8>,
    /// The addresses of its code.
    pub code: Range<u64>,
    /// Address of the first entry.
    stubs: u64,
}

impl Kernel {
    /// The one that was built last.
    pub fn staged() -> Result<Self> {
        let path = paths::stage().join("usr/lib/crtos/kernel.elf");
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let file = object::File::parse(&*bytes).context("read the kernel's file")?;
        let stubs = file.symbols().find(|symbol| symbol.name() == Ok(STUBS.0));
        let stubs = stubs.context("the kernel has no entries")?.address();
        let text = file.section_by_name(".text").context("the kernel has no code")?;
        let code = text.address()..text.address() + text.size();
        Ok(Self { file: path, code, stubs, bytes })
    }

    /// Where an interrupt or exception enters it.
    pub fn entry(&self, vector: u64) -> u64 {
        self.stubs + vector * STUBS.2
    }

    /// Where all of them do.
    pub fn entries(&self) -> impl Iterator<Item = u64> {
        (0..STUBS.1).map(|vector| self.entry(vector))
    }

    /// The interrupt or exception whose entry an address is in.
    pub fn vector(&self, address: u64) -> Option<u64> {
        let vector = address.checked_sub(self.stubs)? / STUBS.2;
        (vector < STUBS.1).then_some(vector)
    }
}

/// The words of a file that are in the order of the machine.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    bytes.chunks_exact(size_of::<u64>()).map(word).collect()
}

/// Size of a trace, in words.
const TRACE: u64 = 1 + (1 << 26);

/// A file into which an observer writes words one after another, and what has been read of it. Its
/// first word is their number.
pub struct Trace {
    folder: TempDir,
    file: File,
    seen: u64,
}

impl Trace {
    /// An empty one, which is away when it is dropped.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(path(&folder))?;
        file.set_len(TRACE * 8)?;
        Ok(Self { folder, file, seen: 0 })
    }

    /// The argument by which an observer is told of it.
    pub fn argument(&self) -> String {
        format!("trace={}", path(&self.folder).display())
    }

    /// What has been written since it was asked last.
    pub fn words(&mut self) -> Result<Vec<u64>> {
        let mut word = [0; 8];
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_exact(&mut word)?;
        let count = u64::from_le_bytes(word);
        ensure!(count + 1 < TRACE, "the trace has no room for so many samples: take fewer");
        let mut bytes = vec![0; usize::try_from((count - self.seen) * 8)?];
        self.file.seek(SeekFrom::Start((1 + self.seen) * 8))?;
        self.file.read_exact(&mut bytes)?;
        self.seen = count;
        Ok(words(&bytes))
    }
}

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("trace")
}
