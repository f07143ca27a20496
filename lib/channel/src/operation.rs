// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel asks of a shadow thread, and how that lies in a slot. Both ends use this one
//! definition: the kernel encodes, the shadow decodes.
//!
//! Addresses are the program's, which the shadow has as well. A result is what a system call
//! returns (-errno on failure) unless the operation says otherwise.

use crtos_abi::{
    UserAddr, channel as raw,
    ids::{Pid, Tid},
};
use crtos_syscalls::{cpulist::CpuList, topology::File};

use crate::{Heritage, Slot};

/// What a shadow thread has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Make a system call. The result is [`raw::RESULT_NOT_MADE`] if a signal was forwarded first,
    /// or the kernel interrupted the call.
    SystemCall {
        /// Its number.
        number: u32,
        /// Its arguments.
        arguments: &'a [u64; 6],
    },
    /// Make a system call that [asks for a path](crtos_syscalls::Row::path_asked_for), with the
    /// program's executable in place of that. The rest is as of [`SystemCall`](Self::SystemCall).
    AskExecutable {
        /// Its number.
        number: u32,
        /// Its arguments.
        arguments: &'a [u64; 6],
    },
    /// Copy the start-up block (see [`raw::Startup`]) to `to`, if it takes no more than `room`
    /// bytes. Result: its size in bytes.
    Startup {
        /// Where to.
        to: UserAddr,
        /// Bytes there.
        room: u64,
    },
    /// End the shadow process. No reply; [`raw::SLOT_GONE`] follows.
    Exit {
        /// As exit_group(2) takes it.
        status: i32,
    },
    /// End the shadow process by the default action of a signal. No reply; [`raw::SLOT_GONE`]
    /// follows.
    ExitBySignal {
        /// The signal.
        signal: u32,
        /// Because there is no memory left for the program.
        is_starved: bool,
    },
    /// Say that the realm takes no new program, and end the shadow process, which has none. No
    /// reply; [`raw::SLOT_GONE`] follows.
    Refuse,
    /// Make further shadow threads. They wait in state [`raw::SLOT_READY`], and the kernel decides
    /// which of the process's threads runs in which of them. Result: [`FirstMade::to_word`], or an
    /// error if there is none.
    MakeThreads {
        /// How many, at most [`raw::MOST_NEW_THREADS`].
        count: u64,
        /// What they inherit: [`raw::Slot::heritage_or_payer`].
        heritage: Heritage,
    },
    /// End this shadow thread alone, which is not the first of its process. No reply;
    /// [`raw::SLOT_GONE`] follows.
    ExitThread,
    /// Set what the shadow does on a signal.
    SetDisposition {
        /// The signal.
        signal: u32,
        /// What it does.
        disposition: Disposition,
        /// Flags of sigaction(2).
        flags: u64,
    },
    /// Forward each signal of a set, then block no signal in the shadow.
    ForwardSignals {
        /// The set: bit `n - 1` for signal `n`.
        signals: u64,
    },
    /// Tell which signals are blocked in the shadow. Result: the set.
    BlockedSignals,
    /// Fork the shadow. Result: the child's pid, once the child has asked for a process of its own,
    /// with [`raw::Slot::parent`]. With CLONE_VM that process has the number of its parent's: it
    /// shares the shadow's memory. With CLONE_VFORK the result comes when the child has executed a
    /// program or ended.
    Fork {
        /// Flags of clone(2) with the signal to the parent.
        flags: u64,
        /// Where Linux stores the descriptor of CLONE_PIDFD.
        pidfd: UserAddr,
    },
    /// Execute a program. A reply means failure; else [`raw::SLOT_GONE`] follows, and a new process
    /// with the same pid if the realm can load the program. A program that the realm cannot load
    /// goes on in Linux.
    Execute {
        /// Its path.
        path: UserAddr,
        /// Its arguments, as execve(2) takes them.
        arguments: UserAddr,
        /// Its environment.
        environment: UserAddr,
        /// The signals that it starts with blocked.
        blocked: u64,
        /// A program that the realm cannot load is not executed, and the result is
        /// [`raw::RESULT_IN_LINUX`].
        in_realm_only: bool,
        /// The descriptor by which it is named (`/dev/fd/N`), as execveat(2) has it; below 2^31.
        descriptor: Option<u32>,
    },
    /// Tell the scheduling of a shadow thread. Carried out by the module. Result:
    /// [`Scheduling::to_word`].
    Scheduling {
        /// The thread; `None` for this one.
        tid: Option<Tid>,
    },
    /// Set the scheduling of a shadow thread.
    SetScheduling {
        /// The thread; `None` for this one.
        tid: Option<Tid>,
        /// Its scheduling.
        scheduling: Scheduling,
    },
    /// Copy bytes of the program or of a mirror. Result: 0 or -EFAULT.
    Copy {
        /// Where to.
        to: UserAddr,
        /// Where from.
        from: UserAddr,
        /// Bytes.
        length: u64,
    },
    /// Tell the status of a descriptor. Carried out by the module. Result: its flags (F_GETFL), and
    /// [`FileStatus`] in the words of the reply.
    Status {
        /// The descriptor.
        fd: i32,
    },
    /// Read a file into pages of the pool that Linux alone reaches meanwhile. Carried out by the
    /// module. Result: how many bytes there were; -ESTALE if it is another file.
    Read {
        /// Which file.
        from: Source,
        /// Where in the file.
        offset: u64,
        /// Bytes, of at most [`raw::MOST_READ_PAGES`] pages.
        length: u64,
        /// Address in the cell of a page with the addresses of the pages.
        pages: u64,
        /// The file's.
        identity: Identity,
    },
    /// Keep a file of the process open as that of a mirror, for the process and those that it
    /// forks. Carried out by the module. Result: 1 if Linux permits to write to the file's pages
    /// where the mirror is, else 0; -ESTALE if it is another file.
    Keep {
        /// The file.
        from: Source,
        /// Where the mirror begins.
        mirror: UserAddr,
        /// The file's.
        identity: Identity,
    },
    /// Tell whether this shadow thread has a capability. Carried out by the module. Result: 0 or
    /// -EPERM.
    IsCapable {
        /// `CAP_*`.
        capability: u32,
    },
    /// Tell the limits of a process (getrlimit(2)). Carried out by the module. Result: 0 or -ESRCH,
    /// and [`Limits`] in the words of the reply.
    Limits {
        /// One of its threads; `None` for the calling one.
        tid: Option<Tid>,
    },
    /// Tell which segment of System V shared memory is attached as a mirror, and keep it open as
    /// its file. Carried out by the module. Result: 1 if it may be written, else 0, and
    /// [`FileStatus`] in the words of the reply.
    Segment {
        /// Where the mirror begins.
        mirror: UserAddr,
    },
    /// Tell which registers of a PCI function of the realm Linux has mapped as a mirror, by
    /// /dev/mem or a file of sysfs. Carried out by the module. Result: its bus, device and
    /// function number, and in the first word of the reply where the realm sees the first of them;
    /// -ENODEV if they are none.
    Registers {
        /// Where the mirror begins.
        mirror: UserAddr,
    },
    /// Put pages that a mirror shows at places of the share window, from one of its pages on.
    /// Carried out by the module. Result: how many, which is more than none; -EFAULT where the file
    /// has no page, and otherwise why there is none.
    Share {
        /// Where the mirror begins.
        mirror: UserAddr,
        /// The first page, by its number in the mirror.
        page: u64,
        /// Address in the cell of a page of the pool with the addresses of the places.
        places: u64,
        /// How many, at most [`raw::MOST_SHARED_PAGES`].
        count: u32,
        /// The realm writes to them.
        write: bool,
        /// Those that the file does not have yet are made; otherwise the first one alone, and the
        /// pages end before the next one that is missing.
        all: bool,
    },
    /// Let the file of a mirror go. Carried out by the module. Result: 0.
    LetGo {
        /// Where the mirror begins.
        mirror: UserAddr,
    },
    /// Open a file in which Linux tells of CPUs, with the content that the program is to see.
    /// Result: the descriptor.
    OpenTopology {
        /// Which file.
        file: File,
        /// It shows no other CPUs than the realm's, from 0 on.
        alone: bool,
        /// Flags of open(2).
        flags: u32,
        /// The realm's CPUs, by Linux's numbers.
        realm: CpuList,
    },
    /// Tell what a file is called. Carried out by the module. Result: how many bytes the whole name
    /// has, and [`NAME_PART`] of them, from `from` on, in the words of the reply.
    FileName {
        /// Descriptor of the shadow.
        fd: i32,
        /// From which byte on.
        from: u32,
    },
    /// Tell whether the calling thread may do something to another one, as Linux decides. Carried
    /// out by the module. Result: 0 or EPERM; ESRCH if that is not in the slot any more.
    May {
        /// What.
        deed: Deed,
        /// The slot of the other one.
        slot: Slot,
        /// The process id of its shadow, in Linux's first pid namespace.
        pid: Pid,
    },
    /// Tell what kind of a socket a descriptor is. Carried out by the module, since sockets of some
    /// kinds are not everybody's. Result: 0, or an error, which is ENONET for one of another
    /// network namespace than the first, and [`SocketKind`] in the words of the reply.
    Socket {
        /// Descriptor of the shadow.
        fd: i32,
    },
    /// Tell the limits of the memory of the caller. Carried out by the module. Result: 0, and
    /// [`MemoryLimits`] in the words of the reply.
    MemoryLimits,
    /// Say how much memory the program has locked, so that Linux tells of that (VmLck). Carried out
    /// by the module. Result: 0.
    Locked {
        /// Bytes.
        bytes: u64,
    },
    /// Keep the file of a descriptor as the successor of a local file. Carried out by the module.
    /// Result: 0.
    KeepSuccessor {
        /// Descriptor of the shadow.
        fd: u32,
        /// Under this number, below [`raw::SUCCESSORS`].
        number: u32,
    },
    /// Make a descriptor of a successor that is kept, close-on-exec. Carried out by the module.
    /// Result: the descriptor.
    TakeSuccessor {
        /// Its number.
        number: u32,
    },
    /// Tell what holds for descriptors. Result: [`DescriptorLimits::to_word`].
    DescriptorLimits,
    /// Tell which numbers of descriptors are in use. Result: [`DescriptorsInUse::to_word`].
    DescriptorsInUse {
        /// From which number on, a multiple of 32.
        from: u32,
    },
    /// Put placeholders at numbers of descriptors and take others away. Files of Linux's own stay.
    /// Result: 0.
    PlaceDescriptors {
        /// The number that bit 0 of both sets stands for.
        first: u32,
        /// Where a placeholder goes.
        place: u64,
        /// Where one is taken away.
        remove: u64,
    },
    /// Open a device as a certain descriptor, in place of what is there. Result: 0.
    OpenDevice {
        /// The device.
        device: Device,
        /// Flags of open(2).
        flags: u32,
        /// The number of the descriptor.
        fd: u32,
    },
    /// Store the status (stat(2)) of a device. Result: 0.
    DeviceStatus {
        /// The device.
        device: Device,
        /// Where a `struct stat` goes.
        to: UserAddr,
    },
}

