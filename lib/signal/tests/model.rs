// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group against a plain model: lists of what was sent, in order.

use std::collections::VecDeque;

use crtos_abi::{
    UserAddr,
    ids::{Pid, Tid},
};
use crtos_signal::{
    Action, Generated, Group, Info, Pool, Set, Target, Ticket,
    group::{IGNORE, Member},
    info::{SI_QUEUE, SI_USER},
    pool::Chunk,
};
use proptest::prelude::*;

const SENDER: Pid = Pid::new(7).unwrap();

const MEMBERS: usize = 3;
const LIMIT: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    /// To the process (3) or a member, with kill or with a value.
    Send(usize, u32, Option<u64>),
    Post(usize, u32),
    Mask(usize, u64),
    Wait(usize, u64),
    Next(usize),
    Ignore(u32, bool),
}

fn signal() -> impl Strategy<Value = u32> {
    prop_oneof![Just(10), Just(11), Just(17), Just(34), Just(40)]
}

fn step() -> impl Strategy<Value = Step> {
    let mask = || {
        proptest::collection::vec(signal(), 0..5)
            .prop_map(|list| list.into_iter().fold(0, |mask, signal| mask | 1 << (signal - 1)))
    };
    prop_oneof![
        4 => (0..=MEMBERS, signal(), proptest::option::of(any::<u64>()))
            .prop_map(|(t, s, v)| Step::Send(t, s, v)),
        1 => (0..=MEMBERS, signal()).prop_map(|(t, s)| Step::Post(t, s)),
        2 => (0..MEMBERS, mask()).prop_map(|(m, s)| Step::Mask(m, s)),
        1 => (0..MEMBERS, mask()).prop_map(|(m, s)| Step::Wait(m, s)),
        4 => (0..MEMBERS).prop_map(Step::Next),
        1 => (signal(), any::<bool>()).prop_map(|(s, i)| Step::Ignore(s, i)),
    ]
}

/// What was sent and not taken, oldest first.
#[derive(Default)]
struct Queue(VecDeque<(Info, Option<u64>)>);

impl Queue {
    fn has(&self, signal: u32) -> bool {
        self.0.iter().any(|(info, _)| info.signal() == signal)
    }

    fn pop(&mut self, allowed: impl Fn(u32) -> bool) -> Option<(Info, Option<u64>)> {
        let urgent = |signal: u32| Set::SYNCHRONOUS.contains(signal);
        let signal = self
            .0
            .iter()
            .map(|(info, _)| info.signal())
            .filter(|&signal| allowed(signal))
            .min_by_key(|&signal| (!urgent(signal), signal))?;
        let place = self.0.iter().position(|(info, _)| info.signal() == signal)?;
        self.0.remove(place)
    }
}

