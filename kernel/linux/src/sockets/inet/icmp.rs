// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ICMP says of a packet that did not arrive (icmp(7)).

use crtos_inet::packet::Unreachable;

use crate::abi::Errno;

/// The error, and whether a socket of UDP that has not asked for errors (IP_RECVERR) is told as
/// well, if it talks to that destination alone (`icmp_err_convert` and `__udp4_lib_err` of Linux).
pub fn meaning(why: &Unreachable) -> (Errno, bool) {
    match (why.kind, why.code) {
        (Unreachable::DESTINATION, code) => match code {
            0 => (Errno::ENETUNREACH, false),
            2 => (Errno::ENOPROTOOPT, true),
            Unreachable::PORT => (Errno::ECONNREFUSED, true),
            Unreachable::TOO_LONG => (Errno::EMSGSIZE, true),
            5 => (Errno::EOPNOTSUPP, false),
            6 | 9 => (Errno::ENETUNREACH, true),
            7 => (Errno::EHOSTDOWN, true),
            8 => (Errno::ENONET, true),
            10 | 13..=15 => (Errno::EHOSTUNREACH, true),
            11 => (Errno::ENETUNREACH, false),
            _ => (Errno::EHOSTUNREACH, false),
        },
        (Unreachable::PARAMETER, _) => (Errno::EPROTO, true),
        _ => (Errno::EHOSTUNREACH, false),
    }
}
