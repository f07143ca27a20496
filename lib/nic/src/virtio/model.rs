// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network device of virtio that tests play: as much of it as a driver that is right sees. It
//! reaches its memory at an address of its own, and nothing else: what it is told beyond that fails
//! the test. A test may have it lie.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    vec,
    vec::Vec,
};

use virtio_spec::{DeviceStatus, net::F};

use super::{Common, LINK_STATUS, NO_MESSAGE, Virtio};
use crate::{
    HardwareAddress,
    card::{Kind, Memory, Registers},
    reception::is_group,
};

/// Where the device finds the memory.
pub const BASE: u64 = 0x1_2000_0000;
/// Where it has its structures, each of so many bytes, and the bytes between the places where it is
/// notified.
const COMMON: u32 = 0x0000;
const DEVICE: u32 = 0x2000;
const NOTIFY: u32 = 0x3000;
const LENGTH: u32 = 0x1000;
const MULTIPLIER: u32 = 4;

/// Reads its configuration space: its capabilities, after one of another kind.
pub fn configuration(register: u64) -> u32 {
    let capabilities: [(u64, &[u32]); 5] = [
        (0x34, &[0x40]),
        (0x40, &[0x0010_5011, 1, 0x801]),
        (0x50, &[0x0110_6009, 4, COMMON, LENGTH]),
        (0x60, &[0x0410_7009, 4, DEVICE, LENGTH]),
        (0x70, &[0x0214_0009, 4, NOTIFY, LENGTH, MULTIPLIER]),
    ];
    let word = capabilities
        .iter()
        .find_map(|(at, words)| words.get(usize::try_from(register.checked_sub(*at)? / 4).ok()?));
    word.copied().unwrap_or(0)
}

/// A queue, as the device has been told of it.
#[derive(Clone, Debug, Default)]
struct Told {
    registers: BTreeMap<u32, u32>,
    /// Entries that it has looked at.
    seen: u16,
    /// Entries that it has written.
    used: u16,
}

impl Told {
    fn get(&self, register: Common) -> u32 {
        self.registers.get(&register.0).copied().unwrap_or(0)
    }

    /// The address of its descriptors, of the driver's ring, or of its own.
    fn part(&self, part: u32) -> u64 {
        let half = |at| u64::from(self.registers.get(&at).copied().unwrap_or(0));
        let at = Common::ADDRESSES + 8 * part;
        half(at) | half(at + 4) << 32
    }
}

/// A chain of descriptors: the number of its first, what the device may read, and where it may
/// write how many bytes.
struct Chain {
    first: u16,
    reads: Vec<u8>,
    writes: Vec<(u64, u32)>,
}

/// Which frames it receives.
#[derive(Clone, Debug, Default)]
struct Filter {
    all: bool,
    groups: bool,
    own: Vec<HardwareAddress>,
    known: Vec<HardwareAddress>,
}

/// The device, and its memory.
#[derive(Debug)]
pub struct Model {
    memory: RefCell<Vec<u8>>,
    registers: RefCell<BTreeMap<u32, u32>>,
    queues: RefCell<[Told; 3]>,
    filter: RefCell<Filter>,
    /// What it offers.
    pub offers: Cell<F>,
    /// Most descriptors of a queue.
    pub most: Cell<u16>,
    /// It does nothing of what it was given just now.
    pub is_stuck: Cell<bool>,
    /// It refuses commands, and what it does not know of.
    pub refuses: Cell<bool>,
    /// Its cable leads to nobody.
    pub is_alone: Cell<bool>,
    /// What it has sent.
    pub sent: RefCell<Vec<Vec<u8>>>,
    interrupts: Cell<u32>,
    notices: Cell<u32>,
}

impl Default for Model {
    fn default() -> Self {
        let offers = F::VERSION_1 | F::ACCESS_PLATFORM | F::MAC | F::STATUS | F::MTU;
        let others = F::CTRL_VQ | F::CTRL_RX | F::MRG_RXBUF | F::CSUM | F::EVENT_IDX;
        Self {
            memory: RefCell::new(vec![0; Virtio::MEMORY as usize]),
            registers: RefCell::default(),
            queues: RefCell::default(),
            filter: RefCell::new(Filter { all: true, ..Filter::default() }),
            offers: Cell::new(offers | others),
            most: Cell::new(256),
            is_stuck: Cell::new(false),
            refuses: Cell::new(false),
            is_alone: Cell::new(false),
            sent: RefCell::default(),
            interrupts: Cell::new(0),
            notices: Cell::new(0),
        }
    }
}

impl Model {
    fn get(&self, register: Common) -> u32 {
        self.registers.borrow().get(&register.0).copied().unwrap_or(0)
    }

