// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is not protected of cells because Linux's devices are not confined.

use crate::machine::Machine;

/// What devices could do.
pub const WHY: &str = "a device that Linux drives could reach the memory of a cell, or interrupt its CPUs with any vector";
/// What to do about it.
pub const REMEDY: &str =
    "none is known yet; use devices and drivers in Linux that you trust (docs/security.md)";

/// Says why devices are not confined.
pub fn reason(machine: &Machine) -> &'static str {
    match machine.has_iommu() {
        true => "the IOMMU stays with Linux",
        false => "no IOMMU is in use",
    }
}

/// Says in one line what is not protected.
pub fn line(machine: &Machine) -> String {
    format!(
        "not protected: Linux's devices can reach memory and CPUs of cells; {}",
        reason(machine)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    #[test]
    fn the_reason_is_the_machines() {
        let fake = Fake::fit();
        assert!(line(&fake.machine()).ends_with("the IOMMU stays with Linux"));
        fake.remove("/sys/class/iommu/dmar0");
        assert!(line(&fake.machine()).ends_with("no IOMMU is in use"));
        assert_eq!(line(&fake.machine()).lines().count(), 1);
    }
}
