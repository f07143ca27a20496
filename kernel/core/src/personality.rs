// SPDX-License-Identifier: MIT OR Apache-2.0
//! The personality: what makes of this kernel one that programs know, and the only way by which the
//! lower half calls the upper one.
//!
//! The upper half implements [`Personality`] and names it once by
//! [`personality!`](crate::personality!). That defines the symbols which this file declares, so
//! that calls upwards are direct ones and are inlined by the linker. A second personality does not
//! link: this is what makes the type of the data that threads carry ([`Carried`]) certain.

use alloc::boxed::Box;
use core::ptr;

use crtos_abi::ids::RealmCpu;

use crate::arch::interrupts::WayBack;
use crate::arch::{Exception, UserContext};
use crate::hazard::FastCall;
use crate::task::{Level, Thread};

/// What a handler of the fast path says, in RAX and RDX.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FastResult {
    result: u64,
    finished: u64,
}

impl FastResult {
    /// The call needs the full path; nothing has been changed.
    pub const FULL: Self = Self { result: 0, finished: 0 };

    /// The call is finished with this result.
    #[inline(always)]
    pub const fn done(result: u64) -> Self {
        Self { result, finished: 1 }
    }

    /// What the call has as its result, if it is finished.
    pub const fn result(self) -> Option<u64> {
        if self.finished != 0 { Some(self.result) } else { None }
    }

    /// The call is finished with this result if `finished`.
    #[inline(always)]
    pub const fn done_if(finished: bool, result: u64) -> Self {
        Self { result, finished: finished as u64 }
    }
}

/// A handler of the fast path: takes the first four arguments of a system call and what the calling
/// thread carries. Interrupts are off; it takes a bounded number of steps, and neither sleeps nor
/// allocates.
pub type FastHandler<T> = extern "sysv64" fn(u64, u64, u64, u64, FastCall<'_, T>) -> FastResult;

/// Numbers of system calls that may have a handler of the fast path: all below this one.
pub const FAST_NUMBERS: usize = 512;

/// The handlers of the fast path, by number.
pub type FastHandlers<T> = [FastHandler<T>; FAST_NUMBERS];

/// What the upper half does.
pub trait Personality: 'static {
    /// What a thread of a program carries for it.
    type Thread: Send + Sync;

    /// The handlers of the fast path.
    const FAST_HANDLERS: FastHandlers<Self::Thread>;

    /// Starts the upper half. Called once at boot, in a thread of the kernel.
    fn start();

    /// Serves the SYSCALL instruction of a program. Interrupts are on; may sleep.
    fn system_call(context: &mut UserContext);

    /// Is told that the calling thread's program has touched a page that is not there. Interrupts
    /// are on.
    fn page_fault();

    /// Deals with an exception of a program. Interrupts are on; may sleep.
    fn exception(context: &mut UserContext, exception: Exception);

    /// Does what `thread`, the calling one, has to do before it returns to user mode, where that
    /// needs no look at anything else ([`Thread::set_own_attention`]). Returns whether there was
    /// something. Interrupts are off before and after, and on in between as far as `way` turns them
    /// on.
    fn attend_own(context: &mut UserContext, thread: &Thread, way: &mut WayBack) -> bool;

    /// Does what is due before a return to user mode while the thread's attention flag is set
    /// ([`Thread::set_attention`]). Interrupts are on; may sleep.
    fn attend(context: &mut UserContext);

    /// Is told that the effective level of `thread`, which carries something, is `level` now. Says
    /// whether Linux may have stored something for it without ringing, so that a CPU has to look
    /// ([`Personality::rank_fell`]). Any context; a lock of the scheduler is held: bounded, wakes
    /// nobody.
    fn level_changed(thread: &Thread, level: Level) -> bool;

    /// Takes the doorbell's interrupt on `cpu`, this one, while it runs something of `rank`.
    /// Interrupts are off.
    fn doorbell(cpu: RealmCpu, rank: u32);

    /// Takes the interrupt of a peer of a link that has rung. Interrupts are off.
    fn link();

    /// Is told that the rank of what this CPU runs has fallen to `rank`, was stored in the
    /// channel, and that a full fence followed; or that of a thread has changed likewise.
    /// Interrupts are off; bounded; may wake threads.
    fn rank_fell(rank: u32);
}

/// A [`Personality`] that [`personality!`](crate::personality!) named.
///
/// # Safety
/// One type of a program implements this.
pub unsafe trait Bound: Personality {}

/// What a thread carries for the upper half: a value of [`Personality::Thread`], or nothing.
pub struct Carried {
    /// Null, or what `Box::into_raw` gave.
    value: *const (),
    drop: fn(*const ()),
}

