// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that hear what is on the wire, one by one.

use alloc::sync::Arc;

use crtos_core::sync::SpinLock;

use super::core::Core;
use crate::{
    abi::Errno,
    sockets::net::interface::{Interface, News, Taps},
};

/// Most packet sockets of the realm. A frame is offered to all.
pub const MOST: usize = 64;

/// The places of sockets, and how many of these were ever used.
struct Places {
    all: [Option<Arc<Core>>; MOST],
    used: usize,
}

static PLACES: SpinLock<Places> = SpinLock::new(Places { all: [const { None }; MOST], used: 0 });

/// Has a socket hear from now on. ENOMEM if there are too many.
pub fn join(core: &Arc<Core>) -> Result<(), Errno> {
    let mut places = PLACES.lock();
    let free = places.all.iter().position(Option::is_none).ok_or(Errno::ENOMEM)?;
    places.all[free] = Some(core.clone());
    places.used = places.used.max(free + 1);
    Ok(())
}

/// A socket hears no more, but what is on its way. Thread context.
pub fn leave(core: &Arc<Core>) {
    let left = {
        let mut places = PLACES.lock();
        let mut all = places.all.iter_mut();
        let place = all.find(|place| place.as_ref().is_some_and(|other| Arc::ptr_eq(other, core)));
        place.and_then(Option::take)
    };
    drop(left);
}

/// Calls `act` for each of them that is bound to that interface, or to all, with nothing locked.
/// Thread context.
fn each(interface: u32, act: impl Fn(&Core)) {
    let mut from = 0;
    loop {
        let (core, next) = {
            let places = PLACES.lock();
            let places = places.all[..places.used].iter().enumerate().skip(from);
            let mut bound = places.filter_map(|(place, core)| {
                core.as_ref().filter(|core| core.is_of(interface)).map(|core| (place, core))
            });
            let Some((_, core)) = bound.next() else { return };
            (core.clone(), bound.next().map(|(place, _)| place))
        };
        act(&core);
        drop(core);
        let Some(next) = next else { return };
        from = next;
    }
}

/// All of them.
pub struct Members;

impl Taps for Members {
    fn hear(&self, news: &News) {
        each(news.index, |core| core.hear(news));
    }

    fn changed(&self, interface: &Arc<dyn Interface>) {
        if !interface.is_up() {
            each(interface.index(), |core| core.lose(interface.index()));
        }
    }
}
