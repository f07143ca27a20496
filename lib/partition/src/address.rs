// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical addresses: of the machine, and of what a guest takes for its machine.

use core::fmt;
use core::ops::Add;

macro_rules! address {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The address with this number.
            pub const fn new(address: u64) -> Self {
                Self(address)
            }

            /// Its number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Tells whether it is a multiple of `size`, a power of two.
            pub const fn is_aligned(self, size: u64) -> bool {
                self.0 & (size - 1) == 0
            }

            /// The start of the aligned piece of `size` bytes, a power of two, that it lies in.
            pub const fn align_down(self, size: u64) -> Self {
                Self(self.0 & !(size - 1))
            }

            /// Its distance from the start of the aligned piece of `size` bytes, a power of two.
            pub const fn offset_in(self, size: u64) -> u64 {
                self.0 & (size - 1)
            }

            /// The address `bytes` further on; `None` if there is none.
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some(Self(address)),
                    None => None,
                }
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            fn add(self, bytes: u64) -> Self {
                Self(self.0 + bytes)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, formatter)
            }
        }
    };
}

address! {
    /// A physical address of the machine.
    PhysAddr
}

address! {
    /// A physical address in a cell, the root cell included: what nested tables translate to a
    /// [`PhysAddr`]. The root cell's are the same numbers.
    GuestAddr
}

impl GuestAddr {
    /// Where the root cell, whose nested tables are the identity, sees `address` of the machine.
    pub const fn of_root(address: PhysAddr) -> Self {
        Self(address.0)
    }
}

impl PhysAddr {
    /// The place in the machine of an `address` of the root cell, whose nested tables are the
    /// identity.
    pub const fn of_root(address: GuestAddr) -> Self {
        Self(address.0)
    }
}
