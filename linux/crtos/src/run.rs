// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos run`: starts a program in the real-time realm.
//!
//! This process finds the program and becomes its shadow. So its pid, descriptors, credentials,
//! working directory, limits, signal dispositions and mask are the program's, without a copy.

use std::{
    convert::Infallible,
    env,
    ffi::{CString, OsStr, OsString},
    fs::{File, Metadata},
    io::{self, Read, Seek},
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, FcntlArg, FdFlag, fcntl},
    unistd::{AccessFlags, execv, faccessat},
};
use object::{
    LittleEndian,
    elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP},
    read::{
        ReadCache, ReadRef,
        elf::{FileHeader, ProgramHeader},
    },
};

use crtos_syscalls::{
    choices::{Choices, Strict},
    script::{Line, MAX_SCRIPTS, START_BYTES, Scripts},
};

use crate::{
    code::Code,
    device::{self, Device},
    failure::{Failure, STATUS_NOT_FOUND, STATUS_NOT_RUNNABLE, STATUS_RUN_FAILED, plain},
    install,
};

/// Where programs are looked for if PATH is not set, as execvp(3) does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Run a program in the real-time realm
///
/// Behaves like running the program here: standard input and output, working directory,
/// environment, umask, limits, credentials, signals and exit status are the program's, and its pid
/// is that of this command.
///
/// PROGRAM is looked for as a shell does: in the directories of PATH, or as a path if it contains a
/// slash. It is an x86-64 executable, dynamically or statically linked, or a script for one.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos run -- busybox md5sum /bin/busybox
  cat data | crtos run -- busybox wc -l
  crtos run ./control --period 1000
  crtos run --renumber-cpus -- taskset -c 0 ./control
  crtos run --realm-wildcard -- iperf3 -s
  crtos run --strict ./control          ends at the first thing that is not real time
  crtos run --strict=error ./control    has calls of Linux fail with EREMOTE

Exit status: the program's own (128 + N in a shell if signal N ended it), or
  125  crtos could not start it; the realm is not up, or it has no room
  126  the program was found but cannot be run
  127  the program was not found")]
pub struct Run {
    /// Show the program the realm's CPUs as 0, 1, … instead of by Linux's numbers
    ///
    /// For programs that bind themselves to CPU 0, or to as many CPUs as they have threads. It
    /// holds for affinity, getcpu and the files below /sys/devices/system, and for the program's
    /// children.
    #[arg(long)]
    renumber_cpus: bool,
    /// Have 0.0.0.0 and :: stand for the realm's interfaces instead of Linux's
    ///
    /// A socket of UDP or TCP that the program binds to no address in particular hears what comes
    /// by interfaces of the realm, and nothing that comes by Linux's, or from this machine by
    /// 127.0.0.1. For programs that cannot be told an address, or use further sockets beside the
    /// one that was, as those of DDS and ROS 2 do. It holds for the program's children as well, and
    /// changes nothing where the realm has no interface.
    #[arg(long)]
    realm_wildcard: bool,
    /// Tell a real-time thread when it does something that has no worst case
    ///
    /// It gets SIGXCPU for a system call that Linux makes, a page that is touched for the first
    /// time, or a change of the program's memory, after it took a real-time policy (see `crtos
    /// latency`). Without a handler the signal ends the program at the first one; it comes when
    /// that is done, and not to a thread that blocks it. As Xenomai's SIGDEBUG it has si_code
    /// SI_QUEUE and, in si_value, 0xfccf0000 plus the reason: 2 a call of Linux, 3 a page fault, 64
    /// a change of memory. With `error` a system call that Linux would make fails with EREMOTE
    /// instead, and nothing is done; what shows only on the way, such as a page that Linux has to
    /// read, gives the signal as before. It holds for the program's children as well. A program
    /// chooses itself by prctl(0x43525402, 1), with 2 for errors, and 0 to end it;
    /// prctl(0x43525401) tells which; Linux knows neither (EINVAL).
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "signal"
    )]
    strict: Option<How>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARG"], num_args = 1..)]
    command: Vec<OsString>,
}

/// How a real-time thread is told of what has no worst case.
#[derive(Clone, Copy, clap::ValueEnum)]
enum How {
    /// By SIGXCPU, after it was done.
    Signal,
    /// By EREMOTE if Linux would make the call, and else by SIGXCPU.
    Error,
}

/// An executable that was found.
struct Found {
    path: PathBuf,
    file: File,
}

impl Run {
    /// Becomes the program. Returns only a failure.
    pub fn run(self) -> Failure {
        match self.become_shadow() {
            Err(failure) => failure,
        }
    }

