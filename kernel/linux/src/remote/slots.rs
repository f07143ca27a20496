// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which slots of the channel the kernel holds, and whose they are.

use crtos_core::{arch, sync::SpinLock, task::Thread};

use super::{channel, lock, replies};
use crate::{
    process::{ThreadExt as _, housekeeper, spares},
    signal::{self, Sent},
};

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::channel::{SLOT_WORDS, SLOTS};
use crtos_channel::{Channel, OwnedSlot, Slot, Start};
use crtos_sched::Level;
use crtos_signal::Info;

/// The thread that owns each slot.
pub(super) static OWNERS: [SpinLock<Option<Arc<Thread>>>; SLOTS] =
    [const { SpinLock::new(None) }; SLOTS];

/// Bit per slot without owner: Linux stored something there.
static OFFERED: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];

/// Bit per slot: the kernel owns it.
static HELD: SpinLock<[u64; SLOT_WORDS]> = SpinLock::new([0; SLOT_WORDS]);

/// Takes what Linux stored for `slot`, if nobody did: wakes its owner. Any context, no lock held;
/// takes a bounded number of steps. A signal, the wake-up and what the signal leaves to do are
/// sections of their own.
pub fn take(channel: Channel, slot: Slot) {
    if !channel.take_reply(slot) {
        return;
    }
    let mut sent = match &*OWNERS[slot.get()].lock() {
        Some(owner) => {
            let notices = channel.notices(slot);
            let is_own = is_own(owner, slot);
            if is_own && (notices.tell_of_end() || notices.stopped) {
                owner.set_attention();
            }
            if !notices.signal {
                return owner.wake();
            }
            if !is_own {
                // The signal is for the process.
                owner.wake();
                OFFERED[slot.word()].fetch_or(slot.bit(), Ordering::Release);
                return housekeeper::wake();
            }
            take_signal(channel, slot, owner)
        }
        None => {
            OFFERED[slot.word()].fetch_or(slot.bit(), Ordering::Release);
            return housekeeper::wake();
        }
    };
    // The owner first, then who else the signal concerns.
    let mut is_awake = false;
    loop {
        if !arch::interrupts::are_on() {
            arch::interrupts::window_if_long();
        }
        match &*OWNERS[slot.get()].lock() {
            // It has let go of the slot meanwhile.
            None => return,
            Some(owner) if !is_awake => {
                owner.wake();
                is_awake = true;
            }
            Some(owner) => {
                let both = sent.as_mut().zip(owner.user());
                if !both.is_some_and(|(sent, user)| sent.step(&user.process)) {
                    return;
                }
            }
        }
    }
}

/// Whether `slot` is that in which `owner` runs, and not one that it uses beside.
fn is_own(owner: &Thread, slot: Slot) -> bool {
    owner.user().is_some_and(|user| user.slot == slot)
}

/// Takes over a signal that Linux delivered to the shadow thread of `slot`, which is `owner`'s. The
/// slot is locked. The caller takes the steps that are left.
fn take_signal(channel: Channel, slot: Slot, owner: &Thread) -> Option<Sent> {
    // What comes to a slot that somebody uses beside is for the process.
    let user = owner.user().filter(|user| user.slot == slot)?;
    signal::forwarded(user, Info::from_words(channel.take_signal(slot)?))
}

/// Takes a signal that Linux delivered to the shadow thread of `slot`, if no thread runs in that.
pub fn take_unowned_signal(slot: Slot) -> Option<Info> {
    // The lock: a signal is taken once, and who becomes the owner takes what is left.
    let owner = OWNERS[slot.get()].lock();
    if owner.as_ref().is_some_and(|owner| is_own(owner, slot)) {
        return None;
    }
    channel()?.take_signal(slot).map(Info::from_words)
}

/// Takes over a signal that Linux delivered to the shadow thread of the calling thread of a
/// program, `slot`'s. The caller takes the steps that are left.
pub fn collect_signal(slot: Slot) -> Option<Sent> {
    let channel = channel().filter(|channel| channel.notices(slot).signal)?;
    OWNERS[slot.get()].lock().as_ref().and_then(|owner| take_signal(channel, slot, owner))
}

