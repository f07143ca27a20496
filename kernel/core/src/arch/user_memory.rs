// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of the current program through its own translations, as the program itself reaches
//! it.
//!
//! A copy of a few bytes costs a few instructions, where [`crate::mm::AddressSpace`] takes a lock
//! and walks the tables. What is not present, or not permitted, faults: the fault ends the copy,
//! which then says `false`, and the address space has the last word. Nothing here sleeps or
//! allocates.

use super::interrupts::InterruptsOff;
use super::{fpu, percpu};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crtos_abi::UserAddr;

/// Most bytes that are copied with interrupts off, and so at once.
pub const STEP: usize = 256;

/// Whether supervisor-mode access prevention is on: accesses have to be bracketed by STAC and CLAC.
static PREVENTED: AtomicBool = AtomicBool::new(false);

unsafe extern "sysv64" {
    /// Copies; `false` at a fault. What was copied before that is not said.
    fn user_copy(to: *mut u8, from: *const u8, length: usize) -> bool;
    /// Clears RCX bytes at RDI; EAX as above. Changes these and RDX; see [`clear_piece`].
    fn user_clear();
    /// Copies `count` words of `words` to `frame`, describes the area of XSAVE at `area`, ends it
    /// at `tail`, and saves the registers there; `false` at a fault.
    fn user_push(
        frame: *mut u64,
        words: *const u64,
        count: usize,
        area: *mut u8,
        tail: *mut u32,
        state: *const StateFormat,
    ) -> bool;
    /// XRSTOR64; `false` at a fault, also because of what lies there.
    fn user_xrstor(area: *const u8, mask: u64) -> bool;
    /// Loads the word at `from`; `false` at a fault.
    fn user_load(to: *mut u32, from: *const u32) -> bool;
    /// The same of 16 bits.
    fn user_load_short(to: *mut u16, from: *const u16) -> bool;
    /// The same of a byte.
    fn user_load_byte(to: *mut u8, from: *const u8) -> bool;
    /// Reads two bytes from the I/O port into `to`, or four, or writes those at `from` to it;
    /// `false` at a fault.
    fn port_read_short(to: *mut u16, port: u16) -> bool;
    fn port_read(to: *mut u32, port: u16) -> bool;
    fn port_write_short(from: *const u16, port: u16) -> bool;
    fn port_write(from: *const u32, port: u16) -> bool;
    /// Atomically replaces the word by `new` if it is `*expected`, and stores what it was in
    /// `*expected`; `false` at a fault.
    fn user_compare_exchange(word: *mut u32, expected: *mut u32, new: u32) -> bool;
    fn user_access_failed();
    fn user_access_end();
}

