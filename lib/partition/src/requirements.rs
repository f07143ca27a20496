// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an AMD processor has to offer for a launch, and what may not be on.

use crtos_registers::{cpuid, msr};

use crate::error::LaunchError;

/// What a leaf of CPUID says, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaf {
    /// EAX.
    pub eax: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// Checks a processor. `leaf` reads a leaf of CPUID, `register` a model-specific register, of those
/// alone that the processor has.
pub fn check(leaf: impl Fn(u32) -> Leaf, register: impl Fn(u32) -> u64) -> Result<(), LaunchError> {
    let features = leaf(cpuid::AMD_FEATURES);
    if leaf(cpuid::EXTENDED).eax < cpuid::SVM || features.ecx & 1 << cpuid::ECX_SVM == 0 {
        return Err(LaunchError::NoVirtualization);
    }
    if register(msr::EFER) & msr::EFER_SVM != 0 {
        return Err(LaunchError::InUse);
    }
    if register(msr::VM_CR) & msr::VM_CR_SVM_DISABLED != 0 {
        return Err(LaunchError::DisabledByFirmware);
    }
    let gigabyte_pages = features.edx & 1 << cpuid::EDX_GIGABYTE_PAGES != 0;
    let nested_paging = leaf(cpuid::SVM).edx & 1 << cpuid::EDX_NESTED_PAGING != 0;
    if !nested_paging || !gigabyte_pages {
        return Err(LaunchError::NoNestedPaging);
    }
    // Address bits above those of memory would name it as well, past the nested tables. They are
    // those by which addresses are shorter then (CPUID 8000_001F, EBX 11:6), which nobody needs to
    // know where it is off. Nobody switches it on later: see [`crate::registers`]. All AMD
    // processors with SVM have SYSCFG.
    if register(msr::SYSCFG) & msr::SYSCFG_ENCRYPTION != 0 {
        return Err(LaunchError::MemoryEncryption);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use LaunchError::*;

    use super::*;

    const SVM: u32 = 1 << 2;
    const NESTED_PAGING: u32 = 1 << 0;
    const GIGABYTE_PAGES: u32 = 1 << 26;

    /// A processor that offers everything.
    fn complete(number: u32) -> Leaf {
        match number {
            cpuid::EXTENDED => Leaf { eax: cpuid::SVM, ..Leaf::default() },
            cpuid::AMD_FEATURES => Leaf { ecx: SVM, edx: GIGABYTE_PAGES, ..Leaf::default() },
            cpuid::SVM => Leaf { edx: NESTED_PAGING, ..Leaf::default() },
            _ => Leaf::default(),
        }
    }

    /// The result for one in which the leaf `number` has this value.
    fn with_leaf(number: u32, leaf: Leaf) -> Result<(), LaunchError> {
        check(|asked| if asked == number { leaf } else { complete(asked) }, |_| 0)
    }

    /// The result for one in which the register `number` has this value.
    fn with_register(number: u32, value: u64) -> Result<(), LaunchError> {
        check(complete, |asked| if asked == number { value } else { 0 })
    }

    #[test]
    fn what_is_missing_is_told() {
        assert_eq!(check(complete, |_| 0), Ok(()));
        let leaf = Leaf { eax: cpuid::SVM - 1, ..Leaf::default() };
        assert_eq!(with_leaf(cpuid::EXTENDED, leaf), Err(NoVirtualization));
        let leaf = Leaf { edx: !NESTED_PAGING, ..Leaf::default() };
        assert_eq!(with_leaf(cpuid::SVM, leaf), Err(NoNestedPaging));
        for (ecx, edx, error) in
            [(!SVM, GIGABYTE_PAGES, NoVirtualization), (SVM, !GIGABYTE_PAGES, NoNestedPaging)]
        {
            let leaf = Leaf { ecx, edx, ..Leaf::default() };
            assert_eq!(with_leaf(cpuid::AMD_FEATURES, leaf), Err(error));
        }
    }

    #[test]
    fn what_is_on_is_told() {
        for (number, bits, error) in [
            (msr::EFER, 1 << 12, InUse),
            (msr::VM_CR, 1 << 4, DisabledByFirmware),
            (msr::SYSCFG, 1 << 23, MemoryEncryption),
            (msr::SYSCFG, 1 << 26, MemoryEncryption),
        ] {
            assert_eq!(with_register(number, bits), Err(error), "{number:#x} {bits:#x}");
        }
        for (number, bits) in
            [(msr::EFER, 1 << 12), (msr::VM_CR, 1 << 4), (msr::SYSCFG, 1 << 23 | 1 << 26)]
        {
            assert_eq!(with_register(number, !bits), Ok(()), "{number:#x}");
        }
    }

    #[test]
    fn registers_that_may_be_missing_are_not_read() {
        let leaf = Leaf { ecx: !SVM, edx: GIGABYTE_PAGES, ..Leaf::default() };
        let result = check(
            |asked| if asked == cpuid::AMD_FEATURES { leaf } else { complete(asked) },
            |asked| unreachable!("{asked:#x} is read"),
        );
        assert_eq!(result, Err(NoVirtualization));
    }
}
