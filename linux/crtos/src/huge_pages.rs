// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's pool of huge pages of 2 MiB, as memory that was reserved for the realm at boot: it
//! stays in whole blocks, however long the machine has run. While the realm has some, the pool is
//! smaller.

use std::{fs, path::Path};

use crate::{
    code::Code,
    failure::{Asked, Failure, Result},
    machine::Machine,
    size::Size,
    state, text,
};

/// The pool's files (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// File that tells how many pages are the realm's.
const RECORD: &str = "/run/crtos/huge-pages.json";

/// What the file says. A command may be killed at any step; each value tells the next command all
/// that is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Record {
    /// A command is changing the pool, which is to have so many pages once nothing is the realm's.
    Changing(u64),
    /// So many pages are the realm's. The administrator may change the pool meanwhile.
    Lacking(u64),
}

impl Record {
    fn store(self) -> std::io::Result<()> {
        state::store(Path::new(RECORD), &self)
    }

    /// Returns how many pages a pool that `has` some is to have once nothing is the realm's.
    fn whole_pool(self, has: u64) -> u64 {
        match self {
            Self::Changing(whole) => whole,
            Self::Lacking(pages) => has + pages,
        }
    }
}

/// Where the realm's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MemoryFrom {
    /// Wherever Linux has blocks of 2 MiB, for which it moves pages if need be
    #[default]
    Anywhere,
    /// The pool of huge pages of 2 MiB, which Linux reserves at boot (hugepages=256 for 512M)
    Hugetlb,
}

/// How many pages of the pool that much memory is.
fn pages(memory: Size) -> u64 {
    memory.0 / Size::mib(2).0
}

/// Reads a number of the pool.
fn number(machine: &Machine, file: &str) -> Option<u64> {
    machine.read(format!("{POOL}/{file}"))?.parse().ok()
}

/// Refuses more than the pool has that nobody uses or was promised. No realm is up: what a killed
/// command took counts as the pool's.
pub fn check(machine: &Machine, memory: Size) -> Result<()> {
    let wanted = pages(memory);
    let all = number(machine, "nr_hugepages").unwrap_or(0);
    let promised = number(machine, "resv_hugepages").unwrap_or(0);
    let taken = state::load(Path::new(RECORD))
        .map_or(0, |record: Record| record.whole_pool(all).saturating_sub(all));
    let free = number(machine, "free_hugepages").unwrap_or(0).saturating_sub(promised) + taken;
    if wanted <= free {
        return Ok(());
    }
    Err(Failure::new(
        Code::HugePagesShort,
        format!("take {memory} from the pool of huge pages"),
        format!("that is {wanted} pages of 2 MiB, and of the pool's {all} pages {free} are free"),
    )
    .remedy(format!(
        "boot with `hugepages={wanted}` and as many more as programs of Linux use, or have \
         `sysctl vm.nr_hugepages` say so early at boot; or leave `--memory-from` out"
    )))
}

/// Has Linux take that much memory out of the pool, for whoever asks for blocks next.
pub fn take(machine: &Machine, memory: Size) -> Result<()> {
    check(machine, memory)?;
    let asked = format!("take {memory} from the pool of huge pages");
    let wanted = pages(memory);
    let before = number(machine, "nr_hugepages").unwrap_or(0);
    let recorded = || format!("write {RECORD}");
    Record::Changing(before).store().asked(recorded())?;
    resize(machine, before.saturating_sub(wanted)).asked(asked)?;
    Record::Lacking(wanted).store().asked(recorded())
}

/// Makes the pool as large as it was. The realm has none of its pages any more.
pub fn give_back() {
    let Some(record) = state::load::<Record>(Path::new(RECORD)) else { return };
    let machine = Machine::here();
    let wanted = record.whole_pool(number(&machine, "nr_hugepages").unwrap_or(0));
    let done = Record::Changing(wanted).store().and(resize(&machine, wanted));
    let has = number(&machine, "nr_hugepages").unwrap_or(0);
    if done.is_err() || has < wanted {
        text::warn(
            &format!(
                "the pool of huge pages has {has} pages, {} fewer than before",
                wanted.saturating_sub(has)
            ),
            &format!("`echo {wanted} >{POOL}/nr_hugepages` when Linux has more memory"),
        );
    }
    let _ = fs::remove_file(RECORD);
}

fn resize(machine: &Machine, pages: u64) -> std::io::Result<()> {
    fs::write(machine.path(format!("{POOL}/nr_hugepages")), pages.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    fn pool(all: u64, free: u64, promised: u64) -> Fake {
        let fake = Fake::fit();
        for (file, value) in
            [("nr_hugepages", all), ("free_hugepages", free), ("resv_hugepages", promised)]
        {
            fake.write(&format!("{POOL}/{file}"), format!("{value}\n"));
        }
        fake
    }

    #[test]
    fn what_is_used_or_promised_is_not_taken() {
        let fits = |all, free, promised| {
            let fake = pool(all, free, promised);
            check(&fake.machine(), Size::mib(256))
        };
        assert!(fits(128, 128, 0).is_ok());
        let short = fits(200, 130, 3).unwrap_err().to_string();
        assert!(short.contains("128 pages of 2 MiB, and of the pool's 200 pages 127 are free"));
        assert!(short.contains("hugepages=128"), "{short}");
        assert!(fits(0, 0, 0).is_err());
    }

    #[test]
    fn a_pool_is_whole_again_wherever_a_command_was_killed() {
        let (whole, taken) = (140, 128);
        // Before the pool shrank, while it did, after it did.
        for has in [whole, whole - taken / 2, whole - taken] {
            assert_eq!(Record::Changing(whole).whole_pool(has), whole);
        }
        assert_eq!(Record::Lacking(taken).whole_pool(whole - taken), whole);
        // The administrator has added some while the realm was up.
        assert_eq!(Record::Lacking(taken).whole_pool(whole - taken + 5), whole + 5);
    }

    #[test]
    fn a_machine_without_a_pool_has_no_pages() {
        assert!(check(&Fake::fit().machine(), Size::mib(64)).is_err());
    }
}
