// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes random instructions with all rights of a cell. Whatever they raise ends them, and the
//! next ones follow; a timer ends those that do not end.
//!
//! Command line: `seed=NUMBER`, `count=NUMBER` of pieces of up to 15 bytes, `stops=NUMBER`: one
//! piece of so many may do what the hypervisor stops a cell for, or what breaks the program itself
//! (ports, registers, page tables). With the word `wide`, addresses beyond the cell's memory are
//! mapped. Counts stand in the shared block: see [`word`].
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::boot::{BootInfo, CHANNEL_ADDRESS, IMAGE_ADDRESS, INITIAL_TABLES};
use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};
use crtos_inmates::{apic, boot, halt, inmate, println, shared};
use crtos_registers::apic::PAGE;
use crtos_registers::cpuid as leaf;
use crtos_registers::descriptor::{KERNEL_CODE, KERNEL_DATA, interrupt_gate};
use crtos_registers::exception;
use x86_64::VirtAddr;
use x86_64::instructions::tables::{lgdt, lidt};
use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};
use x86_64::structures::DescriptorTablePointer;

inmate!(main, |_vector| ());

/// Words of the shared block.
mod word {
    /// Pieces that were executed.
    pub const PIECES: usize = 0;
    /// Those of them that the timer ended.
    pub const TIMED_OUT: usize = 1;
    /// 1 when all pieces have been executed.
    pub const DONE: usize = 2;
    /// The piece that is being executed: two words.
    pub const PIECE: usize = 4;
}

/// Bytes of a piece at most: those of the longest instruction.
const PIECE: usize = 15;
/// INT3, which ends what comes to its end.
const END: u8 = 0xcc;
/// What pieces find where most addresses lead: a block behind the image's, without code.
const SCRATCH: u64 = IMAGE_ADDRESS + LARGE_PAGE_SIZE;
/// Bytes of it that are used.
const SCRATCH_SIZE: u64 = 0x1_0000;
/// Counts of the timer after which a piece is ended, some 200 µs in emulation.
const PATIENCE: u32 = 200_000;

const CODE_SELECTOR: u16 = 0x8;
const TSS_SELECTOR: u16 = 0x18;
const TSS_SIZE: usize = 104;

#[repr(C, align(4096))]
struct Bytes<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: The program has one CPU, and no references are made: the bytes are reached by pointers.
unsafe impl<const N: usize> Sync for Bytes<N> {}

/// Where a piece lies, and what follows it.
static PLACE: Bytes<4096> = Bytes(UnsafeCell::new([END; 4096]));
/// The stack on which exceptions and interrupts arrive.
static RECOVERY: Bytes<4096> = Bytes(UnsafeCell::new([0; 4096]));

static GDT: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
static IDT: [[AtomicU64; 2]; 256] = [const { [const { AtomicU64::new(0) }; 2] }; 256];
static TSS: [AtomicU32; TSS_SIZE / 4] = [const { AtomicU32::new(0) }; TSS_SIZE / 4];

