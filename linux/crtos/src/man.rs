// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos man`: manual pages and completions from the same text as `--help`, for packagers.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use clap_complete::Shell;

use crate::failure::{Asked, Result};

/// Name of the command.
const NAME: &str = "crtos";
/// Where each shell looks for what completes a command line, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/crtos"),
    (Shell::Fish, "fish/vendor_completions.d/crtos.fish"),
    (Shell::Zsh, "zsh/vendor-completions/_crtos"),
];

/// Write manual pages and completions of shells into a directory
///
/// Below it they lie as below /usr/share.
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Man {
    /// The directory
    directory: PathBuf,
}

impl Man {
    /// Writes the pages of `command` and all its verbs.
    pub fn run(self, mut command: clap::Command) -> Result<()> {
        let pages = self.directory.join("man/man1");
        let asked = |path: &Path| format!("write {}", path.display());
        fs::create_dir_all(&pages).asked(asked(&pages))?;
        clap_mangen::generate_to(command.clone(), &pages).asked(asked(&pages))?;
        for (shell, name) in COMPLETIONS {
            let path = self.directory.join(name);
            let folder = path.parent().unwrap_or(&self.directory);
            let file = fs::create_dir_all(folder).and_then(|()| File::create(&path));
            let mut file = file.asked(asked(&path))?;
            clap_complete::generate(shell, &mut command, NAME, &mut file);
        }
        Ok(())
    }
}
