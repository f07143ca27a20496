// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

pub mod frames;
pub mod heap;
pub mod held;
pub mod layout;
pub mod object;
pub mod page_cache;
pub mod pages;
pub mod quota;
pub mod space;
pub(crate) mod stacks;
pub mod window;

pub use space::AddressSpace;
