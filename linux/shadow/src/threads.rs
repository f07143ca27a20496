// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shadow threads: one for each thread of the program.
//!
//! Each has a block of memory in the shadow's range with what belongs to the thread alone, to which
//! FS points, and its stack. The first thread has its stack in the image and a block without one. A
//! block is free when Linux has cleared its `tid` at the end of its thread (CLONE_CHILD_CLEARTID).

use core::{
    arch::{asm, global_asm},
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use crtos_abi::{
    channel::{MOST_NEW_THREADS, SHADOW_START, SLOTS},
    ioctl::IOC_THREAD,
};
use linux_raw_sys::{errno, general as linux};

use crate::{
    serve, signals, startup,
    sys::{self, Errno},
};

/// What belongs to one thread; FS points to it.
#[repr(C, align(64))]
pub struct Local {
    /// 1 after a signal was forwarded, until the next call; see [`crate::signals`].
    pub forwarded: u64,
    /// Address of this structure.
    this: u64,
    /// Nonzero while the block is in use.
    tid: AtomicU32,
    /// How the thread started: [`STARTING`], then its slot, or an error number (negative).
    started: AtomicU32,
    /// What the program was started with.
    startup: AtomicU64,
    /// 1 + slot of the thread that made this one a process of its own, or 0.
    parent: AtomicU32,
    /// The signals that are blocked when it starts to serve.
    mask: AtomicU64,
    /// Memory for a call that prepares something, its address and length. It is here so that
    /// whoever executes a program in shared memory does not leave it behind.
    scratch: AtomicU64,
    scratch_length: AtomicU64,
}

/// Offset of [`Local::forwarded`], for assembly.
pub const FORWARDED: usize = core::mem::offset_of!(Local, forwarded);
const THIS: usize = core::mem::offset_of!(Local, this);

const STARTING: u32 = i32::MIN as u32;

/// Where the blocks lie, and how far apart: the thread's own at the start, a page that is not
/// mapped, the stack up to the end.
const BLOCKS: u64 = SHADOW_START + 0x8000_0000;
const BLOCK_SIZE: u64 = 64 * 1024;
const OWN_SIZE: u64 = 4096;
const STACK_OFFSET: u64 = 2 * OWN_SIZE;

#[repr(C)]
struct First(UnsafeCell<Local>);

// SAFETY: the first thread alone uses what is not atomic.
unsafe impl Sync for First {}

static FIRST: First = First(UnsafeCell::new(Local {
    forwarded: 0,
    this: 0,
    tid: AtomicU32::new(1),
    started: AtomicU32::new(0),
    startup: AtomicU64::new(0),
    parent: AtomicU32::new(0),
    mask: AtomicU64::new(0),
    scratch: AtomicU64::new(0),
    scratch_length: AtomicU64::new(0),
}));

/// Blocks that have been mapped.
static MAPPED: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// Gives the first thread its own. To be called before anything that may take a signal.
pub fn set_up_first() {
    let own = FIRST.0.get();
    // SAFETY: nobody else has looked at it yet; FS is used for nothing else in this program.
    unsafe {
        (*own).this = own as u64;
        sys::raw(linux::__NR_arch_prctl, [ARCH_SET_FS, own as u64, 0, 0, 0, 0]);
    }
}

const ARCH_SET_FS: u64 = 0x1002;

/// The calling thread's own.
pub fn own() -> *mut Local {
    let own;
    // SAFETY: FS points to the thread's `Local`.
    unsafe {
        asm!("mov {}, fs:[{this}]", out(reg) own, this = const THIS, options(nostack, preserves_flags, readonly))
    };
    own
}

unsafe extern "C" {
    fn crtos_clone(
        flags: u64,
        stack: u64,
        tid: *const AtomicU32,
        own: *const Local,
        pidfd: u64,
    ) -> i64;
}

// The new thread starts on an empty stack, with its `Local` behind FS.
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

/// Makes up to `count` threads that wait in the realm for work. Returns the slot of the first, or
/// an error if there is none.
pub fn create(count: u64, startup: &startup::Block) -> i64 {
    let mut made = [core::ptr::null(); MOST_NEW_THREADS as usize];
    let mut error = -i64::from(errno::EINVAL);
    let mut number = 0;
    for place in made.iter_mut().take(count.min(MOST_NEW_THREADS) as usize) {
        match start(OF_THREADS, 0, 0, startup) {
            Ok((own, _)) => *place = own,
            Err(Errno(why)) => {
                error = -i64::from(why);
                break;
            }
        }
        number += 1;
    }
    let mut first = None;
    for &own in &made[..number] {
        let slot = wait_for_start(own);
        if slot >= 0 {
            first.get_or_insert(slot);
        } else {
            error = slot;
        }
    }
    first.unwrap_or(error)
}

/// What a shadow thread shares with the others.
const OF_THREADS: u64 = (linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_THREAD
    | linux::CLONE_SYSVSEM) as u64;

/// Forks with CLONE_VM: the child is a thread here, and a process to Linux. As
/// [`crate::process::fork`].
pub fn fork_sharing(slot: u32, flags: u64, pidfd: u64, startup: &startup::Block) -> i64 {
    // A signal between clone and the child's own slot would be forwarded for the parent.
    let mask = signals::block(u64::MAX);
    // SAFETY: the thread's own.
    unsafe { (*own()).mask.store(mask, Ordering::Relaxed) };
    let started = start(flags, slot + 1, pidfd, startup);
    let result = match started {
        Err(Errno(error)) => -i64::from(error),
        Ok((own, child)) => match wait_for_start(own) {
            error if error < 0 => {
                sys::wait_for(child);
                error
            }
            _ => child as i64,
        },
    };
    signals::block(mask);
    result
}

/// Starts a thread, or with `parent` a process, in a free block. Returns its id, too.
fn start(
    flags: u64,
    parent: u32,
    pidfd: u64,
    startup: &startup::Block,
) -> Result<(*const Local, u64), Errno> {
    let block = take_block()?;
    let local = block as *mut Local;
    let tid = (block as usize + core::mem::offset_of!(Local, tid)) as *const AtomicU32;
    // SAFETY: the block is mapped and this thread's alone, until the new thread runs.
    unsafe {
        (*local).forwarded = 0;
        (*local).this = block;
        (*local).startup.store(startup as *const startup::Block as u64, Ordering::Relaxed);
        (*local).parent.store(parent, Ordering::Relaxed);
        (*local).mask.store((*own()).mask.load(Ordering::Relaxed), Ordering::Relaxed);
        (*local).started.store(STARTING, Ordering::Relaxed);
        free_scratch(&*local);
    }
    let flags = flags | u64::from(linux::CLONE_SETTLS | linux::CLONE_CHILD_CLEARTID);
    // SAFETY: the stack is the block's own; the block stays until Linux clears `tid`.
    let created = unsafe { crtos_clone(flags, block + BLOCK_SIZE, tid, local, pidfd) };
    if created < 0 {
        // SAFETY: the block is mapped for good, and its word an atomic.
        unsafe { (*local).tid.store(0, Ordering::Release) };
        return Err(Errno(created.unsigned_abs() as u32));
    }
    Ok((local, created as u64))
}

/// Waits until the thread has a slot, and returns that, or its error.
fn wait_for_start(own: *const Local) -> i64 {
    // SAFETY: blocks are never unmapped.
    let (started, tid) = unsafe { (&(*own).started, &(*own).tid) };
    loop {
        let is_gone = tid.load(Ordering::Acquire) == 0;
        let value = started.load(Ordering::Acquire);
        if value != STARTING {
            return i64::from(value as i32);
        }
        if is_gone {
            // It was killed before it came that far.
            return -i64::from(errno::EAGAIN);
        }
        futex(started, linux::FUTEX_WAIT | linux::FUTEX_PRIVATE_FLAG, STARTING);
    }
}

/// How long a wait takes at most: 10 ms, as a `struct timespec`.
static PATIENCE: [u64; 2] = [0, 10_000_000];

/// futex(2); -ETIMEDOUT after a while.
pub fn futex(word: &AtomicU32, operation: u32, value: u32) -> i64 {
    let time = PATIENCE.as_ptr() as u64;
    let args = [word.as_ptr() as u64, operation.into(), value.into(), time, 0, 0];
    // SAFETY: Linux reads the word and the time.
    unsafe { sys::raw(linux::__NR_futex, args) }
}

/// Where a new thread starts.
extern "C" fn run() -> ! {
    let own = own();
    // SAFETY: `start` has filled it in; the first thread's block of strings lives as long as the
    // process.
    let (startup, started, parent, mask) = unsafe {
        let startup = (*own).startup.load(Ordering::Relaxed) as *const startup::Block;
        let parent = (*own).parent.load(Ordering::Relaxed);
        (&*startup, &(*own).started, parent, (*own).mask.load(Ordering::Relaxed))
    };
    // SAFETY: the argument is a number.
    let slot = match unsafe { sys::ioctl(sys::device(), IOC_THREAD, parent.into()) } {
        Ok(slot) => slot as u32,
        Err(Errno(error)) => (error as i32).wrapping_neg() as u32,
    };
    started.store(slot, Ordering::Release);
    futex(started, linux::FUTEX_WAKE | linux::FUTEX_PRIVATE_FLAG, 1);
    if (slot as i32) < 0 {
        exit();
    }
    if parent != 0 {
        signals::block(mask);
    }
    serve::serve(slot, startup)
}

/// Ends the calling thread, which has left the realm.
pub fn exit() -> ! {
    signals::block(u64::MAX);
    loop {
        // SAFETY: does not return. Linux frees the block.
        unsafe { sys::raw(linux::__NR_exit, [0; 6]) };
    }
}

/// In the child of a fork: the other threads are not there.
pub fn forget_others() {
    for index in 0..SLOTS {
        let block = BLOCKS + index as u64 * BLOCK_SIZE;
        let mapped = MAPPED[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0;
        if mapped && block != own() as u64 {
            // SAFETY: mapped, and nobody's.
            unsafe { (*(block as *const Local)).tid.store(0, Ordering::Relaxed) };
        }
    }
}

/// Memory of the calling thread's, until [`give_scratch`].
pub fn take_scratch(length: usize) -> Result<*mut u8, Errno> {
    give_scratch();
    let memory = sys::map_anywhere(length as u64)?;
    // SAFETY: the thread's own.
    let own = unsafe { &*own() };
    own.scratch_length.store(length as u64, Ordering::Relaxed);
    own.scratch.store(memory as u64, Ordering::Relaxed);
    Ok(memory)
}

/// Gives up what [`take_scratch`] gave.
pub fn give_scratch() {
    // SAFETY: the thread's own.
    free_scratch(unsafe { &*own() });
}

fn free_scratch(local: &Local) {
    let memory = local.scratch.swap(0, Ordering::Relaxed);
    if memory != 0 {
        // SAFETY: the thread gives up its scratch memory.
        unsafe { sys::unmap(memory, local.scratch_length.load(Ordering::Relaxed)) };
    }
}

/// Takes the first free block; maps it if it never was.
fn take_block() -> Result<u64, Errno> {
    for index in 0..SLOTS {
        let block = BLOCKS + index as u64 * BLOCK_SIZE;
        let (word, bit) = (&MAPPED[index / 64], 1 << (index % 64));
        if word.load(Ordering::Acquire) & bit == 0 {
            match map(block) {
                // Another thread maps it right now.
                Err(Errno(errno::EEXIST)) => continue,
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            // SAFETY: freshly mapped zeros, which nobody else knows before the bit is set.
            unsafe { (*(block as *const Local)).tid.store(1, Ordering::Relaxed) };
            word.fetch_or(bit, Ordering::AcqRel);
            return Ok(block);
        }
        // SAFETY: mapped, for good.
        let tid = unsafe { &(*(block as *const Local)).tid };
        if tid.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(block);
        }
    }
    Err(Errno(errno::EAGAIN))
}

fn map(block: u64) -> Result<(), Errno> {
    sys::map_memory(block, OWN_SIZE)?;
    sys::map_memory(block + STACK_OFFSET, BLOCK_SIZE - STACK_OFFSET).map(|_| ())
}
