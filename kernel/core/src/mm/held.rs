// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects as the programs of a user hold them: pages that these bring there count for the user's
//! quota as long as one of them holds the object. What others bring counts for those, so that
//! nobody pays for what another one reads of a file, or is refused it. Nor is what one program
//! calls a file what others are told: it may see other files by these names.

use super::{
    frames::{self, OwnedPage},
    heap,
    object::Object,
    quota::Quota,
    space::{MapError, Obstacle, Prepared},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;
use crtos_vm::FRAME_SIZE;

/// An object, and for whom its pages count that are brought by this.
#[derive(Clone, Debug)]
pub struct Held {
    object: Arc<Object>,
    share: Option<Arc<Share>>,
    name: Option<Arc<Name>>,
}

/// What a program knows pages by (`/proc/PID/maps`).
#[derive(Debug)]
pub enum Name {
    /// A file of Linux.
    File {
        /// The device, as statx(2) tells it (`new_encode_dev` of Linux).
        device: u32,
        /// The number of the file there.
        number: u64,
        /// Its path, in the eyes of the program.
        path: Box<[u8]>,
    },
    /// The vDSO and its data.
    Vdso,
}

/// One of those by which a user's programs hold an object.
#[derive(Debug)]
struct Share {
    object: Arc<Object>,
    quota: &'static Quota,
}

impl Held {
    /// An object for programs with that quota. Not on a real-time path.
    pub fn new(object: Arc<Object>, quota: Option<&'static Quota>) -> Result<Self, MapError> {
        let Some(quota) = quota else { return Ok(object.into()) };
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        object.enter(quota)?;
        let share = Share { object: object.clone(), quota };
        Ok(Self { object, share: Some(Arc::new(share)), name: None })
    }

    /// The same, which the program knows by that name.
    pub fn named(self, name: Option<Arc<Name>>) -> Self {
        Self { name, ..self }
    }

    /// What the program knows it by.
    pub fn name(&self) -> Option<&Arc<Name>> {
        self.name.as_ref()
    }

    fn payer(&self) -> Option<&'static Quota> {
        self.share.as_ref().map(|share| share.quota)
    }

    /// Has all pages count that are there, which nobody else holds; `false` if less than half of
    /// the quota would be left. Any context.
    pub(super) fn take_over(&self) -> bool {
        let (bytes, payer) = (self.object.count() * FRAME_SIZE, self.payer());
        payer.is_none_or(|quota| quota.has(bytes + quota.most() / 2))
            && self.object.takes_bytes(bytes, payer)
    }

    /// As [`Object::put`].
    pub fn put(&self, offset: u64, page: OwnedPage) -> Result<(), MapError> {
        self.object.put(offset, page, self.payer())
    }

    /// Puts a page with these contents at `offset`, unless one is there.
    pub fn set(&self, offset: u64, bytes: &[u8]) -> Result<(), MapError> {
        self.put(offset, frames::filled_page(bytes).ok_or(MapError::NoMemory)?)
    }

    /// As [`Object::zero`].
    pub fn zero(&self, start: u64, end: u64) -> Result<(), MapError> {
        self.object.zero(start, end, self.payer())
    }

    /// As [`Object::page`].
    pub(super) fn page(
        &self,
        offset: u64,
        prepared: &mut Prepared<'_>,
    ) -> Result<OwnedPage, Obstacle> {
        self.object.page(offset, prepared, self.payer())
    }
}

impl From<Arc<Object>> for Held {
    /// What counts for nobody.
    fn from(object: Arc<Object>) -> Self {
        Self { object, share: None, name: None }
    }
}

impl Deref for Held {
    type Target = Arc<Object>;

    fn deref(&self) -> &Arc<Object> {
        &self.object
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl Eq for Held {}

impl Drop for Share {
    fn drop(&mut self) {
        self.object.leave(self.quota);
    }
}
