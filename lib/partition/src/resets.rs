// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports by which software resets the machine, switches it off, or has a watchdog do so: what
//! becomes of Linux's accesses to them beside a locked cell.
//!
//! Each byte of an access is looked at by itself, as the chipset does. What the ports are is known
//! since the PC, or told by ACPI's FADT (ACPI 6.5, 4.8.3.6 and 4.8.3.7) and by the chipset.

use core::ops::RangeInclusive;

use crtos_abi::image::{LaunchInfo, MAX_WATCHDOG_PORTS};

use crate::configuration;

/// Reset control of the chipset: bit 2 resets.
const RESET_CONTROL: u16 = 0xcf9;
/// System control port A: bit 0 resets the processors.
const SYSTEM_CONTROL: u16 = 0x92;
/// Commands of the keyboard controller.
const KEYBOARD_COMMAND: u16 = 0x64;
/// Super I/O chips are configured here, and so are the watchdogs in them.
const SUPER_IO: [RangeInclusive<u16>; 2] = [0x2e..=0x2f, 0x4e..=0x4f];
/// SLP_EN, in the byte that has it.
const SLEEP_ENABLE: u8 = 1 << 5;

/// An access to I/O ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The first port.
    pub first: u16,
    /// Number of ports, and bytes: 1, 2 or 4.
    pub width: u16,
    /// What is written, in the lower bytes; `None` for a read.
    pub written: Option<u32>,
}

impl Access {
    /// The ports that it reaches.
    pub fn ports(&self) -> RangeInclusive<u16> {
        self.first..=self.first.saturating_add(self.width - 1)
    }

    /// What is written to each port.
    fn bytes(&self) -> impl Iterator<Item = (u16, u8)> {
        self.ports().zip(self.written.map(u32::to_le_bytes).into_iter().flatten())
    }
}

/// What becomes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is carried out.
    Free,
    /// It has no effect: what is written is lost.
    Lost,
    /// It would end the machine.
    Ends,
}

/// The ports of a machine.
#[derive(Clone, Debug, Default)]
pub struct Resets {
    /// ACPI's reset register, and the value that resets.
    reset: Option<(u16, u8)>,
    /// Bytes with SLP_EN.
    sleep: [Option<u16>; 3],
    /// The chipset's watchdog.
    watchdog: Option<RangeInclusive<u16>>,
}

impl Resets {
    /// The ports that the module names, if they can be ports.
    pub fn new(info: &LaunchInfo) -> Option<Self> {
        let port = |word: u32| u16::try_from(word).map(|port| (port != 0).then_some(port)).ok();
        let mut resets = Self::default();
        if let Some(reset) = port(info.reset_port)? {
            resets.reset = Some((reset, u8::try_from(info.reset_value).ok()?));
        }
        for (place, word) in resets.sleep.iter_mut().zip(info.sleep_ports) {
            *place = port(word)?;
        }
        if let Some(first) = port(info.watchdog_port)? {
            let count = info.watchdog_ports;
            if !(1..=MAX_WATCHDOG_PORTS).contains(&count) {
                return None;
            }
            resets.watchdog = Some(first..=first.checked_add(count as u16 - 1)?);
        }
        Some(resets)
    }

    /// All ports to which an access is looked at.
    pub fn ports(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        let known = [RESET_CONTROL, SYSTEM_CONTROL, KEYBOARD_COMMAND];
        let told =
            self.reset.map(|(port, _)| port).into_iter().chain(self.sleep.into_iter().flatten());
        let single = known.into_iter().chain(told).map(|port| port..=port);
        single.chain(SUPER_IO).chain(self.watchdog.clone())
    }

    /// What becomes of an access.
    pub fn judge(&self, access: &Access) -> Verdict {
        // Accesses of another width are to other registers.
        if access.first == configuration::ADDRESS && access.width == 4 {
            return Verdict::Free;
        }
        if access.bytes().any(|(port, byte)| self.ends(port, byte)) {
            Verdict::Ends
        } else if access.bytes().any(|(port, byte)| self.is_lost(port, byte)) {
            Verdict::Lost
        } else {
            Verdict::Free
        }
    }

    /// Tells whether this byte resets the machine there, or switches it off.
    fn ends(&self, port: u16, byte: u8) -> bool {
        match port {
            RESET_CONTROL if byte & 1 << 2 != 0 => true,
            SYSTEM_CONTROL if byte & 1 << 0 != 0 => true,
            // Pulses lines of the output port, line 0 among them, which resets.
            KEYBOARD_COMMAND if byte & 0xf1 == 0xf0 => true,
            _ => {
                self.reset == Some((port, byte))
                    || self.sleep.contains(&Some(port)) && byte & SLEEP_ENABLE != 0
            }
        }
    }

