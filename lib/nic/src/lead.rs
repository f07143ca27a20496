// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who takes the next frame from a card: its own thread, or the most urgent one of those that wait
//! for frames, their leader.
//!
//! A thread [offers](Lead::offer) to lead before it sleeps. An interrupt [asks](Lead::ask) the
//! leader, which then [takes over](Lead::take_over) in place of the card's thread: once, so that it
//! does no more for others than one frame. Who stops to wait [resigns](Lead::resign), and learns
//! whether the card's thread has to do what it was asked for. Every step is one atomic operation,
//! or a few where others change the word at the same time.

use core::sync::atomic::{AtomicU32, Ordering};

/// In the word: it was asked.
const ASKED: u32 = 1 << 31;
/// From this bit on: its level. Below: 1 + its number, or 0 for no leader.
const LEVEL_SHIFT: u32 = 20;
const NUMBER: u32 = (1 << LEVEL_SHIFT) - 1;

/// The leader, if there is one.
#[derive(Debug, Default)]
pub struct Lead(AtomicU32);

fn is_of(word: u32, thread: u16) -> bool {
    word & NUMBER == u32::from(thread) + 1
}

impl Lead {
    /// No leader.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A thread of that level, at most 255, leads from now on, unless another one does that is as
    /// urgent, or was asked. The caller looks for what it waits for afterwards.
    pub fn offer(&self, thread: u16, level: u8) {
        let own = u32::from(level) << LEVEL_SHIFT | (u32::from(thread) + 1);
        let next = |word: u32| {
            let is_better = word & ASKED == 0 && (word == 0 || word >> LEVEL_SHIFT < level.into());
            is_better.then_some(own)
        };
        // One that is no better leaves the other.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Asks the leader, and says which thread that is; `None` if there is none, or it was asked
    /// already.
    pub fn ask(&self) -> Option<u16> {
        let next = |word: u32| (word != 0 && word & ASKED == 0).then_some(word | ASKED);
        let word = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        // Numbers are made of those of threads.
        u16::try_from((word & NUMBER) - 1).ok()
    }

    /// Says whether the thread leads and was asked. If so, it leads no more, and does what it was
    /// asked for.
    pub fn take_over(&self, thread: u16) -> bool {
        let word = self.0.load(Ordering::SeqCst);
        // Once it was asked, nobody but itself changes the word.
        word & ASKED != 0
            && is_of(word, thread)
            && self.0.compare_exchange(word, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The thread leads no more, if it did. Says whether it was asked, and has not taken over.
    pub fn resign(&self, thread: u16) -> bool {
        let next = |word: u32| is_of(word, thread).then_some(0);
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        before.is_ok_and(|word| word & ASKED != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Offer(u16, u8),
        Ask,
        TakeOver(u16),
        Resign(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let thread = prop_oneof![0u16..4, Just(u16::MAX)];
        prop_oneof![
            (thread.clone(), any::<u8>()).prop_map(|(thread, level)| Step::Offer(thread, level)),
            Just(Step::Ask),
            thread.clone().prop_map(Step::TakeOver),
            thread.prop_map(Step::Resign),
        ]
    }

    proptest! {
        /// The most urgent one leads, is asked once, and what it was asked for is done by itself or
        /// told to who does it in its place.
        #[test]
        fn the_most_urgent_one_is_asked_once(steps in prop::collection::vec(step(), 1..200)) {
            let lead = Lead::new();
            let mut leader: Option<(u16, u8)> = None;
            let mut is_asked = false;
            for step in steps {
                match step {
                    Step::Offer(thread, level) => {
                        lead.offer(thread, level);
                        if !is_asked && leader.is_none_or(|(_, other)| other < level) {
                            leader = Some((thread, level));
                        }
                    }
                    Step::Ask => {
                        let expected = leader.filter(|_| !is_asked).map(|(thread, _)| thread);
                        assert_eq!(lead.ask(), expected);
                        is_asked = leader.is_some();
                    }
                    Step::TakeOver(thread) => {
                        let is_it = is_asked && leader.is_some_and(|(other, _)| other == thread);
                        assert_eq!(lead.take_over(thread), is_it);
                        if is_it {
                            (leader, is_asked) = (None, false);
                        }
                    }
                    Step::Resign(thread) => {
                        let is_it = leader.is_some_and(|(other, _)| other == thread);
                        assert_eq!(lead.resign(thread), is_it && is_asked);
                        if is_it {
                            (leader, is_asked) = (None, false);
                        }
                    }
                }
            }
        }
    }

    /// However threads come and go meanwhile, each question is answered once: by who took over, or
    /// by who resigned and has another one do it.
    #[test]
    fn each_question_is_answered() {
        use std::{sync::atomic::AtomicUsize, thread};

        let (lead, answers, asked) = (Lead::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for own in 0..3u16 {
                let (lead, answers) = (&lead, &answers);
                scope.spawn(move || {
                    for round in 0..20_000u32 {
                        lead.offer(own, (round % 7) as u8 + own as u8);
                        let is_done = lead.take_over(own);
                        answers.fetch_add(
                            usize::from(is_done) + usize::from(lead.resign(own)),
                            Ordering::Relaxed,
                        );
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..60_000 {
                    asked.fetch_add(usize::from(lead.ask().is_some()), Ordering::Relaxed);
                }
            });
        });
        assert_eq!(answers.into_inner(), asked.into_inner());
        assert_eq!(lead.ask(), None);
    }
}
