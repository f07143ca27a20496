// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's half of Intel's cards against models of them: each test with each kind.

use crtos_nic::{
    HardwareAddress,
    card::{BUFFER, Found, Kind, NoRoom, Receive, Transmit},
    intel::{
        e1000e::E1000e,
        igb::Igb,
        model::{BASE, Model, Played},
        rings::{DESCRIPTORS, Format, ROOM},
    },
    reception::{self, Filter, Reception, TooMany},
};
use proptest::test_runner::{Config, TestRunner};

/// A kind that is a value of its own.
trait Known: Played {
    const KIND: Self;
}

impl Known for E1000e {
    const KIND: Self = Self;
}

impl Known for Igb {
    const KIND: Self = Self;
}

/// Tests of a card, each with each kind.
macro_rules! with_each {
    ($($test:ident,)*) => {
        mod e1000e {
            $(#[test]
            fn $test() {
                super::$test::<super::E1000e>();
            })*
        }
        mod igb {
            $(#[test]
            fn $test() {
                super::$test::<super::Igb>();
            })*
        }
    };
}

with_each! {
    frames_come_in_their_order_round_and_round,
    a_flood_is_lost_in_the_card,
    it_interrupts_once_until_it_may_again,
    frames_are_sent_until_the_ring_is_full,
    unsound_frames_are_none,
    a_hostile_card_is_not_believed,
    what_it_says_to_have_sent_is_not_believed,
    it_receives_what_somebody_wants,
}

const OWN: HardwareAddress = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const ALL: HardwareAddress = [0xff; 6];
const GROUP: HardwareAddress = [1, 0, 0x5e, 0, 0, 0xfb];

fn started<K: Known>() -> (Model<K>, K::Receiver, K::Transmitter) {
    let model = Model::default();
    K::KIND.reset(&model);
    assert!(K::KIND.is_reset(&model));
    let (receiver, transmitter) = K::KIND.start(&model, &model, BASE, OWN).unwrap();
    (model, receiver, transmitter)
}

fn frame(to: HardwareAddress, number: usize, length: usize) -> Vec<u8> {
    let rest = (6..length).map(|at| (at * 3 + number) as u8);
    to.into_iter().chain(rest).collect()
}

fn take<K: Known>(model: &Model<K>, receiver: &mut K::Receiver) -> Option<Vec<u8>> {
    let mut buffer = [0; BUFFER];
    match receiver.receive(model, model, &mut buffer)? {
        Found::Frame(frame) => Some(buffer[..frame.length].to_vec()),
        Found::Bad => Some(Vec::new()),
    }
}

fn frames_come_in_their_order_round_and_round<K: Known>() {
    let (model, mut receiver, _) = started::<K>();
    for number in 0..3 * usize::from(DESCRIPTORS) {
        let sent = frame(OWN, number, 60 + number % 1450);
        assert!(model.receive(&sent));
        assert!(receiver.has_more(&model));
        assert_eq!(take(&model, &mut receiver), Some(sent));
        assert!(!receiver.has_more(&model));
    }
}

fn a_flood_is_lost_in_the_card<K: Known>() {
    let (model, mut receiver, _) = started::<K>();
    let count = usize::from(DESCRIPTORS) + 10;
    let received = (0..count).filter(|&number| model.receive(&frame(OWN, number, 60))).count();
    assert_eq!(received, usize::from(DESCRIPTORS) - 1);
    for number in 0..received {
        assert_eq!(take(&model, &mut receiver), Some(frame(OWN, number, 60)));
    }
    receiver.tell(&model, &model);
    assert_eq!(take(&model, &mut receiver), None);
    assert!(model.receive(&frame(ALL, 0, 60)));
    assert!(take(&model, &mut receiver).is_some());
}

fn it_interrupts_once_until_it_may_again<K: Known>() {
    let (model, mut receiver, _) = started::<K>();
    model.receive(&frame(OWN, 0, 60));
    assert_eq!(model.take_interrupts(), 0);
    assert!(!K::KIND.let_interrupt(&model, &model, &receiver));
    assert_eq!(model.take_interrupts(), 1);
    K::KIND.mask(&model, &model);
    model.receive(&frame(OWN, 1, 60));
    model.receive(&frame(OWN, 2, 60));
    assert_eq!(model.take_interrupts(), 0);
    K::KIND.take_causes(&model);
    while take(&model, &mut receiver).is_some() {}
    assert!(!K::KIND.let_interrupt(&model, &model, &receiver));
    assert_eq!(model.take_interrupts(), 0);
    model.receive(&frame(OWN, 3, 60));
    assert_eq!(model.take_interrupts(), 1);
}

fn frames_are_sent_until_the_ring_is_full<K: Known>() {
    let (model, _, mut transmitter) = started::<K>();
    let send = |transmitter: &mut K::Transmitter, number| {
        transmitter.transmit(&model, &model, &frame(ALL, number, 60 + number % 1450))
    };
    let many = 2 * usize::from(DESCRIPTORS) + 5;
    (0..many).for_each(|number| send(&mut transmitter, number).unwrap());
    let expected: Vec<_> = (0..many).map(|number| frame(ALL, number, 60 + number % 1450)).collect();
    assert_eq!(model.sent.take(), expected);
    model.is_stuck.set(true);
    let room = (0..many).take_while(|&number| send(&mut transmitter, number).is_ok()).count();
    // What was sent before is taken back step by step.
    assert_eq!(room, usize::from(ROOM));
    assert!(!transmitter.has_room(&model, &model));
    model.is_stuck.set(false);
    model.transmit();
    assert_eq!(model.sent.take().len(), room);
    assert!(transmitter.has_room(&model, &model));
    assert_eq!(transmitter.transmit(&model, &model, &[]), Err(NoRoom));
    assert_eq!(transmitter.transmit(&model, &model, &[0; BUFFER + 1]), Err(NoRoom));
}

