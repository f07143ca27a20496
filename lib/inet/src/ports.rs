// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has which port, and who is meant by a packet.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Ports that are given to who asks for none in particular, as Linux does by preset.
pub const EPHEMERAL: core::ops::RangeInclusive<u16> = 32768..=60999;

/// What a socket is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Its own address; 0.0.0.0 for all that this station has.
    pub local: SocketAddrV4,
    /// The only one with whom it talks.
    pub remote: Option<SocketAddrV4>,
    /// The only interface that it has to do with; 0 for all.
    pub interface: u32,
    /// Others that say the same may have the port as well (SO_REUSEADDR).
    pub shares: bool,
    /// Likewise (SO_REUSEPORT).
    pub balances: bool,
    /// It waits for connections.
    pub listens: bool,
}

impl Binding {
    /// Bound to an address alone.
    pub fn new(local: SocketAddrV4) -> Self {
        Self { local, remote: None, interface: 0, shares: false, balances: false, listens: false }
    }

    /// Whether a packet is for it; the larger, the more it says about that.
    fn fits(&self, packet: &Way) -> Option<u32> {
        let mut score = 1;
        if *self.local.ip() != Ipv4Addr::UNSPECIFIED {
            if self.local.ip() != packet.local.ip() {
                return None;
            }
            score += 2;
        }
        if let Some(remote) = self.remote {
            if remote != packet.remote {
                return None;
            }
            score += 4;
        }
        if self.interface != 0 {
            if self.interface != packet.interface {
                return None;
            }
            score += 2;
        }
        Some(score)
    }

    /// Whether both cannot be there at once.
    fn excludes(&self, other: &Self, is_stream: bool) -> bool {
        let any = Ipv4Addr::UNSPECIFIED;
        let (a, b) = (*self.local.ip(), *other.local.ip());
        let is_apart = a != any && b != any && a != b
            || self.interface != 0 && other.interface != 0 && self.interface != other.interface;
        let may_share = self.shares && other.shares && !(is_stream && other.listens)
            || self.balances && other.balances;
        !is_apart && !may_share
    }
}

/// Where a packet came from and goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Where it goes.
    pub local: SocketAddrV4,
    /// Where it came from.
    pub remote: SocketAddrV4,
    /// The interface on which it came.
    pub interface: u32,
}

/// Why a port is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another one has it.
    Taken,
    /// There are too many sockets.
    TooMany,
}

/// Lists of sockets by their port.
const LISTS: usize = 64;

/// The sockets of a protocol that have a port.
pub struct Ports<T> {
    lists: [Vec<(Binding, T)>; LISTS],
    count: usize,
    most: usize,
    is_stream: bool,
}

fn list_of(port: u16) -> usize {
    usize::from(port) % LISTS
}

impl<T: Clone + PartialEq> Ports<T> {
    /// Nobody has one. `is_stream`: a port on which somebody waits for connections is that one's
    /// alone.
    pub const fn new(most: usize, is_stream: bool) -> Self {
        Self { lists: [const { Vec::new() }; LISTS], count: 0, most, is_stream }
    }

    /// Gives a port to a socket. May allocate.
    pub fn bind(&mut self, binding: Binding, socket: T) -> Result<(), Refusal> {
        if self.is_taken(&binding, None) {
            return Err(Refusal::Taken);
        }
        self.add(binding, socket)
    }

    /// Adds a connection that came to a port which somebody has. May allocate.
    pub fn add(&mut self, binding: Binding, socket: T) -> Result<(), Refusal> {
        let list = &mut self.lists[list_of(binding.local.port())];
        if self.count >= self.most || list.try_reserve(1).is_err() {
            return Err(Refusal::TooMany);
        }
        list.push((binding, socket));
        self.count += 1;
        Ok(())
    }

    fn is_taken(&self, binding: &Binding, but: Option<&T>) -> bool {
        self.lists[list_of(binding.local.port())].iter().any(|(other, socket)| {
            other.local.port() == binding.local.port()
                && Some(socket) != but
                && match (binding.remote, other.remote) {
                    // Connections of one port differ by the other end.
                    (Some(a), Some(b)) if self.is_stream => {
                        a == b && binding.local.ip() == other.local.ip()
                    }
                    _ => binding.excludes(other, self.is_stream),
                }
        })
    }

    /// Whether exactly that connection is there.
    pub fn has_connection(&self, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        self.lists[list_of(local.port())]
            .iter()
            .any(|(binding, _)| binding.local == local && binding.remote == Some(remote))
    }

    /// A port that nobody has, from `start` on; `start` is any number.
    pub fn free(&self, binding: Binding, start: u16) -> Option<u16> {
        let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
        (0..count).map(|step| EPHEMERAL.start() + (start % count + step) % count).find(|&port| {
            let local = SocketAddrV4::new(*binding.local.ip(), port);
            // Ports that are given this way are shared with nobody.
            let alone = Binding { local, shares: false, balances: false, ..binding };
            !self.is_taken(&alone, None)
        })
    }

    /// Changes what a socket is bound to; its port stays.
    pub fn change(&mut self, port: u16, socket: &T, change: impl FnOnce(&mut Binding)) {
        let list = &mut self.lists[list_of(port)];
        if let Some((binding, _)) = list.iter_mut().find(|(_, other)| other == socket) {
            change(binding);
        }
    }

