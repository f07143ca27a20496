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
use crtos_abi::channel::{
    ETHERNET_LONGEST, ETHERNET_MOST_MTU, ETHERNET_PLACE, ETHERNET_PLACES, Ethernet, EthernetRing,
};
use crtos_channel::Channel;
use crtos_nic::{
    card::{Found, Kind, Memory, NoRoom, Receive, Registers, Transmit},
    ethernet::{BELL, LINK, LINUX_END, Receiver, Transmitter, VirtualEthernet},
    reception::{Filter, Reception},
};
use proptest::prelude::*;

const OWN: [u8; 6] = [7; 6];
const PLACES: u64 = ETHERNET_PLACES as u64;

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
    let mut buffer = [0; ETHERNET_LONGEST];
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
    let (mut written, mut ring) = (0, false);
    for number in 0..2000 {
        let length = 1 + number * 37 % ETHERNET_LONGEST as u32;
        assert!(linux::send(&shared, &mut written, length, OWN[0], &mut ring));
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
    let (mut taken, mut got, mut value) = (0, 0, 0);
    for number in 0..2000 {
        let length = 14 + number * 37 % (ETHERNET_LONGEST - 13);
        let frame = vec![number as u8; length];
        assert_eq!(realm.transmitter.transmit(&view, &view, &frame), Ok(()));
        assert_ne!(linux::take(&shared, &mut taken, &mut got, &mut value), 0);
        assert_eq!((got as usize, value), (length, number as u8));
    }
    let too_long = [0; ETHERNET_LONGEST + 1];
    assert_eq!(realm.transmitter.transmit(&view, &view, &too_long), Err(NoRoom));
    assert_eq!(realm.transmitter.transmit(&view, &view, &[]), Err(NoRoom));
}

#[test]
fn a_full_ring_takes_no_more_and_tells_of_room_once_half_of_it_is_free() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    let (mut written, mut ring) = (0, false);
    for _ in 0..PLACES {
        assert!(linux::send(&shared, &mut written, 60, OWN[0], &mut ring));
    }
    assert!(!linux::send(&shared, &mut written, 60, OWN[0], &mut ring));
    for number in 1..=PLACES {
        assert!(take(&view, &mut realm.receiver).is_some());
        realm.receiver.tell(&view, &view);
        assert_eq!(view.rings() > 0, number >= PLACES / 2, "{number}");
    }
    linux::up(&shared, true);
    for _ in 0..PLACES {
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
    let (mut written, mut ring) = (0, false);
    linux::send(&shared, &mut written, 60, OWN[0], &mut ring);
    assert!(!ring && !realm.kind.has_interrupted(&view), "nobody has asked");
    assert!(realm.kind.let_interrupt(&view, &view, &realm.receiver), "one is there");
    assert!(take(&view, &mut realm.receiver).is_some());
    assert!(!realm.kind.let_interrupt(&view, &view, &realm.receiver));
    assert!(!realm.kind.has_interrupted(&view), "Linux has rung for something else");
    linux::send(&shared, &mut written, 60, OWN[0], &mut ring);
    assert!(ring && realm.kind.has_interrupted(&view));
    realm.kind.mask(&view, &view);
    assert!(!realm.kind.has_interrupted(&view));
    linux::send(&shared, &mut written, 60, OWN[0], &mut ring);
    assert!(!ring);
}

