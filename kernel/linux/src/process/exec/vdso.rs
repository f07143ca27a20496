// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vDSO in a program: the time page, and behind it the shared object that reads it, the same
//! pages for all programs.

use alloc::{sync::Arc, vec::Vec};
use crtos_abi::{PAGE_SIZE, UserAddr};

use crtos_core::{
    mm::{
        frames,
        held::{Held, Name},
        object::Object,
        space::{AddressSpace, Backing, Map, MapError, Placement, Protection},
    },
    task::Mutex,
};

/// The shared object.
static IMAGE: &[u8] = include_bytes!(env!("CRTOS_VDSO"));

/// Bytes of its pages.
const LENGTH: u64 = (IMAGE.len() as u64).next_multiple_of(PAGE_SIZE);

/// The time page and the pages of the shared object, once a program has needed them.
static PAGES: Mutex<Option<Arc<Object>>> = Mutex::new(None);

/// Maps it and returns the address of the shared object (AT_SYSINFO_EHDR). May sleep.
pub fn map(space: &AddressSpace) -> Result<UserAddr, MapError> {
    let object = Held::from(pages()?).named(Some(Arc::new(Name::Vdso)));
    let anywhere = Placement::Anywhere { hint: UserAddr::NULL };
    let whole = Map::private(anywhere, PAGE_SIZE + LENGTH, Protection::empty());
    let start = space.map(whole)?;
    // As under Linux, a debugger may change the code for its program; nobody changes the time.
    let time = Backing::shared(object.clone(), 0, false);
    let code = Backing::private(object, PAGE_SIZE);
    let parts = [
        (start, PAGE_SIZE, Protection::READ, time),
        (start + PAGE_SIZE, LENGTH, Protection::READ | Protection::EXECUTE, code),
    ];
    for (start, length, protection, backing) in parts {
        let part = Map::private(Placement::Fixed(start), length, protection);
        space.map(Map { backing: Some(backing), populate: true, ..part })?;
    }
    Ok(start + PAGE_SIZE)
}

fn pages() -> Result<Arc<Object>, MapError> {
    let mut pages = PAGES.lock();
    if let Some(object) = &*pages {
        return Ok(object.clone());
    }
    let mut parts = Vec::new();
    parts.try_reserve((LENGTH / PAGE_SIZE) as usize).map_err(|_| MapError::NoMemory)?;
    for part in IMAGE.chunks(PAGE_SIZE as usize) {
        parts.push(frames::filled_page(part).ok_or(MapError::NoMemory)?);
    }
    let object = Object::behind_time_page(parts.into_iter())?;
    Ok(pages.insert(object).clone())
}
