// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes and numbers that follow from the structures.

use crtos_abi::{
    boot::*, cell::*, channel::*, device::DEVICE_MEMORY, image::*, ioctl::*, link::*, report::*,
    share::*, *,
};
use std::mem::{align_of, offset_of, size_of};

/// `_IOC(direction, type, number, size)` of Linux.
fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | IOC_TYPE << 8 | number
}
const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

#[test]
fn ioctl_numbers() {
    assert_eq!(IOC_ENABLE, ioc(NONE, 1, 0));
    assert_eq!(IOC_DISABLE, ioc(NONE, 2, 0));
    assert_eq!(
        IOC_CELL_CREATE,
        ioc(READ | WRITE, 3, size_of::<CreateCell>()),
        "{:#x}",
        ioc(READ | WRITE, 3, size_of::<CreateCell>())
    );
    assert_eq!(IOC_CELL_LOAD, ioc(WRITE, 4, size_of::<LoadCell>()));
    assert_eq!(IOC_CELL_START, ioc(WRITE, 5, size_of::<StartCell>()));
    assert_eq!(IOC_CELL_STOP, ioc(NONE, 6, 0));
    assert_eq!(IOC_CELL_DESTROY, ioc(NONE, 7, 0));
    assert_eq!(IOC_KEEP, ioc(NONE, 8, 0));
    assert_eq!(IOC_ETHERNET_ADD, ioc(READ | WRITE, 0x0e, size_of::<CellEthernet>()));
    assert_eq!(IOC_INFO, ioc(READ, 0x10, size_of::<Info>()));
    assert_eq!(IOC_REPORT, ioc(WRITE, 0x11, size_of::<Transfer>()));
    assert_eq!(IOC_CHANNEL, ioc(WRITE, 0x12, size_of::<Transfer>()));
    assert_eq!(IOC_REASON, ioc(READ, 0x13, size_of::<Reason>()));
    assert_eq!(IOC_DOORBELL, ioc(NONE, 0x14, 0));
    assert_eq!(IOC_CHANNEL_WRITE, ioc(WRITE, 0x15, size_of::<Transfer>()));
    assert_eq!(IOC_TRACE, ioc(NONE, 0x16, 0));
    assert_eq!(IOC_LINK_CREATE, ioc(READ | WRITE, 0x18, size_of::<Link>()));
    assert_eq!(IOC_LINK_DESTROY, ioc(READ | WRITE, 0x19, size_of::<Link>()));
    assert_eq!(IOC_LINK_INFO, ioc(READ | WRITE, 0x1a, size_of::<Link>()));
    assert_eq!(IOC_LINK_JOIN, ioc(READ | WRITE, 0x1b, size_of::<LinkJoin>()));
    assert_eq!(IOC_SPAWN, ioc(READ | WRITE, 0x20, size_of::<Spawn>()));
    assert_eq!(IOC_THREAD, ioc(NONE, 0x21, 0));
    assert_eq!(
        IOC_REMOTE,
        ioc(READ | WRITE, 0x22, size_of::<Remote>()),
        "{:#x}",
        ioc(READ | WRITE, 0x22, size_of::<Remote>())
    );
    assert_eq!(IOC_SIGNAL, ioc(WRITE, 0x23, size_of::<[u64; 6]>()));
    assert_eq!(IOC_REOPEN, ioc(NONE, 0x24, 0));
    assert_eq!(IOC_COPY, ioc(WRITE, 0x25, size_of::<CopyRange>()));
}

/// As decision 0058 has it: a number that changes here leaves realms of other versions up.
#[test]
fn what_takes_a_realm_down_stays_as_it_is() {
    assert_eq!([IOC_DISABLE, IOC_CELL_DESTROY, IOC_INFO], [0xc702, 0xc707, 0x8040_c710]);
    assert_eq!((CELL_FORCE, NO_CELL, MAX_CELLS), (1 << 31, u32::MAX, 16));
    let fields = [
        offset_of!(Info, abi_version),
        offset_of!(Info, enabled),
        offset_of!(Info, cells),
        offset_of!(Info, realm),
        offset_of!(Info, processes),
        offset_of!(Info, cell_cpus),
    ];
    assert_eq!(fields, [0, 4, 8, 12, 24, 32]);
}

#[test]
fn areas_fit() {
    assert!(LAUNCH_INFO_OFFSET as usize >= size_of::<ImageHeader>());
    assert!(LAUNCH_INFO_OFFSET as usize + size_of::<LaunchInfo>() <= PAGE_SIZE as usize);
    assert!(size_of::<Report>() as u64 + u64::from(REPORT_LOG_SIZE) <= REPORT_SIZE);
    assert!(REPORT_LOG_SIZE.is_power_of_two() && KERNEL_LOG_SIZE.is_power_of_two());
    assert!(size_of::<Channel>() as u64 <= LARGE_PAGE_SIZE);
    assert!(size_of::<BootInfo>() as u64 <= PAGE_SIZE);
    assert!(size_of::<CellConfig>() as u64 <= PAGE_SIZE);
    const {
        assert!(BOOT_INFO_ADDRESS + PAGE_SIZE <= INITIAL_TABLES);
        assert!(INITIAL_TABLES + INITIAL_TABLES_SIZE <= IMAGE_ADDRESS);
        assert!(MAX_PRIVATE <= CHANNEL_ADDRESS && CHANNEL_ADDRESS + LARGE_PAGE_SIZE <= SHARED_POOL);
        assert!(CHANNEL_ADDRESS + LARGE_PAGE_SIZE <= LINK_MEMORY);
        assert!(LINK_MEMORY + MAX_LINKS as u64 * LINK_SIZE_MAX == SHARE_WINDOW);
        assert!((SHARE_WINDOW_END - SHARE_WINDOW) / PAGE_SIZE == PLACES as u64);
        assert!(SHARE_WINDOW_END == DEVICE_MEMORY && PLACE_WORDS * 64 == PLACES);
        assert!(size_of::<TimePage>() as u64 == PAGE_SIZE);
        assert!(SLOT_WORDS * 64 == SLOTS && REVOCATION_WORDS * 64 == REVOCATIONS);
    }
}

#[test]
fn a_slot_has_one_owner_a_line() {
    assert_eq!(size_of::<Slot>(), 256);
    assert_eq!(align_of::<Slot>(), 64);
    assert_eq!(offset_of!(Slot, info), 128);
    assert_eq!(offset_of!(Slot, thread_state), 192);
}

#[test]
fn an_end_of_a_ring_has_its_line() {
    assert_eq!(offset_of!(EthernetRing, taken), 64);
    assert_eq!(offset_of!(EthernetRing, lengths), 128);
    assert_eq!(offset_of!(EthernetRing, bytes) % 64, 0);
    assert_eq!(offset_of!(Ethernet, realm_up), 64);
    // Linux is rung for room when half of the ring is free: the longest frame finds it then, also
    // where it does not fit before the end.
    const LONGEST: usize = ETHERNET_LONGEST.div_ceil(ETHERNET_PLACE);
    const { assert!(2 * LONGEST - 1 <= ETHERNET_PLACES / 2 && ETHERNET_PLACES.is_power_of_two()) };
}

#[test]
fn no_hidden_padding() {
    assert_eq!(
        size_of::<CreateCell>(),
        32 + 32 + 16 + 16 + 8 + 8 * MAX_PORT_RANGES + 12 * MAX_MSR_RANGES + 4 * MAX_CELL_CPUS
    );
    assert_eq!(size_of::<Remote>(), 16 + 8 + 48);
    assert_eq!(size_of::<Info>(), 64);
}
