// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions that the harness plays for QEMU's device `vfio-user-pci`: the server's side of the
//! protocol vfio-user (`docs/interop/vfio-user.rst` of QEMU).
//!
//! Such a function masters no bus and never interrupts, so that what QEMU tells of memory and
//! interrupts is acknowledged and forgotten.

use std::io::{self, Read, Write};

/// Base address registers of a function.
pub const BASE_ADDRESSES: usize = 6;

/// What is behind a base address register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// Nothing.
    None,
    /// So many bytes of memory, a power of two.
    Memory(u64),
    /// So many I/O ports, a power of two.
    Ports(u64),
}

/// What configuration space tells.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Vendor and device.
    pub ids: (u16, u16),
    /// Vendor and device of the board.
    pub subsystem: (u16, u16),
    /// Class, subclass and interface.
    pub class: u32,
}

/// A function that the harness plays.
pub trait Function: Send {
    /// What it is.
    fn identity(&self) -> Identity;

    /// What it has.
    fn regions(&self) -> [Region; BASE_ADDRESSES];

    /// Reads from the region of a base address register. All of `bytes` lies in it.
    fn read(&mut self, region: usize, offset: u64, bytes: &mut [u8]);

    /// Writes there, likewise.
    fn write(&mut self, region: usize, offset: u64, bytes: &[u8]);

    /// It becomes as it was when it was switched on.
    fn reset(&mut self);
}

/// Commands.
mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const GET_INFO: u16 = 4;
    pub const GET_REGION_INFO: u16 = 5;
    pub const GET_IRQ_INFO: u16 = 7;
    pub const SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const RESET: u16 = 13;
}

/// Flags of a message.
const REPLY: u32 = 1;
const TYPE: u32 = 0xf;
const NO_REPLY: u32 = 0x10;
const ERROR: u32 = 0x20;
/// Bytes of the header of a message.
const HEADER: usize = 16;
/// Bytes that a message moves at most.
const MOST_DATA: u32 = 1 << 20;
/// Flags of a function: it can be reset, and is one of PCI.
const DEVICE_FLAGS: u32 = 1 | 2;
/// Flags of a region: it can be read and written.
const REGION_FLAGS: u32 = 1 | 2;
/// Regions beside those of base address registers: expansion ROM, configuration space, VGA.
const REGIONS: u32 = 9;
const CONFIGURATION: u32 = 7;
/// Kinds of interrupts that the protocol knows.
const INTERRUPTS: u32 = 5;

/// An error of Linux, which a reply tells.
#[derive(Debug, PartialEq, Eq)]
struct Errno(u32);
const EINVAL: Errno = Errno(22);
const EOPNOTSUPP: Errno = Errno(95);

/// Configuration space: 256 bytes. QEMU keeps the base addresses.
struct Configuration {
    bytes: [u8; Self::SIZE as usize],
}

impl Configuration {
    const SIZE: u64 = 256;
    const COMMAND: usize = 4;
    /// What the command register lets be written: I/O space, memory space, bus master; parity and
    /// system errors.
    const COMMAND_BITS: [u8; 2] = [0x47, 0x01];

    fn new(function: &dyn Function) -> Self {
        let Identity { ids, subsystem, class } = function.identity();
        let mut bytes = [0; Self::SIZE as usize];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0x00, &ids.0.to_le_bytes());
        put(0x02, &ids.1.to_le_bytes());
        put(0x09, &class.to_le_bytes()[..3]);
        put(0x2c, &subsystem.0.to_le_bytes());
        put(0x2e, &subsystem.1.to_le_bytes());
        for (index, region) in function.regions().iter().enumerate() {
            put(0x10 + 4 * index, &[u8::from(matches!(region, Region::Ports(_)))]);
        }
        Self { bytes }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            if let Some(mask) = Self::COMMAND_BITS.get(at.wrapping_sub(Self::COMMAND)) {
                self.bytes[at] = byte & mask;
            }
        }
    }
}

/// A function, and whoever uses it.
struct Server {
    function: Box<dyn Function>,
    configuration: Configuration,
}

