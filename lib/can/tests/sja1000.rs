// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver of the SJA1000 against a model of it.

use crtos_can::{
    Controller, Frame, Intake, Settings,
    frame::{EXTENDED, error},
    model::Model,
    sja1000::{Event, LISTEN_ONLY, SELF_TEST, State, register},
};
use proptest::prelude::*;

/// Accesses that the driver promises for one step.
const MOST: usize = 20;

fn started(settings: &str) -> (Model, Controller<Model>) {
    let model = Model::default();
    let mut controller = Controller::find(model.clone(), settings.parse().unwrap()).unwrap();
    assert!(controller.start());
    (model, controller)
}

/// What `f` takes of accesses is bounded.
fn bounded<R>(model: &Model, f: impl FnOnce() -> R) -> R {
    let before = model.0.borrow().accesses;
    let result = f();
    assert!(model.0.borrow().accesses - before <= MOST);
    result
}

/// Takes all events, as long as it interrupts; each step is bounded.
fn all(model: &Model, controller: &mut Controller<Model>) -> Vec<Event> {
    let mut events = Vec::new();
    while model.0.borrow().interrupts() {
        controller.look();
        events.extend(std::iter::from_fn(|| bounded(model, || controller.event())));
    }
    events
}

const PLAIN: &str = "1/13/2/1/0/0";

#[test]
fn it_is_set_up_to_receive_all() {
    let (model, _controller) = started("4/13/2/2/4/0");
    let state = model.0.borrow();
    assert_eq!(state.registers[6..8], [0x43, 0x9c]);
    assert_eq!(state.registers[usize::from(register::CLOCK)] & 0x80, 0x80);
    assert_eq!(state.registers[16..20], [0; 4]);
    assert_eq!(state.registers[20..24], [0xff; 4]);
    assert!(state.runs());
    // Without errors on the bus, which come too often.
    assert_eq!(state.registers[usize::from(register::ENABLED)], 0x6f);
}

#[test]
fn modes_are_those_that_were_asked_for() {
    let mode = |settings| started(settings).0.0.borrow().registers[0];
    assert_eq!(mode("1/13/2/1/2/0") & LISTEN_ONLY, LISTEN_ONLY);
    assert_eq!(mode("1/13/2/1/64/0") & SELF_TEST, SELF_TEST);
    let (model, _controller) = started("1/13/2/1/16/0");
    assert_eq!(model.0.borrow().registers[usize::from(register::ENABLED)], 0xef);
    // It hears itself.
    let (model, mut controller) = started("1/13/2/1/1/0");
    let frame = Frame::new(0x77, b"me").unwrap();
    controller.send(&frame);
    let events = all(&model, &mut controller);
    assert_eq!(events, [Event::Sent { done: true }, Event::Frame(frame)]);
}

#[test]
fn what_is_no_sja1000_is_not_found() {
    let model = Model::default();
    model.0.borrow_mut().is_broken = true;
    let settings: Settings = PLAIN.parse().unwrap();
    assert!(Controller::find(model, settings).is_none());
}

#[test]
fn frames_that_nobody_takes_are_lost_and_that_is_told() {
    let (model, mut controller) = started(PLAIN);
    let frame = Frame::new(1, &[0; 8]).unwrap();
    let taken = (0..9).filter(|_| model.0.borrow_mut().receive(&frame)).count();
    assert_eq!(taken, 5);
    let events = all(&model, &mut controller);
    assert_eq!(events.iter().filter(|event| **event == Event::Frame(frame)).count(), 5);
    let Some(Event::Frame(told)) = events.last() else { panic!("{events:?}") };
    assert_eq!(told.id() & error::CONTROLLER, error::CONTROLLER);
    assert_eq!(told.data()[1], 1);
    assert_eq!(controller.counters().overruns, 1);
}

#[test]
fn what_is_not_acknowledged_waits_or_is_given_up() {
    let frame = Frame::new(0x123, b"abc").unwrap();
    let (model, mut controller) = started(PLAIN);
    model.0.borrow_mut().is_alone = true;
    controller.send(&frame);
    assert_eq!(all(&model, &mut controller), []);
    model.0.borrow_mut().acknowledge();
    assert_eq!(all(&model, &mut controller), [Event::Sent { done: true }]);

    let (model, mut controller) = started("1/13/2/1/8/0");
    model.0.borrow_mut().is_alone = true;
    controller.send(&frame);
    assert_eq!(all(&model, &mut controller), [Event::Sent { done: false }]);
    assert_eq!(controller.counters().sent, 0);
}

