// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the doorbells of a cell ring in the root cell.
//!
//! The root cell says on which of its CPUs, and with which vector on each. The cell names one of them; what it names it has
//! from memory that both write to, so that a number which is no such CPU means the CPU for all others.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crtos_abi::MAX_CPUS;

/// The CPUs on which a cell may ring. Changed by one caller at a time, read at any time.
pub struct Routes {
    /// Vector on each CPU; 0: none.
    vectors: [AtomicU8; MAX_CPUS],
    /// Where those ring that name no CPU with a vector.
    home: AtomicU32,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    /// None.
    pub const fn new() -> Self {
        Self { vectors: [const { AtomicU8::new(0) }; MAX_CPUS], home: AtomicU32::new(0) }
    }

    /// Takes all away.
    pub fn clear(&self) {
        self.vectors.iter().for_each(|vector| vector.store(0, Ordering::SeqCst));
    }

    /// Rings that name `cpu`, which is below [`MAX_CPUS`], raise `vector` there; with 0 they do not any more.
    pub fn set(&self, cpu: usize, vector: u8) {
        self.vectors[cpu].store(vector, Ordering::SeqCst);
    }

    /// Rings that name no CPU with a vector go to `cpu`.
    pub fn set_home(&self, cpu: usize) {
        self.home.store(cpu as u32, Ordering::SeqCst);
    }

    /// CPU and vector of a ring that names `named`. `is_linux` says whether a CPU is the root cell's just now.
    #[inline]
    pub fn target(&self, named: u64, is_linux: impl Fn(usize) -> bool) -> Option<(usize, u8)> {
        let at = |cpu: usize| {
            let vector = self.vectors.get(cpu)?.load(Ordering::SeqCst);
            (vector != 0 && is_linux(cpu)).then_some((cpu, vector))
        };
        at(usize::try_from(named).unwrap_or(usize::MAX))
            .or_else(|| at(self.home.load(Ordering::SeqCst) as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ring_goes_where_it_may() {
        let routes = Routes::new();
        let linux = |cpu| cpu != 3;
        assert_eq!(routes.target(0, linux), None);
        routes.set(1, 40);
        routes.set_home(1);
        assert_eq!(routes.target(0, linux), Some((1, 40)));
        assert_eq!(routes.target(!0, linux), Some((1, 40)));
        routes.set(2, 41);
        assert_eq!(routes.target(2, linux), Some((2, 41)));
        routes.set(3, 42);
        assert_eq!(routes.target(3, linux), Some((1, 40)), "it is not Linux's");
        routes.set_home(3);
        assert_eq!(routes.target(5, linux), None);
        routes.set_home(2);
        routes.set(1, 0);
        assert_eq!(routes.target(1, linux), Some((2, 41)));
        routes.clear();
        assert_eq!(routes.target(2, linux), None);
    }

    proptest! {
        /// Whatever is named, a ring raises a vector that was set for that CPU, on a CPU of Linux.
        #[test]
        fn no_number_leads_elsewhere(
            set in prop::collection::btree_map(0..MAX_CPUS, 32..=255_u8, 0..16),
            linux in prop::collection::btree_set(0..MAX_CPUS, 0..256),
            home in 0..MAX_CPUS,
            named in prop::collection::vec(prop_oneof![0..300_u64, any::<u64>()], 1..50),
        ) {
            let routes = Routes::new();
            set.iter().for_each(|(&cpu, &vector)| routes.set(cpu, vector));
            routes.set_home(home);
            for named in named {
                let may = |cpu: usize| linux.contains(&cpu).then(|| set.get(&cpu).map(|vector| (cpu, *vector))).flatten();
                let expected = usize::try_from(named).ok().and_then(may).or_else(|| may(home));
                prop_assert_eq!(routes.target(named, |cpu| linux.contains(&cpu)), expected);
            }
        }
    }
}
