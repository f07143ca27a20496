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
/// #TS.
pub const INVALID_TSS: u8 = 10;
/// #NP.
pub const NOT_PRESENT: u8 = 11;
/// #SS.
pub const STACK: u8 = 12;
/// #GP.
pub const GENERAL_PROTECTION: u8 = 13;
/// #PF.
pub const PAGE_FAULT: u8 = 14;
/// #AC.
pub const ALIGNMENT_CHECK: u8 = 17;
/// #MC.
pub const MACHINE_CHECK: u8 = 18;
/// #CP.
pub const CONTROL_PROTECTION: u8 = 21;

/// Tells whether the exception `vector`, below [`COUNT`], pushes an error code: #DF, #TS, #NP, #SS,
/// #GP, #PF, #AC, #CP, #VC, #SX.
pub const fn has_error_code(vector: u8) -> bool {
    const WITH: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;
    WITH & 1 << vector != 0
}

/// Returns the error code and the instruction pointer out of `words`, the lowest that the processor
/// pushed at the exception `vector`, below [`COUNT`]. The error code is 0 where there is none.
pub const fn pushed(vector: u8, words: &[u64; 2]) -> (u64, u64) {
    let &[first, second] = words;
    if has_error_code(vector) { (first, second) } else { (0, first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_code_lies_below_the_instruction_pointer() {
        assert_eq!(pushed(PAGE_FAULT, &[2, 0x1000]), (2, 0x1000));
        assert_eq!(pushed(INVALID_OPCODE, &[0x1000, 8]), (0, 0x1000));
    }
}
