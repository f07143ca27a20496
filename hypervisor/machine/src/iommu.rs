// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's IOMMUs, which Linux drives. Their registers are not in Linux's nested tables, so
//! each access exits. While there is no cell it goes to the unit as it is; otherwise the unit is
//! taken over, and [`crtos_iommu::unit`] says what becomes of the access.
//!
//! Linux's tables that translate addresses are read-only there meanwhile, as far as there are
//! [`Copies`] of them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_abi::image::{IOMMU_AMD_VI, Iommu, MAX_IOMMUS};
use crtos_abi::report::MAX_FAULTING_DEVICES;
use crtos_iommu::cell_tables::CellTables;
use crtos_iommu::copies::{self, Copies};
use crtos_iommu::effect::Store;
use crtos_iommu::fault::Fault;
use crtos_iommu::interrupt::{Cpus, Interrupt};
use crtos_iommu::layout::Kind;
use crtos_iommu::machine::{MAX_PIECES, Machine, PIECE, Progress, Unfit};
use crtos_iommu::unit::{Unit, Vendor};
use crtos_iommu::{DomainId, Requester};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::ids::CellId;
use crtos_partition::redirection::Redirection;

use crate::frames::Frames;
use crate::linux_memory::LinuxMemory;
use crate::{configuration, direct_map, launch_info, processor, report};

/// The pieces of memory for one of them.
type Own = [PhysAddr; MAX_PIECES];

/// One of them.
struct Place {
    iommu: Iommu,
    /// The hypervisor's memory for it.
    own: Own,
    /// If it is taken over.
    taken: Option<Unit>,
    /// It sent messages of its own by configuration space before that.
    sends: bool,
}

/// All of them.
pub struct Iommus {
    places: [Option<Place>; MAX_IOMMUS],
    faults: [Option<(Requester, u32)>; MAX_FAULTING_DEVICES],
    copies: Copies,
}

impl Iommus {
    pub(crate) const fn new() -> Self {
        Self {
            places: [const { None }; MAX_IOMMUS],
            faults: [None; MAX_FAULTING_DEVICES],
            copies: Copies::new(Kind::Second(4)),
        }
    }

    /// Takes the memory for all; once, at launch.
    pub(crate) fn set_up(&mut self, frames: &mut Frames) -> Option<()> {
        for (place, iommu) in self.places.iter_mut().zip(launch_info::iommus()) {
            let mut own = [PhysAddr::new(0); MAX_PIECES];
            for (piece, size) in own.iter_mut().zip(vendor(&iommu).own_sizes()) {
                let pages = size.div_ceil(PAGE_SIZE) as usize;
                if pages > 0 {
                    *piece = frames.allocate(pages, if size == PIECE { pages } else { 1 })?;
                }
            }
            *place = Some(Place { iommu, own, taken: None, sends: false });
        }
        self.copies.set_checked(launch_info::get().dma_checked != 0);
        self.report();
        Some(())
    }

    fn taken(&self) -> impl Iterator<Item = &Unit> {
        self.places.iter().flatten().filter_map(|place| place.taken.as_ref())
    }

    fn report(&self) {
        let confining = self.taken().filter(|unit| unit.confines_addresses()).count();
        let remapping = self.taken().filter(|unit| unit.confines_interrupts()).count();
        report::iommus(launch_info::iommus().count(), self.taken().count(), confining, remapping);
        report::iommu_refusals(
            self.taken().map(Unit::refused).sum(),
            self.copies.refused(),
            self.copies.missing(),
        );
    }

    /// Takes all over that Linux uses; the others stay with it, which the log tells.
    /// No CPU of Linux runs meanwhile, and none goes on with cached translations.
    pub(crate) fn take(&mut self, cpus: &impl Cpus, memory: &mut LinuxMemory) {
        for Place { iommu, own, taken, sends } in self.places.iter_mut().flatten() {
            if taken.is_some() {
                continue;
            }
            let mut registers = Registers { iommu: *iommu, own: *own, memory };
            let address = iommu.address;
            let (vendor, x2apic) = (vendor(iommu), launch_info::x2apic());
            match Unit::take(vendor, &mut registers, &mut self.copies, cpus, x2apic) {
                Ok(unit) => {
                    *sends = set_messages(iommu, false);
                    let but = match (unit.confines_addresses(), unit.confines_interrupts()) {
                        (true, true) => "",
                        (true, false) => ", but for interrupts, which Linux does not have remapped",
                        _ => ", but for memory: it is short, or the unit has no fit tables",
                    };
                    report::line(format_args!("IOMMU at {address:#x}: taken over{but}"));
                    *taken = Some(unit);
                }
                Err(unfit) => {
                    let why = why(unfit);
                    report::line(format_args!("IOMMU at {address:#x} stays with Linux: {why}"));
                }
            }
        }
        self.collect(memory);
        self.report();
    }

