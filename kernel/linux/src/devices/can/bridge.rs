// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bridge between the card and the PCI bus (AMCC S5920 data book, chapter 4): its registers are
//! ports of four bytes.

use crtos_core::devices::ports::IoPorts;

/// Interrupt control and status.
const CONTROL: u8 = 0x38;
/// There: interrupts of the card pass.
const INTERRUPTS: u32 = 1 << 13;
/// Pass-through configuration: of each of the four regions, no wait states, and an address in front
/// of each access.
const PASS_THROUGH: u8 = 0x60;
const WITH_ADDRESS: u32 = 0x8080_8080;

/// The bridge.
pub(super) struct Bridge(IoPorts);

impl Bridge {
    /// The bridge at these ports. Accesses to the card pass, its interrupts do not.
    pub fn new(ports: IoPorts) -> Self {
        let bridge = Self(ports);
        bridge.0.write_u32(PASS_THROUGH, WITH_ADDRESS);
        bridge.let_interrupt(false);
        bridge
    }

    /// Lets interrupts of the card pass, or not. Any context.
    pub fn let_interrupt(&self, pass: bool) {
        let control = self.0.read_u32(CONTROL) & !INTERRUPTS;
        self.0.write_u32(CONTROL, control | if pass { INTERRUPTS } else { 0 });
    }
}
