// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine checks: errors that the processor found, in banks of registers (APM vol. 2, chapter 9).
//!
//! Some banks belong to one CPU, others to several: those of the third-level cache, the memory
//! controllers, the links. Who has one CPU looks at the former alone.

use crate::cpuid;

/// Most banks that are looked at.
pub const MAX_BANKS: u32 = 32;

/// The register of what happened in a bank; see [`Status`]. It is there in the scalable
/// architecture as well.
pub const fn status(bank: u32) -> u32 {
    0x401 + bank * 4
}

/// The register of where it happened.
pub const fn address(bank: u32) -> u32 {
    0x402 + bank * 4
}

/// The register of what a bank is about, in the scalable architecture (APM vol. 2, 9.3.3).
pub const fn identity(bank: u32) -> u32 {
    0xc000_2005 + bank * 0x10
}

/// How a processor tells of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// It has the scalable architecture.
    pub scalable: bool,
    /// Errors that came while there was one change nothing.
    pub counts_overflow: bool,
    /// It marks what it could not correct as poison, and tells of it where it is used.
    pub contains: bool,
}

impl Features {
    /// What EBX of CPUID 8000_0007, 0 if there is no such leaf, and MCG_CAP say.
    pub const fn new(reliability: u32, capabilities: u64) -> Self {
        /// In MCG_CAP: software can recover (SDM vol. 3, 17.3.1.1). Reserved on AMD's processors;
        /// emulators have it.
        const SOFTWARE_RECOVERY: u64 = 1 << 24;
        const fn has(word: u32, bit: u32) -> bool {
            word & 1 << bit != 0
        }
        Self {
            scalable: has(reliability, cpuid::EBX_SCALABLE_MACHINE_CHECK),
            counts_overflow: has(reliability, cpuid::EBX_OVERFLOW_RECOVERABLE),
            contains: has(reliability, cpuid::EBX_SOFTWARE_RECOVERY)
                || capabilities & SOFTWARE_RECOVERY != 0,
        }
    }
}

/// Returns a bit for each of `count` banks that belongs to one CPU. `identity` reads the register
/// of that name of a bank; it is called in the scalable architecture alone.
pub fn own_banks(scalable: bool, count: u32, identity: impl Fn(u32) -> u64) -> u32 {
    /// The bank of the northbridge.
    const NORTHBRIDGE: u32 = 4;
    /// Parts of a core, in the upper half of the identity's hardware id; its types from 16 bits on.
    const CORE: u64 = 0xb0;
    const THIRD_LEVEL_CACHE: u64 = 7;
    let is_own = |bank: &u32| match scalable {
        false => *bank != NORTHBRIDGE,
        true => {
            let identity = identity(*bank);
            identity >> 32 & 0xfff == CORE && identity >> 48 != THIRD_LEVEL_CACHE
        }
    };
    (0..count.min(MAX_BANKS)).filter(is_own).fold(0, |banks, bank| banks | 1 << bank)
}

/// In MCG_STATUS: the instruction pointer that was pushed is one at which the program can go on.
pub const RESTARTABLE: u64 = 1 << 0;

/// The status of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u64);

impl Status {
    const fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    /// There is an error.
    pub const fn is_valid(self) -> bool {
        self.has(63)
    }

    /// Others came while it was there.
    pub const fn has_overflowed(self) -> bool {
        self.has(62)
    }

    /// It was not corrected.
    pub const fn is_uncorrected(self) -> bool {
        self.has(61)
    }

    /// The register of the address says where.
    pub const fn has_address(self) -> bool {
        self.has(58)
    }

    /// What the processor was doing is lost.
    pub const fn has_lost_context(self) -> bool {
        self.has(57)
    }

    /// What the program was doing is lost, in the scalable architecture.
    const fn has_lost_task(self) -> bool {
        self.has(55)
    }

    /// Nobody has used what is wrong.
    pub const fn is_deferred(self) -> bool {
        self.has(44)
    }

