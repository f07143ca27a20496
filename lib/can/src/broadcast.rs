// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cyclic transmission, and reception of what changes: CAN_BCM (Linux's broadcast manager,
//! `Documentation/networking/can.rst`).
//!
//! A socket has *jobs*, each for one identifier: [`Sending`] and [`Receiving`]. Time is in
//! nanoseconds of a clock that nobody sets. Whoever has a job arms a timer for [`Receiving::due`],
//! or when a sending one says so.

use alloc::vec::Vec;

use crate::{Frame, frame::REMOTE};

/// Most frames of a job.
pub const MAX_FRAMES: usize = 256;

/// What a message is for.
pub mod opcode {
    #![allow(missing_docs, reason = "the names are Linux's")]
    pub const TX_SETUP: u32 = 1;
    pub const TX_DELETE: u32 = 2;
    pub const TX_READ: u32 = 3;
    pub const TX_SEND: u32 = 4;
    pub const RX_SETUP: u32 = 5;
    pub const RX_DELETE: u32 = 6;
    pub const RX_READ: u32 = 7;
    pub const TX_STATUS: u32 = 8;
    pub const TX_EXPIRED: u32 = 9;
    pub const RX_STATUS: u32 = 10;
    pub const RX_TIMEOUT: u32 = 11;
    pub const RX_CHANGED: u32 = 12;
}

/// Flags of a message.
pub mod flag {
    #![allow(missing_docs, reason = "the names are Linux's")]
    pub const SETTIMER: u32 = 0x0001;
    pub const STARTTIMER: u32 = 0x0002;
    pub const TX_COUNTEVT: u32 = 0x0004;
    pub const TX_ANNOUNCE: u32 = 0x0008;
    pub const TX_CP_CAN_ID: u32 = 0x0010;
    pub const RX_FILTER_ID: u32 = 0x0020;
    pub const RX_CHECK_DLC: u32 = 0x0040;
    pub const RX_NO_AUTOTIMER: u32 = 0x0080;
    pub const RX_ANNOUNCE_RESUME: u32 = 0x0100;
    pub const TX_RESET_MULTI_IDX: u32 = 0x0200;
    pub const RX_RTR_FRAME: u32 = 0x0400;
    pub const CAN_FD_FRAME: u32 = 0x0800;
}
use flag::*;

/// A time, as programs write it: `struct bcm_timeval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Seconds.
    pub seconds: i64,
    /// Microseconds.
    pub micros: i64,
}

/// The shortest interval at which frames are sent, in nanoseconds: a frame takes as long at 1
/// Mbit/s.
const SHORTEST: u64 = 50_000;

impl Interval {
    /// Whether Linux takes it: not negative, and 400 days at most.
    fn is_sound(self) -> bool {
        (0..=400 * 24 * 60 * 60).contains(&self.seconds) && (0..1_000_000).contains(&self.micros)
    }

    /// How many of it are in a second, at least one if it is longer; 0 for none.
    fn rate(self) -> u32 {
        match self.is_sound().then(|| self.nanos()) {
            None | Some(0) => 0,
            Some(nanos) => (1_000_000_000 / nanos.max(SHORTEST)).max(1) as u32,
        }
    }

    /// Nanoseconds; 0 for none.
    fn nanos(self) -> u64 {
        self.seconds as u64 * 1_000_000_000 + self.micros as u64 * 1000
    }
}

/// `struct bcm_msg_head`, before the frames of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// One of [`opcode`].
    pub opcode: u32,
    /// Some of [`flag`].
    pub flags: u32,
    /// How many frames are sent at the first interval.
    pub count: u32,
    /// The first interval, or after how long without a frame one is told.
    pub first: Interval,
    /// The second interval, or how much time passes between two changes that are told.
    pub second: Interval,
    /// The identifier.
    pub id: u32,
    /// How many frames follow.
    pub frames: u32,
}

impl Head {
    /// Its bytes.
    pub const SIZE: usize = 56;

