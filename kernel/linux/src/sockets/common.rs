// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that sockets of all families have (socket(7)).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crtos_abi::UserAddr;
use crtos_core::time::{self, Clock, Nanos};
use crtos_nic::stamping::{self, Stamping};
use linux_raw_sys::{general as linux, net};

use crate::{
    abi::{Errno, SysResult, linux_result},
    files::{
        Events, Memory,
        socket::{Foreign, SendControl, Told},
    },
    memory::{timespec::SECOND, user},
    remote,
    sockets::{
        arrivals::{self, Want},
        error_queue::{Entry, ErrorQueue, Taken},
        net::{interface::Stamp, requests},
        stamps::Stamps,
    },
};

/// Most bytes of a buffer that a program without CAP_NET_ADMIN gets: Linux's preset of
/// net.core.rmem_max and wmem_max.
const MAX_BUFFER: u32 = 212_992;
/// Fewest bytes of a buffer for what is received, and for what is to be sent.
const MIN_RECEIVE: u32 = 2304;
const MIN_SEND: u32 = 4608;

/// Kinds of timestamps that were asked for.
const STAMPS: [u32; 4] = [
    net::SO_TIMESTAMP_OLD,
    net::SO_TIMESTAMPNS_OLD,
    net::SO_TIMESTAMP_NEW,
    net::SO_TIMESTAMPNS_NEW,
];

/// An option that only keeps what was set.
struct Kept {
    name: u32,
    /// What it has been before anybody set it.
    preset: u32,
    /// Whether it only keeps whether that was 0.
    is_flag: bool,
}

const fn flag(name: u32) -> Kept {
    Kept { name, preset: 0, is_flag: true }
}

const fn number(name: u32, preset: u32) -> Kept {
    Kept { name, preset, is_flag: false }
}

/// All of these. Families for which one has a meaning look before at what they have themselves.
const KEPT: [Kept; 13] = [
    flag(net::SO_DEBUG),
    flag(net::SO_REUSEADDR),
    flag(net::SO_DONTROUTE),
    flag(net::SO_BROADCAST),
    flag(net::SO_KEEPALIVE),
    flag(net::SO_OOBINLINE),
    flag(net::SO_NO_CHECK),
    flag(net::SO_PASSCRED),
    number(net::SO_PRIORITY, 0),
    number(net::SO_MARK, 0),
    number(net::SO_RCVLOWAT, 1),
    number(net::SO_BUSY_POLL, 0),
    number(net::SO_INCOMING_CPU, u32::MAX),
];

/// What BPF knows of a packet (SKF_AD_MAX).
const BPF_EXTENSIONS: u32 = 64;
/// The highest priority that whoever asks gets.
const MOST_PRIORITY: u32 = 6;
/// Cookies of sockets that Linux never had have this bit.
const COOKIE_OF_REALM: u64 = 1 << 63;

/// [`Common::last_stamp`] before a message was received.
const NO_MESSAGE: u64 = u64::MAX;
/// When the last message came that no control message told of: `struct timeval`, `struct timespec`.
const SIOCGSTAMP: u32 = 0x8906;
const SIOCGSTAMPNS: u32 = 0x8907;

/// The options of a socket.
pub struct Common {
    domain: u32,
    kind: u32,
    protocol: u32,
    receive_buffer: AtomicU32,
    send_buffer: AtomicU32,
    /// Nanoseconds; 0 for as long as it takes.
    receive_timeout: AtomicU64,
    send_timeout: AtomicU64,
    /// Which of [`STAMPS`] tells when a message came; 0 for none.
    simple_stamps: AtomicU32,
    /// SO_TIMESTAMPING.
    pub stamping: Stamps,
    /// Whether it asks when messages came.
    asks_arrivals: Want,
    /// What is received with MSG_ERRQUEUE.
    pub errors: ErrorQueue,
    tells_lost: AtomicBool,
    /// The filter stays as it is (SO_LOCK_FILTER).
    has_locked_filter: AtomicBool,
    /// When the last message came that was received, if no control message told that, or
    /// [`NO_MESSAGE`].
    last_stamp: AtomicU64,
    /// [`KEPT`].
    kept: [AtomicU32; KEPT.len()],
    /// SO_LINGER: whether, and how many seconds.
    lingers: AtomicBool,
    linger: AtomicU32,
    /// What no other socket has; 0 if it is one that only the realm had, and nobody asked.
    cookie: AtomicU64,
    /// An error that the next call tells; 0 for none.
    error: AtomicU32,
}

