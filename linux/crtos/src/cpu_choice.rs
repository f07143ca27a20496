// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs as `crtos up` takes them: by number, a whole core (`core:3`), a NUMA node (`node:1`).

use std::str::FromStr;

use crate::{
    code::Code,
    cpulist::CpuList,
    failure::{Failure, Result},
    machine::Machine,
};

/// What stands before the number of a CPU whose whole core is meant.
const CORE: &str = "core:";
/// What stands before the number of a NUMA node.
const NODE: &str = "node:";

/// CPUs that are wanted, before anybody looks at the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuChoice(Vec<Part>);

/// A part of the text between commas.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Listed(CpuList),
    /// All hardware threads of the core of this CPU.
    Core(u32),
    /// All CPUs of this NUMA node.
    Node(u32),
}

impl FromStr for CpuChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |digits: &str| {
            digits.parse().map_err(|_| format!("`{digits}` is no number; write core:3 or node:1"))
        };
        let part = |text: &str| {
            let text = text.trim();
            if let Some(cpu) = text.strip_prefix(CORE) {
                return Ok(Part::Core(number(cpu)?));
            }
            if let Some(node) = text.strip_prefix(NODE) {
                return Ok(Part::Node(number(node)?));
            }
            Ok(Part::Listed(text.parse()?))
        };
        text.split(',').map(part).collect::<std::result::Result<_, _>>().map(Self)
    }
}

impl CpuChoice {
    /// Returns which CPUs of this machine they are. Refuses a core or a node that it does not have.
    pub fn on(&self, machine: &Machine) -> Result<CpuList> {
        let mut all = Vec::new();
        for part in &self.0 {
            match part {
                Part::Listed(list) => all.extend(list.iter()),
                Part::Core(cpu) => all.extend(core(machine, *cpu)?.iter()),
                Part::Node(node) => all.extend(self::node(machine, *node)?.iter()),
            }
        }
        Ok(all.into_iter().collect())
    }
}

fn core(machine: &Machine, cpu: u32) -> Result<CpuList> {
    let threads = machine.siblings(cpu);
    match threads.contains(cpu) {
        true => Ok(threads),
        false => Err(Failure::new(
            Code::CoreOrNode,
            format!("take the core of CPU {cpu}"),
            "Linux does not use such a CPU, and so does not tell its core",
        )
        .remedy(format!("choose one of {}", machine.online().named()))),
    }
}

fn node(machine: &Machine, node: u32) -> Result<CpuList> {
    let cpus = machine.cpus_of_node(node);
    let refuse = |reason: String| {
        Err(Failure::new(Code::CoreOrNode, format!("take the CPUs of NUMA node {node}"), reason).remedy(
            "`ls -d /sys/devices/system/node/node*` shows the nodes; CPUs can be named by number",
        ))
    };
    match cpus.is_empty() {
        true => refuse("this machine has no such node with CPUs that Linux uses".into()),
        false if cpus.iter().any(|cpu| !machine.can_unplug(cpu)) => {
            refuse("it has the boot CPU, which Linux cannot give up".into())
        }
        false => Ok(cpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    #[test]
    fn cores_and_nodes_are_what_linux_says() {
        let fake = Fake::fit();
        let cpu = "/sys/devices/system/cpu";
        for n in [1, 3] {
            fake.write(&format!("{cpu}/cpu{n}/topology/thread_siblings_list"), "1,3\n");
        }
        fake.write("/sys/devices/system/node/node0/cpulist", "0,1\n");
        fake.write("/sys/devices/system/node/node1/cpulist", "2-3\n");
        let machine = fake.machine();
        let on = |text: &str| {
            text.parse::<CpuChoice>().unwrap().on(&machine).map(|cpus| cpus.to_string())
        };
        assert_eq!(on("2").unwrap(), "2");
        assert_eq!(on("core:3").unwrap(), "1,3");
        assert_eq!(on("node:1").unwrap(), "2,3");
        assert_eq!(on("core:1, 2").unwrap(), "1-3");
        let refused = |text: &str| on(text).unwrap_err().to_string();
        assert!(refused("node:0").contains("boot CPU"));
        assert!(refused("node:7").contains("no such node"));
        assert!(refused("core:9").contains("choose one of CPUs 0-3"));
    }

    #[test]
    fn what_is_no_choice_is_explained() {
        for (text, words) in [
            ("core:", "no number"),
            ("node:x", "no number"),
            ("", "no CPU number"),
            ("1,", "no CPU"),
        ] {
            let error = text.parse::<CpuChoice>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
