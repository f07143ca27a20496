// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that are told of frames.
//!
//! An interrupt tells them one by one, and opens a window before each, so that nothing waits for
//! more than one of them.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_can::Frame;
use crtos_core::{sync::SpinLock, time::Nanos};

use crate::abi::Errno;

/// Most sockets of the realm that are bound to an interface. An interrupt walks them all.
pub const MOST: usize = 64;

/// What they are told.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// The number of the interface.
    pub interface: u32,
    /// The frame.
    pub frame: Frame,
    /// When it came, or was sent (CLOCK_REALTIME), or that this is unknown
    /// ([`arrivals::UNKNOWN`](crate::sockets::arrivals::UNKNOWN)).
    pub stamp: Nanos,
    /// The number of the socket that has sent it; `None` if it came over the bus.
    pub origin: Option<u64>,
    /// Others than that are told of it as well.
    pub is_heard: bool,
}

/// A socket that is told.
pub trait Member: Send + Sync {
    /// There is news. Any context; interrupts off; bounded, must not sleep or allocate.
    fn hear(&self, news: &News);

    /// That interface is gone. Any context; likewise.
    fn lose(&self, interface: u32);
}

/// The places of those that are told. Held while one of them is told. Taken before the locks of a
/// socket.
static PLACES: SpinLock<[Option<Arc<dyn Member>>; MOST]> = SpinLock::new([const { None }; MOST]);
/// How many of these were ever used. Changed under their lock.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Has a socket be told from now on. ENOMEM if there are too many.
pub fn join(member: Arc<dyn Member>) -> Result<(), Errno> {
    let mut places = PLACES.lock();
    let free = places.iter().position(Option::is_none).ok_or(Errno::ENOMEM)?;
    places[free] = Some(member);
    USED.fetch_max(free + 1, Ordering::Relaxed);
    Ok(())
}

/// A socket is told no more, and is not being told when this returns. Thread context.
pub fn leave(member: &Arc<dyn Member>) {
    let mut places = PLACES.lock();
    let is_meant = |other: &mut Option<Arc<dyn Member>>| {
        other
            .as_ref()
            .is_some_and(|other| core::ptr::addr_eq(&raw const **other, &raw const **member))
    };
    let left = places.iter_mut().find_map(|place| is_meant(place).then(|| place.take()));
    drop(places);
    drop(left);
}

/// Tells all of them that an interface is gone. Thread context.
pub fn lose(interface: u32) {
    for place in 0..USED.load(Ordering::Relaxed) {
        if let Some(member) = &PLACES.lock()[place] {
            member.lose(interface);
        }
    }
}

/// Tells all of them. `window`: what opens an interrupt window. Interrupts off.
pub fn tell(news: &News, window: impl Fn()) {
    for place in 0..USED.load(Ordering::Relaxed) {
        window();
        if let Some(member) = &PLACES.lock_quietly()[place] {
            member.hear(news);
        }
    }
}
