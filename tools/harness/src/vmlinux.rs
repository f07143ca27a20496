// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's ELF file, as it lies compressed in the image that boot loaders start
//! (Linux, `Documentation/arch/x86/boot.rst`). A machine that starts there (PVH) saves an emulated
//! CPU the decompression, which takes longer than the rest of the boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::kernels::Kernel;
use crate::paths;

/// Sectors of the image before its protected-mode part, less one.
const SETUP_SECTORS: usize = 0x1f1;
/// Where the compressed file begins in the protected-mode part, and how long it is: 4 bytes each.
const PAYLOAD: usize = 0x248;
const SECTOR: usize = 512;
/// Behind what the compressor made stands the size of the file.
const SIZE: usize = 4;

/// Makes sure that the file lies beside the kernel's image.
///
/// # Errors
/// The image is none, or a program that decompresses it is missing or fails.
pub fn ensure(kernel: &Kernel) -> Result<PathBuf> {
    let image = kernel.image();
    let file = image.with_file_name(format!("vmlinux-{}", kernel.release));
    if !file.exists() {
        let _lock = paths::lock(&paths::cache().join("locks"), &format!("elf-{}", kernel.release))?;
        if !file.exists() {
            unpack(&image, &file).with_context(|| format!("unpack {}", image.display()))?;
        }
    }
    Ok(file)
}

fn unpack(image: &Path, file: &Path) -> Result<()> {
    let bytes = fs::read(image)?;
    let payload = payload(&bytes).context("the image has no compressed part")?;
    let program = decompressor(payload)?;
    let folder = file.parent().context("a file in a folder")?;
    let compressed = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(compressed.path(), payload)?;
    let half_made = tempfile::NamedTempFile::new_in(folder)?;
    let mut decompress = Command::new(program);
    decompress.arg("-dc").stdin(compressed.reopen()?).stdout(half_made.reopen()?);
    let status = decompress.status().with_context(|| format!("start {program}"))?;
    ensure!(status.success(), "{program} fails");
    half_made.persist(file)?;
    Ok(())
}

/// What the compressor made.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let start = (usize::from(*image.get(SETUP_SECTORS)?) + 1) * SECTOR + word(PAYLOAD)?;
    image.get(start..start + word(PAYLOAD + 4)?.checked_sub(SIZE)?)
}

/// The program that decompresses it, by its first bytes.
fn decompressor(payload: &[u8]) -> Result<&'static str> {
    Ok(match payload {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        // Its older frames, as of Debian's kernels for clouds.
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        _ => bail!("it is compressed in an unknown way"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_lies_where_the_header_says() {
        let mut image = vec![0; 0x500];
        image[SETUP_SECTORS] = 1;
        image[PAYLOAD] = 0x10;
        image[PAYLOAD + 4] = 12;
        image[0x410..0x418].copy_from_slice(b"\x28\xb5\x2f\xfddata");
        let payload = payload(&image).unwrap();
        assert_eq!((payload.len(), decompressor(payload).unwrap()), (8, "zstd"));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let mut image = vec![0xff; 0x500];
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..SETUP_SECTORS]), None);
        image[PAYLOAD..PAYLOAD + 8].fill(0);
        assert_eq!(payload(&image), None);
        assert!(decompressor(b"MZ").is_err());
        assert_eq!(decompressor(b"\x02\x21\x4c\x18rest").unwrap(), "lz4");
    }
}
