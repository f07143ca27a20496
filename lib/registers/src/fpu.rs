// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initial values of floating-point control registers (APM vol. 1, 6.9 and 4.9).

/// x87 control word after FNINIT: all exceptions masked, extended precision.
pub const CONTROL_WORD: u16 = 0x37f;
/// MXCSR after a reset: all exceptions masked.
pub const MXCSR: u32 = 0x1f80;
