// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux's devices can do to cells.

use crate::{machine::Machine, report::Report};

/// Why that matters.
pub const WHY: &str = "a device that Linux drives could reach the memory of a cell, or interrupt its CPUs with any vector";
/// What to do about it.
pub const REMEDY: &str =
    "none is known yet; use devices and drivers in Linux that you trust (docs/security.md)";

/// How far Linux's devices are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// They interrupt Linux's CPUs only.
    Interrupts,
    /// Not at all, for this reason.
    None(&'static str),
}

impl Confinement {
    /// Returns what can be expected of a machine.
    pub fn expected(machine: &Machine) -> Self {
        if !machine.has_iommu() {
            Self::None("no IOMMU is in use")
        } else if !machine.remaps_interrupts() {
            Self::None("Linux does not have the IOMMU remap interrupts")
        } else if !machine.has_vtd() {
            Self::None("the IOMMU stays with Linux")
        } else {
            Self::Interrupts
        }
    }

    /// Returns what is so while there is a cell.
    pub fn of(machine: &Machine, report: &Report) -> Self {
        match Self::expected(machine) {
            Self::Interrupts if report.iommus == 0 || report.iommus_taken < report.iommus => {
                Self::None("an IOMMU stays with Linux: `crtos log` tells why")
            }
            expected => expected,
        }
    }

    /// Says in one line what is not protected.
    pub fn line(self) -> String {
        match self {
            Self::Interrupts => {
                "not protected: Linux's devices can reach memory of cells; they cannot interrupt their CPUs".into()
            }
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
        assert_eq!(Confinement::expected(&fake.machine()), Confinement::Interrupts);
        fake.write("/proc/interrupts", "  1:  9  IO-APIC  1-edge  i8042\n");
        let line = Confinement::expected(&fake.machine()).line();
        assert!(line.ends_with("does not have the IOMMU remap interrupts"), "{line}");
        fake.remove("/sys/class/iommu/dmar0");
        let line = Confinement::expected(&fake.machine()).line();
        assert!(line.ends_with("no IOMMU is in use"), "{line}");
    }

    #[test]
    fn an_iommu_that_stays_with_linux_confines_nothing() {
        let fake = Fake::fit();
        let mut report = Report::parse(&[0; size_of::<crtos_abi::report::Report>()]);
        for (iommus, iommus_taken, confined) in
            [(0, 0, false), (2, 0, false), (2, 1, false), (2, 2, true)]
        {
            (report.iommus, report.iommus_taken) = (iommus, iommus_taken);
            let found = Confinement::of(&fake.machine(), &report);
            assert_eq!(found == Confinement::Interrupts, confined);
            assert_eq!(found.line().lines().count(), 1);
        }
    }
}
