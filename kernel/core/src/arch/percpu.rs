// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs to one CPU, found through the GS base while it is in the kernel.

use super::gdt::{PORT_MAP_SIZE, Segments};
use super::interrupts::InterruptsOff;
use super::{apic, cpu};
use crate::cpu_numbers::{Chosen, Numbering};
use crate::sections::{self, Sections};
use crate::sync::SpinLock;
use crate::task::Thread;
use crate::task::scheduler::{self, Runner};
use alloc::alloc::{Layout, alloc};
use core::arch::asm;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};
use crtos_abi::{MAX_CELL_CPUS, ids::RealmCpu};
use crtos_registers::apic::ApicId;
use crtos_vm::Frame;
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
    need_resched: AtomicU16,
    /// The thread that runs has got something to attend to, perhaps long ago.
    has_attention: AtomicU16,
    current: AtomicPtr<Thread>,
    /// What that thread carries for the personality, or null.
    carried: AtomicPtr<()>,
    /// The objects that this CPU uses without a reference: one, and one for a moment. See
    /// [`crate::hazard`].
    pub(crate) in_use: [AtomicPtr<()>; 2],
    /// Which CPU it is.
    pub index: RealmCpu,
    /// Id of the CPU's local APIC.
    apic_id: AtomicU32,
    /// Rank of what it runs, as the channel has it.
    rank: AtomicU32,
    /// It was asked to look for what Linux has stored.
    looks: AtomicBool,
    /// How many things go on, one in another, that are not the doing of the thread that runs.
    interrupt_depth: AtomicU8,
    /// The program's thread whose state (see `task::user`) the registers hold.
    user_owner: AtomicPtr<Thread>,
    /// The root of the page tables that the CPU uses.
    root: AtomicU64,
    /// How often others asked the CPU to forget translations, and up to which of these it has.
    flushes_asked: AtomicU64,
    /// See `flushes_asked`.
    flushes_done: AtomicU64,
    /// Where and for how long interrupts are off.
    pub sections: Sections,
    /// Bytes of the loaded port map that allow something.
    loaded_ports: SpinLock<Range<usize>>,
    /// Segments and task state.
    pub(super) segments: Segments,
    /// By which numbers the program that was here last knows CPUs.
    numbering: Chosen,
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
    /// Of other CPUs, by [`PerCpu::kick`] and [`PerCpu::ask_flush`].
    pub kicks: AtomicU64,
    /// Those of devices.
    pub devices: AtomicU64,
    /// Vectors that nobody asked for.
    pub spurious: AtomicU64,
}

/// Offsets for the assembly.
pub(super) const SCRATCH: usize = core::mem::offset_of!(PerCpu, scratch);
pub(super) const KERNEL_STACK: usize = core::mem::offset_of!(PerCpu, kernel_stack);
/// What the fast path looks at when it has finished a call: `need_resched` and `has_attention` in
/// one.
pub(super) const DUE: usize = {
    let due = core::mem::offset_of!(PerCpu, need_resched);
    assert!(core::mem::offset_of!(PerCpu, has_attention) == due + 2);
    due
};
pub(super) const CURRENT: usize = core::mem::offset_of!(PerCpu, current);
pub(super) const CARRIED: usize = core::mem::offset_of!(PerCpu, carried);
/// Offset of [`PerCpu::sections`] from the GS base.
pub const SECTIONS: usize = core::mem::offset_of!(PerCpu, sections);
const IN_USE: usize = core::mem::offset_of!(PerCpu, in_use);
const PREEMPT_COUNT: usize = core::mem::offset_of!(PerCpu, preempt_count);
const NEED_RESCHED: usize = core::mem::offset_of!(PerCpu, need_resched);
const INTERRUPT_DEPTH: usize = core::mem::offset_of!(PerCpu, interrupt_depth);

