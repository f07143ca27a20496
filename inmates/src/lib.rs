// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library for bare-metal programs in a cell, and its demos.
