// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions come and go while the realm runs. All of this is done by the housekeeper, when Linux
//! asks: it answers when it has looked.

use alloc::{format, string::String, vec::Vec};

use crtos_abi::device::MAX_DEVICES;
use crtos_channel::{Channel, Had, Wanted};

use crtos_core::{devices::pci, info};

use super::{
    PLACES,
    place::{Device, Place, path_of},
};
use crate::{
    devices::{described, net, pins, ports, users::users},
    files::Object as File,
    process::threads,
};

/// Sees to it that programs find those functions that Linux wants the realm to have, and no others,
/// and tells what came of it. May sleep.
pub fn look(channel: Channel) {
    let is_others = |wanted: &Wanted| {
        !wanted.description.is_none() || net::is_ours(wanted.function) || ports::is_range(wanted)
    };
    let is_meant = |wanted: &Wanted| wanted.group.is_none() && !is_others(wanted);
    let wanted = |index| channel.wanted_device(index).filter(is_meant);
    // New functions may have the addresses of old ones.
    (0..MAX_DEVICES).for_each(|index| leave(index, wanted(index)));
    for (index, place) in PLACES.iter().enumerate() {
        let wanted = wanted(index);
        come(index, wanted);
        let Some(place) = place.get() else {
            channel.tell_device(index, None);
            continue;
        };
        let there = {
            let device = place.device.lock();
            device.as_ref().map(|device| (device.wanted, device.objects().to_vec()))
        };
        let users = match &there {
            Some((has, objects)) if wanted.is_none() => users(objects, |file| {
                matches!(file, File::Character(special)
                    if special.status.device_of_file == has.number)
            }),
            _ => Vec::new(),
        };
        let had = there.map(|(has, _)| Had { function: has.function, users: &users });
        channel.tell_device(index, had);
    }
}

/// The function at a place goes, if it is there and Linux does not want it there: at once if the
/// realm has it no more, and otherwise when nobody uses it.
fn leave(index: usize, wanted: Option<Wanted>) {
    let Some(place) = PLACES[index].get() else { return };
    let lost = {
        let mut device = place.device.lock();
        let Some(has) = &*device else { return };
        let lost = wanted.is_some_and(|wanted| wanted != has.wanted)
            || !pci::is_there(has.wanted.function);
        if !lost && (wanted.is_some() || has.is_used()) {
            return;
        }
        let function = address(has.wanted);
        info!("{function}: {}", if lost { "lost" } else { "given back" });
        has.forget();
        place.line.stop();
        place.line.set(None);
        place.renew("");
        *device = None;
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
    let is_platform = pci::is_platform(wanted.function);
    let has_pin = wanted.line.is_some() && !is_platform;
    // Functions may share a line with each other.
    let is_shared = |line: u32| is_platform && pins::has(line);
    if device.is_none()
        && place.prepare(has_pin)
        && wanted.line.is_none_or(|line| is_free(line.number, index) && !is_shared(line.number))
        && let Some(found) = Device::find(wanted, place)
    {
        info!("{}: programs can open it", address(wanted));
        place.renew(if has_pin { String::new() } else { address(wanted) });
        place.line.set(wanted.line.filter(|_| is_platform));
        *device = Some(found);
        crate::devices::found();
    }
}

/// Whether no other device than a function has that line, whatever Linux says.
fn is_free(line: u32, place: usize) -> bool {
    let mut others = (0..MAX_DEVICES).filter(|&index| index != place);
    !described::has_line(line) && !others.any(|index| has_line_at(index, line))
}

/// Whether a platform device has that line.
pub fn has_line(line: u32) -> bool {
    (0..MAX_DEVICES).any(|index| has_line_at(index, line))
}

fn has_line_at(index: usize, line: u32) -> bool {
    let has_it = |place: &Place| place.line.get().is_some_and(|its| its.number == line);
    PLACES[index].get().is_some_and(has_it)
}

/// The address of a function, as it is written; of a platform device its file in `/dev`.
fn address(wanted: Wanted) -> String {
    match pci::is_platform(wanted.function) {
        true => path_of(wanted),
        false => format!("{}", pci::address(wanted.function)),
    }
}
