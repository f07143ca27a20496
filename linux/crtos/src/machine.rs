// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux tells about the machine, in files below a root directory. Tests use another one.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crtos_abi::LARGE_PAGE_SIZE;

use crate::{cpulist::CpuList, size::Size};

/// The machine as seen below a root directory.
pub struct Machine {
    root: PathBuf,
}

/// Capabilities of this process (capabilities(7)).
const CAP_SYS_ADMIN: u32 = 21;

impl Machine {
    /// Returns the machine that the command runs on.
    pub fn here() -> Self {
        Self::below("/")
    }

    /// Returns a machine whose files are below `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns an absolute path below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// Reads a file, without white space at its ends.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_string())
    }

    /// Tells whether a file exists.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    fn cpus(&self, file: &str) -> CpuList {
        self.read(format!("/sys/devices/system/cpu/{file}"))
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }

    /// Returns the CPUs that the machine has.
    pub fn present(&self) -> CpuList {
        self.cpus("present")
    }

    /// Returns the CPUs that Linux uses.
    pub fn online(&self) -> CpuList {
        self.cpus("online")
    }

    /// Returns how many CPUs the firmware lists, if its list (ACPI's MADT) can be read.
    pub fn listed(&self) -> Option<usize> {
        let table = fs::read(self.path("/sys/firmware/acpi/tables/APIC")).ok()?;
        Some(madt_cpus(&table).len())
    }

    /// Tells how Linux uses hardware threads: "on", "off", "forceoff", "notsupported", …
    pub fn smt(&self) -> Option<String> {
        self.read("/sys/devices/system/cpu/smt/control")
    }

    /// Returns the CPUs that Linux leaves to programs that ask for them (`isolcpus=`).
    pub fn isolated(&self) -> CpuList {
        self.cpus("isolated")
    }

    /// Tells whether Linux can unplug `cpu`.
    pub fn can_unplug(&self, cpu: u32) -> bool {
        self.exists(format!("/sys/devices/system/cpu/cpu{cpu}/online"))
    }

    /// Returns the hardware threads of the core of `cpu`, `cpu` among them.
    pub fn siblings(&self, cpu: u32) -> CpuList {
        self.cpus(&format!("cpu{cpu}/topology/thread_siblings_list"))
    }

    /// Returns the CPUs of a NUMA node that Linux uses.
    pub fn cpus_of_node(&self, node: u32) -> CpuList {
        self.read(format!("/sys/devices/system/node/node{node}/cpulist"))
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }

    /// Returns the control group that has the CPU for itself, as a partition of cpusets
    /// (cgroups(7)).
    pub fn partition_with(&self, cpu: u32) -> Option<PathBuf> {
        self.partition_below(&self.path("/sys/fs/cgroup"), cpu)
    }

    fn partition_below(&self, group: &Path, cpu: u32) -> Option<PathBuf> {
        let entries = fs::read_dir(group).ok()?.flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.map(|entry| entry.path()).find_map(|inner| {
            let told = |file: &str| fs::read_to_string(inner.join(file)).unwrap_or_default();
            let is_partition = matches!(told("cpuset.cpus.partition").trim(), "root" | "isolated");
            let cpus = told("cpuset.cpus.effective").trim().parse::<CpuList>();
            match is_partition && cpus.is_ok_and(|cpus| cpus.contains(cpu)) {
                true => Some(Path::new("/").join(inner.strip_prefix(&self.root).ok()?)),
                false => self.partition_below(&inner, cpu),
            }
        })
    }

    /// Returns a field of the first CPU in `/proc/cpuinfo`.
    fn cpuinfo(&self, field: &str) -> Option<String> {
        let text = self.read("/proc/cpuinfo")?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == field).map(|(_, value)| value.trim().to_string())
    }

    /// Returns the processor's vendor: "AuthenticAMD", "GenuineIntel", …
    pub fn vendor(&self) -> Option<String> {
        self.cpuinfo("vendor_id")
    }

    /// Returns the processor's name.
    pub fn model(&self) -> Option<String> {
        self.cpuinfo("model name")
    }

    /// Returns the features of the processor that Linux uses.
    pub fn flags(&self) -> BTreeSet<String> {
        let flags = self.cpuinfo("flags").unwrap_or_default();
        flags.split_whitespace().map(String::from).collect()
    }

    /// Returns the kernel's release as `uname -r` prints it.
    pub fn release(&self) -> Option<String> {
        self.read("/proc/sys/kernel/osrelease")
    }

    /// Returns the version numbers of the kernel.
    pub fn version(&self) -> Option<(u32, u32)> {
        let release = self.release()?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        }
    }

    /// Reads a model-specific register of CPU 0, if the `msr` module and the user's rights permit
    /// that.
    pub fn msr(&self, register: u32) -> Option<u64> {
        let file = fs::File::open(self.path("/dev/cpu/0/msr")).ok()?;
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, register.into()).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Tells whether this process may administer the system.
    pub fn is_admin(&self) -> bool {
        let status = self.read("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        capabilities
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
    }

    /// Returns how much memory Linux can give away without swapping, by its own estimate.
    pub fn available(&self) -> Option<Size> {
        let text = self.read("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Size(kib << 10))
    }

    /// Returns how much memory is free in whole blocks of 2 MiB at this moment. Linux can free more
    /// by moving pages.
    pub fn free_blocks(&self) -> Option<Size> {
        /// Order of 2 MiB among the orders of 4 KiB.
        const ORDER: usize = 9;
        let text = self.read("/proc/buddyinfo")?;
        let mut bytes = 0;
        for line in text.lines() {
            // "Node 0, zone   Normal      4      5 …": a number of blocks per order from 4 KiB on.
            let mut words = line.split_whitespace().skip_while(|word| *word != "zone").skip(1);
            if words.next() == Some("DMA") {
                continue;
            }
            for (index, count) in words.enumerate().skip(ORDER) {
                bytes += count.parse::<u64>().ok()? * (LARGE_PAGE_SIZE << (index - ORDER));
            }
        }
        Some(Size(bytes))
    }

    /// Returns whether Linux uses an IOMMU.
    pub fn has_iommu(&self) -> bool {
        self.iommus().next().is_some()
    }

    /// Tells whether IOMMUs are of a kind that the hypervisor takes over: Intel's or AMD's.
    pub fn has_known_iommu(&self) -> bool {
        [("DMAR", "dmar"), ("IVRS", "ivhd")].iter().any(|(table, name)| {
            self.exists(format!("/sys/firmware/acpi/tables/{table}"))
                || self.iommus().any(|unit| unit.file_name().to_string_lossy().starts_with(name))
        })
    }

    /// Returns the IOMMUs that Linux uses.
    fn iommus(&self) -> impl Iterator<Item = fs::DirEntry> {
        fs::read_dir(self.path("/sys/class/iommu")).into_iter().flatten().flatten()
    }

    /// Tells whether Linux has interrupts remapped.
    pub fn remaps_interrupts(&self) -> bool {
        self.read("/proc/interrupts").unwrap_or_default().contains(" IR-")
    }

    /// Tells whether a module is loaded.
    pub fn module_loaded(&self, name: &str) -> bool {
        self.exists(format!("/sys/module/{name}/initstate"))
    }

    /// Returns how many users a loaded module has.
    pub fn module_users(&self, name: &str) -> Option<u32> {
        self.read(format!("/sys/module/{name}/refcnt"))?.parse().ok()
    }

    /// Returns the id of a group in `/etc/group`.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.id_in("/etc/group", name)
    }

    /// Returns the id of a user in `/etc/passwd`.
    pub fn user(&self, name: &str) -> Option<u32> {
        self.id_in("/etc/passwd", name)
    }

    fn id_in(&self, file: &str, name: &str) -> Option<u32> {
        let text = self.read(file)?;
        let mut entries = text.lines().map(|line| line.split(':'));
        entries.find_map(|mut entry| match (entry.next(), entry.nth(1)) {
            (Some(named), Some(id)) if named == name => id.parse().ok(),
            _ => None,
        })
    }
}

