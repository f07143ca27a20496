// SPDX-License-Identifier: MIT OR Apache-2.0
//! Underneath Linux, and away again (see [`crtos_abi::image`]).
//!
//! The module's page tables, which also map Linux's upper half, are in use until a CPU has been taken over, and again when it is
//! left. In between the hypervisor runs on tables of its own, without anything of Linux.

use core::arch::{global_asm, naked_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::image::{
    HYPERVISOR_BASE, IMAGE_MAGIC, ImageHeader, LAUNCH_BAD_INFO, LAUNCH_NO_MEMORY, LaunchInfo,
    MAX_HYPERVISOR_BLOCKS, REPORT_SIZE,
};
use crtos_abi::{ABI_VERSION, LARGE_PAGE_SIZE, MAX_CPUS, PAGE_SIZE};

use crate::arch::{Resume, Vcpu, VirtualCpu};
use crate::local::{LOCALS, Local, STACK_SIZE, STACK_TOP};
use crate::machine::{self, Owner};
use crate::memory::{self, Memory};
use crate::{apic, cell, host, local, management, report};

const _: () = assert!(size_of::<ImageHeader>() == 40);

// An `ImageHeader`.
global_asm!(
    ".section .header, \"a\"",
    ".quad {magic}",
    ".long {version}",
    ".long 0",
    ".quad IMAGE_SIZE",
    ".quad {init}",
    ".quad {enter}",
    ".text",
    magic = const IMAGE_MAGIC,
    version = const ABI_VERSION,
    init = sym init,
    enter = sym enter,
);

/// Frames at the end of block 0 that hold the module's page tables.
const MODULE_TABLES: usize = 4;

const BOOT_STACK_SIZE: usize = 32768;
#[repr(C, align(16))]
struct BootStack(core::cell::UnsafeCell<[u8; BOOT_STACK_SIZE]>);
// SAFETY: Used by `init` only, which runs once.
unsafe impl Sync for BootStack {}
static BOOT_STACK: BootStack = BootStack(core::cell::UnsafeCell::new([0; BOOT_STACK_SIZE]));

/// Top table of the hypervisor's own page tables.
static PAGE_TABLE: AtomicU64 = AtomicU64::new(0);

/// Sets the hypervisor up; called once, on Linux's stack, which is left alone.
#[unsafe(naked)]
extern "sysv64" fn init() -> i64 {
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

extern "sysv64" fn init_inner() -> i64 {
    match set_up(machine::launch_info()) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

unsafe extern "C" {
    static IMAGE_END: u8;
}

fn blocks(info: &LaunchInfo) -> &[u64] {
    &info.blocks[..(info.block_count as usize).min(MAX_HYPERVISOR_BLOCKS)]
}

fn check(info: &LaunchInfo) -> Result<(), i64> {
    let in_memory = |address: u64, size: u64| {
        address.is_multiple_of(size)
            && address.checked_add(size).is_some_and(|end| end <= info.memory_end)
    };
    let counts = (1..=MAX_CPUS).contains(&(info.cpu_count as usize))
        && (1..=MAX_HYPERVISOR_BLOCKS).contains(&(info.block_count as usize));
    let places = info.memory_end <= memory::DIRECT_END
        && in_memory(info.report_address, REPORT_SIZE)
        && blocks(info).iter().all(|block| in_memory(*block, LARGE_PAGE_SIZE));
    if counts && places && info.x2apic <= 1 && info.tsc_khz > 0 {
        Ok(())
    } else {
        Err(LAUNCH_BAD_INFO)
    }
}

fn set_up(info: &LaunchInfo) -> Result<(), i64> {
    check(info)?;
    report::start(info.report_address, info.cpu_count);
    host::init();
    let image_frames = ((&raw const IMAGE_END as u64 - HYPERVISOR_BASE) / PAGE_SIZE) as usize;
    let add_memory = |memory: &mut Memory| {
        for (index, block) in blocks(info).iter().enumerate() {
            let (head, tail) = if index == 0 { (image_frames, MODULE_TABLES) } else { (0, 0) };
            memory.add_block(*block, head, tail);
        }
    };
    let report_pages =
        (info.report_address..info.report_address + REPORT_SIZE).step_by(PAGE_SIZE as usize);
    let apic_page = (info.x2apic == 0).then_some(apic::XAPIC_PAGE);
    let end = info.memory_end.max(1 << 32);
    management::init(add_memory, end, blocks(info), report_pages.chain(apic_page), |memory| {
        make_page_table(memory, info.host_cr3)?;
        (0..machine::cpu_count()).try_for_each(|index| make_local(memory, index))
    })
    .ok_or(LAUNCH_NO_MEMORY)?;
    report::line(format_args!(
        "hypervisor: version {ABI_VERSION}, {} CPUs, {} mode",
        info.cpu_count,
        if info.x2apic == 1 { "x2APIC" } else { "xAPIC" }
    ));
    Ok(())
}

/// The module's tables without Linux: the direct map and the hypervisor.
fn make_page_table(memory: &mut Memory, module_table: u64) -> Option<()> {
    let table = memory.allocate(1, 1)?;
    for index in [0, HYPERVISOR_BASE >> 39] {
        // SAFETY: The module's top table and a fresh frame, both of 512 words.
        unsafe {
            let entry = memory::pointer::<u64>((module_table & !0xfff) + index * 8).read();
            memory::pointer::<u64>(table + index * 8).write(entry);
        }
    }
    PAGE_TABLE.store(table, Ordering::Relaxed);
    Some(())
}

fn make_local(memory: &mut Memory, index: usize) -> Option<()> {
    if machine::apic_id(index) == u32::MAX {
        return Some(());
    }
    let frames = STACK_SIZE / PAGE_SIZE as usize;
    let address = memory.allocate(frames, frames)?;
    let vcpu = Vcpu::new(memory)?;
    // SAFETY: Fresh memory, aligned and large enough.
    unsafe { memory::pointer::<Local>(address).write(Local::new(index, vcpu)) };
    LOCALS[index].store(address, Ordering::Release);
    Some(())
}

/// Puts the hypervisor underneath this CPU. RDI = index, RSI, RDX = where and with which stack to go on,
/// RCX, R8 = CR3 and CR4 of Linux.
#[unsafe(naked)]
extern "sysv64" fn enter() {
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
        inner = sym enter_inner,
    )
}

/// Returns an error, or never.
///
/// # Safety
/// Called by [`enter`] with the memory of this CPU.
unsafe extern "sysv64" fn enter_inner(
    local: *mut Local,
    rip: u64,
    rsp: u64,
    cr3: u64,
    cr4: u64,
) -> i64 {
    // SAFETY: The memory of this CPU, which nobody else refers to.
    let this = unsafe { &mut *local };
    if let Err(error) = Vcpu::check() {
        return error;
    }
    let apic = apic::get();
    if !apic.mode_agrees() || apic.id() != machine::apic_id(this.index) {
        return LAUNCH_BAD_INFO;
    }
    if machine::launch_info().x2apic == 0 {
        this.cpu().logical.store(apic.read(apic::LOGICAL_DESTINATION), Ordering::Relaxed);
        this.cpu().format.store(apic.read(apic::DESTINATION_FORMAT), Ordering::Relaxed);
    }
    this.vcpu.enable();
    this.vcpu.capture(&machine::ROOT.get(None), &Resume { rip, rsp, cr3, cr4 });
    // SAFETY: SVM is on, interrupts are off; both page tables map the image and the direct map, where code,
    // statics, stack and `Local` are.
    unsafe {
        host::take_over(PAGE_TABLE.load(Ordering::Relaxed));
        machine::set_owner(this.index, Owner::Root);
        Vcpu::run(local)
    }
}

/// Leaves this CPU, which [`management::release_cpu`] has allowed. Never returns to the caller.
pub fn leave(local: &mut Local) -> ! {
    if machine::cpus(|cpu| cpu.owner() == Owner::Root).is_empty() {
        report::line(format_args!("hypervisor: left"));
        report::state(0);
    }
    // A kick that is still on its way must not reach Linux.
    let deadline = cell::deadline(100);
    while local.cpu().kicked.load(Ordering::SeqCst) && host::tsc() < deadline {
        Vcpu::nmi_window();
        local.note_kick();
    }
    let wanted = local.cpu().requests.swap(0, Ordering::SeqCst) & local::NMI != 0;
    if wanted || local.nmi_wanted {
        // Stays pending until Linux's own handler is in place.
        apic::get().send(machine::apic_id(local.index), apic::ASSERT | apic::NMI);
    }
    let info = machine::launch_info();
    // SAFETY: In host mode, on the CPU of this guest; no kick is on its way.
    unsafe { local.vcpu.leave(info.host_cr3, info.leave_trampoline) }
}
