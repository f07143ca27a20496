// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control messages (cmsg(3)): what a program says of something that it sends, and what it is told
//! of something that it receives.

use core::net::Ipv4Addr;

use crtos_abi::UserAddr;
use crtos_syscalls::structs::{CMsgHdr, MsgHdr};
use linux_raw_sys::net;

use crate::{
    abi::Errno,
    files::socket::{SendControl, Told},
    memory::{timespec::SECOND, user},
};

/// Bytes before the data of a control message.
const HEADER: u64 = size_of::<CMsgHdr>() as u64;

/// What the control messages say of a message that is to be sent. Bounded by their bytes.
pub fn of_message(message: &MsgHdr) -> Result<SendControl, Errno> {
    /// Most bytes of control messages: Linux's preset of net.core.optmem_max.
    const MOST: u64 = 20480;
    /// SOL_UDP.
    const OF_UDP: u32 = 17;
    /// UDP_SEGMENT.
    const UDP_SEGMENT: u32 = 103;
    let mut said = SendControl::default();
    if message.control_length > MOST {
        return Err(Errno::ENOBUFS);
    }
    let mut at = UserAddr::new(message.control);
    let end = at.saturating_add(message.control_length);
    while at <= end && end - at >= HEADER {
        let CMsgHdr { length, level, kind } = user::read_struct(at)?;
        if length < HEADER || length > end - at {
            return Err(Errno::EINVAL);
        }
        match (level, kind) {
            (net::SOL_SOCKET, net::SO_TIMESTAMPING_OLD | net::SO_TIMESTAMPING_NEW)
                if length == HEADER + 4 =>
            {
                said.reports = Some(user::read_u32(at + HEADER)?);
            }
            // Without meaning here.
            (net::SOL_SOCKET, net::SO_MARK) if length == HEADER + 4 => {}
            (net::SOL_SOCKET, net::SCM_RIGHTS | net::SCM_CREDENTIALS) => {}
            (net::SOL_SOCKET, _) => return Err(Errno::EINVAL),
            (net::SOL_IP, _) => said_of_ip(&mut said, kind, at + HEADER, length - HEADER)?,
            (OF_UDP, UDP_SEGMENT) if length == HEADER + 2 => {
                let mut bytes = [0; 2];
                user::read(at + HEADER, &mut bytes)?;
                said.segment = Some(u16::from_ne_bytes(bytes));
            }
            (OF_UDP, _) => said.has_others = true,
            (net::SOL_IPV6, _) => said.has_ipv6 = true,
            // Nor has what is of another family, under Linux neither.
            _ => {}
        }
        at = at.saturating_add(length.next_multiple_of(8));
    }
    Ok(said)
}

/// What a control message of SOL_IP says, whose data is at `at`.
fn said_of_ip(said: &mut SendControl, kind: u32, at: UserAddr, length: u64) -> Result<(), Errno> {
    let byte = |least: u32, value: u32| u8::try_from(value).ok().filter(|_| value >= least);
    match (kind, length) {
        (net::IP_PKTINFO, 12) => {
            let [interface, address] = [at, at + 4].map(user::read_u32);
            said.packet = Some((interface?, Ipv4Addr::from(address?.to_ne_bytes())));
        }
        (net::IP_TTL, 4) => {
            said.lifetime = byte(1, user::read_u32(at)?);
            said.has_others |= said.lifetime.is_none();
        }
        (net::IP_TOS, 1 | 4) => {
            let mut value = [0; 4];
            user::read(at, &mut value[..length as usize])?;
            said.service = byte(0, u32::from_ne_bytes(value));
            said.has_others |= said.service.is_none();
        }
        _ => said.has_others = true,
    }
    Ok(())
}

/// Room of a program for control messages.
pub struct Room {
    at: UserAddr,
    /// Bytes that are left.
    pub left: u64,
    /// There was too little.
    pub is_cut: bool,
}

impl Room {
    /// The room that a program gives.
    pub fn of(message: &MsgHdr) -> Self {
        let at = UserAddr::new(message.control);
        Self { at, left: message.control_length, is_cut: false }
    }

    fn put(&mut self, level: u32, kind: u32, data: &[u8]) -> Result<(), Errno> {
        if self.left < HEADER || self.at.is_null() {
            self.is_cut = true;
            return Ok(());
        }
        let whole = HEADER + data.len() as u64;
        let length = whole.min(self.left);
        self.is_cut |= length < whole;
        user::write_words(self.at, [length, u64::from(level) | u64::from(kind) << 32])?;
        user::write(self.at + HEADER, &data[..(length - HEADER) as usize])?;
        let used = whole.next_multiple_of(8).min(self.left);
        self.at += used;
        self.left -= used;
        Ok(())
    }

    /// Tells a program of something that it receives.
    pub fn tell(&mut self, told: &Told) -> Result<(), Errno> {
        if let Some((stamp, name)) = told.stamp {
            let (seconds, nanos) = (stamp.0 / SECOND, stamp.0 % SECOND);
            let unit = match name {
                net::SO_TIMESTAMP_OLD | net::SO_TIMESTAMP_NEW => 1000,
                _ => 1,
            };
            let stamp = [seconds, nanos / unit].map(u64::to_ne_bytes);
            self.put(net::SOL_SOCKET, name, stamp.as_flattened())?;
        }
        if let Some((stamps, name)) = told.stamps {
            let [software, hardware] = [stamps.software, stamps.hardware].map(|stamp| {
                let nanos = stamp.unwrap_or(0);
                [nanos / SECOND, nanos % SECOND]
            });
            // Between both was one that no kernel gives any more.
            let all = [software, [0; 2], hardware].map(|stamp| stamp.map(u64::to_ne_bytes));
            self.put(net::SOL_SOCKET, name, all.as_flattened().as_flattened())?;
        }
        if let Some(lost) = told.lost {
            self.put(net::SOL_SOCKET, net::SO_RXQ_OVFL, &lost.to_ne_bytes())?;
        }
        if let Some((interface, local, destination)) = told.packet {
            let info = [interface.to_ne_bytes(), local.octets(), destination.octets()].concat();
            self.put(net::SOL_IP, net::IP_PKTINFO, &info)?;
        }
        if let Some(lifetime) = told.lifetime {
            self.put(net::SOL_IP, net::IP_TTL, &u32::from(lifetime).to_ne_bytes())?;
        }
        if let Some(service) = told.service {
            self.put(net::SOL_IP, net::IP_TOS, &[service])?;
        }
        if let Some(more) = &told.more {
            self.put(more.level, more.kind, more.bytes())?;
        }
        Ok(())
    }
}
