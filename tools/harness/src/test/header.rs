// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test script says about itself: comment lines `# key: value` at its top.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::iommu::Iommu;
use crate::kernels::Flavour;
use crate::mesa::Card;
use crate::qemu::{Cards, Uarts};

/// Time that a script has if it does not say.
const TIMEOUT: Duration = Duration::from_secs(400);

/// The settings of a test script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// `kernels: all`, or names: one run on each of them.
    pub kernels: Vec<Flavour>,
    /// `more kernels: NAMES`: further ones for the full tier, or if they are asked for by name.
    pub more_kernels: Vec<Flavour>,
    /// `smp: N`: number of CPUs.
    pub cpus: u32,
    /// `mem: SIZE`: size of the memory.
    pub memory: String,
    /// `boot: WORDS`: parameters of the guest's kernel beside those that emulation needs.
    pub boot: String,
    /// `timeout: SECONDS`.
    pub timeout: Duration,
    /// `realm: no`: the script starts the realm by itself, or not at all.
    pub realm: bool,
    /// `packages: a,b`: Debian packages beside those that are always there. Several lines add up.
    pub packages: Vec<String>,
    /// `xapic: yes`: a machine without x2APIC.
    pub xapic: bool,
    /// `iommu: OPTIONS`: `amd`, or options of Intel's kind, such as x-scalable-mode=on.
    pub iommu: Iommu,
    /// `devices: yes`, `devices: igb` or `devices: virtio`: a disk and network cards (82574L,
    /// 82576, or of virtio), which master the bus by way of the IOMMU.
    pub devices: Option<Cards>,
    /// `uarts: isa` or `uarts: pci`: two further UARTs of that kind.
    pub uarts: Option<Uarts>,
    /// `can: yes`: two CAN controllers on one bus.
    pub can: bool,
    /// `parallel: yes`: a parallel port.
    pub parallel: bool,
    /// `mesa: 5i25`: cards of Mesa Electronics.
    pub mesa: Vec<Card>,
    /// `pair: yes`: two devices that the IOMMU does not tell from each other.
    pub pair: bool,
    /// `uses: NAMES`: scripts of `tests/common`, which come before it.
    pub uses: Vec<String>,
    /// `icount: yes`: count instructions instead of time.
    pub icount: bool,
    /// `turns: short`: virtual CPUs that are busy advance nearly alike; with `icount: yes`.
    pub short_turns: bool,
    /// `shared: yes`: the script leaves the guest as it was.
    pub shared: bool,
    /// `tier: full`: takes long, so it runs only if asked for.
    pub full: bool,
    /// `full: NAME=VALUE`: what the shell sets before the script if the full tier was asked for.
    pub full_setting: String,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            kernels: vec![Flavour::V6_1],
            more_kernels: vec![],
            cpus: 4,
            memory: "2G".to_owned(),
            boot: String::new(),
            timeout: TIMEOUT,
            realm: true,
            packages: vec![],
            xapic: false,
            iommu: Iommu::default(),
            devices: None,
            uarts: None,
            can: false,
            parallel: false,
            mesa: vec![],
            pair: false,
            uses: vec![],
            icount: false,
            short_turns: false,
            shared: false,
            full: false,
            full_setting: String::new(),
        }
    }
}

impl Header {
    /// Reads the header of a script: its leading comment lines. A comment that
    /// starts with none of the keys is a comment.
    ///
    /// # Errors
    /// A key with a value that it cannot have.
    pub fn parse(script: &str) -> Result<Self> {
        let mut header = Self::default();
        for line in script.lines().take_while(|line| line.starts_with('#')) {
            let Some((key, value)) = line.trim_start_matches('#').split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            header.set(key, value).with_context(|| format!("the header line `{key}: {value}`"))?;
        }
        Ok(header)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "kernels" => self.kernels = kernels(value)?,
            "more kernels" => self.more_kernels = kernels(value)?,
            "smp" => self.cpus = value.parse()?,
            "mem" => self.memory = value.to_owned(),
            "boot" => self.boot = value.to_owned(),
            "timeout" => self.timeout = Duration::from_secs(value.parse()?),
            "realm" => self.realm = yes(value)?,
            "packages" => self.packages.extend(words(value).map(str::to_owned)),
            "xapic" => self.xapic = yes(value)?,
            "iommu" => self.iommu = Iommu::from(value),
            "devices" if value == "virtio" => self.devices = Some(Cards::Virtio),
            "devices" if value == "igb" => self.devices = Some(Cards::Igb),
            "devices" => self.devices = yes(value)?.then_some(Cards::E1000e),
            "uarts" => {
                self.uarts = Some(Uarts::from_str(value, false).map_err(anyhow::Error::msg)?)
            }
            "can" => self.can = yes(value)?,
            "parallel" => self.parallel = yes(value)?,
            "pair" => self.pair = yes(value)?,
            "mesa" => {
                let cards = words(value).map(|name| Card::from_str(name, false));
                self.mesa = cards.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
            }
            "uses" => self.uses = value.split_whitespace().map(str::to_owned).collect(),
            "icount" => self.icount = yes(value)?,
            "turns" if value == "short" => self.short_turns = true,
            "turns" => bail!("turns are `short`, or as long as they get"),
            "shared" => self.shared = yes(value)?,
            "full" => self.full_setting = value.to_owned(),
            "tier" if value == "full" => self.full = true,
            "tier" if value == "default" => self.full = false,
            "tier" => bail!("a tier is `default` or `full`"),
            _ => {}
        }
        Ok(())
    }

    /// The names and values of `full`.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        words(&self.full_setting).filter_map(|word| word.split_once('='))
    }

    /// Whether scripts with these two headers can run in the same guest, which has what either
    /// wants.
    pub fn same_machine(&self, other: &Self) -> bool {
        let same_uarts =
            self.uarts.is_none_or(|kind| other.uarts.is_none_or(|other| other == kind));
        let machine = |h: &Self| {
            let words = (h.memory.clone(), h.boot.clone(), h.iommu.clone());
            let devices = (h.devices, h.pair, h.mesa.clone());
            (h.cpus, words, devices, h.realm, h.xapic, h.icount, h.short_turns)
        };
        self.shared && other.shared && same_uarts && machine(self) == machine(other)
    }

    /// Boots with this parameter of Linux as well.
    pub fn add_boot_parameter(&mut self, parameter: &str) {
        self.boot = format!("{} {parameter}", self.boot).trim_start().to_owned();
    }

    /// Wants what the other one does as well: of that which disturbs no script that does without.
    pub fn join(&mut self, other: &Self) {
        self.packages.extend(other.packages.iter().cloned());
        self.packages.sort();
        self.packages.dedup();
        self.uarts = self.uarts.or(other.uarts);
        self.can |= other.can;
        self.parallel |= other.parallel;
    }
}

fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ' ']).filter(|word| !word.is_empty())
}

fn kernels(value: &str) -> Result<Vec<Flavour>> {
    if value == "all" {
        return Ok(Flavour::ALL.to_vec());
    }
    let named = |name| Flavour::named(name).with_context(|| format!("no kernel `{name}`"));
    words(value).map(named).collect()
}

fn yes(value: &str) -> Result<bool> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => bail!("neither `yes` nor `no`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_up_to_the_first_line_of_code() {
        let script = "#!/bin/sh\n# Says: nothing\n# kernels: 6.1, 6.12-rt\n# smp: 2\n\
            # more kernels: 6.12\n\
            # realm: no\n# boot: maxcpus=2 quiet\n\
            # timeout: 7\n# packages: jq\n# packages: gdb\n# full: N=9 M=all\ntrue\n\
            # smp: 8\n";
        let header = Header::parse(script).unwrap();
        assert_eq!(header.kernels, [Flavour::V6_1, Flavour::V6_12Rt]);
        assert_eq!(header.more_kernels, [Flavour::V6_12]);
        assert_eq!((header.cpus, header.realm), (2, false));
        assert_eq!(header.timeout, Duration::from_secs(7));
        assert_eq!(header.boot, "maxcpus=2 quiet");
        assert_eq!(header.packages, ["jq", "gdb"]);
        assert_eq!((header.full, header.full_setting.as_str()), (false, "N=9 M=all"));
        assert_eq!(header.settings().collect::<Vec<_>>(), [("N", "9"), ("M", "all")]);
    }

    #[test]
    fn a_wrong_value_is_refused() {
        for line in
            ["# mesa: 5i26", "# kernels: 2.4", "# smp: many", "# realm: maybe", "# tier: third"]
        {
            assert!(Header::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn only_shared_scripts_share() {
        let alone = Header::default();
        let shared = Header { shared: true, ..Header::default() };
        let large = Header { memory: "4G".to_owned(), ..shared.clone() };
        let other = Header { boot: "maxcpus=2".to_owned(), ..shared.clone() };
        let amd = Header { iommu: Iommu::from("amd"), ..shared.clone() };
        let patient = Header { timeout: Duration::from_secs(9), ..shared.clone() };
        assert!(shared.same_machine(&patient));
        assert!(!shared.same_machine(&large) && !shared.same_machine(&other));
        assert!(!shared.same_machine(&amd));
        assert!(!shared.same_machine(&alone) && !alone.same_machine(&alone));
    }

    #[test]
    fn a_guest_has_what_any_script_in_it_wants() {
        let shared = Header { shared: true, ..Header::default() };
        let packages = vec!["socat".to_owned(), "jq".to_owned()];
        let lines = Header { uarts: Some(Uarts::Isa), packages, ..shared.clone() };
        let mut both = Header { can: true, packages: vec!["jq".to_owned()], ..shared };
        assert!(both.same_machine(&lines));
        both.join(&lines);
        assert_eq!((both.uarts, both.can, both.parallel), (Some(Uarts::Isa), true, false));
        let cards = Header { uarts: Some(Uarts::Pci), ..lines.clone() };
        assert!(!cards.same_machine(&both));
        assert_eq!(both.packages, ["jq", "socat"]);
    }
}
