// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of packet sockets.

use alloc::{sync::Arc, vec::Vec};
use core::{
    ops::DerefMut,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use super::{
    SOL_PACKET,
    blocks::Blocks,
    core::{Core, Received},
    ring::{self, Mapped, Ring},
};
use crate::{
    abi::Errno,
    files::socket::Foreign,
    memory::user,
    sockets::net::interface::{self, HardwareAddress, Reception},
};
use crtos_abi::UserAddr;
use crtos_core::{
    mm::{heap, object::Object, pages::Pages},
    task::Mutex,
};
use crtos_nic::{
    blocks::Extra,
    ring::{Front, Version},
};

/// Options.
pub const ADD_MEMBERSHIP: u32 = 1;
const DROP_MEMBERSHIP: u32 = 2;
const STATISTICS: u32 = 6;
pub const RECEIVE_RING: u32 = 5;
const AUXILIARY: u32 = 8;
const ORIGINAL_DEVICE: u32 = 9;
const VERSION: u32 = 10;
/// It is asked with a version.
pub const HEADER_LENGTH: u32 = 11;
const RESERVE: u32 = 12;
pub const TRANSMIT_RING: u32 = 13;
const LOSS: u32 = 14;
/// Which stamps the ring tells.
pub const TIMESTAMP: u32 = 17;
const BYPASS: u32 = 20;
pub const IGNORE_OUTGOING: u32 = 23;
/// Bytes of a `struct packet_mreq`.
const MEMBERSHIP: usize = 16;
/// Most memberships of a socket.
const MOST_MEMBERSHIPS: usize = 64;

/// A membership: of which interface, what, and how often.
#[derive(Clone, Copy)]
struct Membership {
    interface: u32,
    what: Reception,
    count: u32,
}

/// Options of a socket.
pub struct Options {
    memberships: Mutex<Vec<Membership>>,
    /// Control messages tell what is known of a frame.
    pub tells_more: AtomicBool,
    original_device: AtomicU32,
    loss: AtomicU32,
    bypass: AtomicU32,
    /// The number of the interface that SO_BINDTODEVICE names; 0 for none. As under Linux, what is
    /// received does not depend on it.
    device: AtomicU32,
    rings: Mutex<Rings>,
}

/// Rings, but for that of what is received, which frames reach.
#[derive(Default)]
pub struct Rings {
    version: Version,
    /// Bytes that the program keeps in front of each frame.
    reserve: u32,
    received: Option<Arc<Pages>>,
    transmit: Option<Ring>,
    mapped: Mapped,
}

/// Options that only keep a number.
fn kept(options: &Options, name: u32) -> Option<&AtomicU32> {
    match name {
        ORIGINAL_DEVICE => Some(&options.original_device),
        LOSS => Some(&options.loss),
        BYPASS => Some(&options.bypass),
        _ => None,
    }
}

/// What a `struct packet_mreq` asks for.
fn membership(value: &[u8]) -> Result<(u32, Reception), Errno> {
    let mut bytes = [0; MEMBERSHIP];
    if value.len() < MEMBERSHIP {
        return Err(Errno::EINVAL);
    }
    bytes.copy_from_slice(&value[..MEMBERSHIP]);
    let [i, j, k, l, kind, _, length, _, a, b, c, d, e, f, _, _] = bytes;
    let address: HardwareAddress = [a, b, c, d, e, f];
    let what = match kind {
        // PACKET_MR_MULTICAST and PACKET_MR_UNICAST.
        0 | 3 if usize::from(length) == address.len() => Reception::Address(address),
        1 => Reception::All,
        2 => Reception::Groups,
        _ => return Err(Errno::EINVAL),
    };
    Ok((u32::from_ne_bytes([i, j, k, l]), what))
}

impl Options {
    /// Those of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let options = Self {
            memberships: Mutex::new(Vec::new()),
            tells_more: AtomicBool::new(false),
            original_device: AtomicU32::new(0),
            loss: AtomicU32::new(0),
            bypass: AtomicU32::new(0),
            device: AtomicU32::new(0),
            rings: Mutex::new(Rings::default()),
        };
        let number = |name| foreign.number(SOL_PACKET, name);
        options.rings.lock().reserve = number(RESERVE)?;
        let version = Version::of_number(number(VERSION)?).ok_or(Errno::EINVAL)?;
        options.rings.lock().version = version;
        options.tells_more.store(number(AUXILIARY)? != 0, Ordering::Relaxed);
        for name in [ORIGINAL_DEVICE, LOSS, BYPASS] {
            // Older kernels do not tell all.
            if let (Some(place), Ok(value)) = (kept(&options, name), number(name)) {
                place.store(value, Ordering::Relaxed);
            }
        }
        Ok(options)
    }

    fn join(&self, value: &[u8]) -> Result<(), Errno> {
        let (index, what) = membership(value)?;
        let interface = interface::by_index(index).ok_or(Errno::ENODEV)?;
        let mut all = self.memberships.lock();
        let is_it = |other: &&mut Membership| other.interface == index && other.what == what;
        if let Some(known) = all.iter_mut().find(is_it) {
            known.count += 1;
            return Ok(());
        }
        if all.len() == MOST_MEMBERSHIPS || !heap::has_reserve() {
            return Err(Errno::ENOBUFS);
        }
        interface.admit(what)?;
        all.push(Membership { interface: index, what, count: 1 });
        Ok(())
    }

    fn leave(&self, value: &[u8]) -> Result<(), Errno> {
        let (index, what) = membership(value)?;
        let mut all = self.memberships.lock();
        let place = all.iter().position(|other| other.interface == index && other.what == what);
        // As under Linux, what was not there is left.
        let Some(place) = place else { return Ok(()) };
        all[place].count -= 1;
        if all[place].count == 0 {
            all.swap_remove(place).end();
        }
        Ok(())
    }

    /// setsockopt(2) with SO_BINDTODEVICE.
    pub fn set_device(&self, value: &[u8]) -> Result<(), Errno> {
        let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
        let index = match &value[..end] {
            [] => 0,
            name => interface::by_name(name).ok_or(Errno::ENODEV)?.index(),
        };
        self.device.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// The name of the interface that was set so.
    pub fn device(&self) -> Vec<u8> {
        let interface = interface::by_index(self.device.load(Ordering::Relaxed));
        let name = interface.iter().flat_map(|interface| interface.name().bytes());
        name.chain(interface.is_some().then_some(0)).collect()
    }

    /// setsockopt(2) with SOL_PACKET.
    pub fn set(&self, core: &Arc<Core>, name: u32, value: &[u8]) -> Result<(), Errno> {
        match name {
            ADD_MEMBERSHIP => return self.join(value),
            DROP_MEMBERSHIP => return self.leave(value),
            RECEIVE_RING | TRANSMIT_RING => {
                return self.set_ring(core, name == RECEIVE_RING, value);
            }
            _ => {}
        }
        let number = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
        match name {
            AUXILIARY => self.tells_more.store(number != 0, Ordering::Relaxed),
            IGNORE_OUTGOING if number > 1 => return Err(Errno::EINVAL),
            IGNORE_OUTGOING => core.wants.set_ignores_outgoing(number != 0),
            LOSS | ORIGINAL_DEVICE | BYPASS => {
                let place = kept(self, name).ok_or(Errno::ENOPROTOOPT)?;
                place.store((number != 0).into(), Ordering::Relaxed);
            }
            TIMESTAMP => core.ring_stamps.store(number, Ordering::Relaxed),
            VERSION => {
                let version = Version::of_number(number).ok_or(Errno::EINVAL)?;
                self.without_rings()?.version = version;
            }
            RESERVE if number > i32::MAX as u32 => return Err(Errno::EINVAL),
            RESERVE => self.without_rings()?.reserve = number,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// What is known of rings while there are none; EBUSY otherwise.
    fn without_rings(&self) -> Result<impl DerefMut<Target = Rings>, Errno> {
        let rings = self.rings.lock();
        let has_some = rings.received.is_some() || rings.transmit.is_some();
        if has_some { Err(Errno::EBUSY) } else { Ok(rings) }
    }

    /// There is the ring from now on that a program asks for, or none. May sleep.
    fn set_ring(&self, core: &Arc<Core>, is_received: bool, value: &[u8]) -> Result<(), Errno> {
        let mut rings = self.rings.lock();
        let request = ring::request(value, rings.version)?;
        if rings.mapped.is_mapped() {
            return Err(Errno::EBUSY);
        }
        let there = if is_received { rings.received.is_some() } else { rings.transmit.is_some() };
        if there && request.is_some() {
            return Err(Errno::EBUSY);
        }
        let front = Front::new(rings.version, rings.reserve);
        if !is_received {
            // As under Linux, what is to be sent is not in blocks.
            if request.is_some_and(|(_, extra)| extra != Extra::default()) {
                return Err(Errno::EINVAL);
            }
            let ring = request.map(|(request, _)| Ring::new(request, front));
            rings.transmit = ring.transpose()?;
            return Ok(());
        }
        let ring = request.map(|(request, extra)| match rings.version {
            Version::First | Version::Second => Ring::new(request, front).map(Received::Frames),
            Version::Third => Blocks::new(core, request, front, extra).map(Received::Blocks),
        });
        let ring = ring.transpose()?;
        rings.received = ring.as_ref().map(|ring| ring.pages().clone());
        core.set_ring(ring);
        // What waits is not for the ring, as under Linux.
        while core.kept.lock().pop() {}
        Ok(())
    }

    /// The memory of the rings, to be mapped. May sleep.
    pub fn map(&self, length: u64) -> Result<Arc<Object>, Errno> {
        let mut rings = self.rings.lock();
        let Rings { received, transmit, mapped, .. } = &mut *rings;
        let all = received.iter().chain(transmit.as_ref().map(Ring::pages)).cloned();
        mapped.map(&all.collect::<Vec<_>>(), length)
    }

    /// Has `act` work on the ring of what is to be sent; `None` if there is none. May sleep.
    pub fn with_transmit_ring<R>(&self, act: impl FnOnce(&mut Ring, bool) -> R) -> Option<R> {
        let mut rings = self.rings.lock();
        let skips = self.loss.load(Ordering::Relaxed) != 0;
        rings.transmit.as_mut().map(|ring| act(ring, skips))
    }

    /// Bytes of the description of a frame, of the version that a program names.
    pub fn header_length(&self, at: UserAddr) -> Result<Vec<u8>, Errno> {
        let version = Version::of_number(user::read_u32(at)?).ok_or(Errno::EINVAL)?;
        Ok(version.description().to_ne_bytes().to_vec())
    }

    /// getsockopt(2) with SOL_PACKET.
    pub fn get(&self, core: &Core, name: u32) -> Result<Vec<u8>, Errno> {
        let number = match name {
            STATISTICS => {
                let dropped = core.dropped.swap(0, Ordering::Relaxed);
                let taken = core.taken.swap(0, Ordering::Relaxed).wrapping_add(dropped);
                let told = [taken, dropped].map(u32::to_ne_bytes).concat();
                if self.rings.lock().version != Version::Third {
                    return Ok(told);
                }
                let freezes = core.take_freezes();
                return Ok([told.as_slice(), &freezes.to_ne_bytes()].concat());
            }
            AUXILIARY => self.tells_more.load(Ordering::Relaxed).into(),
            IGNORE_OUTGOING => core.wants.now().ignores_outgoing().into(),
            TIMESTAMP => core.ring_stamps.load(Ordering::Relaxed),
            VERSION => self.rings.lock().version.number(),
            RESERVE => self.rings.lock().reserve,
            _ => kept(self, name).ok_or(Errno::ENOPROTOOPT)?.load(Ordering::Relaxed),
        };
        Ok(number.to_ne_bytes().to_vec())
    }
}

impl Membership {
    fn end(self) {
        if let Some(interface) = interface::by_index(self.interface) {
            interface.refuse(self.what);
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        let mut all = self.memberships.lock();
        while let Some(membership) = all.pop() {
            membership.end();
        }
    }
}
