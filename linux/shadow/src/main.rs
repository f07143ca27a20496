// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux half of a rich real-time process.
//!
//! To Linux this is the process: its pid, descriptors, credentials, working directory and exit
//! status are the program's. It executes what the program, which runs in the real-time realm at the
//! same addresses, asks of Linux.
//!
//! `crtos run` starts it as `shadow FD_DEVICE FD_EXECUTABLE PATH ARG0 ARG1…` with the program's
//! environment. The first word also says what was chosen for the program
//! ([`crtos_syscalls::choices`]). `FD_DEVICE` is an open `/dev/crtos` that belongs to this process
//! alone, `FD_EXECUTABLE` the program open for reading, `PATH` the name it was executed by
//! (AT_EXECFN). Other descriptors, signal dispositions, mask and limits are what the program is to
//! inherit. On failure it says why on stderr and exits with 126.
//!
//! 1. [`startup`]: the program's strings move into the shadow's own range of addresses.
//! 2. [`process`]: the device is mapped over everything else, so that each address means the same
//!    memory on both sides.
//! 3. [`serve`]: requests are taken from the device and carried out, one at a time, until the
//!    process ends.
//!
//! [`program`] tells why Linux may do anything to the program's memory in this process.
#![no_std]
#![no_main]

mod builtins;
mod call;
mod decimal;
mod descriptors;
mod device;
mod dirent;
mod exec;
mod invocation;
mod links;
mod listing;
mod own;
mod process;
mod program;
mod scheduling;
mod serve;
mod signals;
mod startup;
mod sys;
mod threads;
mod topology;

use core::panic::PanicInfo;

use crtos_abi::note::Note;
use linux_raw_sys::general as linux;
use sys::process::{exit, write_stderr};

// The kernel enters with the argument vector at RSP. FS points to what belongs to the first thread
// before any Rust code runs, and the stack moves into the shadow's range.
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rbx, rsp",
    "mov eax, {arch_prctl}",
    "mov edi, {set_fs}",
    "lea rsi, [rip + {own}]",
    "syscall",
    "mov rdi, rbx",
    "lea rsp, [rip + {stack} + {size}]",
    "call {main}",
    "ud2",
    arch_prctl = const linux::__NR_arch_prctl,
    set_fs = const linux::ARCH_SET_FS,
    own = sym threads::FIRST,
    stack = sym STACK,
    size = const STACK_SIZE,
    main = sym start,
);

/// The version of the interface, for `crtos version`.
#[used]
#[unsafe(link_section = ".note.crtos")]
static NOTE: Note = Note::new();

/// Bytes of the stack of the first thread. A signal frame with AVX-512 state takes 3 KiB.
const STACK_SIZE: usize = 64 * 1024;

#[repr(C, align(64))]
struct Stack(core::cell::UnsafeCell<[u8; STACK_SIZE]>);

// SAFETY: only `_start` uses it, once, as the stack of the first thread.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(core::cell::UnsafeCell::new([0; STACK_SIZE]));

/// Runs the first thread.
///
/// # Safety
/// `_start` calls it, once, with the address of the vectors that Linux made.
unsafe extern "C" fn start(vector: *const usize) -> ! {
    signals::accept_interrupts();
    // SAFETY: these are the vectors that Linux made. Nothing is unmapped before the realm is
    // entered, and they are not used after that.
    let initial = unsafe { invocation::Initial::new(vector) };
    let Some(call) = initial.invocation() else {
        fail(
            "the shadow was started by hand",
            "no valid arguments",
            "use `crtos run PROGRAM`",
            REFUSED,
        );
    };
    let device = own::move_away(call.device);
    let executable = own::move_away(call.executable);
    own::set(device, executable);
    let startup = startup::Block::build(&initial, &call, executable)
        .unwrap_or_else(|error| {
            fail("no memory for the arguments", error.words(), "free some memory", REFUSED)
        })
        .keep();

    // SAFETY: everything that this program still uses lies between SHADOW_START and SHADOW_END.
    let slot = unsafe { process::enter_realm(device, startup.stack_end, None) }.unwrap_or_else(
        |refusal| {
            let reason = device::reason(device);
            let (code, why) = words(&reason.text).unwrap_or((REFUSED, refusal.error.words()));
            fail(refusal.what, why, refusal.remedy, code)
        },
    );
    startup.describe_to_linux();
    // SAFETY: the process has entered the realm, and keeps what it uses in the shadow's range.
    unsafe { serve::serve(slot, startup) }
}

/// The code of a refusal that the module says nothing of (docs/troubleshooting.md).
const REFUSED: &str = "run-refused";

/// Returns the code and the words of the module's reason, if it gave one.
fn words(reason: &[u8]) -> Option<(&str, &str)> {
    let text = reason.split(|byte| *byte == 0).next()?;
    core::str::from_utf8(text).ok()?.strip_prefix('[')?.split_once("] ")
}

/// Says what failed, why, what to do, and under which code more is said. Exits with 126, the status
/// for a program that cannot be executed.
fn fail(what: &str, why: &str, remedy: &str, code: &str) -> ! {
    for part in
        ["crtos: ", what, ": ", why, "\n  remedy: ", remedy, "\n  more: crtos explain ", code, "\n"]
    {
        write_stderr(part);
    }
    exit(126)
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    write_stderr("crtos: the shadow has a bug\n");
    exit(126)
}