// Leaf functions that push nothing: a fault anywhere in them goes on at `user_access_failed`.
global_asm!(
    // The upper half has some of these inlined.
    ".globl user_copy, user_clear, user_push, user_xrstor, user_load, user_compare_exchange",
    ".globl user_load_short, user_load_byte",
    ".globl port_read_short, port_read, port_write_short, port_write",
    ".globl user_access_failed, user_access_end",
    ".macro user_begin",
    "cmp byte ptr [rip + {prevented}], 0",
    "je 1f",
    "stac",
    "1:",
    ".endm",
    "user_copy:",
    "user_begin",
    "cmp rdx, 64",
    "ja 4f",
    "sub rdx, 16",
    "jb 3f",
    // The last two words, and before them those from the first one on, of which some may overlap
    // them.
    "add rsi, rdx",
    "add rdi, rdx",
    "mov rcx, [rsi]",
    "mov r8, [rsi + 8]",
    "neg rdx",
    "jz 5f",
    "2:",
    "mov rax, [rsi + rdx]",
    "mov r9, [rsi + rdx + 8]",
    "mov [rdi + rdx], rax",
    "mov [rdi + rdx + 8], r9",
    "add rdx, 16",
    "js 2b",
    "5:",
    "mov [rdi], rcx",
    "mov [rdi + 8], r8",
    "jmp 6f",
    // A word and one that may overlap it, or less.
    "3:",
    "add rdx, 8",
    "js 7f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx]",
    "mov [rdi], rax",
    "mov [rdi + rdx], rcx",
    "jmp 6f",
    "7:",
    "add rdx, 8",
    "jz 6f",
    "mov ecx, edx",
    "rep movsb",
    "jmp 6f",
    "4:",
    "mov rcx, rdx",
    "shr rcx, 3",
    "rep movsq",
    "mov ecx, edx",
    "and ecx, 7",
    "rep movsb",
    "jmp 6f",
    "user_push:",
    "user_begin",
    "mov r10, rcx",
    "mov rcx, rdx",
    "rep movsq",
    "lea rdi, [r10 + {description}]",
    "mov rsi, r9",
    "mov ecx, {description_words}",
    "rep movsq",
    "mov eax, [rsi]",
    "mov dword ptr [r8], eax",
    "mov eax, [rsi + 8]",
    "mov edx, [rsi + 12]",
    "xsave64 [r10]",
    "jmp 6f",
    "user_xrstor:",
    "user_begin",
    "mov rax, rsi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "xrstor64 [rdi]",
    "jmp 6f",
    "user_load:",
    "user_begin",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "jmp 6f",
    "user_load_short:",
    "user_begin",
    "mov ax, [rsi]",
    "mov [rdi], ax",
    "jmp 6f",
    "user_load_byte:",
    "user_begin",
    "mov al, [rsi]",
    "mov [rdi], al",
    "jmp 6f",
    "port_read_short:",
    "mov edx, esi",
    "in ax, dx",
    "mov [rdi], ax",
    "mov eax, 1",
    "ret",
    "port_read:",
    "mov edx, esi",
    "in eax, dx",
    "mov [rdi], eax",
    "mov eax, 1",
    "ret",
    "port_write_short:",
    "mov edx, esi",
    "mov ax, [rdi]",
    "out dx, ax",
    "mov eax, 1",
    "ret",
    "port_write:",
    "mov edx, esi",
    "mov eax, [rdi]",
    "out dx, eax",
    "mov eax, 1",
    "ret",
    "user_compare_exchange:",
    "user_begin",
    "mov eax, [rsi]",
    "lock cmpxchg [rdi], edx",
    "mov [rsi], eax",
    "jmp 6f",
    "user_clear:",
    "user_begin",
    "xor eax, eax",
    "cmp ecx, 8",
    "jbe 5f",
    "mov edx, ecx",
    "shr ecx, 3",
    "rep stosq",
    "mov ecx, edx",
    "and ecx, 7",
    "5:",
    "rep stosb",
    "6:",
    "mov eax, 1",
    "7:",
    "cmp byte ptr [rip + {prevented}], 0",
    "je 8f",
    "clac",
    "8:",
    "ret",
    "user_access_failed:",
    "xor eax, eax",
    "jmp 7b",
    "user_access_end:",
    ".purgem user_begin",
    prevented = sym PREVENTED,
    description = const fpu::SOFTWARE,
    description_words = const fpu::DESCRIPTION_WORDS,
);

/// Notes whether access prevention is on.
pub(super) fn set_up(prevented: bool) {
    PREVENTED.store(prevented, Ordering::Relaxed);
}

/// An instruction that may fault, inlined: it is listed, and after a fault the kernel goes on
/// behind it with 0 in RAX. What follows are the operands of [`asm`].
macro_rules! may_fault {
    ($instruction:literal, $($operand:tt)*) => {
        asm!(
            "2:",
            $instruction,
            "3:",
            ".pushsection .crtos.faults, \"a\", @progbits",
            ".quad 2b, 3b",
            ".popsection",
            $($operand)*
            options(nostack, preserves_flags),
        )
    };
}

/// The instructions that are listed.
fn listed() -> &'static [[u64; 2]] {
    unsafe extern "C" {
        static faults_start: [u64; 2];
        static faults_end: [u64; 2];
    }
    let (start, end) = (&raw const faults_start, &raw const faults_end);
    // SAFETY: the linker puts the list between the two, and nothing else.
    unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// Where the kernel goes on after a fault at `rip`, with 0 in RAX, if that was an access from here.
