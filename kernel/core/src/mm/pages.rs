// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that the kernel and programs both reach, such as the rings of packet sockets: the kernel
//! at any time, programs where they map an [`Object`] of them.

use super::frames::{self, OwnedPage};
use super::heap;
use super::object::Object;
use crate::mm::space::MapError;
use crate::task;
use alloc::sync::Arc;
use alloc::vec::Vec;
use crtos_vm::FRAME_SIZE;

/// Pages, one behind the other. What programs write there is an allegation: it may change at any
/// time.
pub struct Pages(Vec<OwnedPage>);

impl Pages {
    /// Cleared pages for so many bytes; `None` if there are none. Preemptible between pages; may
    /// sleep.
    pub fn zeroed(bytes: u64) -> Option<Self> {
        let count = usize::try_from(bytes.div_ceil(FRAME_SIZE)).ok()?;
        let (all, _) = frames::SHARED.usage();
        if count as u64 > all {
            return None;
        }
        let mut pages = Self(Vec::new());
        while pages.0.len() < count {
            if !heap::makes_room(&mut pages.0, 1) {
                return None;
            }
            pages.0.push(OwnedPage::zeroed()?);
            task::reschedule_point();
        }
        Some(pages)
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * FRAME_SIZE
    }

    /// Calls `copy` for each piece of `length` bytes at `offset` that lies in one page: the page,
    /// where in it, and where in the bytes. Nothing beyond the end.
    fn each(
        &self,
        offset: u64,
        length: usize,
        mut copy: impl FnMut(&OwnedPage, u64, usize, usize),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let Some(page) = self.0.get((at / FRAME_SIZE) as usize) else { return };
            let inside = at % FRAME_SIZE;
            let part = (length - done).min((FRAME_SIZE - inside) as usize);
            copy(page, inside, done, part);
            done += part;
        }
    }

    /// Copies from there. Any context, as what follows.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        self.each(offset, to.len(), |page, inside, done, part| {
            frames::copy_out(page.frame(), inside, &mut to[done..done + part]);
        });
    }

    /// Copies there; programs see it in that order.
    pub fn write(&self, offset: u64, from: &[u8]) {
        self.each(offset, from.len(), |page, inside, done, part| {
            frames::copy_in(page.frame(), inside, &from[done..done + part]);
        });
    }

    /// One more use of each page. `None` if one has too many.
    fn shared(&self) -> impl Iterator<Item = Option<OwnedPage>> {
        self.0.iter().map(|page| OwnedPage::shared(page.frame()))
    }

    /// What programs map of all these pages, one behind the other. May sleep.
    pub fn object<'a>(all: impl Iterator<Item = &'a Self>) -> Result<Arc<Object>, MapError> {
        let object = Object::anonymous()?;
        let mut at = 0;
        for page in all.flat_map(Self::shared) {
            object.put(at, page.ok_or(MapError::NoMemory)?, None)?;
            at += FRAME_SIZE;
            task::reschedule_point();
        }
        object.set_limit(at);
        Ok(object)
    }
}
