// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options SO_BINDTODEVICE and SO_BINDTOIFINDEX. As under Linux, sockets of CAN keep what they
//! name, and do nothing else with it: what a socket hears is said by bind(2).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::{general as linux, net};

use super::interface;
use crate::{abi::Errno, files::socket::Foreign, remote};

/// The number of the interface that was named; 0 if none was.
pub struct Device(AtomicU32);

/// The interface of the realm that a value of SO_BINDTODEVICE names.
fn named(value: &[u8]) -> Option<u32> {
    let value = &value[..value.len().min(net::IFNAMSIZ as usize - 1)];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    interface::by_name(&value[..end]).map(|interface| interface.index())
}

/// Whether setting an option names an interface of the realm.
pub fn is_local_by(level: u32, name: u32, value: &[u8]) -> bool {
    (level, name) == (net::SOL_SOCKET, net::SO_BINDTODEVICE) && named(value).is_some()
}

impl Device {
    /// That of a socket of Linux's.
    pub fn of(foreign: &Foreign) -> Result<Self, Errno> {
        let index = foreign.number(net::SOL_SOCKET, net::SO_BINDTOIFINDEX)?;
        Ok(Self(AtomicU32::new(index)))
    }

    /// getsockopt(2) with SOL_SOCKET; `None` if it is neither of these options.
    pub fn get(&self, name: u32) -> Option<Result<Vec<u8>, Errno>> {
        let index = self.0.load(Ordering::Relaxed);
        match name {
            net::SO_BINDTOIFINDEX => Some(Ok(index.to_ne_bytes().to_vec())),
            net::SO_BINDTODEVICE if index == 0 => Some(Ok(Vec::new())),
            net::SO_BINDTODEVICE => {
                let named = interface::by_index(index).ok_or(Errno::ENODEV);
                Some(named.map(|interface| interface.name().bytes().chain([0]).collect()))
            }
            _ => None,
        }
    }

    /// setsockopt(2) with SOL_SOCKET; `None` if it is neither of these options. May sleep.
    pub fn set(&self, name: u32, value: &[u8]) -> Option<Result<(), Errno>> {
        match name {
            net::SO_BINDTODEVICE | net::SO_BINDTOIFINDEX => Some(self.name(name, value)),
            _ => None,
        }
    }

    fn name(&self, option: u32, value: &[u8]) -> Result<(), Errno> {
        let index = match option {
            net::SO_BINDTOIFINDEX => {
                let index = u32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
                Some(index).filter(|index| *index <= i32::MAX as u32).ok_or(Errno::EINVAL)?
            }
            _ if value.first().is_none_or(|&byte| byte == 0) => 0,
            _ => named(value).ok_or(Errno::ENODEV)?,
        };
        // Linux has nobody change it who may not use raw sockets.
        if self.0.load(Ordering::Relaxed) != 0 && !remote::is_capable(linux::CAP_NET_RAW)? {
            return Err(Errno::EPERM);
        }
        self.0.store(index, Ordering::Relaxed);
        Ok(())
    }
}
