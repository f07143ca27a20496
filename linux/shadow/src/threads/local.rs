// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs to one shadow thread alone: a block of memory with a [`Local`] at its start, to
//! which FS points, and the stack.
//!
//! A block is mapped when it is first needed, and stays mapped. It is free when its [`Local::tid`]
//! is 0: Linux clears that at the end of the thread (CLONE_CHILD_CLEARTID). The first thread has a
//! [`Local`] and a stack in the image.

use core::{
    arch::asm,
    mem::offset_of,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use crtos_abi::channel::{SHADOW_START, SLOTS};
use crtos_channel::{Heritage, Slot};

use crate::{
    startup,
    sys::{
        self, Errno,
        futex::{self, Waiters},
        mapping::Mapping,
    },
};

/// What belongs to one thread. Everything is atomic, because a block may get a new thread while
/// others still look at it.
#[repr(C, align(64))]
pub struct Local {
    /// 1 after a signal was forwarded, until the next call; see [`crate::call`].
    pub forwarded: AtomicU64,
    /// Address of this structure.
    this: AtomicPtr<Local>,
    /// Nonzero while the block is in use.
    tid: AtomicU32,
    /// How the thread started: [`STARTING`], then its slot, or an error number (negative).
    started: AtomicU32,
    /// The start-up block of the program.
    startup: AtomicPtr<startup::Block>,
    /// 1 + slot of the thread that made this one a process of its own, or 0.
    parent: AtomicU32,
    /// With a parent: the signals that are blocked once it serves.
    mask: AtomicU64,
    /// What the thread inherited.
    heritage: AtomicU32,
    /// Address and length of the thread's scratch memory; the address is 0 if there is none.
    scratch: AtomicU64,
    scratch_length: AtomicUsize,
}

/// Offset of [`Local::forwarded`], for assembly.
pub const FORWARDED: usize = offset_of!(Local, forwarded);
const THIS: usize = offset_of!(Local, this);

/// In [`Local::started`]: the thread has no slot yet.
const STARTING: u32 = i32::MIN as u32;

/// Where the blocks lie, and how far apart. Each has the [`Local`] at its start, then a page that
/// is not mapped, then the stack up to its end.
const BLOCKS: u64 = SHADOW_START + 0x8000_0000;
const BLOCK_SIZE: u64 = 64 * 1024;
const OWN_SIZE: u64 = 4096;
const STACK_OFFSET: u64 = 2 * OWN_SIZE;

const _: () = assert!(size_of::<Local>() as u64 <= OWN_SIZE);

/// What belongs to the first thread. The entry of the program has FS point to it.
pub static FIRST: Local = Local {
    forwarded: AtomicU64::new(0),
    this: AtomicPtr::new((&raw const FIRST).cast_mut()),
    tid: AtomicU32::new(1),
    started: AtomicU32::new(0),
    startup: AtomicPtr::new(ptr::null_mut()),
    parent: AtomicU32::new(0),
    mask: AtomicU64::new(0),
    heritage: AtomicU32::new(0),
    scratch: AtomicU64::new(0),
    scratch_length: AtomicUsize::new(0),
};

/// The blocks that are mapped.
static MAPPED: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// Returns what belongs to the calling thread.
pub fn own() -> &'static Local {
    let own: *const Local;
    // SAFETY: FS points to the thread's `Local` from its first instruction in Rust on, and nothing
    // in this program changes FS. A `Local` is never unmapped.
    unsafe {
        asm!(
            "mov {}, fs:[{this}]",
            out(reg) own,
            this = const THIS,
            options(nostack, preserves_flags, readonly),
        );
        &*own
    }
}

/// What makes a thread a process of its own.
#[derive(Clone, Copy)]
pub struct Parent {
    /// Slot of the thread that made it.
    pub slot: Slot,
    /// The signals that are blocked once it serves.
    pub mask: u64,
}

impl Local {
    /// Takes the first free block, and maps it if it never was. EAGAIN if there is none.
    pub fn take() -> Result<&'static Self, Errno> {
        for index in 0..SLOTS {
            let Some(local) = Self::mapped(index) else {
                match map(index) {
                    // Another thread maps it right now.
                    Err(Errno::EEXIST) => continue,
                    result => return result,
                }
            };
            if local.tid.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(local);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Returns the start of a block, if that is mapped.
    fn mapped(index: usize) -> Option<&'static Self> {
        let is_mapped = MAPPED[index / 64].load(Ordering::Acquire) >> (index % 64) & 1 != 0;
        // SAFETY: blocks whose bit is set are mapped for good. They began as zeros, which are a
        // valid `Local`, and all that changes since are its atomics.
        is_mapped.then(|| unsafe { &*(block(index) as *const Self) })
    }

    /// Gives back a block whose thread does not exist.
    pub fn free(&self) {
        self.tid.store(0, Ordering::Release);
    }