/// Returns the APIC ids of the CPUs that a MADT lists as there (ACPI 6.5, 5.2.12).
fn madt_cpus(table: &[u8]) -> BTreeSet<u32> {
    /// Bytes before the first entry.
    const HEAD: usize = 44;
    let word = |entry: &[u8], at: usize| {
        entry.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    };
    let mut ids = BTreeSet::new();
    let mut rest = table.get(HEAD..).unwrap_or_default();
    while let &[kind, length, ..] = rest
        && length >= 2
        && let Some((entry, behind)) = rest.split_at_checked(length.into())
    {
        rest = behind;
        let (id, flags) = match kind {
            0 => (entry.get(3).filter(|id| **id != 0xff).map(|id| (*id).into()), word(entry, 4)),
            9 => (word(entry, 4).filter(|id| *id != u32::MAX), word(entry, 8)),
            _ => continue,
        };
        if flags.is_some_and(|flags| flags & 1 != 0) {
            ids.extend(id);
        }
    }
    ids
}

/// Machines made of files, for tests.
#[cfg(test)]
pub mod fake {
    use super::*;

    /// A directory that looks like `/` of a machine that is fit.
    pub struct Fake {
        /// Its path.
        pub dir: tempfile::TempDir,
    }

    impl Fake {
        /// Makes an EPYC with four CPUs and 1 GiB.
        pub fn fit() -> Self {
            let fake = Self { dir: tempfile::tempdir().unwrap() };
            fake.write("/proc/sys/kernel/osrelease", "6.1.0-32-amd64\n");
            fake.write("/proc/sys/kernel/panic", "0\n");
            fake.write(
                "/proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n\
                 flags\t\t: fpu msr svm npt x2apic constant_tsc nonstop_tsc\n\nprocessor\t: 1\n",
            );
            fake.write("/proc/self/status", "Name:\tcrtos\nCapEff:\t000001ffffffffff\n");
            fake.write("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable:  900000 kB\n");
            fake.write(
                "/proc/buddyinfo",
                "Node 0, zone      DMA   1 0 0 0 0 0 0 0 1 1 2\n\
                 Node 0, zone    DMA32   5 4 3 2 1 1 1 1 1 8 100\n",
            );
            fake.write("/etc/group", "root:x:0:\ncrtos:x:990:alice\n");
            let cpu = "/sys/devices/system/cpu";
            for file in ["present", "online"] {
                fake.write(&format!("{cpu}/{file}"), "0-3\n");
            }
            fake.write(&format!("{cpu}/isolated"), "\n");
            for n in 0..4 {
                if n > 0 {
                    fake.write(&format!("{cpu}/cpu{n}/online"), "1\n");
                }
                let siblings = format!("{cpu}/cpu{n}/topology/thread_siblings_list");
                fake.write(&siblings, format!("{n}\n"));
            }
            let clock = "/sys/devices/system/clocksource/clocksource0";
            fake.write(&format!("{clock}/current_clocksource"), "tsc\n");
            fake.write("/sys/class/iommu/dmar0/name", "dmar0\n");
            fake.write("/proc/interrupts", "  1:  9  IR-IO-APIC  1-edge  i8042\n");
            fake
        }

