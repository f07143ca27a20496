// SPDX-License-Identifier: MIT OR Apache-2.0
//! How wide lines of sources may be. Strings, addresses of pages and rows of tables cannot be
//! broken, so they may be wider.

use std::fs;

use anyhow::Result;

use super::{has_extension, report, tracked};
use crate::paths;

/// The widest line, in columns, as `.editorconfig` and `rustfmt.toml` say.
const COLUMNS: usize = 100;
/// Columns that a tab goes on to.
const TAB: usize = 8;

/// How a language writes comments and strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    /// Rust and C.
    Braces,
    Shell,
}

impl Language {
    fn is_comment(self, line: &str) -> bool {
        let starts: &[&str] = match self {
            Self::Braces => &["//", "/*", "* ", "*/"],
            Self::Shell => &["#"],
        };
        starts.iter().any(|start| line.trim_start().starts_with(start))
    }

    fn is_quote(self, character: char) -> bool {
        character == '"' || self == Self::Shell && character == '\''
    }

    /// Whether a character after a backslash does not count within a string of that kind.
    fn escapes(self, quote: char) -> bool {
        self == Self::Braces || quote == '"'
    }
}

/// Checks all sources.
pub fn width() -> Result<()> {
    let mut complaints = Vec::new();
    for path in tracked()? {
        let language = match () {
            () if has_extension(&path, &["rs", "c", "h", "S"]) => Language::Braces,
            () if has_extension(&path, &["sh"]) => Language::Shell,
            () => continue,
        };
        let text = fs::read_to_string(paths::root().join(&path))?;
        let wide = text.lines().enumerate().filter(|(_, line)| is_too_wide(line, language));
        complaints.extend(wide.map(|(index, line)| {
            format!("{}:{}: {} columns", path.display(), index + 1, columns(line))
        }));
    }
    report(&complaints)
}

/// Whether a line is too wide and could be narrower.
fn is_too_wide(line: &str, language: Language) -> bool {
    if columns(line) <= COLUMNS || line.contains("://") {
        return false;
    }
    if language.is_comment(line) {
        let text = line.trim_start().trim_start_matches(['/', '!', '*', '#', ' ']);
        return !text.starts_with('|');
    }
    columns(&without_strings(line, language)) > COLUMNS
}

/// The width of a line.
fn columns(line: &str) -> usize {
    line.chars().fold(0, |column, character| match character {
        '\t' => column / TAB * TAB + TAB,
        _ => column + 1,
    })
}

/// The line with empty strings in place of its strings. One that does not end there reaches to the
/// end of the line.
fn without_strings(line: &str, language: Language) -> String {
    let mut rest = String::new();
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match quote {
            None => {
                rest.push(character);
                quote = Some(character).filter(|c| language.is_quote(*c));
            }
            Some(end) if character == end => {
                rest.push(character);
                quote = None;
            }
            Some(end) if character == '\\' && language.escapes(end) => {
                characters.next();
            }
            Some(_) => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "word word word word word word word word word word \
        word word word word word word word word word word word";

    #[test]
    fn tabs_count_up_to_the_next_stop() {
        assert_eq!(columns("\ta"), 9);
        assert_eq!(columns("abc\ta"), 9);
        assert_eq!(columns("µs"), 2);
    }

    #[test]
    fn comments_and_code_have_to_be_narrow() {
        for line in [format!("// {WORDS}"), format!("\t * {WORDS}"), format!("f({WORDS});")] {
            assert!(is_too_wide(&line, Language::Braces), "{line}");
        }
        assert!(is_too_wide(&format!("# {WORDS}"), Language::Shell));
        assert!(is_too_wide(&format!("// \"{WORDS}\""), Language::Braces));
        assert!(!is_too_wide("// word", Language::Braces));
    }

    #[test]
    fn what_cannot_be_broken_may_be_wide() {
        let address = format!("// https://example.org/{}", "x".repeat(100));
        let row = format!("//! | {WORDS} |");
        for line in [address, row, format!("f(\"{WORDS}\", \"a\");")] {
            assert!(!is_too_wide(&line, Language::Braces), "{line}");
        }
        assert!(!is_too_wide(&format!("f '{WORDS}'"), Language::Shell));
        assert!(is_too_wide(&format!("f('a', {WORDS}, 'b');"), Language::Braces));
    }

    #[test]
    fn strings_end_where_their_language_says() {
        assert_eq!(without_strings(r#"f("a\"b", c)"#, Language::Braces), r#"f("", c)"#);
        assert_eq!(without_strings(r"f 'a\' b", Language::Shell), "f '' b");
        assert_eq!(without_strings(r#"f "it's" b"#, Language::Shell), r#"f "" b"#);
    }
}