/// The error frame that the model's counters cause, and the state afterwards.
fn told(model: &Model, controller: &mut Controller<Model>, sending: u16, receiving: u8) -> Frame {
    model.0.borrow_mut().count_errors(sending, receiving);
    match all(model, controller)[..] {
        [Event::Frame(frame)] => frame,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn it_goes_off_the_bus_and_comes_back() {
    let (model, mut controller) = started(PLAIN);
    let steps = [
        (96, 0, State::Warning, 0x08),
        (128, 0, State::Passive, 0x20),
        (100, 100, State::Warning, 0x0c),
        (100, 128, State::Passive, 0x10),
    ];
    for (sending, receiving, state, how) in steps {
        let frame = told(&model, &mut controller, sending, receiving);
        assert_eq!(controller.state(), state);
        assert_eq!(frame.id() & error::CONTROLLER, error::CONTROLLER, "{state:?}");
        assert_eq!(frame.data()[1], how, "{state:?}");
        assert_eq!(frame.data()[6..], [sending as u8, receiving], "{state:?}");
    }
    let frame = told(&model, &mut controller, 256, 0);
    assert_eq!(controller.state(), State::BusOff);
    assert_eq!(frame.id() & (error::BUS_OFF | error::CONTROLLER), error::BUS_OFF);
    assert!(!model.0.borrow().runs());
    assert!(controller.start());
    assert_eq!(controller.state(), State::Active);
    let frame = Frame::new(5, b"again").unwrap();
    controller.send(&frame);
    assert_eq!(all(&model, &mut controller), [Event::Sent { done: true }]);
    assert_eq!(model.0.borrow().sent, [frame]);
}

#[test]
fn errors_on_the_bus_are_told_with_their_place() {
    let (model, mut controller) = started("1/13/2/1/16/0");
    // Of stuffing, while it received, in the data field.
    model.0.borrow_mut().disturb(0x80 | 0x20 | 0x0a, Some(11));
    let [Event::Frame(frame)] = all(&model, &mut controller)[..] else { panic!() };
    let kinds = error::PROTOCOL | error::BUS | error::LOST_ARBITRATION;
    assert_eq!(frame.id() & kinds, kinds);
    assert_eq!(frame.data()[..4], [11, 0, 0x04, 0x0a]);
    model.0.borrow_mut().disturb(0x03, None);
    let [Event::Frame(frame)] = all(&model, &mut controller)[..] else { panic!() };
    assert_eq!(frame.data()[..4], [0, 0, 0x81, 0x03]);
}

#[test]
fn a_device_that_never_ends_costs_bounded_steps() {
    let (model, controller) = started(PLAIN);
    let mut intake = Intake::new(controller).unwrap();
    model.0.borrow_mut().is_broken = true;
    assert!(intake.begin());
    for _ in 0..1000 {
        assert!(!bounded(&model, || intake.begin()));
        // It has always something to tell.
        assert!(bounded(&model, || intake.take()).is_some());
    }
    let mut controller = intake.controller;
    // It is started in bounded time as well, or not at all.
    model.0.borrow_mut().registers[0] = 1;
    let before = model.0.borrow().accesses;
    assert!(!controller.start());
    assert!(model.0.borrow().accesses - before <= 500);
}

/// Of the cause, of five bytes of the frame, and two to release it.
#[test]
fn a_frame_of_two_bytes_takes_eight_accesses() {
    let (model, controller) = started(PLAIN);
    let mut intake = Intake::new(controller).unwrap();
    let frame = Frame::new(0x123, b"ab").unwrap();
    model.0.borrow_mut().receive(&frame);
    model.0.borrow_mut().accesses = 0;
    assert!(intake.begin());
    assert_eq!(intake.take(), Some(Event::Frame(frame)));
    assert!(!model.0.borrow().interrupts());
    assert_eq!(intake.take(), None);
    assert_eq!(model.0.borrow().accesses, 8);
}

#[test]
fn frames_that_come_while_somebody_tells_are_lost_beyond_bounds() {
    let (model, controller) = started(PLAIN);
    let mut intake = Intake::new(controller).unwrap();
    let frame = |id| Frame::new(id, &[]).unwrap();
    model.0.borrow_mut().receive(&frame(0));
    assert!(intake.begin());
    assert_eq!(intake.take(), Some(Event::Frame(frame(0))));
    for id in 1..20 {
        model.0.borrow_mut().receive(&frame(id));
        assert!(!intake.begin());
        assert!(!model.0.borrow().interrupts());
    }
    let told: Vec<_> = std::iter::from_fn(|| intake.take()).collect();
    assert_eq!(told, (1..17).map(|id| Event::Frame(frame(id))).collect::<Vec<_>>());
    assert_eq!(intake.controller.counters().overruns, 3);
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = prop_oneof![0..0x800u32, (0..0x2000_0000u32).prop_map(|id| id | EXTENDED)];
    let data = proptest::collection::vec(any::<u8>(), 0..=8);
    prop_oneof![
        (id.clone(), data).prop_map(|(id, data)| Frame::new(id, &data).unwrap()),
        (id, 0..=8u8).prop_map(|(id, length)| Frame::remote(id, length).unwrap()),
    ]
}

proptest! {
    #[test]
    fn every_frame_arrives_as_it_was(frame in frames()) {
        let (model, mut controller) = started(PLAIN);
        controller.send(&frame);
        prop_assert_eq!(&model.0.borrow().sent, &[frame]);
        prop_assert_eq!(all(&model, &mut controller), [Event::Sent { done: true }]);
        prop_assert!(model.0.borrow_mut().receive(&frame));
        prop_assert_eq!(all(&model, &mut controller), [Event::Frame(frame)]);
    }

    #[test]
    fn nothing_is_lost_or_changes_its_order(
        frames in proptest::collection::vec((frames(), any::<bool>()), 0..40)
    ) {
        let (model, mut controller) = started(PLAIN);
        let (mut came, mut sent, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for (frame, sends) in frames {
            if sends {
                controller.send(&frame);
                sent.push(frame);
            } else if model.0.borrow_mut().receive(&frame) {
                came.push(frame);
            }
            // Sometimes several wait.
            if frame.id() % 3 != 0 || sends {
                taken.extend(all(&model, &mut controller));
            }
        }
        taken.extend(all(&model, &mut controller));
        let received: Vec<_> = taken
            .iter()
            .filter_map(|event| match event {
                Event::Frame(frame) if frame.id() & 1 << 29 == 0 => Some(*frame),
                _ => None,
            })
            .collect();
        prop_assert_eq!(received, came);
        prop_assert_eq!(&model.0.borrow().sent, &sent);
    }

    /// One who tells of a frame is interrupted at any point, by a controller whose level stays
    /// until its cause is gone.
    #[test]
    fn who_is_interrupted_tells_in_order(
        frames in proptest::collection::vec((frames(), 0..4u8), 0..60)
    ) {
        let (model, controller) = started(PLAIN);
        let mut intake = Intake::new(controller).unwrap();
        let (mut came, mut told) = (Vec::new(), Vec::new());
        let mut serves = false;
        for (frame, steps) in frames {
            if model.0.borrow_mut().receive(&frame) {
                came.push(frame);
            }
            // At most one frame each is left to who tells.
            for _ in 0..5 {
                if model.0.borrow().interrupts() {
                    serves |= bounded(&model, || intake.begin());
                }
            }
            for _ in 0..steps {
                let event = serves.then(|| bounded(&model, || intake.take())).flatten();
                serves = event.is_some();
                told.extend(event);
            }
        }
        while serves || model.0.borrow().interrupts() {
            if !serves {
                prop_assert!(intake.begin());
            }
            let event = intake.take();
            serves = event.is_some();
            told.extend(event);
        }
        let came: Vec<_> = came.into_iter().map(Event::Frame).collect();
        // Those that were lost were told of by nobody.
        told.retain(|event| !matches!(event, Event::Frame(frame) if frame.id() & 1 << 29 != 0));
        prop_assert_eq!(came.len() - told.len(), intake.controller.counters().overruns as usize);
        let mut left = came.iter();
        prop_assert!(told.iter().all(|event| left.any(|other| other == event)));
    }
}
