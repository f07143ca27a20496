// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's end against the module's: every step arrives, once, as it was sent.

mod common;

use common::{Shared, Taken, linux, take_replies};
use crtos_abi::channel::{
    Channel, LAST_WORDS_SIZE, LINUX_ENDED, OP_SYSCALL, REVOCATIONS, SHADOW_START, SLOT_FREE, SLOTS,
};
use crtos_abi::{
    UserAddr,
    boot::SHARED_POOL,
    ids::{ProcessNumber, RealmCpu},
};
use crtos_channel::{
    Answer, AttachError, Backlog, Encoded, Join, Notices, Operation, OwnedSlot, Poll, Question,
    Range, Request, Revocations, Slot, Start, Status, operation::Room, rank,
};
use crtos_partition::doorbell::Routes;
use crtos_partition::ids::CpuIndex;
use proptest::prelude::*;
use std::{
    mem::offset_of,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    time::{Duration, Instant},
};

fn slot(number: u32) -> Slot {
    Slot::new(number as usize).expect("the number of a slot")
}

fn open(channel: &Shared, number: u32) -> OwnedSlot {
    linux::open(channel, number, 3, 100 + number);
    let (owned, start) = channel.view().accept(slot(number)).expect("a slot that is offered");
    assert_eq!(start, Start::Process);
    owned
}

/// Requests a system call for a caller of `rank`; false while an earlier request is out.
fn send_as(owned: &mut OwnedSlot, nr: u32, rank: u32) -> bool {
    let arguments = [1, 2, 3, 4, 5, nr.into()];
    let mut room = Room::default();
    let operation = Operation::SystemCall { number: nr, arguments: &arguments }.encode(&mut room);
    owned.request(&Request { operation, rank, cpu: RealmCpu::first() })
}

fn send(owned: &mut OwnedSlot, nr: u32) -> bool {
    send_as(owned, nr, 1)
}

#[test]
fn both_ends_agree_on_the_layout() {
    assert_eq!(linux::size(&Shared::new()), size_of::<Channel>() as u64);
}

#[test]
fn a_block_without_channel_is_refused() {
    let channel = Shared::new();
    assert_eq!(channel.view().attach(), Ok(()));
    channel.scribble(1, 99);
    assert_eq!(channel.view().attach(), Err(AttachError::Version(99)));
    channel.scribble(0, 5);
    assert_eq!(channel.view().attach(), Err(AttachError::Magic(5)));
}

