// SPDX-License-Identifier: MIT OR Apache-2.0
//! `linux/module/abi.h` is what these sources say. `UPDATE_HEADER=1 cargo test -p crtos-abi` writes
//! it anew.

use std::{fs, path::Path};

/// The header as it has to be.
fn generate() -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        no_includes: true,
        cpp_compat: false,
        documentation: false,
        include_guard: Some("CRTOS_ABI_H".into()),
        sys_includes: vec!["linux/types.h".into()],
        header: Some("/* SPDX-License-Identifier: GPL-2.0-only */\n/* Generated from the crate crtos-abi; see lib/abi/tests/header.rs. */".into()),
        tab_width: 8,
        export: cbindgen::ExportConfig {
            prefix: Some("crtos_".into()),
            include: ["ImageHeader", "LaunchInfo", "CellConfig", "Region", "Report", "Channel", "Startup", "BootInfo",
                "CreateCell", "CellDevice", "CellInterface", "CellEthernet", "LinkHeader", "LinkPeer", "Link", "LinkJoin", "DeviceConfig", "LoadCell", "StartCell", "Info", "Transfer", "Reason", "Spawn", "Remote", "CopyRange"]
                .map(String::from).to_vec(),
            ..Default::default()
        },
        layout: cbindgen::LayoutConfig {
            aligned_n: Some("__aligned".into()),
            packed: Some("__packed".into()),
        },
        ..Default::default()
    };
    let mut bytes = Vec::new();
    cbindgen::Builder::new()
        .with_crate(env!("CARGO_MANIFEST_DIR"))
        .with_config(config)
        .generate()
        .expect("the sources parse")
        .write(&mut bytes);
    kernel_style(&String::from_utf8(bytes).expect("a header is text"))
}

/// The names, types and tabs of Linux's coding style.
fn kernel_style(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        out.push_str(&kernel_name(&word));
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    // In C the bit would not fit the `int` that it is.
    out.replace("        ", "\t").replace("(1 << 63)", "BIT_ULL(63)")
}

fn kernel_name(word: &str) -> String {
    let fixed = match word {
        "uint8_t" => "u8",
        "uint16_t" => "u16",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "int32_t" => "s32",
        "int64_t" => "s64",
        _ => "",
    };
    if !fixed.is_empty() {
        return fixed.into();
    }
    let Some(name) = word.strip_prefix("crtos_") else { return word.into() };
    if !name.chars().any(|c| c.is_lowercase()) {
        return format!("CRTOS_{name}");
    }
    let mut snake = String::from("crtos");
    for c in name.chars() {
        if c.is_uppercase() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[test]
fn header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../linux/module/abi.h");
    let wanted = generate();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &wanted).expect("linux/module/abi.h can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "linux/module/abi.h is out of date: run UPDATE_HEADER=1 cargo test -p crtos-abi"
    );
}
