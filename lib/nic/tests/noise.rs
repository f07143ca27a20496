// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cards that answer anything, and change what both share at any time: whatever is read, drivers
//! stay within the registers and the memory, make a bounded number of accesses, and give frames
//! that lie in their buffers.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use crtos_nic::{
    HardwareAddress,
    card::{BUFFER, Found, Kind, Memory, NoRoom, Receive, Registers, Transmit},
    ethernet::VirtualEthernet,
    intel::{e1000e::E1000e, igb::Igb},
    reception::{Filter, Reception},
    virtio::{Virtio, model::configuration},
};
use proptest::prelude::*;

const OWN: HardwareAddress = [2, 0, 0, 0, 0, 1];
const BASE: u64 = 0x1_2000_0000;
/// Most accesses of an operation: the start looks at some registers 10,000 times each.
const AT_START: u32 = 100_000;
const LATER: u32 = 1000;

/// A card and its memory.
struct Noise {
    state: Cell<u64>,
    /// The last answer, and how often an answer is another one: one time of so many.
    last: Cell<u64>,
    constancy: u64,
    registers: u64,
    memory: u64,
    accesses: Cell<u32>,
    /// What registers answer while the card is started, so that some starts succeed, and what was
    /// written to others.
    known: RefCell<BTreeMap<u32, u32>>,
    is_sound: Cell<bool>,
}

impl Noise {
    fn new(seed: u64, constancy: u64, memory: u64, known: &[(u32, u32)]) -> Self {
        let noise = Self {
            state: Cell::new(seed | 1),
            last: Cell::new(0),
            constancy,
            registers: 0,
            memory,
            accesses: Cell::new(0),
            known: RefCell::new(known.iter().copied().collect()),
            is_sound: Cell::new(false),
        };
        noise.is_sound.set(noise.draw().is_multiple_of(2));
        noise
    }

    /// A number (Marsaglia's xorshift).
    fn draw(&self) -> u64 {
        let mut state = self.state.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        state
    }

    fn answer(&self) -> u64 {
        self.accesses.set(self.accesses.get() + 1);
        if self.draw().is_multiple_of(self.constancy) {
            let number = self.draw();
            self.last.set(match self.draw() % 6 {
                0 => 0,
                1 => u64::MAX,
                2 => number % 300,
                3 => 1 << (number % 64),
                // The ends of frames, of all kinds, with any length.
                4 => number & 0xffff | 3 << 32 | 3 | number << 48 | (number % 2200) << 32,
                _ => number,
            });
        }
        self.last.get()
    }

    fn take_accesses(&self) -> u32 {
        self.accesses.take()
    }
}

impl Registers for Noise {
    fn read_bytes(&self, register: u32, bytes: usize) -> u32 {
        let known = self.known.borrow().get(&register).copied();
        self.write_bytes(register, bytes, known.unwrap_or(0));
        match known {
            Some(known) if self.is_sound.get() => known,
            _ => (self.answer() & (u64::MAX >> (64 - 8 * bytes))) as u32,
        }
    }

    fn write_bytes(&self, register: u32, bytes: usize, value: u32) {
        self.known.borrow_mut().insert(register, value);
        let (register, bytes) = (u64::from(register), bytes as u64);
        assert!([1, 2, 4].contains(&bytes) && register.is_multiple_of(bytes));
        assert!(self.registers == 0 || register + bytes <= self.registers);
        self.accesses.set(self.accesses.get() + 1);
    }
}

impl Memory for Noise {
    fn load(&self, offset: u64) -> u64 {
        self.store(offset, 0);
        self.answer()
    }

    fn store(&self, offset: u64, _: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.memory);
        self.accesses.set(self.accesses.get() + 1);
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        Memory::write(self, offset, to);
        to.fill(self.draw() as u8);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        assert!(offset + from.len() as u64 <= self.memory);
        self.accesses.set(self.accesses.get() + 1);
    }
}

/// Has a driver do anything, with a card that is `noise`.
fn harass<K: Kind>(mut noise: Noise, steps: &[(u8, usize)]) {
    let is_sound = noise.is_sound.get();
    let word = |register| if is_sound { configuration(register) } else { noise.answer() as u32 };
    let Some(kind) = K::find(word) else { return };
    noise.take_accesses();
    noise.registers = kind.place().length;
    kind.reset(&noise);
    kind.is_reset(&noise);
    let started = kind.start(&noise, &noise, BASE, OWN);
    assert!(noise.take_accesses() <= AT_START);
    let Ok((mut receiver, mut transmitter)) = started else { return };
    noise.is_sound.set(false);
    let mut buffer = vec![0; BUFFER.max(K::LONGEST)];
    let mut filter = Filter::default();
    for &(step, length) in steps {
        match step {
            0 => {
                if let Some(Found::Frame(frame)) = receiver.receive(&noise, &noise, &mut buffer) {
                    assert!(frame.length <= buffer.len());
                }
            }
            1 => drop(receiver.has_more(&noise)),
            2 => receiver.tell(&noise, &noise),
            3 => drop(transmitter.has_room(&noise, &noise)),
            4 => {
                let frame = vec![7; length];
                let sent = transmitter.transmit(&noise, &noise, &frame);
                assert!(sent == Err(NoRoom) || (1..=buffer.len()).contains(&length));
            }
            5 => drop(kind.let_interrupt(&noise, &noise, &receiver)),
            6 => drop(kind.has_interrupted(&noise)),
            7 => kind.mask(&noise, &noise),
            8 => kind.take_causes(&noise),
            9 => assert!(kind.mtu(&noise).is_none_or(|mtu| (68..=9000).contains(&mtu))),
            10 => drop(kind.has_link(&noise)),
            11 => {
                let all =
                    [Reception::All, Reception::Groups, Reception::Address([length as u8; 6])];
                let _ = filter.admit(all[length % 3]);
                kind.set_filter(&noise, &noise, &filter, OWN);
            }
            _ => drop(kind.filter_progress(&noise)),
        }
        assert!(noise.take_accesses() <= LATER, "step {step}");
    }
}

proptest! {
    #[test]
    fn whatever_a_card_answers(
        seed: u64,
        constancy in prop::sample::select(vec![1u64, 2, 10, 1000]),
        steps in prop::collection::vec((0u8..13, 0usize..9200), 0..300),
    ) {
        let noise = |memory, known| Noise::new(seed, constancy, memory, known);
        harass::<E1000e>(noise(E1000e::MEMORY, &[]), &steps);
        harass::<Igb>(noise(Igb::MEMORY, &[]), &steps);
        // Its features, the sizes of its queues, and where it is notified of them.
        let known = [(0x04, u32::MAX), (0x18, 256), (0x1e, 0)];
        harass::<Virtio>(noise(Virtio::MEMORY, &known), &steps);
        harass::<VirtualEthernet>(noise(VirtualEthernet::MEMORY, &[]), &steps);
    }
}
