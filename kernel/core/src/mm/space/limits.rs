// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a program may map: RLIMIT_AS and RLIMIT_DATA.

use super::changes::Changes;
use super::{AddressSpace, Attributes};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_vm::{MapError, Protection};

/// Bytes of a stack that count before it has grown, as under Linux: here all of it is mapped at
/// once.
const STACK_AT_FIRST: u64 = 132 << 10;

/// Bytes that may be mapped; [`u64::MAX`] for as many as there are.
pub(super) struct Limits {
    all: AtomicU64,
    /// Those of them that are writable and private, without stacks.
    data: AtomicU64,
}

impl Limits {
    pub(super) const fn none() -> Self {
        Self { all: AtomicU64::new(u64::MAX), data: AtomicU64::new(u64::MAX) }
    }

    fn get(&self) -> [u64; 2] {
        [&self.all, &self.data].map(|limit| limit.load(Ordering::Relaxed))
    }
}

impl AddressSpace {
    /// The program may map so many bytes from now on, and so many that are writable and private;
    /// [`u64::MAX`] for as many as there are. What is mapped stays.
    pub fn set_limits(&self, all: u64, data: u64) {
        self.limits.all.store(all, Ordering::Relaxed);
        self.limits.data.store(data, Ordering::Relaxed);
    }
}

impl Changes<'_> {
    /// Whether `more` bytes with these attributes may be mapped, in place of all in `replaced`.
    pub(super) fn admit(
        &self,
        more: u64,
        attributes: &Attributes,
        replaced: &Range<UserAddr>,
    ) -> Result<(), MapError> {
        let [most, most_data] = self.space.limits.get();
        if most == u64::MAX && most_data == u64::MAX {
            return Ok(());
        }
        let usage = self.regions.usage();
        let uncounted = usage.stacks.saturating_sub(STACK_AT_FIRST);
        let all = usage.mapped - uncounted - self.sum(replaced, |_| true) + more;
        let data = usage.data - self.sum(replaced, Attributes::is_data) + more;
        if all > most || attributes.is_data() && data > most_data {
            return Err(MapError::NoMemory);
        }
        Ok(())
    }

    /// Whether the memory in `range` may have these rights, which may make data of it.
    pub(super) fn admit_rights(
        &self,
        range: &Range<UserAddr>,
        protection: Protection,
    ) -> Result<(), MapError> {
        let [_, most] = self.space.limits.get();
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
