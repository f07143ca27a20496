// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN_RAW: frames as they are.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::UserAddr;
use crtos_can::{Filter, Filters, Frame, List, Queue, filter::MAX_FILTERS};
use crtos_core::{mm::heap, sync::SpinLock, task::WaitQueue, time::Nanos};
use linux_raw_sys::net;

use super::{
    COST, LEAST_ADDRESS, SOL_CAN_RAW, address_of,
    budget::{COMPARED, Share},
    device::Device,
    inbox::{self, Inbox},
    interface::{self, Outgoing},
    interface_of,
    member::{self, Member, News},
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers, description,
        socket::{Address, Foreign, MAX_OPTION, Received, Reception, SendControl, Socket},
    },
    sockets::{common::Common, net::interface::Stamp},
};

/// Options.
const FILTER: u32 = 1;
const ERROR_FILTER: u32 = 2;
const LOOPBACK: u32 = 3;
const OWN_MESSAGES: u32 = 4;
const FD_FRAMES: u32 = 5;
const JOIN_FILTERS: u32 = 6;

/// A frame that waits to be received.
#[derive(Clone, Copy)]
struct Message {
    frame: Frame,
    interface: u32,
    stamp: Nanos,
    /// MSG_DONTROUTE: it was sent here; MSG_CONFIRM: by this socket.
    flags: u32,
    /// Frames that were lost before.
    lost: u32,
}

/// What decides which frames it gets.
struct Wants {
    /// Bound to that interface, or to all.
    bound: Option<u32>,
    filters: Filters,
    /// As much as there are filters.
    share: Share,
}

/// What interrupts reach.
struct Core {
    common: Common,
    device: Device,
    /// The number by which its frames are known.
    number: u64,
    wants: SpinLock<Wants>,
    inbox: Inbox<Message>,
    hears_own: AtomicBool,
    /// Frames on their way.
    unsent: AtomicU32,
    writers: WaitQueue,
}

/// A socket of that kind.
pub struct Raw {
    core: Arc<Core>,
    /// It is [told](member) of frames.
    is_member: AtomicBool,
    is_heard: AtomicU32,
    /// What it was told to take or give beyond classical CAN. No interface here has such frames.
    own: AtomicU32,
    fd_frames: AtomicU32,
}

impl Core {
    /// A frame of this socket is not on its way any more. Any context.
    fn sent(&self) {
        self.unsent.fetch_sub(1, Ordering::Relaxed);
        self.writers.wake(1);
        self.inbox.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
    }

    /// There may be room for several frames. Thread context.
    fn tell_of_room(&self) {
        self.writers.wake_all();
        self.inbox.watchers.notify(Events::OUT | Events::WRITE_NORMAL);
    }
}

impl Member for Core {
    fn hear(&self, news: &News) {
        let is_own = news.origin == Some(self.number);
        if is_own {
            self.sent();
        }
        if !news.is_heard || is_own && !self.hears_own.load(Ordering::Relaxed) {
            return;
        }
        {
            let wants = self.wants.lock_quietly();
            let is_meant = wants.bound.is_some_and(|bound| bound == 0 || bound == news.interface);
            if !is_meant || !wants.filters.want(&news.frame) {
                return;
            }
        }
        let mut flags = 0;
        flags |= if news.origin.is_some() { net::MSG_DONTROUTE } else { 0 };
        flags |= if is_own { net::MSG_CONFIRM } else { 0 };
        let message = Message {
            frame: news.frame,
            interface: news.interface,
            stamp: news.stamp,
            flags,
            lost: self.inbox.lost(),
        };
        // One for which there is no room is counted.
        let _ = self.inbox.put(message);
    }

    fn lose(&self, interface: u32) {
        {
            let mut wants = self.wants.lock();
            if wants.bound != Some(interface) {
                return;
            }
            wants.bound = None;
        }
        self.common.fail(Errno::ENODEV);
        self.inbox.tell_failure();
    }
}

