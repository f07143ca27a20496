// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux asks the kernel, by the number of the question.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::channel::{Channel, word};

/// What Linux asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the kernel agrees to its end.
    End,
    /// Whether the kernel takes no new program from now on.
    Seal,
    /// Whether the kernel has looked at the devices that it is to have.
    Devices,
    /// Whether the kernel has looked which shared pages their files have lost.
    Recall,
}

impl Question {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::End, Self::Seal, Self::Devices, Self::Recall];

    /// What was asked, and what was answered.
    fn words(self, channel: &Channel) -> (&AtomicU32, &AtomicU32) {
        match self {
            Self::End => {
                (word!(channel, AtomicU32, end.asked), word!(channel, AtomicU32, end.answered))
            }
            Self::Seal => {
                (word!(channel, AtomicU32, seal.asked), word!(channel, AtomicU32, seal.answered))
            }
            Self::Devices => (
                word!(channel, AtomicU32, devices.asked),
                word!(channel, AtomicU32, devices.answered),
            ),
            Self::Recall => (
                word!(channel, AtomicU32, recall.asked),
                word!(channel, AtomicU32, recall.answered),
            ),
        }
    }
}

impl Channel {
    /// The number of that question, if Linux has asked it and has no answer. Any context.
    #[inline]
    pub fn asked(&self, question: Question) -> Option<u32> {
        let (asked, answered) = question.words(self);
        // Pairs with crtos_channel_put_question() of the module.
        let asked = asked.load(Ordering::Acquire);
        (asked != answered.load(Ordering::Relaxed)).then_some(asked)
    }

    /// Whether a question has no answer. Any context.
    #[inline]
    pub fn is_asked(&self) -> bool {
        Question::ALL.into_iter().any(|question| self.asked(question).is_some())
    }

    /// Says that the question with that number is answered. Linux sees all that was done before.
    pub fn answer(&self, question: Question, number: u32) {
        question.words(self).1.store(number, Ordering::Release);
    }
}
