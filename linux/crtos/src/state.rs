// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands tell later commands about a cell: what its boot information says, and what was
//! loaded last. Each cell has a file below `/run/crtos`.

use std::{fs, path::PathBuf};

use crate::{
    failure::{Asked, Result},
    loader::CellFacts,
};

/// Directory of the files.
const DIRECTORY: &str = "/run/crtos";

/// What is stored about a cell.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Remembered {
    /// Name of the cell.
    pub name: String,
    /// What it is made of.
    pub facts: CellFacts,
    /// What was loaded last.
    pub loaded: Option<Loaded>,
}

/// What was loaded into a cell.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Loaded {
    /// Absolute path.
    pub file: PathBuf,
    /// Command line of the cell.
    pub command_line: String,
}

fn path(cell: u32) -> PathBuf {
    PathBuf::from(DIRECTORY).join(format!("cell-{cell}.json"))
}

/// Returns what is stored about a cell.
pub fn recall(cell: u32) -> Option<Remembered> {
    serde_json::from_slice(&fs::read(path(cell)).ok()?).ok()
}

/// Stores what later commands need.
pub fn remember(cell: u32, what: &Remembered) -> Result<()> {
    let asked = || format!("write {}", path(cell).display());
    let text = serde_json::to_vec_pretty(what).map_err(std::io::Error::other).asked(asked())?;
    fs::create_dir_all(DIRECTORY).asked(asked())?;
    let new = path(cell).with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path(cell))).asked(asked())
}

/// Removes what is stored about a cell, if there is anything.
pub fn forget(cell: u32) {
    let _ = fs::remove_file(path(cell));
}
