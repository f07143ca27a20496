// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread of a process has beside its general registers: extended state, segment bases, page
//! tables, ports.
//!
//! It is stored when the thread leaves a CPU ([`leave`]), so that another CPU can go on with it.
//! The registers keep it meanwhile: when the thread comes back to the same CPU and no other
//! program's thread was there, nothing has to be loaded ([`arrive`]).

use super::thread::{SpawnError, Thread, current};
use crate::arch::InterruptsOff;
use crate::arch::gdt::PORT_MAP_SIZE;
use crate::arch::percpu::PerCpu;
use crate::arch::{cpu, fpu, percpu, speculation, tlb};
use crate::cpu_numbers::{Chosen, Numbering};
use crate::devices::ports;
use crate::mm::{AddressSpace, heap};
use crate::sync::SpinLock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::ops::{Range, RangeInclusive};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_vm::Frame;
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, KernelGsBase};

/// Some ports.
#[derive(Clone)]
struct Ports {
    /// Bit set: forbidden. [`PORT_MAP_SIZE`] bytes.
    map: Box<[u8]>,
    /// Bytes of the map that may have a bit clear.
    used: Range<usize>,
}

impl Ports {
    fn none() -> Self {
        Self { map: vec![0xff; PORT_MAP_SIZE].into_boxed_slice(), used: 0..0 }
    }

    fn allows(&self, port: u16) -> bool {
        self.map[usize::from(port) / 8] & 1 << (port % 8) == 0
    }

    /// Allows or forbids `ports`.
    fn set(&mut self, ports: RangeInclusive<u16>, allow: bool) {
        let bytes = usize::from(*ports.start()) / 8..usize::from(*ports.end()) / 8 + 1;
        for port in ports {
            let bit = 1 << (port % 8);
            let byte = &mut self.map[usize::from(port) / 8];
            *byte = if allow { *byte & !bit } else { *byte | bit };
        }
        self.used = match self.used.is_empty() {
            true => bytes,
            false => self.used.start.min(bytes.start)..self.used.end.max(bytes.end),
        };
    }
}

/// The I/O ports that a thread may use. Threads and children that it starts have them too, and
/// what it executes.
#[derive(Clone, Default)]
pub struct PortPermissions(Option<Arc<Permissions>>);

#[derive(Default)]
struct Permissions {
    /// What was allowed one by one (ioperm).
    some: Option<Arc<Ports>>,
    /// All that there were when that was asked for ([`ports::usable`]; iopl).
    all: Option<Arc<Ports>>,
}

impl PortPermissions {
    fn new(some: Option<Arc<Ports>>, all: Option<Arc<Ports>>) -> Self {
        let any = all.is_some() || some.is_some();
        Self(any.then(|| Arc::new(Permissions { some, all })))
    }

    /// What was allowed one by one.
    fn some(&self) -> Option<&Arc<Ports>> {
        self.0.as_ref()?.some.as_ref()
    }

    /// What all was allowed.
    fn all(&self) -> Option<&Arc<Ports>> {
        self.0.as_ref()?.all.as_ref()
    }

    /// What to load; `None` if no port is allowed.
    fn ports(&self) -> Option<&Ports> {
        self.all().or_else(|| self.some()).map(|ports| &**ports)
    }
}

/// No CPU.
const NOWHERE: u32 = u32::MAX;

/// The state while the thread does not run.
pub(super) struct UserState {
    /// What the CPUs have; see [`cpu::Features`].
    xcr0: u64,
    fsgsbase: bool,
    extended: fpu::Area,
    fs_base: AtomicU64,
    gs_base: AtomicU64,
    root: AtomicU64,
    ports: SpinLock<PortPermissions>,
    /// Whether `ports` says something.
    has_ports: AtomicBool,
    /// By which numbers the program knows the CPUs.
    numbering: Chosen,
    /// Whether it wants to be kept apart from other programs in what the processor predicts.
    guarded: AtomicBool,
    /// The index of the CPU whose registers held the state last, or [`NOWHERE`].
    cpu: AtomicU32,
}

