// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor: nothing outside this folder names a register.

pub(crate) mod apic;
pub(crate) mod context;
pub(crate) mod cpu;
pub(crate) mod entry;
pub mod fpu;
pub(crate) mod gdt;
pub(crate) mod hypercall;
pub mod interrupts;
pub(crate) mod machine_check;
pub(crate) mod paging;
pub(crate) mod percpu;
pub(crate) mod speculation;
pub(crate) mod tlb;
pub(crate) mod traps;
pub mod user_memory;

pub use context::{UserContext, enter_user};
pub use cpu::random;
pub use hypercall::{agree_to_end, linux_is_halted, ring_linux};
pub use interrupts::InterruptsOff;
pub use speculation::{has_barrier, has_store_bypass};
pub use traps::{Cause, Exception};
