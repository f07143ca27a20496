// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings of packet sockets in memory that programs map (Linux's
//! `Documentation/networking/packet_mmap.rst`): how large one is, where its frames are, and what
//! stands in front of each. What is received by version 3 is not in frames of one size, but in
//! [`blocks`](crate::blocks).

/// What a program asks for (`struct tpacket_req`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u32,
    /// Bytes of a frame.
    pub frame_size: u32,
    /// Frames.
    pub frames: u32,
}

/// How a frame is described.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// TPACKET_V1.
    #[default]
    First,
    /// TPACKET_V2.
    Second,
    /// TPACKET_V3.
    Third,
}

/// Bytes of a page.
const PAGE: u32 = 4096;
/// What frames are aligned to.
const ALIGNMENT: u32 = 16;
/// Bytes of the longest description of a frame.
pub const DESCRIPTION: usize = 48;
/// Bytes of the address behind the description.
pub const ADDRESS: u32 = 20;
/// Bytes that the header of the link has at least.
const LINK: u32 = 16;

/// Whose a frame or a block is: the program's; the program's, to be sent; it is nothing that can be
/// sent; frames were lost before.
pub const USER: u32 = 1;
/// See [`USER`].
pub const SEND_REQUEST: u32 = 1;
/// See [`USER`].
pub const WRONG_FORMAT: u32 = 4;
/// See [`USER`].
pub const LOSING: u32 = 4;
/// The kernel's; free to be filled.
pub const KERNEL: u32 = 0;

/// It is no request that Linux takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsound;

impl Version {
    /// The version with that number.
    pub fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::First),
            1 => Some(Self::Second),
            2 => Some(Self::Third),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Bytes of the description.
    pub fn description(self) -> u32 {
        match self {
            Self::First | Self::Second => 32,
            Self::Third => 48,
        }
    }

    /// Where in the description the word is that says whose the frame is.
    pub fn status_at(self) -> u64 {
        match self {
            Self::First | Self::Second => 0,
            Self::Third => 20,
        }
    }

    /// Where in the description the length of the frame is. That of the part that is there follows
    /// in the first two versions, and precedes in the third.
    pub fn length_at(self) -> u64 {
        match self {
            Self::First => 8,
            Self::Second => 4,
            Self::Third => 16,
        }
    }
}

/// What is in front of each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    version: Version,
    /// Bytes that the program keeps in front of each frame.
    reserve: u32,
}

/// Where frames lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    request: Request,
    in_block: u32,
    front: Front,
}

/// What is told of a frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Bytes of it, and of these that are there.
    pub length: u32,
    /// See [`length`](Self::length).
    pub there: u32,
    /// Seconds and nanoseconds when it came.
    pub stamp: (u32, u32),
}

impl Front {
    /// What that version has there, and a program keeps.
    pub fn new(version: Version, reserve: u32) -> Self {
        Self { version, reserve }
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Fewest bytes of a frame.
    pub fn least(&self) -> u64 {
        u64::from(self.version.description() + ADDRESS) + u64::from(self.reserve)
    }

    /// Where in a frame that is received its bytes begin, if so many of them are the header, and
    /// where those behind that.
    pub fn starts(&self, header: u32) -> (u32, u32) {
        let before = self.version.description() + ADDRESS;
        let network = match header {
            0 => before.next_multiple_of(ALIGNMENT) + LINK,
            header => (before + header.max(LINK)).next_multiple_of(ALIGNMENT),
        };
        let network = network.saturating_add(self.reserve);
        (network - header, network)
    }

    /// The description of a frame that was received and begins at `starts`, but for its status;
    /// as many of the bytes as the version [has](Version::description).
    pub fn describe(&self, starts: (u32, u32), told: Told) -> [u8; DESCRIPTION] {
        let mut bytes = [0; DESCRIPTION];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let length_at = self.version.length_at() as usize;
        let (there_at, starts_at, stamp_at) = match self.version {
            Version::First | Version::Second => (length_at + 4, length_at + 8, length_at + 12),
            Version::Third => (12, 24, 4),
        };
        let time = match self.version {
            Version::First => told.stamp.1 / 1000,
            Version::Second | Version::Third => told.stamp.1,
        };
        put(length_at, &told.length.to_ne_bytes());
        put(there_at, &told.there.to_ne_bytes());
        put(starts_at, &(starts.0 as u16).to_ne_bytes());
        put(starts_at + 2, &(starts.1 as u16).to_ne_bytes());
        put(stamp_at, &told.stamp.0.to_ne_bytes());
        put(stamp_at + 4, &time.to_ne_bytes());
        bytes
    }
}

impl Geometry {
    /// A ring of that kind, of one block at least.
    pub fn new(request: Request, front: Front) -> Result<Self, Unsound> {
        let Request { block_size, blocks, frame_size, frames } = request;
        let sound = block_size > 0
            && block_size <= i32::MAX as u32
            && block_size % PAGE == 0
            && u64::from(frame_size) >= front.least()
            && frame_size % ALIGNMENT == 0
            && frame_size > 0;
        let in_block = if sound { block_size / frame_size } else { 0 };
        if in_block == 0 || blocks == 0 || in_block.checked_mul(blocks) != Some(frames) {
            return Err(Unsound);
        }
        Ok(Self { request, in_block, front })
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        u64::from(self.request.block_size) * u64::from(self.request.blocks)
    }

