// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions and platform devices that the realm is to have, and what the kernel tells Linux of
//! them.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crtos_abi::channel::{DESCRIPTION_LEN, NAMED_USERS, WANTED_LEVEL};
use crtos_abi::device::MAX_DEVICES;

use crate::channel::{Channel, word};

/// A function that the realm is to have, as Linux says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bus, device and function in 16 bits, or the number of a platform device.
    pub function: u16,
    /// What tells this time that the realm has it from others.
    pub serial: u32,
    /// The number (`st_rdev`) of the file that leads to it.
    pub number: u64,
    /// Its group, if programs are to drive it by VFIO.
    pub group: Option<u32>,
    /// The line by which it interrupts, if it is a platform device that does.
    pub line: Option<WantedLine>,
    /// What it is, if a driver of the kernel's drives it without a PCI function.
    pub description: Description,
}

/// What a device is that the kernel drives; empty for others. Linux may write anything there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Description([u8; DESCRIPTION_LEN]);

impl Description {
    /// Of none.
    pub const NONE: Self = Self([0; DESCRIPTION_LEN]);

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0[0] == 0
    }

    /// The text, if it is one of printable ASCII.
    pub fn text(&self) -> Option<&str> {
        let length = self.0.iter().position(|&byte| byte == 0)?;
        let is_text = |byte: &u8| byte.is_ascii_graphic();
        let bytes = &self.0[..length];
        bytes.iter().all(is_text).then(|| core::str::from_utf8(bytes).ok()).flatten()
    }
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// A line by which a platform device interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedLine {
    /// As Linux counts them.
    pub number: u32,
    /// It asks as long as the device does.
    pub is_level: bool,
}

impl WantedLine {
    fn of(word: u32) -> Option<Self> {
        let number = (word & !WANTED_LEVEL).checked_sub(1)?;
        Some(Self { number, is_level: word & WANTED_LEVEL != 0 })
    }
}

/// What the kernel has made of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Had<'a> {
    /// The function that programs can open, or have open still.
    pub function: u16,
    /// Process ids of those, if Linux does not want the realm to have it.
    pub users: &'a [u32],
}

impl Channel {
    /// What Linux wants at a place, below [`MAX_DEVICES`]. Whether the realm has the function, the
    /// hypervisor tells. Any context.
    pub fn wanted_device(&self, place: usize) -> Option<Wanted> {
        let place = place % MAX_DEVICES;
        let raw = word!(self, AtomicU32, wanted_devices[place].function).load(Ordering::Relaxed);
        let function = u16::try_from(raw.checked_sub(1)?).ok()?;
        let number = word!(self, AtomicU64, wanted_devices[place].number).load(Ordering::Relaxed);
        let serial = word!(self, AtomicU32, wanted_devices[place].serial).load(Ordering::Relaxed);
        let group = word!(self, AtomicU32, wanted_devices[place].group).load(Ordering::Relaxed);
        let line = word!(self, AtomicU32, wanted_devices[place].line).load(Ordering::Relaxed);
        let mut description = Description::NONE;
        for (index, byte) in description.0.iter_mut().enumerate() {
            let told = word!(self, AtomicU8, wanted_devices[place].description[index]);
            *byte = told.load(Ordering::Relaxed);
        }
        let (group, line) = (group.checked_sub(1), WantedLine::of(line));
        Some(Wanted { function, serial, number, group, line, description })
    }

    /// Tells what the kernel has at a place, before it answers.
    pub fn tell_device(&self, place: usize, had: Option<Had<'_>>) {
        let place = place % MAX_DEVICES;
        let store = |word: &AtomicU32, value: u32| word.store(value, Ordering::Relaxed);
        let function = had.map_or(0, |had| 1 + u32::from(had.function));
        let users = had.map_or(&[][..], |had| had.users);
        for (index, pid) in users.iter().take(NAMED_USERS).enumerate() {
            store(word!(self, AtomicU32, had_devices[place].users[index]), *pid);
        }
        store(word!(self, AtomicU32, had_devices[place].user_count), users.len() as u32);
        store(word!(self, AtomicU32, had_devices[place].function), function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::NonNull;
    use crtos_abi::channel as raw;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    #[test]
    fn what_linux_wants_and_what_the_kernel_has() {
        let layout = Layout::new::<raw::Channel>();
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<raw::Channel>();
        let base = NonNull::new(memory).expect("memory");
        // SAFETY: the memory is that of a channel, and stays until the end.
        let channel = unsafe { Channel::new(base) };
        assert_eq!(channel.wanted_device(3), None);
        // SAFETY: nobody else uses the memory.
        let (wanted, had) = unsafe {
            (&mut (*memory).wanted_devices[3], &(*memory).had_devices[3] as *const raw::HadDevice)
        };
        (wanted.function, wanted.serial, wanted.number) = (1 + 0x0310, 7, 0xf305);
        let expected = Wanted {
            function: 0x0310,
            serial: 7,
            number: 0xf305,
            group: None,
            line: None,
            description: Description::NONE,
        };
        assert_eq!(channel.wanted_device(3), Some(expected));
        wanted.group = 1 + 12;
        assert_eq!(channel.wanted_device(3), Some(Wanted { group: Some(12), ..expected }));
        wanted.group = 0;
        for (word, number, is_level) in [(11, 10, false), (WANTED_LEVEL | 17, 16, true)] {
            wanted.line = word;
            let line = Some(WantedLine { number, is_level });
            assert_eq!(channel.wanted_device(3), Some(Wanted { line, ..expected }));
        }
        wanted.line = WANTED_LEVEL;
        assert_eq!(channel.wanted_device(3), Some(expected));
        let told = || channel.wanted_device(3).expect("a device").description;
        assert!(told().is_none());
        wanted.description[..9].copy_from_slice(b"can,can0,");
        assert_eq!((told().text(), told().is_none()), (Some("can,can0,"), false));
        // Text that does not end, or is none.
        wanted.description[3] = b'\n';
        assert_eq!(told().text(), None);
        wanted.description = [b'x'; DESCRIPTION_LEN];
        assert_eq!(told().text(), None);
        // No such function, and no such place.
        wanted.function = 0x1_0001;
        assert_eq!(channel.wanted_device(3), None);
        assert_eq!(channel.wanted_device(usize::MAX), None);
        let many: Vec<u32> = (100..100 + 2 * NAMED_USERS as u32).collect();
        channel.tell_device(3, Some(Had { function: 0x0310, users: &many }));
        // SAFETY: nobody stores to it now.
        let told = unsafe { had.read() };
        assert_eq!((told.function, told.user_count), (1 + 0x0310, 2 * NAMED_USERS as u32));
        assert_eq!(told.users[..], many[..NAMED_USERS]);
        channel.tell_device(3, None);
        // SAFETY: as is this.
        let told = unsafe { had.read() };
        assert_eq!((told.function, told.user_count), (0, 0));
        // SAFETY: it was allocated with this layout, and nobody uses it any more.
        unsafe { dealloc(memory.cast(), layout) };
    }
}