    /// How often it has interrupted since this was asked.
    pub fn take_interrupts(&self) -> u32 {
        self.interrupts.take()
    }

    /// How often it was notified since this was asked.
    pub fn take_notices(&self) -> u32 {
        self.notices.take()
    }

    /// Features that the driver has taken.
    pub fn taken(&self) -> F {
        let word = |at| self.registers.borrow().get(&at).copied().unwrap_or(0);
        let bits = u64::from(word(0x1000)) | u64::from(word(0x1001)) << 32;
        F::from_bits_truncate(u128::from(bits).into())
    }

    /// Copies from an address of its own.
    fn fetch(&self, address: u64, to: &mut [u8]) {
        Memory::read(self, address - BASE, to);
    }

    /// Copies there.
    fn put(&self, address: u64, from: &[u8]) {
        Memory::write(self, address - BASE, from);
    }

    fn bytes<const COUNT: usize>(&self, address: u64) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.fetch(address, &mut bytes);
        bytes
    }

    fn short(&self, address: u64) -> u16 {
        assert!(address.is_multiple_of(2));
        u16::from_le_bytes(self.bytes(address))
    }

    /// The next chain of a queue that the driver has offered.
    fn next(&self, queue: usize) -> Option<Chain> {
        let told = &mut self.queues.borrow_mut()[queue];
        assert_eq!(told.get(Common::ENABLE), 1);
        let (size, ring) = (told.get(Common::SIZE) as u16, told.part(1));
        let waiting = self.short(ring + 2).wrapping_sub(told.seen);
        assert!(waiting <= size, "more than the queue has");
        if waiting == 0 {
            return None;
        }
        let first = self.short(ring + 4 + 2 * u64::from(told.seen % size));
        told.seen = told.seen.wrapping_add(1);
        let (mut reads, mut writes, mut next) = (Vec::new(), Vec::new(), Some(first));
        while let Some(number) = next {
            assert!(number < size);
            let at = told.part(0) + 16 * u64::from(number);
            let address = u64::from_le_bytes(self.bytes(at));
            let length = u32::from_le_bytes(self.bytes(at + 8));
            let flags = self.short(at + 12);
            next = (flags & 1 != 0).then(|| self.short(at + 14));
            if flags & 2 != 0 {
                writes.push((address, length));
                continue;
            }
            let mut bytes = vec![0; length as usize];
            self.fetch(address, &mut bytes);
            reads.extend(bytes);
        }
        Some(Chain { first, reads, writes })
    }

    /// The device writes an entry of its ring, and interrupts if it is asked to.
    pub fn write_entry(&self, queue: usize, first: u32, length: u32) {
        let told = &mut self.queues.borrow_mut()[queue];
        let size = told.get(Common::SIZE) as u16;
        let entry = told.part(2) + 4 + 8 * u64::from(told.used % size);
        self.put(entry, &first.to_le_bytes());
        self.put(entry + 4, &length.to_le_bytes());
        told.used = told.used.wrapping_add(1);
        self.put(told.part(2) + 2, &told.used.to_le_bytes());
        let is_asked = self.short(told.part(1)) & 1 == 0;
        if is_asked && told.get(Common::QUEUE_MESSAGE) != NO_MESSAGE {
            self.interrupts.set(self.interrupts.get() + 1);
        }
    }

    /// The device's index jumps by so many entries.
    pub fn jump(&self, queue: usize, by: u16) {
        let told = &mut self.queues.borrow_mut()[queue];
        told.used = told.used.wrapping_add(by);
        self.put(told.part(2) + 2, &told.used.to_le_bytes());
    }

    /// The device asks to be notified, or not to be.
    pub fn ask_for_notices(&self, queue: usize, on: bool) {
        let at = self.queues.borrow()[queue].part(2);
        self.put(at, &u16::from(!on).to_le_bytes());
    }

    fn wants(&self, frame: &[u8]) -> bool {
        let to: HardwareAddress = *frame.first_chunk().expect("an address");
        let filter = self.filter.borrow();
        filter.all
            || to == [0xff; 6]
            || is_group(&to) && (filter.groups || filter.known.contains(&to))
            || filter.own.contains(&to)
    }

    /// A frame comes over the wire; says whether it was received.
    pub fn receive(&self, frame: &[u8]) -> bool {
        let works = self.get(Common::STATUS) == 0xf && self.wants(frame);
        let Some(Chain { first, reads, writes }) = works.then(|| self.next(0)).flatten() else {
            return false;
        };
        let [(address, length)] = writes[..] else { panic!("one buffer") };
        assert!(reads.is_empty() && length as usize >= 12 + frame.len());
        let header = [0; 10].into_iter().chain([1, 0]).collect::<Vec<u8>>();
        self.put(address, &header);
        self.put(address + 12, frame);
        self.write_entry(0, first.into(), 12 + frame.len() as u32);
        true
    }

    /// It does what it was given: sends, and obeys commands.
    pub fn work(&self) {
        if self.is_stuck.get() {
            return;
        }
        while let Some(Chain { first, reads, writes }) = self.next(1) {
            assert!(writes.is_empty() && reads[..12] == [0; 12]);
            self.sent.borrow_mut().push(reads[12..].to_vec());
            self.write_entry(1, first.into(), 0);
        }
        while self.queues.borrow()[2].get(Common::ENABLE) == 1 {
            let Some(Chain { first, reads, writes }) = self.next(2) else { break };
            let [(address, 1)] = writes[..] else { panic!("room for an answer") };
            let well = !self.refuses.get() && self.obey(&reads);
            self.put(address, &[u8::from(!well)]);
            self.write_entry(2, first.into(), 1);
        }
    }

    fn obey(&self, command: &[u8]) -> bool {
        let filter = &mut *self.filter.borrow_mut();
        match *command {
            [0, 0, on] => filter.all = on != 0,
            [0, 1, on] => filter.groups = on != 0,
            [1, 0, ref tables @ ..] => {
                let mut rest = tables;
                for table in [&mut filter.own, &mut filter.known] {
                    let (count, behind) = rest.split_first_chunk().expect("a count");
                    let bytes = 6 * u32::from_le_bytes(*count) as usize;
                    let (addresses, behind) = behind.split_at(bytes);
                    *table = addresses.as_chunks().0.to_vec();
                    rest = behind;
                }
                assert!(rest.is_empty());
            }
            _ => return false,
        }
        true
    }

    fn write_common(&self, at: u32, value: u32) {
        match at {
            _ if at == Common::STATUS.0 && value == 0 => {
                *self.queues.borrow_mut() = Default::default();
                self.registers.borrow_mut().clear();
                *self.filter.borrow_mut() = Filter { all: true, ..Filter::default() };
            }
            _ if at == Common::STATUS.0 => {
                let mut status = DeviceStatus::from_bits_retain(value as u8);
                if self.refuses.get() || !self.offers.get().contains(self.taken()) {
                    status.remove(DeviceStatus::FEATURES_OK);
                }
                self.registers.borrow_mut().insert(at, status.bits().into());
            }
            _ if at == Common::TAKEN.0 => {
                let at = 0x1000 + self.get(Common::TAKEN_SELECT);
                self.registers.borrow_mut().insert(at, value);
            }
            _ if at >= Common::SIZE.0 => {
                let number = self.get(Common::QUEUE) as usize;
                let told = &mut self.queues.borrow_mut()[number];
                assert_eq!(told.get(Common::ENABLE), 0, "a queue that is in use");
                told.registers.insert(at, value);
            }
            _ => drop(self.registers.borrow_mut().insert(at, value)),
        }
    }
}

