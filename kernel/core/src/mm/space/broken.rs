// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is broken: nobody may touch it again.

use super::{AddressSpace, Revoked};
use crate::arch::paging::{Scan, Steps};
use crate::arch::tlb::Stale;
use crate::mm::frames;
use crtos_abi::UserAddr;
use crtos_vm::{Flags, Frame, FrameSize, Protection};

impl AddressSpace {
    /// Takes all rights to the page of `frame` away from the program, whose it is alone, and keeps
    /// it out of the pool for good. Linux has to let it go as well. Whoever touches it gets
    /// [`super::FaultError::Broken`] until it is unmapped. Returns where it is; `None` if the
    /// program does not have it alone. Looks at all pages of the program; preemptible. Thread
    /// context; may sleep.
    pub(crate) fn give_up(&self, frame: Frame) -> Option<UserAddr> {
        let _changes = self.changes();
        let mut at = UserAddr::NULL;
        while at < UserAddr::END {
            let scan = self.tables.lock().scan(at..UserAddr::END, &mut Steps::of_section());
            let (address, entry, size) = match scan {
                Scan::Page(address, entry, size) => (address, entry, size),
                Scan::Continue(next) => {
                    at = next;
                    continue;
                }
            };
            let first = entry.frame();
            if !(first.0..first.0 + size.bytes()).contains(&frame.0) {
                at = address + size.bytes();
            } else if size == FrameSize::Large {
                // Looked at again, in its parts.
                self.split(address).ok()?;
            } else if frames::is_retired(frame) {
                // Another thread has met it as well.
                return Some(address);
            } else if frames::retire(frame) {
                let mut stale = Stale::new(self.root);
                let before = self.tables.lock().protect(address, Protection::empty(), &mut stale);
                stale.settle();
                let exposed = before.unwrap_or(entry).flags().contains(Flags::EXPOSED);
                if exposed && frames::share(frame) {
                    self.revoke.revoke(Revoked::one(address, frame));
                }
                return Some(address);
            } else {
                return None;
            }
        }
        None
    }
}
