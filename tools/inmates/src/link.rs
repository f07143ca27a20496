// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links ([`crtos_abi::link`]): memory that the cell shares with Linux and other cells.
//!
//! What others write may be anything at any time: read it once, check it, then use the copy.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crtos_abi::hypercall::{DOORBELL_ANYWHERE, HC_DOORBELL};
use crtos_abi::link::{LINK_MEMORY, LINK_SIZE_MAX, LinkHeader, MAX_LINK_PEERS, MAX_LINKS};
use crtos_link::{Layout, Section};

use crate::{boot, hypercall};

/// Words of the state table's page of a peer, as [`crtos_abi::link::LinkPeer`] has them.
mod word {
    pub const STATE: u64 = 0;
    pub const CPU: u64 = 4;
    pub const RUNG: u64 = 8;
}

/// A link of which the cell is a peer.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    base: u64,
    own: usize,
    layout: Layout,
}

/// The links of the cell.
pub fn all() -> impl Iterator<Item = Link> {
    (0..MAX_LINKS).filter_map(Link::find)
}

impl Link {
    /// Link `number`, if the cell has it and its sizes make sense.
    pub fn find(number: usize) -> Option<Self> {
        let own = boot::info().peer(number)?;
        let base = LINK_MEMORY + number as u64 * LINK_SIZE_MAX;
        // SAFETY: the boot information says that the cell has this link, whose header is mapped
        // there for ever, and which consists of integers.
        let header = unsafe { (base as *const LinkHeader).read_volatile() };
        let layout = Layout::read(&header)?;
        (own < layout.peers()).then_some(Self { base, own, layout })
    }

    /// The number of the peer that the cell is.
    pub fn own(&self) -> usize {
        self.own
    }

    /// How many peers there may be.
    pub fn peers(&self) -> usize {
        self.layout.peers()
    }

    fn table(&self, peer: usize, word: u64) -> &'static AtomicU32 {
        let page = self.layout.section(Section::Own(peer)).expect("the link has that peer");
        // SAFETY: the page of a peer that the link has, within which the words are. It stays
        // mapped, and is reached by atomics alone.
        unsafe { &*((self.base + page.start + word) as *const AtomicU32) }
    }

    /// What a peer says of its state; 0: it is not there.
    pub fn state(&self, peer: usize) -> u32 {
        self.table(peer, word::STATE).load(Ordering::Acquire)
    }

    /// Says what the cell's own state is. Others see it when they look, or are rung.
    pub fn set_state(&self, state: u32) {
        self.table(self.own, word::STATE).store(state, Ordering::Release);
    }

    /// Has doorbells arrive on the CPU of the cell with this index.
    pub fn listen_on(&self, cpu: usize) {
        self.table(self.own, word::CPU).store(cpu as u32, Ordering::Relaxed);
    }

    /// How often each peer has rung the cell, modulo 2^32. Whoever waits looks here first, with
    /// interrupts off, whether any of them has changed: in a sum, one peer could hide the rings of
    /// another by taking back as many of its own.
    pub fn rings(&self) -> [u32; MAX_LINK_PEERS] {
        let rung = word::RUNG + 4 * self.own as u64;
        core::array::from_fn(|peer| match peer < self.peers() {
            true => self.table(peer, rung).load(Ordering::Acquire),
            false => 0,
        })
    }

    /// Rings a peer; false if that does not run just now, or the cell may not ring it. It finds
    /// the count in any case.
    pub fn ring(&self, peer: usize) -> bool {
        let own = self.table(self.own, word::RUNG + 4 * peer.min(MAX_LINK_PEERS - 1) as u64);
        own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        // The count before the doorbell; pairs with the interrupt.
        fence(Ordering::SeqCst);
        if peer == 0 {
            return hypercall::call(HC_DOORBELL, DOORBELL_ANYWHERE, 0) == 0;
        }
        let cell = self.cell(peer);
        let cpu = self.table(peer, word::CPU).load(Ordering::Relaxed);
        hypercall::call(HC_DOORBELL, cpu.into(), 1 + u64::from(cell)) == 0
    }

    /// The number of the cell that is a peer, as Linux says.
    fn cell(&self, peer: usize) -> u32 {
        let at = core::mem::offset_of!(LinkHeader, cells) + 4 * peer.min(MAX_LINK_PEERS - 1);
        // SAFETY: a word of the header, which is mapped for ever.
        unsafe { &*((self.base + at as u64) as *const AtomicU32) }.load(Ordering::Relaxed)
    }

    fn words(&self, section: Section) -> &'static [AtomicU64] {
        let bytes = self.layout.section(section).expect("the link has that peer");
        let (start, size) = (bytes.start, bytes.end - bytes.start);
        // SAFETY: a section of the link, whose place and size the layout says, and which stays
        // mapped; atomics allow the writes of others.
        unsafe {
            core::slice::from_raw_parts((self.base + start) as *const AtomicU64, size as usize / 8)
        }
    }

    /// The common section.
    pub fn common(&self) -> &'static [AtomicU64] {
        self.words(Section::Common)
    }

    /// The output section of a peer. A store to another one's than the own stops the cell.
    pub fn output(&self, peer: usize) -> &'static [AtomicU64] {
        self.words(Section::Output(peer))
    }
}
