// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who uses a device, so that it stays until they are done.

use alloc::{sync::Arc, vec::Vec};

use crtos_core::mm::object::Object;

use crate::{
    files,
    process::{Process, threads},
};

/// The process ids, in Linux's first pid namespace, of those who have a local file open that is of
/// the device, or have one of these objects mapped. Thread context; may sleep.
pub fn users(objects: &[Arc<Object>], is_of_device: impl Fn(&files::Object) -> bool) -> Vec<u32> {
    let mut users = Vec::new();
    threads::each_process(|process| {
        let maps = || objects.iter().any(|object| process.space.maps(object));
        if has_open(process, &is_of_device) || maps() {
            users.push(process.outer_pid.get());
        }
    });
    users
}

fn has_open(process: &Process, is_of_device: &impl Fn(&files::Object) -> bool) -> bool {
    let Some(files) = process.files.get() else { return false };
    let mut from = 0;
    while let Some(number) = files.next_local(from) {
        from = number + 1;
        if files.find(number.into()).is_some_and(|file| is_of_device(&file.object)) {
            return true;
        }
    }
    false
}
