// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classic BPF: a program of a user that says which frames a socket wants, and how much of each
//! (Linux's `Documentation/networking/filter.rst`).
//!
//! It is checked as Linux does. Jumps lead forward only, so a frame takes at most as many steps as
//! there are instructions.

use alloc::vec::Vec;

/// Most instructions.
pub const MOST: usize = 4096;
/// Bytes of an instruction, as programs have it.
pub const SIZE: usize = 8;
/// Words of memory.
const CELLS: usize = 16;

/// Parts of the code of an instruction.
mod code {
    pub const LD: u16 = 0;
    pub const LDX: u16 = 1;
    pub const ST: u16 = 2;
    pub const STX: u16 = 3;
    pub const ALU: u16 = 4;
    pub const JMP: u16 = 5;
    pub const RET: u16 = 6;
    pub const MISC: u16 = 7;
    /// From where.
    pub const IMM: u16 = 0x00;
    pub const ABS: u16 = 0x20;
    pub const IND: u16 = 0x40;
    pub const MEM: u16 = 0x60;
    pub const LEN: u16 = 0x80;
    pub const MSH: u16 = 0xa0;
    /// How much.
    pub const HALF: u16 = 0x08;
    pub const BYTE: u16 = 0x10;
    /// The operand is X, not the constant; what is returned is A.
    pub const X: u16 = 0x08;
    pub const A: u16 = 0x10;
    /// A goes to X, and back.
    pub const TAX: u16 = MISC;
    pub const TXA: u16 = 0x80 | MISC;
}

/// Where a load finds something else than bytes: what is known of the frame, from the header of the
/// network, from the header of the frame.
const KNOWN: i32 = -0x1000;
const FROM_NETWORK: i32 = -0x10_0000;
const FROM_FRAME: i32 = -0x20_0000;

/// What is known of a frame, by its place behind [`KNOWN`].
mod known {
    pub const PROTOCOL: u32 = 0;
    pub const KIND: u32 = 4;
    pub const INTERFACE: u32 = 8;
    pub const ATTRIBUTE: u32 = 12;
    pub const NESTED: u32 = 16;
    pub const MARK: u32 = 20;
    pub const QUEUE: u32 = 24;
    pub const HARDWARE: u32 = 28;
    pub const RECEIVE_HASH: u32 = 32;
    pub const CPU: u32 = 36;
    pub const EXCLUSIVE_OR: u32 = 40;
    pub const TAG: u32 = 44;
    pub const HAS_TAG: u32 = 48;
    pub const PAYLOAD: u32 = 52;
    pub const RANDOM: u32 = 56;
    pub const TAG_PROTOCOL: u32 = 60;
}

/// A frame that a program looks at.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// All of it, or its beginning.
    pub bytes: &'a [u8],
    /// What follows on that.
    pub more: &'a [u8],
    /// Where it begins for the program: at a header, or behind.
    pub start: usize,
    /// Bytes of its own header, before that of the network; 0 if it is not there.
    pub header: usize,
    /// Its protocol (ETH_P_*).
    pub protocol: u16,
    /// For whom it is (PACKET_*).
    pub kind: u8,
    /// The number of the interface.
    pub interface: u32,
}

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    code: u16,
    /// Instructions that are skipped if a condition is met, and if not.
    yes: u8,
    no: u8,
    constant: u32,
}

/// A program that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program(Vec<Instruction>);

/// It is no program that Linux would take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsound;

impl Program {
    /// Checks a program. Takes time and memory in proportion to its length.
    pub fn new(bytes: &[u8]) -> Result<Self, Unsound> {
        let (all, rest) = bytes.as_chunks::<SIZE>();
        if !rest.is_empty() || all.is_empty() || all.len() > MOST {
            return Err(Unsound);
        }
        let instructions = all.iter().map(|&[a, b, yes, no, c, d, e, f]| Instruction {
            code: u16::from_ne_bytes([a, b]),
            yes,
            no,
            constant: u32::from_ne_bytes([c, d, e, f]),
        });
        let program = Self(instructions.collect());
        program.check()?;
        program.check_cells()?;
        Ok(program)
    }

