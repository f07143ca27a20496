// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: memory that Linux and cells share, its *peers*, and what tells them of each other.
//!
//! Linux is peer 0 of each link; a cell is one of the others. A link consists of sections, each a
//! multiple of 4 KiB, one behind the other:
//!
//! | section | who may write |
//! |---|---|
//! | a [`LinkHeader`], which does not change but for `cells` | nobody |
//! | the state table: a page for each peer, which begins with a [`LinkPeer`] | that peer |
//! | the common section | all |
//! | an output section for each peer | that peer |
//!
//! All peers read all of it. A cell has link number `n` at [`LINK_MEMORY`] + `n` *
//! [`LINK_SIZE_MAX`]. The same offsets are those of `/dev/crtos-shm/NAME`.
//!
//! A peer tells another one something by adding 1 to its count of rings for that one, and then
//! ringing its doorbell. The count is what is told; a doorbell that finds nobody is no loss, since
//! whoever comes looks at the counts. Linux sets the state of a peer that is gone to 0, and rings
//! all others in its name.

/// Vector on which the realm hears its peers. It need not look then at all that Linux rings it for,
/// which its doorbell's vector is for.
pub const LINK_VECTOR: u8 = 0xc1;

/// Where a cell has its first link.
pub const LINK_MEMORY: u64 = 0xc800_0000;
/// Most bytes of a link, and from one link of a cell to the next.
pub const LINK_SIZE_MAX: u64 = 0x100_0000;
/// Most links of a machine.
pub const MAX_LINKS: usize = 8;
/// Most peers of a link, Linux among them.
pub const MAX_LINK_PEERS: usize = 8;
/// Bytes of a link's name, zero padded.
pub const LINK_NAME_LEN: usize = 32;
/// "CRTOSLK1", little endian.
pub const LINK_MAGIC: u64 = 0x314b_4c53_4f54_5243;
/// In [`LinkHeader::cells`]: no cell is that peer. Always so of Linux.
pub const LINK_NO_CELL: u32 = 0xffff_ffff;

/// What a link is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LinkHeader {
    /// [`LINK_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// How many peers there may be, 2 to [`MAX_LINK_PEERS`].
    pub peers: u32,
    /// Bytes of the common section, may be 0.
    pub common: u64,
    /// Bytes of each output section, may be 0.
    pub output: u64,
    /// Linux's number of the file that leads to it (`st_rdev`).
    pub device: u64,
    /// Name, zero padded.
    pub name: [u8; 32],
    /// The number of the cell that is a peer: a hint, which changes when cells come and go.
    pub cells: [u32; 8],
}

/// What a peer tells of itself. The other peers read it, and believe none of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LinkPeer {
    /// 0 if it is not there; its program says what other numbers mean.
    pub state: u32,
    /// The index of its CPU, in its cell, on which it wants to hear its doorbell.
    pub cpu: u32,
    /// How often it has rung each peer, modulo 2^32.
    pub rung: [u32; 8],
}