    /// Tells whether there is one, and all are taken over and have devices of Linux reach memory
    /// and CPUs by copies.
    pub(crate) fn confine_all(&self) -> bool {
        let confines = |unit: &Unit| unit.confines_addresses() && unit.confines_interrupts();
        let mut places = self.places.iter().flatten().peekable();
        places.peek().is_some() && places.all(|place| place.taken.as_ref().is_some_and(confines))
    }

    /// The kind of the tables by which functions of a cell translate, and their domain.
    pub(crate) fn of_cell(&self, cell: CellId) -> Option<(Kind, DomainId)> {
        Some((self.copies.identity(), self.copies.domain_of(cell)?))
    }

    /// The same of the tables of a function of cells, if it has its own.
    pub(crate) fn of_function(&self, function: Requester) -> Option<(Kind, DomainId)> {
        let place = self.copies.function(function)?.place;
        Some((self.copies.identity(), self.copies.domain_of_function(place)?))
    }

    /// Has all units forget what they cached of the tables of a domain; false if one does not.
    pub(crate) fn forget_domain(&mut self, memory: &mut LinuxMemory, domain: DomainId) -> bool {
        self.for_taken(memory, |unit, registers| unit.forget_domain(registers, domain))
    }

    /// Says by what a function translates that a cell has, or that no cell has it any more
    /// (`None`); unless it has tables none of its messages interrupts anybody. No CPU of Linux runs
    /// meanwhile, and none goes on with cached translations. False if there are too many, or a unit
    /// does not react.
    pub(crate) fn set_function(
        &mut self,
        memory: &mut LinuxMemory,
        requester: Requester,
        tables: Option<Option<CellTables>>,
        cpus: &impl Cpus,
    ) -> bool {
        let place = self.copies.function(requester).map(|function| function.place);
        if let (Some(place), None | Some(None)) = (place, tables) {
            self.for_taken(memory, |unit, registers| unit.silence(registers, place));
        }
        let is_set = self.copies.set_function(memory, requester, tables);
        self.each_taken(memory, |unit, registers, copies| {
            unit.function_changed(registers, copies, cpus, requester)
        });
        let forgotten = self.forget(memory);
        if forgotten {
            self.copies.collect(memory);
        }
        is_set && forgotten
    }

    /// Has a message of a function of a cell interrupt as `interrupt` says, or nobody. Returns the
    /// address to which the function has to write it; `None` if that is not possible.
    pub(crate) fn set_message(
        &mut self,
        memory: &mut LinuxMemory,
        requester: Requester,
        message: u32,
        interrupt: Option<Interrupt>,
    ) -> Option<u32> {
        let function = self.copies.function(requester)?;
        let done = self.for_taken(memory, |unit, registers| {
            unit.set_message(registers, requester, function, message, interrupt)
        });
        let unit = self.taken().next().filter(|_| done)?;
        Some(unit.message_address(function))
    }

    /// Lets the line of a cell at `place` be one of the I/O APIC `requester`, silent. `linux` is an
    /// entry for its pin. False if one that is taken over cannot have such a line. No CPU of Linux
    /// runs meanwhile.
    pub(crate) fn add_line(
        &mut self,
        memory: &mut LinuxMemory,
        cpus: &impl Cpus,
        requester: Requester,
        place: usize,
        linux: Redirection,
    ) -> bool {
        let mut all = true;
        self.each_taken(memory, |unit, registers, copies| {
            all = all && unit.add_line(registers, copies, cpus, requester, place, linux);
        });
        all
    }

    /// Has the line of a cell at `place`, of the I/O APIC `requester`, interrupt as `interrupt`
    /// says, or nobody. `linux` is an entry for its pin. Returns the entry that the I/O APIC has to
    /// have; `None` if that is not possible. One is taken over.
    pub(crate) fn set_line(
        &mut self,
        memory: &mut LinuxMemory,
        requester: Requester,
        place: usize,
        interrupt: Option<Interrupt>,
        linux: Redirection,
    ) -> Option<Redirection> {
        let mut entry = None;
        let done = self.for_taken(memory, |unit, registers| {
            entry = unit.set_line(registers, requester, place, interrupt, linux);
            entry.is_some()
        });
        entry.filter(|_| done)
    }

