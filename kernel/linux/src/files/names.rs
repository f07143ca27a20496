// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that name descriptors of the process itself: `/dev/fd/N`, `/proc/self/fd/N`, `/dev/stdin`
//! and its relatives. Linux knows only a placeholder by them if the file is local.

use alloc::{format, vec::Vec};

use crtos_abi::{PAGE_SIZE, UserAddr, ids::Pid};

use crtos_core::mm::heap;

use crate::{abi::Errno, memory::user};

/// Most bytes of a path, with the zero at its end.
const LONGEST: usize = 4096;

/// The path at an address of the program, without the zero at its end.
pub fn read(path: UserAddr) -> Result<Vec<u8>, Errno> {
    let mut name = Vec::new();
    if !heap::lends(LONGEST) || name.try_reserve_exact(LONGEST).is_err() {
        return Err(Errno::ENOMEM);
    }
    while name.len() < LONGEST {
        let at = path.wrapping_add(name.len() as u64);
        // It may end where memory ends.
        let in_page = (PAGE_SIZE - at.get() % PAGE_SIZE) as usize;
        let known = name.len();
        name.resize((known + in_page).min(LONGEST), 0);
        user::read(at, &mut name[known..])?;
        if let Some(end) = name[known..].iter().position(|&byte| byte == 0) {
            name.truncate(known + end);
            return Ok(name);
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Bytes of a path that are looked at first.
const WORD: usize = 8;

fn start(path: UserAddr) -> Option<[u8; WORD]> {
    let mut start = [0; WORD];
    user::read(path, &mut start).ok()?;
    Some(start)
}

/// The descriptor whose link the path at an address of the program is.
pub fn link(path: UserAddr) -> Option<u64> {
    match &start(path)? {
        b"/dev/fd/" => number(path + WORD as u64),
        b"/proc/se" if follows(path + WORD as u64, b"lf/fd/") => number(path + 14),
        _ => None,
    }
}

/// The descriptor that the path at an address of the program leads to.
pub fn descriptor(path: UserAddr) -> Option<u64> {
    match &start(path)? {
        b"/dev/std" => [&b"in\0"[..], b"out\0", b"err\0"]
            .iter()
            .position(|rest| follows(path + WORD as u64, rest))
            .map(|number| number as u64),
        _ => link(path),
    }
}

/// Whether the path at an address of the program is `/proc/self/exe`, or `/proc/PID/exe` of this
/// `pid`. To Linux that is the shadow.
pub fn is_executable(path: UserAddr, pid: Pid) -> bool {
    const PROC: &[u8] = b"/proc/";
    match start(path) {
        Some(start) if &start == b"/proc/se" => follows(path + WORD as u64, b"lf/exe\0"),
        Some(start) if start.starts_with(PROC) => {
            let name = format!("{pid}/exe\0");
            follows(path + PROC.len() as u64, name.as_bytes())
        }
        _ => false,
    }
}

/// Whether the path at an address of the program is that of the mappings of this `pid`:
/// `/proc/self/maps`, `/proc/PID/maps`, or the same of a thread.
pub fn is_maps(path: UserAddr, pid: Pid) -> bool {
    const PROC: &[u8] = b"/proc/";
    const LONGEST: usize = 48;
    if start(path).is_none_or(|start| !start.starts_with(PROC)) {
        return false;
    }
    let at = (PROC.len() as u64..).map(|at| path + at);
    let mut text = [0; LONGEST];
    let mut length = 0;
    for (place, byte) in text.iter_mut().zip(at.map_while(byte).take_while(|&byte| byte != 0)) {
        *place = byte;
        length += 1;
    }
    let Ok(text) = core::str::from_utf8(&text[..length]) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('/') {
        Some(("thread-self", rest)) => rest == "maps",
        Some((whose, rest)) if whose == "self" || whose.parse() == Ok(pid.get()) => {
            let thread = rest.strip_prefix("task/").and_then(|rest| rest.strip_suffix("/maps"));
            rest == "maps" || thread.is_some_and(is_number)
        }
        _ => false,
    }
}

/// One byte: a path may end where memory ends.
fn byte(address: UserAddr) -> Option<u8> {
    let mut byte = [0];
    user::read(address, &mut byte).ok()?;
    Some(byte[0])
}

fn follows(address: UserAddr, text: &[u8]) -> bool {
    (0..).zip(text).all(|(at, &wanted)| byte(address + at) == Some(wanted))
}

/// The number, as /proc writes it, that is the rest of a path.
fn number(address: UserAddr) -> Option<u64> {
    /// Digits of the numbers that local files have.
    const MOST: u64 = 4;
    let mut number = 0;
    for index in 0..=MOST {
        match byte(address + index)? {
            0 if index > 0 => return Some(number),
            b'0' if number == 0 && index > 0 => return None,
            digit @ b'0'..=b'9' => number = number * 10 + u64::from(digit - b'0'),
            _ => return None,
        }
    }
    None
}
