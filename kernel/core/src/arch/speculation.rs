// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel does against what its processor executes ahead; `crtos_registers::speculation`
//! chooses it.

use super::{cpu, percpu};
use crate::info;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicBool, Ordering};
use crtos_abi::MAX_CELL_CPUS;
use crtos_registers::speculation::{self, Measures, Processor};
use crtos_registers::{cpuid, msr};
use spin::Once;

fn measures() -> &'static Measures {
    static MEASURES: Once<Measures> = Once::new();
    MEASURES.call_once(|| {
        let last = __cpuid(cpuid::EXTENDED).eax;
        let leaf = |number| (last >= number).then(|| __cpuid(number));
        speculation::choose(Processor {
            family: Processor::family(__cpuid(cpuid::FEATURES).eax),
            controls: leaf(cpuid::AMD_EXTENDED).map_or(0, |leaf| leaf.ebx),
            further: leaf(cpuid::AMD_EXTENDED_2).map_or(0, |leaf| leaf.eax),
        })
    })
}

/// Whether [`Measures::barrier`] is, for the switch between threads.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

/// The last thread of a program on each CPU wants to be kept apart from others.
static GUARDED: [AtomicBool; MAX_CELL_CPUS] = [const { AtomicBool::new(false) }; MAX_CELL_CPUS];

/// Takes the measures that last, on this CPU. Interrupts off.
pub fn set_up() {
    let measures = measures();
    HAS_BARRIER.store(measures.barrier, Ordering::Relaxed);
    // SAFETY: the processor says that it has these registers and bits, and every cell may write
    // them then; they change how fast code runs, and nothing else.
    unsafe {
        if measures.automatic_ibrs {
            let efer = cpu::read_msr(msr::EFER);
            cpu::write_msr(msr::EFER, efer | msr::efer::AUTOMATIC_IBRS);
        }
        if measures.spec_ctrl != 0 {
            cpu::write_msr(msr::SPEC_CTRL, measures.spec_ctrl);
        }
    }
}

/// Tells what is done, and what is not.
pub fn tell() {
    let Measures { automatic_ibrs, spec_ctrl, barrier, open } = measures();
    info!(
        "speculation: automatic IBRS {automatic_ibrs}, SPEC_CTRL {spec_ctrl:#x}, \
         barriers on request {barrier}"
    );
    let all = [
        ("the kernel's indirect branches", open.indirect_branches),
        ("branch types (Retbleed)", open.branch_types),
        ("returns (SRSO)", open.return_overflow),
        ("store bypass", open.store_bypass),
    ];
    for (what, _) in all.into_iter().filter(|(_, is_open)| *is_open) {
        info!("speculation: nothing is done against {what}");
    }
}

/// Whether threads can be kept apart.
pub fn has_barrier() -> bool {
    HAS_BARRIER.load(Ordering::Relaxed)
}

/// Whether loads are executed before earlier stores.
pub fn has_store_bypass() -> bool {
    measures().open.store_bypass
}

/// A thread of a program comes to this CPU in place of another one; `guarded`: it wants to be kept
/// apart from others. Then, and after such a one, predictions of branches and returns are
/// forgotten. Interrupts off.
#[inline(always)]
pub fn switch(guarded: &AtomicBool) {
    if has_barrier() {
        keep_apart(guarded.load(Ordering::Relaxed));
    }
}

#[cold]
fn keep_apart(guarded: bool) {
    let last = &GUARDED[percpu::this().index.get()];
    let before = last.load(Ordering::Relaxed);
    last.store(guarded, Ordering::Relaxed);
    if !guarded && !before {
        return;
    }
    // SAFETY: the processor has the command, and every cell may give it then; only predictions
    // change.
    unsafe { cpu::write_msr(msr::PRED_CMD, msr::PRED_CMD_IBPB) };
    fill_returns();
}

/// Fills the predictions of returns with a place where nothing is executed: the command above
/// leaves them on older processors.
fn fill_returns() {
    // SAFETY: each call pushes a word that is dropped afterwards; what follows the calls is
    // executed ahead only, and stops there.
    unsafe {
        asm!(
            ".rept 32",
            "call 2f",
            "3:",
            "pause",
            "lfence",
            "jmp 3b",
            "2:",
            ".endr",
            "add rsp, 32 * 8",
        );
    }
}
