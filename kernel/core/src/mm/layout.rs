// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things lie in the cell and in the kernel's half of addresses.
//!
//! | from | what |
//! |---|---|
//! | [`DIRECT_MAP`] | all memory of the cell |
//! | [`STACK_AREA`] | kernel stacks, each with an unmapped guard below |
//! | [`DEVICE_AREA`] | registers of devices that the kernel itself uses |
//! | `KERNEL_BASE` | the image |

use core::ops::Range;
use core::ptr::NonNull;
use crtos_abi::boot::{
    BOOT_MAGIC, BootInfo, CHANNEL_ADDRESS, DIRECT_MAP, IMAGE_ADDRESS, KERNEL_BASE, MAX_PRIVATE,
};
use crtos_abi::channel::{CHANNEL_MAGIC, Channel};
use crtos_abi::{ABI_VERSION, LARGE_PAGE_SIZE, MAX_CELL_CPUS, PAGE_SIZE};
use crtos_vm::Frame;
use spin::Once;

/// Start of the kernel stacks.
pub const STACK_AREA: u64 = 0xffff_c000_0000_0000;
/// Start of the registers of devices, in the same entry of level 3.
pub const DEVICE_AREA: u64 = STACK_AREA + 0x40_0000_0000;
/// Bytes of address space for one stack: its guard and the stack at the end.
pub const STACK_SPACING: u64 = 0x1_0000;
/// Bytes of a stack.
pub const STACK_SIZE: u64 = 0x8000;

static INFO: Once<BootInfo> = Once::new();

/// What the cell was told at its start (checked).
pub fn boot_info() -> &'static BootInfo {
    match INFO.get() {
        Some(info) => info,
        None => panic!("the boot information is used before it was read"),
    }
}

/// The same, before it is certain that it was read.
pub fn boot_info_if_read() -> Option<&'static BootInfo> {
    INFO.get()
}

/// Checks and keeps the boot information. Its size fields bound all memory that the kernel touches.
pub fn set_boot_info(info: BootInfo) -> Result<(), &'static str> {
    if info.magic != BOOT_MAGIC {
        return Err("no boot information");
    }
    if info.abi_version != ABI_VERSION {
        return Err(
            "the boot information has another version: rebuild and reinstall all parts of crtos together",
        );
    }
    let whole = |size: u64| size.is_multiple_of(LARGE_PAGE_SIZE);
    if !whole(info.private_size) || info.private_size > MAX_PRIVATE {
        return Err("private memory is not a multiple of 2 MiB up to 2 GiB");
    }
    // The direct map's first table of level 3 covers 512 GiB.
    if !whole(info.shared_size) || info.shared_size > 0x70_0000_0000 {
        return Err("the pool is not a multiple of 2 MiB up to 448 GiB");
    }
    if info.image_end < image().end
        || !info.image_end.is_multiple_of(PAGE_SIZE)
        || info.image_end >= info.private_size
    {
        return Err("the end of the image lies outside private memory");
    }
    if info.cpu_count == 0 || info.cpu_count as usize > MAX_CELL_CPUS {
        return Err("the number of CPUs is out of range");
    }
    if info.tsc_khz == 0 {
        return Err("the frequency of the time stamp counter is 0");
    }
    if !(32..=255).contains(&info.doorbell_vector) {
        return Err("the doorbell's vector is out of range");
    }
    INFO.call_once(|| info);
    Ok(())
}

/// Where `frame` is mapped for the kernel.
pub fn direct(frame: Frame) -> *mut u8 {
    (DIRECT_MAP + frame.0) as *mut u8
}

/// The frame that begins at `address` of the direct map.
pub fn frame(address: *const u8) -> Frame {
    Frame(address as u64 - DIRECT_MAP)
}

/// The channel, if the cell has one. Everything in it is an allegation; access by volatile or
/// atomic operations only.
pub fn channel() -> Option<NonNull<Channel>> {
    (INFO.get()?.has_channel != 0)
        .then(|| NonNull::new(direct(Frame(CHANNEL_ADDRESS)).cast()))
        .flatten()
}

/// The channel as the remote path sees it, if there is one.
pub fn channel_view() -> Option<crtos_channel::Channel> {
    // SAFETY: the channel is mapped for as long as the cell lives, and reached by atomics alone.
    channel().map(|base| unsafe { crtos_channel::Channel::new(base) })
}

/// Whether Linux prepared the channel for this version.
pub fn channel_is_ours() -> Result<(), &'static str> {
    let Some(channel) = channel() else { return Ok(()) };
    // SAFETY: the channel is mapped; the fields are only read, once each.
    let (magic, version) = unsafe {
        (
            (&raw const (*channel.as_ptr()).magic).read_volatile(),
            (&raw const (*channel.as_ptr()).abi_version).read_volatile(),
        )
    };
    match (magic, version) {
        (CHANNEL_MAGIC, ABI_VERSION) => Ok(()),
        (CHANNEL_MAGIC, _) => Err(
            "the channel has another version: rebuild and reinstall all parts of crtos together",
        ),
        _ => Err("the channel is not initialised"),
    }
}

/// The image by rights, in addresses of the cell.
pub struct Image {
    /// Code.
    pub text: Range<u64>,
    /// Constants.
    pub rodata: Range<u64>,
    /// One past the last byte.
    pub end: u64,
}

/// The image.
pub fn image() -> Image {
    unsafe extern "C" {
        static text_end: u8;
        static rodata_end: u8;
        static image_end: u8;
    }
    let (text, rodata, end) =
        (&raw const text_end as u64, &raw const rodata_end as u64, &raw const image_end as u64);
    Image {
        text: IMAGE_ADDRESS..text - KERNEL_BASE,
        rodata: text - KERNEL_BASE..rodata - KERNEL_BASE,
        end: end - KERNEL_BASE,
    }
}

/// The top of the kernel stack of the thread with number `thread`.
pub const fn stack_top(thread: u16) -> u64 {
    STACK_AREA + (thread as u64 + 1) * STACK_SPACING
}

/// Whether `address` lies in the guard of a kernel stack.
pub const fn is_stack_guard(address: u64) -> bool {
    let Some(offset) = address.checked_sub(STACK_AREA) else { return false };
    offset < 0x1_0000 * STACK_SPACING && offset % STACK_SPACING < STACK_SPACING - STACK_SIZE
}