impl UserState {
    /// The state of a new thread in `space`; `None` without memory.
    pub fn new(space: &AddressSpace) -> Option<Self> {
        let features = cpu::features();
        Some(Self {
            xcr0: features.xcr0,
            fsgsbase: features.fsgsbase,
            extended: fpu::Area::new()?,
            fs_base: AtomicU64::new(0),
            gs_base: AtomicU64::new(0),
            root: AtomicU64::new(space.root().0),
            ports: SpinLock::new(PortPermissions::default()),
            has_ports: AtomicBool::new(false),
            numbering: Chosen::new(),
            guarded: AtomicBool::new(false),
            cpu: AtomicU32::new(NOWHERE),
        })
    }

    /// Copies the state from the registers. Interrupts off.
    fn store(&self) {
        self.extended.store_registers(self.xcr0);
        // A program changes its bases without the kernel only if it has the instructions.
        if self.fsgsbase {
            // SAFETY: it has them, and the kernel turned them on.
            let (fs, gs) = unsafe { cpu::user_bases() };
            self.fs_base.store(fs, Ordering::Relaxed);
            self.gs_base.store(gs, Ordering::Relaxed);
        }
    }

    /// Puts the state into the registers. Interrupts off.
    #[inline(always)]
    fn load(&self, cpu: &PerCpu) {
        self.extended.load_registers(self.xcr0);
        let fs = self.fs_base.load(Ordering::Relaxed);
        let gs = self.gs_base.load(Ordering::Relaxed);
        if self.fsgsbase {
            // SAFETY: the CPU has the instructions, and the kernel turned them on; both come from
            // the registers, or from `VirtAddr`.
            unsafe { cpu::set_user_bases(fs, gs) }
        } else {
            FsBase::write(VirtAddr::new_truncate(fs));
            KernelGsBase::write(VirtAddr::new_truncate(gs));
        }
        self.load_ports(cpu);
        cpu.use_numbering(&self.numbering);
    }

    #[inline(always)]
    fn load_ports(&self, cpu: &PerCpu) {
        match self.has_ports.load(Ordering::Relaxed) {
            true => self.load_some_ports(cpu),
            false => cpu.forbid_ports(),
        }
    }

    #[inline(never)]
    fn load_some_ports(&self, cpu: &PerCpu) {
        let permissions = self.ports.lock();
        let map = permissions.ports().and_then(|ports| {
            Some((<&[u8; PORT_MAP_SIZE]>::try_from(&*ports.map).ok()?, ports.used.clone()))
        });
        match map {
            Some((map, used)) => cpu.allow_ports(map, used),
            None => cpu.forbid_ports(),
        }
    }
}

/// `thread` is about to leave the CPU. Interrupts off.
pub(super) fn leave(thread: &Thread) {
    if let Some(state) = &thread.user {
        state.store();
    }
}

/// `thread` has come to `cpu`, where this runs. Interrupts off.
#[inline(always)]
pub(super) fn arrive(cpu: &PerCpu, thread: &Thread) {
    let Some(state) = &thread.user else { return };
    // A thread that took the place of one that is gone has been nowhere yet.
    let resident = core::ptr::eq(cpu.user_owner(), thread)
        && state.cpu.load(Ordering::Relaxed) == cpu.index.to_word();
    if !resident {
        speculation::switch(&state.guarded);
        state.load(cpu);
        state.cpu.store(cpu.index.to_word(), Ordering::Relaxed);
        cpu.set_user_owner(thread);
    }
    match state.root.load(Ordering::Relaxed) {
        // It must not reach what the one before it left.
        0 => tlb::deactivate(),
        root => tlb::activate(Frame(root)),
    }
}

/// Whether `thread` uses page tables of a program.
pub(super) fn uses_tables(thread: &Thread) -> bool {
    thread.user.as_ref().is_some_and(|state| state.root.load(Ordering::Relaxed) != 0)
}

/// Calls `f` with the current thread's area for extended state while its state is in the registers.
/// Interrupts are off meanwhile. Does nothing in a thread of the kernel.
pub(crate) fn with_extended_state(f: impl FnOnce(&fpu::Area)) {
    let interrupts = InterruptsOff::take();
    if let Some(state) = &current().user {
        f(&state.extended);
    }
    drop(interrupts);
}

/// Makes `space` the current thread's address space (exec), or takes it away.
pub fn set_space(space: Option<Arc<AddressSpace>>) {
    let thread = current();
    let Some(state) = &thread.user else { return };
    let interrupts = InterruptsOff::take();
    state.root.store(space.as_ref().map_or(0, |space| space.root().0), Ordering::Relaxed);
    match &space {
        Some(space) => tlb::activate(space.root()),
        None => tlb::deactivate(),
    }
    drop(interrupts);
    let old = core::mem::replace(&mut *thread.space.lock(), space);
    drop(old);
}

