// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread's slot while the thread lives.
//!
//! The kernel remembers on its own side who owns the slot, and believes Linux's `state` only where
//! it is a step that Linux may take from there.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use crtos_abi::{
    UserAddr,
    channel::{self as raw, SHADOW_END, SHADOW_START},
    ids::{Pid, PidNamespace, ProcessNumber, RealmCpu, Tid},
};

use crate::{
    channel::{Channel, word},
    heritage::Heritage,
    operation::Encoded,
    slot::Slot,
};

/// How a thread came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// First thread of a new process.
    Process,
    /// A further thread of a process.
    Thread,
}

/// What Linux is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The operation.
    pub operation: Encoded<'a>,
    /// Rank of the caller; see [`crate::rank`].
    pub rank: u32,
    /// The CPU that a doorbell would interrupt.
    pub cpu: RealmCpu,
}

/// What Linux has done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Nothing yet.
    Waiting,
    /// The result as a system call returns it. The kernel owns the slot again.
    Reply(i64),
    /// Linux needs the page at `address`, where a program may have one.
    /// [`OwnedSlot::answer`] is due.
    Fault {
        /// Page-aligned address.
        address: UserAddr,
        /// The access is a write.
        write: bool,
    },
}

/// What the kernel says to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This page of the pool (address in the cell).
    Page {
        /// Page-aligned address in the cell.
        address: u64,
        /// Linux may write to it.
        write: bool,
    },
    /// There is nothing, or the access is not allowed: EFAULT.
    Bad,
}

/// What `crtos ps` shows of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `THREAD_*`.
    pub state: u32,
    /// Real-time priority, 0 for ordinary.
    pub priority: u32,
    /// Processor time, nanoseconds.
    pub run_time: u64,
    /// Times the thread was switched to.
    pub switches: u64,
    /// Local system calls.
    pub local_calls: u64,
    /// Remote system calls.
    pub remote_calls: u64,
    /// Pages of memory of the process.
    pub pages: u64,
}

/// Who owns the slot, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Kernel,
    Linux,
    /// The kernel owes Linux an answer.
    Fault,
}

/// The thread that forked a process, when it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Its slot.
    pub slot: Slot,
    /// The number of its process.
    pub process: ProcessNumber,
}

impl Parent {
    fn from_word(word: u32) -> Option<Self> {
        let slot = Slot::from_word(word & ((1 << raw::PARENT_PROCESS) - 1))?;
        Some(Self { slot, process: ProcessNumber(word >> raw::PARENT_PROCESS) })
    }
}

/// A slot in the kernel's hands, from acceptance until it is freed.
#[derive(Debug)]
pub struct OwnedSlot {
    channel: Channel,
    slot: Slot,
    owner: Owner,
    /// Number of the process, read once.
    process: ProcessNumber,
    /// Ids in Linux's first pid namespace, read once.
    pid: Pid,
    tid: Tid,
    /// Its own pid namespace, and its id there.
    namespace: PidNamespace,
    own_tid: Tid,
    uid: u32,
    parent: Option<Parent>,
    heritage: Heritage,
    payer: Option<u32>,
    doubts: u32,
}

impl Channel {
    /// Takes over `slot` if Linux offers it, with ids that there can be. For slots only that the
    /// kernel holds no [`OwnedSlot`] of.
    pub fn accept(&self, slot: Slot) -> Option<(OwnedSlot, Start)> {
        let start = match word!(self, AtomicU32, slots[slot.get()].state).load(Ordering::Acquire) {
            raw::SLOT_SPAWN => Start::Process,
            raw::SLOT_READY => Start::Thread,
            _ => return None,
        };
        let word =
            word!(self, AtomicU32, slots[slot.get()].heritage_or_payer).load(Ordering::Relaxed);
        let owned = OwnedSlot {
            channel: *self,
            slot,
            owner: Owner::Kernel,
            process: ProcessNumber(
                word!(self, AtomicU32, slots[slot.get()].process).load(Ordering::Relaxed),
            ),
            pid: Pid::new(word!(self, AtomicU32, slots[slot.get()].pid).load(Ordering::Relaxed))?,
            tid: Tid::new(word!(self, AtomicU32, slots[slot.get()].tid).load(Ordering::Relaxed))?,
            namespace: PidNamespace(
                word!(self, AtomicU32, slots[slot.get()].pid_namespace).load(Ordering::Relaxed),
            ),
            own_tid: Tid::new(
                word!(self, AtomicU32, slots[slot.get()].own_tid).load(Ordering::Relaxed),
            )?,
            uid: word!(self, AtomicU32, slots[slot.get()].uid).load(Ordering::Relaxed),
            parent: Parent::from_word(
                word!(self, AtomicU32, slots[slot.get()].parent).load(Ordering::Relaxed),
            ),
            heritage: Heritage::new(if start == Start::Thread { word } else { 0 }),
            payer: (start == Start::Process).then_some(word),
            doubts: word!(self, AtomicU32, slots[slot.get()].doubts).load(Ordering::Relaxed),
        };
        Some((owned, start))
    }
}

