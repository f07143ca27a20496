// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links inmates where the command line loads them.

fn main() {
    let script = format!("{}/inmate.lds", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
    println!("cargo:rerun-if-changed={script}");
}
