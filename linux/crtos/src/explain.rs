// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos explain`: what an error means, and what to do.

use crate::{
    code::Code,
    failure::{Failure, Result, STATUS_USAGE},
};

/// Explain an error by the code that its message shows
///
/// Prints the section of docs/troubleshooting.md about it: what the error means, and what to do.
/// Without a code, all codes are listed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos explain cpu-offline
  crtos explain | grep memory

Exit status: 0 done; 2 usage, or there is no such code.")]
pub struct Explain {
    /// The code, such as cpu-offline
    code: Option<String>,
}

impl Explain {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let Some(name) = self.code else {
            for code in Code::ALL {
                anstream::println!("{:<24}{}", code.name(), code.summary());
            }
            return Ok(());
        };
        let wanted = name.trim_matches(['[', ']']);
        let Some(code) = Code::named(wanted) else {
            return Err(Failure::new(
                Code::Usage,
                format!("explain `{name}`"),
                "no error has that code",
            )
            .remedy("`crtos explain` lists the codes")
            .status(STATUS_USAGE));
        };
        anstream::println!("{}\n\n{}", code.name(), code.section());
        Ok(())
    }
}
