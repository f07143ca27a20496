// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a program may map and lock: RLIMIT_AS, RLIMIT_DATA and RLIMIT_MEMLOCK.

use super::changes::Changes;
use super::{AddressSpace, Attributes};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_vm::{FRAME_SIZE, Kind, MapError, Protection};

/// Bytes of a stack that count before it has grown, as under Linux: here all of it is mapped at
/// once.
const STACK_AT_FIRST: u64 = 132 << 10;

/// Bytes that may be mapped; [`u64::MAX`] for as many as there are.
pub(super) struct Limits {
    all: AtomicU64,
    /// Those of them that are writable and private, without stacks.
    data: AtomicU64,
    /// Those that are locked.
    locked: AtomicU64,
}

impl Limits {
    pub(super) const fn none() -> Self {
        let [all, data, locked] = [const { AtomicU64::new(u64::MAX) }; 3];
        Self { all, data, locked }
    }

    fn get(&self) -> [u64; 3] {
        [&self.all, &self.data, &self.locked].map(|limit| limit.load(Ordering::Relaxed))
    }
}

impl AddressSpace {
    /// The program may map so many bytes from now on, and so many that are writable and private;
    /// [`u64::MAX`] for as many as there are. What is mapped stays.
    pub fn set_limits(&self, all: u64, data: u64) {
        self.limits.all.store(all, Ordering::Relaxed);
        self.limits.data.store(data, Ordering::Relaxed);
    }

    /// The program may lock so many bytes from now on; [`u64::MAX`] for as many as there are. What
    /// is locked stays.
    pub fn set_lock_limit(&self, locked: u64) {
        self.limits.locked.store(locked, Ordering::Relaxed);
    }

    /// How many bytes the program may lock, as far as that was said.
    pub fn lock_limit(&self) -> u64 {
        self.limits.locked.load(Ordering::Relaxed)
    }

    /// Bytes that would be locked if a range were, or if all were.
    pub fn locked_with(&self, range: Option<Range<UserAddr>>) -> u64 {
        let usage = self.mapped();
        let Some(range) = range else {
            return usage.mapped - usage.stacks.saturating_sub(STACK_AT_FIRST);
        };
        let (mut more, mut at) = (range.end - range.start, range.start);
        while let Some(region) = self.next_region(at).filter(|region| region.start < range.end) {
            if region.attributes.lock.is_locked() && region.attributes.kind != Kind::Stack {
                more -= region.end.min(range.end) - region.start.max(range.start);
            }
            at = region.end;
        }
        usage.locked.saturating_add(more)
    }

    /// Whether something is mapped in a range.
    pub fn is_taken(&self, range: &Range<UserAddr>) -> bool {
        self.next_region(range.start).is_some_and(|region| region.start < range.end)
    }

    /// Where a hole begins in a range, or its end.
    pub fn mapped_until(&self, range: &Range<UserAddr>) -> UserAddr {
        let mut at = range.start;
        while at < range.end
            && let Some(region) = self.next_region(at).filter(|region| region.start <= at)
        {
            at = region.end;
        }
        at.min(range.end)
    }
}

impl Changes<'_> {
    /// Whether `more` bytes with these attributes may be mapped, in place of all in `replaced`.
    /// [`MapError::Again`] if too many would be locked.
    pub(super) fn admit(
        &self,
        more: u64,
        attributes: &Attributes,
        replaced: &Range<UserAddr>,
    ) -> Result<(), MapError> {
        let [most, most_data, most_locked] = self.space.limits.get();
        if [most, most_data, most_locked] == [u64::MAX; 3] {
            return Ok(());
        }
        let usage = self.regions.usage();
        let uncounted = usage.stacks.saturating_sub(STACK_AT_FIRST);
        let all = usage.mapped - uncounted - self.sum(replaced, |_| true) + more;
        let data = usage.data - self.sum(replaced, Attributes::is_data) + more;
        if all > most || attributes.is_data() && data > most_data {
            return Err(MapError::NoMemory);
        }
        let most_locked = most_locked & !(FRAME_SIZE - 1);
        if attributes.lock.is_locked() && usage.locked.saturating_add(more) > most_locked {
            return Err(MapError::Again);
        }
        Ok(())
    }

    /// Whether the memory in `range` may have these rights, which may make data of it.
    pub(super) fn admit_rights(
        &self,
        range: &Range<UserAddr>,
        protection: Protection,
    ) -> Result<(), MapError> {
        let [_, most, _] = self.space.limits.get();
        if most == u64::MAX {
            return Ok(());
        }
        let more = self.sum(range, |attributes| {
            !attributes.is_data() && Attributes { protection, ..attributes.clone() }.is_data()
        });
        if more > 0 && self.regions.usage().data + more > most {
            return Err(MapError::NoMemory);
        }
        Ok(())
    }

    /// Bytes in `range` of regions that count.
    fn sum(&self, range: &Range<UserAddr>, counts: impl Fn(&Attributes) -> bool) -> u64 {
        let (mut sum, mut at) = (0, range.start);
        while at < range.end
            && let Some(region) = self.regions.find_from(at).filter(|it| it.start < range.end)
        {
            if counts(&region.attributes) {
                sum += region.end.min(range.end) - region.start.max(range.start);
            }
            at = region.end;
        }
        sum
    }
}
