// SPDX-License-Identifier: MIT OR Apache-2.0
//! Underneath Linux, and away again (see [`crtos_abi::image`]).
//!
//! The module's page tables, which also map Linux's upper half, are in use until a CPU has been
//! taken over, and again when it is left. In between the hypervisor runs on tables of its own,
//! without anything of Linux.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

#[doc(hidden)]
pub use crtos_abi::ABI_VERSION;
#[doc(hidden)]
pub use crtos_abi::image::IMAGE_MAGIC;
use crtos_abi::image::{
    HYPERVISOR_BASE, ImageHeader, LAUNCH_BAD_INFO, LaunchInfo, MAX_HYPERVISOR_BLOCKS, REPORT_SIZE,
};
use crtos_abi::{LARGE_PAGE_SIZE, MAX_CPUS, PAGE_SIZE};
use crtos_partition::address::PhysAddr;
use crtos_partition::error::LaunchError;
use crtos_partition::ids::CpuIndex;
use crtos_registers::apic::Register;

use crate::arch::{Resume, Vcpu, VirtualCpu};
use crate::cpu::{self, Owner};
use crate::direct_map::AnyBits;
use crate::frames::{Frames, Owned};
use crate::local::{LOCALS, Local, Request, STACK_SIZE, STACK_TOP};
use crate::ownership::{self, Released};
use crate::processor;
use crate::report::{self, Hypervisor};
use crate::run::{Policy, Run};
use crate::{apic, cell, direct_map, exceptions, launch_info};

const _: () = assert!(size_of::<ImageHeader>() == 40);

/// Makes the program that says it the hypervisor's image, with this [`Policy`]: puts an
/// `ImageHeader` into the section `.header`.
#[macro_export]
macro_rules! image {
    ($policy:ty) => {
        ::core::arch::global_asm!(
            ".section .header, \"a\"",
            ".quad {magic}",
            ".long {version}",
            ".long 0",
            ".quad IMAGE_SIZE",
            ".quad {init}",
            ".quad {enter}",
            ".text",
            magic = const $crate::launch::IMAGE_MAGIC,
            version = const $crate::launch::ABI_VERSION,
            init = sym $crate::launch::init,
            enter = sym $crate::launch::enter::<$policy>,
        );
    };
}

/// Most bytes of an IOMMU's registers.
const IOMMU_MAX: u64 = 0x10_0000;
/// The highest address at which configuration space begins is lower.
const MMCONFIG_END: u64 = 1 << 47;
/// Frames at the end of block 0 that hold the module's page tables.
const MODULE_TABLES: usize = 4;

const BOOT_STACK_SIZE: usize = 32768;
#[repr(C, align(16))]
struct BootStack(UnsafeCell<[u8; BOOT_STACK_SIZE]>);
// SAFETY: Used by `init` only, which runs once.
unsafe impl Sync for BootStack {}
static BOOT_STACK: BootStack = BootStack(UnsafeCell::new([0; BOOT_STACK_SIZE]));

/// A page table.
#[repr(C, align(4096))]
struct Table([u64; 512]);
// SAFETY: Plain integers.
unsafe impl AnyBits for Table {}

/// Top table of the hypervisor's own page tables.
static PAGE_TABLE: AtomicU64 = AtomicU64::new(0);

/// Sets the hypervisor up; 0 or a launch error.
///
/// # Safety
/// Called once, as [`crtos_abi::image`] says, on Linux's stack, which is left alone.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn init() -> i64 {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "lea rsp, [rip + {stack} + {size}]",
        "call {inner}",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        stack = sym BOOT_STACK,
        size = const BOOT_STACK_SIZE,
        inner = sym init_inner,
    )
}

