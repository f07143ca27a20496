// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux puts on the first stack: arguments, environment, auxiliary vector; and how
//! `crtos run` calls a shadow.

use core::{
    ffi::{CStr, c_char},
    slice,
};

use crtos_syscalls::choices::Choices;

use crate::decimal;

/// An entry of the argument vector or the environment. It points to text that ends with a zero and
/// lives as long as the [`Initial`] that the entry belongs to.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Returns the text.
    pub fn get(&self) -> &CStr {
        // SAFETY: only `Initial::new` makes entries, whose caller says that they are what Linux
        // made, and stay mapped.
        unsafe { CStr::from_ptr(self.0) }
    }
}

/// The vectors on the first stack.
#[derive(Clone, Copy)]
pub struct Initial<'a> {
    arguments: &'a [Text],
    /// The environment of the program.
    pub environment: &'a [Text],
    auxiliary: &'a [[usize; 2]],
}

/// The command line of a shadow.
pub struct Invocation<'a> {
    /// What `crtos run` has chosen for the program.
    pub choices: Choices,
    /// Descriptor of `/dev/crtos`.
    pub device: i32,
    /// Descriptor of the program's executable.
    pub executable: i32,
    /// The name by which the program was executed.
    pub path: &'a CStr,
    /// Its arguments, with argument 0.
    pub arguments: &'a [Text],
}

impl<'a> Initial<'a> {
    /// Finds the vectors that start at `vector`.
    ///
    /// # Safety
    /// `vector` is what RSP was when Linux entered the program. The first stack stays mapped and
    /// unchanged for `'a`.
    pub unsafe fn new(vector: *const usize) -> Self {
        // SAFETY: argc, argv, NULL, envp, NULL, auxv up to AT_NULL follow each other (System V ABI,
        // 3.4.1). `Text` is a pointer.
        unsafe {
            let count = *vector;
            let arguments = vector.add(1).cast::<Text>();
            let environment = arguments.add(count + 1);
            let mut variables = 0;
            while !(*environment.add(variables)).0.is_null() {
                variables += 1;
            }
            let auxiliary = environment.add(variables + 1).cast::<[usize; 2]>();
            let mut entries = 0;
            while (*auxiliary.add(entries))[0] != 0 {
                entries += 1;
            }
            Self {
                arguments: slice::from_raw_parts(arguments, count),
                environment: slice::from_raw_parts(environment, variables),
                auxiliary: slice::from_raw_parts(auxiliary, entries),
            }
        }
    }

    /// Returns the command line, if it is one that `crtos run` makes.
    pub fn invocation(&self) -> Option<Invocation<'a>> {
        let [name, device, executable, path, arguments @ ..] = self.arguments else { return None };
        Some(Invocation {
            choices: Choices::from_name(name.get()),
            device: decimal::parse(device.get())?,
            executable: decimal::parse(executable.get())?,
            path: path.get(),
            arguments,
        })
    }

    /// Returns the value of an entry of the auxiliary vector (`AT_*`), 0 if there is none.
    pub fn auxiliary(&self, kind: u32) -> usize {
        let entry = self.auxiliary.iter().find(|entry| entry[0] == kind as usize);
        entry.map_or(0, |entry| entry[1])
    }

    /// Returns the 16 random bytes that Linux made for the program; zeros if there are none.
    pub fn random(&self) -> [u8; 16] {
        match self.auxiliary(linux_raw_sys::auxvec::AT_RANDOM) {
            0 => [0; 16],
            // SAFETY: AT_RANDOM points to 16 bytes on the first stack, which is mapped.
            address => unsafe { *(address as *const [u8; 16]) },
        }
    }
}
