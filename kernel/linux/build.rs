// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells where the vDSO was built (`CRTOS_VDSO`; the harness builds it before the kernel).
fn main() {
    println!("cargo:rerun-if-env-changed=CRTOS_VDSO");
    match std::env::var("CRTOS_VDSO") {
        Ok(path) => {
            println!("cargo:rerun-if-changed={path}");
            println!("cargo:rustc-env=CRTOS_VDSO={path}");
        }
        Err(_) => panic!("the kernel contains the vDSO: build it by `./x build kernel`"),
    }
}