impl PerCpu {
    const fn new(index: RealmCpu, apic_id: ApicId) -> Self {
        Self {
            this: AtomicPtr::new(ptr::null_mut()),
            scratch: AtomicU64::new(0),
            kernel_stack: AtomicU64::new(0),
            // Held until the CPU runs its first thread.
            preempt_count: AtomicU32::new(1),
            need_resched: AtomicU16::new(0),
            has_attention: AtomicU16::new(0),
            current: AtomicPtr::new(ptr::null_mut()),
            carried: AtomicPtr::new(ptr::null_mut()),
            in_use: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            index,
            apic_id: AtomicU32::new(apic_id.0),
            rank: AtomicU32::new(0),
            looks: AtomicBool::new(false),
            interrupt_depth: AtomicU8::new(0),
            user_owner: AtomicPtr::new(ptr::null_mut()),
            root: AtomicU64::new(0),
            flushes_asked: AtomicU64::new(0),
            flushes_done: AtomicU64::new(0),
            sections: Sections::new(),
            loaded_ports: SpinLock::new(0..0),
            segments: Segments::new(),
            numbering: Chosen::new(),
            runner: Once::new(),
            interrupts: Interrupts {
                timer: AtomicU64::new(0),
                doorbell: AtomicU64::new(0),
                kicks: AtomicU64::new(0),
                devices: AtomicU64::new(0),
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

    /// Asks this CPU to look for what Linux has stored as well. By this CPU, interrupts off.
    pub fn ask_look(&self) {
        self.looks.store(true, Ordering::Relaxed);
        self.set_need_resched();
    }

    /// Says whether it was asked that. By this CPU, interrupts off.
    pub fn take_look(&self) -> bool {
        self.looks.load(Ordering::Relaxed) && self.looks.swap(false, Ordering::Relaxed)
    }

    /// Asks this CPU, which is not the caller's, to look for another thread at once: by one
    /// interrupt, unless it is about to look anyway. Causes one VM exit.
    pub fn kick(&self) {
        if self.need_resched.swap(1, Ordering::SeqCst) == 0 {
            self.interrupt();
        }
    }

    /// Interrupts this CPU, which is not the caller's, so that what it runs passes the check before
    /// the return to user mode. Causes one VM exit.
    pub fn interrupt(&self) {
        apic::interrupt(self.apic_id());
    }

    /// Whether it does something that is not the doing of the thread that runs. By this CPU.
    pub fn is_in_interrupt(&self) -> bool {
        self.interrupt_depth.load(Ordering::Relaxed) > 0
    }

    /// The rank of what it runs.
    pub fn rank(&self) -> u32 {
        self.rank.load(Ordering::Relaxed)
    }

    /// Notes the rank of what it runs from now on; returns the one before. By this CPU, interrupts
    /// off.
    pub fn swap_rank(&self, rank: u32) -> u32 {
        let before = self.rank.load(Ordering::Relaxed);
        self.rank.store(rank, Ordering::Relaxed);
        before
    }

    /// Says whether the thread that runs here has to look at what is pending. By this CPU. The
    /// thread's own flag is what counts: this one only has the fast path, during which nothing but
    /// the call itself can set that, take the full one.
    pub fn set_attention(&self, wanted: bool) {
        self.has_attention.store(wanted.into(), Ordering::Relaxed);
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
    pub fn set_current(&self, thread: &Thread, stack_top: u64) {
        self.current.store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
        self.carried.store(thread.carried.as_ptr().cast_mut(), Ordering::Relaxed);
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

    /// The root of the page tables that the CPU uses.
    pub fn root(&self) -> Frame {
        Frame(self.root.load(Ordering::SeqCst))
    }

    /// Notes that root. By this CPU, before it loads it.
    pub fn set_root(&self, root: Frame) {
        self.root.store(root.0, Ordering::Relaxed);
    }

    /// Asks this CPU, which is not the caller's, to forget the translations of programs; the result
    /// is for [`PerCpu::has_flushed`]. Causes one VM exit.
    pub fn ask_flush(&self) -> u64 {
        let number = self.flushes_asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.interrupt();
        number
    }

    /// Whether the CPU has done what was asked with `number`.
    pub fn has_flushed(&self, number: u64) -> bool {
        self.flushes_done.load(Ordering::Acquire) >= number
    }

    /// The number of the last flush that was asked for, if that is not done. By this CPU.
    pub fn flush_wanted(&self) -> Option<u64> {
        let asked = self.flushes_asked.load(Ordering::SeqCst);
        (asked != self.flushes_done.load(Ordering::Relaxed)).then_some(asked)
    }

    /// All flushes up to `number` are done. By this CPU.
    pub fn flushed(&self, number: u64) {
        self.flushes_done.store(number, Ordering::Release);
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

    /// Notes the id of the CPU's local APIC.
    pub fn set_apic_id(&self, id: ApicId) {
        self.apic_id.store(id.0, Ordering::Relaxed);
    }

    /// The id of the CPU's local APIC.
    pub fn apic_id(&self) -> ApicId {
        ApicId(self.apic_id.load(Ordering::Relaxed))
    }

    /// Sets by which numbers the program that runs here knows CPUs. By this CPU.
    pub fn set_numbering(&self, numbering: Numbering) {
        self.numbering.set(numbering);
        self.segments.set_number(numbering.number(self.index));
    }

    /// The same if it was another one before.
    #[inline(always)]
    pub fn use_numbering(&self, numbering: &Chosen) {
        if !self.numbering.is(numbering) {
            self.set_numbering(numbering.get());
        }
    }

    /// Loads this CPU's segments.
    pub fn load_segments(&'static self) {
        self.segments.load(ptr::from_ref(self) as u64);
    }

    /// Whether preemption is held off on this CPU.
    pub fn preemption_held(&self) -> bool {
        self.preempt_count.load(Ordering::Relaxed) != 0
    }
}

static BOOT_CPU: PerCpu = PerCpu::new(RealmCpu::first(), ApicId(0));
static CPUS: [AtomicPtr<PerCpu>; MAX_CELL_CPUS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CELL_CPUS];

/// Makes the first CPU's data reachable; before anything else. Its APIC's id follows by
/// [`PerCpu::set_apic_id`].
pub fn set_up_first() {
    attach(&BOOT_CPU);
}

/// Makes a further CPU's data. In thread context, once for each.
pub fn make(index: RealmCpu, apic_id: ApicId) -> Option<&'static PerCpu> {
    let layout = Layout::new::<PerCpu>();
    // SAFETY: the layout's size is not 0.
    let memory = NonNull::new(unsafe { alloc(layout) })?.cast::<PerCpu>();
    /// Copied, since a kernel stack has no room to build it on.
    static FRESH: PerCpu = PerCpu::new(RealmCpu::first(), ApicId(0));
    // SAFETY: fresh memory of that size and alignment, which is never freed; the pattern owns
    // nothing, and nothing changes it.
    let cpu = unsafe {
        ptr::from_ref(&FRESH).copy_to_nonoverlapping(memory.as_ptr(), 1);
        (&raw mut (*memory.as_ptr()).index).write(index);
        memory.as_ref()
    };
    cpu.set_apic_id(apic_id);
    Some(cpu)
}

/// Makes `cpu` the data of the CPU that this runs on. Interrupts off, once for each.
pub fn attach(cpu: &'static PerCpu) {
    let this = ptr::from_ref(cpu).cast_mut();
    cpu.this.store(this, Ordering::Relaxed);
    CPUS[cpu.index.get()].store(this, Ordering::Release);
    // SAFETY: null selectors are always valid; nothing uses FS or GS yet.
    unsafe {
        FS::set_reg(SegmentSelector::NULL);
        GS::set_reg(SegmentSelector::NULL);
    }
    x86_64::registers::model_specific::GsBase::write(x86_64::VirtAddr::from_ptr(this));
}

/// This CPU's data. With interrupts and preemption on, the thread may be on another CPU afterwards.
pub fn this() -> &'static PerCpu {
    let this: *const PerCpu;
    // SAFETY: in the kernel, GS points to this CPU's `PerCpu`, which lives for ever; its first
    // field is its address.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly, pure));
        &*this
    }
}

/// The data of CPU `index`, if that CPU runs.
pub fn of(index: RealmCpu) -> Option<&'static PerCpu> {
    let cpu = CPUS[index.get()].load(Ordering::Acquire);
    // SAFETY: entries are null or point to data that lives for ever.
    unsafe { cpu.as_ref() }
}

/// The data of all CPUs that run but `this`.
pub fn others(this: &PerCpu) -> impl Iterator<Item = &'static PerCpu> {
    let own = this.index;
    RealmCpu::all().filter(move |&index| index != own).filter_map(of)
}

/// The thread that runs here: the caller's, on whatever CPU it is.
pub fn current() -> *const Thread {
    let current: *const Thread;
    // SAFETY: one instruction reads this CPU's field, so that the thread cannot move in between.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) current, const CURRENT, options(nostack, preserves_flags, readonly));
    }
    current
}

