// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for a frame while it is made: of the usual length on the stack, of a jumbo frame in the
//! heap.

use alloc::vec::Vec;

use crtos_core::mm::heap;
use crtos_nic::card::USUAL_LONGEST;

use crate::abi::Errno;

/// Has `work` do something with a buffer of so many bytes, which are zero. ENOBUFS if there is no
/// memory for a long one. Thread context.
pub fn with_buffer<R>(
    length: usize,
    work: impl FnOnce(&mut [u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    if length <= USUAL_LONGEST {
        return work(&mut [0; USUAL_LONGEST][..length]);
    }
    let mut buffer = Vec::new();
    if !heap::makes_room(&mut buffer, length) {
        return Err(Errno::ENOBUFS);
    }
    buffer.resize(length, 0);
    work(&mut buffer)
}
