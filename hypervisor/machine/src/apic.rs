// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local APIC of this CPU (APM vol. 2, chapter 16), in x2APIC or xAPIC mode, as Linux runs it.

use crtos_partition::address::PhysAddr;
use crtos_partition::ids::ApicId;
use crtos_registers::apic::*;
use x86_64::registers::model_specific::ApicBaseFlags;

use crate::arch::{Vcpu, VirtualCpu};
use crate::processor::msr;
use crate::{direct_map, launch_info};

/// Physical address of the registers in xAPIC mode. Linux leaves it where it is after a reset.
pub const XAPIC_PAGE: PhysAddr = PhysAddr::new(PAGE);

/// Bytes from there on in which a store is a message that interrupts a CPU (APM vol. 2, 16.11).
pub const MESSAGES: u64 = 1 << 20;

/// The local APIC of the CPU that executes this.
#[derive(Clone, Copy)]
pub struct LocalApic {
    x2apic: bool,
}

/// The local APIC of the CPU that asks.
#[inline]
pub fn get() -> LocalApic {
    LocalApic { x2apic: launch_info::x2apic() }
}

impl LocalApic {
    /// Tells whether the mode of this CPU agrees with what Linux told.
    pub(crate) fn mode_agrees(self) -> bool {
        let base = msr::apic_base();
        let flags = ApicBaseFlags::from_bits_truncate(base);
        let x2apic = flags.contains(ApicBaseFlags::X2APIC_ENABLE);
        flags.contains(ApicBaseFlags::LAPIC_ENABLE)
            && x2apic == self.x2apic
            && (x2apic || base & !0xfff == PAGE)
    }

    fn place(register: Register) -> *mut u32 {
        direct_map::pointer(XAPIC_PAGE + register.offset())
    }

    /// Reads a register that can be read.
    #[inline]
    pub fn read(self, register: Register) -> u32 {
        if self.x2apic {
            return msr::x2apic(register) as u32;
        }
        // SAFETY: The page of this CPU's own APIC, which the direct map reaches; reading has no
        // effect.
        unsafe { Self::place(register).read_volatile() }
    }

    /// Writes a register that can be written, but not the interrupt command: [`Self::interrupt`]
    /// and [`Self::nmi`] send.
    #[inline]
    pub fn write(self, register: Register, value: u32) {
        if register == Register::COMMAND {
            return;
        }
        // SAFETY: It is no interrupt command, so this CPU's own interrupts are all that it affects.
        unsafe { self.write_any(register, value) }
    }

    /// Writes a local vector; false if the APIC lacks it or does not take the value.
    pub fn write_local_vector(self, register: Register, value: u32) -> bool {
        if self.x2apic {
            return msr::try_set_local_vector(register, value);
        }
        self.write(register, value);
        true
    }

    /// Writes a register.
    ///
    /// # Safety
    /// No CPU is made to leave the hypervisor by it: an interrupt command is no INIT, start-up or
    /// system-management interrupt.
    #[inline]
    unsafe fn write_any(self, register: Register, value: u32) {
        if self.x2apic {
            // SAFETY: The caller's duty is the same.
            unsafe { msr::set_x2apic(register, value.into()) };
            return;
        }
        // SAFETY: The page of this CPU's own APIC, which the direct map reaches; the caller rules
        // out what the hypervisor does not survive.
        unsafe { Self::place(register).write_volatile(value) }
    }

    /// Its id.
    pub fn id(self) -> ApicId {
        let id = self.read(Register::ID);
        ApicId(if self.x2apic { id } else { id >> command::XAPIC_DESTINATION_SHIFT })
    }

    /// Tells whether an interrupt with this vector was delivered and not ended yet.
    pub(crate) fn in_service(self, vector: u8) -> bool {
        self.read(Register::IN_SERVICE.plus(vector / 32)) & 1 << (vector % 32) != 0
    }

    /// Ends the interrupt in service.
    pub(crate) fn end_of_interrupt(self) {
        self.write(Register::END_OF_INTERRUPT, 0);
    }

