// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces of the realm, and who hears what they receive.
//!
//! | module | concept |
//! |---|---|
//! | [`buffer`] | buffers for a frame while it is made |
//! | [`interface`] | interfaces of the realm, which drivers have |
//! | [`requests`] | ioctls that ask for them |

pub mod buffer;
pub mod interface;
pub mod requests;
