// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table is Linux's table, and the documentation page is the table.
//! `UPDATE_DOCS=1 cargo test -p crtos-syscalls` writes the page.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crtos_syscalls::{Class, FD, HERITAGE, POINTERS, TABLE, lookup, page};

#[test]
fn numbers_ascend_and_are_found() {
    for pair in TABLE.windows(2) {
        assert!(pair[0].number < pair[1].number, "{} before {}", pair[0].name, pair[1].name);
    }
    for row in TABLE {
        assert_eq!(lookup(row.number.into()).map(|found| found.name), Some(row.name));
    }
    for number in [336, 400, 423, 1000, 0x4000_0000, u64::MAX] {
        assert!(lookup(number).is_none(), "{number}");
    }
}

/// The names in the bindings agree with the table, and none is missing.
#[test]
fn every_call_of_linux_is_there() {
    let source =
        fs::read_to_string(linux_raw_sys().join("src/x86_64/general.rs")).expect("the bindings");
    let mut seen = 0;
    for line in source.lines() {
        let Some(rest) = line.strip_prefix("pub const __NR_") else { continue };
        let (name, rest) = rest.split_once(": u32 = ").expect("a number");
        let number: u64 = rest.trim_end_matches(';').parse().expect("a number");
        assert_eq!(lookup(number).map(|row| row.name), Some(name), "number {number}");
        seen += 1;
    }
    assert_eq!(seen, TABLE.len());
}

/// Folder of the crate linux-raw-sys, whose constants cannot be enumerated by code.
fn linux_raw_sys() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let manifest = text
        .split("\"manifest_path\":\"")
        .filter_map(|tail| tail.split('"').next())
        .find(|path| path.contains("/linux-raw-sys-"))
        .expect("linux-raw-sys is a dependency");
    Path::new(manifest).parent().expect("a folder").into()
}

/// What acts on memory, threads, signals or time of its caller must not act on the shadow.
/// (set_mempolicy is about what Linux allocates for it.)
#[test]
fn nothing_acts_on_the_shadow_in_place_of_the_program() {
    let own = [
        "mmap",
        "munmap",
        "mprotect",
        "mremap",
        "brk",
        "madvise",
        "mlock",
        "mlockall",
        "msync",
        "mincore",
        "shmat",
        "remap_file_pages",
        "clone",
        "clone3",
        "fork",
        "vfork",
        "execve",
        "execveat",
        "exit",
        "exit_group",
        "unshare",
        "setns",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "rt_sigsuspend",
        "rt_sigtimedwait",
        "rt_sigpending",
        "sigaltstack",
        "signalfd",
        "signalfd4",
        "pause",
        "futex",
        "futex_wait",
        "futex_wake",
        "futex_requeue",
        "futex_waitv",
        "set_robust_list",
        "get_robust_list",
        "sched_yield",
        "sched_setscheduler",
        "sched_setparam",
        "sched_setattr",
        "sched_setaffinity",
        "sched_getaffinity",
        "nanosleep",
        "clock_nanosleep",
        "timer_create",
        "setitimer",
        "getitimer",
        "arch_prctl",
        "set_tid_address",
        "rseq",
        "prctl",
        "ptrace",
        "seccomp",
        "process_vm_readv",
        "process_vm_writev",
        "io_setup",
        "io_uring_setup",
        "userfaultfd",
        "membarrier",
        "modify_ldt",
        "set_thread_area",
        "pkey_mprotect",
        "pkey_alloc",
        "mbind",
        "move_pages",
        "migrate_pages",
        "perf_event_open",
        "bpf",
        "mseal",
        "map_shadow_stack",
        "ioperm",
        "iopl",
        "landlock_restrict_self",
        "personality",
    ];
    for name in own {
        let row = TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}"));
        assert_ne!(row.class, Class::Remote, "{name}");
    }
}

#[test]
fn descriptors_are_flagged() {
    for name in ["read", "write", "close", "dup2", "ioctl", "fcntl", "getdents64", "epoll_wait"] {
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        assert!(row.flags & FD != 0, "{name}");
    }
    assert!(lookup(0).unwrap().flags & POINTERS != 0);
}

/// What Linux copies from a thread to those that it starts (clone(2), credentials(7),
/// capabilities(7), prctl(2), keyrings(7)) and can be changed by these calls alone.
#[test]
fn calls_that_change_what_threads_inherit() {
    let by_these = [
        "setuid",
        "setgid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
        "setfsuid",
        "setfsgid",
        "setgroups",
        "capset",
        "personality",
        "prctl",
        "setpriority",
        "ioprio_set",
        "set_mempolicy",
        "add_key",
        "request_key",
        "keyctl",
    ];
    let flagged: Vec<_> = TABLE.iter().filter(|row| row.flags & HERITAGE != 0).collect();
    assert_eq!(flagged.len(), by_these.len());
    // The others would have to be flagged once they are supported.
    for name in ["unshare", "setns", "seccomp", "landlock_restrict_self"] {
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row.class, Class::Unsupported, "{name}");
    }
    for row in flagged {
        assert!(by_these.contains(&row.name), "{}", row.name);
    }
    let of = |name: &str, args: [u64; 2]| {
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        row.changes_heritage_of(&[args[0], args[1], 0, 0, 0, 0])
    };
    assert_eq!(of("setuid", [1, 2]), Some(0));
    assert_eq!(of("getuid", [1, 2]), None);
    // PR_SET_NAME, PR_GET_NAME.
    assert_eq!((of("prctl", [15, 2]), of("prctl", [16, 2])), (Some(0), None));
    // Of a thread, of a group.
    assert_eq!((of("setpriority", [0, 7]), of("setpriority", [1, 7])), (Some(7), None));
    assert_eq!((of("ioprio_set", [1, 7]), of("ioprio_set", [2, 7])), (Some(7), None));
}

#[test]
fn page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    let mut text = String::new();
    page(&mut text).expect("a string takes everything");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("docs/");
        fs::write(&path, &text).expect("docs/ can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "docs/system-calls.md is out of date: UPDATE_DOCS=1 cargo test -p crtos-syscalls"
    );
}
