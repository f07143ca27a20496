// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions, as the hypervisor reads them: compared with a disassembler that knows all of them.

use bolero::TypeGenerator;
use crtos_partition::decode::{MAX_LENGTH, Operation, Registers, SegmentBases, candidates, store};
use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, Instruction, Mnemonic, OpKind, Register,
};

use crate::numbers::Word;

/// Bytes at an instruction pointer, and the state of the processor there.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    #[generator(bolero::generator::produce::<Vec<Prefix>>().with().len(0usize..4))]
    prefixes: Vec<Prefix>,
    opcode: Opcode,
    rest: [u8; 12],
    /// How many bytes there are: what lies behind them is not mapped.
    length: u8,
    registers: [Word; 16],
    fs: u64,
    gs: u64,
}

/// A byte before the opcode.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Prefix {
    Operand,
    Address,
    Lock,
    Fs,
    Gs,
    /// A REX prefix with these bits.
    Rex(u8),
    Any(u8),
}

/// The first byte of the opcode.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Opcode {
    /// One that [`store`] knows.
    Store(u8),
    /// Two bytes.
    Escape,
    Any(u8),
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        const STORES: [u8; 7] = [0x89, 0xc7, 0x87, 0x09, 0x21, 0x81, 0x83];
        let prefix = |prefix: &Prefix| match *prefix {
            Prefix::Operand => 0x66,
            Prefix::Address => 0x67,
            Prefix::Lock => 0xf0,
            Prefix::Fs => 0x64,
            Prefix::Gs => 0x65,
            Prefix::Rex(bits) => 0x40 | bits & 0xf,
            Prefix::Any(byte) => byte,
        };
        let opcode = match self.opcode {
            Opcode::Store(index) => STORES[usize::from(index) % STORES.len()],
            Opcode::Escape => 0x0f,
            Opcode::Any(byte) => byte,
        };
        let mut bytes: Vec<u8> = self.prefixes.iter().map(prefix).collect();
        bytes.push(opcode);
        bytes.extend(self.rest);
        // Most instructions are there as a whole.
        let length = if self.length < 0x40 { usize::from(self.length) % 16 } else { MAX_LENGTH };
        bytes.truncate(length);
        bytes
    }
}

/// Runs the target.
pub fn decoder(input: &Input) {
    let bytes = input.bytes();
    let registers = input.registers.map(Word::value);
    let instruction = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode();
    stores(&bytes, &registers, &instruction);
    let bases = SegmentBases { fs: input.fs, gs: input.gs };
    operands(&bytes, &registers, bases, &instruction);
}

/// What [`store`] understands is what the instruction does, and it understands all that it has to.
fn stores(bytes: &[u8], registers: &Registers, instruction: &Instruction) {
    let found = store(bytes, registers);
    if let Some(store) = found {
        let length = usize::from(store.length);
        assert!((1..=bytes.len()).contains(&length), "{length} bytes of {bytes:x?}");
        assert_eq!(self::store(&bytes[..length], registers), found, "bytes behind it matter");
        assert_eq!(self::store(&bytes[..length - 1], registers), None, "its last byte does not");
    }
    // Nothing is asked of what raises an exception or is not made by anybody.
    if instruction.is_invalid() || is_odd(bytes) {
        return;
    }
    let expected = operation(instruction, registers)
        .map(|operation| (usize::from(instruction.len() as u8), operation));
    let found = found.map(|store| (usize::from(store.length), store.operation));
    assert_eq!(found, expected, "{bytes:x?}: {instruction:?}");
}

/// Whether the prefixes are such as no compiler makes: a REX prefix that is not the last, so that
/// the processor ignores it, or two of segments, of which the manual does not say which one counts.
fn is_odd(bytes: &[u8]) -> bool {
    let is_segment = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    let is_other = |byte: &u8| matches!(byte, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3);
    let is_rex = |byte: &u8| (0x40..=0x4f).contains(byte);
    let is_prefix = |byte: &&u8| is_segment(byte) || is_other(byte) || is_rex(byte);
    let prefixes = &bytes[..bytes.iter().take_while(is_prefix).count()];
    let is_rex_lost = prefixes.iter().rev().skip(1).any(is_rex);
    is_rex_lost || prefixes.iter().filter(|byte| is_segment(byte)).count() > 1
}

