// SPDX-License-Identifier: MIT OR Apache-2.0
//! The firmware HostMot2 of a card: its registers, and what they tell of modules and pins (IDROM).
//!
//! A cable joins the first two connectors, pin by pin. A pin that nobody drives is pulled up.
//! Counters do not move: all registers beside these of pins, and of the flash memory, keep what
//! was written.

use super::flash::Flash;

/// Bytes of the registers.
pub const SIZE: u64 = 64 << 10;
const WORDS: usize = SIZE as usize / 4;

/// Where registers are, in bytes.
mod at {
    /// Selects the flash memory; then exchanges bytes with it.
    pub const FLASH_CONTROL: usize = 0x70;
    pub const FLASH_DATA: usize = 0x74;
    pub const COOKIE: usize = 0x100;
    pub const NAME: usize = 0x104;
    pub const IDROM_OFFSET: usize = 0x10c;
    pub const LEDS: usize = 0x200;
    pub const IDROM: usize = 0x400;
    /// Of the IDROM.
    pub const MODULES: usize = 0x40;
    pub const PINS: usize = 0x200;
    pub const IDROM_END: usize = 0x800;
    pub const WATCHDOG: usize = 0xc00;
    /// Levels of the pins of the first connector.
    pub const LEVELS: usize = 0x1000;
    /// Which of them are outputs, and which outputs are inverted.
    pub const DIRECTIONS: usize = 0x1100;
    pub const INVERSIONS: usize = 0x1400;
    pub const STEP_GENERATORS: usize = 0x2000;
    pub const ENCODERS: usize = 0x3000;
    pub const PWM_GENERATORS: usize = 0x4000;
}

const COOKIE: u32 = 0x55aa_cafe;
/// Of the flash memory's control: it is not selected; a byte was exchanged.
const DESELECTED: u32 = 1;
const EXCHANGED: u32 = 4;

/// Tags of modules.
mod tag {
    pub const NONE: u8 = 0;
    pub const WATCHDOG: u8 = 2;
    pub const PINS: u8 = 3;
    pub const ENCODER: u8 = 4;
    pub const STEP_GENERATOR: u8 = 5;
    pub const PWM_GENERATOR: u8 = 6;
    pub const LEDS: u8 = 0x80;
}

/// A module as the IDROM has it.
struct Module {
    tag: u8,
    version: u8,
    /// 1 for the low clock, 2 for the high one.
    clock: u8,
    instances: u8,
    base: usize,
    registers: u8,
    /// A bit for each register of which every instance has its own.
    multiple: u32,
}

const MODULES: &[Module] = &[
    module(tag::WATCHDOG, 0, 1, 1, at::WATCHDOG, 3, 0),
    module(tag::LEDS, 0, 1, 1, at::LEDS, 1, 0),
    module(tag::STEP_GENERATOR, 2, 1, 4, at::STEP_GENERATORS, 10, 0x1ff),
    module(tag::ENCODER, 2, 1, 2, at::ENCODERS, 5, 0x3),
    module(tag::PWM_GENERATOR, 0, 2, 2, at::PWM_GENERATORS, 5, 0x3),
];

const fn module(
    tag: u8,
    version: u8,
    clock: u8,
    instances: u8,
    base: usize,
    registers: u8,
    multiple: u32,
) -> Module {
    Module { tag, version, clock, instances, base, registers, multiple }
}

/// What a pin of a connector can be beside one for all purposes: the module, its instance, and the
/// number of its signal, which has 0x80 for an output.
fn second_function(connector: usize, place: usize) -> (u8, u8, u8) {
    let of = |tag, instance: usize, signal| (tag, instance as u8, signal);
    match (connector, place) {
        (0, 0..8) => of(tag::STEP_GENERATOR, place / 2, 0x81 + place as u8 % 2),
        (0, 8 | 9) => of(tag::PWM_GENERATOR, 0, 0x81 + place as u8 % 2),
        (0, 11..17) => of(tag::ENCODER, (place - 11) / 3, 1 + (place as u8 - 11) % 3),
        (1, 0..2) => of(tag::PWM_GENERATOR, 1, 0x81 + place as u8),
        _ => of(tag::NONE, 0, 0),
    }
}

/// What a board has for pins.
#[derive(Clone, Copy)]
pub struct Connectors {
    /// How many there are, two at least.
    pub count: usize,
    /// Pins of each, 32 at most.
    pub pins: usize,
}

/// A board with that firmware.
pub struct HostMot2 {
    connectors: Connectors,
    words: Box<[u32; WORDS]>,
    flash: Option<Flash>,
    received: u8,
}

