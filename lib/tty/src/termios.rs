// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a terminal (termios(3)), as Linux keeps them.

use linux_raw_sys::general as linux;

use crate::speed;

/// Special characters of a terminal.
pub const CHARACTERS: usize = 19;

/// Bytes of a `struct termios`, and of a `struct termios2`, which has both speeds besides.
pub const SIZE: usize = 36;
/// The same of a `struct termios2`.
pub const SIZE_2: usize = 44;

/// The settings of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Termios {
    /// `c_iflag`: what is done with input.
    pub input: u32,
    /// `c_oflag`: what is done with output.
    pub output: u32,
    /// `c_cflag`: how the line is driven.
    pub control: u32,
    /// `c_lflag`: lines, signals and echo.
    pub local: u32,
    /// `c_line`: the line discipline.
    pub discipline: u8,
    /// `c_cc`: the special characters by `V*`; 0 stands for none.
    pub characters: [u8; CHARACTERS],
    /// `c_ispeed` in baud. The 16550 receives at the speed at which it sends, so nothing follows
    /// from it.
    pub input_speed: u32,
    /// `c_ospeed` in baud, which counts where the control flags say BOTHER.
    pub output_speed: u32,
}

impl Default for Termios {
    /// What a serial line has until somebody changes it (`tty_std_termios`).
    fn default() -> Self {
        let mut characters = [0; CHARACTERS];
        let usual = [
            (linux::VINTR, 3),
            (linux::VQUIT, 0x1c),
            (linux::VERASE, 0x7f),
            (linux::VKILL, 0x15),
            (linux::VEOF, 4),
            (linux::VMIN, 1),
            (linux::VSTART, 0x11),
            (linux::VSTOP, 0x13),
            (linux::VSUSP, 0x1a),
            (linux::VREPRINT, 0x12),
            (linux::VDISCARD, 0xf),
            (linux::VWERASE, 0x17),
            (linux::VLNEXT, 0x16),
        ];
        for (which, character) in usual {
            characters[which as usize] = character;
        }
        Self {
            input: linux::ICRNL | linux::IXON,
            output: linux::OPOST | linux::ONLCR,
            control: linux::B9600 | linux::CS8 | linux::CREAD | linux::HUPCL | linux::CLOCAL,
            local: linux::ISIG
                | linux::ICANON
                | linux::ECHO
                | linux::ECHOE
                | linux::ECHOK
                | linux::ECHOCTL
                | linux::ECHOKE
                | linux::IEXTEN,
            discipline: 0,
            characters,
            input_speed: 9600,
            output_speed: 9600,
        }
    }
}

