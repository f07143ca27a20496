// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals that exceptions of a program become.

use crtos_abi::UserAddr;
use crtos_core::{
    arch::{Cause, Exception, UserContext},
    mm::space::FaultError,
    task,
};

use super::deliver::{Fault, fault};
use crate::process::{End, ThreadExt as _};

use linux_raw_sys::general::{
    BUS_ADRALN, BUS_ADRERR, BUS_MCEERR_AR, FPE_FLTDIV, FPE_FLTINV, FPE_FLTOVF, FPE_FLTRES,
    FPE_FLTUND, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR, SI_KERNEL, SIGBUS, SIGFPE,
    SIGILL, SIGKILL, SIGSEGV, SIGTRAP, TRAP_TRACE,
};

/// Has the calling thread take the signal of an exception of its program. Interrupts are on; may
/// sleep.
pub fn exception(context: &mut UserContext, exception: Exception) {
    let Exception { vector, error, cause } = exception;
    let rip = UserAddr::new(context.rip);
    if let Cause::Access { why: FaultError::NoMemory, .. } = cause {
        starve();
    }
    let (signal, code, address) = match cause {
        Cause::Access { address, why } => {
            let (signal, code) = of_access(why);
            (signal, code, address)
        }
        Cause::Floating { exceptions } => (SIGFPE, of_floating(exceptions), rip),
        Cause::Broken { address, ends_program: true } => (SIGKILL, SI_KERNEL, address),
        Cause::Broken { address, ends_program: false } => (SIGBUS, BUS_MCEERR_AR, address),
        Cause::Instruction => of_instruction(vector, rip),
    };
    fault(context, Fault { signal, code: code as i32, address, trap: vector, error });
}

/// There is no memory left for the page that the program of the calling thread has touched.
fn starve() {
    let current = task::current();
    if let Some(user) = current.user() {
        let (pid, used) = (user.process.outer_pid, user.process.space.usage().1 >> 20);
        crtos_core::warn!("pid {pid}: killed: no memory is left for its {used} MiB and a page");
        user.process.end(End::Starved);
    }
}

fn of_access(why: FaultError) -> (u32, u32) {
    match why {
        FaultError::Unmapped => (SIGSEGV, SEGV_MAPERR),
        FaultError::Protected => (SIGSEGV, SEGV_ACCERR),
        FaultError::Beyond => (SIGBUS, BUS_ADRERR),
        FaultError::Broken => (SIGBUS, BUS_MCEERR_AR),
        // There is no memory left to go on with.
        FaultError::NoMemory => (SIGKILL, SI_KERNEL),
    }
}

/// The code for unmasked exceptions in the order of both status registers: IE, DE, ZE, OE, UE, PE.
fn of_floating(exceptions: u32) -> u32 {
    match exceptions {
        e if e & 0x01 != 0 => FPE_FLTINV,
        e if e & 0x04 != 0 => FPE_FLTDIV,
        e if e & 0x08 != 0 => FPE_FLTOVF,
        e if e & 0x12 != 0 => FPE_FLTUND,
        e if e & 0x20 != 0 => FPE_FLTRES,
        _ => SI_KERNEL,
    }
}

/// Signal, code and address for an exception that an instruction at `rip` made.
fn of_instruction(vector: u32, rip: UserAddr) -> (u32, u32, UserAddr) {
    const NONE: UserAddr = UserAddr::NULL;
    match vector {
        0 => (SIGFPE, FPE_INTDIV, rip),       // #DE
        1 => (SIGTRAP, TRAP_TRACE, rip),      // #DB
        3 => (SIGTRAP, SI_KERNEL, NONE),      // #BP
        6 => (SIGILL, ILL_ILLOPN, rip),       // #UD
        9 => (SIGFPE, SI_KERNEL, NONE),       // coprocessor segment overrun
        11 | 12 => (SIGBUS, SI_KERNEL, NONE), // #NP, #SS
        17 => (SIGBUS, BUS_ADRALN, NONE),     // #AC
        _ => (SIGSEGV, SI_KERNEL, NONE),      // #OF, #BR, #TS, #GP, #CP and what may come
    }
}
