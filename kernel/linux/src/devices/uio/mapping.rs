// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers of functions by files of Linux: `/sys/bus/pci/devices/*/resourceN` and `/dev/mem`.
//!
//! These files stay Linux's, and Linux says who may map what of them: it maps the same part for the
//! shadow first, which nobody touches. So the realm permits no more than Linux does, whatever Linux
//! was configured to (STRICT_DEVMEM, lockdown). What is mapped there tells which registers these
//! are.

use alloc::sync::Arc;

use crtos_channel::Operation;
use linux_raw_sys::general as linux;
use spin::Once;

use crtos_core::mm::{
    object::Object,
    space::{AddressSpace, Backing, Protection},
};

use super::PLACES;
use crate::{
    abi::{Errno, linux_result},
    memory::{
        contents::{self, Status},
        mappings::Request,
    },
    remote,
};

/// The registers of a function of the realm that a program is about to map by a descriptor of
/// Linux; `None` if that shows no such ones. May sleep; asks Linux only if the realm has had
/// functions.
pub fn registers(space: &AddressSpace, request: &Request) -> Result<Option<Backing>, Errno> {
    if PLACES.iter().all(|place| !Once::is_completed(place)) {
        return Ok(None);
    }
    let Request { map, kind, grows, fd, offset, .. } = request;
    let status = Status::of(*fd)?;
    if !status.file.maps_registers {
        return Ok(None);
    }
    let mirror = space.reserve_mirror(map.length)?;
    let grows = if *grows { linux::MAP_GROWSDOWN } else { 0 };
    let (rights, flags) = (map.protection.bits().into(), (kind | grows | linux::MAP_FIXED).into());
    let args = [mirror.get(), map.length, rights, flags, *fd, *offset];
    let told = remote::linux(linux::__NR_mmap, &args)
        .map(|_| remote::request_words(Operation::Registers { mirror }));
    contents::unmap_mirror(space, mirror, map.length);
    let (result, words) = told??;
    let Ok(function) = linux_result(result) else { return Ok(None) };
    let is_shared = *kind != linux::MAP_PRIVATE;
    if !is_shared && map.protection.contains(Protection::WRITE) {
        return Err(Errno::EINVAL);
    }
    let (object, offset) = find(function, words[0], map.length).ok_or(Errno::ENODEV)?;
    let may_write = is_shared && status.may_write();
    Ok(Some(Backing::shared(object.into(), offset, may_write)))
}

/// The memory of a function in which so many bytes are from an address of the realm on, and where
/// in it they begin.
fn find(function: u64, address: u64, length: u64) -> Option<(Arc<Object>, u64)> {
    PLACES.iter().filter_map(Once::get).find_map(|place| {
        let device = place.device.lock();
        let device = device.as_ref().filter(|device| u64::from(device.function()) == function)?;
        device.objects().iter().find_map(|object| {
            let offset = object.registers()?.offset_of(address)?;
            let is_within = length <= object.limit().saturating_sub(offset);
            is_within.then(|| (object.clone(), offset))
        })
    })
}