/// A file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// That of a descriptor of the shadow.
    Descriptor(i32),
    /// That which [`Operation::Keep`] keeps for the mirror which begins there.
    Mirror(UserAddr),
}

impl Source {
    /// As one word, below bit [`raw::READ_LENGTH_SHIFT`]: no mirror lies below 4 GiB.
    const fn to_word(self) -> u64 {
        match self {
            Self::Descriptor(fd) => fd as u32 as u64,
            Self::Mirror(address) => address.get() & SOURCE,
        }
    }

    const fn from_word(word: u64) -> Self {
        match word & SOURCE {
            fd if fd >> 32 == 0 => Self::Descriptor(fd as i32),
            address => Self::Mirror(UserAddr::new(address)),
        }
    }
}

/// Where a source lies in its word.
const SOURCE: u64 = (1 << raw::READ_LENGTH_SHIFT) - 1;

/// What a thread may do to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Change its scheduling and its CPUs.
    Schedule,
    /// Change the limits of its process.
    Limit,
    /// Read and change the memory of its process.
    Trace,
}

impl Deed {
    fn to_word(self) -> u64 {
        match self {
            Self::Schedule => raw::MAY_SCHEDULE,
            Self::Limit => raw::MAY_LIMIT,
            Self::Trace => raw::MAY_TRACE,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        [Self::Schedule, Self::Limit, Self::Trace].into_iter().find(|deed| deed.to_word() == word)
    }
}

/// Bytes of a name in a reply to [`Operation::FileName`].
pub const NAME_PART: usize = 48;

/// What [`Operation::Socket`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketKind {
    /// AF_*.
    pub domain: u32,
    /// SOCK_*.
    pub kind: u32,
    /// The protocol of its family.
    pub protocol: u32,
    /// Of IPv4 and IPv6, the port to which it is bound, or 0.
    pub port: u16,
}