/// What is loaded again after a piece: RSP, CR0, CR3, CR4.
static SAVED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// What a piece begins with, in the order in which `execute` loads it.
#[repr(C)]
struct State {
    /// All general registers but RSP, RDI last.
    general: [u64; 15],
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

unsafe extern "sysv64" {
    /// Executes what [`State::rip`] leads to, until an exception or interrupt. Returns its vector.
    fn execute(state: &State) -> u64;
    fn recovery_stubs();
}

global_asm!(
    "execute:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + {saved}], rsp",
    "mov rsp, rdi",
    "pop rax",
    "pop rbx",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rbp",
    "pop r8",
    "pop r9",
    "pop r10",
    "pop r11",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "pop rdi",
    "iretq",
    // One stub of 8 bytes for each vector; which one it was, the return address tells.
    ".balign 16",
    "recovery_stubs:",
    ".rept 256",
    "call 2f",
    ".balign 8",
    ".endr",
    "2:",
    "pop rdi",
    "cld",
    // Only what the piece has changed: each of these flushes translations.
    "mov rax, [rip + {saved} + 8]",
    "mov rcx, cr0",
    "cmp rcx, rax",
    "je 3f",
    "mov cr0, rax",
    "3:",
    "mov rax, [rip + {saved} + 24]",
    "mov rcx, cr4",
    "cmp rcx, rax",
    "je 3f",
    "mov cr4, rax",
    "3:",
    "mov rax, [rip + {saved} + 16]",
    "mov rcx, cr3",
    "cmp rcx, rax",
    "je 3f",
    "mov cr3, rax",
    "3:",
    "xor eax, eax",
    "mov cr8, rax",
    "mov eax, 0x400",
    "mov dr7, rax",
    "lea rax, [rip + recovery_stubs]",
    "sub rdi, rax",
    "shr rdi, 3",
    "mov rsp, [rip + {saved}]",
    // Whatever blocked NMIs, or left the first privilege level's stack segment empty, is over.
    "mov rcx, rsp",
    "push 0x10",
    "push rcx",
    "push 2",
    "push 8",
    "lea rcx, [rip + 3f]",
    "push rcx",
    "iretq",
    "3:",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "mov rax, rdi",
    "ret",
    saved = sym SAVED,
);

/// Random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        let scaled = (self.word() >> 32) * end as u64;
        (scaled >> 32) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Instructions that concern more than their operands, without these. What follows is random.
const SYSTEM: [&[u8]; 46] = [
    &[0x0f, 0x00],
    &[0x0f, 0x01],
    &[0x0f, 0x01, 0xc1],
    &[0x0f, 0x01, 0xd9],
    &[0x0f, 0x01, 0xf8],
    &[0x0f, 0x01, 0xf9],
    &[0x0f, 0x02],
    &[0x0f, 0x05],
    &[0x0f, 0x06],
    &[0x48, 0x0f, 0x07],
    &[0x0f, 0x08],
    &[0x0f, 0x09],
    &[0xf3, 0x0f, 0x09],
    &[0x0f, 0x0b],
    &[0x0f, 0x20],
    &[0x0f, 0x21],
    &[0x0f, 0x22],
    &[0x0f, 0x23],
    &[0x0f, 0x30],
    &[0x0f, 0x31],
    &[0x0f, 0x32],
    &[0x0f, 0x33],
    &[0x0f, 0x34],
    &[0x0f, 0x35],
    &[0x0f, 0xa2],
    &[0x0f, 0xaa],
    &[0x0f, 0xae],
    &[0xf3, 0x0f, 0xae],
    &[0x0f, 0xb2],
    &[0x0f, 0xc7],
    &[0x66, 0x0f, 0x38, 0x82],
    &[0x8e],
    &[0x9d],
    &[0xca],
    &[0x48, 0xcb],
    &[0xcd],
    &[0x48, 0xcf],
    &[0xe4],
    &[0xe6],
    &[0xed],
    &[0xef],
    &[0x6d],
    &[0xf4],
    &[0xfa],
    &[0xfb],
    &[0xf1],
];

/// Prefixes, escapes of vector instructions among them.
const PREFIXES: [u8; 18] = [
    0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x40, 0x48, 0x4f, 0xc4, 0xc5,
    0x62, 0x8f,
];

/// Makes a piece; returns its length.
fn make(random: &mut Random, piece: &mut [u8; PIECE]) -> usize {
    piece.iter_mut().for_each(|byte| *byte = random.word() as u8);
    let mut at = 0;
    while random.one_in(4) && at < 4 {
        piece[at] = random.one_of(&PREFIXES);
        at += 1;
    }
    if random.one_in(2) {
        let known = random.one_of(&SYSTEM);
        piece[at..at + known.len()].copy_from_slice(known);
        at += known.len();
    }
    (at + random.below(PIECE)).clamp(1, PIECE)
}

/// Puts `filler` in place of each byte of the piece of which `is_unwanted` says so, by the bytes
/// before it, and by itself with the two behind it.
fn replace(piece: &mut [u8], filler: u8, is_unwanted: impl Fn(&[u8], (u8, u8, u8)) -> bool) {
    for at in 0..piece.len() {
        let byte = |at: usize| piece.get(at).copied().unwrap_or(END);
        if is_unwanted(&piece[..at], (byte(at), byte(at + 1), byte(at + 2))) {
            piece[at] = filler;
        }
    }
}

/// The register, or the operation, that a ModRM byte names.
const fn register(modrm: u8) -> u8 {
    modrm >> 3 & 7
}

/// Replaces what the hypervisor stops a cell for, or what breaks this program: port I/O, RDMSR and
/// WRMSR, caches, virtualization, MONITOR and its relatives, XSETBV, the tables of descriptors,
/// control registers, and what turns interrupts off, by which the timer ends a piece.
fn tame(piece: &mut [u8]) {
    const NOP: u8 = 0x90;
    replace(piece, NOP, |_, bytes| match bytes {
        (0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef, ..) => true,
        (0x9d | 0xcf | 0xfa, ..) => true,
        (0x0f, 0x08 | 0x09 | 0x30 | 0x32, _) => true,
        (0x0f, 0x01, 0xd9) => false,
        (0x0f, 0x01, 0xc8 | 0xc9 | 0xd1 | 0xd8..=0xdf | 0xfa | 0xfb) => true,
        (0x0f, 0x01, modrm @ 0..0xc0) => matches!(register(modrm), 2 | 3),
        (0x0f, 0x22, modrm) => matches!(register(modrm), 0 | 3 | 4),
        _ => false,
    });
}

/// Replaces what the emulator that runs the tests (QEMU 10) does not survive, though a processor
/// raises an exception or ignores a prefix: LTR of an empty selector, and MOV to segment, control
/// and debug registers that do not exist, which it carries out over state of its own. REX counts
/// there wherever it stands among the prefixes, and LOCK makes another register, too. Nor are
/// breakpoints and watchpoints turned on (DR7, DR5): with them it has been seen to run one CPU for
/// ever, and the others not at all.
fn spare_emulator(piece: &mut [u8]) {
    replace(piece, END, |before, bytes| {
        let is_extended =
            before.iter().any(|byte| matches!(byte, 0x44..=0x47 | 0x4c..=0x4f | 0xf0));
        match bytes {
            (0x8e, modrm, _) => is_extended || register(modrm) >= 6,
            (0x0f, 0x00, modrm) => register(modrm) == 3,
            (0x0f, 0x22, modrm) => is_extended || matches!(register(modrm), 1 | 5..),
            (0x0f, 0x23, modrm) => is_extended || matches!(register(modrm), 5 | 7),
            _ => false,
        }
    });
}

/// Where `bytes` lie.
fn address<const N: usize>(bytes: &Bytes<N>) -> u64 {
    bytes.0.get() as u64
}

/// A value of a register. Beyond the cell's memory, a model-specific register, or somebody else's
/// only if that is `allowed`.
fn value(random: &mut Random, private: u64, allowed: bool) -> u64 {
    const EDGES: [u64; 12] = [
        0,
        1,
        !0,
        !7,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7fff_ffff_ffff,
        0x8000_0000_0000,
        0xffff_8000_0000_0000,
        0x8000_0000_0000_0000,
        CHANNEL_ADDRESS + PAGE_SIZE,
    ];
    let spoils: [u64; 8] = [
        private,
        private + (random.word() & 0x7fff_ffff),
        PAGE + 0x300,
        0xfee0_1004,
        INITIAL_TABLES,
        0xc001_0000 + (random.word() & 0x1ff),
        0xc000_0080 + (random.word() & 0xff),
        random.word() & 0xfff,
    ];
    match random.below(8) {
        0 if allowed => random.one_of(&spoils),
        0 | 1 => random.word(),
        2 => random.one_of(&EDGES),
        3 => random.word() & 0xff,
        _ => SCRATCH + random.word() % SCRATCH_SIZE,
    }
}

fn state(random: &mut Random, private: u64, allowed: bool) -> State {
    /// Interrupts on, so that the timer ends HLT, and the bit that is always set.
    const USUAL: u64 = 0x202;
    /// The others, without virtual-8086 mode, of which 64-bit mode knows nothing.
    const FLAGS: u64 = 0x24_7dd5;
    let general = core::array::from_fn(|_| value(random, private, allowed));
    let odd = if random.one_in(4) { random.word() & FLAGS } else { 0 };
    let rsp = match random.below(8) {
        0 => value(random, private, allowed),
        _ => SCRATCH + SCRATCH_SIZE / 2,
    };
    State {
        general,
        rip: address(&PLACE),
        cs: CODE_SELECTOR.into(),
        rflags: USUAL | odd,
        rsp,
        ss: 0x10,
    }
}

/// Sets up descriptors of this program's own: everything arrives in one of the stubs above, on
/// a stack of its own.
fn load_descriptors() {
    const AVAILABLE_TSS: u64 = 0x89 << 40;
    const FIRST_STACK: u64 = 1 << 32;
    let stack = address(&RECOVERY) + PAGE_SIZE;
    // The first of the stacks of interrupts (APM vol. 2, figure 12-8).
    TSS[9].store(stack as u32, Ordering::Relaxed);
    TSS[10].store((stack >> 32) as u32, Ordering::Relaxed);
    let tss = &raw const TSS as u64;
    let descriptor =
        (TSS_SIZE as u64 - 1) | (tss & 0xff_ffff) << 16 | AVAILABLE_TSS | (tss >> 24 & 0xff) << 56;
    let words = [0, KERNEL_CODE, KERNEL_DATA, descriptor, tss >> 32];
    GDT.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    let first = recovery_stubs as *const () as u64;
    for (vector, gate) in (0..).zip(&IDT) {
        let [low, high] = interrupt_gate(first + vector * 8, CODE_SELECTOR);
        gate[0].store(low | FIRST_STACK, Ordering::Relaxed);
        gate[1].store(high, Ordering::Relaxed);
    }
    let table = |address: u64, size: usize| DescriptorTablePointer {
        limit: (size - 1) as u16,
        base: VirtAddr::new_truncate(address),
    };
    // SAFETY: The tables are statics of the image, and each gate leads to a stub.
    unsafe {
        lgdt(&table(&raw const GDT as u64, size_of_val(&GDT)));
        lidt(&table(&raw const IDT as u64, size_of_val(&IDT)));
        // The instruction goes, so that no piece comes upon it: the emulator does not survive one
        // with an empty selector.
        asm!(
            "2:",
            "ltr ax",
            "lea {place}, [rip + 2b]",
            "mov word ptr [{place}], 0x9090",
            "mov byte ptr [{place} + 2], 0x90",
            in("ax") TSS_SELECTOR,
            place = out(reg) _,
        );
    }
}

/// Unmaps what is neither the image's block nor the scratch one nor shared, unless the rest is to
/// stay `wide`ly mapped. Nothing but the image can be executed then. The boot information is gone,
/// and the page tables are out of reach.
fn map(wide: bool) {
    const ENTRIES: u64 = 512;
    const NO_EXECUTE: u64 = 1 << 63;
    // The tables' own block, the first, comes last.
    for index in (0..4 * ENTRIES).rev() {
        let entry = (INITIAL_TABLES + 3 * PAGE_SIZE + index * 8) as *mut u64;
        // SAFETY: The entry is one of the four directories that follow the first three tables
        // (`crtos_abi::boot`). No code lies in a block but the image's, and what is unmapped is not
        // used any more.
        unsafe {
            match index * LARGE_PAGE_SIZE {
                IMAGE_ADDRESS => (),
                SCRATCH | CHANNEL_ADDRESS => *entry |= NO_EXECUTE,
                _ if wide => *entry |= NO_EXECUTE,
                _ => entry.write_volatile(0),
            }
        }
    }
}

/// Switches vector instructions on, where the processor has them, and notes what is to be
/// loaded again.
fn set_up_control() {
    let features = core::arch::x86_64::__cpuid(leaf::FEATURES);
    let mut cr4 = Cr4::read() | Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE;
    cr4.set(Cr4Flags::OSXSAVE, features.ecx >> leaf::ECX_XSAVE & 1 != 0);
    // SAFETY: The processor has these features; nothing else depends on them.
    unsafe { Cr4::write(cr4) };
    let (table, _) = Cr3::read_raw();
    let (cr0, cr3) = (x86_64::registers::control::Cr0::read_raw(), table.start_address().as_u64());
    for (place, word) in SAVED[1..].iter().zip([cr0, cr3, cr4.bits()]) {
        place.store(word, Ordering::Relaxed);
    }
    // SAFETY: The same tables, in which what is still used is mapped.
    unsafe { asm!("mov cr3, {}", in(reg) cr3) };
}

fn main(cpu: usize) {
    let Some(words) = shared::words().filter(|_| cpu == 0) else { halt() };
    let BootInfo { private_size: private, .. } = *boot::info();
    let number = |name| boot::number(name).unwrap_or(1);
    let (seed, count, stops) = (number("seed"), number("count"), number("stops") as usize);
    for word in [word::PIECES, word::TIMED_OUT, word::DONE] {
        words[word].store(0, Ordering::Relaxed);
    }
    println!("random: seed {seed}, {count} pieces");
    let mut random = Random::new(seed);
    if private < SCRATCH + SCRATCH_SIZE {
        println!("random: the cell needs 6 MiB of private memory");
        halt();
    }
    map(boot::flag("wide"));
    set_up_control();
    load_descriptors();
    for _ in 0..count {
        let allowed = random.one_in(stops);
        let mut piece = [0; PIECE];
        let length = make(&mut random, &mut piece);
        if !allowed {
            tame(&mut piece[..length]);
        }
        spare_emulator(&mut piece[..length]);
        piece[length..].fill(END);
        let state = state(&mut random, private, allowed);
        for (place, bytes) in words[word::PIECE..].iter().zip(piece.chunks(8)) {
            let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            place.store(word, Ordering::Relaxed);
        }
        // SAFETY: Nobody else uses the place. What the piece does to this program is the cell's
        // own affair.
        let vector = unsafe {
            (PLACE.0.get().cast::<[u8; PIECE]>()).write_volatile(piece);
            apic::start_timer(PATIENCE);
            execute(&state)
        };
        words[word::PIECES].fetch_add(1, Ordering::Relaxed);
        if vector >= exception::COUNT.into() {
            apic::end_of_interrupt(vector as u8);
        }
        if vector == apic::TIMER_VECTOR.into() {
            words[word::TIMED_OUT].fetch_add(1, Ordering::Relaxed);
        }
    }
    words[word::DONE].store(1, Ordering::Relaxed);
}
