// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address spaces of the real-time kernel: frames, regions, page tables.
#![cfg_attr(not(test), no_std)]
