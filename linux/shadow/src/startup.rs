// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program is started with: its strings, and what Linux knows of the process.

use core::{
    cell::Cell,
    ffi::CStr,
    mem::size_of,
    slice,
    sync::atomic::{AtomicBool, Ordering},
};

use crtos_abi::channel::{SHADOW_START, Startup};
use linux_raw_sys::{auxvec, general as linux, prctl};

use crate::{
    file_name, signals,
    sys::{self, Errno},
};

/// First word of the command line of a shadow whose program knows the realm's CPUs by numbers of
/// their own.
const RENUMBERING: &CStr = c"shadow-renumbering";

/// Where the block lies: in the shadow's range, well behind its image and heap.
const BLOCK: u64 = SHADOW_START + 0x4000_0000;

/// The vectors on the stack that Linux made.
pub struct Initial {
    arguments: &'static [*const i8],
    environment: &'static [*const i8],
    auxiliary: &'static [[usize; 2]],
}

/// The command line of the shadow.
pub struct Invocation {
    /// The program knows the realm's CPUs by numbers of their own.
    pub renumbers: bool,
    /// Descriptor of `/dev/crtos`.
    pub device: i32,
    /// Descriptor of the program.
    pub executable: i32,
    path: &'static CStr,
    arguments: &'static [*const i8],
}

static RENUMBERS: AtomicBool = AtomicBool::new(false);

/// Whether the program knows the realm's CPUs by numbers of their own.
pub fn renumbers() -> bool {
    RENUMBERS.load(Ordering::Relaxed)
}

/// What a shadow is called, by whether its program knows the realm's CPUs by numbers of their own.
pub fn shadow_name(renumbers: bool) -> &'static CStr {
    if renumbers { RENUMBERING } else { c"shadow" }
}

impl Initial {
    /// The vectors that start at `vector`.
    ///
    /// # Safety
    /// `vector` is what RSP was when Linux entered the program, and the old stack stays mapped
    /// while the result is used.
    pub unsafe fn new(vector: *const usize) -> Initial {
        // SAFETY: argc, argv, NULL, envp, NULL, auxv up to AT_NULL follow each other (System V ABI,
        // 3.4.1).
        unsafe {
            let count = *vector;
            let arguments = vector.add(1).cast::<*const i8>();
            let environment = arguments.add(count + 1);
            let mut variables = 0;
            while !(*environment.add(variables)).is_null() {
                variables += 1;
            }
            let auxiliary = environment.add(variables + 1).cast::<[usize; 2]>();
            let mut entries = 0;
            while (*auxiliary.add(entries))[0] != 0 {
                entries += 1;
            }
            Initial {
                arguments: slice::from_raw_parts(arguments, count),
                environment: slice::from_raw_parts(environment, variables),
                auxiliary: slice::from_raw_parts(auxiliary, entries),
            }
        }
    }

    /// The command line, if it is one that `crtos run` makes.
    pub fn invocation(&self) -> Option<Invocation> {
        let [name, device, executable, path, arguments @ ..] = self.arguments else { return None };
        Some(Invocation {
            renumbers: string(*name) == RENUMBERING,
            device: number(string(*device))?,
            executable: number(string(*executable))?,
            path: string(*path),
            arguments,
        })
    }

    fn auxiliary(&self, kind: u32) -> Option<usize> {
        self.auxiliary.iter().find(|entry| entry[0] == kind as usize).map(|entry| entry[1])
    }
}

/// A string of the vectors.
fn string(pointer: *const i8) -> &'static CStr {
    // SAFETY: entries of argv and envp point to zero-terminated strings; see `Initial::new`.
    unsafe { CStr::from_ptr(pointer) }
}

/// A decimal number.
pub fn number(text: &CStr) -> Option<i32> {
    text.to_str().ok()?.parse().ok().filter(|&number| number >= 0)
}

/// The start-up block: a [`Startup`], the path, the arguments, the environment.
pub struct Block {
    base: *mut u8,
    size: u32,
    /// Offsets of the arguments, the environment and the end.
    arguments: u64,
    environment: u64,
    executable: Cell<u32>,
    /// One past the highest address of the program's first stack.
    pub stack_end: u64,
}

