// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the first instruction to the first thread (see `lib/abi/src/boot.rs` for the state at the
//! start), and the end of a kernel that cannot go on.

use crate::arch::{apic, cpu, entry, fpu, hypercall, paging, percpu, speculation, traps};
use crate::cpu_numbers::Numbering;
use crate::mm::{frames, heap, layout, window};
use crate::task::{self, Spawn, cpus, reaper, scheduler};
use crate::{devices, error, info, log, personality, time, trace, warn};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::panic::PanicInfo;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use crtos_abi::boot::{BOOT_INFO_ADDRESS, BootInfo, SHARED_POOL};
use crtos_abi::channel::{KERNEL_DEAD, KERNEL_READY};
use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};
use crtos_channel::DoorbellCpu;
use crtos_registers::apic::ApicId;
use crtos_vm::{Frame, FramePool};

const BOOT_STACK_SIZE: usize = 0x8000;

#[repr(C, align(16))]
struct BootStack(UnsafeCell<[u8; BOOT_STACK_SIZE]>);

// SAFETY: only the stack pointer of the first CPU refers to it.
unsafe impl Sync for BootStack {}

static BOOT_STACK: BootStack = BootStack(UnsafeCell::new([0; BOOT_STACK_SIZE]));

/// Where all CPUs of the cell start: RDI = address of the [`BootInfo`], RSI = index of the CPU.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.start")]
unsafe extern "sysv64" fn start() -> ! {
    naked_asm!(
        "cld",
        "test rsi, rsi",
        "jz 2f",
        // Further CPUs wait for their turn, see `task::cpus`.
        "1:",
        "pause",
        "cmp [rip + {turn}], esi",
        "jne 1b",
        "lea rsp, [rip + {stack} + {size}]",
        "call {further}",
        "2:",
        "lea rsp, [rip + {stack} + {size}]",
        "call {boot}",
        turn = sym cpus::TURN,
        further = sym cpus::run,
        stack = sym BOOT_STACK,
        size = const BOOT_STACK_SIZE,
        boot = sym boot,
    )
}

/// On the first CPU, on the boot stack, interrupts off.
extern "sysv64" fn boot(info: u64) -> ! {
    percpu::set_up_first();
    percpu::this().load_segments();
    traps::build();
    traps::load();
    if info != BOOT_INFO_ADDRESS {
        die("the boot information is not where it belongs");
    }
    // SAFETY: the initial tables map this address, the loader put the information there, and
    // nothing writes to it.
    let copy = unsafe { layout::direct(Frame(info)).cast::<BootInfo>().read_unaligned() };
    if let Err(reason) = layout::set_boot_info(copy).and_then(|()| layout::channel_is_ours()) {
        die(reason);
    }
    let info = layout::boot_info();
    read_command_line(info);
    cpu::set_up();
    fpu::set_up();
    let free = set_up_memory(info);
    time::set_up();
    apic::set_up();
    apic::calibrate();
    entry::set_up_syscall();
    trace::set_up();
    info!(
        "crtos {}: {} MiB private ({} KiB free), {} MiB shared, timer {} kHz, time stamp counter {} kHz",
        env!("CARGO_PKG_VERSION"),
        info.private_size >> 20,
        free >> 10,
        info.shared_size >> 20,
        apic::timer_khz(),
        info.tsc_khz,
    );
    debug_features();
    speculation::tell();
    percpu::this().set_apic_id(ApicId(info.apic_ids[0]));
    percpu::this().set_numbering(Numbering::Machine);
    scheduler::set_online();
    let result = scheduler::set_up(percpu::this()).and_then(|()| reaper::start()).and_then(|()| {
        task::spawn(Spawn { name: "init", ..Default::default() }, || {
            cpus::start_all();
            #[cfg(feature = "self-test")]
            crate::self_test::run();
            personality::start();
            set_state(KERNEL_READY);
            info!("ready for processes");
        })
        .map(|_| ())
    });
    match result {
        Ok(()) => scheduler::start(),
        Err(_) => die("there is not enough private memory for the first threads"),
    }
}

fn debug_features() {
    crate::debug!("{:?}, {} bytes of extended state", cpu::features(), fpu::size());
}

