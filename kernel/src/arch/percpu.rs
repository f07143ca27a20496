// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs to one CPU, found through the GS base while it is in the kernel.

use super::gdt::{PORT_MAP_SIZE, Segments};
use crate::sync::SpinLock;
use crate::task::Thread;
use crate::task::scheduler::{self, Runner};
use core::arch::asm;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crtos_abi::MAX_CELL_CPUS;
use spin::Once;
use x86_64::instructions::segmentation::{FS, GS, Segment};
use x86_64::registers::segmentation::SegmentSelector;

/// One CPU's data. The first fields are known to the assembly in `entry`.
#[repr(C, align(64))]
pub struct PerCpu {
    /// Its own address.
    this: AtomicPtr<PerCpu>,
    /// The program's stack pointer while SYSCALL switches stacks.
    pub(super) scratch: AtomicU64,
    /// Top of the current thread's kernel stack.
    pub(super) kernel_stack: AtomicU64,
    preempt_count: AtomicU32,
    need_resched: AtomicU32,
    current: AtomicPtr<Thread>,
    /// Index of the CPU in the cell.
    pub index: u32,
    /// The program's thread whose state (see `task::user`) the CPU carries.
    user_owner: AtomicPtr<Thread>,
    /// Bytes of the loaded port map that allow something.
    loaded_ports: SpinLock<Range<usize>>,
    /// Segments and task state.
    pub(super) segments: Segments,
    /// Threads and timers of this CPU.
    pub runner: Once<Runner>,
    /// Interrupts by what they were for.
    pub interrupts: Interrupts,
}

/// Counters of interrupts.
#[derive(Default)]
pub struct Interrupts {
    /// The timer's.
    pub timer: AtomicU64,
    /// Doorbells.
    pub doorbell: AtomicU64,
    /// Vectors that nobody asked for.
    pub spurious: AtomicU64,
}

/// Offsets for the assembly.
pub(super) const SCRATCH: usize = core::mem::offset_of!(PerCpu, scratch);
pub(super) const KERNEL_STACK: usize = core::mem::offset_of!(PerCpu, kernel_stack);
const PREEMPT_COUNT: usize = core::mem::offset_of!(PerCpu, preempt_count);

impl PerCpu {
    const fn new(index: u32) -> Self {
        Self {
            this: AtomicPtr::new(ptr::null_mut()),
            scratch: AtomicU64::new(0),
            kernel_stack: AtomicU64::new(0),
            // Held until the CPU runs its first thread.
            preempt_count: AtomicU32::new(1),
            need_resched: AtomicU32::new(0),
            current: AtomicPtr::new(ptr::null_mut()),
            index,
            user_owner: AtomicPtr::new(ptr::null_mut()),
            loaded_ports: SpinLock::new(0..0),
            segments: Segments::new(),
            runner: Once::new(),
            interrupts: Interrupts {
                timer: AtomicU64::new(0),
                doorbell: AtomicU64::new(0),
                spurious: AtomicU64::new(0),
            },
        }
    }

    /// Whether the CPU was asked to look for another thread.
    pub fn needs_resched(&self) -> bool {
        self.need_resched.load(Ordering::Relaxed) != 0
    }

    /// Asks this CPU to look for another thread at the next possible moment.
    pub fn set_need_resched(&self) {
        self.need_resched.store(1, Ordering::Relaxed);
    }

    /// The CPU looked.
    pub fn clear_need_resched(&self) {
        self.need_resched.store(0, Ordering::Relaxed);
    }

    /// The thread that it runs; null before its first.
    pub fn current(&self) -> *const Thread {
        self.current.load(Ordering::Relaxed)
    }

    /// Notes the thread that it runs from now on, and that thread's kernel stack.
    pub fn set_current(&self, thread: *const Thread, stack_top: u64) {
        self.current.store(thread.cast_mut(), Ordering::Relaxed);
        self.kernel_stack.store(stack_top, Ordering::Relaxed);
        self.segments.set_kernel_stack(stack_top);
    }

    /// The program's thread whose state the CPU carries, or null.
    pub fn user_owner(&self) -> *const Thread {
        self.user_owner.load(Ordering::Relaxed)
    }

    /// See [`PerCpu::user_owner`]. Interrupts off.
    pub fn set_user_owner(&self, thread: *const Thread) {
        self.user_owner.store(thread.cast_mut(), Ordering::Relaxed);
    }

    /// Lets programs use the ports whose bit is 0 in the bytes `used` of `map`, and no others. By
    /// this CPU, interrupts off.
    pub fn allow_ports(&self, map: &[u8; PORT_MAP_SIZE], used: Range<usize>) {
        let stale = core::mem::replace(&mut *self.loaded_ports.lock(), used.clone());
        self.segments.allow_ports(map, used, stale);
    }

    /// Lets programs use no ports. By this CPU, interrupts off.
    pub fn forbid_ports(&self) {
        self.segments.forbid_ports();
    }

    /// Loads this CPU's segments.
    pub fn load_segments(&'static self) {
        self.segments.load();
    }

    /// Whether preemption is held off.
    pub fn preemption_held(&self) -> bool {
        self.preempt_count.load(Ordering::Relaxed) != 0
    }
}

static BOOT_CPU: PerCpu = PerCpu::new(0);
static CPUS: [AtomicPtr<PerCpu>; MAX_CELL_CPUS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CELL_CPUS];

/// Makes the first CPU's data reachable; before anything else.
pub fn set_up_first() {
    let this = ptr::from_ref(&BOOT_CPU).cast_mut();
    BOOT_CPU.this.store(this, Ordering::Relaxed);
    CPUS[0].store(this, Ordering::Release);
    // SAFETY: null selectors are always valid; nothing uses FS or GS yet.
    unsafe {
        FS::set_reg(SegmentSelector::NULL);
        GS::set_reg(SegmentSelector::NULL);
    }
    x86_64::registers::model_specific::GsBase::write(x86_64::VirtAddr::from_ptr(this));
}

/// This CPU's data. Without a guard the thread may be elsewhere afterwards once threads move
/// between CPUs.
pub fn this() -> &'static PerCpu {
    let this: *const PerCpu;
    // SAFETY: in the kernel, GS points to this CPU's `PerCpu`, which lives for ever; its first
    // field is its address.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly, pure));
        &*this
    }
}

/// The data of CPU `index` of the cell, if that CPU runs.
pub fn of(index: u32) -> Option<&'static PerCpu> {
    let cpu = CPUS.get(index as usize)?.load(Ordering::Acquire);
    // SAFETY: entries are null or point to data that lives for ever.
    unsafe { cpu.as_ref() }
}

/// Holds preemption off on this CPU until [`release_preemption`].
pub fn hold_preemption() {
    // SAFETY: one instruction on this CPU's own counter; GS points to its `PerCpu`.
    unsafe { asm!("inc dword ptr gs:[{}]", const PREEMPT_COUNT, options(nostack)) }
}

/// Undoes one [`hold_preemption`]; does not preempt by itself.
pub fn release_preemption() {
    // SAFETY: as above.
    unsafe { asm!("dec dword ptr gs:[{}]", const PREEMPT_COUNT, options(nostack)) }
}

/// Switches to another thread if that was asked for and is allowed. Interrupts are off before and
/// after.
pub fn preempt_if_needed() {
    let cpu = this();
    if cpu.needs_resched() && !cpu.preemption_held() {
        scheduler::reschedule();
    }
}