impl HostMot2 {
    /// The firmware of a board with that name, of eight letters, and its flash memory, if it has
    /// one.
    pub fn new(board: &[u8; 8], connectors: Connectors, flash: Option<Flash>) -> Self {
        let mut all = Self { connectors, words: Box::new([0; WORDS]), flash, received: 0 };
        let Connectors { count, pins } = connectors;
        all.put(at::COOKIE, &COOKIE.to_le_bytes());
        all.put(at::NAME, b"HOSTMOT2");
        all.put(at::IDROM_OFFSET, &(at::IDROM as u32).to_le_bytes());
        let offsets = [3, at::MODULES as u32, at::PINS as u32];
        all.put_words(at::IDROM, &offsets);
        all.put(at::IDROM + 0x0c, board);
        // Gates in thousands and pins of the FPGA; connectors, their pins, those of one.
        let all_pins = (count * pins) as u32;
        all.put_words(at::IDROM + 0x14, &[9, 144, count as u32, all_pins, pins as u32]);
        // Both clocks in Hz, distances of instances and of registers in bytes.
        all.put_words(at::IDROM + 0x28, &[33_333_333, 200_000_000, 4, 64, 256, 256]);
        let for_pins = module(tag::PINS, 0, 1, count as u8, at::LEVELS, 5, 0x1f);
        for (index, module) in [&for_pins].into_iter().chain(MODULES).enumerate() {
            let Module { tag, version, clock, instances, base, registers, multiple } = module;
            let [low, high] = (*base as u16).to_le_bytes();
            let bytes = [*tag, *version, *clock, *instances, low, high, *registers, 0];
            all.put(at::IDROM + at::MODULES + 12 * index, &bytes);
            all.put_words(at::IDROM + at::MODULES + 12 * index + 8, &[*multiple]);
        }
        for pin in 0..count * pins {
            let (tag, instance, signal) = second_function(pin / pins, pin % pins);
            all.put(at::IDROM + at::PINS + 4 * pin, &[signal, tag, instance, tag::PINS]);
        }
        all
    }

