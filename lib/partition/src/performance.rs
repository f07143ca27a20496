// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a CPU of a cell runs: Linux may have left it at its lowest performance when it was
//! taken offline. It gets the highest while a cell has it, and what Linux had asked for when Linux
//! gets it back. Whether it may boost is left as it is: Linux allows that when a CPU goes offline,
//! so if it is forbidden, the firmware or an administrator wants it so.

use crtos_registers::msr;

/// The model-specific registers of a CPU.
pub trait Registers {
    /// Reads a register; `None` if the processor lacks it.
    fn read(&self, number: u32) -> Option<u64>;
    /// Writes a register, which may refuse the value.
    fn write(&mut self, number: u32, value: u64);
}

/// The registers that are set, in the order in which they are. All of them are the CPU's own.
const NUMBERS: [u32; 2] = [msr::PSTATE_CONTROL, msr::CPPC_REQUEST];

/// What Linux had asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Performance([Option<u64>; NUMBERS.len()]);

/// Asks for the highest performance. Returns what was asked for before.
pub fn raise(registers: &mut impl Registers) -> Performance {
    let mut before = Performance::default();
    for (number, place) in NUMBERS.into_iter().zip(&mut before.0) {
        let Some(value) = registers.read(number) else { continue };
        let Some(highest) = highest(registers, number, value) else { continue };
        if highest != value {
            *place = Some(value);
            registers.write(number, highest);
        }
    }
    before
}

/// Asks for what was asked for `before`.
pub fn give_back(registers: &mut impl Registers, before: Performance) {
    for (number, value) in NUMBERS.into_iter().zip(before.0) {
        if let Some(value) = value {
            registers.write(number, value);
        }
    }
}

/// What a register is to have, with `value` in it; `None` if it is not in use.
fn highest(registers: &impl Registers, number: u32, value: u64) -> Option<u64> {
    match number {
        // State 0 is the fastest, or as fast as the machine allows: APM vol. 2, 17.1.
        msr::PSTATE_CONTROL => Some(value & !msr::PSTATE_CONTROL_STATE),
        // Never below what the CPU can always do, and above that as the processor sees fit, which
        // does not save power: APM vol. 2, 17.6.
        _ => {
            let is_on = registers.read(msr::CPPC_ENABLE)? & 1 != 0;
            let capabilities = registers.read(msr::CPPC_CAPABILITIES)?;
            let (highest, nominal) = (capabilities >> 24 & 0xff, capabilities >> 16 & 0xff);
            (is_on && highest >= nominal && nominal > 0)
                .then_some(value & !0xffff_ffff | nominal << 8 | highest)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A mock register file that counts writes.
    #[derive(Clone, Debug, Default)]
    struct File {
        values: BTreeMap<u32, u64>,
        writes: usize,
    }

    impl File {
        fn of(values: &[(u32, u64)]) -> Self {
            Self { values: values.iter().copied().collect(), writes: 0 }
        }
    }

    impl Registers for File {
        fn read(&self, number: u32) -> Option<u64> {
            self.values.get(&number).copied()
        }

        fn write(&mut self, number: u32, value: u64) {
            assert!(self.values.contains_key(&number), "{number:#x} is not there");
            assert!(NUMBERS.contains(&number), "{number:#x} is not to be written");
            self.writes += 1;
            self.values.insert(number, value);
        }
    }

    #[test]
    fn a_slow_cpu_becomes_fast() {
        // As acpi-cpufreq leaves it, where the firmware forbids boost.
        let boost = (msr::HWCR, msr::HWCR_NO_BOOST | 0x11);
        let old = [boost, (msr::PSTATE_CONTROL, 2)];
        let mut file = File::of(&old);
        let before = raise(&mut file);
        assert_eq!(file.values, File::of(&[boost, (msr::PSTATE_CONTROL, 0)]).values);
        give_back(&mut file, before);
        assert_eq!(file.values, File::of(&old).values);
    }

    #[test]
    fn collaborative_control() {
        // As amd_pstate leaves it: lowest, saving power. Highest 166, nominal 118.
        let capabilities = 166 << 24 | 118 << 16 | 52 << 8 | 16;
        let request = |on: u64, capabilities: u64| {
            let mut file = File::of(&[
                (msr::CPPC_ENABLE, on),
                (msr::CPPC_CAPABILITIES, capabilities),
                (msr::CPPC_REQUEST, 0xff10_1010),
            ]);
            raise(&mut file);
            file.values[&msr::CPPC_REQUEST]
        };
        assert_eq!(request(1, capabilities), 118 << 8 | 166);
        assert_eq!(request(0, capabilities), 0xff10_1010, "off");
        assert_eq!(request(1, 0), 0xff10_1010, "the firmware says nothing");
        assert_eq!(request(1, 100 << 24 | 118 << 16), 0xff10_1010, "it contradicts itself");
    }

    #[test]
    fn a_fast_cpu_is_left_alone() {
        for values in [&[][..], &[(msr::HWCR, 0x11), (msr::PSTATE_CONTROL, 0)]] {
            let mut file = File::of(values);
            let before = raise(&mut file);
            give_back(&mut file, before);
            assert_eq!(file.writes, 0);
        }
    }

    proptest! {
        /// Whatever is there, Linux gets it back, and nothing but these bits changes meanwhile.
        #[test]
        fn linux_gets_back_what_it_had(
            present in prop::collection::vec((any::<bool>(), any::<u64>()), 5),
        ) {
            let all = [
                msr::HWCR,
                msr::PSTATE_CONTROL,
                msr::CPPC_REQUEST,
                msr::CPPC_ENABLE,
                msr::CPPC_CAPABILITIES,
            ];
            let there = all.into_iter().zip(present).filter(|(_, (there, _))| *there);
            let mut file = File::of(&there.map(|(n, (_, value))| (n, value)).collect::<Vec<_>>());
            let old = file.values.clone();
            let before = raise(&mut file);
            for (number, value) in &file.values {
                let bits = match *number {
                    msr::PSTATE_CONTROL => msr::PSTATE_CONTROL_STATE,
                    msr::CPPC_REQUEST => 0xffff_ffff,
                    _ => 0,
                };
                prop_assert_eq!((value ^ old[number]) & !bits, 0);
            }
            give_back(&mut file, before);
            prop_assert_eq!(file.values, old);
        }
    }
}
