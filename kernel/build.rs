// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the linker script, and where the vDSO was built (`CRTOS_VDSO`; the harness builds it before the kernel).
fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed={folder}/kernel.ld");
    println!("cargo:rerun-if-env-changed=CRTOS_VDSO");
    match std::env::var("CRTOS_VDSO") {
        Ok(path) => {
            println!("cargo:rerun-if-changed={path}");
            println!("cargo:rustc-env=CRTOS_VDSO={path}");
        }
        Err(_) => panic!("the kernel contains the vDSO: build it by `./x build kernel`"),
    }
    println!("cargo:rustc-link-arg-bins=-T{folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
}
