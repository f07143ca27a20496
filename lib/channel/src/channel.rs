// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel, seen through atomics.
//!
//! Both realms write to it at any time, so no reference to its contents is ever made: each word is
//! reached through an atomic of its own. All `unsafe` of this crate is here.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence},
};

use crtos_abi::{
    ABI_VERSION, channel as raw,
    hypercall::DOORBELL_ANYWHERE,
    ids::{Pid, RealmCpu},
};

use crate::slot::Slot;

/// A word of the channel: `word!(channel, AtomicU32, field.path)`.
macro_rules! word {
    ($channel:expr, $atomic:ty, $($path:tt)+) => {{
        let base = $channel.base();
        // SAFETY: `Channel::new` vouches for the channel for as long as the kernel lives; indices
        // in the path are checked by the array type; the field has the atomic's size and, by
        // repr(C), its alignment; nobody reaches it but through atomics.
        unsafe { <$atomic>::from_ptr((&raw mut (*base).$($path)+).cast()) }
    }};
}
pub(crate) use word;

/// The memory that both realms map, as the kernel sees it.
#[derive(Clone, Copy, Debug)]
pub struct Channel(NonNull<raw::Channel>);

// SAFETY: the channel is shared memory that is only reached through atomics.
unsafe impl Send for Channel {}
// SAFETY: every access through a shared reference is an atomic one.
unsafe impl Sync for Channel {}

/// Why a channel cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// There is no channel at the address.
    Magic(u64),
    /// Linux speaks this other version of the interface.
    Version(u32),
}

/// The CPU of Linux on which a doorbell is to ring, by Linux's number. A hint, which may be any
/// number: the hypervisor checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellCpu(pub(crate) u64);

impl DoorbellCpu {
    /// No CPU in particular: the doorbell rings at home.
    pub const ANY: Self = Self(DOORBELL_ANYWHERE);

    /// Returns the word that names it to the hypervisor.
    pub const fn to_word(self) -> u64 {
        self.0
    }
}

/// What Linux has told of a thread beside the state of its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// The shadow thread is gone; Linux keeps nothing of it.
    pub gone: bool,
    /// A signal has arrived; see [`Channel::take_signal`].
    pub signal: bool,
    /// The shadow thread is stopped; another notice comes when it goes on.
    pub stopped: bool,
    /// The process ends in Linux, where nobody hears of that yet.
    pub leaving: bool,
}

impl Notices {
    /// Whether the shadow thread ends, or has ended.
    pub fn tell_of_end(&self) -> bool {
        self.gone || self.leaving
    }
}

impl Channel {
    /// The channel at `base`.
    ///
    /// # Safety
    /// `base` is valid for reads and writes, aligned, for as long as any copy of the result is
    /// used, and everyone in this realm reaches it through this crate or other atomics alone.
    pub const unsafe fn new(base: NonNull<raw::Channel>) -> Channel {
        Channel(base)
    }

    pub(crate) fn base(&self) -> *mut raw::Channel {
        self.0.as_ptr()
    }

    /// The words of the virtual Ethernet's memory that hold so many bytes from a multiple of 8 on.
    pub(crate) fn ethernet_words(&self, offset: u64, bytes: usize) -> &[AtomicU64] {
        let count = bytes.div_ceil(8);
        assert!(offset.is_multiple_of(8) && offset + 8 * count as u64 <= Self::ETHERNET);
        let base = self.base();
        // SAFETY: as in `word!`: the words lie in that field, all of whose bytes are integers, and
        // are aligned as it is.
        unsafe {
            let first = (&raw const (*base).ethernet).cast::<AtomicU64>().add(offset as usize / 8);
            core::slice::from_raw_parts(first, count)
        }
    }

    /// Checks that Linux has prepared the channel for this version of the interface.
    pub fn attach(&self) -> Result<(), AttachError> {
        let magic = word!(self, AtomicU64, magic).load(Ordering::Acquire);
        if magic != raw::CHANNEL_MAGIC {
            return Err(AttachError::Magic(magic));
        }
        match word!(self, AtomicU32, abi_version).load(Ordering::Relaxed) {
            ABI_VERSION => Ok(()),
            version => Err(AttachError::Version(version)),
        }
    }

    /// Stores `KERNEL_*`.
    pub fn set_kernel_state(&self, state: u32) {
        word!(self, AtomicU32, kernel_state).store(state, Ordering::Release);
    }

    /// Bit per slot of word `index` (below [`raw::SLOT_WORDS`]) for which Linux stored something
    /// that was not taken.
    ///
    /// To be looked at after each doorbell and after each fall of a rank. Any context.
    pub fn replies(&self, index: usize) -> u64 {
        word!(self, AtomicU64, replies[index]).load(Ordering::Relaxed)
    }

    /// The process id, in Linux's first pid namespace, of the shadow that `slot` belongs to, if it
    /// is one.
    pub fn pid(&self, slot: Slot) -> Option<Pid> {
        Pid::new(word!(self, AtomicU32, slots[slot.get()].pid).load(Ordering::Relaxed))
    }

