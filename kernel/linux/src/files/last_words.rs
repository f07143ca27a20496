// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/last_kmsg`: the end of Linux's log, as it was when Linux last oopsed, panicked or shut
//! down. It is there when Linux is not.
//!
//! Android names such a file so; its bytes are those of `dmesg`. Who reads it before there is
//! anything waits. It has no position to go back to: who wants the words once more opens it once
//! more.

use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_abi::UserAddr;
use crtos_channel::Channel;
use linux_raw_sys::general as linux;

use crtos_core::task::{self, WaitQueue};

use super::{Events, Memory, Watchers, device::Device, wait};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
    process::ThreadExt as _,
    remote,
};

/// Its name.
pub const PATH: &str = "/dev/last_kmsg";

/// Who waits until there is something to read, and who is told of it.
static READERS: WaitQueue = WaitQueue::new();
static WATCHERS: Watchers = Watchers::new();

/// Linux has said last words. Thread context.
pub fn announce() {
    READERS.wake_all();
    WATCHERS.notify(Events::IN);
}

/// An opening of the file.
pub struct LastWords {
    position: AtomicUsize,
}

impl LastWords {
    /// The file, if that is what the path at an address of the program names and `flags` of open(2)
    /// ask for nothing special. May sleep.
    pub fn named(path: UserAddr, flags: u32) -> Option<Result<Self, Errno>> {
        let mut name = [0; PATH.len() + 1];
        user::read(path, &mut name).ok()?;
        let is_it = name.split_last() == Some((&0, PATH.as_bytes()));
        (is_it && Device::is_plain(flags)).then(|| Self::open(flags))
    }

    /// Opens it: for reading, and for whom Linux lets read its log.
    pub fn open(flags: u32) -> Result<Self, Errno> {
        if flags & linux::O_ACCMODE != linux::O_RDONLY {
            return Err(Errno::EACCES);
        }
        if !may_read() {
            return Err(Errno::EPERM);
        }
        Ok(Self { position: AtomicUsize::new(0) })
    }

    /// read(2): what follows what was read before. Waits until there is anything at all.
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        const STEP: usize = 512;
        let channel = wait::take(&READERS, nonblocking, words)?;
        let mut done = 0;
        while memory.left() > 0 {
            let mut bytes = [0; STEP];
            let wanted = memory.left().min(STEP as u64) as usize;
            let position = self.position.load(Ordering::Relaxed);
            let count = channel.read_last_words(position, &mut bytes[..wanted]);
            let moved = memory.write(&bytes[..count]);
            self.position.store(position + moved, Ordering::Relaxed);
            done += moved as u64;
            if moved < count && done == 0 {
                return Err(Errno::EFAULT);
            }
            if moved < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        match words() {
            Some(_) => Events::IN | Events::READ_NORMAL,
            None => Events::empty(),
        }
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &WATCHERS
    }
}

/// Where last words are, if there are any.
fn words() -> Option<Channel> {
    remote::channel().filter(|channel| channel.last_words_length() > 0)
}

/// Whether the caller may read Linux's log: who has CAP_SYSLOG, or is certainly root when nobody
/// can be asked.
fn may_read() -> bool {
    let current = task::current();
    let Some(user) = current.user() else { return false };
    if user.process.is_out_of_reach() {
        return user.process.certain_uid() == Some(0);
    }
    remote::is_capable(linux::CAP_SYSLOG).unwrap_or(false)
}