impl SocketKind {
    /// From the words of a reply.
    pub fn from_words([domain, kind, protocol, port, ..]: [u64; 6]) -> Self {
        let [domain, kind, protocol] = [domain, kind, protocol].map(|word| word as u32);
        Self { domain, kind, protocol, port: port as u16 }
    }
}

/// What tells a file from all others: number of the file system, device with generation, number.
/// Linux's kernel gives each file system a number that never comes again.
pub type Identity = [u64; 3];

/// What [`Operation::Status`] tells of a file, and [`Operation::Segment`] of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Which file.
    pub identity: Identity,
    /// Bytes; of a character device, its number (`st_rdev`); of ports, whose they are.
    pub size: u64,
    /// Seconds and nanoseconds of the last change.
    pub changed: [u64; 2],
    /// `S_IFMT` and rights.
    pub mode: u32,
    /// No block of it is in use.
    pub is_empty: bool,
    /// [`Operation::Read`] can read it.
    pub is_readable: bool,
    /// Its file system is not in the hands of a user.
    pub is_trusted: bool,
    /// It is a character device.
    pub is_device: bool,
    /// What it maps may be registers of a device ([`Operation::Registers`]).
    pub maps_registers: bool,
    /// It shows I/O ports of a function of the realm, or configuration space.
    pub is_ports: bool,
    /// Linux and the realm can share its pages ([`Operation::Share`]).
    pub is_sharable: bool,
}

