// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a cell.
//!
//! ```text
//!            map            start            stop               reclaim (all)    destroy
//! (create) --> Created ----------> Running --------> Stopped ------------> Reclaiming --> (none)
//!                 |                  |  fail            ^ |  start
//!                 |                  +------> Failed ---+ +--> Running
//!                 +-- reclaim --> Reclaiming      stop
//! ```

use crtos_abi::report::{CELL_CREATED, CELL_FAILED, CELL_RUNNING, CELL_STOPPED};

use crate::error::Refusal;

/// State of an existing cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never started; takes memory.
    Created,
    /// Its CPUs run it.
    Running,
    /// Stopped by the root cell, can be started again.
    Stopped,
    /// Stopped because it broke its bounds.
    Failed,
    /// Its memory goes back to the root cell; it cannot start any more.
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
    /// It broke its bounds.
    Fail,
    /// Take a piece of memory back.
    Reclaim,
    /// Forget it; the caller has checked that no memory is left.
    Destroy,
}

impl State {
    /// The state after `event`, or [`Refusal::Busy`] when it is not possible in this state.
    pub fn after(self, event: Event) -> Result<Self, Refusal> {
        use State::{Created, Failed, Reclaiming, Running, Stopped};
        match (self, event) {
            (Created, Event::Map) => Ok(Created),
            (Created | Stopped | Failed, Event::Load) => Ok(self),
            (Created | Stopped, Event::Start) => Ok(Running),
            (Running | Stopped | Failed, Event::Stop) => Ok(Stopped),
            (Created | Reclaiming, Event::Stop) => Ok(self),
            (Running, Event::Fail) => Ok(Failed),
            (Created | Stopped | Reclaiming, Event::Reclaim) => Ok(Reclaiming),
            (Created | Stopped | Reclaiming, Event::Destroy) => Ok(Reclaiming),
            _ => Err(Refusal::Busy),
        }
    }

    /// The number in [`crtos_abi::report::CellReport::state`].
    pub fn code(self) -> u32 {
        match self {
            Self::Created => CELL_CREATED,
            Self::Running => CELL_RUNNING,
            Self::Stopped | Self::Reclaiming => CELL_STOPPED,
            Self::Failed => CELL_FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, State};
    use proptest::prelude::*;

    const EVENTS: [Event; 7] = [
        Event::Map,
        Event::Load,
        Event::Start,
        Event::Stop,
        Event::Fail,
        Event::Reclaim,
        Event::Destroy,
    ];

    proptest! {
        /// Memory moves and content changes only while no CPU runs the cell, and what lost memory
        /// never runs again.
        #[test]
        fn a_running_cell_keeps_its_memory(
            events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..50),
        ) {
            let mut state = State::Created;
            let mut lost_memory = false;
            for event in events {
                if let Ok(next) = state.after(event) {
                    if matches!(event, Event::Map | Event::Load | Event::Reclaim | Event::Destroy) {
                        prop_assert_ne!(state, State::Running);
                    }
                    lost_memory |= event == Event::Reclaim;
                    prop_assert!(!(lost_memory && next == State::Running));
                    state = next;
                }
            }
        }
    }
}
