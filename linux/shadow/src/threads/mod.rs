// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shadow threads: one for each thread of the program. Each serves its slot ([`crate::serve`]).

mod local;
mod scratch;

use core::{arch::global_asm, ffi::c_void, ptr, sync::atomic::AtomicU32};

use crtos_abi::{
    channel::MOST_NEW_THREADS,
    ids::{Pid, Tid},
};
use crtos_channel::{Heritage, Slot, operation::FirstMade};
use linux_raw_sys::general as linux;

pub use local::{FIRST, FORWARDED, Local, forget_others, own};
pub use scratch::Scratch;

use crate::{
    device,
    process::Child,
    serve, signals, startup,
    sys::{self, Errno, process::wait_for},
};
use local::Parent;

unsafe extern "C" {
    /// Makes a thread or a process (clone(2)). It runs [`run`] on an empty stack that ends at
    /// `stack`, with FS at `own`. Linux clears `tid` when it ends.
    fn crtos_clone(
        flags: u64,
        stack: u64,
        tid: *const AtomicU32,
        own: *const c_void,
        pidfd: u64,
    ) -> i64;
}

global_asm!(
    "crtos_clone:",
    "mov r10, rdx",
    "mov rdx, r8",
    "mov r8, rcx",
    "mov eax, {clone}",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "call {run}",
    "ud2",
    clone = const linux::__NR_clone,
    run = sym run,
);

/// What a shadow thread shares with the others.
const OF_THREADS: u64 = (linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_THREAD
    | linux::CLONE_SYSVSEM) as u64;

/// Makes up to `count` threads that wait in the realm for work, with that heritage. Returns the
/// first, or an error if there is none.
pub fn create(
    count: u64,
    heritage: Heritage,
    startup: &'static startup::Block,
) -> Result<FirstMade, Errno> {
    let mut made = [None; MOST_NEW_THREADS as usize];
    let mut error = Errno::EINVAL;
    for place in made.iter_mut().take(count.min(MOST_NEW_THREADS) as usize) {
        match start(OF_THREADS, 0, None, heritage, startup) {
            Ok(started) => *place = Some(started),
            Err(why) => {
                error = why;
                break;
            }
        }
    }
    let mut first = None;
    for (local, id) in made.into_iter().flatten() {
        match (local.wait_for_start(), Tid::new(id)) {
            (Ok(slot), Some(tid)) => first = first.or(Some(FirstMade { slot, tid })),
            (Err(why), _) => error = why,
            (Ok(_), None) => error = Errno::EIO,
        }
    }
    first.ok_or(error)
}

/// Makes a child that shares all memory, for the thread of `slot`: it is a thread here, and a
/// process to Linux. Returns its pid, once it has a process in the realm.
pub fn fork_sharing(
    slot: Slot,
    child: &Child,
    startup: &'static startup::Block,
) -> Result<Pid, Errno> {
    // A signal between clone and the child's own slot would be forwarded for the parent.
    let mask = signals::block(u64::MAX);
    let parent = Parent { slot, mask };
    let made = start(child.flags(), child.pidfd(), Some(parent), Heritage::FIRST, startup);
    let result = made.and_then(|(local, id)| {
        let pid = Pid::new(id).ok_or(Errno::EIO)?;
        local.wait_for_start().map(|_| pid).inspect_err(|_| wait_for(pid))
    });
    signals::block(mask);
    result
}

/// Starts a thread, or with `parent` a process, in a free block. Returns its id, too. `flags` are
/// [`OF_THREADS`] or those of a [`Child`] that shares all memory.
fn start(
    flags: u64,
    pidfd: u64,
    parent: Option<Parent>,
    heritage: Heritage,
    startup: &'static startup::Block,
) -> Result<(&'static Local, u32), Errno> {
    let local = Local::take()?;
    local.prepare(startup, parent, heritage);
    let flags = flags | u64::from(linux::CLONE_SETTLS | linux::CLONE_CHILD_CLEARTID);
    // SAFETY: the new thread has a stack of its own, and FS at a `Local` of its own. The block
    // stays theirs until Linux clears `tid`. Linux writes at `pidfd` only for a `Child`, which has
    // checked the address.
    let made = unsafe {
        let own = ptr::from_ref(local).cast();
        crtos_clone(flags, local.stack_end(), local.tid(), own, pidfd)
    };
    let made = sys::split(made).inspect_err(|_| local.free())?;
    Ok((local, made as u32))
}

/// Runs a new thread.
extern "C" fn run() -> ! {
    let own = own();
    let parent = own.parent();
    let slot = device::join(parent.map(|parent| parent.slot), own.heritage());
    own.tell_start(slot);
    let (Ok(slot), Some(startup)) = (slot, own.startup()) else { exit() };
    if let Some(parent) = parent {
        signals::block(parent.mask);
    }
    // SAFETY: a process that makes threads is in the realm.
    unsafe { serve::serve(slot, startup) }
}

/// Ends the calling thread, which has left the realm.
pub fn exit() -> ! {
    signals::block(u64::MAX);
    loop {
        // SAFETY: the call does not return. Linux frees the block, and nothing of the shadow refers
        // to the stack of another thread.
        let _ = unsafe { sys::call(linux::__NR_exit, [0]) };
    }
}
