// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that name something, each with a type of its own.
//!
//! The structures that the parts share hold bare words: who reads one checks it, and has the type
//! from there on.

use core::{fmt, num::NonZeroU32};

use crate::MAX_CELL_CPUS;

/// A CPU of the realm, by its index in the cell, which is below [`MAX_CELL_CPUS`]. Linux and the
/// hypervisor know the same CPU by another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealmCpu(u32);

const _: () = assert!(MAX_CELL_CPUS.is_power_of_two());

impl RealmCpu {
    /// Returns the one that starts first.
    pub const fn first() -> Self {
        Self(0)
    }

    /// Returns the CPU of that index, whoever names it; `None` if there is none.
    #[inline]
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_CELL_CPUS { Some(Self(index as u32)) } else { None }
    }

    /// Returns the CPU of an index that came from [`RealmCpu::get`], without a check: of a greater
    /// one the remainder counts.
    #[inline]
    pub const fn again(index: u32) -> Self {
        Self(index % MAX_CELL_CPUS as u32)
    }

    /// Returns its index.
    #[inline]
    pub const fn get(self) -> usize {
        // It is below anyway: with the remainder, an index needs no second check.
        self.0 as usize % MAX_CELL_CPUS
    }

    /// Returns its index as the word that it is in the channel.
    #[inline]
    pub const fn to_word(self) -> u32 {
        self.0
    }

    /// Iterates over all that there can be, in ascending order.
    #[inline]
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_CELL_CPUS as u32).map(Self)
    }
}

impl fmt::Display for RealmCpu {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Linux's id of a process, which is its pid in the realm as well: a positive `pid_t`. It is unique
/// in a [`PidNamespace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(NonZeroU32);

/// Linux's id of a thread, which is its tid in the realm as well: a positive `pid_t`. It is unique
/// in a [`PidNamespace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tid(NonZeroU32);

impl Pid {
    /// Returns the id of the first thread of the process (the leader of its thread group).
    #[inline]
    pub const fn leader(self) -> Tid {
        Tid(self.0)
    }
}

impl Tid {
    /// Returns the id of the process whose first thread it is.
    #[inline]
    pub const fn leads(self) -> Pid {
        Pid(self.0)
    }
}

/// The number of a process in the channel and the module, unique among those that live. It is not
/// the process id. Any number can be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessNumber(pub u32);

/// A pid namespace of Linux, in which processes and threads have ids of their own: by a number that
/// no other one has meanwhile. Any number can be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PidNamespace(pub u32);

/// What both kinds of ids can do.
macro_rules! pid_t {
    ($type:ident) => {
        impl $type {
            /// Returns the id of that number, whoever says it; `None` if it is none.
            #[inline]
            pub const fn new(number: u32) -> Option<Self> {
                match NonZeroU32::new(number) {
                    Some(number) if number.get() <= i32::MAX as u32 => Some(Self(number)),
                    _ => None,
                }
            }

            /// Returns the id that an argument of a system call names, which is a `pid_t`; `None`
            /// if it is none (0, negative).
            #[inline]
            pub const fn named(argument: u64) -> Option<Self> {
                Self::new(argument as u32)
            }

            /// Says whether an argument of a system call names it.
            #[inline]
            pub const fn is(self, argument: u64) -> bool {
                argument as u32 == self.get()
            }

            /// Returns its number.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0.get()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

pid_t!(Pid);
pid_t!(Tid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_cell() {
        assert_eq!(RealmCpu::new(MAX_CELL_CPUS), None);
        let last = RealmCpu::new(MAX_CELL_CPUS - 1);
        assert_eq!(last, RealmCpu::all().last());
        assert_eq!(last.map(|cpu| RealmCpu::again(cpu.to_word())), last);
        assert_eq!(last.map(RealmCpu::get), Some(MAX_CELL_CPUS - 1));
    }

    #[test]
    fn ids_are_positive() {
        assert_eq!([0, 1 << 31, u32::MAX].map(Pid::new), [None; 3]);
        assert_eq!(Tid::named(!0), None);
        let pid = Pid::named(1 << 32 | 7).unwrap();
        assert_eq!((pid.get(), pid.leader()), (7, Tid::new(7).unwrap()));
        assert_eq!(pid.leader().leads(), pid);
        assert!(pid.is(7) && !pid.is(0));
    }
}
