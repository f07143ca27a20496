// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands tell later commands, in files below `/run/crtos`: of each cell what its boot
//! information says, and what was loaded last.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

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
    load(&path(cell))
}

/// Stores what later commands need.
pub fn remember(cell: u32, what: &Remembered) -> Result<()> {
    store(&path(cell), what).asked(format!("write {}", path(cell).display()))
}

/// Stores `what` in a file of that directory, as a whole or not at all.
pub fn store(file: &Path, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(what)?;
    fs::create_dir_all(DIRECTORY)?;
    let new = file.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, file))
}

/// Returns what [`store`] has written to a file, if there is anything.
pub fn load<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Does to each entry of a file that [`store`] has written what is left to be done, and removes the
/// file.
pub fn settle<T: DeserializeOwned>(file: &Path, settle: impl FnMut(T)) {
    if !file.exists() {
        return;
    }
    let entries: Vec<T> = load(file).unwrap_or_default();
    entries.into_iter().for_each(settle);
    let _ = fs::remove_file(file);
}

/// Removes what is stored about a cell, if there is anything.
pub fn forget(cell: u32) {
    let _ = fs::remove_file(path(cell));
}
