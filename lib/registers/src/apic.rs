// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local APIC (APM vol. 2, chapter 16; SDM vol. 3, chapter 11).

/// Physical address of the registers in xAPIC mode after a reset (APM vol. 2, 16.3.1).
pub const PAGE: u64 = 0xfee0_0000;

/// The id of a local APIC, by which interrupt commands name a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApicId(pub u32);

/// A register of the local APIC, by its number: the offset in the page divided by 16, which is also
/// the offset from the first register of x2APIC mode (APM vol. 2, tables 16-2 and 16-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(u8);

impl Register {
    /// Identification: bits 31..24 in xAPIC mode, all 32 bits in x2APIC mode.
    pub const ID: Self = Self(0x02);
    /// Version, and the number of local vectors less 1 in bits 23..16.
    pub const VERSION: Self = Self(0x03);
    /// Task priority.
    pub const TASK_PRIORITY: Self = Self(0x08);
    /// Processor priority.
    pub const PROCESSOR_PRIORITY: Self = Self(0x0a);
    /// End of interrupt, written with 0.
    pub const END_OF_INTERRUPT: Self = Self(0x0b);
    /// Logical destination.
    pub const LOGICAL_DESTINATION: Self = Self(0x0d);
    /// Destination format, in xAPIC mode only.
    pub const DESTINATION_FORMAT: Self = Self(0x0e);
    /// Spurious interrupt vector and [`SOFTWARE_ENABLE`].
    pub const SPURIOUS: Self = Self(0x0f);
    /// First of the eight registers of interrupts in service.
    pub const IN_SERVICE: Self = Self(0x10);
    /// First of the eight registers of requested interrupts.
    pub const REQUESTED: Self = Self(0x20);
    /// Error status.
    pub const ERROR_STATUS: Self = Self(0x28);
    /// Interrupt command: 64 bits in x2APIC mode, the lower half in xAPIC mode.
    pub const COMMAND: Self = Self(0x30);
    /// Upper half of the interrupt command, in xAPIC mode only.
    pub const COMMAND_HIGH: Self = Self(0x31);
    /// Local vector of the timer.
    pub const LVT_TIMER: Self = Self(0x32);
    /// Local vector of the pin LINT0.
    pub const LVT_LINT0: Self = Self(0x35);
    /// Local vector of the pin LINT1.
    pub const LVT_LINT1: Self = Self(0x36);
    /// Local vector of errors.
    pub const LVT_ERROR: Self = Self(0x37);
    /// Initial count of the timer; 0 stops it.
    pub const TIMER_INITIAL: Self = Self(0x38);
    /// Current count of the timer.
    pub const TIMER_CURRENT: Self = Self(0x39);
    /// Divisor of the timer.
    pub const TIMER_DIVIDE: Self = Self(0x3e);
    /// Interrupt to the own CPU, in x2APIC mode only.
    pub const SELF_IPI: Self = Self(0x3f);

    /// Features beyond the architecture's: the number of extended local vectors in bits 23..16.
    pub const EXTENDED_FEATURES: Self = Self(0x40);
    /// First of the extended local vectors: sampling, thresholds of machine checks.
    pub const EXTENDED_LVT: Self = Self(0x50);

    /// The register with this number.
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// The register at `offset` of the page, which may point into it.
    pub const fn from_offset(offset: u64) -> Self {
        Self((offset / 16 % 256) as u8)
    }

