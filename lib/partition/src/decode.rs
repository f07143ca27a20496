// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few instructions that the hypervisor has to understand (AMD APM vol. 3, chapter 1), in
//! 64-bit mode.
//!
//! Three things are asked of an instruction at which a nested fault was taken: what it writes to
//! registers that are memory ([`store`], [`write()`]), where it puts what it reads there
//! ([`load`]), and at which addresses it may have touched memory ([`candidates`]), because the
//! processor tells the physical address only.

/// General registers in the order of their numbers: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to
/// R15.
pub type Registers = [u64; 16];

/// Bytes of the longest instruction.
pub const MAX_LENGTH: usize = 15;

/// Number of RAX.
pub const RAX: usize = 0;
/// Number of RCX.
pub const RCX: usize = 1;
/// Number of RDX.
pub const RDX: usize = 2;
/// Number of RBX.
pub const RBX: usize = 3;
/// Number of RSP.
pub const RSP: usize = 4;
/// Number of RSI.
pub const RSI: usize = 6;
/// Number of RDI.
pub const RDI: usize = 7;
/// Number of R10.
pub const R10: usize = 10;

/// What an instruction does with its operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes this value.
    Write(u64),
    /// Exchanges it with the register of this number.
    Exchange(u8),
    /// Writes the register of this number if it is what RAX holds, and loads it there otherwise.
    CompareExchange(u8),
    /// Or with this value.
    Or(u64),
    /// And with this value.
    And(u64),
    /// Writes this value where RDI leads, and again behind it, as often as RCX says.
    Fill(u64),
}

/// An instruction that writes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Bytes of the instruction.
    pub length: u8,
    /// Its operand has 64 bits, not 32.
    pub long: bool,
    /// What it does.
    pub operation: Operation,
}

/// The status flags in RFLAGS (APM vol. 1, 3.1.4).
pub mod flags {
    /// CF.
    pub const CARRY: u64 = 1 << 0;
    /// PF.
    pub const PARITY: u64 = 1 << 2;
    /// AF.
    pub const AUXILIARY: u64 = 1 << 4;
    /// ZF.
    pub const ZERO: u64 = 1 << 6;
    /// SF.
    pub const SIGN: u64 = 1 << 7;
    /// OF.
    pub const OVERFLOW: u64 = 1 << 11;
    /// All of them.
    pub const STATUS: u64 = CARRY | PARITY | AUXILIARY | ZERO | SIGN | OVERFLOW;
}

impl Store {
    /// Tells whether what the operand becomes depends on what it was.
    pub fn reads(&self) -> bool {
        !matches!(self.operation, Operation::Write(_) | Operation::Fill(_))
    }

    /// Tells whether the instruction is not done yet, now that it was carried out once.
    pub fn goes_on(&self, registers: &Registers) -> bool {
        matches!(self.operation, Operation::Fill(_)) && registers[RCX] != 0
    }

    /// Returns what the operand becomes that was `old`, and the status flags if they change. Loads
    /// registers as the instruction does.
    pub fn carry_out(&self, old: u64, registers: &mut Registers) -> (u64, Option<u64>) {
        let mask = if self.long { u64::MAX } else { u32::MAX.into() };
        let old = old & mask;
        match self.operation {
            Operation::Write(value) => (value, None),
            Operation::Exchange(number) => {
                let register = &mut registers[usize::from(number)];
                (core::mem::replace(register, old) & mask, None)
            }
            Operation::CompareExchange(number) => {
                let (compared, value) = (registers[RAX] & mask, registers[usize::from(number)]);
                let flags = self.difference(compared, old);
                if compared == old {
                    return (value & mask, Some(flags));
                }
                registers[RAX] = old;
                (old, Some(flags))
            }
            Operation::Or(value) => (old | value, Some(self.result(old | value))),
            Operation::And(value) => (old & value, Some(self.result(old & value))),
            Operation::Fill(value) => {
                let size = if self.long { 8 } else { 4 };
                registers[RDI] = registers[RDI].wrapping_add(size);
                registers[RCX] = registers[RCX].wrapping_sub(1);
                (value, None)
            }
        }
    }

    /// Flags of a result.
    fn result(&self, value: u64) -> u64 {
        let sign = if self.long { 63 } else { 31 };
        let flag = |condition, flag| if condition { flag } else { 0 };
        flag((value as u8).count_ones().is_multiple_of(2), flags::PARITY)
            | flag(value == 0, flags::ZERO)
            | flag(value >> sign & 1 != 0, flags::SIGN)
    }