    /// Fills in a block that was taken for a thread that is about to start.
    pub fn prepare(
        &'static self,
        startup: &'static startup::Block,
        parent: Option<Parent>,
        heritage: Heritage,
    ) {
        self.free_scratch();
        self.forwarded.store(0, Ordering::Relaxed);
        self.this.store(ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
        self.startup.store(ptr::from_ref(startup).cast_mut(), Ordering::Relaxed);
        let slot = Slot::to_word(parent.map(|parent| parent.slot));
        self.parent.store(slot, Ordering::Relaxed);
        self.mask.store(parent.map_or(0, |parent| parent.mask), Ordering::Relaxed);
        self.heritage.store(heritage.get(), Ordering::Relaxed);
        self.started.store(STARTING, Ordering::Relaxed);
    }

    /// Returns the start-up block that [`Self::prepare`] got, if it ever did.
    pub fn startup(&self) -> Option<&'static startup::Block> {
        // SAFETY: only `prepare` stores here, what it got as a reference for good.
        unsafe { self.startup.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns the parent that [`Self::prepare`] got.
    pub fn parent(&self) -> Option<Parent> {
        let slot = Slot::from_word(self.parent.load(Ordering::Relaxed))?;
        Some(Parent { slot, mask: self.mask.load(Ordering::Relaxed) })
    }

    /// Returns the heritage that [`Self::prepare`] got.
    pub fn heritage(&self) -> Heritage {
        Heritage::new(self.heritage.load(Ordering::Relaxed))
    }

    /// Returns the word that Linux clears at the end of the thread.
    pub fn tid(&self) -> *const AtomicU32 {
        &raw const self.tid
    }

    /// Returns the end of the stack in the block.
    pub fn stack_end(&self) -> u64 {
        ptr::from_ref(self) as u64 + BLOCK_SIZE
    }

    /// Tells whoever made the thread its slot, or why it has none.
    pub fn tell_start(&self, slot: Result<Slot, Errno>) {
        let word = sys::to_number(slot.map(|slot| slot.get() as u64)) as u32;
        self.started.store(word, Ordering::Release);
        futex::wake(&self.started, Waiters::Threads);
    }

    /// Waits until the thread has a slot, and returns that, or why it has none. EAGAIN if it was
    /// killed before it came that far.
    pub fn wait_for_start(&self) -> Result<Slot, Errno> {
        loop {
            let has_ended = self.tid.load(Ordering::Acquire) == 0;
            let word = self.started.load(Ordering::Acquire);
            if word != STARTING {
                let number = sys::split(i64::from(word as i32))?;
                return Slot::new(number as usize).ok_or(Errno::EIO);
            }
            if has_ended {
                return Err(Errno::EAGAIN);
            }
            // Whatever the reason is for which the wait ends: the loop looks again.
            let _ = futex::wait(&self.started, STARTING, Waiters::Threads);
        }
    }

    /// Notes scratch memory, so that whoever gets this block next can free it.
    pub fn note_scratch(&self, memory: &Mapping) {
        self.scratch_length.store(memory.length(), Ordering::Relaxed);
        self.scratch.store(memory.address(), Ordering::Relaxed);
    }

    /// Forgets the scratch memory, whose owner unmaps it.
    pub fn forget_scratch(&self) {
        self.scratch.store(0, Ordering::Relaxed);
    }

    /// Frees what the last thread of this block left behind.
    fn free_scratch(&self) {
        let address = self.scratch.swap(0, Ordering::Relaxed);
        if let Some(address) = NonNull::new(address as *mut u8) {
            let length = self.scratch_length.load(Ordering::Relaxed);
            // SAFETY: the owner notes and forgets it, so it was not dropped. It belonged to a
            // thread that does not exist any more.
            drop(unsafe { Mapping::take_over(address, length) });
        }
    }
}

/// In the child of a fork: the other threads are not there.
pub fn forget_others() {
    for local in (0..SLOTS).filter_map(Local::mapped).filter(|local| !ptr::eq(*local, own())) {
        local.tid.store(0, Ordering::Relaxed);
    }
}

/// Returns the address of a block.
const fn block(index: usize) -> u64 {
    BLOCKS + index as u64 * BLOCK_SIZE
}

/// Maps a block, in use. EEXIST if it is mapped.
fn map(index: usize) -> Result<&'static Local, Errno> {
    let address = block(index);
    let own = Mapping::at(address, OWN_SIZE as usize)?;
    let stack = Mapping::at(address + STACK_OFFSET, (BLOCK_SIZE - STACK_OFFSET) as usize)?;
    stack.leak();
    // SAFETY: the memory is large enough, aligned to a page and mapped for good. Zeros are a valid
    // `Local`, and nobody else knows it yet.
    let local = unsafe { &*own.leak().as_ptr().cast::<Local>() };
    local.tid.store(1, Ordering::Relaxed);
    MAPPED[index / 64].fetch_or(1 << (index % 64), Ordering::AcqRel);
    Ok(local)
}