#[test]
fn a_call_with_a_fault() {
    let channel = Shared::new();
    let view = channel.view();
    let mut owned = open(&channel, 70);
    assert_eq!((owned.pid().get(), owned.tid().get()), (170, 171));
    assert_eq!((owned.process(), owned.uid()), (ProcessNumber(3), 7));
    assert_eq!((owned.payer(), owned.heritage().get()), (Some(8), 0));
    assert_eq!((owned.namespace().0, owned.own_tid().get()), (9, 2));
    let mut seen = Vec::new();
    take_replies(&view, |slot| seen.push(slot));
    assert_eq!(seen, [slot(70)]);

    assert!(send(&mut owned, 9));
    assert!(!send(&mut owned, 10), "one request at a time");
    assert_eq!(linux::requests(&channel, 1), 1 << 6);
    let mut taken = Taken::default();
    assert!(linux::take_request(&channel, 70, &mut taken));
    assert_eq!(taken, Taken { op: OP_SYSCALL, nr: 9, args: [1, 2, 3, 4, 5, 9] });
    let encoded = Encoded { op: taken.op, nr: taken.nr, args: &taken.args };
    let arguments = &[1, 2, 3, 4, 5, 9];
    assert_eq!(Operation::decode(&encoded), Ok(Operation::SystemCall { number: 9, arguments }));
    assert!(!linux::take_request(&channel, 70, &mut taken));
    assert_eq!(owned.poll(), Poll::Waiting);

    linux::ask(&channel, 70, 0x40_0000, true);
    assert_eq!(owned.poll(), Poll::Fault { address: UserAddr::new(0x40_0000), write: true });
    let mut answer = 0;
    assert!(!linux::take_answer(&channel, 70, &mut answer));
    assert!(owned.answer(Answer::Page { address: SHARED_POOL + 0x5000, write: true }));
    assert!(!owned.answer(Answer::Bad), "one answer to a fault");
    assert!(linux::take_answer(&channel, 70, &mut answer));
    assert_eq!(answer, SHARED_POOL + 0x5001);

    // Addresses that no program has are answered without asking.
    for bad in [0x40_0001, 0, SHADOW_START, !0xfff] {
        linux::ask(&channel, 70, bad, false);
        assert_eq!(owned.poll(), Poll::Waiting);
        assert!(linux::take_answer(&channel, 70, &mut answer));
        assert_eq!(answer, u64::MAX);
    }

    linux::reply(&channel, 70, -14);
    assert_eq!(owned.poll(), Poll::Reply(-14));
    assert_eq!(owned.poll(), Poll::Waiting);

    assert!(linux::signal(&channel, 70, 2));
    assert!(!linux::signal(&channel, 70, 64), "the first one has not been taken");
    assert_eq!(view.notices(slot(70)), Notices { signal: true, ..Notices::default() });
    assert_eq!(view.take_signal(slot(70)), Some([2, 1, 2, 3, 4, 5]));
    assert_eq!(view.take_signal(slot(70)), None);
    assert!(linux::signal(&channel, 70, 65));
    assert_eq!(view.take_signal(slot(70)), None, "there is no such signal");
    linux::gone(&channel, 70);
    assert_eq!(view.notices(slot(70)), Notices { gone: true, ..Notices::default() });
    owned.publish(&Status { pages: 5, ..Status::default() });
    owned.publish_command(b"a-name-that-is-too-long");
    owned.free();
    assert_eq!(linux::state(&channel, 70), SLOT_FREE);
    assert!(view.accept(slot(70)).is_none());
}

#[test]
fn a_slot_with_impossible_ids_is_not_accepted() {
    let channel = Shared::new();
    // The thread's id is the next one.
    for (number, pid) in [(0, 0), (1, 1 << 31), (2, i32::MAX as u32), (3, u32::MAX)] {
        linux::open(&channel, number, 3, pid);
        assert!(channel.view().accept(slot(number)).is_none(), "{pid}");
    }
}

#[test]
fn each_question_has_its_own_answer() {
    let channel = Shared::new();
    let view = channel.view();
    assert!(!view.is_asked());
    for (question, other, seals) in
        [(Question::End, Question::Seal, false), (Question::Seal, Question::End, true)].repeat(3)
    {
        let number = linux::put_question(&channel, seals);
        assert!(!linux::is_answered(&channel, seals, number));
        assert_eq!((view.asked(question), view.asked(other)), (Some(number), None));
        assert!(view.is_asked());
        view.answer(question, number);
        assert!(linux::is_answered(&channel, seals, number));
        assert!(!view.is_asked());
    }
}

proptest! {
    /// Whatever Linux stores: what the kernel has answered is answered, and nothing else is.
    #[test]
    fn questions_of_a_hostile_linux_have_an_end(
        words in proptest::collection::vec((0..4_usize, any::<u32>()), 1..20),
    ) {
        let channel = Shared::new();
        let view = channel.view();
        for (index, value) in words {
            // SAFETY: the words lie in the channel, which nobody else uses.
            unsafe {
                let end = &raw mut (*channel.pointer()).end;
                end.cast::<u32>().add(index).write_volatile(value);
            }
            for question in Question::ALL {
                if let Some(number) = view.asked(question) {
                    view.answer(question, number);
                }
                prop_assert_eq!(view.asked(question), None);
            }
            prop_assert!(!view.is_asked());
        }
    }
}