    /// Takes a socket away. Says whether it was there.
    pub fn remove(&mut self, port: u16, socket: &T) -> Option<T> {
        let list = &mut self.lists[list_of(port)];
        let at = list.iter().position(|(_, other)| other == socket)?;
        self.count -= 1;
        let (_, taken) = list.swap_remove(at);
        if list.is_empty() {
            // What many sockets needed is given back.
            *list = Vec::new();
        }
        Some(taken)
    }

    /// The socket that is meant most by a packet. Of several that are meant alike, `draw` says
    /// which. Bounded by the number of sockets.
    pub fn find(&self, way: &Way, draw: u32) -> Option<T> {
        let port = way.local.port();
        let fitting = || {
            self.lists[list_of(port)]
                .iter()
                .filter(move |(binding, _)| binding.local.port() == port)
                .filter_map(|(binding, socket)| Some((binding.fits(way)?, socket)))
        };
        let best = fitting().map(|(score, _)| score).max()?;
        let alike = || fitting().filter(|(score, _)| *score == best);
        let count = alike().count();
        // The last one that was bound, unless they share out what comes.
        let balances = self.lists[list_of(port)]
            .iter()
            .any(|(binding, _)| binding.local.port() == port && binding.balances);
        let at = if balances { draw as usize % count } else { count - 1 };
        alike().nth(at).map(|(_, socket)| socket.clone())
    }

    /// The `at`-th socket of those that a packet for a group or for all is for.
    pub fn nth(&self, way: &Way, at: usize) -> Option<T> {
        self.lists[list_of(way.local.port())]
            .iter()
            .filter(|(binding, _)| binding.local.port() == way.local.port())
            .filter(|(binding, _)| binding.fits(way).is_some())
            .nth(at)
            .map(|(_, socket)| socket.clone())
    }

    /// The `at`-th of all sockets.
    pub fn nth_of_all(&self, at: usize) -> Option<T> {
        self.lists.iter().flatten().nth(at).map(|(_, socket)| socket.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
    const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9);

    fn at(ip: Ipv4Addr, port: u16) -> Binding {
        Binding::new(SocketAddrV4::new(ip, port))
    }

    fn way(ip: Ipv4Addr, port: u16) -> Way {
        Way { local: SocketAddrV4::new(ip, port), remote: PEER, interface: 3 }
    }

    #[test]
    fn a_port_is_one_sockets() {
        let mut ports = Ports::new(10, false);
        assert_eq!(ports.bind(at(A, 5), 1), Ok(()));
        assert_eq!(ports.bind(at(A, 5), 2), Err(Refusal::Taken));
        assert_eq!(ports.bind(at(ANY, 5), 2), Err(Refusal::Taken));
        assert_eq!(ports.bind(at(B, 5), 2), Ok(()));
        assert_eq!(ports.bind(Binding { shares: true, ..at(A, 5) }, 3), Err(Refusal::Taken));
        assert_eq!(ports.find(&way(A, 5), 0), Some(1));
        assert_eq!(ports.find(&way(B, 5), 0), Some(2));
        assert_eq!(ports.remove(5, &1), Some(1));
        assert_eq!(ports.find(&way(A, 5), 0), None);
    }

    #[test]
    fn who_says_more_is_meant() {
        let mut ports = Ports::new(10, false);
        let shared = |binding: Binding| Binding { shares: true, ..binding };
        ports.bind(shared(at(ANY, 5)), 1).unwrap();
        ports.bind(shared(at(A, 5)), 2).unwrap();
        ports.bind(shared(Binding { remote: Some(PEER), ..at(A, 5) }), 3).unwrap();
        assert_eq!(ports.find(&way(A, 5), 0), Some(3));
        ports.remove(5, &3).unwrap();
        assert_eq!(ports.find(&way(A, 5), 0), Some(2));
        assert_eq!(ports.find(&way(B, 5), 0), Some(1));
        assert_eq!([0, 1, 2].map(|place| ports.nth(&way(A, 5), place)), [Some(1), Some(2), None]);
    }

    #[test]
    fn connections_of_a_listener() {
        let mut ports = Ports::new(10, true);
        ports.bind(Binding { listens: true, shares: true, ..at(A, 80) }, 1).unwrap();
        let connection = Binding { remote: Some(PEER), ..at(A, 80) };
        ports.add(connection, 2).unwrap();
        assert_eq!(ports.find(&way(A, 80), 0), Some(2));
        assert!(ports.has_connection(connection.local, PEER));
        // Nobody else listens there, whatever they share.
        assert_eq!(ports.bind(Binding { shares: true, ..at(A, 80) }, 3), Err(Refusal::Taken));
    }

    #[test]
    fn as_many_as_there_may_be() {
        let mut ports = Ports::new(2, false);
        ports.bind(at(A, 1), 1).unwrap();
        ports.bind(at(A, 2), 2).unwrap();
        assert_eq!(ports.bind(at(A, 3), 3), Err(Refusal::TooMany));
        ports.remove(1, &1).unwrap();
        assert_eq!(ports.bind(at(A, 3), 3), Ok(()));
    }

    proptest! {
        #[test]
        fn a_free_port_is_free(start in any::<u16>(), taken in 0u16..300) {
            let mut ports = Ports::new(1000, false);
            for port in 0..taken {
                ports.bind(at(ANY, EPHEMERAL.start() + port), port).unwrap();
            }
            let free = ports.free(at(A, 0), start).unwrap();
            prop_assert!(EPHEMERAL.contains(&free));
            prop_assert_eq!(ports.bind(at(A, free), 1000), Ok(()));
        }
    }
}
