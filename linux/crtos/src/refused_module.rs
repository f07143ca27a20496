// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why Linux did not take the module: what modprobe(8) says of that, in words that name the cause
//! and the remedy.

use crate::{code::Code, failure::Failure, install};

/// What modprobe says for an error of init_module(2).
struct Case {
    words: &'static str,
    code: Code,
    cause: &'static str,
    /// `None` stands for building the module for this kernel.
    remedy: Option<&'static str>,
}

/// What to do where only signed modules are taken.
const SIGN: &str = "sign crtos.ko with a key that the machine knows (mokutil --import), or turn secure boot off in the firmware's setup";

const CASES: &[Case] = &[
    Case {
        words: "Key was rejected by service",
        code: Code::ModuleSignature,
        cause: "this kernel takes signed modules only (secure boot), and knows no key that signed it",
        remedy: Some(SIGN),
    },
    Case {
        words: "Required key not available",
        code: Code::ModuleSignature,
        cause: "this kernel takes signed modules only (secure boot), and it is not signed",
        remedy: Some(SIGN),
    },
    Case {
        words: "Operation not permitted",
        code: Code::ModuleBlocked,
        cause: "this kernel takes no module now: kernel.modules_disabled is set, or CAP_SYS_MODULE is missing",
        remedy: Some(
            "`sysctl kernel.modules_disabled` tells; only a reboot clears it. In a container, call it outside",
        ),
    },
    Case {
        words: "Exec format error",
        code: Code::ModuleBuild,
        cause: "it was built for another kernel, or it is damaged",
        remedy: None,
    },
    Case {
        words: "Unknown symbol",
        code: Code::ModuleBuild,
        cause: "this kernel lacks something that it needs; `dmesg` names that",
        remedy: None,
    },
    Case {
        words: "not found in directory",
        code: Code::ModuleMissing,
        cause: "modprobe does not know it yet",
        remedy: Some("`depmod`, then try again"),
    },
    Case {
        words: "Cannot allocate memory",
        code: Code::OutOfMemory,
        cause: "Linux has no memory left for it",
        remedy: Some("end programs, or `echo 1 >/proc/sys/vm/compact_memory`"),
    },
];

/// What Linux says of the signature if it is locked down. It says so of much else as well.
const LOCKED_DOWN: Case = Case {
    words: "Operation not permitted",
    code: Code::ModuleSignature,
    cause: "this kernel takes signed modules only (it is locked down), and knows no key that signed it",
    remedy: Some(SIGN),
};

/// Returns the failure of what modprobe wrote when it failed to load the module for `release`.
/// `signed_alone`: Linux is locked down, and takes modules.
pub fn explain(asked: &str, words: &str, release: &str, signed_alone: bool) -> Failure {
    let failure =
        |code, cause| Failure::new(code, asked, format!("the module cannot be loaded: {cause}"));
    let locked_down = signed_alone.then_some(&LOCKED_DOWN);
    match locked_down.into_iter().chain(CASES).find(|case| words.contains(case.words)) {
        Some(case) => failure(case.code, case.cause)
            .remedy(case.remedy.map_or_else(|| install::build_module(release), str::to_owned)),
        None => failure(Code::ModuleInit, words).remedy(
            "`crtos check` looks for the reasons; the messages of the kernel are in `dmesg`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_cause_and_a_remedy() {
        let said = |error: &str, signed_alone| {
            let words = format!("modprobe: ERROR: could not insert 'crtos': {error}");
            explain("start", &words, "6.1.0-9-amd64", signed_alone).to_string()
        };
        let says = |error: &str| said(error, false);
        assert!(said("Operation not permitted", true).ends_with("module-signature"));
        assert!(said("Operation not permitted", false).ends_with("module-blocked"));
        assert!(said("Exec format error", true).ends_with("module-build"));
        let built = says("Exec format error");
        assert!(built.starts_with(
            "cannot start: the module cannot be loaded: it was built for another kernel, or it is damaged\n"
        ));
        assert!(built.contains("headers of 6.1.0-9-amd64") && built.ends_with("module-build"));
        assert!(says("Key was rejected by service").contains("mokutil"));
        let other = says("No such device");
        assert!(other.contains("No such device\n") && other.contains("dmesg"));
        assert!(CASES.iter().all(|case| !says(case.words).contains("ERROR")));
    }
}
