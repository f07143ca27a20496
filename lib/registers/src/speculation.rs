// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel does against programs that learn of others by what the processor executes ahead:
//! chosen by what the processor is and says (AMD, *Software techniques for managing speculation*;
//! APM vol. 2, 3.2.9; APM vol. 3, CPUID 8000_0008 and 8000_0021).

use crate::cpuid::{
    EAX_AUTOMATIC_IBRS, EAX_NO_RETURN_OVERFLOW, EBX_BRANCH_TYPE_SAFE, EBX_IBPB, EBX_IBRS,
    EBX_IBRS_ALWAYS_ON, EBX_IBRS_SAME_MODE, EBX_NO_STORE_BYPASS, EBX_STIBP,
};
use crate::msr::{SPEC_CTRL_IBRS, SPEC_CTRL_STIBP};

/// What the processor is, and says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The family.
    pub family: u32,
    /// CPUID 8000_0008, EBX; 0 if there is no such leaf.
    pub controls: u32,
    /// CPUID 8000_0021, EAX; 0 if there is no such leaf.
    pub further: u32,
}

impl Processor {
    /// Returns the family that the signature (CPUID 1, EAX) of a processor tells.
    pub const fn family(signature: u32) -> u32 {
        match signature >> 8 & 0xf {
            0xf => 0xf + (signature >> 20 & 0xff),
            family => family,
        }
    }
}

/// What the kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measures {
    /// It turns automatic restriction of indirect branches on (EFER).
    pub automatic_ibrs: bool,
    /// What SPEC_CTRL has while the CPU is the kernel's.
    pub spec_ctrl: u64,
    /// Between programs of different users it has predictions of indirect branches forgotten.
    pub barrier: bool,
    /// What it does nothing against.
    pub open: Open,
}

/// What a program of one user may learn of the kernel or of others all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// By predictions of the kernel's indirect branches (Spectre, variant 2).
    pub indirect_branches: bool,
    /// By predictions of the kernel's returns as if they were other branches (Retbleed).
    pub branch_types: bool,
    /// By predictions of the kernel's returns (speculative return stack overflow).
    pub return_overflow: bool,
    /// By loads before earlier stores (speculative store bypass), within one program.
    pub store_bypass: bool,
}

