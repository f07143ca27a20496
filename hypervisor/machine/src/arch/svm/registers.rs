// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model-specific registers of SVM (APM vol. 2, 15.30).

use crtos_partition::address::PhysAddr;
use crtos_registers::msr;

use crate::processor::msr::write;

/// Sets where VMRUN saves the host's state.
///
/// # Safety
/// SVM is on, and the page is this CPU's for that use, or VMRUN is not executed any more.
pub unsafe fn set_host_save_area(page: PhysAddr) {
    // SAFETY: The register comes with SVM; the processor writes to no other memory than the page.
    unsafe { write(msr::VM_HSAVE_PA, page.get()) }
}
