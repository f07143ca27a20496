// SPDX-License-Identifier: MIT OR Apache-2.0
//! The instructions of the realm's kernel by their addresses, as objdump prints them, so that what
//! was executed can be read one instruction after the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run;

/// Instructions by address, in the bits that `mask` leaves.
pub struct Listing {
    instructions: BTreeMap<u64, String>,
    mask: u64,
}

impl Listing {
    /// Those of an executable.
    pub fn of(executable: &Path, mask: u64) -> Result<Self> {
        let mut objdump = Command::new("objdump");
        objdump.args(["-d", "-C", "--no-show-raw-insn"]).arg(executable);
        let text = run::output(&mut objdump)?;
        let instructions: BTreeMap<_, _> =
            text.lines().filter_map(instruction).map(|(at, what)| (at & mask, what)).collect();
        if instructions.is_empty() {
            bail!("objdump finds no instructions in {}", executable.display());
        }
        Ok(Self { instructions, mask })
    }

    /// So many one after the other, from that address on; none of what is not listed.
    pub fn from(&self, address: u64, count: u64) -> impl Iterator<Item = (u64, &str)> {
        let first = address & self.mask;
        let is_known = self.instructions.contains_key(&first);
        let count = if is_known { count } else { 0 };
        let rest = self.instructions.range(first..).take(count as usize);
        rest.map(|(at, what)| (*at, what.as_str()))
    }
}

/// A line of an address and an instruction, such as `  40: \tmov    %rsp,%rbp`.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (address, what) = line.trim_start().split_once(":\t")?;
    Some((u64::from_str_radix(address, 16).ok()?, what.trim_end().to_owned()))
}
