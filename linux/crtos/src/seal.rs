// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos seal`: the realm takes no new program any more.

use crate::{
    code::Code,
    device::Device,
    failure::{Failure, Result},
    machine::Machine,
    report::State,
    requirements,
};

/// What the command does, for the messages of failures.
const ASKED: &str = "seal the real-time realm";

/// Have the locked realm take no new program until it ends
///
/// What runs there goes on: it starts threads, forks, and executes programs. Nobody in Linux starts
/// another one there, root included, which could end those that run or have a higher priority. The
/// command prints which processes there are: look whether these are all that should be there.
///
/// Nobody takes that back. The realm ends when its programs have ended and `crtos down` is called.
/// To be able to end one, have it handle a signal such as SIGTERM.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos up --cpus 3 --memory 512M --locked
  crtos run ./control &
  crtos seal

Exit status: 0 the realm is sealed; 1 refused or failed; 2 usage.")]
pub struct Seal {}

impl Seal {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let device = Device::require(ASKED)?;
        let realm = device.realm(ASKED)?;
        requirements::root(&Machine::here(), ASKED, "only root may do that")?;
        let report = device.report(ASKED)?;
        if report.cell(realm).is_none_or(|cell| cell.state != State::Locked) {
            return Err(Failure::new(
                Code::NotLocked,
                ASKED,
                "it is not locked, so root may end it anyway",
            )
            .remedy("`crtos down`, then `crtos up --locked`"));
        }
        device.seal(realm).map_err(|refusal| refusal.asked(ASKED))?;
        for (pid, command) in device.programs(realm).map_err(|refusal| refusal.asked(ASKED))? {
            anstream::println!("{pid} {command}");
        }
        Ok(())
    }
}
