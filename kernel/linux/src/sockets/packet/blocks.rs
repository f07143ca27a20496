// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in memory that programs map, whose frames lie in blocks: what is received by version 3.
//! What is in a block, and whose it is, is in [`crtos_nic::blocks`].
//!
//! A timer of the kernel gives the program a block whose time is over. It runs only while the open
//! block has frames, so a wire on which nothing comes costs nothing.

use alloc::{boxed::Box, sync::Arc};

use crtos_core::{
    mm::pages::Pages,
    task::Timer,
    time::{self, Clock, Nanos},
};
use crtos_nic::{
    blocks::{self, Extra, Filled, Frame, Memory, Now},
    flow,
    ring::{Front, Request},
};

use super::{
    core::{Core, Message},
    ring,
};
use crate::abi::Errno;

/// Memory of a ring.
struct Shared(Arc<Pages>);

impl Memory for Shared {
    fn read(&self, at: u64, to: &mut [u8]) {
        self.0.read(at, to);
    }

    fn write(&self, at: u64, from: &[u8]) {
        self.0.write(at, from);
    }
}

/// A ring of blocks.
pub struct Blocks {
    state: blocks::Blocks,
    memory: Shared,
    /// Calls [`Core::expire`].
    timer: Timer,
    /// Makes it hard to guess the numbers of flows.
    seed: u64,
}

fn now() -> Now {
    Now { moment: ring::moment(time::linux(Clock::Realtime)), nanos: time::now().0 }
}

impl Blocks {
    /// A ring of a socket, of cleared memory. It has a use of the socket's core until it is
    /// dropped, in thread context with nothing locked. May sleep.
    pub fn new(
        core: &Arc<Core>,
        request: Request,
        front: Front,
        extra: Extra,
    ) -> Result<Self, Errno> {
        let state = blocks::Blocks::new(request, front, extra, now()).map_err(|_| Errno::EINVAL)?;
        let memory = ring::memory(state.bytes())?;
        let own = core.clone();
        let timer = Timer::new(Box::new(move || own.expire())).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { state, memory: Shared(memory), timer, seed: time::now().0 })
    }

    /// Its memory.
    pub fn pages(&self) -> &Arc<Pages> {
        &self.memory.0
    }

    /// Puts a frame that came at `stamp` into a block, with bits of its status. Thread context;
    /// bounded: a copy.
    pub fn fill(
        &mut self,
        message: &Message,
        frame: &[u8],
        (stamp, status): (Nanos, u32),
        were_lost: bool,
    ) -> Filled {
        let hash = if self.state.fills_hash() {
            flow::hash(self.seed, message.from.protocol, &frame[message.header.min(frame.len())..])
        } else {
            0
        };
        let frame = Frame {
            bytes: frame,
            header: message.header as u32,
            length: message.whole as u32,
            stamp: ring::moment(stamp),
            hash,
            status,
            from: &message.from.bytes(),
        };
        let filled = self.state.fill(&self.memory, &frame, now(), were_lost);
        if let Some(due) = filled.due {
            self.timer.arm(Nanos(due));
        }
        filled
    }

    /// The timer has come: says whether the program has got a block. Interrupt context; bounded.
    pub fn expire(&mut self, were_lost: bool) -> bool {
        self.state.expire(&self.memory, now(), were_lost)
    }

    /// Whether a block waits for the program.
    pub fn has_given(&self) -> bool {
        self.state.has_given(&self.memory)
    }

    /// How often frames were lost because the program had all blocks, since that was asked.
    pub fn take_freezes(&mut self) -> u32 {
        self.state.take_freezes()
    }
}
