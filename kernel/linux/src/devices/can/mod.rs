// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN controllers: a channel of a Kvaser PCI card that the realm has is the interface that it was
//! under Linux.
//!
//! What an SJA1000 does is in the crate `crtos-can`, and what programs see of it in
//! [`crate::sockets::can`]. Here are its interrupts, and frames that wait to be sent.
//!
//! Linux describes one by `can,can0,c080-c0ff+c000-c07f,20,4:10:1/13/2/1/0/0`: the ports of the
//! controller and those of the card's bridge, the line on which it interrupts, the number by which
//! programs know the interface, how many frames wait to be sent, and the [`Settings`].
//!
//! | module | concept |
//! |---|---|
//! | [`channel`] | a channel: what its interrupt does, sending |
//! | [`bridge`] | what the card's bridge (AMCC S5920) lets pass |

mod bridge;
mod channel;

use alloc::{sync::Arc, vec::Vec};

use crtos_can::{Controller, Settings};
use crtos_core::{
    devices::{Device, ports::IoPorts},
    info, warn,
};

use super::{Driver, attendance::Attendance, described::Described, users::users};
use crate::{
    files::Object,
    sockets::can::{
        interface::{self, Interface},
        member,
    },
};
use bridge::Bridge;
use channel::{Channel, Facts};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver =
    Driver { start: || false, described: Some(("can", come)), open: |_, _| None };

/// The clock of a controller, in Hz.
const CLOCK: u32 = 8_000_000;

/// The registers of a controller, each a port.
struct Ports(IoPorts);

impl crtos_can::Ports for Ports {
    fn read(&mut self, register: u8) -> u8 {
        self.0.read(register)
    }

    fn write(&mut self, register: u8, value: u8) {
        self.0.write(register, value);
    }
}

fn come(device: Device<'_>) -> Option<Arc<dyn Described>> {
    let Device { name, more, .. } = device;
    let Some((facts, settings)) = facts(name, more) else {
        warn!("{name}: {more} does not describe a CAN controller");
        return None;
    };
    let attendance = Attendance::new(&device);
    let first = device.ports.first();
    let controller = Controller::find(Ports(device.ports), settings);
    let (Some(controller), Some(bridge)) = (controller, device.further_ports.map(Bridge::new))
    else {
        warn!("{name}: there is no SJA1000 at port {first:#x}");
        return None;
    };
    let Some(channel) = Channel::start(facts, attendance, controller, bridge) else {
        warn!("{name}: it does not start, or there are too many timers");
        return None;
    };
    let interface: Arc<dyn Interface> = channel.clone();
    if !interface::add(&interface) {
        warn!("{name}: there is one already, or there are too many");
        channel.end();
        return None;
    }
    channel.attend();
    let works = channel.attendance.words();
    let rate = settings.bit_rate(CLOCK);
    info!("{name}: SJA1000 at port {first:#x}, {rate} bit/s, {works}");
    Some(channel)
}

impl Described for Channel {
    fn leave(&self, is_lost: bool) -> bool {
        if !is_lost && !self.users().is_empty() {
            return false;
        }
        // Nobody finds it any more; somebody may just have found it, and is told that it is gone.
        interface::remove(self);
        self.end();
        member::lose(self.index());
        true
    }

    fn users(&self) -> Vec<u32> {
        let index = Some(self.index());
        users(&[], |file| matches!(file, Object::Socket(socket) if socket.interface() == index))
    }

    fn has_line(&self, line: u32) -> bool {
        self.attendance.has(line)
    }
}

/// What the last field of the description says.
fn facts(name: &str, text: &str) -> Option<(Facts, Settings)> {
    let mut fields = text.splitn(3, ':');
    let index = fields.next()?.parse().ok()?;
    let queue_length = fields.next()?.parse().ok()?;
    let settings = fields.next()?.parse().ok()?;
    Some((Facts { name: name.into(), index, queue_length }, settings))
}
