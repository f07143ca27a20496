// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a controller tells, in the order in which it does, where telling others takes longer than
//! the controller waits.
//!
//! Whoever finds that the controller interrupts [begins](Intake::begin). The first one takes [what
//! there is](Intake::take), and tells of it, until there is nothing more. Interrupts that come
//! meanwhile leave the frames that they find to that one.

use crate::{Controller, Frame, Queue, sja1000};

/// Frames that may come while somebody tells of earlier ones. At 1 Mbit/s these take 0.7 ms.
const ROOM: usize = 16;

/// A controller, and frames that came while somebody told of earlier ones.
#[derive(Debug)]
pub struct Intake<P> {
    /// The controller.
    pub controller: Controller<P>,
    early: Queue<Frame>,
    /// Somebody tells.
    is_served: bool,
}

impl<P: sja1000::Ports> Intake<P> {
    /// Takes a controller; `None` if there is no memory.
    pub fn new(controller: Controller<P>) -> Option<Self> {
        Some(Self { controller, early: Queue::new(ROOM)?, is_served: false })
    }

    /// The controller interrupts, or is to be looked at. Says whether the caller is to take what it
    /// tells; somebody does so already otherwise. Then it interrupts no more afterwards if it did
    /// so for one frame. At most 18 accesses.
    pub fn begin(&mut self) -> bool {
        self.controller.look();
        if !core::mem::replace(&mut self.is_served, true) {
            return true;
        }
        if let Some(frame) = self.controller.frame()
            && self.early.push(frame).is_err()
        {
            self.controller.lose();
        }
        false
    }

    /// What it tells next; `None` if there is nothing more, which ends what [`begin`](Self::begin)
    /// began. At most 20 accesses.
    #[inline(always)]
    pub fn take(&mut self) -> Option<sja1000::Event> {
        // Most often there is nothing behind the first: that takes a few instructions.
        let is_over = self.early.is_empty() && !self.controller.is_pending();
        let next = if is_over { None } else { self.next() };
        self.is_served = next.is_some();
        next
    }

    #[inline(always)]
    fn next(&mut self) -> Option<sja1000::Event> {
        let early = self.early.pop().map(sja1000::Event::Frame);
        early.or_else(|| self.controller.event())
    }

    /// Ends it before there is nothing more. The next one who begins takes the rest.
    pub fn end(&mut self) {
        self.is_served = false;
    }
}
