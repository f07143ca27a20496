// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame that Linux x86-64 pushes for a signal handler (`struct rt_sigframe`), byte for byte.
//!
//! | offset | what |
//! |---|---|
//! | 0 | return address: the restorer |
//! | 8 | `uc_flags`, `uc_link`, `uc_stack` (24 bytes) |
//! | 48 | `uc_mcontext`: 18 registers, selectors, `err`, `trapno`, `oldmask`, `cr2`, `fpstate`, 8 reserved words |
//! | 304 | `uc_sigmask` |
//! | 312 | `siginfo`, 128 bytes |
//!
//! The extended state lies above the frame, at a multiple of 64 bytes, followed by a magic word.

use crtos_abi::UserAddr;

use crate::info::Info;

/// Bytes of the frame without the extended state.
pub const SIZE: usize = 440;

/// Bytes of the frame that [`Frame::from_bytes`] reads.
pub const READ: usize = 312;

/// Offset of `siginfo` in the frame: the handler's second argument.
pub const INFO: u64 = 312;
/// Words of the frame before `siginfo`, which Linux writes only for a handler of SA_SIGINFO.
pub const WORDS_BEFORE_INFO: usize = INFO as usize / 8;

/// Offset of the context in the frame: the handler's third argument.
pub const CONTEXT: u64 = 8;

/// Bytes below the stack pointer that belong to the interrupted function (System V ABI, 3.2.2).
pub const RED_ZONE: u64 = 128;

/// Bytes behind the extended state: the closing magic word.
pub const STATE_TAIL: usize = 4;

/// `uc_flags`: the extended state has XSAVE's format.
pub const FLAG_XSTATE: u64 = 1;
/// `uc_flags`: the stack segment is saved, and restored as it is.
pub const FLAGS_STACK_SEGMENT: u64 = 6;

/// An alternate signal stack, as sigaltstack(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AltStack {
    /// Its lowest address.
    pub start: UserAddr,
    /// `SS_*`.
    pub flags: u32,
    /// Its length in bytes.
    pub size: u64,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Address to which the handler returns.
    pub restorer: UserAddr,
    /// `uc_flags`.
    pub flags: u64,
    /// `uc_stack`.
    pub stack: AltStack,
    /// R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP, RFLAGS.
    pub registers: [u64; 18],
    /// CS, GS, FS, SS, 16 bits each from the lowest.
    pub selectors: u64,
    /// Error code, exception number, old mask, CR2.
    pub fault: [u64; 4],
    /// Address of the extended state.
    pub state: UserAddr,
    /// `uc_sigmask`: the signals that were blocked.
    pub mask: u64,
    /// `siginfo`.
    pub info: Info,
}

impl Frame {
    /// Returns the frame as it lies in memory.
    #[inline(always)]
    pub fn to_words(&self) -> [u64; SIZE / 8] {
        let AltStack { start, flags, size } = self.stack;
        let r = &self.registers;
        let [error, trap, old_mask, cr2] = self.fault;
        let [number, code, a, b, c, d] = self.info.to_words();
        #[rustfmt::skip]
        let words = [
            self.restorer.get(),
            self.flags, 0, start.get(), flags as u64, size,
            r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13],
            r[14], r[15], r[16], r[17],
            self.selectors, error, trap, old_mask, cr2, self.state.get(),
            0, 0, 0, 0, 0, 0, 0, 0,
            self.mask,
            number, code, a, b, c, d,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        words
    }

    /// Reads the first bytes of a frame, all but `siginfo`. The program may have written anything
    /// there: every word is an allegation.
    pub fn from_bytes(bytes: &[u8; READ]) -> Frame {
        let get = |offset: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[offset..offset + 8]);
            u64::from_le_bytes(word)
        };
        Frame {
            restorer: UserAddr::new(get(0)),
            flags: get(8),
            stack: AltStack { start: UserAddr::new(get(24)), flags: get(32) as u32, size: get(40) },
            registers: core::array::from_fn(|index| get(48 + index * 8)),
            selectors: get(192),
            fault: core::array::from_fn(|index| get(200 + index * 8)),
            state: UserAddr::new(get(232)),
            mask: get(304),
            info: Info::default(),
        }
    }
}

/// Where a frame lies on the program's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the frame; RSP of the handler.
    pub frame: UserAddr,
    /// Address of the extended state.
    pub state: UserAddr,
}

/// Places a frame and `state_size` bytes of extended state below the address `top`; `None` if that
/// would lie below address 0.
pub fn place(top: UserAddr, state_size: usize) -> Option<Place> {
    let state = top.checked_sub((state_size + STATE_TAIL) as u64)?.align_down(64);
    // The stack is aligned as if a call had pushed the return address.
    let frame = state.checked_sub(SIZE as u64)?.align_down(16).checked_sub(8)?;
    Some(Place { frame, state })
}

/// Offset, in the extended state, of Linux's description of it (`sw_reserved`).
pub const DESCRIPTION: usize = 464;
/// Bytes of the description; the 28 behind them, up to the end of the legacy area, are zero.
pub const DESCRIBED: usize = 20;
const MAGIC: u32 = 0x4650_5853;
/// The word behind the extended state.
pub const CLOSING_MAGIC: u32 = 0x4650_5845;

/// Words from [`DESCRIPTION`] to the end of the header of XSAVE's format.
pub const DESCRIPTION_WORDS: usize = (512 + 64 - DESCRIPTION) / 8;

/// Returns the words at [`DESCRIPTION`] for a state of `size` bytes with the components `features`
/// (as in XCR0), and the header of XSAVE's format as it is before XSAVE.
pub fn description(size: usize, features: u64) -> [u64; DESCRIPTION_WORDS] {
    let mut words = [0; DESCRIPTION_WORDS];
    words[0] = u64::from(MAGIC) | ((size + STATE_TAIL) as u64) << 32;
    words[1] = features;
    words[2] = size as u64;
    words
}

/// Says whether these are the description and the tail of a complete state of `size` bytes.
pub fn is_description(bytes: &[u8; DESCRIBED], tail: &[u8; STATE_TAIL], size: usize) -> bool {
    bytes[..4] == MAGIC.to_le_bytes()
        && bytes[16..DESCRIBED] == (size as u32).to_le_bytes()
        && *tail == CLOSING_MAGIC.to_le_bytes()
}

/// Writes the description of extended state of `size` bytes with the components `features` into
/// `image`, which has [`STATE_TAIL`] bytes more.
pub fn describe_state(image: &mut [u8], size: usize, features: u64) {
    if image.len() < size + STATE_TAIL || size < 512 {
        return;
    }
    let description = description(size, features).map(u64::to_le_bytes);
    image[DESCRIPTION..512].copy_from_slice(&description.as_flattened()[..512 - DESCRIPTION]);
    image[size..size + STATE_TAIL].copy_from_slice(&CLOSING_MAGIC.to_le_bytes());
}

/// Says whether an image (of `size` bytes and its tail) still has the description of
/// [`describe_state`]. If not, Linux restores the first 512 bytes alone.
pub fn is_described(image: &[u8], size: usize) -> bool {
    let (Some(described), Some(tail)) = (
        image.get(DESCRIPTION..DESCRIPTION + DESCRIBED).and_then(|bytes| bytes.try_into().ok()),
        image.get(size..size + STATE_TAIL).and_then(|bytes| bytes.try_into().ok()),
    ) else {
        return false;
    };
    is_description(described, tail, size)
}
