// SPDX-License-Identifier: MIT OR Apache-2.0
//! From an ELF program to the bytes that its loader copies.

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSegment};

/// Largest image that is plausible, in bytes.
const MAX: u64 = 64 << 20;

/// The bytes from the lowest to the highest address of the loadable segments,
/// with zeros where the file holds nothing.
pub fn flatten(elf: &[u8]) -> Result<Vec<u8>> {
    let file = object::File::parse(elf).context("read the ELF file")?;
    let start = file.segments().map(|s| s.address()).min().context("no loadable segment")?;
    let end = file.segments().map(|s| s.address() + s.size()).max().unwrap_or(start);
    if end - start > MAX {
        bail!("the segments span {start:#x} to {end:#x}, more than {MAX:#x} bytes");
    }
    let mut image = vec![0; usize::try_from(end - start)?];
    for segment in file.segments() {
        let data = segment.data()?;
        let offset = usize::try_from(segment.address() - start)?;
        image[offset..offset + data.len()].copy_from_slice(data);
    }
    Ok(image)
}
