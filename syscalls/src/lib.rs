// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of Linux system calls: local, remote, dual, unsupported.
#![cfg_attr(not(test), no_std)]
