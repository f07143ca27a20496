// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry of the command.
//!
//! The C library calls [`main`] directly. The usual entry of the standard library would set SIGPIPE
//! to ignored and open `/dev/null` in place of closed standard descriptors, and `crtos run` would
//! hand both on to the program.
#![no_main]

use std::ffi::{c_char, c_int};

/// Runs the command. The C library calls it.
// SAFETY: no other function of this program has the name, and the signature is that of C's `main`.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    std::process::exit(crtos_cli::main().into())
}
