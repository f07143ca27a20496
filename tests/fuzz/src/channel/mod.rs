// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel, with a hostile Linux at its other end.
//!
//! An input is a script: what Linux stores, and what the kernel does between. Linux stores any word
//! at any place; most of the time it stores what means something, but whenever it likes. The target
//! knows what the kernel was told so far, and says what each call has to return.

mod steps;

use core::mem::offset_of;
use std::collections::BTreeMap;

use crtos_abi::{
    ABI_VERSION, PAGE_SIZE, UserAddr,
    channel::{self as raw, SHADOW_END, SHADOW_START, USER_END, USER_START},
    ids::{ProcessNumber, RealmCpu},
};
use crtos_channel::{
    Answer, AttachError, Channel, Encoded, Operation, OwnedSlot, Poll, Range, Request, Revocations,
    Slot, Start, Status,
    operation::{DecodeError, Room, name},
};
use crtos_vdso::{Clock, Reading};

use crate::{
    memory::Memory,
    numbers::{Rare, Word},
    time_limit,
};
pub use steps::Input;
use steps::{LinuxStep, RealmStep, SlotChoice, SlotStep, Step, in_revocation, in_slot};

/// Whose turn it is, as the kernel was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Kernel,
    Linux,
    /// Linux, which waits for a page.
    Fault,
}

/// A thread of the kernel, and what is known of it.
struct Thread {
    owned: OwnedSlot,
    owner: Owner,
    /// The words of the request, until Linux has stored something in the slot.
    sent: Option<Words>,
    requests: u32,
    replies: u32,
}

/// An operation as it lies in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    op: u32,
    nr: u32,
    args: [u64; 6],
}

impl Words {
    fn encoded(&self) -> Encoded<'_> {
        Encoded { op: self.op, nr: self.nr, args: &self.args }
    }
}

/// Frames that wait for Linux, by a number. Nobody can make two of one.
#[derive(Debug)]
struct Frames(u32);

/// A revocation that is out.
struct Posted {
    process: ProcessNumber,
    /// Its frames, unless they were released with their process.
    frames: Option<u32>,
}

/// Runs the target.
pub fn channel(input: &Input) {
    let input = input.clone();
    time_limit::keep(move || {
        let mut world = World::new();
        for step in &input.steps {
            world.step(*step);
        }
        world.finish();
    });
}

/// Both ends.
struct World {
    memory: Memory,
    view: Channel,
    threads: BTreeMap<usize, Thread>,
    revocations: Revocations<Frames>,
    /// Revocations that are out, by their places in the table.
    posted: BTreeMap<usize, Posted>,
    /// How many were made.
    made: u32,
    /// Those that came back.
    back: Vec<u32>,
}

