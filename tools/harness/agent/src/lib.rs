// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between the harness on the host and the agent in the guest.
//!
//! Two virtio-serial ports carry it, or the second and the third serial line of a machine without
//! virtio. [`CONTROL_PORT`] takes [`Request`]s to the
//! guest and [`Event`]s back; [`STDIN_PORT`] takes [`Input`] to the guest. Input has
//! a port of its own so that a program that does not read holds up only its
//! own input, never a signal. Each message is a length (32 bits, little endian)
//! and that many bytes of postcard. No port is ever closed to mean something:
//! QEMU may drop what the guest has not read yet when a peer goes away.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Name of the virtio-serial port for requests and events.
pub const CONTROL_PORT: &str = "crtos.control";
/// Name of the virtio-serial port for the standard input of programs.
pub const STDIN_PORT: &str = "crtos.stdin";
/// Serial line in the place of [`CONTROL_PORT`].
pub const CONTROL_LINE: &str = "/dev/ttyS1";
/// Serial line in the place of [`STDIN_PORT`].
pub const STDIN_LINE: &str = "/dev/ttyS2";
/// Folder of the initramfs with the layers of a machine without disks, named by their numbers.
pub const IMAGES: &str = "/images";
/// Prefix of the serial number of a disk that is a layer of the root; a decimal
/// number follows, and a higher number lies above a lower one.
pub const LAYER_SERIAL: &str = "layer";
/// Bytes that one piece of input or output carries at most.
pub const CHUNK: usize = 64 * 1024;
/// Largest message that a reader accepts, in bytes.
const MESSAGE_MAX: usize = 4 * CHUNK;

/// What the host asks of the guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Mount a virtio-9p file system.
    MountShare {
        /// Mount tag of the device.
        tag: String,
        /// Folder to mount it on; made if missing.
        folder: String,
    },
    /// Run a shell script as root and report its end with [`Event::Exit`].
    Run {
        /// Chosen by the host; input carries the same number.
        id: u32,
        /// What `bash -c` gets.
        script: String,
        /// A terminal for it, or pipes.
        terminal: Option<Terminal>,
    },
    /// Send a signal to the process group of the running script.
    Signal(i32),
    /// The size of the host's terminal changed.
    Resize(Terminal),
}

/// Size and kind of a terminal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminal {
    /// Lines of text.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
    /// Value of the variable `TERM`.
    pub kind: String,
}

/// A piece of standard input; an empty one ends it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Input {
    /// The run that it is for.
    pub id: u32,
    /// At most [`CHUNK`] bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// What the guest tells the host.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The agent takes requests now.
    Ready,
    /// A request that is no run was done, or the reason why not.
    Done(Result<(), String>),
    /// A piece of standard output.
    Stdout(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A piece of standard error.
    Stderr(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The run ended, and all of its output has been sent: its exit status as a
    /// shell gives it (128 + N after signal N), or why it did not start.
    Exit(Result<u8, String>),
}

/// Writes one message and flushes.
///
/// # Errors
/// Whatever the writer reports.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads one message.
///
/// # Errors
/// Whatever the reader reports, `UnexpectedEof` at the end of the stream and
/// `InvalidData` for what is no message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        let text = format!("a message of {length} bytes is longer than {MESSAGE_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_trip() {
        let mut wire = Vec::new();
        send(&mut wire, &Event::Stdout(vec![0, 255, 10])).unwrap();
        send(&mut wire, &Event::Exit(Ok(137))).unwrap();
        let mut wire = wire.as_slice();
        assert!(matches!(receive(&mut wire).unwrap(), Event::Stdout(b) if b == [0, 255, 10]));
        assert!(matches!(receive(&mut wire).unwrap(), Event::Exit(Ok(137))));
        let end = receive::<Event>(&mut wire).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_absurd_length_is_refused() {
        let mut wire = &[255u8, 255, 255, 255, 0][..];
        let error = receive::<Event>(&mut wire).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
