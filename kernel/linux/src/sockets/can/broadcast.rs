// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN_BCM: frames that the kernel sends again and again, and frames of which a program is told
//! when they change. What a job does is in [`crtos_can::broadcast`]; here are its timer, and the
//! socket.
//!
//! Each job has a timer of the kernel, which sends from its interrupt. So a period holds whatever
//! the program and its priority.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::UserAddr;
use crtos_can::{
    Frame, Queue,
    broadcast::{Effect, Head, MAX_FRAMES, Receiving, Refusal, Sending, Turn, flag, opcode},
};
use crtos_core::{
    arch::interrupts::{InterruptsOff, window_in_timer},
    mm::heap,
    sync::SpinLock,
    task::Timer,
    time::{self, Clock, Nanos},
};
use linux_raw_sys::net;
use spin::Once;

use super::{
    LEAST_ADDRESS, address_of,
    budget::{COMPARED, CYCLIC, Share},
    device::Device,
    inbox::Inbox,
    interface::{self, Outgoing},
    interface_of,
    member::{self, Member, News},
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        Events, Memory, Watchers, description,
        socket::{Address, Foreign, Received, Reception, SendControl, Socket},
    },
    sockets::{common::Common, net::interface::Stamp},
};

/// Most jobs of a socket that receive: a frame is compared with each of them.
const MAX_RECEIVING: usize = 64;
/// Most that send.
const MAX_SENDING: usize = 256;

/// A message that waits to be received.
#[derive(Clone)]
struct Message {
    head: Head,
    /// The frame, of a message with one.
    frame: Option<Frame>,
    /// Those of a message with several.
    frames: Option<Arc<[Frame]>>,
    interface: u32,
    stamp: Nanos,
    /// Messages that were lost before.
    lost: u32,
}

/// What interrupts reach of a socket.
struct Core {
    common: Common,
    device: Device,
    /// Connected to that interface, or to all.
    interface: Once<u32>,
    /// The number by which its frames are known.
    number: u64,
    inbox: Inbox<Message>,
    receiving: SpinLock<[Option<Arc<Job<Receiving>>>; MAX_RECEIVING]>,
}

/// A job with its timer.
struct Job<T> {
    /// The interface; 0 for all, of one that receives.
    interface: u32,
    core: Arc<Core>,
    work: SpinLock<T>,
    /// What it costs interrupts.
    share: SpinLock<Share>,
    /// There from its start; taken away when it ends.
    timer: SpinLock<Option<Timer>>,
    /// The interface on which the last frame came.
    last_interface: AtomicU32,
}

/// A socket of that kind.
pub struct Broadcast {
    core: Arc<Core>,
    is_member: AtomicBool,
    sending: SpinLock<Vec<Arc<Job<Sending>>>>,
}

impl Core {
    /// Interrupts off.
    fn put(&self, message: Message) {
        // One that is lost has no frames of its own, so nothing is freed here in an interrupt.
        let _ = self.inbox.put(message);
    }

    fn tell(&self, head: Head, frame: Option<Frame>, interface: u32) {
        let stamp = time::linux(Clock::Realtime);
        let lost = self.inbox.lost();
        self.put(Message { head, frame, frames: None, interface, stamp, lost });
    }

    fn send(&self, frame: Frame, interface: u32) -> Result<(), Errno> {
        let interface = interface::by_index(interface).ok_or(Errno::ENODEV)?;
        interface.send(Outgoing { frame, origin: self.number, is_heard: true })
    }
}

impl Member for Core {
    fn hear(&self, news: &News) {
        if !news.is_heard {
            return;
        }
        let jobs = self.receiving.lock();
        for job in jobs.iter().flatten() {
            if job.interface == 0 || job.interface == news.interface {
                job.receive(news);
            }
        }
    }

    fn lose(&self, interface: u32) {
        if self.interface.get() == Some(&interface) {
            self.common.fail(Errno::ENODEV);
            self.inbox.tell_failure();
        }
    }
}

