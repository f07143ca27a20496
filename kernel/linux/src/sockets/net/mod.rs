// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces of the realm, and who hears what they receive.
//!
//! | module | concept |
//! |---|---|
//! | [`interface`] | interfaces of the realm, which drivers have |

#[expect(dead_code, reason = "drivers and families that follow use it")]
pub mod interface;