/// What a file is that the realm may have instead of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFile {
    /// A character device, by its number (`st_rdev`).
    Number(u64),
    /// I/O ports of a function of the realm.
    Ports {
        /// Bus, device and function.
        function: u16,
        /// The base address register that tells of them.
        register: u8,
    },
    /// Configuration space of a function of the realm, by bus, device and function.
    Configuration(u16),
}

impl FileStatus {
    /// Bits of nanoseconds below the seconds.
    const NANOSECONDS: u32 = 30;

    /// From the words of the reply; other bits count nothing.
    pub const fn from_words(words: &[u64; 6]) -> Self {
        let &[system, device, number, size, changed, mode] = words;
        Self {
            identity: [system, device, number],
            size,
            changed: [changed >> Self::NANOSECONDS, changed & ((1 << Self::NANOSECONDS) - 1)],
            mode: mode as u32,
            is_empty: mode & raw::STATUS_EMPTY != 0,
            is_readable: mode & raw::STATUS_READABLE != 0,
            is_trusted: mode & raw::STATUS_TRUSTED != 0,
            is_device: mode & raw::STATUS_DEVICE != 0,
            maps_registers: mode & raw::STATUS_REGISTERS != 0,
            is_ports: mode & raw::STATUS_PORTS != 0,
            is_sharable: mode & raw::STATUS_SHARABLE != 0,
        }
    }

    /// What the realm may have; `None` if it is a file of Linux's.
    pub const fn device_file(&self) -> Option<DeviceFile> {
        match (self.is_device, self.is_ports) {
            (true, _) => Some(DeviceFile::Number(self.size)),
            (false, true) => {
                let function = (self.size >> raw::STATUS_FUNCTION_SHIFT) as u16;
                Some(match self.size as u8 {
                    raw::STATUS_CONFIGURATION => DeviceFile::Configuration(function),
                    register => DeviceFile::Ports { function, register },
                })
            }
            (false, false) => None,
        }
    }
}

/// What [`Operation::Limits`] tells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Soft limit of queued signals (RLIMIT_SIGPENDING).
    pub signals: u64,
    /// Soft limit of the numbers of descriptors (RLIMIT_NOFILE).
    pub descriptors: u64,
    /// RLIMIT_CPU: soft and hard, in seconds.
    pub processor: [u64; 2],
    /// RLIMIT_RTTIME: soft and hard, in microseconds.
    pub real_time: [u64; 2],
}

impl Limits {
    /// From the words of the reply.
    pub const fn from_words(words: &[u64; 6]) -> Self {
        let &[signals, descriptors, soft, hard, real_time_soft, real_time_hard] = words;
        Self {
            signals,
            descriptors,
            processor: [soft, hard],
            real_time: [real_time_soft, real_time_hard],
        }
    }
}

/// What [`Operation::MemoryLimits`] tells, in bytes: soft and hard limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// RLIMIT_AS.
    pub all: [u64; 2],
    /// RLIMIT_DATA.
    pub data: [u64; 2],
    /// RLIMIT_MEMLOCK.
    pub locked: [u64; 2],
}

impl MemoryLimits {
    /// From the words of the reply.
    pub const fn from_words(words: &[u64; 6]) -> Self {
        let &[all, most, data, most_data, locked, most_locked] = words;
        Self { all: [all, most], data: [data, most_data], locked: [locked, most_locked] }
    }
}

/// What the shadow does on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Linux carries out the default action.
    Default = 0,
    /// It is ignored.
    Ignore = 1,
    /// It is forwarded to the realm.
    Forward = 2,
}

impl Disposition {
    const fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::Default),
            1 => Some(Self::Ignore),
            2 => Some(Self::Forward),
            _ => None,
        }
    }
}

/// A device without state, which the kernel serves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// `/dev/null`.
    Null = 0,
    /// `/dev/zero`.
    Zero = 1,
    /// `/dev/full`.
    Full = 2,
}

impl Device {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Null, Self::Zero, Self::Full];

    const fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::Null),
            1 => Some(Self::Zero),
            2 => Some(Self::Full),
            _ => None,
        }
    }
}

/// Scheduling of a thread, other than SCHED_DEADLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// `SCHED_*`.
    pub policy: u8,
    /// Real-time priority, 0 for policies without.
    pub priority: u8,
    /// -20..=19.
    pub nice: i8,
    /// Children start with SCHED_OTHER.
    pub reset_on_fork: bool,
}

