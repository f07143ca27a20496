// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hazard pointers: tables whose entries are looked up without a lock or a reference, from the fast
//! path of system calls too.
//!
//! A CPU names the object that it is about to use ([`PerCpu::in_use`]) and looks at the entry
//! again. Whoever takes an object out of its entry waits, when it drops the [`Removed`] one, until
//! no CPU names it. A CPU names one object at a time, with interrupts off and for a bounded number
//! of steps, so that this wait is short.
//!
//! [`PerCpu::in_use`]: crate::arch::percpu::PerCpu

use crate::arch::InterruptsOff;
use alloc::{boxed::Box, sync::Arc};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{arch::percpu, mm::heap, task};

/// What a handler of the fast path works for: the data that the calling thread carries. It is proof
/// that interrupts are off, and that nothing turns them on before the handler returns.
///
/// The entry makes it, and hands it to the handler.
#[repr(transparent)]
pub struct FastCall<'a, T>(&'a T, PhantomData<*mut ()>);

impl<'a, T> FastCall<'a, T> {
    /// What the thread carries.
    #[inline(always)]
    pub fn data(&self) -> &'a T {
        self.0
    }
}

impl<T> Deref for FastCall<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
    }
}

/// An object of a [`Table`].
pub trait Shared: Send + Sync {
    /// Gives a reference back. The default drops it.
    fn give_back(this: Arc<Self>) {
        drop(this);
    }
}

/// How an object is used: by a function that uses no other entry.
pub(crate) const BRIEFLY: bool = true;
/// How an object is used: by a function that may use others [`BRIEFLY`].
pub(crate) const AT_LENGTH: bool = false;

/// A reference to an object, or none.
pub(crate) struct Entry<T>(AtomicPtr<T>);

impl<T> Entry<T> {
    /// None.
    pub(crate) const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Calls `f` with the object, or says `none`. A use that is [`BRIEFLY`] may be inside of one
    /// that is [`AT_LENGTH`].
    ///
    /// # Safety
    /// Interrupts are off, and `f` does not turn them on. What is in the entry came from
    /// `Arc::into_raw`, and is given back by [`Removed`] alone, or was never shared. Inside of a
    /// use there is none of the same kind, and none at length inside of a brief one.
    #[inline(always)]
    pub(crate) unsafe fn with<const IS_BRIEF: bool, R>(
        &self,
        none: R,
        f: impl FnOnce(&T) -> R,
    ) -> R {
        let mut object = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: it is used only if it is still there after it has been named: then whoever
            // takes it away waits.
            let Some(found) = (unsafe { object.as_ref() }) else {
                percpu::use_no_object::<IS_BRIEF>();
                return none;
            };
            percpu::use_object::<IS_BRIEF>(object.cast());
            let now = self.0.load(Ordering::SeqCst);
            if now == object {
                let result = f(found);
                percpu::use_no_object::<IS_BRIEF>();
                return result;
            }
            object = now;
        }
    }

    /// The object, if there is one.
    ///
    /// # Safety
    /// The object is not taken away during the use of the result.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(&self) -> Option<&'a T> {
        // SAFETY: as the caller says.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a reference there, or none; returns what was there.
    pub(crate) fn replace(&self, object: Option<Arc<T>>) -> Option<NonNull<T>> {
        let object = object.map_or(ptr::null(), Arc::into_raw);
        NonNull::new(self.0.swap(object.cast_mut(), Ordering::SeqCst))
    }
}

/// Waits until no CPU names `object`, which is in no entry any more.
pub(crate) fn wait_until_unused<T>(object: NonNull<T>) {
    for cpu in task::online().iter().filter_map(percpu::of) {
        let object = object.as_ptr().cast();
        while cpu.in_use.iter().any(|word| word.load(Ordering::SeqCst) == object) {
            core::hint::spin_loop();
        }
    }
}

/// Entries of one chunk.
const CHUNK: usize = 64;

type Chunk<T> = [Entry<T>; CHUNK];

/// Why there is no entry for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// The table has no such number.
    Number,
    /// Memory is used up.
    Memory,
}

/// References to objects by number; numbers begin at 0, and there are `64 * (1 + FURTHER)` of them.
pub struct Table<T: Shared, const FURTHER: usize> {
    /// Those of the lowest numbers, which most tables make do with.
    first: Chunk<T>,
    /// Of the others: null, or a chunk that stays until the end.
    further: [AtomicPtr<Chunk<T>>; FURTHER],
}

