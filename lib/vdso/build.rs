// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the program `vdso` as a shared object.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    for argument in [
        "--no-pie",
        "--shared",
        "--soname=linux-vdso.so.1",
        "--hash-style=both",
        "--eh-frame-hdr",
        "--build-id=sha1",
        "--no-undefined",
        "--gc-sections",
        "--strip-all",
        "-zrodynamic",
        &format!("--version-script={folder}/vdso.map"),
        &format!("-T{folder}/vdso.ld"),
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rerun-if-changed={folder}/vdso.map");
    println!("cargo:rerun-if-changed={folder}/vdso.ld");
}
