// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitioning logic of the hypervisor: cells, permissions, nested page tables, interrupt filter.
#![cfg_attr(not(test), no_std)]