impl Raw {
    /// What takes the place of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let common = Common::of(foreign, net::AF_CAN)?;
        let number = |name| foreign.number(SOL_CAN_RAW, name);
        let filters = Filters {
            all: List::new(filters(&foreign.option(SOL_CAN_RAW, FILTER)?)?),
            are_joined: number(JOIN_FILTERS)? != 0,
            errors: number(ERROR_FILTER)?,
        };
        let mut share = Share::of(&COMPARED);
        share.change(filters.all.given().len() as u32)?;
        let own = number(OWN_MESSAGES)?;
        let inbox = Inbox::new(common.receive_buffer())?;
        let core = Core {
            common,
            device: Device::of(foreign)?,
            number: description::number(),
            wants: SpinLock::new(Wants { bound: None, filters, share }),
            inbox,
            hears_own: AtomicBool::new(own != 0),
            unsent: AtomicU32::new(0),
            writers: WaitQueue::new(),
        };
        Ok(Self {
            core: Arc::new(core),
            is_member: AtomicBool::new(false),
            is_heard: AtomicU32::new(number(LOOPBACK)?),
            own: AtomicU32::new(own),
            fd_frames: AtomicU32::new(number(FD_FRAMES)?),
        })
    }

    fn member(&self) -> Arc<dyn Member> {
        self.core.clone()
    }

    /// Has it be told of frames, also of its own that were sent.
    fn join(&self) -> Result<(), Errno> {
        if self.is_member.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        member::join(self.member()).inspect_err(|_| self.is_member.store(false, Ordering::Release))
    }

    /// Counts a frame on its way, if the buffer has room.
    fn reserve(&self) -> Option<()> {
        let most = inbox::room(self.core.common.send_buffer()) as u32;
        let more = |unsent: u32| (unsent < most).then_some(unsent + 1);
        self.core.unsent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| ())
    }

    /// Moves so many bytes of the first message to memory; what `tell` says of that message.
    #[inline(always)]
    fn take<R>(
        &self,
        memory: &mut Memory,
        room: usize,
        how: Reception,
        tell: impl Fn(&Message) -> R,
    ) -> Result<R, Errno> {
        // The frame, if the memory's page is not there.
        let mut left = None;
        let take = |queue: &mut Queue<Message>| {
            let message = match self.core.common.check() {
                Ok(()) => queue.first()?,
                Err(error) => return Some(Err(error)),
            };
            let told = tell(message);
            if !memory.write_at_once(&message.frame.bytes()[..room]) {
                left = Some(message.frame);
            }
            if !how.peeks {
                queue.pop();
            }
            Some(Ok(told))
        };
        let deadline = self.core.common.receive_deadline();
        let told = self.core.inbox.receive(deadline, how.nonblocking, take)??;
        match left {
            Some(frame) if memory.write(&frame.bytes()[..room]) < room => Err(Errno::EFAULT),
            _ => Ok(told),
        }
    }

    fn set_filters(&self, value: &[u8]) -> Result<(), Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let mut other = List::new(filters(value)?);
        // What is left of it is freed behind the lock.
        let mut wants = self.core.wants.lock();
        let changed = wants.share.change(other.given().len() as u32);
        if changed.is_ok() {
            core::mem::swap(&mut wants.filters.all, &mut other);
        }
        drop(wants);
        changed
    }
}

/// What a program gives as filters.
fn filters(value: &[u8]) -> Result<Vec<Filter>, Errno> {
    let (all, rest) = value.as_chunks::<{ Filter::SIZE }>();
    if !rest.is_empty() || all.len() > MAX_FILTERS {
        return Err(Errno::EINVAL);
    }
    Ok(all.iter().map(|bytes| Filter::from_bytes(*bytes)).collect())
}

const _: () = assert!(MAX_FILTERS * Filter::SIZE <= MAX_OPTION);