    fn become_shadow(self) -> Result<Infallible, Failure> {
        // The parser does not let an empty command pass.
        let program = self.command.first().cloned().unwrap_or_default();
        let asked = format!("run {}", Path::new(&program).display());
        let found =
            find(&program, env::var_os("PATH")).map_err(|why| not_found(&asked, &program, &why))?;
        let mut scripts = Scripts::new();
        let path = found.path.clone();
        let file = follow(found, &mut scripts)
            .map_err(|(path, unsuitable)| unsuitable.failure(&asked, &path))?;

        let own = |failure: Failure| failure.status(STATUS_RUN_FAILED);
        let device = Device::require(&asked).map_err(own)?;
        let info = device.info(&asked).map_err(own)?;
        device::realm(&info).ok_or_else(|| own(device::not_up(&asked)))?;

        let system = |error: Errno| own(Failure::io(asked.as_str(), &error.into()));
        let device = device.into_fd();
        inherit(&device).map_err(system)?;
        inherit(&file).map_err(system)?;
        let strict = match self.strict {
            None => Strict::No,
            Some(How::Signal) => Strict::Signal,
            Some(How::Error) => Strict::Error,
        };
        let choices =
            Choices { renumbers: self.renumber_cpus, strict, wildcard: self.realm_wildcard };
        let mut arguments = vec![
            CString::from(choices.name()),
            number(device.as_raw_fd()),
            number(file.as_raw_fd()),
            c_string(path.clone().into_os_string()),
        ];
        arguments.extend(scripts.arguments().map(CString::from));
        let mut command = self.command;
        if let Some(name) = command.first_mut().filter(|_| !scripts.is_empty()) {
            *name = path.into_os_string();
        }
        arguments.extend(command.into_iter().map(c_string));
        let shadow = install::shadow();
        execv(&c_string(shadow.clone().into_os_string()), &arguments).map_err(|error| {
            let reason = format!("{}: {}", shadow.display(), error.desc());
            let (code, remedy) = match error {
                Errno::E2BIG => {
                    (Code::ArgumentsTooLong, "the arguments and the environment are too long")
                }
                _ => (Code::PartDamaged, "reinstall crtos; this file is part of it"),
            };
            own(Failure::new(code, &asked, reason).remedy(remedy))
        })
    }
}

/// Returns a descriptor's number as an argument.
fn number(fd: i32) -> CString {
    c_string(fd.to_string().into())
}

/// Returns a string that came from C, and so contains no zero.
fn c_string(text: OsString) -> CString {
    let mut bytes = text.into_vec();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

/// Leaves a descriptor open in the program that this process becomes.
fn inherit(fd: &impl AsFd) -> nix::Result<()> {
    fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).map(drop)
}