    /// What it was made of.
    pub fn to_bytes(&self) -> Vec<u8> {
        let instructions = self.0.iter().map(|&Instruction { code, yes, no, constant }| {
            let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), constant.to_ne_bytes());
            [a, b, yes, no, c, d, e, f]
        });
        instructions.flatten().collect()
    }

    /// How many instructions it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// It has some.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn check(&self) -> Result<(), Unsound> {
        for (at, instruction) in self.0.iter().enumerate() {
            let left = self.0.len() - at - 1;
            let constant = instruction.constant;
            let sound = is_code(instruction.code)
                && match instruction.code & 7 {
                    code::ALU if instruction.code & code::X == 0 => match instruction.code & 0xf0 {
                        0x30 | 0x90 => constant != 0,
                        0x60 | 0x70 => constant < 32,
                        _ => true,
                    },
                    code::LD | code::LDX if instruction.code & 0xe0 == code::MEM => {
                        (constant as usize) < CELLS
                    }
                    code::ST | code::STX => (constant as usize) < CELLS,
                    code::LD if instruction.code & 0xe0 == code::ABS => {
                        let place = constant.wrapping_sub(KNOWN as u32);
                        constant < KNOWN as u32 || place % 4 == 0 && place <= known::TAG_PROTOCOL
                    }
                    code::JMP if instruction.code & 0xf0 == 0 => (constant as usize) < left,
                    code::JMP => usize::from(instruction.yes.max(instruction.no)) < left,
                    _ => true,
                };
            if !sound {
                return Err(Unsound);
            }
        }
        match self.0.last() {
            Some(last) if last.code & 7 == code::RET => Ok(()),
            _ => Err(Unsound),
        }
    }

    /// Nothing is read from memory that was not written there on each way.
    fn check_cells(&self) -> Result<(), Unsound> {
        let mut valid = alloc::vec![u16::MAX; self.0.len()];
        // What is there before the first one.
        let mut now = 0;
        for (at, instruction) in self.0.iter().enumerate() {
            now &= valid[at];
            let cell = 1u16.checked_shl(instruction.constant).unwrap_or(0);
            match instruction.code & 7 {
                code::ST | code::STX => now |= cell,
                code::LD | code::LDX if instruction.code & 0xe0 == code::MEM && now & cell == 0 => {
                    return Err(Unsound);
                }
                code::JMP => {
                    let (yes, no) = match instruction.code & 0xf0 {
                        0 => (instruction.constant as usize, instruction.constant as usize),
                        _ => (instruction.yes.into(), instruction.no.into()),
                    };
                    valid[at + 1 + yes] &= now;
                    valid[at + 1 + no] &= now;
                    now = u16::MAX;
                }
                code::RET => now = u16::MAX,
                _ => {}
            }
        }
        Ok(())
    }

    /// How many bytes of the frame are wanted; 0 for none of it.
    pub fn run(&self, frame: &Frame<'_>) -> u32 {
        self.try_run(frame).unwrap_or(0)
    }

    /// `None` where it looks at what is not there, or divides by zero.
    fn try_run(&self, frame: &Frame<'_>) -> Option<u32> {
        let (mut a, mut x, mut cells) = (0u32, 0u32, [0u32; CELLS]);
        let mut at = 0;
        loop {
            let Instruction { code: whole, yes, no, constant } = *self.0.get(at)?;
            at += 1;
            let operand = if whole & code::X != 0 { x } else { constant };
            match whole & 7 {
                code::LD => {
                    a = match whole & 0xe0 {
                        code::IMM => constant,
                        code::MEM => cells[constant as usize % CELLS],
                        code::LEN => frame.length(),
                        code::ABS if constant >= KNOWN as u32 => {
                            frame.known(constant.wrapping_sub(KNOWN as u32), a, x)?
                        }
                        code::ABS => frame.load(constant as i32, whole)?,
                        _ => frame.load(x.wrapping_add(constant) as i32, whole)?,
                    }
                }
                code::LDX => {
                    x = match whole & 0xe0 {
                        code::IMM => constant,
                        code::MEM => cells[constant as usize % CELLS],
                        code::LEN => frame.length(),
                        _ => (frame.load(constant as i32, code::BYTE)? & 0xf) << 2,
                    }
                }
                code::ST => cells[constant as usize % CELLS] = a,
                code::STX => cells[constant as usize % CELLS] = x,
                code::ALU => a = compute(whole, a, operand)?,
                code::JMP => {
                    let met = match whole & 0xf0 {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        0x40 => a & operand != 0,
                        _ => {
                            at += constant as usize;
                            continue;
                        }
                    };
                    at += usize::from(if met { yes } else { no });
                }
                code::RET => return Some(if whole & code::A != 0 { a } else { constant }),
                _ if whole == code::TXA => a = x,
                _ => x = a,
            }
        }
    }
}

fn compute(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.wrapping_shl(operand),
        0x70 => a.wrapping_shr(operand),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        _ => a ^ operand,
    })
}

