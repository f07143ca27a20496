// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments and task state. Selectors are those of Linux, since programs can see them.

use crate::cpu_numbers::CpuNumber;
use core::cell::UnsafeCell;
use crtos_registers::descriptor;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::registers::segmentation::SegmentSelector;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::tss::TaskStateSegment;
use x86_64::{PrivilegeLevel, VirtAddr};

/// Kernel code.
pub const KERNEL_CODE: u16 = 0x10;
/// Kernel data and stack.
pub const KERNEL_DATA: u16 = 0x18;
/// 32-bit code of programs: only the base of SYSRET's selectors.
pub const USER_CODE_32: u16 = 0x23;
/// Data and stack of programs.
pub const USER_DATA: u16 = 0x2b;
/// Code of programs.
pub const USER_CODE: u16 = 0x33;
const TASK_STATE: u16 = 0x40;
/// Index of the descriptor at selector 0x7b, which has the CPU's number.
const CPU_NUMBER: usize = 15;

/// Interrupt stack of double faults (IST index 0).
pub const IST_DOUBLE_FAULT: u16 = 0;
/// Interrupt stack of NMIs.
pub const IST_NMI: u16 = 1;
/// Interrupt stack of debug exceptions.
pub const IST_DEBUG: u16 = 2;
/// Interrupt stack of machine checks.
pub const IST_MACHINE_CHECK: u16 = 3;

/// Bytes of an interrupt stack, a multiple of 16.
const IST_SIZE: usize = 8192;
/// Bytes of a map of all ports; one more byte of ones must follow it (APM vol. 2, 12.2.4).
pub const PORT_MAP_SIZE: usize = 8192;

#[repr(C, align(16))]
struct Stack {
    bytes: [u8; IST_SIZE],
    /// The GS base of the kernel on this CPU, for who comes here before it is loaded.
    gs: u64,
}

#[repr(C, align(16))]
struct TaskState {
    base: TaskStateSegment,
    ports: [u8; PORT_MAP_SIZE + 1],
}

#[repr(C, align(64))]
struct Tables {
    descriptors: [u64; 16],
    task: TaskState,
    stacks: [Stack; 4],
}

/// One CPU's descriptor table, task state and interrupt stacks.
pub struct Segments(UnsafeCell<Tables>);

// SAFETY: only the owning CPU writes, with interrupts off; the processor reads.
unsafe impl Sync for Segments {}

/// Offset of the port map from the task state, and the offset that means none.
const PORTS_OFFSET: u16 = core::mem::offset_of!(TaskState, ports) as u16;
const NO_PORTS: u16 = size_of::<TaskState>() as u16;

/// The descriptor from which programs learn their CPU, as under Linux: the limit of a segment
/// without use is its number, and from bit 12 its memory node, 0.
const fn cpu_number(number: CpuNumber) -> u64 {
    (number.0 & 0xfff) as u64 | 0x0040_f100_0000_0000
}

impl Segments {
    /// Empty tables.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Tables {
            descriptors: [0; 16],
            task: TaskState { base: TaskStateSegment::new(), ports: [0xff; PORT_MAP_SIZE + 1] },
            stacks: [const { Stack { bytes: [0; IST_SIZE], gs: 0 } }; 4],
        }))
    }

    /// Fills the tables and loads them into this CPU. Keeps the GS base, which is `gs`.
    pub fn load(&'static self, gs: u64) {
        // SAFETY: called once by the owning CPU with interrupts off; nobody else refers to the
        // tables yet.
        let tables = unsafe { &mut *self.0.get() };
        for (i, stack) in tables.stacks.iter_mut().enumerate() {
            stack.gs = gs;
            let top = VirtAddr::from_ptr(&raw const stack.gs);
            tables.task.base.interrupt_stack_table[i] = top;
        }
        tables.task.base.iomap_base = NO_PORTS;
        let base = core::ptr::from_ref(&tables.task) as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        tables.descriptors = [
            0,
            0,
            descriptor::KERNEL_CODE,
            descriptor::KERNEL_DATA,
            0, // 32-bit user code: not present, programs are 64-bit
            descriptor::USER_DATA,
            descriptor::USER_CODE,
            0,
            // Available 64-bit TSS (APM vol. 2, 4.8.3).
            limit & 0xffff
                | (base & 0xff_ffff) << 16
                | 0x89 << 40
                | (limit >> 16 & 0xf) << 48
                | (base >> 24 & 0xff) << 56,
            base >> 32,
            0,
            0,
            0,
            0,
            0,
            cpu_number(CpuNumber(0)),
        ];
        let pointer = DescriptorTablePointer {
            limit: size_of_val(&tables.descriptors) as u16 - 1,
            base: VirtAddr::from_ptr(tables.descriptors.as_ptr()),
        };
        let kernel = |selector: u16| SegmentSelector::new(selector >> 3, PrivilegeLevel::Ring0);
        // SAFETY: the table lives for ever and holds flat segments of these kinds at these
        // selectors. FS and GS keep what they have: their bases are set by registers of their own.
        unsafe {
            x86_64::instructions::tables::lgdt(&pointer);
            CS::set_reg(kernel(KERNEL_CODE));
            SS::set_reg(kernel(KERNEL_DATA));
            DS::set_reg(SegmentSelector::NULL);
            ES::set_reg(SegmentSelector::NULL);
            load_tss(kernel(TASK_STATE));
        }
    }

    /// Sets the number by which programs know this CPU (LSL, the vDSO). By the owning CPU.
    pub fn set_number(&self, number: CpuNumber) {
        // SAFETY: only the owning CPU writes, and the processor reads the descriptor only when a
        // program asks.
        unsafe {
            (&raw mut (*self.0.get()).descriptors[CPU_NUMBER]).write_volatile(cpu_number(number))
        }
    }

    /// Sets the stack that the processor takes on entry from a program. By the owning CPU,
    /// interrupts off.
    pub fn set_kernel_stack(&self, top: u64) {
        // SAFETY: only the owning CPU writes, and the processor reads it only at an entry from user
        // mode.
        unsafe {
            (&raw mut (*self.0.get()).task.base.privilege_stack_table[0])
                .write_unaligned(VirtAddr::new_truncate(top))
        }
    }

    /// Forbids all ports to programs. By the owning CPU, interrupts off.
    pub fn forbid_ports(&self) {
        // SAFETY: the owning CPU alone writes its task state, with interrupts off.
        unsafe { (&raw mut (*self.0.get()).task.base.iomap_base).write_unaligned(NO_PORTS) }
    }

    /// Gives programs the ports whose bit is 0 in `map`, of which only `used` bytes differ from all
    /// ones; `stale` bytes of what was loaded before differ. By the owning CPU, interrupts off.
    /// Copies `used` and clears `stale`.
    pub fn allow_ports(
        &self,
        map: &[u8; PORT_MAP_SIZE],
        used: core::ops::Range<usize>,
        stale: core::ops::Range<usize>,
    ) {
        // SAFETY: the owning CPU alone writes its task state, with interrupts off; no other
        // reference to the map exists meanwhile.
        let ports = unsafe { &mut (*self.0.get()).task.ports };
        ports[stale].fill(0xff);
        ports[used.clone()].copy_from_slice(&map[used]);
        // SAFETY: the owning CPU alone writes its task state, with interrupts off.
        unsafe { (&raw mut (*self.0.get()).task.base.iomap_base).write_unaligned(PORTS_OFFSET) }
    }
}
