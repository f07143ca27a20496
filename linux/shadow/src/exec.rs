// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executing another program: what the realm can load goes on there, everything else in Linux.

use core::{convert::Infallible, ffi::CStr};

use crtos_abi::UserAddr;
use crtos_syscalls::{
    exec::{HEADER_BYTES, Image, MAX_INTERPRETER},
    script::{Line, START_BYTES, Scripts},
};
use linux_raw_sys::general as linux;

use crtos_syscalls::choices::Choices;

use crate::{
    decimal::{self, Decimal},
    device, own,
    program::Memory,
    signals, startup,
    sys::{
        self, Errno,
        file::{self, Owned, Path},
    },
    threads::Scratch,
};

/// What execve(2) was called with.
#[derive(Clone, Copy)]
pub struct Request {
    /// The path.
    pub path: UserAddr,
    /// The argument vector.
    pub arguments: UserAddr,
    /// The environment.
    pub environment: UserAddr,
    /// The descriptor by which the path names the file (execveat(2)).
    pub descriptor: Option<u32>,
}

/// The shadow's own executable.
const ITSELF: &CStr = c"/proc/self/exe";

/// Executes the program of a request, with the signals of `blocked` blocked. Returns only an error.
///
/// What the realm can load goes on there: this shadow executes itself with it. Everything else goes
/// on in Linux, unless `in_realm_only`: then the error is [`Errno::IN_LINUX`].
pub fn exec(request: Request, blocked: u64, in_realm_only: bool) -> Errno {
    match try_exec(request, blocked, in_realm_only) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn try_exec(request: Request, blocked: u64, in_realm_only: bool) -> Result<Infallible, Errno> {
    let Request { path, arguments, environment, .. } = request;
    let mut scripts = Scripts::new();
    let Some(program) = find(request, &mut scripts)? else {
        if in_realm_only && file::may_execute(path) {
            return Err(Errno::IN_LINUX);
        }
        return Err(execve(path.into(), arguments.get(), environment, blocked));
    };
    let device = Owned::new(device::reopen(own::device(), 0)?);
    let numbers = [&device, &program.executable].map(|fd| Decimal::new(fd.fd() as u32));
    let vector = build(&program, &scripts, &numbers)?;
    Err(execve(ITSELF.into(), vector.address(), environment, blocked))
}

/// Makes execve(2). Returns only an error.
fn execve(path: Path<'_>, arguments: u64, environment: UserAddr, blocked: u64) -> Errno {
    signals::block(blocked);
    signals::inherit_interrupts(true);
    let args = [path.argument(), arguments, environment.get()];
    // SAFETY: Linux reads the name and the strings. If the call succeeds, nothing of this thread is
    // left, nor of its memory if it does not share that.
    let result = unsafe { sys::call(linux::__NR_execve, args) };
    signals::inherit_interrupts(false);
    signals::block(0);
    result.err().unwrap_or(Errno::EIO)
}

/// A program that the realm can load.
struct Program {
    executable: Owned,
    path: UserAddr,
    arguments: UserAddr,
    choices: Choices,
}

/// Opens the executable that a request is for, or the one that interprets it if there are `scripts`
/// in between. `None` if the realm cannot load it, or if Linux refuses it.
fn find(request: Request, scripts: &mut Scripts) -> Result<Option<Program>, Errno> {
    let Request { path, arguments, descriptor, .. } = request;
    loop {
        let name = scripts.arguments().next().map_or(Path::from(path), Path::from);
        // What is no file must not keep it waiting.
        let opened = file::open(name, linux::O_RDONLY | linux::O_NONBLOCK);
        let Ok(executable) = opened.map(Owned::new) else { return Ok(None) };
        if is_shadow(executable.fd()) {
            if file::is_path_of_file(name) {
                drop(executable);
                return if scripts.is_empty() { of_shadow(arguments) } else { Ok(None) };
            }
            // /proc/self/exe is the shadow to Linux, but the program means itself.
            file::replace(file::copy(own::executable())?, executable.fd(), 0)?;
        }
        if !file::may_execute(name) {
            return Ok(None);
        }
        if let Some(line) = script(executable.fd()) {
            // The interpreter would not find it.
            let is_closed = |fd| file::is_closed_on_exec(fd as i32);
            if scripts.is_empty() && descriptor.is_some_and(is_closed) {
                return Err(Errno::ENOENT);
            }
            if scripts.add(line).is_err() {
                return Ok(None);
            }
        } else if is_loadable(executable.fd()) {
            let choices = startup::choices();
            return Ok(Some(Program { executable, path, arguments, choices }));
        } else {
            return Ok(None);
        }
    }
}

/// Returns the program that a shadow with the argument vector `arguments` is for: `crtos run` in a
/// program of the realm executes that program. `None` if `crtos run` makes no such vector, or the
/// realm cannot load the program.
///
/// What `crtos run` opened for the shadow is closed when the program is executed.
fn of_shadow(arguments: UserAddr) -> Result<Option<Program>, Errno> {
    const WORDS: usize = 4;
    let mut words = [UserAddr::NULL; WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = UserAddr::new(entry(arguments, index as u64)?);
        if word.is_null() {
            return Ok(None);
        }
    }
    let [name, device, executable, path] = words;
    let (Some(device), Some(executable)) = (number_at(device), number_at(executable)) else {
        return Ok(None);
    };
    let own = own::both();
    if own.contains(&device) || own.contains(&executable) || !is_loadable(executable) {
        return Ok(None);
    }
    let copy = Owned::new(file::copy(executable)?);
    for fd in [device, executable] {
        file::close_on_exec(fd);
    }
    Ok(Some(Program {
        executable: copy,
        path,
        arguments: arguments.wrapping_add((WORDS * size_of::<u64>()) as u64),
        choices: startup::choices().and(choices_at(name)),
    }))
}

/// Reads the number of a descriptor in digits.
fn number_at(address: UserAddr) -> Option<i32> {
    let mut room = [0; 16];
    address.read_text(&mut room).ok().and_then(decimal::parse)
}

/// Reads what the name of a shadow says.
fn choices_at(address: UserAddr) -> Choices {
    let mut room = [0; Choices::LONGEST_NAME];
    address.read_text(&mut room).map_or(Choices::default(), Choices::from_name)
}

/// Reads the first line of a script.
fn script(fd: i32) -> Option<Line> {
    let mut start = [0; START_BYTES];
    let length = file::read_at(fd, &mut start, 0).ok()?;
    Line::parse(&start[..length])
}

/// Tells whether the realm can load a program, and the interpreter that it asks for.
fn is_loadable(fd: i32) -> bool {
    let Some(image) = headers(fd) else { return false };
    let Some(interpreter) = image.interpreter else { return true };
    let mut room = [0; MAX_INTERPRETER as usize];
    let name = &mut room[..interpreter.length as usize];
    if file::read_at(fd, name, interpreter.offset) != Ok(name.len()) || name.last() != Some(&0) {
        return false;
    }
    let Ok(name) = CStr::from_bytes_until_nul(name) else { return false };
    let opened = file::open(name, linux::O_RDONLY | linux::O_CLOEXEC).map(Owned::new);
    opened.is_ok_and(|interpreter| headers(interpreter.fd()).is_some())
}

/// Reads the headers of an executable.
fn headers(fd: i32) -> Option<Image> {
    let mut start = [0; HEADER_BYTES];
    let length = file::read_at(fd, &mut start, 0).ok()?;
    Image::parse(&start[..length]).ok()
}

/// Tells whether a descriptor is the executable of the shadow itself.
fn is_shadow(fd: i32) -> bool {
    let itself = file::open(ITSELF, linux::O_RDONLY).map(Owned::new);
    itself.is_ok_and(|itself| file::are_same(itself.fd(), fd))
}

/// Most entries of the argument vector of an execve.
const VECTOR_ENTRIES: usize = 1 << 18;

/// Builds `shadow DEVICE EXECUTABLE PATH ARGUMENTS…`, of `numbers`, the program's own strings, and
/// those of `scripts`: the result has their addresses.
fn build(program: &Program, scripts: &Scripts, numbers: &[Decimal; 2]) -> Result<Scratch, Errno> {
    let mut vector = Scratch::take(VECTOR_ENTRIES)?;
    let mut places = vector.words_mut().iter_mut();
    let mut add = |word: u64| {
        *places.next().ok_or(Errno::E2BIG)? = word;
        Ok(())
    };
    let address = |text: &CStr| text.as_ptr() as u64;
    add(address(program.choices.name()))?;
    for number in numbers {
        add(address(number.text()))?;
    }
    add(program.path.get())?;
    let first = entry(program.arguments, 0)?;
    if scripts.is_empty() {
        // As in Linux, there is always a first argument.
        add(if first == 0 { address(c"") } else { first })?;
    } else {
        scripts.arguments().try_for_each(|argument| add(address(argument)))?;
        add(program.path.get())?;
    }
    let mut index = 1;
    let mut word = first;
    while word != 0 {
        word = entry(program.arguments, index)?;
        add(word)?;
        index += 1;
    }
    Ok(vector)
}

/// Reads an entry of an argument vector of the program; 0 if there is no vector.
fn entry(arguments: UserAddr, index: u64) -> Result<u64, Errno> {
    match arguments.is_null() {
        true => Ok(0),
        false => arguments.wrapping_add(8 * index).read_word(),
    }
}
