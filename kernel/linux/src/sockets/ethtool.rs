// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ethtool` asks of the driver of an interface (SIOCETHTOOL, `linux/ethtool.h`): the link,
//! the driver's name, and the kinds of time stamps, which are those by the kernel.

use crtos_abi::UserAddr;
use crtos_nic::stamping;

use crate::{
    abi::{Errno, SysResult},
    memory::user,
};

/// The request of ioctl(2), which also changes what a driver of Linux's offers.
pub const ETHTOOL: u32 = 0x8946;
/// Who drives it (`struct ethtool_drvinfo`), its bytes, and its name's place.
const GET_DRIVER: u32 = 3;
const DRIVER: usize = 196;
const DRIVER_NAME: usize = 4;
/// Whether the cable leads to somebody (`struct ethtool_value`).
const GET_LINK: u32 = 0xa;
/// Which time stamps there are (`struct ethtool_ts_info`), and its bytes.
const GET_STAMP_KINDS: u32 = 0x41;
const STAMP_KINDS: usize = 44;

/// Answers what a program asks by what is at an address; `has_link` says whether the cable leads to
/// somebody, where a driver of Linux's tells that. EOPNOTSUPP for anything else.
pub fn tell(at: UserAddr, has_link: impl FnOnce() -> Option<bool>) -> SysResult {
    let asked = user::read_u32(at)?;
    match asked {
        GET_LINK => {
            let has_link = has_link().ok_or(Errno::EOPNOTSUPP)?;
            user::write_u32(at.wrapping_add(4), has_link.into())?;
        }
        GET_DRIVER => {
            // As Linux shows it.
            const NAME: &[u8] = b"crtos";
            let mut told = [0; DRIVER];
            told[..4].copy_from_slice(&asked.to_ne_bytes());
            told[DRIVER_NAME..][..NAME.len()].copy_from_slice(NAME);
            user::write(at, &told)?;
        }
        GET_STAMP_KINDS => {
            let kinds = stamping::TX_SOFTWARE | stamping::RX_SOFTWARE | stamping::SOFTWARE;
            /// No card's clock.
            const NO_CLOCK: u32 = u32::MAX;
            let mut told = [0; STAMP_KINDS];
            let words = [asked, kinds, NO_CLOCK].map(u32::to_ne_bytes);
            told[..12].copy_from_slice(words.as_flattened());
            user::write(at, &told)?;
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}
