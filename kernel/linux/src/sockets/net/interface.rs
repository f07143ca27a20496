// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces of the realm.
//!
//! A driver [`add`]s them, and [`remove`]s them when Linux takes the card away. It hands over what
//! it has received by [`received`], in a thread of its own: first those hear it who listen to the
//! wire ([`set_taps`]), then the protocol stack ([`set_stack`]). Whoever sends does so by [`send`],
//! so that those who listen to the wire hear that as well. A thread that waits for a frame may take
//! it from the card itself ([`Leading`]).

use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_core::{
    sync::SpinLock,
    time::{self, Clock, Nanos},
};
use crtos_nic::stamping::{Report, Stamping, Stamps};
pub use crtos_nic::{HardwareAddress, reception::Reception};
use spin::Once;

use crate::{abi::Errno, sockets::arrivals};

/// Most of them.
pub const MOST: usize = 4;
/// Bytes of the header of a frame: two addresses, and the protocol.
pub const HEADER: usize = 14;
/// Most bytes of a frame behind its header.
pub const MOST_MTU: usize = 9000;
/// Most bytes of a frame, with a tag of a VLAN, and without its checksum.
pub const LONGEST: usize = HEADER + 4 + MOST_MTU;

/// An address of an interface, and how many of its bits all stations of its network have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
}

/// A network interface (Ethernet).
pub trait Interface: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The number by which programs know it.
    fn index(&self) -> u32;

    /// Its own address.
    fn hardware_address(&self) -> HardwareAddress;

    /// Most bytes of a frame behind its header; [`MOST_MTU`] at most. It may change at any time.
    fn mtu(&self) -> usize;

    /// How many frames wait to be sent, at most.
    fn queue_length(&self) -> u32;

    /// The addresses that it had under Linux when the realm was started.
    fn addresses(&self) -> &[NetAddress];

    /// Whether the realm still has it.
    fn is_up(&self) -> bool;

    /// Whether its cable leads to somebody.
    fn has_carrier(&self) -> bool;

    /// Sends a frame, with its header and without its checksum, behind those that wait already.
    /// ENOBUFS if there are too many; ENETDOWN if the realm has the card no more; EMSGSIZE if it is
    /// too long or has no header. The frame is copied. Thread context with no spin lock held;
    /// bounded. [`send`] is what others than this module call.
    fn transmit(&self, frame: &[u8]) -> Result<(), Errno>;

    /// Waits until frames can be sent again after ENOBUFS, at most until `deadline`; says whether
    /// they can. Thread context; sleeps.
    fn wait_for_room(&self, deadline: Option<Nanos>) -> Result<(), Errno>;

    /// It receives that as well from now on, until each who wants it has had it
    /// [`refuse`](Self::refuse) it. ENOBUFS if that are too many addresses. Thread context.
    fn admit(&self, what: Reception) -> Result<(), Errno>;

    /// The opposite. Thread context.
    fn refuse(&self, what: Reception);

    /// Somebody is to receive from it: it interrupts the calling thread's CPU from now on. Thread
    /// context; sleeps.
    fn attend(&self);

    /// The calling thread, which is about to wait for a frame, takes the next one itself when the
    /// interface interrupts, by [`take_over`](Self::take_over), if it is urgent enough. Thread
    /// context; what follows as well.
    fn offer(&self);

    /// Takes a frame for `taker`, if the calling thread was woken for that. Says
    /// whether the thread may still [lead](Self::offer).
    fn take_over(&self, taker: &mut dyn Taker) -> bool;

    /// The calling thread waits no more.
    fn resign(&self);

    /// How many sockets [listen](Listening) to it.
    fn listeners(&self) -> &Arc<AtomicU32>;
}

/// A socket listens to an interface, or to all, as long as this is there.
pub enum Listening {
    /// To the one whose listeners these are.
    One(Arc<AtomicU32>),
    /// To all, also those that come.
    All,
}

/// How many listen to all. Changed under [`ALL`].
static EVERYWHERE: AtomicU32 = AtomicU32::new(0);

