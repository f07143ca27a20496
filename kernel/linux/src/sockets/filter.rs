// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters of sockets (socket(7), SO_ATTACH_FILTER): a program of classic BPF says which of what
//! comes a socket gets, and how much of that.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::UserAddr;
use crtos_core::{mm::heap, sync::SpinLock};
use crtos_nic::filter::{self, Frame, Program};
use linux_raw_sys::net;

use super::common::Common;
use crate::{abi::Errno, files::socket::Foreign, memory::user};

/// Bytes of a `struct sock_fprog`.
const PROGRAM: usize = 16;

/// The filter of a socket, if it has one.
pub struct Filter {
    /// Whether there is one, so that who has none takes no lock.
    is_there: AtomicBool,
    program: SpinLock<Option<Arc<Program>>>,
}

impl Filter {
    /// That one, or none.
    pub fn new(program: Option<Arc<Program>>) -> Self {
        let is_there = AtomicBool::new(program.is_some());
        Self { is_there, program: SpinLock::new(program) }
    }

    /// How many bytes of what `frame` makes are wanted; 0 for none of it. Thread context; bounded.
    #[inline(always)]
    pub fn run<'a>(&self, frame: impl FnOnce() -> Frame<'a>) -> usize {
        match self.is_there.load(Ordering::Relaxed) {
            true => self.run_program(&frame()),
            false => usize::MAX,
        }
    }

    #[inline(never)]
    fn run_program(&self, frame: &Frame) -> usize {
        // The last use of it may be this one.
        self.get().map_or(usize::MAX, |program| program.run(frame) as usize)
    }

    /// The one that decides.
    pub fn get(&self) -> Option<Arc<Program>> {
        self.program.lock().clone()
    }

    /// Has that one decide, or none; returns the one that did. Thread context.
    pub fn set(&self, program: Option<Arc<Program>>) -> Option<Arc<Program>> {
        let mut place = self.program.lock();
        self.is_there.store(program.is_some(), Ordering::Relaxed);
        core::mem::replace(&mut *place, program)
    }
}

/// The filter of a socket of Linux's.
pub fn of(foreign: &Foreign) -> Result<Option<Arc<Program>>, Errno> {
    let bytes = foreign.filter()?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let program = Program::new(&bytes).map_err(|_| Errno::EINVAL)?;
    Ok(Some(Arc::new(program)))
}

/// The filter that a program gives as a `struct sock_fprog`. May sleep.
fn given(value: &[u8]) -> Result<Arc<Program>, Errno> {
    let value: &[u8; PROGRAM] = value.try_into().map_err(|_| Errno::EINVAL)?;
    let count = usize::from(u16::from_ne_bytes([value[0], value[1]]));
    let at = value[8..].first_chunk().map_or(0, |at| u64::from_ne_bytes(*at));
    if count == 0 || count > filter::MOST || at == 0 {
        return Err(Errno::EINVAL);
    }
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let mut bytes = alloc::vec![0; count * filter::SIZE];
    user::read(UserAddr::new(at), &mut bytes)?;
    let program = Program::new(&bytes).map_err(|_| Errno::EINVAL)?;
    Ok(Arc::new(program))
}

/// setsockopt(2) with SOL_SOCKET, if that is about filters. `set` has a filter decide, or none, and
/// returns the one that did. May sleep.
pub fn set_option(
    common: &Common,
    name: u32,
    value: &[u8],
    set: impl FnOnce(Option<Arc<Program>>) -> Option<Arc<Program>>,
) -> Option<Result<(), Errno>> {
    if !matches!(name, net::SO_ATTACH_FILTER | net::SO_DETACH_FILTER | net::SO_LOCK_FILTER) {
        return None;
    }
    Some(change(common, name, value, set))
}

fn change(
    common: &Common,
    name: u32,
    value: &[u8],
    set: impl FnOnce(Option<Arc<Program>>) -> Option<Arc<Program>>,
) -> Result<(), Errno> {
    let number = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
    if name == net::SO_LOCK_FILTER && number != 0 {
        common.lock_filter();
        return Ok(());
    }
    if name == net::SO_ATTACH_FILTER && value.len() != PROGRAM {
        return Err(Errno::EINVAL);
    }
    if common.has_locked_filter() {
        return Err(Errno::EPERM);
    }
    match name {
        net::SO_ATTACH_FILTER => drop(set(Some(given(value)?))),
        net::SO_DETACH_FILTER => drop(set(None).ok_or(Errno::ENOENT)?),
        _ => {}
    }
    Ok(())
}

/// The option that asks for the filter is the one that sets it, by another structure.
const _: () = assert!(net::SO_GET_FILTER == net::SO_ATTACH_FILTER);
