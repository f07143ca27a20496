// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of exceptions (APM vol. 2, table 8-1).

/// Number of vectors that are exceptions.
pub const COUNT: u8 = 32;
/// #DB.
pub const DEBUG: u8 = 1;
/// Non-maskable interrupt.
pub const NMI: u8 = 2;
/// #BP, raised by INT3.
pub const BREAKPOINT: u8 = 3;
/// #OF, raised by INTO.
pub const OVERFLOW: u8 = 4;
/// #UD.
pub const INVALID_OPCODE: u8 = 6;
/// #GP.
pub const GENERAL_PROTECTION: u8 = 13;
/// #PF.
pub const PAGE_FAULT: u8 = 14;
/// #AC.
pub const ALIGNMENT_CHECK: u8 = 17;

/// Tells whether the exception `vector`, below [`COUNT`], pushes an error code: #DF, #TS, #NP, #SS,
/// #GP, #PF, #AC, #CP, #VC,
/// #SX.
pub const fn has_error_code(vector: u8) -> bool {
    const WITH: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;
    WITH & 1 << vector != 0
}