/// FS base and GS base of the current thread.
pub fn segment_bases() -> (UserAddr, UserAddr) {
    let interrupts = InterruptsOff::take();
    let [fs, gs] = [FsBase::read(), KernelGsBase::read()].map(VirtAddr::as_u64);
    drop(interrupts);
    (UserAddr::new(fs), UserAddr::new(gs))
}

/// Sets the FS base of the current thread; the caller has checked that it is a user address.
pub fn set_fs_base(base: UserAddr) {
    let interrupts = InterruptsOff::take();
    if let Some(state) = &current().user {
        let base = VirtAddr::new_truncate(base.get());
        state.fs_base.store(base.as_u64(), Ordering::Relaxed);
        FsBase::write(base);
    }
    drop(interrupts);
}

/// Sets the GS base of the current thread; the caller has checked that it is a user address.
pub fn set_gs_base(base: UserAddr) {
    let interrupts = InterruptsOff::take();
    if let Some(state) = &current().user {
        let base = VirtAddr::new_truncate(base.get());
        state.gs_base.store(base.as_u64(), Ordering::Relaxed);
        KernelGsBase::write(base);
    }
    drop(interrupts);
}

/// Sets by which numbers the current thread knows the CPUs.
pub fn set_numbering(numbering: Numbering) {
    let interrupts = InterruptsOff::take();
    if let Some(state) = &current().user {
        state.numbering.set(numbering);
        percpu::this().use_numbering(&state.numbering);
    }
    drop(interrupts);
}

/// Sets whether the current thread is kept apart from other programs in what the processor
/// predicts, where the processor can do that ([`crate::arch::has_barrier`]).
pub fn set_guarded(guarded: bool) {
    let interrupts = InterruptsOff::take();
    if let Some(state) = &current().user {
        state.guarded.store(guarded, Ordering::Relaxed);
        speculation::switch(&state.guarded);
    }
    drop(interrupts);
}

/// The ports that the current thread may use.
pub fn port_permissions() -> PortPermissions {
    match &current().user {
        Some(state) => state.ports.lock().clone(),
        None => PortPermissions::default(),
    }
}

/// Whether a thread may use one of these ports. Thread context.
pub fn may_use(thread: &Thread, ports: &RangeInclusive<u16>) -> bool {
    let Some(state) = &thread.user else { return false };
    let permissions = state.ports.lock().clone();
    let allows = |map: &Arc<Ports>| ports.clone().any(|port| map.allows(port));
    permissions.some().is_some_and(allows) || permissions.all().is_some_and(allows)
}

/// Sets which ports the current thread may use.
pub fn set_port_permissions(permissions: PortPermissions) {
    let thread = current();
    let Some(state) = &thread.user else { return };
    let has_ports = permissions.ports().is_some();
    let before = core::mem::replace(&mut *state.ports.lock(), permissions);
    drop(before);
    let interrupts = InterruptsOff::take();
    // The thread itself is the only one that looks.
    state.has_ports.store(has_ports, Ordering::Relaxed);
    state.load_ports(percpu::this());
    drop(interrupts);
}

/// `ioperm` for the current thread: allows or forbids `ports`, of which the caller has checked that
/// programs may use them. The hypervisor has a program fault at a port that the cell does not have.
pub fn set_ports(ports: RangeInclusive<u16>, allow: bool) -> Result<(), SpawnError> {
    let before = port_permissions();
    if before.some().is_none() && !allow {
        return Ok(());
    }
    if !heap::has_reserve() {
        return Err(SpawnError);
    }
    let mut some = before.some().map_or_else(Ports::none, |some| Ports::clone(some));
    some.set(ports, allow);
    set_port_permissions(PortPermissions::new(Some(Arc::new(some)), before.all().cloned()));
    Ok(())
}

/// `iopl` for the current thread: allows all ports that programs may use now, or no more than were
/// allowed one by one.
pub fn set_all_ports(allow: bool) -> Result<(), SpawnError> {
    if !heap::has_reserve() {
        return Err(SpawnError);
    }
    let all = allow.then(|| {
        let mut all = Ports::none();
        ports::usable().for_each(|range| all.set(range, true));
        Arc::new(all)
    });
    set_port_permissions(PortPermissions::new(port_permissions().some().cloned(), all));
    Ok(())
}
