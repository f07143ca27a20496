// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux half of a rich real-time process.
