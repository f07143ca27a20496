// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container: memory that its functions reach. It lives as long as its file, or a group in it.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_vfio::{
    Refused,
    abi::{
        self, API_VERSION, CHECK_EXTENSION, GET_API_VERSION, INFO_AVAILABLE, INFO_CAPABILITIES,
        INFO_RANGES, INFO_SIZES, IOMMU_GET_INFO, IOMMU_MAP_DMA, IOMMU_UNMAP_DMA, MAP_READ,
        MAP_WRITE, SET_IOMMU, UNMAP_ALL, extension, size,
    },
    ranges::{self, Ranges, Rules},
};
use spin::Once;

use crtos_core::{
    devices::dma::{self, Mapping},
    mm::heap,
    task::Mutex,
};

use crate::{
    abi::{Errno, SysResult},
    files::{character::Character, lock::Locks},
    memory::user,
    process::limits,
};

/// What functions reach.
pub(super) struct Container(Mutex<State>);

#[derive(Default)]
struct State {
    /// By which rules memory is mapped; there is none before that is said.
    rules: Option<Rules>,
    members: Vec<Member>,
    ranges: Ranges<Mapping>,
}

/// A function of a container.
struct Member {
    function: u16,
    /// Bits of the addresses that it names.
    width: u32,
}

/// An opening of `/dev/vfio/vfio`.
pub(super) struct File(Arc<Container>);

static LOCKS: Once<Locks> = Once::new();

/// A new container.
pub(super) fn open() -> Result<Box<dyn Character>, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Ok(Box::new(File(Arc::new(Container(Mutex::new(State::default()))))))
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid => Self::EINVAL,
            Refused::Exists => Self::EEXIST,
            Refused::Full => Self::ENOSPC,
        }
    }
}

impl From<dma::Refused> for Errno {
    fn from(refused: dma::Refused) -> Self {
        match refused {
            dma::Refused::NoMemory => Self::ENOMEM,
            dma::Refused::Gone => Self::ENODEV,
        }
    }
}

impl State {
    /// Bits of the addresses that all functions can name.
    fn width(&self) -> u32 {
        self.members.iter().map(|member| member.width).min().unwrap_or(0)
    }

    fn check(&self, start: u64, size: u64) -> Result<(), Errno> {
        self.rules.ok_or(Errno::EINVAL)?;
        Ok(self.ranges.check(start, size, self.width())?)
    }
}