proptest! {
    #[test]
    fn behaves_like_lists(steps in proptest::collection::vec(step(), 0..200)) {
        let mut pool = Pool::new();
        prop_assert!(pool.grow(Chunk::new().unwrap()).is_ok());
        let mut group: Group<()> = Group::new(LIMIT);
        drop(group.move_to(Vec::with_capacity(MEMBERS)));
        for tid in 0..MEMBERS {
            prop_assert_eq!(
                group
                    .add(Box::new(Member::new(Tid::new(1 + tid as u32).unwrap(), Set::EMPTY, ())))
                    .ok(),
                Some(tid)
            );
        }
        prop_assert!(group.add(Box::new(Member::new(SENDER.leader(), Set::EMPTY, ()))).is_err());
        let ticket: Ticket = pool.reserve(&mut group.account).unwrap();
        let mut queues: [Queue; MEMBERS + 1] = Default::default();
        let mut masks = [0_u64; MEMBERS];
        let mut waits = [0_u64; MEMBERS];
        let mut ignored = Set::EMPTY;
        let mut posts = 0;
        let target = |to: usize| match to {
            MEMBERS => Target::Process,
            to => Target::Member(to, Tid::new(1 + to as u32).unwrap()),
        };
        for step in steps {
            let wants = |masks: &[u64; MEMBERS], waits: &[u64; MEMBERS], m: usize, s: u32| {
                (!masks[m] | waits[m]) >> (s - 1) & 1 == 1
            };
            match step {
                Step::Send(to, signal, value) => {
                    let code = if value.is_some() { SI_QUEUE } else { SI_USER };
                    let mut info = Info::from_process(signal, code, SENDER, 8);
                    info.0[3] = value.unwrap_or(0);
                    let first = if to == MEMBERS { 0 } else { to };
                    let blocked = (masks[first] | waits[first]) >> (signal - 1) & 1 == 1;
                    let dropped = !blocked && (ignored.contains(signal) || signal == 17);
                    let merged = signal < 32 && queues[to].has(signal);
                    let used: usize = queues
                        .iter()
                        .map(|queue| queue.0.iter().filter(|entry| entry.1.is_none()).count())
                        .sum::<usize>()
                        + 1;
                    if used as u64 >= LIMIT {
                        // The model does not know lost entries: take one instead.
                        continue;
                    }
                    let sent = group.send(&mut pool, target(to), info);
                    if !dropped && !merged {
                        queues[to].0.push_back((info, None));
                    }
                    match sent {
                        Ok(Generated::Dropped) => prop_assert!(dropped),
                        Ok(Generated::Wake(member)) => {
                            prop_assert!(wants(&masks, &waits, member, signal));
                            prop_assert!(to == MEMBERS || to == member);
                        }
                        Ok(Generated::Pending) => {
                            for member in 0..MEMBERS {
                                prop_assert!(
                                    (to != MEMBERS && to != member)
                                        || !wants(&masks, &waits, member, signal)
                                );
                            }
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Post(to, signal) => {
                    let info = Info::timer(signal, 5, 6);
                    let first = if to == MEMBERS { 0 } else { to };
                    let blocked = (masks[first] | waits[first]) >> (signal - 1) & 1 == 1;
                    let dropped = !blocked && (ignored.contains(signal) || signal == 17);
                    let out =
                        queues.iter().any(|queue| queue.0.iter().any(|entry| entry.1.is_some()));
                    prop_assert_eq!(pool.is_posted(&ticket), out);
                    posts += 1;
                    group.post(&mut pool, target(to), &ticket, info, posts);
                    if !dropped && !out {
                        queues[to].0.push_back((info, Some(posts)));
                    } else if !dropped {
                        let mut entries = queues.iter_mut().flat_map(|queue| queue.0.iter_mut());
                        let entry = entries.find(|entry| entry.1.is_some()).unwrap();
                        *entry = (entry.0.with_more_overrun(1), Some(posts));
                    }
                }
                Step::Mask(member, mask) => {
                    group.set_mask(member, Set(mask));
                    masks[member] = mask;
                }
                Step::Wait(member, set) => {
                    group.set_waiting(member, Set(set));
                    waits[member] = set;
                }
                Step::Next(member) => {
                    let mask = masks[member];
                    let allowed = |signal: u32| mask >> (signal - 1) & 1 == 0;
                    let expected =
                        queues[member].pop(allowed).or_else(|| queues[MEMBERS].pop(allowed));
                    let taken =
                        group.next(&mut pool, member).map(|(taken, _)| (taken.info, taken.cookie));
                    prop_assert_eq!(taken, expected);
                }
                Step::Ignore(signal, on) => {
                    group.set_action(
                        signal,
                        Action {
                            handler: UserAddr::new(if on { 1 } else { 0x1000 }),
                            ..Action::default()
                        },
                    );
                    let set = Set::of(signal);
                    ignored = if on { ignored | set } else { ignored - set };
                    if signal == 17 {
                        // Handled from now on would change the model's default.
                        group.set_action(17, Action::default());
                        ignored = ignored - set;
                    }
                }
            }
            for member in 0..MEMBERS {
                let has = |signal| queues[member].has(signal) || queues[MEMBERS].has(signal);
                for signal in [10, 11, 17, 34, 40] {
                    prop_assert_eq!(group.pending(member).contains(signal), has(signal));
                }
            }
        }
        // Nothing is lost.
        for index in (0..MEMBERS).map(Some).chain([None]) {
            while group.discard(&mut pool, index, Set::ALL) {}
        }
        pool.release(&mut group.account, ticket);
        prop_assert_eq!(group.account.used, 0);
        prop_assert_eq!(pool.spare(), 256);
    }
}

#[test]
fn a_full_account_loses_the_information_but_not_the_signal() {
    let mut pool = Pool::new();
    assert!(pool.grow(Chunk::new().unwrap()).is_ok());
    let mut group: Group<()> = Group::new(1);
    drop(group.move_to(Vec::with_capacity(1)));
    assert!(group.add(Box::new(Member::new(SENDER.leader(), Set::ALL, ()))).is_ok());
    let info = |signal, code| Info::from_process(signal, code, SENDER, 2);
    assert!(group.send(&mut pool, Target::Process, info(40, SI_QUEUE)).is_ok());
    assert!(group.send(&mut pool, Target::Process, info(40, SI_QUEUE)).is_err());
    assert!(group.send(&mut pool, Target::Process, info(41, SI_USER)).is_ok());
    assert!(group.send(&mut pool, Target::Process, info(10, SI_QUEUE)).is_ok());
    assert!(group.send(&mut pool, Target::Process, info(12, SI_USER)).is_ok());
    let mut order = Vec::new();
    while let Some(taken) = group.take(&mut pool, 0, Set::ALL) {
        order.push((taken.info.signal(), taken.info.pid()));
    }
    assert_eq!(order, [(10, None), (12, Some(SENDER)), (40, Some(SENDER)), (41, None)]);
}

#[test]
fn a_program_agrees_by_what_it_does_about_a_signal() {
    const POWER: u32 = 30;
    let mut group = Group::new(LIMIT);
    let table = Vec::with_capacity(20);
    drop(group.move_to(table));
    let agreed = |group: &Group<()>| {
        let member = |index: usize| {
            let tid = Tid::new(index as u32 + 1).expect("an id");
            group.has_agreed(Target::Member(index, tid), POWER)
        };
        (group.has_agreed(Target::Process, POWER), member(0), member(17))
    };
    for tid in 1..=18 {
        let member = Member::new(Tid::new(tid).expect("an id"), Set::EMPTY, ());
        assert!(group.add(Box::new(member)).is_ok());
    }
    assert_eq!(agreed(&group), (false, false, false));
    group.set_mask(17, Set::of(POWER));
    assert_eq!(agreed(&group), (false, false, true));
    group.set_waiting(0, Set::of(POWER));
    assert_eq!(agreed(&group), (true, true, true));
    group.set_waiting(0, Set::EMPTY);
    group.set_mask(17, Set::EMPTY);
    let handler = Action { handler: UserAddr::new(0x1000), ..Action::default() };
    group.set_action(POWER, handler);
    assert_eq!(agreed(&group), (true, true, true));
    group.set_action(POWER, Action { handler: crtos_signal::group::IGNORE, ..handler });
    assert_eq!(agreed(&group), (false, false, false));
}

#[test]
fn nobody_but_the_kernel_makes_a_signal_optional() {
    let info = Info::from_process(10, SI_USER, SENDER, 0);
    let optional = info.into_optional();
    assert!(optional.is_optional() && !info.is_optional());
    assert_eq!(optional.to_bytes(), info.to_bytes(), "programs do not see it");
    assert_eq!(optional.to_words(), info.0);
    assert!(!Info::from_words(optional.0).is_optional());
    assert!(!Info::from_bytes(&[0xff; 48]).is_optional());
    assert!(optional.with_signal(11).is_optional());
}

/// A group of so many members, which block `mask`.
fn group_of(count: u32, mask: Set) -> (Group<()>, Pool) {
    let mut pool = Pool::new();
    assert!(pool.grow(Chunk::new().unwrap()).is_ok());
    let mut group = Group::new(LIMIT);
    drop(group.move_to(Vec::with_capacity(count as usize)));
    for tid in 1..=count {
        assert!(group.add(Box::new(Member::new(Tid::new(tid).unwrap(), mask, ()))).is_ok());
    }
    (group, pool)
}

#[test]
fn a_search_finds_a_member_whatever_others_find_meanwhile() {
    let (mut group, mut pool) = group_of(40, Set::of(10) | Set::of(12));
    group.set_mask(10, Set::of(10));
    let info = |signal| Info::from_process(signal, SI_USER, SENDER, 2);
    let sent = group.send(&mut pool, Target::Process, info(10));
    let Ok(Generated::Search(mut search)) = sent else { panic!("{sent:?}") };
    group.set_mask(20, Set::of(12));
    assert_eq!(group.send(&mut pool, Target::Process, info(12)), Ok(Generated::Wake(10)));
    let found = loop {
        match group.search(10, search) {
            Generated::Search(rest) => search = rest,
            found => break found,
        }
    };
    assert_eq!(found, Generated::Wake(20));
}

#[test]
fn the_successor_in_a_place_gets_nothing_of_its_predecessor() {
    let (mut group, mut pool) = group_of(2, Set::EMPTY);
    let gone = Target::Member(1, Tid::new(2).unwrap());
    drop(group.remove(1));
    let next = Tid::new(3).unwrap();
    assert_eq!(group.add(Box::new(Member::new(next, Set::EMPTY, ()))).ok(), Some(1));
    let info = Info::from_process(10, SI_USER, SENDER, 2);
    assert_eq!(group.send(&mut pool, gone, info), Ok(Generated::Dropped));
    assert_eq!(group.send(&mut pool, Target::Member(1, next), info), Ok(Generated::Wake(1)));
}

#[test]
fn who_waits_no_more_leaves_what_is_pending_to_others() {
    let both = Set::of(10) | Set::of(12);
    let (mut group, mut pool) = group_of(2, both);
    group.set_waiting(1, both);
    for signal in [10, 12] {
        let info = Info::from_process(signal, SI_USER, SENDER, 2);
        assert_eq!(group.send(&mut pool, Target::Process, info), Ok(Generated::Wake(1)));
    }
    assert_eq!(group.take(&mut pool, 1, both).map(|taken| taken.info.signal()), Some(10));
    assert_eq!(group.set_waiting(1, Set::EMPTY), Set::of(12));
}

#[test]
fn whose_id_names_the_process_is_asked_first() {
    const USER: u32 = 10;
    let (mut group, mut pool) = (Group::new(LIMIT), Pool::new());
    assert!(pool.grow(Chunk::new().expect("memory")).is_ok());
    drop(group.move_to(Vec::with_capacity(4)));
    let tid = |number| Tid::new(number).expect("an id");
    for number in 1..=2 {
        assert!(group.add(Box::new(Member::new(tid(number), Set::EMPTY, ()))).is_ok());
    }
    group.set_action(USER, Action { handler: UserAddr::new(0x1000), ..Action::default() });
    let second = Target::ProcessOf(1, tid(2));
    let mut send = |group: &mut Group<()>, target| {
        let info = Info::from_process(USER, SI_USER, SENDER, 2);
        let sent = group.send(&mut pool, target, info);
        // It waits for the process.
        assert_eq!(group.take(&mut pool, 0, Set::ALL).map(|taken| taken.info.signal()), Some(USER));
        sent
    };
    assert_eq!(send(&mut group, second), Ok(Generated::Wake(1)));
    assert_eq!(send(&mut group, Target::Process), Ok(Generated::Wake(0)));
    // Another thread that has its number by now is not meant.
    assert_eq!(send(&mut group, Target::ProcessOf(1, tid(3))), Ok(Generated::Wake(0)));
    group.set_mask(1, Set::of(USER));
    assert_eq!(send(&mut group, second), Ok(Generated::Wake(0)));
    // What it blocks is not dropped.
    group.set_action(USER, Action { handler: IGNORE, ..Action::default() });
    assert!(!group.is_ignored(second, USER) && group.is_ignored(Target::Process, USER));
}