impl Scheduling {
    /// Added to the nice value, which is no negative number then.
    const NICE: i8 = 20;

    /// As one word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.policy as u64
            | (self.priority as u64) << 8
            | (self.nice.wrapping_add(Self::NICE) as u8 as u64) << 16
            | (self.reset_on_fork as u64) << 24
    }

    /// From the word; other bits count nothing.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self {
            policy: word as u8,
            priority: (word >> 8) as u8,
            nice: ((word >> 16) as i8).wrapping_sub(Self::NICE),
            reset_on_fork: word >> 24 & 1 != 0,
        }
    }
}

/// What holds for the descriptors of a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// The soft limit of their numbers (RLIMIT_NOFILE), or the largest number here.
    pub most: u32,
    /// Whether the name of every [`Device`] leads to that device.
    pub devices: bool,
}

impl DescriptorLimits {
    /// As one word, which is not negative.
    pub const fn to_word(self) -> i64 {
        self.most as i64 | (self.devices as i64) << 32
    }

    /// From the word; other bits count nothing.
    pub const fn from_word(word: i64) -> Self {
        Self { most: word as u32, devices: word >> 32 & 1 != 0 }
    }
}

/// The first thread that [`Operation::MakeThreads`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstMade {
    /// The slot that it got, which can be another one's by now.
    pub slot: Slot,
    /// Its id in Linux.
    pub tid: Tid,
}

impl FirstMade {
    /// As one word, which is not negative.
    pub const fn to_word(self) -> u64 {
        self.slot.get() as u64 | (self.tid.get() as u64) << 32
    }

    /// From the word; `None` if there is no such slot, or no such id.
    pub const fn from_word(word: u64) -> Option<Self> {
        match (Slot::new(word as u32 as usize), Tid::new((word >> 32) as u32)) {
            (Some(slot), Some(tid)) => Some(Self { slot, tid }),
            _ => None,
        }
    }
}

/// Which numbers of descriptors are in use, from a multiple of 32 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorsInUse {
    /// A bit for each of the first 32.
    pub near: u32,
    /// The next one behind those, below 2^31; 0 if there is none.
    pub next: u32,
}

impl DescriptorsInUse {
    /// As one word.
    pub const fn to_word(self) -> i64 {
        self.near as i64 | (self.next as i64) << 32
    }

    /// From the word.
    pub const fn from_word(word: i64) -> Self {
        Self { near: word as u32, next: (word >> 32) as u32 }
    }
}

/// An operation as it lies in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded<'a> {
    /// `OP_*`.
    pub op: u32,
    /// Number of a system call.
    pub nr: u32,
    /// Arguments.
    pub args: &'a [u64; 6],
}

/// Why words in a slot are no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// There is no operation of that number.
    UnknownOperation(u32),
    /// An argument has a value that the operation does not know.
    BadArgument,
}

/// Room for the arguments of an operation.
pub type Room = [u64; 6];

/// In the first argument of [`raw::OP_TOPOLOGY`], beside the file: it shows no other CPUs than the
/// realm's.
const TOPOLOGY_ALONE: u64 = 1 << 63;

