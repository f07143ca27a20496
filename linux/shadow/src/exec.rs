// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executing another program: what the realm can load goes on there, everything else in Linux.

use core::{ffi::CStr, slice};

use crtos_abi::channel::RESULT_IN_LINUX;
use crtos_syscalls::{
    exec::{HEADER_BYTES, Image, MAX_INTERPRETER},
    script::{Line, START_BYTES, Scripts},
};
use linux_raw_sys::{errno, general as linux};

use crate::{
    process, signals, startup,
    sys::{self, Errno},
    threads,
};

/// Executes the program at `path`. Returns only a failure.
///
/// What the realm can load goes on there: this shadow executes itself with it. Everything else goes
/// on in Linux, unless the realm wants to be asked first (`ask`).
pub fn exec(path: u64, arguments: u64, environment: u64, mask: u64, ask: bool) -> i64 {
    let mut scripts = Scripts::new();
    let result = prepare(path, arguments, &mut scripts).map(|vector| {
        if vector.is_none() && ask && may_execute(path) {
            return RESULT_IN_LINUX;
        }
        signals::block(mask);
        signals::inherit_interrupts(true);
        let program = [path, arguments, environment, 0, 0, 0];
        let itself = c"/proc/self/exe".as_ptr() as u64;
        let args =
            vector.as_ref().map_or(program, |vector| [itself, vector.start, environment, 0, 0, 0]);
        // SAFETY: on success nothing of this program is left; Linux checks the program's pointers.
        let result = unsafe { sys::raw(linux::__NR_execve, args) };
        if let Some(vector) = vector {
            sys::close(vector.device);
            sys::close(vector.executable);
        }
        signals::inherit_interrupts(false);
        signals::block(0);
        result
    });
    threads::give_scratch();
    result.unwrap_or_else(|Errno(error)| -i64::from(error))
}

/// The command line of the next shadow.
struct Vector {
    start: u64,
    device: i32,
    executable: i32,
}

/// A program that the realm can load.
struct Program {
    executable: i32,
    /// Addresses of its path and its argument vector.
    path: u64,
    arguments: u64,
    /// It knows the realm's CPUs by numbers of their own.
    renumbers: bool,
}

/// Makes the command line of the next shadow, if the realm can load the program. It refers to
/// `scripts`.
fn prepare(path: u64, arguments: u64, scripts: &mut Scripts) -> Result<Option<Vector>, Errno> {
    let Some(program) = find(path, arguments, scripts)? else { return Ok(None) };
    let executable = program.executable;
    let built =
        process::reopen(sys::device(), 0).and_then(|device| {
            build(&program, scripts, device)
                .inspect_err(|_| sys::close(device))
                .map(|start| Vector { start, device, executable })
        });
    built.map(Some).inspect_err(|_| sys::close(executable))
}

/// Opens the executable at `path`, or the one that interprets it if there are `scripts` in between.
/// `None` if the realm cannot load it, or Linux has something to say against it.
fn find(path: u64, arguments: u64, scripts: &mut Scripts) -> Result<Option<Program>, Errno> {
    let program =
        |executable| Program { executable, path, arguments, renumbers: startup::renumbers() };
    let mut name = path;
    loop {
        // What is no file must not keep it waiting.
        let Ok(mut executable) = sys::open(name, linux::O_RDONLY | linux::O_NONBLOCK) else {
            return Ok(None);
        };
        if is_shadow(executable) {
            if sys::is_path_of_file(name) {
                sys::close(executable);
                return if scripts.is_empty() { of_shadow(arguments) } else { Ok(None) };
            }
            // /proc/self/exe is the shadow to Linux; the program means itself.
            executable =
                sys::replace(sys::copy(sys::executable())?, executable, 0).map(|()| executable)?;
        }
        let script = may_execute(name).then(|| script(executable));
        if script.as_ref().is_some_and(Option::is_none) && is_loadable(executable) {
            return Ok(Some(program(executable)));
        }
        sys::close(executable);
        match script.flatten().map(|line| scripts.add(line)) {
            Some(Ok(interpreter)) => name = interpreter.as_ptr() as u64,
            _ => return Ok(None),
        }
    }
}

/// The program that a shadow with the argument vector at `arguments` is for: `crtos run` in a
/// program of the realm executes that program. `None` if `crtos run` makes no such vector, or the
/// realm cannot load the program.
///
/// What `crtos run` opened for the shadow is closed when the program is executed.
fn of_shadow(arguments: u64) -> Result<Option<Program>, Errno> {
    let mut words = [0; 4];
    for (index, word) in words.iter_mut().enumerate() {
        *word = entry(arguments, index as u64)?;
        if *word == 0 {
            return Ok(None);
        }
    }
    let [name, device, executable, path] = words;
    let (Some(device), Some(executable)) = (number_at(device), number_at(executable)) else {
        return Ok(None);
    };
    let own = sys::own();
    if own.contains(&device) || own.contains(&executable) || !is_loadable(executable) {
        return Ok(None);
    }
    let copy = sys::copy(executable)?;
    for fd in [device, executable] {
        sys::close_on_exec(fd);
    }
    Ok(Some(Program {
        executable: copy,
        path,
        arguments: arguments.wrapping_add(size_of_val(&words) as u64),
        renumbers: startup::renumbers() || is_renumbering(name),
    }))
}