    /// Tells whether an entry of an I/O APIC that Linux writes names one of the hypervisor's.
    pub(crate) fn is_own_entry(&self, entry: Redirection) -> bool {
        self.taken().any(|unit| unit.is_own_entry(entry))
    }

    /// Tells whether one has to be taken over.
    pub(crate) fn any_untaken(&self) -> bool {
        self.places.iter().flatten().any(|place| place.taken.is_none())
    }

    /// Tells whether one is taken over.
    pub(crate) fn any_taken(&self) -> bool {
        self.taken().next().is_some()
    }

    /// Gives all back as Linux believes them to be. No CPU of Linux runs meanwhile.
    pub(crate) fn give_back(&mut self, memory: &mut LinuxMemory) {
        let mut all = true;
        for Place { iommu, own, taken, sends } in self.places.iter_mut().flatten() {
            let Some(mut unit) = taken.take() else { continue };
            if *sends {
                set_messages(iommu, true);
            }
            let mut registers = Registers { iommu: *iommu, own: *own, memory };
            if !unit.give_back(&mut registers, &mut self.copies) {
                all = false;
                let address = iommu.address;
                report::line(format_args!("IOMMU at {address:#x}: given back, and does not react"));
            }
        }
        // What a unit may still know stays what it is.
        if all {
            self.copies.collect(memory);
        }
        self.report();
    }

    /// Looks at all entries of Linux again, since a CPU changed its owner.
    pub(crate) fn owners_changed(&mut self, cpus: &impl Cpus, memory: &mut LinuxMemory) {
        self.for_taken(memory, |unit, registers| unit.owners_changed(registers, cpus));
        self.report();
    }

    /// Has no device of Linux map memory of the 2 MiB block at `block` any more, which Linux does
    /// not have any more. [`Self::finish_withdrawal`] has to follow.
    pub(crate) fn withdraw(&mut self, memory: &mut LinuxMemory, block: PhysAddr) {
        self.copies.withdraw(memory, block);
    }

    /// Has no device of Linux reach memory that was taken from it, once it is
    /// [withdrawn](Self::withdraw); false if a unit does not react.
    pub(crate) fn finish_withdrawal(&mut self, cpus: &impl Cpus, memory: &mut LinuxMemory) -> bool {
        if self.copies.is_checked() {
            self.copies.look_again(memory);
        }
        self.memory_changed(cpus, memory);
        self.report();
        self.forget(memory)
    }

    fn memory_changed(&mut self, cpus: &impl Cpus, memory: &mut LinuxMemory) {
        self.each_taken(memory, |unit, registers, copies| {
            unit.memory_changed(registers, copies, cpus)
        });
    }

    /// Has all units forget what they cached of addresses; false if one does not.
    fn forget(&mut self, memory: &mut LinuxMemory) -> bool {
        self.for_taken(memory, |unit, registers| unit.forget_translations(registers))
    }

    /// Has Linux's devices reach memory that it got back. No CPU of Linux runs meanwhile, and none
    /// goes on with cached translations.
    pub(crate) fn look_again(&mut self, cpus: &impl Cpus, memory: &mut LinuxMemory) {
        self.copies.look_again(memory);
        self.memory_changed(cpus, memory);
        self.collect(memory);
        self.report();
    }

    /// Tells whether the page of `address` is a table of Linux's that has a copy.
    pub(crate) fn is_table(&self, address: PhysAddr) -> bool {
        self.copies.is_watched(address.align_down(PAGE_SIZE))
    }

    /// Lets Linux write by itself to the table in the page of `address`. `processor` says that the
    /// processor translates by it.
    pub(crate) fn give_up(&mut self, memory: &mut LinuxMemory, address: PhysAddr, processor: bool) {
        let page = address.align_down(PAGE_SIZE);
        match processor {
            true => self.copies.shun(memory, page),
            false => self.copies.lose(memory, page),
        }
        self.collect(memory);
    }

    /// Tells whether no CPU of Linux may run while the table in the page of `address` changes, and
    /// none may go on with cached translations; `None` if it is no table of Linux's with a copy.
    pub(crate) fn tells_of_tables(&self, address: PhysAddr) -> Option<bool> {
        self.copies.tells_of_tables(address.align_down(PAGE_SIZE))
    }

