// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual Ethernet: the kernel's card against Linux's end, which is the code of the module,
//! and against a Linux that writes anything.

mod common;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{Shared, linux};
use crtos_abi::channel::{ETHERNET_FRAMES, ETHERNET_LONGEST, Ethernet};
use crtos_channel::Channel;
use crtos_nic::{
    card::{BUFFER, Found, Kind, Memory, NoRoom, Receive, Registers, Transmit},
    ethernet::{BELL, LINK, LINUX_END, Receiver, Transmitter, VirtualEthernet},
    reception::{Filter, Reception},
};
use proptest::prelude::*;

const OWN: [u8; 6] = [7; 6];
const FRAMES: u64 = ETHERNET_FRAMES as u64;

/// The channel as the card reaches it.
struct View {
    channel: Channel,
    rings: AtomicU64,
}

impl View {
    fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }
}

impl Registers for View {
    fn read_bytes(&self, register: u32, _: usize) -> u32 {
        assert_eq!(register, LINK);
        u32::from(self.channel.ethernet_load(LINUX_END) != 0)
    }

    fn write_bytes(&self, register: u32, _: usize, _: u32) {
        assert_eq!(register, BELL);
        self.rings.fetch_add(1, Ordering::SeqCst);
    }
}

impl Memory for View {
    fn load(&self, offset: u64) -> u64 {
        self.channel.ethernet_load(offset)
    }

    fn store(&self, offset: u64, value: u64) {
        self.channel.ethernet_store(offset, value);
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        self.channel.ethernet_read(offset, to);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.channel.ethernet_write(offset, from);
    }
}

/// The realm's end.
struct Realm {
    kind: VirtualEthernet,
    receiver: Receiver,
    transmitter: Transmitter,
}

fn start(shared: &Shared) -> (View, Realm) {
    let view = View { channel: shared.view(), rings: AtomicU64::new(0) };
    let kind = VirtualEthernet::find(|_| 0).unwrap();
    let (receiver, transmitter) = kind.start(&view, &view, 0, OWN).unwrap();
    assert_eq!(view.rings.swap(0, Ordering::SeqCst), 1, "Linux hears of it");
    (view, Realm { kind, receiver, transmitter })
}

/// The next frame: its length and its first byte.
fn take(view: &View, receiver: &mut Receiver) -> Option<Option<(usize, u8)>> {
    let mut buffer = [0; BUFFER];
    Some(match receiver.receive(view, view, &mut buffer)? {
        Found::Frame(frame) => {
            assert!(buffer[..frame.length].iter().all(|&byte| byte == buffer[0]));
            Some((frame.length, buffer[0]))
        }
        Found::Bad => None,
    })
}

#[test]
fn frames_of_linux_come_in_their_order() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    for number in 0..1000 {
        let (length, mut ring) = (1 + number % ETHERNET_LONGEST as u32, false);
        assert!(linux::send(&shared, number.into(), length, OWN[0], &mut ring));
        assert_eq!(
            take(&view, &mut realm.receiver),
            (length >= 6).then_some(Some((length as usize, 7))).or(Some(None))
        );
        assert_eq!(take(&view, &mut realm.receiver), None);
    }
}

#[test]
fn frames_of_the_realm_come_in_their_order() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    linux::up(&shared, true);
    for number in 0..1000 {
        let (length, mut value) = (14 + number as usize % 1500, 0);
        let frame = vec![number as u8; length];
        assert_eq!(realm.transmitter.transmit(&view, &view, &frame), Ok(()));
        assert_eq!(linux::take(&shared, number, &mut value) as usize, length);
        assert_eq!(value, number as u8);
    }
    let too_long = [0; ETHERNET_LONGEST + 1];
    assert_eq!(realm.transmitter.transmit(&view, &view, &too_long), Err(NoRoom));
    assert_eq!(realm.transmitter.transmit(&view, &view, &[]), Err(NoRoom));
}

