// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's half of a network device of virtio against a model of it, which may be hostile.

use crtos_nic::{
    HardwareAddress,
    card::{BUFFER, Found, Kind, NoRoom, Progress, Receive, Transmit},
    reception::{self, Filter, Reception},
    virtio::{
        Virtio,
        frames::{Receiver, Transmitter},
        model::{self, BASE, Model},
        places::Places,
    },
};
use proptest::prelude::*;
use virtio_spec::net::F;

const OWN: HardwareAddress = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const ALL: HardwareAddress = [0xff; 6];
const GROUP: HardwareAddress = [1, 0, 0x5e, 0, 0, 0xfb];

/// A device that was started.
struct Started {
    kind: Virtio,
    receiver: Receiver,
    transmitter: Transmitter,
}

fn start(model: &Model) -> Result<Started, &'static str> {
    let kind = Virtio::find(model::configuration).unwrap();
    kind.reset(model);
    assert!(kind.is_reset(model));
    let (receiver, transmitter) = kind.start(model, model, BASE, OWN)?;
    Ok(Started { kind, receiver, transmitter })
}

fn started() -> (Model, Started) {
    let model = Model::default();
    let started = start(&model).unwrap();
    (model, started)
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
fn it_takes_what_it_knows_of() {
    let (model, Started { kind, .. }) = started();
    let known = F::VERSION_1 | F::ACCESS_PLATFORM | F::MAC | F::STATUS;
    assert_eq!(model.taken(), known | F::CTRL_VQ | F::CTRL_RX);
    assert!(kind.has_link(&model));
    model.is_alone.set(true);
    assert!(!kind.has_link(&model));
}

#[test]
fn a_device_that_does_not_fit_is_refused() {
    let refused = |change: &dyn Fn(&Model)| {
        let model = Model::default();
        change(&model);
        start(&model).err().unwrap()
    };
    let without = |model: &Model, what: F| model.offers.set(model.offers.get() - what);
    assert!(refused(&|it| without(it, F::VERSION_1)).contains("before virtio 1.0"));
    // It would reach whatever lies at these addresses in the machine's memory.
    assert!(refused(&|it| without(it, F::ACCESS_PLATFORM)).contains("without the IOMMU"));
    assert!(refused(&|it| it.refuses.set(true)).contains("does not agree"));
    for most in [0, 3, 100] {
        assert!(refused(&|it| it.most.set(most)).contains("queues"), "{most}");
    }
    let model = Model::default();
    without(&model, F::CTRL_RX);
    let Started { kind, .. } = start(&model).unwrap();
    kind.set_filter(&model, &model, &Filter::default(), OWN);
    assert_eq!(kind.filter_progress(&model), Progress::Done);
    assert!(model.receive(&frame([2; 6], 0, 60)));
}

#[test]
fn frames_come_in_their_order_round_and_round() {
    for (most, many) in [(8, 100), (256, 70_000), (1024, 1000)] {
        let model = Model::default();
        model.most.set(most);
        let Started { mut receiver, .. } = start(&model).unwrap();
        // Indices pass their end.
        for number in 0..many {
            let sent = frame(OWN, number, 60 + number % 1450);
            assert!(model.receive(&sent));
            assert!(receiver.has_more(&model));
            assert_eq!(take(&model, &mut receiver), Some(sent));
            assert!(!receiver.has_more(&model));
        }
    }
}

#[test]
fn a_flood_is_lost_in_the_device() {
    let (model, Started { mut receiver, .. }) = started();
    let received = (0..300).filter(|&number| model.receive(&frame(OWN, number, 60))).count();
    assert_eq!(received, 256);
    for number in 0..received {
        assert_eq!(take(&model, &mut receiver), Some(frame(OWN, number, 60)));
    }
    assert_eq!(take(&model, &mut receiver), None);
    assert!(model.receive(&frame(ALL, 0, 60)));
    assert!(take(&model, &mut receiver).is_some());
}

#[test]
fn it_is_asked_to_interrupt_and_not_to() {
    let (model, Started { kind, mut receiver, mut transmitter }) = started();
    assert!(!kind.let_interrupt(&model, &model, &receiver));
    model.receive(&frame(OWN, 0, 60));
    assert_eq!(model.take_interrupts(), 1);
    kind.mask(&model, &model);
    model.receive(&frame(OWN, 1, 60));
    assert_eq!(model.take_interrupts(), 0);
    // What came before is seen, not told; it is masked again then.
    assert!(kind.let_interrupt(&model, &model, &receiver));
    model.receive(&frame(OWN, 2, 60));
    assert_eq!(model.take_interrupts(), 0);
    (0..3).for_each(|number| {
        assert_eq!(take(&model, &mut receiver), Some(frame(OWN, number, 60)));
    });
    assert!(!kind.let_interrupt(&model, &model, &receiver));
    transmitter.transmit(&model, &model, &frame(ALL, 0, 60)).unwrap();
    assert_eq!((model.take_interrupts(), model.sent.take().len()), (0, 1));
}

#[test]
fn it_is_notified_where_it_asks_for_that() {
    let (model, Started { mut receiver, mut transmitter, .. }) = started();
    // Of buffers, and of commands.
    assert_eq!(model.take_notices(), 2);
    transmitter.transmit(&model, &model, &frame(ALL, 0, 60)).unwrap();
    assert_eq!(model.take_notices(), 1);
    model.ask_for_notices(1, false);
    transmitter.transmit(&model, &model, &frame(ALL, 0, 60)).unwrap();
    assert_eq!(model.take_notices(), 0);
    for number in 0..40 {
        model.receive(&frame(OWN, number, 60));
        take(&model, &mut receiver);
    }
    assert_eq!(model.take_notices(), 2);
    receiver.tell(&model, &model);
    receiver.tell(&model, &model);
    assert_eq!(model.take_notices(), 1);
}

#[test]
fn frames_are_sent_until_the_queue_is_full() {
    let (model, Started { mut transmitter, .. }) = started();
    let send = |transmitter: &mut Transmitter, number| {
        transmitter.transmit(&model, &model, &frame(ALL, number, 60 + number % 1450))
    };
    let many = 517;
    (0..many).for_each(|number| send(&mut transmitter, number).unwrap());
    let expected: Vec<_> = (0..many).map(|number| frame(ALL, number, 60 + number % 1450)).collect();
    assert_eq!(model.sent.take(), expected);
    model.is_stuck.set(true);
    let room = (0..many).take_while(|&number| send(&mut transmitter, number).is_ok()).count();
    assert_eq!(room, 256);
    assert!(!transmitter.has_room(&model, &model));
    model.is_stuck.set(false);
    model.work();
    assert_eq!(model.sent.take().len(), room);
    assert!(transmitter.has_room(&model, &model));
    assert_eq!(transmitter.transmit(&model, &model, &[]), Err(NoRoom));
    assert_eq!(transmitter.transmit(&model, &model, &[0; BUFFER]), Err(NoRoom));
}

/// Has the device receive that, and says how far it is.
fn tell(model: &Model, kind: &Virtio, filter: &Filter) -> Progress {
    kind.set_filter(model, model, filter, OWN);
    kind.filter_progress(model)
}

#[test]
fn it_receives_what_somebody_wants() {
    let (model, Started { kind, .. }) = started();
    let mut filter = Filter::default();
    let hears = |to| model.receive(&frame(to, 0, 60));
    let other = [2, 0, 0, 0, 0, 9];
    assert_eq!(kind.filter_progress(&model), Progress::Done);
    assert!(hears(OWN) && hears(ALL) && !hears(GROUP) && !hears(other));
    for what in [Reception::Address(GROUP), Reception::Address(other)] {
        filter.admit(what).unwrap();
    }
    assert_eq!(tell(&model, &kind, &filter), Progress::Done);
    assert!(hears(GROUP) && hears(other) && !hears([1, 0, 0x5e, 0, 0, 1]) && hears(OWN));
    filter.refuse(Reception::Address(GROUP));
    filter.admit(Reception::Groups).unwrap();
    assert_eq!(tell(&model, &kind, &filter), Progress::Done);
    assert!(hears(GROUP) && hears([1, 0, 0x5e, 0, 0, 1]) && hears(other) && !hears([2; 6]));
    filter.admit(Reception::All).unwrap();
    assert_eq!(tell(&model, &kind, &filter), Progress::Done);
    assert!(hears([2; 6]));
    let mut filter = Filter::default();
    let many = |number| Reception::Address([2, 0, 0, 0, 1, number]);
    (0..reception::MOST as u8).for_each(|number| filter.admit(many(number)).unwrap());
    assert_eq!(tell(&model, &kind, &filter), Progress::Done);
    assert!(hears([2, 0, 0, 0, 1, 31]) && !hears([2, 0, 0, 0, 1, 32]) && !hears([2; 6]));
}

#[test]
fn commands_are_refused_or_never_answered() {
    let (model, Started { kind, .. }) = started();
    model.refuses.set(true);
    assert_eq!(tell(&model, &kind, &Filter::default()), Progress::Refused);
    model.refuses.set(false);
    model.is_stuck.set(true);
    assert_eq!(tell(&model, &kind, &Filter::default()), Progress::Pending);
    assert_eq!(tell(&model, &kind, &Filter::default()), Progress::Pending);
    // Answers to what nobody asked.
    for first in [1, 3, 5, 7, 8, 1 << 16, u32::MAX] {
        model.write_entry(2, first, 1);
        assert_eq!(kind.filter_progress(&model), Progress::Pending);
    }
    model.is_stuck.set(false);
    model.work();
    assert_eq!(kind.filter_progress(&model), Progress::Done);
}

/// What a hostile device writes is no frame, or one that lies in its buffer.
#[test]
fn a_hostile_device_is_not_believed() {
    let (model, Started { mut receiver, mut transmitter, .. }) = started();
    // Numbers that are none, lengths that are too short or too long.
    for (first, length) in
        [(256, 72), (u32::MAX, 72), (1 << 16, 72), (0, 0), (1, 11), (2, 2049), (3, u32::MAX)]
    {
        model.write_entry(0, first, length);
        assert_eq!(take(&model, &mut receiver), Some(Vec::new()), "{first} {length}");
    }
    model.write_entry(0, 7, 2048);
    assert_eq!(take(&model, &mut receiver).map(|it| it.len()), Some(2048 - 12));
    // Frames that were not sent are none, and those that were are taken back once.
    model.is_stuck.set(true);
    (0..3).for_each(|number| {
        transmitter.transmit(&model, &model, &frame(ALL, number, 60)).unwrap();
    });
    for first in [0, 255, 255, 255, 254, 255, 300] {
        model.write_entry(1, first, 0);
    }
    let left = (0..500)
        .take_while(|&number| transmitter.transmit(&model, &model, &frame(ALL, number, 60)).is_ok())
        .count();
    assert_eq!(left, 256 - 3 + 2);
}

/// Where a device's index jumps, what is taken is bad, or was the device's.
#[test]
fn an_index_that_jumps_gives_nothing_twice() {
    let (model, Started { mut receiver, .. }) = started();
    model.jump(0, 40_000);
    let mut found = 0;
    let sound = (0..40_000).filter(|_| {
        found += 1;
        take(&model, &mut receiver).is_some_and(|it| !it.is_empty())
    });
    assert_eq!(sound.count(), 0);
    assert_eq!((found, take(&model, &mut receiver)), (40_000, None));
}

#[test]
fn capabilities_tell_where_registers_are() {
    let mut space = vec![0_u32; 64];
    let mut put = |at: usize, words: &[u32]| space[at / 4..][..words.len()].copy_from_slice(words);
    // The third register tells of ports.
    put(0x10, &[0, 0, 1, 0, 0xfe00_000c, 0]);
    put(0x34, &[0x40]);
    put(0x40, &[0x0010_5011, 0, 0]);
    // At ports, too short, too far away, at no register.
    put(0x50, &[0x0110_6009, 2, 0, 0x38]);
    put(0x60, &[0x0110_7009, 4, 0, 0x34]);
    put(0x70, &[0x0110_8009, 4, 0xffff_fffc, 0x38]);
    put(0x80, &[0x0110_9009, 6, 0, 0x38]);
    put(0x90, &[0x0110_a009, 4, 0, 0x1000]);
    put(0xa0, &[0x0410_b009, 4, 0x2000, 0x1000]);
    put(0xb0, &[0x0214_d009, 4, 0x3000, 0x10, 4]);
    put(0xd0, &[0x0210_0009, 4, 0x3000, 0x1000]);
    let find = |space: &[u32]| Places::find(|at| space[at as usize / 4]);
    let found = find(&space).unwrap();
    assert_eq!((found.base, found.length), (4, 0x3010));
    assert_eq!((found.common, found.device), (0, 0x2000));
    assert_eq!([0, 1, 3].map(|it| found.bell(it)), [Some(0x3000), Some(0x3004), Some(0x300c)]);
    assert_eq!([4, 0x4000_0000, u32::MAX].map(|it| found.bell(it)), [None; 3]);
    // Each in another memory.
    space[0xa4 / 4] = 0;
    assert_eq!(find(&space), None);
    // Round and round.
    space[0x90 / 4] = 0x0110_4009;
    assert_eq!(find(&space), None);
    assert_eq!(Places::find(|_| u32::MAX), None);
}

/// What a device does to the driver's half.
#[derive(Clone, Copy, Debug)]
enum Step {
    Receive(u16),
    Take,
    Send(u16),
    Work,
    Entry(usize, u32, u32),
    Jump(usize, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![0..300_u32, any::<u32>()];
    prop_oneof![
        4 => (14..1515_u16).prop_map(Step::Receive),
        4 => Just(Step::Take),
        4 => (0..2100_u16).prop_map(Step::Send),
        2 => Just(Step::Work),
        2 => (0..3_usize, number.clone(), number).prop_map(|(q, n, l)| Step::Entry(q, n, l)),
        1 => (0..3_usize, any::<u16>()).prop_map(|(queue, by)| Step::Jump(queue, by)),
    ]
}

proptest! {
    /// A device that keeps to the rules gets each frame once, and gives each once, in whatever
    /// order things happen.
    #[test]
    fn nothing_is_lost_or_doubled(steps in prop::collection::vec(step(), 0..400)) {
        let (model, Started { mut receiver, mut transmitter, .. }) = started();
        let (mut came, mut got, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Receive(length) => {
                    let sent = frame(OWN, number, length.into());
                    if model.receive(&sent) {
                        came.push(sent);
                    }
                }
                Step::Take => got.extend(take(&model, &mut receiver)),
                Step::Send(length) => {
                    let sent = frame(ALL, number, length.into());
                    if transmitter.transmit(&model, &model, &sent).is_ok() {
                        given.push(sent);
                    }
                }
                Step::Work => model.is_stuck.set(!model.is_stuck.get()),
                _ => {}
            }
        }
        model.is_stuck.set(false);
        model.work();
        got.extend(std::iter::from_fn(|| take(&model, &mut receiver)));
        prop_assert_eq!(came, got);
        prop_assert_eq!(model.sent.take(), given);
    }

    /// One that does not keep to them makes nothing panic or reach beyond buffers, and no buffer is
    /// in two hands.
    #[test]
    fn a_hostile_device_harms_itself(steps in prop::collection::vec(step(), 0..400)) {
        let (model, Started { kind, mut receiver, mut transmitter }) = started();
        model.is_stuck.set(true);
        let mut under_way = 0_usize;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Take => {
                    let found = take(&model, &mut receiver);
                    prop_assert!(found.is_none_or(|it| it.len() <= BUFFER - 12));
                }
                Step::Send(length) => {
                    let sent = frame(ALL, number, usize::from(length).max(6));
                    under_way += usize::from(transmitter.transmit(&model, &model, &sent).is_ok());
                }
                Step::Entry(queue, first, length) => model.write_entry(queue, first, length),
                Step::Jump(queue, by) => model.jump(queue, by),
                Step::Receive(_) | Step::Work => {
                    tell(&model, &kind, &Filter::default());
                }
            }
            transmitter.has_room(&model, &model);
        }
        prop_assert!(under_way <= 400);
    }
}