#[test]
fn what_is_for_others_is_left_out() {
    let shared = Shared::new();
    let (view, mut realm) = start(&shared);
    let (mut written, mut filter) = (0, Filter::default());
    let mut comes = |to: u8, filter: &Filter| {
        realm.kind.set_filter(&view, &view, filter, OWN);
        linux::send(&shared, &mut written, 60, to, &mut false);
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

#[test]
fn the_longest_frame_lies_in_one_piece_wherever_it_begins() {
    let takes = ETHERNET_LONGEST.div_ceil(ETHERNET_PLACE) as u64;
    for before in 0..PLACES {
        let shared = Shared::new();
        let (view, mut realm) = start(&shared);
        linux::up(&shared, true);
        let (mut written, mut taken, mut length, mut value) = (0, 0, 0, 0);
        for _ in 0..before {
            assert!(linux::send(&shared, &mut written, 60, OWN[0], &mut false));
            assert!(take(&view, &mut realm.receiver).is_some());
            assert_eq!(realm.transmitter.transmit(&view, &view, &[1; 60]), Ok(()));
            linux::take(&shared, &mut taken, &mut length, &mut value);
        }
        let skipped = if takes <= PLACES - before { 0 } else { PLACES - before };
        let longest = [OWN[0]; ETHERNET_LONGEST];
        let mut sent = 0;
        while linux::send(&shared, &mut written, longest.len() as u32, OWN[0], &mut false) {
            sent += 1;
            assert_eq!(realm.transmitter.transmit(&view, &view, &longest), Ok(()));
        }
        assert_eq!(realm.transmitter.transmit(&view, &view, &longest), Err(NoRoom));
        assert!(!realm.transmitter.has_room(&view, &view), "not for that one");
        assert!(sent >= (PLACES - skipped) / takes - 1, "{sent} from {before} on");
        for _ in 0..sent {
            let found = take(&view, &mut realm.receiver);
            assert_eq!(found, Some(Some((longest.len(), OWN[0]))));
            assert_ne!(linux::take(&shared, &mut taken, &mut length, &mut value), 0);
            assert_eq!((length as usize, value), (longest.len(), OWN[0]));
        }
        assert_eq!(take(&view, &mut realm.receiver), None);
        assert_eq!(linux::take(&shared, &mut taken, &mut length, &mut value), 0);
        assert!(realm.transmitter.has_room(&view, &view));
    }
}

#[test]
fn the_mtu_is_linuxs_within_bounds() {
    let shared = Shared::new();
    let (view, realm) = start(&shared);
    let at = std::mem::offset_of!(Ethernet, mtu) as u64;
    for (told, is) in
        [(0, 68), (68, 68), (1500, 1500), (9000, 9000), (9001, 9000), (u64::MAX, 9000)]
    {
        view.store(at, told);
        assert_eq!(realm.kind.mtu(&view), Some(is));
    }
    const { assert!(ETHERNET_MOST_MTU == 9000) };
}

/// Both ends at once, each of which sleeps until it is rung.
#[test]
fn no_notification_is_lost() {
    const MANY: u64 = 20_000;
    // One in 16 takes many places.
    let length_of = |number: u64| if number % 16 == 7 { ETHERNET_LONGEST as u32 } else { 60 };
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
            let mut written = 0;
            for number in 0..MANY {
                let mut ring = false;
                // It has asked for room when it looks the second time.
                let length = length_of(number);
                let mut send = || linux::send(&shared, &mut written, length, OWN[0], &mut ring);
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
                while let Some(found) = take(&view, &mut receiver) {
                    assert_eq!(found, Some((length_of(count) as usize, OWN[0])));
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
                let frame = vec![number as u8; length_of(number) as usize];
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
            let (mut taken, mut count, mut length, mut value) = (0, 0, 0, 0);
            while count < MANY {
                while linux::take(&shared, &mut taken, &mut length, &mut value) != 0 {
                    // 0xff is what the other end says of bytes that differ.
                    assert_eq!((length, value), (length_of(count), count as u8));
                    count += 1;
                }
                if count < MANY && !linux::want_frames(&shared, taken) {
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
    let value = || {
        let length = ETHERNET_LONGEST as u64;
        let edges = prop_oneof![Just(0), Just(1), Just(u64::MAX), length - 9..length + 9];
        prop_oneof![edges, 0..100_u64, 0..length, any::<u64>(), u64::MAX - 99..]
    };
    let words = size_of::<Ethernet>() as u64 / 8;
    let step = prop_oneof![
        (0..words, value()).prop_map(|(word, value)| Step::Scribble(word, value)),
        (any::<u8>(), value()).prop_map(|(which, value)| Step::Index(which, value)),
        Just(Step::Receive),
        (0..ETHERNET_LONGEST + 100).prop_map(Step::Transmit),
        Just(Step::Interrupt),
    ];
    proptest::collection::vec(step, 1..200)
}

/// What a hostile realm and Linux do.
#[derive(Clone, Debug)]
enum Turn {
    Scribble(u64, u64),
    Index(u64),
    Length(u64, u64),
    Take,
    Send(u32),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let value = || {
        let length = ETHERNET_LONGEST as u64;
        prop_oneof![Just(0), Just(u64::MAX), 0..100_u64, 0..length + 9, any::<u64>()]
    };
    let words = size_of::<Ethernet>() as u64 / 8;
    let turn = prop_oneof![
        (0..words, value()).prop_map(|(word, value)| Turn::Scribble(word, value)),
        (0..70_u64).prop_map(Turn::Index),
        (0..PLACES, value()).prop_map(|(place, value)| Turn::Length(place, value)),
        Just(Turn::Take),
        (1..ETHERNET_LONGEST as u32 + 1).prop_map(Turn::Send),
    ];
    proptest::collection::vec(turn, 1..200)
}

proptest! {
    /// No frame of it is longer than the longest or ends behind the ring, and Linux finds an end
    /// soon.
    #[test]
    fn a_realm_that_writes_anything_breaks_nothing(turns in turns()) {
        let shared = Shared::new();
        let view = View { channel: shared.view(), rings: AtomicU64::new(0) };
        let (mut taken, mut written, mut length, mut value) = (0, 0, 0, 0);
        let ring = std::mem::offset_of!(Ethernet, to_linux) as u64;
        let at = |what: usize| ring + what as u64;
        for turn in turns {
            match turn {
                Turn::Scribble(word, value) => view.store(8 * word, value),
                Turn::Index(ahead) => {
                    let at = at(std::mem::offset_of!(EthernetRing, written));
                    view.store(at, u64::wrapping_add(taken, ahead));
                }
                Turn::Length(place, value) => {
                    view.store(at(std::mem::offset_of!(EthernetRing, lengths)) + 8 * place, value);
                }
                Turn::Take => {
                    let mut count = 0;
                    loop {
                        let before: u64 = taken;
                        let waiting = linux::take(&shared, &mut taken, &mut length, &mut value);
                        if waiting == 0 {
                            break;
                        }
                        count += 1;
                        prop_assert!(count <= PLACES && length as usize <= ETHERNET_LONGEST);
                        if length > 0 {
                            let places = u64::from(length).div_ceil(ETHERNET_PLACE as u64);
                            let moved = taken.wrapping_sub(before);
                            prop_assert!(places <= moved && moved <= waiting);
                            let begin = taken.wrapping_sub(places) % PLACES;
                            prop_assert!(begin + places <= PLACES);
                        }
                    }
                }
                Turn::Send(length) => {
                    let before: u64 = written;
                    if linux::send(&shared, &mut written, length, 1, &mut false) {
                        let places = u64::from(length).div_ceil(ETHERNET_PLACE as u64);
                        prop_assert!(written.wrapping_sub(before) >= places);
                        prop_assert!(written.wrapping_sub(places) % PLACES + places <= PLACES);
                    }
                }
            }
        }
    }

    #[test]
    fn a_linux_that_writes_anything_breaks_nothing(steps in steps()) {
        let shared = Shared::new();
        let (view, mut realm) = start(&shared);
        // Where the words lie that count: of both rings, and the length of a place.
        let ring = size_of::<EthernetRing>() as u64;
        let words = [0, 8, 64, 128, 136, 192, 200]
            .into_iter()
            .chain((256..).step_by(8).take(ETHERNET_PLACES))
            .flat_map(|word| [word, word + ring]);
        let words: Vec<u64> = words.collect();
        for step in steps {
            let before = view.rings();
            match step {
                Step::Scribble(word, value) => view.store(8 * word, value),
                Step::Index(which, value) => {
                    view.store(words[which as usize % words.len()], value);
                }
                Step::Receive => {
                    let mut buffer = [0; ETHERNET_LONGEST];
                    // Whatever the index is, the ring is empty soon.
                    let mut taken = 0;
                    while let Some(found) = realm.receiver.receive(&view, &view, &mut buffer) {
                        taken += 1;
                        prop_assert!(taken <= PLACES);
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
