// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers and bits of the processor's registers, written down once for the hypervisor, the
//! real-time kernel and bare-metal programs.
//!
//! Only what the crate `x86_64` lacks is here: it has the flags of the control registers, of EFER,
//! of XCR0 and of the APIC base register, but neither register numbers nor the local APIC. "APM" is
//! AMD's *AMD64 Architecture Programmer's Manual*, "SDM" is Intel's *Software Developer's Manual*.
//!
//! | module | concept |
//! |---|---|
//! | [`apic`] | the local APIC: registers, interrupt commands, local vectors |
//! | [`machine_check`] | banks of errors, and what follows from one |
//! | [`msr`] | numbers of model-specific registers |
//! | [`pat`] | memory types |
//! | [`cpuid`] | leaves of CPUID and their bits |
//! | [`descriptor`] | segment descriptors and interrupt gates |
//! | [`exception`] | vectors of exceptions |
//! | [`speculation`] | what a kernel does against what its processor executes ahead |
//! | [`fpu`] | initial values of floating-point control registers |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod apic;
pub mod cpuid;
pub mod descriptor;
pub mod exception;
pub mod fpu;
pub mod machine_check;
pub mod msr;
pub mod pat;
pub mod speculation;
