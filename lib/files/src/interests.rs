// SPDX-License-Identifier: MIT OR Apache-2.0
//! The members of an epoll set: which events each one wants, and the line of those that may be
//! ready.
//!
//! A member that may be ready stands in line. The waiting thread takes members out one by one,
//! looks at the file, and reports what it finds. An edge-triggered member then stays out of line
//! until its file becomes ready again; a member of EPOLLONESHOT is disarmed; all others go to the
//! end of the line. Each step takes constant time and no memory; room is made in advance, for 64
//! members at a time.

use alloc::boxed::Box;
use core::array;

/// EPOLLEXCLUSIVE, a flag in `epoll_event.events`, as are the following.
pub const EXCLUSIVE: u32 = 1 << 28;
/// EPOLLWAKEUP.
pub const WAKE_UP: u32 = 1 << 29;
/// EPOLLONESHOT.
pub const ONCE: u32 = 1 << 30;
/// EPOLLET.
pub const EDGE: u32 = 1 << 31;

const FLAGS: u32 = EXCLUSIVE | WAKE_UP | ONCE | EDGE;

/// Members of a [`Room`], and rooms of a set.
const CHUNK: usize = 64;
/// The most members of a set.
pub const MEMBERS: usize = CHUNK * CHUNK;

/// No place.
const NONE: u16 = u16::MAX;

/// The name of a member. No later member has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    place: u16,
    serial: u64,
}

struct Member<T> {
    serial: u64,
    /// The file.
    source: T,
    /// Events and flags, as epoll_ctl(2) has them.
    wanted: u32,
    /// What the program gets with the events.
    data: u64,
    in_line: bool,
}

struct Place<T> {
    member: Option<Member<T>>,
    /// Neighbours in line; of a free place, the next free one.
    before: u16,
    behind: u16,
}

/// Memory for 64 further members.
pub struct Room<T>([Place<T>; CHUNK]);

impl<T> Room<T> {
    /// Allocates empty room.
    pub fn new() -> Box<Self> {
        Box::new(Self(array::from_fn(|_| Place { member: None, before: NONE, behind: NONE })))
    }
}

/// The members of a set.
pub struct Interests<T> {
    rooms: [Option<Box<Room<T>>>; CHUNK],
    /// Rooms that are there.
    count: usize,
    free: u16,
    first: u16,
    last: u16,
    /// Members that stand in line.
    length: usize,
    serial: u64,
}

impl<T> Default for Interests<T> {
    fn default() -> Self {
        Self {
            rooms: [const { None }; CHUNK],
            count: 0,
            free: NONE,
            first: NONE,
            last: NONE,
            length: 0,
            serial: 0,
        }
    }
}

impl<T> Interests<T> {
    fn place(&mut self, place: u16) -> Option<&mut Place<T>> {
        let room = self.rooms.get_mut(usize::from(place) / CHUNK)?.as_mut()?;
        room.0.get_mut(usize::from(place) % CHUNK)
    }

    fn member(&mut self, token: Token) -> Option<&mut Member<T>> {
        let member = self.place(token.place)?.member.as_mut()?;
        (member.serial == token.serial).then_some(member)
    }

    /// Says whether a member can be added without further room.
    pub fn has_room(&self) -> bool {
        self.free != NONE
    }

    /// Adds room; gives it back if the set has its full size.
    pub fn add_room(&mut self, room: Box<Room<T>>) -> Result<(), Box<Room<T>>> {
        let Some(place) = self.rooms.get_mut(self.count) else { return Err(room) };
        *place = Some(room);
        let start = self.count * CHUNK;
        self.count += 1;
        for at in (start..start + CHUNK).rev() {
            let at = at as u16;
            let free = core::mem::replace(&mut self.free, at);
            if let Some(place) = self.place(at) {
                place.behind = free;
            }
        }
        Ok(())
    }

    /// Adds a member of the file `source`; `None` if there is no room.
    pub fn add(&mut self, source: T, wanted: u32, data: u64) -> Option<Token> {
        let (at, serial) = (self.free, self.serial);
        let place = self.place(at)?;
        let next = core::mem::replace(&mut place.behind, NONE);
        place.member = Some(Member { serial, source, wanted, data, in_line: false });
        self.free = next;
        self.serial += 1;
        Some(Token { place: at, serial })
    }