#[test]
fn drops_come_back_once() {
    let channel = Shared::new();
    let view = channel.view();
    let mut revocations = Revocations::new();
    let range = |number: u64| Range {
        process: ProcessNumber(1 + number as u32 % 2),
        start: UserAddr::new((number + 1) << 12),
        length: 4096,
    };
    // As many for each of the two as are free.
    const EACH: u64 = REVOCATIONS as u64 / 3 + 1;
    const BOTH: u64 = 2 * EACH - 1;
    for number in 0..BOTH {
        let ring = revocations.post(view, range(number), number);
        assert_eq!(ring, Ok(number + 1 >= REVOCATIONS as u64 / 2), "{number}");
        assert_eq!(linux::revocations_waiting(&channel, 0), number as u32 + 1);
    }
    assert_eq!(revocations.post(view, range(0), 9999), Err(9999));
    let mut back = Vec::new();
    revocations.collect(view, usize::MAX, |number| back.push(number));
    assert!(back.is_empty());
    // Linux carries out those of process 1; process 2 dies.
    for _ in 0..EACH {
        assert_ne!(linux::revoke(&channel, 1), 0);
    }
    assert_eq!(linux::revoke(&channel, 1), 0);
    assert_eq!(linux::revocations_waiting(&channel, EACH as u32), EACH as u32 - 1);
    revocations.collect(view, 100, |number| back.push(number));
    assert_eq!(back.len(), 100);
    revocations.collect(view, usize::MAX, |number| back.push(number));
    assert_eq!(back.len() as u64, EACH);
    revocations.release(ProcessNumber(2), usize::MAX, |number| back.push(number));
    back.sort_unstable();
    assert!(back.iter().copied().eq(0..BOTH));
    assert_eq!(revocations.out() as u64, EACH - 1);
    while linux::revoke(&channel, 2) != 0 {}
    revocations.collect(view, usize::MAX, |number| panic!("{number} again"));
    assert_eq!(revocations.out(), 0);
}

/// What waits with a range: numbers, a few together.
#[derive(Debug)]
struct Numbers(Vec<u64>);

impl Join for Numbers {
    fn join(&mut self, mut other: Self) -> Result<(), Self> {
        if self.0.len() + other.0.len() > 100 {
            return Err(other);
        }
        self.0.append(&mut other.0);
        Ok(())
    }
}

/// Linux carries out nothing: processes go on, each has a part of the table, and nothing is lost.
#[test]
fn what_has_no_place_waits() {
    const EACH: u64 = 3000;
    const PROCESSES: u64 = 5;
    let channel = Shared::new();
    let view = channel.view();
    let (mut table, mut backlog) = (Revocations::new(), Backlog::new());
    for number in 0..PROCESSES * EACH {
        let process = ProcessNumber((number / EACH) as u32 + 1);
        let start = UserAddr::new((number + 1) << 13);
        let range = Range { process, start, length: 4096 };
        assert!(number % EACH != 0 || table.has_place(process), "one that is new");
        if let Err(numbers) = table.post(view, range, Numbers(vec![number])) {
            backlog.push(range, numbers).expect("memory");
            assert!(backlog.holds(process));
        }
        assert!(table.out() < REVOCATIONS);
    }
    assert!(backlog.len() as u64 <= PROCESSES * EACH / 100);
    let mut back = Vec::new();
    backlog.release(ProcessNumber(2), usize::MAX, |Numbers(list)| back.extend(list));
    table.release(ProcessNumber(2), usize::MAX, |Numbers(list)| back.extend(list));
    assert!(!backlog.holds(ProcessNumber(2)));
    assert_eq!(back.len() as u64, EACH);
    // Linux carries all out.
    while table.out() > 0 {
        for process in 1..=PROCESSES as u32 {
            while linux::revoke(&channel, process) != 0 {}
        }
        table.collect(view, usize::MAX, |Numbers(list)| back.extend(list));
        let mut cursor = 0;
        while backlog.post_next(&mut table, view, &mut cursor) {}
    }
    assert!(backlog.is_empty());
    back.sort_unstable();
    assert!(back.into_iter().eq(0..PROCESSES * EACH));
}

