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

/// Calls `act` for each of them, with nothing locked. Thread context.
fn each(act: impl Fn(&Core)) {
    for place in 0..MOST {
        let core = {
            let places = PLACES.lock();
            if place >= places.used {
                return;
            }
            places.all[place].clone()
        };
        if let Some(core) = core {
            act(&core);
        }
    }
}

/// All of them.
pub struct Members;

impl Taps for Members {
    fn hear(&self, news: &News) {
        each(|core| core.hear(news));
    }

    fn changed(&self, interface: &Arc<dyn Interface>) {
        if !interface.is_up() {
            each(|core| core.lose(interface.index()));
        }
    }
}