impl Container {
    /// A function enters: it reaches what is mapped. May sleep.
    pub fn enter(&self, function: u16, width: u32) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let entered = state.ranges.values_mut().try_for_each(|mapping| mapping.attach(function));
        if let Err(refused) = entered {
            state.ranges.values_mut().for_each(|mapping| mapping.detach(function));
            return Err(refused.into());
        }
        state.members.push(Member { function, width });
        Ok(())
    }

    /// A function leaves: it reaches nothing. With the last one goes what is mapped. May sleep.
    pub fn leave(&self, function: u16) {
        let mut state = self.0.lock();
        state.ranges.values_mut().for_each(|mapping| mapping.detach(function));
        state.members.retain(|member| member.function != function);
        if state.members.is_empty() {
            let State { ranges, .. } = core::mem::take(&mut *state);
            drop(state);
            drop(ranges);
        }
    }

    /// Whether functions can be opened.
    pub fn is_ready(&self) -> bool {
        self.0.lock().rules.is_some()
    }

    fn set_rules(&self, kind: u64) -> SysResult {
        let mut state = self.0.lock();
        if state.members.is_empty() || state.rules.is_some() {
            return Err(Errno::EINVAL);
        }
        state.rules = Some(match kind {
            extension::TYPE1 => Rules::First,
            extension::TYPE1V2 => Rules::Second,
            _ => return Err(Errno::ENODEV),
        });
        Ok(0)
    }

    /// The structure is followed by capabilities where there is room for them.
    fn tell(&self, argument: UserAddr) -> SysResult {
        let state = self.0.lock();
        state.rules.ok_or(Errno::EINVAL)?;
        let (ranges, available) = (ranges::possible(state.width()), state.ranges.available());
        drop(state);
        let bytes = user::read_u32(argument)?;
        if bytes < size::IOMMU_INFO {
            return Err(Errno::EINVAL);
        }
        /// Of both capabilities: headers, then two ranges, then a number.
        const FIRST: u32 = 8 + 8 + 2 * 16;
        const ALL: u32 = FIRST + 8 + 8;
        let whole = size::WHOLE_IOMMU_INFO;
        let fits = bytes >= whole + ALL;
        let (told, at) = if fits { (bytes, whole) } else { (whole + ALL, 0) };
        let head = u64::from(told) | u64::from(INFO_SIZES | INFO_CAPABILITIES) << 32;
        let [(first, first_end), (second, second_end)] = ranges;
        let all = [
            head,
            PAGE_SIZE,
            at.into(),
            abi::last_capability(INFO_RANGES) | u64::from(whole + FIRST) << 32,
            ranges.len() as u64,
            first,
            first_end,
            second,
            second_end,
            abi::last_capability(INFO_AVAILABLE),
            available.into(),
        ];
        let stored = if fits { whole + ALL } else { bytes.min(whole) };
        user::write(argument, &all.map(u64::to_le_bytes).as_flattened()[..stored as usize])?;
        Ok(0)
    }

    fn map(&self, argument: UserAddr) -> SysResult {
        let [head, from, start, length] = user::read_words(argument)?;
        let (bytes, flags) = (head as u32, (head >> 32) as u32);
        let (read, write) = (flags & MAP_READ != 0, flags & MAP_WRITE != 0);
        let known = flags & !(MAP_READ | MAP_WRITE) == 0 && (read || write);
        let from = UserAddr::new(from);
        if bytes < size::DMA_MAP || !known || !from.is_page_aligned() {
            return Err(Errno::EINVAL);
        }
        from.checked_add(length.wrapping_sub(1)).ok_or(Errno::EINVAL)?;
        self.0.lock().check(start, length)?;
        let space = user::space()?;
        let most = limits::lockable()?;
        let allowed = |pinned: u64| if pinned <= most { Ok(()) } else { Err(Errno::ENOMEM) };
        allowed(space.pinned().saturating_add(length))?;
        // Other calls go on meanwhile: what is touched may have to be read by Linux.
        let pinned = space.pin(from, length, write)?;
        allowed(space.pinned())?;
        let mut state = self.0.lock();
        // Where it is refused, functions have lost it before somebody else maps these addresses.
        let mut mapping = Mapping::new(start, pinned, read, write);
        state.check(start, length)?;
        state.members.iter().try_for_each(|member| mapping.attach(member.function))?;
        state.ranges.insert(start, length, mapping);
        Ok(0)
    }

    fn unmap(&self, argument: UserAddr) -> SysResult {
        let [head, start, length] = user::read_words(argument)?;
        let (bytes, flags) = (head as u32, (head >> 32) as u32);
        if bytes < size::DMA_UNMAP || flags & !UNMAP_ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let mut state = self.0.lock();
        let rules = state.rules.ok_or(Errno::EINVAL)?;
        let leaving = match flags {
            0 => state.ranges.leaving(rules, start, length)?,
            _ if start | length != 0 => return Err(Errno::EINVAL),
            _ => ranges::ALL,
        };
        let mut unmapped = 0;
        // Nobody maps these addresses again before functions have lost them.
        while let Some((bytes, mapping)) = state.ranges.take(&leaving) {
            drop(mapping);
            unmapped += bytes;
        }
        drop(state);
        user::write_words(argument.wrapping_add(16), [unmapped])?;
        Ok(0)
    }
}

impl File {
    /// The container.
    pub fn container(&self) -> &Arc<Container> {
        &self.0
    }
}

impl Character for File {
    fn path(&self) -> &str {
        "/dev/vfio/vfio"
    }

    fn ioctl(&self, request: u32, argument: u64) -> SysResult {
        let address = UserAddr::new(argument);
        match request {
            GET_API_VERSION => Ok(API_VERSION),
            CHECK_EXTENSION => {
                const KNOWN: [u64; 3] =
                    [extension::TYPE1, extension::TYPE1V2, extension::UNMAP_ALL];
                Ok(KNOWN.contains(&argument).into())
            }
            SET_IOMMU => self.0.set_rules(argument),
            _ if !self.0.is_ready() => Err(Errno::EINVAL),
            IOMMU_GET_INFO => self.0.tell(address),
            IOMMU_MAP_DMA => self.0.map(address),
            IOMMU_UNMAP_DMA => self.0.unmap(address),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn locks(&self) -> &Locks {
        LOCKS.call_once(Locks::default)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
