// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing and copying descriptors.

use crtos_core::task;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use super::{elsewhere, local};
use crate::{
    abi::{Args, Errno, SysResult},
    files,
    process::{ThreadExt as _, lapse, threads},
    remote::{self, pass},
};

/// close(fd).
pub fn close(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    if let Err(error) = lapse::refuse()
        && !files.is_hidden(args[0])
    {
        return Err(error);
    }
    match files.remove(args[0]) {
        (Some(file), _) => {
            drop(file);
            Ok(0)
        }
        (None, false) => Err(Errno::EBADF),
        // Made in any case: the number is free from here on.
        (None, true) => {
            files.sets.put(args[0], None);
            remote::linux(row.number.into(), &args).inspect_err(|&error| {
                if error == Errno::EBADF {
                    // The shadow keeps some for itself.
                    files.doubt();
                }
            })
        }
    }
}

/// Flags of close_range(2).
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// close_range(first, last, flags).
pub fn close_range(row: &Row, args: Args) -> SysResult {
    let [first, last, flags] = [args[0], args[1], args[2]].map(|argument| argument as u32);
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    // Nobody gets a table of its own; who has one needs none.
    if flags & CLOSE_RANGE_UNSHARE != 0
        && !task::current().user().is_some_and(|user| threads::has_files_alone(&user.process))
    {
        return Err(Errno::EINVAL);
    }
    let flags = flags & !CLOSE_RANGE_UNSHARE;
    let args = [args[0], args[1], flags.into(), 0, 0, 0];
    let files = files::table()?;
    let mut from = first;
    while let Some(number) = files.next_local(from).filter(|&number| number <= last) {
        match flags {
            0 => drop(files.remove(number.into())),
            _ => files.set_close_on_exec(number.into(), true),
        }
        from = number + 1;
    }
    // Placeholders may be closed by it as well; the next agreement finds that out.
    files.agree()?;
    let result = pass(row, args)?;
    if flags == 0 {
        files.forget(first, last);
        files.sets.close(first, last);
    }
    Ok(result)
}

/// dup(fd).
pub fn dup(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    Ok(files::table()?.insert(file, 0, false)?.into())
}

/// dup2(old, new).
pub fn dup2(row: &Row, args: Args) -> SysResult {
    if args[0] as u32 == args[1] as u32 && files::find(args[0]).is_some() {
        return Ok(args[0]);
    }
    replace(row, args, false)
}

/// dup3(old, new, flags).
pub fn dup3(row: &Row, args: Args) -> SysResult {
    if args[2] as u32 & !linux::O_CLOEXEC != 0 || args[0] as u32 == args[1] as u32 {
        return Err(Errno::EINVAL);
    }
    replace(row, args, args[2] as u32 & linux::O_CLOEXEC != 0)
}

pub(super) fn replace(row: &Row, args: Args, close_on_exec: bool) -> SysResult {
    let files = files::table()?;
    let new = args[1] as u32;
    let Some(file) = files.find(args[0]) else {
        if files.is_hidden(args[0]) {
            return Err(Errno::EBADF);
        }
        files.sets.may_copy(args[0])?;
        let result = pass(row, args)?;
        if args[0] as u32 != new {
            // Linux's file has taken the place of a placeholder, if there was one.
            drop(files.remove(args[1]));
            files.settle(args[1])?;
            files.sets.put(args[1], files.sets.get(args[0]));
        }
        return Ok(result);
    };
    if !files.is_allowed(new) {
        return Err(Errno::EBADF);
    }
    files.make_sure()?;
    if files.is_remote(new) && remote::linux(linux::__NR_close, &[args[1]]) == Err(Errno::EBADF) {
        // One that the shadow keeps for itself.
        return Err(Errno::EBADF);
    }
    files.sets.put(new.into(), None);
    drop(files.insert_at(new, file, close_on_exec)?);
    Ok(new.into())
}