pub(super) fn failure(rip: u64) -> Option<u64> {
    let (start, end) = (user_copy as *const () as u64, user_access_end as *const () as u64);
    if (start..end).contains(&rip) {
        return Some(user_access_failed as *const () as u64);
    }
    listed().iter().find(|[at, _]| *at == rip).map(|[_, next]| *next)
}

/// Whether `length` bytes at `address` are addresses of programs.
#[inline(always)]
pub fn is_range(address: UserAddr, length: u64) -> bool {
    UserAddr::END.checked_sub(length).is_some_and(|last| address <= last)
}

/// Calls `access` with each piece of `length` bytes at `address`, its offset and its length,
/// interrupts off and the program's tables loaded, until it says `false`. Returns the bytes that
/// were accessed.
#[inline(always)]
fn in_steps(
    address: UserAddr,
    length: usize,
    access: impl Fn(UserAddr, usize, usize) -> bool,
) -> usize {
    if !is_range(address, length as u64) || !percpu::is_programs() {
        return 0;
    }
    let step = |at: usize, length: usize| {
        let interrupts = InterruptsOff::take();
        let well = access(address + at as u64, at, length);
        drop(interrupts);
        well
    };
    let mut done = 0;
    while length - done > STEP {
        if !step(done, STEP) {
            return done;
        }
        done += STEP;
    }
    if step(done, length - done) { length } else { done }
}

/// Copies from the current program; returns how many bytes, fewer only if an access was not
/// possible. Any context of a thread.
pub fn read(from: UserAddr, to: &mut [u8]) -> usize {
    let base = to.as_mut_ptr();
    in_steps(from, to.len(), |from, offset, length| {
        // SAFETY: the piece lies in `to`; faults at the program's address end the copy.
        unsafe { user_copy(base.add(offset), from.get() as *const u8, length) }
    })
}

/// Copies to the current program; as [`read`].
#[inline(always)]
pub fn write(to: UserAddr, from: &[u8]) -> usize {
    in_steps(to, from.len(), |to, offset, length| {
        // SAFETY: the piece lies in `from`; the address is one of programs, whose memory is nothing
        // that Rust knows.
        unsafe { user_copy(to.get() as *mut u8, from[offset..].as_ptr(), length) }
    })
}

/// Words as they lie in memory.
pub const fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory; every byte of a word is initialized.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Clears memory of the current program; as [`read`].
pub fn clear(to: UserAddr, length: usize) -> usize {
    // SAFETY: `in_steps` gives addresses of the current program only, in pieces of at most `STEP`.
    in_steps(to, length, |to, _, length| unsafe { clear_piece(to, length) })
}

/// Clears; `false` at a fault. Whoever calls it keeps most registers.
///
/// # Safety
/// They are addresses of the current program, and at most [`STEP`].
#[inline(always)]
unsafe fn clear_piece(to: UserAddr, length: usize) -> bool {
    let well: u32;
    // SAFETY: the caller gives addresses of the program, and the call changes the registers that
    // are named.
    unsafe {
        asm!(
            "call {clear}",
            clear = sym user_clear,
            inout("rdi") to.get() => _,
            inout("rcx") length => _,
            lateout("eax") well,
            out("rdx") _,
        );
        core::hint::assert_unchecked(well <= 1);
    }
    well != 0
}

/// As [`read`], all or nothing that is told of, at most [`STEP`] bytes. In a program's thread,
/// interrupts off.
#[inline(always)]
pub fn read_at_once(from: UserAddr, to: &mut [u8]) -> bool {
    let length = to.len();
    // SAFETY: the addresses are checked to be those of programs; a fault there ends the copy.
    is_range(from, length as u64)
        && unsafe { user_copy(to.as_mut_ptr(), from.get() as *const u8, length) }
}

/// As [`write()`]; see [`read_at_once`].
#[inline(always)]
pub fn write_at_once(to: UserAddr, from: &[u8]) -> bool {
    let length = from.len();
    // SAFETY: the addresses are checked to be those of programs; a fault there ends the copy.
    is_range(to, length as u64) && unsafe { user_copy(to.get() as *mut u8, from.as_ptr(), length) }
}

