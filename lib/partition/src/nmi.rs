// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a guest takes its next non-maskable interrupt: not before it has returned from the last one
//! by IRET (APM vol. 2, 8.2.3). An NMI that is injected does not block the next one by itself
//! (APM vol. 2, 15.20), and two at once would have the second overwrite the frame of the first.
//!
//! So IRET is intercepted while the guest handles an NMI. The intercept comes before the
//! instruction, which has to be executed first. If no NMI waits then, that is all: wherever the
//! guest is left the next time, it is behind it. If one waits, the instruction is single-stepped.

/// How far a guest has come with its last NMI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocking {
    /// It takes the next one.
    #[default]
    Open,
    /// It handles one; IRET is intercepted.
    Handling,
    /// It is about to execute the IRET at this address, without anybody waiting.
    Returning(u64),
    /// It executes that IRET, and is left behind it.
    Stepping,
}

impl Blocking {
    /// The guest is given an NMI.
    pub fn begin(&mut self) {
        *self = Self::Handling;
    }

    /// The guest was left because of IRET, at `rip`.
    pub fn at_return(&mut self, rip: u64) {
        *self = Self::Returning(rip);
    }

    /// The guest was left for another reason, at `rip`.
    pub fn left_at(&mut self, rip: u64) {
        if matches!(*self, Self::Returning(iret) if iret != rip) {
            *self = Self::Open;
        }
    }

    /// An NMI waits. Tells whether the guest takes it now.
    pub fn wait(&mut self) -> bool {
        if let Self::Returning(_) = *self {
            *self = Self::Stepping;
        }
        *self == Self::Open
    }

    /// The IRET that was single-stepped is done, or has raised an exception, which unblocks, too.
    pub fn stepped(&mut self) {
        *self = Self::Open;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A guest that handles NMIs at most one deep, and what happens to it.
    #[derive(Default)]
    struct Guest {
        /// Instructions of the handler that are left, the IRET included; 0 outside.
        left: u32,
        rip: u64,
        handled: u32,
    }

    const OUTSIDE: u64 = 0x1000;
    const IRET: u64 = 0x2000;

    impl Guest {
        fn take(&mut self) {
            assert_eq!(self.left, 0, "an NMI within the handler of the last one");
            self.left = 3;
            self.rip = IRET - 2;
            self.handled += 1;
        }

        /// Executes an instruction; true if the guest is left before it, because of IRET.
        fn execute(&mut self, iret_exits: bool) -> bool {
            match self.left {
                0 => (),
                1 if iret_exits => return true,
                1 => (self.left, self.rip) = (0, OUTSIDE),
                _ => (self.left, self.rip) = (self.left - 1, self.rip + 1),
            }
            false
        }
    }

    proptest! {
        /// Whatever else the guest is left for, it takes each NMI outside of the handler, and soon.
        #[test]
        fn no_two_at_once_and_none_forgotten(events in prop::collection::vec(0u8..3, 0..200)) {
            let (mut guest, mut blocking) = (Guest::default(), Blocking::default());
            let (mut waits, mut arrived) = (false, 0);
            let quiet = core::iter::repeat_n(0, 20);
            for event in events.into_iter().chain(quiet) {
                // What leaves the guest here: 0 nothing, 1 an NMI, 2 anything else.
                match event {
                    1 => {
                        blocking.left_at(guest.rip);
                        arrived += u32::from(!waits);
                        waits = true;
                    }
                    2 => blocking.left_at(guest.rip),
                    _ => {
                        let stepping = blocking == Blocking::Stepping;
                        if guest.execute(blocking == Blocking::Handling) {
                            blocking.at_return(guest.rip);
                        } else if stepping {
                            blocking.stepped();
                        }
                    }
                }
                if waits && blocking.wait() {
                    waits = false;
                    blocking.begin();
                    guest.take();
                }
            }
            prop_assert!(!waits);
            prop_assert_eq!(guest.handled, arrived);
        }
    }

    #[test]
    fn an_exception_of_iret_unblocks() {
        let mut blocking = Blocking::default();
        blocking.begin();
        assert!(!blocking.wait());
        blocking.at_return(IRET);
        assert!(!blocking.wait());
        assert_eq!(blocking, Blocking::Stepping);
        blocking.stepped();
        assert!(blocking.wait());
    }
}