#[test]
fn a_full_ring_takes_no_more_and_tells_of_room_once_half_of_it_is_free() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    let mut ring = false;
    for number in 0..FRAMES {
        assert!(linux::send(&shared, number, 60, OWN[0], &mut ring));
    }
    assert!(!linux::send(&shared, FRAMES, 60, OWN[0], &mut ring));
    for number in 1..=FRAMES {
        assert!(take(&view, &mut realm.receiver).is_some());
        realm.receiver.tell(&view, &view);
        assert_eq!(view.rings() > 0, number >= FRAMES / 2, "{number}");
    }
    linux::up(&shared, true);
    for _ in 0..FRAMES {
        assert!(realm.transmitter.has_room(&view, &view));
        assert_eq!(realm.transmitter.transmit(&view, &view, &[1; 60]), Ok(()));
    }
    assert!(!realm.transmitter.has_room(&view, &view));
    assert_eq!(realm.transmitter.transmit(&view, &view, &[1; 60]), Err(NoRoom));
    // Where nobody is, frames are lost, and nobody waits.
    linux::up(&shared, false);
    assert!(realm.transmitter.has_room(&view, &view));
    assert_eq!(realm.transmitter.transmit(&view, &view, &[1; 60]), Ok(()));
    assert!(!realm.kind.has_link(&view));
}

#[test]
fn it_interrupts_when_it_is_asked_to() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    let mut ring = false;
    linux::send(&shared, 0, 60, OWN[0], &mut ring);
    assert!(!ring && !realm.kind.has_interrupted(&view), "nobody has asked");
    assert!(realm.kind.let_interrupt(&view, &view, &realm.receiver), "one is there");
    assert!(take(&view, &mut realm.receiver).is_some());
    assert!(!realm.kind.let_interrupt(&view, &view, &realm.receiver));
    assert!(!realm.kind.has_interrupted(&view), "Linux has rung for something else");
    linux::send(&shared, 1, 60, OWN[0], &mut ring);
    assert!(ring && realm.kind.has_interrupted(&view));
    realm.kind.mask(&view, &view);
    assert!(!realm.kind.has_interrupted(&view));
    linux::send(&shared, 2, 60, OWN[0], &mut ring);
    assert!(!ring);
}

#[test]
fn what_is_for_others_is_left_out() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    let (mut written, mut filter) = (0, Filter::default());
    let mut comes = |to: u8, filter: &Filter| {
        realm.kind.set_filter(&view, &view, filter, OWN);
        linux::send(&shared, written, 60, to, &mut false);
        written += 1;
        take(&view, &mut realm.receiver).unwrap().is_some()
    };
    assert!(comes(7, &filter) && comes(0xff, &filter));
    assert!(!comes(8, &filter) && !comes(9, &filter));
    filter.admit(Reception::Address([8; 6])).unwrap();
    assert!(comes(8, &filter) && !comes(9, &filter));
    filter.admit(Reception::Groups).unwrap();
    assert!(comes(9, &filter) && !comes(10, &filter));
    filter.admit(Reception::All).unwrap();
    assert!(comes(10, &filter));
}

