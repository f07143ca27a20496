// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds everything, boots the guest, runs the tests.
fn main() {}
