// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes a word the same futex for two threads: in private memory the address space and the
//! address, in shared memory the object and the offset. A private and a shared operation do not
//! meet, as in Linux.

use crtos_abi::UserAddr;
use crtos_locks::Key;

use crtos_core::{
    mm::space::{self, Access},
    task,
};

use super::{Address, word};
use crate::{abi::Errno, process::ThreadExt as _};

/// Numbers of spaces and objects have room for what kind of key it is.
const KINDS: u64 = 4;
const PRIVATE: u64 = 0;
/// Memory of one address space in an operation that is not private.
const SHARED: u64 = 1;
const OBJECT: u64 = 2;

/// The key of a private futex of the calling program; `None` if the address is none of a futex.
pub fn private_key(word: UserAddr) -> Option<Key> {
    if !word.is_aligned(4) || word >= UserAddr::END {
        return None;
    }
    let space = task::current().user()?.process.space.id();
    Some(Key { space: space * KINDS + PRIVATE, offset: word.get() })
}

/// Where a futex is.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// By what the table knows it.
    pub key: Key,
    /// Where the shadow has the word, if Linux shares the page.
    pub mirror: Option<UserAddr>,
}

/// The key of a futex of the calling program, as [`find`] finds it.
pub fn key(address: Address, access: Access) -> Result<Key, Errno> {
    find(address, access).map(|found| found.key)
}

/// Finds a futex of the calling program. Memory for a shared operation must allow `access`. May
/// sleep for that.
pub fn find(address: Address, access: Access) -> Result<Found, Errno> {
    let Address { word, shared } = address;
    if !word.is_aligned(4) {
        return Err(Errno::EINVAL);
    }
    if word >= UserAddr::END {
        return Err(Errno::EFAULT);
    }
    let current = task::current();
    let user = current.user().ok_or(Errno::EFAULT)?;
    let space = &user.process.space;
    if !shared {
        let key = Key { space: space.id() * KINDS + PRIVATE, offset: word.get() };
        return Ok(Found { key, mirror: None });
    }
    word::make_present(word, access)?;
    Ok(match space.futex_key(word)? {
        space::Key::Private { space, address } => {
            let key = Key { space: space * KINDS + SHARED, offset: address.get() };
            Found { key, mirror: None }
        }
        space::Key::Shared { object, offset, mirror } => {
            Found { key: Key { space: object * KINDS + OBJECT, offset }, mirror }
        }
    })
}