/// Serves a function until QEMU hangs up.
///
/// # Errors
/// That QEMU hung up within a message, or sends what is none.
pub fn serve(mut stream: impl Read + Write, function: Box<dyn Function>) -> io::Result<()> {
    let configuration = Configuration::new(&*function);
    let mut server = Server { function, configuration };
    let mut header = [0; HEADER];
    while read_header(&mut stream, &mut header)? {
        let [size, flags] = [4, 8].map(|at| u32_at(&header, at));
        let most = MOST_DATA + 64;
        let length = size.checked_sub(HEADER as u32).filter(|length| *length <= most);
        let length = length.filter(|_| flags & TYPE != REPLY).ok_or(io::ErrorKind::InvalidData)?;
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body)?;
        let command = u16::from_le_bytes([header[2], header[3]]);
        let answer = server.answer(command, &body);
        if flags & NO_REPLY != 0 {
            continue;
        }
        let (body, flags, error) = match answer {
            Ok(body) => (body, REPLY, 0),
            Err(Errno(error)) => (Vec::new(), REPLY | ERROR, error),
        };
        header[4..8].copy_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&flags.to_le_bytes());
        header[12..].copy_from_slice(&error.to_le_bytes());
        // In one piece: whoever waits for it wakes up once.
        stream.write_all(&[&header, body.as_slice()].concat())?;
    }
    Ok(())
}