impl<T> Job<T> {
    /// Sets its timer. The caller still has the work locked, which says when something is due: so
    /// the last word counts.
    fn arm(&self, due: Option<u64>) {
        if let Some(timer) = &*self.timer.lock() {
            match due {
                Some(due) => timer.arm(Nanos(due)),
                // It may come for nothing.
                None => timer.arm(Nanos::MAX),
            }
        }
    }

    /// Ends it. Thread context.
    fn end(&self) {
        let timer = self.timer.lock().take();
        drop(timer);
    }
}

impl Job<Sending> {
    /// The timer has come. Interrupt context.
    fn expire(&self) {
        let turn = {
            let mut work = self.work.lock();
            let turn = work.expire(time::now().0);
            self.arm(work.due());
            turn
        };
        // A frame for which there is no room is left out, as under Linux.
        if let Some(frame) = turn.frame {
            let _ = self.core.send(frame, self.interface);
        }
        window_in_timer();
        if let Some(head) = turn.told {
            self.core.tell(head, None, 0);
        }
    }
}

impl Job<Receiving> {
    fn receive(&self, news: &News) {
        let effect = {
            let mut work = self.work.lock();
            if work.id() != news.frame.id() {
                return;
            }
            let effect = work.receive(&news.frame, time::now().0);
            self.arm(work.due());
            effect
        };
        self.last_interface.store(news.interface, Ordering::Relaxed);
        match effect {
            Effect::Nothing => {}
            Effect::Told(head, frame) => self.core.put(Message {
                head,
                frame: Some(frame),
                frames: None,
                interface: news.interface,
                stamp: news.stamp,
                lost: self.core.inbox.lost(),
            }),
            Effect::Answer(frame) => {
                let _ = self.core.send(frame, news.interface);
            }
        }
    }

    /// The timer has come. Interrupt context.
    fn expire(&self) {
        let told = {
            let mut work = self.work.lock();
            let now = time::now().0;
            let told = work.expire(now);
            // There may be more: at once, behind what else is due.
            self.arm(if told.is_some() { Some(now) } else { work.due() });
            told
        };
        if let Some((head, frame)) = told {
            self.core.tell(head, frame, self.last_interface.load(Ordering::Relaxed));
        }
    }
}

/// Makes a job, whose timer calls `expire`.
fn start<T: Send + 'static>(
    core: &Arc<Core>,
    interface: u32,
    work: T,
    share: Share,
    expire: fn(&Job<T>),
) -> Result<Arc<Job<T>>, Errno> {
    let job = Arc::new(Job {
        interface,
        core: core.clone(),
        work: SpinLock::new(work),
        share: SpinLock::new(share),
        timer: SpinLock::new(None),
        last_interface: AtomicU32::new(0),
    });
    let own = job.clone();
    let timer = Timer::new(Box::new(move || expire(&own))).map_err(|_| Errno::ENOMEM)?;
    *job.timer.lock() = Some(timer);
    Ok(job)
}

/// Sets a job that sends as a message says, if there is as much left as it takes. Any context.
fn set_shared(
    work: &mut Sending,
    share: &mut Share,
    head: &Head,
    frames: &[Frame],
) -> Result<Turn, Errno> {
    share.change(work.rate_with(head))?;
    let set = work.set(head, frames, time::now().0);
    if set.is_err() {
        // What it had before, which is there.
        let _ = share.change(work.rate());
    }
    Ok(set?)
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid => Errno::EINVAL,
            Refusal::TooMany => Errno::E2BIG,
        }
    }
}

