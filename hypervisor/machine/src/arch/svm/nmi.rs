// SPDX-License-Identifier: MIT OR Apache-2.0
//! NMIs of the guest, one at a time. Where the processor has virtual NMIs (APM vol. 2, 15.21.10) it
//! keeps the next one back until the guest has executed IRET; elsewhere [`Blocking`] does, by the
//! intercept of IRET and a single step.

use crtos_partition::nmi::Blocking;
use crtos_registers::exception;
use x86_64::registers::debug::Dr6Flags;
use x86_64::registers::rflags::RFlags;

use super::{Vcpu, vmcb};
use crate::arch::NmiOutcome;

const TRAP: u64 = RFlags::TRAP_FLAG.bits();
const DR6_STEP: u64 = Dr6Flags::STEP.bits();
const DR6_HIT: u64 = Dr6Flags::TRAP.bits();

/// What an IRET may raise, and what follows from a single step.
const STEP_EXCEPTIONS: u32 = 1 << exception::DEBUG
    | 1 << exception::INVALID_TSS
    | 1 << exception::NOT_PRESENT
    | 1 << exception::STACK
    | 1 << exception::GENERAL_PROTECTION
    | 1 << exception::PAGE_FAULT
    | 1 << exception::ALIGNMENT_CHECK
    | 1 << exception::CONTROL_PROTECTION;

/// What the guest had where a single step changes it.
#[derive(Clone, Copy, Default)]
pub struct BeforeStep {
    /// The guest single-steps itself.
    trap: bool,
    dr6: u64,
    exceptions: u32,
}

impl Vcpu {
    /// Gives the guest an NMI, if it takes one now.
    pub(super) fn give_nmi(&mut self) -> NmiOutcome {
        if self.has_virtual_nmi {
            // One that is pending already is the same one. The processor clears the bit when the
            // guest takes it (15.21.10).
            self.vmcb.virtual_interrupt |= vmcb::VIRTUAL_NMI;
            return NmiOutcome::Given;
        }
        if self.blocking == Blocking::Handling {
            return NmiOutcome::Blocked;
        }
        if self.vmcb.event_injection & vmcb::EVENT_VALID != 0 {
            return NmiOutcome::Busy;
        }
        let before = self.blocking;
        if self.blocking.wait() {
            self.blocking.begin();
            self.vmcb.intercept_1 |= vmcb::INTERCEPT_IRET;
            self.vmcb.event_injection =
                u64::from(exception::NMI) | vmcb::EVENT_NMI | vmcb::EVENT_VALID;
            return NmiOutcome::Given;
        }
        // An injected NMI blocks no further ones by itself (15.20), so nothing but this does.
        if before != Blocking::Stepping {
            self.begin_step();
        }
        NmiOutcome::Blocked
    }

    /// Looks at an exit while the guest handles an NMI or returns from it. True if the guest was
    /// left for that alone.
    pub(super) fn follow_nmi(&mut self) -> bool {
        let (code, rip) = (self.vmcb.exit_code, self.vmcb.rip);
        if code == vmcb::EXIT_IRET {
            self.vmcb.intercept_1 &= !vmcb::INTERCEPT_IRET;
            self.blocking.at_return(rip);
            return true;
        }
        if self.blocking != Blocking::Stepping {
            self.blocking.left_at(rip);
            return false;
        }
        match code.wrapping_sub(vmcb::EXIT_EXCEPTION) {
            vector if vector < u64::from(exception::COUNT) => self.follow_step(vector as u8),
            _ => return false,
        }
        true
    }

    fn begin_step(&mut self) {
        let vmcb = &mut *self.vmcb;
        self.before_step = BeforeStep {
            trap: vmcb.rflags & TRAP != 0,
            dr6: vmcb.dr6,
            exceptions: vmcb.intercept_exceptions,
        };
        vmcb.rflags |= TRAP;
        vmcb.intercept_exceptions |= STEP_EXCEPTIONS;
    }

    /// Ends the single step at an exception. The guest gets it, unless it is only that of the step.
    fn follow_step(&mut self, vector: u8) {
        let before = self.before_step;
        let vmcb = &mut *self.vmcb;
        if vector != exception::DEBUG || vmcb.dr6 & DR6_STEP == 0 {
            self.end_step();
        } else {
            // RFLAGS is what IRET has loaded.
            self.forget_step();
            if !before.trap {
                let vmcb = &mut *self.vmcb;
                let hit = vmcb.dr6 & DR6_HIT;
                vmcb.dr6 = before.dr6 | hit;
                if hit == 0 {
                    return;
                }
            }
        }
        let vmcb = &mut *self.vmcb;
        let raised = u64::from(vector) | vmcb::EVENT_EXCEPTION | vmcb::EVENT_VALID;
        vmcb.event_injection = match exception::has_error_code(vector) {
            true => raised | vmcb::EVENT_ERROR_CODE | vmcb.exit_info_1 << vmcb::EVENT_ERROR_SHIFT,
            false => raised,
        };
        if vector == exception::PAGE_FAULT {
            vmcb.cr2 = vmcb.exit_info_2;
        }
    }

    /// Ends the single step, if there is one, before the instruction has been executed.
    pub(super) fn end_step(&mut self) {
        if self.blocking == Blocking::Stepping {
            if !self.before_step.trap {
                self.vmcb.rflags &= !TRAP;
            }
            self.forget_step();
        }
    }

    fn forget_step(&mut self) {
        self.vmcb.intercept_exceptions = self.before_step.exceptions;
        self.blocking.stepped();
    }
}