/// Words: `debug` has debug lines logged; `ports=`, `user=` and `locked` are for Linux's ABI,
/// `device=` for drivers.
fn read_command_line(info: &BootInfo) {
    for word in info.words() {
        match word {
            b"debug" => log::enable_debug(),
            b"locked" => {}
            ports if ports.starts_with(b"ports=") => {}
            user if user.starts_with(b"user=") => {}
            device if device.starts_with(devices::WORD) => {}
            other => warn!("unknown word on the cell's command line: {}", other.escape_ascii()),
        }
    }
}

/// Page tables, heap, pools. Returns the free bytes of private memory.
fn set_up_memory(info: &BootInfo) -> u64 {
    let mut next = info.image_end;
    paging::build_kernel(info, || {
        if next + PAGE_SIZE > info.private_size {
            die("there is not enough private memory for the kernel's page tables");
        }
        let frame = Frame(next);
        // SAFETY: private memory behind the image that nobody uses yet.
        unsafe { layout::direct(frame).write_bytes(0, PAGE_SIZE as usize) };
        next += PAGE_SIZE;
        frame
    });
    // The heap starts with what is left of that block, and the next one for the pools' own
    // bookkeeping.
    let end = next.next_multiple_of(LARGE_PAGE_SIZE) + LARGE_PAGE_SIZE;
    if end > info.private_size {
        die("there is not enough private memory for the kernel's heap");
    }
    if let Some(start) = NonNull::new(layout::direct(Frame(next))) {
        // SAFETY: private memory behind the image and the tables, before the pools: nobody else
        // uses it.
        unsafe { heap::set_up(start, (end - next) as usize) };
    }
    frames::PRIVATE.set_up(FramePool::new(end..info.private_size));
    frames::SHARED.set_up(FramePool::with_shares(SHARED_POOL..SHARED_POOL + info.shared_size));
    window::set_up();
    info.private_size - end
}

fn set_state(state: u32) {
    if let Some(channel) = layout::channel() {
        // SAFETY: the channel is mapped and the word is the kernel's.
        unsafe { (&raw mut (*channel.as_ptr()).kernel_state).write_volatile(state) };
    }
}

/// The kernel refuses to start.
fn die(reason: &str) -> ! {
    error!("{reason}");
    set_state(KERNEL_DEAD);
    hypercall::agree_to_end();
    cpu::halt()
}

/// Collects what is printed into lines of the log, without the heap.
struct LastLines {
    line: [u8; 200],
    length: usize,
}

impl LastLines {
    fn flush(&mut self) {
        if self.length > 0 {
            log::write_last(format_args!("{}", self.line[..self.length].escape_ascii()));
            self.length = 0;
        }
    }
}

impl Write for LastLines {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for &byte in text.as_bytes() {
            if byte == b'\n' || self.length == self.line.len() {
                self.flush();
            }
            if byte != b'\n' {
                self.line[self.length] = byte;
                self.length += 1;
            }
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    static AGAIN: AtomicBool = AtomicBool::new(false);
    cpu::disable_interrupts();
    if AGAIN.swap(true, Ordering::Relaxed) {
        cpu::halt();
    }
    match info.location() {
        Some(location) => log::write_last(format_args!(
            "the kernel stops: {}:{}",
            location.file(),
            location.line()
        )),
        None => log::write_last(format_args!("the kernel stops")),
    }
    let mut lines = LastLines { line: [0; 200], length: 0 };
    // Collecting does not fail.
    let _ = write!(lines, "{}", info.message());
    lines.flush();
    if let Some(cpu) = Some(percpu::this()).filter(|cpu| !cpu.current().is_null()) {
        // SAFETY: the current thread exists while it runs.
        log::write_last(format_args!("thread: {}", unsafe { &(*cpu.current()).name }));
    }
    set_state(KERNEL_DEAD);
    // Nothing is left to protect, and what memory has is cleared before Linux gets it.
    hypercall::agree_to_end();
    if layout::channel().is_some() {
        hypercall::ring_linux(DoorbellCpu::ANY);
    }
    cpu::halt()
}
