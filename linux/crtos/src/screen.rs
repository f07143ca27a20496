// SPDX-License-Identifier: MIT OR Apache-2.0
//! A terminal whose whole screen shows one text after the other.

use std::io::{self, Write};

/// A terminal that shows one text; what was there before is back when it is dropped.
pub struct Screen;

impl Screen {
    /// Takes the screen.
    pub fn enter() -> Self {
        print!("\x1b[?1049h\x1b[?25l");
        Self
    }

    /// Shows as much of the text as there is room for.
    pub fn show(&self, text: &str) {
        let (columns, lines) = match terminal_size::terminal_size() {
            Some((columns, lines)) => (usize::from(columns.0), usize::from(lines.0)),
            None => (80, 24),
        };
        print!("\x1b[H");
        for line in text.lines().take(lines.saturating_sub(1)) {
            println!("{}\x1b[K", line.chars().take(columns).collect::<String>());
        }
        print!("\x1b[J");
        let _ = io::stdout().flush();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
    }
}