    /// What a program hands over.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let word = |at: usize| (u64::from(number(at)) | u64::from(number(at + 4)) << 32) as i64;
        let interval = |at: usize| Interval { seconds: word(at), micros: word(at + 8) };
        Self {
            opcode: number(0),
            flags: number(4),
            count: number(8),
            first: interval(16),
            second: interval(32),
            id: number(48),
            frames: number(52),
        }
    }

    /// As a program gets it.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.opcode.to_ne_bytes());
        put(4, &self.flags.to_ne_bytes());
        put(8, &self.count.to_ne_bytes());
        for (at, interval) in [(16, self.first), (32, self.second)] {
            put(at, &interval.seconds.to_ne_bytes());
            put(at + 8, &interval.micros.to_ne_bytes());
        }
        put(48, &self.id.to_ne_bytes());
        put(52, &self.frames.to_ne_bytes());
        bytes
    }

    /// Whether it sets times, and these are none.
    fn has_bad_times(&self) -> bool {
        self.flags & SETTIMER != 0 && !(self.first.is_sound() && self.second.is_sound())
    }
}

/// Why a job is not set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The message says what makes no sense.
    Invalid,
    /// It has more frames than it had at first.
    TooMany,
}

/// Frames that are sent again and again.
#[derive(Debug)]
pub struct Sending {
    head: Head,
    frames: Vec<Frame>,
    /// How many of these are used, and which is next.
    used: usize,
    next: usize,
    /// When the next one is due.
    due: Option<u64>,
}

/// What becomes of a job that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// A frame is to be sent.
    pub frame: Option<Frame>,
    /// The socket is told that.
    pub told: Option<Head>,
}

impl Sending {
    /// A job by a message TX_SETUP, whose frames are `frames`.
    pub fn new(head: &Head, frames: Vec<Frame>) -> Result<Self, Refusal> {
        let own = Head { frames: 0, count: 0, ..*head };
        let times = Interval::default();
        let own = Head { first: times, second: times, ..own };
        check_sending(head, frames.len())?;
        Ok(Self { head: own, frames, used: 0, next: 0, due: None })
    }

    /// What it sends for.
    pub fn id(&self) -> u32 {
        self.head.id
    }

    /// Takes over what a message TX_SETUP says. `frames` are what it has room for. Returns what is
    /// to be done at once.
    pub fn set(&mut self, head: &Head, frames: &[Frame], now: u64) -> Result<Turn, Refusal> {
        check_sending(head, frames.len())?;
        let places = self.frames.get_mut(..frames.len()).ok_or(Refusal::TooMany)?;
        for (place, frame) in places.iter_mut().zip(frames) {
            *place = *frame;
            if head.flags & TX_CP_CAN_ID != 0 {
                place.set_id(head.id);
            }
        }
        self.head.flags = head.flags;
        if self.used != frames.len() || head.flags & TX_RESET_MULTI_IDX != 0 {
            self.next = 0;
        }
        self.used = frames.len();
        if head.flags & SETTIMER != 0 {
            (self.head.count, self.head.first, self.head.second) =
                (head.count, head.first, head.second);
            if self.head.first.nanos() == 0 && self.head.second.nanos() == 0 {
                self.due = None;
            }
        }
        let starts = head.flags & STARTTIMER != 0;
        let mut turn = Turn::default();
        if starts || head.flags & TX_ANNOUNCE != 0 {
            self.head.flags |= TX_ANNOUNCE;
            turn.frame = self.take();
            self.head.count = self.head.count.saturating_sub(1);
        }
        if starts {
            self.due = self.interval().map(|interval| now + interval);
        }
        Ok(turn)
    }

    /// When the next frame is due.
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    fn interval(&self) -> Option<u64> {
        let interval = match self.head.count {
            1.. if self.head.first.nanos() > 0 => self.head.first,
            _ => self.head.second,
        };
        Some(interval.nanos()).filter(|&nanos| nanos > 0).map(|nanos| nanos.max(SHORTEST))
    }

    /// How many frames it sends in a second, at most.
    pub fn rate(&self) -> u32 {
        [self.head.first, self.head.second].map(Interval::rate).into_iter().max().unwrap_or(0)
    }