impl World {
    fn new() -> Self {
        let memory = Memory::new();
        memory.store64(offset_of!(raw::Channel, magic), raw::CHANNEL_MAGIC);
        memory.store(offset_of!(raw::Channel, abi_version), ABI_VERSION);
        let view = memory.channel();
        let mut world = Self {
            memory,
            view,
            threads: BTreeMap::new(),
            revocations: Revocations::new(),
            posted: BTreeMap::new(),
            made: 0,
            back: Vec::new(),
        };
        for slot in SlotChoice::ALL {
            // Else nothing that Linux offers would be accepted.
            world.store(in_slot(slot, offset_of!(raw::Slot, pid)), 1);
            world.store(in_slot(slot, offset_of!(raw::Slot, tid)), 1 + slot as u32);
        }
        // A first process, since most of what can happen needs one.
        world.hand_over(SlotChoice::ALL[0], raw::SLOT_SPAWN);
        world.accept(SlotChoice::ALL[0]);
        world
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Linux(step) => self.linux(step),
            Step::Kernel(slot, step) => self.slot(slot.number(), step),
            Step::Realm(step) => self.realm(step),
        }
        assert_eq!(self.revocations.out(), self.posted.len());
    }

    /// Has Linux carry out all that is posted: every frame has come back once then.
    fn finish(mut self) {
        for index in self.posted.keys() {
            self.finish_revocation(*index);
        }
        self.collect(usize::MAX);
        assert_eq!(self.revocations.out(), 0);
        self.back.sort_unstable();
        assert!(self.back.iter().copied().eq(0..self.made), "frames are lost, or there twice");
    }

    // --- Linux

    fn linux(&mut self, step: LinuxStep) {
        match step {
            LinuxStep::Store(place, value) => self.store(place.offset(), value.get()),
            LinuxStep::Offer { slot, first, process, parent } => {
                let slot = slot.number();
                let state = if first { raw::SLOT_SPAWN } else { raw::SLOT_READY };
                self.store(in_slot(slot, offset_of!(raw::Slot, process)), (process % 3).into());
                self.store(in_slot(slot, offset_of!(raw::Slot, parent)), parent.value() as u32);
                self.hand_over(slot, state);
            }
            LinuxStep::Take(slot) => self.take_request(slot.number()),
            LinuxStep::Reply(slot, result) => {
                let slot = slot.number();
                self.memory.store64(in_slot(slot, offset_of!(raw::Slot, result)), result as u64);
                self.hand_over(slot, raw::SLOT_REPLY);
            }
            LinuxStep::Ask(slot, page, write, any) => {
                let slot = slot.number();
                let page = USER_START + u64::from(page) * PAGE_SIZE;
                let address = any.get().map_or(page, Word::value);
                self.memory.store64(in_slot(slot, offset_of!(raw::Slot, fault_address)), address);
                self.store(in_slot(slot, offset_of!(raw::Slot, fault_flags)), write.into());
                self.hand_over(slot, raw::SLOT_FAULT);
            }
            LinuxStep::Signal(slot, number) => {
                let slot = slot.number();
                self.memory.store64(in_slot(slot, offset_of!(raw::Slot, info)), number.value());
                self.notify(slot, raw::SLOT_SIGNAL);
            }
            LinuxStep::Gone(slot) => self.notify(slot.number(), raw::SLOT_GONE),
            LinuxStep::Done(number) => {
                self.finish_revocation(number.value() as usize % raw::REVOCATIONS);
            }
            LinuxStep::DoneMany(count) => {
                for index in 0..usize::from(count) % (raw::REVOCATIONS + 1) {
                    self.finish_revocation(index);
                }
            }
        }
    }

    /// Stores half a word; what the kernel sent may be something else afterwards.
    fn store(&mut self, offset: usize, value: u32) {
        self.memory.store(offset, value);
        for (slot, thread) in &mut self.threads {
            if (in_slot(*slot, 0)..in_slot(*slot + 1, 0)).contains(&offset) {
                thread.sent = None;
            }
        }
    }

    fn hand_over(&mut self, slot: usize, state: u32) {
        self.store(in_slot(slot, offset_of!(raw::Slot, state)), state);
        self.tell(slot);
    }

    fn notify(&mut self, slot: usize, notice: u32) {
        let offset = in_slot(slot, offset_of!(raw::Slot, notices));
        self.memory.store(offset, self.memory.load(offset) | notice);
        self.tell(slot);
    }

    fn tell(&self, slot: usize) {
        let (offset, bit) = reply_bit(slot);
        self.memory.store(offset, self.memory.load(offset) | bit);
    }

    fn take_request(&mut self, slot: usize) {
        let state = in_slot(slot, offset_of!(raw::Slot, state));
        if self.memory.load(state) != raw::SLOT_REQUEST {
            return;
        }
        let words = self.words(slot);
        check_decoding(&words);
        if let Some(Thread { sent: Some(sent), .. }) = self.threads.get(&slot) {
            assert_eq!(&words, sent, "the request of slot {slot}");
        }
        self.memory.store(state, raw::SLOT_BUSY);
    }

    fn finish_revocation(&self, index: usize) {
        let state = in_revocation(index, offset_of!(raw::Revocation, state));
        self.memory.store(state, raw::REVOCATION_DONE);
    }

    // --- The kernel, for a slot

    fn slot(&mut self, slot: usize, step: SlotStep) {
        match step {
            SlotStep::Accept => self.accept(slot),
            SlotStep::Call { nr, args, rank, cpu } => {
                let args = args.map(Word::value);
                self.request(slot, Words { op: raw::OP_SYSCALL, nr: nr.into(), args }, rank, cpu);
            }
            SlotStep::Request { op, args } => {
                let args = args.map(Word::value);
                self.request(slot, Words { op: (op % 24).into(), nr: 0, args }, 0, 0);
            }
            SlotStep::Poll => self.poll(slot),
            SlotStep::Answer { page } => self.answer(slot, page),
            SlotStep::Interrupt => {
                self.view.interrupt(at(slot));
                assert_eq!(self.field(slot, offset_of!(raw::Slot, interrupt)), 1);
                self.assert_marked(slot);
            }
            SlotStep::TakeReply => {
                let (offset, bit) = reply_bit(slot);
                let is_there = self.memory.load(offset) & bit != 0;
                let rest = self.memory.load(offset) & !bit;
                assert_eq!(self.view.replies(slot / 64) >> (slot % 64) & 1 != 0, is_there);
                assert_eq!(self.view.take_reply(at(slot)), is_there);
                assert!(!self.view.take_reply(at(slot)), "a bit is taken twice");
                assert_eq!(self.memory.load(offset), rest, "another slot's bit is gone");
            }
            SlotStep::TakeSignal => self.take_signal(slot),
            SlotStep::Publish(word) => {
                if let Some(thread) = self.threads.get(&slot) {
                    let value = word.value();
                    thread.owned.publish(&Status { run_time: value, ..Status::default() });
                    thread.owned.publish_command(&value.to_le_bytes().repeat(2));
                }
            }
            SlotStep::Decode => check_decoding(&self.words(slot)),
            SlotStep::Post(fills) => self.post(slot, fills),
            SlotStep::Release(limit) => self.release(slot, limit.value() as usize),
            SlotStep::Free => self.free(slot),
        }
    }

    fn accept(&mut self, slot: usize) {
        if self.threads.contains_key(&slot) {
            return;
        }
        let pid = self.field(slot, offset_of!(raw::Slot, pid));
        let tid = self.field(slot, offset_of!(raw::Slot, tid));
        let own_tid = self.field(slot, offset_of!(raw::Slot, own_tid));
        let are_ids = [pid, tid, own_tid].iter().all(|id| (1..1 << 31).contains(id));
        let expected = match self.field(slot, offset_of!(raw::Slot, state)) {
            raw::SLOT_SPAWN if are_ids => Some(Start::Process),
            raw::SLOT_READY if are_ids => Some(Start::Thread),
            _ => None,
        };
        let accepted = self.view.accept(at(slot));
        assert_eq!(accepted.as_ref().map(|(_, start)| *start), expected);
        let Some((owned, _)) = accepted else { return };
        assert_eq!(owned.slot(), at(slot));
        let ids = (owned.pid().get(), owned.tid().get(), owned.own_tid().get());
        assert_eq!(ids, (pid, tid, own_tid));
        assert_eq!(owned.namespace().0, self.field(slot, offset_of!(raw::Slot, pid_namespace)));
        let word = self.field(slot, offset_of!(raw::Slot, heritage_or_payer));
        let is_process = expected == Some(Start::Process);
        assert_eq!(owned.payer(), is_process.then_some(word));
        assert_eq!(owned.heritage().get(), if is_process { 0 } else { word });
        assert_eq!(owned.process().0, self.field(slot, offset_of!(raw::Slot, process)));
        let parent = self.field(slot, offset_of!(raw::Slot, parent));
        let of_parent = (parent as usize & 0xffff).checked_sub(1).and_then(Slot::new);
        assert_eq!(owned.parent().map(|parent| parent.slot), of_parent);
        assert!(owned.parent().is_none_or(|of| of.process.0 == parent >> 16));
        let thread = Thread { owned, owner: Owner::Kernel, sent: None, requests: 0, replies: 0 };
        self.threads.insert(slot, thread);
    }

    fn request(&mut self, slot: usize, words: Words, rank: u8, cpu: u8) {
        let cpu = RealmCpu::again(cpu.into());
        let Ok(operation) = Operation::decode(&words.encoded()) else { return };
        let Some(thread) = self.threads.get_mut(&slot) else { return };
        let mut room = Room::default();
        let encoded = operation.encode(&mut room);
        let sent = Words { op: encoded.op, nr: encoded.nr, args: *encoded.args };
        let requested =
            thread.owned.request(&Request { operation: encoded, rank: rank.into(), cpu });
        assert_eq!(requested, thread.owner == Owner::Kernel, "one request at a time");
        if requested {
            thread.owner = Owner::Linux;
            thread.sent = Some(sent);
            thread.requests += 1;
            self.assert_handed_over(slot, raw::SLOT_REQUEST);
            assert_eq!(self.words(slot), sent);
        }
    }

    fn poll(&mut self, slot: usize) {
        let state = self.field(slot, offset_of!(raw::Slot, state));
        let result = self.memory.load64(in_slot(slot, offset_of!(raw::Slot, result))) as i64;
        let address = self.memory.load64(in_slot(slot, offset_of!(raw::Slot, fault_address)));
        let write = self.field(slot, offset_of!(raw::Slot, fault_flags)) & raw::FAULT_WRITE != 0;
        let Some(thread) = self.threads.get_mut(&slot) else { return };
        let polled = thread.owned.poll();
        match (thread.owner, state) {
            (Owner::Linux | Owner::Fault, raw::SLOT_REPLY) => {
                assert_eq!(polled, Poll::Reply(result));
                thread.owner = Owner::Kernel;
                thread.replies += 1;
                assert!(thread.replies <= thread.requests, "a reply is taken twice");
            }
            (Owner::Linux | Owner::Fault, raw::SLOT_FAULT) if is_of_program(address) => {
                let address = UserAddr::new(address);
                assert_eq!(polled, Poll::Fault { address, write });
                thread.owner = Owner::Fault;
            }
            (Owner::Linux | Owner::Fault, raw::SLOT_FAULT) => {
                assert_eq!(polled, Poll::Waiting);
                thread.owner = Owner::Linux;
                self.assert_answered(slot, raw::ANSWER_BAD);
            }
            _ => assert_eq!(polled, Poll::Waiting),
        }
    }

    fn answer(&mut self, slot: usize, page: Option<(u16, bool)>) {
        let Some(thread) = self.threads.get_mut(&slot) else { return };
        let (answer, word) = match page {
            Some((page, write)) => {
                let address = u64::from(page) * PAGE_SIZE;
                (Answer::Page { address, write }, address | u64::from(write))
            }
            None => (Answer::Bad, raw::ANSWER_BAD),
        };
        let answered = thread.owned.answer(answer);
        assert_eq!(answered, thread.owner == Owner::Fault, "one answer to a fault");
        if answered {
            thread.owner = Owner::Linux;
            self.assert_answered(slot, word);
        }
    }

    fn take_signal(&mut self, slot: usize) {
        let before = self.field(slot, offset_of!(raw::Slot, notices));
        let number = self.field(slot, offset_of!(raw::Slot, info));
        let notices = self.view.notices(at(slot));
        let bits = [notices.gone, notices.signal, notices.stopped, notices.leaving];
        let known = [raw::SLOT_GONE, raw::SLOT_SIGNAL, raw::SLOT_STOPPED, raw::SLOT_LEAVING];
        assert_eq!(bits, known.map(|bit| before & bit != 0));
        let taken = self.view.take_signal(at(slot));
        let is_signal = notices.signal && (1..=64).contains(&number);
        assert_eq!(taken.map(|info| info[0] as u32), is_signal.then_some(number));
        let after = self.field(slot, offset_of!(raw::Slot, notices));
        assert_eq!(after, before & !raw::SLOT_SIGNAL);
    }

    fn free(&mut self, slot: usize) {
        if !self.view.notices(at(slot)).gone {
            return;
        }
        let Some(thread) = self.threads.remove(&slot) else { return };
        thread.owned.free();
        self.assert_handed_over(slot, raw::SLOT_FREE);
        assert_eq!(self.field(slot, offset_of!(raw::Slot, notices)), 0);
        assert!(self.view.accept(at(slot)).is_none(), "a free slot is accepted");
    }

    // --- The kernel, for revocations

    /// Posts revocations for the process of a slot.
    fn post(&mut self, slot: usize, fills: Rare<()>) {
        let Some(thread) = self.threads.get(&slot) else { return };
        let process = thread.owned.process();
        let count = fills.get().map_or(1, |()| raw::REVOCATIONS + 1);
        for _ in 0..count {
            self.post_one(process);
        }
    }

    fn post_one(&mut self, process: ProcessNumber) {
        // Linux takes the bits of all that is posted: the one that is there next is the new one.
        let bitmap = offset_of!(raw::Channel, posted);
        for word in 0..raw::REVOCATION_WORDS {
            self.memory.store64(bitmap + word * 8, 0);
        }
        let number = self.made;
        let start = UserAddr::new(PAGE_SIZE);
        let range = Range { process, start, length: u64::from(number) * PAGE_SIZE };
        match self.revocations.post(self.view, range, Frames(number)) {
            Err(Frames(same)) => {
                assert_eq!(same, number);
                let own = self.posted.values().filter(|posted| posted.process == process).count();
                assert!(own >= raw::REVOCATIONS - self.posted.len(), "{own} out");
                return;
            }
            Ok(ring) => assert_eq!(ring, self.posted.len() + 1 >= raw::REVOCATIONS / 2),
        }
        self.made += 1;
        let words = (0..raw::REVOCATION_WORDS).map(|word| self.memory.load64(bitmap + word * 8));
        let bits: Vec<(usize, u64)> = words.enumerate().filter(|(_, bits)| *bits != 0).collect();
        let &[(word, bit)] = bits.as_slice() else { panic!("posted: {bits:x?}") };
        assert!(bit.is_power_of_two(), "posted: {bit:#x}");
        let index = word * 64 + bit.trailing_zeros() as usize;
        let field = |field: usize| self.memory.load(in_revocation(index, field));
        assert_eq!(field(offset_of!(raw::Revocation, state)), raw::REVOCATION_POSTED);
        assert_eq!(field(offset_of!(raw::Revocation, process)), process.0);
        let before = self.posted.insert(index, Posted { process, frames: Some(number) });
        assert!(before.is_none(), "entry {index} was out already");
    }

    /// Takes what Linux has carried out: what its entries say now, and nothing else.
    fn collect(&mut self, limit: usize) {
        let mut expected = Vec::new();
        let memory = &self.memory;
        self.posted.retain(|index, posted| {
            let state = memory.load(in_revocation(*index, offset_of!(raw::Revocation, state)));
            let is_taken = state == raw::REVOCATION_DONE && expected.len() < limit;
            if is_taken {
                expected.extend(posted.frames);
            }
            !is_taken
        });
        let mut collected = Vec::new();
        self.revocations.collect(self.view, limit, |Frames(number)| collected.push(number));
        assert_eq!(collected, expected, "frames that Linux has acknowledged, with {limit} at most");
        self.back.extend(collected);
    }

    /// Takes what waits for a process, once Linux has said that it keeps nothing of it.
    fn release(&mut self, slot: usize, limit: usize) {
        let Some(thread) = self.threads.get(&slot) else { return };
        if !self.view.notices(at(slot)).gone {
            return;
        }
        let process = thread.owned.process();
        let waiting = self.posted.values_mut().filter(|posted| posted.process == process);
        let frames = waiting.filter(|posted| posted.frames.is_some());
        let expected: Vec<u32> =
            frames.take(limit).filter_map(|posted| posted.frames.take()).collect();
        let mut released = Vec::new();
        self.revocations.release(process, limit, |Frames(number)| released.push(number));
        assert_eq!(released, expected, "frames of {process:?}");
        self.back.extend(released);
    }

    // --- The kernel, for the rest

    fn realm(&mut self, step: RealmStep) {
        match step {
            RealmStep::Attach => {
                let magic = self.memory.load64(offset_of!(raw::Channel, magic));
                let version = self.memory.load(offset_of!(raw::Channel, abi_version));
                let expected = match (magic, version) {
                    (raw::CHANNEL_MAGIC, ABI_VERSION) => Ok(()),
                    (raw::CHANNEL_MAGIC, version) => Err(AttachError::Version(version)),
                    (magic, _) => Err(AttachError::Magic(magic)),
                };
                assert_eq!(self.view.attach(), expected);
                self.view.set_kernel_state(raw::KERNEL_READY);
            }
            RealmStep::Collect(limit) => self.collect(limit.value() as usize),
            RealmStep::SetRank(cpu, rank) => {
                let cpu = RealmCpu::again(cpu.into());
                let offset = offset_of!(raw::Channel, ranks) + cpu.get() * 4;
                self.view.lower_rank(cpu, rank);
                assert_eq!(self.memory.load(offset), rank);
                self.view.raise_rank(cpu, rank | 1);
                assert_eq!(self.memory.load(offset), rank | 1);
            }
            RealmStep::PublishIdle(cpu) => self.view.publish_idle(RealmCpu::again(cpu.into()), 1),
            RealmStep::ReadClock(clock, tsc) => self.read_clock(clock, tsc.value()),
            RealmStep::CountDoorbells(cpu) => {
                self.view.count_doorbell_sent();
                self.view.count_doorbell_taken(RealmCpu::again(cpu.into()));
                self.view.publish_memory(1, 2, 3, 4);
            }
        }
    }

    /// A reading ends, whatever the page says. Linux does not write meanwhile, so only a sequence
    /// that is odd makes it inconsistent.
    fn read_clock(&self, clock: u8, tsc: u64) {
        let clock = Clock::from_number((clock % 16).into()).unwrap_or(Clock::Realtime);
        let time = offset_of!(raw::Channel, time);
        let is_even =
            self.memory.load(time + offset_of!(raw::TimePage, sequence)).is_multiple_of(2);
        let Reading { is_consistent, .. } = self.memory.read_clock(clock, tsc);
        assert_eq!(is_consistent, is_even);
    }

    // --- What lies in the channel

    fn field(&self, slot: usize, field: usize) -> u32 {
        self.memory.load(in_slot(slot, field))
    }

    fn words(&self, slot: usize) -> Words {
        let args = in_slot(slot, offset_of!(raw::Slot, args));
        Words {
            op: self.field(slot, offset_of!(raw::Slot, op)),
            nr: self.field(slot, offset_of!(raw::Slot, nr)),
            args: core::array::from_fn(|index| self.memory.load64(args + index * 8)),
        }
    }

    fn assert_answered(&self, slot: usize, word: u64) {
        let answer = self.memory.load64(in_slot(slot, offset_of!(raw::Slot, answer)));
        assert_eq!(answer, word);
        self.assert_handed_over(slot, raw::SLOT_ANSWER);
    }

    fn assert_handed_over(&self, slot: usize, state: u32) {
        assert_eq!(self.field(slot, offset_of!(raw::Slot, state)), state);
        self.assert_marked(slot);
    }

    /// Linux is told to look at the slot.
    fn assert_marked(&self, slot: usize) {
        let requests = offset_of!(raw::Channel, requests);
        let bits = self.memory.load64(requests + slot / 64 * 8);
        assert!(bits >> (slot % 64) & 1 != 0, "Linux is not told of slot {slot}");
    }
}