/// Chooses what the kernel does.
pub const fn choose(processor: Processor) -> Measures {
    let Processor { family, controls, further } = processor;
    let automatic_ibrs = further & 1 << EAX_AUTOMATIC_IBRS != 0;
    let has_ibrs = controls & 1 << EBX_IBRS != 0;
    // Where it may stay on: elsewhere it holds against what was trained before it was set, so each
    // entry into the kernel would have to set it.
    let ibrs_stays =
        has_ibrs && controls & (1 << EBX_IBRS_ALWAYS_ON | 1 << EBX_IBRS_SAME_MODE) != 0;
    let ibrs = !automatic_ibrs && ibrs_stays;
    let mut spec_ctrl = 0;
    if ibrs {
        spec_ctrl |= SPEC_CTRL_IBRS;
    }
    // The other CPU of a core may be Linux's.
    if controls & 1 << EBX_STIBP != 0 {
        spec_ctrl |= SPEC_CTRL_STIBP;
    }
    // Bulldozer to Zen 2, and Hygon; later ones say that they are safe.
    let confuses_types = matches!(family, 0x15..=0x18) && controls & 1 << EBX_BRANCH_TYPE_SAFE == 0;
    let overflows = matches!(family, 0x17..=0x19) && further & 1 << EAX_NO_RETURN_OVERFLOW == 0;
    Measures {
        automatic_ibrs,
        spec_ctrl,
        barrier: controls & 1 << EBX_IBPB != 0,
        open: Open {
            indirect_branches: !automatic_ibrs && !ibrs,
            branch_types: confuses_types,
            return_overflow: overflows,
            store_bypass: controls & 1 << EBX_NO_STORE_BYPASS == 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn bits<const N: usize>(numbers: [u32; N]) -> u32 {
        let (mut word, mut index) = (0, 0);
        while index < N {
            word |= 1 << numbers[index];
            index += 1;
        }
        word
    }

    const STIBP_ALWAYS_ON: u32 = 17;
    const IBRS_PREFERRED: u32 = 18;
    const SSBD: u32 = 24;

    #[test]
    fn families_of_signatures() {
        for (signature, family) in [
            (0x0080_0f12, 0x17), // Zen
            (0x0083_0f10, 0x17), // Zen 2
            (0x0090_0f01, 0x18), // Hygon
            (0x00a2_0f12, 0x19), // Zen 3
            (0x00a6_0f12, 0x19), // Zen 4
            (0x00b4_0f40, 0x1a), // Zen 5
            (0x0000_0663, 6),
        ] {
            assert_eq!(Processor::family(signature), family, "{signature:#x}");
        }
    }

    /// What each processor says with current microcode, and what follows.
    #[test]
    fn processors() {
        let zen = bits([EBX_IBPB]);
        let preferred = zen | bits([EBX_IBRS, EBX_STIBP, STIBP_ALWAYS_ON, IBRS_PREFERRED, SSBD]);
        let always = preferred | bits([EBX_IBRS_ALWAYS_ON]);
        let zen_2 = preferred | bits([EBX_IBRS_SAME_MODE]);
        let zen_3 = zen_2 | bits([EBX_BRANCH_TYPE_SAFE]);
        let further = bits([EAX_AUTOMATIC_IBRS]);
        let both = SPEC_CTRL_IBRS | SPEC_CTRL_STIBP;
        let open = |indirect_branches, branch_types, return_overflow| Open {
            indirect_branches,
            branch_types,
            return_overflow,
            store_bypass: true,
        };
        let table = [
            ("Bulldozer", 0x15, 0, 0, (false, 0, false), open(true, true, false)),
            ("Jaguar", 0x16, 0, 0, (false, 0, false), open(true, true, false)),
            ("no microcode", 0x17, 0, 0, (false, 0, false), open(true, true, true)),
            ("Zen", 0x17, zen, 0, (false, 0, true), open(true, true, true)),
            ("Hygon", 0x18, zen, 0, (false, 0, true), open(true, true, true)),
            ("IBRS at entries", 0x17, preferred, 0, (false, 2, true), open(true, true, true)),
            ("IBRS always on", 0x17, always, 0, (false, both, true), open(false, true, true)),
            ("Zen 2", 0x17, zen_2, 0, (false, both, true), open(false, true, true)),
            ("Zen 3", 0x19, zen_3, 0, (false, both, true), open(false, false, true)),
            (
                "Zen 4",
                0x19,
                zen_3,
                further,
                (true, SPEC_CTRL_STIBP, true),
                open(false, false, true),
            ),
            (
                "Zen 5",
                0x1a,
                zen_3,
                further,
                (true, SPEC_CTRL_STIBP, true),
                open(false, false, false),
            ),
        ];
        for (name, family, controls, further, expected, open) in table {
            let measures = choose(Processor { family, controls, further });
            let Measures { automatic_ibrs, spec_ctrl, barrier, .. } = measures;
            assert_eq!((automatic_ibrs, spec_ctrl, barrier), expected, "{name}");
            assert_eq!(measures.open, open, "{name}");
        }
    }

    #[test]
    fn a_processor_that_needs_nothing() {
        let processor = Processor {
            family: 0x1b,
            controls: bits([EBX_NO_STORE_BYPASS, EBX_BRANCH_TYPE_SAFE]),
            further: bits([EAX_AUTOMATIC_IBRS, EAX_NO_RETURN_OVERFLOW]),
        };
        let measures = choose(processor);
        assert_eq!(measures.open, Open::default());
        assert_eq!((measures.spec_ctrl, measures.barrier), (0, false));
        // One that asks for writes of SPEC_CTRL at each entry does not get them.
        let asks = choose(Processor { family: 0x17, controls: bits([EBX_IBRS]), further: 0 });
        assert!(asks.spec_ctrl == 0 && asks.open.indirect_branches);
    }
}
