// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share window ([`crtos_abi::share`]): places at which the cell sees pages of Linux.
//!
//! A page at a place has uses like a page of a program. When the last one is gone, the place is
//! *given up*: the hypervisor takes the page out, Linux hears of that, and the place is free. So
//! the kernel never touches a place where nothing is, and Linux never gets a page back that a
//! program reaches.

use super::frames::{OwnedPage, Pool};
use crate::arch::hypercall::{self, call_device};
use crate::devices;
use crate::mm::layout;
use crate::time::Nanos;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crtos_abi::hypercall::HC_PLACES_LEAVE;
use crtos_abi::share::{PLACE_WORDS, SHARE_WINDOW, SHARE_WINDOW_END};
use crtos_channel::DoorbellCpu;
use crtos_vm::{FRAME_SIZE, Frame, FramePool, FrameSize};

/// Places of which some are free.
static PLACES: Pool = Pool::new();

/// A bit for each place that nobody uses any more and the hypervisor has not been told of.
static GIVEN_UP: [AtomicU64; PLACE_WORDS] = [const { AtomicU64::new(0) }; PLACE_WORDS];

/// Whether there may be such bits.
static ANY_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// How often the hypervisor is asked that is busy with a call of Linux, and in between.
const TRIES: u32 = 100;
const PAUSE: Nanos = Nanos::from_millis(1);

/// Allocates the books. Once, at boot.
pub(crate) fn set_up() {
    PLACES.set_up(FramePool::with_shares(SHARE_WINDOW..SHARE_WINDOW_END));
}

/// Whether a frame is a place.
pub(super) fn contains(frame: Frame) -> bool {
    (SHARE_WINDOW..SHARE_WINDOW_END).contains(&frame.0)
}

/// The word and the bit of a place.
fn bit(frame: Frame) -> (usize, u64) {
    let number = (frame.0 - SHARE_WINDOW) / FRAME_SIZE;
    ((number / 64) as usize, 1 << (number % 64))
}

/// Counts one more use of the page at a place; `false` if it has too many. Any context.
pub(super) fn share(frame: Frame) -> bool {
    PLACES.with(|places| places.share(frame)).unwrap_or(false)
}

/// Gives a use of the page at a place back. The last one gives the place up. Any context.
pub(super) fn release(frame: Frame) {
    let has_users = PLACES.with(|places| {
        let shared = places.is_shared(frame);
        if shared {
            places.free(frame, FrameSize::Small);
        }
        shared
    });
    if has_users == Some(false) {
        let (word, bit) = bit(frame);
        GIVEN_UP[word].fetch_or(bit, Ordering::Release);
        ANY_GIVEN_UP.store(true, Ordering::Release);
    }
}

/// Whether the file of the page at a place has lost it, as Linux says. Any context.
pub(super) fn is_recalled(frame: Frame) -> bool {
    let (word, bit) = bit(frame);
    layout::channel_view().is_some_and(|channel| channel.recalled(word) & bit != 0)
}

/// Tells the hypervisor, and Linux, of all places that were given up since the last time. Thread
/// context; may sleep.
#[inline]
pub fn give_up() {
    if ANY_GIVEN_UP.load(Ordering::Relaxed) && ANY_GIVEN_UP.swap(false, Ordering::Acquire) {
        tell_given_up();
    }
}

#[cold]
fn tell_given_up() {
    let Some(channel) = layout::channel_view() else { return };
    for (word, given_up) in GIVEN_UP.iter().enumerate() {
        if given_up.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let places = given_up.swap(0, Ordering::Acquire);
        let call = || call_device(HC_PLACES_LEAVE, [word as u64, places, 0, 0]);
        if devices::call_again(TRIES, PAUSE, call) != 0 {
            given_up.fetch_or(places, Ordering::Relaxed);
            ANY_GIVEN_UP.store(true, Ordering::Release);
            continue;
        }
        channel.give_up(word, places);
        for place in (0..64).filter(|place| places >> place & 1 != 0) {
            let frame = Frame(SHARE_WINDOW + (word as u64 * 64 + place) * FRAME_SIZE);
            PLACES.free(frame, FrameSize::Small);
        }
    }
    hypercall::ring_linux(DoorbellCpu::ANY);
}

/// A place where nothing is, which is free again when this is dropped.
pub(super) struct Place(Frame);

impl Place {
    /// A free one; `None` if there is none. Thread context; may sleep.
    pub(super) fn take() -> Option<Self> {
        let take = || PLACES.allocate(FrameSize::Small).map(Self);
        take().or_else(|| {
            give_up();
            take()
        })
    }

    /// Its address.
    pub(super) fn frame(&self) -> Frame {
        self.0
    }

    /// The page of Linux that is there from now on, or may be.
    pub(super) fn into_page(self) -> OwnedPage {
        OwnedPage::at_place(ManuallyDrop::new(self).0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES.free(self.0, FrameSize::Small);
    }
}