/// The option of that name, with where its value is.
fn kept(common: &Common, name: u32) -> Result<(&'static Kept, &AtomicU32), Errno> {
    static ALL: [Kept; KEPT.len()] = KEPT;
    let mut all = ALL.iter().zip(&common.kept);
    all.find(|(kept, _)| kept.name == name).ok_or(Errno::ENOPROTOOPT)
}

impl Common {
    /// The options of a socket of Linux's, of the family `domain`.
    pub fn of(foreign: &Foreign, domain: u32) -> Result<Self, Errno> {
        // What Linux tells lies in memory of the program, which may change it.
        let buffer = |name| {
            let size = foreign.number(net::SOL_SOCKET, name)?;
            Ok::<_, Errno>(size.clamp(MIN_RECEIVE, 2 * MAX_BUFFER))
        };
        let own = Self {
            domain,
            kind: foreign.kind,
            protocol: foreign.protocol,
            receive_buffer: AtomicU32::new(buffer(net::SO_RCVBUF)?),
            send_buffer: AtomicU32::new(buffer(net::SO_SNDBUF)?),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            simple_stamps: AtomicU32::new(0),
            stamping: Stamps::new(),
            asks_arrivals: Want::default(),
            errors: ErrorQueue::new(),
            tells_lost: AtomicBool::new(false),
            has_locked_filter: AtomicBool::new(
                foreign.number(net::SOL_SOCKET, net::SO_LOCK_FILTER)? != 0,
            ),
            last_stamp: AtomicU64::new(NO_MESSAGE),
            kept: KEPT.map(|kept| {
                let told = foreign.number(net::SOL_SOCKET, kept.name);
                AtomicU32::new(told.unwrap_or(kept.preset))
            }),
            lingers: AtomicBool::new(false),
            linger: AtomicU32::new(0),
            cookie: AtomicU64::new(0),
            error: AtomicU32::new(0),
        };
        own.set_linger(&foreign.option(net::SOL_SOCKET, net::SO_LINGER)?)?;
        let cookie = foreign.option(net::SOL_SOCKET, net::SO_COOKIE)?;
        let cookie = u64::from_ne_bytes(*cookie.first_chunk().ok_or(Errno::EINVAL)?);
        own.cookie.store(cookie, Ordering::Relaxed);
        for name in
            [net::SO_RCVTIMEO_OLD, net::SO_SNDTIMEO_OLD, net::SO_RXQ_OVFL, net::SO_SELECT_ERR_QUEUE]
        {
            own.set(name, &foreign.option(net::SOL_SOCKET, name)?)?;
        }
        // Only the one that is meant is told as set.
        for name in STAMPS.into_iter().chain([net::SO_TIMESTAMPING_OLD, net::SO_TIMESTAMPING_NEW]) {
            // Linux 6.1 does not tell all of them.
            let value = foreign.option(net::SOL_SOCKET, name).unwrap_or_default();
            if value.iter().any(|&byte| byte != 0) {
                own.set(name, &value)?;
            }
        }
        Ok(own)
    }

    /// Those of a connection that came to a socket with these.
    pub fn of_connection(&self) -> Self {
        let copy = |value: &AtomicU32| AtomicU32::new(value.load(Ordering::Relaxed));
        let copy_long = |value: &AtomicU64| AtomicU64::new(value.load(Ordering::Relaxed));
        let own = Self {
            domain: self.domain,
            kind: self.kind,
            protocol: self.protocol,
            receive_buffer: copy(&self.receive_buffer),
            send_buffer: copy(&self.send_buffer),
            receive_timeout: copy_long(&self.receive_timeout),
            send_timeout: copy_long(&self.send_timeout),
            simple_stamps: copy(&self.simple_stamps),
            stamping: self.stamping.of_connection(),
            asks_arrivals: Want::default(),
            errors: ErrorQueue::new(),
            tells_lost: AtomicBool::new(self.tells_lost.load(Ordering::Relaxed)),
            has_locked_filter: AtomicBool::new(self.has_locked_filter()),
            last_stamp: AtomicU64::new(NO_MESSAGE),
            kept: core::array::from_fn(|at| copy(&self.kept[at])),
            lingers: AtomicBool::new(self.lingers.load(Ordering::Relaxed)),
            linger: copy(&self.linger),
            cookie: AtomicU64::new(0),
            error: AtomicU32::new(0),
        };
        own.note_want();
        own
    }