/// Finds an executable as execvp(3) does; `path` is the variable PATH.
fn find(program: &OsStr, path: Option<OsString>) -> Result<Found, Errno> {
    if program.as_bytes().contains(&b'/') {
        return open(Path::new(program));
    }
    if program.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    let mut result = Errno::ENOENT;
    for directory in env::split_paths(&path) {
        match open(&directory.join(program)) {
            Ok(found) => return Ok(found),
            // The first file that was found but may not be executed; execvp(3) reports that one.
            Err(Errno::EACCES) => result = Errno::EACCES,
            Err(
                Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT,
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Err(result)
}

/// Opens an executable that this user may execute.
fn open(path: &Path) -> Result<Found, Errno> {
    let metadata: Metadata = path.metadata().map_err(|error| errno(&error))?;
    if !metadata.is_file() {
        return Err(Errno::EACCES);
    }
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS)?;
    let file = File::open(path).map_err(|error| errno(&error))?;
    Ok(Found { path: path.to_path_buf(), file })
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

/// Returns the failure of a program that was not found, or may not be executed.
fn not_found(asked: &str, program: &OsStr, why: &Errno) -> Failure {
    let path = Path::new(program);
    match why {
        Errno::ENOENT | Errno::ENOTDIR => {
            let failure = Failure::new(Code::ProgramNotFound, asked, "program not found")
                .status(STATUS_NOT_FOUND);
            match program.as_bytes().contains(&b'/') {
                true => failure,
                false => failure.remedy("give its path, or add its directory to PATH"),
            }
        }
        _ if path.is_dir() => Failure::new(Code::ProgramNotExecutable, asked, "it is a directory")
            .status(STATUS_NOT_RUNNABLE),
        Errno::EACCES if path.exists() && !path.is_file() => {
            Failure::new(Code::ProgramNotExecutable, asked, "it is not a regular file")
                .status(STATUS_NOT_RUNNABLE)
        }
        Errno::EACCES => Failure::new(
            Code::ProgramNotExecutable,
            asked,
            "it is not executable, or not readable, for this user",
        )
        .remedy("`chmod a+rx` permits both")
        .status(STATUS_NOT_RUNNABLE),
        _ => Failure::io(asked, &(*why).into()).status(STATUS_NOT_RUNNABLE),
    }
}

/// Why a file cannot be run in the realm.
#[derive(Debug, PartialEq, Eq)]
enum Unsuitable {
    /// It is a script whose interpreter is missing, or may not be executed.
    Interpreter(PathBuf, Errno),
    /// It is a script, and so are too many interpreters in a row.
    TooManyScripts,
    /// It is no ELF file.
    NotElf,
    /// It is an ELF file for another machine.
    OtherMachine,
    /// It is an object file, a core dump, …
    NotExecutable,
    /// It needs this loader, which is missing.
    NoLoader(String),
    /// It cannot be read.
    Unreadable(String),
}

impl Unsuitable {
    fn failure(self, asked: &str, path: &Path) -> Failure {
        let path = path.display();
        let failure = match self {
            Unsuitable::Interpreter(name, why) => Failure::new(
                Code::Interpreter,
                asked,
                format!("the interpreter of {path}, {}: {}", name.display(), why.desc()),
            )
            .remedy("the first line of the script names it"),
            Unsuitable::TooManyScripts => Failure::new(
                Code::Interpreter,
                asked,
                format!(
                    "{path} is a script, and so are {MAX_SCRIPTS} before it that interpret each other"
                ),
            ),
            Unsuitable::NotElf => Failure::new(
                Code::ProgramFormat,
                asked,
                format!("{path} is not an x86-64 ELF executable"),
            ),
            Unsuitable::OtherMachine => Failure::new(
                Code::ProgramFormat,
                asked,
                format!("{path} is an ELF file, but not for x86-64"),
            ),
            Unsuitable::NotExecutable => Failure::new(
                Code::ProgramFormat,
                asked,
                format!("{path} is an ELF file, but not an executable"),
            ),
            Unsuitable::NoLoader(loader) => Failure::new(
                Code::LoaderMissing,
                asked,
                format!("it needs the loader {loader}, which is missing"),
            )
            .remedy("install it, or link the program statically"),
            Unsuitable::Unreadable(why) => {
                Failure::new(Code::ProgramNotExecutable, asked, format!("{path}: {why}"))
            }
        };
        failure.status(STATUS_NOT_RUNNABLE)
    }
}

/// Opens the program that `found` is, or that interprets it if there are `scripts` in between. A
/// failure comes with the path of the file that it is about.
fn follow(mut found: Found, scripts: &mut Scripts) -> Result<File, (PathBuf, Unsuitable)> {
    loop {
        let path = found.path;
        let line = match suitable(&found.file) {
            Ok(None) => return Ok(found.file),
            Ok(Some(line)) => line,
            Err(unsuitable) => return Err((path, unsuitable)),
        };
        let Ok(interpreter) = scripts.add(line) else {
            return Err((path, Unsuitable::TooManyScripts));
        };
        let interpreter = Path::new(OsStr::from_bytes(interpreter.to_bytes()));
        found = open(interpreter)
            .map_err(|why| (path, Unsuitable::Interpreter(interpreter.into(), why)))?;
    }
}

/// Tells whether the realm can run a file, of which it reads only the start. The first line tells a
/// script.
fn suitable(mut file: &File) -> Result<Option<Line>, Unsuitable> {
    let unreadable = |error: io::Error| Unsuitable::Unreadable(plain(&error));
    let mut start = Vec::new();
    file.take(START_BYTES as u64).read_to_end(&mut start).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    if let Some(line) = Line::parse(&start) {
        return Ok(Some(line));
    }
    if !start.starts_with(b"\x7fELF") {
        return Err(Unsuitable::NotElf);
    }
    let cache = ReadCache::new(file);
    let verdict = suitable_elf(&cache);
    file.rewind().map_err(unreadable)?;
    verdict.map(|()| None)
}

fn suitable_elf<'a>(data: impl ReadRef<'a>) -> Result<(), Unsuitable> {
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|_| Unsuitable::OtherMachine)?;
    let endian = header.endian().map_err(|_| Unsuitable::OtherMachine)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(Unsuitable::OtherMachine);
    }
    if ![ET_EXEC, ET_DYN].contains(&header.e_type(endian)) {
        return Err(Unsuitable::NotExecutable);
    }
    let segments = header.program_headers(endian, data).map_err(|_| Unsuitable::NotExecutable)?;
    if segments.is_empty() {
        return Err(Unsuitable::NotExecutable);
    }
    match segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) {
        None => Ok(()),
        Some(segment) => {
            let name = segment.data(endian, data).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            match Path::new(OsStr::from_bytes(name)).exists() {
                true => Ok(()),
                false => Err(Unsuitable::NoLoader(crate::text::padded(name))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn executable(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn verdict(content: &[u8]) -> Result<(), Unsuitable> {
        let dir = tempfile::tempdir().unwrap();
        let path = executable(dir.path(), "x", content);
        let found = open(&path).unwrap();
        follow(found, &mut Scripts::new()).map(drop).map_err(|(_, unsuitable)| unsuitable)
    }

    /// Makes the header of an ELF file: class, byte order, type, machine, and one program header of
    /// a type, with the content behind it.
    fn elf(class: u8, kind: u8, machine: u8, segment: u32, content: &[u8]) -> Vec<u8> {
        let mut file = crate::view::Builder::new(120 + content.len());
        file.bytes(0, &[0x7f, b'E', b'L', b'F', class, 1, 1])
            .bytes(16, &[kind, 0, machine, 0, 1])
            .u64(32, 64)
            .bytes(52, &[64, 0, 56, 0, 1, 0, 64, 0])
            .u32(64, segment)
            .u64(72, 120)
            .u64(96, content.len() as u64)
            .bytes(120, content);
        file.finish()
    }

    #[test]
    fn files_are_judged_by_their_headers() {
        assert_eq!(verdict(&elf(2, 2, 62, 1, b"code")), Ok(()));
        assert_eq!(verdict(&elf(2, 3, 62, 1, b"code")), Ok(()));
        assert_eq!(verdict(&elf(2, 3, 62, PT_INTERP, b"/\0")), Ok(()));
        assert_eq!(
            verdict(&elf(2, 3, 62, PT_INTERP, b"/absent/ld.so\0")),
            Err(Unsuitable::NoLoader("/absent/ld.so".into()))
        );
        assert_eq!(verdict(&elf(2, 2, 183, 1, b"code")), Err(Unsuitable::OtherMachine));
        assert_eq!(verdict(&elf(1, 2, 3, 1, b"code")), Err(Unsuitable::OtherMachine));
        assert_eq!(verdict(&elf(2, 1, 62, 1, b"code")), Err(Unsuitable::NotExecutable));
        assert_eq!(
            verdict(b"#! /absent/python3 -u\nprint()"),
            Err(Unsuitable::Interpreter("/absent/python3".into(), Errno::ENOENT))
        );
        assert_eq!(verdict(b"hello"), Err(Unsuitable::NotElf));
        assert_eq!(verdict(b""), Err(Unsuitable::NotElf));
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        executable(dir.path(), "0", &elf(2, 2, 62, 1, b"code"));
        let mut last = path("0");
        for number in 1..=MAX_SCRIPTS + 1 {
            let line = format!("#! {} {number}\n", last.display());
            last = executable(dir.path(), &number.to_string(), line.as_bytes());
        }
        let open_number = |number: usize| open(&path(&number.to_string())).unwrap();
        let mut scripts = Scripts::new();
        follow(open_number(2), &mut scripts).unwrap();
        let arguments: Vec<_> =
            scripts.arguments().map(|text| text.to_str().unwrap().to_string()).collect();
        let named = |number: &str| path(number).display().to_string();
        assert_eq!(arguments, [named("0"), "1".into(), named("1"), "2".into()]);
        assert!(follow(open_number(MAX_SCRIPTS), &mut Scripts::new()).is_ok());
        let failure = follow(open_number(MAX_SCRIPTS + 1), &mut Scripts::new()).unwrap_err();
        assert_eq!(failure, (path("1"), Unsuitable::TooManyScripts));
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        fs::create_dir_all(first.join("tool")).unwrap();
        fs::create_dir_all(&second).unwrap();
        fs::write(first.join("data"), "not executable").unwrap();
        let tool = executable(&second, "tool", b"x");
        let path = env::join_paths([Path::new("/nonexistent"), &first, &second]).unwrap();
        let find = |name: &str| find(name.as_ref(), Some(path.clone())).map(|found| found.path);
        assert_eq!(find("tool"), Ok(tool.clone()), "a directory of that name is passed over");
        assert_eq!(find(tool.to_str().unwrap()), Ok(tool));
        assert_eq!(find("data"), Err(Errno::EACCES));
        assert_eq!(find("absent"), Err(Errno::ENOENT));
        assert_eq!(find("/absent/tool"), Err(Errno::ENOENT));
        assert_eq!(find(""), Err(Errno::ENOENT));
        assert_eq!(find(second.to_str().unwrap()), Err(Errno::EACCES));
    }
}