impl Broadcast {
    /// What takes the place of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let common = Common::of(foreign, net::AF_CAN)?;
        let inbox = Inbox::new(common.receive_buffer())?;
        let core = Core {
            common,
            device: Device::of(foreign)?,
            interface: Once::new(),
            number: description::number(),
            inbox,
            receiving: SpinLock::new([const { None }; MAX_RECEIVING]),
        };
        Ok(Self {
            core: Arc::new(core),
            is_member: AtomicBool::new(false),
            sending: SpinLock::new(Vec::new()),
        })
    }

    fn member(&self) -> Arc<dyn Member> {
        self.core.clone()
    }

    fn find_sending(&self, id: u32, interface: u32) -> Option<Arc<Job<Sending>>> {
        let jobs = self.sending.lock();
        let is_it =
            |job: &&Arc<Job<Sending>>| job.interface == interface && job.work.lock().id() == id;
        jobs.iter().find(is_it).cloned()
    }

    fn find_receiving(&self, id: u32, interface: u32) -> Option<Arc<Job<Receiving>>> {
        let jobs = self.core.receiving.lock();
        let is_it =
            |job: &&Arc<Job<Receiving>>| job.interface == interface && job.work.lock().id() == id;
        jobs.iter().flatten().find(is_it).cloned()
    }

    /// TX_SETUP.
    fn set_sending(&self, head: &Head, frames: Vec<Frame>, interface: u32) -> Result<(), Errno> {
        if interface == 0 {
            return Err(Errno::ENODEV);
        }
        let known = self.find_sending(head.id, interface);
        let is_new = known.is_none();
        let job = match known {
            Some(job) => job,
            None => {
                let work = Sending::new(head, frames.clone())?;
                let share = Share::of(&CYCLIC);
                let job = start(&self.core, interface, work, share, Job::<Sending>::expire)?;
                let fresh = Vec::with_capacity(MAX_SENDING);
                let mut jobs = self.sending.lock();
                let unused = if jobs.capacity() == 0 {
                    core::mem::replace(&mut *jobs, fresh)
                } else {
                    fresh
                };
                let is_full = jobs.len() >= MAX_SENDING;
                if !is_full {
                    jobs.push(job.clone());
                }
                drop(jobs);
                drop(unused);
                if is_full {
                    job.end();
                    return Err(Errno::ENOMEM);
                }
                job
            }
        };
        let set = {
            let mut work = job.work.lock();
            let set = set_shared(&mut work, &mut job.share.lock(), head, &frames);
            job.arm(work.due());
            set
        };
        let turn = match set {
            Ok(turn) => turn,
            Err(error) => {
                if is_new {
                    self.delete_sending(head.id, interface);
                }
                return Err(error);
            }
        };
        if let Some(frame) = turn.frame {
            let _ = self.core.send(frame, interface);
        }
        Ok(())
    }

    /// RX_SETUP.
    fn set_receiving(&self, head: &Head, frames: Vec<Frame>, interface: u32) -> Result<(), Errno> {
        if !self.is_member.swap(true, Ordering::AcqRel) {
            member::join(self.member())
                .inspect_err(|_| self.is_member.store(false, Ordering::Release))?;
        }
        let job = match self.find_receiving(head.id, interface) {
            Some(job) => job,
            None => {
                let work = Receiving::new(head, frames.clone())?;
                let share = Share::of(&COMPARED);
                let job = start(&self.core, interface, work, share, Job::<Receiving>::expire)?;
                // Before it is told of frames.
                let set = job.share.lock().change(1 + frames.len() as u32).and_then(|()| {
                    job.work.lock().set(head, &frames, time::now().0).map_err(Errno::from)
                });
                if set.is_err() {
                    job.end();
                    return set;
                }
                let mut jobs = self.core.receiving.lock();
                let free = jobs.iter().position(Option::is_none);
                if let Some(free) = free {
                    jobs[free] = Some(job.clone());
                }
                drop(jobs);
                if free.is_none() {
                    job.end();
                    return Err(Errno::ENOMEM);
                }
                job
            }
        };
        let mut work = job.work.lock();
        work.set(head, &frames, time::now().0)?;
        job.arm(work.due());
        Ok(())
    }

    fn delete_sending(&self, id: u32, interface: u32) -> Option<()> {
        let job = self.find_sending(id, interface)?;
        self.sending.lock().retain(|other| !Arc::ptr_eq(other, &job));
        job.end();
        Some(())
    }

    fn delete_receiving(&self, id: u32, interface: u32) -> Option<()> {
        let job = self.find_receiving(id, interface)?;
        let taken = {
            let mut jobs = self.core.receiving.lock();
            let is_it = |other: &Option<Arc<Job<Receiving>>>| {
                other.as_ref().is_some_and(|other| Arc::ptr_eq(other, &job))
            };
            jobs.iter_mut().find(|place| is_it(place)).and_then(Option::take)
        };
        job.end();
        drop(taken);
        Some(())
    }

    /// TX_READ and RX_READ: the socket is told of a job.
    fn tell_of(&self, (head, frames): (Head, Arc<[Frame]>)) {
        let stamp = time::linux(Clock::Realtime);
        let lost = self.core.inbox.lost();
        let message =
            Message { head, frame: None, frames: Some(frames), interface: 0, stamp, lost };
        let interrupts = InterruptsOff::take();
        let refused = self.core.inbox.put(message);
        drop(interrupts);
        // What found no room is freed with interrupts on.
        drop(refused);
    }
}