/// Whether the thread that runs here is one of a program.
pub fn is_programs() -> bool {
    let carried: *const ();
    // SAFETY: one instruction reads this CPU's field, so that the thread cannot move in between.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) carried, const CARRIED, options(nostack, preserves_flags, readonly));
    }
    !carried.is_null()
}

/// Calls `f`, which is not the doing of the thread that runs. Interrupts off, so that the CPU is
/// the same afterwards.
#[inline(always)]
pub fn in_interrupt<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: one instruction on this CPU's own counter; GS points to its `PerCpu`.
    unsafe { asm!("inc byte ptr gs:[{}]", const INTERRUPT_DEPTH, options(nostack)) }
    let result = f();
    // SAFETY: as above.
    unsafe { asm!("dec byte ptr gs:[{}]", const INTERRUPT_DEPTH, options(nostack)) }
    result
}

/// Names the object that this CPU uses ([`PerCpu::in_use`]), before whatever is read next.
/// Interrupts off.
#[inline(always)]
pub(crate) fn use_object<const IS_BRIEF: bool>(object: *const ()) {
    // SAFETY: one instruction on this CPU's own word; it is a full fence.
    unsafe {
        asm!(
            "xchg gs:[{}], {}",
            const IN_USE + 8 * IS_BRIEF as usize,
            inout(reg) object => _,
            options(nostack, preserves_flags),
        )
    }
}

