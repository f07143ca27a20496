// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which time stamps of frames a socket asks for (SO_TIMESTAMPING; Linux's
//! `Documentation/networking/timestamping.rst`), and what it is told of them.

/// Which stamps are made: of what is sent by the card, by the kernel; of what is received by the
/// card, by the kernel.
pub const TX_HARDWARE: u32 = 1 << 0;
/// See [`TX_HARDWARE`].
pub const TX_SOFTWARE: u32 = 1 << 1;
/// See [`TX_HARDWARE`].
pub const RX_HARDWARE: u32 = 1 << 2;
/// See [`TX_HARDWARE`].
pub const RX_SOFTWARE: u32 = 1 << 3;
/// Which are told: those of the kernel, those of the card.
pub const SOFTWARE: u32 = 1 << 4;
/// See [`SOFTWARE`].
pub const RAW_HARDWARE: u32 = 1 << 6;
/// Reports of what was sent are numbered.
pub const OPT_ID: u32 = 1 << 7;
/// Stamps of what is sent as well: when it was given to the interface, when it was acknowledged.
pub const TX_SCHED: u32 = 1 << 8;
/// See [`TX_SCHED`].
pub const TX_ACK: u32 = 1 << 9;
/// Reports tell as much of a packet as is told of one that was received.
pub const OPT_CMSG: u32 = 1 << 10;
/// Reports come without the frame.
pub const OPT_TSONLY: u32 = 1 << 11;
/// Reports tell of a connection; only without the frame.
pub const OPT_STATS: u32 = 1 << 12;
/// The kernel reports a frame of which the card will report as well.
pub const OPT_TX_SWHW: u32 = 1 << 14;
/// Stamps are by a clock that is made of the card's.
pub const BIND_PHC: u32 = 1 << 15;
/// Numbers of a connection count from what was written; only with [`OPT_ID`].
pub const OPT_ID_TCP: u32 = 1 << 16;
/// No stamp is told that was made for another socket.
pub const OPT_RX_FILTER: u32 = 1 << 17;

/// All flags.
const ALL: u32 = (1 << 18) - 1;
/// Those that ask for reports.
const REPORTS: u32 = TX_HARDWARE | TX_SOFTWARE | TX_SCHED | TX_ACK;

/// It is nothing that Linux takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsound;

/// What a socket asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamping(u32);

/// When a frame came or was sent, in nanoseconds: by the kernel (CLOCK_REALTIME), and by the clock
/// of the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamps {
    /// By the kernel.
    pub software: Option<u64>,
    /// By the card.
    pub hardware: Option<u64>,
}

/// Of what is reported that was sent (SCM_TSTAMP_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It was given to the card, or left it.
    Sent = 0,
    /// It was given to the interface.
    Scheduled = 1,
}

/// A report of a frame that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// What has happened.
    pub event: Event,
    /// The number of the frame, if such are given; 0 otherwise.
    pub number: u32,
    /// When.
    pub stamps: Stamps,
    /// The interface; 0 if the report comes without the frame.
    pub interface: u32,
}

impl Stamping {
    /// What these flags ask for.
    pub fn new(flags: u32) -> Result<Self, Unsound> {
        let has = |flag| flags & flag != 0;
        let is_sound = flags & !ALL == 0
            && (has(OPT_ID) || !has(OPT_ID_TCP))
            && (has(OPT_TSONLY) || !has(OPT_STATS));
        if is_sound { Ok(Self(flags)) } else { Err(Unsound) }
    }

    /// What was [asked](Self::flags) for before.
    pub fn of_flags(flags: u32) -> Self {
        Self(flags & ALL)
    }

    /// Its flags.
    pub fn flags(self) -> u32 {
        self.0
    }

    /// Whether that is asked for.
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// The same for one message, which says itself which reports it is to have.
    pub fn of_message(self, flags: u32) -> Result<Self, Unsound> {
        if flags & !REPORTS != 0 {
            return Err(Unsound);
        }
        Ok(Self(self.0 & !REPORTS | flags))
    }

    /// Whether there are reports of what is sent.
    pub fn reports(self) -> bool {
        self.0 & REPORTS != 0
    }

    /// Whether a message that is sent gets a number.
    pub fn numbers(self) -> bool {
        self.has(OPT_ID) && self.reports()
    }

    /// Whether numbers begin anew with it, where `before` was asked for so far.
    pub fn begins_numbers(self, before: Self) -> bool {
        self.has(OPT_ID) && !before.has(OPT_ID)
    }

    /// What is told of a frame that was received. `is_wanted`: the socket has asked for stamps of
    /// the kernel otherwise.
    pub fn received(self, stamps: Stamps, is_wanted: bool) -> Option<Stamps> {
        let filters = self.has(OPT_RX_FILTER);
        let software = self.has(SOFTWARE) && (self.has(RX_SOFTWARE) || is_wanted && !filters);
        let hardware = self.has(RAW_HARDWARE) && (self.has(RX_HARDWARE) || !filters);
        stamps.only(software, hardware)
    }

    /// What is told of a frame that was sent.
    pub fn sent(self, stamps: Stamps) -> Option<Stamps> {
        stamps.only(self.has(SOFTWARE), self.has(RAW_HARDWARE))
    }

