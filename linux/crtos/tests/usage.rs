// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command as a user sees it, as far as that needs no realm.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use assert_cmd::{Command, cargo::cargo_bin_cmd};
use predicates::{boolean::PredicateBooleanExt, str::contains};

fn crtos(arguments: &[&str]) -> Command {
    let mut command = cargo_bin_cmd!("crtos");
    command.args(arguments);
    command
}

/// A machine that runs these tests may have crtos; then what needs its absence is left out.
fn has_crtos() -> bool {
    Path::new("/dev/crtos").exists()
}

#[test]
fn help_is_no_error_and_goes_to_standard_output() {
    crtos(&["--help"])
        .assert()
        .success()
        .stdout(contains("Examples:").and(contains("Exit status:")))
        .stderr("");
    for verb in [
        "check", "plan", "up", "down", "run", "seal", "ps", "stats", "log", "cell", "device",
        "latency", "top", "version",
    ] {
        crtos(&["help", verb]).assert().success().stdout(contains("Exit status:"));
        crtos(&[verb, "--help"]).assert().success().stderr("");
    }
    crtos(&["--version"]).assert().success().stdout(contains("crtos 0."));
}

#[test]
fn mistakes_are_explained_with_status_2() {
    for (arguments, words) in [
        (&[][..], "Usage: crtos"),
        (&["fly"], "unrecognized subcommand"),
        (&["run"], "PROGRAM"),
        (&["run", "--fast", "x"], "unexpected argument '--fast'"),
        (&["up", "--cpus", "1"], "--memory"),
        (&["up", "--cpus", "one", "--memory", "1G"], "no CPU number"),
        (&["up", "--cpus", "3-1", "--memory", "1G"], "runs backwards"),
        (&["up", "--cpus", "1", "--memory", "lots"], "no amount of memory"),
        (&["up", "--cpus", "1", "--memory", "512"], "write `512M` for MiB"),
        (&["check", "--memory", "512"], "write `512M` for MiB"),
        (&["cell", "create", "a", "--cpus", "1", "--memory", "16"], "write `16M` for MiB"),
        (&["up", "--cpus", "1", "--memory", "1G", "--port", "70000"], "no number, or too large"),
        (&["trace", "--when-later-than", "20"], "is no time; write one like 20us"),
        (&["top", "--delay", "0"], "at least 0.5 seconds"),
        (&["latency"], "PROGRAM"),
        (&["stats", "--json", "--prometheus"], "cannot be used with"),
        (&["log", "--kernel", "--hypervisor"], "cannot be used with"),
        (&["cell", "lock"], "<CELL>"),
        (&["cell", "create", "3", "--cpus", "1"], "could not be told from"),
        (&["cell", "create", "a b", "--cpus", "1"], "letters, digits"),
        (&["cell", "create", "a", "--cpus", "1", "--msr", "0x10"], "does not say"),
    ] {
        crtos(arguments)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(words).and(contains("more: crtos explain usage")));
    }
}

#[test]
fn errors_are_explained_by_their_code() {
    let said = crtos(&["up", "--cpus", "1", "--memory", "16M"]).output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    let code = said.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(code, "memory-too-small");
    crtos(&["explain", code])
        .assert()
        .success()
        .stdout(contains("64 MiB").and(contains("Remedy: ")));
    crtos(&["explain"]).assert().success().stdout(contains(code).and(contains("cpu-offline")));
    crtos(&["explain", "no-such-code"])
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains("lists the codes"));
    let check = crtos(&["check", "--json"]).output().unwrap().stdout;
    let check: serde_json::Value = serde_json::from_slice(&check).unwrap();
    for requirement in check["requirements"].as_array().unwrap() {
        let code = requirement["code"].as_str().unwrap();
        crtos(&["explain", code]).assert().success().stdout(contains("Remedy: "));
    }
}

