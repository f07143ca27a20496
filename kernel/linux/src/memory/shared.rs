// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in Linux's memory (tmpfs, memfd, System V) that programs have mapped shared: the realm and
//! Linux have the same pages of them.
//!
//! Linux's kernel says which file a mirror shows, and pins its pages ([`crtos_core::mm::window`]).
//! Where the file loses pages, because it is cut or a hole is punched, Linux says so at once, and
//! asks; the pages stay until the kernel has taken them out of all programs. Who touches one then
//! gets what Linux has there now, or SIGBUS.

use alloc::sync::Arc;

use crtos_abi::UserAddr;
use crtos_channel::{Channel, Question, operation::Identity};
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::{
        object::{Known, Object},
        space::{AddressSpace, MapError},
        window,
    },
    task::Mutex,
};

use crate::{abi::Errno, process::threads, remote};

/// Files that programs may write to.
static WRITTEN: Known = Known::none();

/// Files that programs may only read, by other mappings.
static READ: Known = Known::none();

/// The object of a file, for programs that may write to it or not. May sleep.
pub fn object(identity: Identity, writes: bool) -> Result<Arc<Object>, MapError> {
    // Both being made at once have different keys, if nobody keeps others from that.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    let (own, other) = if writes { (&WRITTEN, &READ) } else { (&READ, &WRITTEN) };
    own.get(identity, || Object::of_linux(writes, other.find(identity).as_deref()))
}

/// Whether programs may write to a file by mappings.
pub fn is_written(identity: Identity) -> bool {
    WRITTEN.find(identity).is_some()
}

/// Takes all pages out of programs that Linux recalls, if it recalls any. Thread context; may
/// sleep.
pub fn recall(channel: Channel) {
    static RECALLING: Mutex<()> = Mutex::new(());
    if channel.asked(Question::Recall).is_none() {
        return;
    }
    let _recalling = RECALLING.lock();
    let Some(asked) = channel.asked(Question::Recall) else { return };
    // Objects first: what is not found there any more, no fault brings into tables for good.
    for known in [&WRITTEN, &READ] {
        known.each(|object| object.recall(0..u64::MAX));
    }
    threads::each_process(|process| process.space.withdraw_recalled());
    window::give_up();
    channel.answer(Question::Recall, asked);
}

/// Gives up contents of shared memory for everybody (MADV_REMOVE). Those of Linux's files Linux
/// gives up. May sleep, and asks Linux.
pub fn punch(space: &AddressSpace, start: UserAddr, length: u64) -> Result<(), Errno> {
    let mut at = start;
    let end = start + length;
    while at < end {
        let region = space.region(at).ok_or(Errno::ENOMEM)?;
        let part = region.end.min(end) - at;
        let Some((object, offset)) = region.object_at(at).filter(|(object, _)| object.is_linuxs())
        else {
            space.punch(at, part)?;
            at += part;
            continue;
        };
        if region.attributes.lock.is_locked() {
            return Err(Errno::EINVAL);
        }
        if !region.attributes.may_write() {
            return Err(Errno::EACCES);
        }
        let (mirror, shown) = space.in_mirror(object, offset).ok_or(Errno::EINVAL)?;
        let part = part.min(shown);
        let args = [mirror.get(), part, linux::MADV_REMOVE.into()];
        remote::linux(linux::__NR_madvise, &args)?;
        at += part;
    }
    Ok(())
}

/// Where the shadow has the page at `at` of the program, if that is of a file in Linux's memory,
/// and how many bytes from there, of those before `end`.
pub fn mirror(space: &AddressSpace, at: UserAddr, end: UserAddr) -> Option<(UserAddr, u64)> {
    let region = space.region(at)?;
    let (object, offset) = region.object_at(at).filter(|(object, _)| object.is_linuxs())?;
    let (mirror, shown) = space.in_mirror(object, offset)?;
    Some((mirror, shown.min(region.end.min(end) - at)))
}
