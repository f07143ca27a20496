// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel in ordinary memory, and Linux's end of it: the C code of the module, compiled for the
//! host.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    path::Path,
    process::Command,
    ptr::NonNull,
    sync::OnceLock,
};

use crtos_abi::{
    ABI_VERSION,
    channel::{self as raw, CHANNEL_MAGIC, RANK_ABSENT},
};
use crtos_channel::{Channel, Slot};
use libloading::Library;

/// A channel as Linux prepares it.
pub struct Shared {
    base: NonNull<raw::Channel>,
}

// SAFETY: the memory is reached through atomics alone.
unsafe impl Sync for Shared {}
// SAFETY: the memory belongs to the value, whichever thread has it.
unsafe impl Send for Shared {}

impl Shared {
    pub fn new() -> Self {
        // SAFETY: the layout has a size; all fields are integers, so zeros are valid.
        unsafe {
            let base =
                NonNull::new(alloc_zeroed(Layout::new::<raw::Channel>()).cast::<raw::Channel>())
                    .expect("memory");
            (*base.as_ptr()).magic = CHANNEL_MAGIC;
            (*base.as_ptr()).abi_version = ABI_VERSION;
            (&mut (*base.as_ptr()).ranks)[1..].fill(RANK_ABSENT);
            Self { base }
        }
    }

    /// The kernel's view.
    pub fn view(&self) -> Channel {
        // SAFETY: the tests keep `self` for as long as they use the view.
        unsafe { Channel::new(self.base) }
    }

    pub fn pointer(&self) -> *mut raw::Channel {
        self.base.as_ptr()
    }

    /// Stores a byte anywhere, as a hostile Linux may.
    #[allow(dead_code)]
    pub fn scribble(&self, offset: usize, value: u64) {
        let offset = offset % (size_of::<raw::Channel>() / 8);
        // SAFETY: the word lies inside the channel.
        unsafe { self.pointer().cast::<u64>().add(offset).write_volatile(value) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr().cast(), Layout::new::<raw::Channel>()) }
    }
}

/// A request as Linux copies it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub op: u32,
    pub nr: u32,
    pub args: [u64; 6],
}

macro_rules! linux {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[allow(dead_code)]
            pub fn $name(channel: &Shared, $($argument: $type),*) $(-> $result)? {
                let symbol = concat!("linux_", stringify!($name));
                // SAFETY: linux.c defines the function with this signature, and `channel` outlives
                // the call.
                unsafe {
                    type Function =
                        unsafe extern "C" fn(*mut raw::Channel, $($type),*) $(-> $result)?;
                    let function = library().get::<Function>(symbol.as_bytes()).expect(symbol);
                    function(channel.pointer(), $($argument),*)
                }
            }
        )*
    };
}

/// Linux's end.
pub mod linux {
    use super::{Shared, Taken, library, raw};

    linux! {
        size() -> u64;
        state(slot: u32) -> u32;
        open(slot: u32, process: u32, pid: u32);
        take_request(slot: u32, request: &mut Taken) -> bool;
        target(slot: u32, wanted: &mut bool) -> u32;
        reply(slot: u32, result: i64) -> bool;
        ask(slot: u32, address: u64, write: bool) -> bool;
        take_answer(slot: u32, answer: &mut u64) -> bool;
        gone(slot: u32);
        signal(slot: u32, number: u32) -> bool;
        revoke(process: u32) -> u64;
        revocations_waiting(finished: u32) -> u32;
        requests(word: u32) -> u64;
        waits_on(slot: u32, cpu: u32);
        put_question(seal: bool) -> u32;
        is_answered(seal: bool, number: u32) -> bool;
        send(written: &mut u64, length: u32, value: u8, ring: &mut bool) -> bool;
        take(taken: &mut u64, length: &mut u32, value: &mut u8) -> u64;
        want_frames(taken: u64) -> bool;
        up(up: bool);
    }
}

/// The compiled code of Linux's end.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("linux-{}.so", std::process::id()));
        let status = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-I"])
            .arg(here.join("../../linux/module"))
            .arg("-o")
            .arg(&output)
            .arg(here.join("tests/linux.c"))
            .status()
            .expect("a C compiler");
        assert!(status.success(), "the module's end of the channel does not compile");
        // SAFETY: the library has no initialisers.
        let library = unsafe { Library::new(&output) }.expect("a library that was just made");
        let _ = std::fs::remove_file(output);
        library
    })
}

/// Takes all that Linux stored for slots, as the kernel does.
#[allow(dead_code)]
pub fn take_replies(view: &Channel, mut found: impl FnMut(Slot)) {
    for slot in (0..raw::SLOTS).filter_map(Slot::new) {
        if view.replies(slot.word()) & slot.bit() != 0 && view.take_reply(slot) {
            found(slot);
        }
    }
}
