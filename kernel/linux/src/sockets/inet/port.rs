// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which port a socket has.

use core::net::SocketAddrV4;

use crtos_core::{arch, task::Mutex};
use crtos_inet::ports::{Binding, Ports, Refusal};
use linux_raw_sys::{general as linux, net};

use super::options::Options;
use crate::{abi::Errno, remote, sockets::common::Common};

/// Ports below that are the administrator's.
const FIRST_COMMON: u16 = 1024;

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Taken => Errno::EADDRINUSE,
            Refusal::TooMany => Errno::ENOBUFS,
        }
    }
}

/// EACCES if a port is the administrator's and the program is not its.
pub fn check(port: u16) -> Result<(), Errno> {
    if port == 0 || port >= FIRST_COMMON {
        return Ok(());
    }
    match remote::is_capable(linux::CAP_NET_BIND_SERVICE)? {
        true => Ok(()),
        false => Err(Errno::EACCES),
    }
}

/// A number to begin with in looking for a free port.
pub fn draw() -> u16 {
    arch::random() as u16
}

/// Has others share a port as the options say.
pub fn let_share(binding: &mut Binding, common: &Common, options: &Options) {
    binding.shares = common.has(net::SO_REUSEADDR);
    binding.balances = options.balances();
}

/// Takes the port of an address for a socket with these options, or any if that is 0.
pub fn take<T: Clone + PartialEq>(
    ports: &Mutex<Ports<T>>,
    local: SocketAddrV4,
    common: &Common,
    options: &Options,
    socket: T,
) -> Result<Binding, Errno> {
    let mut binding = Binding { interface: options.device(), ..Binding::new(local) };
    let_share(&mut binding, common, options);
    let mut ports = ports.lock();
    if local.port() == 0 {
        let port = ports.free(binding, draw()).ok_or(Errno::EADDRINUSE)?;
        binding.local.set_port(port);
    }
    ports.bind(binding, socket)?;
    Ok(binding)
}