/// Copies the status of a job: room for it is made before, for nothing is allocated under a lock.
/// EINVAL if there is no such job; ENOMEM if memory runs low, since the copy waits as long as the
/// program likes.
fn status<T>(
    job: Option<Arc<Job<T>>>,
    of: impl Fn(&T) -> (Head, &[Frame]),
) -> Result<(Head, Arc<[Frame]>), Errno> {
    let job = job.ok_or(Errno::EINVAL)?;
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let mut frames = Vec::with_capacity(MAX_FRAMES + 1);
    let head = {
        let work = job.work.lock();
        let (head, all) = of(&work);
        frames.extend_from_slice(all);
        head
    };
    // As many as there are.
    Ok((head, frames.into()))
}

impl Socket for Broadcast {
    fn bind(&self, _: &Address) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        let index = interface_of(address)?;
        if self.core.interface.is_completed() {
            return Err(Errno::EISCONN);
        }
        if index != 0 && interface::by_index(index).is_none() {
            return Err(Errno::ENODEV);
        }
        self.core.interface.call_once(|| index);
        for interface in interface::all() {
            if index == 0 || interface.index() == index {
                interface.attend();
            }
        }
        Ok(())
    }

    fn name(&self, _: bool) -> Result<Address, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn send(
        &self,
        memory: &mut Memory,
        to: Option<&Address>,
        _: bool,
        _: &SendControl,
    ) -> SysResult {
        let connected = *self.core.interface.get().ok_or(Errno::ENOTCONN)?;
        let length = memory.left() as usize;
        let rest = length.checked_sub(Head::SIZE).ok_or(Errno::EINVAL)?;
        if rest % Frame::SIZE != 0 || rest / Frame::SIZE > MAX_FRAMES + 1 {
            return Err(Errno::EINVAL);
        }
        let interface = match (connected, to) {
            (0, Some(address)) => interface_of(address)?,
            _ => connected,
        };
        if interface != 0 && interface::by_index(interface).is_none() {
            return Err(Errno::ENODEV);
        }
        let mut bytes = [0; Head::SIZE];
        if memory.read(&mut bytes) < Head::SIZE {
            return Err(Errno::EFAULT);
        }
        let head = Head::from_bytes(&bytes);
        let count = head.frames as usize;
        // No interface here has frames of CAN FD.
        if head.flags & flag::CAN_FD_FRAME != 0 {
            return Err(Errno::EINVAL);
        }
        let done = |count: usize| (Head::SIZE + count * Frame::SIZE) as u64;
        let has_frames =
            matches!(head.opcode, opcode::TX_SETUP | opcode::RX_SETUP | opcode::TX_SEND);
        let mut frames = Vec::new();
        let is_filter = head.opcode == opcode::RX_SETUP && head.flags & flag::RX_FILTER_ID != 0;
        if has_frames && !is_filter {
            if count > MAX_FRAMES + 1 {
                return Err(Errno::EINVAL);
            }
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            for _ in 0..count {
                let mut bytes = [0; Frame::SIZE];
                if memory.read(&mut bytes) < Frame::SIZE {
                    return Err(Errno::EFAULT);
                }
                frames.push(Frame::from_bytes(bytes).ok_or(Errno::EINVAL)?);
            }
        }
        match head.opcode {
            opcode::TX_SETUP => {
                self.set_sending(&head, frames, interface)?;
                Ok(done(count))
            }
            opcode::RX_SETUP => {
                let count = frames.len();
                self.set_receiving(&head, frames, interface)?;
                Ok(done(count))
            }
            opcode::TX_SEND if count == 1 && rest == Frame::SIZE => {
                if interface == 0 {
                    return Err(Errno::ENODEV);
                }
                self.core.send(frames[0], interface)?;
                Ok(done(1))
            }
            opcode::TX_DELETE => {
                self.delete_sending(head.id, interface).ok_or(Errno::EINVAL)?;
                Ok(done(0))
            }
            opcode::RX_DELETE => {
                self.delete_receiving(head.id, interface).ok_or(Errno::EINVAL)?;
                Ok(done(0))
            }
            opcode::TX_READ => {
                self.tell_of(status(self.find_sending(head.id, interface), Sending::status)?);
                Ok(done(0))
            }
            opcode::RX_READ => {
                self.tell_of(status(self.find_receiving(head.id, interface), Receiving::status)?);
                Ok(done(0))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn check_urgent(&self) -> Result<(), Errno> {
        // As under Linux, frames are received all the same.
        Ok(())
    }

    fn receive(&self, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
        let deadline = self.core.common.receive_deadline();
        let take = |queue: &mut Queue<Message>| match self.core.common.check() {
            Ok(()) if how.peeks => queue.first().cloned().map(Ok),
            Ok(()) => queue.pop().map(Ok),
            Err(error) => Some(Err(error)),
        };
        let message = self.core.inbox.receive(deadline, how.nonblocking, take)??;
        let head = message.head.to_bytes();
        let mut length = 0;
        let frames = message.frame.iter().chain(message.frames.iter().flat_map(|all| all.iter()));
        for part in [&head[..]].into_iter().chain(frames.map(|frame| &frame.bytes()[..])) {
            let room = (memory.left() as usize).min(part.len());
            if memory.write(&part[..room]) < room {
                return Err(Errno::EFAULT);
            }
            length += room as u64;
        }
        Ok(Received {
            length,
            flags: 0,
            from: address_of(message.interface, LEAST_ADDRESS),
            told: self.core.common.told(Stamp::of_kernel(message.stamp), message.lost),
        })
    }

    fn option(&self, level: u32, name: u32) -> Result<Vec<u8>, Errno> {
        match level {
            net::SOL_SOCKET => {
                self.core.device.get(name).unwrap_or_else(|| self.core.common.get(name))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        if level != net::SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(result) = self.core.device.set(name, value) {
            return result;
        }
        self.core.common.set(name, value)?;
        if matches!(name, net::SO_RCVBUF | net::SO_RCVBUFFORCE) {
            self.core.inbox.resize(self.core.common.receive_buffer())?;
        }
        Ok(())
    }

    fn ioctl(&self, request: u32, argument: UserAddr) -> SysResult {
        self.core.common.asked(request, argument).unwrap_or(Err(Errno::ENOTTY))
    }

    fn ready(&self) -> Events {
        let mut events = Events::OUT | Events::WRITE_NORMAL | Events::WRITE_BAND;
        let readable = !self.core.inbox.is_empty();
        events.set(Events::IN | Events::READ_NORMAL, readable);
        events.set(Events::ERROR, self.core.common.has_failed());
        events
    }

    fn watchers(&self) -> &Watchers {
        &self.core.inbox.watchers
    }

    fn interface(&self) -> Option<u32> {
        self.core.interface.get().copied().filter(|&index| index != 0)
    }

    fn number(&self) -> u64 {
        self.core.number
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        if self.is_member.load(Ordering::Acquire) {
            member::leave(&self.member());
        }
        for place in 0..MAX_RECEIVING {
            let job = self.core.receiving.lock()[place].take();
            if let Some(job) = job {
                job.end();
            }
        }
        for job in core::mem::take(&mut *self.sending.lock()) {
            job.end();
        }
    }
}
