// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupt lines of devices that the realm has.

use nix::errno::Errno;

use crate::{device::Device, failure::Result};

/// Gives a cell the lines on which devices interrupt, each by its name. Returns those that no cell
/// can have, with the reason for each; they are looked at by a timer.
pub fn give<'a>(
    devices: &[(&'a str, u32)],
    device: &Device,
    cell: u32,
) -> Result<Vec<(&'a str, String)>> {
    let mut without = Vec::new();
    for &(name, line) in devices {
        let is_other = |other: &&(&str, u32)| other.1 == line && other.0 != name;
        if line == 0 {
            without.push((name, "it has no interrupt".into()));
        } else if let Some((other, _)) = devices.iter().find(is_other) {
            without.push((name, format!("{other} has its interrupt as well")));
        } else if let Err(refusal) = device.add_line(cell, line) {
            match refusal.errno {
                Errno::EOPNOTSUPP => without.push((name, refusal.reason)),
                _ => return Err(refusal.asked(format!("take {name} from Linux"))),
            }
        }
    }
    Ok(without)
}