impl<T: Shared, const FURTHER: usize> Default for Table<T, FURTHER> {
    /// No number has an object.
    fn default() -> Self {
        Self {
            first: [const { Entry::empty() }; CHUNK],
            further: [const { AtomicPtr::new(ptr::null_mut()) }; FURTHER],
        }
    }
}

impl<T: Shared, const FURTHER: usize> Table<T, FURTHER> {
    fn entry(&self, number: u32) -> Option<&Entry<T>> {
        self.first.get(number as usize).or_else(|| self.further_entry(number))
    }

    fn further_entry(&self, number: u32) -> Option<&Entry<T>> {
        let chunk = self.further.get((number as usize / CHUNK).checked_sub(1)?)?;
        // SAFETY: a chunk stays until the end of the table.
        Some(unsafe { &chunk.load(Ordering::Acquire).as_ref()?[number as usize % CHUNK] })
    }

    /// Calls `f` with the object of `number`, or says `none`. `f` takes a bounded number of steps.
    #[inline(always)]
    pub fn with<C, R>(
        &self,
        _: &mut FastCall<'_, C>,
        number: u32,
        none: R,
        f: impl FnOnce(&T) -> R,
    ) -> R {
        match self.first.get(number as usize) {
            // SAFETY: the call is proof that interrupts are and stay off; `put` and `drop` keep the
            // rest.
            Some(entry) => unsafe { entry.with::<AT_LENGTH, _>(none, f) },
            None => self.with_further(number, none, f),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_further<R>(&self, number: u32, none: R, f: impl FnOnce(&T) -> R) -> R {
        match self.further_entry(number) {
            // SAFETY: `with` is the only caller, for which this holds.
            Some(entry) => unsafe { entry.with::<AT_LENGTH, _>(none, f) },
            None => none,
        }
    }

    /// A reference to the object of `number`. Any context.
    pub fn get(&self, number: u32) -> Option<Arc<T>> {
        let entry = self.entry(number)?;
        let interrupts = InterruptsOff::take();
        // SAFETY: interrupts are off. The entry has a reference, which is not given back meanwhile.
        let object = unsafe {
            entry.with::<BRIEFLY, _>(None, |object| {
                Arc::increment_strong_count(object);
                Some(Arc::from_raw(object))
            })
        };
        drop(interrupts);
        object
    }

    /// Whether `number` has an object.
    pub fn has(&self, number: u32) -> bool {
        self.entry(number).is_some_and(|entry| !entry.0.load(Ordering::Relaxed).is_null())
    }

    /// Whether `number` has an entry.
    pub fn has_room(&self, number: u32) -> bool {
        self.entry(number).is_some()
    }

    /// Makes an entry for `number`. Allocates.
    pub fn make_room(&self, number: u32) -> Result<(), NoRoom> {
        let Some(index) = (number as usize / CHUNK).checked_sub(1) else { return Ok(()) };
        let Some(chunk) = self.further.get(index) else { return Err(NoRoom::Number) };
        if !chunk.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(NoRoom::Memory);
        }
        let fresh = Box::into_raw(Box::new([const { Entry::empty() }; CHUNK]));
        let put =
            chunk.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: it came from a box, and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        Ok(())
    }

    /// Gives `number`, which has an entry, an object or none. What it had before is to be dropped
    /// without a lock. Those who call this exclude each other.
    pub fn put(&self, number: u32, object: Option<Arc<T>>) -> Option<Removed<T>> {
        self.entry(number)?.replace(object).map(Removed)
    }
}

impl<T: Shared, const FURTHER: usize> Drop for Table<T, FURTHER> {
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

/// Gives back the references of entries that nobody uses any more.
fn give_back<T: Shared>(chunk: &mut Chunk<T>) {
    for object in chunk.iter_mut().filter_map(|entry| NonNull::new(*entry.0.get_mut())) {
        drop(Removed(object));
    }
}

/// The reference of an entry that was taken away. When it is dropped, the object is not used any
/// more by those who found it there.
pub struct Removed<T: Shared>(NonNull<T>);

// SAFETY: it stands for an `Arc` of something shared, which can be sent.
unsafe impl<T: Shared> Send for Removed<T> {}

impl<T: Shared> Deref for Removed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the reference that the entry had keeps it until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Shared> Drop for Removed<T> {
    fn drop(&mut self) {
        wait_until_unused(self.0);
        // SAFETY: the entry had this reference.
        T::give_back(unsafe { Arc::from_raw(self.0.as_ptr()) });
    }
}