    /// Takes the bit of `slot`; false if somebody else did. What Linux stored before it set the bit
    /// is visible then.
    pub fn take_reply(&self, slot: Slot) -> bool {
        let bit = slot.bit();
        word!(self, AtomicU64, replies[slot.word()]).fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Sets the bit that tells Linux to look at `slot`.
    pub(crate) fn mark_request(&self, slot: Slot) {
        word!(self, AtomicU64, requests[slot.word()]).fetch_or(slot.bit(), Ordering::AcqRel);
    }

    /// Notices of `slot`, which stay until they are taken or the slot is freed.
    pub fn notices(&self, slot: Slot) -> Notices {
        let bits = word!(self, AtomicU32, slots[slot.get()].notices).load(Ordering::Acquire);
        Notices {
            gone: bits & raw::SLOT_GONE != 0,
            signal: bits & raw::SLOT_SIGNAL != 0,
            stopped: bits & raw::SLOT_STOPPED != 0,
            leaving: bits & raw::SLOT_LEAVING != 0,
        }
    }

    /// Takes the signal that arrived at `slot`, if there is one: the start of its `siginfo`, whose
    /// number is one of a signal. One caller at a time for each slot.
    pub fn take_signal(&self, slot: Slot) -> Option<[u64; 6]> {
        if !self.notices(slot).signal {
            return None;
        }
        let info = core::array::from_fn(|index| {
            word!(self, AtomicU64, slots[slot.get()].info[index]).load(Ordering::Relaxed)
        });
        word!(self, AtomicU32, slots[slot.get()].notices)
            .fetch_and(!raw::SLOT_SIGNAL, Ordering::AcqRel);
        (1..=64).contains(&(info[0] as u32)).then_some(info)
    }

    /// Asks Linux to interrupt the system call of `slot`; the doorbell has to be rung next. Any
    /// context.
    pub fn interrupt(&self, slot: Slot) {
        word!(self, AtomicU32, slots[slot.get()].interrupt).store(1, Ordering::Release);
        self.mark_request(slot);
    }

    /// The CPU of Linux on which the shadow thread of `slot` waits, as Linux says. A doorbell that
    /// rings elsewhere wakes that thread as well.
    #[inline]
    pub fn waits_on(&self, slot: Slot) -> DoorbellCpu {
        let word = word!(self, AtomicU32, slots[slot.get()].waits_on).load(Ordering::Relaxed);
        DoorbellCpu(word.into())
    }

    /// Counts a doorbell that the kernel is about to ring. Everything stored before is visible to
    /// Linux when it takes the doorbell.
    pub fn count_doorbell_sent(&self) {
        word!(self, AtomicU64, doorbells_sent).fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a doorbell that `cpu` has taken.
    pub fn count_doorbell_taken(&self, cpu: RealmCpu) {
        word!(self, AtomicU64, doorbells_taken[cpu.get()]).fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes memory in use: pages of the pool, bytes of the heap.
    pub fn publish_memory(&self, pool_pages: u64, pool_free: u64, heap_size: u64, heap_used: u64) {
        word!(self, AtomicU64, pool_pages).store(pool_pages, Ordering::Relaxed);
        word!(self, AtomicU64, pool_free).store(pool_free, Ordering::Relaxed);
        word!(self, AtomicU64, heap_size).store(heap_size, Ordering::Relaxed);
        word!(self, AtomicU64, heap_used).store(heap_used, Ordering::Relaxed);
    }

    /// Publishes how long `cpu` was idle, nanoseconds.
    pub fn publish_idle(&self, cpu: RealmCpu, nanoseconds: u64) {
        word!(self, AtomicU64, idle_time[cpu.get()]).store(nanoseconds, Ordering::Relaxed);
    }

    /// Publishes that the caller of the request that is out in `slot`, if one is, has another rank
    /// from now on. Says whether there is a reply, which may have brought no doorbell, as after
    /// [`Channel::lower_rank`]. A full barrier before and after; any context.
    pub fn set_rank(&self, slot: Slot, rank: u32) -> bool {
        fence(Ordering::SeqCst);
        word!(self, AtomicU32, slots[slot.get()].rank).store(rank, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.replies(slot.word()) & slot.bit() != 0
    }

    /// Publishes what `cpu` runs from now on, which has a higher rank; see [`crate::rank`].
    #[inline]
    pub fn raise_rank(&self, cpu: RealmCpu, rank: u32) {
        word!(self, AtomicU32, ranks[cpu.get()]).store(rank, Ordering::Relaxed);
    }

    /// Publishes what `cpu` runs from now on, which has a lower rank. A full barrier.
    ///
    /// [`Channel::replies`] has to be looked at afterwards: a reply that came before the fall
    /// brought no doorbell. The barrier pairs with Linux's between its bit and its reading of the
    /// rank.
    #[inline]
    pub fn lower_rank(&self, cpu: RealmCpu, rank: u32) {
        word!(self, AtomicU32, ranks[cpu.get()]).store(rank, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn result(&self, slot: Slot) -> i64 {
        word!(self, AtomicI64, slots[slot.get()].result).load(Ordering::Relaxed)
    }
}