    /// The reports of a frame when the kernel gives it to the card, in their order. `will_stamp`:
    /// the card will report when it leaves.
    pub fn events(self, will_stamp: bool) -> impl Iterator<Item = Event> {
        let scheduled = self.has(TX_SCHED).then_some(Event::Scheduled);
        let is_sent = self.has(TX_SOFTWARE) && (!will_stamp || self.has(OPT_TX_SWHW));
        scheduled.into_iter().chain(is_sent.then_some(Event::Sent))
    }
}

impl Stamps {
    /// Those that are to be told; `None` if there are none of them.
    fn only(self, software: bool, hardware: bool) -> Option<Self> {
        let told = Self {
            software: self.software.filter(|_| software),
            hardware: self.hardware.filter(|_| hardware),
        };
        (told != Self::default()).then_some(told)
    }
}

/// Bits of a frame's status in a ring: its stamp is the card's, or the kernel's
/// (TP_STATUS_TS_RAW_HARDWARE, TP_STATUS_TS_SOFTWARE).
const BY_CARD: u32 = 1 << 31;
const BY_KERNEL: u32 = 1 << 29;

/// The stamp that a ring tells of a frame which came at `software` by the kernel, and the bits of
/// its status that say whose it is. `flags`: what the program has set for the ring
/// (PACKET_TIMESTAMP); `is_wanted`: the socket has asked for stamps of the kernel.
pub fn of_ring(flags: u32, software: u64, hardware: Option<u64>, is_wanted: bool) -> (u64, u32) {
    match hardware.filter(|_| flags & RAW_HARDWARE != 0) {
        Some(hardware) => (hardware, BY_CARD),
        None => (software, if is_wanted { BY_KERNEL } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: Stamps = Stamps { software: Some(1), hardware: Some(2) };

    #[test]
    fn what_linux_refuses_is_refused() {
        for flags in [1 << 18, 1 << 31, OPT_ID_TCP, OPT_STATS, OPT_STATS | OPT_ID] {
            assert_eq!(Stamping::new(flags), Err(Unsound));
        }
        for flags in [0, OPT_ID_TCP | OPT_ID, OPT_STATS | OPT_TSONLY, 1 << 5] {
            assert_eq!(Stamping::new(flags).map(Stamping::flags), Ok(flags));
        }
    }

    #[test]
    fn a_ring_tells_the_stamp_of_the_card_where_that_is_meant() {
        assert_eq!(of_ring(RAW_HARDWARE, 1, Some(2), true), (2, BY_CARD));
        assert_eq!(of_ring(RAW_HARDWARE, 1, None, true), (1, BY_KERNEL));
        assert_eq!(of_ring(SOFTWARE, 1, Some(2), true), (1, BY_KERNEL));
        assert_eq!(of_ring(0, 1, Some(2), false), (1, 0));
    }

    #[test]
    fn the_kernel_reports_what_the_card_does_not() {
        let asked = Stamping(TX_SOFTWARE | TX_SCHED | TX_HARDWARE);
        assert!(asked.events(false).eq([Event::Scheduled, Event::Sent]));
        assert!(asked.events(true).eq([Event::Scheduled]));
        let both = Stamping(asked.0 | OPT_TX_SWHW);
        assert!(both.events(true).eq([Event::Scheduled, Event::Sent]));
        assert!(Stamping(TX_HARDWARE).events(false).eq([]));
    }

    proptest! {
        /// No stamp is told that was not asked for, and none is made up.
        #[test]
        fn what_is_told_was_asked_for(
            flags: u32, is_wanted: bool, software: Option<u64>, hardware: Option<u64>,
        ) {
            let asked = Stamping::of_flags(flags);
            let stamps = Stamps { software, hardware };
            let all = [asked.received(stamps, is_wanted), asked.sent(stamps)];
            for told in all.into_iter().flatten() {
                prop_assert!(told.software.is_none() || told.software == software);
                prop_assert!(told.hardware.is_none() || told.hardware == hardware);
                prop_assert!(told.software.is_none() || asked.has(SOFTWARE));
                prop_assert!(told.hardware.is_none() || asked.has(RAW_HARDWARE));
                prop_assert!(told != Stamps::default());
            }
            let received = asked.received(BOTH, is_wanted).unwrap_or_default();
            if asked.has(OPT_RX_FILTER) {
                prop_assert!(received.software.is_none() || asked.has(RX_SOFTWARE));
                prop_assert!(received.hardware.is_none() || asked.has(RX_HARDWARE));
            }
        }

        /// A message changes which reports there are, and nothing else.
        #[test]
        fn a_message_has_its_own_reports(flags: u32, own: u32) {
            let asked = Stamping::of_flags(flags);
            match asked.of_message(own) {
                Err(Unsound) => prop_assert!(own & !REPORTS != 0),
                Ok(message) => {
                    prop_assert_eq!(message.flags() & REPORTS, own);
                    prop_assert_eq!(message.flags() & !REPORTS, asked.flags() & !REPORTS);
                    prop_assert_eq!(message.numbers(), asked.has(OPT_ID) && own != 0);
                }
            }
        }
    }
}