impl Termios {
    /// Returns the `struct termios`.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let flags = [self.input, self.output, self.control, self.local];
        for (place, word) in bytes.chunks_exact_mut(4).zip(flags) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16] = self.discipline;
        bytes[17..].copy_from_slice(&self.characters);
        bytes
    }

    /// Returns what a `struct termios` says. The speeds are those of the codes, or of `before`
    /// where the codes say BOTHER.
    pub fn from_bytes(bytes: &[u8; SIZE], before: &Self) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut characters = [0; CHARACTERS];
        characters.copy_from_slice(&bytes[17..]);
        let mut termios = Self {
            input: word(0),
            output: word(4),
            control: word(8),
            local: word(12),
            discipline: bytes[16],
            characters,
            ..*before
        };
        termios.settle_speeds();
        termios
    }

    /// Returns the `struct termios2`.
    pub fn to_bytes_2(&self) -> [u8; SIZE_2] {
        let mut bytes = [0; SIZE_2];
        bytes[..SIZE].copy_from_slice(&self.to_bytes());
        bytes[36..40].copy_from_slice(&self.input_speed.to_le_bytes());
        bytes[40..].copy_from_slice(&self.output_speed.to_le_bytes());
        bytes
    }

    /// Returns what a `struct termios2` says.
    pub fn from_bytes_2(bytes: &[u8; SIZE_2]) -> Self {
        let (first, speeds) = bytes.split_at(SIZE);
        let word = |at: usize| {
            u32::from_le_bytes([speeds[at], speeds[at + 1], speeds[at + 2], speeds[at + 3]])
        };
        let before = Self { input_speed: word(0), output_speed: word(4), ..Self::default() };
        let mut flags = [0; SIZE];
        flags.copy_from_slice(first);
        Self::from_bytes(&flags, &before)
    }

    /// Makes both speeds those that the flags say.
    fn settle_speeds(&mut self) {
        self.output_speed = self.speed();
        let code = self.control >> linux::IBSHIFT & linux::CBAUD;
        self.input_speed = match code {
            linux::B0 => self.output_speed,
            linux::BOTHER => self.input_speed,
            code => speed::of_code(code).unwrap_or(self.output_speed),
        };
    }

    /// Returns the speed in baud, 0 for hanging up.
    pub fn speed(&self) -> u32 {
        match self.control & linux::CBAUD {
            linux::BOTHER => self.output_speed,
            code => speed::of_code(code).unwrap_or(0),
        }
    }

    /// Sets both speeds, in baud: by the code of that speed, or by BOTHER if there is none or the
    /// flags say BOTHER already and there is none.
    pub fn set_speed(&mut self, baud: u32) {
        let code = speed::code(baud).unwrap_or(linux::BOTHER);
        self.control = self.control & !linux::CBAUD | code;
        if self.control & linux::CIBAUD != 0 {
            self.control = self.control & !linux::CIBAUD | code << linux::IBSHIFT;
        }
        (self.input_speed, self.output_speed) = (baud, baud);
    }

    /// Says whether any of these flags of `c_iflag` is set.
    pub fn has_input(&self, flags: u32) -> bool {
        self.input & flags != 0
    }

    /// Says whether any of these flags of `c_oflag` is set.
    pub fn has_output(&self, flags: u32) -> bool {
        self.output & flags != 0
    }

    /// Says whether any of these flags of `c_cflag` is set.
    pub fn has_control(&self, flags: u32) -> bool {
        self.control & flags != 0
    }

    /// Says whether any of these flags of `c_lflag` is set.
    pub fn has_local(&self, flags: u32) -> bool {
        self.local & flags != 0
    }

    /// Returns the special character `V*`; `None` if there is none.
    pub fn character(&self, which: u32) -> Option<u8> {
        self.characters.get(which as usize).copied().filter(|&character| character != 0)
    }

    /// Says whether a byte is the special character `V*`.
    pub fn is(&self, which: u32, byte: u8) -> bool {
        self.character(which) == Some(byte)
    }

    /// Bits of a character on the line, without parity: 5 to 8.
    pub fn bits(&self) -> u32 {
        5 + (self.control & linux::CSIZE) / linux::CS6
    }

    /// Bits that a character takes on the line, with start, parity and stop.
    pub fn frame_bits(&self) -> u32 {
        let parity = u32::from(self.has_control(linux::PARENB));
        let stop = 1 + u32::from(self.has_control(linux::CSTOPB));
        1 + self.bits() + parity + stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_keep_all() {
        let mut termios = Termios::default();
        termios.set_speed(250_000);
        assert_eq!(termios.speed(), 250_000);
        assert_eq!(Termios::from_bytes_2(&termios.to_bytes_2()), termios);
        termios.set_speed(115_200);
        assert_eq!(termios.control & linux::CBAUD, linux::B115200);
        let again = Termios::from_bytes(&termios.to_bytes(), &Termios::default());
        assert_eq!(again, termios);
    }

    #[test]
    fn a_frame_has_its_bits() {
        let mut termios = Termios::default();
        assert_eq!((termios.bits(), termios.frame_bits()), (8, 10));
        termios.control =
            termios.control & !linux::CSIZE | linux::CS7 | linux::PARENB | linux::CSTOPB;
        assert_eq!((termios.bits(), termios.frame_bits()), (7, 11));
    }
}