impl Registers for Model {
    fn read_bytes(&self, register: u32, bytes: usize) -> u32 {
        assert!(register.is_multiple_of(bytes as u32));
        let queue = self.get(Common::QUEUE);
        match register - COMMON {
            0x04 => {
                let bits = self.offers.get().bits().to_ne();
                (bits >> (32 * self.get(Common::OFFERED_SELECT))) as u32
            }
            0x18 => self.most.get().into(),
            0x1e => queue,
            0x1a => self.queues.borrow()[queue as usize].get(Common::QUEUE_MESSAGE),
            register if register < Common::END => {
                self.registers.borrow().get(&register).copied().unwrap_or(0)
            }
            _ if register == DEVICE + LINK_STATUS => u32::from(!self.is_alone.get()),
            _ => panic!("nothing is there"),
        }
    }

    fn write_bytes(&self, register: u32, bytes: usize, value: u32) {
        assert!(register.is_multiple_of(bytes as u32));
        if register < COMMON + Common::END {
            return self.write_common(register - COMMON, value);
        }
        assert_eq!((register, bytes), (NOTIFY + value * MULTIPLIER, 2));
        self.notices.set(self.notices.get() + 1);
        self.work();
    }
}

impl Memory for Model {
    fn load(&self, offset: u64) -> u64 {
        assert!(offset.is_multiple_of(8));
        let memory = self.memory.borrow();
        u64::from_le_bytes(*memory[offset as usize..].first_chunk().expect("in the memory"))
    }

    fn store(&self, offset: u64, value: u64) {
        assert!(offset.is_multiple_of(8));
        Memory::write(self, offset, &value.to_le_bytes());
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        to.copy_from_slice(&self.memory.borrow()[offset as usize..][..to.len()]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.memory.borrow_mut()[offset as usize..][..from.len()].copy_from_slice(from);
    }
}