    /// Flags of the comparison of two operands.
    fn difference(&self, left: u64, right: u64) -> u64 {
        let (mask, sign) = if self.long { (u64::MAX, 63) } else { (u32::MAX.into(), 31) };
        let difference = left.wrapping_sub(right) & mask;
        let flag = |condition, flag| if condition { flag } else { 0 };
        let overflow = (left ^ right) & (left ^ difference);
        self.result(difference)
            | flag(left < right, flags::CARRY)
            | flag((left ^ right ^ difference) & 0x10 != 0, flags::AUXILIARY)
            | flag(overflow >> sign & 1 != 0, flags::OVERFLOW)
    }
}

/// An instruction that writes a value to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Bytes of the instruction.
    pub length: u8,
    /// Bytes that it writes: 1, 2, 4 or 8.
    pub size: u8,
    /// The value.
    pub value: u64,
}

/// An instruction that reads memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of the instruction.
    pub length: u8,
    /// The number of the register that gets what is read; the upper half of 32 bits is 0.
    pub register: u8,
    /// It reads 64 bits, not 32.
    pub long: bool,
}

/// Bytes of an instruction, read one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn signed(&mut self, size: usize) -> Option<i64> {
        let bytes = self.bytes.get(self.at..self.at + size)?;
        self.at += size;
        let value = bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let unused = 64 - 8 * size as u32;
        Some((value << unused) as i64 >> unused)
    }
}

#[derive(Clone, Copy, Default)]
struct Prefixes {
    rex: u8,
    segment: u8,
    operand_16: bool,
    address_32: bool,
}

impl Prefixes {
    fn read(reader: &mut Reader) -> Option<(Self, u8)> {
        let mut prefixes = Self::default();
        loop {
            match reader.next()? {
                0x66 => prefixes.operand_16 = true,
                0x67 => prefixes.address_32 = true,
                segment @ (0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65) => prefixes.segment = segment,
                0xf0 | 0xf2 | 0xf3 => (),
                rex @ 0x40..=0x4f => {
                    prefixes.rex = rex;
                    return Some((prefixes, reader.next()?));
                }
                opcode => return Some((prefixes, opcode)),
            }
        }
    }
}

/// Bases of the segments that have one in 64-bit mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentBases {
    /// Base of FS.
    pub fs: u64,
    /// Base of GS.
    pub gs: u64,
}

struct ModRm {
    /// Number of the register operand, or the rest of the opcode (low 3 bits).
    register: u8,
    /// Address of the operand in memory, relative to the end of the instruction if `relative`;
    /// `None` if it is a register.
    address: Option<u64>,
    relative: bool,
}

impl ModRm {
    fn read(
        reader: &mut Reader,
        prefixes: Prefixes,
        registers: &Registers,
        bases: SegmentBases,
    ) -> Option<Self> {
        let byte = reader.next()?;
        let (mode, rm) = (byte >> 6, byte & 7);
        let rex = |bit: u8| if prefixes.rex & bit != 0 { 8 } else { 0 };
        let register = (byte >> 3 & 7) | rex(4);
        if mode == 3 {
            return Some(Self { register, address: None, relative: false });
        }
        let mut relative = false;
        let mut address = 0u64;
        let mut displacement = match mode {
            0 => 0,
            1 => 1,
            _ => 4,
        };
        if rm == 4 {
            let sib = reader.next()?;
            let index = (sib >> 3 & 7) | rex(2);
            if index != 4 {
                address = registers[usize::from(index)] << (sib >> 6);
            }
            if sib & 7 == 5 && mode == 0 {
                displacement = 4;
            } else {
                address = address.wrapping_add(registers[usize::from((sib & 7) | rex(1))]);
            }
        } else if rm == 5 && mode == 0 {
            displacement = 4;
            relative = true;
        } else {
            address = registers[usize::from(rm | rex(1))];
        }
        if displacement != 0 {
            address = address.wrapping_add_signed(reader.signed(displacement)?);
        }
        if prefixes.address_32 {
            address &= 0xffff_ffff;
        }
        let base = match prefixes.segment {
            0x64 => bases.fs,
            0x65 => bases.gs,
            _ => 0,
        };
        Some(Self { register, address: Some(address.wrapping_add(base)), relative })
    }
}