/// Sets the hypervisor up, on a stack of its own.
///
/// # Safety
/// Called by [`init`].
unsafe extern "sysv64" fn init_inner() -> i64 {
    // SAFETY: `init` is called once, with the module's page tables.
    match unsafe { set_up(launch_info::get()) } {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

unsafe extern "C" {
    static IMAGE_END: u8;
}

/// Checks that the numbers are in range and that places lie in RAM.
fn check(info: &LaunchInfo) -> Result<(), LaunchError> {
    let in_memory = |address: u64, size: u64| {
        address.is_multiple_of(size)
            && address.checked_add(size).is_some_and(|end| end <= info.memory_end)
    };
    let counts = (1..=MAX_CPUS).contains(&(info.cpu_count as usize))
        && (1..=MAX_HYPERVISOR_BLOCKS).contains(&(info.block_count as usize));
    let places = info.memory_end <= direct_map::END.get()
        && in_memory(info.report_address, REPORT_SIZE)
        && launch_info::blocks().all(|block| in_memory(block.get(), LARGE_PAGE_SIZE));
    let ports = u16::try_from(info.smi_port).is_ok() && launch_info::resets().is_some();
    let report = info.report_address..info.report_address.saturating_add(REPORT_SIZE);
    let apart = |page: PhysAddr| !launch_info::is_own(page) && !report.contains(&page.get());
    let devices = launch_info::io_apics()
        .map(|(_, page)| page)
        .chain(launch_info::hpets())
        .all(|page| page.is_aligned(PAGE_SIZE) && page < direct_map::END && apart(page));
    // It may lie where the hypervisor does not reach it.
    let mmconfig = launch_info::configuration_memory().is_none_or(|first| {
        first.is_aligned(PAGE_SIZE)
            && first.get() < MMCONFIG_END
            && !launch_info::is_configuration(PhysAddr::new(info.report_address))
            && !launch_info::blocks().any(launch_info::is_configuration)
    });
    let configuration = mmconfig
        && launch_info::configuration_pages().all(apart)
        && launch_info::configurations()
            .all(|registers| registers.first <= registers.last && registers.last <= 0xfff);
    let iommus = launch_info::iommus().all(|iommu| {
        iommu.address.is_multiple_of(PAGE_SIZE)
            && iommu.size.is_multiple_of(PAGE_SIZE)
            && iommu.address.checked_add(iommu.size).is_some_and(|end| end <= direct_map::END.get())
            && iommu.size <= IOMMU_MAX
    });
    // Looked at only where the addresses make sense.
    let iommus = iommus && launch_info::iommu_pages().all(apart);
    let devices = devices && configuration && iommus;
    if counts && places && ports && devices && info.x2apic <= 1 && info.tsc_khz > 0 {
        Ok(())
    } else {
        Err(LaunchError::BadInfo)
    }
}

/// Sets up what all CPUs share, and the memory of each.
///
/// # Safety
/// Called once, before any CPU enters, with the module's page tables and truthful launch
/// information.
unsafe fn set_up(info: &LaunchInfo) -> Result<(), LaunchError> {
    check(info)?;
    let report_area = PhysAddr::new(info.report_address);
    // SAFETY: The area is aligned RAM, which the module took for the report alone; no CPU has
    // entered yet.
    unsafe {
        report::start(report_area, info.cpu_count);
        exceptions::init();
    }
    let image_frames = ((&raw const IMAGE_END as u64 - HYPERVISOR_BASE) / PAGE_SIZE) as usize;
    let add_memory = |frames: &mut Frames| {
        for (index, block) in launch_info::blocks().enumerate() {
            let (head, tail) = if index == 0 { (image_frames, MODULE_TABLES) } else { (0, 0) };
            // SAFETY: The module took the block for the hypervisor; the image and the module's page
            // tables are left out.
            unsafe { frames.add_block(block, head, tail) };
        }
    };
    let report_pages =
        (0..REPORT_SIZE).step_by(PAGE_SIZE as usize).map(|offset| report_area + offset);
    // A store there is a message to any CPU, with any vector. In xAPIC mode the first page is each
    // CPU's own APIC, whose writes are carried out after a look.
    let messages = (0..apic::MESSAGES).step_by(PAGE_SIZE as usize);
    let messages = messages.map(|offset| apic::XAPIC_PAGE + offset);
    let end = info.memory_end.max(1 << 32);
    let read_only = report_pages.chain(messages).chain(launch_info::read_only_devices());
    ownership::init(add_memory, end, launch_info::blocks(), read_only, |frames| {
        // SAFETY: The module's top table, in one of the hypervisor's blocks.
        unsafe { make_page_table(frames, PhysAddr::new(info.host_cr3)) }?;
        launch_info::cpus().try_for_each(|index| make_local(frames, index))
    })
    .ok_or(LaunchError::NoMemory)?;
    report::line(format_args!(
        "hypervisor: version {ABI_VERSION}, {} CPUs, {} mode",
        info.cpu_count,
        if launch_info::x2apic() { "x2APIC" } else { "xAPIC" }
    ));
    Ok(())
}

/// Makes the hypervisor's own page tables: the module's without Linux, that is the direct map and
/// the hypervisor.
///
/// # Safety
/// `module_table` is the module's top table, as a value of CR3.
unsafe fn make_page_table(frames: &mut Frames, module_table: PhysAddr) -> Option<()> {
    let module_table = direct_map::pointer::<[u64; 512]>(module_table.align_down(PAGE_SIZE));
    let mut table: Owned<Table> = frames.take()?;
    for index in [0, (HYPERVISOR_BASE >> 39) as usize] {
        // SAFETY: A table has 512 words, and nobody changes the module's.
        table.0[index] = unsafe { (*module_table)[index] };
    }
    PAGE_TABLE.store(table.address().get(), Ordering::Relaxed);
    Some(())
}

/// Makes the memory of CPU `index`, if the machine has it.
fn make_local(frames: &mut Frames, index: CpuIndex) -> Option<()> {
    if !launch_info::exists(index) {
        return Some(());
    }
    let count = STACK_SIZE / PAGE_SIZE as usize;
    let place = frames.allocate(count, count)?;
    let vcpu = Vcpu::new(frames)?;
    // SAFETY: Fresh frames, enough of them and aligned.
    unsafe { Local::make(place, index, vcpu) };
    Some(())
}

/// Puts the hypervisor underneath this CPU. RDI = index, RSI, RDX = where and with which stack to
/// go on, RCX, R8 = CR3 and CR4 of Linux.
///
/// # Safety
/// Jumped to on each CPU as [`crtos_abi::image`] says, after [`init`] has succeeded.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn enter<P: Policy>() {
    naked_asm!(
        "mov rax, {bad_info}",
        "cmp rdi, {cpus}",
        "jae 2f",
        "lea r9, [rip + {locals}]",
        "mov rdi, [r9 + rdi * 8]",
        "test rdi, rdi",
        "jz 2f",
        "lea rsp, [rdi + {stack_top} - 16]",
        "mov [rsp], rsi",
        "mov [rsp + 8], rdx",
        "call {inner}",
        "mov rsi, [rsp]",
        "mov rdx, [rsp + 8]",
        "2:",
        "mov rsp, rdx",
        "jmp rsi",
        bad_info = const LAUNCH_BAD_INFO,
        cpus = const MAX_CPUS,
        locals = sym LOCALS,
        stack_top = const STACK_TOP,
        inner = sym enter_inner::<P>,
    )
}

/// Returns an error, or never.
///
/// # Safety
/// Called by [`enter`] with the memory of this CPU.
unsafe extern "sysv64" fn enter_inner<P: Policy>(
    local: *mut Local,
    rip: u64,
    rsp: u64,
    cr3: u64,
    cr4: u64,
) -> i64 {
    // SAFETY: The memory of this CPU, which `init` has made and nobody else refers to.
    let this = unsafe { &mut *local };
    // SAFETY: Linux has called on this CPU, with interrupts off.
    match unsafe { go_underneath(this, &Resume { rip, rsp, cr3, cr4 }) } {
        // SAFETY: `Run` is `Local` by its layout, and its virtual CPU has Linux as its guest; all
        // interrupts are blocked.
        Ok(()) => unsafe { Vcpu::run(local.cast::<Run<P>>()) },
        Err(error) => error.code(),
    }
}

/// Makes Linux the guest of this CPU, and the processor state the hypervisor's.
///
/// # Safety
/// Called on the CPU that `local` belongs to, with interrupts off and the module's page tables,
/// after [`init`].
unsafe fn go_underneath(local: &mut Local, resume: &Resume) -> Result<(), LaunchError> {
    Vcpu::check()?;
    let apic = apic::get();
    if !apic.mode_agrees() || apic.id() != launch_info::apic_id(local.index()) {
        return Err(LaunchError::BadInfo);
    }
    let domain = cell::ROOT.get(None).ok_or(LaunchError::BadInfo)?;
    if !launch_info::x2apic() {
        let cpu = local.cpu();
        cpu.logical.store(apic.read(Register::LOGICAL_DESTINATION), Ordering::Relaxed);
        cpu.format.store(apic.read(Register::DESTINATION_FORMAT), Ordering::Relaxed);
    }
    let page_table = PhysAddr::new(PAGE_TABLE.load(Ordering::Relaxed));
    // SAFETY: The check has succeeded here, and the memory of CPUs as well as the domain of the
    // root cell stay for ever. Both page tables map the image and the direct map, where code,
    // statics, stack and `local` are.
    unsafe {
        local.vcpu().enable();
        local.vcpu().capture(&domain, resume);
        Vcpu::block_interrupts();
        exceptions::take_over(page_table);
    }
    cpu::set_owner(local.index(), Owner::Root);
    Ok(())
}

/// Leaves this CPU: Linux goes on without the hypervisor underneath.
pub fn leave(local: &mut Local, _: Released) -> ! {
    if cpu::those(|cpu| cpu.owner() == Owner::Root).is_empty() {
        report::line(format_args!("hypervisor: left"));
        report::state(Hypervisor::Left);
    }
    // A kick that is still on its way must not reach Linux.
    let deadline = processor::deadline(100);
    while local.cpu().kicked.load(Ordering::SeqCst) && processor::tsc() < deadline {
        // SAFETY: In host mode on the stack of this CPU.
        unsafe { Vcpu::nmi_window() };
        local.note_kick();
    }
    let wanted = local.take_requests().has(Request::Nmi);
    if wanted || local.nmi_wanted {
        // Stays pending until Linux's own handler is in place.
        apic::get().nmi(launch_info::apic_id(local.index()));
    }
    let info = launch_info::get();
    // SAFETY: In host mode, on the CPU of this guest; no kick is on its way; the module's page
    // tables map this code and the trampoline in the module's text.
    unsafe { local.vcpu().leave(PhysAddr::new(info.host_cr3), info.leave_trampoline) }
}
