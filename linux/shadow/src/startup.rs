// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start-up block: what a new process of the realm needs of Linux. It has a head ([`Startup`]),
//! then the path of the program, its arguments, its environment.

use core::{
    cell::UnsafeCell,
    ffi::CStr,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crtos_abi::{
    PAGE_SIZE, UserAddr,
    channel::{SHADOW_START, Startup},
};
use crtos_syscalls::choices::Choices;
use linux_raw_sys::{auxvec, general as linux, prctl};

use crate::{
    invocation::{Initial, Invocation, Text},
    program::Memory,
    signals,
    sys::{self, Errno, mapping::Mapping, process},
};

/// Where the block lies: in the shadow's range, well behind its image.
const BLOCK: u64 = SHADOW_START + 0x4000_0000;

static CHOICES: AtomicU64 = AtomicU64::new(0);

/// Returns what `crtos run` has chosen for the program.
pub fn choices() -> Choices {
    Choices::from_word(CHOICES.load(Ordering::Relaxed))
}

/// The start-up block.
pub struct Block {
    bytes: &'static [u8],
    /// Offset of the arguments.
    arguments: u64,
    /// Offset of the environment.
    environment: u64,
    /// One past the highest address of the program's first stack.
    pub stack_end: u64,
}

impl Block {
    /// Copies everything into memory of the shadow's own range. `executable` is the descriptor of
    /// the program's executable.
    pub fn build(
        initial: &Initial<'_>,
        call: &Invocation<'_>,
        executable: i32,
    ) -> Result<Self, Errno> {
        let length = |strings: &[Text]| -> usize {
            strings.iter().map(|text| text.get().to_bytes_with_nul().len()).sum()
        };
        let arguments = size_of::<Startup>() + call.path.to_bytes_with_nul().len();
        let environment = arguments + length(call.arguments);
        let size = environment + length(initial.environment);
        let room = Mapping::at(BLOCK, size.next_multiple_of(PAGE_SIZE as usize))?.leak();

        CHOICES.store(call.choices.to_word(), Ordering::Relaxed);
        let id = |kind| initial.auxiliary(kind) as u32;
        let random = initial.random();
        let startup = Startup {
            size: size as u32,
            argc: call.arguments.len() as u32,
            envc: initial.environment.len() as u32,
            executable: executable as u32,
            uid: id(auxvec::AT_UID),
            euid: id(auxvec::AT_EUID),
            gid: id(auxvec::AT_GID),
            egid: id(auxvec::AT_EGID),
            stack_limit: process::limits(linux::RLIMIT_STACK).rlim_cur,
            ignored: signals::ignored(),
            choices: call.choices.to_word(),
            hwcap: initial.auxiliary(auxvec::AT_HWCAP) as u64,
            hwcap2: initial.auxiliary(auxvec::AT_HWCAP2) as u64,
            random,
            placement: if process::is_placed_at_random() { random } else { [0; 16] },
        };
        let mut rest = &mut room[..size];
        let head = startup.to_bytes();
        let strings = call.arguments.iter().chain(initial.environment).map(Text::get);
        let texts = core::iter::once(call.path).chain(strings).map(|text| text.to_bytes_with_nul());
        for part in core::iter::once(&head[..]).chain(texts) {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        set_name(file_name(call.path));
        Ok(Self {
            bytes: &room[..size],
            arguments: arguments as u64,
            environment: environment as u64,
            stack_end: startup.stack_end(),
        })
    }

    /// Keeps the block where all threads find it, for good.
    ///
    /// # Panics
    /// When a block is kept already.
    pub fn keep(self) -> &'static Self {
        static IS_KEPT: AtomicBool = AtomicBool::new(false);
        static PLACE: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
        assert!(!IS_KEPT.swap(true, Ordering::Relaxed), "there is one block");
        // SAFETY: only the first caller comes here, so nobody else uses the place, and nobody ever
        // changes it again.
        unsafe { (*PLACE.0.get()).write(self) }
    }

    /// Returns where the block lies: at the start of a page of the shadow's own.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// Has `/proc/PID/cmdline` and `environ` show the strings of the program (prctl(2),
    /// PR_SET_MM_MAP). Where Linux does not offer that, they stay empty, which harms nobody.
    pub fn describe_to_linux(&self) {
        let at = |offset: u64| self.address() + offset;
        let (code, code_end) = (SHADOW_START, SHADOW_START + PAGE_SIZE);
        let end = at(self.bytes.len() as u64);
        let map = prctl::prctl_mm_map {
            start_code: code,
            end_code: code_end,
            start_data: code,
            end_data: code_end,
            start_brk: code_end,
            brk: code_end,
            start_stack: end,
            arg_start: at(self.arguments),
            arg_end: at(self.environment),
            env_start: at(self.environment),
            env_end: end,
            // No auxiliary vector, and no change of the executable.
            auxv: ptr::null_mut(),
            auxv_size: 0,
            exe_fd: u32::MAX,
        };
        let (structure, size) = (&raw const map as u64, size_of_val(&map) as u64);
        let args = [prctl::PR_SET_MM.into(), prctl::PR_SET_MM_MAP.into(), structure, size, 0];
        // SAFETY: Linux reads the structure, and changes what /proc shows.
        let _ = unsafe { sys::call(linux::__NR_prctl, args) };
    }

    /// Copies the block to `to`, if it takes no more than `room` bytes. Returns its size in bytes.
    pub fn copy_to(&self, to: UserAddr, room: u64) -> Result<u64, Errno> {
        let size = self.bytes.len() as u64;
        if size <= room {
            to.write(self.bytes)?;
        }
        Ok(size)
    }
}

/// The place of the one block.
struct Place(UnsafeCell<MaybeUninit<Block>>);

// SAFETY: `Block::keep` alone uses it, once.
unsafe impl Sync for Place {}

/// Returns the last component of a path.
fn file_name(path: &CStr) -> &[u8] {
    let bytes = path.to_bytes();
    match bytes.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => &bytes[slash + 1..],
        None => bytes,
    }
}

/// Names the process in Linux.
fn set_name(name: &[u8]) {
    let mut text = [0; 16];
    for (to, from) in text.iter_mut().take(15).zip(name) {
        *to = *from;
    }
    let args = [prctl::PR_SET_NAME.into(), text.as_ptr() as u64];
    // SAFETY: Linux reads the 16 bytes.
    let _ = unsafe { sys::call(linux::__NR_prctl, args) };
}