/// Whether Linux has told of the end or of a signal of the shadow thread of `slot`.
#[inline]
pub fn has_notice(slot: Slot) -> bool {
    channel().is_some_and(|channel| {
        let notices = channel.notices(slot);
        notices.tell_of_end() || notices.signal
    })
}

/// Whether the shadow thread of `slot` is stopped, and its thread with it.
pub fn is_stopped(slot: Slot) -> bool {
    channel().is_some_and(|channel| channel.notices(slot).stopped) && !lock::is_locked()
}

/// Takes over `slot` if Linux offers it and nobody has taken it.
pub fn accept(slot: Slot) -> Option<(OwnedSlot, Start)> {
    accept_if(slot, |_, _| true)
}

/// The same, if what Linux offers there is what is wanted; others find it otherwise.
pub fn accept_if(
    slot: Slot,
    is_wanted: impl FnOnce(&OwnedSlot, Start) -> bool,
) -> Option<(OwnedSlot, Start)> {
    let mut held = HELD.lock();
    let word = &mut held[slot.word()];
    if *word & slot.bit() != 0 {
        return None;
    }
    let accepted = channel()?.accept(slot)?;
    if !is_wanted(&accepted.0, accepted.1) {
        return None;
    }
    *word |= slot.bit();
    Some(accepted)
}

/// Whether Linux offers something that is meant, and nobody has taken it. Looks at all slots.
pub fn is_offered(mut is_meant: impl FnMut(&OwnedSlot, Start) -> bool) -> bool {
    (0..SLOTS).filter_map(Slot::new).any(|slot| {
        let mut found = false;
        let taken = accept_if(slot, |owned, start| {
            found = is_meant(owned, start);
            false
        });
        debug_assert!(taken.is_none());
        found
    })
}

/// Gives a slot back whose shadow thread is gone.
pub fn free(owned: OwnedSlot) {
    let slot = owned.slot();
    let mut held = HELD.lock();
    // Linux may offer it again as soon as it is free.
    owned.free();
    held[slot.word()] &= !slot.bit();
}

/// Calls `found` with each slot that Linux offered and nobody owned.
pub fn take_offers(mut found: impl FnMut(Slot)) {
    for (index, word) in OFFERED.iter().enumerate() {
        Slot::all_in(index, word.swap(0, Ordering::Acquire)).for_each(&mut found);
    }
}

/// Makes `thread` the owner of `slot`. What arrived before is seen by the wake-up.
pub fn set_owner(slot: Slot, thread: Arc<Thread>) {
    let sent = {
        let mut owner = OWNERS[slot.get()].lock();
        *owner = Some(thread.clone());
        channel().and_then(|channel| take_signal(channel, slot, &thread))
    };
    if let (Some(sent), Some(user)) = (sent, thread.user()) {
        sent.finish(&user.process);
    }
    replies::set_urgent(slot, thread.effective_level() > Level::ORDINARY);
    let notices = channel().map(|channel| channel.notices(slot)).unwrap_or_default();
    if notices.tell_of_end() {
        thread.set_attention();
    }
    thread.wake();
}

/// Calls `each` with every owner of a slot, one at a time.
pub fn owners(mut each: impl FnMut(&Thread)) {
    for slot in held() {
        let thread = OWNERS[slot.get()].lock().clone();
        if let Some(thread) = thread {
            each(&thread);
        }
    }
}

/// The slots that the kernel owns: a slot with an owner is one of them.
fn held() -> impl Iterator<Item = Slot> {
    let words = *HELD.lock();
    words.into_iter().enumerate().flat_map(|(index, word)| Slot::all_in(index, word))
}

/// Whether any thread owns a slot, as each thread of a program does.
pub fn is_owned() -> bool {
    held().any(|slot| OWNERS[slot.get()].lock().is_some())
}

/// Nobody hears any more of what Linux stores in `slot`, whose shadow thread no thread runs in.
pub fn disown(slot: Slot) {
    let owner = OWNERS[slot.get()].lock().take();
    drop(owner);
}

/// Lets go of `slot` of the calling thread, which has ended in Linux or cannot end there.
pub fn release(slot: Slot, owned: &SpinLock<Option<OwnedSlot>>) {
    let owner = OWNERS[slot.get()].lock().take();
    let owned = owned.lock().take();
    spares::dispose(owned);
    drop(owner);
}
