// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that hold a structure of [`crtos_abi`], read and written field by field at the structure's
//! own offsets.

/// A copy of a structure that the other side wrote. Every value is an allegation.
#[derive(Clone, Copy)]
pub struct View<'a>(pub &'a [u8]);

impl<'a> View<'a> {
    /// Returns `length` bytes at `offset`.
    pub fn bytes(self, offset: usize, length: usize) -> &'a [u8] {
        &self.0[offset..offset + length]
    }

    /// Returns the structure of `length` bytes at `offset`.
    pub fn at(self, offset: usize, length: usize) -> View<'a> {
        View(self.bytes(offset, length))
    }

    /// Returns the 32-bit word at `offset`.
    pub fn u32(self, offset: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(self.bytes(offset, 4));
        u32::from_le_bytes(word)
    }

    /// Returns the 64-bit word at `offset`.
    pub fn u64(self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.bytes(offset, 8));
        u64::from_le_bytes(word)
    }
}

/// A structure that is being made. What nobody stores is zero.
pub struct Builder(Vec<u8>);

impl Builder {
    /// Begins with `length` zero bytes.
    pub fn new(length: usize) -> Self {
        Self(vec![0; length])
    }

    /// Stores bytes at `offset`.
    pub fn bytes(&mut self, offset: usize, bytes: &[u8]) -> &mut Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Stores a 32-bit word at `offset`.
    pub fn u32(&mut self, offset: usize, value: u32) -> &mut Self {
        self.bytes(offset, &value.to_le_bytes())
    }

    /// Stores a 64-bit word at `offset`.
    pub fn u64(&mut self, offset: usize, value: u64) -> &mut Self {
        self.bytes(offset, &value.to_le_bytes())
    }

    /// Returns the bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}
