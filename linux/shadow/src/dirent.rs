// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of directories, as getdents64(2) returns them.

use core::mem::offset_of;

use linux_raw_sys::general::linux_dirent64;

/// Bytes of an entry before its name.
pub const HEAD: usize = offset_of!(linux_dirent64, d_name);

/// An entry of a directory.
pub struct Entry<'a> {
    /// Bytes that the entry takes.
    pub size: usize,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads the entry that `bytes` begin with; `None` if they do not contain all of it.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let size = size(bytes)?;
        let name = bytes.get(HEAD..size)?.split(|&byte| byte == 0).next()?;
        Some(Self { size, name })
    }
}

/// Returns the size of the entry whose head `bytes` begin with; `None` if that is no size.
pub fn size(bytes: &[u8]) -> Option<usize> {
    const AT: usize = offset_of!(linux_dirent64, d_reclen);
    let size = bytes.get(AT..AT + 2)?.try_into().ok()?;
    Some(usize::from(u16::from_le_bytes(size))).filter(|&size| size > HEAD)
}