impl OwnedSlot {
    /// Which slot it is.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The channel that the slot lies in.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Number of the process, by which Linux knows it in revocations.
    pub fn process(&self) -> ProcessNumber {
        self.process
    }

    /// Process id in Linux's first pid namespace.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Thread id in Linux's first pid namespace.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Its pid namespace in Linux.
    pub fn namespace(&self) -> PidNamespace {
        self.namespace
    }

    /// Thread id in that namespace.
    pub fn own_tid(&self) -> Tid {
        self.own_tid
    }

    /// The thread that forked the process.
    pub fn parent(&self) -> Option<Parent> {
        self.parent
    }

    /// What the shadow thread inherited, and threads that it makes inherit of it.
    pub fn heritage(&self) -> Heritage {
        self.heritage
    }

    /// Who pays for a process that starts, whatever ids it has: a user id in Linux's first user
    /// namespace. `None` for a further thread.
    pub fn payer(&self) -> Option<u32> {
        self.payer
    }

    /// Real user id at the start, in Linux.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether that is not all that tells what the process is permitted.
    pub fn has_uncertain_ids(&self) -> bool {
        self.doubts & raw::IDS_UNCERTAIN != 0
    }

    /// Whether its ids are those of a user namespace, which others change.
    pub fn has_foreign_ids(&self) -> bool {
        self.doubts & raw::IDS_FOREIGN != 0
    }

    /// Hands `request` to Linux; the doorbell has to be rung next. False, with nothing done, while
    /// an earlier request is out.
    pub fn request(&mut self, request: &Request<'_>) -> bool {
        if self.owner != Owner::Kernel {
            return false;
        }
        let Self { channel, slot, .. } = *self;
        let Encoded { op, nr, args } = request.operation;
        word!(channel, AtomicU32, slots[slot.get()].op).store(op, Ordering::Relaxed);
        word!(channel, AtomicU32, slots[slot.get()].nr).store(nr, Ordering::Relaxed);
        word!(channel, AtomicU32, slots[slot.get()].rank).store(request.rank, Ordering::Relaxed);
        word!(channel, AtomicU32, slots[slot.get()].cpu)
            .store(request.cpu.to_word(), Ordering::Relaxed);
        for (index, value) in args.iter().enumerate() {
            word!(channel, AtomicU64, slots[slot.get()].args[index])
                .store(*value, Ordering::Relaxed);
        }
        self.hand_over(raw::SLOT_REQUEST);
        true
    }

    /// What Linux has done about the request that is out. The caller looks at [`Channel::notices`]
    /// itself.
    pub fn poll(&mut self) -> Poll {
        if self.owner == Owner::Kernel {
            return Poll::Waiting;
        }
        let Self { channel, slot, .. } = *self;
        match word!(channel, AtomicU32, slots[slot.get()].state).load(Ordering::Acquire) {
            raw::SLOT_REPLY => {
                self.owner = Owner::Kernel;
                Poll::Reply(channel.result(slot))
            }
            raw::SLOT_FAULT => {
                self.owner = Owner::Fault;
                let address = word!(channel, AtomicU64, slots[slot.get()].fault_address)
                    .load(Ordering::Relaxed);
                let address = UserAddr::new(address);
                let flags = word!(channel, AtomicU32, slots[slot.get()].fault_flags)
                    .load(Ordering::Relaxed);
                if is_program_page(address) {
                    Poll::Fault { address, write: flags & raw::FAULT_WRITE != 0 }
                } else {
                    self.answer(Answer::Bad);
                    Poll::Waiting
                }
            }
            _ => Poll::Waiting,
        }
    }

