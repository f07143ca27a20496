// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the shadow without a C library, at its own range of addresses (`SHADOW_START`).

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    let script = format!("-Wl,-T,{folder}/shadow.ld");
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        script.as_str(),
        "-Wl,-z,norelro",
        "-Wl,--no-eh-frame-hdr",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shadow.ld");
}