/// Whether there is an instruction with that code.
fn is_code(code: u16) -> bool {
    use code::*;
    match code & 7 {
        LD => match code & 0xe0 {
            IMM | MEM | LEN => code & 0xff18 == 0,
            ABS | IND => matches!(code & 0xff18, 0 | HALF | BYTE),
            _ => false,
        },
        LDX => match code & 0xe0 {
            IMM | MEM | LEN => code & 0xff18 == 0,
            MSH => code & 0xff18 == BYTE,
            _ => false,
        },
        ST => code == ST,
        STX => code == STX,
        ALU => match code & 0xf0 {
            0x80 => code == (ALU | 0x80),
            operation => code & 0xff00 == 0 && operation <= 0xa0,
        },
        JMP => match code & 0xf0 {
            0 => code == JMP,
            operation => code & 0xff00 == 0 && operation <= 0x40,
        },
        RET => code == RET || code == (RET | A),
        _ => code == TAX || code == TXA,
    }
}

/// What a load takes of bytes; `None` if they are too few.
fn value(bytes: &[u8], code: u16) -> Option<u32> {
    Some(match code & 0x18 {
        code::BYTE => (*bytes.first()?).into(),
        code::HALF => u16::from_be_bytes(*bytes.first_chunk()?).into(),
        _ => u32::from_be_bytes(*bytes.first_chunk()?),
    })
}

