// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for the terminal: tables, styles, and text from the other realm, made harmless.

use anstyle::{AnsiColor, Style};

/// Style of what is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of what works but costs something.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
/// Style of what is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of what matters less.
pub const FAINT: Style = Style::new().dimmed();

/// Tells on standard error what did not work, though the command goes on, and what to do then.
pub fn warn(what: &str, remedy: &str) {
    anstream::eprintln!("{DOUBTFUL}crtos:{DOUBTFUL:#} {what}\n  remedy: {remedy}");
}

/// Returns text from elsewhere, with everything replaced that a terminal could take for a command.
pub fn harmless(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\t' || reorders(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Whether a character has a terminal show others in another order.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text of a field that is padded with zeros.
pub fn padded(bytes: &[u8]) -> String {
    harmless(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Formats columns below a header, as `ps` does. `right` names the columns of numbers. Entries may
/// have styles.
pub fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let width = |cell: &str| anstream::adapter::strip_str(cell).to_string().chars().count();
    let mut lines = vec![header.iter().map(|title| title.to_string()).collect()];
    lines.extend(rows);
    let mut widths = vec![0; header.len()];
    for line in &lines {
        for (widest, cell) in widths.iter_mut().zip(line) {
            *widest = width(cell).max(*widest);
        }
    }
    let show = |line: &Vec<String>| {
        let mut text = String::new();
        for (column, (cell, widest)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(widest - width(cell));
            let gap = if column == 0 { "" } else { "  " };
            match right.contains(&column) {
                true => text.extend([gap, &pad, cell]),
                false => text.extend([gap, cell, &pad]),
            }
        }
        text.trim_end().to_string()
    };
    lines.iter().map(show).collect::<Vec<_>>().join("\n")
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
        let rows = vec![vec![format!("{GOOD}up{GOOD:#}"), "x".into()]];
        let text = table(&["STATE", "NAME"], &[], rows);
        assert_eq!(anstream::adapter::strip_str(&text).to_string(), "STATE  NAME\nup     x");
    }
}