// SAFETY: the value can be sent and shared, as `Personality::Thread` says.
unsafe impl Send for Carried {}
// SAFETY: as for `Send`.
unsafe impl Sync for Carried {}

impl Carried {
    /// Nothing, for threads of the kernel.
    pub const NOTHING: Self = Self { value: ptr::null(), drop: |_| () };

    /// `value`, on the heap.
    pub fn new<P: Bound>(value: P::Thread) -> Self {
        let drop = |value: *const ()| {
            // SAFETY: called once, by the only owner, with what `Box::into_raw` gave.
            core::mem::drop(unsafe { Box::from_raw(value.cast::<P::Thread>().cast_mut()) });
        };
        Self { value: Box::into_raw(Box::new(value)).cast_const().cast(), drop }
    }

    /// The value, if there is one.
    #[inline(always)]
    pub fn get<P: Bound>(&self) -> Option<&P::Thread> {
        // SAFETY: there is one `Bound` type, so `new` made the value of this type; it lives as long
        // as this.
        unsafe { self.value.cast::<P::Thread>().as_ref() }
    }

    /// Whether there is a value.
    #[inline(always)]
    pub(crate) fn is_something(&self) -> bool {
        !self.value.is_null()
    }

    /// The value's address, or null.
    pub(crate) fn as_ptr(&self) -> *const () {
        self.value
    }
}

impl Default for Carried {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if !self.value.is_null() {
            (self.drop)(self.value);
        }
    }
}

// Defined by `personality!`.
unsafe extern "Rust" {
    #[link_name = "crtos_personality_fast_handlers"]
    pub(crate) static FAST: [usize; FAST_NUMBERS];
    #[link_name = "crtos_personality_start"]
    pub(crate) safe fn start();
    #[link_name = "crtos_personality_system_call"]
    pub(crate) safe fn system_call(context: &mut UserContext);
    #[link_name = "crtos_personality_page_fault"]
    pub(crate) safe fn page_fault();
    #[link_name = "crtos_personality_exception"]
    pub(crate) safe fn exception(context: &mut UserContext, exception: Exception);
    #[link_name = "crtos_personality_attend_own"]
    pub(crate) safe fn attend_own(
        context: &mut UserContext,
        thread: &Thread,
        way: &mut WayBack,
    ) -> bool;
    #[link_name = "crtos_personality_attend"]
    pub(crate) safe fn attend(context: &mut UserContext);
    #[link_name = "crtos_personality_level_changed"]
    pub(crate) safe fn level_changed(thread: &Thread, level: Level) -> bool;
    #[link_name = "crtos_personality_doorbell"]
    pub(crate) safe fn doorbell(cpu: RealmCpu, rank: u32);
    #[link_name = "crtos_personality_link"]
    pub(crate) safe fn link();
    #[link_name = "crtos_personality_rank_fell"]
    pub(crate) safe fn rank_fell(rank: u32);
}

/// Makes a type that implements [`Personality`] the one of this program. Once in a program.
#[macro_export]
macro_rules! personality {
    ($personality:ty) => {
        const _: () = {
            use $crate::arch::{Exception, UserContext};
            use $crate::personality::{Bound, FastHandlers, Personality};

            // SAFETY: the symbols below are defined where this is expanded and nowhere else, or the
            // program does not link.
            unsafe impl Bound for $personality {}

            // SAFETY: of each symbol the lower half declares the same type.
            #[unsafe(no_mangle)]
            static crtos_personality_fast_handlers: FastHandlers<
                <$personality as Personality>::Thread,
            > = <$personality as Personality>::FAST_HANDLERS;

            #[unsafe(no_mangle)]
            fn crtos_personality_start() {
                <$personality as Personality>::start();
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_system_call(context: &mut UserContext) {
                <$personality as Personality>::system_call(context);
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_page_fault() {
                <$personality as Personality>::page_fault();
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_exception(context: &mut UserContext, exception: Exception) {
                <$personality as Personality>::exception(context, exception);
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_attend_own(
                context: &mut UserContext,
                thread: &$crate::task::Thread,
                way: &mut $crate::arch::interrupts::WayBack,
            ) -> bool {
                <$personality as Personality>::attend_own(context, thread, way)
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_attend(context: &mut UserContext) {
                <$personality as Personality>::attend(context);
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_level_changed(
                thread: &$crate::task::Thread,
                level: $crate::task::Level,
            ) -> bool {
                <$personality as Personality>::level_changed(thread, level)
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_doorbell(cpu: ::crtos_abi::ids::RealmCpu, rank: u32) {
                <$personality as Personality>::doorbell(cpu, rank);
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_link() {
                <$personality as Personality>::link();
            }

            #[unsafe(no_mangle)]
            fn crtos_personality_rank_fell(rank: u32) {
                <$personality as Personality>::rank_fell(rank);
            }
        };
    };
}