/// This CPU uses no object any more.
#[inline(always)]
pub(crate) fn use_no_object<const IS_BRIEF: bool>() {
    // SAFETY: one instruction on this CPU's own word; a store is not moved before what was done
    // with the object.
    unsafe {
        asm!("mov qword ptr gs:[{}], 0", const IN_USE + 8 * IS_BRIEF as usize, options(nostack, preserves_flags))
    }
}

/// Whether the calling thread holds preemption off.
pub fn preemption_held() -> bool {
    preemption_depth() != 0
}

/// How often it is held off.
#[inline(always)]
fn preemption_depth() -> u32 {
    let count: u32;
    // SAFETY: one instruction reads this CPU's field; a thread that holds preemption off does not
    // move.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) count, const PREEMPT_COUNT, options(nostack, preserves_flags, readonly));
    }
    count
}

/// Takes the interrupts that came meanwhile, without preemption, so that what comes before and
/// after are two sections. Interrupts are off before and after.
pub fn interrupt_window() {
    // What an interrupt does may use objects as well.
    if this().in_use.iter().any(|word| !word.load(Ordering::Relaxed).is_null()) {
        return;
    }
    hold_preemption();
    cpu::restore_interrupts(true);
    cpu::turn_interrupts_off();
    release_preemption();
}

/// Ticks after which a section is divided where that is possible: one more takes a few
/// instructions, which short ones are spared.
const LONG: u32 = 500;

/// The same where nothing follows but the switch to another thread.
const LONG_BEFORE_SWITCH: u32 = 700;

/// Opens an [`interrupt_window`] if what goes on has taken long. An interrupt that came in such a
/// moment is not interrupted in turn, nor is a CPU that has no thread yet. Interrupts are off
/// before and after, and no lock is held.
#[inline(always)]
pub fn interrupt_window_if_long() {
    window_if_longer(LONG);
}

/// As [`interrupt_window_if_long`] where nothing follows but the switch to another thread.
#[inline(always)]
pub fn interrupt_window_before_switch() {
    window_if_longer(LONG_BEFORE_SWITCH);
}

#[inline(always)]
fn window_if_longer(limit: u32) {
    if sections::is_longer(limit) && preemption_depth() == 0 && !current().is_null() {
        interrupt_window();
    }
}

/// As [`interrupt_window_if_long`], in a function of a timer, which runs alone on its CPU, or in
/// what handles the interrupt of a device: also where its interrupt came in such a moment.
pub fn interrupt_window_in_timer() {
    if sections::is_longer(LONG) && preemption_depth() <= 1 && !current().is_null() {
        interrupt_window();
    }
}

/// Holds preemption off on this CPU until [`release_preemption`].
fn hold_preemption() {
    // SAFETY: one instruction on this CPU's own counter; GS points to its `PerCpu`.
    unsafe { asm!("inc dword ptr gs:[{}]", const PREEMPT_COUNT, options(nostack)) }
}

/// Undoes one [`hold_preemption`]; does not preempt by itself.
pub fn release_preemption() {
    // SAFETY: one instruction on this CPU's own counter; GS points to its `PerCpu`.
    unsafe { asm!("dec dword ptr gs:[{}]", const PREEMPT_COUNT, options(nostack)) }
}

/// Whether another thread is to run here, and may. Interrupts off.
#[inline(always)]
pub fn is_preempted() -> bool {
    let cpu = this();
    cpu.needs_resched() && !cpu.preemption_held()
}

/// Turns interrupts, which are off, on, and switches to another thread if that was asked for and is
/// allowed. What comes before and the switch are two sections: an interrupt can come in between.
#[inline(always)]
pub fn open() {
    if is_asked() {
        return open_asked();
    }
    cpu::restore_interrupts(true);
}

/// Whether this CPU was asked to look for another thread: in one instruction, since whoever opens
/// looks. Interrupts off.
#[inline(always)]
fn is_asked() -> bool {
    let asked: u32;
    // SAFETY: GS points to this CPU's `PerCpu`; one aligned load, which a CPU does at once.
    unsafe {
        asm!(
            "movzx {:e}, word ptr gs:[{}]",
            out(reg) asked,
            const NEED_RESCHED,
            options(nostack, preserves_flags, readonly),
        );
    }
    asked != 0
}

/// [`open`] where another thread was asked for.
#[cold]
#[inline(never)]
fn open_asked() {
    let is_held = this().preemption_held();
    cpu::restore_interrupts(true);
    if !is_held {
        preempt();
    }
}

fn preempt() {
    let interrupts = InterruptsOff::take();
    preempt_if_needed();
    drop(interrupts);
}

/// Switches to another thread if that was asked for and is allowed. Interrupts are off before and
/// after.
pub fn preempt_if_needed() {
    if is_preempted() {
        scheduler::reschedule();
    }
}
