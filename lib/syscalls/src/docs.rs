// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documentation page `docs/system-calls.md`, written from the table.

use core::fmt::{Result, Write};

use crate::{Class, POINTERS, RESTARTS, Row, TABLE, WAITS};

/// Returns the word for the class of a row.
fn class(row: &Row) -> &'static str {
    match row.class {
        Class::Local(_) => "local",
        Class::Remote => "remote",
        Class::Dual(_) => "dual",
        Class::Unsupported => "unsupported",
    }
}

/// Writes the page to `out`.
pub fn page(out: &mut impl Write) -> Result {
    let count = |wanted: &str| TABLE.iter().filter(|row| class(row) == wanted).count();
    writeln!(
        out,
        "<!-- Generated from the crate crtos-syscalls; see lib/syscalls/tests/table.rs. -->"
    )?;
    writeln!(out, "# System calls\n")?;
    writeln!(out, "Every call of Linux x86-64 is in one of four classes:\n")?;
    writeln!(out, "| class | calls | who serves it |\n|---|---|---|")?;
    writeln!(out, "| local | {} | the real-time kernel alone |", count("local"))?;
    writeln!(
        out,
        "| remote | {} | Linux: the shadow makes the call with the program's own arguments |",
        count("remote")
    )?;
    writeln!(
        out,
        "| dual | {} | the real-time kernel, and the shadow for Linux's half |",
        count("dual")
    )?;
    writeln!(
        out,
        "| unsupported | {} | nobody: `ENOSYS`, as on a Linux configured without it |\n",
        count("unsupported")
    )?;
    writeln!(
        out,
        "`w`: may wait without bound, and a signal ends the wait. `r`: made again after a signal handler with `SA_RESTART`. `p`: takes"
    )?;
    writeln!(
        out,
        "pointers; Linux reaches the program's memory through the shadow's mapping of it.\n"
    )?;
    writeln!(out, "| number | call | class | | support |\n|---|---|---|---|---|")?;
    for row in TABLE {
        write!(out, "| {} | {} | {} | ", row.number, row.name, class(row))?;
        for (flag, letter) in [(WAITS, 'w'), (RESTARTS, 'r'), (POINTERS, 'p')] {
            if row.flags & flag != 0 {
                out.write_char(letter)?;
            }
        }
        writeln!(out, " | {} |", row.support)?;
    }
    Ok(())
}
