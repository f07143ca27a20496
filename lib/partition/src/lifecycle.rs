// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a cell.
//!
//! ```text
//!                                      Locked
//!                               unlock | ^ lock
//!                                      v |
//!            map, load        start            stop            reclaim (a piece)
//! (create) --> Created --------------> Running ------> Stopped -----------> Reclaiming
//!               ^ | |                    |  fail         ^                    |    |
//!       nothing | | +-- reclaim --+      +------> Failed +                    |    | destroy
//!       is left | |               v                 stop                      |    v
//!               | +-----------> Reclaiming                                    |  (none)
//!               +-------------------------------------------------------------+
//! ```
//!
//! What has run keeps its contents until all its memory was reclaimed, which clears it. So nobody
//! can load a program of their own beside what a cell left behind.
//!
//! A locked cell runs, and nobody else ends that: it unlocks itself, or breaks its bounds. Then it
//! has failed as any other cell, and what it has is cleared before anybody gets it.

use crtos_abi::report::{CELL_CREATED, CELL_FAILED, CELL_LOCKED, CELL_RUNNING, CELL_STOPPED};

use crate::error::Refusal;

/// State of an existing cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Has not run since it got its memory; takes memory and contents.
    Created,
    /// Its CPUs run it.
    Running,
    /// Its CPUs run it until it agrees to its end.
    Locked,
    /// Stopped by the root cell; its memory has what it left behind.
    Stopped,
    /// Stopped because it broke its bounds.
    Failed,
    /// Its memory goes back to the root cell.
    Reclaiming,
}

/// What is asked of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Give it memory.
    Map,
    /// Copy into its memory.
    Load,
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Have it run until it agrees to its end.
    Lock,
    /// It agrees.
    Unlock,
    /// It broke its bounds.
    Fail,
    /// Take a piece of memory back.
    Reclaim,
    /// All its memory is back.
    Empty,
    /// Forget it; the caller has checked that no memory is left.
    Destroy,
}

impl State {
    /// The state after `event`, or [`Refusal::Busy`] when it is not possible in this state;
    /// [`Refusal::Locked`] when the cell would have to agree.
    pub fn after(self, event: Event) -> Result<Self, Refusal> {
        use State::{Created, Failed, Locked, Reclaiming, Running, Stopped};
        match (self, event) {
            (Running, Event::Lock) => Ok(Locked),
            (Locked, Event::Unlock) => Ok(Running),
            (Locked, Event::Fail) => Ok(Failed),
            (Locked, _) => Err(Refusal::Locked),
            (Created, Event::Map | Event::Load) => Ok(Created),
            (Created, Event::Start) => Ok(Running),
            (Running | Stopped | Failed, Event::Stop) => Ok(Stopped),
            (Created | Reclaiming, Event::Stop) => Ok(self),
            (Running, Event::Fail) => Ok(Failed),
            (Created | Stopped | Reclaiming, Event::Reclaim) => Ok(Reclaiming),
            (Reclaiming, Event::Empty) => Ok(Created),
            (Created | Stopped | Reclaiming, Event::Destroy) => Ok(Reclaiming),
            _ => Err(Refusal::Busy),
        }
    }

    /// Tells whether CPUs may run such a cell.
    pub fn runs(self) -> bool {
        matches!(self, Self::Running | Self::Locked)
    }

    /// The number in [`crtos_abi::report::CellReport::state`].
    pub fn code(self) -> u32 {
        match self {
            Self::Created => CELL_CREATED,
            Self::Running => CELL_RUNNING,
            Self::Locked => CELL_LOCKED,
            Self::Stopped | Self::Reclaiming => CELL_STOPPED,
            Self::Failed => CELL_FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, State};
    use crate::error::Refusal;
    use proptest::prelude::*;

    const EVENTS: [Event; 10] = [
        Event::Map,
        Event::Load,
        Event::Start,
        Event::Stop,
        Event::Lock,
        Event::Unlock,
        Event::Fail,
        Event::Reclaim,
        Event::Empty,
        Event::Destroy,
    ];

    proptest! {
        /// Whatever the root cell asks, a locked cell stays so.
        #[test]
        fn a_locked_cell_ends_by_itself_alone(event in prop::sample::select(&EVENTS[..])) {
            prop_assert!(State::Locked.runs());
            let own = matches!(event, Event::Unlock | Event::Fail);
            match State::Locked.after(event) {
                Ok(next) => prop_assert!(own && next != State::Locked),
                Err(refusal) => prop_assert!(!own && refusal == Refusal::Locked),
            }
        }

        /// Memory moves and content changes only while no CPU runs the cell. What has run takes
        /// nothing, and does not run, before all its memory was reclaimed.
        #[test]
        fn a_cell_keeps_what_it_has_until_that_is_cleared(
            events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..50),
        ) {
            let mut state = State::Created;
            let mut has_run = false;
            for event in events {
                let Ok(next) = state.after(event) else { continue };
                if matches!(event, Event::Map | Event::Load | Event::Reclaim | Event::Destroy) {
                    prop_assert!(!state.runs());
                }
                if matches!(event, Event::Map | Event::Load | Event::Start) {
                    prop_assert!(!has_run);
                }
                has_run = (has_run || next.runs()) && event != Event::Empty;
                state = next;
            }
        }
    }
}
