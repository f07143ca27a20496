// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's KVM, which since 6.12 has the processor's virtualization from when it is loaded, whether
//! a virtual machine runs or not. It gives way to the hypervisor, and comes back after it.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{machine::Machine, start::step, state};

/// Its module for AMD's processors.
const MODULE: &str = "kvm_amd";
/// File that tells which modules have given way.
const RECORD: &str = "/run/crtos/kvm.json";
/// How long Linux may take to load it, on a machine that is busy with its boot.
const LOADING_PATIENCE: Duration = Duration::from_secs(20);

/// Whether it has the processor's virtualization, and nobody uses that.
pub fn is_idle(machine: &Machine) -> bool {
    let at_load = machine.read("/sys/module/kvm/parameters/enable_virt_at_load");
    machine.module_loaded(MODULE)
        && machine.module_users(MODULE) == Some(0)
        && at_load.as_deref() == Some("Y")
}

/// KVM, which comes back when this is dropped, if it has given way and is not kept away.
#[derive(Default)]
pub struct Kvm {
    is_away: bool,
}

impl Kvm {
    /// Has it give way if it has the processor's virtualization and nobody uses that, and says
    /// whether it is away now.
    pub fn give_way(&mut self, machine: &Machine) -> bool {
        let has_waited = wait_while_loading(machine, LOADING_PATIENCE);
        // Before it goes: if this command is killed, `crtos down` loads it.
        if is_idle(machine) && state::store(Path::new(RECORD), &[MODULE]).is_ok() {
            step("unloading KVM, which no virtual machine uses");
            self.is_away = true;
            modprobe(&["-r", MODULE]);
        }
        (has_waited || self.is_away) && !machine.module_loaded(MODULE)
    }

    /// Leaves it away until the hypervisor has left.
    pub fn keep_away(mut self) {
        self.is_away = false;
    }
}

impl Drop for Kvm {
    fn drop(&mut self) {
        if self.is_away {
            give_back();
        }
    }
}

/// Waits until Linux has loaded it, or has failed to, if it is doing that, as at boot for udev.
/// Until then it has the processor's virtualization on some CPUs, and cannot be unloaded. Returns
/// whether there was something to wait for.
fn wait_while_loading(machine: &Machine, patience: Duration) -> bool {
    /// Between two looks.
    const PAUSE: Duration = Duration::from_millis(10);
    let is_loading = || {
        let state = machine.read(format!("/sys/module/{MODULE}/initstate"));
        state.as_deref() == Some("coming")
    };
    let deadline = Instant::now() + patience;
    let mut has_waited = false;
    while is_loading() && Instant::now() < deadline {
        has_waited = true;
        sleep(PAUSE);
    }
    has_waited
}

/// Loads it again if it has given way. The hypervisor does not run.
pub fn give_back() {
    state::settle(Path::new(RECORD), |module: String| modprobe(&[&module]));
}

fn modprobe(words: &[&str]) {
    let mut command = Command::new("modprobe");
    // One that is busy meanwhile stays. One that is loaded is loaded.
    let _ = command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    #[test]
    fn only_an_idle_one_that_has_it_gives_way() {
        let fake = Fake::fit();
        assert!(!is_idle(&fake.machine()));
        fake.write("/sys/module/kvm_amd/initstate", "live\n");
        fake.write("/sys/module/kvm_amd/refcnt", "0\n");
        assert!(!is_idle(&fake.machine()), "before 6.12 it has nothing yet");
        fake.write("/sys/module/kvm/parameters/enable_virt_at_load", "Y\n");
        assert!(is_idle(&fake.machine()));
        fake.write("/sys/module/kvm_amd/refcnt", "2\n");
        assert!(!is_idle(&fake.machine()));
    }

    #[test]
    fn one_that_is_loading_is_waited_for() {
        const STATE: &str = "/sys/module/kvm_amd/initstate";
        let fake = Fake::fit();
        let machine = fake.machine();
        assert!(!wait_while_loading(&machine, LOADING_PATIENCE));
        fake.write(STATE, "coming\n");
        assert!(wait_while_loading(&machine, Duration::from_millis(30)), "the patience ends");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_while_loading(&machine, LOADING_PATIENCE));
            sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            fake.write(STATE, "live\n");
            assert!(waiting.join().expect("it waits"));
        });
        assert!(!wait_while_loading(&machine, LOADING_PATIENCE));
    }
}
