// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct sched_attr` (sched_setattr(2)), and the values that Linux accepts in it.

/// Bytes of the first version of the structure.
pub const FIRST_SIZE: usize = 48;
/// Bytes of the structure.
pub const SIZE: usize = 56;

/// SCHED_OTHER.
pub const OTHER: u32 = 0;
/// SCHED_FIFO.
pub const FIFO: u32 = 1;
/// SCHED_RR.
pub const RR: u32 = 2;
/// SCHED_BATCH.
pub const BATCH: u32 = 3;
/// SCHED_IDLE.
pub const IDLE: u32 = 5;
/// SCHED_DEADLINE.
pub const DEADLINE: u32 = 6;

/// SCHED_FLAG_RESET_ON_FORK: children start with SCHED_OTHER.
pub const RESET_ON_FORK: u64 = 1;
/// SCHED_FLAG_RECLAIM: the thread may use bandwidth that others leave.
pub const RECLAIM: u64 = 2;
/// SCHED_FLAG_DL_OVERRUN: SIGXCPU when the budget is used up.
pub const DL_OVERRUN: u64 = 4;
/// SCHED_FLAG_KEEP_POLICY: the policy stays.
pub const KEEP_POLICY: u64 = 8;
/// SCHED_FLAG_KEEP_PARAMS: the parameters stay.
pub const KEEP_PARAMS: u64 = 0x10;
/// SCHED_FLAG_UTIL_CLAMP: limits of utilisation, which Debian's kernels do not have.
pub const UTIL_CLAMP: u64 = 0x60;
/// All flags.
const ALL: u64 = 0x7f;

/// The fields of the structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// The nice value, -20..=19.
    pub nice: i32,
    /// The priority, 1..=99 for SCHED_FIFO and SCHED_RR, else 0.
    pub priority: u32,
    /// Runtime in nanoseconds, for SCHED_DEADLINE.
    pub runtime: u64,
    /// Relative deadline in nanoseconds, for SCHED_DEADLINE.
    pub deadline: u64,
    /// Period in nanoseconds, for SCHED_DEADLINE; 0 stands for the deadline.
    pub period: u64,
}

/// The attributes contradict each other, or are unknown (EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

impl Attributes {
    /// Reads the structure as a program wrote it; fields that a shorter version lacks are zero.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Self {
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let word = |at: usize| u64::from(half(at + 4)) << 32 | u64::from(half(at));
        Self {
            policy: half(4),
            flags: word(8),
            nice: (half(16) as i32).clamp(-20, 19),
            priority: half(20),
            runtime: word(24),
            deadline: word(32),
            period: word(40),
        }
    }

    /// Writes the structure as a program reads it; `size` goes into its first field.
    pub fn to_bytes(&self, size: u32) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let halves = [size, self.policy];
        for (index, half) in halves.into_iter().enumerate() {
            bytes[index * 4..][..4].copy_from_slice(&half.to_le_bytes());
        }
        bytes[8..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.nice.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.priority.to_le_bytes());
        for (index, word) in [self.runtime, self.deadline, self.period].into_iter().enumerate() {
            bytes[24 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Checks everything but the parameters of SCHED_DEADLINE, in Linux's order.
    pub fn check(&self) -> Result<(), Invalid> {
        let real_time = matches!(self.policy, FIFO | RR);
        let known = matches!(self.policy, OTHER | FIFO | RR | BATCH | IDLE | DEADLINE);
        let valid = known
            && self.flags & !ALL == 0
            && self.priority <= 99
            && real_time == (self.priority != 0);
        if valid { Ok(()) } else { Err(Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let attributes = Attributes {
            policy: DEADLINE,
            flags: RECLAIM | DL_OVERRUN,
            nice: -7,
            priority: 0,
            runtime: 0x0102_0304_0506_0708,
            deadline: 9,
            period: 10,
        };
        let bytes = attributes.to_bytes(56);
        assert_eq!(bytes[0], 56);
        assert_eq!(Attributes::from_bytes(&bytes), attributes);
        let mut low = bytes;
        low[16..20].copy_from_slice(&(-100i32).to_le_bytes());
        assert_eq!(Attributes::from_bytes(&low).nice, -20);
    }

    #[test]
    fn what_linux_accepts() {
        let with = |policy, priority| Attributes { policy, priority, ..Default::default() };
        for policy in [OTHER, BATCH, IDLE, DEADLINE] {
            assert!(with(policy, 0).check().is_ok() && with(policy, 1).check().is_err());
        }
        for policy in [FIFO, RR] {
            assert!(with(policy, 0).check().is_err() && with(policy, 100).check().is_err());
            assert!(with(policy, 1).check().is_ok() && with(policy, 99).check().is_ok());
        }
        assert!(with(4, 0).check().is_err() && with(7, 0).check().is_err());
        assert!(Attributes { flags: 0x80, ..Default::default() }.check().is_err());
    }
}
