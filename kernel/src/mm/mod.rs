// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

pub mod frames;
pub mod heap;
pub mod kept;
pub mod layout;
pub mod object;
pub mod space;
pub mod stacks;

pub use space::AddressSpace;
