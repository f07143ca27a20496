// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flash memory that has a card's firmware: a serial one of 1 Mbit, as M25P10-A.

/// Bytes of it, of what is erased at once, and of what is programmed at once.
pub const SIZE: usize = 128 << 10;
const SECTOR: usize = 64 << 10;
const PAGE: usize = 256;
/// Its electronic signature.
const SIGNATURE: u8 = 0x10;
/// Of the status: it can be written to.
const ENABLED: u8 = 2;

/// Instructions.
mod instruction {
    pub const PROGRAM: u8 = 0x02;
    pub const READ: u8 = 0x03;
    pub const WRITE_DISABLE: u8 = 0x04;
    pub const READ_STATUS: u8 = 0x05;
    pub const WRITE_ENABLE: u8 = 0x06;
    pub const READ_SIGNATURE: u8 = 0xab;
    pub const ERASE_SECTOR: u8 = 0xd8;
}

/// The memory. It is written at once.
pub struct Flash {
    bytes: Vec<u8>,
    is_enabled: bool,
    is_selected: bool,
    /// Bytes that came since it was selected: an instruction, an address, data.
    head: [u8; 4],
    count: usize,
    page: [u8; PAGE],
}

impl Flash {
    /// An erased one that begins with `content`.
    pub fn new(content: &[u8]) -> Self {
        let mut bytes = content.to_vec();
        bytes.resize(SIZE, 0xff);
        let (head, page) = ([0; 4], [0xff; PAGE]);
        Self { bytes, is_enabled: false, is_selected: false, head, count: 0, page }
    }

    /// Selects it, or ends the instruction, which is carried out then.
    pub fn select(&mut self, selected: bool) {
        if self.is_selected && !selected {
            self.carry_out();
        }
        if selected && !self.is_selected {
            (self.count, self.page) = (0, [0xff; PAGE]);
        }
        self.is_selected = selected;
    }

    /// Exchanges a byte; all ones come from who is not selected.
    pub fn exchange(&mut self, byte: u8) -> u8 {
        if !self.is_selected {
            return 0xff;
        }
        let at = self.count;
        self.count = self.count.saturating_add(1);
        if let Some(place) = self.head.get_mut(at) {
            *place = byte;
        }
        let data = at.checked_sub(self.head.len());
        match (self.head[0], data) {
            (instruction::READ_STATUS, _) if at > 0 => u8::from(self.is_enabled) * ENABLED,
            (instruction::READ, Some(index)) => self.bytes[(self.address() + index) % SIZE],
            (instruction::READ_SIGNATURE, Some(_)) => SIGNATURE,
            (instruction::PROGRAM, Some(index)) => {
                self.page[(self.address() + index) % PAGE] = byte;
                0xff
            }
            _ => 0xff,
        }
    }

    fn address(&self) -> usize {
        let [_, high, middle, low] = self.head;
        u32::from_be_bytes([0, high, middle, low]) as usize % SIZE
    }

    fn carry_out(&mut self) {
        let is_enabled = self.is_enabled;
        match (self.head[0], self.count) {
            (_, 0) => {}
            (instruction::WRITE_ENABLE, _) => self.is_enabled = true,
            (instruction::WRITE_DISABLE, _) => self.is_enabled = false,
            (instruction::PROGRAM, 5..) if is_enabled => {
                let start = self.address() / PAGE * PAGE;
                for (place, byte) in self.bytes[start..start + PAGE].iter_mut().zip(self.page) {
                    *place &= byte;
                }
                self.is_enabled = false;
            }
            (instruction::ERASE_SECTOR, 4..) if is_enabled => {
                let start = self.address() / SECTOR * SECTOR;
                self.bytes[start..start + SECTOR].fill(0xff);
                self.is_enabled = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends bytes, and reads more.
    fn instruct(flash: &mut Flash, bytes: &[u8], count: usize) -> Vec<u8> {
        flash.select(true);
        for byte in bytes {
            flash.exchange(*byte);
        }
        let read = (0..count).map(|_| flash.exchange(0)).collect();
        flash.select(false);
        read
    }

    #[test]
    fn it_tells_what_it_is() {
        let mut flash = Flash::new(&[]);
        assert_eq!(flash.exchange(0xab), 0xff);
        assert_eq!(instruct(&mut flash, &[0xab, 0, 0, 0], 1), [SIGNATURE]);
        assert_eq!(instruct(&mut flash, &[5], 1), [0]);
        instruct(&mut flash, &[6], 0);
        assert_eq!(instruct(&mut flash, &[5], 1), [ENABLED]);
    }

    #[test]
    fn it_is_written_only_if_that_was_enabled() {
        let mut flash = Flash::new(&[1, 2, 3]);
        instruct(&mut flash, &[2, 0, 1, 0, 0x5a], 0);
        instruct(&mut flash, &[0xd8, 0, 0, 0], 0);
        assert_eq!(instruct(&mut flash, &[3, 0, 0, 0], 3), [1, 2, 3]);
        assert_eq!(instruct(&mut flash, &[3, 0, 1, 0], 1), [0xff]);
        instruct(&mut flash, &[6], 0);
        // A page wraps around within itself.
        instruct(&mut flash, &[2, 0, 1, 0xff, 0x5a, 0x0f], 0);
        assert_eq!(instruct(&mut flash, &[3, 0, 1, 0xff], 2), [0x5a, 0xff]);
        assert_eq!(instruct(&mut flash, &[3, 0, 1, 0], 1), [0x0f]);
        assert_eq!(instruct(&mut flash, &[5], 1), [0]);
        instruct(&mut flash, &[6], 0);
        instruct(&mut flash, &[0xd8, 0, 0x12, 0x34], 0);
        assert_eq!(instruct(&mut flash, &[3, 0, 0, 0], 2), [0xff, 0xff]);
    }

    proptest! {
        #[test]
        fn no_instruction_breaks_it(bytes in prop::collection::vec(0u8.., 0..600)) {
            instruct(&mut Flash::new(&[]), &bytes, 300);
        }
    }
}
