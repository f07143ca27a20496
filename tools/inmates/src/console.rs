// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: lines in the hypervisor's log, with the cell's name in front (`crtos log`). Each
//! byte is a call into the hypervisor, so nothing for a measurement.

use core::fmt::{self, Write};

use crtos_abi::hypercall::HC_PUTC;

use crate::hypercall;

/// The console of this CPU.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            hypercall::call(HC_PUTC, byte.into(), 0);
        }
        Ok(())
    }
}

/// Writes a line to the console.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {{
        use core::fmt::Write;
        // The console takes everything.
        let _ = writeln!($crate::console::Console, $($argument)*);
    }};
}
