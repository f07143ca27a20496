// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux half of a rich real-time process.
//!
//! To Linux this is the process: its pid, descriptors, credentials, working directory and exit
//! status are the program's. It executes what the program, which runs in the real-time realm at the
//! same addresses, asks of Linux.
//!
//! Started by `crtos run` as `shadow FD_DEVICE FD_EXECUTABLE PATH ARG0 ARG1…` with the program's
//! environment. The first word is `shadow-renumbering` if the program is to know the realm's CPUs
//! by numbers of their own. `FD_DEVICE` is an open `/dev/crtos` that belongs to this process alone,
//! `FD_EXECUTABLE` the program open for reading, `PATH` the name it was executed by (AT_EXECFN).
//! Other descriptors, signal dispositions, mask and limits are what the program is to inherit. On
//! failure it says why on stderr and exits with 126.
//!
//! 1. [`startup`]: the program's strings move into the shadow's own range of addresses.
//! 2. [`process`]: the device is mapped over everything else, so that each address means the same
//!    memory on both sides.
//! 3. [`serve`]: requests are taken from the device and carried out, one at a time, until the
//!    process ends.
#![no_std]
#![no_main]

mod descriptors;
mod exec;
mod listing;
mod memory;
mod process;
mod scheduling;
mod serve;
mod signals;
mod startup;
mod sys;
mod threads;
mod topology;

use core::{ffi::CStr, panic::PanicInfo, sync::atomic::Ordering};

use crtos_abi::note::Note;
use linux_raw_sys::general as linux;
use sys::Errno;

// The kernel enters with the argument vector at RSP. The stack moves into the shadow's range at
// once.
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsp, [rip + {stack} + {size}]",
    "call {main}",
    "ud2",
    stack = sym STACK,
    size = const STACK_SIZE,
    main = sym start,
);

/// The version of the interface, for `crtos version`.
#[used]
#[unsafe(link_section = ".note.crtos")]
static NOTE: Note = Note::new();

/// Bytes of the stack; a signal frame with AVX-512 state takes 3 KiB.
const STACK_SIZE: usize = 64 * 1024;

#[repr(C, align(64))]
struct Stack(core::cell::UnsafeCell<[u8; STACK_SIZE]>);

// SAFETY: only `_start` uses it, once, as the stack of the first thread.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(core::cell::UnsafeCell::new([0; STACK_SIZE]));

extern "C" fn start(vector: *const usize) -> ! {
    threads::set_up_first();
    signals::accept_interrupts();
    // SAFETY: this is the argument vector that Linux made, and nothing has been unmapped yet.
    let initial = unsafe { startup::Initial::new(vector) };
    let Some(call) = initial.invocation() else {
        fail("the shadow was started by hand", "use `crtos run PROGRAM`", Errno(0));
    };
    let startup = startup::Block::build(&initial, &call)
        .unwrap_or_else(|error| fail("no memory for the arguments", "free some memory", error));
    let device = move_away(call.device, HIGH_DESCRIPTOR);
    let executable = move_away(call.executable, HIGH_DESCRIPTOR);
    startup.set_executable(executable);
    sys::DEVICE.store(device, Ordering::Relaxed);
    sys::EXECUTABLE.store(executable, Ordering::Relaxed);

    // SAFETY: everything that this program still uses lies between SHADOW_START and SHADOW_END.
    let slot = unsafe { process::enter_realm(device, startup.stack_end, None) }
        .unwrap_or_else(|(what, remedy, error)| fail(what, remedy, error));
    startup.describe_to_linux();
    serve::serve(slot, &startup)
}

/// Where the shadow's descriptors go: out of the way of the program's, which are the lowest.
const HIGH_DESCRIPTOR: u64 = 1000;

/// Moves descriptor `fd` to a number of at least `lowest`, or as high as RLIMIT_NOFILE permits,
/// close-on-exec.
fn move_away(fd: i32, lowest: u64) -> i32 {
    let limit = sys::limit(linux::RLIMIT_NOFILE);
    let lowest = lowest.min(limit.saturating_sub(8));
    let command = u64::from(linux::F_DUPFD_CLOEXEC);
    // SAFETY: copies a descriptor.
    match unsafe { sys::call(linux::__NR_fcntl, [fd as u64, command, lowest, 0, 0, 0]) } {
        Ok(moved) => {
            // SAFETY: the number came from the caller of this program and is not used any more.
            let _ = unsafe { sys::call(linux::__NR_close, [fd as u64, 0, 0, 0, 0, 0]) };
            moved as i32
        }
        Err(_) => {
            sys::close_on_exec(fd);
            fd
        }
    }
}

/// Says what went wrong and what to do, and exits with 126, the status for a program that cannot be
/// executed.
fn fail(what: &str, remedy: &str, error: Errno) -> ! {
    for part in ["crtos: ", what, ": ", error.name(), "; ", remedy, "\n"] {
        sys::write_stderr(part);
    }
    sys::exit(126)
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    sys::write_stderr("crtos: the shadow has a bug\n");
    sys::exit(126)
}

/// Last component of a path.
fn file_name(path: &CStr) -> &[u8] {
    let bytes = path.to_bytes();
    match bytes.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => &bytes[slash + 1..],
        None => bytes,
    }
}
