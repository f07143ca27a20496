// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos man`: manual pages from the same text as `--help`, for packagers.

use std::path::PathBuf;

use crate::failure::{Asked, Result};

/// Write manual pages into a directory
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Man {
    /// The directory, which has to exist
    directory: PathBuf,
}

impl Man {
    /// Writes the pages of `command` and all its verbs.
    pub fn run(self, command: clap::Command) -> Result<()> {
        clap_mangen::generate_to(command, &self.directory)
            .asked(format!("write manual pages into {}", self.directory.display()))
    }
}
