// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bit rate and the mode of a controller, as `ip link set can0 type can …` sets them.

use core::str::FromStr;

use bitflags::bitflags;

bitflags! {
    /// What else a controller does: CAN_CTRLMODE_*.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Mode: u32 {
        /// It hears itself, and needs nobody who acknowledges.
        const LOOPBACK = 0x01;
        /// It sends nothing, not even acknowledgements.
        const LISTEN_ONLY = 0x02;
        /// Three samples of each bit.
        const TRIPLE_SAMPLING = 0x04;
        /// It tries to send a frame once.
        const ONE_SHOT = 0x08;
        /// It tells of each error on the bus.
        const BERR_REPORTING = 0x10;
        /// It needs nobody who acknowledges.
        const PRESUME_ACK = 0x40;
    }
}

/// The bit timing and the mode. A bit has `1 + propagation + phase_1 + phase_2` quanta, each of
/// `prescaler` ticks of the controller's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    prescaler: u8,
    /// Quanta before the sample point, but for the first: propagation and the first phase segment.
    before_sample: u8,
    after_sample: u8,
    jump: u8,
    /// What else it does.
    pub mode: Mode,
    /// Milliseconds after which it is started anew when it is off the bus; 0 for never.
    pub restart: u32,
}

impl Settings {
    /// What the numbers mean that Linux has of a bit timing (`struct can_bittiming`), if an SJA1000
    /// can do it.
    pub fn new(
        prescaler: u32,
        before_sample: u32,
        after_sample: u32,
        jump: u32,
        mode: Mode,
        restart: u32,
    ) -> Option<Self> {
        let within = |value: u32, most| (1..=most).contains(&value).then_some(value as u8);
        Some(Self {
            prescaler: within(prescaler, 64)?,
            before_sample: within(before_sample, 16)?,
            after_sample: within(after_sample, 8)?,
            jump: within(jump, 4)?,
            mode,
            restart,
        })
    }

    /// The two registers of bit timing (SJA1000 data sheet, 6.5.1 and 6.5.2).
    pub fn bus_timing(&self) -> [u8; 2] {
        let sampling = if self.mode.contains(Mode::TRIPLE_SAMPLING) { 0x80 } else { 0 };
        [
            (self.jump - 1) << 6 | (self.prescaler - 1),
            sampling | (self.after_sample - 1) << 4 | (self.before_sample - 1),
        ]
    }

    /// The bit rate with a clock of `clock` Hz.
    pub fn bit_rate(&self, clock: u32) -> u32 {
        let quanta = 1 + u32::from(self.before_sample) + u32::from(self.after_sample);
        clock / (u32::from(self.prescaler) * quanta)
    }
}

/// Settings are no such text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSettings;

impl FromStr for Settings {
    type Err = NoSettings;

    /// Reads `PRESCALER/BEFORE-SAMPLE/AFTER-SAMPLE/JUMP/MODE/RESTART`, decimal numbers.
    fn from_str(text: &str) -> Result<Self, NoSettings> {
        let mut numbers = text.split('/').map(|field| field.parse::<u32>().ok());
        let mut next = || numbers.next().flatten().ok_or(NoSettings);
        let (prescaler, before, after, jump) = (next()?, next()?, next()?, next()?);
        let mode = Mode::from_bits(next()?).ok_or(NoSettings)?;
        let settings = Self::new(prescaler, before, after, jump, mode, next()?);
        settings.filter(|_| numbers.next().is_none()).ok_or(NoSettings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_those_that_linux_computes() {
        // 500 kbit/s of 8 MHz, sampled at 87.5 %: brp 1, prop 6, phase 7 and 2, sjw 1.
        let settings: Settings = "1/13/2/1/0/0".parse().unwrap();
        assert_eq!(settings.bus_timing(), [0x00, 0x1c]);
        assert_eq!(settings.bit_rate(8_000_000), 500_000);
        let settings: Settings = "4/13/2/2/4/100".parse().unwrap();
        assert_eq!(settings.bus_timing(), [0x43, 0x9c]);
        assert_eq!((settings.bit_rate(8_000_000), settings.restart), (125_000, 100));
    }

    #[test]
    fn what_the_chip_cannot_do_is_refused() {
        for text in [
            "",
            "1/13/2/1/0",
            "1/13/2/1/0/0/0",
            "0/13/2/1/0/0",
            "65/13/2/1/0/0",
            "1/17/2/1/0/0",
            "1/13/9/1/0/0",
            "1/13/2/5/0/0",
            "1/13/2/1/32/0",
            "a/13/2/1/0/0",
            "1/0/2/1/0/0",
        ] {
            assert_eq!(text.parse::<Settings>(), Err(NoSettings), "{text}");
        }
    }
}
