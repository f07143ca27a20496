// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of futexes behaves like one sorted list of waiters per key, also where a wake-up takes
//! several batches and others come and go in between.

use crtos_locks::{
    Key, Table,
    futex::{NotOne, Wait},
    inheritance::Lock,
};
use crtos_sched::Level;
use proptest::prelude::*;

const THREADS: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Wait(u16, u32, u64, u32),
    Leave(u16),
    Wake(u64, u32, usize),
    WakeOne(u64, usize),
    Requeue(u64, u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..THREADS as u16, 0u32..4, 0u64..3, 1u32..4)
            .prop_map(|(t, l, k, b)| Step::Wait(t, l, k, b)),
        1 => (1..THREADS as u16).prop_map(Step::Leave),
        2 => (0u64..3, 1u32..4, 0usize..8).prop_map(|(k, b, n)| Step::Wake(k, b, n)),
        2 => (0u64..3, 1usize..3).prop_map(|(k, n)| Step::WakeOne(k, n)),
        1 => (0u64..3, 0u64..3, 0usize..8).prop_map(|(a, b, n)| Step::Requeue(a, b, n)),
    ]
}

fn key(number: u64) -> Key {
    Key { space: 0x1000, offset: number * 4 }
}

type Model = Vec<(u64, u16, u32, u32)>;

fn insert(model: &mut Model, entry: (u64, u16, u32, u32)) {
    let at = model.iter().position(|other| other.2 < entry.2).unwrap_or(model.len());
    model.insert(at, entry);
}

proptest! {
    #[test]
    fn behaves_like_sorted_lists(steps in proptest::collection::vec(step(), 0..200)) {
        let mut table = Table::<THREADS>::new();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Wait(t, l, k, bits) if table.waiting(t) == Wait::None => {
                    table.enqueue(t, Level::new(l).unwrap(), key(k), Wait::Plain(bits));
                    insert(&mut model, (k, t, l, bits));
                }
                Step::Wait(..) => {}
                Step::Leave(t) => {
                    prop_assert_eq!(table.dequeue(t), model.iter().any(|entry| entry.1 == t));
                    model.retain(|entry| entry.1 != t);
                }
                Step::Wake(k, bits, mut limit) => {
                    let expected: Vec<u16> = model
                        .iter()
                        .filter(|entry| entry.0 == k && entry.3 & bits != 0)
                        .map(|entry| entry.1)
                        .take(limit)
                        .collect();
                    let mut woken = Vec::new();
                    while table.wake(0, key(k), bits, &mut limit, 2, |t| woken.push(t)) == Ok(true)
                    {
                    }
                    prop_assert_eq!(&woken, &expected);
                    model.retain(|entry| !woken.contains(&entry.1));
                    prop_assert_eq!(table.waiting(0), Wait::None);
                }
                Step::WakeOne(k, limit) => {
                    let there: Vec<u16> =
                        model.iter().filter(|entry| entry.0 == k).map(|entry| entry.1).collect();
                    let expected = match there.len() {
                        0 => Ok(None),
                        length if length == 1 || limit == 1 => Ok(Some(there[0])),
                        _ => Err(NotOne),
                    };
                    prop_assert_eq!(table.wake_one(key(k), limit), expected);
                    if let Ok(Some(woken)) = expected {
                        prop_assert_eq!(table.waiting(woken), Wait::None);
                        model.retain(|entry| entry.1 != woken);
                    }
                }
                Step::Requeue(from, to, limit) if from != to => {
                    let moved = table.requeue(key(from), key(to), limit);
                    let chosen: Vec<_> =
                        model.iter().filter(|entry| entry.0 == from).take(limit).copied().collect();
                    prop_assert_eq!(moved, Ok(chosen.len()));
                    model.retain(|entry| !chosen.contains(entry));
                    for (_, t, l, bits) in chosen {
                        insert(&mut model, (to, t, l, bits));
                    }
                }
                Step::Requeue(..) => {}
            }
            for k in 0..3 {
                let place = table.find(key(k));
                let queued: Vec<_> = model.iter().filter(|entry| entry.0 == k).collect();
                prop_assert_eq!(place.map_or(0, |place| table.len(place)), queued.len());
                prop_assert_eq!(
                    place.and_then(|place| table.first(place)).map(|first| first.0),
                    queued.first().map(|entry| entry.1)
                );
            }
            prop_assert_eq!(table.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn a_wake_up_in_batches_reaches_whoever_was_there(
        levels in proptest::collection::vec((0u32..3, 1u32..4), 1..20),
        others in proptest::collection::vec(step(), 0..40),
        batch in 1usize..5,
    ) {
        let mut table = Table::<THREADS>::new();
        let mut there = Vec::new();
        for (t, &(l, bits)) in (2u16..).zip(&levels) {
            table.enqueue(t, Level::new(l).unwrap(), key(0), Wait::Plain(bits));
            if bits & 1 != 0 {
                there.push(t);
            }
        }
        let (mut mine, mut theirs, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut limit = usize::MAX;
        let mut others = others.into_iter();
        while table.wake(0, key(0), 1, &mut limit, batch, |t| mine.push(t)) == Ok(true) {
            match others.next() {
                Some(Step::Leave(t)) if table.dequeue(t) => left.push(t),
                // Another thread scans at the same time.
                Some(Step::Wake(k, bits, mut some)) => {
                    let _ = table.wake(1, key(k), bits, &mut some, batch, |t| theirs.push(t));
                    table.dequeue(1);
                }
                _ => {}
            }
        }
        for t in there {
            prop_assert!(mine.contains(&t) || theirs.contains(&t) || left.contains(&t));
        }
        prop_assert_eq!(table.waiting(0), Wait::None);
    }
}

#[test]
fn one_waiter_alone_is_woken_only_where_nothing_else_is_to_be_told() {
    let mut table = Table::<THREADS>::new();
    table.enqueue(1, Level::MAX, key(0), Wait::Requeue(key(1)));
    assert_eq!(table.wake_one(key(0), 1), Err(NotOne));
    table.set_lock(key(2), Some(Lock(3)));
    assert_eq!(table.wake_one(key(2), 1), Err(NotOne));
    table.set_heir(key(1), Some(4));
    assert_eq!(table.wake_one(key(1), 1), Err(NotOne));
}
