// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local APIC of this CPU (AMD APM vol. 2, chapter 16), in x2APIC or xAPIC mode, as Linux runs it.

use crate::arch::{Vcpu, VirtualCpu};
use crate::{host, machine, memory};

/// Physical address of the registers in xAPIC mode.
pub const XAPIC_PAGE: u64 = 0xfee0_0000;
/// First register in x2APIC mode.
pub const X2APIC_BASE: u32 = 0x800;
/// Last register number of x2APIC mode.
pub const X2APIC_LAST: u32 = 0x8ff;
/// APIC base address register.
pub const MSR_APIC_BASE: u32 = 0x1b;

// Registers, by their number in x2APIC mode less `X2APIC_BASE`: the offset in the page divided by 16.
pub const ID: u32 = 0x02;
pub const VERSION: u32 = 0x03;
pub const TASK_PRIORITY: u32 = 0x08;
pub const EOI: u32 = 0x0b;
pub const LOGICAL_DESTINATION: u32 = 0x0d;
pub const DESTINATION_FORMAT: u32 = 0x0e;
pub const SPURIOUS: u32 = 0x0f;
pub const IN_SERVICE: u32 = 0x10;
pub const REQUESTED: u32 = 0x20;
pub const ERROR: u32 = 0x28;
pub const COMMAND: u32 = 0x30;
pub const COMMAND_HIGH: u32 = 0x31;
pub const LVT_TIMER: u32 = 0x32;
pub const LVT_ERROR: u32 = 0x37;
pub const TIMER_INITIAL: u32 = 0x38;
pub const TIMER_DIVIDE: u32 = 0x3e;
pub const SELF_IPI: u32 = 0x3f;

/// In a command: level asserted.
pub const ASSERT: u32 = 1 << 14;
/// In a command: NMI.
pub const NMI: u32 = 4 << 8;
const DELIVERY_PENDING: u32 = 1 << 12;
const LVT_MASKED: u32 = 1 << 16;
/// Value after a reset: disabled by software, vector 255.
const SPURIOUS_RESET: u32 = 0xff;
const SPURIOUS_ENABLED: u32 = 0x1ff;

/// The local APIC.
#[derive(Clone, Copy)]
pub struct LocalApic {
    x2apic: bool,
}

/// The local APIC of the CPU that asks.
pub fn get() -> LocalApic {
    LocalApic { x2apic: machine::launch_info().x2apic != 0 }
}

impl LocalApic {
    /// Does the mode of this CPU agree with what Linux told?
    pub fn mode_agrees(self) -> bool {
        let base = host::read_msr(MSR_APIC_BASE);
        let (enabled, x2apic) = (base & 1 << 11 != 0, base & 1 << 10 != 0);
        enabled && x2apic == self.x2apic && (x2apic || base & !0xfff == XAPIC_PAGE)
    }

    fn register(self, number: u32) -> *mut u32 {
        memory::pointer(XAPIC_PAGE + u64::from(number) * 16)
    }

    /// Reads a register that can be read.
    pub fn read(self, number: u32) -> u32 {
        if self.x2apic {
            return host::read_msr(X2APIC_BASE + number) as u32;
        }
        // SAFETY: The page of this CPU's own APIC; reading has no effect.
        unsafe { self.register(number).read_volatile() }
    }

    /// Writes a register that can be written, except the command register.
    pub fn write(self, number: u32, value: u32) {
        if self.x2apic {
            host::write_msr(X2APIC_BASE + number, value.into());
            return;
        }
        // SAFETY: The page of this CPU's own APIC, which affects interrupts only.
        unsafe { self.register(number).write_volatile(value) }
    }

    /// Its id.
    pub fn id(self) -> u32 {
        if self.x2apic { self.read(ID) } else { self.read(ID) >> 24 }
    }

    /// Ends the interrupt in service.
    pub fn end_of_interrupt(self) {
        self.write(EOI, 0);
    }

    /// Sends the command `low` to the CPU with APIC id `destination` (physical).
    pub fn send(self, destination: u32, low: u32) {
        if self.x2apic {
            // Writes to x2APIC registers do not wait for stores before them; the receiver shall see these.
            // SAFETY: Fences only.
            unsafe { core::arch::asm!("mfence", "lfence", options(nostack)) };
            host::write_msr(X2APIC_BASE + COMMAND, u64::from(destination) << 32 | u64::from(low));
            return;
        }
        // The guest may be between its two writes.
        let high = self.read(COMMAND_HIGH);
        self.wait_delivered();
        self.write(COMMAND_HIGH, destination << 24);
        self.write(COMMAND, low);
        self.wait_delivered();
        self.write(COMMAND_HIGH, high);
    }

    /// Bounded: an APIC delivers within microseconds.
    fn wait_delivered(self) {
        for _ in 0..100_000 {
            if self.read(COMMAND) & DELIVERY_PENDING == 0 {
                return;
            }
            core::hint::spin_loop();
        }
    }

    fn any(self, first: u32) -> bool {
        (first..first + 8).any(|number| self.read(number) != 0)
    }

    /// As after a reset: timer and local vectors off, nothing requested or in service, disabled by software.
    pub fn reset(self) {
        self.write(SPURIOUS, SPURIOUS_ENABLED);
        let entries = (self.read(VERSION) >> 16 & 0xff).min(5);
        for number in LVT_TIMER..=LVT_TIMER + entries {
            self.write(number, LVT_MASKED);
        }
        self.write(TIMER_INITIAL, 0);
        self.write(TIMER_DIVIDE, 0);
        self.write(TASK_PRIORITY, 0);
        for _ in 0..256 {
            if self.any(IN_SERVICE) {
                self.end_of_interrupt();
            } else if self.any(REQUESTED) {
                Vcpu::interrupt_window();
            } else {
                break;
            }
        }
        self.write(SPURIOUS, SPURIOUS_RESET);
        self.write(ERROR, 0);
    }
}
