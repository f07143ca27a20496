// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

pub mod heap;
pub mod layout;
pub mod space;

pub use space::AddressSpace;
