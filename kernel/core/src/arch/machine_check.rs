// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine checks (APM vol. 2, chapter 9): what the banks of this CPU say, and what follows.
//!
//! What was corrected is counted and told. An error that concerns one page of the program that runs
//! ends in a signal for the program, and the page is given up for good. Anything else stops the
//! kernel, which tells why. Banks that several CPUs share are Linux's.

use super::{cpu, hypercall, percpu};
use crate::warn;
use core::arch::x86_64::__cpuid;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::MAX_CELL_CPUS;
use crtos_registers::machine_check::{self, Features, Status, Verdict};
use crtos_registers::{cpuid, msr};
use crtos_vm::Frame;
use spin::Once;

/// Whether the processor raises machine checks, and has banks that tell why.
pub fn is_supported() -> bool {
    const NEEDED: u32 = 1 << cpuid::EDX_MACHINE_CHECK_EXCEPTION | 1 << cpuid::EDX_MACHINE_CHECK;
    __cpuid(cpuid::FEATURES).edx & NEEDED == NEEDED
}

/// The banks of each CPU.
struct Banks {
    /// A bit for each that belongs to one CPU.
    own: u32,
    features: Features,
}

fn banks() -> &'static Banks {
    static BANKS: Once<Banks> = Once::new();
    BANKS.call_once(|| {
        let reliability = match __cpuid(cpuid::EXTENDED).eax {
            last if last >= cpuid::RELIABILITY => __cpuid(cpuid::RELIABILITY).ebx,
            _ => 0,
        };
        let capabilities = match is_supported() {
            // SAFETY: the processor has the register, and every cell may read it.
            true => unsafe { cpu::read_msr(msr::MACHINE_CHECK_CAPABILITIES) },
            false => 0,
        };
        let features = Features::new(reliability, capabilities);
        let count = capabilities as u32 & 0xff;
        // SAFETY: the scalable architecture has it for each bank, and every cell may read it.
        let identity = |bank| unsafe { cpu::read_msr(machine_check::identity(bank)) };
        Banks { own: machine_check::own_banks(features.scalable, count, identity), features }
    })
}

impl Banks {
    fn each(&self) -> impl Iterator<Item = u32> {
        (0..machine_check::MAX_BANKS).filter(|bank| self.own & 1 << bank != 0)
    }
}

/// What a bank says.
#[derive(Clone, Copy)]
pub struct Report {
    /// The bank, if one says anything.
    bank: Option<u32>,
    status: Status,
    address: u64,
    /// MCG_STATUS.
    global: u64,
}

impl Report {
    fn of(bank: u32, global: u64) -> Self {
        // SAFETY: the bank is one of this CPU, whose registers every cell may read.
        let (status, address) = unsafe {
            (
                cpu::read_msr(machine_check::status(bank)),
                cpu::read_msr(machine_check::address(bank)),
            )
        };
        Self { bank: Some(bank), status: Status(status), address, global }
    }

    /// Makes the bank ready for the next error.
    fn clear(&self) {
        let Some(bank) = self.bank else { return };
        // SAFETY: the bank is one of this CPU, whose status every cell may clear.
        unsafe { cpu::write_msr(machine_check::status(bank), 0) };
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bank, status: Status(status), address, global } = self;
        match bank {
            Some(bank) => write!(
                formatter,
                "bank {bank} status {status:#x} address {address:#x} global status {global:#x}"
            ),
            None => write!(formatter, "no bank of this CPU says why, global status {global:#x}"),
        }
    }
}

/// Memory that a program used and that cannot be used any more.
pub struct Broken {
    /// Its address, as the machine counts.
    pub address: u64,
    /// The program cannot go on, not even in a handler.
    pub ends_program: bool,
}

/// Looks at the banks after a machine check in a program, and clears them for the next one. `None`
/// if the kernel cannot go on. Interrupts off.
pub fn take() -> Option<Broken> {
    let Banks { features, .. } = banks();
    // SAFETY: there was a machine check, so the processor has the register, which cells may read.
    let global = unsafe { cpu::read_msr(msr::MACHINE_CHECK_STATUS) };
    let mut broken: Option<Broken> = None;
    for bank in banks().each() {
        let report = Report::of(bank, global);
        match machine_check::judge(report.status, global, *features) {
            // Told by `poll`.
            Verdict::Nothing | Verdict::Corrected => continue,
            Verdict::Contained { ends_program } => {
                let before = broken.get_or_insert(Broken { address: report.address, ends_program });
                if before.address != report.address {
                    return None;
                }
                before.ends_program |= ends_program;
            }
            Verdict::Fatal => return None,
        }
        warn!("machine check: {report}: memory that is not used any more");
        report.clear();
    }
    let broken = broken?;
    // SAFETY: the processor has the register, which cells may write: 0 says that the machine check
    // is over.
    unsafe { cpu::write_msr(msr::MACHINE_CHECK_STATUS, 0) };
    Some(broken)
}

/// What the banks say when the kernel stops. Interrupts off.
pub fn last_report() -> Report {
    // SAFETY: there was a machine check, so the processor has the register, which cells may read.
    let global = unsafe { cpu::read_msr(msr::MACHINE_CHECK_STATUS) };
    let rank = |report: &Report| (report.status.has_lost_context(), report.status.is_uncorrected());
    banks()
        .each()
        .map(|bank| Report::of(bank, global))
        .filter(|report| report.status.is_valid())
        .max_by_key(rank)
        .unwrap_or(Report { bank: None, status: Status(0), address: 0, global })
}

/// The frame of the byte at `address`, as the machine counts, and where the byte lies in it.
pub fn frame_at(address: u64) -> Option<(Frame, u64)> {
    const OFFSET: u64 = crtos_vm::FRAME_SIZE - 1;
    let own = hypercall::own_address(address)?;
    Some((Frame(own & !OFFSET), own & OFFSET))
}

/// Tells of errors of this CPU that need nothing done, at most once a second and in one line. Idle
/// context; takes a look at each bank.
pub fn poll() {
    static NEXT: [AtomicU64; MAX_CELL_CPUS] = [const { AtomicU64::new(0) }; MAX_CELL_CPUS];
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let this = percpu::this().index;
    let next = &NEXT[this.get()];
    let now = cpu::tsc();
    if now < next.load(Ordering::Relaxed) {
        return;
    }
    next.store(now + u64::from(crate::mm::layout::boot_info().tsc_khz) * 1000, Ordering::Relaxed);
    let mut last = None;
    for bank in banks().each() {
        let report = Report::of(bank, 0);
        if report.status.is_valid() {
            report.clear();
            TOLD.fetch_add(1, Ordering::Relaxed);
            last = Some(report);
        }
    }
    if let Some(report) = last {
        let all = TOLD.load(Ordering::Relaxed);
        let what = match report.status {
            status if status.is_uncorrected() => "could not correct an error",
            status if status.is_deferred() => "found an error in memory that nobody has used",
            _ => "corrected an error",
        };
        warn!("CPU {this}: the processor {what}: {report} ({all} errors so far)");
    }
}
