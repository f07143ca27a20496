// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUID as cells see it: the processor's, without what they do not have.

use core::arch::x86_64::__cpuid_count;

use crtos_abi::ABI_VERSION;
use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_partition::decode::{RAX, RBX, RCX, RDX};
use crtos_registers::cpuid::{self, HYPERVISOR, HYPERVISOR_LAST};
use x86_64::registers::control::Cr4Flags;

/// Leaf that tells the version of the interface.
const VERSION: u32 = HYPERVISOR + 1;
/// First of the leaves of hypervisors that are empty.
const EMPTY: u32 = HYPERVISOR + 2;
/// "crtos cell\0\0" in EBX, ECX, EDX.
const SIGNATURE: [u32; 3] =
    [u32::from_le_bytes(*b"crto"), u32::from_le_bytes(*b"s ce"), u32::from_le_bytes(*b"ll\0\0")];

/// Gives the guest, a cell, the result of its CPUID.
pub fn emulate(local: &mut Local) {
    let cr4 = Cr4Flags::from_bits_truncate(local.vcpu().paging().cr4);
    let registers = local.vcpu().registers();
    let (leaf, subleaf) = (registers[RAX] as u32, registers[RCX] as u32);
    let real = __cpuid_count(leaf, subleaf);
    let (mut eax, mut ebx, mut ecx, mut edx) = (real.eax, real.ebx, real.ecx, real.edx);
    let set = |word: &mut u32, bit: u32, value: bool| {
        *word = *word & !(1 << bit) | u32::from(value) << bit;
    };
    match leaf {
        cpuid::FEATURES => {
            set(&mut ecx, cpuid::ECX_MONITOR, false);
            set(&mut ecx, cpuid::ECX_VMX, false);
            set(&mut ecx, cpuid::ECX_SMX, false);
            set(&mut ecx, cpuid::ECX_X2APIC, true);
            set(&mut ecx, cpuid::ECX_HYPERVISOR, true);
            // What mirrors CR4 mirrors the cell's.
            set(&mut ecx, cpuid::ECX_OSXSAVE, cr4.contains(Cr4Flags::OSXSAVE));
        }
        cpuid::EXTENDED_FEATURES if subleaf == 0 => {
            set(&mut ecx, cpuid::ECX_OSPKE, cr4.contains(Cr4Flags::PROTECTION_KEY_USER));
        }
        cpuid::MONITOR | cpuid::SVM | cpuid::MEMORY_ENCRYPTION => {
            (eax, ebx, ecx, edx) = (0, 0, 0, 0);
        }
        cpuid::AMD_FEATURES => {
            set(&mut ecx, cpuid::ECX_SVM, false);
            set(&mut ecx, cpuid::ECX_SKINIT, false);
            set(&mut ecx, cpuid::ECX_MONITORX, false);
        }
        HYPERVISOR => {
            eax = VERSION;
            [ebx, ecx, edx] = SIGNATURE;
        }
        VERSION => (eax, ebx, ecx, edx) = (ABI_VERSION, 0, 0, 0),
        EMPTY..=HYPERVISOR_LAST => (eax, ebx, ecx, edx) = (0, 0, 0, 0),
        _ => (),
    }
    registers[RAX] = eax.into();
    registers[RBX] = ebx.into();
    registers[RCX] = ecx.into();
    registers[RDX] = edx.into();
}