/// What a card says that was no whole and sound frame, or longer than its buffer, is no frame.
fn unsound_frames_are_none<K: Known>() {
    let (model, mut receiver, _) = started::<K>();
    let whole = K::received(64);
    let end = K::received(0) & !K::Descriptors::RECEIVED;
    for word in [K::received(0xffff), K::received(BUFFER + 1), whole & !end, u64::MAX] {
        model.write_back(word);
        assert_eq!(take(&model, &mut receiver), Some(Vec::new()), "{word:x}");
    }
    assert!(model.receive(&frame(OWN, 7, 60)));
    assert_eq!(take(&model, &mut receiver), Some(frame(OWN, 7, 60)));
}

/// Whatever a card writes into its descriptors, nothing beyond a buffer is believed, and what it
/// does right afterwards is.
fn a_hostile_card_is_not_believed<K: Known>() {
    let words = proptest::collection::vec((proptest::num::u64::ANY, 0usize..2200), 1..300);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let property = |words: Vec<(u64, usize)>| {
        let (model, mut receiver, mut transmitter) = started::<K>();
        for (noise, length) in words {
            let word = if noise & 1 == 0 { K::received(length) | noise << 48 } else { noise };
            model.write_back(word);
            match take(&model, &mut receiver) {
                None => {
                    assert_eq!(word & K::Descriptors::RECEIVED, 0);
                    // It says so later.
                    model.amend(K::received(60));
                    assert_eq!(take(&model, &mut receiver).map(|frame| frame.len()), Some(60));
                }
                Some(frame) => assert!(frame.len() <= BUFFER),
            }
            let _ = transmitter.transmit(&model, &model, &frame(ALL, 1, 60));
        }
        assert!(model.receive(&frame(OWN, 7, 60)));
        assert_eq!(take(&model, &mut receiver), Some(frame(OWN, 7, 60)));
        Ok(())
    };
    runner.run(&words, property).unwrap();
}

/// Whatever a card writes of what it has sent, no more frames are under way than there is room for,
/// and a frame that is sent is the one that was given.
fn what_it_says_to_have_sent_is_not_believed<K: Known>() {
    let (model, _, mut transmitter) = started::<K>();
    model.is_stuck.set(true);
    let send = |transmitter: &mut K::Transmitter| {
        transmitter.transmit(&model, &model, &frame(ALL, 1, 60)).is_ok()
    };
    (0..ROOM).for_each(|_| assert!(send(&mut transmitter)));
    assert!(!send(&mut transmitter));
    // All of them, at once, and those that it never had.
    model.claim_all_sent();
    let more = (0..2 * ROOM).take_while(|_| send(&mut transmitter)).count();
    assert!(more <= usize::from(ROOM), "{more}");
}

fn it_receives_what_somebody_wants<K: Known>() {
    let (model, ..) = started::<K>();
    let mut filter = Filter::default();
    let hears = |to| model.receive(&frame(to, 0, 60));
    let other = [2, 0, 0, 0, 0, 9];
    assert!(hears(OWN) && hears(ALL) && !hears(GROUP) && !hears(other));
    for what in [Reception::Address(GROUP), Reception::Address(other), Reception::Address(GROUP)] {
        filter.admit(what).unwrap();
        K::KIND.set_filter(&model, &model, &filter, OWN);
    }
    assert!(hears(GROUP) && hears(other) && !hears([1, 0, 0x5e, 0, 0, 1]) && hears(OWN));
    filter.refuse(Reception::Address(GROUP));
    K::KIND.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP));
    filter.refuse(Reception::Address(GROUP));
    filter.refuse(Reception::Address(other));
    filter.admit(Reception::Groups).unwrap();
    K::KIND.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP) && hears([1, 0, 0x5e, 0, 0, 1]) && !hears(other));
    filter.admit(Reception::All).unwrap();
    filter.refuse(Reception::Groups);
    K::KIND.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP) && hears(other));
    filter.refuse(Reception::All);
    K::KIND.set_filter(&model, &model, &filter, OWN);
    assert!(!hears(GROUP) && !hears(other) && hears(OWN));
    let many = |number| Reception::Address([2, 0, 0, 0, 1, number]);
    (0..reception::MOST as u8).for_each(|number| filter.admit(many(number)).unwrap());
    assert_eq!(filter.admit(many(99)), Err(TooMany));
    // More than the card knows: everything.
    K::KIND.set_filter(&model, &model, &filter, OWN);
    assert!(hears([2, 0, 0, 0, 1, 31]) && hears(other));
}

/// A transceiver that Linux has switched off is on again, and has found its speed.
#[test]
fn a_transceiver_is_switched_on() {
    let (model, ..) = started::<Igb>();
    assert!(Igb.has_link(&model));
}

/// A card whose transceiver answers nothing does not start, and does not hold its driver up.
#[test]
fn a_mute_transceiver_is_no_card() {
    let model = Model::<Igb>::default();
    model.is_mute.set(true);
    Igb.reset(&model);
    assert!(Igb.start(&model, &model, BASE, OWN).is_err());
}