    /// What is wrong was used, and was marked before; the address is one of memory.
    const fn is_poison(self) -> bool {
        self.has(43)
    }
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is none.
    Nothing,
    /// It was corrected, or nobody has used what is wrong.
    Corrected,
    /// The memory at the address of the bank is broken, and nothing else.
    Contained {
        /// The program that used it cannot go on, not even in a handler.
        ends_program: bool,
    },
    /// Nobody knows what is still right.
    Fatal,
}

/// Judges what a bank says; `global` is MCG_STATUS.
pub fn judge(status: Status, global: u64, features: Features) -> Verdict {
    if !status.is_valid() {
        Verdict::Nothing
    } else if status.has_lost_context() {
        Verdict::Fatal
    } else if !status.is_uncorrected() {
        Verdict::Corrected
    } else if features.contains
        && status.is_poison()
        && status.has_address()
        && (!status.has_overflowed() || features.counts_overflow)
    {
        let loses_task = features.scalable && status.has_lost_task();
        Verdict::Contained { ends_program: loses_task || global & RESTARTABLE == 0 }
    } else {
        Verdict::Fatal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: u64 = 1 << 63;
    const UNCORRECTED: u64 = VALID | 1 << 61;
    const POISON: u64 = UNCORRECTED | 1 << 58 | 1 << 43;

    #[test]
    fn shared_banks_are_not_the_cpus() {
        assert_eq!(own_banks(false, 6, |_| unreachable!()), 0b10_1111);
        // Zen 2: load-store, instruction fetch, second-level cache, decode, nothing, execution,
        // floating point, third-level cache, memory controller.
        let core = |kind: u64| 0xb0 << 32 | kind << 48;
        let zen = [core(0), core(1), core(2), core(3), 0, core(5), core(6), core(7), 0x96 << 32];
        assert_eq!(own_banks(true, 9, |bank| zen[bank as usize]), 0b0_0110_1111);
        assert_eq!(own_banks(false, 200, |_| 0).count_ones(), MAX_BANKS - 1);
    }

    #[test]
    fn features() {
        let of = |reliability, capabilities| {
            let Features { scalable, counts_overflow, contains } =
                Features::new(reliability, capabilities);
            (scalable, counts_overflow, contains)
        };
        assert_eq!(of(0, 0x106), (false, false, false));
        assert_eq!(of(0b1011, 0x117), (true, true, true), "Zen");
        assert_eq!(of(0, 0x100_010a), (false, false, true), "QEMU");
    }

    #[test]
    fn verdicts() {
        use Verdict::*;
        const NONE: Features =
            Features { scalable: false, counts_overflow: false, contains: false };
        const OLD: Features = Features { contains: true, ..NONE };
        const NEW: Features = Features { scalable: true, counts_overflow: true, contains: true };
        let old = |status| judge(Status(status), RESTARTABLE, OLD);
        let new = |status| judge(Status(status), RESTARTABLE, NEW);
        let contained = Contained { ends_program: false };
        let last = Contained { ends_program: true };
        assert_eq!(old(0), Nothing);
        assert_eq!(old(!VALID), Nothing);
        assert_eq!(old(VALID), Corrected);
        assert_eq!(new(VALID | 1 << 58 | 1 << 44), Corrected, "deferred");
        assert_eq!(old(VALID | 1 << 57), Fatal, "the context is lost");
        assert_eq!(old(POISON), contained);
        assert_eq!(judge(Status(POISON), RESTARTABLE, NONE), Fatal, "not contained");
        assert_eq!(new(POISON & !(1 << 43)), Fatal, "the address may be another kind of number");
        assert_eq!(new(POISON & !(1 << 58)), Fatal, "nobody knows where");
        assert_eq!(new(POISON | 1 << 57), Fatal);
        assert_eq!(old(POISON | 1 << 62), Fatal, "others are unknown");
        assert_eq!(new(POISON | 1 << 62), contained);
        assert_eq!(old(POISON | 1 << 55), contained, "no such bit");
        assert_eq!(new(POISON | 1 << 55), last, "the task is lost");
        assert_eq!(judge(Status(POISON), 0, NEW), last, "not restartable");
    }
}