    /// The value of one that keeps a number; 0 if it is none of these.
    pub fn value(&self, name: u32) -> u32 {
        kept(self, name).map_or(0, |(_, value)| value.load(Ordering::Relaxed))
    }

    /// Whether one that keeps a number is on.
    pub fn has(&self, name: u32) -> bool {
        self.value(name) != 0
    }

    /// Whether it is one of UDP.
    pub fn is_of_udp(&self) -> bool {
        self.protocol == net::IPPROTO_UDP as u32 && self.kind == net::SOCK_DGRAM
    }

    /// Bytes of what is received that may wait.
    pub fn receive_buffer(&self) -> u32 {
        self.receive_buffer.load(Ordering::Relaxed)
    }

    /// Bytes that may wait to be sent.
    pub fn send_buffer(&self) -> u32 {
        self.send_buffer.load(Ordering::Relaxed)
    }

    /// Until when something is waited for that is to be received.
    pub fn receive_deadline(&self) -> Option<Nanos> {
        deadline(&self.receive_timeout)
    }

    /// The same of what is to be sent.
    pub fn send_deadline(&self) -> Option<Nanos> {
        deadline(&self.send_timeout)
    }

    /// Whether the filter stays as it is.
    pub fn has_locked_filter(&self) -> bool {
        self.has_locked_filter.load(Ordering::Relaxed)
    }

    /// The filter stays as it is.
    pub fn lock_filter(&self) {
        self.has_locked_filter.store(true, Ordering::Relaxed);
    }

