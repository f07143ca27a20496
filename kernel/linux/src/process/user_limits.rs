// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of a user may have, where `crtos up --limit` says so: which CPUs, how much
//! memory together, up to which priority. Limits go by the user who pays, as Linux's kernel tells
//! when a process begins: its real user id, or who began its user namespace. The superuser has none
//! without being named.

use alloc::{boxed::Box, vec::Vec};

use crtos_core::{
    mm::{layout, quota::Quota},
    task::{Policy, Scheduling},
};
use crtos_sched::{CpuSet, Level};
use spin::Once;

/// What begins a word of the command line: `user=3e8,2,4000000,28` has the user's id, the CPUs as a
/// mask of the cell's order, the bytes and the priority, hexadecimal. `-` stands for all users that
/// are not named, and for what has no limit.
const WORD: &[u8] = b"user=";

/// What the programs of a user may have.
pub struct UserLimits {
    /// None: of each user but the superuser who is not named.
    uid: Option<u32>,
    cpus: CpuSet,
    memory: Option<Quota>,
    priority: Option<Level>,
}

static USERS: Once<Vec<&'static UserLimits>> = Once::new();

/// Reads the command line. At boot, in a thread.
pub fn start() {
    let words = layout::boot_info().words().filter_map(|word| word.strip_prefix(WORD));
    let read = |word| {
        let limits = UserLimits::read(word);
        if limits.is_none() {
            crtos_core::error!("a limit of a user is none: {}", word.escape_ascii());
        }
        // They are there for as long as the kernel.
        limits.map(|limits| &*Box::leak(Box::new(limits)))
    };
    USERS.call_once(|| words.filter_map(read).collect());
}

/// The limits of a user, if there are any. Any context.
pub fn of(uid: u32) -> Option<&'static UserLimits> {
    let users = USERS.get()?;
    let of = |uid| users.iter().find(|limits| limits.uid == uid).copied();
    of(Some(uid)).or_else(|| if uid == 0 { None } else { of(None) })
}

impl UserLimits {
    fn read(word: &[u8]) -> Option<Self> {
        let mut fields = core::str::from_utf8(word).ok()?.split(',').map(|field| match field {
            "-" => Some(None),
            digits => u64::from_str_radix(digits, 16).ok().map(Some),
        });
        let [uid, cpus, memory, priority] = core::array::from_fn(|_| fields.next().flatten());
        let limits = Self {
            uid: uid?.map(u32::try_from).transpose().ok()?,
            cpus: cpus?.map_or(Some(CpuSet::ALL), |mask| mask.try_into().ok().map(CpuSet))?,
            memory: memory?.map(Quota::new),
            priority: match priority? {
                Some(priority) => Some(Level::new(priority.try_into().ok()?)?),
                None => None,
            },
        };
        fields.next().is_none().then_some(limits)
    }

    /// How much memory they have together, if that is limited.
    pub fn memory(&self) -> Option<&Quota> {
        self.memory.as_ref()
    }

    /// The CPUs that they may use, of those that one of them asks for.
    pub fn cpus_of(&self, wanted: CpuSet) -> CpuSet {
        self.cpus.and(wanted)
    }

    /// Whether they may have threads of that level.
    pub fn permits(&self, level: Level) -> bool {
        self.priority.is_none_or(|most| level <= most)
    }

    /// The CPUs of a thread that inherits others.
    pub fn inherited_cpus(&self, cpus: CpuSet) -> CpuSet {
        let both = self.cpus_of(cpus);
        if both.is_empty() { self.cpus } else { both }
    }

    /// The scheduling of a thread that inherits this.
    pub fn inherited(&self, scheduling: Scheduling) -> Scheduling {
        match self.priority {
            Some(Level::ORDINARY) if scheduling.level > Level::ORDINARY => {
                Scheduling { policy: Policy::Ordinary, level: Level::ORDINARY, ..scheduling }
            }
            Some(most) if scheduling.level > most => {
                let policy = match scheduling.policy {
                    Policy::Deadline => Policy::Fifo,
                    policy => policy,
                };
                Scheduling { policy, level: most, ..scheduling }
            }
            _ => scheduling,
        }
    }
}