    /// Tells whether this byte is kept from that port: it would arm a watchdog, or announce a write
    /// to the output port of the keyboard controller, which has the line that resets.
    fn is_lost(&self, port: u16, byte: u8) -> bool {
        const WRITE_OUTPUT_PORT: u8 = 0xd1;
        port == KEYBOARD_COMMAND && byte == WRITE_OUTPUT_PORT
            || SUPER_IO.iter().chain(&self.watchdog).any(|range| range.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crtos_abi::image::{
        Configuration, Iommu, MAX_CONFIGURATIONS, MAX_HYPERVISOR_BLOCKS, MAX_IOMMUS,
    };

    /// As on a PC of the time.
    fn resets() -> Resets {
        Resets {
            reset: Some((0xb010, 0x5a)),
            sleep: [Some(0x605), None, Some(0x700)],
            watchdog: Some(0x660..=0x67f),
        }
    }

    fn judge(first: u16, width: u16, written: u32) -> Verdict {
        resets().judge(&Access { first, width, written: Some(written) })
    }

    #[test]
    fn what_ends_the_machine() {
        for (port, width, value) in [
            (0xcf9, 1, 0x06),
            (0xcf9, 1, 0x04),
            (0xcf8, 2, 0x0e00),
            (0xcf6, 4, 0x0600_0000),
            (0x92, 1, 0x03),
            (0x91, 2, 0x0100),
            (0x64, 1, 0xfe),
            (0x64, 1, 0xf0),
            (0x61, 4, 0xfe00_0000),
            (0xb010, 1, 0x5a),
            (0x604, 2, 0x3400),
            (0x605, 1, 0x20),
            (0x602, 4, 0x2000_0000),
            (0x700, 1, 0x34),
        ] {
            assert_eq!(judge(port, width, value), Verdict::Ends, "{port:#x} {width} {value:#x}");
        }
    }

    #[test]
    fn what_is_harmless() {
        for (port, width, value) in [
            (0xcf8, 4, 0xffff_ffff),
            (0xcf9, 1, 0xfb),
            (0x92, 1, 0x02),
            (0x64, 1, 0xff),
            (0x64, 1, 0xad),
            (0x60, 1, 0xfe),
            (0xb010, 1, 0x5b),
            (0x604, 2, 0x1401),
            (0x604, 1, 0xff),
        ] {
            assert_eq!(judge(port, width, value), Verdict::Free, "{port:#x} {width} {value:#x}");
        }
    }

    #[test]
    fn what_is_lost() {
        for (port, width, value) in [
            (0x64, 1, 0xd1),
            (0x63, 2, 0xd100),
            (0x668, 2, 0),
            (0x65f, 2, 0),
            (0x2e, 1, 0x87),
            (0x2f, 1, 0),
            (0x4e, 1, 0x87),
            (0x4d, 4, 0),
        ] {
            assert_eq!(judge(port, width, value), Verdict::Lost, "{port:#x} {width} {value:#x}");
        }
        // What would end the machine does so wherever the rest of it goes.
        let both = Resets { watchdog: Some(0x605..=0x606), ..resets() };
        let access = Access { first: 0x605, width: 2, written: Some(0x34) };
        assert_eq!(both.judge(&access), Verdict::Ends);
    }

    #[test]
    fn each_port_that_is_judged_exits() {
        let ports: Vec<_> = resets().ports().collect();
        for port in [0..0x100, 0x600..0x710, 0xcf0..0xd00, 0xb000..0xb020].into_iter().flatten() {
            let exits = ports.iter().any(|range| range.contains(&port));
            let is_judged = (0..=0xff).any(|byte| judge(port, 1, byte) != Verdict::Free);
            assert_eq!(exits, is_judged, "{port:#x}");
        }
    }

    const NO_CONFIGURATION: Configuration =
        Configuration { function: 0, first: 0, last: 0, present: 0 };

    /// A launch that names none.
    fn info() -> LaunchInfo {
        LaunchInfo {
            host_cr3: 0,
            leave_trampoline: 0,
            report_address: 0,
            memory_end: 0,
            tsc_khz: 0,
            x2apic: 0,
            cpu_count: 0,
            block_count: 0,
            smi_port: 0,
            reset_port: 0,
            reset_value: 0,
            sleep_ports: [0; 3],
            dma_checked: 0,
            reserved: 0,
            watchdog_port: 0,
            watchdog_ports: 0,
            io_apics: [0; 32],
            hpets: [0; 8],
            iommus: [Iommu { address: 0, size: 0, kind: 0, function: 0 }; MAX_IOMMUS],
            configurations: [NO_CONFIGURATION; MAX_CONFIGURATIONS],
            mmconfig: 0,
            mmconfig_buses: 0,
            blocks: [0; MAX_HYPERVISOR_BLOCKS],
            apic_ids: [0; 256],
        }
    }

    proptest! {
        /// A read changes nothing, and an access that is not free reaches a port that is looked at.
        #[test]
        fn what_is_judged_exits(
            first in prop_oneof![
                any::<u16>(), 0u16..0x100, 0x600u16..0x710, 0xcf0u16..0xd00, 0xb000u16..0xb020,
            ],
            width in prop::sample::select(&[1u16, 2, 4][..]),
            value: u32,
        ) {
            let resets = resets();
            let read = Access { first, width, written: None };
            prop_assert_eq!(resets.judge(&read), Verdict::Free);
            if judge(first, width, value) != Verdict::Free {
                let exits = |port| resets.ports().any(|range| range.contains(&port));
                prop_assert!(read.ports().any(exits));
            }
        }

        /// Numbers that are no ports are refused.
        #[test]
        fn ports_are_checked(
            port in prop_oneof![any::<u32>(), 0u32..0x1_0000, 0xffe0u32..0x1_0020],
            count in prop_oneof![any::<u32>(), 0u32..40],
            value: u32,
            sleep in 0usize..3,
        ) {
            let mut info = info();
            prop_assert!(Resets::new(&info).is_some());
            info.sleep_ports[sleep] = port;
            prop_assert_eq!(Resets::new(&info).is_some(), port < 0x1_0000);
            info.sleep_ports[sleep] = 0;
            info.watchdog_port = port;
            info.watchdog_ports = count;
            let in_range = (1..=32).contains(&count) && port + count <= 0x1_0000;
            prop_assert_eq!(Resets::new(&info).is_some(), port == 0 || port < 0x1_0000 && in_range);
            info.watchdog_port = 0;
            info.reset_port = port % 0x1_0000;
            info.reset_value = value;
            let is_byte = u8::try_from(value).is_ok();
            prop_assert_eq!(Resets::new(&info).is_some(), info.reset_port == 0 || is_byte);
        }
    }
}