/// Understands a `mov`, `xchg`, `cmpxchg`, `or` or `and` of 32 or 64 bits to memory: the forms in
/// which Linux writes to interrupt controllers, timers and tables of devices. `None` for any other
/// instruction.
pub fn store(bytes: &[u8], registers: &Registers) -> Option<Store> {
    let mut reader = Reader { bytes, at: 0 };
    let (prefixes, opcode) = Prefixes::read(&mut reader)?;
    // Which outdoes the prefix for 16 bits.
    let long = prefixes.rex & 8 != 0;
    if prefixes.operand_16 && !long {
        return None;
    }
    let opcode = match opcode {
        0x0f => 0x0f00 | u16::from(reader.next()?),
        opcode => opcode.into(),
    };
    let modrm = ModRm::read(&mut reader, prefixes, registers, SegmentBases::default())?;
    modrm.address?;
    let mask = if long { u64::MAX } else { u32::MAX.into() };
    let register = registers[usize::from(modrm.register)] & mask;
    let mut immediate = |size| reader.signed(size).map(|value| value as u64 & mask);
    let operation = match (opcode, modrm.register & 7) {
        (0x89, _) => Operation::Write(register),
        (0xc7, 0) => Operation::Write(immediate(4)?),
        (0x87, _) => Operation::Exchange(modrm.register),
        (0x0fb1, _) => Operation::CompareExchange(modrm.register),
        (0x09, _) => Operation::Or(register),
        (0x21, _) => Operation::And(register),
        (0x81, 1) => Operation::Or(immediate(4)?),
        (0x81, 4) => Operation::And(immediate(4)?),
        (0x83, 1) => Operation::Or(immediate(1)?),
        (0x83, 4) => Operation::And(immediate(1)?),
        _ => return None,
    };
    Some(Store { length: reader.at as u8, long, operation })
}

/// Understands a `mov` of 8, 16, 32 or 64 bits to memory: the form in which Linux writes to
/// configuration space. `None` for any other instruction.
pub fn write(bytes: &[u8], registers: &Registers) -> Option<Write> {
    let mut reader = Reader { bytes, at: 0 };
    let (prefixes, opcode) = Prefixes::read(&mut reader)?;
    let size: u8 = match opcode {
        0x88 | 0xc6 => 1,
        // Which outdoes the prefix for 16 bits.
        0x89 | 0xc7 if prefixes.rex & 8 != 0 => 8,
        0x89 | 0xc7 if prefixes.operand_16 => 2,
        0x89 | 0xc7 => 4,
        _ => return None,
    };
    let modrm = ModRm::read(&mut reader, prefixes, registers, SegmentBases::default())?;
    modrm.address?;
    let value = match opcode {
        // Without REX these are AH, CH, DH and BH.
        0x88 if prefixes.rex == 0 && modrm.register >= 4 => {
            registers[usize::from(modrm.register - 4)] >> 8
        }
        0x88 | 0x89 => registers[usize::from(modrm.register)],
        _ if modrm.register & 7 != 0 => return None,
        _ => reader.signed(usize::from(size.min(4)))? as u64,
    };
    let value = value & u64::MAX >> (64 - 8 * size);
    Some(Write { length: reader.at as u8, size, value })
}

/// Understands a `mov` of 32 or 64 bits from memory to a register: the form in which Linux reads
/// registers that are memory. `None` for any other instruction.
pub fn load(bytes: &[u8]) -> Option<Load> {
    let mut reader = Reader { bytes, at: 0 };
    let (prefixes, opcode) = Prefixes::read(&mut reader)?;
    let long = prefixes.rex & 8 != 0;
    if opcode != 0x8b || prefixes.operand_16 && !long {
        return None;
    }
    let modrm = ModRm::read(&mut reader, prefixes, &[0; 16], SegmentBases::default())?;
    modrm.address?;
    Some(Load { length: reader.at as u8, register: modrm.register, long })
}

/// Addresses at which the instruction `bytes` at `rip` may touch memory: its operand, the operands
/// of string instructions, the top of the stack, the instruction itself. The caller checks which
/// one is the touched one; there may be none.
pub fn candidates(
    bytes: &[u8],
    rip: u64,
    registers: &Registers,
    bases: SegmentBases,
) -> [Option<u64>; 6] {
    [
        operand(bytes, registers, bases),
        Some(registers[RSI]),
        Some(registers[RDI]),
        Some(registers[RSP].wrapping_sub(8)),
        Some(registers[RSP]),
        Some(rip),
    ]
}