impl Block {
    /// Copies everything into memory of the shadow's own range.
    pub fn build(initial: &Initial, call: &Invocation) -> Result<Block, Errno> {
        let length = |strings: &[*const i8]| -> usize {
            strings.iter().map(|&pointer| string(pointer).to_bytes_with_nul().len()).sum()
        };
        let arguments = size_of::<Startup>() + call.path.to_bytes_with_nul().len();
        let environment = arguments + length(call.arguments);
        let size = environment + length(initial.environment);
        let base = sys::map_memory(BLOCK, size.next_multiple_of(4096) as u64)?;

        RENUMBERS.store(call.renumbers, Ordering::Relaxed);
        let mut random = [0; 16];
        if let Some(address) = initial.auxiliary(auxvec::AT_RANDOM) {
            // SAFETY: AT_RANDOM points to 16 bytes on the initial stack.
            random = unsafe { *(address as *const [u8; 16]) };
        }
        let value = |kind| initial.auxiliary(kind).unwrap_or(0);
        let startup = Startup {
            size: size as u32,
            argc: call.arguments.len() as u32,
            envc: initial.environment.len() as u32,
            executable: call.executable as u32,
            uid: value(auxvec::AT_UID) as u32,
            euid: value(auxvec::AT_EUID) as u32,
            gid: value(auxvec::AT_GID) as u32,
            egid: value(auxvec::AT_EGID) as u32,
            stack_limit: sys::limit(linux::RLIMIT_STACK),
            signal_limit: sys::limit(linux::RLIMIT_SIGPENDING),
            processor_limit: sys::limits(linux::RLIMIT_CPU),
            real_time_limit: sys::limits(linux::RLIMIT_RTTIME),
            ignored: signals::ignored(),
            renumbers_cpus: call.renumbers.into(),
            hwcap: value(auxvec::AT_HWCAP) as u64,
            hwcap2: value(auxvec::AT_HWCAP2) as u64,
            random,
        };
        let stack_end = startup.stack_end();
        // SAFETY: `base` is fresh memory of at least `size` bytes, aligned to a page.
        let bytes = unsafe {
            base.cast::<Startup>().write(startup);
            slice::from_raw_parts_mut(base.add(size_of::<Startup>()), size - size_of::<Startup>())
        };
        let mut rest = bytes;
        let strings =
            call.arguments.iter().chain(initial.environment).map(|&pointer| string(pointer));
        for text in core::iter::once(call.path).chain(strings) {
            let text = text.to_bytes_with_nul();
            let (place, behind) = rest.split_at_mut(text.len());
            place.copy_from_slice(text);
            rest = behind;
        }
        set_name(file_name(call.path));
        let executable = Cell::new(call.executable as u32);
        let (arguments, environment) = (arguments as u64, environment as u64);
        Ok(Block { base, size: size as u32, arguments, environment, executable, stack_end })
    }

    /// Where the block lies: a page of the shadow's own.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// Notes where the descriptor of the program lies now.
    pub fn set_executable(&self, fd: i32) {
        self.executable.set(fd as u32);
    }

    /// Has `/proc/PID/cmdline` and `environ` show the program's strings (prctl(2), PR_SET_MM_MAP).
    /// Where Linux does not offer that, they stay empty, which harms nobody.
    pub fn describe_to_linux(&self) {
        let at = |offset: u64| self.base as u64 + offset;
        let code = SHADOW_START;
        let map = linux_map(
            code,
            [at(self.arguments), at(self.environment), at(self.environment), at(self.size.into())],
        );
        let length = size_of_val(&map) as u64;
        let args = [
            prctl::PR_SET_MM.into(),
            prctl::PR_SET_MM_MAP.into(),
            map.as_ptr() as u64,
            length,
            0,
            0,
        ];
        // SAFETY: changes what /proc shows.
        let _ = unsafe { sys::call(linux::__NR_prctl, args) };
    }

    /// Copies the block to `to`, if it takes no more than `room` bytes. Returns its size.
    pub fn copy_to(&self, to: u64, room: u64) -> i64 {
        if u64::from(self.size) <= room {
            // SAFETY: the block is initialised memory of this size; the descriptor's field belongs
            // to it.
            unsafe {
                (*self.base.cast::<Startup>()).executable = self.executable.get();
                core::ptr::copy_nonoverlapping(self.base, to as *mut u8, self.size as usize);
            }
        }
        self.size.into()
    }
}

/// A `struct prctl_mm_map` for arguments `strings[0]..strings[1]` and environment
/// `strings[2]..strings[3]`; no auxiliary vector, no change of the executable.
fn linux_map(code: u64, strings: [u64; 4]) -> [u64; 13] {
    let [arg_start, arg_end, env_start, env_end] = strings;
    let (end, stack) = (code + 4096, env_end);
    let no_executable = u64::from(u32::MAX) << 32;
    [
        code,
        end,
        code,
        end,
        end,
        end,
        stack,
        arg_start,
        arg_end,
        env_start,
        env_end,
        0,
        no_executable,
    ]
}

/// Names the process in Linux.
fn set_name(name: &[u8]) {
    let mut text = [0; 16];
    for (to, from) in text.iter_mut().take(15).zip(name) {
        *to = *from;
    }
    // SAFETY: Linux reads the 16 bytes.
    let _ = unsafe {
        sys::call(linux::__NR_prctl, [prctl::PR_SET_NAME.into(), text.as_ptr() as u64, 0, 0, 0, 0])
    };
}
