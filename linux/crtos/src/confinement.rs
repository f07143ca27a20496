// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux's devices can do to cells.

use crtos_abi::ioctl;

use crate::{machine::Machine, report::Report};

/// Why that matters.
pub const WHY: &str = "a device that Linux drives could reach the memory of a cell, or interrupt its CPUs with any vector";
/// What to do about it.
pub const REMEDY: &str =
    "none is known yet; use devices and drivers in Linux that you trust (docs/security.md)";

/// Why interrupts are not confined.
pub const UNREMAPPED: &str = "Linux does not have the IOMMU remap interrupts";

/// How Linux's devices are kept from memory of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LinuxDma {
    /// By copies of Linux's page tables, whatever Linux does. Each page that Linux maps or unmaps
    /// for a device costs it a VM exit, unless it was booted with iommu.passthrough=1
    #[default]
    Confined,
    /// By Linux's own page tables, which are checked when they are attached to a device and when
    /// memory changes its owner: against accidents, not against a compromised Linux
    Checked,
}

impl LinuxDma {
    /// Tells whether it is [`Self::Checked`].
    pub fn is_checked(self) -> bool {
        self == Self::Checked
    }

    /// Tells whether the hypervisor runs in this way, or has no IOMMU.
    pub fn is_chosen_by(self, report: &Report) -> bool {
        report.iommus == 0 || report.dma_checked == self.is_checked()
    }

    /// Returns how the hypervisor is launched: `ENABLE_*` of [`crtos_abi::ioctl`].
    pub fn flags(self) -> u32 {
        if self.is_checked() { ioctl::ENABLE_CHECKED_DMA } else { 0 }
    }
}

/// How far Linux's devices are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// They reach Linux's memory and CPUs only.
    Whole,
    /// They interrupt Linux's CPUs only, and reach memory of cells only if Linux wants that.
    Checked,
    /// They interrupt Linux's CPUs only. Memory is open to them: it was short for copies, or an
    /// IOMMU is unfit.
    Interrupts,
    /// They reach Linux's memory only, or what Linux wants where its page tables are `checked`.
    /// Linux does not have their interrupts remapped.
    Memory {
        /// Whether these are.
        checked: bool,
    },
    /// Not at all, for this reason.
    None(&'static str),
}

impl Confinement {
    /// Returns what can be expected of a machine, where Linux's page tables are `checked` or not.
    pub fn expected(machine: &Machine, checked: bool) -> Self {
        let remaps = machine.remaps_interrupts();
        match (checked, remaps) {
            _ if !remaps && !machine.has_iommu() => Self::None("no IOMMU is in use"),
            _ if !machine.has_known_iommu() => Self::None("the IOMMU stays with Linux"),
            (checked, false) => Self::Memory { checked },
            (true, true) => Self::Checked,
            (false, true) => Self::Whole,
        }
    }

    /// Returns what is so while there is a cell.
    pub fn of(machine: &Machine, report: &Report) -> Self {
        match Self::expected(machine, report.dma_checked) {
            none @ Self::None(_) => none,
            _ if report.iommus == 0 || report.iommus_taken < report.iommus => {
                Self::None("an IOMMU stays with Linux: `crtos log` tells why")
            }
            // One of several that does not is enough.
            _ if report.iommus_remapping < report.iommus => {
                match report.iommus_confining < report.iommus {
                    true => Self::None(UNREMAPPED),
                    false => Self::Memory { checked: report.dma_checked },
                }
            }
            _ if report.iommus_confining < report.iommus => Self::Interrupts,
            _ if report.dma_checked => Self::Checked,
            _ => Self::Whole,
        }
    }

    /// Says in one line what is protected or not.
    pub fn line(self) -> String {
        match self {
            Self::Whole => {
                "protected: Linux's devices reach neither memory nor CPUs of cells".into()
            }
            Self::Checked => {
                "not protected: a compromised Linux can have its devices reach memory of cells (--linux-dma checked); they cannot interrupt their CPUs".into()
            }
            Self::Interrupts => {
                "not protected: Linux's devices can reach memory of cells, but not interrupt their CPUs; `crtos log` tells why".into()
            }
            Self::Memory { checked: false } => format!(
                "not protected: Linux's devices can interrupt CPUs of cells, but not reach their memory; {UNREMAPPED}"
            ),
            Self::Memory { checked: true } => format!(
                "not protected: Linux's devices can interrupt CPUs of cells, and a compromised Linux can have them reach memory of cells (--linux-dma checked); {UNREMAPPED}"
            ),
            Self::None(reason) => format!(
                "not protected: Linux's devices can reach memory and CPUs of cells; {reason}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    #[test]
    fn the_reason_is_the_machines() {
        let fake = Fake::fit();
        let expected = |fake: &Fake| Confinement::expected(&fake.machine(), false);
        assert_eq!(expected(&fake), Confinement::Whole);
        assert_eq!(Confinement::expected(&fake.machine(), true), Confinement::Checked);
        fake.write("/proc/interrupts", "  1:  9  IO-APIC  1-edge  i8042\n");
        assert_eq!(expected(&fake), Confinement::Memory { checked: false });
        let checked = Confinement::expected(&fake.machine(), true);
        assert_eq!(checked, Confinement::Memory { checked: true });
        for found in [expected(&fake), checked] {
            let line = found.line();
            assert!(line.starts_with("not protected: ") && line.ends_with(UNREMAPPED), "{line}");
            assert_eq!(line.lines().count(), 1);
        }
        fake.remove("/sys/class/iommu/dmar0");
        let line = expected(&fake).line();
        assert!(line.ends_with("no IOMMU is in use"), "{line}");
        // Linux does not translate by it.
        fake.write("/proc/interrupts", "  1:  9  IR-IO-APIC  1-edge  i8042\n");
        for table in ["/sys/firmware/acpi/tables/DMAR", "/sys/firmware/acpi/tables/IVRS"] {
            fake.write(table, "");
            assert_eq!(expected(&fake), Confinement::Whole);
            fake.remove(table);
        }
        let line = expected(&fake).line();
        assert!(line.ends_with("the IOMMU stays with Linux"), "{line}");
    }

    #[test]
    fn an_iommu_that_stays_with_linux_confines_nothing() {
        let fake = Fake::fit();
        let mut report = Report::parse(&[0; size_of::<crtos_abi::report::Report>()]);
        let memory = Confinement::Memory { checked: false };
        for (iommus, taken, confining, remapping, expected) in [
            (0, 0, 0, 0, None),
            (2, 0, 0, 0, None),
            (2, 1, 1, 1, None),
            (2, 2, 1, 1, None),
            (2, 2, 1, 2, Some(Confinement::Interrupts)),
            (2, 2, 2, 1, Some(memory)),
            (2, 2, 2, 2, Some(Confinement::Whole)),
        ] {
            (report.iommus, report.iommus_taken) = (iommus, taken);
            (report.iommus_confining, report.iommus_remapping) = (confining, remapping);
            let found = Confinement::of(&fake.machine(), &report);
            assert_eq!(matches!(found, Confinement::None(_)), expected.is_none());
            assert!(expected.is_none_or(|expected| found == expected));
            assert_eq!(found.line().starts_with("protected"), found == Confinement::Whole);
            assert_eq!(found.line().lines().count(), 1);
        }
    }
}
