// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual Ethernet to Linux: a card whose memory is a part of the channel, and whose interrupt
//! is Linux's doorbell. It is there from the boot to the end.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_channel::Channel;
use crtos_core::{
    devices::pci::Switch,
    info,
    mm::{heap, layout},
    task, warn,
};
use crtos_nic::{
    card::{self, Place},
    ethernet::{BELL, LINK, LINUX_CPU, LINUX_END, RUNG_CPU, VirtualEthernet},
    settings::Settings,
};
use spin::Once;

use super::{
    bus::Bus,
    card::{Card, Driven, Refusal},
};
use crate::{
    remote::{self, end},
    sockets::net::interface::{self, Interface},
};

/// The card, as soon as it may interrupt.
static CARD: Once<Arc<dyn Card>> = Once::new();

/// The channel, as what the card is connected by.
struct Cable(Channel);

/// The registers of its end.
struct Registers {
    channel: Channel,
    /// Linux is to be rung.
    rings: AtomicBool,
}

impl card::Registers for Registers {
    fn read_bytes(&self, register: u32, _: usize) -> u32 {
        let is_up = || self.channel.ethernet_load(LINUX_END) != 0 && !end::has_ended();
        u32::from(register == LINK && is_up())
    }

    fn write_bytes(&self, register: u32, _: usize, _: u32) {
        if register == BELL {
            self.rings.store(true, Ordering::Relaxed);
        }
    }
}

/// What both reach.
struct Memory(Channel);

impl card::Memory for Memory {
    fn load(&self, offset: u64) -> u64 {
        self.0.ethernet_load(offset)
    }

    fn store(&self, offset: u64, value: u64) {
        self.0.ethernet_store(offset, value);
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        self.0.ethernet_read(offset, to);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.ethernet_write(offset, from);
    }
}

impl Bus for Cable {
    type Registers = Registers;
    type Memory = Memory;

    const BASE: u64 = 0;

    fn configuration(&self, _: u64) -> u32 {
        0
    }

    fn registers(&self, _: Place) -> Option<Registers> {
        Some(Registers { channel: self.0, rings: AtomicBool::new(false) })
    }

    fn memory(&self, _: u64) -> Option<Memory> {
        Some(Memory(self.0))
    }

    fn start(&mut self, _: u8) -> bool {
        self.0.ethernet_store(RUNG_CPU, task::current().cpu().get() as u64);
        true
    }

    fn stop(&mut self) {}

    fn switch(&self) -> Option<Switch> {
        None
    }

    fn part(_: &Registers, _: &Memory) {}

    fn settle(registers: &Registers) {
        // An exit, which may wait until Linux may be rung again: not with interrupts off.
        if registers.rings.load(Ordering::Relaxed) && registers.rings.swap(false, Ordering::Relaxed)
        {
            remote::ring_at(registers.channel, registers.channel.ethernet_cpu(LINUX_CPU));
        }
    }
}

/// Starts it, with these settings. At boot, in a thread.
pub(super) fn start(settings: &Settings<'static>) {
    match bring_up(settings) {
        Ok(card) => {
            info!("{}: {}, interface {}", settings.name, card.kind(), settings.index);
            CARD.call_once(|| card);
        }
        Err(reason) => warn!("{}: {reason}", settings.name),
    }
}

fn bring_up(settings: &Settings<'static>) -> Result<Arc<dyn Card>, Refusal> {
    let channel = layout::channel_view().ok_or("there is no channel")?;
    if CARD.is_completed() {
        return Err("there is one already");
    }
    if !heap::has_reserve() {
        return Err("memory runs low");
    }
    let card: Arc<dyn Card> = Driven::<VirtualEthernet, _>::start(Cable(channel), settings, 0)?;
    let interface: Arc<dyn Interface> = card.clone();
    if !interface::add(&interface) || !card.clone().run() {
        return Err("there are too many interfaces or threads");
    }
    interface.attend();
    Ok(card)
}

/// Linux's doorbell has rung, for whatever; says whether that has woken somebody. Interrupts off;
/// an access unless a frame waits.
pub(super) fn doorbell() -> bool {
    CARD.get().is_some_and(|card| card.has_interrupted())
}
