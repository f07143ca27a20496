// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN interfaces of the realm.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::UserAddr;
use crtos_can::Frame;
use linux_raw_sys::ioctl;
use spin::Once;

use crate::{
    abi::{Errno, SysResult},
    files::socket,
    sockets::ifreq::InterfaceRequest,
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

/// All of them. There is a value only if there are any.
static ALL: Once<Vec<Arc<dyn Interface>>> = Once::new();

/// There are these interfaces. Once.
pub fn set(all: Vec<Arc<dyn Interface>>) {
    if !all.is_empty() {
        ALL.call_once(|| all);
        socket::add_family(&super::FAMILY);
    }
}

/// All interfaces.
pub fn all() -> &'static [Arc<dyn Interface>] {
    ALL.get().map_or(&[], |all| all)
}

/// The interface with that number.
pub fn by_index(index: u32) -> Option<&'static Arc<dyn Interface>> {
    all().iter().find(|interface| interface.index() == index)
}

/// Whether an ioctl asks for an interface in a way that is answered here.
pub fn is_known(request: u32) -> bool {
    matches!(
        request,
        ioctl::SIOCGIFNAME
            | ioctl::SIOCGIFINDEX
            | ioctl::SIOCGIFFLAGS
            | ioctl::SIOCGIFMTU
            | ioctl::SIOCGIFHWADDR
            | ioctl::SIOCGIFTXQLEN
    )
}

/// Answers an ioctl that asks for an interface of the realm (netdevice(7)); `None` if it asks for
/// something else.
pub fn asked(request: u32, argument: UserAddr) -> Option<SysResult> {
    if !is_known(request) {
        return None;
    }
    let mut ifreq = match InterfaceRequest::read(argument) {
        Ok(ifreq) => ifreq,
        Err(error) => return Some(Err(error)),
    };
    let interface = match request {
        ioctl::SIOCGIFNAME => by_index(ifreq.index())?,
        _ => all().iter().find(|interface| interface.name().as_bytes() == ifreq.name())?,
    };
    match request {
        ioctl::SIOCGIFNAME => ifreq.set_name(interface.name()),
        ioctl::SIOCGIFINDEX => ifreq.put(&interface.index().to_ne_bytes()),
        ioctl::SIOCGIFFLAGS => {
            let flags = ALWAYS | if interface.is_up() { UP } else { 0 };
            ifreq.put(&flags.to_ne_bytes());
        }
        ioctl::SIOCGIFMTU => ifreq.put(&(Frame::SIZE as u32).to_ne_bytes()),
        ioctl::SIOCGIFTXQLEN => ifreq.put(&interface.queue_length().to_ne_bytes()),
        _ => ifreq.put_hardware(HARDWARE, &[]),
    }
    Some(ifreq.write())
}
