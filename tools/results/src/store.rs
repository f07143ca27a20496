// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells on disk, so that a run that was interrupted goes on where it was: one file per cell,
//! written whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::Cell;
use crate::order::Order;

/// A folder of cells.
pub struct Store {
    folder: PathBuf,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// What was asked.
    order: Order,
    /// What it was measured with: changes when programs or kernels do.
    fingerprint: String,
    cell: Cell,
}

impl Store {
    /// Opens a folder, made if missing; if `fresh`, what it held is removed.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(folder: &Path, fresh: bool) -> io::Result<Self> {
        if fresh && folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The cell that was measured for the same order with the same fingerprint, and has samples.
    pub fn get(&self, order: &Order, fingerprint: &str) -> Option<Cell> {
        let text = fs::read_to_string(self.file(order)).ok()?;
        let entry: Entry = serde_json::from_str(&text).ok()?;
        let same = entry.order == *order && entry.fingerprint == fingerprint;
        (same && entry.cell.outcome.is_ok()).then_some(entry.cell)
    }

    /// Keeps a cell.
    ///
    /// # Errors
    /// Of the file system.
    pub fn put(&self, order: &Order, fingerprint: &str, cell: &Cell) -> io::Result<()> {
        let file = self.file(order);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let entry =
            Entry { order: order.clone(), fingerprint: fingerprint.to_owned(), cell: cell.clone() };
        let half_made = file.with_extension("half-made");
        fs::write(&half_made, serde_json::to_string(&entry)?)?;
        fs::rename(half_made, file)
    }

    fn file(&self, order: &Order) -> PathBuf {
        let safe = |text: &str| -> String {
            text.chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
                .collect()
        };
        let name = format!("{}--{}.json", safe(&order.figure), safe(&order.load));
        self.folder.join(safe(&order.system.name)).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example::{cell, system};

    #[test]
    fn only_the_same_order_finds_its_cell() {
        let folder = std::env::temp_dir().join(format!("crtos-store-{}", std::process::id()));
        let store = Store::open(&folder, true).unwrap();
        let order = Order {
            system: system("6.1"),
            load: "none".into(),
            figure: "getpid".into(),
            samples: 10,
            interval_us: 1000,
            cpu: 3,
            other_cpu: None,
            load_cpus: None,
            shadow_cpu: None,
            virtual_time: true,
            own: false,
        };
        let mut cell = cell("6.1", "none", "getpid", &[(370, 10)]);
        assert_eq!(store.get(&order, "a"), None);
        store.put(&order, "a", &cell).unwrap();
        assert_eq!(store.get(&order, "a").as_ref(), Some(&cell));
        assert_eq!(store.get(&order, "b"), None);
        assert_eq!(store.get(&Order { samples: 20, ..order.clone() }, "a"), None);
        cell.outcome = Err("no".into());
        store.put(&order, "a", &cell).unwrap();
        assert_eq!(store.get(&order, "a"), None, "a failure is tried again");
        fs::remove_dir_all(folder).unwrap();
    }
}