/// Ranges that wait together cover what each of them covers.
#[test]
fn joined_ranges_cover_all() {
    let channel = Shared::new();
    let (mut table, mut backlog) = (Revocations::new(), Backlog::new());
    let range = |page: u64, pages: u64| Range {
        process: ProcessNumber(1),
        start: UserAddr::new(page << 12),
        length: pages << 12,
    };
    for (page, pages) in [(50, 2), (7, 1), (90, 5), (60, 1)] {
        backlog.push(range(page, pages), Numbers(Vec::new())).expect("memory");
    }
    assert_eq!(backlog.len(), 1);
    assert!(backlog.post_next(&mut table, channel.view(), &mut 0));
    // SAFETY: nobody writes meanwhile.
    let posted = unsafe { &(&(*channel.pointer()).revocations)[0] };
    assert_eq!((posted.start >> 12, posted.length >> 12), (7, 88));
}

#[test]
fn what_waits_for_an_ended_linux_comes_back_once() {
    let channel = Shared::new();
    let view = channel.view();
    let mut revocations = Revocations::new();
    let range =
        |process| Range { process, start: UserAddr::new(0x10_0000), length: crtos_abi::PAGE_SIZE };
    for number in 0..10 {
        let process = ProcessNumber(number % 2);
        assert!(revocations.post(view, range(process), number).is_ok());
    }
    let mut back = Vec::new();
    revocations.release(ProcessNumber(1), usize::MAX, |number| back.push(number));
    revocations.abandon(3, |number| back.push(number));
    assert_eq!(back.len(), 8);
    revocations.abandon(3, |number| back.push(number));
    back.sort_unstable();
    assert!(back.iter().copied().eq(0..10));
    assert_eq!(revocations.out(), 0);
    revocations.abandon(3, |number| panic!("{number} again"));
}

#[test]
fn last_words_stay_within_their_area() {
    let channel = Shared::new();
    let view = channel.view();
    let mut bytes = [1; 8];
    assert_eq!((view.last_words_length(), view.read_last_words(0, &mut bytes)), (0, 0));
    assert!(!view.linux_has_ended());
    let last = LAST_WORDS_SIZE as usize;
    channel.scribble(offset_of!(Channel, last_words_length) / 8, u32::MAX.into());
    channel.scribble(offset_of!(Channel, linux_state) / 8, LINUX_ENDED.into());
    channel.scribble(offset_of!(Channel, last_words) / 8, 0x0403_0201);
    assert_eq!(view.last_words_length(), last);
    assert_eq!(view.read_last_words(1, &mut bytes), 8);
    assert_eq!(bytes, [2, 3, 4, 0, 0, 0, 0, 0]);
    assert_eq!(view.read_last_words(last - 3, &mut bytes), 3);
    assert_eq!(view.read_last_words(last, &mut bytes), 0);
    assert_eq!(view.read_last_words(usize::MAX, &mut bytes), 0);
    assert!(view.linux_has_ended());
}

/// One step of either side.
#[derive(Clone, Debug)]
enum Step {
    Request(usize, u32),
    Poll(usize),
    Answer(usize),
    Take(usize),
    Reply(usize, i64),
    Ask(usize, u64),
    TakeAnswer(usize),
    Signal(usize, u32),
}

/// What a slot is about, as an observer of both sides knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Idle,
    Requested(u32),
    Busy(u32),
    Asked(u64),
    Faulted(u64),
    Answered(u64),
    Replied(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..3_usize;
    prop_oneof![
        (slot.clone(), any::<u32>()).prop_map(|(slot, nr)| Step::Request(slot, nr)),
        slot.clone().prop_map(Step::Poll),
        slot.clone().prop_map(Step::Answer),
        slot.clone().prop_map(Step::Take),
        (slot.clone(), any::<i64>()).prop_map(|(slot, result)| Step::Reply(slot, result)),
        (slot.clone(), 16..1000_u64).prop_map(|(slot, page)| Step::Ask(slot, page << 12)),
        slot.clone().prop_map(Step::TakeAnswer),
        (slot, 1..65_u32).prop_map(|(slot, number)| Step::Signal(slot, number)),
    ]
}

