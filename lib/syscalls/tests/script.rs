// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first lines of scripts, as Linux reads them.

use crtos_syscalls::script::{Line, MAX_SCRIPTS, START_BYTES, Scripts, TooMany};

fn parse(start: &[u8]) -> Option<(String, Option<String>)> {
    let line = Line::parse(start)?;
    let text = |text: &core::ffi::CStr| text.to_str().unwrap().to_string();
    Some((text(line.interpreter()), line.argument().map(text)))
}

fn is(start: &[u8], interpreter: &str, argument: Option<&str>) {
    assert_eq!(parse(start), Some((interpreter.into(), argument.map(Into::into))));
}

#[test]
fn names_and_arguments() {
    is(b"#!/bin/sh\n", "/bin/sh", None);
    is(b"#!/bin/sh\nexit /bin/false\n", "/bin/sh", None);
    is(b"#!/bin/sh", "/bin/sh", None);
    is(b"#! \t/bin/sh \t\n", "/bin/sh", None);
    is(b"#!/bin/sh -e\n", "/bin/sh", Some("-e"));
    is(b"#!/usr/bin/env -S  a  b \t\n", "/usr/bin/env", Some("-S  a  b"));
    is(b"#!sh\t\t-e", "sh", Some("-e"));
    is(b"#!a\0 b\n", "a", None);
    is(b"#!a b\0c\n", "a", Some("b"));
    is(b"#!\0\n", "", None);
    is(b"#!", "", None);
    is(b"#!a\r\n", "a\r", None);
}

#[test]
fn no_scripts() {
    for start in
        [&b""[..], b"#", b"\x7fELF", b"echo", b" #!/bin/sh\n", b"#!\n", b"#! \t \n/bin/sh\n"]
    {
        assert_eq!(parse(start), None, "{start:?}");
    }
    assert_eq!(parse(&[b"#!".as_slice(), &[b' '; 300]].concat()), None);
}

#[test]
fn long_lines() {
    let name = |length| "x".repeat(length);
    // A name that is cut off is none; one that ends with the last byte could go on.
    for length in [START_BYTES - 2, START_BYTES, 1000] {
        assert_eq!(parse(format!("#!{}\n", name(length)).as_bytes()), None);
    }
    is(format!("#!{}\n", name(START_BYTES - 3)).as_bytes(), &name(START_BYTES - 3), None);
    // An argument is cut off.
    is(format!("#!a {}\n", name(1000)).as_bytes(), "a", Some(&name(START_BYTES - 5)));
    is(format!("#!a{}b\n", " ".repeat(1000)).as_bytes(), "a", None);
}

#[test]
fn scripts_of_scripts() {
    let mut scripts = Scripts::new();
    assert!(scripts.is_empty() && scripts.arguments().next().is_none());
    let lines: [&[u8]; 3] = [b"#!./b one\n", b"#!./c\n", b"#!/bin/d two three\n"];
    for (line, interpreter) in lines.into_iter().zip([c"./b", c"./c", c"/bin/d"]) {
        assert_eq!(scripts.add(Line::parse(line).unwrap()), Ok(interpreter));
    }
    let arguments: Vec<_> = scripts.arguments().collect();
    assert_eq!(arguments, [c"/bin/d", c"two three", c"./c", c"./b", c"one"]);
    for _ in lines.len()..MAX_SCRIPTS {
        assert!(scripts.add(Line::parse(b"#!x").unwrap()).is_ok());
    }
    assert_eq!(scripts.add(Line::parse(b"#!x").unwrap()), Err(TooMany));
}