    /// Tells whether a write of Linux to the register at `address` may change the tables by which
    /// it translates, or finds one that is lost.
    pub(crate) fn writes_tables(
        &mut self,
        memory: &mut LinuxMemory,
        address: GuestAddr,
        value: u32,
    ) -> bool {
        let Some((place, offset)) = find(&mut self.places, address) else { return false };
        let Some(unit) = &place.taken else { return false };
        let registers = Registers { iommu: place.iommu, own: place.own, memory };
        self.copies.has_lost() || unit.changes_tables(&registers, offset, value)
    }

    /// Makes a copy of the word at `address`, in a table of Linux's, which it has changed.
    pub(crate) fn changed(&mut self, memory: &mut LinuxMemory, address: PhysAddr) -> Written {
        let before = (self.copies.refused(), self.copies.missing());
        self.copies.changed(memory, address);
        self.collect(memory);
        let refused = before != (self.copies.refused(), self.copies.missing());
        if refused {
            self.report();
        }
        Written { refused, ..Written::default() }
    }

    fn count_fault(&mut self, device: Requester) {
        let is_its = |place: &Option<(Requester, u32)>| place.is_none_or(|(of, _)| of == device);
        let Some(index) = self.faults.iter().position(is_its) else { return };
        let (_, count) = self.faults[index].get_or_insert((device, 0));
        *count = count.saturating_add(1);
        report::device_faults(index, device.0, *count);
    }

    /// Gives the memory of copies back that are not used any more, once all units have forgotten
    /// them.
    fn collect(&mut self, memory: &mut LinuxMemory) {
        if self.copies.has_unused() && self.forget(memory) {
            self.copies.collect(memory);
        }
    }

    /// Has all do something that are taken over; false if one does not react.
    fn for_taken(
        &mut self,
        memory: &mut LinuxMemory,
        mut act: impl FnMut(&mut Unit, &mut Registers) -> bool,
    ) -> bool {
        let mut all = true;
        self.each_taken(memory, |unit, registers, _| {
            if !act(unit, registers) {
                does_not_react(registers.iommu);
                all = false;
            }
        });
        all
    }

    /// Has all do something that are taken over.
    fn each_taken(
        &mut self,
        memory: &mut LinuxMemory,
        mut act: impl FnMut(&mut Unit, &mut Registers, &mut Copies),
    ) {
        for Place { iommu, own, taken, .. } in self.places.iter_mut().flatten() {
            if let Some(unit) = taken {
                let mut registers = Registers { iommu: *iommu, own: *own, memory };
                act(unit, &mut registers, &mut self.copies);
            }
        }
    }

    /// Reads 32 bits for Linux at `address`, a multiple of 4 in the registers of one ([`is_one`]).
    /// With them comes a fault of a device that Linux takes note of by this.
    pub(crate) fn read(
        &mut self,
        address: GuestAddr,
        memory: &mut LinuxMemory,
    ) -> (u32, Option<Fault>) {
        let Some((place, offset)) = find(&mut self.places, address) else { return (!0, None) };
        let mut registers = Registers { iommu: place.iommu, own: place.own, memory };
        let Some(unit) = &mut place.taken else { return (registers.read(offset), None) };
        let value = unit.read(&mut registers, offset);
        let fault = unit.take_fault();
        if let Some(fault) = fault {
            self.count_fault(fault.device);
        }
        (value, fault)
    }

    /// Carries out a write of Linux to the 32 bits at `address`, likewise. No CPU of Linux runs
    /// meanwhile if [`Self::writes_tables`] says so.
    pub(crate) fn write(
        &mut self,
        address: GuestAddr,
        value: u32,
        cpus: &impl Cpus,
        memory: &mut LinuxMemory,
    ) -> Written {
        let mut written = Written::default();
        let Some((place, offset)) = find(&mut self.places, address) else { return written };
        let mut registers = Registers { iommu: place.iommu, own: place.own, memory };
        let Some(unit) = &mut place.taken else {
            registers.write(offset, value);
            return written;
        };
        let before = unit.refused();
        match unit.write(&mut registers, &mut self.copies, cpus, offset, value) {
            Progress::Done => (),
            Progress::More => written.again = true,
            Progress::Stuck => does_not_react(place.iommu),
        }
        written.refused = unit.refused() != before;
        written.fault = unit.take_fault();
        if let Some(fault) = written.fault {
            self.count_fault(fault.device);
        }
        if self.copies.has_lost() {
            self.copies.find_lost(memory);
        }
        self.collect(memory);
        if written.refused {
            self.report();
        }
        written
    }
}