proptest! {
    /// Whatever the two sides do in whatever order, nothing is lost, doubled or mixed up.
    #[test]
    fn any_interleaving(steps in proptest::collection::vec(step(), 0..200)) {
        let channel = Shared::new();
        let view = channel.view();
        let slots = [0_u32, 63, SLOTS as u32 - 1];
        let mut owned_slots: Vec<OwnedSlot> =
            slots.iter().map(|&slot| open(&channel, slot)).collect();
        let mut truth = [Truth::Idle; 3];
        let mut signals = [0_u32; 3];
        take_replies(&view, |_| {});
        for step in steps {
            let mut told = [false; 3];
            match step {
                Step::Request(index, nr) => {
                    let sent = send(&mut owned_slots[index], nr);
                    prop_assert_eq!(sent, truth[index] == Truth::Idle);
                    if sent {
                        truth[index] = Truth::Requested(nr);
                    }
                }
                Step::Poll(index) => match (owned_slots[index].poll(), truth[index]) {
                    (Poll::Reply(result), Truth::Replied(sent)) => {
                        prop_assert_eq!(result, sent);
                        truth[index] = Truth::Idle;
                    }
                    (
                        Poll::Fault { address, write: false },
                        Truth::Asked(asked) | Truth::Faulted(asked),
                    ) => {
                        prop_assert_eq!(address, UserAddr::new(asked));
                        truth[index] = Truth::Faulted(asked);
                    }
                    (
                        Poll::Waiting,
                        Truth::Idle | Truth::Requested(_) | Truth::Busy(_) | Truth::Answered(_),
                    ) => {}
                    other => prop_assert!(false, "{:?}", other),
                },
                Step::Answer(index) => {
                    let Truth::Faulted(address) = truth[index] else {
                        prop_assert!(!owned_slots[index].answer(Answer::Bad));
                        continue;
                    };
                    let page = Answer::Page { address: SHARED_POOL + address, write: false };
                    prop_assert!(owned_slots[index].answer(page));
                    truth[index] = Truth::Answered(address);
                }
                Step::Take(index) => {
                    let mut taken = Taken::default();
                    let took = linux::take_request(&channel, slots[index], &mut taken);
                    if let Truth::Requested(nr) = truth[index] {
                        prop_assert!(took && taken.nr == nr && taken.args[5] == u64::from(nr));
                        truth[index] = Truth::Busy(nr);
                    } else {
                        prop_assert!(!took);
                    }
                }
                Step::Reply(index, result) => {
                    if let Truth::Busy(_) = truth[index] {
                        linux::reply(&channel, slots[index], result);
                        truth[index] = Truth::Replied(result);
                        told[index] = true;
                    }
                }
                Step::Ask(index, address) => {
                    if let Truth::Busy(_) = truth[index] {
                        linux::ask(&channel, slots[index], address, false);
                        truth[index] = Truth::Asked(address);
                        told[index] = true;
                    }
                }
                Step::TakeAnswer(index) => {
                    let mut answer = 0;
                    let took = linux::take_answer(&channel, slots[index], &mut answer);
                    if let Truth::Answered(address) = truth[index] {
                        prop_assert!(took && answer == SHARED_POOL + address);
                        truth[index] = Truth::Busy(0);
                    } else {
                        prop_assert!(!took);
                    }
                }
                Step::Signal(index, number) => {
                    let stored = linux::signal(&channel, slots[index], number);
                    prop_assert_eq!(stored, signals[index] == 0);
                    if stored {
                        signals[index] = number;
                        told[index] = true;
                    }
                }
            }
            let mut heard = [false; 3];
            take_replies(&view, |found| {
                heard[slots.iter().position(|&other| slot(other) == found).unwrap()] = true
            });
            prop_assert_eq!(heard, told);
        }
        for (index, &number) in slots.iter().enumerate() {
            let number = view.take_signal(slot(number)).map_or(0, |info| info[0] as u32);
            prop_assert_eq!(number, signals[index]);
        }
    }

    /// A Linux that writes anything anywhere cannot stop the kernel or get a page twice.
    #[test]
    fn hostile_linux(
        words in proptest::collection::vec(
            (any::<usize>(), prop_oneof![0..9_u64, any::<u64>()]),
            1..400,
        ),
    ) {
        let channel = Shared::new();
        let view = channel.view();
        let mut owned = open(&channel, 5);
        let mut revocations = Revocations::new();
        let (mut posted, mut back) = (0_u32, Vec::new());
        // Most of the scribbling goes to where it matters.
        let slot_5 = core::mem::offset_of!(Channel, slots) / 8
            + 5 * size_of::<crtos_abi::channel::Slot>() / 8;
        let table = core::mem::offset_of!(Channel, revocations) / 8;
        for (index, (offset, value)) in words.into_iter().enumerate() {
            let offset = match index % 4 {
                0 => slot_5 + offset % 24,
                1 => table + offset % 64,
                2 => offset % 64,
                _ => offset,
            };
            channel.scribble(offset, value);
            let _ = view.attach();
            let _ = (
                view.notices(slot(5)),
                view.take_signal(slot(5)),
                Slot::new(offset % (2 * SLOTS)).map(|slot| view.accept(slot)),
            );
            let _ = view.waits_on(slot(5));
            take_replies(&view, |slot| assert!(slot.get() < SLOTS));
            send(&mut owned, 1);
            if let Poll::Fault { address, .. } = owned.poll() {
                prop_assert!(address.is_page_aligned() && address < UserAddr::END);
                owned.answer(Answer::Bad);
            }
            let (process, start) = (ProcessNumber(1), UserAddr::new(4096));
            if revocations.post(view, Range { process, start, length: 4096 }, posted).is_ok() {
                posted += 1;
            }
            revocations.collect(view, 8, |number| back.push(number));
        }
        revocations.release(ProcessNumber(1), usize::MAX, |number| back.push(number));
        back.sort_unstable();
        prop_assert!(back.into_iter().eq(0..posted));
    }
}

