// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real-time kernel as it is loaded into a cell: mechanism ([`crtos_core`]) and, above it,
//! Linux's ABI ([`crtos_linux`]), which the former calls through [`mod@crtos_core::personality`].
#![no_std]
#![no_main]

// Linked for what the processor and the lower half call.
use crtos_core as _;
use crtos_linux as _;

/// Tells `crtos version` and `crtos check` which version of the interface this kernel speaks.
// SAFETY: nothing else is in this section, which is only data.
#[used]
#[unsafe(link_section = ".note.crtos")]
static NOTE: crtos_abi::note::Note = crtos_abi::note::Note::new();