    /// The words that Linux has left in place of the arguments with the reply that
    /// [`OwnedSlot::poll`] gave.
    pub fn words(&self) -> [u64; 6] {
        let Self { channel, slot, .. } = *self;
        core::array::from_fn(|index| {
            word!(channel, AtomicU64, slots[slot.get()].args[index]).load(Ordering::Relaxed)
        })
    }

    /// Answers the fault that [`OwnedSlot::poll`] gave; the doorbell has to be rung next. False,
    /// with nothing done, if there is none.
    pub fn answer(&mut self, answer: Answer) -> bool {
        if self.owner != Owner::Fault {
            return false;
        }
        let value = match answer {
            Answer::Page { address, write: true } => address | raw::ANSWER_WRITE,
            Answer::Page { address, write: false } => address,
            Answer::Bad => raw::ANSWER_BAD,
        };
        let Self { channel, slot, .. } = *self;
        word!(channel, AtomicU64, slots[slot.get()].answer).store(value, Ordering::Relaxed);
        self.hand_over(raw::SLOT_ANSWER);
        true
    }

    fn hand_over(&mut self, state: u32) {
        self.owner = Owner::Linux;
        word!(self.channel, AtomicU32, slots[self.slot.get()].state)
            .store(state, Ordering::Release);
        self.channel.mark_request(self.slot);
    }

    /// Publishes what `crtos ps` shows.
    pub fn publish(&self, status: &Status) {
        let Self { channel, slot, .. } = *self;
        // Behind what the thread did: Linux may tell that it has ended.
        word!(channel, AtomicU32, slots[slot.get()].thread_state)
            .store(status.state, Ordering::Release);
        word!(channel, AtomicU32, slots[slot.get()].priority)
            .store(status.priority, Ordering::Relaxed);
        word!(channel, AtomicU64, slots[slot.get()].run_time)
            .store(status.run_time, Ordering::Relaxed);
        word!(channel, AtomicU64, slots[slot.get()].switches)
            .store(status.switches, Ordering::Relaxed);
        word!(channel, AtomicU64, slots[slot.get()].local_calls)
            .store(status.local_calls, Ordering::Relaxed);
        word!(channel, AtomicU64, slots[slot.get()].remote_calls)
            .store(status.remote_calls, Ordering::Relaxed);
        word!(channel, AtomicU64, slots[slot.get()].pages).store(status.pages, Ordering::Relaxed);
    }

    /// Publishes the command name: at most 15 bytes of it.
    pub fn publish_command(&self, name: &[u8]) {
        let Self { channel, slot, .. } = *self;
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().take(15).zip(name) {
            *to = *from;
        }
        for (index, half) in bytes.chunks_exact(8).enumerate() {
            let mut value = [0; 8];
            value.copy_from_slice(half);
            word!(channel, AtomicU64, slots[slot.get()].command[index * 8])
                .store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    /// Gives the slot back to Linux, after [`Notices::gone`](crate::Notices) was seen and the
    /// thread has ended.
    pub fn free(self) {
        let Self { channel, slot, .. } = self;
        word!(channel, AtomicU32, slots[slot.get()].thread_state)
            .store(raw::THREAD_NONE, Ordering::Relaxed);
        word!(channel, AtomicI64, slots[slot.get()].result).store(0, Ordering::Relaxed);
        word!(channel, AtomicU32, slots[slot.get()].notices).store(0, Ordering::Release);
        word!(channel, AtomicU32, slots[slot.get()].state).store(raw::SLOT_FREE, Ordering::Release);
        channel.mark_request(slot);
    }
}

/// Whether `address` is the start of a page that a program may have.
fn is_program_page(address: UserAddr) -> bool {
    address.is_page_aligned()
        && (UserAddr::START..UserAddr::END).contains(&address)
        && !(SHADOW_START..SHADOW_END).contains(&address.get())
}
