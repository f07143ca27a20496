// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes of errors: short names under which `docs/troubleshooting.md` tells cause and remedy.
//!
//! That page is built into the command, and `crtos explain` prints its sections. The module puts
//! the code in front of its words, in brackets.

/// The page of the documentation that has a section for each code.
const PAGE: &str = include_str!("../../../docs/troubleshooting.md");
/// What begins the title of a section.
const TITLE: &str = "\n### ";

/// Declares the codes with their names.
macro_rules! codes {
    ($($code:ident = $name:literal,)*) => {
        /// The code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = concat!("`", $name, "`.")] $code,)*
        }

        impl Code {
            /// All codes, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// Returns its name, which users see.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }
        }
    };
}

codes! {
    AlreadyUp = "already-up",
    ArgumentsTooLong = "arguments-too-long",
    BadCall = "bad-call",
    BadConfiguration = "bad-configuration",
    BadPorts = "bad-ports",
    CanBitRate = "can-bit-rate",
    CellExists = "cell-exists",
    CellLimit = "cell-limit",
    CellLocked = "cell-locked",
    CellState = "cell-state",
    CellUnknown = "cell-unknown",
    CoreOrNode = "core-or-node",
    CpuAbsent = "cpu-absent",
    CpuAdded = "cpu-added",
    CpuBoot = "cpu-boot",
    CpuExclusive = "cpu-exclusive",
    CpuNeeded = "cpu-needed",
    CpuOffline = "cpu-offline",
    CpuTaken = "cpu-taken",
    CpusChanged = "cpus-changed",
    CpusUnreachable = "cpus-unreachable",
    DeviceAbsent = "device-absent",
    DeviceAccess = "device-access",
    DeviceBroken = "device-broken",
    DeviceGroup = "device-group",
    DeviceInUse = "device-in-use",
    DeviceInterrupt = "device-interrupt",
    DeviceMissing = "device-missing",
    DevicePage = "device-page",
    DevicePorts = "device-ports",
    DeviceReset = "device-reset",
    DeviceTaken = "device-taken",
    DeviceUnfit = "device-unfit",
    DeviceUnknown = "device-unknown",
    DiskFull = "disk-full",
    DoorbellCpu = "doorbell-cpu",
    DriverMissing = "driver-missing",
    EndsWithLinux = "ends-with-linux",
    FileDenied = "file-denied",
    FileMissing = "file-missing",
    HardwareThreads = "hardware-threads",
    HugePagesShort = "huge-pages-short",
    HypervisorRefuses = "hypervisor-refuses",
    ImageUnfit = "image-unfit",
    InterfaceName = "interface-name",
    Internal = "internal",
    Interpreter = "interpreter",
    InterruptUnknown = "interrupt-unknown",
    Interrupted = "interrupted",
    Iommu = "iommu",
    IpMissing = "ip-missing",
    IsTheRealm = "is-the-realm",
    KernelSilent = "kernel-silent",
    KernelStopped = "kernel-stopped",
    LaunchRefused = "launch-refused",
    LinkExists = "link-exists",
    LinkFull = "link-full",
    LinkInUse = "link-in-use",
    LinkShape = "link-shape",
    LinkUnknown = "link-unknown",
    LinuxDma = "linux-dma",
    LinuxFeature = "linux-feature",
    LinuxVersion = "linux-version",
    LoaderMissing = "loader-missing",
    Lockdown = "lockdown",
    MachineTooLarge = "machine-too-large",
    MemoryEncryption = "memory-encryption",
    MemoryFragmented = "memory-fragmented",
    MemoryShort = "memory-short",
    MemoryTooSmall = "memory-too-small",
    ModuleBlocked = "module-blocked",
    ModuleBuild = "module-build",
    ModuleBusy = "module-busy",
    ModuleInit = "module-init",
    ModuleMissing = "module-missing",
    ModuleSignature = "module-signature",
    NestedPaging = "nested-paging",
    NoConfiguration = "no-configuration",
    NoSpareCpu = "no-spare-cpu",
    NoSvm = "no-svm",
    NotLocked = "not-locked",
    NotPermitted = "not-permitted",
    NotTheRealm = "not-the-realm",
    NotUp = "not-up",
    OtherHypervisor = "other-hypervisor",
    OutOfBounds = "out-of-bounds",
    OutOfMemory = "out-of-memory",
    PageTables = "page-tables",
    PartDamaged = "part-damaged",
    PartsDiffer = "parts-differ",
    PortsInUse = "ports-in-use",
    PrivateMemory = "private-memory",
    ProcessUnknown = "process-unknown",
    ProgramFormat = "program-format",
    ProgramNotExecutable = "program-not-executable",
    ProgramNotFound = "program-not-found",
    ProgramsLive = "programs-live",
    RealmGone = "realm-gone",
    RealmSealed = "realm-sealed",
    RebootNeeded = "reboot-needed",
    RunRefused = "run-refused",
    Sleep = "sleep",
    SvmDisabled = "svm-disabled",
    System = "system",
    ThreadsUsedUp = "threads-used-up",
    TimeStampCounter = "time-stamp-counter",
    Usage = "usage",
    UserLimit = "user-limit",
    Watchdog = "watchdog",
    X2apic = "x2apic",
}

