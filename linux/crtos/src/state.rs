// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands tell later commands, in files below `/run/crtos`: of each cell what its boot
//! information says, and what was loaded last.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
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

/// Stores `what` in a file, as a whole or not at all.
pub fn store(file: &Path, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(what)?;
    make_place(file)?;
    let new = file.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, file))
}

/// Makes the directory of a file.
fn make_place(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Changes the list that [`store`] has written to a file; commands at the same time do so one after
/// the other.
pub fn change<T: Serialize + DeserializeOwned>(
    file: &Path,
    change: impl FnOnce(&mut Vec<T>),
) -> io::Result<()> {
    make_place(file)?;
    // It stays, since whoever waits for it has it open. The kernel unlocks it for a killed command.
    let lock = fs::File::create(file.with_extension("lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let mut entries = load(file).unwrap_or_default();
    change(&mut entries);
    store(file, &entries)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        const COUNT: u32 = 8;
        const EACH: u32 = 20;
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("further/list.json");
        std::thread::scope(|scope| {
            for own in 0..COUNT {
                let file = &file;
                scope.spawn(move || {
                    for entry in own * EACH..(own + 1) * EACH {
                        change(file, |all| all.push(entry)).expect("changed");
                    }
                });
            }
        });
        let mut all: Vec<u32> = load(&file).expect("there");
        all.sort_unstable();
        assert!(all.into_iter().eq(0..COUNT * EACH));
    }
}
