// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of crtos.
fn main() {}
