// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file each number has, found without a lock.
//!
//! Who looks a file up does so with interrupts off and names it in a word of its CPU ([`PerCpu::file_in_use`]) instead of taking
//! a reference. Who takes a file away waits, before the reference is given back, until no CPU names it: that is for as
//! long as somebody uses it who found it before, a bounded number of steps with interrupts off.
//!
//! [`PerCpu::file_in_use`]: crate::arch::percpu::PerCpu

use alloc::{boxed::Box, sync::Arc};
use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crtos_files::WORDS;

use super::Description;
use crate::{
    arch::{cpu, percpu},
    mm::heap,
    syscall::Errno,
    task,
};

/// A reference to a file, or null.
type Place = AtomicPtr<Description>;

/// The places of 64 numbers.
type Chunk = [Place; 64];

/// The files of all numbers.
pub struct Places {
    /// Those of the lowest numbers, which most programs make do with.
    first: Chunk,
    /// Of the others: null, or a chunk that stays until the end.
    further: [AtomicPtr<Chunk>; WORDS - 1],
}

impl Default for Places {
    /// No number has a file.
    fn default() -> Self {
        Self {
            first: [const { AtomicPtr::new(ptr::null_mut()) }; 64],
            further: [const { AtomicPtr::new(ptr::null_mut()) }; WORDS - 1],
        }
    }
}

impl Places {
    fn place(&self, number: u32) -> Option<&Place> {
        self.first.get(number as usize).or_else(|| self.further_place(number))
    }

    fn further_place(&self, number: u32) -> Option<&Place> {
        let chunk = self.further.get((number as usize / 64).checked_sub(1)?)?;
        // SAFETY: a chunk stays until the end of this, and its places are atomic.
        Some(unsafe { &chunk.load(Ordering::Acquire).as_ref()?[number as usize % 64] })
    }

    /// Calls `f` with the file of `number`, or says `none`. Interrupts are off; `f` takes a bounded number of steps, and takes no file away.
    #[inline(always)]
    pub fn with<R>(&self, number: u32, none: R, f: impl FnOnce(&Description) -> R) -> R {
        match self.first.get(number as usize) {
            Some(place) => with_file(place, none, f),
            None => self.with_further(number, none, f),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_further<R>(&self, number: u32, none: R, f: impl FnOnce(&Description) -> R) -> R {
        match self.further_place(number) {
            Some(place) => with_file(place, none, f),
            None => none,
        }
    }

    /// A reference to the file of `number`. Any context.
    pub fn get(&self, number: u32) -> Option<Arc<Description>> {
        let interrupts = cpu::disable_interrupts();
        let file = self.with(number, None, |file| {
            // SAFETY: the place has a reference, which is not given back meanwhile.
            unsafe {
                Arc::increment_strong_count(file);
                Some(Arc::from_raw(file))
            }
        });
        cpu::restore_interrupts(interrupts);
        file
    }

    /// Whether `number` has a file.
    pub fn has(&self, number: u32) -> bool {
        self.place(number).is_some_and(|place| !place.load(Ordering::Relaxed).is_null())
    }

    /// Whether `number` has a place.
    pub fn has_room(&self, number: u32) -> bool {
        self.place(number).is_some()
    }

    /// Makes a place for `number`. Allocates.
    pub fn make_room(&self, number: u32) -> Result<(), Errno> {
        let Some(index) = (number as usize / 64).checked_sub(1) else { return Ok(()) };
        let Some(chunk) = self.further.get(index) else { return Err(Errno::EMFILE) };
        if !chunk.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let fresh = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; 64]));
        let put =
            chunk.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: it came from a box, and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        Ok(())
    }

    /// Gives `number`, which has a place, a file or none. What it had before is to be dropped without a lock. Those who call this
    /// exclude each other.
    pub fn put(&self, number: u32, file: Option<Arc<Description>>) -> Option<Removed> {
        let place = self.place(number)?;
        let file = file.map_or(ptr::null(), Arc::into_raw);
        NonNull::new(place.swap(file.cast_mut(), Ordering::SeqCst)).map(Removed)
    }
}

/// Calls `f` with the file of a place; see [`Places::with`].
#[inline(always)]
fn with_file<R>(place: &Place, none: R, f: impl FnOnce(&Description) -> R) -> R {
    let mut file = place.load(Ordering::Acquire);
    loop {
        // SAFETY: it was there after it had been named, so that whoever takes it away waits.
        let Some(found) = (unsafe { file.as_ref() }) else {
            percpu::use_no_file();
            return none;
        };
        percpu::use_file(file);
        let now = place.load(Ordering::SeqCst);
        if now == file {
            let result = f(found);
            percpu::use_no_file();
            return result;
        }
        file = now;
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        give_back(&mut self.first);
        for chunk in &mut self.further {
            let chunk = *chunk.get_mut();
            if !chunk.is_null() {
                // SAFETY: it came from a box, and nobody uses it any more.
                let mut chunk = unsafe { Box::from_raw(chunk) };
                give_back(&mut chunk);
            }
        }
    }
}

/// Gives back the references of places that nobody uses any more.
fn give_back(chunk: &mut Chunk) {
    for file in chunk.iter_mut().filter_map(|place| NonNull::new(*place.get_mut())) {
        drop(Removed(file));
    }
}

/// The reference of a place that was taken away. When it is dropped, the file is not used any more by those who found it there.
pub struct Removed(NonNull<Description>);

// SAFETY: it stands for an `Arc`, which can be sent.
unsafe impl Send for Removed {}

impl Drop for Removed {
    fn drop(&mut self) {
        for cpu in task::online().iter().filter_map(percpu::of) {
            while cpu.file_in_use.load(Ordering::SeqCst) == self.0.as_ptr() {
                core::hint::spin_loop();
            }
        }
        // SAFETY: the place had this reference.
        Description::give_back(unsafe { Arc::from_raw(self.0.as_ptr()) });
    }
}
