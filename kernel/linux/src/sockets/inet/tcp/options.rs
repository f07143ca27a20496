// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of TCP that keep a number (tcp(7)).

use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::net;

use crate::{abi::Errno, files::socket::Foreign};

/// Which numbers an option takes, and what becomes of them.
#[derive(Clone, Copy)]
enum Takes {
    /// Any; it keeps whether that is 0.
    Flag,
    /// None but these.
    Range(i32, i32),
    /// None but these, and 0 for none.
    RangeOrNone(i32, i32),
    /// Any.
    Any,
    /// Seconds in which the other end is to say something; it keeps how many attempts that are.
    Attempts,
    /// Seconds: none is negative, and 0 is the preset one; what is too long is the longest.
    Seconds(i32),
    /// Bytes: 0 for none, or so many at least.
    Bytes(u32),
}

struct Kept {
    name: u32,
    takes: Takes,
    /// What it has been before anybody set it.
    preset: u32,
}

const fn kept(name: u32, takes: Takes, preset: u32) -> Kept {
    Kept { name, takes, preset }
}

/// All of these. Those without a meaning here have no more of one in Linux than how soon something
/// is sent or told.
const ALL: [Kept; 15] = [
    kept(net::TCP_NODELAY, Takes::Flag, 0),
    kept(net::TCP_MAXSEG, Takes::RangeOrNone(LEAST_SEGMENT, 32767), 0),
    kept(net::TCP_CORK, Takes::Flag, 0),
    kept(net::TCP_KEEPIDLE, Takes::Range(1, 32767), 7200),
    kept(net::TCP_KEEPINTVL, Takes::Range(1, 32767), 75),
    kept(net::TCP_KEEPCNT, Takes::Range(1, 127), 9),
    kept(net::TCP_SYNCNT, Takes::Range(1, 127), 6),
    kept(net::TCP_LINGER2, Takes::Seconds(120), 60),
    kept(net::TCP_DEFER_ACCEPT, Takes::Attempts, 0),
    kept(net::TCP_WINDOW_CLAMP, Takes::Bytes(1152), 0),
    kept(net::TCP_QUICKACK, Takes::Flag, 1),
    kept(net::TCP_THIN_LINEAR_TIMEOUTS, Takes::Range(0, 1), 0),
    kept(net::TCP_THIN_DUPACK, Takes::Range(0, 1), 0),
    kept(net::TCP_USER_TIMEOUT, Takes::Range(0, i32::MAX), 0),
    kept(net::TCP_NOTSENT_LOWAT, Takes::Any, 0),
];

/// Fewest bytes of a segment that may be asked for, and what Linux tells where none are.
const LEAST_SEGMENT: i32 = 88;
const USUAL_SEGMENT: u32 = 536;

/// The numbers of a socket.
pub struct Options([AtomicU32; ALL.len()]);

/// Seconds from one attempt to the next: the first time, then twice as many, at most that.
fn pauses() -> impl Iterator<Item = u32> {
    const MOST: u32 = 120;
    core::iter::successors(Some(1), |pause| Some((pause * 2).min(MOST)))
}

/// How many attempts are made within so many seconds.
fn attempts(seconds: u32) -> u32 {
    let ends = pauses().scan(0, |end, pause| {
        *end += pause;
        Some(*end)
    });
    if seconds == 0 {
        0
    } else {
        1 + ends.take(254).take_while(|end| *end < seconds).count() as u32
    }
}

impl Options {
    /// What nobody has set otherwise.
    pub fn new() -> Self {
        Self(ALL.map(|kept| AtomicU32::new(kept.preset)))
    }

    /// Those of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let own = Self::new();
        for kept in &ALL {
            let told = foreign.number(net::SOL_TCP, kept.name)?;
            let is_unset = kept.name == net::TCP_MAXSEG && told == USUAL_SEGMENT;
            // What lies in memory of the program it may have changed.
            if !is_unset {
                let _ = own.set(kept.name, told);
            }
        }
        Ok(own)
    }

    /// Those of a connection that came to a socket with these.
    pub fn of_connection(&self) -> Self {
        Self(self.0.each_ref().map(|value| AtomicU32::new(value.load(Ordering::Relaxed))))
    }

    fn place(name: u32) -> Option<usize> {
        ALL.iter().position(|kept| kept.name == name)
    }

    /// The number of one.
    pub fn value(&self, name: u32) -> u32 {
        Self::place(name).map_or(0, |at| self.0[at].load(Ordering::Relaxed))
    }

    /// getsockopt(2); `None` if it is none of these.
    pub fn get(&self, name: u32) -> Option<u32> {
        let value = self.0[Self::place(name)?].load(Ordering::Relaxed);
        Some(match name {
            net::TCP_DEFER_ACCEPT => pauses().take(value as usize).sum(),
            net::TCP_MAXSEG if value == 0 => USUAL_SEGMENT,
            // It has no meaning in Linux either.
            net::TCP_THIN_DUPACK => 0,
            _ => value,
        })
    }

    /// setsockopt(2).
    pub fn set(&self, name: u32, number: u32) -> Result<(), Errno> {
        let at = Self::place(name).ok_or(Errno::ENOPROTOOPT)?;
        let kept = &ALL[at];
        let signed = number as i32;
        let value = match kept.takes {
            Takes::Flag => (number != 0).into(),
            Takes::Any => number,
            Takes::RangeOrNone(..) if number == 0 => 0,
            Takes::Range(least, most) | Takes::RangeOrNone(least, most) => {
                if !(least..=most).contains(&signed) {
                    return Err(Errno::EINVAL);
                }
                number
            }
            Takes::Attempts => attempts(signed.max(0) as u32),
            Takes::Seconds(_) if number == 0 => kept.preset,
            Takes::Seconds(most) => signed.clamp(-1, most) as u32,
            Takes::Bytes(_) if number == 0 => 0,
            Takes::Bytes(least) => number.max(least),
        };
        self.0[at].store(value, Ordering::Relaxed);
        Ok(())
    }
}