/// Each round, the kernel sends a request of rank 10 after `before`, and does `change` while Linux
/// replies. Either `change` sees the reply, or Linux has rung for it.
fn no_reply_is_lost(
    before: impl Fn(&crtos_channel::Channel),
    change: impl Fn(&crtos_channel::Channel) -> bool,
) {
    use std::sync::Barrier;
    const ROUNDS: usize = 20_000;
    let channel = Shared::new();
    let view = channel.view();
    let mut owned = open(&channel, 9);
    take_replies(&view, |_| {});
    let barrier = Barrier::new(2);
    let rang = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                barrier.wait();
                let mut taken = Taken::default();
                assert!(linux::take_request(&channel, 9, &mut taken));
                rang.store(linux::reply(&channel, 9, 1), Ordering::SeqCst);
                barrier.wait();
            }
        });
        for round in 0..ROUNDS {
            before(&view);
            assert!(send_as(&mut owned, 0, rank::Running::RealTime(10).rank()));
            barrier.wait();
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            let seen = change(&view);
            barrier.wait();
            assert!(seen || rang.load(Ordering::SeqCst), "round {round}");
            assert_eq!(owned.poll(), Poll::Reply(1));
            take_replies(&view, |_| {});
        }
    });
}

/// A reply that brings no interrupt is seen when the rank falls, and the other way round.
#[test]
fn no_reply_is_lost_between_the_ranks() {
    no_reply_is_lost(
        |view| view.raise_rank(RealmCpu::first(), rank::Running::RealTime(50).rank()),
        |view| {
            view.lower_rank(RealmCpu::first(), rank::Running::Idle.rank());
            let mut seen = false;
            take_replies(view, |_| seen = true);
            seen
        },
    );
}

