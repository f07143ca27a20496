// SPDX-License-Identifier: MIT OR Apache-2.0
//! The room of a socket for what waits in it.

use crtos_core::sync::SpinLock;

use crate::abi::Errno;

/// Puts a queue that `make` makes in the place of one. As under Linux, what waits stays, of which
/// `make` is told the number; if there is more by then, it makes another one. May sleep.
pub fn change<Q>(
    place: &SpinLock<Q>,
    len: impl Fn(&Q) -> usize,
    make: impl Fn(usize) -> Result<Q, Errno>,
    take_all: impl Fn(&mut Q, &mut Q) -> bool,
) -> Result<(), Errno> {
    loop {
        let others = len(&place.lock());
        let mut fresh = make(others)?;
        let mut queue = place.lock();
        let has_all = take_all(&mut fresh, &mut queue);
        if has_all {
            core::mem::swap(&mut *queue, &mut fresh);
        }
        // What is not used any more is freed with interrupts on.
        drop(queue);
        if has_all {
            return Ok(());
        }
    }
}
