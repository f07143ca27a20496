// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why Linux did not take the module: what modprobe(8) says of that, in words that name the cause
//! and the remedy.

use crate::install;

/// What modprobe says for an error of init_module(2), the cause, and the remedy. `None` stands for
/// building the module for this kernel.
const CASES: &[(&str, &str, Option<&str>)] = &[
    (
        "Key was rejected by service",
        "this kernel takes signed modules only (secure boot), and knows no key that signed it",
        Some(
            "sign crtos.ko with a key that the machine knows (mokutil --import), or turn secure boot off in the firmware's setup",
        ),
    ),
    (
        "Required key not available",
        "this kernel takes signed modules only (secure boot), and it is not signed",
        Some(
            "sign crtos.ko with a key that the machine knows (mokutil --import), or turn secure boot off in the firmware's setup",
        ),
    ),
    (
        "Operation not permitted",
        "this kernel takes no module now: it is locked down, or kernel.modules_disabled is set",
        Some(
            "`sysctl kernel.modules_disabled` tells; only a reboot clears it, and secure boot locks down",
        ),
    ),
    ("Exec format error", "it was built for another kernel", None),
    ("Unknown symbol", "this kernel lacks something that it needs; `dmesg` names that", None),
    ("not found in directory", "modprobe does not know it yet", Some("`depmod`, then try again")),
    (
        "Cannot allocate memory",
        "Linux has no memory left for it",
        Some("end programs, or `echo 1 >/proc/sys/vm/compact_memory`"),
    ),
];

/// Returns cause and remedy of what modprobe wrote when it failed to load the module for `release`.
pub fn explain(words: &str, release: &str) -> (String, String) {
    match CASES.iter().find(|(word, ..)| words.contains(word)) {
        Some((_, cause, remedy)) => (
            format!("the module cannot be loaded: {cause}"),
            remedy.map_or_else(|| install::build_module(release), str::to_owned),
        ),
        None => (
            format!("the module cannot be loaded: {words}"),
            "`crtos check` looks for the reasons; the messages of the kernel are in `dmesg`".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_cause_and_a_remedy() {
        let says = |error: &str| {
            explain(&format!("modprobe: ERROR: could not insert 'crtos': {error}"), "6.1.0-9-amd64")
        };
        let (cause, remedy) = says("Exec format error");
        assert_eq!(cause, "the module cannot be loaded: it was built for another kernel");
        assert!(remedy.contains("headers of 6.1.0-9-amd64"));
        assert!(says("Key was rejected by service").1.contains("mokutil"));
        let (cause, remedy) = says("No such device");
        assert!(cause.ends_with("No such device") && remedy.contains("dmesg"));
        assert!(CASES.iter().all(|(word, ..)| !says(word).0.contains("ERROR")));
    }
}
