// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN interfaces of the realm.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::{UserAddr, device::MAX_DEVICES};
use crtos_can::Frame;
use crtos_core::sync::SpinLock;
use linux_raw_sys::ioctl;

use crate::{
    abi::{Errno, SysResult},
    files::socket,
    sockets::{
        ethtool::{self, ETHTOOL},
        ifreq::InterfaceRequest,
    },
};

/// Flags of an interface: it is up and running, has no addresses of its own, and hears what it
/// sends (IFF_*).
const UP: u16 = 0x0001 | 0x0040;
const ALWAYS: u16 = 0x0080;
/// The kind of hardware (ARPHRD_CAN).
const HARDWARE: u16 = 280;

/// A frame to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The frame.
    pub frame: Frame,
    /// The number of the socket that sends it.
    pub origin: u64,
    /// Sockets of the realm are told of it when it was sent.
    pub is_heard: bool,
}

/// A CAN interface. Its driver tells sockets of frames by
/// [`member::tell`](super::member::tell).
pub trait Interface: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The number by which programs know it.
    fn index(&self) -> u32;

    /// How many frames wait to be sent, at most.
    fn queue_length(&self) -> u32;

    /// Whether it takes part in its bus, or is only off it because of errors.
    fn is_up(&self) -> bool;

    /// Sends a frame, behind those that wait already. ENOBUFS if there are too many, or it is off
    /// the bus; ENETDOWN if it is not up. Any context; bounded.
    fn send(&self, outgoing: Outgoing) -> Result<(), Errno>;

    /// A socket is to receive from it: it interrupts the calling thread's CPU from now on. Thread
    /// context; sleeps.
    fn attend(&self);
}

/// Most of them.
const MOST: usize = MAX_DEVICES;

/// The places of interfaces.
static ALL: SpinLock<[Option<Arc<dyn Interface>>; MOST]> = SpinLock::new([const { None }; MOST]);

/// There is that interface; `false` if there is one of its number or name already, or there are too
/// many. By the thread alone that has devices come and go.
pub fn add(interface: &Arc<dyn Interface>) -> bool {
    let is_other = |other: &Arc<dyn Interface>| {
        other.index() != interface.index() && other.name() != interface.name()
    };
    {
        let mut all = ALL.lock();
        if interface.index() == 0 || !all.iter().flatten().all(is_other) {
            return false;
        }
        let Some(free) = all.iter_mut().find(|place| place.is_none()) else { return false };
        *free = Some(interface.clone());
    }
    socket::add_family(&super::FAMILY);
    true
}

/// That interface is gone. Thread context.
pub fn remove(interface: &dyn Interface) {
    let is_it = |other: &Arc<dyn Interface>| other.index() == interface.index();
    let gone =
        ALL.lock().iter_mut().find(|place| place.as_ref().is_some_and(is_it)).map(Option::take);
    drop(gone);
}

/// The interface that `is_meant` says. Any context.
fn find(is_meant: impl Fn(&dyn Interface) -> bool) -> Option<Arc<dyn Interface>> {
    ALL.lock().iter().flatten().find(|interface| is_meant(&***interface)).cloned()
}

/// All interfaces. Thread context.
pub fn all() -> Vec<Arc<dyn Interface>> {
    // No allocation under the lock.
    let mut all = Vec::with_capacity(MOST);
    all.extend(ALL.lock().iter().flatten().cloned());
    all
}

/// Whether there are none. Any context.
pub fn is_empty() -> bool {
    ALL.lock().iter().all(Option::is_none)
}

/// The interface with that number. Any context.
pub fn by_index(index: u32) -> Option<Arc<dyn Interface>> {
    find(|interface| interface.index() == index)
}

/// The interface with that name. Any context.
pub fn by_name(name: &[u8]) -> Option<Arc<dyn Interface>> {
    find(|interface| interface.name().as_bytes() == name)
}

/// Whether an ioctl asks for an interface in a way that is answered here.
fn is_known(request: u32) -> bool {
    matches!(
        request,
        ioctl::SIOCGIFNAME
            | ioctl::SIOCGIFINDEX
            | ioctl::SIOCGIFFLAGS
            | ioctl::SIOCGIFMTU
            | ioctl::SIOCGIFHWADDR
            | ioctl::SIOCGIFTXQLEN
            | ioctl::SIOCGIFMETRIC
    )
}

/// Answers an ioctl that asks for an interface of the realm (netdevice(7)); `None` if it asks for
/// something else.
pub fn asked(request: u32, argument: UserAddr) -> Option<SysResult> {
    if !is_known(request) && request != ETHTOOL {
        return None;
    }
    let mut ifreq = match InterfaceRequest::read(argument) {
        Ok(ifreq) => ifreq,
        Err(error) => return Some(Err(error)),
    };
    let interface = match request {
        ioctl::SIOCGIFNAME => by_index(ifreq.index())?,
        _ => find(|interface| interface.name().as_bytes() == ifreq.name())?,
    };
    match request {
        ETHTOOL => {
            return Some(ethtool::tell(UserAddr::new(ifreq.address()), || None));
        }
        ioctl::SIOCGIFNAME => ifreq.set_name(interface.name()),
        ioctl::SIOCGIFINDEX => ifreq.put(&interface.index().to_ne_bytes()),
        ioctl::SIOCGIFFLAGS => {
            let flags = ALWAYS | if interface.is_up() { UP } else { 0 };
            ifreq.put(&flags.to_ne_bytes());
        }
        ioctl::SIOCGIFMTU => ifreq.put(&(Frame::SIZE as u32).to_ne_bytes()),
        ioctl::SIOCGIFTXQLEN => ifreq.put(&interface.queue_length().to_ne_bytes()),
        ioctl::SIOCGIFMETRIC => ifreq.put(&[0; 4]),
        _ => ifreq.put_hardware(HARDWARE, &[]),
    }
    Some(ifreq.write())
}