/// The number of a descriptor whose digits lie at an address of the program.
fn number_at(address: u64) -> Option<i32> {
    let mut room = [0; NUMBERS / 2];
    sys::copy_in_text(address, &mut room).ok().and_then(startup::number)
}

/// Whether the text at an address of the program is what a shadow is called whose program knows the
/// realm's CPUs by numbers of their own.
fn is_renumbering(address: u64) -> bool {
    let mut room = [0; 32];
    sys::copy_in_text(address, &mut room).is_ok_and(|name| name == startup::shadow_name(true))
}

/// The first line of a script.
fn script(fd: i32) -> Option<Line> {
    let mut start = [0; START_BYTES];
    let length = usize::try_from(sys::pread(fd, &mut start, 0)).ok()?;
    Line::parse(&start[..length])
}

/// Whether the realm can load a program, and the interpreter that it asks for.
fn is_loadable(fd: i32) -> bool {
    let Some(image) = headers(fd) else { return false };
    let Some(interpreter) = image.interpreter else { return true };
    let mut name = [0; MAX_INTERPRETER as usize];
    let name = &mut name[..interpreter.length as usize];
    if sys::pread(fd, name, interpreter.offset) != name.len() as i64 || name.last() != Some(&0) {
        return false;
    }
    let opened = sys::open(name.as_ptr() as u64, linux::O_RDONLY | linux::O_CLOEXEC);
    opened.is_ok_and(|fd| {
        let found = headers(fd);
        sys::close(fd);
        found.is_some()
    })
}

/// What the headers of an executable say.
fn headers(fd: i32) -> Option<Image> {
    let mut start = [0; HEADER_BYTES];
    let length = usize::try_from(sys::pread(fd, &mut start, 0)).ok()?;
    Image::parse(&start[..length]).ok()
}

/// Whether the file at `path` may be executed.
fn may_execute(path: u64) -> bool {
    let args = [AT_FDCWD, path, X_OK, linux::AT_EACCESS.into(), 0, 0];
    // SAFETY: checks a permission by the effective ids.
    unsafe { sys::raw(linux::__NR_faccessat2, args) == 0 }
}

/// Whether a descriptor is the executable of the shadow itself.
fn is_shadow(fd: i32) -> bool {
    sys::open(c"/proc/self/exe".as_ptr() as u64, linux::O_RDONLY).is_ok_and(|own| {
        let same = sys::identity(own) == sys::identity(fd);
        sys::close(own);
        same
    })
}

const AT_FDCWD: u64 = -100_i64 as u64;
const X_OK: u64 = 1;

/// Most entries of the argument vector of an execve.
const VECTOR_ENTRIES: usize = 1 << 18;

/// Bytes of the two numbers on the command line.
const NUMBERS: usize = 32;

/// Builds `shadow DEVICE EXECUTABLE PATH ARGUMENTS…` with the program's own strings, and those of
/// `scripts`.
fn build(program: &Program, scripts: &Scripts, device: i32) -> Result<u64, Errno> {
    let Program { executable, path, arguments, renumbers } = *program;
    let base = threads::take_scratch(VECTOR_ENTRIES * 8)?;
    let numbers = [device, executable].map(|number| number as u32);
    let mut at = base;
    for number in numbers {
        // SAFETY: the two numbers take less than NUMBERS bytes at the start of the fresh memory.
        at = unsafe { process::write_number(at, number) };
    }
    let second = process::number_length(numbers[0]) + 1;
    let vector = base as u64 + NUMBERS as u64;
    let entries = VECTOR_ENTRIES - NUMBERS / 8;
    // SAFETY: the fresh memory has VECTOR_ENTRIES words, aligned to a page.
    let words = unsafe { slice::from_raw_parts_mut(vector as *mut u64, entries) };
    let mut filled = 0;
    let mut add = |word: u64| {
        let place = words.get_mut(filled).ok_or(Errno(errno::E2BIG))?;
        *place = word;
        filled += 1;
        Ok(())
    };
    let address = |text: &CStr| text.as_ptr() as u64;
    for word in
        [address(startup::shadow_name(renumbers)), base as u64, base as u64 + second as u64, path]
    {
        add(word)?;
    }
    let first = entry(arguments, 0)?;
    if scripts.is_empty() {
        // As Linux: there is always a first argument.
        add(if first == 0 { address(c"") } else { first })?;
    } else {
        scripts.arguments().try_for_each(|argument| add(address(argument)))?;
        add(path)?;
    }
    let mut index = 1;
    let mut word = first;
    while word != 0 {
        word = entry(arguments, index)?;
        add(word)?;
        index += 1;
    }
    Ok(vector)
}

/// An entry of the program's argument vector.
fn entry(arguments: u64, index: u64) -> Result<u64, Errno> {
    let mut word = [0; 8];
    if arguments != 0 {
        sys::copy_in(arguments.wrapping_add(8 * index), &mut word)?;
    }
    Ok(u64::from_le_bytes(word))
}