impl Frame<'_> {
    /// Bytes of it, from where it begins for the program.
    fn length(&self) -> u32 {
        (self.bytes.len() + self.more.len()).saturating_sub(self.start) as u32
    }

    /// What a load finds at an offset.
    fn load(&self, offset: i32, code: u16) -> Option<u32> {
        let at = match offset {
            0.. => self.start.checked_add(offset as usize)?,
            FROM_NETWORK.. => self.header.checked_add((offset - FROM_NETWORK) as usize)?,
            FROM_FRAME.. if self.header > 0 => (offset - FROM_FRAME) as usize,
            _ => return None,
        };
        let found = self.bytes.get(at..).and_then(|bytes| value(bytes, code));
        found.or_else(|| self.load_further(at, code))
    }

    /// The same where it is not all in the first part.
    #[cold]
    fn load_further(&self, at: usize, code: u16) -> Option<u32> {
        let first = self.bytes.get(at..).unwrap_or_default();
        let further = self.more.get(at.saturating_sub(self.bytes.len())..)?;
        let mut bytes = [0; 4];
        let mut count = 0;
        for (to, from) in bytes.iter_mut().zip(first.iter().chain(further)) {
            *to = *from;
            count += 1;
        }
        value(&bytes[..count], code)
    }

    fn known(&self, place: u32, a: u32, x: u32) -> Option<u32> {
        /// ARPHRD_ETHER.
        const ETHERNET: u32 = 1;
        Some(match place {
            known::PROTOCOL => self.protocol.into(),
            known::KIND => self.kind.into(),
            known::INTERFACE => self.interface,
            known::HARDWARE => ETHERNET,
            known::EXCLUSIVE_OR => a ^ x,
            known::PAYLOAD => self.header as u32,
            // There is no such thing here.
            known::ATTRIBUTE
            | known::NESTED
            | known::MARK
            | known::QUEUE
            | known::RECEIVE_HASH
            | known::CPU
            | known::TAG
            | known::HAS_TAG
            | known::RANDOM
            | known::TAG_PROTOCOL => 0,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(all: &[(u16, u8, u8, u32)]) -> Vec<u8> {
        let one = |&(code, yes, no, k): &(u16, u8, u8, u32)| {
            let [a, b] = code.to_ne_bytes();
            let [c, d, e, f] = k.to_ne_bytes();
            [a, b, yes, no, c, d, e, f]
        };
        all.iter().flat_map(one).collect()
    }

    fn frame(bytes: &[u8], start: usize) -> Frame<'_> {
        Frame { bytes, more: &[], start, header: 14, protocol: 0x0806, kind: 3, interface: 7 }
    }

    const TAKE_ALL: (u16, u8, u8, u32) = (0x06, 0, 0, u32::MAX);

    /// What `tcpdump -dd arp` prints for Ethernet.
    #[test]
    fn a_program_of_tcpdump() {
        let arp = [(0x28, 0, 0, 12), (0x15, 0, 1, 0x0806), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0)];
        let program = Program::new(&bytes(&arp)).unwrap();
        let mut wire = [0; 60];
        assert_eq!(program.run(&frame(&wire, 0)), 0);
        wire[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(program.run(&frame(&wire, 0)), 0x40000);
        // Too short for what it looks at.
        assert_eq!(program.run(&frame(&wire[..13], 0)), 0);
    }

    #[test]
    fn what_linux_does_not_take() {
        let refused: &[&[(u16, u8, u8, u32)]] = &[
            &[],
            // It does not end.
            &[(0x00, 0, 0, 1)],
            // A jump behind the end, and one that would be backward.
            &[(0x05, 0, 0, 1), TAKE_ALL],
            &[(0x05, 0, 0, u32::MAX), TAKE_ALL],
            &[(0x15, 1, 0, 1), TAKE_ALL],
            // A division by zero, a shift of 32.
            &[(0x34, 0, 0, 0), TAKE_ALL],
            &[(0x64, 0, 0, 32), TAKE_ALL],
            // No such cell, and one that was not written on both ways.
            &[(0x02, 0, 0, 16), TAKE_ALL],
            &[(0x60, 0, 0, 0), TAKE_ALL],
            &[(0x15, 0, 1, 1), (0x02, 0, 0, 3), (0x60, 0, 0, 3), TAKE_ALL],
            // No such instruction, and nothing that is known.
            &[(0x48 | 0x18, 0, 0, 0), TAKE_ALL],
            &[(0xffff, 0, 0, 0), TAKE_ALL],
            &[(0x20, 0, 0, (KNOWN + 64) as u32), TAKE_ALL],
            &[(0x20, 0, 0, (KNOWN + 1) as u32), TAKE_ALL],
        ];
        for program in refused {
            assert_eq!(Program::new(&bytes(program)), Err(Unsound), "{program:x?}");
        }
        assert_eq!(Program::new(&bytes(&[TAKE_ALL])[1..]), Err(Unsound));
        assert!(Program::new(&bytes(&vec![(0, 0, 0, 0); MOST])).is_err());
        let mut longest = vec![(0u16, 0, 0, 0); MOST - 1];
        longest.push(TAKE_ALL);
        assert_eq!(Program::new(&bytes(&longest)).unwrap().len(), MOST);
        longest.push(TAKE_ALL);
        assert!(Program::new(&bytes(&longest)).is_err());
    }

    #[test]
    fn loads_find_their_places() {
        let run = |code, constant, start| {
            let program = Program::new(&bytes(&[(code, 0, 0, constant), (0x16, 0, 0, 0)])).unwrap();
            let wire: Vec<u8> = (0..40).collect();
            program.run(&frame(&wire, start))
        };
        assert_eq!(run(0x20, 1, 0), 0x0102_0304);
        assert_eq!(run(0x28, 0, 14), 0x0e0f);
        assert_eq!(run(0x30, FROM_FRAME as u32 + 6, 14), 6);
        assert_eq!(run(0x30, FROM_NETWORK as u32 + 2, 0), 16);
        assert_eq!(run(0x80, 0, 14), 26);
        assert_eq!(run(0x20, KNOWN as u32, 0), 0x0806);
        assert_eq!(run(0x20, (KNOWN + 4) as u32, 0), 3);
        assert_eq!(run(0x20, (KNOWN + 8) as u32, 0), 7);
        // Not there.
        assert_eq!(run(0x20, 37, 0), 0);
        assert_eq!(run(0x20, i32::MIN as u32, 0), 0);
    }

    /// A packet that lies in two parts, and has no header of a frame.
    #[test]
    fn loads_find_what_is_in_two_parts() {
        let wire: Vec<u8> = (0..40).collect();
        for cut in 0..=wire.len() {
            let (bytes, more) = wire.split_at(cut);
            let frame = Frame { bytes, more, header: 0, ..frame(bytes, 3) };
            let run = |code, constant: i32| {
                let all = [(code, 0, 0, constant as u32), (0x16, 0, 0, 0)];
                Program::new(&super::tests::bytes(&all)).unwrap().run(&frame)
            };
            for at in 0..34u8 {
                let [a, b, c, d] = [3, 4, 5, 6].map(|further| u32::from(at + further));
                assert_eq!(run(0x30, at.into()), a);
                assert_eq!(run(0x28, at.into()), a << 8 | b);
                assert_eq!(run(0x20, at.into()), a << 24 | b << 16 | c << 8 | d);
                assert_eq!(run(0x30, FROM_NETWORK + i32::from(at)), a - 3);
            }
            assert_eq!(run(0x80, 0), 37);
            assert_eq!([run(0x20, 34), run(0x28, 36), run(0x30, 37), run(0x30, i32::MAX)], [0; 4]);
            assert_eq!(run(0x30, FROM_FRAME + 5), 0);
        }
    }

    proptest::proptest! {
        /// Whatever was taken ends, and looks at nothing else.
        #[test]
        fn anything_ends(
            program in proptest::collection::vec(
                (
                    0u16..0xb8,
                    0u8..4,
                    0u8..4,
                    proptest::prop_oneof![0u32..40, proptest::num::u32::ANY],
                ),
                0..20,
            ),
            wire in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
        ) {
            let mut program = program;
            program.push(TAKE_ALL);
            if let Ok(program) = Program::new(&bytes(&program)) {
                program.run(&frame(&wire, wire.len().min(14)));
            }
        }
    }
}