/// What an instruction that writes to memory does, if it is one of those that [`store`] is to
/// know.
fn operation(instruction: &Instruction, registers: &Registers) -> Option<Operation> {
    if instruction.op_kind(0) != OpKind::Memory {
        return None;
    }
    let number = || instruction.op_register(1).number();
    let long = || registers[number()];
    let short = || long() & 0xffff_ffff;
    let sign_extended = || (instruction.immediate8to32() as u32).into();
    Some(match instruction.code() {
        Code::Mov_rm32_r32 => Operation::Write(short()),
        Code::Mov_rm64_r64 => Operation::Write(long()),
        Code::Mov_rm32_imm32 => Operation::Write(instruction.immediate32().into()),
        Code::Mov_rm64_imm32 => Operation::Write(instruction.immediate32to64() as u64),
        Code::Xchg_rm32_r32 | Code::Xchg_rm64_r64 => Operation::Exchange(number() as u8),
        Code::Cmpxchg_rm32_r32 | Code::Cmpxchg_rm64_r64 => {
            Operation::CompareExchange(number() as u8)
        }
        Code::Or_rm32_r32 => Operation::Or(short()),
        Code::Or_rm64_r64 => Operation::Or(long()),
        Code::And_rm32_r32 => Operation::And(short()),
        Code::And_rm64_r64 => Operation::And(long()),
        Code::Or_rm32_imm32 => Operation::Or(instruction.immediate32().into()),
        Code::Or_rm64_imm32 => Operation::Or(instruction.immediate32to64() as u64),
        Code::And_rm32_imm32 => Operation::And(instruction.immediate32().into()),
        Code::And_rm64_imm32 => Operation::And(instruction.immediate32to64() as u64),
        Code::Or_rm32_imm8 => Operation::Or(sign_extended()),
        Code::Or_rm64_imm8 => Operation::Or(instruction.immediate8to64() as u64),
        Code::And_rm32_imm8 => Operation::And(sign_extended()),
        Code::And_rm64_imm8 => Operation::And(instruction.immediate8to64() as u64),
        _ => return None,
    })
}

/// The address of an operand in memory is among the candidates, unless it is relative, or the
/// instruction does not say it by a ModRM byte (`xlat`, `mov` with an address of 64 bits) or does
/// not touch it (`lea`).
fn operands(bytes: &[u8], registers: &Registers, bases: SegmentBases, instruction: &Instruction) {
    let found = candidates(bytes, 0, registers, bases);
    let is_ordinary = instruction.encoding() == EncodingKind::Legacy
        && instruction.op_kinds().any(|kind| kind == OpKind::Memory)
        && instruction.memory_base() != Register::RIP
        && instruction.memory_base() != Register::EIP
        && !is_without_modrm(instruction)
        && instruction.mnemonic() != Mnemonic::Lea
        && !instruction.is_vsib();
    if instruction.is_invalid() || is_odd(bytes) || !is_ordinary {
        return;
    }
    let Some(index) = instruction.op_kinds().position(|kind| kind == OpKind::Memory) else {
        return;
    };
    let address = instruction.virtual_address(index as u32, 0, |register, _, _| {
        Some(match register {
            Register::FS => bases.fs,
            Register::GS => bases.gs,
            _ if register.is_segment_register() => 0,
            _ => {
                let value = registers[register.number()];
                if register.is_gpr32() { u64::from(value as u32) } else { value }
            }
        })
    });
    assert!(found.contains(&address), "{bytes:x?}: {address:x?}, not of {found:x?}");
}

/// Whether an operand in memory is said by something else than a ModRM byte.
fn is_without_modrm(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Xlat_m8
            | Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    )
}