/// The one in whose registers `address` lies, and where there.
fn find(places: &mut [Option<Place>], address: GuestAddr) -> Option<(&mut Place, u64)> {
    let mut places = places.iter_mut().flatten();
    places.find_map(|place| offset(&place.iommu, address).map(|offset| (place, offset)))
}

/// What came of a write of Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Linux has to make it again: there is more to do than is done at once.
    pub again: bool,
    /// An entry or a message for an interrupt was refused.
    pub refused: bool,
    /// Linux has taken note of this fault of a device.
    pub fault: Option<Fault>,
}

fn vendor(iommu: &Iommu) -> Vendor {
    if iommu.kind == IOMMU_AMD_VI { Vendor::Amd } else { Vendor::Intel }
}

/// Has a unit of AMD's kind send its own messages as configuration space says, or not; tells
/// whether it did. Nobody looks whom these interrupt, and QEMU's unit sends one for each command
/// that asks for it, although [`crtos_iommu::unit`] has them off.
fn set_messages(iommu: &Iommu, on: bool) -> bool {
    let function = u16::try_from(iommu.function);
    iommu.kind == IOMMU_AMD_VI
        && function.is_ok_and(|function| configuration::set_messages(function, on))
}

fn does_not_react(iommu: Iommu) {
    report::line(format_args!("IOMMU at {:#x} does not react", iommu.address));
}

fn why(unfit: Unfit) -> &'static str {
    match unfit {
        Unfit::Incapable => "it lacks what it takes",
        Unfit::Unused => "Linux does not use it",
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
struct Registers<'a, 'b> {
    iommu: Iommu,
    own: Own,
    memory: &'a mut LinuxMemory<'b>,
}

impl Registers<'_, '_> {
    fn register(&self, offset: u64) -> Option<*mut u32> {
        (offset < self.iommu.size)
            .then(|| direct_map::pointer(PhysAddr::new(self.iommu.address + (offset & !3))))
    }

    fn own_place(&self, offset: u64) -> &AtomicU64 {
        let (piece, offset) = self.own_at(offset & !7);
        // SAFETY: The frames that were taken for this unit, which are used in this way only, by
        // the unit too.
        unsafe { &*direct_map::pointer::<AtomicU64>(piece + offset) }
    }

    /// The piece of the memory in which `offset` lies, and where in it.
    ///
    /// # Panics
    /// If there is no such memory: a bug of the hypervisor, which must not touch anything else.
    fn own_at(&self, offset: u64) -> (PhysAddr, u64) {
        let (index, offset) = ((offset / PIECE) as usize, offset % PIECE);
        let size = vendor(&self.iommu).own_sizes()[index];
        assert!(offset < size, "no memory of the IOMMU's: {offset:#x}");
        (self.own[index], offset)
    }
}

impl Machine for Registers<'_, '_> {
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

    fn write_long(&mut self, offset: u64, value: u64) {
        if let Some(place) = self.register(offset) {
            // SAFETY: As for `write`; the registers of 64 bits are aligned to that.
            unsafe { place.cast::<u64>().write_volatile(value) }
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
        self.memory.read(address, words)
    }

    fn write_linux(&mut self, address: PhysAddr, words: &[u64]) -> bool {
        // A table that has a copy is no place for that.
        if !self.memory.owns(address, 8 * words.len() as u64) {
            return false;
        }
        let Some(places) = self.memory.words(address, words.len()) else { return false };
        for (word, place) in words.iter().zip(places) {
            place.store(*word, Ordering::Release);
        }
        true
    }

    fn memory(&mut self) -> &mut impl copies::Memory {
        self.memory
    }

    fn store(&mut self, store: &Store) {
        let (address, size) = (store.address, u64::from(store.size));
        if !address.is_aligned(size) || !self.memory.owns(address, size) {
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

    fn own(&self, offset: u64) -> PhysAddr {
        let (piece, offset) = self.own_at(offset);
        piece + offset
    }

    fn own_word(&self, offset: u64) -> u64 {
        self.own_place(offset).load(Ordering::Acquire)
    }

    fn set_own_word(&mut self, offset: u64, word: u64) {
        self.own_place(offset).store(word, Ordering::Release);
    }

    fn set_own_pair(&mut self, offset: u64, words: [u64; 2]) {
        let (piece, offset) = self.own_at(offset & !15);
        // SAFETY: As for words: both are of the same piece.
        unsafe { processor::store_pair(direct_map::pointer(piece + offset), words) }
    }

    fn write_back(&mut self, offset: u64) {
        processor::write_back_line(core::ptr::from_ref(self.own_place(offset)).cast());
    }
}
