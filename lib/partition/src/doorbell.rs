// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the doorbells of a cell ring in the root cell.
//!
//! The root cell says on which of its CPUs, and with which vector on each. The cell names one of
//! them. It takes the number from memory that both write to, so any number may come: one that is no
//! such CPU means the *home*.

use core::sync::atomic::{AtomicU8, Ordering};

use crtos_abi::MAX_CPUS;

use crate::ids::CpuIndex;

/// The CPUs on which a cell may ring. Changed by one caller at a time, read at any time.
pub struct Routes {
    /// Vector on each CPU; 0: none.
    vectors: [AtomicU8; MAX_CPUS],
    /// Where those ring that name no CPU with a vector.
    home: AtomicU8,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    /// None.
    pub const fn new() -> Self {
        Self { vectors: [const { AtomicU8::new(0) }; MAX_CPUS], home: AtomicU8::new(0) }
    }

    /// Takes all away.
    pub fn clear(&self) {
        self.vectors.iter().for_each(|vector| vector.store(0, Ordering::SeqCst));
    }

    /// Sets the `vector` that rings raise which name `cpu`; with 0 they go elsewhere from then on.
    pub fn set(&self, cpu: CpuIndex, vector: u8) {
        self.vectors[cpu.get()].store(vector, Ordering::SeqCst);
    }

    /// Sends rings that name no CPU with a vector to `cpu`.
    pub fn set_home(&self, cpu: CpuIndex) {
        self.home.store(cpu.get() as u8, Ordering::SeqCst);
    }

    /// CPU and vector of a ring that names `named`. `is_linux` says whether a CPU is the root
    /// cell's just now.
    #[inline]
    pub fn target(
        &self,
        named: u64,
        is_linux: impl Fn(CpuIndex) -> bool,
    ) -> Option<(CpuIndex, u8)> {
        let at = |cpu: CpuIndex| {
            let vector = self.vectors[cpu.get()].load(Ordering::SeqCst);
            (vector != 0 && is_linux(cpu)).then_some((cpu, vector))
        };
        CpuIndex::named(named)
            .and_then(at)
            .or_else(|| at(CpuIndex::named(self.home.load(Ordering::SeqCst).into())?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(index: usize) -> CpuIndex {
        CpuIndex::new(index).expect("in range")
    }

    #[test]
    fn a_ring_goes_where_it_may() {
        let routes = Routes::new();
        let linux = |cpu| cpu != at(3);
        assert_eq!(routes.target(0, linux), None);
        routes.set(at(1), 40);
        routes.set_home(at(1));
        assert_eq!(routes.target(0, linux), Some((at(1), 40)));
        assert_eq!(routes.target(!0, linux), Some((at(1), 40)));
        routes.set(at(2), 41);
        assert_eq!(routes.target(2, linux), Some((at(2), 41)));
        routes.set(at(3), 42);
        assert_eq!(routes.target(3, linux), Some((at(1), 40)), "it is not Linux's");
        routes.set_home(at(3));
        assert_eq!(routes.target(5, linux), None);
        routes.set_home(at(2));
        routes.set(at(1), 0);
        assert_eq!(routes.target(1, linux), Some((at(2), 41)));
        routes.clear();
        assert_eq!(routes.target(2, linux), None);
    }

    proptest! {
        /// Whatever is named, a ring raises a vector that was set for that CPU, on a CPU of Linux.
        #[test]
        fn no_number_leads_elsewhere(
            set in prop::collection::btree_map((0..MAX_CPUS).prop_map(at), 32..=255_u8, 0..16),
            linux in prop::collection::btree_set((0..MAX_CPUS).prop_map(at), 0..256),
            home in (0..MAX_CPUS).prop_map(at),
            named in prop::collection::vec(prop_oneof![0..300_u64, any::<u64>()], 1..50),
        ) {
            let routes = Routes::new();
            set.iter().for_each(|(&cpu, &vector)| routes.set(cpu, vector));
            routes.set_home(home);
            for named in named {
                let may = |cpu: CpuIndex| {
                    linux
                        .contains(&cpu)
                        .then(|| set.get(&cpu).map(|vector| (cpu, *vector)))
                        .flatten()
                };
                let expected = usize::try_from(named)
                    .ok()
                    .and_then(CpuIndex::new)
                    .and_then(may)
                    .or_else(|| may(home));
                prop_assert_eq!(routes.target(named, |cpu| linux.contains(&cpu)), expected);
            }
        }
    }
}
