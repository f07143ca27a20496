// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor: nothing outside this folder names a register.

pub mod apic;
pub mod context;
pub mod cpu;
pub mod entry;
pub mod fpu;
pub mod gdt;
pub mod hypercall;
pub mod paging;
pub mod percpu;
pub mod tlb;
pub mod traps;
pub mod user_memory;

pub use context::{UserContext, enter_user};
pub use hypercall::ring_linux;