    /// Raises `vector` on the CPU with APIC id `destination`.
    #[inline]
    pub fn interrupt(self, destination: ApicId, vector: u8) {
        // SAFETY: An ordinary interrupt; while a CPU is in the hypervisor it waits, or the
        // hypervisor's handler drops it.
        unsafe { self.send(destination, command::ASSERT | u32::from(vector)) }
    }

    /// Sends an NMI to the CPU with APIC id `destination`.
    pub fn nmi(self, destination: ApicId) {
        const NMI: u32 = command::ASSERT | command::NMI << command::DELIVERY_SHIFT;
        // SAFETY: The hypervisor's handler takes NMIs that come while it runs.
        unsafe { self.send(destination, NMI) }
    }

    /// Sends the command `low` to the CPU with APIC id `destination` (physical).
    ///
    /// # Safety
    /// The command is no INIT, start-up or system-management interrupt.
    #[inline]
    unsafe fn send(self, destination: ApicId, low: u32) {
        if self.x2apic {
            let value =
                u64::from(destination.0) << command::X2APIC_DESTINATION_SHIFT | u64::from(low);
            // SAFETY: Fences, since writes to x2APIC registers do not wait for stores before them,
            // which the receiver shall see. The caller vouches for the command.
            unsafe {
                core::arch::asm!("mfence", "lfence", options(nostack));
                msr::set_x2apic(Register::COMMAND, value);
            }
            return;
        }
        // The guest may be between its two writes.
        let high = self.read(Register::COMMAND_HIGH);
        self.wait_delivered();
        self.write(Register::COMMAND_HIGH, destination.0 << command::XAPIC_DESTINATION_SHIFT);
        // SAFETY: The caller vouches for the command.
        unsafe { self.write_any(Register::COMMAND, low) };
        self.wait_delivered();
        self.write(Register::COMMAND_HIGH, high);
    }

    /// Waits until the last command is delivered. Bounded: an APIC delivers within microseconds.
    fn wait_delivered(self) {
        for _ in 0..100_000 {
            if self.read(Register::COMMAND) & command::PENDING == 0 {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Tells whether any of the 256 bits of eight registers is set.
    fn any(self, first: Register) -> bool {
        (0..8).any(|count| self.read(first.plus(count)) != 0)
    }

    /// Makes it as after a reset: timer and local vectors off, nothing requested or in service,
    /// disabled by software.
    ///
    /// # Safety
    /// In host mode, with the host's descriptor tables and stack.
    pub(crate) unsafe fn reset(self) {
        self.write(Register::SPURIOUS, SOFTWARE_ENABLE | SPURIOUS_RESET);
        let last = (self.read(Register::VERSION) >> 16 & 0xff).min(5) as u8;
        for entry in 0..=last {
            self.write(Register::LVT_TIMER.plus(entry), LVT_MASKED);
        }
        // Access to a register that is not there is an error that the APIC keeps. Linux finds it
        // when it starts a CPU.
        if self.read(Register::VERSION) & EXTENDED != 0 {
            let count = self.read(Register::EXTENDED_FEATURES) >> 16 & 0xff;
            for entry in 0..(count as u8).min(EXTENDED_LVTS) {
                self.write(Register::EXTENDED_LVT.plus(entry), LVT_MASKED);
            }
        }
        self.write(Register::TIMER_INITIAL, 0);
        self.write(Register::TIMER_DIVIDE, 0);
        self.write(Register::TASK_PRIORITY, 0);
        for _ in 0..256 {
            if self.any(Register::IN_SERVICE) {
                self.end_of_interrupt();
            } else if self.any(Register::REQUESTED) {
                // SAFETY: The host's handlers are in place, says the caller.
                unsafe { Vcpu::interrupt_window() };
            } else {
                break;
            }
        }
        self.write(Register::SPURIOUS, SPURIOUS_RESET);
        self.write(Register::ERROR_STATUS, 0);
    }
}