impl<'a> Operation<'a> {
    /// The words that stand for the operation; its arguments go to `room`, unless they are those of
    /// a system call, which stay where they are. Inlined, because callers know which operation it
    /// is: what is left of this are the words that they store.
    #[inline(always)]
    pub fn encode(self, room: &'a mut Room) -> Encoded<'a> {
        let (op, args) = match self {
            Self::SystemCall { number, arguments } => {
                return Encoded { op: raw::OP_SYSCALL, nr: number, args: arguments };
            }
            Self::AskExecutable { number, arguments } => {
                return Encoded { op: raw::OP_ASK_EXECUTABLE, nr: number, args: arguments };
            }
            Self::Startup { to, room } => (raw::OP_STARTUP, pad([to.get(), room])),
            Self::Exit { status } => (raw::OP_EXIT, pad([status as u32 as u64])),
            Self::ExitBySignal { signal, is_starved } => {
                (raw::OP_EXIT_SIGNAL, pad([signal.into(), is_starved.into()]))
            }
            Self::Refuse => (raw::OP_REFUSE, pad([])),
            Self::MakeThreads { count, heritage } => {
                (raw::OP_THREAD, pad([count, heritage.get().into()]))
            }
            Self::ExitThread => (raw::OP_THREAD_EXIT, pad([])),
            Self::SetDisposition { signal, disposition, flags } => {
                (raw::OP_SIGNAL_ACTION, pad([signal.into(), disposition as u64, flags]))
            }
            Self::ForwardSignals { signals } => (raw::OP_SIGNAL_FORWARD, pad([signals])),
            Self::BlockedSignals => (raw::OP_SIGNALS_BLOCKED, pad([])),
            Self::Fork { flags, pidfd } => (raw::OP_FORK, pad([flags, pidfd.get()])),
            Self::Execute { path, arguments, environment, blocked, in_realm_only, descriptor } => {
                let [path, arguments, environment] =
                    [path.get(), arguments.get(), environment.get()];
                let (alone, named) = (in_realm_only.into(), named_by(descriptor));
                (raw::OP_EXEC, [path, arguments, environment, blocked, alone, named])
            }
            Self::Scheduling { tid } => (raw::OP_SCHEDULING, pad([tid.map_or(0, Tid::get).into()])),
            Self::SetScheduling { tid, scheduling } => (
                raw::OP_SET_SCHEDULING,
                pad([tid.map_or(0, Tid::get).into(), scheduling.to_word()]),
            ),
            Self::Copy { to, from, length } => (raw::OP_COPY, pad([to.get(), from.get(), length])),
            Self::Status { fd } => (raw::OP_STATUS, pad([fd as u32 as u64])),
            Self::Read { from, offset, length, pages, identity: [system, device, number] } => {
                let from = from.to_word() | length << raw::READ_LENGTH_SHIFT;
                (raw::OP_READ, [from, offset, pages, system, device, number])
            }
            Self::Keep { from, mirror, identity: [system, device, number] } => {
                (raw::OP_KEEP, pad([from.to_word(), mirror.get(), system, device, number]))
            }
            Self::IsCapable { capability } => (raw::OP_IS_CAPABLE, pad([capability.into()])),
            Self::Limits { tid } => (raw::OP_LIMITS, pad([tid.map_or(0, Tid::get).into()])),
            Self::Segment { mirror } => (raw::OP_SEGMENT, pad([mirror.get()])),
            Self::Registers { mirror } => (raw::OP_REGISTERS, pad([mirror.get()])),
            Self::Share { mirror, page, places, count, write, all } => {
                let write = if write { raw::SHARE_WRITE } else { 0 };
                let all = if all { raw::SHARE_ALL } else { 0 };
                (raw::OP_SHARE, pad([mirror.get(), page, places, count as u64 | write | all]))
            }
            Self::LetGo { mirror } => (raw::OP_LET_GO, pad([mirror.get()])),
            Self::OpenTopology { file, alone, flags, realm } => {
                let alone = if alone { TOPOLOGY_ALONE } else { 0 };
                let [first, second, third, fourth] = realm.0;
                (
                    raw::OP_TOPOLOGY,
                    [file.to_word() | alone, flags.into(), first, second, third, fourth],
                )
            }
            Self::FileName { fd, from } => {
                (raw::OP_FILE_NAME, pad([fd as u32 as u64, from.into()]))
            }
            Self::May { deed, slot, pid } => {
                (raw::OP_MAY, pad([deed.to_word(), slot.get() as u64, pid.get().into()]))
            }
            Self::Socket { fd } => (raw::OP_SOCKET, pad([fd as u32 as u64])),
            Self::MemoryLimits => (raw::OP_MEMORY_LIMITS, pad([])),
            Self::Locked { bytes } => (raw::OP_LOCKED, pad([bytes])),
            Self::KeepSuccessor { fd, number } => {
                (raw::OP_KEEP_SUCCESSOR, pad([fd.into(), number.into()]))
            }
            Self::TakeSuccessor { number } => (raw::OP_TAKE_SUCCESSOR, pad([number.into()])),
            Self::DescriptorLimits => (raw::OP_DESCRIPTOR_LIMITS, pad([])),
            Self::DescriptorsInUse { from } => (raw::OP_DESCRIPTORS_IN_USE, pad([from.into()])),
            Self::PlaceDescriptors { first, place, remove } => {
                (raw::OP_PLACE_DESCRIPTORS, pad([first.into(), place, remove]))
            }
            Self::OpenDevice { device, flags, fd } => {
                (raw::OP_OPEN_DEVICE, pad([device as u64, flags.into(), fd.into()]))
            }
            Self::DeviceStatus { device, to } => {
                (raw::OP_DEVICE_STATUS, pad([device as u64, to.get()]))
            }
        };
        *room = args;
        Encoded { op, nr: 0, args: room }
    }

    /// The operation that the words stand for. Arguments that it does not have may be anything.
    #[inline(always)]
    pub fn decode(encoded: &Encoded<'a>) -> Result<Self, DecodeError> {
        if encoded.op == raw::OP_SYSCALL {
            // First of all: this is the path that has to be short.
            return Ok(Self::SystemCall { number: encoded.nr, arguments: encoded.args });
        }
        let &[first, second, third, fourth, fifth, sixth] = encoded.args;
        Ok(match encoded.op {
            raw::OP_ASK_EXECUTABLE => {
                Self::AskExecutable { number: encoded.nr, arguments: encoded.args }
            }
            raw::OP_STARTUP => Self::Startup { to: UserAddr::new(first), room: second },
            raw::OP_EXIT => Self::Exit { status: half(first)? as i32 },
            raw::OP_EXIT_SIGNAL => {
                Self::ExitBySignal { signal: half(first)?, is_starved: flag(second)? }
            }
            raw::OP_REFUSE => Self::Refuse,
            raw::OP_THREAD => {
                Self::MakeThreads { count: first, heritage: Heritage::new(half(second)?) }
            }
            raw::OP_THREAD_EXIT => Self::ExitThread,
            raw::OP_SIGNAL_ACTION => Self::SetDisposition {
                signal: half(first)?,
                disposition: Disposition::from_word(second).ok_or(DecodeError::BadArgument)?,
                flags: third,
            },
            raw::OP_SIGNAL_FORWARD => Self::ForwardSignals { signals: first },
            raw::OP_SIGNALS_BLOCKED => Self::BlockedSignals,
            raw::OP_FORK => Self::Fork { flags: first, pidfd: UserAddr::new(second) },
            raw::OP_EXEC => Self::Execute {
                path: UserAddr::new(first),
                arguments: UserAddr::new(second),
                environment: UserAddr::new(third),
                blocked: fourth,
                in_realm_only: flag(fifth)?,
                descriptor: namer(sixth)?,
            },
            raw::OP_SCHEDULING => Self::Scheduling { tid: thread(first)? },
            raw::OP_SET_SCHEDULING => {
                let scheduling = Scheduling::from_word(second);
                Self::SetScheduling { tid: thread(first)?, scheduling }
            }
            raw::OP_COPY => {
                Self::Copy { to: UserAddr::new(first), from: UserAddr::new(second), length: third }
            }
            raw::OP_STATUS => Self::Status { fd: half(first)? as i32 },
            raw::OP_READ => {
                let &[from, offset, pages, identity @ ..] = encoded.args;
                let (from, length) = (Source::from_word(from), from >> raw::READ_LENGTH_SHIFT);
                Self::Read { from, offset, length, pages, identity }
            }
            raw::OP_KEEP => {
                let (from, mirror) = (Source::from_word(first), UserAddr::new(second));
                Self::Keep { from, mirror, identity: [third, fourth, fifth] }
            }
            raw::OP_IS_CAPABLE => Self::IsCapable { capability: half(first)? },
            raw::OP_LIMITS => Self::Limits { tid: thread(first)? },
            raw::OP_SEGMENT => Self::Segment { mirror: UserAddr::new(first) },
            raw::OP_REGISTERS => Self::Registers { mirror: UserAddr::new(first) },
            raw::OP_SHARE => Self::Share {
                mirror: UserAddr::new(first),
                page: second,
                places: third,
                count: half(fourth & !(raw::SHARE_WRITE | raw::SHARE_ALL))?,
                write: fourth & raw::SHARE_WRITE != 0,
                all: fourth & raw::SHARE_ALL != 0,
            },
            raw::OP_LET_GO => Self::LetGo { mirror: UserAddr::new(first) },
            raw::OP_TOPOLOGY => {
                let &[_, _, realm @ ..] = encoded.args;
                Self::OpenTopology {
                    file: File::from_word(first & !TOPOLOGY_ALONE)
                        .ok_or(DecodeError::BadArgument)?,
                    alone: first & TOPOLOGY_ALONE != 0,
                    flags: half(second)?,
                    realm: CpuList(realm),
                }
            }
            raw::OP_FILE_NAME => Self::FileName { fd: half(first)? as i32, from: half(second)? },
            raw::OP_MAY => Self::May {
                deed: Deed::from_word(first).ok_or(DecodeError::BadArgument)?,
                slot: usize::try_from(second)
                    .ok()
                    .and_then(Slot::new)
                    .ok_or(DecodeError::BadArgument)?,
                pid: Pid::new(half(third)?).ok_or(DecodeError::BadArgument)?,
            },
            raw::OP_SOCKET => Self::Socket { fd: half(first)? as i32 },
            raw::OP_MEMORY_LIMITS => Self::MemoryLimits,
            raw::OP_LOCKED => Self::Locked { bytes: first },
            raw::OP_KEEP_SUCCESSOR => {
                Self::KeepSuccessor { fd: half(first)?, number: half(second)? }
            }
            raw::OP_TAKE_SUCCESSOR => Self::TakeSuccessor { number: half(first)? },
            raw::OP_DESCRIPTOR_LIMITS => Self::DescriptorLimits,
            raw::OP_DESCRIPTORS_IN_USE => Self::DescriptorsInUse { from: half(first)? },
            raw::OP_PLACE_DESCRIPTORS => {
                Self::PlaceDescriptors { first: half(first)?, place: second, remove: third }
            }
            raw::OP_OPEN_DEVICE => Self::OpenDevice {
                device: Device::from_word(first).ok_or(DecodeError::BadArgument)?,
                flags: half(second)?,
                fd: half(third)?,
            },
            raw::OP_DEVICE_STATUS => Self::DeviceStatus {
                device: Device::from_word(first).ok_or(DecodeError::BadArgument)?,
                to: UserAddr::new(second),
            },
            unknown => return Err(DecodeError::UnknownOperation(unknown)),
        })
    }
}

/// The first arguments, and zeros.
#[inline(always)]
const fn pad<const N: usize>(first: [u64; N]) -> Room {
    let mut args = [0; 6];
    let mut index = 0;
    while index < N {
        args[index] = first[index];
        index += 1;
    }
    args
}

/// A word that holds 32 bits.
fn half(word: u64) -> Result<u32, DecodeError> {
    u32::try_from(word).map_err(|_| DecodeError::BadArgument)
}

/// The word of a descriptor, if there is one.
fn named_by(descriptor: Option<u32>) -> u64 {
    descriptor.map_or(0, |fd| u64::from(fd) + 1)
}

/// The opposite.
fn namer(word: u64) -> Result<Option<u32>, DecodeError> {
    let number = word.checked_sub(1).map(half).transpose()?;
    match number {
        Some(fd) if i32::try_from(fd).is_err() => Err(DecodeError::BadArgument),
        number => Ok(number),
    }
}

/// A word that holds a truth value.
fn flag(word: u64) -> Result<bool, DecodeError> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::BadArgument),
    }
}

