// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread of a process has beside its general registers: extended state, segment bases, page
//! tables, ports.
//!
//! A CPU keeps all that of the last program's thread while threads of the kernel run, and exchanges
//! it when another program's thread comes; see [`exchange`].

use super::thread::{SpawnError, Thread, current};
use crate::arch::gdt::PORT_MAP_SIZE;
use crate::arch::percpu::PerCpu;
use crate::arch::{cpu, fpu, paging, percpu};
use crate::mm::AddressSpace;
use crate::sync::SpinLock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_vm::Frame;
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, KernelGsBase};

/// Ports that a thread may use.
struct Ports {
    /// Bit set: forbidden.
    map: [u8; PORT_MAP_SIZE],
    /// Bytes of the map that may have a bit clear.
    used: Range<usize>,
}

/// The state while it is not in the CPU.
pub(super) struct UserState {
    extended: fpu::Area,
    fs_base: AtomicU64,
    gs_base: AtomicU64,
    root: AtomicU64,
    ports: SpinLock<Option<Box<Ports>>>,
}

impl UserState {
    /// The state of a new thread in `space`; `None` without memory.
    pub fn new(space: &AddressSpace) -> Option<Self> {
        Some(Self {
            extended: fpu::Area::new()?,
            fs_base: AtomicU64::new(0),
            gs_base: AtomicU64::new(0),
            root: AtomicU64::new(space.root().0),
            ports: SpinLock::new(None),
        })
    }

    /// Takes the state out of the CPU. Interrupts off.
    fn store(&self) {
        self.extended.store_registers();
        // A program changes its bases without the kernel only if it has the instructions.
        if cpu::features().fsgsbase {
            self.fs_base.store(FsBase::read().as_u64(), Ordering::Relaxed);
            self.gs_base.store(KernelGsBase::read().as_u64(), Ordering::Relaxed);
        }
    }

    /// Puts the state into the CPU. Interrupts off.
    fn load(&self, cpu: &PerCpu) {
        self.extended.load_registers();
        FsBase::write(VirtAddr::new_truncate(self.fs_base.load(Ordering::Relaxed)));
        KernelGsBase::write(VirtAddr::new_truncate(self.gs_base.load(Ordering::Relaxed)));
        self.load_ports(cpu);
    }

    fn load_ports(&self, cpu: &PerCpu) {
        match &*self.ports.lock() {
            Some(ports) => cpu.allow_ports(&ports.map, ports.used.clone()),
            None => cpu.forbid_ports(),
        }
    }
}

/// Has the CPU carry the state of `next` if that is a program's thread. Interrupts off, at a
/// switch.
pub(super) fn exchange(cpu: &PerCpu, next: &Thread) {
    let Some(state) = &next.user else { return };
    let owner = cpu.user_owner();
    if !core::ptr::eq(owner, next) {
        // SAFETY: an owner is a thread that did not exit: `disown` forgets it then.
        if let Some(previous) = unsafe { owner.as_ref() }.and_then(|thread| thread.user.as_ref()) {
            previous.store();
        }
        state.load(cpu);
        cpu.set_user_owner(next);
    }
    match state.root.load(Ordering::Relaxed) {
        0 => {}
        root => paging::activate(Frame(root)),
    }
}

/// The current thread exits: its state is given up. Interrupts off.
pub(super) fn disown(cpu: &PerCpu, thread: &Thread) {
    if core::ptr::eq(cpu.user_owner(), thread) {
        cpu.set_user_owner(core::ptr::null());
    }
}

/// Calls `f` with the current thread's area for extended state while its state is in the registers.
/// Interrupts are off meanwhile. Does nothing in a thread of the kernel.
pub fn with_extended_state(f: impl FnOnce(&fpu::Area)) {
    let interrupts = cpu::disable_interrupts();
    if let Some(state) = &current().user {
        f(&state.extended);
    }
    cpu::restore_interrupts(interrupts);
}

/// Last step before a return to user mode. Interrupts off.
pub fn prepare_user() {
    debug_assert!(core::ptr::eq(percpu::this().user_owner(), &*current()));
}

/// Makes `space` the current thread's address space (exec), or takes it away.
pub fn set_space(space: Option<Arc<AddressSpace>>) {
    let thread = current();
    let Some(state) = &thread.user else { return };
    let interrupts = cpu::disable_interrupts();
    let old = state.root.swap(space.as_ref().map_or(0, |space| space.root().0), Ordering::Relaxed);
    match &space {
        Some(space) => paging::activate(space.root()),
        None => paging::deactivate(Frame(old)),
    }
    cpu::restore_interrupts(interrupts);
    let old = core::mem::replace(&mut *thread.space.lock(), space);
    drop(old);
}

/// FS base and GS base of the current thread.
pub fn segment_bases() -> (u64, u64) {
    let interrupts = cpu::disable_interrupts();
    let bases = (FsBase::read().as_u64(), KernelGsBase::read().as_u64());
    cpu::restore_interrupts(interrupts);
    bases
}

/// Sets the FS base of the current thread; the caller has checked that it is a user address.
pub fn set_fs_base(base: u64) {
    let interrupts = cpu::disable_interrupts();
    if let Some(state) = &current().user {
        state.fs_base.store(base, Ordering::Relaxed);
        FsBase::write(VirtAddr::new_truncate(base));
    }
    cpu::restore_interrupts(interrupts);
}

/// Sets the GS base of the current thread; the caller has checked that it is a user address.
pub fn set_gs_base(base: u64) {
    let interrupts = cpu::disable_interrupts();
    if let Some(state) = &current().user {
        state.gs_base.store(base, Ordering::Relaxed);
        KernelGsBase::write(VirtAddr::new_truncate(base));
    }
    cpu::restore_interrupts(interrupts);
}

/// `ioperm` for the current thread: allows or forbids ports `first..first + count`. The hypervisor
/// stops the cell at a port that is not in its configuration, so the caller has checked that the
/// cell has them.
pub fn set_ports(first: u16, count: u32, allow: bool) -> Result<(), SpawnError> {
    let thread = current();
    let Some(state) = &thread.user else { return Ok(()) };
    let ports = u32::from(first)..(u32::from(first) + count).min(0x1_0000);
    if ports.is_empty() {
        return Ok(());
    }
    if state.ports.lock().is_none() {
        if !crate::mm::heap::has_reserve() {
            return Err(SpawnError);
        }
        let fresh = Box::new(Ports { map: [0xff; PORT_MAP_SIZE], used: 0..0 });
        *state.ports.lock() = Some(fresh);
    }
    let bytes = ports.start as usize / 8..(ports.end as usize).div_ceil(8);
    if let Some(own) = &mut *state.ports.lock() {
        for port in ports {
            let bit = 1 << (port % 8);
            let byte = &mut own.map[port as usize / 8];
            *byte = if allow { *byte & !bit } else { *byte | bit };
        }
        own.used = match own.used.is_empty() {
            true => bytes,
            false => own.used.start.min(bytes.start)..own.used.end.max(bytes.end),
        };
    }
    let interrupts = cpu::disable_interrupts();
    state.load_ports(percpu::this());
    cpu::restore_interrupts(interrupts);
    Ok(())
}