impl Listening {
    /// It listens to that one from now on, or to all.
    pub fn begin(interface: Option<&dyn Interface>) -> Self {
        let Some(interface) = interface else {
            let all = ALL.lock();
            EVERYWHERE.fetch_add(1, Ordering::Relaxed);
            for interface in all.iter().flatten() {
                interface.listeners().fetch_add(1, Ordering::Relaxed);
            }
            return Self::All;
        };
        let listeners = interface.listeners().clone();
        listeners.fetch_add(1, Ordering::Relaxed);
        Self::One(listeners)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        match self {
            Self::One(listeners) => drop(listeners.fetch_sub(1, Ordering::Relaxed)),
            Self::All => {
                let all = ALL.lock();
                EVERYWHERE.fetch_sub(1, Ordering::Relaxed);
                for interface in all.iter().flatten() {
                    interface.listeners().fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Who takes a frame by itself: who reads from a packet socket.
pub trait Taker {
    /// The number of the socket.
    fn number(&self) -> u64;

    /// It hears a frame, as by [`Taps::hear`]. Says whether it listens to that interface.
    fn hear(&mut self, news: &News) -> bool;
}

/// The calling thread waits for a frame for a socket.
pub struct Leading {
    interface: Option<Arc<dyn Interface>>,
    /// It has led, and may still do.
    leads: bool,
}

impl Leading {
    /// From that interface, if there is one.
    pub fn new(interface: Option<Arc<dyn Interface>>) -> Self {
        if let Some(interface) = &interface {
            interface.offer();
        }
        Self { interface, leads: true }
    }

    /// To be called after each wake, before the look for what it waits for: takes a frame for
    /// `taker` if the thread was woken for that. May sleep.
    #[inline(always)]
    pub fn take_over(&mut self, taker: &mut dyn Taker) {
        if let Some(interface) = &self.interface
            && self.leads
        {
            self.leads = interface.take_over(taker);
        }
    }
}

impl Drop for Leading {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(interface) = &self.interface
            && self.leads
        {
            interface.resign();
        }
    }
}

/// When a frame came, or was handed to the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// By the kernel (CLOCK_REALTIME); [`arrivals::UNKNOWN`] of one that came while nobody wanted
    /// to know.
    pub software: Nanos,
    /// By the card's own clock, in nanoseconds, if it has noted that.
    pub hardware: Option<Nanos>,
}

impl Stamp {
    /// One by the kernel alone.
    pub fn of_kernel(software: Nanos) -> Self {
        Self { software, hardware: None }
    }

    /// One of now, by the kernel alone.
    pub fn now() -> Self {
        Self::of_kernel(time::linux(Clock::Realtime))
    }

    /// One of a frame that comes now, of which the card has noted that, if anything.
    #[inline(always)]
    pub fn of_arrival(hardware: Option<Nanos>) -> Self {
        Self { software: arrivals::now(), hardware }
    }

    /// The same as sockets are told it.
    pub fn stamps(self) -> Stamps {
        let software = Some(self.software).filter(|&at| at != arrivals::UNKNOWN);
        let [software, hardware] = [software, self.hardware].map(|at| at.map(|at| at.0));
        Stamps { software, hardware }
    }
}

/// Who is told when a frame was sent.
pub trait Reporter: Send + Sync {
    /// That is reported of a frame. Any context; bounded, must not sleep or allocate.
    fn report(&self, report: &Report, frame: &[u8]);
}

/// What is to be reported of a frame that is sent.
#[derive(Clone)]
pub struct Asked {
    /// To whom.
    pub reporter: Arc<dyn Reporter>,
    /// What.
    pub stamping: Stamping,
    /// The number of the frame, if such are given.
    pub number: u32,
}

/// A frame on the wire.
#[derive(Clone, Copy)]
pub struct News<'a> {
    /// The number of the interface, and its own address.
    pub index: u32,
    pub own: HardwareAddress,
    /// The frame: its header and what is behind, without its checksum.
    pub frame: &'a [u8],
    /// When it came, or was handed to the card.
    pub stamp: Stamp,
    /// The number of the socket that has sent it; 0 for another sender of the realm; `None` if it
    /// came over the wire.
    pub origin: Option<u64>,
    /// The number of the socket that has heard it already.
    pub heard_by: Option<u64>,
}

/// Those who listen to the wire: packet sockets.
pub trait Taps: Sync {
    /// A frame came, or was sent. Thread context with no spin lock held; bounded, must not sleep or
    /// allocate.
    fn hear(&self, news: &News);

    /// The interface is gone, or has come. Thread context.
    fn changed(&self, interface: &Arc<dyn Interface>);
}

/// The protocol stack. All of it is called in a thread; while that takes long, the card waits.
pub trait Stack: Sync {
    /// A frame came.
    fn receive(&self, news: &News);

    /// All frames that had come were handed over; further ones may follow soon.
    fn settle(&self, interface: &Arc<dyn Interface>);

    /// The interface is there. It has its addresses.
    fn come(&self, interface: &Arc<dyn Interface>);

    /// The interface is gone, and nothing comes from it any more.
    fn go(&self, interface: &Arc<dyn Interface>);
}

static TAPS: Once<&'static dyn Taps> = Once::new();
static STACK: Once<Registered> = Once::new();

/// The protocol stack, and which frames are anything to it.
struct Registered {
    stack: &'static dyn Stack,
    /// As frames have them (ETH_P_*), byte by byte.
    protocols: [[u8; 2]; 2],
}

/// The places of interfaces.
static ALL: SpinLock<[Option<Arc<dyn Interface>>; MOST]> = SpinLock::new([const { None }; MOST]);

/// Has packet sockets hear what is on the wire. Once, before there are interfaces.
pub fn set_taps(taps: &'static dyn Taps) {
    TAPS.call_once(|| taps);
}

/// Has the protocol stack have what is received; frames of other than these protocols (ETH_P_*) are
/// nothing to it. Once, before there are interfaces.
pub fn set_stack(stack: &'static dyn Stack, protocols: [u16; 2]) {
    STACK.call_once(|| Registered { stack, protocols: protocols.map(u16::to_be_bytes) });
}

/// There is that interface. `false` if there are too many. Thread context; may sleep.
pub fn add(interface: &Arc<dyn Interface>) -> bool {
    {
        let mut all = ALL.lock();
        let Some(free) = all.iter_mut().find(|place| place.is_none()) else { return false };
        let everywhere = EVERYWHERE.load(Ordering::Relaxed);
        interface.listeners().fetch_add(everywhere, Ordering::Relaxed);
        *free = Some(interface.clone());
    }
    if let Some(taps) = TAPS.get() {
        taps.changed(interface);
    }
    if let Some(Registered { stack, .. }) = STACK.get() {
        stack.come(interface);
    }
    true
}

/// That interface is gone; it is not [up](Interface::is_up) any more. Thread context; may sleep.
pub fn remove(interface: &Arc<dyn Interface>) {
    let gone = {
        let mut all = ALL.lock();
        let is_meant = |place: &&mut Option<_>| {
            place.as_ref().is_some_and(|other| Arc::ptr_eq(other, interface))
        };
        all.iter_mut().find(is_meant).and_then(Option::take)
    };
    if gone.is_none() {
        return;
    }
    if let Some(taps) = TAPS.get() {
        taps.changed(interface);
    }
    if let Some(Registered { stack, .. }) = STACK.get() {
        stack.go(interface);
    }
}

/// The interface that `is_meant` says. Any context.
pub fn find(is_meant: impl Fn(&dyn Interface) -> bool) -> Option<Arc<dyn Interface>> {
    ALL.lock().iter().flatten().find(|interface| is_meant(&***interface)).cloned()
}

/// The interface with that number. Any context.
pub fn by_index(index: u32) -> Option<Arc<dyn Interface>> {
    find(|interface| interface.index() == index)
}

/// The interface with that name. Any context.
pub fn by_name(name: &[u8]) -> Option<Arc<dyn Interface>> {
    find(|interface| interface.name().as_bytes() == name)
}

/// A frame came. In a thread of the driver, with nothing locked but what is the driver's.
pub fn received(news: &News) {
    if let Some(taps) = TAPS.get() {
        taps.hear(news);
    }
    if let Some(Registered { stack, .. }) = STACK.get() {
        stack.receive(news);
    }
}

/// Whether a frame that came is anything to the protocol stack.
#[inline(always)]
pub fn concerns_stack(news: &News) -> bool {
    let protocol = news.frame.get(HEADER - 2..HEADER).and_then(|told| told.first_chunk());
    STACK.get().zip(protocol).is_some_and(|(known, told)| known.protocols.contains(told))
}

/// Frames that had come were handed over. In a thread of the driver, with nothing locked.
pub fn settled(interface: &Arc<dyn Interface>) {
    if let Some(Registered { stack, .. }) = STACK.get() {
        stack.settle(interface);
    }
}

/// Sends a frame, as [`Interface::transmit`] says, of the socket `origin`; 0 for another sender.
/// It is reported as is `asked`. Thread context with no spin lock held; bounded.
pub fn send(
    interface: &Arc<dyn Interface>,
    frame: &[u8],
    origin: u64,
    asked: Option<&Asked>,
) -> Result<(), Errno> {
    // Before the card has it, as Linux's drivers do: who hears of it by the wire hears it later.
    let stamp = Stamp::now();
    interface.transmit(frame)?;
    if let Some(asked) = asked {
        asked.tell(stamp, interface.index(), frame);
    }
    if let Some(taps) = TAPS.get() {
        let (index, own) = (interface.index(), interface.hardware_address());
        let origin = Some(origin);
        taps.hear(&News { index, own, frame, stamp, origin, heard_by: None });
    }
    Ok(())
}
