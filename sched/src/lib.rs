// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed-priority run queues and timers of the real-time kernel.
#![cfg_attr(not(test), no_std)]