        /// Writes a file of the machine.
        pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
            let path = self.machine().path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Removes a file or directory of the machine.
        pub fn remove(&self, path: &str) {
            let path = self.machine().path(path);
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }

        /// Returns the machine.
        pub fn machine(&self) -> Machine {
            Machine::below(self.dir.path())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;
    use super::*;

    #[test]
    fn reads_what_linux_tells() {
        let fake = Fake::fit();
        let machine = fake.machine();
        assert_eq!(machine.present().to_string(), "0-3");
        assert_eq!(machine.version(), Some((6, 1)));
        assert!(machine.flags().contains("svm"));
        assert!(machine.can_unplug(3) && !machine.can_unplug(0));
        assert!(machine.is_admin());
        assert_eq!(machine.group("crtos"), Some(990));
        assert_eq!(machine.group("alice"), None);
        assert_eq!(machine.available(), Some(Size(900_000 << 10)));
        assert_eq!(machine.free_blocks(), Some(Size::mib(8 * 2 + 100 * 4)));
        assert_eq!(machine.module_users("kvm_amd"), None);
        assert_eq!(machine.listed(), None);
    }

    #[test]
    fn the_firmwares_list_is_read_with_care() {
        let mut table = vec![0; 44];
        let small = |id, flags| [0, 8, 1, id, flags, 0, 0, 0];
        let large = |id, flags| [9, 16, 0, 0, id, 1, 0, 0, flags, 0, 0, 0, 7, 0, 0, 0];
        for entry in [small(0, 1), small(1, 1), small(2, 0), small(3, 2), small(0xff, 1)] {
            table.extend(entry);
        }
        // An I/O APIC, the same CPU once more.
        table.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
        table.extend(small(1, 1));
        table.extend(large(4, 1));
        table.extend(large(5, 0));
        assert_eq!(madt_cpus(&table), [0, 1, 0x104].into());
        // One that is cut off, one without an end.
        let whole = table.len();
        table.extend([0, 8, 1, 9]);
        assert_eq!(madt_cpus(&table).len(), 3);
        table.truncate(whole);
        table.extend([0, 0, 0, 9, 1, 0, 0, 0]);
        assert_eq!(madt_cpus(&table).len(), 3);
        assert!(madt_cpus(&table[..20]).is_empty());
    }
}
