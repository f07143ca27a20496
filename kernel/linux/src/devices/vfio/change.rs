// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions come and go while the realm runs, as those of UIO. A program that has one open is told
//! when Linux wants it back.

use alloc::vec::Vec;

use crtos_abi::device::MAX_DEVICES;
use crtos_channel::{Channel, Had, Wanted};

use crtos_core::{devices::pci, info};

use super::{
    PLACES,
    function::Function,
    group::Group,
    place::{Device, Place},
};
use crate::{
    devices::{described, users::users},
    files::Object as File,
    process::threads,
};

/// Sees to it that programs find those functions that Linux wants the realm to have, and no others,
/// and tells what came of it where there is one. Behind [`super::super::uio::look`], which tells
/// of all places. May sleep.
pub fn look(channel: Channel) {
    let is_meant =
        |wanted: &Wanted| wanted.group.is_some() && !super::super::net::is_ours(wanted.function);
    let wanted = |index| channel.wanted_device(index).filter(is_meant);
    // New functions may have the addresses of old ones.
    (0..MAX_DEVICES).for_each(|index| leave(index, wanted(index)));
    for (index, place) in PLACES.iter().enumerate() {
        let wanted = wanted(index);
        come(index, wanted);
        let Some(place) = place.get() else { continue };
        let there = {
            let device = place.device.lock();
            device.as_ref().map(|device| (device.wanted.function, device.objects()))
        };
        if let Some((function, objects)) = there {
            let users = match wanted {
                None => users(&objects, |file| is_of(place, file)),
                Some(_) => Vec::new(),
            };
            channel.tell_device(index, Some(Had { function, users: &users }));
        }
    }
}

/// The function at a place goes, if it is there and Linux does not want it there: at once if the
/// realm has it no more, and otherwise when nobody uses it.
fn leave(index: usize, wanted: Option<Wanted>) {
    let Some(place) = PLACES[index].get() else { return };
    let lost = {
        let mut there = place.device.lock();
        let Some(device) = &mut *there else { return };
        let function = device.wanted.function;
        let lost = wanted.is_some_and(|wanted| wanted != device.wanted) || !pci::is_there(function);
        if !lost && (wanted.is_some() || device.is_used()) {
            if wanted.is_none() {
                place.lines.request();
            }
            return;
        }
        let address = pci::address(function);
        info!("{address}: {}", if lost { "lost" } else { "given back" });
        // Whoever has its number next is to find nothing of its memory.
        device.leave();
        device.forget();
        place.renew();
        *there = None;
        lost
    };
    if lost {
        threads::each_process(|process| {
            process.space.withdraw_devices();
        });
    }
}

/// A function comes that Linux wants at a place, if nothing is there.
fn come(index: usize, wanted: Option<Wanted>) {
    let Some(wanted) = wanted else { return };
    let place = PLACES[index].call_once(Place::new);
    let mut device = place.device.lock();
    if device.is_none()
        && wanted.line.is_none_or(|line| !described::has_line(line.number))
        && let Some(found) = Device::find(wanted, place)
    {
        info!("{}: programs can open it by VFIO", pci::address(wanted.function));
        place.renew();
        *device = Some(found);
        crate::devices::found();
    }
}

/// Whether a file is the function that is at a place, or its group.
fn is_of(place: &'static Place, file: &File) -> bool {
    let File::Character(special) = file else { return false };
    let Some(any) = special.file.as_any() else { return false };
    if let Some(function) = any.downcast_ref::<Function>() {
        return function.member().is_at(place);
    }
    let group: Option<&Group> = any.downcast_ref();
    group.is_some_and(|group| group.members().iter().any(|member| member.is_at(place)))
}
