// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the module told at launch (see [`crtos_abi::image`]). It never changes afterwards.

use core::ops::{Range, RangeInclusive};

use crtos_abi::image::{
    Configuration, Iommu, LAUNCH_INFO_OFFSET, LaunchInfo, MAX_HYPERVISOR_BLOCKS, MMCONFIG_SCATTERED,
};
use crtos_abi::{LARGE_PAGE_SIZE, MAX_CPUS, PAGE_SIZE};
use crtos_partition::address::PhysAddr;
use crtos_partition::configuration;
use crtos_partition::ids::{ApicId, CpuIndex};
use crtos_partition::resets::Resets;
use spin::Once;

const _: () = assert!(LAUNCH_INFO_OFFSET as usize + size_of::<LaunchInfo>() <= PAGE_SIZE as usize);

unsafe extern "C" {
    /// Filled in by the module before it calls the hypervisor; out of its reach afterwards.
    static LAUNCH_INFO: LaunchInfo;
}

/// APIC id of a CPU that the machine does not have.
const NO_APIC: u32 = u32::MAX;

/// What the module told.
#[inline]
pub fn get() -> &'static LaunchInfo {
    // SAFETY: The linker script reserves the place; every bit pattern is valid; nobody writes to it
    // while the hypervisor runs.
    unsafe { &LAUNCH_INFO }
}

/// Tells whether Linux runs its local APICs in x2APIC mode.
#[inline]
pub fn x2apic() -> bool {
    get().x2apic != 0
}

/// The I/O port by which software raises system-management interrupts, if there is one.
pub fn smi_port() -> Option<u16> {
    u16::try_from(get().smi_port).ok().filter(|port| *port != 0)
}

/// The ports by which software resets the machine; `None` if what the module told of them makes no
/// sense.
pub fn resets() -> Option<Resets> {
    Resets::new(get())
}

/// The pages of the I/O APICs, with the index of each.
pub fn io_apics() -> impl Iterator<Item = (usize, PhysAddr)> {
    let pages = get().io_apics.iter().map(|page| PhysAddr::new(*page)).enumerate();
    pages.filter(|(_, page)| page.get() != 0)
}

/// The pages of the high-precision event timers.
pub fn hpets() -> impl Iterator<Item = PhysAddr> {
    get().hpets.iter().map(|page| PhysAddr::new(*page)).filter(|page| page.get() != 0)
}

/// The IOMMUs.
pub fn iommus() -> impl Iterator<Item = Iommu> {
    get().iommus.iter().copied().filter(|iommu| iommu.size != 0)
}

/// The pages of IOMMUs, none of which Linux reaches.
pub fn iommu_pages() -> impl Iterator<Item = PhysAddr> {
    iommus().flat_map(|iommu| {
        (0..iommu.size)
            .step_by(PAGE_SIZE as usize)
            .map(move |offset| PhysAddr::new(iommu.address + offset))
    })
}

/// Registers in configuration space that Linux may not write while an IOMMU is taken over.
pub fn configurations() -> impl Iterator<Item = Configuration> {
    get().configurations.iter().copied().filter(|registers| registers.present != 0)
}

/// The pages of the functions that have such registers, where configuration space is memory.
pub fn configuration_pages() -> impl Iterator<Item = PhysAddr> {
    configurations().filter_map(|registers| configuration_page(registers.function))
}

/// Where the configuration space of PCI segment 0 is memory, if it is, and in one place.
pub fn configuration_memory() -> Option<PhysAddr> {
    let known = !matches!(get().mmconfig, 0 | MMCONFIG_SCATTERED);
    known.then(|| PhysAddr::new(get().mmconfig))
}

/// The page of configuration space of a function, where that is memory.
pub fn configuration_page(function: u16) -> Option<PhysAddr> {
    let page = configuration_memory()? + configuration::page(function);
    is_configuration(page).then_some(page)
}

/// Tells whether configuration space is memory in several places.
pub fn has_scattered_configuration() -> bool {
    get().mmconfig == MMCONFIG_SCATTERED
}

/// Tells whether `page` may be a page of configuration space.
pub fn is_configuration(page: PhysAddr) -> bool {
    configuration_memory().is_some_and(|first| {
        let size = get().mmconfig_buses.min(256) * configuration::BUS_SIZE;
        page.get().checked_sub(first.get()).is_some_and(|offset| offset < size)
    })
}

/// Tells whether `page` may be one of those that [`has_controller`] tells of, or one of
/// configuration space.
pub fn is_special(page: PhysAddr) -> bool {
    has_controller(page, PAGE_SIZE) || is_configuration(page)
}

/// The I/O ports at which Linux's accesses exit as long as the hypervisor runs; no cell has one.
pub fn watched_ports() -> impl Iterator<Item = RangeInclusive<u16>> {
    let configuration = configurations().next().map(|_| configuration::PORTS);
    smi_port().map(|port| port..=port).into_iter().chain(configuration)
}

/// The pages of devices that Linux may only read.
pub fn read_only_devices() -> impl Iterator<Item = PhysAddr> {
    io_apics().map(|(_, page)| page).chain(hpets()).chain(configuration_pages())
}

/// Interrupt controllers and messages to them.
const INTERRUPT_PAGES: Range<u64> = 0xfec0_0000..0xff00_0000;

/// Tells whether a part of `size` bytes from `address` is an interrupt controller, a timer, an
/// IOMMU or configuration space of one, or whether messages go there.
pub fn has_controller(address: PhysAddr, size: u64) -> bool {
    // All of them lie close together, and most addresses lie elsewhere.
    static AROUND: Once<Range<u64>> = Once::new();
    let pages = || read_only_devices().chain(iommu_pages()).map(PhysAddr::get);
    let around = AROUND.call_once(|| {
        pages().fold(INTERRUPT_PAGES, |around, page| {
            around.start.min(page)..around.end.max(page + PAGE_SIZE)
        })
    });
    let end = address.get().saturating_add(size);
    let overlaps = |range: &Range<u64>| address.get() < range.end && range.start < end;
    overlaps(around)
        && (overlaps(&INTERRUPT_PAGES) || pages().any(|page| overlaps(&(page..page + PAGE_SIZE))))
}

/// Number of CPUs that the hypervisor knows.
pub fn cpu_count() -> usize {
    (get().cpu_count as usize).min(MAX_CPUS)
}

/// The CPUs that the hypervisor knows and the machine has: an interrupt command for another one
/// would be for everybody.
pub fn cpus() -> impl Iterator<Item = CpuIndex> {
    CpuIndex::first(cpu_count()).filter(|cpu| exists(*cpu))
}

/// The id of a CPU's local APIC.
#[inline]
pub fn apic_id(cpu: CpuIndex) -> ApicId {
    ApicId(get().apic_ids[cpu.get()])
}

/// Tells whether the machine has this CPU.
pub fn exists(cpu: CpuIndex) -> bool {
    apic_id(cpu) != ApicId(NO_APIC)
}

/// The blocks of 2 MiB that the hypervisor consists of.
pub fn blocks() -> impl Iterator<Item = PhysAddr> {
    let count = (get().block_count as usize).min(MAX_HYPERVISOR_BLOCKS);
    get().blocks[..count].iter().map(|block| PhysAddr::new(*block))
}

/// Tells whether `address` lies in the hypervisor's own blocks.
pub fn is_own(address: PhysAddr) -> bool {
    blocks().any(|block| block == address.align_down(LARGE_PAGE_SIZE))
}
