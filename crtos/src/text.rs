// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words for the terminal: text from the other realm made harmless, tables, styles.

use anstyle::{AnsiColor, Style};

/// Style of what is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of what works but costs something.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
/// Style of what is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of what matters less.
pub const FAINT: Style = Style::new().dimmed();

/// Text from elsewhere, with everything that a terminal could take for a command replaced.
pub fn harmless(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// A zero-padded field.
pub fn padded(bytes: &[u8]) -> String {
    harmless(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Columns under a header, as `ps` prints them; `right` names the columns of numbers.
pub fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 1 }, 1));
        if right.contains(&index) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands() {
        assert_eq!(harmless(b"a\x1b[31mb\x07"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(padded(b"busybox\0\0junk"), "busybox");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["7".into(), "sh".into()], vec!["123".into(), "sleep".into()]];
        let text = table(&["PID", "COMMAND"], &[0], rows);
        assert_eq!(text, "PID  COMMAND\n  7  sh\n123  sleep");
    }
}
