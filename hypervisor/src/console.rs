// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines that cells write to the log, byte by byte.

use crtos_machine::cell::Cell;
use crtos_machine::local::Local;
use crtos_machine::report;

/// Appends a byte to the line that the cell writes on this CPU; a newline ends it.
pub fn put_byte(local: &mut Local, cell: &Cell, byte: u8) {
    if byte != b'\n' {
        local.console.push(byte);
        return;
    }
    let text = core::str::from_utf8(local.console.as_bytes()).unwrap_or("(not UTF-8)");
    report::line(format_args!("cpu{} {}: {text}", local.index(), cell.name()));
    local.console.clear();
}