fn at(slot: usize) -> Slot {
    Slot::new(slot).expect("scripts use numbers of slots")
}

/// Where the bit of a slot lies by which Linux says that it stored something, and that bit.
fn reply_bit(slot: usize) -> (usize, u32) {
    (offset_of!(raw::Channel, replies) + slot / 32 * 4, 1 << (slot % 32))
}

/// What is decoded encodes to the same again.
fn check_decoding(words: &Words) {
    let operation = match Operation::decode(&words.encoded()) {
        Ok(operation) => operation,
        Err(DecodeError::UnknownOperation(op)) => {
            assert_eq!(op, words.op);
            assert_eq!(name(op), None);
            return;
        }
        Err(DecodeError::BadArgument) => {
            assert!(name(words.op).is_some());
            return;
        }
    };
    let mut room = Room::default();
    let again = operation.encode(&mut room);
    assert_eq!(again.op, words.op);
    assert_eq!(Operation::decode(&again), Ok(operation));
    for (index, (new, old)) in again.args.iter().zip(words.args).enumerate() {
        // An argument that the operation does not have is 0, and of a scheduling 25 bits count.
        let is_scheduling = again.op == raw::OP_SET_SCHEDULING && index == 1;
        let is_same = if is_scheduling { *new == old & 0x1ff_ffff } else { *new == old };
        assert!(is_same || *new == 0, "argument {index} of {operation:?} was {old:#x}");
    }
}

/// Whether a program may have a page at `address`.
fn is_of_program(address: u64) -> bool {
    let is_below_end = (USER_START..USER_END).contains(&address);
    address.is_multiple_of(PAGE_SIZE)
        && is_below_end
        && !(SHADOW_START..SHADOW_END).contains(&address)
}
