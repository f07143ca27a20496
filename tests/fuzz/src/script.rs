// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first line of a script.

use bolero::TypeGenerator;
use crtos_syscalls::script::{Line, START_BYTES};

/// The start of a file.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    pieces: Vec<Piece>,
}

/// Something in a line.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Piece {
    Blank,
    Tab,
    /// The same letter so many times.
    Letters(u8),
    NewLine,
    Zero,
    Any(u8),
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"#!".to_vec();
        for piece in &self.pieces {
            match *piece {
                Piece::Blank => bytes.push(b' '),
                Piece::Tab => bytes.push(b'\t'),
                Piece::Letters(count) => bytes.extend([b'a'].repeat(count.into())),
                Piece::NewLine => bytes.push(b'\n'),
                Piece::Zero => bytes.push(0),
                Piece::Any(byte) => bytes.push(byte),
            }
        }
        bytes.truncate(START_BYTES);
        bytes
    }
}

/// Runs the target.
pub fn script(input: &Input) {
    let bytes = input.bytes();
    let line = Line::parse(&bytes);
    if let Some(line) = &line {
        let name = line.interpreter().to_bytes();
        let is_part = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\n' | 0);
        // As in Linux, a zero in place of a name is the empty name.
        let may_be_empty = bytes.len() < START_BYTES || bytes.contains(&0);
        assert!(may_be_empty || !name.is_empty(), "no name in {bytes:?}");
        assert!(name.iter().all(is_part), "{name:?} of {bytes:?}");
        let is_there = |text: &[u8]| bytes.windows(text.len().max(1)).any(|w| w.starts_with(text));
        assert!(is_there(name), "{name:?} of {bytes:?}");
        let argument = line.argument().map(|text| text.to_bytes()).unwrap_or_default();
        assert!(is_there(argument), "{argument:?} of {bytes:?}");
    }
    // What a line means that ends is plain; one with a zero is whatever Linux makes of it.
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    if bytes[..end].contains(&0) {
        return;
    }
    let text = trim(&bytes[2..end]);
    let blank = text.iter().position(|byte| is_blank(*byte)).unwrap_or(text.len());
    let (name, argument) = (&text[..blank], trim(&text[blank..]));
    let found = line.as_ref().map(|line| {
        let argument = line.argument().map(|text| text.to_bytes());
        (line.interpreter().to_bytes(), argument)
    });
    let argument = (!argument.is_empty()).then_some(argument);
    let expected = (!name.is_empty()).then_some((name, argument));
    assert_eq!(found, expected, "{bytes:?}");
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !is_blank(*byte);
    let Some(start) = text.iter().position(is_text) else { return &[] };
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    &text[start..end]
}
