// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's half of an 82574L against a model of it.

use crtos_nic::{
    HardwareAddress,
    card::{BUFFER, Found, Kind, NoRoom, Receive, Transmit},
    intel::{
        e1000e::E1000e,
        model::{BASE, Model},
        rings::{DESCRIPTORS, ROOM},
        take_missed,
    },
    reception::{self, Filter, Reception, TooMany},
};

type Receiver = <E1000e as Kind>::Receiver;
type Transmitter = <E1000e as Kind>::Transmitter;

const OWN: HardwareAddress = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const ALL: HardwareAddress = [0xff; 6];
const GROUP: HardwareAddress = [1, 0, 0x5e, 0, 0, 0xfb];

fn started() -> (Model, Receiver, Transmitter) {
    let model = Model::default();
    E1000e.reset(&model);
    assert!(E1000e.is_reset(&model));
    let (receiver, transmitter) = E1000e.start(&model, &model, BASE, OWN).unwrap();
    (model, receiver, transmitter)
}

fn frame(to: HardwareAddress, number: usize, length: usize) -> Vec<u8> {
    let rest = (6..length).map(|at| (at * 3 + number) as u8);
    to.into_iter().chain(rest).collect()
}

fn take(model: &Model, receiver: &mut Receiver) -> Option<Vec<u8>> {
    let mut buffer = [0; BUFFER];
    match receiver.receive(model, model, &mut buffer)? {
        Found::Frame(frame) => Some(buffer[..frame.length].to_vec()),
        Found::Bad => Some(Vec::new()),
    }
}

#[test]
fn frames_come_in_their_order_round_and_round() {
    let (model, mut receiver, _) = started();
    for number in 0..3 * usize::from(DESCRIPTORS) {
        let sent = frame(OWN, number, 60 + number % 1450);
        assert!(model.receive(&sent));
        assert!(receiver.has_more(&model));
        assert_eq!(take(&model, &mut receiver), Some(sent));
        assert!(!receiver.has_more(&model));
    }
}

#[test]
fn a_flood_is_lost_in_the_card_and_counted() {
    let (model, mut receiver, _) = started();
    let count = usize::from(DESCRIPTORS) + 10;
    let received = (0..count).filter(|&number| model.receive(&frame(OWN, number, 60))).count();
    assert_eq!(received, usize::from(DESCRIPTORS) - 1);
    for number in 0..received {
        assert_eq!(take(&model, &mut receiver), Some(frame(OWN, number, 60)));
    }
    receiver.tell(&model, &model);
    assert_eq!(take(&model, &mut receiver), None);
    assert_eq!(take_missed(&model), 11);
    assert_eq!(take_missed(&model), 0);
    assert!(model.receive(&frame(ALL, 0, 60)));
    assert!(take(&model, &mut receiver).is_some());
}

#[test]
fn it_interrupts_once_until_it_may_again() {
    let (model, mut receiver, _) = started();
    model.receive(&frame(OWN, 0, 60));
    assert_eq!(model.take_interrupts(), 0);
    assert!(!E1000e.let_interrupt(&model, &model, &receiver));
    assert_eq!(model.take_interrupts(), 1);
    E1000e.mask(&model, &model);
    model.receive(&frame(OWN, 1, 60));
    model.receive(&frame(OWN, 2, 60));
    assert_eq!(model.take_interrupts(), 0);
    E1000e.take_causes(&model);
    while take(&model, &mut receiver).is_some() {}
    assert!(!E1000e.let_interrupt(&model, &model, &receiver));
    assert_eq!(model.take_interrupts(), 0);
    model.receive(&frame(OWN, 3, 60));
    assert_eq!(model.take_interrupts(), 1);
}

#[test]
fn frames_are_sent_until_the_ring_is_full() {
    let (model, _, mut transmitter) = started();
    let send = |transmitter: &mut Transmitter, number| {
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
    assert!(!transmitter.has_room(&model));
    model.is_stuck.set(false);
    model.transmit();
    assert_eq!(model.sent.take().len(), room);
    assert!(transmitter.has_room(&model));
    assert_eq!(transmitter.transmit(&model, &model, &[]), Err(NoRoom));
    assert_eq!(transmitter.transmit(&model, &model, &[0; BUFFER + 1]), Err(NoRoom));
}

/// What a hostile card writes is no frame, or one that lies in its buffer.
#[test]
fn a_hostile_card_is_not_believed() {
    let (model, mut receiver, _) = started();
    let (done, end) = (1 << 32, 1 << 33);
    for word in [0xffff | done | end, 64 | done, 64 | done | end | 1 << 40, 2049 | done | end] {
        model.write_back(word);
        assert_eq!(take(&model, &mut receiver), Some(Vec::new()), "{word:x}");
    }
    model.write_back(u64::MAX);
    assert_eq!(take(&model, &mut receiver), Some(Vec::new()));
    assert!(model.receive(&frame(OWN, 7, 60)));
    assert_eq!(take(&model, &mut receiver), Some(frame(OWN, 7, 60)));
}

#[test]
fn it_receives_what_somebody_wants() {
    let (model, ..) = started();
    let mut filter = Filter::default();
    let hears = |to| model.receive(&frame(to, 0, 60));
    let other = [2, 0, 0, 0, 0, 9];
    assert!(hears(OWN) && hears(ALL) && !hears(GROUP) && !hears(other));
    for what in [Reception::Address(GROUP), Reception::Address(other), Reception::Address(GROUP)] {
        filter.admit(what).unwrap();
        E1000e.set_filter(&model, &model, &filter, OWN);
    }
    assert!(hears(GROUP) && hears(other) && !hears([1, 0, 0x5e, 0, 0, 1]) && hears(OWN));
    filter.refuse(Reception::Address(GROUP));
    E1000e.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP));
    filter.refuse(Reception::Address(GROUP));
    filter.refuse(Reception::Address(other));
    filter.admit(Reception::Groups).unwrap();
    E1000e.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP) && hears([1, 0, 0x5e, 0, 0, 1]) && !hears(other));
    filter.admit(Reception::All).unwrap();
    filter.refuse(Reception::Groups);
    E1000e.set_filter(&model, &model, &filter, OWN);
    assert!(hears(GROUP) && hears(other));
    filter.refuse(Reception::All);
    E1000e.set_filter(&model, &model, &filter, OWN);
    assert!(!hears(GROUP) && !hears(other) && hears(OWN));
    let many = |number| Reception::Address([2, 0, 0, 0, 1, number]);
    (0..reception::MOST as u8).for_each(|number| filter.admit(many(number)).unwrap());
    assert_eq!(filter.admit(many(99)), Err(TooMany));
    // More than the card knows: everything.
    E1000e.set_filter(&model, &model, &filter, OWN);
    assert!(hears([2, 0, 0, 0, 1, 31]) && hears(other));
}
