// SPDX-License-Identifier: MIT OR Apache-2.0
//! CAN controllers: a channel of a Kvaser PCI card that the realm has is the interface that it was
//! under Linux.
//!
//! What an SJA1000 does is in the crate `crtos-can`, and what programs see of it in
//! [`crate::sockets::can`]. Here are its interrupts, and frames that wait to be sent.
//!
//! The command line names one by `device=can,can0,c080-c0ff+c000-c07f,20,4:10:1/13/2/1/0/0`: the
//! ports of the controller and those of the card's bridge, the line on which it interrupts, the
//! number by which programs know the interface, how many frames wait to be sent, and the
//! [`Settings`].
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
    devices::{self, Device, ports::IoPorts},
    info, warn,
};

use super::Driver;
use crate::sockets::can::interface::{self, Interface};
use bridge::Bridge;
use channel::{Channel, Facts};

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, open: |_, _| None };

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

fn start() -> bool {
    let channels: Vec<_> = devices::of_driver("can").filter_map(start_channel).collect();
    interface::set(channels);
    // No file of Linux's leads to them.
    false
}

fn start_channel(device: Device) -> Option<Arc<dyn Interface>> {
    let Device { name, ports, further_ports, line, more } = device;
    let Some((facts, settings)) = facts(name, more) else {
        warn!("{name}: {more} does not describe a CAN controller");
        return None;
    };
    let first = ports.first();
    let controller = Controller::find(Ports(ports), settings);
    let (Some(controller), Some(bridge)) = (controller, further_ports.map(Bridge::new)) else {
        warn!("{name}: there is no SJA1000 at port {first:#x}");
        return None;
    };
    let Some(channel) = Channel::start(facts, line, controller, bridge) else {
        warn!("{name}: it does not start, or there are too many timers");
        return None;
    };
    let works = channel.attendance.words();
    let rate = settings.bit_rate(CLOCK);
    info!("{name}: SJA1000 at port {first:#x}, {rate} bit/s, {works}");
    Some(channel)
}

/// What the last field of the word says.
fn facts(name: &'static str, text: &str) -> Option<(Facts, Settings)> {
    let mut fields = text.splitn(3, ':');
    let index = fields.next()?.parse().ok()?;
    let queue_length = fields.next()?.parse().ok()?;
    let settings = fields.next()?.parse().ok()?;
    Some((Facts { name, index, queue_length }, settings))
}