/// Two CPUs of the realm ring two CPUs of Linux, by turns that nobody has agreed on; one of the two
/// is the doorbell's home, and goes offline and comes back all the time. Doorbells come late, and
/// those for a CPU that is gone do not come. Still each request wakes its shadow thread.
#[test]
fn no_request_is_lost_between_the_doorbells() {
    const ROUNDS: u32 = 3_000;
    const SLOTS: [u32; 2] = [3, 5];
    let channel = Shared::new();
    let linux = Doorbells::new();
    linux.online(0);
    let mut owned_slots = SLOTS.map(|slot| open(&channel, slot));
    let finished = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (owned, seed) in owned_slots.iter_mut().zip(1..) {
            let (channel, linux, finished) = (&channel, &linux, &finished);
            // The realm's end: a thread, and the hypervisor below it.
            scope.spawn(move || {
                let view = channel.view();
                for round in 0..ROUNDS {
                    assert!(send(owned, round));
                    linux.ring(view.waits_on(owned.slot()).to_word(), seed + round);
                    while owned.poll() == Poll::Waiting {
                        linux.pause();
                    }
                }
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }
        for (slot, seed) in SLOTS.into_iter().zip(5..) {
            let (channel, linux) = (&channel, &linux);
            // A shadow thread, which somebody moves to and fro; now and then it names a CPU that
            // there is not.
            scope.spawn(move || {
                let mut taken = Taken::default();
                for round in 0..ROUNDS {
                    linux::waits_on(channel, slot, (round + seed) / 3 % 4);
                    linux.wait(slot, || linux::take_request(channel, slot, &mut taken));
                    assert_eq!(taken.nr, round);
                    linux::reply(channel, slot, 0);
                }
            });
        }
        let running = || finished.load(Ordering::SeqCst) < SLOTS.len();
        for cpu in 0..2 {
            let (channel, linux) = (&channel, &linux);
            scope.spawn(move || {
                while running() {
                    linux.take_interrupt(channel, cpu);
                    linux.pause();
                }
            });
        }
        // CPU 1 comes and goes.
        while running() {
            linux.online(1);
            (0..20).for_each(|_| linux.pause());
            linux.offline(&channel, 1);
        }
    });
}

fn index(cpu: usize) -> CpuIndex {
    CpuIndex::new(cpu).expect("in range")
}

/// The CPUs of Linux, as doorbells and shadow threads see them; the last one that came is the
/// doorbell's home.
struct Doorbells {
    routes: Routes,
    /// When all has to be over.
    end: Instant,
    rung: [AtomicBool; 2],
    waiting: [AtomicBool; 8],
    woken: [AtomicBool; 8],
}

impl Doorbells {
    fn new() -> Self {
        Self {
            routes: Routes::new(),
            end: Instant::now() + Duration::from_secs(120),
            rung: Default::default(),
            waiting: Default::default(),
            woken: Default::default(),
        }
    }

    /// Lets others go on.
    fn pause(&self) {
        assert!(Instant::now() < self.end, "somebody sleeps for ever");
        std::thread::yield_now();
    }

    /// As the hypervisor does it; the interrupt is some time on its way.
    fn ring(&self, named: u64, delay: u32) {
        let Some((cpu, _)) = self.routes.target(named, |_| true) else { return };
        (0..delay % 4).for_each(|_| self.pause());
        self.rung[cpu.get()].store(true, Ordering::SeqCst);
    }

    /// As `crtos_realm_doorbell()`.
    fn look(&self, channel: &Shared) {
        let bits = linux::requests(channel, 0);
        for slot in (0..8).filter(|slot| bits & 1 << slot != 0) {
            if self.waiting[slot].load(Ordering::SeqCst) {
                self.woken[slot].store(true, Ordering::SeqCst);
            }
        }
    }