    /// The register whose model-specific number is `msr`, if it is one of x2APIC mode.
    pub const fn from_msr(msr: u32) -> Option<Self> {
        match msr {
            X2APIC_FIRST..=X2APIC_LAST => Some(Self((msr - X2APIC_FIRST) as u8)),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its offset in the page of xAPIC mode.
    pub const fn offset(self) -> u64 {
        self.0 as u64 * 16
    }

    /// Its model-specific register in x2APIC mode.
    pub const fn msr(self) -> u32 {
        X2APIC_FIRST + self.0 as u32
    }

    /// The register `count` numbers further on.
    pub const fn plus(self, count: u8) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

/// First model-specific register of x2APIC mode (APM vol. 2, 16.11.1).
pub const X2APIC_FIRST: u32 = 0x800;
/// Last model-specific register of x2APIC mode.
pub const X2APIC_LAST: u32 = 0x8ff;

/// Bits of an interrupt command (APM vol. 2, 16.5; SDM vol. 3, 11.6.1).
pub mod command {
    /// The vector, or the page of a start-up.
    pub const VECTOR: u32 = 0xff;
    /// Where the delivery mode starts, three bits.
    pub const DELIVERY_SHIFT: u32 = 8;
    /// Delivery mode: the vector, to all destinations.
    pub const FIXED: u32 = 0;
    /// Delivery mode: the vector, to the destination that runs at the lowest priority.
    pub const LOWEST_PRIORITY: u32 = 1;
    /// Delivery mode: non-maskable interrupt.
    pub const NMI: u32 = 4;
    /// Delivery mode: INIT.
    pub const INIT: u32 = 5;
    /// Delivery mode: start-up.
    pub const START_UP: u32 = 6;
    /// Delivery mode of what devices send: the vector comes from an interrupt controller of old.
    pub const EXTERNAL: u32 = 7;
    /// The destination is logical.
    pub const LOGICAL: u32 = 1 << 11;
    /// The bits that mean the same in what devices send: messages, entries of an I/O APIC.
    pub const OF_DEVICES: u32 = VECTOR | 7 << DELIVERY_SHIFT | LOGICAL;
    /// xAPIC mode: the last command is still to be delivered.
    pub const PENDING: u32 = 1 << 12;
    /// Level: asserted.
    pub const ASSERT: u32 = 1 << 14;
    /// Where the destination shorthand starts, two bits.
    pub const SHORTHAND_SHIFT: u32 = 18;
    /// Shorthand: the sender.
    pub const SELF: u32 = 1;
    /// Shorthand: all.
    pub const ALL: u32 = 2;
    /// Shorthand: all but the sender.
    pub const OTHERS: u32 = 3;
    /// x2APIC mode: where the destination starts, 32 bits.
    pub const X2APIC_DESTINATION_SHIFT: u32 = 32;
    /// xAPIC mode: where the destination starts in the upper half, 8 bits.
    pub const XAPIC_DESTINATION_SHIFT: u32 = 24;
    /// x2APIC mode: the destination that means everybody.
    pub const X2APIC_EVERYBODY: u32 = 0xffff_ffff;
    /// xAPIC mode: the destination that means everybody.
    pub const XAPIC_EVERYBODY: u32 = 0xff;
}

/// In [`Register::VERSION`]: there are extended registers (APM vol. 2, 16.3.4).
pub const EXTENDED: u32 = 1 << 31;
/// Most extended local vectors (APM vol. 2, 16.4).
pub const EXTENDED_LVTS: u8 = 4;
/// In a local vector: masked (APM vol. 2, 16.4).
pub const LVT_MASKED: u32 = 1 << 16;
/// In the timer's local vector: fires at a value of the time stamp counter (SDM vol. 3, 11.5.4.1).
pub const TIMER_TSC_DEADLINE: u32 = 2 << 17;
/// Value of [`Register::TIMER_DIVIDE`]: counts at the speed of the bus.
pub const DIVIDE_BY_1: u32 = 0xb;
/// In [`Register::SPURIOUS`]: the APIC is enabled by software (APM vol. 2, 16.4.7).
pub const SOFTWARE_ENABLE: u32 = 1 << 8;
/// Value of [`Register::SPURIOUS`] after a reset: disabled by software, vector 255.
pub const SPURIOUS_RESET: u32 = 0xff;

/// The logical id that an APIC with physical `id` has in x2APIC mode: cluster and bit (APM vol. 2,
/// 16.11.2).
pub const fn x2apic_logical(id: u32) -> u32 {
    (id >> 4) << 16 | 1 << (id & 15)
}

#[cfg(test)]
mod tests {
    use super::Register;

    #[test]
    fn a_register_has_one_number_in_both_modes() {
        for number in 0..=255 {
            let register = Register::from_number(number);
            assert_eq!(Register::from_offset(register.offset() + 4), register);
            assert_eq!(Register::from_msr(register.msr()), Some(register));
        }
        assert_eq!(Register::from_msr(0x7ff), None);
        assert_eq!(Register::from_msr(0x900), None);
        assert_eq!((Register::COMMAND.msr(), Register::COMMAND.offset()), (0x830, 0x300));
    }
}