#[test]
fn a_report_says_what_is_in_it_and_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.tar.gz");
    let output = crtos(&["report", "-o", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = flate2::read::GzDecoder::new(fs::File::open(&file).unwrap());
    let mut archive = tar::Archive::new(unpacked);
    let mut parts = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        parts.insert(name, bytes);
    }
    let contents = String::from_utf8(parts["CONTENTS"].clone()).unwrap();
    assert!(shown.starts_with(&contents));
    for line in contents.lines() {
        let name = line.split(' ').next().unwrap();
        assert_ne!(parts.contains_key(name), line.contains(": MISSING: "), "{line}");
    }
    serde_json::from_slice::<serde_json::Value>(&parts["check.json"]).unwrap();
    assert!(!parts["linux.txt"].is_empty());
    if !has_crtos() {
        assert!(contents.contains("MISSING: cannot read the log: crtos is not up"), "{contents}");
    }

    // One that cannot be written leaves nothing.
    crtos(&["report", "-o", "/dev/full"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("No space left").and(contains("crtos explain disk-full")));
    assert!(Path::new("/dev/full").exists());
    crtos(&["report", "-o", "/absent/file"]).assert().code(1).stderr(contains("file-missing"));
}

#[test]
fn without_the_module_crtos_is_not_up() {
    if has_crtos() {
        return;
    }
    for arguments in [
        &["ps"][..],
        &["stats"],
        &["log"],
        &["down"],
        &["seal"],
        &["down", "--force"],
        &["cell", "list"],
        &["cell", "stop", "demo"],
    ] {
        crtos(arguments)
            .assert()
            .code(1)
            .stdout("")
            .stderr(contains("crtos is not up").and(contains("remedy: `crtos up")));
    }
    crtos(&["down", "--unload"]).assert().success().stdout("").stderr("");
}

#[test]
fn up_takes_from_a_file_what_the_command_line_leaves_open() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = file.path().to_str().unwrap();
    let up = |text: &str, words: &[&str]| {
        fs::write(config, text).unwrap();
        crtos(&[&["up", "--config", config][..], words].concat()).assert()
    };
    let small = "cpus = \"1\"\nmemory = \"16M\"\n";
    up(small, &[]).code(1).stderr(contains("a realm with 16 MiB"));
    up(small, &["--memory=18M"]).code(1).stderr(contains("a realm with 18 MiB"));
    up("# empty\n", &["--cpus=1"]).code(2).stderr(contains("--memory"));
    up("memroy = \"16M\"\n", &[]).code(1).stdout("").stderr(
        contains(format!("cannot read {config}: line 1: `memroy` is unknown"))
            .and(contains("remedy: it may say cpus, memory")),
    );
    if !Path::new("/etc/crtos/realm.toml").exists() {
        crtos(&["up"]).assert().code(2).stderr(contains("`crtos plan >/etc/crtos/realm.toml`"));
    }
}

#[test]
fn up_says_that_a_realm_is_too_small() {
    crtos(&["up", "--cpus", "1", "--memory", "16M"])
        .assert()
        .code(1)
        .stderr(contains("cannot start a realm with 16 MiB: it needs at least 64 MiB"));
}

#[test]
fn run_tells_what_keeps_a_program_from_running() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let run = |program: &str, status: i32, words: &str| {
        crtos(&["run", "--", program]).assert().code(status).stdout("").stderr(contains(words));
    };
    run("/nonexistent/program", 127, "cannot run /nonexistent/program: program not found");
    run("no-such-program-anywhere", 127, "add its directory to PATH");
    run(&file("plain", b"\x7fELF", 0o644), 126, "not executable");
    run(dir.path().to_str().unwrap(), 126, "it is a directory");
    run(&file("script", b"#!/absent/sh\n", 0o755), 126, "the interpreter of");
    run(&file("text", b"hello\n", 0o755), 126, "not an x86-64 ELF executable");
    run(&file("short", b"\x7fELF\x02\x01\x01", 0o755), 126, "not for x86-64");
    if !has_crtos() {
        let this = std::env::current_exe().unwrap();
        run(this.to_str().unwrap(), 125, "crtos is not up");
    }
}

#[test]
fn programs_keep_their_own_options() {
    // What follows the program is the program's, also what crtos would understand.
    crtos(&["run", "/nonexistent/program", "--help"]).assert().code(127);
    crtos(&["run", "/nonexistent/program", "-V", "--", "--version"]).assert().code(127);
    crtos(&["run", "--", "--help"]).assert().code(127);
}

#[test]
fn json_is_json_and_colours_stay_away_from_pipes() {
    for verb in ["check", "version"] {
        let output = crtos(&[verb, "--json"]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
        let output = crtos(&[verb]).output().unwrap();
        assert!(!output.stdout.contains(&0x1b));
    }
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    crtos(&["man", dir.path().to_str().unwrap()]).assert().success();
    for page in ["crtos.1", "crtos-up.1", "crtos-run.1", "crtos-cell-create.1"] {
        assert!(dir.path().join("man/man1").join(page).exists(), "{page}");
    }
    // Each verb that the help lists has a page.
    let help = String::from_utf8(crtos(&["-h"]).output().unwrap().stdout).unwrap();
    let verbs = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let verbs = verbs.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs: Vec<_> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let page = dir.path().join(format!("man/man1/crtos-{verb}.1"));
        assert!(page.exists(), "{verb}");
    }
    for file in [
        "bash-completion/completions/crtos",
        "fish/vendor_completions.d/crtos.fish",
        "zsh/vendor-completions/_crtos",
    ] {
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        assert!(text.contains("doorbell-cpu"), "{file}");
    }
}