    /// How many it will, once it has taken over what a message TX_SETUP says.
    pub fn rate_with(&self, head: &Head) -> u32 {
        match head.flags & SETTIMER != 0 {
            true => [head.first, head.second].map(Interval::rate).into_iter().max().unwrap_or(0),
            false => self.rate(),
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let frame = self.frames[..self.used].get(self.next).copied();
        self.next = if self.next + 1 < self.used { self.next + 1 } else { 0 };
        frame
    }

    /// The time is `now`: what is due. The next frame is due one interval after the last one was,
    /// so that the period holds however late this is called; what is missed by more is left out.
    pub fn expire(&mut self, now: u64) -> Turn {
        let mut turn = Turn::default();
        let Some(due) = self.due.filter(|&due| due <= now) else { return turn };
        if self.head.count > 0 && self.head.first.nanos() > 0 {
            self.head.count -= 1;
            if self.head.count == 0 && self.head.flags & TX_COUNTEVT != 0 {
                turn.told = Some(Head { opcode: opcode::TX_EXPIRED, ..self.head });
            }
            turn.frame = self.take();
        } else if self.head.second.nanos() > 0 {
            turn.frame = self.take();
        }
        self.due = self.interval().map(|interval| {
            let missed = (now - due) / interval;
            due + (missed + 1) * interval
        });
        turn
    }

    /// What TX_READ tells, with the frames.
    pub fn status(&self) -> (Head, &[Frame]) {
        let head = Head { opcode: opcode::TX_STATUS, frames: self.used as u32, ..self.head };
        (head, &self.frames[..self.used])
    }
}

fn check_sending(head: &Head, frames: usize) -> Result<(), Refusal> {
    let is_sound = (1..=MAX_FRAMES).contains(&frames) && !head.has_bad_times();
    is_sound.then_some(()).ok_or(Refusal::Invalid)
}

/// A frame as it was received last.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    frame: Frame,
    was_received: bool,
    /// It has not been told yet, because another one was just before.
    is_held_back: bool,
}

/// Frames that are received, of which a program is told when they change.
#[derive(Debug)]
pub struct Receiving {
    head: Head,
    /// Which bits count, or what the frame is that is sent for one that asks for data.
    frames: Vec<Frame>,
    last: Vec<Last>,
    used: usize,
    /// When it is told that none came.
    timeout: Option<u64>,
    /// When what was held back is told; when something was told last.
    throttle: Option<u64>,
    told_at: Option<u64>,
}

/// What follows from a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// The socket is told of the frame.
    Told(Head, Frame),
    /// This frame is sent.
    Answer(Frame),
}

impl Receiving {
    /// A job by a message RX_SETUP with room for so many frames as it has.
    pub fn new(head: &Head, frames: Vec<Frame>) -> Result<Self, Refusal> {
        check_receiving(head, frames.len())?;
        let last = alloc::vec![Last::default(); frames.len().max(1)];
        let times = Interval::default();
        let head = Head { first: times, second: times, frames: 0, ..*head };
        Ok(Self { head, frames, last, used: 0, timeout: None, throttle: None, told_at: None })
    }

    /// What it receives.
    pub fn id(&self) -> u32 {
        self.head.id
    }

