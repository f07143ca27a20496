// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the linker script.
fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed={folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=-T{folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
}