impl Code {
    /// Returns the code of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// Returns its section of the page, without the title.
    pub fn section(self) -> &'static str {
        sections().find(|(name, _)| *name == self.name()).map_or("", |(_, text)| text)
    }

    /// Returns the first sentence of its section, on one line.
    pub fn summary(self) -> String {
        let first = self.section().split("\n\n").next().unwrap_or_default().replace('\n', " ");
        first.split_once(". ").map_or(first.clone(), |(sentence, _)| format!("{sentence}."))
    }

    /// Returns the first sentence of the remedy that its section has, on one line.
    pub fn remedy(self) -> String {
        let text = self.section().split_once("Remedy: ").map_or("", |(_, remedy)| remedy);
        let text = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        text.split_once(". ")
            .map_or(text.as_str(), |(sentence, _)| sentence)
            .trim_end_matches('.')
            .into()
    }

    /// Divides words of the module, which begin with their code in brackets.
    pub fn split(words: &str) -> Option<(Self, &str)> {
        let (name, words) = words.strip_prefix('[')?.split_once("] ")?;
        Some((Self::named(name)?, words))
    }
}

/// Returns the sections of the page: each title and its text.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n## ").flat_map(|part| part.split(TITLE).skip(1)).map(|section| {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        (title.trim(), text.trim())
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Returns what stands between `before` and `after` in the files of a folder of `linux`.
    fn found(folder: &str, end: &str, before: &str, after: char) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
        let files = fs::read_dir(folder).expect("the sources").flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|own| own == end));
        let mut all = BTreeSet::new();
        for file in files {
            let text = fs::read_to_string(file.path()).expect("a source");
            let names = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
            all.extend(names.map(|(name, _)| name.to_owned()));
        }
        all
    }

    /// Returns the codes that the shadow says.
    fn shadow() -> BTreeSet<String> {
        let mut names = found("shadow/src", "rs", "more: crtos explain ", '\\');
        names.extend(found("shadow/src", "rs", "const REFUSED: &str = \"", '"'));
        names.remove("\", code, \"");
        names
    }

    #[test]
    fn each_code_has_a_section_and_each_section_a_code() {
        let codes: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        let mut titles: Vec<_> = sections().map(|(title, _)| title).collect();
        titles.sort_unstable();
        assert_eq!(titles, codes);
        for code in Code::ALL {
            let (cause, remedy) = code.section().split_once("\n\n").expect("two paragraphs");
            assert!(cause.ends_with('.') && cause.len() > 20, "{code:?}: {cause}");
            assert!(remedy.starts_with("Remedy: "), "{code:?}: {remedy}");
            assert!(code.summary().ends_with('.'), "{code:?}");
            assert!(code.remedy().len() > 4, "{code:?}");
        }
    }

    #[test]
    fn the_module_says_a_code_with_each_refusal() {
        let mut names = found("module", "c", "\"[", ']');
        names.extend(found("module", "c", "crtos: [", ']'));
        let names: Vec<_> =
            names.iter().filter(|name| !["%s", "CODE"].contains(&name.as_str())).collect();
        assert!(names.len() > 50);
        for name in names {
            assert!(Code::named(name).is_some(), "{name}");
        }
        // Whatever is refused begins with one. The first text behind the call is the format.
        let formats = found("module", "c", "crtos_refuse(", ';');
        for call in formats.iter().filter(|call| call.contains('"')) {
            let format = call.split('"').nth(1).unwrap_or_default();
            assert!(format.starts_with('['), "{call}");
            assert!(!format.contains("error %d"), "a bare number: {call}");
        }
        for name in found("module", "c", "{ \"", '"').iter().filter(|name| name.contains('-')) {
            assert!(Code::named(name).is_some(), "{name}");
        }
        assert_eq!(Code::split("[cpu-boot] CPU 0"), Some((Code::CpuBoot, "CPU 0")));
        assert_eq!(Code::split("CPU 0"), None);
    }

    #[test]
    fn the_shadow_names_codes_that_there_are() {
        let names = shadow();
        assert!(names.len() >= 3, "{names:?}");
        assert!(names.iter().all(|name| Code::named(name).is_some()), "{names:?}");
    }

    #[test]
    fn each_code_is_said_by_somebody() {
        let mut said = found("module", "c", "\"[", ']');
        said.extend(found("module", "c", "crtos: [", ']'));
        said.extend(found("module", "c", "{ \"", '"'));
        said.extend(shadow());
        for folder in ["", "bench", "check", "latency", "trace", "watch"] {
            let folder = &format!("crtos/src/{folder}");
            let named = found(folder, "rs", "Code::", ' ');
            let word = |text: &String| {
                text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
            };
            let named: BTreeSet<_> = named.iter().map(word).collect();
            let codes = Code::ALL.iter().filter(|code| named.contains(&format!("{code:?}")));
            said.extend(codes.map(|code| code.name().to_owned()));
        }
        let silent: Vec<_> = Code::ALL.iter().filter(|code| !said.contains(code.name())).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }
}
