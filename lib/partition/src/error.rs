// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something was refused. The numbers that guests and the module see are those of `crtos_abi`.

use crtos_abi::{hypercall, image};

/// Why a hypercall was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An argument is out of range or contradicts itself.
    Invalid,
    /// There is no such cell.
    NoCell,
    /// The cell is not in a state that allows it, or something still uses it.
    Busy,
    /// The hypervisor's memory is used up.
    NoMemory,
    /// The memory, CPU or port belongs to somebody else.
    Owned,
    /// The call is not for the caller.
    Denied,
    /// There is no such call.
    NoCall,
    /// A CPU did not react in time.
    Timeout,
    /// The cell is locked.
    Locked,
}

impl Refusal {
    /// Its number in [`crtos_abi::hypercall`].
    pub fn code(self) -> i64 {
        match self {
            Self::Invalid => hypercall::HV_INVALID,
            Self::NoCell => hypercall::HV_NO_CELL,
            Self::Busy => hypercall::HV_BUSY,
            Self::NoMemory => hypercall::HV_NO_MEMORY,
            Self::Owned => hypercall::HV_OWNED,
            Self::Denied => hypercall::HV_DENIED,
            Self::NoCall => hypercall::HV_NO_CALL,
            Self::Timeout => hypercall::HV_TIMEOUT,
            Self::Locked => hypercall::HV_LOCKED,
        }
    }
}

/// Why the hypervisor was not launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// The processor has no virtualization.
    NoVirtualization,
    /// Firmware has disabled it.
    DisabledByFirmware,
    /// Another hypervisor uses it.
    InUse,
    /// The processor has no nested paging.
    NoNestedPaging,
    /// The hypervisor's memory does not suffice for this machine.
    NoMemory,
    /// The launch information contradicts itself or the machine.
    BadInfo,
    /// Memory encryption is on.
    MemoryEncryption,
}

impl LaunchError {
    /// Its number in [`crtos_abi::image`].
    pub fn code(self) -> i64 {
        match self {
            Self::NoVirtualization => image::LAUNCH_NO_VIRTUALIZATION,
            Self::DisabledByFirmware => image::LAUNCH_DISABLED_BY_FIRMWARE,
            Self::InUse => image::LAUNCH_IN_USE,
            Self::NoNestedPaging => image::LAUNCH_NO_NESTED_PAGING,
            Self::NoMemory => image::LAUNCH_NO_MEMORY,
            Self::BadInfo => image::LAUNCH_BAD_INFO,
            Self::MemoryEncryption => image::LAUNCH_MEMORY_ENCRYPTION,
        }
    }
}
