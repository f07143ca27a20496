// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of Linux's interface. A call's structure begins with the number of bytes that the
//! program has (`argsz`), and with flags.

/// Number `number` of the calls (`_IO(';', 100 + number)`).
const fn call(number: u32) -> u32 {
    0x3b64 + number
}

/// The number of `/dev/vfio/vfio`, as Linux encodes it: 10, 196.
pub const CONTAINER: u64 = 10 << 8 | 196;

/// Of a container: the version.
pub const GET_API_VERSION: u32 = call(0);
/// The version.
pub const API_VERSION: u64 = 0;
/// Of a container: whether it knows something.
pub const CHECK_EXTENSION: u32 = call(1);
/// Of a container: how its groups translate.
pub const SET_IOMMU: u32 = call(2);
/// Of a group: what holds for it.
pub const GROUP_GET_STATUS: u32 = call(3);
/// Of a group: it enters a container.
pub const GROUP_SET_CONTAINER: u32 = call(4);
/// Of a group: it leaves the container.
pub const GROUP_UNSET_CONTAINER: u32 = call(5);
/// Of a group: a descriptor of one of its functions.
pub const GROUP_GET_DEVICE_FD: u32 = call(6);
/// Of a function: what it has.
pub const DEVICE_GET_INFO: u32 = call(7);
/// Of a function: one of its regions.
pub const DEVICE_GET_REGION_INFO: u32 = call(8);
/// Of a function: one kind of its interrupts.
pub const DEVICE_GET_IRQ_INFO: u32 = call(9);
/// Of a function: who hears its interrupts.
pub const DEVICE_SET_IRQS: u32 = call(10);
/// Of a function: it is reset.
pub const DEVICE_RESET: u32 = call(11);
/// Of a container: what functions can name.
pub const IOMMU_GET_INFO: u32 = call(12);
/// Of a container: functions find memory of the program.
pub const IOMMU_MAP_DMA: u32 = call(13);
/// Of a container: functions find it no more.
pub const IOMMU_UNMAP_DMA: u32 = call(14);

/// Numbers for [`CHECK_EXTENSION`], of which the first two are also for [`SET_IOMMU`].
pub mod extension {
    /// `VFIO_TYPE1_IOMMU`.
    pub const TYPE1: u64 = 1;
    /// `VFIO_TYPE1v2_IOMMU`.
    pub const TYPE1V2: u64 = 3;
    /// `VFIO_UNMAP_ALL`.
    pub const UNMAP_ALL: u64 = 9;
}

/// Bytes of structures, as far as they have to be there.
pub mod size {
    /// `struct vfio_group_status`.
    pub const GROUP_STATUS: u32 = 8;
    /// `struct vfio_device_info`.
    pub const DEVICE_INFO: u32 = 16;
    /// `struct vfio_region_info`.
    pub const REGION_INFO: u32 = 32;
    /// `struct vfio_irq_info`.
    pub const IRQ_INFO: u32 = 16;
    /// `struct vfio_irq_set`.
    pub const IRQ_SET: u32 = 20;
    /// `struct vfio_iommu_type1_info`, to the sizes of pages.
    pub const IOMMU_INFO: u32 = 16;
    /// All of it.
    pub const WHOLE_IOMMU_INFO: u32 = 24;
    /// `struct vfio_iommu_type1_dma_map`.
    pub const DMA_MAP: u32 = 32;
    /// `struct vfio_iommu_type1_dma_unmap`.
    pub const DMA_UNMAP: u32 = 24;
}

/// The group can be used.
pub const GROUP_VIABLE: u32 = 1;
/// The group is in a container.
pub const GROUP_IN_CONTAINER: u32 = 2;
/// In a function's flags: it is one of PCI.
pub const DEVICE_PCI: u32 = 2;
/// `VFIO_PCI_NUM_REGIONS`.
pub const REGIONS: u32 = 9;
/// `VFIO_PCI_NUM_IRQS`.
pub const INTERRUPTS: u32 = 5;

/// The regions of a PCI function behind its base address registers, and their flags.
pub mod region {
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIGURATION: u32 = 7;
    /// Where the index begins in an offset.
    pub const SHIFT: u32 = 40;
    /// It can be read.
    pub const READ: u32 = 1;
    /// It can be written.
    pub const WRITE: u32 = 2;
    /// It can be mapped.
    pub const MAP: u32 = 4;
    /// Capabilities follow.
    pub const CAPABILITIES: u32 = 8;
    /// Id of the capability that says that a table of messages can be mapped, too.
    pub const TABLE_MAPPABLE: u32 = 3;
}

/// A header of a capability without contents: id and version 1, and that it is the last one.
pub const fn last_capability(id: u32) -> u64 {
    (id | 1 << 16) as u64
}

/// In a mapping's flags: functions may read.
pub const MAP_READ: u32 = 1;
/// In a mapping's flags: functions may write.
pub const MAP_WRITE: u32 = 2;
/// In the flags of [`IOMMU_UNMAP_DMA`]: all.
pub const UNMAP_ALL: u32 = 2;
/// In the flags of [`IOMMU_GET_INFO`]: sizes of pages are told, and capabilities.
pub const INFO_SIZES: u32 = 1;
/// There: capabilities.
pub const INFO_CAPABILITIES: u32 = 2;
/// Id of the capability that tells of addresses.
pub const INFO_RANGES: u32 = 1;
/// Id of the one that tells how many ranges can be mapped still.
pub const INFO_AVAILABLE: u32 = 3;