/// As [`clear`]; see [`read_at_once`].
#[inline(always)]
pub fn clear_at_once(to: UserAddr, length: usize) -> bool {
    // SAFETY: the addresses are checked to be those of programs; a fault there ends it.
    length <= STEP && is_range(to, length as u64) && unsafe { clear_piece(to, length) }
}

/// Whether `length` bytes at `area`, aligned to 64, are addresses of the current program.
fn is_area(area: UserAddr, length: usize) -> bool {
    area.is_aligned(64) && is_range(area, length as u64) && percpu::is_programs()
}

/// How a program finds its extended state in a signal frame: what stands before and behind it, and
/// what it consists of.
#[repr(C)]
pub(super) struct StateFormat {
    pub description: [u64; fpu::DESCRIPTION_WORDS],
    pub closing: u64,
    /// Its components.
    pub mask: u64,
}

/// Stores `words` at `to` and the extended state in the registers, which takes `size` bytes and a
/// closing word, at `area`. Interrupts off; XSAVE is on. `false` if that was not possible.
#[inline(always)]
pub(super) fn push(
    to: UserAddr,
    words: &[u64],
    area: UserAddr,
    size: usize,
    format: &StateFormat,
) -> bool {
    let tail = area.wrapping_add(size as u64);
    // SAFETY: faults at the program's addresses end it; the memory is nothing that Rust knows.
    is_range(to, size_of_val(words) as u64)
        && is_area(area, size + size_of::<u32>())
        && unsafe {
            let (to, tail) = (to.get() as *mut u64, tail.get() as *mut u32);
            user_push(to, words.as_ptr(), words.len(), area.get() as *mut u8, tail, format)
        }
}

/// Loads the extended state from `area`; as [`push`]. The processor checks what lies there. After a
/// failure, part of it may be loaded.
pub(super) fn load_state(area: UserAddr, length: usize, mask: u64) -> bool {
    // SAFETY: faults end it, and any valid state is one for the program; the kernel uses none of
    // it.
    is_area(area, length) && unsafe { user_xrstor(area.get() as *const u8, mask) }
}

/// The word at `address`, which is aligned, of the current program; `None` if an access is not
/// possible. Interrupts off.
pub fn load_u32(address: UserAddr) -> Option<u32> {
    let mut word = 0;
    // SAFETY: the address is checked to be one of programs; a fault there ends the load.
    (address < UserAddr::END && unsafe { user_load(&raw mut word, address.get() as *const u32) })
        .then_some(word)
}

/// Stores a word to a register of a device, which Linux may take away at any time; `false` if it
/// is not there. Any context.
///
/// # Safety
/// The address is mapped as that of a device, which reaches no memory by it.
#[inline(always)]
pub(crate) unsafe fn store_register(register: *mut u32, value: u32) -> bool {
    let done: u32;
    // SAFETY: the caller says what is there. After a fault it goes on behind the store.
    unsafe {
        may_fault!(
            "mov [{register}], {value:e}",
            register = in(reg) register,
            value = in(reg) value,
            inout("eax") 1 => done,
        );
    }
    done != 0
}

/// Reads a word from a register of a device; all ones if it is not there. Any context.
///
/// # Safety
/// As of [`store_register`].
#[inline(always)]
pub(crate) unsafe fn load_register(register: *const u32) -> u32 {
    let mut value = u32::MAX;
    // SAFETY: the caller says what is there. After a fault it goes on behind the load, which has
    // not changed the value.
    unsafe {
        may_fault!(
            "mov {value:e}, [{register}]",
            register = in(reg) register,
            value = inout(reg) value,
            out("eax") _,
        );
    }
    value
}

