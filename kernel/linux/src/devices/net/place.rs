// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a card can be: what its interface was under Linux, and the vector of its interrupts. The
//! card comes and goes.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_channel::Wanted;
use crtos_core::{
    arch::interrupts::InService,
    devices::{
        interrupts::{self, Handler, Vector},
        pci,
    },
    info,
    task::Mutex,
    warn,
};
use crtos_nic::settings::Settings;
use spin::Once;

use super::card::{self, Card};
use crate::{
    devices::users::users,
    files::Object,
    sockets::net::interface::{self, Interface},
};

/// No place of Linux's.
const NOWHERE: usize = usize::MAX;

/// Where a card can be.
pub(super) struct Place {
    pub settings: Settings<'static>,
    /// Its PCI function.
    pub function: u16,
    /// The card, and what Linux said of it.
    card: Mutex<Option<(Arc<dyn Card>, Wanted)>>,
    /// The vector of its interrupts; `None` if there was none left.
    vector: Once<Option<Vector>>,
    /// At which place Linux was told of it.
    told: AtomicUsize,
}

/// Who is interrupted where there is no card.
struct Nobody;

impl Handler for Nobody {
    fn interrupt(&self, _: InService) {}

    fn silence(&self) -> bool {
        true
    }
}

impl Place {
    /// A place with nothing.
    pub fn new(function: u16, settings: Settings<'static>) -> Self {
        Self {
            settings,
            function,
            card: Mutex::new(None),
            vector: Once::new(),
            told: AtomicUsize::new(NOWHERE),
        }
    }

    /// Whether there is a card.
    pub fn is_there(&self) -> bool {
        self.card.lock().is_some()
    }

    /// At which place Linux was told of it.
    pub fn told(&self) -> Option<usize> {
        Some(self.told.load(Ordering::Relaxed)).filter(|&told| told != NOWHERE)
    }

    /// Linux is told of it at that place.
    pub fn tell(&self, at: Option<usize>) {
        self.told.store(at.unwrap_or(NOWHERE), Ordering::Relaxed);
    }

    /// The card goes, if it is there and Linux does not want it there: at once if the realm has it
    /// no more, and otherwise when nobody uses it. May sleep.
    pub fn leave(&self, wanted: Option<Wanted>) {
        let (name, function) = (self.settings.name, self.function);
        let mut there = self.card.lock();
        let Some((card, has)) = &*there else { return };
        let is_lost = wanted.is_some_and(|wanted| wanted != *has) || !pci::is_there(function);
        if !is_lost && (wanted.is_some() || !self.users().is_empty()) {
            return;
        }
        info!("{name}: {}", if is_lost { "lost" } else { "given back" });
        if let Some(Some(vector)) = self.vector.get() {
            vector.hand_to(Arc::new(Nobody));
            interrupts::rename(vector.number(), "");
        }
        card.end(is_lost);
        let interface: Arc<dyn Interface> = card.clone();
        interface::remove(&interface);
        *there = None;
    }

    /// The card comes, if it is not there. May sleep.
    pub fn come(&self, wanted: Wanted) {
        let mut there = self.card.lock();
        if there.is_some() {
            return;
        }
        let name = self.settings.name;
        let vector = self.vector.call_once(|| interrupts::register(name, Arc::new(Nobody)));
        let Some(vector) = vector else {
            warn!("{name}: there is no vector for its interrupts");
            return;
        };
        interrupts::rename(vector.number(), name);
        let card = match card::start(self.function, &self.settings, vector.number()) {
            Ok(card) => card,
            Err(reason) => {
                warn!("{name}: {reason}");
                return;
            }
        };
        vector.hand_to(card.clone());
        let interface: Arc<dyn Interface> = card.clone();
        if !interface::add(&interface) || !card.clone().run() {
            warn!("{name}: there are too many interfaces or threads");
            vector.hand_to(Arc::new(Nobody));
            card.end(false);
            interface::remove(&interface);
            return;
        }
        interface.attend();
        info!("{name}: {}, interface {}", card.kind(), self.settings.index);
        *there = Some((card, wanted));
    }

    /// The process ids of those who have a socket of it.
    pub fn users(&self) -> Vec<u32> {
        let index = Some(self.settings.index);
        users(&[], |file| matches!(file, Object::Socket(socket) if socket.interface() == index))
    }
}
