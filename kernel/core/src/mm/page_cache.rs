// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of files that programs have mapped privately, kept for the next program that maps
//! the same file.
//!
//! Of each file there is one version, as its size and the time of its last change tell. Nobody
//! writes to these pages: a private mapping gets a copy at the first write. Whoever finds no page
//! free takes from what nobody maps, the least recently used first; and it never is more than a
//! quarter of the pool.

use super::frames::SHARED;
use super::held::Held;
use super::object::Object;
use super::quota::Quota;
use super::space::MapError;
use crate::task::Mutex;
use alloc::{collections::BTreeMap, sync::Arc};
use core::sync::atomic::{AtomicUsize, Ordering};
use crtos_channel::operation::Identity;

/// What tells versions of a file apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds of its last change (`st_ctim`).
    pub changed: [u64; 2],
}

struct File {
    version: Version,
    object: Arc<Object>,
    /// When it was asked for, in calls.
    used: u64,
}

struct Files {
    by_identity: BTreeMap<Identity, File>,
    calls: u64,
}

/// No page is allocated and no object dropped while it is locked.
static FILES: Mutex<Files> = Mutex::new(Files { by_identity: BTreeMap::new(), calls: 0 });

/// How many there are, for those who do not hold the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Most files.
const MOST: usize = 256;

/// The share of the pool that they may take: one in so many pages.
const SHARE: u64 = 4;

/// The pages of a version of a file, for a program with that quota; none are there at first. Pages
/// that nobody maps count for who is the first to map them again. May sleep.
pub fn object(
    identity: Identity,
    version: Version,
    quota: Option<&'static Quota>,
) -> Result<Held, MapError> {
    if let Some((object, is_unused)) = find(identity, version) {
        let held = Held::new(object, quota)?;
        if !is_unused || held.take_over() {
            return Ok(held);
        }
        // Who can hardly have them all has those read that it needs.
    }
    let fresh = Object::anonymous()?;
    let before;
    {
        let mut files = FILES.lock();
        let file = File { version, object: fresh.clone(), used: files.calls };
        before = files.by_identity.insert(identity, file);
        files.count();
    }
    drop(before);
    while is_too_much() && evict() {}
    Held::new(fresh, quota)
}

/// The pages of a version of a file that are kept, and whether nobody maps them. May sleep.
fn find(identity: Identity, version: Version) -> Option<(Arc<Object>, bool)> {
    let mut files = FILES.lock();
    files.calls += 1;
    let used = files.calls;
    let file = files.by_identity.get_mut(&identity).filter(|file| file.version == version)?;
    file.used = used;
    let is_unused = Arc::strong_count(&file.object) == 1;
    Some((file.object.clone(), is_unused))
}

/// Gives up the least recently used file that nobody maps; `false` if there is none. May sleep.
pub fn evict() -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let evicted = {
        let mut files = FILES.lock();
        let unused = |file: &File| Arc::strong_count(&file.object) == 1;
        let oldest = files.by_identity.iter().filter(|(_, file)| unused(file));
        let oldest = oldest.min_by_key(|(_, file)| file.used).map(|(&identity, _)| identity);
        let file = oldest.and_then(|identity| files.by_identity.remove(&identity));
        files.count();
        file
    };
    evicted.is_some()
}

/// Has at least so many pages of the pool free, if giving up what is kept can do that. May sleep.
pub fn make_room(pages: u64) -> bool {
    loop {
        if SHARED.usage().1 >= pages {
            return true;
        }
        if !evict() {
            return false;
        }
    }
}

fn is_too_much() -> bool {
    let files = FILES.lock();
    let pages: u64 = files.by_identity.values().map(|file| file.object.count()).sum();
    files.by_identity.len() > MOST || pages > SHARED.usage().0 / SHARE
}

impl Files {
    fn count(&self) {
        COUNT.store(self.by_identity.len(), Ordering::Relaxed);
    }
}
