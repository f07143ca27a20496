// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors in messages.

use crtos_abi::UserAddr;
use crtos_syscalls::Row;
use crtos_syscalls::structs::{CMsgHdr, MsgHdr};
use linux_raw_sys::net;

use super::remote;
use crate::{
    abi::{Args, Errno, SysResult},
    files,
    memory::user,
};

/// Bytes of a `struct mmsghdr`: one message of sendmmsg(2).
const MESSAGES: u64 = 64;

/// chroot, pivot_root, mount, umount2 and move_mount: the names of devices may lead elsewhere
/// afterwards.
pub fn rearrange(row: &Row, args: Args) -> SysResult {
    let result = remote(row, args)?;
    files::table()?.forget_devices();
    Ok(result)
}

/// As [`pass_rights`], of the `count` messages of sendmmsg(2).
pub(super) fn pass_all(messages: UserAddr, count: u64) -> Result<(), Errno> {
    /// Most messages of a call.
    const MOST: u64 = 1024;
    for index in 0..u64::from(count as u32).min(MOST) {
        pass_rights(messages.wrapping_add(index * MESSAGES))?;
    }
    Ok(())
}

/// Makes the local files among the descriptors that a message passes (SCM_RIGHTS) Linux's. EINVAL
/// for those that cannot leave the realm. What cannot be read, Linux complains of.
pub(super) fn pass_rights(message: UserAddr) -> Result<(), Errno> {
    const HEADER: u64 = size_of::<CMsgHdr>() as u64;
    /// Most descriptors of a message (SCM_MAX_FD).
    const MOST: u64 = 253;
    let files = files::table()?;
    if files.next_local(0).is_none() {
        return Ok(());
    }
    let Ok(message) = user::read_struct::<MsgHdr>(message) else { return Ok(()) };
    let mut at = UserAddr::new(message.control);
    let end = at.saturating_add(message.control_length);
    while at <= end && end - at >= HEADER {
        let Ok(CMsgHdr { length, level, kind }) = user::read_struct(at) else { return Ok(()) };
        let passes_rights = level == net::SOL_SOCKET && kind == net::SCM_RIGHTS;
        if length < HEADER || length > end - at {
            return Ok(());
        }
        for index in 0..((length - HEADER) / 4).min(if passes_rights { MOST } else { 0 }) {
            let Ok(fd) = user::read_u32(at + HEADER + index * 4) else { return Ok(()) };
            if files.find(fd.into()).is_some() && !files.leave(fd.into())? {
                crtos_core::warn!(
                    "descriptor {fd} is local to the realm and cannot be passed over a socket"
                );
                return Err(Errno::EINVAL);
            }
        }
        at = at.saturating_add(length.next_multiple_of(8));
    }
    Ok(())
}
