// SPDX-License-Identifier: MIT OR Apache-2.0
//! A frame, as programs and the bus exchange it: `struct can_frame`.

use core::fmt;

/// In an identifier: it has 29 bits (CAN_EFF_FLAG).
pub const EXTENDED: u32 = 1 << 31;
/// There as well: the frame asks for data and has none (CAN_RTR_FLAG).
pub const REMOTE: u32 = 1 << 30;
/// There as well: the frame tells of an error and was not on the bus (CAN_ERR_FLAG).
pub const ERROR: u32 = 1 << 29;
/// The bits of an identifier of 11 bits (CAN_SFF_MASK).
pub const STANDARD_MASK: u32 = (1 << 11) - 1;
/// The bits of one of 29 bits (CAN_EFF_MASK).
pub const EXTENDED_MASK: u32 = (1 << 29) - 1;

/// Bytes of data in a frame, at most (CAN_MAX_DLEN).
pub const MAX_DATA: usize = 8;
/// Where data begin in the bytes of a frame.
const DATA: usize = 8;

/// Kinds of errors, in the identifier of a frame that tells of one (`linux/can/error.h`).
pub mod error {
    /// Arbitration was lost; the bit in which is in the first byte.
    pub const LOST_ARBITRATION: u32 = 0x02;
    /// The controller; more is in the second byte.
    pub const CONTROLLER: u32 = 0x04;
    /// The protocol was violated; more is in the third and fourth byte.
    pub const PROTOCOL: u32 = 0x08;
    /// The controller is off the bus.
    pub const BUS_OFF: u32 = 0x40;
    /// An error on the bus.
    pub const BUS: u32 = 0x80;
    /// The controller was started anew.
    pub const RESTARTED: u32 = 0x100;
    /// The last two bytes are the counters of errors: sending, receiving.
    pub const COUNTERS: u32 = 0x200;
}

/// A frame of classical CAN, aligned so that it is copied in two steps.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(align(8))]
pub struct Frame([u8; Self::SIZE]);

impl Frame {
    /// Bytes of a `struct can_frame` (CAN_MTU).
    pub const SIZE: usize = 16;

    /// A frame with an identifier and its flags, as Linux writes them, and data. `None` if the data
    /// are too long.
    pub fn new(id: u32, data: &[u8]) -> Option<Self> {
        let mut frame = Self::default();
        frame.0[DATA..].get_mut(..data.len())?.copy_from_slice(data);
        frame.set_id(id);
        frame.0[4] = data.len() as u8;
        Some(frame)
    }

    /// One that was received: `length` bytes of data, or those that it asks for; no more than
    /// [`MAX_DATA`] count.
    #[inline]
    pub fn received(id: u32, length: u8, data: [u8; MAX_DATA]) -> Self {
        let mut frame = Self::default();
        frame.set_id(id);
        frame.0[4] = length.min(MAX_DATA as u8);
        frame.0[DATA..].copy_from_slice(&data);
        frame
    }

    /// One that asks for `length` bytes of data.
    pub fn remote(id: u32, length: u8) -> Option<Self> {
        let mut frame = Self::new(id | REMOTE, &[])?;
        frame.0[4] = length;
        frame.is_sound().then_some(frame)
    }

    /// One that tells of errors of the kinds `kinds`.
    pub fn error(kinds: u32, data: [u8; MAX_DATA]) -> Self {
        Self::received(ERROR | kinds, MAX_DATA as u8, data)
    }

    /// What a program hands over. `None` if it says that its data are longer than they can be.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Option<Self> {
        Some(Self(bytes)).filter(Self::is_sound)
    }

    /// As a program gets it.
    pub fn bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    fn is_sound(&self) -> bool {
        usize::from(self.0[4]) <= MAX_DATA
    }

    /// The identifier with its flags.
    pub fn id(&self) -> u32 {
        u32::from_ne_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Changes the identifier.
    pub fn set_id(&mut self, id: u32) {
        self.0[..4].copy_from_slice(&id.to_ne_bytes());
    }

    /// How many bytes of data there are, or are asked for.
    pub fn length(&self) -> u8 {
        self.0[4].min(MAX_DATA as u8)
    }

    /// Whether it asks for data.
    pub fn is_remote(&self) -> bool {
        self.id() & REMOTE != 0
    }

    /// The data that are on the bus.
    pub fn data(&self) -> &[u8] {
        match self.is_remote() {
            true => &[],
            false => &self.0[DATA..][..self.length().into()],
        }
    }

    /// All eight bytes, as a number.
    pub fn word(&self) -> u64 {
        let mut bytes = [0; MAX_DATA];
        bytes.copy_from_slice(&self.0[DATA..]);
        u64::from_ne_bytes(bytes)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}#{:02x?}", self.id(), self.data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_linux_lays_out() {
        let frame = Frame::new(0x123, &[0xde, 0xad]).unwrap();
        assert_eq!(frame.bytes(), &[0x23, 1, 0, 0, 2, 0, 0, 0, 0xde, 0xad, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Frame::from_bytes(*frame.bytes()), Some(frame));
        assert_eq!((frame.id(), frame.length(), frame.data()), (0x123, 2, &[0xde, 0xad][..]));
    }

    #[test]
    fn no_frame_is_longer_than_it_can_be() {
        let mut bytes = *Frame::new(1, &[0; 8]).unwrap().bytes();
        for length in 9..=255 {
            bytes[4] = length;
            assert_eq!(Frame::from_bytes(bytes), None, "{length}");
        }
        assert_eq!(Frame::new(1, &[0; 9]), None);
        assert_eq!(Frame::remote(1, 9), None);
    }

    #[test]
    fn who_asks_for_data_has_none() {
        let frame = Frame::remote(0x42, 5).unwrap();
        assert_eq!((frame.length(), frame.data()), (5, &[][..]));
    }
}