    /// What is in front of each frame.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.request.frames
    }

    /// Where a frame begins, with its description.
    pub fn place(&self, frame: u32) -> u64 {
        let block = u64::from(frame / self.in_block) * u64::from(self.request.block_size);
        let inside = u64::from(frame % self.in_block) * u64::from(self.request.frame_size);
        block + inside
    }

    /// The frame behind one.
    pub fn after(&self, frame: u32) -> u32 {
        if frame + 1 >= self.request.frames { 0 } else { frame + 1 }
    }

    /// How many of `length` bytes of a frame find room there.
    pub fn room(&self, header: u32, length: u32) -> u32 {
        length.min(self.request.frame_size.saturating_sub(self.front.starts(header).0))
    }

    /// Where in a frame that is to be sent its bytes begin, and how many there are at most.
    pub fn outgoing(&self) -> (u64, u32) {
        let description = self.front.version.description();
        (description.into(), self.request.frame_size - description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(block_size: u32, blocks: u32, frame_size: u32, frames: u32) -> Request {
        Request { block_size, blocks, frame_size, frames }
    }

    #[test]
    fn what_linux_does_not_take() {
        let front = |reserve| Front::new(Version::Second, reserve);
        let new = |request| Geometry::new(request, front(0));
        assert!(new(request(4096, 4, 2048, 8)).is_ok());
        for unsound in [
            request(0, 4, 2048, 8),
            request(4096, 0, 2048, 0),
            request(1 << 31, 1, 2048, 1 << 20),
            request(4095, 4, 2048, 8),
            request(4096, 4, 2047, 8),
            request(4096, 4, 48, 340),
            request(4096, 4, 8192, 0),
            request(4096, 4, 2048, 9),
            request(1 << 30, u32::MAX, 64, u32::MAX),
            request(4096, 4, 0, 0),
        ] {
            assert_eq!(new(unsound), Err(Unsound), "{unsound:?}");
        }
        assert!(Geometry::new(request(4096, 1, 64, 64), front(13)).is_err());
        assert!(Geometry::new(request(4096, 1, 64, 64), front(u32::MAX)).is_err());
    }

    #[test]
    fn frames_lie_in_blocks() {
        let front = Front::new(Version::Second, 0);
        let geometry = Geometry::new(request(8192, 3, 3008, 6), front).unwrap();
        let places: Vec<u64> = (0..6).map(|frame| geometry.place(frame)).collect();
        assert_eq!(places, [0, 3008, 8192, 11200, 16384, 19392]);
        assert_eq!((geometry.bytes(), geometry.after(4), geometry.after(5)), (24576, 5, 0));
    }

    /// What Linux says of versions 2 and 3 with Ethernet.
    #[test]
    fn bytes_begin_where_linux_has_them() {
        let front = Front::new(Version::Second, 0);
        let geometry = Geometry::new(request(4096, 1, 128, 32), front).unwrap();
        assert_eq!(front.starts(14), (66, 80));
        assert_eq!(front.starts(0), (80, 80));
        assert_eq!(geometry.room(14, 1000), 62);
        let front = Front::new(Version::Second, 70);
        let geometry = Geometry::new(request(4096, 1, 128, 32), front).unwrap();
        assert_eq!((front.starts(14), geometry.room(14, 10)), ((136, 150), 0));
        let told = Told { length: 60, there: 50, stamp: (7, 9000) };
        let bytes = front.describe(front.starts(14), told);
        assert_eq!(bytes[4..8], 60u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 9000u32.to_ne_bytes());
        let front = Front::new(Version::Third, 0);
        assert_eq!((front.starts(14), front.starts(0)), ((82, 96), (96, 96)));
        let words = [0u32, 7, 9000, 50, 60, 0, 82 | 96 << 16, 0, 0, 0, 0, 0];
        assert_eq!(
            front.describe(front.starts(14), told),
            words.map(u32::to_ne_bytes).as_flattened()
        );
    }

    proptest::proptest! {
        /// No frame reaches beyond its place, nor a place beyond the ring.
        #[test]
        fn frames_stay_in_the_ring(
            pages in 1u32..64,
            blocks in 1u32..100,
            size in 4u32..1000,
            reserve in 0u32..5000,
            has_header in proptest::bool::ANY,
            length in 0u32..2000,
            version in 0u32..3,
        ) {
            let header = if has_header { 14 } else { 0 };
            let (block_size, frame_size) = (pages * 4096, size * 16);
            let frames = block_size / frame_size * blocks;
            let request = request(block_size, blocks, frame_size, frames);
            let front = Front::new(Version::of_number(version).unwrap(), reserve);
            if let Ok(geometry) = Geometry::new(request, front) {
                let room = geometry.room(header, length);
                let (start, _) = front.starts(header);
                assert!(room == 0 || start + room <= frame_size);
                let mut end = 0;
                for frame in 0..frames {
                    let at = geometry.place(frame);
                    assert!(at >= end);
                    end = at + u64::from(frame_size);
                }
                assert!(end <= geometry.bytes());
            }
        }
    }
}
