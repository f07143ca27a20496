// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library for *inmates*: bare-metal programs that have a cell for themselves.
//!
//! An inmate says [`inmate!`] once, with a function that each CPU of the cell runs and one that is
//! called for each interrupt. What it finds when it starts: memory at its own addresses, interrupts
//! off, a stack, exceptions reported on the console, the local APIC enabled.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! use crtos_inmates::{inmate, println};
//!
//! inmate!(main, |_vector| ());
//!
//! fn main(cpu: usize) {
//!     println!("hello from CPU {cpu}");
//! }
//! ```
#![no_std]

pub mod apic;
pub mod boot;
pub mod console;
pub mod exceptions;
pub mod hypercall;
pub mod link;
pub mod pci;
pub mod shared;
pub mod time;

mod start;

/// Names the functions of an inmate: `$main(cpu: usize)`, which each CPU runs, and
/// `$interrupt(vector: u8)`, which is called with interrupts off and before the end of the
/// interrupt is signalled. When `$main` returns the CPU halts.
#[macro_export]
macro_rules! inmate {
    ($main:expr, $interrupt:expr) => {
        #[unsafe(no_mangle)]
        fn inmate_main(cpu: usize) {
            let main: fn(usize) = $main;
            main(cpu)
        }

        #[unsafe(no_mangle)]
        fn inmate_interrupt(vector: u8) {
            let interrupt: fn(u8) = $interrupt;
            interrupt(vector)
        }

        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo) -> ! {
            $crate::println!("panic: {info}");
            $crate::halt()
        }
    };
}

/// Halts this CPU for good.
pub fn halt() -> ! {
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}

/// Waits for an interrupt and handles it. Interrupts are off before and after.
pub fn wait_for_interrupt() {
    x86_64::instructions::interrupts::enable_and_hlt();
    x86_64::instructions::interrupts::disable();
}