    /// Reads registers. Those of less than four bytes are parts of such.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            *byte = self.read_word(at & !3).to_le_bytes()[at % 4];
        }
    }

    /// Writes registers, of four bytes; others the board does not notice.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (at, word) in (offset as usize..).step_by(4).zip(bytes.chunks_exact(4)) {
                self.write_word(at, u32::from_le_bytes(std::array::from_fn(|at| word[at])));
            }
        }
    }

    /// All that programs set is forgotten.
    pub fn reset(&mut self) {
        let written = (at::LEDS..at::IDROM).chain(at::IDROM_END..SIZE as usize);
        written.for_each(|at| self.words[at / 4] = 0);
        if let Some(flash) = &mut self.flash {
            flash.select(false);
        }
    }

    fn read_word(&self, at: usize) -> u32 {
        let connector = at.wrapping_sub(at::LEVELS) / 4;
        match at {
            at::FLASH_CONTROL if self.flash.is_some() => EXCHANGED,
            at::FLASH_DATA if self.flash.is_some() => self.received.into(),
            _ if connector < self.connectors.count => self.levels(connector),
            _ => self.words[at / 4],
        }
    }

    fn write_word(&mut self, at: usize, value: u32) {
        match (at, &mut self.flash) {
            (at::FLASH_CONTROL, Some(flash)) => flash.select(value & DESELECTED == 0),
            (at::FLASH_DATA, Some(flash)) => self.received = flash.exchange(value as u8),
            (..at::LEDS | at::IDROM..at::IDROM_END, _) => {}
            _ => self.words[at / 4] = value,
        }
    }

    /// Levels of the pins of a connector: an output's is its own, an input's that of the output at
    /// the cable's other end.
    fn levels(&self, connector: usize) -> u32 {
        let pins = u32::MAX >> (32 - self.connectors.pins);
        let of = |at: usize, connector: usize| self.words[at / 4 + connector];
        let outputs = |connector| of(at::DIRECTIONS, connector) & pins;
        let driven = |connector| of(at::LEVELS, connector) ^ of(at::INVERSIONS, connector);
        // The third one and those behind it end in the air.
        let end = if connector < 2 { 1 - connector } else { connector };
        let (own, other) = (outputs(connector), outputs(end) & !outputs(connector));
        driven(connector) & own | driven(end) & other | pins & !own & !other
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (word, bytes) in self.words[at / 4..].iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        }
    }

    fn put_words(&mut self, at: usize, words: &[u32]) {
        self.words[at / 4..][..words.len()].copy_from_slice(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PINS: usize = 17;
    const JOINED: Connectors = Connectors { count: 2, pins: PINS };

    fn board() -> HostMot2 {
        HostMot2::new(b"MESA5I25", JOINED, Some(Flash::new(&[7, 8, 9])))
    }

    fn word(board: &mut HostMot2, at: u64) -> u32 {
        let mut bytes = [0; 4];
        board.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn set(board: &mut HostMot2, at: u64, value: u32) {
        board.write(at, &value.to_le_bytes());
    }

    #[test]
    fn it_tells_what_it_is_and_that_stays() {
        let mut board = board();
        set(&mut board, 0x100, 0);
        set(&mut board, 0x440, 0);
        assert_eq!(word(&mut board, 0x100), COOKIE);
        let mut name = [0; 8];
        board.read(0x104, &mut name);
        assert_eq!(&name, b"HOSTMOT2");
        board.read(0x40c, &mut name);
        assert_eq!(&name, b"MESA5I25");
        assert_eq!(word(&mut board, 0x10c), 0x400);
        // Pins, the low clock, two instances; the watchdog, at 0xc00 three registers.
        assert_eq!((word(&mut board, 0x440), word(&mut board, 0x444)), (0x0201_0003, 0x0005_1000));
        assert_eq!((word(&mut board, 0x44c), word(&mut board, 0x450)), (0x0101_0002, 0x0003_0c00));
        // The first pin: step of the first step generator.
        assert_eq!(word(&mut board, 0x600), 0x0300_0581);
        board.reset();
        assert_eq!(word(&mut board, 0x600), 0x0300_0581);
    }

    #[test]
    fn the_flash_memory_is_behind_two_registers() {
        let mut board = board();
        set(&mut board, 0x70, 0);
        for byte in [3, 0, 0, 1, 0] {
            set(&mut board, 0x74, byte);
            assert_eq!(word(&mut board, 0x70) & EXCHANGED, EXCHANGED);
        }
        assert_eq!(word(&mut board, 0x74), 8);
        set(&mut board, 0x70, 1);
        set(&mut board, 0x74, 0);
        assert_eq!(word(&mut board, 0x74), 0xff);
    }

    #[test]
    fn a_narrow_write_is_lost() {
        let mut board = board();
        board.write(0x2000, &[1]);
        board.write(0x2002, &[1, 1, 1, 1]);
        assert_eq!(word(&mut board, 0x2000), 0);
        board.write(0x2000, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            (word(&mut board, 0x2000), word(&mut board, 0x2004)),
            (0x0403_0201, 0x0807_0605)
        );
    }

    #[test]
    fn a_third_connector_ends_in_the_air() {
        let connectors = Connectors { count: 3, pins: 24 };
        let mut board = HostMot2::new(b"MESA5I20", connectors, None);
        set(&mut board, 0x1008, 0x12_3456);
        assert_eq!(word(&mut board, 0x1008), 0xff_ffff);
        set(&mut board, 0x1108, !0);
        assert_eq!(word(&mut board, 0x1008), 0x12_3456);
        assert_eq!((word(&mut board, 0x1000), word(&mut board, 0x1004)), (0xff_ffff, 0xff_ffff));
    }

    proptest! {
        #[test]
        fn a_cable_joins_the_connectors(outputs: [u32; 2], levels: [u32; 2], inverted: [u32; 2]) {
            let mut board = board();
            for connector in 0..2 {
                let at = 4 * connector as u64;
                set(&mut board, 0x1000 + at, levels[connector]);
                set(&mut board, 0x1100 + at, outputs[connector]);
                set(&mut board, 0x1400 + at, inverted[connector]);
            }
            for pin in 0..PINS {
                let drives = |connector: usize| {
                    let of = |word: u32| word >> pin & 1;
                    let level = of(levels[connector] ^ inverted[connector]);
                    (of(outputs[connector]) == 1).then_some(level)
                };
                for connector in 0..2 {
                    let expected = drives(connector).or(drives(1 - connector)).unwrap_or(1);
                    let level = word(&mut board, 0x1000 + 4 * connector as u64) >> pin & 1;
                    prop_assert_eq!(level, expected);
                }
            }
        }

        #[test]
        fn no_access_breaks_it(at in 0..SIZE - 8, bytes in prop::collection::vec(0u8.., 0..8)) {
            let mut board = board();
            board.write(at, &bytes);
            board.read(at, &mut bytes.clone());
        }
    }
}
