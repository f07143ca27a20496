// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segment descriptors and interrupt gates of 64-bit mode (APM vol. 2, 4.8).

/// Flat 64-bit code segment of privilege level 0.
pub const KERNEL_CODE: u64 = 0x00af_9b00_0000_ffff;
/// Flat data segment of privilege level 0.
pub const KERNEL_DATA: u64 = 0x00cf_9300_0000_ffff;
/// Flat data segment of privilege level 3.
pub const USER_DATA: u64 = 0x00cf_f300_0000_ffff;
/// Flat 64-bit code segment of privilege level 3.
pub const USER_CODE: u64 = 0x00af_fb00_0000_ffff;

/// The interrupt gate of privilege level 0 that enters `handler` with the code segment `selector`,
/// on the current stack (APM vol. 2, figure 4-24).
pub const fn interrupt_gate(handler: u64, selector: u16) -> [u64; 2] {
    const PRESENT_INTERRUPT_GATE: u64 = 0x8e << 40;
    let low = handler & 0xffff
        | (selector as u64) << 16
        | PRESENT_INTERRUPT_GATE
        | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}
