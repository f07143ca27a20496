// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links ([`crtos_abi::link`]): memory that the realm shares with Linux and cells, and the
//! doorbells of their peers.
//!
//! What others write may be anything at any time. The sizes are read once, when the kernel starts:
//! a realm that is locked later has those of a Linux that was trusted then.

use alloc::{boxed::Box, sync::Arc};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use crtos_abi::PAGE_SIZE;
use crtos_abi::hypercall::{DOORBELL_ANYWHERE, HC_DOORBELL, HV_BUSY};
use crtos_abi::link::{LINK_MEMORY, LINK_SIZE_MAX, LinkHeader, LinkPeer};
use crtos_link::{Layout, Section};
use crtos_vm::Frame;

use crate::arch::hypercall;
use crate::mm::{layout, object::Object, space::MapError};

/// A link of which the realm is a peer.
pub struct Link {
    /// Where the realm has it.
    first: Frame,
    own: usize,
    layout: Layout,
    device: u64,
    name: [u8; 32],
    /// A program of the realm has it open or mapped.
    is_open: AtomicBool,
}

/// A program of the realm as a peer of a link: nobody else can become one. It ends when the file is
/// closed and nothing of it is mapped any more; the other peers see and hear that.
pub struct Presence(&'static Link);

/// How often a peer has rung the realm, modulo 2^32, and how often it had at somebody's last look.
/// Each peer is looked at for itself: in a sum, one could hide the rings of another by taking back
/// as many of its own.
pub struct Rings {
    rung: &'static AtomicU32,
    seen: AtomicU32,
}

impl Rings {
    /// How many there are by now. Any context.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.rung.load(Ordering::Acquire)
    }

    /// Whether those that there are by now are others than those that were seen. Any context.
    #[inline(always)]
    pub fn are_news(&self) -> bool {
        self.count() != self.seen.load(Ordering::Relaxed)
    }

    /// The same; those that there are by now are seen. Of two CPUs at once, both may find news.
    #[inline(always)]
    pub fn take_news(&self) -> bool {
        let count = self.count();
        let are_news = count != self.seen.load(Ordering::Relaxed);
        if are_news {
            self.see(count);
        }
        are_news
    }

    /// So many are seen. Any context.
    #[inline(always)]
    pub fn see(&self, count: u32) {
        self.seen.store(count, Ordering::Relaxed);
    }
}

impl Link {
    /// Link `number`, if the realm has it and its header is sound. In the first thread, once for
    /// each number.
    pub fn find(number: usize) -> Option<Self> {
        let own = layout::boot_info().peer(number)?;
        let first = Frame(LINK_MEMORY + number as u64 * LINK_SIZE_MAX);
        // SAFETY: the boot information says that the cell has this link. Its header is mapped for
        // ever, and consists of integers.
        let header = unsafe { layout::direct(first).cast::<LinkHeader>().read_volatile() };
        let sizes = Layout::read(&header)?;
        let LinkHeader { device, name, .. } = header;
        if own >= sizes.peers() {
            return None;
        }
        let is_open = AtomicBool::new(false);
        Some(Self { first, own, layout: sizes, device, name, is_open })
    }

    /// The number of the peer that the realm is.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Where its sections are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Linux's number of its file (`st_rdev`).
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Its name, as Linux says.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        str::from_utf8(&self.name[..end]).unwrap_or_default()
    }

    /// Whether a program of the realm is a peer. Any context.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// The memory, from its first byte on, for a program that becomes the peer; `None` if there is
    /// one. Not on a real-time path: it lists all pages.
    pub fn open(&'static self) -> Option<Result<Arc<Object>, MapError>> {
        if self.is_open.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Object::of_link(self.first, self.layout.size(), Presence(self)))
    }

    /// A word at `offset` within a page of the link.
    fn word(&self, page: u64, offset: usize) -> &'static AtomicU32 {
        assert!(
            page < self.layout.size() && offset < PAGE_SIZE as usize && offset.is_multiple_of(4)
        );
        let at = layout::direct(Frame(self.first.0 + page));
        // SAFETY: the link has that page, which is mapped for ever; the word is aligned and lies
        // within it. The kernel reaches it by atomics alone.
        unsafe { &*at.add(offset).cast::<AtomicU32>() }
    }

    fn of_peer(&self, peer: usize, offset: usize) -> &'static AtomicU32 {
        let page = self.layout.section(Section::Own(peer)).map_or(u64::MAX, |page| page.start);
        self.word(page, offset)
    }

    /// The rings of each peer, none of which are news. Not on a real-time path: it allocates.
    pub fn rings(&self) -> Box<[Rings]> {
        let offset = offset_of!(LinkPeer, rung) + 4 * self.own;
        let of_peer = |peer| {
            let rung = self.of_peer(peer, offset);
            Rings { rung, seen: AtomicU32::new(rung.load(Ordering::Acquire)) }
        };
        (0..self.layout.peers()).map(of_peer).collect()
    }

    /// Rings a peer, which finds the count in any case. `peer` is one of the link. Any context; two
    /// VM exits at most.
    pub fn ring(&self, peer: usize) {
        let offset = offset_of!(LinkPeer, rung) + 4 * peer;
        self.of_peer(self.own, offset).fetch_add(1, Ordering::Release);
        // The count before the doorbell; pairs with the interrupt.
        fence(Ordering::SeqCst);
        if peer == 0 {
            hypercall::call_device(HC_DOORBELL, [DOORBELL_ANYWHERE, 0, 0, 0]);
            return;
        }
        // A hint of Linux's; the hypervisor knows which cells the realm may ring.
        let cell = self.word(0, offset_of!(LinkHeader, cells) + 4 * peer).load(Ordering::Relaxed);
        let cpu = self.of_peer(peer, offset_of!(LinkPeer, cpu)).load(Ordering::Relaxed);
        let ring = |cpu| hypercall::call_device(HC_DOORBELL, [cpu, 1 + u64::from(cell), 0, 0]);
        if ring(u64::from(cpu)) == HV_BUSY {
            ring(0);
        }
    }

    /// The program of the realm is gone: the others see and hear that. Any context; bounded by the
    /// peers.
    fn leave(&self) {
        let state = self.of_peer(self.own, offset_of!(LinkPeer, state));
        if state.swap(0, Ordering::AcqRel) != 0 {
            (0..self.layout.peers()).filter(|&peer| peer != self.own).for_each(|it| self.ring(it));
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.leave();
        self.0.is_open.store(false, Ordering::Release);
    }
}