/// The thread that a word names, `None` for the one that is asked.
fn thread(word: u64) -> Result<Option<Tid>, DecodeError> {
    match half(word)? {
        0 => Ok(None),
        tid => Tid::new(tid).map(Some).ok_or(DecodeError::BadArgument),
    }
}

/// Whether Linux's kernel has something of the realm's during an operation, by its number (`OP_*`):
/// addresses of pages, or a number of a successor. Somebody else may get that when the operation is
/// over, so it is Linux's until Linux has replied, or keeps nothing of the shadow any more.
pub const fn lends(op: u32) -> bool {
    matches!(op, raw::OP_READ | raw::OP_SHARE | raw::OP_KEEP_SUCCESSOR | raw::OP_TAKE_SUCCESSOR)
}

/// What a number of an operation (`OP_*`) is called in a trace; `None` if there is no such
/// operation.
pub const fn name(op: u32) -> Option<&'static str> {
    Some(match op {
        raw::OP_SYSCALL => "system call",
        raw::OP_ASK_EXECUTABLE => "system call on the executable",
        raw::OP_STARTUP => "start-up",
        raw::OP_EXIT => "exit",
        raw::OP_EXIT_SIGNAL => "exit by signal",
        raw::OP_REFUSE => "refuse",
        raw::OP_THREAD => "thread",
        raw::OP_THREAD_EXIT => "thread exit",
        raw::OP_SIGNAL_ACTION => "signal action",
        raw::OP_SIGNAL_FORWARD => "signals",
        raw::OP_SIGNALS_BLOCKED => "blocked signals",
        raw::OP_FORK => "fork",
        raw::OP_EXEC => "exec",
        raw::OP_SCHEDULING => "scheduling",
        raw::OP_SET_SCHEDULING => "set scheduling",
        raw::OP_COPY => "copy",
        raw::OP_STATUS => "status",
        raw::OP_READ => "read",
        raw::OP_KEEP => "keep",
        raw::OP_LET_GO => "let go",
        raw::OP_IS_CAPABLE => "is capable",
        raw::OP_SEGMENT => "segment",
        raw::OP_LIMITS => "limits",
        raw::OP_FILE_NAME => "name of a file",
        raw::OP_MAY => "may",
        raw::OP_SOCKET => "kind of a socket",
        raw::OP_MEMORY_LIMITS => "memory limits",
        raw::OP_LOCKED => "locked",
        raw::OP_KEEP_SUCCESSOR => "keep successor",
        raw::OP_TAKE_SUCCESSOR => "take successor",
        raw::OP_REGISTERS => "registers",
        raw::OP_SHARE => "share",
        raw::OP_TOPOLOGY => "topology",
        raw::OP_DESCRIPTOR_LIMITS => "descriptor limits",
        raw::OP_DESCRIPTORS_IN_USE => "descriptors in use",
        raw::OP_PLACE_DESCRIPTORS => "place descriptors",
        raw::OP_OPEN_DEVICE => "open device",
        raw::OP_DEVICE_STATUS => "device status",
        _ => return None,
    })
}