/// Reads a header; false if there is no further message.
fn read_header(stream: &mut impl Read, header: &mut [u8; HEADER]) -> io::Result<bool> {
    loop {
        match stream.read(&mut header[..1]) {
            Ok(0) => return Ok(false),
            Ok(_) => return stream.read_exact(&mut header[1..]).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Server {
    fn answer(&mut self, command: u16, body: &[u8]) -> Result<Vec<u8>, Errno> {
        match command {
            command::VERSION => Ok(version()),
            command::DMA_MAP | command::DMA_UNMAP | command::SET_IRQS => Ok(Vec::new()),
            command::GET_INFO => Ok(words(&[16, DEVICE_FLAGS, REGIONS, INTERRUPTS])),
            command::GET_REGION_INFO => {
                let index = word(body, 8)?;
                let size = self.size(index)?;
                let flags = if size > 0 { REGION_FLAGS } else { 0 };
                Ok(words(&[32, flags, index, 0, size as u32, (size >> 32) as u32, 0, 0]))
            }
            command::GET_IRQ_INFO => Ok(words(&[16, 0, word(body, 8)?, 0])),
            command::REGION_READ => {
                let access = self.access(body)?;
                let mut answer = body[..16].to_vec();
                answer.resize(16 + access.count, 0);
                let bytes = &mut answer[16..];
                match access.region {
                    CONFIGURATION => {
                        bytes.copy_from_slice(&self.configuration.bytes[access.range()]);
                    }
                    region => self.function.read(region as usize, access.offset, bytes),
                }
                Ok(answer)
            }
            command::REGION_WRITE => {
                let access = self.access(body)?;
                let bytes = body.get(16..16 + access.count).ok_or(EINVAL)?;
                match access.region {
                    CONFIGURATION => self.configuration.write(access.offset, bytes),
                    region => self.function.write(region as usize, access.offset, bytes),
                }
                Ok(body[..16].to_vec())
            }
            command::RESET => {
                self.configuration = Configuration::new(&*self.function);
                self.function.reset();
                Ok(Vec::new())
            }
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Bytes of a region.
    fn size(&self, index: u32) -> Result<u64, Errno> {
        match index {
            CONFIGURATION => Ok(Configuration::SIZE),
            _ if index >= REGIONS => Err(EINVAL),
            _ => Ok(match self.function.regions().get(index as usize) {
                Some(Region::Memory(size) | Region::Ports(size)) => *size,
                Some(Region::None) | None => 0,
            }),
        }
    }

    /// What is to be read or written, which the region has.
    fn access(&self, body: &[u8]) -> Result<Access, Errno> {
        let offset = u64::from(word(body, 0)?) | u64::from(word(body, 4)?) << 32;
        let (region, count) = (word(body, 8)?, word(body, 12)?);
        let end = offset.checked_add(count.into()).ok_or(EINVAL)?;
        let fits = count <= MOST_DATA && end <= self.size(region)?;
        fits.then_some(Access { region, offset, count: count as usize }).ok_or(EINVAL)
    }
}

/// A part of a region.
struct Access {
    region: u32,
    offset: u64,
    count: usize,
}

impl Access {
    fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.count
    }
}

/// Version 0.0, and what the server takes.
fn version() -> Vec<u8> {
    let capabilities = serde_json::json!({ "capabilities": {
        "max_msg_fds": 8,
        "max_data_xfer_size": MOST_DATA,
        "max_dma_maps": u16::MAX,
        "pgsizes": 4096,
    } });
    let mut answer = words(&[0]);
    answer.extend(capabilities.to_string().as_bytes());
    answer.push(0);
    answer
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Errno> {
    if bytes.len() < at + 4 { Err(EINVAL) } else { Ok(u32_at(bytes, at)) }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A function whose memory is memory.
    struct Memory([u8; 64]);

    impl Function for Memory {
        fn identity(&self) -> Identity {
            Identity { ids: (0x1234, 0x5678), subsystem: (0x9abc, 0xdef0), class: 0x11_8000 }
        }

        fn regions(&self) -> [Region; BASE_ADDRESSES] {
            let mut regions = [Region::None; BASE_ADDRESSES];
            (regions[0], regions[2]) = (Region::Memory(64), Region::Ports(16));
            regions
        }

        fn read(&mut self, _: usize, offset: u64, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
        }

        fn write(&mut self, _: usize, offset: u64, bytes: &[u8]) {
            self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }

        fn reset(&mut self) {
            self.0 = [0; 64];
        }
    }

    fn server() -> Server {
        let function = Box::new(Memory([0; 64]));
        Server { configuration: Configuration::new(&*function), function }
    }

    fn region(region: u32, offset: u32, count: u32, data: &[u8]) -> Vec<u8> {
        [words(&[offset, 0, region, count]), data.to_vec()].concat()
    }

    #[test]
    fn configuration_space_tells_what_it_is() {
        let mut server = server();
        let told = server.answer(command::REGION_READ, &region(7, 0, 64, &[])).unwrap();
        assert_eq!(u32_at(&told, 16), 0x5678_1234);
        assert_eq!(u32_at(&told, 16 + 8), 0x1180_0000);
        assert_eq!((u32_at(&told, 16 + 0x10), u32_at(&told, 16 + 0x18)), (0, 1));
        assert_eq!(u32_at(&told, 16 + 0x2c), 0xdef0_9abc);
        // Of what is written, the command register keeps its bits.
        server.answer(command::REGION_WRITE, &region(7, 0, 8, &[0xff; 8])).unwrap();
        let told = server.answer(command::REGION_READ, &region(7, 0, 8, &[])).unwrap();
        assert_eq!((u32_at(&told, 16), u32_at(&told, 20)), (0x5678_1234, 0x0147));
    }

    #[test]
    fn memory_is_read_and_written_and_reset() {
        let mut server = server();
        server.answer(command::REGION_WRITE, &region(0, 60, 4, &[1, 2, 3, 4])).unwrap();
        let told = server.answer(command::REGION_READ, &region(0, 58, 6, &[])).unwrap();
        assert_eq!(told[16..], [0, 0, 1, 2, 3, 4]);
        server.answer(command::RESET, &[]).unwrap();
        let told = server.answer(command::REGION_READ, &region(0, 60, 4, &[])).unwrap();
        assert_eq!(told[16..], [0; 4]);
        assert_eq!(server.answer(command::REGION_READ, &region(0, 61, 4, &[])), Err(EINVAL));
        assert_eq!(server.answer(command::REGION_READ, &region(1, 0, 4, &[])), Err(EINVAL));
    }

    /// A stream that was recorded, and what is answered.
    struct Recorded(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Recorded {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for Recorded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_without_reply_gets_none() {
        let message = |id: u16, flags: u32| {
            let head = [id.to_le_bytes(), command::RESET.to_le_bytes()].concat();
            [head, words(&[HEADER as u32, flags, 0])].concat()
        };
        let input = [message(1, NO_REPLY), message(2, 0)].concat();
        let mut stream = Recorded(io::Cursor::new(input), Vec::new());
        serve(&mut stream, Box::new(Memory([0; 64]))).unwrap();
        assert_eq!(stream.1, message(2, REPLY));
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_breaks_it(
            command: u16,
            body in prop::collection::vec(0u8.., 0..64),
        ) {
            let _ = server().answer(command, &body);
        }

        #[test]
        fn no_access_is_beyond_a_region(
            index in 0u32..10,
            offset in 0u32..300,
            count in 0u32..300,
        ) {
            let mut server = server();
            let size = server.size(index).unwrap_or(0);
            let fits = u64::from(offset) + u64::from(count) <= size && index < REGIONS;
            let body = region(index, offset, count, &vec![0; count as usize]);
            prop_assume!(index != 2);
            prop_assert_eq!(server.answer(command::REGION_READ, &body).is_ok(), fits);
            prop_assert_eq!(server.answer(command::REGION_WRITE, &body).is_ok(), fits);
        }
    }
}
