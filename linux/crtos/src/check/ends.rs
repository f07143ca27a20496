// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ends a realm although nobody asked for that: Linux resets the machine, or another kernel
//! takes it over.

use super::{Finding, Probe, note, ok, unknown};
use crate::locked;

/// Bit of `kernel.sysrq`: reboot and power off are allowed. 1 allows everything.
const SYSRQ_BOOT: u32 = 128;
/// All bits of `kernel.sysrq` that allow something.
const SYSRQ_ALL: u32 = 510;

/// Reads a number of `/proc/sys/kernel`.
fn setting(probe: &Probe<'_>, name: &str) -> Option<i64> {
    probe.machine.read(format!("/proc/sys/kernel/{name}"))?.parse().ok()
}

/// Tells what Linux does when it panics.
pub fn panic(probe: &Probe<'_>) -> Finding {
    let when = match setting(probe, "panic") {
        Some(0) => return ok("Linux stands still then, and the realm goes on"),
        Some(seconds) if seconds > 0 => format!("after {seconds} s"),
        Some(_) => "at once".to_owned(),
        None => return unknown("not visible", "mount procfs at /proc"),
    };
    note(format!("Linux resets the machine {when}"), "`sysctl kernel.panic=0`")
}

/// Tells whether a crash kernel (kdump) waits for a panic.
pub fn crash_kernel(probe: &Probe<'_>) -> Finding {
    match probe.machine.read("/sys/kernel/kexec_crash_loaded").as_deref() {
        Some("1") => note("one is loaded", "unload it: `kdump-config unload`, or `kexec -p -u`"),
        _ => ok("none is loaded"),
    }
}

/// Tells whether a kernel is loaded that a reboot would start.
pub fn kexec(probe: &Probe<'_>) -> Finding {
    match probe.machine.read("/sys/kernel/kexec_loaded").as_deref() {
        Some("1") => note("a kernel is loaded", "`kexec -u` unloads it"),
        _ => ok("no kernel is loaded"),
    }
}

/// Tells which watchdogs run.
pub fn watchdog(probe: &Probe<'_>) -> Finding {
    let running = locked::watchdogs(probe.machine);
    match running.is_empty() {
        true => ok("none is active"),
        false => note(format!("active: {}", running.join(", ")), locked::STOP_WATCHDOGS),
    }
}

/// Tells what would end a locked realm all the same.
pub fn locked(probe: &Probe<'_>) -> Finding {
    let open = locked::open_ways(probe.machine);
    match open.is_empty() {
        true => ok("Linux could end it by firmware and by devices alone"),
        false => note(format!("Linux could end it by {}", open.join(", by ")), locked::REMEDY),
    }
}

/// Tells which keys reset the machine.
pub fn keys(probe: &Probe<'_>) -> Finding {
    let allowed = setting(probe, "sysrq").and_then(|mask| u32::try_from(mask).ok()).unwrap_or(0);
    let allowed = if allowed == 1 { SYSRQ_ALL } else { allowed };
    if allowed & SYSRQ_BOOT != 0 {
        let mask = allowed & !SYSRQ_BOOT;
        return note("Alt-SysRq-B", format!("`sysctl kernel.sysrq={mask}`"));
    }
    match setting(probe, "ctrl-alt-del") {
        Some(1) => note("Ctrl-Alt-Del", "`sysctl kernel.ctrl-alt-del=0`"),
        _ => ok("none"),
    }
}
