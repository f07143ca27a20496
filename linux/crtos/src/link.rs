// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos link`: memory that Linux and cells share.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    str::FromStr,
};

use clap::Subcommand;
use crtos_abi::{
    ioctl::{Link as RawLink, LinkJoin, NO_CELL},
    link::{LINK_NAME_LEN, MAX_LINKS},
};
use nix::errno::Errno;
use serde::Serialize;

use crate::{
    code::Code,
    device::{self, Device},
    failure::{Failure, Result},
    machine::Machine,
    requirements,
    size::Size,
    start,
    text::padded,
};

/// Make memory that Linux and cells share, and by which they tell each other of it
///
/// A link has a section that all its peers write, and one for each that only that peer writes; all
/// read all. Linux is peer 0, by /dev/crtos-shm/NAME: mmap shows it, a read or poll waits until a
/// peer rings, and a write of a peer's number (4 bytes) rings that. Cells are the other peers:
/// `crtos cell create --link NAME`. Each peer has a state, which is 0 when it is not there.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos link create plant --common 64K --output 16K --peers 3
  crtos cell create left --cpus 2 --link plant
  crtos cell create right --cpus 3 --link plant:2
  crtos link list
  crtos cell destroy left && crtos cell destroy right
  crtos link destroy plant

Exit status: 0 done; 1 refused or failed; 2 usage.")]
pub struct Link {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a link
    Create {
        /// Its name: letters, digits, `-`, `_`
        name: String,
        /// The section that all peers write
        #[arg(long, value_name = "SIZE", default_value = "64K")]
        common: Size,
        /// The section of each peer
        #[arg(long, value_name = "SIZE", default_value = "16K")]
        output: Size,
        /// How many peers there may be, Linux among them
        #[arg(long, value_name = "NUMBER", default_value_t = 3)]
        peers: u32,
    },
    /// List the links, with the cells that are their peers and the peers' states
    ///
    /// With --json an array of objects: name, number, common_bytes, output_bytes, peers, of each:
    /// cell (null if none is), state.
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give the memory of a link back
    ///
    /// Refused while a cell is a peer, or a program of Linux has it open.
    Destroy {
        /// Its name
        name: String,
    },
}

/// A link that a cell is to have, with the number of the peer that it is to be, or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    name: String,
    peer: u32,
}

impl FromStr for Joined {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, peer) = match text.split_once(':') {
            None => (text, 0),
            Some((name, number)) => match number.parse() {
                Ok(peer @ 1..) => (name, peer),
                _ => return Err(format!("`{number}` is no number of a peer from 1 on")),
            },
        };
        check_name(name)?;
        Ok(Self { name: name.into(), peer })
    }
}

impl Joined {
    /// Returns the link's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a cell that has not run a peer. Returns its four bits in
    /// [`links`](crtos_abi::boot::BootInfo::links).
    pub fn join(&self, device: &Device, asked: &str, cell: u32) -> Result<u32> {
        let name = device::name(&self.name);
        let mut join = LinkJoin { name, cell, peer: self.peer, number: 0, reserved: 0 };
        device.join_link(&mut join).map_err(|refusal| refusal.asked(asked))?;
        Ok(join.peer << (4 * join.number))
    }
}

fn check_name(name: &str) -> std::result::Result<(), String> {
    match (1..LINK_NAME_LEN).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!("the name of a link has 1 to {} bytes", LINK_NAME_LEN - 1)),
    }
}

/// A link in JSON.
#[derive(Serialize)]
struct Row {
    name: String,
    number: u32,
    common_bytes: u64,
    output_bytes: u64,
    peers: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    cell: Option<u32>,
    state: u32,
}

fn raw(name: &str) -> RawLink {
    RawLink {
        name: device::name(name),
        number: 0,
        peers: 0,
        common: 0,
        output: 0,
        cells: [NO_CELL; 8],
        states: [0; 8],
    }
}

impl Link {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        match self.verb {
            Verb::Create { name, common, output, peers } => create(&name, common, output, peers),
            Verb::List { json } => list(json),
            Verb::Destroy { name } => {
                let asked = format!("destroy link {name}");
                let device = Device::require(&asked)?;
                device.destroy_link(&mut raw(&name)).map_err(|refusal| refusal.asked(asked))
            }
        }
    }
}

fn create(name: &str, common: Size, output: Size, peers: u32) -> Result<()> {
    let asked = format!("create link {name}");
    check_name(name).map_err(|reason| Failure::new(Code::LinkShape, &asked, reason))?;
    let machine = Machine::here();
    requirements::root(&machine, &asked, "only root may take memory from Linux")?;
    let device = start::open_device(&machine, &asked)?;
    device.info(&asked)?;
    let mut link = RawLink { peers, common: common.0, output: output.0, ..raw(name) };
    device.create_link(&mut link).map_err(|refusal| refusal.asked(&asked))?;
    open_to_group(&machine, name);
    device.keep().map_err(|refusal| refusal.asked(asked))
}

/// Lets the group `crtos` use the link, if there is such a group and the file is there already:
/// otherwise udev does.
fn open_to_group(machine: &Machine, name: &str) {
    let path = format!("/dev/crtos-shm/{name}");
    if let Some(group) = machine.group("crtos") {
        let _ = chown(&path, None, Some(group))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o660)));
    }
}

fn rows(device: &Device, asked: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for number in 0..MAX_LINKS as u32 {
        let mut link = RawLink { number, ..raw("") };
        match device.link_info(&mut link) {
            Ok(()) => {}
            Err(refusal) if refusal.errno == Errno::ENOENT => continue,
            Err(refusal) => return Err(refusal.asked(asked)),
        }
        let peers = link.cells.iter().zip(link.states).take(link.peers as usize);
        let peers =
            peers.map(|(&cell, state)| Peer { cell: (cell != NO_CELL).then_some(cell), state });
        rows.push(Row {
            name: padded(&link.name),
            number,
            common_bytes: link.common,
            output_bytes: link.output,
            peers: peers.collect(),
        });
    }
    Ok(rows)
}

fn list(json: bool) -> Result<()> {
    let asked = "list the links";
    let rows = rows(&Device::require(asked)?, asked)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&rows).unwrap_or_default());
        return Ok(());
    }
    for row in &rows {
        let (common, output) = (Size(row.common_bytes), Size(row.output_bytes));
        println!("{}: {common} in common, {output} for each peer", row.name);
        for (number, peer) in row.peers.iter().enumerate() {
            let who = match (number, peer.cell) {
                (0, _) => "Linux".into(),
                (_, Some(cell)) => format!("cell {cell}"),
                (_, None) => "free".into(),
            };
            println!("  {number}: {who}, state {}", peer.state);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_and_without_a_peer() {
        let joined = |name: &str, peer| Ok(Joined { name: name.into(), peer });
        assert_eq!("plant".parse(), joined("plant", 0));
        assert_eq!("plant:2".parse(), joined("plant", 2));
        for wrong in ["", ":1", "plant:0", "plant:", "plant:x", &"n".repeat(32)] {
            assert!(wrong.parse::<Joined>().is_err(), "{wrong}");
        }
    }
}