    /// Fails with the error that waits to be told, and takes it.
    pub fn check(&self) -> Result<(), Errno> {
        match self.error.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(linux_result(-i64::from(error)).err().unwrap_or(Errno::EIO)),
        }
    }

    /// The next call tells that error.
    pub fn fail(&self, error: Errno) {
        self.error.store(error.number(), Ordering::Relaxed);
    }

    /// Whether an error waits to be told.
    pub fn has_failed(&self) -> bool {
        self.error.load(Ordering::Relaxed) != 0
    }

    /// What control messages tell of a message that came at `stamp`, before which `lost` were lost,
    /// and is received now.
    pub fn told(&self, stamp: Stamp, lost: u32) -> Told {
        let (simple, stamps) = self.stamps(stamp);
        Told {
            stamp: simple,
            stamps: stamps.map(|stamps| (stamps, self.stamping.name())),
            lost: Some(lost).filter(|&lost| lost > 0 && self.tells_lost.load(Ordering::Relaxed)),
            ..Told::default()
        }
    }

    /// A message that came at `stamp` is received now by read(2), which tells nothing of it.
    #[inline(always)]
    pub fn note(&self, stamp: Stamp) {
        // What control messages would tell is not kept.
        if self.stamping.asked().flags() == 0 && self.simple_stamps.load(Ordering::Relaxed) == 0 {
            self.last_stamp.store(stamp.software.0, Ordering::Relaxed);
        } else {
            self.stamps(stamp);
        }
    }

    /// Which stamps are told of a message that is received now: the simple one with its kind, and
    /// the others. If none are, the stamp is kept for who asks for the last one.
    #[inline(always)]
    fn stamps(&self, mut stamp: Stamp) -> (Option<(Nanos, u32)>, Option<stamping::Stamps>) {
        let kind = self.simple_stamps.load(Ordering::Relaxed);
        if kind != 0 {
            stamp.software = arrivals::told(stamp.software);
        }
        let stamps = self.stamping.asked().received(stamp.stamps(), kind != 0);
        if kind == 0 && stamps.is_none() {
            self.last_stamp.store(stamp.software.0, Ordering::Relaxed);
        }
        ((kind != 0).then_some((stamp.software, kind)), stamps)
    }

    /// Whether stamps of the kernel are asked for of what is received.
    pub fn wants_stamps(&self) -> bool {
        self.simple_stamps.load(Ordering::Relaxed) != 0
            || self.stamping.asked().has(stamping::RX_SOFTWARE)
    }

    /// It asks when messages came from now on, if its options say so.
    fn note_want(&self) {
        if self.wants_stamps() {
            self.asks_arrivals.arise();
        }
    }

    /// Receives what was told first, as [`ErrorQueue::receive`] says, with when that was.
    pub fn receive_report<'a>(
        &self,
        memory: &mut Memory,
        buffer: &'a mut [u8],
    ) -> Result<Taken<'a>, Errno> {
        let mut taken = self.errors.receive(memory, buffer)?;
        if let Some(error) = taken.error {
            self.error.store(error.map_or(0, Errno::number), Ordering::Relaxed);
        }
        let mut software = None;
        if let Entry::Sent(report) = &taken.entry {
            software = report.stamps.software.map(Nanos);
            let stamps = self.stamping.asked().sent(report.stamps);
            taken.received.told.stamps = stamps.map(|stamps| (stamps, self.stamping.name()));
        }
        let simple = self.simple_stamps.load(Ordering::Relaxed);
        if simple != 0 {
            let stamp = software.unwrap_or_else(|| time::linux(Clock::Realtime));
            taken.received.told.stamp = Some((stamp, simple));
        }
        Ok(taken)
    }

    /// Sees to it that there is memory for the reports that are asked for. May sleep.
    pub fn prepare_reports(&self) -> Result<(), Errno> {
        match self.stamping.asked().reports() {
            true => self.errors.prepare(self.receive_buffer()),
            false => Ok(()),
        }
    }

    /// What is asked for of a message that is to be sent. May sleep where it asks for reports
    /// itself.
    pub fn stamping_of(&self, control: &SendControl) -> Result<Stamping, Errno> {
        let stamping = self.stamping.of_message(control)?;
        if control.reports.is_some() && stamping.reports() {
            self.errors.prepare(self.receive_buffer())?;
        }
        Ok(stamping)
    }

    /// The events that what waits to be told makes.
    pub fn failures(&self) -> Events {
        let mut events = Events::empty();
        events.set(Events::ERROR, self.has_failed() || !self.errors.is_empty());
        events.set(Events::PRIORITY, events.contains(Events::ERROR) && self.errors.is_urgent());
        events
    }

    /// Answers an ioctl that asks when the last message came, or for interfaces; `None` if it asks
    /// for something else. May sleep.
    pub fn asked(&self, request: u32, argument: UserAddr) -> Option<SysResult> {
        let unit = match request {
            SIOCGSTAMP => 1000,
            SIOCGSTAMPNS => 1,
            _ => return requests::told(request, argument),
        };
        self.asks_arrivals.arise();
        let stamp = self.last_stamp.load(Ordering::Relaxed);
        if stamp == NO_MESSAGE {
            return Some(Err(Errno::ENOENT));
        }
        let Nanos(stamp) = arrivals::told(Nanos(stamp));
        self.last_stamp.store(stamp, Ordering::Relaxed);
        let told = user::write_words(argument, [stamp / SECOND, stamp % SECOND / unit]);
        Some(told.map(|()| 0).map_err(Errno::from))
    }

    /// getsockopt(2) with SOL_SOCKET.
    pub fn get(&self, name: u32) -> Result<Vec<u8>, Errno> {
        let simple = self.simple_stamps.load(Ordering::Relaxed);
        let value = match name {
            net::SO_TYPE => self.kind,
            net::SO_DOMAIN => self.domain,
            net::SO_PROTOCOL => self.protocol,
            net::SO_RCVBUF => self.receive_buffer(),
            net::SO_SNDBUF => self.send_buffer(),
            net::SO_ERROR => self.error.swap(0, Ordering::Relaxed),
            net::SO_RXQ_OVFL => self.tells_lost.load(Ordering::Relaxed).into(),
            net::SO_LOCK_FILTER => self.has_locked_filter().into(),
            net::SO_SELECT_ERR_QUEUE => self.errors.is_urgent().into(),
            net::SO_ACCEPTCONN
            | net::SO_BSDCOMPAT
            | net::SO_PREFER_BUSY_POLL
            | net::SO_INCOMING_NAPI_ID
            | net::SO_ZEROCOPY => 0,
            net::SO_SNDLOWAT => 1,
            net::SO_BPF_EXTENSIONS => BPF_EXTENSIONS,
            net::SO_PEEK_OFF if self.peeks_at_offsets() => u32::MAX,
            net::SO_PEEK_OFF => return Err(Errno::EOPNOTSUPP),
            net::SO_LINGER => {
                let on = self.lingers.load(Ordering::Relaxed).into();
                let seconds = self.linger.load(Ordering::Relaxed);
                return Ok([on, seconds].map(u32::to_ne_bytes).concat());
            }
            // Nobody: no process, and no user or group.
            net::SO_PEERCRED => return Ok([0, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat()),
            net::SO_TXTIME => return Ok(alloc::vec![0; 8]),
            net::SO_COOKIE => return Ok(self.cookie().to_ne_bytes().to_vec()),
            net::SO_TIMESTAMPING_OLD => return Ok(self.stamping_value(name)),
            net::SO_TIMESTAMPING_NEW => return Ok(self.stamping_value(name)),
            net::SO_RCVTIMEO_OLD | net::SO_RCVTIMEO_NEW => {
                return Ok(timeval(&self.receive_timeout));
            }
            net::SO_SNDTIMEO_OLD | net::SO_SNDTIMEO_NEW => return Ok(timeval(&self.send_timeout)),
            _ if STAMPS.contains(&name) => (simple == name).into(),
            _ => kept(self, name)?.1.load(Ordering::Relaxed),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    /// How many seconds close(2) waits for what was not sent, if that was set.
    pub fn linger(&self) -> Option<u32> {
        self.lingers.load(Ordering::Relaxed).then(|| self.linger.load(Ordering::Relaxed))
    }

    fn set_linger(&self, value: &[u8]) -> Result<(), Errno> {
        let (&[on, seconds], _) =
            value.as_chunks::<4>().0.split_first_chunk().ok_or(Errno::EINVAL)?;
        let on = u32::from_ne_bytes(on) != 0;
        self.lingers.store(on, Ordering::Relaxed);
        // The time stays otherwise, as under Linux.
        if on {
            self.linger.store(u32::from_ne_bytes(seconds), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the family knows SO_PEEK_OFF.
    fn peeks_at_offsets(&self) -> bool {
        matches!(self.domain, net::AF_INET | net::AF_INET6)
    }

    fn cookie(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(COOKIE_OF_REALM);
        let fresh = LAST.fetch_add(1, Ordering::Relaxed);
        let first = self.cookie.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|known| known, |_| fresh)
    }

    fn stamping_value(&self, name: u32) -> Vec<u8> {
        // The older number tells what was set by either.
        let is_meant = name == net::SO_TIMESTAMPING_OLD || self.stamping.name() == name;
        let flags = if is_meant { self.stamping.asked().flags() } else { 0 };
        [flags.to_ne_bytes(), [0; 4]].concat()
    }

    /// setsockopt(2) with SOL_SOCKET. May sleep.
    pub fn set(&self, name: u32, value: &[u8]) -> Result<(), Errno> {
        if matches!(
            name,
            net::SO_RCVTIMEO_OLD
                | net::SO_RCVTIMEO_NEW
                | net::SO_SNDTIMEO_OLD
                | net::SO_SNDTIMEO_NEW
        ) {
            let is_receive = matches!(name, net::SO_RCVTIMEO_OLD | net::SO_RCVTIMEO_NEW);
            let to = if is_receive { &self.receive_timeout } else { &self.send_timeout };
            to.store(timeout(value)?, Ordering::Relaxed);
            return Ok(());
        }
        if name == net::SO_LINGER {
            return self.set_linger(value);
        }
        let number = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
        let is_negative = number > i32::MAX as u32;
        let doubled = |number: u32| number.min(i32::MAX as u32 / 2) * 2;
        match name {
            net::SO_RCVBUF | net::SO_RCVBUFFORCE => {
                let most = self.most(name == net::SO_RCVBUFFORCE)?;
                let size = doubled(number.min(most)).max(MIN_RECEIVE);
                self.receive_buffer.store(size, Ordering::Relaxed);
            }
            net::SO_SNDBUF | net::SO_SNDBUFFORCE => {
                let most = self.most(name == net::SO_SNDBUFFORCE)?;
                self.send_buffer.store(doubled(number.min(most)).max(MIN_SEND), Ordering::Relaxed);
            }
            net::SO_RXQ_OVFL => self.tells_lost.store(number != 0, Ordering::Relaxed),
            net::SO_TIMESTAMPING_OLD | net::SO_TIMESTAMPING_NEW => {
                self.stamping.set(name, number)?;
                self.note_want();
            }
            net::SO_SELECT_ERR_QUEUE => self.errors.set_urgent(number != 0),
            _ if STAMPS.contains(&name) => {
                let name = if number != 0 { name } else { 0 };
                self.simple_stamps.store(name, Ordering::Relaxed);
                self.note_want();
            }
            // Without meaning, as under Linux.
            net::SO_BSDCOMPAT => {}
            net::SO_PEEK_OFF if self.peeks_at_offsets() && is_negative => {}
            net::SO_PEEK_OFF => return Err(Errno::EOPNOTSUPP),
            _ => self.keep(name, number)?,
        }
        Ok(())
    }

    /// Sets one of [`KEPT`]. May sleep.
    fn keep(&self, name: u32, number: u32) -> Result<(), Errno> {
        let (kept, place) = kept(self, name)?;
        let is_negative = number > i32::MAX as u32;
        let number = match name {
            net::SO_DEBUG if number != 0 && !is_capable(&[linux::CAP_NET_ADMIN])? => {
                return Err(Errno::EACCES);
            }
            net::SO_PRIORITY if number <= MOST_PRIORITY => number,
            net::SO_PRIORITY | net::SO_MARK
                if !is_capable(&[linux::CAP_NET_RAW, linux::CAP_NET_ADMIN])? =>
            {
                return Err(Errno::EPERM);
            }
            net::SO_BUSY_POLL if is_negative => return Err(Errno::EINVAL),
            net::SO_RCVLOWAT => number.clamp(1, i32::MAX as u32),
            _ if kept.is_flag => (number != 0).into(),
            _ => number,
        };
        place.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Most bytes of a buffer.
    fn most(&self, is_forced: bool) -> Result<u32, Errno> {
        if !is_forced {
            return Ok(MAX_BUFFER);
        }
        /// Memory of the kernel is not the administrator's to give away without bound.
        const MAX_FORCED: u32 = 8 << 20;
        if is_capable(&[linux::CAP_NET_ADMIN])? { Ok(MAX_FORCED) } else { Err(Errno::EPERM) }
    }
}

/// Whether the program has one of these capabilities. May sleep.
fn is_capable(any: &[u32]) -> Result<bool, Errno> {
    for &capability in any {
        if remote::is_capable(capability)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn deadline(timeout: &AtomicU64) -> Option<Nanos> {
    match timeout.load(Ordering::Relaxed) {
        0 => None,
        timeout => Some(time::now() + Nanos(timeout)),
    }
}

/// Reads a `struct timeval`.
fn timeout(value: &[u8]) -> Result<u64, Errno> {
    let bytes: &[u8; 16] = value.first_chunk().ok_or(Errno::EINVAL)?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| i64::from_ne_bytes(*word));
    let (seconds, micros) = (word(0), word(8));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    // A negative time has passed; here that is the shortest one.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let is_negative = word(0) < 0;
    let nanos = seconds.saturating_mul(SECOND).saturating_add(micros as u64 * 1000);
    Ok(if is_negative { 1 } else { nanos })
}

fn timeval(timeout: &AtomicU64) -> Vec<u8> {
    let nanos = timeout.load(Ordering::Relaxed);
    [nanos / SECOND, nanos % SECOND / 1000].map(u64::to_ne_bytes).concat()
}
