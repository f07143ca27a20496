// SPDX-License-Identifier: MIT OR Apache-2.0
//! Revocation: pages that Linux maps for a shadow and must let go of before they are used for
//! anything else.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crtos_abi::{UserAddr, ids::ProcessNumber};
use crtos_channel::{
    Answer, Backlog, Channel, DoorbellCpu, Operation, Range, Revocations, operation::Source,
};
use crtos_core::{
    mm::space::{Access, AddressSpace, FaultError, Piece, Revoke, Revoked, Shared},
    task::{self, Mutex},
    time::{self, Nanos},
};

use super::{call::request_by_spare, channel, end, ring_at};

/// Pages in limbo.
struct Limbo {
    /// Of these Linux has been told.
    table: Revocations<Revoked>,
    /// Of these it has not.
    backlog: Backlog<Revoked>,
}

static LIMBO: Mutex<Limbo> =
    Mutex::new(Limbo { table: Revocations::new(), backlog: Backlog::new() });

/// Ranges in the backlog.
static UNTOLD: AtomicUsize = AtomicUsize::new(0);

/// Ranges that Linux has let go.
static COLLECTED: AtomicU64 = AtomicU64::new(0);

impl Limbo {
    fn is_empty(&self) -> bool {
        self.table.out() == 0 && self.backlog.is_empty()
    }

    /// Posts a range, or has it wait; says whether to ring. Gives the pages back if there is no
    /// memory for that.
    fn post(&mut self, channel: Channel, range: Range, pages: Revoked) -> Result<bool, Revoked> {
        self.table.post(channel, range, pages).or_else(|pages| {
            self.backlog.push(range, pages)?;
            self.note_untold();
            Ok(true)
        })
    }

    /// Posts what waits at `cursor` or moves the cursor on; false at the end.
    fn post_next(&mut self, channel: Channel, cursor: &mut usize) -> bool {
        let more = self.backlog.post_next(&mut self.table, channel, cursor);
        self.note_untold();
        more
    }

    /// Calls `done` with all pages, at most `limit` times. Fewer calls: there are no more.
    fn abandon(&mut self, limit: usize, mut done: impl FnMut(Revoked)) {
        let mut left = limit;
        let mut count = |pages| {
            left -= 1;
            done(pages);
        };
        self.table.abandon(limit, &mut count);
        self.backlog.abandon(left, done);
        self.note_untold();
    }

    fn note_untold(&self) {
        UNTOLD.store(self.backlog.len(), Ordering::Release);
    }
}

/// Whether Linux still has to let go of anything.
fn is_any_in_limbo() -> bool {
    !LIMBO.lock().is_empty()
}

/// Whether there is anything that Linux has not been told of.
#[inline]
pub(super) fn is_any_untold() -> bool {
    UNTOLD.load(Ordering::Acquire) > 0
}

/// Tells Linux of all that is not mapped in `space` any more, before it works on that memory. False
/// if it does not let go of what it was told before: it would see pages that the program has
/// unmapped. Waits for that once, and then not before Linux lets go of anything.
#[cold]
pub(super) fn catch_up(space: &AddressSpace) -> bool {
    static GIVEN_UP_AT: AtomicU64 = AtomicU64::new(u64::MAX);
    collect();
    for _ in 0..LIMBO_TRIES {
        if space.is_linux_told() {
            return true;
        }
        if GIVEN_UP_AT.load(Ordering::Relaxed) == COLLECTED.load(Ordering::Relaxed) {
            return false;
        }
        wait_for_revocations();
    }
    GIVEN_UP_AT.store(COLLECTED.load(Ordering::Relaxed), Ordering::Relaxed);
    space.is_linux_told()
}

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
            Err(FaultError::NoMemory) if is_any_in_limbo() => wait_for_revocations(),
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

/// Revocations collected at a time under the lock; their pages are freed without it.
const BATCH: usize = 16;

/// Frees the pages that Linux has let go, and tells it of others in their place. When it has ended,
/// it has let all go.
pub fn collect() {
    let Some(channel) = channel() else { return };
    if end::has_ended() {
        in_batches(|limbo, done| limbo.abandon(BATCH, done));
        return;
    }
    let collected = in_batches(|limbo, done| limbo.table.collect(channel, BATCH, done));
    COLLECTED.fetch_add(collected, Ordering::Relaxed);
    let mut cursor = 0;
    while is_any_untold() && LIMBO.lock().post_next(channel, &mut cursor) {}
}

/// Has `take` call its function for at most [`BATCH`] ranges at a time, until there are no more,
/// and frees their pages with nothing locked. Returns how many there were.
fn in_batches(mut take: impl FnMut(&mut Limbo, &mut dyn FnMut(Revoked))) -> u64 {
    let mut pages = [const { None }; BATCH];
    let mut all = 0;
    loop {
        let mut count = 0;
        take(&mut LIMBO.lock(), &mut |revoked| {
            pages[count] = Some(revoked);
            count += 1;
        });
        pages.iter_mut().for_each(|entry| *entry = None);
        all += count as u64;
        if count < BATCH {
            return all;
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
        in_batches(|limbo, done| limbo.table.release(self.process, BATCH, done));
        in_batches(|limbo, done| {
            limbo.backlog.release(self.process, BATCH, done);
            limbo.note_untold();
        });
    }
}

impl Revoke for Revoker {
    fn read(&self, piece: &Piece) -> Option<u64> {
        let &Piece { mirror, identity, offset, length, pages } = piece;
        let from = Source::Mirror(mirror);
        let operation = Operation::Read { from, offset, length, pages, identity };
        u64::try_from(request_by_spare(self.process, operation)?).ok()
    }

    fn share(&self, pages: &Shared) -> Option<i64> {
        let &Shared { mirror, page, places, count, writes, all } = pages;
        let operation = Operation::Share { mirror, page, places, count, write: writes, all };
        request_by_spare(self.process, operation)
    }

    fn revoke(&self, mut pages: Revoked) {
        let Some(channel) = channel() else { return };
        let range = Range { process: self.process, start: pages.start, length: pages.length };
        while !end::has_ended() {
            let posted = LIMBO.lock().post(channel, range, pages);
            match posted {
                Ok(false) => return,
                Ok(true) => return ring_for_revocations(channel),
                // No page is exposed without a reserve for this, so others use it just now.
                Err(back) => {
                    pages = back;
                    task::sleep_until(Nanos(time::now().0 + 1_000_000));
                }
            }
        }
    }

    fn is_told(&self) -> bool {
        !LIMBO.lock().backlog.holds(self.process)
    }
}

/// Rings Linux's doorbell for revocations.
fn ring_for_revocations(channel: Channel) {
    ring_at(channel, DoorbellCpu::ANY);
}
