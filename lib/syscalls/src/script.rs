// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts: files whose first line names the program that interprets them (execve(2); Linux's
//! `fs/binfmt_script.c`).

use core::ffi::CStr;

use arrayvec::ArrayVec;

/// Bytes at the start of a file that decide whether it is a script.
pub const START_BYTES: usize = 256;

/// The most scripts that interpret each other; the next interpreter has to be a program.
pub const MAX_SCRIPTS: usize = 5;

/// The first line of a script.
#[derive(Clone, Debug)]
pub struct Line {
    /// The start of the file, with a zero behind the name and one behind the argument.
    text: [u8; START_BYTES],
    interpreter: usize,
    argument: Option<usize>,
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

impl Line {
    /// Reads the start of a file, which is shorter than [`START_BYTES`] only if the file is. `None`
    /// if it is not a script, or names no interpreter.
    pub fn parse(start: &[u8]) -> Option<Self> {
        const LAST: usize = START_BYTES - 1;
        let mut text = [0; START_BYTES];
        let length = start.len().min(START_BYTES);
        text[..length].copy_from_slice(&start[..length]);
        text.strip_prefix(b"#!")?;
        let find = |from: usize, to: usize, wanted: fn(u8) -> bool| {
            (from..=to).find(|&at| wanted(text[at]))
        };
        let is_end = |byte| is_blank(byte) || byte == 0;

        let mut end = match find(0, LAST, |byte| byte == b'\n' || byte == 0) {
            Some(at) if text[at] == b'\n' => at,
            _ => {
                // The line goes on behind the start. The name has to end within it: otherwise it
                // may go on as well.
                let name = find(2, LAST, |byte| !is_blank(byte))?;
                find(name, LAST, is_end)?;
                LAST
            }
        };
        while is_blank(text[end - 1]) {
            end -= 1;
        }
        let interpreter = find(2, end, |byte| !is_blank(byte)).filter(|&at| at != end)?;
        let behind = find(interpreter, end, is_end).filter(|&at| text[at] != 0);
        let argument = behind.and_then(|behind| find(behind, end, |byte| !is_blank(byte)));
        text[end] = 0;
        if let (Some(behind), Some(_)) = (behind, argument) {
            text[behind] = 0;
        }
        Some(Self { text, interpreter, argument })
    }

    fn string(&self, at: usize) -> &CStr {
        CStr::from_bytes_until_nul(&self.text[at..]).unwrap_or_default()
    }

    /// Returns the path of the interpreter.
    pub fn interpreter(&self) -> &CStr {
        self.string(self.interpreter)
    }

    /// Returns the one argument that it gets before the path of the script.
    pub fn argument(&self) -> Option<&CStr> {
        self.argument.map(|at| self.string(at))
    }
}

/// Scripts, of which each is the interpreter of the one before. The interpreter of the last one is
/// a program.
#[derive(Clone, Debug, Default)]
pub struct Scripts {
    lines: ArrayVec<Line, MAX_SCRIPTS>,
}

/// There are more than [`MAX_SCRIPTS`] (ELOOP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl Scripts {
    /// Makes an empty list: the file is a program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the interpreter of the script before, which is a script as well. Returns the path of
    /// its interpreter.
    pub fn add(&mut self, line: Line) -> Result<&CStr, TooMany> {
        self.lines.try_push(line).map_err(|_| TooMany)?;
        self.lines.last().map(Line::interpreter).ok_or(TooMany)
    }

    /// Says whether there are no scripts.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the arguments that take the place of argument 0; the path of the first script
    /// follows them.
    pub fn arguments(&self) -> impl Iterator<Item = &CStr> {
        self.lines
            .iter()
            .rev()
            .flat_map(|line| [Some(line.interpreter()), line.argument()])
            .flatten()
    }
}
