// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which frames a packet socket wants. All but the filter itself is in one word, so that who has a
//! frame for it takes no lock, and sees nothing that is half changed.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_core::sync::SpinLock;
use crtos_nic::filter::Program;

/// In the word: the number of the interface, 0 for all, all ones for one that is gone. Above it the
/// protocol (ETH_P_*), 0 for none, and flags.
const INTERFACE: u64 = u32::MAX as u64;
const PROTOCOL_SHIFT: u32 = 32;
const PROTOCOL: u64 = (u16::MAX as u64) << PROTOCOL_SHIFT;
/// Not those that the realm sends.
const IGNORES_OUTGOING: u64 = 1 << 48;
/// There is a filter.
const FILTERS: u64 = 1 << 49;

/// What a socket wants.
pub struct Wants {
    word: AtomicU64,
    /// Whether there is one is said in the word as well, which changes under the lock then.
    filter: SpinLock<Option<Arc<Program>>>,
}

/// All of it but the filter, at a moment.
#[derive(Clone, Copy)]
pub struct Choice(u64);

impl Choice {
    /// The number of the interface, as Linux tells it: 0 for all, -1 for one that is gone.
    pub fn interface(self) -> u32 {
        (self.0 & INTERFACE) as u32
    }

    /// Whether an interface is the one that is meant, or one of all.
    #[inline(always)]
    pub fn is_of(self, interface: u32) -> bool {
        self.interface() == interface || self.interface() == 0
    }

    /// The number of the one interface that is meant, if that is so.
    pub fn only_interface(self) -> Option<u32> {
        Some(self.interface()).filter(|&index| index != 0 && u64::from(index) != INTERFACE)
    }

    /// The protocol; 0 for none.
    pub fn protocol(self) -> u16 {
        (self.0 >> PROTOCOL_SHIFT) as u16
    }

    /// Whether those are not for it that the realm sends.
    pub fn ignores_outgoing(self) -> bool {
        self.0 & IGNORES_OUTGOING != 0
    }

    /// Whether a filter decides as well.
    pub fn filters(self) -> bool {
        self.0 & FILTERS != 0
    }
}

impl Wants {
    /// Those of that protocol, of all interfaces.
    pub fn new(protocol: u16, filter: Option<Arc<Program>>) -> Self {
        let wants = Self { word: AtomicU64::new(0), filter: SpinLock::new(None) };
        wants.bind(0, protocol);
        wants.set_filter(filter);
        wants
    }

    /// What it wants now.
    #[inline(always)]
    pub fn now(&self) -> Choice {
        Choice(self.word.load(Ordering::Acquire))
    }

    /// Its filter.
    pub fn filter(&self) -> Option<Arc<Program>> {
        self.filter.lock().clone()
    }

    /// Those of that interface from now on, or of all if it is 0, and of that protocol unless it is
    /// 0.
    pub fn bind(&self, interface: u32, protocol: u16) {
        let protocol = u64::from(protocol) << PROTOCOL_SHIFT;
        let bits = if protocol == 0 { INTERFACE } else { INTERFACE | PROTOCOL };
        self.change(bits, u64::from(interface) | protocol);
    }

    /// Of none any more, if it is that one; says whether it was.
    pub fn part(&self, interface: u32) -> bool {
        let next = |word| (Choice(word).interface() == interface).then_some(word | INTERFACE);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Whether those are not for it that the realm sends.
    pub fn set_ignores_outgoing(&self, ignores: bool) {
        self.change(IGNORES_OUTGOING, if ignores { IGNORES_OUTGOING } else { 0 });
    }

    /// Has a filter decide, or none; returns the one that did. Thread context.
    pub fn set_filter(&self, filter: Option<Arc<Program>>) -> Option<Arc<Program>> {
        let mut place = self.filter.lock();
        self.change(FILTERS, if filter.is_some() { FILTERS } else { 0 });
        core::mem::replace(&mut *place, filter)
    }

    /// Has these bits of the word be `value`.
    fn change(&self, bits: u64, value: u64) {
        let next = |word| Some(word & !bits | value);
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}