    /// Takes over what a message RX_SETUP says.
    pub fn set(&mut self, head: &Head, frames: &[Frame], now: u64) -> Result<(), Refusal> {
        check_receiving(head, frames.len())?;
        self.frames.get_mut(..frames.len()).ok_or(Refusal::TooMany)?.copy_from_slice(frames);
        if !frames.is_empty() {
            self.last.fill(Last::default());
        }
        self.used = frames.len();
        self.head.flags = head.flags | if frames.is_empty() { RX_FILTER_ID } else { 0 };
        if self.head.flags & RX_RTR_FRAME != 0 {
            (self.timeout, self.throttle) = (None, None);
            // As under Linux, an answer that would ask for itself asks for nothing.
            if let Some(answer) = self.frames.first_mut()
                && (head.flags & TX_CP_CAN_ID != 0 || answer.id() == self.head.id)
            {
                answer.set_id(self.head.id & !REMOTE);
            }
            return Ok(());
        }
        if head.flags & SETTIMER != 0 {
            (self.head.count, self.head.first, self.head.second) =
                (head.count, head.first, head.second);
            if self.head.first.nanos() == 0 {
                self.timeout = None;
            }
            // What was held back so far is told now.
            let is_held_back = self.last.iter().any(|last| last.is_held_back);
            (self.told_at, self.throttle) = (None, is_held_back.then_some(now));
        }
        if head.flags & STARTTIMER != 0 && self.head.first.nanos() > 0 {
            self.timeout = Some(now + self.head.first.nanos());
        }
        Ok(())
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn due(&self) -> Option<u64> {
        [self.timeout, self.throttle].into_iter().flatten().min()
    }

    /// A frame came. In the time that [`MAX_FRAMES`] comparisons take.
    pub fn receive(&mut self, frame: &Frame, now: u64) -> Effect {
        if frame.id() != self.head.id {
            return Effect::Nothing;
        }
        self.timeout = None;
        if self.head.flags & RX_RTR_FRAME != 0 {
            return self.frames.first().map_or(Effect::Nothing, |answer| Effect::Answer(*answer));
        }
        let effect = self.compare(frame, now);
        if self.head.flags & RX_NO_AUTOTIMER == 0 && self.head.first.nanos() > 0 {
            self.timeout = Some(now + self.head.first.nanos());
        }
        effect
    }

    fn compare(&mut self, frame: &Frame, now: u64) -> Effect {
        if self.head.flags & RX_FILTER_ID != 0 {
            return self.update(0, frame, now);
        }
        let at = match &self.frames[..self.used] {
            [] | [_] => Some(0),
            // The first says which bits tell them apart.
            [mask, all @ ..] => {
                let is_it = |one: &Frame| (one.word() ^ frame.word()) & mask.word() == 0;
                all.iter().position(is_it).map(|at| at + 1)
            }
        };
        let Some(at) = at else { return Effect::Nothing };
        let (last, mask) = (&self.last[at], self.frames[at].word());
        // As under Linux, the data of a frame without any is not looked at.
        let has_data = frame.length() > 0;
        let differs = !last.was_received
            || has_data && (last.frame.word() ^ frame.word()) & mask != 0
            || self.head.flags & RX_CHECK_DLC != 0 && last.frame.length() != frame.length();
        if differs { self.update(at, frame, now) } else { Effect::Nothing }
    }

    /// Keeps a frame, and tells of it, unless that is too early.
    fn update(&mut self, at: usize, frame: &Frame, now: u64) -> Effect {
        self.last[at] = Last { frame: *frame, was_received: true, is_held_back: true };
        let least = self.head.second.nanos();
        if least > 0 {
            if self.throttle.is_some() {
                return Effect::Nothing;
            }
            if let Some(told_at) = self.told_at.filter(|told_at| now - told_at < least) {
                self.throttle = Some(told_at + least);
                return Effect::Nothing;
            }
            self.told_at = Some(now);
        }
        self.tell(at)
    }

    fn tell(&mut self, at: usize) -> Effect {
        self.last[at].is_held_back = false;
        let head = Head { opcode: opcode::RX_CHANGED, frames: 1, ..self.head };
        Effect::Told(head, self.last[at].frame)
    }

    /// The time is `now`: what the socket is told, one thing at each call. It has to be called
    /// again until there is nothing.
    pub fn expire(&mut self, now: u64) -> Option<(Head, Option<Frame>)> {
        if self.timeout.is_some_and(|at| at <= now) {
            self.timeout = None;
            if self.head.flags & RX_ANNOUNCE_RESUME != 0 {
                self.last.fill(Last::default());
            }
            return Some((Head { opcode: opcode::RX_TIMEOUT, ..self.head }, None));
        }
        if self.throttle.is_some_and(|at| at <= now) {
            let held_back = self.last.iter().position(|last| last.is_held_back);
            if let Some(at) = held_back
                && let Effect::Told(head, frame) = self.tell(at)
            {
                self.told_at = Some(now);
                return Some((head, Some(frame)));
            }
            self.throttle = None;
        }
        None
    }

    /// What RX_READ tells, with the frames.
    pub fn status(&self) -> (Head, &[Frame]) {
        let head = Head { opcode: opcode::RX_STATUS, frames: self.used as u32, ..self.head };
        (head, &self.frames[..self.used])
    }
}

fn check_receiving(head: &Head, frames: usize) -> Result<(), Refusal> {
    let asks = head.flags & RX_RTR_FRAME != 0;
    let is_bad_answer = asks && (frames != 1 || head.id & REMOTE == 0);
    let is_sound = frames <= MAX_FRAMES + 1 && !is_bad_answer && !head.has_bad_times();
    is_sound.then_some(()).ok_or(Refusal::Invalid)
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    const MILLI: u64 = 1_000_000;

    fn frame(id: u32, data: &[u8]) -> Frame {
        Frame::new(id, data).unwrap()
    }

    fn millis(count: u64) -> Interval {
        Interval { seconds: (count / 1000) as i64, micros: (count % 1000 * 1000) as i64 }
    }

    fn head(flags: u32, count: u32, first: u64, second: u64) -> Head {
        let (first, second) = (millis(first), millis(second));
        Head { flags, count, first, second, id: 0x42, ..Head::default() }
    }

    fn sending(head: &Head, frames: &[Frame], now: u64) -> (Sending, Turn) {
        let mut job = Sending::new(head, frames.to_vec()).unwrap();
        let turn = job.set(head, frames, now).unwrap();
        (job, turn)
    }

    #[test]
    fn no_job_sends_faster_than_a_bus() {
        let frames = [frame(0x42, &[1])];
        let mut head = head(SETTIMER | STARTTIMER, 0, 0, 0);
        head.second = Interval { seconds: 0, micros: 1 };
        let mut job = Sending::new(&head, frames.to_vec()).unwrap();
        assert_eq!((job.rate(), job.rate_with(&head)), (0, 20_000));
        job.set(&head, &frames, 0).unwrap();
        assert_eq!(job.due(), Some(SHORTEST));
        job.expire(SHORTEST);
        assert_eq!((job.due(), job.rate()), (Some(2 * SHORTEST), 20_000));
        // A message without times leaves them; the faster one counts; long ones count as well.
        head.flags &= !SETTIMER;
        assert_eq!(job.rate_with(&head), 20_000);
        head.flags |= SETTIMER;
        (head.first, head.second) = (Interval { seconds: 0, micros: 10_000 }, head.first);
        assert_eq!(job.rate_with(&head), 100);
        head.first = Interval { seconds: 60, micros: 0 };
        assert_eq!(job.rate_with(&head), 1);
        head.first = Interval { seconds: -1, micros: 0 };
        assert_eq!(job.rate_with(&head), 0);
    }

    #[test]
    fn an_answer_asks_for_nothing() {
        let id = 0x42 | REMOTE;
        let (asked, answer) = (frame(id, &[]), frame(0x43, &[7]));
        let answered = |flags: u32, given: Frame| {
            let head = Head { id, ..head(RX_RTR_FRAME | flags, 0, 0, 0) };
            let mut job = Receiving::new(&head, vec![given]).unwrap();
            job.set(&head, &[given], 0).unwrap();
            job.receive(&asked, 0)
        };
        assert_eq!(answered(0, answer), Effect::Answer(answer));
        // It would be asked by its own answer, and the next one by that, for ever.
        let own = frame(0x42, &[7]);
        assert_eq!(answered(0, frame(id, &[7])), Effect::Answer(own));
        assert_eq!(answered(TX_CP_CAN_ID, answer), Effect::Answer(own));
    }

    #[test]
    fn what_is_held_back_is_told_when_times_change() {
        let wanted = head(SETTIMER | RX_FILTER_ID, 0, 0, 100);
        let mut job = Receiving::new(&wanted, vec![]).unwrap();
        job.set(&wanted, &[], 0).unwrap();
        let [first, second] = [1, 2].map(|value| frame(0x42, &[value]));
        assert!(matches!(job.receive(&first, 0), Effect::Told(_, told) if told == first));
        assert_eq!(job.receive(&second, 10 * MILLI), Effect::Nothing);
        job.set(&head(SETTIMER | RX_FILTER_ID, 0, 0, 0), &[], 20 * MILLI).unwrap();
        assert_eq!(job.due(), Some(20 * MILLI));
        assert_eq!(job.expire(20 * MILLI).and_then(|(_, frame)| frame), Some(second));
        assert_eq!(job.expire(20 * MILLI), None);
        assert_eq!(job.due(), None);
    }

    #[test]
    fn it_sends_at_one_interval_and_then_at_another() {
        let frames = [frame(0x42, &[1]), frame(0x42, &[2])];
        let (mut job, turn) =
            sending(&head(SETTIMER | STARTTIMER | TX_COUNTEVT, 3, 10, 100), &frames, 0);
        assert_eq!((turn.frame, job.due()), (Some(frames[0]), Some(10 * MILLI)));
        assert_eq!(job.expire(9 * MILLI), Turn::default());
        let turn = job.expire(10 * MILLI);
        assert_eq!((turn.frame, turn.told), (Some(frames[1]), None));
        let turn = job.expire(20 * MILLI);
        assert_eq!(turn.frame, Some(frames[0]));
        assert_eq!(turn.told.map(|told| told.opcode), Some(opcode::TX_EXPIRED));
        assert_eq!(job.due(), Some(120 * MILLI));
        assert_eq!(job.expire(120 * MILLI).frame, Some(frames[1]));
        assert_eq!(job.due(), Some(220 * MILLI));
    }

    #[test]
    fn without_times_it_sends_once_or_not_at_all() {
        let frames = [frame(0x42, &[1])];
        let (job, turn) = sending(&head(0, 0, 0, 0), &frames, 0);
        assert_eq!((turn.frame, job.due()), (None, None));
        let (job, turn) = sending(&head(TX_ANNOUNCE, 0, 0, 0), &frames, 0);
        assert_eq!((turn.frame, job.due()), (Some(frames[0]), None));
    }

    #[test]
    fn it_changes_while_it_sends() {
        let (mut job, _) = sending(&head(SETTIMER | STARTTIMER, 0, 0, 10), &[frame(0x42, &[1])], 0);
        let next = [frame(0x99, &[7])];
        job.set(&head(TX_CP_CAN_ID, 0, 0, 0), &next, 5 * MILLI).unwrap();
        assert_eq!(job.expire(10 * MILLI).frame, Some(frame(0x42, &[7])));
        let two = [next[0], next[0]];
        assert_eq!(job.set(&head(0, 0, 0, 0), &two, 0), Err(Refusal::TooMany));
        job.set(&head(SETTIMER, 0, 0, 0), &next, 0).unwrap();
        assert_eq!(job.due(), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let one = vec![frame(0x42, &[])];
        let refused = |head: &Head, frames| Sending::new(head, frames).is_err();
        assert!(refused(&head(0, 0, 0, 0), vec![]));
        assert!(refused(&head(0, 0, 0, 0), vec![one[0]; MAX_FRAMES + 1]));
        for (seconds, micros) in [(-1, 0), (0, -1), (0, 1_000_000), (i64::MAX, 0)] {
            let first = Interval { seconds, micros };
            assert!(refused(&Head { first, ..head(SETTIMER, 0, 0, 0) }, one.clone()));
        }
        let asks = head(RX_RTR_FRAME, 0, 0, 0);
        assert!(Receiving::new(&asks, one.clone()).is_err());
        assert!(Receiving::new(&Head { id: 0x42 | crate::frame::REMOTE, ..asks }, one).is_ok());
    }

    fn receiving(head: &Head, frames: &[Frame]) -> Receiving {
        let mut job = Receiving::new(head, frames.to_vec()).unwrap();
        job.set(head, frames, 0).unwrap();
        job
    }

    fn is_told(effect: Effect, wanted: &Frame) -> bool {
        matches!(effect, Effect::Told(head, frame)
            if head.opcode == opcode::RX_CHANGED && head.frames == 1 && frame == *wanted)
    }

    #[test]
    fn changes_of_bits_that_count_are_told() {
        let mut job = receiving(&head(0, 0, 0, 0), &[frame(0x42, &[0xf0])]);
        let frames = [0x12u8, 0x13, 0x23].map(|byte| frame(0x42, &[byte]));
        assert!(is_told(job.receive(&frames[0], 0), &frames[0]));
        assert_eq!(job.receive(&frames[1], 0), Effect::Nothing);
        assert!(is_told(job.receive(&frames[2], 0), &frames[2]));
        assert_eq!(job.receive(&frame(0x43, &[9]), 0), Effect::Nothing);
        // One without data changes nothing but its length.
        assert_eq!(job.receive(&frame(0x42, &[]), 0), Effect::Nothing);
        let mut job = receiving(&head(RX_CHECK_DLC, 0, 0, 0), &[frame(0x42, &[0xf0])]);
        let empty = frame(0x42, &[]);
        assert!(is_told(job.receive(&frames[0], 0), &frames[0]));
        assert!(is_told(job.receive(&empty, 0), &empty));
    }

    #[test]
    fn multiplexed_frames_are_told_apart() {
        let frames = [&[0xff, 0][..], &[1, 0xff], &[2, 0x0f]].map(|data| frame(0x42, data));
        let mut job = receiving(&head(0, 0, 0, 0), &frames);
        for (data, told) in [
            ([1, 5], true),
            ([2, 5], true),
            ([1, 5], false),
            ([2, 0x15], false),
            ([3, 1], false),
            ([1, 6], true),
        ] {
            let came = frame(0x42, &data);
            assert_eq!(is_told(job.receive(&came, 0), &came), told, "{data:?}");
        }
    }

    #[test]
    fn silence_is_told_once_and_its_end_as_well() {
        let mut job = receiving(
            &head(SETTIMER | STARTTIMER | RX_ANNOUNCE_RESUME | RX_FILTER_ID, 0, 10, 0),
            &[],
        );
        assert_eq!(job.due(), Some(10 * MILLI));
        let came = frame(0x42, &[1]);
        assert!(is_told(job.receive(&came, 5 * MILLI), &came));
        assert_eq!(job.expire(10 * MILLI), None);
        let told = job.expire(15 * MILLI).unwrap();
        assert_eq!((told.0.opcode, told.1), (opcode::RX_TIMEOUT, None));
        assert_eq!((job.expire(99 * MILLI), job.due()), (None, None));
        assert!(is_told(job.receive(&came, 100 * MILLI), &came));
    }

    #[test]
    fn what_changes_too_often_is_told_later() {
        let mut job = receiving(&head(SETTIMER, 0, 0, 10), &[frame(0x42, &[0xff])]);
        let frames = [1u8, 2, 3].map(|byte| frame(0x42, &[byte]));
        assert!(is_told(job.receive(&frames[0], 0), &frames[0]));
        assert_eq!(job.receive(&frames[1], MILLI), Effect::Nothing);
        assert_eq!(job.receive(&frames[2], 2 * MILLI), Effect::Nothing);
        assert_eq!(job.due(), Some(10 * MILLI));
        assert_eq!(job.expire(10 * MILLI).and_then(|told| told.1), Some(frames[2]));
        assert_eq!((job.expire(10 * MILLI), job.due()), (None, None));
    }

    #[test]
    fn a_frame_that_asks_is_answered() {
        let answer = frame(0x42, &[4]);
        let asks = Head { id: 0x42 | crate::frame::REMOTE, ..head(RX_RTR_FRAME, 0, 0, 0) };
        let mut job = receiving(&asks, &[answer]);
        let asked = Frame::remote(0x42, 1).unwrap();
        assert_eq!(job.receive(&asked, 0), Effect::Answer(answer));
    }

    #[test]
    fn a_head_is_what_linux_lays_out() {
        let own = Head { opcode: 1, frames: 2, ..head(3, 4, 5001, 6) };
        let bytes = own.to_bytes();
        assert_eq!(
            (bytes[0], bytes[4], bytes[8], bytes[16], bytes[48], bytes[52]),
            (1, 3, 4, 5, 0x42, 2)
        );
        assert_eq!(Head::from_bytes(&bytes), own);
    }

    proptest! {
        #[test]
        fn a_period_holds_however_late_it_is_looked_at(
            late in proptest::collection::vec(0..9 * MILLI, 1..50),
        ) {
            let (mut job, _) =
                sending(&head(SETTIMER | STARTTIMER, 0, 0, 10), &[frame(0x42, &[1])], 0);
            for (round, late) in (1..).zip(late) {
                prop_assert_eq!(job.due(), Some(round * 10 * MILLI));
                prop_assert!(job.expire(round * 10 * MILLI + late).frame.is_some());
            }
        }
    }
}
