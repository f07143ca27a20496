// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's IOMMUs, which Linux drives. Their registers are not in Linux's nested tables, so
//! each access exits. While there is no cell it goes to the unit as it is; otherwise the unit is
//! taken over, and [`crtos_iommu::vtd::unit`] says what becomes of the access.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_abi::image::{Iommu, MAX_IOMMUS};
use crtos_iommu::effect::Store;
use crtos_iommu::interrupt::Cpus;
use crtos_iommu::vtd::unit::{Machine, OWN_SIZE, Progress, Unfit, Unit};
use crtos_partition::address::{GuestAddr, PhysAddr};

use crate::frames::Frames;
use crate::{direct_map, launch_info, processor, report};

/// Tells whether Linux has all of the bytes of RAM from an address on.
pub(crate) trait Owns: Fn(PhysAddr, u64) -> bool {}
impl<F: Fn(PhysAddr, u64) -> bool> Owns for F {}

/// One of them.
struct Place {
    iommu: Iommu,
    /// The hypervisor's memory for it.
    own: PhysAddr,
    /// If it is taken over.
    taken: Option<Unit>,
}

/// All of them.
pub struct Iommus([Option<Place>; MAX_IOMMUS]);

impl Iommus {
    pub(crate) const fn new() -> Self {
        Self([const { None }; MAX_IOMMUS])
    }

    /// Takes the memory for all; once, at launch.
    pub(crate) fn set_up(&mut self, frames: &mut Frames) -> Option<()> {
        for (place, iommu) in self.0.iter_mut().zip(launch_info::iommus()) {
            let own = frames.allocate(OWN_SIZE.div_ceil(PAGE_SIZE) as usize, 1)?;
            *place = Some(Place { iommu, own, taken: None });
        }
        self.report();
        Some(())
    }

    fn taken(&self) -> impl Iterator<Item = &Unit> {
        self.0.iter().flatten().filter_map(|place| place.taken.as_ref())
    }

    fn report(&self) {
        report::iommus(launch_info::iommus().count(), self.taken().count());
        report::iommu_refusals(self.taken().map(Unit::refused).sum());
    }

    /// Takes all over that Linux uses for interrupts; the others stay with it, which the log tells.
    /// No CPU of Linux accesses one meanwhile: it would need the lock.
    pub(crate) fn take(&mut self, cpus: &impl Cpus, owns: impl Owns) {
        for Place { iommu, own, taken } in self.0.iter_mut().flatten() {
            if taken.is_some() {
                continue;
            }
            let mut registers = Registers { iommu: *iommu, own: *own, owns: &owns };
            let address = iommu.address;
            match Unit::take(&mut registers, cpus, launch_info::x2apic()) {
                Ok(unit) => {
                    *taken = Some(unit);
                    report::line(format_args!("IOMMU at {address:#x}: taken over"));
                }
                Err(unfit) => {
                    let why = why(unfit);
                    report::line(format_args!("IOMMU at {address:#x} stays with Linux: {why}"));
                }
            }
        }
        self.report();
    }

    /// Tells whether one is taken over.
    pub(crate) fn any_taken(&self) -> bool {
        self.taken().next().is_some()
    }

    /// Gives all back as Linux believes them to be. No CPU of Linux runs meanwhile.
    pub(crate) fn give_back(&mut self, owns: impl Owns) {
        for Place { iommu, own, taken } in self.0.iter_mut().flatten() {
            let Some(mut unit) = taken.take() else { continue };
            if !unit.give_back(&mut Registers { iommu: *iommu, own: *own, owns: &owns }) {
                let address = iommu.address;
                report::line(format_args!("IOMMU at {address:#x}: given back, and does not react"));
            }
        }
        self.report();
    }

    /// Looks at all entries of Linux again, since a CPU changed its owner.
    pub(crate) fn owners_changed(&mut self, cpus: &impl Cpus, owns: impl Owns) {
        for Place { iommu, own, taken } in self.0.iter_mut().flatten() {
            let Some(unit) = taken else { continue };
            let mut registers = Registers { iommu: *iommu, own: *own, owns: &owns };
            if !unit.owners_changed(&mut registers, cpus) {
                does_not_react(*iommu);
            }
        }
        self.report();
    }

    /// The one in whose registers `address` lies, and where there.
    fn find(&mut self, address: GuestAddr) -> Option<(&mut Place, u64)> {
        let mut places = self.0.iter_mut().flatten();
        places.find_map(|place| offset(&place.iommu, address).map(|offset| (place, offset)))
    }

    /// Reads 32 bits for Linux at `address`, a multiple of 4 in the registers of one ([`is_one`]).
    pub(crate) fn read(&mut self, address: GuestAddr, owns: impl Owns) -> u32 {
        let Some((place, offset)) = self.find(address) else { return !0 };
        let mut registers = Registers { iommu: place.iommu, own: place.own, owns: &owns };
        match &place.taken {
            Some(unit) => unit.read(&mut registers, offset),
            None => registers.read(offset),
        }
    }