/// Reads a register of a device, of 1, 2 or 4 bytes, into as many of `value`, or writes it from
/// there; `false` if it is not there. Any context.
///
/// # Safety
/// `register` is mapped as that of a device, and aligned to its size. What the device does by that
/// reaches no memory but what programs have given it.
pub(crate) unsafe fn access_register(register: *mut u8, value: &mut [u8], write: bool) -> bool {
    let ours = value.as_mut_ptr();
    let (to, from) = if write { (register, ours) } else { (ours, register) };
    // SAFETY: the caller says what is at the register, the other side is the kernel's own; x86 asks
    // for no alignment there. A fault ends the access.
    unsafe {
        match value.len() {
            1 => user_load_byte(to, from),
            2 => user_load_short(to.cast(), from.cast()),
            4 => user_load(to.cast(), from.cast()),
            _ => false,
        }
    }
}

/// An access to an I/O port, inlined. After a fault it has read ones, and `count` is 0: no access
/// looks whether it was done.
macro_rules! port_access {
    ($instruction:literal, $count:ident, $($operand:tt)*) => {
        asm!(
            "2:",
            $instruction,
            "3:",
            ".pushsection .text.lost_ports, \"ax\", @progbits",
            "4:",
            "mov dword ptr [{count}], 0",
            "mov eax, 0xff",
            "jmp 3b",
            ".popsection",
            ".pushsection .crtos.faults, \"a\", @progbits",
            ".quad 2b, 4b",
            ".popsection",
            count = in(reg) $count.as_ptr(),
            $($operand)*
            options(nostack, preserves_flags),
        )
    };
}

/// Reads a byte from an I/O port. If the realm does not have it (any more), that is all ones, and
/// `count` becomes 0. Any context.
///
/// # Safety
/// The port is one of a device that reaches no memory but what programs have given it.
#[inline(always)]
pub(crate) unsafe fn read_port(port: u16, count: &AtomicU32) -> u8 {
    let read: u32;
    // SAFETY: the caller says what is there. A fault ends the access, and the word is there.
    unsafe { port_access!("in al, dx", count, in("dx") port, out("eax") read,) };
    read as u8
}

/// Writes a byte to an I/O port. If the realm does not have it (any more), `count` becomes 0. Any
/// context.
///
/// # Safety
/// As of [`read_port`].
#[inline(always)]
pub(crate) unsafe fn write_port(port: u16, value: u8, count: &AtomicU32) {
    // SAFETY: the caller says what is there. A fault ends the access, and the word is there.
    unsafe {
        port_access!(
            "out dx, al",
            count,
            in("dx") port,
            inout("eax") u32::from(value) => _,
        );
    }
}

/// Reads 1, 2 or 4 I/O ports at once, the first of which is `port`, into as many bytes of `value`,
/// or writes them from there; `false` if the realm does not have them (any more). Any context.
///
/// # Safety
/// The ports are those of a device that reaches no memory but what programs have given it.
pub(crate) unsafe fn access_ports(port: u16, value: &mut [u8], write: bool) -> bool {
    let bytes = value.as_mut_ptr();
    let count = AtomicU32::new(1);
    let is_there = || count.load(Ordering::Relaxed) != 0;
    // SAFETY: the caller says what is there; x86 asks for no alignment of the bytes. A fault ends
    // the access.
    unsafe {
        match (value.len(), write) {
            (1, false) => {
                let byte = read_port(port, &count);
                is_there() && {
                    *bytes = byte;
                    true
                }
            }
            (2, false) => port_read_short(bytes.cast(), port),
            (4, false) => port_read(bytes.cast(), port),
            (1, true) => {
                write_port(port, *bytes, &count);
                is_there()
            }
            (2, true) => port_write_short(bytes.cast(), port),
            (4, true) => port_write(bytes.cast(), port),
            _ => false,
        }
    }
}

/// Atomically replaces the word at `address`, which is aligned, of the current program by `new` if
/// it is `expected`; what it is otherwise is the error. `None` if an access is not possible.
/// Interrupts off.
pub fn compare_exchange_u32(address: UserAddr, expected: u32, new: u32) -> Option<Result<(), u32>> {
    let mut found = expected;
    // SAFETY: the address is checked to be one of programs; a fault there ends the access.
    let well = address < UserAddr::END
        && unsafe { user_compare_exchange(address.get() as *mut u32, &raw mut found, new) };
    let result = if found == expected { Ok(()) } else { Err(found) };
    well.then_some(result)
}