/// Understands a `rep stos` of 32 or 64 bits, by which Linux clears. The direction is upwards, as
/// Linux's kernel has it. `None` for any other instruction.
pub fn fill(bytes: &[u8], registers: &Registers) -> Option<Store> {
    let (length, long) = match bytes {
        [0xf3, 0x48, 0xab, ..] => (3, true),
        [0xf3, 0xab, ..] => (2, false),
        _ => return None,
    };
    let value = if long { registers[RAX] } else { registers[RAX] & 0xffff_ffff };
    Some(Store { length, long, operation: Operation::Fill(value) })
}

/// Address of the explicit operand in memory, unless it is relative to RIP.
fn operand(bytes: &[u8], registers: &Registers, bases: SegmentBases) -> Option<u64> {
    let mut reader = Reader { bytes, at: 0 };
    let (mut prefixes, opcode) = Prefixes::read(&mut reader)?;
    match opcode {
        0x0f => {
            if let 0x38 | 0x3a = reader.next()? {
                reader.next()?;
            }
        }
        // Two-byte VEX: the inverted R bit only matters for registers.
        0xc5 => {
            reader.next()?;
            reader.next()?;
        }
        // Three-byte VEX: X and B, inverted.
        0xc4 => {
            prefixes.rex = !(reader.next()? >> 5) & 7;
            reader.next()?;
            reader.next()?;
        }
        0xa0..=0xa3 => return reader.signed(8).map(|address| address as u64),
        _ => (),
    }
    let modrm = ModRm::read(&mut reader, prefixes, registers, bases)?;
    modrm.address.filter(|_| !modrm.relative)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpKind, Register};
    use proptest::prelude::*;

    fn value(register: Register, registers: &Registers, bases: SegmentBases) -> Option<u64> {
        Some(match register {
            Register::FS => bases.fs,
            Register::GS => bases.gs,
            Register::ES | Register::CS | Register::SS | Register::DS => 0,
            _ if register.is_gpr64() => registers[register.number()],
            _ if register.is_gpr32() => registers[register.number()] & 0xffff_ffff,
            _ => return None,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// A store that is understood is understood as a full decoder understands it.
        #[test]
        fn stores_agree_with_a_full_decoder(
            rex in prop_oneof![Just(None), (0x40u8..0x50).prop_map(Some)],
            opcode in prop::sample::select(vec![
                &[0x89u8][..], &[0xc7], &[0x87], &[0x09], &[0x21], &[0x81], &[0x83], &[0x8b],
                &[0x01], &[0x0f, 0xb1], &[0x0f, 0xc7], &[0x0f, 0xc1],
            ]),
            rest: [u8; 12],
            registers: Registers,
        ) {
            let mut bytes: Vec<u8> = rex.into_iter().collect();
            bytes.extend(opcode);
            bytes.extend(rest);
            let Some(found) = store(&bytes, &registers) else { return Ok(()) };
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            prop_assert_eq!(usize::from(found.length), instruction.len());
            prop_assert_eq!(instruction.op0_kind(), OpKind::Memory);
            let source = match instruction.op1_kind() {
                OpKind::Register => registers[instruction.op1_register().number()],
                _ => instruction.immediate(1),
            };
            prop_assert_eq!(found.long, instruction.memory_size().size() == 8);
            let source = if found.long { source } else { source & 0xffff_ffff };
            let number = instruction.op1_register().number() as u8;
            let expected = match instruction.mnemonic() {
                Mnemonic::Mov => Operation::Write(source),
                Mnemonic::Or => Operation::Or(source),
                Mnemonic::And => Operation::And(source),
                Mnemonic::Xchg => Operation::Exchange(number),
                Mnemonic::Cmpxchg => Operation::CompareExchange(number),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(found.operation, expected);
        }

        /// A value that is written is understood as a full decoder understands it.
        #[test]
        fn writes_agree_with_a_full_decoder(
            prefix in prop_oneof![Just(None), Just(Some(0x66u8))],
            rex in prop_oneof![Just(None), (0x40u8..0x50).prop_map(Some)],
            opcode in prop::sample::select(vec![0x88u8, 0x89, 0xc6, 0xc7, 0x8b, 0x86, 0xa4]),
            rest: [u8; 12],
            registers: Registers,
        ) {
            let mut bytes: Vec<u8> = prefix.into_iter().chain(rex).collect();
            bytes.push(opcode);
            bytes.extend(rest);
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            let is_write =
                instruction.mnemonic() == Mnemonic::Mov && instruction.op0_kind() == OpKind::Memory;
            let found = write(&bytes, &registers);
            prop_assert_eq!(found.is_some(), is_write);
            let Some(found) = found else { return Ok(()) };
            prop_assert_eq!(usize::from(found.length), instruction.len());
            prop_assert_eq!(usize::from(found.size), instruction.memory_size().size());
            let source = match instruction.op1_kind() {
                OpKind::Register => {
                    let register = instruction.op1_register();
                    let is_second = matches!(
                        register,
                        Register::AH | Register::CH | Register::DH | Register::BH
                    );
                    let value = registers[register.full_register().number()];
                    if is_second { value >> 8 } else { value }
                }
                _ => instruction.immediate(1),
            };
            let mask = u64::MAX >> (64 - 8 * found.size);
            prop_assert_eq!(found.value, source & mask);
        }

        /// A comparison has the flags that the processor gives it, and exchanges what is the same.
        #[test]
        fn comparisons_exchange(long: bool, compared: u64, old: u64, new: u64, same: bool) {
            let mask = if long { u64::MAX } else { 0xffff_ffff };
            let old = if same { compared } else { old };
            let store = Store { length: 4, long, operation: Operation::CompareExchange(3) };
            let mut registers = [0; 16];
            (registers[RAX], registers[3]) = (compared, new);
            let (value, flags) = store.carry_out(old, &mut registers);
            let equal = (compared ^ old) & mask == 0;
            prop_assert_eq!(value, if equal { new } else { old } & mask);
            prop_assert_eq!(registers[RAX], if equal { compared } else { old & mask });
            let flags = flags.expect("a comparison");
            let (left, right) = (compared & mask, old & mask);
            let signed = |value: u64| if long { value as i64 } else { value as i32 as i64 };
            let sign = flags & flags::SIGN != 0;
            let overflow = flags & flags::OVERFLOW != 0;
            prop_assert_eq!(flags & flags::ZERO != 0, equal);
            prop_assert_eq!(flags & flags::CARRY != 0, left < right);
            prop_assert_eq!(sign != overflow, signed(left) < signed(right));
            prop_assert_eq!(flags & flags::AUXILIARY != 0, left & 15 < right & 15);
        }

        /// A load that is understood is understood as a full decoder understands it.
        #[test]
        fn loads_agree_with_a_full_decoder(
            rex in prop_oneof![Just(None), (0x40u8..0x50).prop_map(Some)],
            opcode in prop::sample::select(vec![0x8bu8, 0x8a, 0x89, 0x03, 0x33]),
            rest: [u8; 12],
        ) {
            let mut bytes: Vec<u8> = rex.into_iter().collect();
            bytes.push(opcode);
            bytes.extend(rest);
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            let is_load = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op1_kind() == OpKind::Memory
                && instruction.memory_size().size() >= 4;
            let found = load(&bytes);
            prop_assert_eq!(found.is_some(), is_load);
            let Some(found) = found else { return Ok(()) };
            prop_assert_eq!(usize::from(found.length), instruction.len());
            prop_assert_eq!(usize::from(found.register), instruction.op0_register().number());
            prop_assert_eq!(found.long, instruction.memory_size().size() == 8);
        }

        /// Whatever a general instruction touches is among the candidates.
        #[test]
        fn touched_addresses_are_candidates(
            rex in prop_oneof![Just(None), (0x40u8..0x50).prop_map(Some)],
            segment in prop_oneof![Just(None), Just(Some(0x64u8)), Just(Some(0x65u8))],
            opcode in prop::sample::select(vec![
                0x00u8, 0x01, 0x03, 0x88, 0x89, 0x8b, 0xa4, 0xa5, 0xaa, 0xab, 0xac, 0xad, 0xc7,
                0xf7, 0x50, 0x58, 0x0f, 0x39,
            ]),
            rest: [u8; 13],
            registers: Registers,
            fs: u64,
            gs: u64,
        ) {
            let bases = SegmentBases { fs, gs };
            let mut bytes: Vec<u8> = segment.into_iter().chain(rex).collect();
            bytes.push(opcode);
            bytes.extend(rest);
            bytes.truncate(MAX_LENGTH);
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            let exotic = instruction.is_invalid()
                || instruction.is_ip_rel_memory_operand()
                || instruction.is_vsib()
                || instruction.is_stack_instruction() && opcode == 0x0f
                || matches!(
                    instruction.op0_kind(),
                    OpKind::MemorySegRDI | OpKind::MemorySegSI | OpKind::MemorySegDI
                )
                || segment.is_some() && instruction.is_string_instruction()
                || opcode == 0x0f
                    && !matches!(
                        instruction.mnemonic(),
                        Mnemonic::Movzx
                            | Mnemonic::Movsx
                            | Mnemonic::Movups
                            | Mnemonic::Movaps
                            | Mnemonic::Cmpxchg
                            | Mnemonic::Xadd
                            | Mnemonic::Movnti
                    );
            if exotic {
                return Ok(());
            }
            let found = candidates(&bytes, 0x1000, &registers, bases);
            let mut factory = InstructionInfoFactory::new();
            for memory in factory.info(&instruction).used_memory() {
                if let Some(address) =
                    memory.virtual_address(0, |register, _, _| value(register, &registers, bases))
                    && memory.access() != iced_x86::OpAccess::NoMemAccess
                {
                    prop_assert!(
                        found.contains(&Some(address)),
                        "{:?} {:x}",
                        instruction.code(),
                        address
                    );
                }
            }
        }

        /// Whatever the bytes, decoding ends.
        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..16),
            registers: Registers,
        ) {
            let _ = store(&bytes, &registers);
            let _ = load(&bytes);
            let _ = write(&bytes, &registers);
            let _ = candidates(&bytes, 0, &registers, SegmentBases::default());
        }
    }

    #[test]
    fn the_forms_of_linux() {
        let mut registers = [0; 16];
        registers[0] = 0x1_0000_00fb;
        registers[6] = 0x300;
        // mov %eax, 0xffffffffff5fc300 (absolute), xchg, movl $0, 0xffffffffff5fc0b0
        let absolute = [0x89, 0x04, 0x25, 0x00, 0xc3, 0x5f, 0xff];
        assert_eq!(
            store(&absolute, &registers),
            Some(Store { length: 7, long: false, operation: Operation::Write(0xfb) })
        );
        let exchange = [0x87, 0x86, 0x00, 0xc0, 0x5f, 0xff];
        assert_eq!(
            store(&exchange, &registers),
            Some(Store { length: 6, long: false, operation: Operation::Exchange(0) })
        );
        let immediate = [0xc7, 0x04, 0x25, 0xb0, 0xc0, 0x5f, 0xff, 0, 0, 0, 0];
        assert_eq!(
            store(&immediate, &registers),
            Some(Store { length: 11, long: false, operation: Operation::Write(0) })
        );
        assert_eq!(store(&[0x8b, 0x00], &registers), None);
        assert_eq!(store(&[0x66, 0x89, 0x00], &registers), None);
        // mov %rax, (%rdx)
        assert_eq!(
            store(&[0x48, 0x89, 0x02], &registers),
            Some(Store { length: 3, long: true, operation: Operation::Write(0x1_0000_00fb) })
        );
        // lock cmpxchg %rcx, (%rdx)
        assert_eq!(
            store(&[0xf0, 0x48, 0x0f, 0xb1, 0x0a], &registers),
            Some(Store { length: 5, long: true, operation: Operation::CompareExchange(1) })
        );
    }

    #[test]
    fn a_fill_ends_when_its_count_is_zero() {
        let mut registers: Registers = [0; 16];
        (registers[RAX], registers[RCX], registers[RDI]) = (0x1_2345_6789, 2, 0x1000);
        let fill = super::fill(&[0xf3, 0x48, 0xab, 0x90], &registers).expect("a fill");
        assert!((fill.length, fill.long) == (3, true) && !fill.reads());
        assert_eq!(fill.carry_out(7, &mut registers), (0x1_2345_6789, None));
        assert!(fill.goes_on(&registers) && registers[RDI] == 0x1008);
        fill.carry_out(7, &mut registers);
        assert!(!fill.goes_on(&registers) && registers[RDI] == 0x1010);
        let short = super::fill(&[0xf3, 0xab], &registers).expect("a fill");
        assert_eq!(short.carry_out(0, &mut registers).0, 0x2345_6789);
        assert_eq!(registers[RDI], 0x1014);
        assert_eq!(super::fill(&[0xf3, 0xaa], &registers), None);
    }
}