    fn take_interrupt(&self, channel: &Shared, cpu: usize) {
        if self.rung[cpu].swap(false, Ordering::SeqCst) {
            self.look(channel);
        }
    }

    /// As `crtos_thread_wait()`.
    fn wait(&self, slot: u32, mut is_there: impl FnMut() -> bool) {
        let slot = slot as usize;
        self.waiting[slot].store(true, Ordering::SeqCst);
        loop {
            self.woken[slot].store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if is_there() {
                break;
            }
            while !self.woken[slot].load(Ordering::SeqCst) {
                self.pause();
            }
        }
        self.waiting[slot].store(false, Ordering::SeqCst);
    }

    fn online(&self, cpu: usize) {
        self.routes.set(index(cpu), 40);
        self.routes.set_home(index(cpu));
    }

    /// As `take_away()`; what is still on its way there gets lost.
    fn offline(&self, channel: &Shared, cpu: usize) {
        self.routes.set_home(index(0));
        self.routes.set(index(cpu), 0);
        self.rung[cpu].store(false, Ordering::SeqCst);
        self.look(channel);
    }
}

#[test]
fn ranks_order_interrupts() {
    use rank::{Running, rings};
    let ranks = [Running::Idle, Running::Ordinary, Running::RealTime(1), Running::RealTime(99)]
        .map(Running::rank);
    assert_eq!(ranks, [0, 1, 2, 100]);
    for (caller, running, rung) in
        [(1, 0, true), (1, 1, true), (2, 2, true), (1, 2, false), (100, 2, true)]
    {
        assert_eq!(rings(caller, 0, &[running]).is_some(), rung);
    }
    // Where the caller was, if it may run there, else where less runs.
    for (caller, own, running, at) in [
        (5, 1, [0, 4], Some(1)),
        (5, 1, [0, 5], Some(0)),
        (5, 1, [5, 5], Some(1)),
        (5, 1, [5, 9], Some(0)),
        (5, 1, [6, 9], None),
    ] {
        assert_eq!(rings(caller, own, &running), at);
    }
}

proptest! {
    /// Linux's end rings where the rule says.
    #[test]
    fn linux_rings_by_the_rule(
        caller in 0_u32..5,
        own in 0_usize..4,
        ranks in prop::array::uniform4(0_u32..5),
    ) {
        let channel = Shared::new();
        let mut owned = open(&channel, 9);
        take_replies(&channel.view(), |_| {});
        for (cpu, &rank) in ranks.iter().enumerate() {
            channel.view().raise_rank(RealmCpu::new(cpu).expect("few"), rank);
        }
        let at = rank::rings(caller, own, &ranks);
        let request = Request {
            operation: Encoded { op: 1, nr: 1, args: &[0; 6] },
            rank: caller + 1,
            cpu: RealmCpu::new(own).expect("few"),
        };
        prop_assert!(owned.request(&request));
        // A change of the level counts.
        prop_assert!(!channel.view().set_rank(slot(9), caller));
        prop_assert!(linux::take_request(&channel, 9, &mut Taken::default()));
        let mut wanted = false;
        let target = linux::target(&channel, 9, &mut wanted);
        prop_assert_eq!(wanted.then_some(target as usize), at);
        prop_assert_eq!(linux::reply(&channel, 9, 1), at.is_some());
        prop_assert!(channel.view().set_rank(slot(9), caller + 1));
    }
}

/// A reply that brings no interrupt is seen when the caller's rank rises, and the other way round.
#[test]
fn no_reply_is_lost_to_a_caller_that_rises() {
    no_reply_is_lost(
        |view| view.raise_rank(RealmCpu::first(), rank::Running::RealTime(30).rank()),
        |view| view.set_rank(slot(9), rank::Running::RealTime(60).rank()),
    );
}
