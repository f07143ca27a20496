// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems that are compared: Debian's kernels, each also with an isolated CPU, and the realm
//! beside them.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use crtos_results::System;

use crate::kernels::{self, Flavour};

/// CPUs of the emulated machine.
pub const CPUS: u32 = 4;
/// The CPU that programs are measured on, in every system.
pub const CPU: u32 = 3;
/// The other one, for figures across CPUs.
pub const OTHER_CPU: u32 = 2;
/// The CPU of Linux that the load runs on. More of them would only make everybody wait for more
/// turns.
pub const LOAD_CPU: u32 = 0;
/// How Linux is told to leave the CPU alone.
pub const ISOLATION: &str = "isolcpus=3 nohz_full=3 rcu_nocbs=3 irqaffinity=0-2";
/// The CPU of Linux that shadows have for themselves where one is isolated beside the realm.
pub const SHADOW_CPU: u32 = 1;
/// How Linux is told to leave that one to them. CPUs have their ticks one after another. With
/// `nohz_full` it would have fewer of its own, and each call would take longer.
pub const SHADOW_ISOLATION: &str = "isolcpus=1 rcu_nocbs=1 irqaffinity=0 skew_tick=1";

/// A system, as the command line names it: `6.1`, `6.1-rt-isolated`, `realm-6.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The kernel.
    pub flavour: Flavour,
    /// One CPU is isolated by boot parameters: for the program, or beside the realm for its shadow.
    pub isolated: bool,
    /// The realm has the CPU.
    pub realm: bool,
}

/// Beside these the realm is measured.
const WITH_REALM: [Flavour; 2] = [Flavour::V6_1, Flavour::V6_12];

impl Target {
    /// All of them: each kernel, each isolated, the realm beside some.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for isolated in [false, true] {
            all.extend(Flavour::ALL.map(|flavour| Self { flavour, isolated, realm: false }));
        }
        for isolated in [false, true] {
            all.extend(WITH_REALM.map(|flavour| Self { isolated, ..Self::realm(flavour) }));
        }
        all
    }

    /// Those of the quick set.
    pub fn few() -> Vec<Self> {
        let linux = |flavour| Self { flavour, isolated: false, realm: false };
        vec![linux(Flavour::V6_1), linux(Flavour::V6_1Rt), Self::realm(Flavour::V6_1)]
    }

    /// The realm beside a kernel.
    pub fn realm(flavour: Flavour) -> Self {
        Self { flavour, isolated: false, realm: true }
    }

    /// For results.
    pub fn describe(self) -> Result<System> {
        let name = match self {
            Self { realm: true, isolated: true, .. } => {
                format!("realm beside {} isolated", self.flavour)
            }
            Self { realm: true, .. } => format!("realm beside {}", self.flavour),
            Self { isolated: true, .. } => format!("{} isolated", self.flavour),
            Self { .. } => self.flavour.to_string(),
        };
        Ok(System {
            name,
            kernel: kernels::ensure(self.flavour)?.release,
            realm: self.realm,
            preempt_rt: self.flavour.has_preempt_rt(),
            isolated: self.isolated,
        })
    }

    /// The CPUs that its load may use: one of Linux's own, and the one that programs are measured
    /// on unless that is isolated or in the realm.
    pub fn load_cpus(self) -> String {
        match self.isolated || self.realm {
            true => LOAD_CPU.to_string(),
            false => format!("{LOAD_CPU},{CPU}"),
        }
    }

    /// The CPU of Linux that only shadows use, if there is one.
    pub fn shadow_cpu(self) -> Option<u32> {
        (self.realm && self.isolated).then_some(SHADOW_CPU)
    }

    /// Parameters for its kernel.
    pub fn boot_parameters(self) -> String {
        match self {
            Self { isolated: false, .. } => String::new(),
            Self { realm: false, .. } => ISOLATION.to_owned(),
            Self { realm: true, .. } => SHADOW_ISOLATION.to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.realm { "realm-" } else { "" };
        let suffix = if self.isolated { "-isolated" } else { "" };
        write!(f, "{prefix}{}{suffix}", self.flavour)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut known = Self::all();
        let further = Flavour::ALL.map(Self::realm).into_iter();
        known.extend(further.filter(|target| !WITH_REALM.contains(&target.flavour)));
        known.iter().find(|target| target.to_string() == text).copied().ok_or_else(|| {
            let names: Vec<_> = known.iter().map(Self::to_string).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_found_by_its_name() {
        for target in Target::all() {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert_eq!("realm-6.1-rt".parse(), Ok(Target::realm(Flavour::V6_1Rt)));
        assert!("realm-6.1-rt-isolated".parse::<Target>().is_err());
    }
}