    /// Changes the events that a member wants, which arms it again.
    pub fn change(&mut self, token: Token, wanted: u32, data: u64) {
        if let Some(member) = self.member(token) {
            (member.wanted, member.data) = (wanted, data);
        }
    }

    /// Returns the events and flags of a member.
    pub fn wanted(&mut self, token: Token) -> Option<u32> {
        self.member(token).map(|member| member.wanted)
    }

    /// Returns what the program gets with the events of a member.
    pub fn data(&mut self, token: Token) -> Option<u64> {
        self.member(token).map(|member| member.data)
    }

    /// Returns the file of a member.
    pub fn source(&mut self, token: Token) -> Option<&T> {
        self.member(token).map(|member| &member.source)
    }

    /// Removes a member, and returns its file.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        if self.member(token)?.in_line {
            self.leave_line(token.place);
        }
        let free = self.free;
        let place = self.place(token.place)?;
        let member = place.member.take();
        place.behind = free;
        self.free = token.place;
        member.map(|member| member.source)
    }

    /// Puts a member, which may be ready for `events`, in line if it wants one of them. Says
    /// whether it does.
    pub fn tell(&mut self, token: Token, events: u32) -> bool {
        let Some(member) = self.member(token).filter(|member| member.wanted & events & !FLAGS != 0)
        else {
            return false;
        };
        if !member.in_line {
            self.join_line(token.place);
        }
        true
    }

    /// Returns the number of members that stand in line.
    pub fn in_line(&self) -> usize {
        self.length
    }

    /// Takes the first member out of the line.
    pub fn take_first(&mut self) -> Option<(Token, &T)> {
        let at = self.first;
        self.place(at)?;
        self.leave_line(at);
        let member = self.place(at)?.member.as_ref()?;
        Some((Token { place: at, serial: member.serial }, &member.source))
    }

    /// Returns what is to be reported of a member that was taken out of the line and is ready for
    /// `ready`: the events, and the program's data.
    pub fn report(&mut self, token: Token, ready: u32) -> Option<(u32, u64)> {
        let member = self.member(token)?;
        let events = member.wanted & ready & !FLAGS;
        if events == 0 {
            return None;
        }
        let data = member.data;
        if member.wanted & ONCE != 0 {
            member.wanted &= FLAGS;
        } else if member.wanted & EDGE == 0 && !member.in_line {
            self.join_line(token.place);
        }
        Some((events, data))
    }

    /// Puts a member in line again whose report could not be delivered; `wanted` are its events and
    /// flags before the report.
    pub fn take_back(&mut self, token: Token, wanted: u32) {
        if let Some(member) = self.member(token) {
            member.wanted = wanted;
            if !member.in_line {
                self.join_line(token.place);
            }
        }
    }

    /// Puts the member of a place at the end of the line.
    fn join_line(&mut self, at: u16) {
        let last = self.last;
        let Some(place) = self.place(at) else { return };
        (place.before, place.behind) = (last, NONE);
        if let Some(member) = &mut place.member {
            member.in_line = true;
        }
        match self.place(last) {
            Some(last) => last.behind = at,
            None => self.first = at,
        }
        self.last = at;
        self.length += 1;
    }

    /// Takes the member of a place out of the line.
    fn leave_line(&mut self, at: u16) {
        let Some(place) = self.place(at) else { return };
        let (before, behind) = (place.before, place.behind);
        (place.before, place.behind) = (NONE, NONE);
        if let Some(member) = &mut place.member {
            member.in_line = false;
        }
        match self.place(before) {
            Some(before) => before.behind = behind,
            None => self.first = behind,
        }
        match self.place(behind) {
            Some(behind) => behind.before = before,
            None => self.last = before,
        }
        self.length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IN: u32 = 1;
    const OUT: u32 = 4;

    fn with_room() -> Interests<u32> {
        let mut set = Interests::default();
        assert!(!set.has_room() && set.add_room(Room::new()).is_ok() && set.has_room());
        set
    }

    /// All that is reported when the members in line are ready for `ready`.
    fn reports(set: &mut Interests<u32>, ready: u32) -> Vec<(u32, u64)> {
        (0..set.in_line())
            .filter_map(|_| {
                let token = set.take_first()?.0;
                set.report(token, ready)
            })
            .collect()
    }

    #[test]
    fn a_level_is_reported_as_long_as_it_lasts() {
        let mut set = with_room();
        let member = set.add(1, IN, 7).unwrap();
        assert!(!set.tell(member, OUT));
        assert!(set.tell(member, IN));
        assert_eq!(reports(&mut set, IN | OUT), [(IN, 7)]);
        assert_eq!(reports(&mut set, IN), [(IN, 7)]);
        assert_eq!(reports(&mut set, 0), []);
        assert_eq!(set.in_line(), 0);
    }

    #[test]
    fn an_edge_is_reported_once() {
        let mut set = with_room();
        let member = set.add(1, IN | EDGE, 7).unwrap();
        set.tell(member, IN);
        set.tell(member, IN);
        assert_eq!(reports(&mut set, IN), [(IN, 7)]);
        assert_eq!(reports(&mut set, IN), []);
        set.tell(member, IN);
        assert_eq!(reports(&mut set, IN), [(IN, 7)]);
    }

    #[test]
    fn a_member_that_is_reported_once_is_armed_again_by_a_change() {
        let mut set = with_room();
        let member = set.add(1, IN | ONCE, 7).unwrap();
        set.tell(member, IN);
        assert_eq!(reports(&mut set, IN), [(IN, 7)]);
        assert!(!set.tell(member, IN));
        set.change(member, IN | OUT | ONCE, 8);
        assert!(set.tell(member, IN));
        assert_eq!(reports(&mut set, IN | OUT), [(IN | OUT, 8)]);
    }

    #[test]
    fn a_report_that_failed_comes_again() {
        let mut set = with_room();
        let member = set.add(1, IN | ONCE, 7).unwrap();
        set.tell(member, IN);
        let token = set.take_first().unwrap().0;
        assert_eq!(set.report(token, IN), Some((IN, 7)));
        set.take_back(token, IN | ONCE);
        assert_eq!(reports(&mut set, IN), [(IN, 7)]);
    }

    #[test]
    fn a_set_is_full_at_some_time() {
        let mut set = Interests::default();
        for _ in 0..MEMBERS / CHUNK {
            assert!(set.add_room(Room::new()).is_ok());
        }
        assert!(set.add_room(Room::new()).is_err());
        for number in 0..MEMBERS as u32 {
            assert!(set.add(number, IN, 0).is_some());
        }
        assert!(!set.has_room() && set.add(0, IN, 0).is_none());
    }

    proptest! {
        /// The line is a queue without doubles, whoever leaves it and however places are used
        /// again.
        #[test]
        fn the_line_is_a_queue(steps in proptest::collection::vec((0u8..5, 0usize..20), 0..300)) {
            let mut set = with_room();
            let mut members: Vec<(Token, u32)> = Vec::new();
            let mut gone: Vec<Token> = Vec::new();
            let mut line: Vec<u32> = Vec::new();
            let mut number = 0;
            for (what, which) in steps {
                let known = (!members.is_empty()).then(|| which % members.len().max(1));
                match (what, known) {
                    (0, _) if members.len() < CHUNK => {
                        let token = set.add(number, IN, number.into()).unwrap();
                        members.push((token, number));
                        number += 1;
                    }
                    (1, Some(at)) => {
                        let (token, number) = members.swap_remove(at);
                        prop_assert_eq!(set.remove(token), Some(number));
                        line.retain(|&other| other != number);
                        gone.push(token);
                    }
                    (2, Some(at)) => {
                        let (token, number) = members[at];
                        prop_assert!(set.tell(token, IN));
                        if !line.contains(&number) {
                            line.push(number);
                        }
                    }
                    (3, _) => {
                        let next = set.take_first().map(|(token, &number)| (token, number));
                        prop_assert_eq!(next.map(|(_, number)| number), line.first().copied());
                        if let Some((token, number)) = next {
                            line.remove(0);
                            prop_assert_eq!(set.report(token, IN), Some((IN, number.into())));
                            line.push(number);
                        }
                    }
                    _ => {
                        for &token in &gone {
                            prop_assert!(!set.tell(token, IN) && set.remove(token).is_none());
                        }
                    }
                }
                prop_assert_eq!(set.in_line(), line.len());
            }
        }
    }
}
