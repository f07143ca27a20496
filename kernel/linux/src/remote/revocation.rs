// SPDX-License-Identifier: MIT OR Apache-2.0
//! Revocation: pages that Linux maps for a shadow and must let go of before they are used for
//! anything else.

use crtos_abi::{UserAddr, ids::ProcessNumber};
use crtos_channel::{
    Answer, Channel, DoorbellCpu, Operation, Range, Revocations, operation::Source,
};
use crtos_core::{
    mm::space::{Access, AddressSpace, FaultError, Piece, Revoke, Revoked},
    task::{self, Mutex},
    time::{self, Nanos},
};

use super::{call::request_by_spare, channel, ring_at};

/// Pages in limbo.
pub(super) static REVOCATIONS: Mutex<Revocations<Revoked>> = Mutex::new(Revocations::new());

/// Revocations collected at a time under the lock; their pages are freed without it.
const BATCH: usize = 16;

/// The page behind an address for Linux.
pub(super) fn resolve(space: &AddressSpace, address: UserAddr, write: bool) -> Answer {
    let access = if write { Access::Write } else { Access::Read };
    for _ in 0..LIMBO_TRIES {
        match space.expose(address, access) {
            // Linux asks again before it writes to a page that nobody has written to yet.
            Ok(page) => {
                let write = page.writable && page.dirty;
                return Answer::Page { address: page.frame.0, write };
            }
            Err(FaultError::NoMemory) if REVOCATIONS.lock().out() > 0 => wait_for_revocations(),
            Err(_) => break,
        }
    }
    Answer::Bad
}

/// How often memory in limbo is waited for, a millisecond each.
const LIMBO_TRIES: usize = 100;

/// Has Linux carry out revocations, and frees what it has let go.
fn wait_for_revocations() {
    if let Some(channel) = channel() {
        ring_for_revocations(channel);
    }
    task::sleep_until(Nanos(time::now().0 + 1_000_000));
    collect();
}

/// Frees the pages that Linux has let go.
pub fn collect() {
    let Some(channel) = channel() else { return };
    let mut pages = [const { None }; BATCH];
    loop {
        let mut count = 0;
        REVOCATIONS.lock().collect(channel, BATCH, |revoked| {
            pages[count] = Some(revoked);
            count += 1;
        });
        pages.iter_mut().for_each(|entry| *entry = None);
        if count < BATCH {
            return;
        }
    }
}

/// Posts revocations for a process, and has files of its mirrors read.
pub struct Revoker {
    /// Its number.
    pub process: ProcessNumber,
}

impl Drop for Revoker {
    /// Nobody uses the memory any more, and Linux neither.
    fn drop(&mut self) {
        let mut pages = [const { None }; BATCH];
        loop {
            let mut count = 0;
            REVOCATIONS.lock().release(self.process, BATCH, |revoked| {
                pages[count] = Some(revoked);
                count += 1;
            });
            pages.iter_mut().for_each(|entry| *entry = None);
            if count < BATCH {
                break;
            }
        }
    }
}

impl Revoke for Revoker {
    fn read(&self, piece: &Piece) -> Option<u64> {
        let &Piece { mirror, identity, offset, length, pages } = piece;
        let from = Source::Mirror(mirror);
        let operation = Operation::Read { from, offset, length, pages, identity };
        u64::try_from(request_by_spare(self.process, operation)?).ok()
    }

    fn revoke(&self, mut pages: Revoked) {
        let Some(channel) = channel() else { return };
        loop {
            let range = Range { process: self.process, start: pages.start, length: pages.length };
            let posted = REVOCATIONS.lock().post(channel, range, pages);
            match posted {
                Ok(false) => return,
                Ok(true) => return ring_for_revocations(channel),
                Err(back) => {
                    pages = back;
                    wait_for_revocations();
                }
            }
        }
    }
}

/// Rings Linux's doorbell for revocations.
fn ring_for_revocations(channel: Channel) {
    ring_at(channel, DoorbellCpu::ANY);
}