impl Socket for Raw {
    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let index = interface_of(address)?;
        if index != 0 && interface::by_index(index).is_none() {
            return Err(Errno::ENODEV);
        }
        self.join()?;
        self.core.wants.lock().bound = Some(index);
        for interface in interface::all() {
            if index == 0 || interface.index() == index {
                interface.attend();
                if index != 0 && !interface.is_up() {
                    self.core.common.fail(Errno::ENETDOWN);
                }
            }
        }
        Ok(())
    }

    fn connect(&self, _: &Address) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn name(&self, of_peer: bool) -> Result<Address, Errno> {
        if of_peer {
            return Err(Errno::EOPNOTSUPP);
        }
        let bound = self.core.wants.lock().bound.unwrap_or(0);
        Ok(address_of(bound, LEAST_ADDRESS))
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        nonblocking: bool,
        _: &SendControl,
    ) -> SysResult {
        let index = match to {
            Some(address) => interface_of(address)?,
            None => self.core.wants.lock().bound.unwrap_or(0),
        };
        let interface = interface::by_index(index).ok_or(Errno::ENXIO)?;
        if memory.left() != Frame::SIZE as u64 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; Frame::SIZE];
        if memory.read(&mut bytes) < Frame::SIZE {
            return Err(Errno::EFAULT);
        }
        let frame = Frame::from_bytes(bytes).ok_or(Errno::EINVAL)?;
        self.join()?;
        self.core.common.check()?;
        if self.reserve().is_none() {
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            inbox::wait(&self.core.writers, self.core.common.send_deadline(), || self.reserve())?;
        }
        let is_heard = self.is_heard.load(Ordering::Relaxed) != 0;
        let outgoing = Outgoing { frame, origin: self.core.number, is_heard };
        interface.send(outgoing).inspect_err(|_| self.core.sent())?;
        Ok(Frame::SIZE as u64)
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        // As under Linux, frames are received all the same.
        Ok(())
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        let room = (memory.left() as usize).min(Frame::SIZE);
        let message = self.take(memory, room, how, |message| *message)?;
        let told = self.core.common.told(Stamp::of_kernel(message.stamp), message.lost);
        let mut flags = message.flags;
        flags |= if room < Frame::SIZE { net::MSG_TRUNC } else { 0 };
        Ok(Received {
            // Whatever MSG_TRUNC asks for, as under Linux.
            length: room as u64,
            flags,
            from: address_of(message.interface, LEAST_ADDRESS),
            told,
        })
    }

    fn read(&self, memory: &mut Memory, how: Reception) -> SysResult {
        let room = (memory.left() as usize).min(Frame::SIZE);
        let stamp = self.take(memory, room, how, |message| message.stamp)?;
        self.core.common.note(Stamp::of_kernel(stamp));
        Ok(room as u64)
    }

    fn tells_whole(&self, level: u32, name: u32) -> bool {
        (level, name) == (SOL_CAN_RAW, FILTER)
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        match level {
            net::SOL_SOCKET => {
                let named = self.core.device.get(name);
                return named.unwrap_or_else(|| self.core.common.get(name));
            }
            SOL_CAN_RAW => {}
            _ => return Err(Errno::EINVAL),
        }
        let number = match name {
            FILTER => {
                // No allocation under the lock.
                let mut all = Vec::with_capacity(MAX_FILTERS);
                all.extend_from_slice(self.core.wants.lock().filters.all.given());
                return Ok(all.iter().flat_map(|filter| filter.to_bytes()).collect());
            }
            ERROR_FILTER => self.core.wants.lock().filters.errors,
            JOIN_FILTERS => self.core.wants.lock().filters.are_joined.into(),
            LOOPBACK => self.is_heard.load(Ordering::Relaxed),
            OWN_MESSAGES => self.own.load(Ordering::Relaxed),
            FD_FRAMES => self.fd_frames.load(Ordering::Relaxed),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        match level {
            net::SOL_SOCKET => {
                if let Some(result) = self.core.device.set(name, value) {
                    return result;
                }
                self.core.common.set(name, value)?;
                return match name {
                    net::SO_RCVBUF | net::SO_RCVBUFFORCE => {
                        self.core.inbox.resize(self.core.common.receive_buffer())
                    }
                    net::SO_SNDBUF | net::SO_SNDBUFFORCE => {
                        self.core.tell_of_room();
                        Ok(())
                    }
                    _ => Ok(()),
                };
            }
            SOL_CAN_RAW if name == FILTER => return self.set_filters(value),
            SOL_CAN_RAW => {}
            _ => return Err(Errno::EINVAL),
        }
        if !(ERROR_FILTER..=JOIN_FILTERS).contains(&name) {
            return Err(Errno::ENOPROTOOPT);
        }
        let number = u32::from_ne_bytes(value.try_into().map_err(|_| Errno::EINVAL)?);
        match name {
            ERROR_FILTER => {
                self.core.wants.lock().filters.errors = number & crtos_can::frame::EXTENDED_MASK;
            }
            JOIN_FILTERS => self.core.wants.lock().filters.are_joined = number != 0,
            LOOPBACK => self.is_heard.store(number, Ordering::Relaxed),
            OWN_MESSAGES => {
                self.own.store(number, Ordering::Relaxed);
                self.core.hears_own.store(number != 0, Ordering::Relaxed);
            }
            _ => self.fd_frames.store(number, Ordering::Relaxed),
        }
        Ok(())
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        self.core.common.asked(request, argument).unwrap_or(Err(Errno::ENOTTY))
    }

    fn ready(&self) -> Events {
        let half = self.core.unsent.load(Ordering::Relaxed).saturating_mul(2 * COST);
        let mut events = Events::empty();
        let has_failed = self.core.common.has_failed();
        let readable = !self.core.inbox.is_empty();
        events.set(Events::IN | Events::READ_NORMAL, readable);
        let writable = Events::OUT | Events::WRITE_NORMAL | Events::WRITE_BAND;
        events.set(writable, half < self.core.common.send_buffer());
        events.set(Events::ERROR, has_failed);
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.core.inbox.watchers
    }

    fn number(&self) -> u64 {
        self.core.number
    }

    fn interface(&self) -> Option<u32> {
        self.core.wants.lock().bound.filter(|&index| index != 0)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.is_member.load(Ordering::Acquire) {
            member::leave(&self.member());
        }
    }
}