/// Both ends at once, each of which sleeps until it is rung.
#[test]
fn no_notification_is_lost() {
    const MANY: u64 = 50_000;
    let shared = Shared::new();
    let (view, realm) = start(&shared);
    linux::up(&shared, true);
    let Realm { kind, mut receiver, mut transmitter } = realm;
    // What rings whom.
    let (of_linux, of_realm) = (AtomicU64::new(0), AtomicU64::new(0));
    let await_ring = |rings: &AtomicU64| {
        let begin = Instant::now();
        while rings.swap(0, Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "a notification is lost");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // Linux sends.
            for number in 0..MANY {
                let mut ring = false;
                // It has asked for room when it looks the second time.
                let mut send = || linux::send(&shared, number, 60, OWN[0], &mut ring);
                while !(send() || send()) {
                    await_ring(&view.rings);
                }
                if ring {
                    of_linux.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        scope.spawn(|| {
            // The realm receives.
            let mut count = 0;
            while count < MANY {
                while take(&view, &mut receiver).is_some() {
                    count += 1;
                }
                receiver.tell(&view, &view);
                if count < MANY && !kind.let_interrupt(&view, &view, &receiver) {
                    await_ring(&of_linux);
                    kind.mask(&view, &view);
                }
            }
        });
        scope.spawn(|| {
            // The realm sends.
            let other = View { channel: shared.view(), rings: AtomicU64::new(0) };
            for number in 0..MANY {
                let frame = [number as u8; 60];
                while transmitter.transmit(&other, &other, &frame).is_err() {
                    thread::yield_now();
                }
                if other.rings.swap(0, Ordering::SeqCst) > 0 {
                    of_realm.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        scope.spawn(|| {
            // Linux receives.
            let (mut taken, mut value) = (0, 0);
            while taken < MANY {
                while linux::take(&shared, taken, &mut value) != 0 {
                    assert_eq!(value, taken as u8);
                    taken += 1;
                }
                if taken < MANY && !linux::want_frames(&shared, taken) {
                    await_ring(&of_realm);
                }
            }
        });
    });
}

/// What a hostile Linux and the realm do.
#[derive(Clone, Debug)]
enum Step {
    /// Linux writes a word anywhere.
    Scribble(u64, u64),
    /// Linux writes one of those that count.
    Index(u8, u64),
    Receive,
    Transmit(usize),
    Interrupt,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value =
        || prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..100_u64, any::<u64>(), u64::MAX - 99..];
    let words = size_of::<Ethernet>() as u64 / 8;
    let step = prop_oneof![
        (0..words, value()).prop_map(|(word, value)| Step::Scribble(word, value)),
        (any::<u8>(), value()).prop_map(|(which, value)| Step::Index(which, value)),
        Just(Step::Receive),
        (0..2000_usize).prop_map(Step::Transmit),
        Just(Step::Interrupt),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_linux_that_writes_anything_breaks_nothing(steps in steps()) {
        let shared = Shared::new();
        let (view, mut realm) = start(&shared);
        // Where the words lie that count: of both rings, and the length of a place.
        let ring = (size_of::<Ethernet>() as u64 - 128) / 2;
        let words = [0, 64, 128, 136, 192, 200, 256, 256 + 2048]
            .into_iter()
            .flat_map(|word| [word, (word + ring).min(2 * ring)]);
        let words: Vec<u64> = words.collect();
        for step in steps {
            let before = view.rings();
            match step {
                Step::Scribble(word, value) => view.store(8 * word, value),
                Step::Index(which, value) => {
                    view.store(words[which as usize % words.len()], value);
                }
                Step::Receive => {
                    let mut buffer = [0; BUFFER];
                    // Whatever the index is, the ring is empty soon.
                    let mut taken = 0;
                    while let Some(found) = realm.receiver.receive(&view, &view, &mut buffer) {
                        taken += 1;
                        prop_assert!(taken <= FRAMES);
                        if let Found::Frame(frame) = found {
                            prop_assert!((1..=ETHERNET_LONGEST).contains(&frame.length));
                        }
                    }
                    prop_assert!(!realm.receiver.has_more(&view));
                    realm.receiver.tell(&view, &view);
                }
                Step::Transmit(length) => {
                    let sent = realm.transmitter.transmit(&view, &view, &vec![1; length]);
                    prop_assert!(sent.is_err() || (1..=ETHERNET_LONGEST).contains(&length));
                }
                Step::Interrupt => {
                    if !realm.kind.let_interrupt(&view, &view, &realm.receiver) {
                        prop_assert!(!realm.kind.has_interrupted(&view));
                    }
                    realm.kind.has_interrupted(&view);
                    realm.kind.mask(&view, &view);
                    prop_assert!(!realm.kind.has_interrupted(&view));
                }
            }
            prop_assert!(view.rings() <= before + 1, "one notification for each");
        }
    }
}