    /// Carries out a write of Linux to the 32 bits at `address`, likewise.
    pub(crate) fn write(
        &mut self,
        address: GuestAddr,
        value: u32,
        cpus: &impl Cpus,
        owns: impl Owns,
    ) -> Written {
        let mut written = Written::default();
        let Some((place, offset)) = self.find(address) else { return written };
        let mut registers = Registers { iommu: place.iommu, own: place.own, owns: &owns };
        let Some(unit) = &mut place.taken else {
            registers.write(offset, value);
            return written;
        };
        let before = unit.refused();
        match unit.write(&mut registers, cpus, offset, value) {
            Progress::Done => (),
            Progress::More => written.again = true,
            Progress::Stuck => does_not_react(place.iommu),
        }
        written.refused = unit.refused() != before;
        if written.refused {
            self.report();
        }
        written
    }
}

/// What came of a write of Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Linux has to make it again: there is more to do than is done at once.
    pub again: bool,
    /// An entry or a message for an interrupt was refused.
    pub refused: bool,
}

fn does_not_react(iommu: Iommu) {
    report::line(format_args!("IOMMU at {:#x} does not react", iommu.address));
}

fn why(unfit: Unfit) -> &'static str {
    match unfit {
        Unfit::Incapable => "it has no queue, or does not remap interrupts",
        Unfit::Unused => "Linux does not have it remap interrupts",
        Unfit::Broken => "it reports an error",
        Unfit::Stuck => "it does not react",
    }
}

/// Tells whether `address` lies in the registers of one.
pub fn is_one(address: GuestAddr) -> bool {
    launch_info::iommus().any(|iommu| offset(&iommu, address).is_some())
}

/// Where in the registers of an IOMMU `address` lies, if it does.
fn offset(iommu: &Iommu, address: GuestAddr) -> Option<u64> {
    address.get().checked_sub(iommu.address).filter(|offset| *offset < iommu.size)
}

/// The registers of an IOMMU, with the memory that it takes to drive it.
struct Registers<'a, O> {
    iommu: Iommu,
    own: PhysAddr,
    owns: &'a O,
}

impl<O: Owns> Registers<'_, O> {
    fn register(&self, offset: u64) -> Option<*mut u32> {
        (offset < self.iommu.size)
            .then(|| direct_map::pointer(PhysAddr::new(self.iommu.address + (offset & !3))))
    }

    fn own_place(&self, offset: u64) -> &AtomicU64 {
        let offset = (offset & !7) % OWN_SIZE;
        // SAFETY: The frames that were taken for this unit, which are used in this way only, by
        // the unit too.
        unsafe { &*direct_map::pointer::<AtomicU64>(self.own + offset) }
    }

    /// The words of Linux from `address` on, if it has all of them.
    fn linux_words(&self, address: PhysAddr, count: usize) -> Option<&[AtomicU64]> {
        let owned = address.is_aligned(8) && (self.owns)(address, 8 * count as u64);
        // SAFETY: RAM that Linux has, so that the direct map reaches it, and no Rust object lives
        // in it; it is aligned.
        owned.then(|| unsafe {
            core::slice::from_raw_parts(direct_map::pointer::<AtomicU64>(address), count)
        })
    }
}

impl<O: Owns> Machine for Registers<'_, O> {
    fn read(&mut self, offset: u64) -> u32 {
        // SAFETY: A register of the unit, which the direct map reaches and no Rust object lives in.
        self.register(offset).map_or(!0, |place| unsafe { place.read_volatile() })
    }

    fn write(&mut self, offset: u64, value: u32) {
        if let Some(place) = self.register(offset) {
            // SAFETY: As for reading. What the unit stores where the addresses come from decides:
            // they are the hypervisor's own, or those of Linux, which has them from before.
            unsafe { place.write_volatile(value) }
        }
    }

    fn wait_until(&mut self, milliseconds: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = processor::deadline(milliseconds);
        loop {
            let late = processor::tsc() > deadline;
            if done(self) {
                return true;
            }
            if late {
                return false;
            }
            core::hint::spin_loop();
        }
    }

    fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool {
        let Some(places) = self.linux_words(address, words.len()) else { return false };
        for (word, place) in words.iter_mut().zip(places) {
            *word = place.load(Ordering::Acquire);
        }
        true
    }

    fn write_linux(&mut self, address: PhysAddr, words: &[u64]) -> bool {
        let Some(places) = self.linux_words(address, words.len()) else { return false };
        for (word, place) in words.iter().zip(places) {
            place.store(*word, Ordering::Release);
        }
        true
    }

    fn store(&mut self, store: &Store) {
        let (address, size) = (store.address, u64::from(store.size));
        if !address.is_aligned(size) || !(self.owns)(address, size) {
            return;
        }
        // SAFETY: As for words: RAM that Linux has, aligned.
        unsafe {
            match size {
                4 => (*direct_map::pointer::<AtomicU32>(address))
                    .store(store.value as u32, Ordering::Release),
                _ => (*direct_map::pointer::<AtomicU64>(address))
                    .store(store.value, Ordering::Release),
            }
        }
    }

    fn own(&self) -> PhysAddr {
        self.own
    }

    fn own_word(&self, offset: u64) -> u64 {
        self.own_place(offset).load(Ordering::Acquire)
    }

    fn set_own_word(&mut self, offset: u64, word: u64) {
        self.own_place(offset).store(word, Ordering::Release);
    }

    fn write_back(&mut self, offset: u64) {
        processor::write_back_line(core::ptr::from_ref(self.own_place(offset)).cast());
    }
}
